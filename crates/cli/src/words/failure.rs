//! What ended a job, where, and what to do about it, on one line.

use super::{Setting, missing, one_line, signals};
use crate::out::without_errnos;
use serde_json::Value;
use wireup_wire::peer::{Cause, Failure, PmixFault, ProblemKind, RankError, SpawnError, SpawnStep, remedy};

/// Lines of a traceback that are shown: the last ones, next to the error itself.
const LINES_SHOWN: usize = 64;

/// The line, without the prefix `wireup: `. Foreign text, such as a rank's abort message, cannot break it.
pub fn line(failure: &Failure, setting: &Setting) -> String {
    one_line(&sentence(failure, setting))
}

fn sentence(failure: &Failure, setting: &Setting) -> String {
    let who = who(failure);
    let others = if setting.job_size > 1 { "; the other ranks were terminated" } else { "" };
    match &failure.cause {
        Cause::Exited(code) => {
            let advice =
                if setting.job_size > 1 && !setting.label { "; --label shows which rank wrote what" } else { "" };
            format!("{who} exited with code {code}{others}{advice}")
        }
        Cause::ExitedLate(code) => {
            let others = if setting.job_size > 1 { "; the other ranks continue" } else { "" };
            format!("{who} exited with code {code} after it had called finalize{others}")
        }
        Cause::Signalled { signal, core_dumped } => {
            let core = if *core_dumped { ", core dumped" } else { "" };
            let advice = signals::advice(*signal, *core_dumped).map(|advice| format!("; {advice}")).unwrap_or_default();
            format!("{who} was killed by signal {signal} ({}{core}){others}{advice}", signals::name(*signal))
        }
        Cause::Spawn(error) => format!("{}: {}", node(failure), spawn(error)),
        Cause::Aborted { code, message } => {
            let message = if message.is_empty() { String::new() } else { format!(": {}", message.trim_end()) };
            format!("{who} called abort with code {code}{message}{others}")
        }
        Cause::LeftFence { epoch, collective, exit, finalized, waiting } => {
            let how = match (exit, finalized) {
                (Some(code), true) => format!("exited with code {code} after PMI finalize"),
                (Some(code), false) => format!("exited with code {code} without PMI finalize"),
                (None, true) => "called PMI finalize".to_owned(),
                (None, false) => "left without PMI finalize".to_owned(),
            };
            let waiting = match waiting {
                // Ranks that wait on other nodes are not counted.
                0 => "others wait".to_owned(),
                1 => "1 rank waits".to_owned(),
                count => format!("{count} ranks wait"),
            };
            format!(
                "{who} {how} while {waiting} for it in {collective} {epoch}{others}; every rank must call MPI_Init and \
                 MPI_Finalize"
            )
        }
        Cause::LeftGroup { group, exit } => {
            let how = exit.map_or("called PMI finalize".to_owned(), |code| format!("exited with code {code}"));
            format!("{who} {how} while others wait for it in a collective of {group}{others}")
        }
        Cause::NotFinalized { initialised: false } => format!(
            "{who} exited with code 0 without calling MPI_Init, where other ranks may be waiting for it{others}; \
             every rank must call MPI_Init and MPI_Finalize"
        ),
        Cause::NotFinalized { initialised: true } => format!(
            "{who} exited with code 0 without calling MPI_Finalize, so other ranks could wait forever{others}; call \
             MPI_Finalize, or MPI_Abort to end early"
        ),
        Cause::Pmi { problem } => format!(
            "{who} violated the PMI protocol: {problem}{others}; was its PMI library made for PMI-1 or \
             PMI-2? To run it without PMI: --pmi none"
        ),
        Cause::AgentsMissing { missing } => missing::sentence(missing, setting),
        Cause::AgentLost { problem, .. } => {
            format!(
                "{}: lost the connection to its agent: {problem}{others}; {}",
                node(failure),
                lost_advice(problem.kind, setting)
            )
        }
        Cause::NoDirectLink { host, problem, .. } => format!(
            "{}: messages from node {host} are missing or out of order: {problem}{others}; to avoid direct \
             links, use --exchange=tree",
            node(failure)
        ),
        Cause::OutOfMemory => format!(
            "{who} was killed by the kernel because memory ran out{others}; use fewer ranks per node, \
             or raise the batch system's limit"
        ),
        Cause::KeeperLost { problem: Some(SpawnError { what, errno, .. }) } => {
            let advice = match *errno {
                EPERM | ENOSYS => Some("seccomp or a security module (SELinux, AppArmor) on the node forbids it"),
                // The keeper's only calls with this error are those of epoll.
                ENOSPC => Some("raise fs.epoll.max_user_watches on the node (sysctl)"),
                errno => remedy(errno),
            };
            let advice = advice.map_or_else(String::new, |advice| format!("; {advice}"));
            let reason = if *errno == 0 { String::new() } else { format!(": {}", reason(*errno)) };
            format!("{}: the process that runs its ranks has failed: {what}{reason}{others}{advice}", node(failure))
        }
        Cause::KeeperLost { problem: None } => format!(
            "{}: the process that runs its ranks was killed{others}; check dmesg on the node for an out-of-memory kill",
            node(failure)
        ),
        Cause::PmixServer { problem } => {
            format!("{}: its PMIx server: {problem}{others}{}", node(failure), pmix_advice(problem.kind))
        }
        Cause::ToldToEnd { signal } => format!(
            "{}: the batch system terminated its agent ({}): the job was cancelled or reached its time limit",
            node(failure),
            signals::name(*signal)
        ),
        Cause::TimedOut { after_ns } => format!(
            "the job reached its time limit of {} s and was terminated; if it needs more time, raise --timeout",
            *after_ns as f64 / 1e9
        ),
        Cause::Interrupted { signal } => format!("the job was terminated by {}", signals::name(*signal)),
        Cause::Killed { by } => format!("the job was terminated by {by}"),
        Cause::SessionEnded { reason } => format!("the job was terminated because its session ended: {reason}"),
        Cause::Launcher { problem } => {
            format!("{problem}{others}; check free space and permissions there, then run again")
        }
    }
}

