//! Messages that have arrived before their receiver wants them.

use crate::shape::Side;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Identifies a step's message: from which rank, in which of the group's collectives, in which step, sent towards which side.
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
}

impl Mail {
    /// `false`: a message of the same step is there already.
    pub fn put(&mut self, key: Key, payload: Vec<u8>) -> bool {
        self.steps.insert(key, payload).is_none()
    }

    pub fn has(&self, key: &Key) -> bool {
        self.steps.contains_key(key)
    }

    pub fn take(&mut self, key: &Key) -> Option<Vec<u8>> {
        self.steps.remove(key)
    }
}
