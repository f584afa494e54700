//! How ranks are reached: by their addresses, which are asked for when they are not known, and through the agents if no
//! address answers.

use super::Network;
use super::book::known;
use super::carrier::{Number, Transport};
use super::plain::{Key, Unreachable};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ffi::c_int;
use wireup_capi::net::{self, Owned};
use wireup_group::Context;
use wireup_group::connections::Route;

/// How often a rank is dialled that refuses, and the pause before the next time (ms): its own dial is about to arrive;
/// or it has given up because of another rank that is lost, and that news is on its way.
const DIALS_MAX: u32 = 8;
const PAUSE_MS: u64 = 50;

impl Network {
    /// Ranks whose addresses are to be asked for.
    pub fn take_wanted(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.wanted)
    }

    /// Dials for which a connection through the agents is to be asked for, with their ranks.
    pub fn take_unanswered(&mut self) -> Vec<(Number, u32)> {
        core::mem::take(&mut self.unanswered)
    }

    /// Whether relays are to carry datagrams.
    pub fn has_datagrams(&self) -> bool {
        self.transport != Transport::Tcp
    }

    /// What was asked for; `None`: there is none.
    pub fn on_relay(&mut self, number: Number, socket: Option<Owned>) {
        self.carrier.go_on(number, socket);
    }

    /// Asks for a rank's address, unless it is known.
    pub fn want(&mut self, rank: u32) {
        if self.address(rank).is_empty() && self.sought.insert(rank) {
            self.wanted.push(rank);
        }
    }

    /// What was asked for; `None`: the rank has left without an address.
    pub fn on_address(&mut self, rank: u32, address: Option<Vec<u8>>) {
        self.sought.remove(&rank);
        let is_needed = self.waiting.contains_key(&rank) && self.connections.route(rank) == Route::Dial;
        let is_wanted = is_needed || self.plain.undialled().any(|peer| peer == rank);
        match address {
            Some(address) if self.can_reach(&address) => {
                self.addresses.insert(rank, address);
                if is_needed {
                    self.dial(rank);
                }
            }
            Some(_) => {
                self.misfits.insert(rank);
                self.on_lost(rank);
            }
            None if is_wanted => self.on_lost(rank),
            None => {}
        }
    }

    /// Nobody answers questions for addresses any more.
    pub fn on_unanswered(&mut self) {
        core::mem::take(&mut self.sought).into_iter().for_each(|rank| self.on_address(rank, None));
    }

    /// Asks for a plain connection to another rank, which asks for it too; `None`: the transport has none. `world`: the
    /// group of all.
    pub fn connect(&mut self, world: Context, peer: u32) -> Option<Key> {
        if self.transport != Transport::Tcp {
            return None;
        }
        let key = self.plain.ask(self.me, peer);
        if !self.has_book() {
            let located = self.groups.locate(world, peer);
            self.forgotten.insert(located);
        }
        Some(key)
    }

    pub(super) fn dial_plain(&mut self) {
        let peers: BTreeSet<u32> = self.plain.undialled().collect();
        for peer in peers {
            let address = self.address(peer);
            if address.is_empty() {
                if self.has_book() {
                    self.want(peer);
                }
                continue;
            }
            for (to, number) in self.plain.take_undialled(peer) {
                self.carrier.dial_plain(to, &address[1..], number);
            }
        }
        while let Some((key, socket)) = self.carrier.poll_plain() {
            self.plain.on_over(key, socket.ok_or(Unreachable));
        }
    }

    /// Not longer than until the next dial, or look at connections.
    pub fn limit(&self, ms: c_int) -> c_int {
        let again = self.again.values().filter_map(|(_, at)| *at);
        let due = again.fold(self.upkeep.due(), u64::min);
        let left = c_int::try_from(due.saturating_sub(net::now_ms())).unwrap_or(c_int::MAX);
        if ms < 0 { left } else { ms.min(left) }
    }

    /// Where a rank is reached; empty if that is not known.
    pub(super) fn address(&self, rank: u32) -> Vec<u8> {
        let in_book = || self.book.as_ref().map(|book| known(book, rank).address);
        self.addresses.get(&rank).cloned().or_else(in_book).unwrap_or_default()
    }

    pub(super) fn dial(&mut self, to: u32) {
        let address = self.address(to);
        if address.is_empty() && self.has_book() {
            return self.want(to);
        }
        let address = if self.can_reach(&address) { address.get(1..).unwrap_or_default() } else { &[] };
        let number = self.carrier.dial(to, address, self.connections.closed(to));
        self.connections.on_dial(to, number);
    }

    pub(super) fn dial_again(&mut self, now: u64) {
        let is_due = |at: &Option<u64>| at.is_some_and(|at| at <= now);
        if !self.again.values().any(|(_, at)| is_due(at)) {
            return;
        }
        // A rank that has connected meanwhile need not be dialled.
        self.pump();
        let due: Vec<u32> = self.again.iter().filter(|(_, (_, at))| is_due(at)).map(|(to, _)| *to).collect();
        for to in due {
            let Some((count, at)) = self.again.get_mut(&to) else { continue };
            *at = None;
            let is_enough = *count > DIALS_MAX;
            if self.connections.route(to) != Route::Dial {
                self.again.remove(&to);
            } else if is_enough {
                self.on_lost(to);
            } else {
                self.dial(to);
            }
        }
    }

    /// A dialled rank has refused: it dials this rank at the same time, or it has ended. Dials again after a pause, in
    /// which the rank's own connection, or news of its end, may arrive.
    pub(super) fn on_refused(&mut self, peer: u32) {
        let (count, at) = self.again.entry(peer).or_default();
        (*count, *at) = (*count + 1, Some(net::now_ms() + PAUSE_MS));
    }
}
