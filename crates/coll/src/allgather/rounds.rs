//! What an algorithm over direct links is to those who use it.

use super::{DIRECT, Refused};
use alloc::boxed::Box;
use alloc::vec::Vec;
use wireup_wire::block;
use wireup_wire::collective::{Algorithm, Collective, RoundTag};
use wireup_wire::rope::Rope;

/// A message to another peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    pub to: u32,
    pub round: u16,
    /// One or more blocks, each whole in one slice.
    pub payload: Rope,
}

/// What a start or a message leads to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Step {
    pub sends: Vec<Message>,
    /// The blocks of all peers, one of each, the own included; the parts in any order. Given once: nothing is sent after it, and
    /// no message comes.
    pub done: Option<Vec<Rope>>,
}

/// One peer's part in one allgather among peers `0..n`. Messages may come before the start, and a round's before those of the
/// rounds ahead of it. Each peer contributes exactly one block: one of no bytes where it has nothing, so that contributions can be
/// counted.
pub trait Rounds: Send {
    /// The part of peer `me`, which is one of `0..n`.
    fn new(me: u32, n: u32) -> Self
    where
        Self: Sized;

    /// How many rounds it has among `n` peers: messages have numbers below that.
    fn rounds(n: u32) -> u32
    where
        Self: Sized;

    /// The peers that peer `me` of `0..n` sends to, each once, in the order of its rounds.
    fn receivers(me: u32, n: u32) -> Vec<u32>
    where
        Self: Sized;

    /// This peer's own block.
    ///
    /// # Panics
    /// If called twice.
    fn start(&mut self, own: Rope) -> Step;

    /// The message of peer `from` for `round`. Whose blocks they are is for the reader of all of them to check; their number is
    /// checked here.
    ///
    /// # Errors
    /// [`Refused`]: no peer sends that.
    fn on_message(&mut self, from: u32, round: u16, payload: Rope) -> Result<Step, Refused>;

    /// The peers whose messages are missing, each once: whom this peer waits for.
    fn awaited(&self) -> Vec<u32>;
}

/// A line of the table [`DIRECT`].
pub struct Direct {
    /// What `--exchange` calls it.
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

/// The line of an algorithm.
///
/// # Errors
/// [`Refused::NoSuchAlgorithm`]: there is none, in this version.
pub fn find(algorithm: Algorithm) -> Result<&'static Direct, Refused> {
    let found = DIRECT.iter().find(|direct| direct.algorithm == algorithm);
    found.ok_or(Refused::NoSuchAlgorithm(algorithm.number()))
}

/// The algorithm that `n` peers use where `wanted` is asked for: Bruck's, if the rounds of that are more than frames can number.
///
/// # Errors
/// As [`find`].
pub fn fitting(collective: Collective, wanted: Algorithm, n: u32) -> Result<&'static Direct, Refused> {
    let direct = find(wanted)?;
    if (direct.rounds)(n) < RoundTag::rounds_max(collective, wanted) { Ok(direct) } else { find(Algorithm::BRUCK) }
}

/// Refuses a payload of another number of blocks than `expected`.
pub fn check_blocks(from: u32, round: u16, payload: &Rope, expected: usize) -> Result<(), Refused> {
    let found = block::count(payload)?;
    if found == expected { Ok(()) } else { Err(Refused::Blocks { from, round, found, expected }) }
}
