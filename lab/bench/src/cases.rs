//! The jobs that are timed.
//!
//! A case is named `WORK-NODESxPPN`, such as `true-1x1024` or `memory-64x64`. The cases of the tables have targets
//! (`target`); any other size can be run without. Nodes beyond one are virtual unless hosts are given (`hosts`). A
//! session may be running while a case is timed (`in_session`).
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::hosts::{self, Remote};
use crate::metric::Metric;
use crate::target::{Against, Target, targets_of};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A static program that exits at once.
    True,
    /// PMI-1 init, barrier, finalize.
    PmiInit,
    /// The same with a client without a C library, whose own cost is negligible.
    PmiBare,
    /// The same through an MPI library: a program given on the command line.
    MpiInit,
    /// PMI-1: put 32 bytes, fence, get the values of all ranks.
    Exchange,
    /// Put, fence, two gets; then the ranks wait while the agents' memory is read.
    Memory,
    /// MPI init, barrier, finalize of a program built with this Open MPI.
    OpenMpi(OpenMpi),
    /// Ranks that sleep, with a PMIx server that they never use.
    PmixSleep,
    /// With PMIx: put 32 bytes, fence with data, get the values of all ranks.
    PmixExchange,
    /// The same, but all ranks rest after the fence: the time of the fence without competing gets, and of the gets
    /// without the fence.
    PmixFence,
    /// The same with a fence without data, so that values come from ranks of other nodes.
    PmixDirect,
    /// Like `True`, started once by one remote shell per rank in sequence and once by a tree of them.
    Initiation,
    /// Ranks that poll for each other on a busy machine.
    Polling,
    /// Many jobs of `True`, several at a time.
    Jobs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMpi {
    V4,
    V5,
}

impl OpenMpi {
    pub fn major(self) -> u32 {
        match self {
            OpenMpi::V4 => 4,
            OpenMpi::V5 => 5,
        }
    }
}

impl Work {
    /// The kind of server that ranks use, for launchers that have several.
    pub fn pmi(self) -> Pmi {
        match self {
            Work::True | Work::Initiation | Work::Polling | Work::Jobs => Pmi::None,
            Work::PmiInit | Work::PmiBare | Work::MpiInit | Work::Exchange | Work::Memory => Pmi::Simple,
            Work::OpenMpi(_) | Work::PmixSleep | Work::PmixExchange | Work::PmixFence | Work::PmixDirect => Pmi::Pmix,
        }
    }
}

impl Work {
    /// Whether the ranks are MPI programs.
    pub fn is_mpi(self) -> bool {
        matches!(self, Work::MpiInit | Work::OpenMpi(_))
    }
}

/// The kinds of servers for ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pmi {
    None,
    Simple,
    Pmix,
}

/// How long ranks sleep (s).
pub const SLEEP_S: f64 = 0.3;

/// The nodes of a job and the ranks on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub node_count: u32,
    pub ppn: u32,
}

impl Place {
    pub fn job_size(self) -> u32 {
        self.node_count * self.ppn
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub work: Work,
    pub place: Place,
    /// `None` if the job stays on this machine.
    pub remote: Option<Remote>,
    /// Rounds that count; a warm-up round precedes them.
    pub rounds: u32,
    /// Bound on each command.
    pub limit: Duration,
    /// The base of the ratios in the table.
    pub reference: Against,
    pub target: Vec<Target>,
    /// Whether sessions of wireup, and their counterparts of other launchers, are running while the case is timed; the
    /// targets then apply to jobs in the session.
    pub is_standing: bool,
    /// For `Work::Jobs`.
    pub stream: Stream,
}

/// How many jobs a round has, and how many of them may run at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    pub jobs: u32,
    pub in_flight: u32,
}

impl Stream {
    /// A single job.
    pub const ONE: Stream = Stream { jobs: 1, in_flight: 1 };
}

