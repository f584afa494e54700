//! The jobs that are timed and what is asked of wireup in each.
//!
//! A case is named `WORK-NODESxPPN`, such as `true-1x1024` or `memory-64x64`; the table's cases carry
//! targets, any other size can be run without. Nodes beyond one are virtual
//! unless hosts are given (`hosts`).
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::hosts::{self, Remote};
use crate::metric::Metric;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A static program that leaves at once.
    True,
    /// PMI-1 init, barrier, finalize.
    PmiInit,
    /// The same by a client without a C library, which costs next to nothing itself.
    PmiBare,
    /// The same through an MPI library: a program given on the command line.
    MpiInit,
    /// PMI-1: put 32 bytes, fence, get the values of all ranks.
    Exchange,
    /// Put, fence, two gets; then the ranks stand still while the agents' memory is read.
    Memory,
    /// MPI init, barrier, finalize of this Open MPI's own programs.
    OpenMpi(OpenMpi),
    /// Ranks that sleep, with a PMIx server at hand that they never ask.
    PmixSleep,
    /// By PMIx: put 32 bytes, fence with data, get the values of all ranks.
    PmixExchange,
    /// The same with a fence without data: a rank of another node is asked.
    PmixDirect,
    /// As `True`, started by one remote shell per rank in sequence and by a tree of them.
    Initiation,
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
    /// What ranks under a launcher that has several find their server by.
    pub fn pmi(self) -> Pmi {
        match self {
            Work::True | Work::Initiation => Pmi::None,
            Work::PmiInit | Work::PmiBare | Work::MpiInit | Work::Exchange | Work::Memory => Pmi::Simple,
            Work::OpenMpi(_) | Work::PmixSleep | Work::PmixExchange | Work::PmixDirect => Pmi::Pmix,
        }
    }
}

impl Work {
    /// Ranks are programs of an MPI.
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

/// Where a job's ranks are.
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

/// What a figure is compared with: another contestant of the same round, or another figure of the same run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// The spawn floor with one spawner.
    Floor,
    Echo,
    /// The newest Hydra there is.
    Hydra,
    /// The newest Hydra of major version 5 or later.
    Hydra5,
    /// A remote shell per host, all at once.
    Bare,
    /// That and then the spawn floor of all ranks.
    BareAndFloor,
    /// A remote shell per rank, one after the other.
    Serial,
    /// `mpirun` of that Open MPI.
    OpenMpi(OpenMpi),
    Srun,
    Own(Metric),
}

/// `metric` is at most `factor` times the reference, plus `plus` (in the metric's unit).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    pub metric: Metric,
    pub against: Against,
    pub factor: f64,
    pub plus: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub work: Work,
    pub place: Place,
    /// `None`: the job stays on this machine.
    pub remote: Option<Remote>,
    /// Rounds that count; a warm-up round goes before.
    pub rounds: u32,
    /// Bound on each command.
    pub limit: Duration,
    /// What ratios in the table are to.
    pub reference: Against,
    pub asked: Vec<Asked>,
}

/// The default set, in the order of the table in `docs/benchmarks.md`.
pub const TABLE: [&str; 13] = [
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
];

impl Case {
    fn new(work: Work, place: Place) -> Case {
        let job_size = place.job_size();
        // A round of the long jobs takes seconds per contestant, one of the short ones milliseconds.
        let rounds = match (work, job_size) {
            (Work::Memory | Work::PmiInit | Work::PmiBare, 1024..) => 3,
            (Work::MpiInit | Work::Initiation | Work::OpenMpi(_) | Work::PmixSleep, _) => 5,
            (_, 1024..) => 7,
            (_, 64..) => 15,
            _ => 40,
        };
        // Ten times what the slowest peer that ends at all was seen to take, hence a hang (chosen).
        let limit_s = match work {
            Work::True | Work::Exchange | Work::PmixSleep | Work::PmixExchange | Work::PmixDirect => 30 + job_size / 16,
            Work::PmiInit | Work::PmiBare | Work::Memory => 30 + job_size / 32,
            Work::MpiInit | Work::Initiation | Work::OpenMpi(_) => 60 + job_size,
        };
        let reference = match work {
            Work::True | Work::MpiInit => Against::Floor,
            Work::PmiInit | Work::PmiBare | Work::Exchange => Against::Echo,
            Work::Memory => Against::Own(Metric::PairBytes),
            Work::Initiation => Against::Serial,
            Work::OpenMpi(version) => Against::OpenMpi(version),
            Work::PmixSleep | Work::PmixExchange | Work::PmixDirect => Against::OpenMpi(OpenMpi::V5),
        };
        let limit = Duration::from_secs(limit_s.into());
        Case { work, place, remote: None, rounds, limit, reference, asked: asked_of(work, place) }
    }

