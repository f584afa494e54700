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
    #[error("a subtree's size has {0} bytes, expected 8")]
    NoSize(usize),
    #[error("this version has no exchange algorithm {0}")]
    NoSuchAlgorithm(u8),
    #[error("a child sent a choice of algorithm, which only the parent may send")]
    ChildDecides,
    #[error("the parent sent a size, which only a child may send")]
    ParentSize,
    #[error("its result arrived too early, or twice")]
    EarlyOutcome,
    #[error("it should continue before all ranks of this node have entered")]
    EarlyGo,
    #[error("it has no rounds here")]
    NoRounds,
    #[error("nodes use different exchange algorithms")]
    DifferentWays,
    #[error("a round arrived after the end")]
    AfterTheEnd,
    #[error("its data is {0} bytes, a message holds at most {FRAME_PAYLOAD_MAX}")]
    TooLong(u64),
    #[error(transparent)]
    Truncated(#[from] block::Truncated),
}
