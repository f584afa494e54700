//! Waits until every member has entered: in step d a member sends to the right at distance 2^d and waits for the left
//! (dissemination).

use super::{Algorithm, Outcome, Step};
use crate::message::Malformed;
use crate::shape::{Link, Shape};
use alloc::boxed::Box;
use alloc::vec::Vec;

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