fn who(failure: &Failure) -> String {
    let Some(rank) = failure.rank else { return node(failure) };
    let pid = failure.pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    format!("rank {rank} on {}{pid}", failure.host)
}

fn node(failure: &Failure) -> String {
    if failure.host.is_empty() { "this machine".to_owned() } else { format!("node {}", failure.host) }
}

fn lost_advice(kind: ProblemKind, setting: &Setting) -> &'static str {
    match kind {
        ProblemKind::StepCancelled => "its Slurm step was cancelled (scancel), or a limit of the Slurm job was reached",
        _ if setting.local => "check dmesg on the node for an out-of-memory kill",
        // The reason why the whole step died may be reported later.
        ProblemKind::TaskKilled => {
            "check dmesg on the node for an out-of-memory kill; or was the job cancelled with scancel?"
        }
        ProblemKind::Killed => "check dmesg on the node for an out-of-memory kill",
        ProblemKind::Silent => {
            "check the node's power and network, and whether its agent is suspended; --node-timeout sets the limit"
        }
        ProblemKind::System(_)
        | ProblemKind::Advised
        | ProblemKind::NotInstalled
        | ProblemKind::NothingStarted
        | ProblemKind::Other => "check that the node is up, and its system log",
    }
}

fn pmix_advice(fault: PmixFault) -> &'static str {
    match fault {
        PmixFault::Library => "",
        PmixFault::Silent => "; is it suspended, or is the node overloaded (top)?",
        PmixFault::NoRoom => "; free some space there, or set TMPDIR to a folder with enough space",
        PmixFault::Other => "; --pmix-library chooses another library",
    }
}

const EPERM: i32 = 1;
const ENOSPC: i32 = 28;
const ENOSYS: i32 = 38;
const ENOENT: i32 = 2;
const E2BIG: i32 = 7;
const ENOEXEC: i32 = 8;
const EAGAIN: i32 = 11;
const EACCES: i32 = 13;
const EISDIR: i32 = 21;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ETXTBSY: i32 = 26;
const ENODATA: i32 = 61;

