//! The jobs that launchers start.
//!
//! A case is named `WORK-NODESxPPN[@SHELL]`, such as `true-1x1024` or `mpich5-16x4`. If there are several nodes, they
//! are virtual unless the user names hosts. A session may be running while a case is timed.
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::layout::Layout;

/// The program that the ranks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranks {
    /// `programs/true.c`; the warm-up round also checks the number of ranks that were started.
    True,
    /// The program of this name, which receives the expected job size as an argument and fails if PMI reports another
    /// job size.
    Sized(&'static str),
    /// A program as for `Sized`, with this further argument; its ranks append their clock readings to a file.
    Stamped(&'static str, &'static str),
    /// An MPI program that the user names on the command line.
    Mpi,
    /// A program of the MPI that the work is named after, whose calls are timed. The MPI has a launcher of its own, of
    /// this major version if other MPIs have launchers of the same name.
    Calls(&'static str, Option<u32>),
    /// Ranks that sleep, in a job with a PMIx server that they never use.
    Sleep,
    /// Ranks that poll while they wait for each other, on a busy machine.
    Polling,
    /// Many jobs of `programs/true.c`, several at the same time.
    Jobs,
}

/// The PMI server that the ranks use, of launchers that have several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pmi {
    None,
    Simple,
    Pmix,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    pub name: &'static str,
    pub pmi: Pmi,
    pub ranks: Ranks,
}

const fn work(name: &'static str, pmi: Pmi, ranks: Ranks) -> Work {
    Work { name, pmi, ranks }
}

const WORKS: [Work; 16] = [
    work("true", Pmi::None, Ranks::True),
    // PMI-1 init, barrier, finalize. `pmi-bare`: init, barrier and finalize by a client without a C library, whose own
    // cost is negligible.
    work("pmi-init", Pmi::Simple, Ranks::Sized("pmi_exchange")),
    work("pmi-bare", Pmi::Simple, Ranks::Sized("pmi_bare")),
    // MPI init, barrier, finalize; the five behind it have programs that `cargo xtask setup` builds.
    work("mpi-init", Pmi::Simple, Ranks::Mpi),
    work("mpich5", Pmi::Simple, Ranks::Calls("hydra", Some(5))),
    work("mpich4", Pmi::Simple, Ranks::Calls("hydra", Some(4))),
    work("intel", Pmi::Simple, Ranks::Calls("intel", None)),
    work("openmpi4", Pmi::Pmix, Ranks::Calls("open-mpi", Some(4))),
    work("openmpi5", Pmi::Pmix, Ranks::Calls("open-mpi", Some(5))),
    // PMI-1: put 32 bytes, fence, get the values of all ranks.
    work("exchange", Pmi::Simple, Ranks::Stamped("pmi_exchange", "all")),
    work("pmix-sleep", Pmi::Pmix, Ranks::Sleep),
    // PMIx: put 32 bytes, fence with data, get the values of all ranks. `pmix-fence`: all ranks pause after the fence,
    // so that fence and gets do not compete.
    work("pmix-exchange", Pmi::Pmix, Ranks::Stamped("pmix_exchange", "collect")),
    work("pmix-fence", Pmi::Pmix, Ranks::Stamped("pmix_exchange", "rest")),
    // Jobs that are started by one remote shell per rank in sequence, and by a tree of remote shells.
    work("initiation", Pmi::None, Ranks::True),
    work("polling", Pmi::None, Ranks::Polling),
    work("jobs", Pmi::None, Ranks::Jobs),
];

impl Work {
    pub fn is(self, name: &str) -> bool {
        self.name == name
    }

    pub fn is_mpi(self) -> bool {
        matches!(self.ranks, Ranks::Mpi | Ranks::Calls(..))
    }

    /// Number of rounds: a round of a large job takes seconds per launcher, a round of a small job milliseconds.
    fn rounds(self, job_size: u32, is_remote: bool) -> u32 {
        match (self.name, job_size) {
            ("initiation", _) => 3,
            _ if self.is_mpi() => 5,
            (_, 512..) if is_remote => 5,
            ("polling", _) => 9,
            _ if is_remote => 9,
            ("pmi-init" | "pmi-bare", 1024..) => 3,
            ("jobs" | "pmix-sleep", _) => 5,
            (_, 1024..) => 7,
            (_, 64..) => 15,
            _ => 40,
        }
    }

    /// Time limit (s): ten times the longest time of a launcher that ended at all; longer counts as a hang (chosen).
    fn limit_s(self, job_size: u32) -> u32 {
        match self.name {
            "pmi-init" | "pmi-bare" => 30 + job_size / 32,
            "initiation" | "jobs" | "polling" => 60 + job_size,
            _ if self.is_mpi() => 60 + job_size,
            _ => 30 + job_size / 16,
        }
    }
}

/// The hosts of a job that runs on machines other than this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The hosts of the job, one for each node; if the user gave fewer hosts, the case cannot be run.
    pub hosts: Vec<String>,
    /// The remote shell, which all launchers call as `SHELL HOST COMMAND..`
    pub shell: String,
}

