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

/// Bytes of messages that wait for their collective (chosen): members are ahead of each other by what they have started and not finished.
const BYTES_MAX: usize = 256 << 20;

#[derive(Default)]
pub struct Mail {
    steps: BTreeMap<Key, Vec<u8>>,
    bytes: usize,
}

impl Mail {
    /// `false`: a message of the same step is there already, or there are too many.
    pub fn put(&mut self, key: Key, payload: Vec<u8>) -> bool {
        self.bytes += payload.len() + size_of::<Key>();
        self.bytes <= BYTES_MAX && self.steps.insert(key, payload).is_none()
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
    fn mail_is_limited_and_taken_once() {
        let key = |step| Key { epoch: 0, step, toward: Side::Left, from: 1 };
        let mut mail = Mail::default();
        assert!(mail.put(key(0), vec![1; 9]) && !mail.put(key(0), vec![2]));
        assert_eq!((mail.has(&key(0)), mail.take(&key(0)).map(|payload| payload.len())), (true, Some(1)));
        assert_eq!(mail.take(&key(0)), None);
        let mut mail = Mail::default();
        assert!(mail.put(key(1), vec![0; BYTES_MAX - 1000]) && !mail.put(key(2), vec![0; 1000]));
        assert!(mail.take(&key(1)).is_some());
    }
}
