//! The rules that hold in every run.
//!
//! `collectives`: each completes once, and only after all ranks have entered it. `teams`: the same for group barriers. `quiet`: agents keep
//! nothing of completed collectives. `bounds`: credit and buffers. `output`: every line arrives whole, once, in order. This file: who may
//! be blamed for a failure, and what is left at the end.

pub mod bounds;
pub mod collectives;
pub mod ending;
pub mod missing;
pub mod modex;
pub mod output;
pub mod quiet;
pub mod teams;

use crate::faults::Culprit;
use crate::spec::WorldSpec;
use bounds::Bounds;
use collectives::Collectives;
use modex::ModexCheck;
use output::OutputCheck;
use std::collections::BTreeMap;
use teams::Teams;
use wireup_proto::launcher_io::Notice;
use wireup_wire::peer::{Cause, Failure};

/// The most problems that are kept; usually only the first one matters.
const PROBLEMS_MAX: usize = 16;
/// The most send times that are kept: enough for all frames of a small world.
const EXCHANGE_TIMES_MAX: usize = 4096;

/// All checkers of a run and their results.
pub struct Checks {
    pub collectives: Collectives,
    pub teams: Teams,
    pub modex: ModexCheck,
    pub bounds: Bounds,
    pub output: OutputCheck,
    pub notices: Vec<Notice>,
    pub suspended: u32,
    /// The user sent a signal: ranks that catch it may exit normally.
    pub interrupted: bool,
    /// Ranks that ran, values that were read, faults that happened.
    pub started: u32,
    pub gets: u64,
    pub strikes: u32,
    /// When the first frames of the exchange class were sent (ns from the start).
    pub exchange_ns: Vec<u64>,
    /// How often nothing was in progress, so that the state kept by agents was checked.
    pub quiet: u32,
    /// Who may be named by a failure, and whether the job must fail because of it.
    pub culprits: BTreeMap<Culprit, bool>,
    pub problems: Vec<String>,
}

impl Checks {
    pub fn new(spec: &WorldSpec) -> Self {
        Checks {
            collectives: Collectives::new(spec.job_size()),
            teams: Teams::default(),
            modex: ModexCheck::default(),
            bounds: Bounds::default(),
            output: OutputCheck::new(spec),
            notices: Vec::new(),
            suspended: 0,
            interrupted: false,
            started: 0,
            gets: 0,
            strikes: 0,
            exchange_ns: Vec::new(),
            quiet: 0,
            culprits: BTreeMap::new(),
            problems: Vec::new(),
        }
    }

    pub fn problem(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }

    pub fn is_broken(&self) -> bool {
        !self.problems.is_empty()
    }

    pub fn on_exchange_frame(&mut self, at_ns: u64) {
        if self.exchange_ns.len() < EXCHANGE_TIMES_MAX {
            self.exchange_ns.push(at_ns);
        }
    }

    pub fn notice(&mut self, notice: Notice) {
        if let Notice::Interrupt { .. } = notice {
            // A user who interrupts the job does not wait for its output.
            self.output.expect_losses();
        }
        if let Notice::Failed(Failure { cause: Cause::AgentsMissing { .. }, .. }) = &notice {
            // A missing agent may still try to link. It is refused, and the output of its ranks is lost.
            self.output.expect_losses();
        }
        self.notices.push(notice);
    }

    /// Something happened for which `culprit` may be named. `must`: the job can no longer succeed.
    pub fn blame(&mut self, culprit: Culprit, must: bool) {
        *self.culprits.entry(culprit).or_default() |= must;
    }
}
