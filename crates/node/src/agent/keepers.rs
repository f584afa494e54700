//! Keepers without a job: in a standing session they serve one job after the other.
//!
//! ```text
//!   forked ahead ──► idle ──► a job's ──► renewing ──► idle …
//!                                            │ cannot, too many: let go
//! ```
//!
//! A job takes an idle one, so that no fork is on the way to its ranks. When its ranks are gone the keeper is asked to be as
//! new: what the job has left is killed, then it waits for the next. Idle ones are watched: one that was killed serves
//! nobody. Their number follows the jobs that were under way at once, up to a bound; where nothing has happened for a while all but
//! a few are let go.

use super::keeper_link::KeeperLink;
use super::token::Token;
use crate::keeper::{Keeper, KeeperEvent, Request};
use std::collections::BTreeMap;
use std::io;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::{Interest, Reactor};

/// Kept for a burst of jobs. Chosen: as many jobs at once as a launcher's user starts by a script.
const IDLE_MAX: usize = 32;
/// Kept when nothing happens.
const IDLE_MIN: usize = 2;
/// How long nothing must have happened for that (ns).
const QUIET_NS: u64 = 1_000_000_000;

#[derive(Default)]
pub struct Keepers {
    /// Keepers serve more than one job.
    standing: bool,
    /// Ready, by pid.
    idle: BTreeMap<u32, Keeper>,
    /// Asked to be as new.
    renewing: BTreeMap<u32, KeeperLink>,
    /// When to look for too many, or too few.
    settle_ns: Option<u64>,
}

impl Keepers {
    /// A keeper forked beforehand, for the first job.
    pub fn add(&mut self, keeper: Keeper) {
        self.idle.insert(keeper.pid(), keeper);
    }

    /// From now on keepers are kept; some are forked with the next tick.
    pub fn stand(&mut self, now_ns: u64) {
        assert!(self.idle.is_empty(), "a standing session's agent is not given keepers");
        self.standing = true;
        self.settle_ns = Some(now_ns);
    }

    /// One that is ready, if there is one.
    pub fn take(&mut self, reactor: &Reactor) -> Option<Keeper> {
        let (_, keeper) = self.idle.pop_first()?;
        if self.standing {
            let _ = reactor.remove(keeper.fd());
            self.settle_ns = Some(monotonic_ns() + QUIET_NS);
        }
        Some(keeper)
    }

    /// Its job is over. What is left of that ends now or, in a standing session, soon.
    pub fn give_back(&mut self, link: KeeperLink, reactor: &Reactor) {
        if !self.standing || link.lost().is_some() {
            // It has nothing left, or is given up: reaped or not, it is gone for us.
            let _ = link.into_keeper(reactor).close();
            return;
        }
        let pid = link.pid();
        let mut link = link.moved(Token::IdleKeeper(pid), reactor);
        link.request(&Request::Renew);
        link.flush(reactor);
        self.renewing.insert(pid, link);
        self.settle_ns = Some(monotonic_ns() + QUIET_NS);
    }

    /// Such a keeper has said something, or is gone.
    pub fn on_event(&mut self, pid: u32, reactor: &Reactor) {
        if self.idle.contains_key(&pid) {
            // It has nothing to say.
            return self.forget(pid, reactor);
        }
        let Some(link) = self.renewing.get_mut(&pid) else { return };
        let mut events = Vec::new();
        let alive = link.receive(&mut events, reactor);
        let renewed = events.iter().any(|event| matches!(event, KeeperEvent::Renewed));
        if alive && !renewed {
            return link.flush(reactor);
        }
        if let Some(link) = self.renewing.remove(&pid) {
            let keeper = link.into_keeper(reactor);
            if alive && self.idle.len() < IDLE_MAX && watch(&keeper, reactor).is_ok() {
                self.idle.insert(pid, keeper);
            } else {
                // It has nothing left to do: this takes a moment.
                let _ = keeper.close();
            }
        }
    }

    fn forget(&mut self, pid: u32, reactor: &Reactor) {
        if let Some(keeper) = self.idle.remove(&pid) {
            let _ = reactor.remove(keeper.fd());
            let _ = keeper.close();
            self.settle_ns = Some(monotonic_ns());
        }
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        self.settle_ns
    }

    /// Forks keepers ahead, or lets some go, if nothing has happened for a while.
    pub fn on_tick(&mut self, now_ns: u64, reactor: &Reactor) {
        if self.settle_ns.is_none_or(|at| now_ns < at) {
            return;
        }
        self.settle_ns = None;
        while self.idle.len() > IDLE_MIN
            && let Some((_, keeper)) = self.idle.pop_last()
        {
            let _ = reactor.remove(keeper.fd());
            let _ = keeper.close();
        }
        // Where none can be had a job will say so.
        let _ = self.fill(reactor);
    }

    fn fill(&mut self, reactor: &Reactor) -> io::Result<()> {
        while self.idle.len() < IDLE_MIN {
            let keeper = Keeper::fork()?;
            watch(&keeper, reactor)?;
            self.idle.insert(keeper.pid(), keeper);
        }
        Ok(())
    }

    /// Their pids.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.idle.keys().chain(self.renewing.keys()).copied()
    }

    /// All of them, to be let go.
    pub fn into_keepers(self, reactor: &Reactor) -> impl Iterator<Item = Keeper> {
        self.idle.into_values().chain(self.renewing.into_values().map(|link| link.into_keeper(reactor)))
    }
}

fn watch(keeper: &Keeper, reactor: &Reactor) -> io::Result<()> {
    reactor.add(keeper.fd(), Token::IdleKeeper(keeper.pid()).pack(), Interest::READABLE)
}
