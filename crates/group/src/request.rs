//! Numbers of groups and requests, and how a request ends.

use crate::shape::Peer;
use alloc::vec::Vec;

/// Identifies a group.
pub type Context = u64;
/// Identifies an operation that a caller has started.
pub type Request = u64;

/// The group of all ranks.
pub const WORLD: Context = 1;

/// Why a request has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// A rank of the group has exited or cannot be reached.
    Lost { rank: u32 },
    /// Members have started different collectives, or a message came that no correct member sends.
    Malformed,
    /// The group was freed.
    Cancelled,
    /// There is no such group.
    NoGroup,
    /// The group has no such member.
    NoMember,
    /// This rank creates a group of the same name with other members, or with the same members in another order.
    Disagrees { rank: u32 },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Done {
    Nothing,
    Bytes(Vec<u8>),
    Rows(Vec<Vec<u8>>),
    /// A new group; `None`: this process is not in it.
    Group(Option<Context>),
    Peer(Peer),
}

/// The context of a group made from another: a hash, so that contexts of different origin practically never collide
/// (splitmix64).
pub fn derived(of: Context, epoch: u32, first: u32) -> Context {
    let mut mixed = of ^ (u64::from(epoch) << 32 | u64::from(first)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
        mixed = (mixed ^ mixed >> 30).wrapping_mul(factor);
    }
    mixed ^ mixed >> 31
}