/// Value of `shell` for jobs in a Slurm allocation: the job runs on the hosts of the allocation, and launchers get no
/// host list.
pub const SRUN: &str = "srun";

impl Remote {
    /// This value with only the first `node_count` hosts.
    pub fn first(&self, node_count: u32) -> Remote {
        let hosts = self.hosts.iter().take(node_count as usize).cloned().collect();
        Remote { hosts, shell: self.shell.clone() }
    }

    pub fn list(&self) -> String {
        self.hosts.join(",")
    }

    /// The hosts with their slots, as text `HOST:SLOTS,..`
    pub fn slots(&self, ppn: u32) -> String {
        self.hosts.iter().map(|host| format!("{host}:{ppn}")).collect::<Vec<_>>().join(",")
    }

    pub fn is_allocation(&self) -> bool {
        self.shell == SRUN
    }

    fn shell_name(&self) -> &str {
        Path::new(&self.shell).file_name().and_then(|name| name.to_str()).unwrap_or(&self.shell)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub work: Work,
    pub layout: Layout,
    /// The hosts of the job; `None` if it stays on this machine.
    pub remote: Option<Remote>,
    pub rounds: u32,
    /// Time limit of each command.
    pub limit: Duration,
    /// Whether a session of wireup, and the standing daemons of other launchers, run while the case is timed.
    pub is_standing: bool,
    /// Number of jobs in a round of `Ranks::Jobs`, and `in_flight`: maximum number of them that run at the same time.
    pub jobs: u32,
    pub in_flight: u32,
}

impl Case {
    /// The case of this name, on `hosts` if there are any; `shell` is used unless the name contains a shell.
    pub fn named(name: &str, hosts: &[String], shell: &str) -> Result<Case, String> {
        let (name_here, shell) = name.split_once('@').unwrap_or((name, shell));
        let known = || WORKS.map(|work| work.name).join(", ");
        let wrong = |why: &str| format!("no case {name}: {why}; WORK-NODESxPPN[@SHELL] with {}", known());
        let (work, layout) = name_here.rsplit_once('-').ok_or_else(|| wrong("no layout"))?;
        let work = WORKS.into_iter().find(|known| known.is(work)).ok_or_else(|| wrong("no such work"))?;
        let layout: Layout = layout.parse()?;
        match (work.name, hosts.is_empty()) {
            ("polling", false) => return Err(wrong("only without --hosts")),
            ("initiation", true) => return Err(wrong("only with --hosts")),
            _ => {}
        }
        let remote = (!hosts.is_empty()).then(|| Remote { hosts: hosts.to_vec(), shell: shell.to_owned() });
        // A stream of jobs uses all hosts; any other case uses as many hosts as it has nodes.
        let remote = remote.map(|all| if work.is("jobs") { all } else { all.first(layout.node_count) });
        let rounds = work.rounds(layout.job_size(), remote.is_some());
        let limit = Duration::from_secs(work.limit_s(layout.job_size()).into());
        Ok(Case { work, layout, remote, rounds, limit, is_standing: false, jobs: 1, in_flight: 1 })
    }

    pub fn name(&self) -> String {
        let shell = self.remote.as_ref().map(|remote| format!("@{}", remote.shell_name())).unwrap_or_default();
        format!("{}-{}{shell}", self.work.name, self.layout)
    }

    /// The case as it appears in the samples.
    pub fn value(&self) -> Value {
        let Layout { node_count, ppn } = self.layout;
        let mut value =
            json!({ "program": self.work.name, "ranks": self.layout.job_size(), "nodes": node_count, "ppn": ppn });
        match &self.remote {
            Some(remote) => value["remote-shell"] = remote.shell_name().into(),
            None if node_count > 1 => value["hosts"] = "virtual".into(),
            None => {}
        }
        if self.is_standing {
            value["session"] = "running".into();
        }
        if self.work.is("jobs") {
            value["in-flight"] = self.in_flight.into();
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
        for name in ["true-1x1024", "openmpi5-1x4", "intel-64x64", "pmix-exchange-1x8"] {
            assert_eq!(Case::named(name, &[], "ssh").unwrap().name(), name);
        }
        let far = Case::named("true-2x4@/opt/rsh", &hosts, "ssh").unwrap();
        assert_eq!((far.name(), far.remote.unwrap().list()), ("true-2x4@rsh".into(), "a,b".into()));
        assert_eq!(Case::named("jobs-1x1", &hosts, "ssh").unwrap().remote.unwrap().hosts.len(), 3);
        for name in ["", "true", "true-4", "true-1x", "true-0x4", "false-1x4", "true-1x4x4", "true-65536x65536"] {
            assert!(Case::named(name, &[], "ssh").is_err(), "{name}");
        }
        assert!(Case::named("initiation-2x2", &[], "ssh").is_err());
        assert!(Case::named("polling-2x2", &hosts, "ssh").is_err());
    }
}
