//! PMI-2's node attributes: a table per job and node that works without fences.
//!
//! A get with `wait=TRUE` is parked here until a local rank puts the key.

use std::collections::BTreeMap;
use wireup_wire::ids::LocalRank;
use wireup_wire::limits::{NODE_ATTR_BYTES_MAX, PARKED_GETS_PER_RANK_MAX};
use wireup_wire::pmi::Dialect;

#[derive(Default)]
pub struct NodeAttrs {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Total length of keys and values (bytes).
    bytes: usize,
    /// Parked gets, by key.
    parked: BTreeMap<Vec<u8>, Vec<Parked>>,
    /// Number of parked gets per rank.
    parked_by: BTreeMap<LocalRank, usize>,
}

/// A get that waits for its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parked {
    pub local: LocalRank,
    /// The dialect that the rank speaks.
    pub dialect: Dialect,
    pub key: Vec<u8>,
    /// The `thrid` of the PMI-2 request, which the reply repeats.
    pub thread: Option<Vec<u8>>,
}

impl NodeAttrs {
    /// Stores a value; returns the gets that waited for it. `None`: the limit for a job on a node would be exceeded.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Option<Vec<Parked>> {
        let replaced = self.values.get(key).map_or(0, |old| key.len() + old.len());
        let bytes = self.bytes - replaced + key.len() + value.len();
        if bytes > NODE_ATTR_BYTES_MAX {
            return None;
        }
        self.bytes = bytes;
        self.values.insert(key.to_vec(), value.to_vec());
        let woken = self.parked.remove(key).unwrap_or_default();
        for parked in &woken {
            self.forget_one(parked.local);
        }
        Some(woken)
    }

    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.values.get(key).map(Vec::as_slice)
    }

    /// Parks a get; `None`: too many gets of its rank are parked.
    pub fn park(&mut self, parked: Parked) -> Option<()> {
        let count = self.parked_by.entry(parked.local).or_default();
        if *count >= PARKED_GETS_PER_RANK_MAX {
            return None;
        }
        *count += 1;
        self.parked.entry(parked.key.clone()).or_default().push(parked);
        Some(())
    }

    fn forget_one(&mut self, local: LocalRank) {
        if let Some(count) = self.parked_by.get_mut(&local) {
            *count -= 1;
        }
    }

    /// A rank left: its parked gets are dropped.
    pub fn on_gone(&mut self, local: LocalRank) {
        if self.parked_by.remove(&local).is_some_and(|count| count > 0) {
            self.parked.retain(|_, waiting| {
                waiting.retain(|parked| parked.local != local);
                !waiting.is_empty()
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_answers_the_gets_that_wait_for_its_key() {
        let mut attrs = NodeAttrs::default();
        let wait = |local: u16, key: &[u8]| Parked {
            local: LocalRank(local),
            dialect: Dialect::Pmi2,
            key: key.to_vec(),
            thread: None,
        };
        for parked in [wait(1, b"a"), wait(2, b"b"), wait(3, b"a")] {
            attrs.park(parked).unwrap();
        }
        attrs.on_gone(LocalRank(3));
        assert_eq!(attrs.put(b"a", b"1"), Some(vec![wait(1, b"a")]));
        assert_eq!(attrs.put(b"a", b"2"), Some(vec![]));
        assert_eq!(attrs.get(b"a"), Some(&b"2"[..]));
    }

    #[test]
    fn puts_are_bounded_but_replacing_a_value_is_not_counted() {
        let mut attrs = NodeAttrs::default();
        let value = vec![b'v'; 1 << 20];
        let fitting = (0..17u8).take_while(|key| attrs.put(&[*key], &value).is_some()).count();
        assert_eq!(fitting, 15, "16 MiB with 16 keys do not fit");
        for _ in 0..100 {
            assert_eq!(attrs.put(&[0], &value), Some(vec![]));
        }
    }
}
