//! Runs one complete allgather of a peer set: the gather up the tree, the choice at its root, the exchange of the
//! blocks.
//!
//! ```text
//!   own block ──► gather up the tree ──► at the root:
//!      │             data or size          │
//!      │ scheme over                       │ tree: all blocks
//!      │ direct links                      ▼
//!      │                  "go ring", …  down the tree
//!      ▼        ◄───────────────────────── │
//!   rounds among peers 0..n                │
//!      └──────────► all blocks ◄───────────┘
//! ```
//!
//! The tree may contain agents that are not in the set: they forward messages up and down and contribute nothing. Sizes
//! go up the tree even when the blocks use direct links, so that the root knows which peers wait.
//!
//! Cost of the tree: one message up and one down per link, every byte once into each peer. Cost of direct links: the
//! algorithm's messages, one message up with 8 bytes per link of the tree, and, if the root chose, one down without
//! payload. Source: S1 V; the choice at the root is ours.

use super::choice::{choose, direct};
use super::{PeerSet, Progress, Receiver, Refused, Rounds, Rules, Sender, Step, fitting};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use wireup_wire::block;
use wireup_wire::collective::{Algorithm, Collective, ExchangeScheme, Form, RoundTag, Tag};
use wireup_wire::limits::{EAGER_BYTES_MAX, FRAME_PAYLOAD_MAX};
use wireup_wire::rope::Rope;

/// One peer's part in one allgather. Messages may arrive before [`Allgather::start`].
pub struct Allgather {
    collective: Collective,
    peers: PeerSet,
    rules: Rules,
    tree: TreeGather,
    /// This peer's block, until this peer starts the rounds over direct links with it.
    own: Option<Bytes>,
    gathered: bool,
    /// Whether the parent has sent all blocks, or the algorithm to use.
    told: bool,
    route: Route,
}

/// How the blocks reach this peer.
enum Route {
    Open,
    /// The blocks travel over direct links. Other peers may start the rounds before this peer does.
    Direct {
        algorithm: Algorithm,
        rounds: Box<dyn Rounds>,
    },
    Done,
}

impl Allgather {
    pub fn new(collective: Collective, peers: PeerSet, rules: Rules) -> Self {
        let eager_max = match rules.scheme {
            ExchangeScheme::Auto if !peers.root => EAGER_BYTES_MAX,
            ExchangeScheme::Auto | ExchangeScheme::Tree => FRAME_PAYLOAD_MAX,
            ExchangeScheme::Direct(_) => 0,
        };
        let tree = TreeGather::new(peers.children, eager_max);
        Allgather { collective, peers, rules, tree, own: None, gathered: false, told: false, route: Route::Open }
    }

    /// Starts with this peer's own block, which includes its header even if it is empty. An agent that is not in the
    /// set contributes nothing and need not start.
    ///
    /// # Errors
    /// [`Refused`]: it has already started, or there is too much data.
    pub fn start(&mut self, own: Bytes) -> Result<Progress, Refused> {
        let mut progress = Progress::default();
        let given = if block::is_bare(&own) { Bytes::new() } else { own.clone() };
        self.own = Some(own);
        self.add_own(given, &mut progress)?;
        if let (ExchangeScheme::Direct(algorithm), Some(_)) = (self.rules.scheme, self.peers.me) {
            self.go(algorithm, &mut progress)?;
        }
        Ok(progress)
    }

    /// # Errors
    /// [`Refused`]: no correct member of this set sends this.
    ///
    /// # Panics
    /// If there is no such child.
    pub fn on_message(&mut self, from: Sender, payload: Rope) -> Result<Progress, Refused> {
        let mut progress = Progress::default();
        match from {
            Sender::Child(child, tag) => self.on_child_frame(child, tag.form, payload, &mut progress)?,
            Sender::Parent(tag) => self.on_parent_frame(tag.form, payload, &mut progress)?,
            Sender::Peer(from, tag) => {
                let step = self.rounds(tag.algorithm)?.on_message(from, tag.round, payload)?;
                self.on_step(step, &mut progress)?;
            }
        }
        Ok(progress)
    }

    /// Whether the whole subtree is known to have contributed.
    pub fn is_gathered(&self) -> bool {
        self.gathered
    }

    /// For an agent that is not in the set: whether the parent's message has been forwarded, or none will arrive.
    pub fn is_passed_on(&self) -> bool {
        matches!(self.rules.scheme, ExchangeScheme::Direct(_)) || matches!(self.route, Route::Done)
    }

