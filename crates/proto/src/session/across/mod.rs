//! Collectives and requests of PMIx between ranks of several jobs, at the root, which knows all jobs of the session.
//!
//! Requests come up a job's tree as those for names do (`job/names`); answers and orders go back down the tree of the
//! job concerned. `rounds` are collectives whose members belong to several jobs, `fetches` requests for the data of a
//! rank of another job, `members` checks what agents say and finds the agents concerned, `told` is who was told of
//! which job, `bounds` how much the root stores.
//!
//! ```text
//!   job A, node 0 ── Join ─►┐                                  job A, node 0 ── Fetch ─► root ── Give ─► job B, node 1
//!   job A, node 1 ── Join ─►┼─ root: all nodes have entered          ▲ ◄──── Fetched ──── │ ◄─── Given ────── │
//!   job B, node 1 ── Join ─►┘      └─ Joined ─► each of them
//! ```
//!
//! If a member has departed without entering, or its job is over, the nodes that wait are told that it is gone.

mod bounds;
mod fetches;
mod members;
mod place;
mod rounds;
#[cfg(test)]
mod tests;
mod told;

use super::inputs::across::Input;
use super::{Effects, View};
use fetches::Fetches;
use members::ranks_on;
use place::Place;
use rounds::Rounds;
use told::Told;
use wireup_wire::inter_job::Report;
use wireup_wire::names::Asker;

#[derive(Default)]
pub struct Across {
    rounds: Rounds,
    fetches: Fetches,
    told: Told,
}

impl Across {
    pub fn handle(&mut self, view: &View<'_>, input: Input, fx: &mut Effects) {
        match input {
            Input::Join { job, agent, asker, joint } => {
                self.rounds.join(view, &mut self.told, (Place { job, agent }, asker), joint, fx);
            }
            Input::Fetch { job, agent, asker, fetch } => {
                self.fetches.begin(view, &mut self.told, (Place { job, agent }, asker), fetch, fx);
            }
            Input::Report { job, agent, report } => match report {
                Report::Given { ticket, status, blob } => {
                    let from = Place { job, agent };
                    self.fetches.on_given(view, &mut self.told, from, (ticket, status, blob), fx);
                }
                Report::Ended => self.rounds.on_departed(view, job, &ranks_on(view, Place { job, agent }), fx),
                Report::Departed { ranks } => self.rounds.on_departed(view, job, &ranks, fx),
                Report::GaveUp { id } => {
                    let by = (Place { job, agent }, Asker::Server(id));
                    self.rounds.withdraw(view, &mut self.told, by, fx);
                    self.fetches.withdraw(by);
                }
            },
            Input::JobOver(job) => {
                self.rounds.on_job_over(job, fx);
                self.fetches.on_job_over(job, fx);
                self.told.on_job_over(job, fx);
            }
        }
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