    /// The case `name` on the first of `hosts`, by the remote shell `shell`.
    pub fn on_hosts(name: &str, hosts: &[String], shell: &str) -> Result<Case, NoCase> {
        let (work, place) = parse(name).filter(|(work, _)| *work != Work::Memory).ok_or_else(|| NoCase(name.into()))?;
        let remote =
            Remote { hosts: hosts.iter().take(place.node_count as usize).cloned().collect(), shell: shell.to_owned() };
        Ok(Case {
            work,
            place,
            rounds: hosts::rounds(work, place),
            limit: hosts::limit(place),
            reference: hosts::reference(work),
            asked: hosts::asked_of(work, place, &remote),
            remote: Some(remote),
        })
    }

    pub fn name(&self) -> String {
        let shell = self.remote.as_ref().map(|remote| format!("@{}", remote.shell_name())).unwrap_or_default();
        format!("{}-{}{shell}", self.work, self.place)
    }

    /// A line for people.
    pub fn describe(&self) -> String {
        let what = match self.work {
            Work::True => "static `true`",
            Work::PmiInit => "PMI-1 init, barrier, finalize",
            Work::PmiBare => "PMI-1 init, barrier, finalize, client without libc",
            Work::MpiInit => "MPI init, barrier, finalize (floor-1: as many singletons at once)",
            Work::Exchange => "PMI-1 put, fence, get-all of 32 bytes",
            Work::Memory => "PMI-1 put, fence, two gets; agents' memory while the ranks wait",
            Work::OpenMpi(OpenMpi::V4) => "Open MPI 4 init, barrier, finalize; overhead: less the slowest MPI_Init",
            Work::OpenMpi(OpenMpi::V5) => "Open MPI 5 init, barrier, finalize; overhead: less the slowest MPI_Init",
            Work::PmixSleep => "sleep 0.3 with a PMIx server; overhead: less 0.3 s",
            Work::PmixExchange => "PMIx put, fence with data, get-all of 32 bytes",
            Work::PmixDirect => "PMIx put, fence without data, get of another node's rank, get-all",
            Work::Initiation => "static `true`, by a remote shell per rank in sequence and by a tree of agents",
        };
        let nodes = match &self.remote {
            Some(remote) => format!("{} hosts by {}", self.place.node_count, remote.shell_name()),
            None if self.place.node_count == 1 => "one node".to_owned(),
            None => "virtual nodes".to_owned(),
        };
        format!("{what}; {} ranks, {nodes}; {} rounds", self.place.job_size(), self.rounds)
    }

    /// Where the job runs, for files.
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

