//! The short algorithms: barrier, shift, broadcast, and the building of the graph.

use super::{Algorithm, Outcome, Step};
use crate::message::{Malformed, decode_peer, encode_peer};
use crate::shape::{Link, Peer, Shape, Side};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Waits until every member has entered: in step d a member sends to the right at distance 2^d and waits for the left
/// (dissemination).
#[derive(Default)]
pub struct Barrier {
    power: usize,
}

impl Algorithm for Barrier {
    fn next(&mut self, shape: &mut Shape) -> Result<Option<Step>, Malformed> {
        let power = self.power;
        self.power += 1;
        let is_open = power < shape.powers();
        Ok(is_open.then(|| Step { sends: vec![(Link::right(power), Vec::new())], receives: vec![Link::left(power)] }))
    }

    fn on_message(&mut self, _: &mut Shape, _: Link, payload: &[u8]) -> Result<(), Malformed> {
        if payload.is_empty() { Ok(()) } else { Err(Malformed) }
    }

    fn outcome(self: Box<Self>) -> Outcome {
        Outcome::Nothing
    }
}

/// Sends a value to the right neighbour in the ring; the outcome is the left neighbour's value.
pub struct Shift {
    value: Vec<u8>,
    is_sent: bool,
}

impl Shift {
    pub fn new(value: Vec<u8>) -> Shift {
        Shift { value, is_sent: false }
    }
}

impl Algorithm for Shift {
    fn next(&mut self, shape: &mut Shape) -> Result<Option<Step>, Malformed> {
        let is_first = !core::mem::replace(&mut self.is_sent, true) && shape.size > 1;
        Ok(is_first.then(|| Step {
            sends: vec![(Link::right(0), core::mem::take(&mut self.value))],
            receives: vec![Link::left(0)],
        }))
    }

    fn on_message(&mut self, _: &mut Shape, _: Link, payload: &[u8]) -> Result<(), Malformed> {
        self.value = payload.to_vec();
        Ok(())
    }

    fn outcome(self: Box<Self>) -> Outcome {
        Outcome::Bytes(self.value)
    }
}

/// Brings one member's bytes to all, down a binomial tree. A member receives from the left at the largest distance that
/// divides its place, counted from the root, and then sends to the right at all smaller distances.
pub struct Broadcast {
    root: u32,
    bytes: Vec<u8>,
    /// The power of two of the next send; `None`: the broadcast has not begun.
    power: Option<usize>,
}

impl Broadcast {
    /// `bytes` is used only on the root; other members' bytes are ignored.
    pub fn new(root: u32, bytes: Vec<u8>) -> Broadcast {
        Broadcast { root, bytes, power: None }
    }
}

impl Algorithm for Broadcast {
    fn next(&mut self, shape: &mut Shape) -> Result<Option<Step>, Malformed> {
        let size = u64::from(shape.size);
        let place = (u64::from(shape.me) + size - u64::from(self.root)) % size;
        let above = match self.power {
            Some(power) => power,
            // The root's place is 0, in which no bit is set: it receives nothing and sends at all distances.
            None if place == 0 => shape.powers(),
            None => {
                let power = place.trailing_zeros() as usize;
                self.power = Some(power);
                return Ok(Some(Step { sends: Vec::new(), receives: vec![Link::left(power)] }));
            }
        };
        // All sends are in one step, because no message is awaited between them.
        self.power = Some(0);
        let powers = (0..above).rev().filter(|power| place + (1u64 << power) < size);
        let sends: Vec<_> = powers.map(|power| (Link::right(power), self.bytes.clone())).collect();
        Ok((!sends.is_empty()).then_some(Step { sends, receives: Vec::new() }))
    }

    fn on_message(&mut self, _: &mut Shape, _: Link, payload: &[u8]) -> Result<(), Malformed> {
        self.bytes = payload.to_vec();
        Ok(())
    }

    fn outcome(self: Box<Self>) -> Outcome {
        Outcome::Bytes(self.bytes)
    }
}

/// Builds a member's binomial graph from its two neighbours (S2).
///
/// Whoever is 2^d to the right of the member at 2^d to the right is at 2^(d+1). So in step d each member tells both
/// members at distance 2^d whom it knows on the other side.
#[derive(Default)]
pub struct Build {
    power: usize,
    from_left: Option<Peer>,
}

impl Algorithm for Build {
    fn next(&mut self, shape: &mut Shape) -> Result<Option<Step>, Malformed> {
        let power = self.power;
        if power + 1 >= shape.powers() {
            return Ok(None);
        }
        self.power += 1;
        let (left, right) = (Link::left(power), Link::right(power));
        let sends = vec![(left, encode_peer(shape.peer(right))), (right, encode_peer(shape.peer(left)))];
        Ok(Some(Step { sends, receives: vec![left, right] }))
    }

    fn on_message(&mut self, shape: &mut Shape, from: Link, payload: &[u8]) -> Result<(), Malformed> {
        let peer = decode_peer(payload)?;
        match (from.side, self.from_left.take()) {
            (Side::Left, _) => self.from_left = Some(peer),
            (Side::Right, Some(left)) => shape.extend(left, peer),
            (Side::Right, None) => return Err(Malformed),
        }
        Ok(())
    }

    fn outcome(self: Box<Self>) -> Outcome {
        Outcome::Nothing
    }
}
