//! The jobs that launchers start.
//!
//! A case is named `WORK-NODESxPPN[@SHELL]`, such as `true-1x1024` or `memory-64x64`. Nodes beyond one are virtual
//! unless hosts are given. A session may be running while a case is timed.
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::layout::Layout;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A static program that exits at once.
    True,
    /// PMI-1 init, barrier, finalize.
    PmiInit,
    /// PMI-1 init, barrier, finalize by a client without a C library, whose own cost is negligible.
    PmiBare,
    /// Init, barrier, finalize of an MPI program that is given on the command line.
    MpiInit,
    /// PMI-1: put 32 bytes, fence, get the values of all ranks.
    Exchange,
    /// PMI-1: put, fence, two gets; then the ranks wait while the agents' memory is read.
    Memory,
    /// MPI init, barrier, finalize of a program built with this major version of Open MPI.
    OpenMpi(u32),
    /// Ranks that sleep, with a PMIx server that they never use.
    PmixSleep,
    /// PMIx: put 32 bytes, fence with data, get the values of all ranks.
    PmixExchange,
    /// As `PmixExchange`, but all ranks rest after the fence: the fence without competing gets, and the reverse.
    PmixFence,
    /// As `PmixExchange` with a fence without data, so that values come from ranks of other nodes.
    PmixDirect,
    /// Like `True`, started by one remote shell per rank in sequence and by a tree of them.
    Initiation,
    /// Ranks that poll for each other on a busy machine.
    Polling,
    /// Many jobs of `True`, several at a time.
    Jobs,
}

pub const WORKS: [(&str, Work); 15] = [
    ("true", Work::True),
    ("pmi-init", Work::PmiInit),
    ("pmi-bare", Work::PmiBare),
    ("mpi-init", Work::MpiInit),
    ("exchange", Work::Exchange),
    ("memory", Work::Memory),
    ("openmpi4", Work::OpenMpi(4)),
    ("openmpi5", Work::OpenMpi(5)),
    ("pmix-sleep", Work::PmixSleep),
    ("pmix-exchange", Work::PmixExchange),
    ("pmix-fence", Work::PmixFence),
    ("pmix-direct", Work::PmixDirect),
    ("initiation", Work::Initiation),
    ("polling", Work::Polling),
    ("jobs", Work::Jobs),
];

/// The kinds of servers for ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pmi {
    None,
    Simple,
    Pmix,
}

impl Work {
    pub fn name(self) -> &'static str {
        WORKS.iter().find(|(_, work)| *work == self).map_or("", |(name, _)| name)
    }

    /// The kind of server that ranks use, for launchers that have several.
    pub fn pmi(self) -> Pmi {
        match self {
            Work::True | Work::Initiation | Work::Polling | Work::Jobs => Pmi::None,
            Work::PmiInit | Work::PmiBare | Work::MpiInit | Work::Exchange | Work::Memory => Pmi::Simple,
            Work::OpenMpi(_) | Work::PmixSleep | Work::PmixExchange | Work::PmixFence | Work::PmixDirect => Pmi::Pmix,
        }
    }

    /// Whether the ranks are MPI programs.
    pub fn is_mpi(self) -> bool {
        matches!(self, Work::MpiInit | Work::OpenMpi(_))
    }

    /// A round of a long job takes seconds per launcher, one of a short job milliseconds.
    fn rounds(self, job_size: u32, is_remote: bool) -> u32 {
        match (self, job_size) {
            (Work::Initiation, _) => 3,
            (Work::MpiInit | Work::OpenMpi(_), _) => 5,
            (_, 512..) if is_remote => 5,
            (Work::Polling, _) => 9,
            _ if is_remote => 9,
            (Work::Memory | Work::PmiInit | Work::PmiBare, 1024..) => 3,
            (Work::Jobs | Work::PmixSleep, _) => 5,
            (_, 1024..) => 7,
            (_, 64..) => 15,
            _ => 40,
        }
    }

    /// Ten times the longest time seen of a peer that ended at all; longer counts as a hang (chosen).
    fn limit_s(self, job_size: u32) -> u32 {
        match self {
            Work::PmiInit | Work::PmiBare | Work::Memory => 30 + job_size / 32,
            Work::MpiInit | Work::Initiation | Work::Jobs | Work::OpenMpi(_) | Work::Polling => 60 + job_size,
            _ => 30 + job_size / 16,
        }
    }
}

/// The hosts of a job that runs on other machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// As many hosts as there are nodes, or fewer if no more were given; then the case cannot be run.
    pub hosts: Vec<String>,
    /// Called as `SHELL HOST COMMAND..` by all launchers.
    pub shell: String,
}

/// In place of a remote shell: the hosts are those of the surrounding Slurm allocation, and launchers get no list.
pub const SRUN: &str = "srun";

