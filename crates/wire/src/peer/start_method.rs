//! The methods of starting an agent's process on its host, and one table of their differences.
//!
//! To add a method, add a variant at the end of [`RemoteShell`], a row of [`RemoteShell::start_method`], and the code
//! that builds its command line, in `node::agent::start_methods`. All other code consults the table.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// How an agent's process is started on its host, with the words of the command.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum RemoteShell {
    /// The agent is a child process on this machine, which is so for virtual nodes.
    #[default]
    Local,
    /// Any program that is run as `argv… host command…`.
    Command(Vec<String>),
    /// `ssh` or a program with the same command line: it is run as `argv… host "one line for the user's shell"`.
    Ssh(Vec<String>),
    /// `srun`, which the root runs once for all agents: `argv… --nodelist=… command…`. All agents get the same input,
    /// and each finds its own part by the name of its node.
    Srun(Vec<String>),
}

/// The properties of one method of starting an agent: a row of the table in [`RemoteShell::start_method`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartMethod {
    /// The program name that selects this method; `None`: the method is for any other program, or runs no program.
    pub program: Option<&'static str>,
    /// For advice to users: the option to type between that program and the host name.
    pub host_option: &'static str,
    /// Whether all agents are on one machine, so that they share its clock and its loopback interface.
    pub same_machine: bool,
    /// Whether the launcher's program is rarely installed on the host, so that the first remote shell looks for a copy
    /// in the host's cache.
    pub looks_first: bool,
    /// Whether another ancestor may start an agent whose parent cannot reach its host.
    pub in_stead: bool,
    pub caller: Caller,
    /// The batch system whose job step starts the agents: the root runs one command for all, and each agent finds its
    /// own part of the input. `None`: each parent runs a command for each of its children.
    pub batch: Option<Batch>,
}

impl StartMethod {
    /// Whether the root starts all agents by one command, a step of a batch system.
    pub fn by_step(&self) -> bool {
        self.batch.is_some()
    }
}

/// The properties of the method that calls an arbitrary program; the rows of other methods state how they differ.
const ANY: StartMethod = StartMethod {
    program: None,
    host_option: "",
    same_machine: false,
    looks_first: false,
    in_stead: true,
    caller: Caller::Doubtful,
    batch: None,
};

/// A batch system: what users need to know about it, and the texts in its messages about a whole step, which it writes
/// to standard error. Messages about single tasks are read in `node`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Where the batch system's steps can be started, for messages to the user, and how to get there.
    pub allocation: &'static str,
    /// The variable that identifies the allocation; the agents end with the allocation.
    pub job_variable: &'static str,
    /// Part of the message about a program that a task cannot execute.
    pub not_executable: &'static str,
    /// Part of the line that reports that the step was cancelled, by a user or a limit.
    pub cancelled: &'static str,
    /// The marker at the start and at the end of the text of the line about cancellation.
    pub frame: &'static str,
    /// The text that marks a line as an error message.
    pub error: &'static str,
    /// Parts of messages that say that the job of the allocation is not running: it has ended, or never existed.
    pub no_job: &'static [&'static str],
}

/// How far an agent may trust `SSH_CONNECTION` in its environment, which has the addresses of the ssh client and
/// server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caller {
    /// The variable was set by the remote shell that started this agent.
    Stated,
    /// The variable may have been inherited from an earlier login. It is used only if the parent offers that address.
    Doubtful,
    /// The variable describes the login of another process.
    Unknown,
}

