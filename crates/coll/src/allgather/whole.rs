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
use super::tree::{SubtreePart, TreeGather};
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
    /// This peer's block, until it goes over direct links.
    own: Option<Bytes>,
    gathered: bool,
    /// Whether the parent has sent the outcome or an algorithm.
    told: bool,
    route: Route,
}

/// How the blocks reach this peer.
enum Route {
    Open,
    /// Direct links. Peers that are ahead may start the rounds before this peer does.
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

    /// Handles the completed subtree, if `part` is its result.
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

    /// Tells the children to exchange over direct links, and starts that here.
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

    /// Starts this peer's rounds.
    fn go(&mut self, algorithm: Algorithm, progress: &mut Progress) -> Result<(), Refused> {
        let own = self.own.take().ok_or(Refused::EarlyGo)?;
        let step = self.rounds(algorithm)?.start(own.into());
        self.on_step(step, progress)
    }

    /// The rounds, created at the first message for them.
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
