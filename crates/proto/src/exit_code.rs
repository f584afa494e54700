//! The exit code of a job: what a shell script sees.

use wireup_wire::peer::{Cause, Failure, SpawnStep};

/// Our own failure.
pub const OURS: u8 = 125;
/// The time limit of the job is over, as `timeout(1)` says it.
pub const TIMED_OUT: u8 = 124;

/// `EACCES`, `ENOEXEC`, `ENOTDIR`, `EISDIR`: the program is there and is none.
const NOT_EXECUTABLE: [i32; 3] = [13, 8, 21];

/// The code of the first failing rank: its own, 128 + signal, 127 not found, 126 not executable, 125 our failure.
pub fn exit_code(failure: Option<&Failure>) -> u8 {
    let Some(failure) = failure else {
        return 0;
    };
    match &failure.cause {
        Cause::Exited(code) => *code,
        Cause::Signalled { signal, .. } | Cause::Interrupted { signal } | Cause::ToldToEnd { signal } => {
            of_signal(*signal)
        }
        Cause::Spawn(error) => match error.step {
            SpawnStep::Find | SpawnStep::Exec if NOT_EXECUTABLE.contains(&error.errno) => 126,
            SpawnStep::Find => 127,
            SpawnStep::Interpreter | SpawnStep::Exec => 126,
            SpawnStep::Cwd | SpawnStep::Stdio | SpawnStep::Fork | SpawnStep::Devices => OURS,
        },
        Cause::Aborted { code, .. } => match (*code & 0xff) as u8 {
            0 => 1,
            code => code,
        },
        Cause::LeftFence { exit: Some(code @ 1..), .. } | Cause::LeftGroup { exit: Some(code @ 1..), .. } => *code,
        Cause::LeftFence { .. } | Cause::LeftGroup { .. } | Cause::NotFinalized | Cause::Pmi { .. } => 1,
        // As if SIGKILL had come from elsewhere.
        Cause::Killed { .. } => of_signal(9),
        Cause::TimedOut { .. } => TIMED_OUT,
        Cause::AgentsMissing { .. }
        | Cause::AgentLost { .. }
        | Cause::NoDirectLink { .. }
        | Cause::KeeperLost
        | Cause::PmixServer { .. }
        | Cause::SessionEnded { .. }
        | Cause::Launcher { .. } => OURS,
    }
}

fn of_signal(signal: i32) -> u8 {
    128u8.saturating_add(u8::try_from(signal).unwrap_or(0))
}
