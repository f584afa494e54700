//! Gathers blocks up a tree: the first half of every exchange. Followed by a broadcast of all blocks it is the sources'
//! baseline (S1 I, fig. 2).
//!
//! Each peer waits for its own part and one from each child, and sends the list of them, unchanged, to its parent. A
//! subtree with few bytes sends the blocks themselves ([`SubtreePart::Data`]); above a limit, or if a peer below sent
//! only a size, it sends the number of bytes ([`SubtreePart::Size`]), and the blocks take another route. The root's
//! result covers all peers. No peer parses another peer's bytes. One object serves one epoch.
//!
//! Cost per peer: 1 message in per child, 1 out. Up: the bytes of its subtree, or 8. The broadcast down: one message
//! per link with the bytes of all peers.

use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use wireup_wire::rope::Rope;

use super::Refused;

/// What a subtree contributes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SubtreePart {
    /// The blocks of the subtree.
    Data(Rope),
    /// The number of bytes of the subtree's blocks.
    Size(u64),
}

impl SubtreePart {
    /// Bytes of the subtree's blocks.
    pub fn size(&self) -> u64 {
        match self {
            SubtreePart::Data(blocks) => blocks.len() as u64,
            SubtreePart::Size(bytes) => *bytes,
        }
    }

    /// Whether this is only a size; the frame's header says so.
    pub fn is_size(&self) -> bool {
        matches!(self, SubtreePart::Size(_))
    }

    /// The payload of a frame: the blocks themselves, or the size as u64 LE.
    pub fn into_payload(self) -> Rope {
        match self {
            SubtreePart::Data(blocks) => blocks,
            SubtreePart::Size(bytes) => Bytes::copy_from_slice(&bytes.to_le_bytes()).into(),
        }
    }

    /// Reads the payload of a frame whose header says whether it is a size.
    pub fn from_payload(is_size: bool, payload: Rope) -> Result<Self, Refused> {
        if !is_size {
            return Ok(SubtreePart::Data(payload));
        }
        let bytes = payload.into_bytes();
        let bytes = bytes[..].try_into().map_err(|_| Refused::NoSize(bytes.len()))?;
        Ok(SubtreePart::Size(u64::from_le_bytes(bytes)))
    }
}

/// One peer's part in one gather.
pub struct TreeGather {
    eager_max: usize,
    own: bool,
    children: Vec<bool>,
    /// Bytes of all contributions that have arrived.
    size: u64,
    /// All contributions that have arrived, while they are small enough to be sent.
    data: Option<Vec<Rope>>,
}

impl TreeGather {
    /// The state of a peer with this many children. Blocks are sent up to `eager_max` bytes; `usize::MAX`: always.
    pub fn new(children: usize, eager_max: usize) -> Self {
        TreeGather {
            eager_max,
            own: false,
            children: vec![false; children],
            size: 0,
            data: Some(Vec::with_capacity(1 + children)),
        }
    }

    /// Adds this peer's own part. Returns the part of the whole subtree once that is complete: it is to be sent to the
    /// parent; at the root it covers all peers.
    pub fn own(&mut self, part: SubtreePart) -> Result<Option<SubtreePart>, Refused> {
        if core::mem::replace(&mut self.own, true) {
            return Err(Refused::OwnTwice);
        }
        Ok(self.add(part))
    }

    /// Adds the part of the subtree of child `index`; returns the same as [`TreeGather::own`].
    ///
    /// # Panics
    /// If there is no such child.
    pub fn child(&mut self, index: usize, part: SubtreePart) -> Result<Option<SubtreePart>, Refused> {
        if core::mem::replace(&mut self.children[index], true) {
            return Err(Refused::ChildTwice(index));
        }
        Ok(self.add(part))
    }

    /// Whether this peer's own part is still missing.
    pub fn own_missing(&self) -> bool {
        !self.own
    }