impl RemoteShell {
    pub fn start_method(&self) -> &'static StartMethod {
        match self {
            RemoteShell::Local => &StartMethod { same_machine: true, in_stead: false, ..ANY },
            RemoteShell::Command(_) => &ANY,
            RemoteShell::Ssh(_) => {
                &StartMethod { program: Some("ssh"), looks_first: true, caller: Caller::Stated, ..ANY }
            }
            RemoteShell::Srun(_) => &StartMethod {
                program: Some("srun"),
                host_option: "--overlap -w",
                in_stead: false,
                caller: Caller::Unknown,
                batch: Some(Batch {
                    allocation: "a Slurm allocation; get one by salloc or sbatch",
                    job_variable: "SLURM_JOB_ID",
                    not_executable: "execve",
                    cancelled: " CANCELLED AT ",
                    frame: "***",
                    error: "error:",
                    no_job: &["Invalid job id", "has expired", "is completing"],
                }),
                ..ANY
            },
        }
    }

    /// All methods, each with the command `words`; [`RemoteShell::Local`] has none.
    pub fn all(words: &[String]) -> [RemoteShell; 4] {
        [
            RemoteShell::Local,
            RemoteShell::Command(words.to_vec()),
            RemoteShell::Ssh(words.to_vec()),
            RemoteShell::Srun(words.to_vec()),
        ]
    }

    /// The words of the command; empty for a child process.
    pub fn words(&self) -> &[String] {
        match self {
            RemoteShell::Local => &[],
            RemoteShell::Command(words) | RemoteShell::Ssh(words) | RemoteShell::Srun(words) => words,
        }
    }

    /// The method for a command, selected by the file name of its program. `None`: the command is empty.
    pub fn of_words(words: &[String]) -> Option<RemoteShell> {
        let name = words.first()?.trim_end_matches('/').rsplit('/').next();
        let named =
            RemoteShell::all(words).into_iter().find(|shell| name.is_some() && shell.start_method().program == name);
        Some(named.unwrap_or_else(|| RemoteShell::Command(words.to_vec())))
    }

    /// Any method with these properties, for code that never runs the command.
    pub fn like(same_machine: bool, by_step: bool) -> RemoteShell {
        let is_alike = |shell: &RemoteShell| {
            let starter = shell.start_method();
            starter.same_machine == same_machine && starter.by_step() == by_step
        };
        RemoteShell::all(&[]).into_iter().find(is_alike).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;
    use alloc::collections::BTreeSet;
    use std::vec;

    fn words(line: &str) -> Vec<String> {
        line.split_ascii_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_rows_of_the_starter_table_are_consistent() {
        let mut programs = BTreeSet::new();
        for shell in RemoteShell::all(&words("prog -x")) {
            let StartMethod { program, host_option, same_machine, looks_first, in_stead, caller, batch } =
                *shell.start_method();
            let by_step = shell.start_method().by_step();
            assert!(program.is_none_or(|program| programs.insert(program)), "{shell:?}: program is not unique");
            assert_eq!(shell.words().is_empty(), same_machine, "{shell:?}: only a child process has no command");
            assert!(!(same_machine && (by_step || looks_first || in_stead)), "{shell:?}: it has only one machine");
            assert!(!(by_step && in_stead), "{shell:?}: only the root calls");
            assert!(!by_step || caller == Caller::Unknown, "{shell:?}: a step has no known caller");
            assert!(!(by_step && looks_first), "{shell:?}: a step starts with the launcher's path");
            let words = batch.map(|batch| [batch.not_executable, batch.cancelled, batch.frame, batch.error]);
            assert!(words.is_none_or(|words| words.iter().all(|word| !word.is_empty())), "{shell:?}: an empty text");
            assert!(host_option.is_empty() || program.is_some(), "{shell:?}: options without a program");
            assert_eq!(RemoteShell::like(same_machine, by_step).start_method().by_step(), by_step);
        }
    }

    #[test]
    fn the_program_name_determines_the_remote_shell() {
        assert_eq!(RemoteShell::of_words(&[]), None);
        for line in ["/usr/bin/ssh -q", "ssh"] {
            assert_eq!(RemoteShell::of_words(&words(line)), Some(RemoteShell::Ssh(words(line))));
        }
        assert_eq!(RemoteShell::of_words(&words("srun -v")), Some(RemoteShell::Srun(words("srun -v"))));
        for line in ["/opt/ssh/rsh", "sshx", "env ssh"] {
            assert_eq!(RemoteShell::of_words(&words(line)), Some(RemoteShell::Command(words(line))), "{line}");
        }
    }

    /// Variants are numbers on the wire: new ones must be added at the end.
    #[test]
    fn remote_shell_numbers_on_the_wire_are_fixed() {
        let first = |shell: &RemoteShell| crate::peer::encode(shell)[0];
        assert_eq!(RemoteShell::all(&[]).iter().map(first).collect::<Vec<_>>(), vec![0, 1, 2, 3]);
    }
}