/// The default set, in the order of the table in `docs/explanation/benchmarks.md`.
pub const TABLE: [&str; 14] = [
    "true-1x1024",
    "true-1x256",
    "true-1x4",
    "pmi-init-1x4096",
    "pmi-bare-1x4096",
    "mpi-init-1x64",
    "exchange-1x64",
    "memory-64x64",
    "openmpi4-1x4",
    "openmpi4-1x16",
    "openmpi5-1x4",
    "openmpi5-1x16",
    "pmix-sleep-1x256",
    "polling-1x4",
];

impl Case {
    fn new(work: Work, place: Place) -> Case {
        let job_size = place.job_size();
        // A round of a long job takes seconds per launcher, one of a short job milliseconds.
        let rounds = match (work, job_size) {
            (Work::Memory | Work::PmiInit | Work::PmiBare, 1024..) => 3,
            (Work::MpiInit | Work::Initiation | Work::Jobs | Work::OpenMpi(_) | Work::PmixSleep, _) => 5,
            (Work::Polling, _) => 9,
            (_, 1024..) => 7,
            (_, 64..) => 15,
            _ => 40,
        };
        // Ten times the longest time seen of a peer that ended at all; longer counts as a hang (chosen).
        let limit_s = match work {
            Work::True | Work::Exchange => 30 + job_size / 16,
            Work::PmixSleep | Work::PmixExchange | Work::PmixFence | Work::PmixDirect => 30 + job_size / 16,
            Work::Polling => 60 + job_size,
            Work::PmiInit | Work::PmiBare | Work::Memory => 30 + job_size / 32,
            Work::MpiInit | Work::Initiation | Work::Jobs | Work::OpenMpi(_) => 60 + job_size,
        };
        let reference = match work {
            Work::True | Work::MpiInit | Work::Jobs => Against::Baseline,
            Work::PmiInit | Work::PmiBare | Work::Exchange => Against::Echo,
            Work::Memory => Against::Own(Metric::PairBytes),
            Work::Initiation => Against::Serial,
            Work::OpenMpi(version) => Against::OpenMpi(version),
            Work::Polling => Against::OpenMpi(OpenMpi::V4),
            Work::PmixSleep | Work::PmixExchange | Work::PmixFence | Work::PmixDirect => Against::OpenMpi(OpenMpi::V5),
        };
        let limit = Duration::from_secs(limit_s.into());
        let target = targets_of(work, place);
        let (is_standing, stream) = (false, Stream::ONE);
        Case { work, place, remote: None, rounds, limit, reference, target, is_standing, stream }
    }

    /// The case `name` on the first of `hosts`, by the remote shell `shell`.
    pub fn on_hosts(name: &str, hosts: &[String], shell: &str) -> Result<Case, NoCase> {
        let (work, place) = parse(name)
            .filter(|(work, _)| !matches!(work, Work::Memory | Work::Polling | Work::Jobs))
            .ok_or_else(|| NoCase(name.into()))?;
        let remote = Remote { hosts: hosts.to_vec(), shell: shell.to_owned() }.first(place.node_count);
        Ok(Case {
            work,
            place,
            rounds: hosts::rounds(work, place),
            limit: hosts::limit(place),
            reference: hosts::reference(work, &remote),
            target: hosts::targets_of(work, place, &remote),
            remote: Some(remote),
            is_standing: false,
            stream: Stream::ONE,
        })
    }

    /// The stream of jobs `name`, on this machine or, if `hosts` are given, on these by the remote shell `shell`.
    pub fn stream(name: &str, hosts: &[String], shell: Option<&str>) -> Result<Case, NoCase> {
        let (work, place) = parse(name).filter(|(work, _)| *work == Work::Jobs).ok_or_else(|| NoCase(name.into()))?;
        let shell = hosts::plain_shell(shell).to_owned();
        let remote = (!hosts.is_empty()).then(|| Remote { hosts: hosts.to_vec(), shell });
        Ok(Case { remote, ..Case::new(work, place) })
    }

