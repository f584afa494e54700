//! Recognizes hellos that a stranger has recorded and repeats, by their seals.
//!
//! Only members of the session can make new hellos, one for each dial. A long session sees any number of them, so only
//! the latest [`HELLOS_MAX`] are remembered. A stranger who repeats a forgotten hello occupies the place of one guest
//! until the handshake times out; the hello is remembered again as soon as it arrives.

use crate::transport::handshake::Seal;
use std::collections::{BTreeMap, VecDeque};
use wireup_proto::io::LinkId;
use wireup_wire::limits::HELLOS_MAX;

#[derive(Default)]
pub struct Hellos {
    /// The seals of the remembered hellos, each with the link on which it first arrived.
    first: BTreeMap<Seal, LinkId>,
    /// The seals of the remembered hellos, in the order of arrival.
    order: VecDeque<Seal>,
}

impl Hellos {
    /// Remembers the hello of a link. Returns whether no other link had the same one.
    pub fn is_new(&mut self, seal: Seal, link: LinkId) -> bool {
        let first = *self.first.entry(seal).or_insert_with(|| {
            self.order.push_back(seal);
            link
        });
        if self.order.len() > HELLOS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.first.remove(&oldest);
        }
        first == link
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.first.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_hellos_are_remembered() {
        let mut hellos = Hellos::default();
        let seal = |n: usize| (n as u128).to_le_bytes();
        for n in 0..2 * HELLOS_MAX {
            assert!(hellos.is_new(seal(n), LinkId(n as u32)));
        }
        assert_eq!((hellos.count(), hellos.order.len()), (HELLOS_MAX, HELLOS_MAX));
        assert!(hellos.is_new(seal(HELLOS_MAX), LinkId(HELLOS_MAX as u32)), "its own link hears it again");
        assert!(!hellos.is_new(seal(HELLOS_MAX), LinkId(0)), "another link repeats it");
    }
}
