//! Collectives of groups of ranks by our own server: every member gets the values of all.

use super::Job;
use crate::codes::{Code, Result};
use crate::ints;
use crate::mapping::{Part, Shared};
use alloc::vec::Vec;
use core::ops::Deref;
use wireup_client::escape::doubled;
use wireup_client::link;
use wireup_client::memory::Memory;
use wireup_wire::pmi::{Raw, Request};

/// The array of the values (see `wireup_wire::shared::rows`).
pub enum Gather {
    /// All are empty.
    Empty,
    Bytes(Vec<u8>),
    /// In memory that the ranks of the node share.
    Shared(Part),
}

impl Deref for Gather {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Gather::Empty => &[],
            Gather::Bytes(bytes) => bytes,
            Gather::Shared(part) => part,
        }
    }
}

impl Job {
    /// Tells our own server of a group: ranks in ascending order as first and last of each run, this one among them.
    /// `tag` distinguishes it from other groups of the same ranks.
    ///
    /// # Errors
    /// The server is gone, is not ours, or has too many groups of this rank.
    pub fn set_group(&mut self, group: u32, runs: &[(u32, u32)], tag: u64) -> Result {
        let mut members = Vec::new();
        for (first, last) in runs {
            if !members.is_empty() {
                members.push(b',');
            }
            ints::push(*first as usize, &mut members);
            members.push(b'-');
            ints::push(*last as usize, &mut members);
        }
        // The same on all members, and not negative.
        let mut number = Vec::new();
        ints::push((tag >> 1) as usize, &mut number);
        Ok(self.server()?.tell(&Request::GroupSet { group, members: &members, tag: &number })?)
    }

    /// # Errors
    /// The server is gone.
    pub fn free_group(&mut self, group: u32) -> Result {
        Ok(self.server()?.tell(&Request::GroupFree { group })?)
    }

    /// Starts a collective of a group; see [`Job::take_gathers`]. `id` is not that of another one under way.
    ///
    /// # Errors
    /// The server is gone.
    pub fn start_gather(&mut self, id: u32, group: u32, value: &[u8]) -> Result {
        let mut room = Vec::new();
        let server = self.server()?;
        server.link.ask(&Request::Gather { id, group, value: Raw(doubled(value, &mut room)) })?;
        Ok(server.flush()?)
    }

    /// The results that have been read, by number.
    pub fn take_gathers(&mut self) -> Vec<(u32, Result<Gather>)> {
        self.read_unawaited();
        let Ok(server) = self.server() else { return Vec::new() };
        let taken = server.link.take_gathers().into_iter();
        taken.map(|(id, gathered)| (id, whole(gathered))).collect()
    }
}

fn whole(gathered: link::Gathered<Shared>) -> Result<Gather> {
    match gathered {
        link::Gathered::Empty => Ok(Gather::Empty),
        link::Gathered::Bytes(bytes) => Ok(Gather::Bytes(bytes)),
        link::Gathered::Memory(memory) => {
            memory.and_then(|memory| memory.whole()).map(Gather::Shared).ok_or(Code::NOMEM)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_slot::With;
    use crate::scripted::pair;
    use std::vec;

    #[test]
    fn results_that_come_with_other_answers_are_found() {
        let (server, mut peer) = pair();
        let mut job = Job::new(With::Server(server), 0, 2, true);
        job.start_gather(1, 0, b"v").unwrap();
        peer.say("cmd=wireup-gather-response;rc=0;id=1;value=both;");
        peer.say("cmd=wireup-group-free-response;rc=0;");
        job.free_group(0).unwrap();
        let all: Vec<(u32, Vec<u8>)> =
            job.take_gathers().into_iter().map(|(id, gather)| (id, gather.unwrap().to_vec())).collect();
        assert_eq!(all, vec![(1, b"both".to_vec())]);
    }

    #[test]
    fn after_a_refusal_nothing_is_waited_for() {
        let (server, mut peer) = pair();
        let mut job = Job::new(With::Server(server), 0, 2, true);
        job.start_gather(1, 0, b"v").unwrap();
        peer.say("cmd=wireup-gather-response;rc=-1;errmsg=no;");
        assert!(!job.take_answers() && !job.take_answers());
        assert_eq!(job.start_gather(2, 0, b"v"), Err(Code::FAIL));
    }
}
