//! Keepers without a job: in a standing session each serves one job after another.
//!
//! ```text
//!   forked ahead ──► idle ──► with a job ──► renewing ──► idle …
//!                                              │ fails, or too many: ended
//! ```
//!
//! A job takes an idle keeper, so that its ranks need not wait for a fork. When its ranks are gone the keeper is asked to renew itself:
//! it kills leftovers of the job and returns to the pool. Idle keepers are watched, so that a killed one is not used. Their number
//! follows the number of concurrent jobs, up to a bound; after a quiet time all but a few are ended.
//!
//! Agents that share a machine share a PID namespace too, because libraries take their ranks for processes of one host. Its first process
//! is a keeper of the root agent that serves no job. What killed keepers leave becomes its child, and is killed when a job is over at the root.
//!
//! The same holds for the jobs of a family (`families`): keepers of the later ones enter the namespace of the first one's keeper.

use super::families::Families;
use super::keeper_link::KeeperLink;
use super::token::Token;
use crate::keeper::{Keeper, KeeperEvent, Request};
use std::collections::BTreeMap;
use std::io;
use wireup_os::clock::monotonic_ns;
use wireup_os::process::PidNamespace;
use wireup_os::reactor::{Interest, Reactor};
use wireup_wire::ids::JobId;
use wireup_wire::peer::Containment;

/// Most idle keepers kept after a burst of jobs. Chosen: as many concurrent jobs as a user starts by a script.
const IDLE_MAX: usize = 32;
/// Idle keepers kept after a quiet time.
const IDLE_MIN: usize = 2;
/// The length of that quiet time (ns).
const QUIET_NS: u64 = 1_000_000_000;

#[derive(Default)]
pub struct Keepers {
    /// Where keepers of ranks are put.
    namespace: Option<PidNamespace>,
    /// The first process of the namespace of all agents, at the root.
    first: Option<Keeper>,
    families: Families,
    /// Keepers serve more than one job.
    standing: bool,
    /// Idle keepers, by pid.
    idle: BTreeMap<u32, Keeper>,
    /// Keepers that are renewing themselves, by pid.
    renewing: BTreeMap<u32, KeeperLink>,
    /// When to check for too many or too few.
    settle_ns: Option<u64>,
}

impl Keepers {
    /// Makes the namespace of all agents, if there is to be one. `spare`: a keeper that was forked beforehand. If there can be no namespace,
    /// ranks run without.
    pub fn new(containment: &mut Containment, spare: Option<Keeper>) -> Keepers {
        let mut keepers = Keepers::default();
        match containment {
            Containment::Machine { process: 0, by_user } => {
                let new = PidNamespace::New { by_user: *by_user };
                let first = spare.map_or_else(|| Keeper::fork_isolated(&new), Ok).and_then(Keeper::settled);
                keepers.share(first.ok(), containment);
            }
            Containment::Machine { process, .. } => keepers.namespace = PidNamespace::of(*process).ok(),
            Containment::EachNode { by_user } => {
                keepers.namespace = Some(PidNamespace::New { by_user: *by_user });
                keepers.idle.extend(spare.map(|keeper| (keeper.pid(), keeper)));
            }
            Containment::None => keepers.idle.extend(spare.map(|keeper| (keeper.pid(), keeper))),
        }
        keepers
    }

    fn share(&mut self, first: Option<Keeper>, containment: &mut Containment) {
        let namespace =
            first.as_ref().filter(|first| first.isolates()).and_then(|first| PidNamespace::of(first.pid()).ok());
        match (first, namespace) {
            (Some(first), Some(namespace)) => {
                if let Containment::Machine { process, .. } = containment {
                    *process = first.pid();
                }
                self.namespace = Some(namespace);
                self.first = Some(first);
            }
            (without, _) => {
                *containment = Containment::None;
                self.idle.extend(without.map(|keeper| (keeper.pid(), keeper)));
            }
        }
    }

    /// From now on keepers are kept; the next tick forks the first ones.
    pub fn stand(&mut self, now_ns: u64) {
        // One that could not have the namespace of all agents.
        while let Some((_, keeper)) = self.idle.pop_first() {
            let _ = keeper.close();
        }
        self.standing = true;
        self.settle_ns = Some(now_ns);
    }

    /// A keeper for ranks: an idle one, or one that is forked now.
    ///
    /// # Errors
    /// Those of [`Keeper::fork`].
    pub fn for_ranks(&mut self, job: JobId, reactor: &Reactor) -> io::Result<Keeper> {
        if let Some(first) = self.families.namespace_for(job) {
            // If the first keeper has just died, so will the family.
            let namespace = PidNamespace::of(first)?;
            return Keeper::fork_isolated(&namespace)?.settled();
        }
        let keeper = match self.idle.pop_first() {
            Some((_, keeper)) => self.taken(keeper, reactor).settled(),
            None => self.fork(),
        }?;
        if matches!(self.namespace, Some(PidNamespace::New { .. })) && keeper.isolates() {
            self.families.begin(job, keeper.pid());
        }
        Ok(keeper)
    }

