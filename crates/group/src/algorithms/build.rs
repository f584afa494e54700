//! Builds a member's binomial graph from its two neighbours (S2).
//!
//! Whoever is 2^d to the right of the member at 2^d to the right is at 2^(d+1). So in step d each member tells both
//! members at distance 2^d whom it knows on the other side.

use super::{Algorithm, Outcome, Step};
use crate::message::{Malformed, decode_peer, encode_peer};
use crate::shape::{Link, Peer, Shape, Side};
use alloc::boxed::Box;

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
