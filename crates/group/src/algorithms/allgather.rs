//! Brings every member's value to every member (Bruck): after step d a member has the values of the next 2^(d+1)
//! members to the right. Values may differ in length.

use super::{Algorithm, Outcome, Step};
use crate::message::{Malformed, all_rows, push_row};
use crate::shape::{Link, Shape};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

pub struct Allgather {
    power: usize,
    /// The values of this member and of the members to its right, in ring order.
    values: Vec<Vec<u8>>,
    me: u32,
}

impl Allgather {
    pub fn new(value: Vec<u8>) -> Allgather {
        Allgather { power: 0, values: vec![value], me: 0 }
    }

    /// Number of values in the message of a step.
    fn count(power: usize, size: u32) -> usize {
        (1usize << power).min(size as usize - (1 << power))
    }
}

impl Algorithm for Allgather {
    fn next(&mut self, shape: &mut Shape) -> Result<Option<Step>, Malformed> {
        let power = self.power;
        self.me = shape.me;
        if power == shape.powers() {
            return Ok(None);
        }
        self.power += 1;
        let mut payload = Vec::new();
        for value in &self.values[..Self::count(power, shape.size)] {
            push_row(&mut payload, value);
        }
        Ok(Some(Step { sends: vec![(Link::left(power), payload)], receives: vec![Link::right(power)] }))
    }

    fn on_message(&mut self, shape: &mut Shape, from: Link, payload: &[u8]) -> Result<(), Malformed> {
        let values = all_rows(payload)?;
        if values.len() != Self::count(from.power, shape.size) {
            return Err(Malformed);
        }
        self.values.extend(values.into_iter().map(<[u8]>::to_vec));
        Ok(())
    }

    fn outcome(mut self: Box<Self>) -> Outcome {
        self.values.rotate_right(self.me as usize);
        Outcome::Rows(self.values)
    }
}
