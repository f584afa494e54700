//! What must hold in every run, whatever happens in it.
//!
//! `fences`: released once, and only after all have entered. `bounds`: credit and buffers. `output`: every line
//! arrives whole, once, in order. Here: who may be blamed, and what is left at the end.

pub mod bounds;
pub mod ending;
pub mod fences;
pub mod missing;
pub mod output;

use crate::faults::Culprit;
use crate::spec::WorldSpec;
use bounds::Bounds;
use fences::Fences;
use output::OutputCheck;
use std::collections::BTreeMap;
use wireup_proto::launcher_io::Notice;
use wireup_wire::peer::{Cause, Failure};

/// Problems that are kept; the first one is what matters.
const PROBLEMS_MAX: usize = 16;

/// All checkers of a run, with what they saw.
pub struct Checks {
    pub fences: Fences,
    pub bounds: Bounds,
    pub output: OutputCheck,
    pub notices: Vec<Notice>,
    pub suspended: u32,
    /// The person sent a signal: ranks that catch it may leave in peace.
    pub interrupted: bool,
    /// Ranks that ran, values that were read, faults that struck.
    pub started: u32,
    pub gets: u64,
    pub strikes: u32,
    /// Whom a failure may name, and whether the job must fail because of it.
    pub culprits: BTreeMap<Culprit, bool>,
    pub problems: Vec<String>,
}

impl Checks {
    pub fn new(spec: &WorldSpec) -> Self {
        Checks {
            fences: Fences::new(spec.job_size()),
            bounds: Bounds::default(),
            output: OutputCheck::new(spec),
            notices: Vec::new(),
            suspended: 0,
            interrupted: false,
            started: 0,
            gets: 0,
            strikes: 0,
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

    pub fn notice(&mut self, notice: Notice) {
        if let Notice::Interrupt { .. } = notice {
            // Somebody who wants the end does not wait for output.
            self.output.expect_losses();
        }
        if let Notice::Failed(Failure { cause: Cause::AgentsMissing { .. }, .. }) = &notice {
            // Some may come after all, and are turned away with all that their ranks have said.
            self.output.expect_losses();
        }
        self.notices.push(notice);
    }

    /// Something happened for which `culprit` may be named; `must`: the job cannot end well any more.
    pub fn blame(&mut self, culprit: Culprit, must: bool) {
        *self.culprits.entry(culprit).or_default() |= must;
    }
}
