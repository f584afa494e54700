//! Passes every block around a ring: each peer sends its own block to the right, then forwards what arrives from the
//! left.
//!
//! ```text
//! round     0        1        2          4 peers; peer 0 sends to peer 1, which forwards to peer 2
//! 0 -> 1    block 0  block 3  block 2
//! 1 -> 2    block 1  block 0  block 3
//! ```
//!
//! A message is forwarded as soon as it arrives, whether or not this peer has started and whichever rounds are missing:
//! forwarding waits for nothing but the block itself. Only the result waits for all blocks.
//!
//! Cost per peer: `n - 1` messages in and out; in: every other peer's block once, out: every block but the right
//! neighbour's once. No bytes are copied. Latency: `n - 1` hops.

use alloc::vec;
use alloc::vec::Vec;
use wireup_wire::rope::Rope;

use super::rounds::check_blocks;
use super::{Message, Refused, Rounds, Step};

/// One peer's part in one ring allgather.
pub struct Ring {
    me: u32,
    n: u32,
    started: bool,
    /// Whether the message of each round has arrived.
    seen: Vec<bool>,
    parts: Vec<Rope>,
}

impl Rounds for Ring {
    fn new(me: u32, n: u32) -> Self {
        let rounds = Self::rounds(n);
        assert!(rounds <= 1 << 16, "a ring has at most 65,536 rounds: they are numbered by a u16");
        Ring { me, n, started: false, seen: vec![false; rounds as usize], parts: Vec::with_capacity(n as usize) }
    }

    fn rounds(n: u32) -> u32 {
        n - 1
    }

    fn receivers(me: u32, n: u32) -> Vec<u32> {
        if n > 1 { vec![(me + 1) % n] } else { Vec::new() }
    }

    fn start(&mut self, own: Rope) -> Step {
        assert!(!self.started, "an exchange must be started only once");
        self.started = true;
        self.add(own, 0)
    }

    fn on_message(&mut self, from: u32, round: u16, payload: Rope) -> Result<Step, Refused> {
        let Some(&seen) = self.seen.get(usize::from(round)) else {
            return Err(Refused::NoSuchRound { from, round, rounds: self.n - 1 });
        };
        let expected = self.left();
        if from != expected {
            return Err(Refused::WrongSender { from, round, expected });
        }
        if seen {
            return Err(Refused::Twice { from, round });
        }
        check_blocks(from, round, &payload, 1)?;
        self.seen[usize::from(round)] = true;
        Ok(self.add(payload, u32::from(round) + 1))
    }

    fn awaited(&self) -> Vec<u32> {
        if self.seen.iter().all(|&seen| seen) { Vec::new() } else { vec![self.left()] }
    }
}

impl Ring {
    /// Adds a block to the result and sends it to the right neighbour in `round`, if that round exists.
    fn add(&mut self, block: Rope, round: u32) -> Step {
        let mut step = Step::default();
        if round < self.n - 1 {
            let to = (self.me + 1) % self.n;
            // `Ring::new` has limited the number of rounds, so that each of them fits into 16 bits.
            step.sends.push(Message { to, round: round as u16, payload: block.clone() });
        }
        self.parts.push(block);
        if self.parts.len() == self.n as usize {
            step.done = Some(core::mem::take(&mut self.parts));
        }
        step
    }

    fn left(&self) -> u32 {
        (self.me + self.n - 1) % self.n
    }
}
