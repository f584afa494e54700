//! Keepers without a job, which wait for the next one so that its ranks need not wait for a fork.
//!
//! ```text
//!   forked ahead ──► idle ──► with a job ──► renewing ──► idle …
//!                                              │ fails, or too many: ended
//! ```
//!
//! When the ranks of its job are gone, a keeper is asked to renew itself: it kills leftovers of the job and becomes idle. Idle keepers are
//! watched, so that a killed one is not used.

use super::keeper_link::KeeperLink;
use super::token::Token;
use crate::keeper::{Keeper, KeeperEvent, Request};
use std::collections::BTreeMap;
use std::io;
use wireup_os::reactor::{Interest, Reactor};

/// Most idle keepers. Chosen: as many concurrent jobs as a user starts by a script.
const IDLE_MAX: usize = 32;

#[derive(Default)]
pub struct KeeperPool {
    /// By pid.
    idle: BTreeMap<u32, Keeper>,
    renewing: BTreeMap<u32, KeeperLink>,
}

impl KeeperPool {
    /// An idle keeper, if there is one.
    pub fn take(&mut self, reactor: &Reactor) -> Option<Keeper> {
        let (_, keeper) = self.idle.pop_first()?;
        let _ = reactor.remove(keeper.fd());
        Some(keeper)
    }

    /// Its job is over.
    pub fn renew(&mut self, link: KeeperLink, reactor: &Reactor) {
        let pid = link.pid();
        let mut link = link.moved(Token::IdleKeeper(pid), reactor);
        link.request(&Request::Renew);
        link.flush(reactor);
        self.renewing.insert(pid, link);
    }

    /// A keeper has sent something, or has ended. `false`: it is not in this pool.
    pub fn on_event(&mut self, pid: u32, reactor: &Reactor) -> bool {
        if let Some(keeper) = self.idle.remove(&pid) {
            // An idle keeper sends nothing, so it has ended.
            let _ = reactor.remove(keeper.fd());
            let _ = keeper.close();
            return true;
        }
        let Some(link) = self.renewing.get_mut(&pid) else { return false };
        let mut events = Vec::new();
        let alive = link.receive(&mut events, reactor);
        let renewed = events.iter().any(|event| matches!(event, KeeperEvent::Renewed));
        if alive && !renewed {
            link.flush(reactor);
        } else if let Some(link) = self.renewing.remove(&pid) {
            let keeper = link.into_keeper(reactor);
            if alive && self.idle.len() < IDLE_MAX && watch(&keeper, reactor).is_ok() {
                self.idle.insert(pid, keeper);
            } else {
                // It has nothing left to do, so closing it does not take long.
                let _ = keeper.close();
            }
        }
        true
    }

    /// Ends all idle keepers but `count`.
    pub fn trim(&mut self, count: usize, reactor: &Reactor) {
        while self.idle.len() > count
            && let Some((_, keeper)) = self.idle.pop_last()
        {
            let _ = reactor.remove(keeper.fd());
            let _ = keeper.close();
        }
    }

    /// Forks keepers until `count` are idle.
    ///
    /// # Errors
    /// One cannot be forked.
    pub fn fill(&mut self, count: usize, fork: impl Fn() -> io::Result<Keeper>, reactor: &Reactor) -> io::Result<()> {
        while self.idle.len() < count {
            let keeper = fork()?;
            watch(&keeper, reactor)?;
            self.idle.insert(keeper.pid(), keeper);
        }
        Ok(())
    }

    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.idle.keys().chain(self.renewing.keys()).copied()
    }

    /// All of them, to be ended.
    pub fn into_keepers(self, reactor: &Reactor) -> impl Iterator<Item = Keeper> {
        let idle = self.idle.into_values().inspect(|keeper| {
            let _ = reactor.remove(keeper.fd());
        });
        idle.chain(self.renewing.into_values().map(|link| link.into_keeper(reactor)))
    }
}

fn watch(keeper: &Keeper, reactor: &Reactor) -> io::Result<()> {
    reactor.add(keeper.fd(), Token::IdleKeeper(keeper.pid()).pack(), Interest::READABLE)
}
