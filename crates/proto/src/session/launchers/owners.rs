//! At the root of a standing session: which launcher's link a job's frames go to.

use crate::io::LinkId;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::JobId;

#[derive(Default)]
pub struct Owners {
    jobs: BTreeMap<JobId, LinkId>,
    /// Those that want to hear notes about the session.
    listeners: BTreeSet<LinkId>,
}

impl Owners {
    pub fn own(&mut self, job: JobId, link: LinkId) {
        self.jobs.insert(job, link);
    }

    pub fn listen(&mut self, link: LinkId) {
        self.listeners.insert(link);
    }

    pub fn forget_job(&mut self, job: JobId) {
        self.jobs.remove(&job);
    }

    pub fn forget_link(&mut self, link: LinkId) {
        self.jobs.retain(|_, owner| *owner != link);
        self.listeners.remove(&link);
    }

    /// Who is to hear what is said about a job; job 0 is the session itself.
    pub fn links_of(&self, job: JobId) -> Vec<LinkId> {
        match job {
            JobId(0) => self.listeners.iter().copied().collect(),
            job => self.jobs.get(&job).copied().into_iter().collect(),
        }
    }
}
