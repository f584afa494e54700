//! Connections for the program: a plain TCP connection between two ranks that both ask for it.
//!
//! ```text
//!   lower rank                            higher rank
//!     ── dials, proves itself, number ──►   kept until the program asks for it
//! ```
//!
//! The lower rank always dials, so two requests never cross. The n-th request of one rank is matched with the n-th
//! request of the other.

use super::book::AddressBook;
use super::carrier::{Carrier, Key};
use crate::answers::Answers;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wireup_capi::net::Descriptor;

/// Maximum number of connections from one rank that wait for the program. Chosen: more than a program can use; further
/// ones are closed.
const KEPT_MAX: u32 = 64;

#[derive(Default)]
pub struct Plain {
    /// Number of connections that the program has requested so far, by rank.
    asked: BTreeMap<u32, u32>,
    /// Connections to dial as soon as the rank's address is known.
    undialled: Vec<Key>,
    /// Connections that the program has not taken yet; `None`: the rank cannot be reached.
    pub made: Answers<Key, Option<Descriptor>>,
}

impl Plain {
    pub fn ask(&mut self, me: u32, peer: u32) -> Key {
        let asked = self.asked.entry(peer).or_default();
        let key = (peer, *asked);
        *asked += 1;
        if me < peer {
            self.undialled.push(key);
        }
        key
    }

    pub fn is_undialled(&self, rank: u32) -> bool {
        self.undialled.iter().any(|(peer, _)| *peer == rank)
    }

    /// Dials the ranks whose addresses are known, requests the addresses that are not known, and collects the
    /// connections that are established or have failed.
    pub fn dial(&mut self, book: &mut AddressBook, carrier: &mut dyn Carrier) {
        self.undialled.retain(|(peer, number)| {
            let address = book.address(*peer);
            match address.get(1..) {
                Some(address) => carrier.dial_plain(*peer, address, *number),
                None if book.has_all() => book.want(*peer),
                None => {}
            }
            address.is_empty()
        });
        while let Some((key, socket)) = carrier.poll_plain() {
            self.on_over(key, socket);
        }
    }

    fn on_over(&mut self, (peer, number): Key, socket: Option<Descriptor>) {
        let asked = self.asked.get(&peer).copied().unwrap_or_default();
        if number < asked || number - asked < KEPT_MAX {
            self.made.on_answer((peer, number), socket);
        }
    }

    /// Fails all requests for connections to a rank that is lost.
    pub fn on_lost(&mut self, peer: u32) {
        let asked = self.asked.get(&peer).copied().unwrap_or_default();
        self.undialled.retain(|(to, _)| *to != peer);
        (0..asked).for_each(|number| self.on_over((peer, number), None));
    }

    pub fn forget(&mut self, key: Key) {
        self.undialled.retain(|one| *one != key);
        self.made.forget(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_capi::net;

    fn socket() -> Option<Descriptor> {
        Some(net::listen().unwrap().0)
    }

    #[test]
    fn connections_meet_the_requests_of_the_same_number() {
        let mut high = Plain::default();
        assert_eq!(high.ask(9, 4), (4, 0));
        assert!(!high.is_undialled(4), "the lower rank dials");
        high.on_over((4, 1), socket());
        assert!(!high.made.is_over((4, 0)));
        assert_eq!(high.ask(9, 4), (4, 1));
        assert!(high.made.take((4, 1)).is_some_and(|one| one.is_some()) && high.made.take((4, 1)).is_none());
        high.on_over((4, 2 + KEPT_MAX), socket());
        assert!(!high.made.is_over((4, 2 + KEPT_MAX)), "too many wait");
        let mut low = Plain::default();
        let keys = [low.ask(1, 4), low.ask(1, 4), low.ask(1, 5)];
        assert_eq!((&low.undialled[..], keys), (&keys[..], [(4, 0), (4, 1), (5, 0)]));
    }

    #[test]
    fn what_is_given_up_is_closed_and_what_is_lost_is_told() {
        let mut plain = Plain::default();
        let (first, second) = (plain.ask(9, 4), plain.ask(9, 4));
        plain.forget(first);
        plain.on_over(first, socket());
        assert!(!plain.made.is_over(first));
        plain.on_lost(4);
        assert_eq!(plain.made.take(second).map(|one| one.is_some()), Some(false));
    }
}
