//! Keeps messages of groups that do not exist in this process yet, and drops messages of groups that were given up.

use crate::outbox::Context;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Maximum number of given-up groups whose contexts are remembered, so that their late messages are dropped.
const GONE_MAX: usize = 1024;

#[derive(Default)]
pub struct EarlyMessages {
    /// Messages kept, by group, each with the rank of its sender.
    kept: BTreeMap<Context, Vec<(u32, Vec<u8>)>>,
    bytes: usize,
    gone: VecDeque<Context>,
}

impl EarlyMessages {
    /// Keeps a message of a group that does not exist here yet, unless the group was given up.
    pub fn keep(&mut self, from: u32, context: Context, bytes: &[u8]) {
        if !self.gone.contains(&context) {
            self.bytes += bytes.len();
            self.kept.entry(context).or_default().push((from, bytes.to_vec()));
        }
    }

    pub fn take(&mut self, context: Context) -> Vec<(u32, Vec<u8>)> {
        let taken = self.kept.remove(&context).unwrap_or_default();
        self.bytes -= taken.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        taken
    }

    /// Remembers that a group was given up: its late messages are dropped.
    pub fn forget(&mut self, context: Context) {
        self.gone.push_back(context);
        if self.gone.len() > GONE_MAX {
            self.gone.pop_front();
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn bytes_of(&self, rank: u32) -> usize {
        self.kept.values().flatten().filter(|(from, _)| *from == rank).map(|(_, bytes)| bytes.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Message, MessageKind};

    #[test]
    fn messages_wait_for_their_group_unless_it_was_given_up() {
        let of = |context| Message { context, kind: MessageKind::Failed { rank: 9 }, payload: b"" }.encode();
        let mut early = EarlyMessages::default();
        early.forget(3);
        for (from, context) in [(1, 7), (2, 8), (1, 7), (1, 3)] {
            early.keep(from, context, &of(context));
        }
        assert_eq!(early.bytes(), early.bytes_of(1) + early.bytes_of(2));
        assert_eq!((early.take(7), early.take(7)), ([(1, of(7)), (1, of(7))].into(), [].into()));
        assert_eq!((early.bytes(), early.bytes_of(1)), (of(8).len(), 0));
    }
}
