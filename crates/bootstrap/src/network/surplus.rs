//! Keeps connections few: those that were not used for the longest time are closed when there are more than a bound.
//!
//! A connection is also how the end of its other end's process is noticed. So one over which this process waits is not closed, and one to a
//! rank that is waited for is made where there is none.

use super::Network;
use super::carrier::Word;
use super::messages::said;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use wireup_capi::net;
use wireup_group::connections::Route;

/// A rank that is waited for is connected to after so long (ms). Chosen: a message that arrives meanwhile brings a connection with it, and
/// nobody waits much longer for the news that a rank is gone.
const WATCH_MS: u64 = 1_000;

pub struct Surplus {
    /// Connections that may be open.
    open_max: usize,
    /// When to look next whom this process waits for; whom it has waited for at the last look.
    due: u64,
    awaited: BTreeSet<u32>,
}

impl Surplus {
    pub fn due(&self) -> u64 {
        self.due
    }
}

impl Network {
    /// From now on at most so many connections stay open, but for those over which somebody waits for a message.
    pub fn bound_connections(&mut self, open_max: usize) {
        self.surplus = Some(Surplus { open_max, due: net::now_ms() + WATCH_MS, awaited: BTreeSet::new() });
        self.pump();
    }

    /// Begins to close what is more than the bound; whether there is something to send now.
    pub(super) fn close_surplus(&mut self) -> bool {
        let Some(Surplus { open_max, .. }) = self.surplus else { return false };
        if self.connections.open() <= open_max {
            return false;
        }
        let awaited = self.groups.awaited().ranks;
        let mut has_asked = false;
        while let Some(number) = self.connections.close_one(open_max, |peer| awaited.contains(&peer)) {
            self.carrier.send(number, said(Word::Close));
            has_asked = true;
        }
        has_asked
    }

    /// Connects to ranks that this process has waited for since the last time.
    pub(super) fn watch(&mut self) {
        let now = net::now_ms();
        let Some(surplus) = self.surplus.as_mut().filter(|surplus| surplus.due <= now) else { return };
        surplus.due = now + WATCH_MS;
        let awaited = self.groups.awaited();
        let before = core::mem::replace(&mut surplus.awaited, awaited.ranks);
        for (context, member) in awaited.unknown {
            let request = self.groups.locate(context, member);
            self.forgotten.insert(request);
        }
        let still: Vec<u32> = before.intersection(&surplus.awaited).copied().collect();
        for rank in still {
            let is_dialled = self.connections.route(rank) != Route::Dial || self.again.contains_key(&rank);
            if !is_dialled && self.can_reach(&self.address(rank)) {
                self.dial(rank);
            }
        }
    }
}
