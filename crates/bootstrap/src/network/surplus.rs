//! Which connections there should be without a message to carry: none that were not used for the longest time, if there
//! are more than a bound, and one to each rank that is waited for.
//!
//! A connection is how the end of its other end's process is noticed. So one over which an end waits is not closed, and
//! a rank that has waited for another for a while makes one.

use super::Network;
use super::carrier::Word;
use super::messages::said;
use super::upkeep::WATCH_MS;
use alloc::vec::Vec;
use wireup_group::connections::Route;

impl Network {
    /// From now on at most so many connections stay open, but for those over which somebody waits for a message; if
    /// they cost descriptors.
    pub fn bound_connections(&mut self, open_max: usize) {
        if self.carrier.can_finish() {
            self.upkeep.open_max = Some(open_max);
            self.pump();
        }
    }

    /// Begins to close what is more than the bound; whether there is something to send now.
    pub(super) fn close_surplus(&mut self) -> bool {
        let Some(open_max) = self.upkeep.open_max.filter(|open_max| self.connections.open() > *open_max) else {
            return false;
        };
        let awaited = self.groups.awaited();
        let mut has_asked = false;
        while let Some(number) = self.connections.close_one(open_max, |peer| awaited.has(peer)) {
            self.carrier.send(number, said(Word::Close));
            has_asked = true;
        }
        has_asked
    }

    /// Connects to ranks that this process has waited for since the last time.
    ///
    /// A rank whose part in a collective is missing has not left. The sender that a receive waits for may have left in
    /// order, which this process knows by its goodbye, if there was a connection. With a bound it may have been closed,
    /// and the end of a sender would go unnoticed; so senders are connected to with a bound only.
    pub(super) fn watch(&mut self, now: u64) {
        if now < self.upkeep.due {
            return;
        }
        // First take what has arrived: its senders are not waited for.
        self.pump();
        self.upkeep.due = now + WATCH_MS;
        let awaited = self.groups.awaited();
        let mut ranks = awaited.parts;
        if self.upkeep.open_max.is_some() {
            ranks.extend(awaited.senders);
            for (context, member) in awaited.unknown {
                let request = self.groups.locate(context, member);
                self.forgotten.insert(request);
            }
        }
        let before = core::mem::replace(&mut self.upkeep.awaited, ranks);
        let still: Vec<u32> = before.intersection(&self.upkeep.awaited).copied().collect();
        for rank in still {
            let is_dialled = self.connections.route(rank) != Route::Dial || self.again.contains_key(&rank);
            if !is_dialled && self.can_reach(&self.address(rank)) {
                self.dial(rank);
            }
        }
    }
}
