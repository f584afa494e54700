//! The rules that hold in every run.
//!
//! `collectives`: each collective completes once, and only after all ranks have entered it. `group_barriers`: each
//! barrier of a group completes once, and only after all members have entered it. `modex`: data, groups and context ids
//! of PMIx. `bounds`: output stays within credit and buffers. `output`: every line arrives whole, once, in order.
//! `idle`: agents keep nothing of completed collectives, and a session nothing of completed jobs. `missing`: failures
//! name the hosts that cannot start an agent. `ending`: exit codes, whom a failure may name, and what is left at the
//! end.
//!
//! Checkers of a job or of output receive each event by a method call. Checkers of agents are functions that read the
//! whole world and return the broken rules.

pub mod bounds;
pub mod collectives;
pub mod ending;
pub mod group_barriers;
pub mod idle;
pub mod missing;
pub mod modex;
pub mod output;

use crate::fault_injection::Culprit;
use crate::phases::Phases;
use crate::spec::JobPlan;
use bounds::Bounds;
use bytes::Bytes;
use collectives::Collectives;
use group_barriers::GroupBarriers;
use modex::ModexCheck;
use output::OutputCheck;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wireup_proto::Holds;
use wireup_proto::launcher_io::Notice;
use wireup_wire::peer::{Cause, Failure};

/// Maximum number of problems that are stored; usually only the first one matters.
const PROBLEMS_MAX: usize = 16;
/// Maximum number of send times that are stored: enough for all frames of a small world.
const EXCHANGE_TIMES_MAX: usize = 4096;

/// The checkers of one job and their results.
pub struct JobChecks {
    pub collectives: Collectives,
    pub group_barriers: GroupBarriers,
    pub modex: ModexCheck,
    pub output: OutputCheck,
    pub notices: Vec<Notice>,
    /// Whether the user sent a signal or ended the job: ranks that catch the signal may exit normally.
    pub interrupted: bool,
    /// Culprits that a failure may name, each with whether the job must fail because of it.
    pub culprits: BTreeMap<Culprit, bool>,
    /// Whether the launcher of the job has exited or died.
    pub has_ended: bool,
    /// Whether epoch 0 is not a collective of the ranks, but an exchange of the addresses where ranks listen.
    pub tells_endpoints: bool,
    /// The arrays of allgathers that were read last, each with its epoch: each array holds the contributions of all
    /// ranks.
    pub arrays_read: VecDeque<(u32, Bytes)>,
}

/// The checkers of a whole world and their results.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Checks {
    pub bounds: Bounds,
    /// Numbers of ranks that ran, of values that were read (`gets`), and of faults that happened (`strikes`).
    pub started: u32,
    pub gets: u64,
    pub strikes: u32,
    /// Bytes of standard input that ranks read; `shared`: number of pieces of memory that agents passed to them.
    pub stdin_bytes: u64,
    pub shared: u64,
    /// Times at which the first frames of the exchange class were sent (ns from the start).
    pub exchange_ns: Vec<u64>,
    /// Number of times that the state of all agents was checked because nothing was in progress.
    pub quiet: u32,
    /// Maximum number of processes of one agent that existed at the same time.
    pub copies_most: usize,
    /// Nodes that were up, and nodes that were lost, when the session ended.
    pub nodes: Option<(usize, usize)>,
    /// State that agents still held when nothing was in progress.
    pub holds: Vec<Holds>,
    pub problems: Vec<String>,
    pub phases: Phases,
    /// Whether the run was stopped by its watcher.
    pub is_stopped: bool,
    /// Agents ever affected by a fault in such a way that other agents may declare them lost.
    pub struck: BTreeSet<u32>,
}

impl Checks {
    pub fn problem(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }

    /// Whether a fault has ever affected one of these agents.
    pub fn was_any_struck(&self, hosts: &[u32]) -> bool {
        hosts.iter().any(|host| self.struck.contains(host))
    }

    pub fn is_broken(&self) -> bool {
        !self.problems.is_empty()
    }

    pub fn on_exchange_frame(&mut self, at_ns: u64) {
        if self.exchange_ns.len() < EXCHANGE_TIMES_MAX {
            self.exchange_ns.push(at_ns);
        }
    }
}

impl JobChecks {
    /// The checkers of a job. `first_proc`: the number of the job's first rank among the ranks of all jobs.
    pub fn new(plan: &JobPlan, first_proc: u32) -> Self {
        let timeout = plan.timeout_ns.map(|_| (Culprit::Launcher, false));
        JobChecks {
            collectives: Collectives::new(plan.size()),
            group_barriers: GroupBarriers::default(),
            modex: ModexCheck::default(),
            output: OutputCheck::new(plan, first_proc),
            notices: Vec::new(),
            interrupted: false,
            culprits: timeout.into_iter().collect(),
            has_ended: false,
            tells_endpoints: false,
            arrays_read: VecDeque::new(),
        }
    }

    /// The failure of the job. If none of the job's nodes reports a failure, the failure in the notice that ends the
    /// job.
    pub fn failure(&self) -> Option<&Failure> {
        let mut failures = self.notices.iter().filter_map(|notice| match notice {
            Notice::Failed(failure) => Some(failure),
            _ => None,
        });
        let first = failures.clone().next();
        let failed = failures.find(|failure| failure.cause.ends_job()).or(first);
        let ended = self.notices.iter().find_map(|notice| match notice {
            Notice::Ended(ended) => ended.failure.as_ref(),
            _ => None,
        });
        failed.or(ended)
    }

    pub fn has_succeeded(&self) -> bool {
        self.failure().is_none() && self.notices.iter().any(|notice| matches!(notice, Notice::Ended(_)))
    }

    pub fn notice(&mut self, notice: Notice) {
        if let Notice::Interrupt { .. } = notice {
            // A user who interrupts the job does not wait for its output.
            self.output.expect_losses();
        }
        if let Notice::Failed(Failure { cause: Cause::AgentsMissing { .. }, .. }) = &notice {
            // A missing agent may still try to link. Such an agent is refused, and the output of its ranks is lost.
            self.output.expect_losses();
        }
        self.notices.push(notice);
    }

    /// Allows the job's failure to name `culprit` from now on. `must`: whether the job can no longer succeed.
    pub fn blame(&mut self, culprit: Culprit, must: bool) {
        *self.culprits.entry(culprit).or_default() |= must;
    }
}
