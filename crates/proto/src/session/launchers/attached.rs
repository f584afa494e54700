//! Launchers that are attached to the root: the answers that each waits for, and the links to which frames of jobs are
//! sent.

use crate::io::LinkId;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::JobId;

/// An attached launcher.
pub struct Attached {
    pub job: JobId,
    pub has_launched: bool,
    pub asks: Asks,
    /// Whether the launcher waits until all nodes are up or known to be missing.
    pub waits_for_nodes: bool,
}

/// The unanswered requests of a launcher.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Asks {
    pub nodes: bool,
    pub jobs: bool,
    /// Whether the launcher has asked for all nodes to be started, which may already be up.
    pub revived: bool,
}

/// The launcher's link to which a job's frames are sent.
#[derive(Default)]
pub struct Owners {
    jobs: BTreeMap<JobId, LinkId>,
    /// Links that receive notes about the session.
    listeners: BTreeSet<LinkId>,
}

impl Owners {
    pub fn own(&mut self, job: JobId, link: LinkId) {
        self.jobs.insert(job, link);
    }

    /// Whether messages about a job come from this link.
    pub fn is_owner(&self, job: JobId, link: LinkId) -> bool {
        self.jobs.get(&job) == Some(&link)
    }

    pub fn jobs_of(&self, link: LinkId) -> Vec<JobId> {
        self.jobs.iter().filter(|(_, owner)| **owner == link).map(|(job, _)| *job).collect()
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

    /// The links to which messages about a job are sent; job 0 is the session itself.
    pub fn links_of(&self, job: JobId) -> Vec<LinkId> {
        match job {
            JobId(0) => self.listeners.iter().copied().collect(),
            job => self.jobs.get(&job).copied().into_iter().collect(),
        }
    }
}
