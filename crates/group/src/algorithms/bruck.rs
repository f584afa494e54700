//! Allgather and alltoall in `log P` steps (Bruck).

use super::{Algorithm, Outcome, Step};
use crate::message::{Malformed, all_rows, push_row};
use crate::shape::{Link, Shape};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Brings every member's value to every member: after step d a member has the values of the next 2^(d+1) members to the
/// right. Values may differ in length.
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

/// Every member has a row for every member (Bruck's index algorithm, which S2 proposes for connecting all to all).
///
/// A member numbers its rows by the distance to their receivers. In step d, every row whose number has bit d moves 2^d
/// to the right. A row of number i so moves i in all, in at most `log P` messages for all rows together.
pub struct Alltoall {
    power: usize,
    /// One row per member: by the receiver's place before the first step, and by the distance to the receiver after it.
    rows: Vec<Vec<u8>>,
    me: u32,
}

impl Alltoall {
    /// `rows`: one row for each receiving member, in the order of their places.
    pub fn new(rows: Vec<Vec<u8>>) -> Alltoall {
        Alltoall { power: 0, rows, me: 0 }
    }
}

impl Algorithm for Alltoall {
    fn next(&mut self, shape: &mut Shape) -> Result<Option<Step>, Malformed> {
        let power = self.power;
        if power == 0 {
            self.me = shape.me;
            self.rows.rotate_left(shape.me as usize);
        }
        if power == shape.powers() {
            return Ok(None);
        }
        self.power += 1;
        let mut payload = Vec::new();
        for (_, row) in self.rows.iter().enumerate().filter(|(distance, _)| distance & 1 << power != 0) {
            push_row(&mut payload, row);
        }
        Ok(Some(Step { sends: vec![(Link::right(power), payload)], receives: vec![Link::left(power)] }))
    }

    fn on_message(&mut self, _: &mut Shape, from: Link, payload: &[u8]) -> Result<(), Malformed> {
        let mut arrived = all_rows(payload)?.into_iter();
        for (_, row) in self.rows.iter_mut().enumerate().filter(|(distance, _)| distance & 1 << from.power != 0) {
            *row = arrived.next().ok_or(Malformed)?.to_vec();
        }
        if arrived.next().is_none() { Ok(()) } else { Err(Malformed) }
    }

    fn outcome(mut self: Box<Self>) -> Outcome {
        // Row i has now come from the member at distance i to the left.
        self.rows.reverse();
        let turn = (self.me as usize + 1) % self.rows.len();
        self.rows.rotate_right(turn);
        Outcome::Rows(self.rows)
    }
}
