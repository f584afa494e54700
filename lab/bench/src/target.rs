//! Targets: which figure of wireup is to reach what, compared with which other launcher.
use std::fmt;

use crate::cases::{OpenMpi, Place, Work};
use crate::metric::Metric;

/// What a figure is compared with: another launcher in the same round, or another figure of the same run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// The spawn baseline with one spawner.
    Baseline,
    Echo,
    /// The newest Hydra that was found.
    Hydra,
    /// The newest Hydra of major version 5 or later.
    Hydra5,
    /// One remote shell per host, all at once.
    Bare,
    /// The sum of that and the spawn baseline for all ranks.
    BareAndBaseline,
    /// One remote shell per rank, one after the other.
    Serial,
    /// `mpirun` of this Open MPI.
    OpenMpi(OpenMpi),
    Srun,
    /// `prun` on a running PRRTE.
    Prun,
    /// The fastest of srun, prun and flux.
    Manager,
    Own(Metric),
}

/// A target: `metric` is at most `factor` times the reference, plus `plus` (in the metric's unit).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    pub metric: Metric,
    pub against: Against,
    pub factor: f64,
    pub plus: f64,
}

/// The targets for wireup in a job on this machine.
pub fn targets_of(work: Work, place: Place) -> Vec<Target> {
    let ask = |metric, against, factor, plus| Target { metric, against, factor, plus };
    let wall = |against, factor, plus| ask(Metric::Wall, against, factor, plus);
    match (work, place.node_count, place.ppn) {
        (Work::OpenMpi(version), 1, 4 | 16) => vec![ask(Metric::Overhead, Against::OpenMpi(version), 0.5, 0.0)],
        (Work::PmixSleep, 1, 256) => {
            vec![ask(Metric::Overhead, Against::OpenMpi(OpenMpi::V5), 1.0 / 3.0, 0.0)]
        }
        (Work::Polling, 1, 4) => vec![ask(Metric::Time, Against::OpenMpi(OpenMpi::V4), 1.0, 0.0)],
        (Work::PmixDirect, 2.., _) => vec![first_get_target()],
        (Work::True, 1, 1024) => vec![wall(Against::Baseline, 1.25, 0.0)],
        (Work::True, 1, 256) => vec![wall(Against::Baseline, 1.3, 0.0)],
        (Work::True, 1, 4) => vec![wall(Against::Baseline, 1.0, 0.003), wall(Against::Hydra5, 0.6, 0.0)],
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

/// A first get takes less than a millisecond, whatever the other launchers take.
pub fn first_get_target() -> Target {
    Target { metric: Metric::FirstGet, against: Against::Own(Metric::FirstGet), factor: 0.0, plus: 0.001 }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reference = match self.against {
            Against::Baseline => "baseline-1",
            Against::Echo => "echo",
            Against::Hydra => "hydra",
            Against::Hydra5 => "hydra-5",
            Against::Bare => "bare",
            Against::BareAndBaseline => "(bare + baseline-1)",
            Against::Serial => "serial",
            Against::OpenMpi(OpenMpi::V4) => "open-mpi-4",
            Against::OpenMpi(OpenMpi::V5) => "open-mpi-5",
            Against::Srun => "srun",
            Against::Prun => "prun",
            Against::Manager => "best of srun, prun, flux",
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

#[cfg(test)]
mod tests {
    use crate::cases::{Case, TABLE};

    #[test]
    fn targets_are_written_in_readable_form() {
        let target: Vec<String> = TABLE
            .iter()
            .flat_map(|name| name.parse::<Case>().unwrap().target)
            .map(|target| format!("{} {target}", target.metric))
            .collect();
        assert_eq!(
            target,
            [
                "wall <= 1.25 x baseline-1",
                "wall <= 1.3 x baseline-1",
                "wall <= 1 x baseline-1 + 3.00 ms",
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
                "time <= 1 x open-mpi-4",
            ]
        );
    }
}
