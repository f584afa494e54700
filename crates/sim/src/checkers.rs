//! What must hold in every run, whatever happens in it.
//!
//! `collectives`: they end once, and only after all have entered. `teams`: barriers of groups alike. `quiet`: then nothing of
//! them is left. `bounds`: credit and buffers. `output`: every line arrives whole, once, in order. Here: who may be blamed, and
//! what is left at the end.

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

/// Problems that are kept; the first one is what matters.
const PROBLEMS_MAX: usize = 16;
/// Times of frames that are kept: small worlds' all.
const EXCHANGE_TIMES_MAX: usize = 4096;

/// All checkers of a run, with what they saw.
pub struct Checks {
    pub collectives: Collectives,
    pub teams: Teams,
    pub modex: ModexCheck,
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
    /// When frames of the exchange class were sent (ns from the start), the first of them.
    pub exchange_ns: Vec<u64>,
    /// How often nothing was under way, and what is held was looked at.
    pub quiet: u32,
    /// Whom a failure may name, and whether the job must fail because of it.
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