    /// A job that is about to start belongs to the family of another one.
    pub fn join(&mut self, job: JobId, family: JobId) {
        self.families.join(job, family);
    }

    /// A keeper for remote shells. It has no namespace: what `ssh` leaves behind on purpose, such as a shared connection, stays, and agents
    /// on this machine keep the numbers by which others see them.
    ///
    /// # Errors
    /// Those of [`Keeper::fork`].
    pub fn for_shells(&mut self, reactor: &Reactor) -> io::Result<Keeper> {
        match self.idle.first_entry() {
            Some(idle) if !idle.get().isolates() => {
                let keeper = idle.remove();
                Ok(self.taken(keeper, reactor))
            }
            _ => Keeper::fork(),
        }
    }

    fn taken(&mut self, keeper: Keeper, reactor: &Reactor) -> Keeper {
        if self.standing {
            let _ = reactor.remove(keeper.fd());
            self.settle_ns = Some(monotonic_ns() + QUIET_NS);
        }
        keeper
    }

    /// Whether the keeper has no namespace because that of all agents has ended.
    pub fn is_namespace_lost(&self, keeper: &Keeper) -> bool {
        matches!(self.namespace, Some(PidNamespace::Of { .. })) && !keeper.isolates()
    }

    fn fork(&self) -> io::Result<Keeper> {
        self.namespace.as_ref().map_or_else(Keeper::fork, |namespace| Keeper::fork_isolated(namespace)?.settled())
    }

    /// Its job is over. Leftovers of the job end now or, in a standing session, soon.
    pub fn give_back(&mut self, job: JobId, link: KeeperLink, reactor: &Reactor) {
        let over = self.families.give_back(job, link, reactor);
        if let Some(guest) = over.guest {
            // It cannot serve a job outside of the family.
            let _ = guest.into_keeper(reactor).close();
        }
        if let Some(own) = over.own {
            self.retire(own, reactor);
        }
    }

    /// A job that has got no keeper is over.
    pub fn leave(&mut self, job: JobId, reactor: &Reactor) {
        if let Some(held) = self.families.leave(job) {
            self.retire(held, reactor);
        }
    }

    fn retire(&mut self, link: KeeperLink, reactor: &Reactor) {
        if !self.standing || link.lost().is_some() {
            // It has nothing left, or has died. An error means that it was already reaped.
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

    /// An idle or renewing keeper has sent something, or has ended.
    pub fn on_event(&mut self, pid: u32, reactor: &Reactor) {
        if self.idle.contains_key(&pid) {
            // An idle keeper sends nothing, so it has ended.
            return self.forget(pid, reactor);
        }
        let Some(link) = self.renewing.get_mut(&pid) else { return self.families.on_event(pid, reactor) };
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
                // It has nothing left to do, so closing it does not take long.
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

    /// Forks keepers ahead, or ends some, if nothing has happened for a while.
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
        // If none can be forked, the next job reports it.
        let _ = self.fill(reactor);
    }

    fn fill(&mut self, reactor: &Reactor) -> io::Result<()> {
        while self.idle.len() < IDLE_MIN {
            let keeper = self.fork()?;
            watch(&keeper, reactor)?;
            self.idle.insert(keeper.pid(), keeper);
        }
        Ok(())
    }

    /// Their pids.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.idle.keys().chain(self.renewing.keys()).copied().chain(self.families.pids())
    }

    /// A job is over at the root, so all that have become children of the namespace's first process are leftovers.
    pub fn on_job_over(&mut self) {
        if let Some(first) = self.first.as_mut().filter(|_| self.standing) {
            // It answers each request at once, so there is room; its answers are read here.
            first.request(&Request::Sweep);
            let _ = first.receive(&mut Vec::new());
            let _ = first.flush();
        }
    }

    /// The namespace's first process; to be ended after all others, which it ends.
    pub fn take_first(&mut self) -> Option<Keeper> {
        self.first.take()
    }

    /// All others, to be ended.
    pub fn into_keepers(self, reactor: &Reactor) -> impl Iterator<Item = Keeper> {
        let links = self.renewing.into_values().chain(self.families.into_links());
        self.idle.into_values().chain(links.map(|link| link.into_keeper(reactor)))
    }
}

fn watch(keeper: &Keeper, reactor: &Reactor) -> io::Result<()> {
    reactor.add(keeper.fd(), Token::IdleKeeper(keeper.pid()).pack(), Interest::READABLE)
}
