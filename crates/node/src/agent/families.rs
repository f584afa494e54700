//! Which jobs share a PID namespace on this node.
//!
//! Ranks of one family of jobs talk with each other, and their libraries find each other's processes by number. So the keeper of a later job
//! enters the namespace of the keeper that came first, a *guest* there. The first keeper stays until the last job of the family has ended
//! here, since the kernel would end all guests with it.
//!
//! ```text
//!   first job ──► Serving ── its job is over, others are here ──► Held ── the last one is over ──► given back
//!                    └────── its job is over, no other is here ────────────────────────────────────────┘
//! ```

use super::keeper_link::KeeperLink;
use super::token::Token;
use crate::keeper::Request;
use std::collections::{BTreeMap, BTreeSet};
use wireup_os::reactor::Reactor;
use wireup_wire::ids::JobId;

#[derive(Default)]
pub struct Families {
    here: BTreeMap<JobId, Family>,
    /// The families of jobs that others have asked for.
    of: BTreeMap<JobId, JobId>,
}

struct Family {
    /// The keeper whose namespace it is.
    first: u32,
    jobs: BTreeSet<JobId>,
    /// That keeper, if its own job is over.
    held: Option<KeeperLink>,
}

/// Keepers that have no job any more.
#[derive(Default)]
pub struct Over {
    /// In a namespace of its own.
    pub own: Option<KeeperLink>,
    pub guest: Option<KeeperLink>,
}

impl Families {
    pub fn join(&mut self, job: JobId, family: JobId) {
        self.of.insert(job, family);
    }

    fn family_of(&self, job: JobId) -> JobId {
        self.of.get(&job).copied().unwrap_or(job)
    }

    /// The process whose namespace the keeper of a new job must enter, if there is one. The job counts as there.
    pub fn namespace_for(&mut self, job: JobId) -> Option<u32> {
        let family = self.here.get_mut(&self.family_of(job))?;
        family.jobs.insert(job);
        Some(family.first)
    }

    /// A job is the first one of its family here; its keeper has a new namespace.
    pub fn begin(&mut self, job: JobId, first: u32) {
        self.here.insert(self.family_of(job), Family { first, jobs: BTreeSet::from([job]), held: None });
    }

    /// A job is over here.
    pub fn give_back(&mut self, job: JobId, link: KeeperLink, reactor: &Reactor) -> Over {
        let id = self.family_of(job);
        self.of.remove(&job);
        let Some(family) = self.here.get_mut(&id) else { return Over { own: Some(link), guest: None } };
        family.jobs.remove(&job);
        let is_first = link.pid() == family.first;
        if is_first && !family.jobs.is_empty() && link.lost().is_none() {
            let mut link = link.moved(Token::IdleKeeper(family.first), reactor);
            link.request(&Request::Sweep);
            link.flush(reactor);
            family.held = Some(link);
            return Over::default();
        }
        let held = if family.jobs.is_empty() { self.here.remove(&id).and_then(|family| family.held) } else { None };
        match is_first {
            true => Over { own: Some(link), guest: None },
            false => Over { own: held, guest: Some(link) },
        }
    }

    /// A job that has got no keeper is over here. Returns a keeper that was held for it.
    pub fn leave(&mut self, job: JobId) -> Option<KeeperLink> {
        let id = self.family_of(job);
        self.of.remove(&job);
        let family = self.here.get_mut(&id)?;
        family.jobs.remove(&job);
        if family.jobs.is_empty() { self.here.remove(&id)?.held } else { None }
    }

    /// A keeper that is held has sent something, or has ended; then the guests are about to end.
    pub fn on_event(&mut self, pid: u32, reactor: &Reactor) {
        let held = self.here.values_mut().find(|family| family.first == pid).and_then(|family| family.held.as_mut());
        if let Some(link) = held {
            // It is given back with the last guest even if it has ended.
            let _ = link.receive(&mut Vec::new(), reactor);
            link.flush(reactor);
        }
    }

    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.here.values().filter(|family| family.held.is_some()).map(|family| family.first)
    }

    pub fn into_links(self) -> impl Iterator<Item = KeeperLink> {
        self.here.into_values().filter_map(|family| family.held)
    }
}