    pub fn name(&self) -> String {
        let shell = self.remote.as_ref().map(|remote| format!("@{}", remote.shell_name())).unwrap_or_default();
        format!("{}-{}{shell}", self.work, self.place)
    }

    /// A description on one line.
    pub fn describe(&self) -> String {
        let what = match self.work {
            Work::True => "static `true`",
            Work::PmiInit => "PMI-1 init, barrier, finalize",
            Work::PmiBare => "PMI-1 init, barrier, finalize, client without libc",
            Work::MpiInit => "MPI init, barrier, finalize (baseline-1: as many singletons at once)",
            Work::Exchange => "PMI-1 put, fence, get-all of 32 bytes",
            Work::Memory => "PMI-1 put, fence, two gets; agents' memory while the ranks wait",
            Work::OpenMpi(OpenMpi::V4) => "Open MPI 4 init, barrier, finalize; overhead: less the slowest MPI_Init",
            Work::OpenMpi(OpenMpi::V5) => "Open MPI 5 init, barrier, finalize; overhead: less the slowest MPI_Init",
            Work::PmixSleep => "sleep 0.3 with a PMIx server; overhead: less 0.3 s",
            Work::PmixExchange => "PMIx put, fence with data, get-all of 32 bytes",
            Work::PmixFence => "PMIx put, fence with data of 32 bytes, a second's rest, get-all",
            Work::PmixDirect => "PMIx put, fence without data, get of another node's rank, get-all",
            Work::Initiation => "static `true`, by a remote shell per rank in sequence and by a tree of agents",
            Work::Polling => "ranks that poll with sched_yield, beside a busy process for each cpu",
            Work::Jobs => return self.describe_jobs(),
        };
        let nodes = match &self.remote {
            Some(remote) => format!("{} hosts by {}", self.place.node_count, remote.shell_name()),
            None if self.place.node_count == 1 => "one node".to_owned(),
            None => "virtual nodes".to_owned(),
        };
        let session = if self.is_standing { " and in a session" } else { "" };
        format!("{what}{session}; {} ranks, {nodes}; {} rounds", self.place.job_size(), self.rounds)
    }

    fn describe_jobs(&self) -> String {
        let Stream { jobs, in_flight } = self.stream;
        let hosts = self.remote.as_ref().map(|remote| format!(", a session of {} hosts", remote.hosts.len()));
        format!(
            "{jobs} jobs of static `true`, {in_flight} in flight; {} ranks each{}; {} rounds",
            self.place.job_size(),
            hosts.unwrap_or_default(),
            self.rounds
        )
    }

    /// Where the job runs, for result files.
    pub fn place_value(&self) -> Value {
        let Place { node_count, ppn } = self.place;
        match &self.remote {
            Some(remote) => {
                json!({ "kind": "hosts", "node_count": node_count, "ppn": ppn, "remote_shell": remote.shell })
            }
            None if node_count == 1 => json!({ "kind": "one-node", "node_count": node_count, "ppn": ppn }),
            None => json!({ "kind": "virtual-nodes", "node_count": node_count, "ppn": ppn }),
        }
    }

