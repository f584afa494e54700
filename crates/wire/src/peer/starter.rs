//! The ways to start an agent's process on its host, and one table of what differs between them.
//!
//! A new way is a variant at the end of [`RemoteShell`], a row of [`RemoteShell::starter`], and the code that makes its command
//! line, in `node::agent::starters`. Everything else asks the table.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// How an agent's process is started on its host, with the words of the command that does it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum RemoteShell {
    /// A child process on this machine: virtual nodes.
    #[default]
    Local,
    /// Any program called as `argv… host command…`.
    Command(Vec<String>),
    /// `ssh` or what understands its command line: called as `argv… host "one line for the user's shell"`.
    Ssh(Vec<String>),
    /// `srun`, called once by the root for all agents: `argv… --nodelist=… command…`. Each agent is told everything that all
    /// are told, and finds itself by the name of its node.
    Srun(Vec<String>),
}

/// What differs between the ways: a row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Starter {
    /// The program whose name stands for this way; `None`: any other, or none at all.
    pub program: Option<&'static str>,
    /// What a person types between that program and the name of a host, in advice.
    pub host_option: &'static str,
    /// All agents are on one machine: its clock is theirs, and its loopback joins them.
    pub same_machine: bool,
    /// The caller's own program is rarely on the host: the first call looks into the host's cache.
    pub looks_first: bool,
    /// An agent that its parent does not reach may be called by another one further up.
    pub in_stead: bool,
    pub caller: Caller,
    /// The batch system whose step it is: the root calls once for all agents, which find themselves. `None`: each parent calls for
    /// each of its children.
    pub batch: Option<Batch>,
}

impl Starter {
    /// Whether one call of the root starts all agents.
    pub fn by_step(&self) -> bool {
        self.batch.is_some()
    }
}

/// A program that nothing else is known of; other rows say how they differ.
const ANY: Starter = Starter {
    program: None,
    host_option: "",
    same_machine: false,
    looks_first: false,
    in_stead: true,
    caller: Caller::Doubtful,
    batch: None,
};

/// What people must know of a batch system, and what it says itself of a step as a whole, on the standard error of its call. What
/// it says of single tasks is read where it is called, in `node`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Where its steps can be called, and how one gets there.
    pub allocation: &'static str,
    /// The variable that names the allocation, whose end is that of the agents.
    pub job_variable: &'static str,
    /// In what is said of a program that no task can execute.
    pub not_executable: &'static str,
    /// In the line that says that somebody, or a limit, has ended the step.
    pub cancelled: &'static str,
    /// What stands on both sides of that line's own words.
    pub frame: &'static str,
    /// In lines that say what is wrong, among others.
    pub error: &'static str,
}

/// What an agent may make of `SSH_CONNECTION` in its environment, which says who called and at which address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caller {
    /// It was set for this very call.
    Told,
    /// It may have been passed on from an earlier log-in: it counts if the parent offers the same address.
    Doubtful,
    /// It is of another process.
    Unknown,
}

impl RemoteShell {
    /// The table.
    pub fn starter(&self) -> &'static Starter {
        match self {
            RemoteShell::Local => &Starter { same_machine: true, in_stead: false, ..ANY },
            RemoteShell::Command(_) => &ANY,
            RemoteShell::Ssh(_) => &Starter { program: Some("ssh"), looks_first: true, caller: Caller::Told, ..ANY },
            RemoteShell::Srun(_) => &Starter {
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
                }),
                ..ANY
            },
        }
    }

    /// All ways, each called by `words`; [`RemoteShell::Local`] has none.
    pub fn all(words: &[String]) -> [RemoteShell; 4] {
        [
            RemoteShell::Local,
            RemoteShell::Command(words.to_vec()),
            RemoteShell::Ssh(words.to_vec()),
            RemoteShell::Srun(words.to_vec()),
        ]
    }

    /// The command that calls; empty for a child process.
    pub fn words(&self) -> &[String] {
        match self {
            RemoteShell::Local => &[],
            RemoteShell::Command(words) | RemoteShell::Ssh(words) | RemoteShell::Srun(words) => words,
        }
    }

    /// The way that these words stand for, by the file name of their program. `None`: there are none.
    pub fn of_words(words: &[String]) -> Option<RemoteShell> {
        let name = words.first()?.trim_end_matches('/').rsplit('/').next();
        let named = RemoteShell::all(words).into_iter().find(|shell| name.is_some() && shell.starter().program == name);
        Some(named.unwrap_or_else(|| RemoteShell::Command(words.to_vec())))
    }

    /// A way with these properties, for those who never call it.
    pub fn like(same_machine: bool, by_step: bool) -> RemoteShell {
        let is_alike = |shell: &RemoteShell| {
            let starter = shell.starter();
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
    fn the_rows_of_the_table_agree_with_themselves() {
        let mut programs = BTreeSet::new();
        for shell in RemoteShell::all(&words("prog -x")) {
            let Starter { program, host_option, same_machine, looks_first, in_stead, caller, batch } = *shell.starter();
            let by_step = shell.starter().by_step();
            assert!(program.is_none_or(|program| programs.insert(program)), "{shell:?}: another way has this program");
            assert_eq!(shell.words().is_empty(), same_machine, "{shell:?}: a child process alone has no command");
            assert!(!(same_machine && (by_step || looks_first || in_stead)), "{shell:?}: there is one machine");
            assert!(!(by_step && in_stead), "{shell:?}: the root alone calls");
            assert!(!by_step || caller == Caller::Unknown, "{shell:?}: a step was called from elsewhere");
            assert!(!(by_step && looks_first), "{shell:?}: a step begins with the launcher's place");
            let words = batch.map(|batch| [batch.not_executable, batch.cancelled, batch.frame, batch.error]);
            assert!(words.is_none_or(|words| words.iter().all(|word| !word.is_empty())), "{shell:?}: found everywhere");
            assert!(host_option.is_empty() || program.is_some(), "{shell:?}: options of no program");
            assert_eq!(RemoteShell::like(same_machine, by_step).starter().by_step(), by_step);
        }
    }

    #[test]
    fn words_stand_for_the_way_of_their_program() {
        assert_eq!(RemoteShell::of_words(&[]), None);
        for line in ["/usr/bin/ssh -q", "ssh"] {
            assert_eq!(RemoteShell::of_words(&words(line)), Some(RemoteShell::Ssh(words(line))));
        }
        assert_eq!(RemoteShell::of_words(&words("srun -v")), Some(RemoteShell::Srun(words("srun -v"))));
        for line in ["/opt/ssh/rsh", "sshx", "env ssh"] {
            assert_eq!(RemoteShell::of_words(&words(line)), Some(RemoteShell::Command(words(line))), "{line}");
        }
    }

    /// Variants are numbers on the wire: a new one stands at the end.
    #[test]
    fn the_numbers_on_the_wire_stay() {
        let first = |shell: &RemoteShell| crate::peer::encode(shell)[0];
        assert_eq!(RemoteShell::all(&[]).iter().map(first).collect::<Vec<_>>(), vec![0, 1, 2, 3]);
    }
}