    /// The children whose subtrees are not complete.
    pub fn missing_children(&self) -> impl Iterator<Item = usize> + '_ {
        self.children.iter().enumerate().filter(|(_, arrived)| !**arrived).map(|(index, _)| index)
    }

    fn add(&mut self, part: SubtreePart) -> Option<SubtreePart> {
        self.size = self.size.saturating_add(part.size());
        match part {
            SubtreePart::Data(blocks) if self.size <= self.eager_max as u64 => {
                if let Some(data) = self.data.as_mut().filter(|_| !blocks.is_empty()) {
                    data.push(blocks);
                }
            }
            SubtreePart::Data(_) | SubtreePart::Size(_) => self.data = None,
        }
        if self.own_missing() || self.missing_children().next().is_some() {
            return None;
        }
        Some(self.data.take().map_or(SubtreePart::Size(self.size), |data| SubtreePart::Data(Rope::join(data))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn data(bytes: &'static [u8]) -> SubtreePart {
        SubtreePart::Data(Bytes::from_static(bytes).into())
    }

    #[test]
    fn small_parts_are_joined() {
        let mut peer = TreeGather::new(2, 3);
        assert_eq!(peer.child(1, data(b"c")), Ok(None));
        assert_eq!(peer.missing_children().collect::<Vec<_>>(), [0]);
        assert!(peer.own_missing());
        assert_eq!(peer.own(data(b"a")), Ok(None));
        assert_eq!(peer.child(0, data(b"b")), Ok(Some(data(b"cab"))));
    }

    #[test]
    fn a_second_contribution_is_refused() {
        let mut peer = TreeGather::new(1, usize::MAX);
        assert_eq!(peer.own(data(b"a")), Ok(None));
        assert_eq!(peer.own(data(b"a")), Err(Refused::OwnTwice));
        assert_eq!(peer.child(0, SubtreePart::Size(1)), Ok(Some(SubtreePart::Size(2))));
        assert_eq!(peer.child(0, data(b"b")), Err(Refused::ChildTwice(0)));
    }

    #[test]
    fn payloads_round_trip() {
        for part in [data(b""), data(b"12345678"), SubtreePart::Size(0), SubtreePart::Size(u64::MAX)] {
            let is_size = part.is_size();
            assert_eq!(SubtreePart::from_payload(is_size, part.clone().into_payload()), Ok(part));
        }
        assert_eq!(SubtreePart::Size(0x0102).into_payload().into_bytes()[..], [2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(SubtreePart::from_payload(true, Bytes::from_static(b"1234567").into()), Err(Refused::NoSize(7)));
    }

    proptest! {
        #[test]
        fn gathering_completes_with_the_last_part_in_any_order(
            sizes in proptest::collection::vec((0usize..40, prop::bool::weighted(0.1)), 1..8),
            order in any::<u64>(),
            eager_max in prop_oneof![0usize..200, Just(usize::MAX)],
        ) {
            let mut waiting: Vec<usize> = (0..sizes.len()).collect();
            let mut peer = TreeGather::new(sizes.len() - 1, eager_max);
            let (mut order, mut expected) = (order, Vec::new());
            while !waiting.is_empty() {
                let who = waiting.swap_remove((order % waiting.len() as u64) as usize);
                order = order.rotate_right(7);
                let (len, only_size) = sizes[who];
                let data = vec![who as u8; len];
                expected.extend(&data);
                let part = match only_size {
                    true => SubtreePart::Size(len as u64),
                    false => SubtreePart::Data(Bytes::from(data).into()),
                };
                let result = if who == 0 { peer.own(part) } else { peer.child(who - 1, part) };
                let any_size = sizes.iter().any(|(_, only_size)| *only_size);
                let whole = if any_size || expected.len() > eager_max {
                    SubtreePart::Size(expected.len() as u64)
                } else {
                    SubtreePart::Data(Bytes::from(expected.clone()).into())
                };
                prop_assert_eq!(result, Ok(waiting.is_empty().then_some(whole)));
            }
        }
    }
}
