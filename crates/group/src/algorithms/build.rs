//! Builds a member's binomial graph from its two neighbours (S2).
//!
//! Whoever is 2^d to the right of the member at 2^d to the right is at 2^(d+1). So in step d each member tells both
//! members at distance 2^d whom it knows on the other side.

use super::{Algorithm, Outcome, Step};
use crate::message::Malformed;
use crate::rows;
use crate::shape::{Link, Peer, Shape, Side};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

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
        let sends = vec![(left, encode(shape.peer(right))), (right, encode(shape.peer(left)))];
        Ok(Some(Step { sends, receives: vec![left, right] }))
    }

    fn on_message(&mut self, shape: &mut Shape, from: Link, payload: &[u8]) -> Result<(), Malformed> {
        let peer = decode(payload)?;
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

pub fn push_peer(out: &mut Vec<u8>, peer: &Peer) {
    out.extend_from_slice(&peer.rank.to_le_bytes());
    rows::push(out, &peer.address);
}

pub fn take_peer(bytes: &mut &[u8]) -> Result<Peer, Malformed> {
    Ok(Peer { rank: rows::number(bytes)?, address: rows::take_row(bytes)?.to_vec() })
}

fn encode(peer: &Peer) -> Vec<u8> {
    let mut out = Vec::new();
    push_peer(&mut out, peer);
    out
}

fn decode(mut payload: &[u8]) -> Result<Peer, Malformed> {
    let peer = take_peer(&mut payload)?;
    if payload.is_empty() { Ok(peer) } else { Err(Malformed) }
}
