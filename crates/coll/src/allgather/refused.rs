//! Errors for messages that no correct peer sends.

use thiserror::Error;
use wireup_wire::block;
use wireup_wire::limits::FRAME_PAYLOAD_MAX;

/// Another peer sent an invalid message, or the data does not fit into a message.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    #[error("peer {from} sent for round {round}, expected one of {rounds} rounds")]
    NoSuchRound { from: u32, round: u16, rounds: u32 },
    #[error("round {round} came from peer {from}, expected from peer {expected}")]
    WrongSender { from: u32, round: u16, expected: u32 },
    #[error("peer {from} sent round {round} a second time, expected once")]
    Twice { from: u32, round: u16 },
    #[error("peer {from} sent {found} blocks in round {round}, expected {expected}")]
    Blocks { from: u32, round: u16, found: usize, expected: usize },
    #[error("the subtree of child {0} contributed a second time, expected once")]
    ChildTwice(usize),
    #[error("this peer contributed a second time, expected once")]
    OwnTwice,
    #[error("a subtree's size came in {0} bytes, expected 8")]
    NoSize(usize),
    #[error("exchange algorithm {0} is none of this version")]
    NoSuchAlgorithm(u8),
    #[error("a child says how to go")]
    ChildDecides,
    #[error("the parent sends a size")]
    ParentSize,
    #[error("its outcome came before its time, or twice")]
    EarlyOutcome,
    #[error("it is to go on before the ranks here are in")]
    EarlyGo,
    #[error("it has no rounds here")]
    NoRounds,
    #[error("nodes go different ways")]
    DifferentWays,
    #[error("a round came after the end")]
    AfterTheEnd,
    #[error("its data is {0} bytes, more than {FRAME_PAYLOAD_MAX} in a message")]
    TooLong(u64),
    #[error(transparent)]
    Truncated(#[from] block::Truncated),
}
