//! The interface of an algorithm over direct links.

use super::Refused;
use alloc::boxed::Box;
use alloc::vec::Vec;
use wireup_wire::block;
use wireup_wire::collective::Algorithm;
use wireup_wire::rope::Rope;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    pub to: u32,
    pub round: u16,
    /// One or more blocks; each block lies within one slice.
    pub payload: Rope,
}

/// What a peer sends after it has started or received a message, and the result once all blocks are there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Step {
    pub sends: Vec<Message>,
    /// The blocks of all peers, one of each, including this peer's; the parts are in any order. Returned once:
    /// afterwards nothing is sent and no message arrives.
    pub done: Option<Vec<Rope>>,
}

/// One peer's part in one allgather among peers `0..n`. Messages may arrive before the start, and in any order of
/// rounds. Each peer contributes exactly one block, an empty one if it has no data, so that contributions can be
/// counted.
pub trait Rounds: Send {
    /// Creates the part of peer `me`, which is one of `0..n`.
    fn new(me: u32, n: u32) -> Self
    where
        Self: Sized;

    /// The number of rounds among `n` peers; messages have round numbers `0..rounds`.
    fn rounds(n: u32) -> u32
    where
        Self: Sized;

    /// The peers to which peer `me` of `0..n` sends, each once, in the order of its rounds.
    fn receivers(me: u32, n: u32) -> Vec<u32>
    where
        Self: Sized;

    /// Starts with this peer's own block.
    ///
    /// # Panics
    /// If called twice.
    fn start(&mut self, own: Rope) -> Step;

    /// Handles the message of peer `from` for `round`. Checks only the number of blocks; whoever reads the result
    /// checks that they are from the right nodes.
    ///
    /// # Errors
    /// [`Refused`]: no correct peer sends this.
    fn on_message(&mut self, from: u32, round: u16, payload: Rope) -> Result<Step, Refused>;

    /// The peers whose messages are missing, each once.
    fn awaited(&self) -> Vec<u32>;
}

/// A line of the table of algorithms.
pub struct Direct {
    /// The algorithm's name as a value of `--exchange`.
    pub name: &'static str,
    pub algorithm: Algorithm,
    pub new: fn(me: u32, n: u32) -> Box<dyn Rounds>,
    pub rounds: fn(n: u32) -> u32,
    pub receivers: fn(me: u32, n: u32) -> Vec<u32>,
}

impl Direct {
    pub(super) const fn of<R: Rounds + 'static>(name: &'static str, algorithm: Algorithm) -> Self {
        let new: fn(u32, u32) -> Box<dyn Rounds> = |me, n| Box::new(R::new(me, n));
        Direct { name, algorithm, new, rounds: R::rounds, receivers: R::receivers }
    }
}

/// Refuses a payload whose number of blocks is not `expected`.
pub fn check_blocks(from: u32, round: u16, payload: &Rope, expected: usize) -> Result<(), Refused> {
    let found = block::count(payload)?;
    if found == expected { Ok(()) } else { Err(Refused::Blocks { from, round, found, expected }) }
}