    /// The metrics that get a row in the table.
    pub fn metrics(&self) -> &'static [Metric] {
        match self.work {
            Work::Initiation => &[Metric::Wall],
            Work::Polling => &[Metric::Time, Metric::Wall],
            Work::Jobs => &[Metric::JobRate, Metric::Wall],
            Work::OpenMpi(_) | Work::PmixSleep => &[Metric::Wall, Metric::Overhead],
            Work::PmixExchange if self.remote.is_some() => {
                &[Metric::Fence, Metric::GetAll, Metric::Wall, Metric::NetBytes]
            }
            Work::PmixExchange => &[Metric::Fence, Metric::GetAll, Metric::Wall],
            Work::PmixFence => &[Metric::Fence, Metric::GetAll],
            Work::PmixDirect => &[Metric::FirstGet, Metric::GetAll, Metric::Wall],
            Work::True if self.remote.is_some() => &[Metric::Wall, Metric::NetBytes],
            Work::Exchange if self.remote.is_some() => &[Metric::Fence, Metric::GetAll, Metric::Wall],
            _ if self.remote.is_some() => &[Metric::Wall],
            Work::True | Work::PmiInit | Work::PmiBare | Work::MpiInit => &[Metric::Wall, Metric::Cpu],
            Work::Exchange => &[Metric::Fence, Metric::GetAll, Metric::GetSpan, Metric::Wall],
            Work::Memory => &[Metric::AgentMemory, Metric::NodeMemory, Metric::PairBytes, Metric::Wall],
        }
    }
}

const WORKS: [(Work, &str); 15] = [
    (Work::OpenMpi(OpenMpi::V4), "openmpi4"),
    (Work::OpenMpi(OpenMpi::V5), "openmpi5"),
    (Work::PmixSleep, "pmix-sleep"),
    (Work::PmixExchange, "pmix-exchange"),
    (Work::PmixFence, "pmix-fence"),
    (Work::PmixDirect, "pmix-direct"),
    (Work::True, "true"),
    (Work::PmiInit, "pmi-init"),
    (Work::PmiBare, "pmi-bare"),
    (Work::MpiInit, "mpi-init"),
    (Work::Exchange, "exchange"),
    (Work::Memory, "memory"),
    (Work::Initiation, "initiation"),
    (Work::Polling, "polling"),
    (Work::Jobs, "jobs"),
];

/// Most ranks of one benchmark job: with more, one machine gives no useful figures (chosen).
const JOB_SIZE_MAX: u32 = 65_536;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no case {0}: WORK-NODESxPPN with true, pmi-init, pmi-bare, mpi-init, exchange, openmpi4, openmpi5, pmix-sleep, \
     pmix-exchange, pmix-fence, pmix-direct, memory, polling (both without --hosts) or initiation (with --hosts), such as true-1x256; in bench jobs: jobs-1x1"
)]
pub struct NoCase(pub String);

impl FromStr for Case {
    type Err = NoCase;

    /// A case on this machine.
    fn from_str(name: &str) -> Result<Case, NoCase> {
        let here = parse(name).filter(|(work, _)| !matches!(work, Work::Initiation | Work::Jobs));
        here.map(|(work, place)| Case::new(work, place)).ok_or_else(|| NoCase(name.to_owned()))
    }
}

fn parse(name: &str) -> Option<(Work, Place)> {
    let (work, place) = name.rsplit_once('-')?;
    let work = WORKS.iter().find(|(_, word)| *word == work)?.0;
    let (node_count, ppn) = place.split_once('x')?;
    let place = Place { node_count: node_count.parse().ok()?, ppn: ppn.parse().ok()? };
    let job_size = place.node_count.checked_mul(place.ppn)?;
    (1..=JOB_SIZE_MAX).contains(&job_size).then_some((work, place))
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(WORKS.iter().find(|(work, _)| work == self).map_or("", |(_, word)| word))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.node_count, self.ppn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_names_round_trip_and_every_table_case_has_targets() {
        for name in TABLE {
            let case: Case = name.parse().unwrap();
            assert_eq!(case.name(), name);
            assert!(!case.target.is_empty(), "{name}");
            assert!(case.target.iter().all(|target| case.metrics().contains(&target.metric)), "{name}");
        }
        assert!("true-1x8".parse::<Case>().unwrap().target.is_empty());
    }

    #[test]
    fn wrong_case_names_are_refused() {
        for name in ["", "true", "true-4", "true-1x", "true-0x4", "false-1x4", "true-1x4x4", "true-65536x65536"] {
            assert!(name.parse::<Case>().is_err(), "{name}");
        }
    }
}
