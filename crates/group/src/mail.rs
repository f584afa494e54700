//! Messages of collectives that have arrived before this process waits for them.

use crate::shape::Side;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;

/// Identifies a message of a collective: its sender, the collective, the step, and the side of the ring towards which
/// it was sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key {
    pub epoch: u32,
    pub step: u32,
    pub toward: Side,
    pub from: u32,
}

#[derive(Default)]
pub struct Mail {
    steps: BTreeMap<Key, Vec<u8>>,
    bytes: usize,
}

impl Mail {
    /// Keeps a message; `false`: a message with this key is kept already, and this one is dropped.
    pub fn put(&mut self, key: Key, payload: Vec<u8>) -> bool {
        let Entry::Vacant(free) = self.steps.entry(key) else { return false };
        self.bytes += payload.len() + size_of::<Key>();
        free.insert(payload);
        true
    }

    /// Size of all kept messages, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Size of the kept messages of a rank, in bytes.
    pub fn bytes_of(&self, rank: u32) -> usize {
        let of_rank = self.steps.iter().filter(|(key, _)| key.from == rank);
        of_rank.map(|(_, payload)| payload.len() + size_of::<Key>()).sum()
    }

    pub fn has(&self, key: &Key) -> bool {
        self.steps.contains_key(key)
    }

    pub fn take(&mut self, key: &Key) -> Option<Vec<u8>> {
        let payload = self.steps.remove(key)?;
        self.bytes -= payload.len() + size_of::<Key>();
        Some(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn mail_is_counted_and_taken_once() {
        let key = |step, from| Key { epoch: 0, step, toward: Side::Left, from };
        let mut mail = Mail::default();
        assert!(mail.put(key(0, 1), vec![1; 9]) && mail.put(key(0, 2), vec![1; 5]));
        assert_eq!(mail.bytes(), mail.bytes_of(1) + mail.bytes_of(2));
        assert_eq!(mail.bytes_of(1), 9 + size_of::<Key>());
        assert_eq!((mail.has(&key(0, 1)), mail.take(&key(0, 1)).map(|payload| payload.len())), (true, Some(9)));
        assert_eq!((mail.take(&key(0, 1)), mail.bytes_of(1)), (None, 0));
        assert!(!mail.put(key(0, 2), vec![2]), "twice");
        assert_eq!(mail.bytes(), mail.bytes_of(2));
        assert_eq!((mail.take(&key(0, 2)), mail.bytes()), (Some(vec![1; 5]), 0));
    }
}
