//! Doubles the number of blocks that each peer holds in every round, for any number of peers (Bruck's allgather).
//!
//! ```text
//! round i: send the first min(2^i, n - 2^i) blocks held to peer me - 2^i,
//!          receive the same number from peer me + 2^i                     (all modulo n)
//!
//! n = 5, me = 0     holds 0 | 1 | 2 3 | 4       after rounds 0, 1 and 2; `|` marks the end of a message
//! ```
//!
//! Before round i a peer holds the blocks of peers `me .. me + 2^i`, in that order. It keeps them as they arrived: its
//! own block first, then one part per round. A round sends a list of these parts; the last round sends only their first
//! blocks, found by a walk over the block headers. A message for a later round than the one awaited is kept.
//!
//! Cost per peer: `ceil(log2 n)` messages in and out; in: every other peer's block once; out: `n - 1` blocks. No bytes
//! are copied. Latency: `ceil(log2 n)` hops.

use alloc::vec;
use alloc::vec::Vec;
use wireup_wire::block;
use wireup_wire::rope::Rope;

use super::rounds::check_blocks;
use super::{Message, Refused, Rounds, Step};

/// One peer's part in one Bruck allgather.
pub struct Bruck {
    me: u32,
    n: u32,
    /// Blocks held: this peer's own block, then the messages of rounds `0..joined`. Empty before the start and after
    /// the end of the allgather.
    parts: Vec<Rope>,
    started: bool,
    /// Number of rounds whose message is in `parts`.
    joined: usize,
    /// Messages, by round, that arrived before the message of an earlier round.
    kept: Vec<Option<Rope>>,
}

impl Rounds for Bruck {
    fn new(me: u32, n: u32) -> Self {
        let kept = vec![None; Self::rounds(n) as usize];
        Bruck { me, n, parts: Vec::with_capacity(kept.len() + 1), started: false, joined: 0, kept }
    }

    fn rounds(n: u32) -> u32 {
        u32::BITS - (n - 1).leading_zeros()
    }

    fn receivers(me: u32, n: u32) -> Vec<u32> {
        (0..Self::rounds(n)).map(|round| (me + n - (1 << round)) % n).collect()
    }

    fn start(&mut self, own: Rope) -> Step {
        assert!(!self.started, "an exchange must be started only once");
        self.started = true;
        let mut step = Step::default();
        self.add(own, &mut step);
        self.advance(&mut step);
        step
    }

    fn on_message(&mut self, from: u32, round: u16, payload: Rope) -> Result<Step, Refused> {
        let index = usize::from(round);
        let Some(kept) = self.kept.get(index) else {
            return Err(Refused::NoSuchRound { from, round, rounds: self.kept.len() as u32 });
        };
        let expected = self.source(index);
        if from != expected {
            return Err(Refused::WrongSender { from, round, expected });
        }
        if index < self.joined || kept.is_some() {
            return Err(Refused::Twice { from, round });
        }
        check_blocks(from, round, &payload, self.blocks_in(index))?;
        self.kept[index] = Some(payload);
        let mut step = Step::default();
        if self.started {
            self.advance(&mut step);
        }
        Ok(step)
    }

    fn awaited(&self) -> Vec<u32> {
        let missing = (self.joined..self.kept.len()).filter(|&round| self.kept[round].is_none());
        missing.map(|round| self.source(round)).collect()
    }
}

impl Bruck {
    /// Appends the parts that have arrived, round by round, until one is missing or all are there.
    fn advance(&mut self, step: &mut Step) {
        while let Some(part) = self.kept.get_mut(self.joined).and_then(Option::take) {
            self.joined += 1;
            self.add(part, step);
        }
        if self.joined == self.kept.len() {
            step.done = Some(core::mem::take(&mut self.parts));
        }
    }

    /// Appends one part and, if there is a next round, sends its message.
    fn add(&mut self, part: Rope, step: &mut Step) {
        self.parts.push(part);
        let round = self.joined;
        if round < self.kept.len() {
            let to = (self.me + self.n - self.distance(round)) % self.n;
            step.sends.push(Message { to, round: round as u16, payload: self.first(self.blocks_in(round)) });
        }
    }

    /// The first `blocks` blocks of those that this peer holds.
    fn first(&self, mut blocks: usize) -> Rope {
        let mut first = Vec::with_capacity(self.parts.len());
        for (index, part) in self.parts.iter().enumerate() {
            let holds = if index == 0 { 1 } else { self.blocks_in(index - 1) };
            if blocks < holds {
                first.push(block::first(part, blocks).expect("the blocks of a part were counted when it arrived"));
                break;
            }
            first.push(part.clone());
            blocks -= holds;
        }
        Rope::join(first)
    }

    fn blocks_in(&self, round: usize) -> usize {
        let distance = self.distance(round);
        distance.min(self.n - distance) as usize
    }

    /// The peer that sends the message of `round`.
    fn source(&self, round: usize) -> u32 {
        (self.me + self.distance(round)) % self.n
    }

    /// The distance in the ring between sender and receiver in `round`; less than `n` for every round that exists.
    fn distance(&self, round: usize) -> u32 {
        1 << round
    }
}
