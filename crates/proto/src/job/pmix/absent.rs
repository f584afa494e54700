//! Ranks that leave without ever having joined, while others of their node have.
//!
//! The library lets the ranks of a node wait for each other by itself, and its server speaks when all are in: whether somebody
//! waits for a rank that never connected is seen by nobody else. Such a rank counts as one that has joined and left without a
//! goodbye: it is no failure if the job is over soon. Open MPI's own launchers have the same rule: if one process calls init, all
//! must.

use super::super::processes::Life;
use super::super::{Context, Job};
use wireup_wire::ids::LocalRank;

impl Job {
    /// A rank here that has joined may wait inside the library for this one, which is gone and has not.
    pub(in crate::job) fn is_awaited_in_library(&self, local: LocalRank) -> bool {
        let is_gone = |local: LocalRank| matches!(self.processes[local.index()].life, Life::Gone { exit: Some(0) });
        let joined = |process: &super::super::processes::Process| {
            process.spoke_pmix && !process.finalized && process.life == Life::Running
        };
        is_gone(local) && !self.processes[local.index()].spoke_pmi && self.processes.iter().any(joined)
    }

    /// A rank has joined: those that cannot any more are missed.
    pub(in crate::job) fn miss_absent(&mut self, cx: &mut Context<'_>) {
        if self.alive == self.processes.len() {
            return;
        }
        let all = (0..self.processes.len() as u16).map(LocalRank);
        if let Some(absent) = all.into_iter().find(|local| self.is_awaited_in_library(*local)) {
            self.on_departed(self.departed(absent), cx);
        }
    }
}