impl Remote {
    /// The first `node_count` hosts.
    pub fn first(&self, node_count: u32) -> Remote {
        let hosts = self.hosts.iter().take(node_count as usize).cloned().collect();
        Remote { hosts, shell: self.shell.clone() }
    }

    pub fn list(&self) -> String {
        self.hosts.join(",")
    }

    pub fn is_allocation(&self) -> bool {
        self.shell == SRUN
    }

    fn shell_name(&self) -> &str {
        Path::new(&self.shell).file_name().and_then(|name| name.to_str()).unwrap_or(&self.shell)
    }
}

/// How many jobs a round has, and how many of them may run at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    pub jobs: u32,
    pub in_flight: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub work: Work,
    pub layout: Layout,
    /// `None` if the job stays on this machine.
    pub remote: Option<Remote>,
    pub rounds: u32,
    /// Bound on each command.
    pub limit: Duration,
    /// Whether a session of wireup, and its counterparts of other launchers, run while the case is timed.
    pub is_standing: bool,
    /// For `Work::Jobs`.
    pub stream: Stream,
}

impl Case {
    /// The case of this name, on `hosts` if there are any; `shell` is used unless the name has its own.
    ///
    /// # Errors
    /// What is wrong with the name.
    pub fn named(name: &str, hosts: &[String], shell: &str) -> Result<Case, String> {
        let (name_here, shell) = name.split_once('@').unwrap_or((name, shell));
        let known = || WORKS.map(|(name, _)| name).join(", ");
        let wrong = |why: &str| format!("no case {name}: {why}; WORK-NODESxPPN[@SHELL] with {}", known());
        let (work, layout) = name_here.rsplit_once('-').ok_or_else(|| wrong("no layout"))?;
        let work = WORKS.iter().find(|(word, _)| *word == work).ok_or_else(|| wrong("no such work"))?.1;
        let layout: Layout = layout.parse().map_err(wrong)?;
        match (work, hosts.is_empty()) {
            (Work::Memory | Work::Polling, false) => return Err(wrong("only without --hosts")),
            (Work::Initiation, true) => return Err(wrong("only with --hosts")),
            _ => {}
        }
        let remote = (!hosts.is_empty()).then(|| Remote { hosts: hosts.to_vec(), shell: shell.to_owned() });
        // A stream uses all hosts; another job as many as it has nodes.
        let remote = remote.map(|remote| if work == Work::Jobs { remote } else { remote.first(layout.node_count) });
        let rounds = work.rounds(layout.job_size(), remote.is_some());
        let limit = Duration::from_secs(work.limit_s(layout.job_size()).into());
        Ok(Case { work, layout, remote, rounds, limit, is_standing: false, stream: Stream { jobs: 1, in_flight: 1 } })
    }

    pub fn name(&self) -> String {
        let shell = self.remote.as_ref().map(|remote| format!("@{}", remote.shell_name())).unwrap_or_default();
        format!("{}-{}{shell}", self.work.name(), self.layout)
    }

    /// The case in the samples.
    pub fn value(&self) -> Value {
        let Layout { node_count, ppn } = self.layout;
        let mut value =
            json!({ "program": self.work.name(), "ranks": self.layout.job_size(), "nodes": node_count, "ppn": ppn });
        match &self.remote {
            Some(remote) => value["remote-shell"] = remote.shell_name().into(),
            None if node_count > 1 => value["hosts"] = "virtual".into(),
            None => {}
        }
        if self.is_standing {
            value["session"] = "running".into();
        }
        if self.work == Work::Jobs {
            value["in-flight"] = self.stream.in_flight.into();
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_with_their_layout_and_shell() {
        let hosts = ["a", "b", "c"].map(str::to_owned);
        for name in ["true-1x1024", "openmpi5-1x4", "memory-64x64", "pmix-exchange-1x8"] {
            assert_eq!(Case::named(name, &[], "ssh").unwrap().name(), name);
        }
        let far = Case::named("true-2x4@/opt/rsh", &hosts, "ssh").unwrap();
        assert_eq!((far.name(), far.remote.unwrap().list()), ("true-2x4@rsh".into(), "a,b".into()));
        assert_eq!(Case::named("jobs-1x1", &hosts, "ssh").unwrap().remote.unwrap().hosts.len(), 3);
        for name in ["", "true", "true-4", "true-1x", "true-0x4", "false-1x4", "true-1x4x4", "true-65536x65536"] {
            assert!(Case::named(name, &[], "ssh").is_err(), "{name}");
        }
        assert!(Case::named("initiation-2x2", &[], "ssh").is_err());
        assert!(Case::named("memory-2x2", &hosts, "ssh").is_err());
    }
}
