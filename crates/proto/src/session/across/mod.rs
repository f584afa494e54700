//! Collectives and requests of PMIx between ranks of several jobs, at the root, which knows all jobs of the session.
//!
//! Requests come up a job's tree as those for names do (`job/names`); answers and orders go back down the tree of the
//! job concerned. `rounds` are collectives whose members belong to several jobs, `fetches` requests for the data of a
//! rank of another job, `nodes` checks what agents say, finds the agents concerned, and has who was told of which job.
//!
//! ```text
//!   job A, node 0 ── Join ─►┐                                  job A, node 0 ── Fetch ─► root ── Give ─► job B, node 1
//!   job A, node 1 ── Join ─►┼─ root: all nodes have entered          ▲ ◄──── Fetched ──── │ ◄─── Given ────── │
//!   job B, node 1 ── Join ─►┘      └─ Joined ─► each of them
//! ```
//!
//! If a member has departed without entering, or its job is over, the nodes that wait are told that it is gone.

mod fetches;
mod nodes;
mod rounds;
#[cfg(test)]
mod tests;

use super::{Cx, JobNode};
use fetches::Fetches;
use nodes::{Told, ranks_on};
use rounds::Rounds;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::inter_job::{Fetch, InterJobReport, Joint};
use wireup_wire::names::Asker;

#[derive(Default)]
pub struct Across {
    rounds: Rounds,
    fetches: Fetches,
    told: Told,
}

impl Across {
    /// The ranks of a node enter a collective of several jobs.
    pub fn on_join(&mut self, cx: &mut Cx, job: JobId, agent: AgentId, asker: Asker, joint: Joint) {
        self.rounds.join(cx, &mut self.told, (JobNode { job, agent }, asker), joint);
    }

    /// A rank asks for data of another job.
    pub fn on_fetch(&mut self, cx: &mut Cx, job: JobId, agent: AgentId, asker: Asker, fetch: Fetch) {
        self.fetches.start_fetch(cx, &mut self.told, (JobNode { job, agent }, asker), fetch);
    }

    /// An agent answers an order, or follows one.
    pub fn on_report(&mut self, cx: &mut Cx, job: JobId, agent: AgentId, report: InterJobReport) {
        let from = JobNode { job, agent };
        match report {
            InterJobReport::Given { ticket, status, blob } => {
                self.fetches.on_given(cx, &mut self.told, from, (ticket, status, blob));
            }
            InterJobReport::Ended => {
                let ranks = ranks_on(cx, from);
                self.rounds.on_departed(cx, job, &ranks);
            }
            InterJobReport::Departed { ranks } => self.rounds.on_departed(cx, job, &ranks),
            InterJobReport::GaveUp { id } => {
                let by = (from, Asker::Server(id));
                self.rounds.withdraw(cx, &mut self.told, by);
                self.fetches.withdraw(by);
            }
        }
    }

    /// A job has ended everywhere.
    pub fn on_job_over(&mut self, cx: &mut Cx, job: JobId) {
        self.rounds.on_job_over(cx, job);
        self.fetches.on_job_over(cx, job);
        self.told.on_job_over(cx, job);
    }

    /// Bytes of all open collectives.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.rounds.bytes()
    }

    /// Number of entries in all tables, for the simulator's checkers.
    pub fn size(&self) -> usize {
        self.rounds.size() + self.fetches.size() + self.told.size()
    }
}
