//! What only our own server answers, later and in any order: collectives of groups of ranks, where every member gets
//! the values of all, and questions for the addresses of ranks.

use super::Server;
use crate::codes::{Code, Result};
use crate::mapping::{MappedBytes, Shared};
use alloc::vec::Vec;
use core::ops::Deref;
use wireup_client::escape::doubled;
use wireup_client::link;
use wireup_client::memory::Memory;
use wireup_client::number;
use wireup_wire::hex;
use wireup_wire::pmi::{Raw, Request};

/// The array of the values (see `wireup_wire::shared::rows`).
pub enum Gather {
    /// In the message itself; empty if all values are empty.
    Bytes(Vec<u8>),
    /// In memory that the server shares with the ranks of the node.
    Shared(MappedBytes),
}

impl Deref for Gather {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Gather::Bytes(bytes) => bytes,
            Gather::Shared(part) => part,
        }
    }
}

/// The answer to [`Server::ask_address`]: its `id`, and the address; `None`: the rank has left without reporting one.
pub type Address = (u32, Option<Vec<u8>>);

impl Server {
    /// Defines a group at the server. `runs`: the first and the last rank of each run of members, in ascending order;
    /// this rank is a member. `tag` distinguishes the group from others of the same ranks.
    ///
    /// # Errors
    /// The server is gone, or has too many groups of this rank.
    pub fn set_group(&mut self, group: u32, runs: &[(u32, u32)], tag: u64) -> Result {
        let mut members = Vec::new();
        for (first, last) in runs {
            number::push_item(*first as usize, &mut members);
            members.push(b'-');
            number::push(*last as usize, &mut members);
        }
        // The server reads a signed number: half of the tag is never negative.
        let mut text = Vec::new();
        number::push((tag >> 1) as usize, &mut text);
        Ok(self.tell(&Request::GroupSet { group, members: &members, tag: &text })?)
    }

    /// # Errors
    /// The server is gone.
    pub fn free_group(&mut self, group: u32) -> Result {
        Ok(self.tell(&Request::GroupFree { group })?)
    }

    /// Starts a collective of a group; see [`Server::take_gathers`]. `id` must not be in use by an unfinished
    /// collective.
    ///
    /// # Errors
    /// The server is gone.
    pub fn start_gather(&mut self, id: u32, group: u32, value: &[u8]) -> Result {
        let mut room = Vec::new();
        self.link.ask(&Request::Gather { id, group, value: Raw(doubled(value, &mut room)) })?;
        Ok(self.flush()?)
    }

    /// The results that have been read, each with the `id` of its collective.
    pub fn take_gathers(&mut self) -> Vec<(u32, Result<Gather>)> {
        self.read_unawaited();
        self.link.take_gathers().into_iter().map(|(id, gathered)| (id, whole(gathered))).collect()
    }

    /// Asks where a rank is reached; see [`Server::take_addresses`]. `id` must not be in use by an unanswered request.
    ///
    /// # Errors
    /// The server is gone, or is not ours.
    pub fn ask_address(&mut self, id: u32, name: &[u8], rank: u32) -> Result {
        Ok(self.link.ask(&Request::AddressGet { id, rank, name })?)
    }

    /// The answers to [`Server::ask_address`] that have been read, also together with other answers.
    pub fn take_addresses(&mut self) -> Vec<Address> {
        self.read_unawaited();
        let answers = self.link.take_addresses().into_iter();
        answers.map(|(id, value)| (id, value.and_then(|value| hex::decode(&value)))).collect()
    }

    /// Takes answers that came together with the answer to a call. If the server is gone, that is noticed when it is
    /// read next.
    fn read_unawaited(&mut self) {
        while self.take_unawaited() == Ok(true) {}
    }
}

fn whole(gathered: link::Gathered<Shared>) -> Result<Gather> {
    match gathered {
        link::Gathered::Bytes(bytes) => Ok(Gather::Bytes(bytes)),
        link::Gathered::Memory(memory) => {
            memory.and_then(|memory| memory.whole()).map(Gather::Shared).ok_or(Code::NOMEM)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Job;
    use crate::job::With;
    use crate::scripted::pair;
    use std::vec;

    #[test]
    fn results_that_come_with_other_answers_are_found() {
        let (mut server, mut peer) = pair();
        server.start_gather(1, 0, b"v").unwrap();
        peer.say("cmd=wireup-gather-response;rc=0;id=1;value=both;");
        peer.say("cmd=wireup-group-free-response;rc=0;");
        server.free_group(0).unwrap();
        let all: Vec<(u32, Vec<u8>)> =
            server.take_gathers().into_iter().map(|(id, gather)| (id, gather.unwrap().to_vec())).collect();
        assert_eq!(all, vec![(1, b"both".to_vec())]);
    }

    #[test]
    fn after_a_refusal_nothing_is_waited_for() {
        let (server, mut peer) = pair();
        let mut job = Job::new(With::Server(server), 0, 2, true);
        job.server().unwrap().start_gather(1, 0, b"v").unwrap();
        peer.say("cmd=wireup-gather-response;rc=-1;errmsg=no;");
        assert!(!job.take_answers() && !job.take_answers());
        assert_eq!(job.server().unwrap().start_gather(2, 0, b"v"), Err(Code::FAIL));
    }
}