fn spawn(error: &SpawnError) -> String {
    let SpawnError { step, what, errno } = error;
    let reason = reason(*errno);
    match (step, *errno) {
        (SpawnStep::Find, ENOENT) if what.contains('/') => {
            format!("{what}: not found; is it built, and is the path right?")
        }
        (SpawnStep::Find, ENOENT) => {
            format!("{what}: not found on PATH, nor in the working directory; is it built?")
        }
        (SpawnStep::Find | SpawnStep::Exec, EACCES | EPERM) => {
            format!(
                "{what}: not executable ({reason}); make it executable (chmod +x), and check that its file system is \
                 not mounted noexec"
            )
        }
        (SpawnStep::Find | SpawnStep::Exec, EISDIR) => format!("{what} is a directory; give the path of a program"),
        (SpawnStep::Find | SpawnStep::Exec, ENODATA) => {
            format!("{what} is empty; was it built, and is its disk full?")
        }
        (SpawnStep::Exec, ENOEXEC) => format!(
            "{what}: not an executable for this machine; a script must begin with a line such as #!/bin/sh, and a \
             program must be built for this architecture"
        ),
        (SpawnStep::Exec, E2BIG) => format!("{what}: the arguments and environment are too long; put them in a file"),
        (SpawnStep::Exec, ETXTBSY) => format!("{what} is open for writing; try again when the build has finished"),
        (SpawnStep::Interpreter, _) => format!(
            "{what}: its interpreter was not found ({reason}); check its first line (#!) or, for a binary, its loader \
             (readelf -l)"
        ),
        (SpawnStep::Sockets, _) => {
            format!("cannot make {what}: {reason}; --rank-ports LOW-HIGH chooses other ports")
        }
        (SpawnStep::Staged, _) => format!("{what}; without --stage=require the ranks would use the original files"),
        (SpawnStep::Preload, _) => {
            format!("{what}; without --preload-required each rank would import the modules itself")
        }
        (SpawnStep::Bind, _) => format!("the ranks cannot be bound: {what}"),
        (SpawnStep::Devices, _) => format!("{what}; lower --gpus-per-rank, or start fewer ranks per node"),
        (SpawnStep::Cwd, _) => {
            format!("working directory {what}: {reason}; create it on that node, or choose another with --wdir")
        }
        (_, EMFILE | ENFILE) => format!("{} failed: {reason}; raise ulimit -n or use more nodes", step.words()),
        (SpawnStep::Listen, _) => format!("{what}; --interface chooses the network between nodes"),
        (SpawnStep::Secret, _) => format!(
            "{what} cannot be made, because {} failed: {reason}; does a seccomp filter forbid getrandom there?",
            step.words()
        ),
        (SpawnStep::Fork, EAGAIN) => {
            format!("{} failed: {reason}; raise ulimit -u or pids.max of the cgroup", step.words())
        }
        (SpawnStep::Fork | SpawnStep::Stdio, 0) => format!("{} failed: {what}", step.words()),
        (SpawnStep::Fork | SpawnStep::Stdio, EPERM) => {
            format!(
                "{} failed: {reason}; seccomp or a security module (SELinux, AppArmor) on the node forbids it",
                step.words()
            )
        }
        (SpawnStep::Fork | SpawnStep::Stdio, _) => {
            format!("{} failed: {reason}; try fewer ranks per node", step.words())
        }
        (SpawnStep::Find | SpawnStep::Exec, _) => {
            format!("{what}: {reason}; check that the node can read and execute it")
        }
    }
}

/// The text of an `errno`, without its number.
fn reason(errno: i32) -> String {
    without_errnos(&std::io::Error::from_raw_os_error(errno).to_string())
}

/// The error that a rank wrote before it exited, in the format of torch's `@record`: a line that names the rank, then
/// its traceback.
pub fn rank_error_lines(error: &RankError) -> Vec<String> {
    let RankError { rank, host, text, .. } = error;
    let text = description(text);
    let all: Vec<&str> = text.trim_end().lines().collect();
    let (omitted, shown) = all.split_at(all.len().saturating_sub(LINES_SHOWN));
    let head = format!("rank {rank} on {host} failed first:");
    if let ([], [only]) = (omitted, shown) {
        return vec![format!("{head} {}", one_line(only))];
    }
    let cut = (!omitted.is_empty()).then(|| format!("    ({} lines left out)", omitted.len()));
    let shown = shown.iter().map(|line| format!("    {}", one_line(line)));
    [head].into_iter().chain(cut).chain(shown).collect()
}

/// The traceback, or else the message, or else the text as it is.
fn description(text: &[u8]) -> String {
    let json: Option<Value> = serde_json::from_slice(text).ok();
    let message = json.as_ref().and_then(|json| json.get("message"));
    let found = message.and_then(|message| {
        let traceback = message.pointer("/extraInfo/py_callstack");
        traceback.or(message.get("message")).unwrap_or(message).as_str()
    });
    found.map_or_else(|| String::from_utf8_lossy(text).into_owned(), str::to_owned)
}

#[cfg(test)]
mod tests;
