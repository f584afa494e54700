//! Finds the jobs that have ranks on this node, by number and by slot.
//!
//! A slot is the job's short name in the reactor's tokens: a session may see more jobs than tokens have bits for. A
//! slot is not reused before all others have been used.

use super::keepers::Keepers;
use super::ranks::JobRanks;
use super::token::JobSlot;
use std::collections::BTreeMap;
use wireup_os::reactor::Reactor;
use wireup_proto::io::KernelSession;
use wireup_wire::ids::JobId;
use wireup_wire::peer::SpawnError;

#[derive(Default)]
pub struct Jobs {
    ranks: BTreeMap<JobId, JobRanks>,
    slots: BTreeMap<JobSlot, JobId>,
    next: JobSlot,
}

impl Jobs {
    pub fn get(&self, job: &JobId) -> Option<&JobRanks> {
        self.ranks.get(job)
    }

    pub fn get_mut(&mut self, job: &JobId) -> Option<&mut JobRanks> {
        self.ranks.get_mut(job)
    }

    /// Calls `act` with the ranks of a job, if the job has any on this node.
    pub fn with(&mut self, job: JobId, act: impl FnOnce(&mut JobRanks)) {
        self.ranks.get_mut(&job).map(act);
    }

    /// The ranks of the job that has this slot; `None`: the job has ended on this node.
    pub fn at(&mut self, slot: JobSlot) -> Option<&mut JobRanks> {
        self.ranks.get_mut(self.slots.get(&slot)?)
    }

    /// Calls `act` with the ranks of the job that has this slot, if the job is still on this node.
    pub fn with_at(&mut self, slot: JobSlot, act: impl FnOnce(&mut JobRanks)) {
        self.at(slot).map(act);
    }

    /// The ranks of a job. A job that is not in the table yet is added, with a keeper in this kernel session.
    pub fn ranks_of(
        &mut self,
        job: JobId,
        session: KernelSession,
        keepers: &mut Keepers,
        reactor: &Reactor,
    ) -> Result<&mut JobRanks, SpawnError> {
        if !self.ranks.contains_key(&job) {
            while self.slots.contains_key(&self.next) {
                self.next = self.next.following();
            }
            let ranks = JobRanks::new(job, self.next, session, keepers, reactor)?;
            self.slots.insert(self.next, job);
            self.next = self.next.following();
            self.ranks.insert(job, ranks);
        }
        Ok(self.ranks.get_mut(&job).expect("it was there or has just been inserted"))
    }

    pub fn remove(&mut self, job: &JobId) -> Option<JobRanks> {
        let ranks = self.ranks.remove(job)?;
        self.slots.remove(&ranks.slot);
        Some(ranks)
    }

    pub fn values(&self) -> impl Iterator<Item = &JobRanks> {
        self.ranks.values()
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut JobRanks> {
        self.ranks.values_mut()
    }

    pub fn into_values(self) -> impl Iterator<Item = JobRanks> {
        self.ranks.into_values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_slot_in_use_is_not_given_to_another_job() {
        let reactor = Reactor::new().unwrap();
        let (mut jobs, mut keepers) = (Jobs { next: JobSlot::LAST, ..Jobs::default() }, Keepers::default());
        for job in [7, 1 << 25, 3] {
            jobs.ranks_of(JobId(job), KernelSession::Own, &mut keepers, &reactor).unwrap();
        }
        let slots: Vec<JobSlot> = jobs.values().map(|ranks| ranks.slot).collect();
        assert_eq!(slots, [JobSlot(1), JobSlot::LAST, JobSlot(0)]);
        jobs.next = JobSlot::LAST;
        assert_eq!(jobs.ranks_of(JobId(9), KernelSession::Own, &mut keepers, &reactor).unwrap().slot, JobSlot(2));
        let gone = jobs.remove(&JobId(7)).expect("the job was there");
        assert!(gone.slot == JobSlot::LAST && jobs.at(JobSlot::LAST).is_none() && jobs.at(JobSlot(0)).is_some());
        jobs.into_values().chain([gone]).for_each(|ranks| {
            let _ = ranks.keeper.into_keeper(&reactor).close();
        });
    }
}