    /// The metrics worth a row.
    pub fn metrics(&self) -> &'static [Metric] {
        match self.work {
            Work::Initiation => &[Metric::Wall],
            Work::OpenMpi(_) | Work::PmixSleep => &[Metric::Wall, Metric::Overhead],
            Work::PmixExchange if self.remote.is_some() => {
                &[Metric::Fence, Metric::GetAll, Metric::Wall, Metric::NetBytes]
            }
            Work::PmixExchange => &[Metric::Fence, Metric::GetAll, Metric::Wall],
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

fn asked_of(work: Work, place: Place) -> Vec<Asked> {
    let ask = |metric, against, factor, plus| Asked { metric, against, factor, plus };
    let wall = |against, factor, plus| ask(Metric::Wall, against, factor, plus);
    match (work, place.node_count, place.ppn) {
        (Work::OpenMpi(version), 1, 4 | 16) => vec![ask(Metric::Overhead, Against::OpenMpi(version), 0.5, 0.0)],
        (Work::PmixSleep, 1, 256) => {
            vec![ask(Metric::Overhead, Against::OpenMpi(OpenMpi::V5), 1.0 / 3.0, 0.0)]
        }
        (Work::PmixDirect, 2.., _) => vec![first_get_asked()],
        (Work::True, 1, 1024) => vec![wall(Against::Floor, 1.25, 0.0)],
        (Work::True, 1, 256) => vec![wall(Against::Floor, 1.3, 0.0)],
        (Work::True, 1, 4) => vec![wall(Against::Floor, 1.0, 0.003), wall(Against::Hydra5, 0.6, 0.0)],
        (Work::PmiInit | Work::PmiBare, 1, 4096) => vec![wall(Against::Hydra, 1.0 / 3.0, 0.0)],
        (Work::MpiInit, 1, 64) => vec![wall(Against::Hydra5, 0.75, 0.0)],
        (Work::Exchange, 1, 64) => vec![
            ask(Metric::Fence, Against::Hydra5, 1.0, 0.0),
            ask(Metric::GetAll, Against::Echo, 1.25, 0.0),
            ask(Metric::GetAll, Against::Hydra5, 1.0, 0.0),
        ],
        (Work::Memory, 64, 64) => {
            vec![ask(Metric::AgentMemory, Against::Own(Metric::PairBytes), 2.0, 3.0 * 1048576.0)]
        }
        _ => Vec::new(),
    }
}

/// A first get takes less than a millisecond, whoever else is timed.
pub fn first_get_asked() -> Asked {
    Asked { metric: Metric::FirstGet, against: Against::Own(Metric::FirstGet), factor: 0.0, plus: 0.001 }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reference = match self.against {
            Against::Floor => "floor-1",
            Against::Echo => "echo",
            Against::Hydra => "hydra",
            Against::Hydra5 => "hydra-5",
            Against::Bare => "bare",
            Against::BareAndFloor => "(bare + floor-1)",
            Against::Serial => "serial",
            Against::OpenMpi(OpenMpi::V4) => "open-mpi-4",
            Against::OpenMpi(OpenMpi::V5) => "open-mpi-5",
            Against::Srun => "srun",
            Against::Own(metric) => metric.name(),
        };
        let factor = (self.factor * 1000.0).round() / 1000.0;
        write!(f, "<= {factor} x {reference}")?;
        if self.plus != 0.0 {
            write!(f, " + {}", self.metric.unit().show(self.plus))?;
        }
        Ok(())
    }
}

const WORKS: [(Work, &str); 12] = [
    (Work::OpenMpi(OpenMpi::V4), "openmpi4"),
    (Work::OpenMpi(OpenMpi::V5), "openmpi5"),
    (Work::PmixSleep, "pmix-sleep"),
    (Work::PmixExchange, "pmix-exchange"),
    (Work::PmixDirect, "pmix-direct"),
    (Work::True, "true"),
    (Work::PmiInit, "pmi-init"),
    (Work::PmiBare, "pmi-bare"),
    (Work::MpiInit, "mpi-init"),
    (Work::Exchange, "exchange"),
    (Work::Memory, "memory"),
    (Work::Initiation, "initiation"),
];

/// Ranks of one benchmark job: beyond this one machine says nothing (chosen).
const JOB_SIZE_MAX: u32 = 65_536;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no case {0}: WORK-NODESxPPN with true, pmi-init, pmi-bare, mpi-init, exchange, openmpi4, openmpi5, pmix-sleep, \
     pmix-exchange, pmix-direct, memory (without --hosts) or initiation (with --hosts), such as true-1x256"
)]
pub struct NoCase(String);

impl FromStr for Case {
    type Err = NoCase;

    /// A case on this machine.
    fn from_str(name: &str) -> Result<Case, NoCase> {
        let here = parse(name).filter(|(work, _)| *work != Work::Initiation);
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
    fn names_come_back_and_the_table_has_targets() {
        for name in TABLE {
            let case: Case = name.parse().unwrap();
            assert_eq!(case.name(), name);
            assert!(!case.asked.is_empty(), "{name}");
            assert!(case.asked.iter().all(|asked| case.metrics().contains(&asked.metric)), "{name}");
        }
        assert!("true-1x8".parse::<Case>().unwrap().asked.is_empty());
    }

    #[test]
    fn a_wrong_name_is_refused() {
        for name in ["", "true", "true-4", "true-1x", "true-0x4", "false-1x4", "true-1x4x4", "true-65536x65536"] {
            assert!(name.parse::<Case>().is_err(), "{name}");
        }
    }

    #[test]
    fn targets_read_as_people_say_them() {
        let asked: Vec<String> = TABLE
            .iter()
            .flat_map(|name| name.parse::<Case>().unwrap().asked)
            .map(|asked| format!("{} {asked}", asked.metric))
            .collect();
        assert_eq!(
            asked,
            [
                "wall <= 1.25 x floor-1",
                "wall <= 1.3 x floor-1",
                "wall <= 1 x floor-1 + 3.00 ms",
                "wall <= 0.6 x hydra-5",
                "wall <= 0.333 x hydra",
                "wall <= 0.333 x hydra",
                "wall <= 0.75 x hydra-5",
                "fence <= 1 x hydra-5",
                "get-all <= 1.25 x echo",
                "get-all <= 1 x hydra-5",
                "agent-memory <= 2 x pair-bytes + 3.00 MiB",
                "overhead <= 0.5 x open-mpi-4",
                "overhead <= 0.5 x open-mpi-4",
                "overhead <= 0.5 x open-mpi-5",
                "overhead <= 0.5 x open-mpi-5",
                "overhead <= 0.333 x open-mpi-5",
            ]
        );
    }
}
