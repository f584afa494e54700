//! What ended a job, where, and what to do about it, on one line.

use super::{Setting, missing, one_line, signals};
use wireup_wire::peer::{Cause, Failure, SpawnError, SpawnStep};

/// The line, without the prefix `wireup: `. Foreign text, such as a rank's abort message, cannot break it.
pub fn line(failure: &Failure, setting: &Setting) -> String {
    one_line(&sentence(failure, setting))
}

fn sentence(failure: &Failure, setting: &Setting) -> String {
    let who = who(failure);
    let others = if setting.job_size > 1 { "; the other ranks were ended" } else { "" };
    match &failure.cause {
        Cause::Exited(code) => {
            let advice =
                if setting.job_size > 1 && !setting.label { "; --label shows which rank wrote what" } else { "" };
            format!("{who} left with exit code {code}{others}{advice}")
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
            let exit = exit.map(|code| format!(" with exit code {code}")).unwrap_or_default();
            let how = if *finalized { "after PMI finalize" } else { "without PMI finalize" };
            let waiting = match waiting {
                // Ranks that wait on other nodes are not counted.
                0 => "others wait".to_owned(),
                1 => "1 rank waits".to_owned(),
                count => format!("{count} ranks wait"),
            };
            format!(
                "{who} left{exit} {how} while {waiting} for it in {collective} {epoch}{others}; does every rank get from \
                 MPI_Init to MPI_Finalize?"
            )
        }
        Cause::LeftGroup { group, exit } => {
            let how = exit.map_or("after PMI finalize".to_owned(), |code| format!("with exit code {code}"));
            format!("{who} left {how} while others wait for it in the barrier of {group}{others}")
        }
        Cause::NotFinalized => format!(
            "{who} left with exit code 0 without MPI_Finalize, others may wait for it for ever{others}; call MPI_Finalize, \
             or MPI_Abort to end early"
        ),
        Cause::Pmi { problem } => format!(
            "{who} broke the PMI protocol: {problem}{others}; is its PMI library made for PMI-1 or PMI-2? --pmi none \
             offers it nothing"
        ),
        Cause::AgentsMissing { missing } => missing::sentence(missing, setting),
        Cause::AgentLost { problem, .. } => {
            format!(
                "{}: the link to its agent broke: {problem}{others}; {}",
                node(failure),
                lost_advice(problem, setting)
            )
        }
        Cause::NoDirectLink { host, problem, .. } => format!(
            "{}: what node {host} sent cannot be put in order: {problem}{others}; --exchange=tree uses no other links than the tree's",
            node(failure)
        ),
        Cause::KeeperLost => format!(
            "{}: the process that watches its ranks was killed{others}; out of memory? dmesg tells",
            node(failure)
        ),
        Cause::PmixServer { problem } => format!(
            "{}: its PMIx server: {problem}{others}; --pmi simple offers PMI-1 and PMI-2 alone, --pmix-library names another \
             library",
            node(failure)
        ),
        Cause::ToldToEnd { signal } => format!(
            "{}: the batch system has told it to end ({}): cancelled, or its time limit was reached",
            node(failure),
            signals::name(*signal)
        ),
        Cause::TimedOut { after_ns } => format!(
            "the job reached its time limit of {} and was ended; raise --timeout, or let --stall-report 10 name the \
             ranks that others wait for",
            seconds(*after_ns)
        ),
        Cause::Interrupted { signal } => format!("the job was ended by {}", signals::name(*signal)),
        Cause::Killed { by } => format!("the job was ended by {by}"),
        Cause::SessionEnded { reason } => format!("the session of the job was ended: {reason}"),
        Cause::Launcher { problem } => {
            format!("{problem}{others}; look at the place it names (room, permission), then run again")
        }
    }
}

fn who(failure: &Failure) -> String {
    let Some(rank) = failure.rank else { return node(failure) };
    let pid = failure.pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
    format!("rank {rank} (node {} {}{pid})", failure.node, failure.host)
}

fn node(failure: &Failure) -> String {
    if failure.host.is_empty() { "this machine".to_owned() } else { format!("node {}", failure.host) }
}

fn lost_advice(problem: &str, setting: &Setting) -> &'static str {
    match () {
        () if problem.contains(" CANCELLED AT ") => "scancel has ended the step of its agents, or a limit of the job",
        () if setting.local => "out of memory? dmesg tells",
        // The wording of srun; the reason why the whole step died may be reported later.
        () if problem.ends_with("; Killed") => "out of memory, or scancel? dmesg tells, there",
        () if ["Killed", "code 137", "signal 9"].iter().any(|word| problem.contains(word)) => {
            "out of memory? dmesg tells, there"
        }
        () if problem.contains("answer") => {
            "did the node lose power or network, or is it stopped? --node-timeout says how long to wait for it"
        }
        () => "is the node up? look at its system log",
    }
}

fn seconds(ns: u64) -> String {
    format!("{} s", ns as f64 / 1e9)
}

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const E2BIG: i32 = 7;
const ENOEXEC: i32 = 8;
const EAGAIN: i32 = 11;
const EACCES: i32 = 13;
const EISDIR: i32 = 21;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ETXTBSY: i32 = 26;

fn spawn(error: &SpawnError) -> String {
    let SpawnError { step, what, errno } = error;
    let reason = reason(*errno);
    match (step, *errno) {
        (SpawnStep::Find, ENOENT) if what.contains('/') => {
            format!("{what}: not found; is it built, and is the path right?")
        }
        (SpawnStep::Find, ENOENT) => {
            format!("{what}: not found; is it built, and on PATH? In this directory it is ./{what}")
        }
        (SpawnStep::Find | SpawnStep::Exec, EACCES | EPERM) => {
            format!("{what}: not executable ({reason}); chmod +x it, and is its file system mounted noexec?")
        }
        (SpawnStep::Find | SpawnStep::Exec, EISDIR) => format!("{what}: is a directory; name the program in it"),
        (SpawnStep::Exec, ENOEXEC) => format!(
            "{what}: not an executable for this machine; a script begins with a line such as #!/bin/sh, a program is \
             built for this architecture"
        ),
        (SpawnStep::Exec, E2BIG) => format!("{what}: arguments and environment are too long; put them into a file"),
        (SpawnStep::Exec, ETXTBSY) => format!("{what}: is being written; wait until it is built"),
        (SpawnStep::Interpreter, _) => format!(
            "{what}: its interpreter is missing ({reason}); look at its first line (#!) or, if it is a binary, at its \
             loader (readelf -l)"
        ),
        (SpawnStep::Devices, _) => format!("{what}; lower --gpus-per-rank, or start fewer ranks on a node"),
        (SpawnStep::Cwd, _) => {
            format!("working directory {what}: {reason}; create it on that node or name another with --wdir")
        }
        (_, EMFILE | ENFILE) => format!("{}: {reason}; raise ulimit -n or use more nodes", step.words()),
        (SpawnStep::Fork, EAGAIN) => format!("{}: {reason}; raise ulimit -u or pids.max of the cgroup", step.words()),
        (SpawnStep::Fork | SpawnStep::Stdio, _) => {
            format!("{}: {reason}; try fewer ranks on a node", step.words())
        }
        (SpawnStep::Find | SpawnStep::Exec, _) => format!("{what}: {reason}; can that node read and execute it?"),
    }
}

/// The text of an `errno`, without its number.
fn reason(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    match text.split_once(" (os error") {
        Some((reason, _)) => reason.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests;
