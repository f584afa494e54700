//! Interprets the end of a remote shell, by exit codes and messages of `ssh`; and a batch system's messages about a
//! step as a whole, which are recognised by the texts in [`Batch`].

use crate::io::{ExitStatus, How};
use wireup_wire::peer::{Batch, Problem, ProblemKind};
use wireup_wire::signal::SIGKILL;

/// The exit code with which a node reports that it lacks a program of this version.
pub const NEEDED: u8 = 89;
/// The message printed with the exit code `NEEDED`, followed by the node's architecture.
pub const NEEDED_WORDS: &str = "wireup-needed";
/// What a node prints if it has stored the program in its second cache, because the home directory takes none; followed
/// by the node's name if it is a task of a step.
pub const SECOND_CACHE_WORDS: &str = "wireup-in-second-cache";
/// Exit codes of `sh`: the program exists and cannot be executed; `NOT_FOUND`: the program does not exist.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// Largest exit code that does not come from an agent: an agent that started and failed exits with a higher code.
const FOREIGN_MAX: u8 = 87;
/// The exit code of an agent that cannot begin: the text that it prints says why, and what to do.
pub const CANNOT_BEGIN: u8 = 90;
/// The exit code with which shells report that a command was killed by `SIGKILL`.
const KILLED: u8 = 137;
/// The message of a login shell whose command was killed by `SIGKILL`.
const SHELL_KILLED: &str = "Killed";
/// The exit code of `ssh` when `ssh` itself failed.
const SSH_FAILED: u8 = 255;

/// Messages of `ssh` when `sshd` drops a connection before login: there are too many at once (`MaxStartups`,
/// `PerSourceMaxStartups`), or its queue is full.
const BUSY: [&str; 6] = [
    "kex_exchange_identification", "ssh_exchange_identification", "banner exchange", "Connection closed by",
    "Connection reset by", "Not allowed at this time",
];
/// Messages that may occur together with those of `BUSY` but are permanent errors. A jump host that cannot reach its
/// target prints its own reason first.
const NOT_BUSY: [&str; 9] = [
    "Connection refused", "Permission denied", "Host key verification failed", "No route to host",
    "Network is unreachable", "timed out", "Could not resolve", "open failed", "forwarding failed",
];

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The host answered, which is sufficient for a probe.
    Reached,
    /// Call the shell again, in this way.
    Other(How),
    /// Call the shell again later.
    Busy(String),
    Lost(Problem),
}

/// Interprets the end of a shell. `arch`: this machine's architecture, if known.
pub fn verdict(
    how: How,
    status: ExitStatus,
    stderr: &str,
    remote: bool,
    is_probe: bool,
    arch: Option<&str>,
) -> Verdict {
    let code = match status {
        ExitStatus::Exited(code) => code,
        ExitStatus::Signalled { .. } => return Verdict::Lost(kind(status).with(ended(status, stderr, remote))),
    };
    if is_probe && code == 0 {
        return Verdict::Reached;
    }
    let said = || ended(status, stderr, remote);
    if code == CANNOT_BEGIN && !stderr.trim().is_empty() {
        return Verdict::Lost(ProblemKind::Advised.with(shown(stderr)));
    }
    if !remote {
        return Verdict::Lost(kind(status).with(said()));
    }
    match (how, code) {
        (How::Plain, NEEDED | NOT_EXECUTABLE | NOT_FOUND) => Verdict::Other(How::Look),
        (How::Look | How::Send, NEEDED) => match needed_arch(stderr).zip(arch) {
            Some((its, ours)) if !its.is_empty() && its != ours => Verdict::Lost(ProblemKind::Advised.with(format!(
                "it is an {its} machine without wireup, and this wireup is for {ours}; install wireup for {its} there, \
                 on its PATH"
            ))),
            _ if is_probe => Verdict::Reached,
            // With `installed_only`, a call with `How::Send` sends no program: it only asks whether the host lacks it.
            _ if how == How::Send => Verdict::Lost(ProblemKind::NotInstalled.with(said())),
            _ => Verdict::Other(How::Send),
        },
        // The host has another program of that name, or a copy of wireup that it cannot run.
        (How::Look, 1..=FOREIGN_MAX | NOT_EXECUTABLE | NOT_FOUND) if is_probe => Verdict::Reached,
        (How::Look, 1..=FOREIGN_MAX | NOT_EXECUTABLE | NOT_FOUND) => Verdict::Other(How::Send),
        (How::Send, 0) => Verdict::Other(How::Look),
        (_, SSH_FAILED) if contains(stderr, &BUSY) && !contains(stderr, &NOT_BUSY) => {
            if is_probe {
                Verdict::Reached
            } else {
                Verdict::Busy(said())
            }
        }
        (_, SSH_FAILED) if !stderr.trim().is_empty() => Verdict::Lost(shown(stderr).into()),
        (_, 0) => Verdict::Lost(
            ProblemKind::NothingStarted.with(joined("its remote shell ended without starting an agent", stderr)),
        ),
        _ => Verdict::Lost(kind(status).with(said())),
    }
}

