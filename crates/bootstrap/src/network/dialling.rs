//! How ranks are reached: at their addresses, which are requested when they are not known, or through the agents if no
//! address answers.

use super::Network;
use super::carrier::{Key, Transport};
use alloc::vec::Vec;
use core::ffi::c_int;
use wireup_capi::net::{self, Descriptor};
use wireup_group::Context;
use wireup_group::connections::Route;

impl Network {
    /// Lets the agents relay to ranks that answer at no address. `ask` takes a rank and whether it needs datagrams, and
    /// returns the socket that the agents relay to that rank; `None`: they cannot.
    pub fn relay(&mut self, ask: &mut dyn FnMut(u32, bool) -> Option<Descriptor>) {
        for (number, rank) in core::mem::take(&mut self.unanswered) {
            self.carrier.go_on(number, ask(rank, self.book.transport != Transport::Tcp));
            self.pump();
        }
    }

    /// Handles the server's answer with a rank's address; `None`: the rank has exited without publishing an address.
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

    /// Handles the loss of the server: pending requests for ranks' addresses will not be answered.
    pub fn on_unanswered(&mut self) {
        self.book.take_sought().into_iter().for_each(|rank| self.on_address(rank, None));
    }

    /// Starts to make a plain connection to a rank, which must do the same; `None`: the transport has none. `world`:
    /// the group of all ranks.
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

    /// Limits a wait of `ms` milliseconds to the time until the next redial or check of the connections.
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
        // A rank that has connected meanwhile need not be dialled: handle its connection first.
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
