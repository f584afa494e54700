//! One allgather of a peer set as a whole: up the tree, the choice at its root, the way that the blocks take.
//!
//! ```text
//!   own block ──► gather up the tree ──► at the root:
//!      │             data or size          │
//!      │ scheme of                         │ tree: all blocks
//!      │ direct links                      ▼
//!      │                  "go ring", …  way down
//!      ▼        ◄───────────────────────── │
//!   rounds among peers 0..n                │
//!      └──────────► all blocks ◄───────────┘
//! ```
//!
//! The tree may hold peers that are not in the set: they pass on what goes up and down, and have nothing of their own. Sizes go up
//! also where the blocks go straight, so that the root knows who waits.
//!
//! Cost of the tree: a message up and one down for each link, every byte once into each peer. Of a direct way: its algorithm's
//! messages, one up with 8 bytes for each link of the tree, and, where the root chose it, one down without payload. Source: S1 V;
//! the choice at the root is ours.

use super::choice::{choose, direct};
use super::tree::{Part, TreeGather};
use super::{PeerSet, Progress, Receiver, Refused, Rounds, Rules, Sender, Step, fitting};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use wireup_wire::block;
use wireup_wire::collective::{Algorithm, Collective, ExchangeScheme, Form, RoundTag, Tag};
use wireup_wire::limits::{EAGER_BYTES_MAX, FRAME_PAYLOAD_MAX};
use wireup_wire::rope::Rope;

/// One peer's part in one allgather. Messages may come before [`Allgather::start`].
pub struct Allgather {
    collective: Collective,
    peers: PeerSet,
    rules: Rules,
    tree: TreeGather,
    /// This peer's block, until it goes over direct links.
    own: Option<Bytes>,
    gathered: bool,
    /// The parent has said what comes of it.
    told: bool,
    route: Route,
}

/// How the blocks reach this peer.
enum Route {
    Open,
    /// Peers that are ahead may begin before this one does.
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

    /// This peer's own block, with its header also where it has no bytes. One that is not in the set has nothing to give, and need
    /// not start.
    ///
    /// # Errors
    /// [`Refused`]: it has started, or there is too much.
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
    /// [`Refused`]: nobody of this set sends that.
    ///
    /// # Panics
    /// If there is no such child.
    pub fn on_message(&mut self, from: Sender, payload: Rope) -> Result<Progress, Refused> {
        let mut progress = Progress::default();
        match from {
            Sender::Child(child, tag) => self.on_up(child, tag.form, payload, &mut progress)?,
            Sender::Parent(tag) => self.on_down(tag.form, payload, &mut progress)?,
            Sender::Peer(from, tag) => {
                let step = self.rounds(tag.algorithm)?.on_message(from, tag.round, payload)?;
                self.on_step(step, &mut progress)?;
            }
        }
        Ok(progress)
    }

    /// Whether all of the subtree are known to have given what they have.
    pub fn is_gathered(&self) -> bool {
        self.gathered
    }

    /// Of one that is not in the set: what came down has gone on, or nothing comes down.
    pub fn is_passed_on(&self) -> bool {
        matches!(self.rules.scheme, ExchangeScheme::Direct(_)) || matches!(self.route, Route::Done)
    }

    fn add_own(&mut self, given: Bytes, progress: &mut Progress) -> Result<(), Refused> {
        let part = self.tree.own(Part::Data(given.into()))?;
        self.on_part(part, progress)
    }

    fn on_up(&mut self, child: usize, form: Form, payload: Rope, progress: &mut Progress) -> Result<(), Refused> {
        let is_size = match form {
            Form::Data => false,
            Form::Size => true,
            Form::Go(_) => return Err(Refused::ChildDecides),
        };
        let part = self.tree.child(child, Part::from_payload(is_size, payload)?)?;
        self.on_part(part, progress)?;
        if self.peers.me.is_none() && self.tree.own_missing() {
            return self.add_own(Bytes::new(), progress);
        }
        Ok(())
    }

    /// The subtree is complete, if `part` says so.
    fn on_part(&mut self, part: Option<Part>, progress: &mut Progress) -> Result<(), Refused> {
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
            // Whoever wants some of it asks for that.
            (ExchangeScheme::Auto | ExchangeScheme::Tree, _) if stays => self.broadcast(Rope::default(), progress),
            (ExchangeScheme::Tree, Part::Size(bytes)) => return Err(Refused::TooLong(bytes)),
            (ExchangeScheme::Tree, Part::Data(blocks)) => self.broadcast(blocks, progress),
            (ExchangeScheme::Auto, Part::Data(blocks)) => match choose(self.peers.count, blocks.len() as u64) {
                None => self.broadcast(blocks, progress),
                Some(algorithm) => return self.tell(algorithm, progress),
            },
            (ExchangeScheme::Auto, Part::Size(bytes)) => {
                return self.tell(direct(self.peers.count, bytes), progress);
            }
        }
        Ok(())
    }

    /// All blocks, or how they come, from above.
    fn on_down(&mut self, form: Form, payload: Rope, progress: &mut Progress) -> Result<(), Refused> {
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

    /// All blocks are here, and for those below.
    fn broadcast(&mut self, blocks: Rope, progress: &mut Progress) {
        self.send_down(Form::Data, blocks.clone(), progress);
        self.finish(vec![blocks], progress);
    }

    /// The blocks go straight, here and below.
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

    /// Begins this peer's rounds.
    fn go(&mut self, algorithm: Algorithm, progress: &mut Progress) -> Result<(), Refused> {
        let own = self.own.take().ok_or(Refused::EarlyGo)?;
        let step = self.rounds(algorithm)?.start(own.into());
        self.on_step(step, progress)
    }

    /// The rounds, made with the first that is heard of them.
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
