//! Operations that are started in a group, and their results.

use crate::network::Key;
use alloc::boxed::Box;
use alloc::vec::Vec;
use wireup_capi::job::Values;
use wireup_capi::server::Gather;
use wireup_client::requests::Id;
use wireup_group::algorithms::Wanted;
use wireup_group::reduce::Reduce;
use wireup_wire::shared::rows::Rows;

/// A collective. Every member of a group must start the same ones in the same order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Waits until all members have started it.
    Barrier,
    /// `bytes` is broadcast on the root; on other members, it has the same length and is ignored.
    Broadcast { root: u32, bytes: Vec<u8> },
    /// `len_max`: maximum length of any member's bytes. `in_memory`: the result is wanted as a [`View`].
    Allgather { bytes: Vec<u8>, len_max: usize, in_memory: bool },
    /// Combines the numbers of all members.
    Allreduce { reduce: Reduce, bytes: Vec<u8> },
    /// Combines the numbers of the members up to this one, or before it if the prefix `is_exclusive`.
    Prefix { reduce: Reduce, bytes: Vec<u8>, is_exclusive: bool },
    /// One row for each member, in the order of their places.
    Alltoall(Vec<Vec<u8>>),
    /// Sends bytes to the right neighbour; the result is the bytes of the left neighbour.
    Shift(Vec<u8>),
}

/// What to do with the values that the server has gathered.
#[derive(Debug)]
pub enum Then {
    /// Compute the result of an operation.
    Finish(Operation),
    /// Make the groups of a split. `of`: the context from which their contexts are derived, and the number of this
    /// split.
    Divide { wanted: Wanted, of: (wireup_group::Context, u32) },
}

/// An operation that was started. Its result can be taken once.
#[derive(Debug)]
pub enum Request {
    /// An exchange of values of the whole job, by its server.
    Server { id: Id, then: Box<Then> },
    /// An operation in the network of ranks.
    Peers(wireup_group::Request),
    /// An exchange of values among the members of a group, by the agents. `place`: this rank's place, and the group's
    /// size.
    Gather { id: u32, context: wireup_group::Context, place: (u32, u32), then: Box<Then> },
    /// A request for a rank's address.
    Address(u32),
    /// A connection for the program's own use.
    Connection(Key),
}

/// The result of an allgather, read in place: if the agents have exchanged it, it is in memory that the ranks of a node
/// share.
pub enum View {
    /// Values of the whole job.
    Job(Values),
    Group(Gather),
    /// This process's own copy of values that ranks or another server have exchanged.
    Own(Vec<u8>),
}

impl View {
    /// All rows, concatenated; `None`: the members' values differ in length.
    pub fn rows(&self) -> Option<&[u8]> {
        let array: &[u8] = match self {
            View::Job(values) => values,
            View::Group(gather) if gather.is_empty() => return Some(&[]),
            View::Group(gather) => gather,
            View::Own(rows) => return Some(rows),
        };
        Rows::read(array).ok()?.array()
    }
}

impl Operation {
    /// Whether the arguments are valid in a group of `size` members.
    pub fn is_sound(&self, size: u32) -> bool {
        match self {
            Operation::Broadcast { root, .. } => *root < size,
            Operation::Allgather { bytes, len_max, .. } => bytes.len() <= *len_max,
            Operation::Allreduce { reduce, bytes } | Operation::Prefix { reduce, bytes, .. } => {
                reduce.is_defined() && bytes.len().is_multiple_of(8)
            }
            Operation::Alltoall(rows) => rows.len() == size as usize,
            Operation::Barrier | Operation::Shift(_) => true,
        }
    }
}
