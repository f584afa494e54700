//! Brings one member's bytes to all, down a binomial tree. A member receives from the left at the largest distance that
//! divides its place, counted from the root, and then sends to the right at all smaller distances.

use super::{Algorithm, Outcome, Step};
use crate::message::Malformed;
use crate::shape::{Link, Shape};
use alloc::boxed::Box;
use alloc::vec::Vec;

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
