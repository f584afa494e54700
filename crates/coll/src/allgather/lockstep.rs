//! Gathers blobs up a tree and broadcasts their concatenation down: the sources' baseline (S1 I, fig. 2).
//!
//! Each peer waits for its own contribution and one of each child, joins them untouched and sends one message to its
//! parent; the root turns around. Up: one message a link with the bytes of the subtree. Down: one message a link with
//! the bytes of all. No peer parses another's blob. One epoch is under way at a time: a child cannot enter the next
//! one before the parent has passed the release of this one down to it.

use alloc::vec;
use alloc::vec::Vec;
use bytes::{Bytes, BytesMut};
use wireup_wire::ids::Epoch;
use wireup_wire::limits::FRAME_PAYLOAD_MAX;

/// One peer's part in a sequence of allgathers.
pub struct TreeAllgather {
    epoch: Epoch,
    own: Option<Bytes>,
    children: Vec<Option<Bytes>>,
    sent: bool,
}

/// What a contribution leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Somebody is missing.
    Wait,
    /// The subtree is complete: send this to the parent, or, at the root, release it.
    Complete(Bytes),
    /// The subtree's blobs are longer than a message may be.
    TooLong { bytes: usize },
}

/// A peer contributed what cannot be right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// For another epoch than the one under way.
    WrongEpoch { expected: Epoch },
    /// For the second time.
    Twice,
}

impl TreeAllgather {
    pub fn new(children: usize) -> Self {
        TreeAllgather { epoch: Epoch(0), own: None, children: vec![None; children], sent: false }
    }

    /// The epoch under way, or the next one if nobody has entered.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// This peer's own blob.
    pub fn contribute_own(&mut self, blob: Bytes) -> Result<Step, Refused> {
        if self.own.is_some() || self.sent {
            return Err(Refused::Twice);
        }
        self.own = Some(blob);
        Ok(self.step())
    }

    /// The blob of the subtree of child `index`.
    pub fn contribute_child(&mut self, index: usize, epoch: Epoch, blob: Bytes) -> Result<Step, Refused> {
        if epoch != self.epoch {
            return Err(Refused::WrongEpoch { expected: self.epoch });
        }
        if self.children[index].is_some() || self.sent {
            return Err(Refused::Twice);
        }
        self.children[index] = Some(blob);
        Ok(self.step())
    }

    /// The release came (or was decided here, at the root): the next epoch begins.
    pub fn release(&mut self, epoch: Epoch) -> Result<(), Refused> {
        if epoch != self.epoch || !self.sent {
            return Err(Refused::WrongEpoch { expected: self.epoch });
        }
        self.epoch = Epoch(self.epoch.0.wrapping_add(1));
        self.sent = false;
        Ok(())
    }

    fn step(&mut self) -> Step {
        if self.own.is_none() || self.children.iter().any(Option::is_none) {
            return Step::Wait;
        }
        self.sent = true;
        let own = self.own.take();
        let parts: Vec<Bytes> = own
            .into_iter()
            .chain(self.children.iter_mut().filter_map(Option::take))
            .filter(|b| !b.is_empty())
            .collect();
        let bytes = parts.iter().map(Bytes::len).sum();
        if bytes > FRAME_PAYLOAD_MAX { Step::TooLong { bytes } } else { Step::Complete(join(parts)) }
    }
}

fn join(mut parts: Vec<Bytes>) -> Bytes {
    if parts.len() <= 1 {
        return parts.pop().unwrap_or_default();
    }
    let mut joined = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    for part in parts {
        joined.extend_from_slice(&part);
    }
    joined.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn joins_in_order_and_counts_epochs() {
        let mut peer = TreeAllgather::new(2);
        for round in 0..3 {
            assert_eq!(peer.contribute_child(1, Epoch(round), Bytes::from_static(b"c")), Ok(Step::Wait));
            assert_eq!(peer.contribute_own(Bytes::from_static(b"a")), Ok(Step::Wait));
            let done = peer.contribute_child(0, Epoch(round), Bytes::from_static(b"b"));
            assert_eq!(done, Ok(Step::Complete(Bytes::from_static(b"abc"))));
            assert_eq!(peer.release(Epoch(round)), Ok(()));
        }
        assert_eq!(peer.epoch(), Epoch(3));
    }

    #[test]
    fn strangers_are_refused() {
        let mut peer = TreeAllgather::new(1);
        assert_eq!(peer.contribute_child(0, Epoch(1), Bytes::new()), Err(Refused::WrongEpoch { expected: Epoch(0) }));
        assert_eq!(peer.release(Epoch(0)), Err(Refused::WrongEpoch { expected: Epoch(0) }));
        assert_eq!(peer.contribute_own(Bytes::new()), Ok(Step::Wait));
        assert_eq!(peer.contribute_own(Bytes::new()), Err(Refused::Twice));
    }

    #[test]
    fn more_than_a_message_is_not_even_joined() {
        let mut peer = TreeAllgather::new(1);
        let large = Bytes::from(alloc::vec![0; FRAME_PAYLOAD_MAX / 2 + 1]);
        assert_eq!(peer.contribute_own(large.clone()), Ok(Step::Wait));
        let bytes = 2 * large.len();
        assert_eq!(peer.contribute_child(0, Epoch(0), large), Ok(Step::TooLong { bytes }));
    }

    proptest! {
        #[test]
        fn every_order_completes_with_the_last(children in 0usize..6, order in any::<prop::sample::Index>()) {
            let mut peer = TreeAllgather::new(children);
            let start = order.index(children + 1);
            for step in 0..=children {
                let who = (start + step) % (children + 1);
                let result = if who == children { peer.contribute_own(Bytes::new()) } else { peer.contribute_child(who, Epoch(0), Bytes::new()) };
                prop_assert_eq!(result, Ok(if step == children { Step::Complete(Bytes::new()) } else { Step::Wait }));
            }
        }
    }
}
