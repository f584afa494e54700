//! How ranks are reached: by their addresses, which are asked for when they are not known, and through the agents if no
//! address answers.

use super::Network;
use super::carrier::{Key, Transport};
use alloc::vec::Vec;
use core::ffi::c_int;
use wireup_capi::net::{self, Descriptor};
use wireup_group::Context;
use wireup_group::connections::Route;

impl Network {
    /// Lets the agents connect to ranks that answer at no address. `ask` returns the socket that the agents relay to a
    /// rank, for datagrams or not; `None`: they cannot relay it.
    pub fn relay(&mut self, ask: &mut dyn FnMut(u32, bool) -> Option<Descriptor>) {
        for (number, rank) in core::mem::take(&mut self.unanswered) {
            self.carrier.go_on(number, ask(rank, self.book.transport != Transport::Tcp));
            self.pump();
        }
    }

    /// The server has answered the question for a rank's address; `None`: the rank has left without an address.
    pub fn on_address(&mut self, rank: u32, address: Option<Vec<u8>>) {
        self.book.on_answer(rank);
        let is_needed = self.waiting.contains_key(&rank) && self.connections.route(rank) == Route::Dial;
        let is_wanted = is_needed || self.plain.is_undialled(rank);
        match address {
            Some(address) if self.can_reach(&address) => {
                self.book.learn(rank, address);
                if is_needed {
                    self.dial(rank);
                }
            }
            Some(_) => {
                self.book.on_misfit(rank);
                self.on_lost(rank);
            }
            None if is_wanted => self.on_lost(rank),
            None => {}
        }
    }

    /// The server is gone: pending questions about ranks' addresses will not be answered.
    pub fn on_unanswered(&mut self) {
        self.book.take_sought().into_iter().for_each(|rank| self.on_address(rank, None));
    }

    /// Asks for a plain connection to another rank, which asks for it too; `None`: the transport has none. `world`: the
    /// group of all.
    pub fn connect(&mut self, world: Context, peer: u32) -> Option<Key> {
        if self.book.transport != Transport::Tcp {
            return None;
        }
        let key = self.plain.ask(self.me, peer);
        if !self.book.has_all() {
            let located = self.groups.locate(world, peer);
            self.results.forget(located);
        }
        Some(key)
    }

    /// `ms`, or the time until the next redial or check of the connections if that is sooner.
    pub fn limit(&self, ms: c_int) -> c_int {
        let due = self.redials.deadline().map_or(self.upkeep.due, |at| at.min(self.upkeep.due));
        let left = c_int::try_from(due.saturating_sub(net::now_ms())).unwrap_or(c_int::MAX);
        if ms < 0 { left } else { ms.min(left) }
    }

    pub(super) fn dial(&mut self, to: u32) {
        let address = self.book.address(to);
        if address.is_empty() && self.book.has_all() {
            return self.book.want(to);
        }
        let address = if self.can_reach(&address) { address.get(1..).unwrap_or_default() } else { &[] };
        let number = self.carrier.dial(to, address, self.connections.closed(to));
        self.connections.on_dial(to, number);
    }

    pub(super) fn dial_again(&mut self, now: u64) {
        if self.redials.deadline().is_none_or(|at| at > now) {
            return;
        }
        // A rank that has connected meanwhile need not be dialled.
        self.pump();
        for (to, is_enough) in self.redials.take_due(now) {
            if self.connections.route(to) != Route::Dial {
                self.redials.remove(to);
            } else if is_enough {
                self.on_lost(to);
            } else {
                self.dial(to);
            }
        }
    }
}