    fn add_own(&mut self, given: Bytes, progress: &mut Progress) -> Result<(), Refused> {
        let part = self.tree.own(SubtreePart::Data(given.into()))?;
        self.on_part(part, progress)
    }

    fn on_child_frame(
        &mut self,
        child: usize,
        form: Form,
        payload: Rope,
        progress: &mut Progress,
    ) -> Result<(), Refused> {
        let is_size = match form {
            Form::Data => false,
            Form::Size => true,
            Form::Go(_) => return Err(Refused::ChildDecides),
        };
        let part = self.tree.child(child, SubtreePart::from_payload(is_size, payload)?)?;
        self.on_part(part, progress)?;
        if self.peers.me.is_none() && self.tree.own_missing() {
            return self.add_own(Bytes::new(), progress);
        }
        Ok(())
    }

    /// Handles the contribution of the whole subtree; `None`: the subtree is not complete yet.
    fn on_part(&mut self, part: Option<SubtreePart>, progress: &mut Progress) -> Result<(), Refused> {
        let Some(part) = part else { return Ok(()) };
        self.gathered = true;
        if !self.peers.root {
            let form = if part.is_size() { Form::Size } else { Form::Data };
            progress.sends.push((Receiver::Parent(self.tag(form)), part.into_payload()));
            return Ok(());
        }
        let stays = self.rules.collect_max.is_some_and(|max| part.size() > max);
        match (self.rules.scheme, part) {
            (ExchangeScheme::Direct(_), _) => {}
            // There are more bytes than `collect_max`: peers request the blocks that they need.
            (ExchangeScheme::Auto | ExchangeScheme::Tree, _) if stays => self.broadcast(Rope::default(), progress),
            (ExchangeScheme::Tree, SubtreePart::Size(bytes)) => return Err(Refused::TooLong(bytes)),
            (ExchangeScheme::Tree, SubtreePart::Data(blocks)) => self.broadcast(blocks, progress),
            (ExchangeScheme::Auto, SubtreePart::Data(blocks)) => match choose(self.peers.count, blocks.len() as u64) {
                None => self.broadcast(blocks, progress),
                Some(algorithm) => return self.tell(algorithm, progress),
            },
            (ExchangeScheme::Auto, SubtreePart::Size(bytes)) => {
                return self.tell(direct(self.peers.count, bytes), progress);
            }
        }
        Ok(())
    }

    /// Handles the parent's message: all blocks, or the algorithm to use.
    fn on_parent_frame(&mut self, form: Form, payload: Rope, progress: &mut Progress) -> Result<(), Refused> {
        if !self.gathered || core::mem::replace(&mut self.told, true) {
            return Err(Refused::EarlyOutcome);
        }
        match form {
            Form::Data => self.broadcast(payload, progress),
            Form::Go(algorithm) => self.tell(algorithm, progress)?,
            Form::Size => return Err(Refused::ParentSize),
        }
        Ok(())
    }

    /// Finishes with all blocks and sends them to the children.
    fn broadcast(&mut self, blocks: Rope, progress: &mut Progress) {
        self.send_down(Form::Data, blocks.clone(), progress);
        self.finish(vec![blocks], progress);
    }

    /// Tells the children to exchange the blocks over direct links by `algorithm`, and starts this peer's rounds.
    fn tell(&mut self, algorithm: Algorithm, progress: &mut Progress) -> Result<(), Refused> {
        self.send_down(Form::Go(algorithm), Rope::default(), progress);
        if self.peers.me.is_some() {
            return self.go(algorithm, progress);
        }
        self.route = Route::Done;
        Ok(())
    }

    fn send_down(&self, form: Form, payload: Rope, progress: &mut Progress) {
        if self.peers.children > 0 {
            progress.sends.push((Receiver::Children(self.tag(form)), payload));
        }
    }

    fn tag(&self, form: Form) -> Tag {
        Tag::new(self.collective, form)
    }

    /// Starts the rounds over direct links with this peer's own block.
    fn go(&mut self, algorithm: Algorithm, progress: &mut Progress) -> Result<(), Refused> {
        let own = self.own.take().ok_or(Refused::EarlyGo)?;
        let step = self.rounds(algorithm)?.start(own.into());
        self.on_step(step, progress)
    }

    /// The state machine of this peer's rounds, created when it is first used.
    fn rounds(&mut self, wanted: Algorithm) -> Result<&mut dyn Rounds, Refused> {
        let PeerSet { me, count, .. } = self.peers;
        let me = me.ok_or(Refused::NoRounds)?;
        let wanted = fitting(self.collective, wanted, count)?;
        if let Route::Open = self.route {
            self.route = Route::Direct { algorithm: wanted.algorithm, rounds: (wanted.new)(me, count) };
        }
        match &mut self.route {
            Route::Direct { algorithm, rounds } if *algorithm == wanted.algorithm => Ok(&mut **rounds),
            Route::Direct { .. } => Err(Refused::DifferentWays),
            Route::Open | Route::Done => Err(Refused::AfterTheEnd),
        }
    }

