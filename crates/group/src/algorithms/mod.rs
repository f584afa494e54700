//! The algorithms that a group can run. Each says, step by step, which messages it sends and which it waits for.
//!
//! ```text
//!                 steps              messages out of a member      bytes out of a member
//! barrier         log P              log P                         none
//! scan            log P              2 log P                       2 vectors each step
//! reduce          log P              1                             1 vector
//! broadcast       log P              log P at most                 its bytes each time
//! allgather       log P              log P                         all other members' values once
//! alltoall        log P              log P                         P/2 rows each step
//! shift           1                  1                             1 value
//! sort            log² P             log² P                        1 record each step
//! split           3 log² P           3 log² P                      1 record each step
//! build           log P              2 log P                       2 addresses each step
//! ```

mod basic;
mod bruck;
mod reduce;
mod split;

pub use basic::{Barrier, Broadcast, Build, Shift};
pub use bruck::{Allgather, Alltoall};
pub use reduce::{Allreduce, Prefix};
pub use split::{Split, Wanted};

use crate::message::Malformed;
use crate::shape::{Link, Peer, Shape};
use alloc::boxed::Box;
use alloc::vec::Vec;

#[derive(Default, Debug)]
pub struct Step {
    pub sends: Vec<(Link, Vec<u8>)>,
    /// The links on which a message must arrive before the next step.
    pub receives: Vec<Link>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Nothing,
    Bytes(Vec<u8>),
    /// One byte string for each member, in the order of their places.
    Rows(Vec<Vec<u8>>),
    /// This member's place in a new group; `None`: it is in no new group.
    Place(Option<NewPlace>),
}

/// A member's place in a new group whose graph is not built yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPlace {
    pub me: u32,
    pub size: u32,
    pub left: Peer,
    pub right: Peer,
    /// The place in the old group of the new group's first member.
    pub first: u32,
    /// Whether the new group's members are consecutive ranks of the job, in ascending order.
    pub is_consecutive: bool,
}

/// One member's part in one collective.
pub trait Algorithm: Send {
    /// The next step; `None`: complete. Called again when all messages of the step have been handed over.
    ///
    /// # Errors
    /// The messages of the earlier steps contradict each other.
    fn next(&mut self, shape: &mut Shape) -> Result<Option<Step>, Malformed>;

    /// Handles a message of the current step. Messages come in the order of [`Step::receives`].
    ///
    /// # Errors
    /// The message is not one that a correct member sends.
    fn on_message(&mut self, shape: &mut Shape, from: Link, payload: &[u8]) -> Result<(), Malformed>;

    /// Called once, after the last step.
    fn outcome(self: Box<Self>) -> Outcome;
}
