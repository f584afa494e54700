//! Combines the values of all members; every member gets the same bits.
//!
//! Where rounding cannot make the order matter: the values to the left, the own value and the values to the right, from
//! one scan in both directions (S2), `log P` steps. Sums of floating-point numbers depend on the bracketing, so they
//! are formed towards member 0 along a binomial tree and then broadcast, `2 log P` steps.

use super::scan::Scan;
use super::{Algorithm, Broadcast, Outcome, Step};
use crate::message::Malformed;
use crate::reduce::Reduce;
use crate::shape::{Link, Shape};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

pub enum Allreduce {
    Both { reduce: Reduce, scan: Scan<Reduce> },
    Up { reduce: Reduce, value: Vec<u8>, power: usize },
    Down(Broadcast),
}

impl Allreduce {
    pub fn new(reduce: Reduce, value: Vec<u8>) -> Allreduce {
        if reduce.is_exact() {
            Allreduce::Both { reduce, scan: Scan::new(reduce, value) }
        } else {
            Allreduce::Up { reduce, value, power: 0 }
        }
    }
}

impl Algorithm for Allreduce {
    fn next(&mut self, shape: &mut Shape) -> Result<Option<Step>, Malformed> {
        match self {
            Allreduce::Both { scan, .. } => Ok(scan.next(shape)),
            Allreduce::Up { value, power, .. } => {
                while *power < shape.powers() {
                    let link = *power;
                    *power += 1;
                    if shape.me & 1 << link != 0 {
                        *power = shape.powers();
                        return Ok(Some(Step { sends: vec![(Link::left(link), value.clone())], receives: Vec::new() }));
                    }
                    if shape.is_inside(Link::right(link)) {
                        return Ok(Some(Step { sends: Vec::new(), receives: vec![Link::right(link)] }));
                    }
                }
                *self = Allreduce::Down(Broadcast::new(0, core::mem::take(value)));
                self.next(shape)
            }
            Allreduce::Down(broadcast) => broadcast.next(shape),
        }
    }

    fn on_message(&mut self, shape: &mut Shape, from: Link, payload: &[u8]) -> Result<(), Malformed> {
        match self {
            Allreduce::Both { scan, .. } => scan.on_message(from, payload),
            Allreduce::Up { reduce, value, .. } => {
                *value = reduce.combine(value, payload)?;
                Ok(())
            }
            Allreduce::Down(broadcast) => broadcast.on_message(shape, from, payload),
        }
    }

    fn outcome(self: Box<Self>) -> Outcome {
        match *self {
            Allreduce::Both { reduce, scan: Scan { up_to, after, .. } } => {
                let all = after.map(|after| reduce.combine(&up_to, &after));
                // Both vectors have the length of this member's own value, because a message of another length was
                // refused.
                Outcome::Bytes(all.and_then(Result::ok).unwrap_or(up_to))
            }
            Allreduce::Up { value, .. } => Outcome::Bytes(value),
            Allreduce::Down(broadcast) => Box::new(broadcast).outcome(),
        }
    }
}
