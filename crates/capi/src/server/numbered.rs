//! Fences and allgathers of our own server: any number under way, told apart by their numbers.
//!
//! Starting one is a write. Their ends are taken in whenever answers are read and wait here until somebody asks.

use super::{Failure, Server};
use crate::mapping::Mapping;
use alloc::vec::Vec;
use wireup_client::pipeline::Answer;
use wireup_wire::pmi::Request;

/// A numbered request has ended well.
#[derive(Debug)]
pub struct Over {
    pub id: u32,
    /// A fence's: how often the kvs has grown. An allgather's: where the array lies in the arena; 0: in memory of its own.
    pub number: u32,
    /// An allgather's array, or an arena that is new; `None` if nothing came, or there was no room to map it.
    pub array: Option<Mapping>,
}

impl Over {
    pub(super) fn read(answer: &Answer<'_>, array: Option<Mapping>) -> Option<Over> {
        // A fence's answer has the one, an allgather's may have the other.
        let number = answer.fields.get("kvs").or_else(|| answer.fields.get("place")).and_then(crate::ints::parse);
        let number = number.unwrap_or(0);
        answer.id.map(|id| Over { id, number, array })
    }
}

impl Server {
    /// From here on the server may send descriptors.
    pub fn expect_descriptors(&mut self) {
        self.receive = crate::socket::Socket::receive;
    }

    /// Sends a request, and what was asked and posted before it.
    pub fn start(&mut self, request: &Request<'_>) -> Result<(), Failure> {
        self.ask(request)?;
        self.flush()
    }

    /// The next end that has been taken in.
    pub fn next_over(&mut self) -> Option<Over> {
        if self.over.is_empty() { None } else { Some(self.over.remove(0)) }
    }

    /// What came along with the last answer that was taken; `None` where one could not be mapped.
    pub fn take_mappings(&mut self) -> Vec<Option<Mapping>> {
        core::mem::take(&mut self.mappings)
    }
}
