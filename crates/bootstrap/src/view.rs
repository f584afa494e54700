//! The result of an allgather where it is: in memory that the ranks of a node share, if the agents have exchanged it.

use alloc::vec::Vec;
use wireup_capi::job::Values;
use wireup_capi::server::Gather;
use wireup_wire::shared::rows::Rows;

pub enum View {
    /// Of the whole job.
    Job(Values),
    Group(Gather),
    /// What ranks or another server have exchanged: this process's own copy.
    Own(Vec<u8>),
}

impl View {
    /// All rows, one behind the other; `None`: the members gave values of different lengths.
    pub fn rows(&self) -> Option<&[u8]> {
        let array: &[u8] = match self {
            View::Job(values) => values,
            View::Group(Gather::Empty) => return Some(&[]),
            View::Group(gather) => gather,
            View::Own(rows) => return Some(rows),
        };
        Rows::read(array).ok()?.array()
    }
}
