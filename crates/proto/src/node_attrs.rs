//! PMI-2's node attributes: a table of one job on one node, without a fence.
//!
//! A get that says `wait=TRUE` is parked here until some local rank puts the key.

use std::collections::BTreeMap;
use wireup_wire::ids::LocalRank;

#[derive(Default)]
pub struct NodeAttrs {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    parked: Vec<Parked>,
}

/// A get that waits for its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parked {
    pub local: LocalRank,
    pub key: Vec<u8>,
    /// PMI-2's `thrid`, to be echoed.
    pub thread: Option<Vec<u8>>,
}

impl NodeAttrs {
    /// Stores a value; returns the gets that waited for it.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Vec<Parked> {
        self.values.insert(key.to_vec(), value.to_vec());
        self.parked.extract_if(.., |parked| parked.key == key).collect()
    }

    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.values.get(key).map(Vec::as_slice)
    }

    pub fn park(&mut self, parked: Parked) {
        self.parked.push(parked);
    }

    /// A rank left: its gets are forgotten.
    pub fn on_gone(&mut self, local: LocalRank) {
        self.parked.retain(|parked| parked.local != local);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_wakes_those_who_wait_for_its_key() {
        let mut attrs = NodeAttrs::default();
        let wait = |local: u16, key: &[u8]| Parked { local: LocalRank(local), key: key.to_vec(), thread: None };
        attrs.park(wait(1, b"a"));
        attrs.park(wait(2, b"b"));
        attrs.park(wait(3, b"a"));
        attrs.on_gone(LocalRank(3));
        assert_eq!(attrs.put(b"a", b"1"), [wait(1, b"a")]);
        assert_eq!(attrs.put(b"a", b"2"), []);
        assert_eq!(attrs.get(b"a"), Some(&b"2"[..]));
    }
}