    fn on_step(&mut self, step: Step, progress: &mut Progress) -> Result<(), Refused> {
        let Route::Direct { algorithm, .. } = self.route else { return Ok(()) };
        for message in step.sends {
            if message.payload.len() > FRAME_PAYLOAD_MAX {
                return Err(Refused::TooLong(message.payload.len() as u64));
            }
            let tag = RoundTag { collective: self.collective, algorithm, round: message.round };
            progress.sends.push((Receiver::Peer(message.to, tag), message.payload));
        }
        if let Some(blocks) = step.done {
            self.finish(blocks, progress);
        }
        Ok(())
    }

    fn finish(&mut self, blocks: Vec<Rope>, progress: &mut Progress) {
        self.route = Route::Done;
        progress.done = Some(blocks);
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum SubtreePart {
    Data(Rope),
    /// The number of bytes of the subtree's blocks.
    Size(u64),
}

impl SubtreePart {
    /// Bytes of the subtree's blocks.
    fn size(&self) -> u64 {
        match self {
            SubtreePart::Data(blocks) => blocks.len() as u64,
            SubtreePart::Size(bytes) => *bytes,
        }
    }

    /// Whether this is only a size, as the header of the frame will say.
    fn is_size(&self) -> bool {
        matches!(self, SubtreePart::Size(_))
    }

    /// The payload of a frame: the blocks themselves, or the size as u64 LE.
    fn into_payload(self) -> Rope {
        match self {
            SubtreePart::Data(blocks) => blocks,
            SubtreePart::Size(bytes) => Bytes::copy_from_slice(&bytes.to_le_bytes()).into(),
        }
    }

    /// Reads the payload of a frame whose header says whether it is a size.
    fn from_payload(is_size: bool, payload: Rope) -> Result<Self, Refused> {
        if !is_size {
            return Ok(SubtreePart::Data(payload));
        }
        let bytes = payload.into_bytes();
        let bytes = bytes[..].try_into().map_err(|_| Refused::NoSize(bytes.len()))?;
        Ok(SubtreePart::Size(u64::from_le_bytes(bytes)))
    }
}

/// Gathers blocks up a tree, the first half of every exchange. With a broadcast of all blocks as the second half, this
/// is the sources' baseline (S1 I, fig. 2).
///
/// Each peer waits for its own part and one from each child, and sends the list of them, unchanged, to its parent. A
/// subtree with few bytes sends the blocks themselves ([`SubtreePart::Data`]); above a limit, or if a peer below sent
/// only a size, it sends the number of bytes ([`SubtreePart::Size`]), and the blocks take another route. The root's
/// result covers all peers. No peer parses another peer's bytes. One object serves one epoch.
///
/// Cost per peer: 1 message in per child, 1 out. Up: the bytes of its subtree, or 8. The broadcast down: one message
/// per link with the bytes of all peers.
struct TreeGather {
    eager_max: usize,
    own: bool,
    children: Vec<bool>,
    /// Bytes of all contributions that have arrived.
    size: u64,
    /// All contributions that have arrived; `None`: in total they are too large to be sent up the tree.
    data: Option<Vec<Rope>>,
}

impl TreeGather {
    /// The state of a peer with this many children. A subtree sends its blocks if they have at most `eager_max` bytes
    /// in total, otherwise only their size; `usize::MAX`: always the blocks.
    fn new(children: usize, eager_max: usize) -> Self {
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
    fn own(&mut self, part: SubtreePart) -> Result<Option<SubtreePart>, Refused> {
        if core::mem::replace(&mut self.own, true) {
            return Err(Refused::OwnTwice);
        }
        Ok(self.add(part))
    }

    /// Adds the part of the subtree of child `index`; returns the same as [`TreeGather::own`].
    ///
    /// # Panics
    /// If there is no such child.
    fn child(&mut self, index: usize, part: SubtreePart) -> Result<Option<SubtreePart>, Refused> {
        if core::mem::replace(&mut self.children[index], true) {
            return Err(Refused::ChildTwice(index));
        }
        Ok(self.add(part))
    }

    /// Whether this peer's own part is still missing.
    fn own_missing(&self) -> bool {
        !self.own
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
        if self.own_missing() || self.children.contains(&false) {
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
