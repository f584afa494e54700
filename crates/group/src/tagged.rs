//! Messages from one member to another, matched by sender and tag in the order in which they were sent.

use crate::outbox::Request;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// The sender's place in the group, and the tag.
pub type Source = (u32, u32);

#[derive(Default)]
pub struct Tagged {
    /// Messages for which no receive was started, each with the rank of its sender.
    arrived: BTreeMap<Source, VecDeque<(u32, Vec<u8>)>>,
    arrived_bytes: usize,
    wanted: BTreeMap<Source, VecDeque<Request>>,
}

impl Tagged {
    /// Handles a message from a rank; returns the request that it completes, if a receive waits for it.
    pub fn on_message(&mut self, source: Source, rank: u32, payload: &[u8]) -> Option<Request> {
        if let Some(wanted) = self.wanted.get_mut(&source) {
            let request = wanted.pop_front();
            if wanted.is_empty() {
                self.wanted.remove(&source);
            }
            return request;
        }
        self.arrived_bytes += payload.len();
        self.arrived.entry(source).or_default().push_back((rank, payload.to_vec()));
        None
    }

    /// Starts a receive; returns the message if it has arrived already.
    pub fn receive(&mut self, source: Source, request: Request) -> Option<Vec<u8>> {
        let Some(arrived) = self.arrived.get_mut(&source) else {
            self.wanted.entry(source).or_default().push_back(request);
            return None;
        };
        let message = arrived.pop_front().map(|(_, message)| message);
        if arrived.is_empty() {
            self.arrived.remove(&source);
        }
        self.arrived_bytes -= message.as_ref().map_or(0, Vec::len);
        message
    }

    /// Size of the messages for which no receive was started, in bytes.
    pub fn bytes(&self) -> usize {
        self.arrived_bytes
    }

    pub fn bytes_of(&self, rank: u32) -> usize {
        let of_rank = self.arrived.values().flatten().filter(|(from, _)| *from == rank);
        of_rank.map(|(_, message)| message.len()).sum()
    }

    /// The places of the senders that receives wait for.
    pub fn awaited(&self) -> impl Iterator<Item = u32> {
        self.wanted.keys().map(|(from, _)| *from)
    }

    /// Cancels a receive; `false`: no receive with this request waits.
    pub fn cancel(&mut self, request: Request) -> bool {
        let found = self.wanted.iter_mut().find_map(|(source, wanted)| {
            let at = wanted.iter().position(|one| *one == request)?;
            wanted.remove(at);
            Some((*source, wanted.is_empty()))
        });
        if let Some((source, true)) = found {
            self.wanted.remove(&source);
        }
        found.is_some()
    }

    /// Cancels all receives; returns their requests.
    pub fn stop(&mut self) -> Vec<Request> {
        core::mem::take(self).wanted.into_values().flatten().collect()
    }
}
