//! What a caller starts in a group: the numbers of groups and requests, and how a request ends.

use crate::shape::Peer;
use alloc::vec::Vec;

/// Identifies a group.
pub type Context = u64;
/// Identifies what a caller has started.
pub type Request = u64;

/// The group of all ranks.
pub const WORLD: Context = 1;

/// Why a request has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// This rank of the group is gone.
    Lost { rank: u32 },
    /// Members have started different collectives, or a message is not one that a correct member sends.
    Malformed,
    /// The group was given up.
    Cancelled,
    /// There is no such group.
    NoGroup,
    /// The group has no such member.
    NoMember,
    /// This rank makes a group of the same name with other members, or with another order of them.
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

/// The context of a group made from another: a mixture in which different origins practically never meet (splitmix64).
pub fn derived(of: Context, epoch: u32, first: u32) -> Context {
    let mut mixed = of ^ (u64::from(epoch) << 32 | u64::from(first)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
        mixed = (mixed ^ mixed >> 30).wrapping_mul(factor);
    }
    mixed ^ mixed >> 31
}
