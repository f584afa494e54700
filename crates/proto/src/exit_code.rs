//! Determines the exit code of a job, as seen by a shell script.

use wireup_wire::peer::{Cause, Failure, SpawnStep};

/// Exit code for a failure of wireup itself.
pub const OURS: u8 = 125;
/// Exit code for a job that exceeded its time limit; `timeout(1)` uses the same code.
pub const TIMED_OUT: u8 = 124;
/// Exit code of a program that `SIGPIPE` ends.
pub const READER_GONE: u8 = 128 + 13;

/// Error numbers that mean "the file exists, but is no executable program": `EACCES`, `ENOEXEC`, `EISDIR`, and
/// `ENODATA`, with which an empty file is reported.
const NOT_EXECUTABLE: [i32; 4] = [13, 8, 21, 61];

/// The exit code for the first failure of a job: the rank's own code; 128 + the signal that ended it; 127: program not
/// found; 126: not executable; 125: failure of wireup itself. 0 without a failure.
pub fn exit_code(failure: Option<&Failure>) -> u8 {
    let Some(failure) = failure else {
        return 0;
    };
    match &failure.cause {
        Cause::Exited(code) | Cause::ExitedLate(code) => *code,
        Cause::Signalled { signal, .. } | Cause::Interrupted { signal } | Cause::ToldToEnd { signal } => {
            of_signal(*signal)
        }
        Cause::Spawn(error) => match error.step {
            SpawnStep::Find | SpawnStep::Exec if NOT_EXECUTABLE.contains(&error.errno) => 126,
            SpawnStep::Find => 127,
            SpawnStep::Interpreter | SpawnStep::Exec => 126,
            SpawnStep::Cwd
            | SpawnStep::Stdio
            | SpawnStep::Fork
            | SpawnStep::Devices
            | SpawnStep::Sockets
            | SpawnStep::Staged
            | SpawnStep::Bind
            | SpawnStep::Listen
            | SpawnStep::Secret
            | SpawnStep::Preload => OURS,
        },
        Cause::Aborted { code, .. } => match (*code & 0xff) as u8 {
            0 => 1,
            code => code,
        },
        Cause::LeftFence { exit: Some(code @ 1..), .. } | Cause::LeftGroup { exit: Some(code @ 1..), .. } => *code,
        Cause::LeftFence { .. } | Cause::LeftGroup { .. } | Cause::NotFinalized { .. } | Cause::Pmi { .. } => 1,
        // The kernel killed the rank by SIGKILL; or the job was ended on request, which is reported as a SIGKILL.
        Cause::OutOfMemory | Cause::Killed { .. } => of_signal(9),
        Cause::TimedOut { .. } => TIMED_OUT,
        Cause::AgentsMissing { .. }
        | Cause::AgentLost { .. }
        | Cause::NoDirectLink { .. }
        | Cause::KeeperLost { .. }
        | Cause::PmixServer { .. }
        | Cause::SessionEnded { .. }
        | Cause::Launcher { .. } => OURS,
    }
}

fn of_signal(signal: i32) -> u8 {
    128u8.saturating_add(u8::try_from(signal).unwrap_or(0))
}
