//! What is started in a group, and what becomes of it.

use crate::network::Key;
use alloc::boxed::Box;
use alloc::vec::Vec;
use wireup_capi::job::Values;
use wireup_capi::server::Gather;
use wireup_client::requests::Id;
use wireup_group::algorithms::Wanted;
use wireup_group::reduce::Reduce;
use wireup_wire::shared::rows::Rows;

/// A collective. Every member of a group starts the same ones in the same order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    Barrier,
    /// `bytes` are the root's; those of others have the same length and are ignored.
    Broadcast {
        root: u32,
        bytes: Vec<u8>,
    },
    /// No member has more than `len_max` bytes. `in_memory`: the result is wanted as a [`View`].
    Allgather {
        bytes: Vec<u8>,
        len_max: usize,
        in_memory: bool,
    },
    Allreduce {
        reduce: Reduce,
        bytes: Vec<u8>,
    },
    Prefix {
        reduce: Reduce,
        bytes: Vec<u8>,
        is_exclusive: bool,
    },
    /// A row for each member.
    Alltoall(Vec<Vec<u8>>),
    /// Passes bytes to the right neighbour; the result is the bytes of the left one.
    Shift(Vec<u8>),
}

/// What is done with the result of a request of the server.
#[derive(Debug)]
pub enum Then {
    Finish(Operation),
    /// Make the groups of a split. `of`: the context that their contexts are derived from, and the number of this
    /// split.
    Divide {
        wanted: Wanted,
        of: (wireup_group::Context, u32),
    },
}

/// Something that was started. Its result is taken once.
#[derive(Debug)]
pub enum Request {
    Server {
        id: Id,
        then: Box<Then>,
    },
    Peers(wireup_group::Request),
    /// An exchange of values among the members of a group, by the agents. `place`: this rank's place, and the group's
    /// size.
    Gather {
        id: u32,
        context: wireup_group::Context,
        place: (u32, u32),
        then: Box<Then>,
    },
    /// A question for a rank's address.
    Address(u32),
    /// A connection of the program's own.
    Connection(Key),
}

/// The result of an allgather, read in place: in memory that the ranks of a node share, if the agents have exchanged
/// it.
pub enum View {
    /// Values of the whole job.
    Job(Values),
    Group(Gather),
    /// What ranks or another server have exchanged: this process's own copy.
    Own(Vec<u8>),
}

impl View {
    /// All rows, concatenated; `None`: the members gave values of different lengths.
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
