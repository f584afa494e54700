//! Sends a value to the right neighbour in the ring; the outcome is the left neighbour's value.

use super::{Algorithm, Outcome, Step};
use crate::message::Malformed;
use crate::shape::{Link, Shape};
use alloc::boxed::Box;
use alloc::vec::Vec;

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