/// The result of a call of the remote shell that only asked whether the host answers (`How::Look`, with an empty
/// bootstrap message).
///
/// # Errors
/// Why the host does not answer.
pub fn probe_result(status: ExitStatus, stderr: &str, arch: &str) -> Result<(), Problem> {
    match verdict(How::Look, status, stderr, true, true, Some(arch)) {
        Verdict::Lost(problem) => Err(problem),
        Verdict::Reached | Verdict::Other(_) | Verdict::Busy(_) => Ok(()),
    }
}

/// Whether a node has stored the program in its second cache. `node`: the node's name, if several nodes wrote `stderr`.
pub fn is_in_second_cache(stderr: &str, node: Option<&str>) -> bool {
    let mut nodes = stderr.lines().filter_map(|line| line.trim().strip_prefix(SECOND_CACHE_WORDS));
    nodes.any(|name| node.is_none_or(|node| name.trim() == node))
}

fn contains(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

/// The architecture of a node that needs the program. `uname -m` uses other names for some architectures.
fn needed_arch(stderr: &str) -> Option<&str> {
    let line = stderr.lines().rev().find_map(|line| line.trim().strip_prefix(NEEDED_WORDS))?;
    Some(match line.trim() {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        "ppc64le" => "powerpc64",
        arch => arch,
    })
}

/// The messages on one line, without `ssh`'s warnings if there is anything else.
fn shown(stderr: &str) -> String {
    let lines: Vec<&str> = stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.iter().any(|line| line.starts_with("@@@")) {
        // A long warning about a changed host key; the relevant sentences are at its end.
        return lines[lines.len().saturating_sub(2)..].join("; ");
    }
    let telling: Vec<&str> = lines.iter().copied().filter(|line| !line.starts_with("Warning: ")).collect();
    (if telling.is_empty() { lines } else { telling }).join("; ")
}

/// The final message of a shell about the agent that it had started; empty if there is none. If a command was killed,
/// `ssh` only reports that it failed.
pub fn final_message(status: ExitStatus, stderr: &str, remote: bool) -> Problem {
    let kind = match status {
        ExitStatus::Exited(SSH_FAILED) if stderr.lines().any(|line| line.trim() == SHELL_KILLED) => ProblemKind::Killed,
        ExitStatus::Exited(_) | ExitStatus::Signalled { .. } => kind(status),
    };
    kind.with(match status {
        ExitStatus::Exited(0 | SSH_FAILED) => shown(stderr),
        ExitStatus::Exited(_) | ExitStatus::Signalled { .. } => ended(status, stderr, remote),
    })
}

fn ended(status: ExitStatus, stderr: &str, remote: bool) -> String {
    let who = if remote { "its remote shell" } else { "its process" };
    match status {
        ExitStatus::Exited(code) => joined(&format!("{who} exited with code {code}"), stderr),
        ExitStatus::Signalled { signal, .. } => joined(&format!("{who} was killed by signal {signal}"), stderr),
    }
}

/// What the end of a process that has started an agent says about the agent.
fn kind(status: ExitStatus) -> ProblemKind {
    match status {
        ExitStatus::Exited(KILLED) | ExitStatus::Signalled { signal: SIGKILL, .. } => ProblemKind::Killed,
        ExitStatus::Exited(_) | ExitStatus::Signalled { .. } => ProblemKind::Other,
    }
}

pub fn joined(how: &str, stderr: &str) -> String {
    let said = shown(stderr);
    if said.is_empty() { how.to_owned() } else { format!("{how}: {said}") }
}

/// Why an ended step has not started an agent: the error lines among everything that the batch system has printed.
pub fn step_problem(batch: &Batch, status: ExitStatus, stderr: &str) -> Problem {
    if let Some(line) = stderr.lines().find(|line| line.contains(batch.cancelled)) {
        return ProblemKind::StepCancelled.with(line.split(batch.frame).nth(1).unwrap_or(line).trim());
    }
    let errors: Vec<&str> = stderr.lines().filter(|line| line.contains(batch.error)).collect();
    let said = if errors.is_empty() { stderr.to_owned() } else { errors.join("\n") };
    let words = match status {
        ExitStatus::Exited(0) => joined("its step ended before its agent connected", &said),
        ExitStatus::Exited(code) => joined(&format!("its step exited with code {code}"), &said),
        ExitStatus::Signalled { signal, .. } => joined(&format!("its step was killed by signal {signal}"), &said),
    };
    if !contains(stderr, batch.no_job) {
        return kind(status).with(words);
    }
    let Batch { job_variable, allocation, .. } = batch;
    ProblemKind::Advised.with(format!(
        "{words}; {job_variable} names a job that is not running: unset {job_variable}, or start inside {allocation}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exited(how: How, code: u8, stderr: &str) -> Verdict {
        verdict(how, ExitStatus::Exited(code), stderr, true, false, Some("x86_64"))
    }

    #[test]
    fn a_missing_program_is_looked_for_and_then_sent() {
        assert_eq!(exited(How::Plain, 127, "sh: wireup: not found"), Verdict::Other(How::Look));
        assert_eq!(exited(How::Plain, 126, "Exec format error"), Verdict::Other(How::Look));
        let needed = format!("motd\n{NEEDED_WORDS} amd64\n");
        assert_eq!(exited(How::Look, NEEDED, &needed), Verdict::Other(How::Send));
        for how in [How::Look, How::Send] {
            let other = exited(how, NEEDED, "wireup-needed s390x");
            assert!(matches!(&other, Verdict::Lost(why) if why.contains("s390x")), "{other:?}");
        }
        let asked = exited(How::Send, NEEDED, "wireup-needed x86_64");
        assert!(matches!(&asked, Verdict::Lost(why) if why.kind == ProblemKind::NotInstalled), "{asked:?}");
        let here = verdict(How::Plain, ExitStatus::Exited(127), "", false, false, None);
        assert!(matches!(here, Verdict::Lost(_)), "this machine has the program");
        let unknown = verdict(How::Look, ExitStatus::Exited(NEEDED), "wireup-needed s390x", true, false, None);
        assert_eq!(unknown, Verdict::Other(How::Send), "the architecture is unknown");
        assert_eq!(exited(How::Send, 0, ""), Verdict::Other(How::Look));
        assert!(matches!(exited(How::Send, 88, "no room"), Verdict::Lost(why) if why.contains("no room")));
    }

    #[test]
    fn another_program_of_the_same_name_is_not_used() {
        for code in [1, 2, 87, 126, 127] {
            assert_eq!(exited(How::Look, code, "usage: wireup FILE"), Verdict::Other(How::Send), "{code}");
        }
        assert!(matches!(exited(How::Send, 127, "sh: not found"), Verdict::Lost(_)));
        assert!(matches!(exited(How::Look, 125, "wireup agent: dialling"), Verdict::Lost(_)));
    }

    #[test]
    fn a_throttled_sshd_is_called_again_but_a_locked_account_is_not() {
        for words in [
            "kex_exchange_identification: Connection closed by remote host\nConnection closed by 10.0.0.1 port 22",
            "kex_exchange_identification: read: Connection reset by peer",
            "ssh_exchange_identification: Connection closed by remote host",
            "Not allowed at this time",
        ] {
            assert!(matches!(exited(How::Look, 255, words), Verdict::Busy(_)), "{words}");
        }
        for words in [
            "ssh: connect to host n3 port 22: Connection refused",
            "user@n3: Permission denied (publickey).\nConnection closed by 10.0.0.1 port 22",
            "Host key verification failed.",
            "channel 0: open failed: connect failed: No route to host\nstdio forwarding failed\n\
             kex_exchange_identification: Connection closed by remote host",
            "Connection timed out during banner exchange",
            "ssh: Could not resolve hostname n9: Name or service not known",
        ] {
            assert!(matches!(exited(How::Look, 255, words), Verdict::Lost(_)), "{words}");
        }
    }

    #[test]
    fn a_changed_host_key_is_reported_in_one_sentence() {
        let page = "@@@@@@@\n@ WARNING @\n@@@@@@@\nSomeone could be eavesdropping\nHost key for n3 has changed.\nHost \
            key verification failed.\n";
        let told = "Host key for n3 has changed.; Host key verification failed.";
        assert_eq!(exited(How::Look, 255, page), Verdict::Lost(told.into()));
    }

    #[test]
    fn a_probe_succeeds_with_any_answer_of_the_host() {
        let probe = |how, code, stderr: &str| verdict(how, ExitStatus::Exited(code), stderr, true, true, None);
        assert_eq!(probe(How::Look, 0, ""), Verdict::Reached);
        assert_eq!(probe(How::Look, NEEDED, "wireup-needed"), Verdict::Reached);
        assert!(matches!(probe(How::Look, 255, "No route to host"), Verdict::Lost(_)));
        let busy = "kex_exchange_identification: Connection closed by remote host";
        assert_eq!(probe(How::Look, 255, busy), Verdict::Reached);
    }

    #[test]
    fn the_end_of_a_shell_is_described_by_what_is_known() {
        assert_eq!(final_message(ExitStatus::Exited(255), "", true), "");
        assert_eq!(final_message(ExitStatus::Exited(255), "Killed\n", true), ProblemKind::Killed.with("Killed"));
        assert_eq!(
            final_message(ExitStatus::Exited(101), "a panic", true),
            "its remote shell exited with code 101: a panic"
        );
        let killed = ExitStatus::Signalled { signal: 9, core_dumped: false };
        let described = "its process was killed by signal 9";
        assert_eq!(final_message(killed, "", false), ProblemKind::Killed.with(described));
        let described = "its remote shell exited with code 137: no answer";
        assert_eq!(final_message(ExitStatus::Exited(137), "no answer", true), ProblemKind::Killed.with(described));
    }

    const BATCH: Batch = Batch {
        allocation: "an allocation",
        job_variable: "JOB",
        not_executable: "cannot run",
        cancelled: "was ended",
        frame: "==",
        error: "E:",
        no_job: &["no such job"],
    };

    #[test]
    fn errors_of_a_step_are_found_among_other_lines() {
        let words = step_problem(&BATCH, ExitStatus::Exited(3), "hello\nE: no node\nE: no memory\n");
        assert_eq!(words, "its step exited with code 3: E: no node; E: no memory");
        assert_eq!(step_problem(&BATCH, ExitStatus::Exited(3), "hello\n"), "its step exited with code 3: hello");
    }

    #[test]
    fn a_cancelled_step_is_described_in_the_words_of_the_batch_system() {
        let killed = ExitStatus::Signalled { signal: 9, core_dumped: false };
        for (said, words) in
            [("E: no node\nd: == it was ended by ann ==\n", "it was ended by ann"), ("it was ended\n", "it was ended")]
        {
            assert_eq!(step_problem(&BATCH, killed, said), ProblemKind::StepCancelled.with(words));
        }
    }
}
