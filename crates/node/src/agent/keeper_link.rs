//! An agent's end of the socket to a keeper: requests are written in batches, and the reactor is called only when the
//! events to watch for change.

use super::token::Token;
use crate::keeper::{Alive, Keeper, KeeperEvent, Request};
use crate::remedy::spawn_error;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use wireup_os::process::start_ticks;
use wireup_os::reactor::{Interest, Reactor};
use wireup_proto::io::KernelSession;
use wireup_wire::peer::{SpawnError, SpawnStep};

pub struct KeeperLink {
    keeper: Keeper,
    token: Token,
    dirty: bool,
    blocked: bool,
    gone: bool,
    /// Whether this job's ranks are forked from an interpreter with imported modules that is kept for later jobs.
    imports: bool,
    /// The error that the keeper reported before it ended; `None`: it was killed, or reported nothing.
    problem: Option<SpawnError>,
    /// Start time of the keeper (clock ticks): processes that it leaves behind were started later.
    born: u64,
}

impl KeeperLink {
    /// A link to `keeper`, whose socket the reactor watches from now on.
    pub fn new(keeper: Keeper, token: Token, reactor: &Reactor) -> io::Result<KeeperLink> {
        reactor.add(keeper.fd(), token.pack(), Interest::READABLE)?;
        Ok(KeeperLink {
            keeper,
            token,
            dirty: false,
            blocked: false,
            gone: false,
            imports: false,
            problem: None,
            born: 0,
        })
    }

    pub fn pid(&self) -> u32 {
        self.keeper.pid()
    }

    pub fn kernel_session(&self) -> Option<KernelSession> {
        self.keeper.kernel_session()
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.keeper.fd()
    }

    /// Whether the keeper probably has an interpreter with imported modules for later jobs.
    pub fn may_keep_importer(&self) -> bool {
        self.imports || self.keeper.keeps_importer()
    }

    pub fn request(&mut self, request: &Request) {
        if let Request::Spawn(batch) = request {
            self.imports |= batch.preload.as_ref().is_some_and(|preload| preload.keep);
        }
        self.keeper.request(request);
        self.dirty = true;
    }

    pub fn give_sockets(&mut self, sockets: Vec<OwnedFd>) {
        self.keeper.give_sockets(sockets);
        self.dirty = true;
    }

    /// Writes the queued requests. An error is ignored here: a keeper that has ended is noticed by the end of file on
    /// its socket.
    pub fn flush(&mut self, reactor: &Reactor) {
        if !self.dirty || self.gone {
            return;
        }
        let all_out = self.keeper.flush().unwrap_or(true);
        self.dirty = !all_out;
        if self.blocked == all_out {
            self.blocked = !all_out;
            let interest = if all_out { Interest::READABLE } else { Interest::BOTH };
            let _ = reactor.modify(self.keeper.fd(), self.token.pack(), interest);
        }
    }

    /// Receives the keeper's events. Returns `false` once, when the keeper has ended.
    pub fn receive(&mut self, events: &mut Vec<KeeperEvent>, reactor: &Reactor) -> bool {
        let received = self.keeper.receive(events);
        let failures = events.extract_if(.., |event| matches!(event, KeeperEvent::Failed { .. }));
        for failure in failures {
            if let KeeperEvent::Failed { problem } = failure {
                self.problem = Some(problem);
            }
        }
        match received {
            Ok(Alive::Yes) => true,
            Ok(Alive::Gone) => !self.on_gone(reactor),
            // This process ran out of descriptors: some that the keeper sent are lost, with the events that they belong
            // to.
            Err(error) => {
                let problem = spawn_error(SpawnStep::Fork, "cannot receive the descriptors of its processes", &error);
                !self.give_up(problem, reactor)
            }
        }
    }

    /// Makes the keeper kill its processes and exit, which ends the job. `false`: the keeper has ended already.
    pub fn give_up(&mut self, problem: SpawnError, reactor: &Reactor) -> bool {
        self.problem.get_or_insert(problem);
        self.keeper.shut_down();
        self.on_gone(reactor)
    }

    fn on_gone(&mut self, reactor: &Reactor) -> bool {
        let is_new = !std::mem::replace(&mut self.gone, true);
        if is_new {
            self.born = start_ticks(self.keeper.pid()).unwrap_or(0);
            let _ = reactor.remove(self.keeper.fd());
        }
        is_new
    }

    /// The error that the keeper reported before it ended; `None`: it was killed, or reported nothing.
    pub fn take_problem(&mut self) -> Option<SpawnError> {
        self.problem.take()
    }

    /// Start time of the keeper (clock ticks), if it has died or was given up; `None`: it can be used.
    pub fn lost(&self) -> Option<u64> {
        self.gone.then_some(self.born)
    }

    /// Makes the reactor report events of the keeper's socket with another token.
    pub fn moved(mut self, token: Token, reactor: &Reactor) -> KeeperLink {
        let interest = if self.blocked { Interest::BOTH } else { Interest::READABLE };
        let _ = reactor.modify(self.keeper.fd(), token.pack(), interest);
        self.token = token;
        self
    }

    /// Writes the queued requests, removes the socket from the reactor, and returns the keeper, which goes on running.
    pub fn into_keeper(mut self, reactor: &Reactor) -> Keeper {
        self.flush(reactor);
        if !self.gone {
            let _ = reactor.remove(self.keeper.fd());
        }
        self.keeper
    }
}
