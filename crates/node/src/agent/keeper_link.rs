//! An agent's end of a keeper: requests are written in batches, and the reactor is called only on changes.

use super::token::Token;
use crate::keeper::{Alive, Keeper, KeeperEvent, Request};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use wireup_os::process::start_ticks;
use wireup_os::reactor::{Interest, Reactor};

pub struct KeeperLink {
    keeper: Keeper,
    token: Token,
    dirty: bool,
    blocked: bool,
    gone: bool,
    /// When the keeper was started, in clock ticks: processes that it leaves behind were started later. The greatest number if they become
    /// children of another keeper.
    born: u64,
}

impl KeeperLink {
    /// Watches a keeper's socket.
    pub fn begin(keeper: Keeper, token: Token, reactor: &Reactor) -> io::Result<KeeperLink> {
        reactor.add(keeper.fd(), token.pack(), Interest::READABLE)?;
        Ok(KeeperLink { keeper, token, dirty: false, blocked: false, gone: false, born: 0 })
    }

    pub fn pid(&self) -> u32 {
        self.keeper.pid()
    }

    pub fn key(&self) -> u32 {
        self.keeper.key()
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.keeper.fd()
    }

    pub fn request(&mut self, request: &Request) {
        self.keeper.request(request);
        self.dirty = true;
    }

    pub fn give_sockets(&mut self, sockets: Vec<OwnedFd>) {
        self.keeper.give_sockets(sockets);
        self.dirty = true;
    }

    /// Writes the queued requests. A broken keeper is noticed by its end of file.
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

    /// Receives the keeper's events; `false`: it has ended, reported once.
    pub fn receive(&mut self, events: &mut Vec<KeeperEvent>, reactor: &Reactor) -> bool {
        // An error means that descriptors ran out: some are lost, and with them the events that they belong to. The keeper is
        // given up with all that it holds, and the job ends.
        let alive = self.keeper.receive(events).unwrap_or(Alive::Gone);
        if alive == Alive::Gone && !std::mem::replace(&mut self.gone, true) {
            let is_heir = self.keeper.is_child();
            self.born = if is_heir { start_ticks(self.keeper.pid()).unwrap_or(0) } else { u64::MAX };
            let _ = reactor.remove(self.keeper.fd());
            return false;
        }
        true
    }

    /// If the keeper died on its own: when it was started.
    pub fn lost(&self) -> Option<u64> {
        self.gone.then_some(self.born)
    }

    /// Moves it to another token of the reactor.
    pub fn moved(mut self, token: Token, reactor: &Reactor) -> KeeperLink {
        let interest = if self.blocked { Interest::BOTH } else { Interest::READABLE };
        let _ = reactor.modify(self.keeper.fd(), token.pack(), interest);
        self.token = token;
        self
    }

    /// Releases the keeper, which kills its remaining processes and exits.
    pub fn into_keeper(mut self, reactor: &Reactor) -> Keeper {
        self.flush(reactor);
        if !self.gone {
            let _ = reactor.remove(self.keeper.fd());
        }
        self.keeper
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use wireup_os::process::{PidNamespace, kill};
    use wireup_wire::signal::SIGKILL;

    fn killed(keeper: Keeper) -> u64 {
        let reactor = Reactor::new().unwrap();
        let mut link = KeeperLink::begin(keeper, Token::Further, &reactor).unwrap();
        kill(link.pid(), SIGKILL).unwrap();
        let mut events = Vec::new();
        while link.receive(&mut events, &reactor) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let lost = link.lost().expect("it has ended");
        let _ = link.into_keeper(&reactor).close();
        lost
    }

    /// An agent adopts what its children leave. What a guest leaves goes to the guest's parent, and older processes are spared.
    #[test]
    fn only_processes_that_a_child_has_left_are_this_ones() {
        assert_ne!(killed(Keeper::fork().unwrap()), u64::MAX);
        let new = PidNamespace::New { by_user: false };
        let first = Keeper::fork_isolated(&new).and_then(|keeper| keeper.settled(Keeper::fork)).unwrap();
        let Some(forker) = first.forker() else { return println!("not run: it needs CAP_SYS_ADMIN") };
        let guest = forker.fork().and_then(|guest| guest.settled(Keeper::fork)).unwrap();
        assert_eq!(killed(guest), u64::MAX);
        first.close().unwrap();
    }
}
