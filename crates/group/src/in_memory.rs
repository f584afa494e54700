//! All ranks of a job in one process: carries the messages of their groups from rank to rank, and counts them.
//!
//! The caller decides which message arrives next; messages from one rank to another keep their order. A test can choose
//! at random; a simulation delivers messages in the order of sending, as a network does where all messages take the
//! same time.

use crate::groups::kept_bytes;
use crate::{Context, Done, Failure, Groups, Malformed, Output, Peer, Request};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

pub struct Ranks {
    pub members: Vec<Groups>,
    /// Results of completed requests that no caller has removed yet, by rank and request.
    pub results: BTreeMap<(u32, Request), Result<Done, Failure>>,
    pub traffic: Vec<Traffic>,
    /// Length of the longest chain of messages in which each message was sent when the one before arrived.
    pub rounds: u64,
    /// For each rank, the ranks whose addresses it has learnt.
    pub learnt: Vec<BTreeSet<u32>>,
    /// Messages that were sent and have not arrived, in the order of sending.
    pub under_way: VecDeque<UnderWay>,
    lost: Vec<bool>,
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Traffic {
    pub messages: u64,
    pub bytes: u64,
    /// Largest size, so far, of the messages that waited at this rank at one time, in bytes.
    pub kept_max: usize,
    /// For each rank that this one has sent messages to or received messages from, the number sent to it.
    pub peers: BTreeMap<u32, u64>,
}

pub struct UnderWay {
    pub from: u32,
    pub to: u32,
    pub message: Vec<u8>,
    /// Position of the message, from 1, in the longest chain of messages in which each was sent when the one before
    /// arrived.
    round: u64,
}

/// A violation of the protocol by a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// Rank `from` sends to a rank whose address it does not know.
    Unknown { from: u32, to: u32 },
    /// Rank `by` has learnt its own address, or a wrong address of another rank.
    Learnt { by: u32, peer: Peer },
    /// A request has completed twice.
    Twice { by: u32, request: Request },
    /// Rank `by` refused a message of rank `from`.
    Refused { by: u32, from: u32 },
}

impl Ranks {
    /// Creates ranks that do not know each other's addresses.
    pub fn apart(own: impl IntoIterator<Item = Peer>) -> Ranks {
        let members: Vec<Groups> = own.into_iter().map(Groups::new).collect();
        let size = members.len();
        Ranks {
            members,
            results: BTreeMap::new(),
            traffic: vec![Traffic::default(); size],
            rounds: 0,
            learnt: vec![BTreeSet::new(); size],
            under_way: VecDeque::new(),
            lost: vec![false; size],
        }
    }

    pub fn size(&self) -> u32 {
        self.members.len() as u32
    }

    pub fn own(&self, rank: u32) -> Peer {
        self.members[rank as usize].own().clone()
    }

    /// Rank `rank` starts to form the group of all ranks, in the order of ranks.
    pub fn form(&mut self, context: Context, rank: u32) -> Request {
        let size = self.size();
        let (left, right) = (self.own((rank + size - 1) % size), self.own((rank + 1) % size));
        self.members[rank as usize].form(context, rank, size, left, right)
    }

    /// Collects a rank's outputs after an operation was started on it.
    pub fn collect(&mut self, rank: u32) -> Result<(), Wrong> {
        self.collect_after(rank, 0)
    }

    /// Delivers the first message that has the same sender and receiver as the one at index `place` of
    /// [`Ranks::under_way`].
    pub fn deliver(&mut self, place: usize) -> Result<Option<u32>, Wrong> {
        let Some(UnderWay { from, to, .. }) = self.under_way.get(place) else { return Ok(None) };
        let (from, to) = (*from, *to);
        let first = self.under_way.iter().position(|other| (other.from, other.to) == (from, to)).unwrap_or(place);
        let Some(message) = self.under_way.remove(first) else { return Ok(None) };
        self.arrive(message)?;
        Ok(Some(to))
    }

    /// Delivers a message that the caller has taken from [`Ranks::under_way`].
    pub fn arrive(&mut self, UnderWay { from, to, message, round }: UnderWay) -> Result<(), Wrong> {
        if self.lost[to as usize] {
            return Ok(());
        }
        self.traffic[to as usize].peers.entry(from).or_default();
        let taken = self.members[to as usize].on_message(from, &message);
        taken.map_err(|Malformed| Wrong::Refused { by: to, from })?;
        let kept_max = &mut self.traffic[to as usize].kept_max;
        *kept_max = (*kept_max).max(kept_bytes(&self.members[to as usize]));
        self.collect_after(to, round)
    }

    /// Delivers all messages in the order of sending, including those that are sent in reaction.
    pub fn settle(&mut self) -> Result<(), Wrong> {
        while self.deliver(0)?.is_some() {}
        Ok(())
    }

    /// Ends a rank; the ranks that can send to it notice the loss.
    pub fn lose(&mut self, rank: u32) -> Result<(), Wrong> {
        self.lost[rank as usize] = true;
        for me in (0..self.size()).filter(|me| *me != rank) {
            if self.reaches(me, rank) {
                self.members[me as usize].on_lost(rank);
                self.collect(me)?;
            }
        }
        Ok(())
    }

    fn collect_after(&mut self, me: u32, round: u64) -> Result<(), Wrong> {
        while let Some(output) = self.members[me as usize].poll() {
            match output {
                Output::Send { to, message, .. } => self.send(me, to, message, round + 1)?,
                Output::Learnt(peer) => self.learn(me, peer)?,
                Output::Done { request, result } => {
                    if self.results.insert((me, request), result).is_some() {
                        return Err(Wrong::Twice { by: me, request });
                    }
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, from: u32, to: u32, message: Vec<u8>, round: u64) -> Result<(), Wrong> {
        if !self.reaches(from, to) {
            return Err(Wrong::Unknown { from, to });
        }
        let traffic = &mut self.traffic[from as usize];
        traffic.messages += 1;
        traffic.bytes += message.len() as u64;
        *traffic.peers.entry(to).or_default() += 1;
        if !self.lost[from as usize] {
            self.rounds = self.rounds.max(round);
            self.under_way.push_back(UnderWay { from, to, message, round });
        }
        Ok(())
    }

    fn learn(&mut self, by: u32, peer: Peer) -> Result<(), Wrong> {
        let is_true = self.members.get(peer.rank as usize).is_some_and(|owner| *owner.own() == peer);
        if !is_true || peer.rank == by {
            return Err(Wrong::Learnt { by, peer });
        }
        self.learnt[by as usize].insert(peer.rank);
        Ok(())
    }

    /// Whether `from` can send to `to`: they have a connection, or `from` has learnt the address of `to`.
    fn reaches(&self, from: u32, to: u32) -> bool {
        self.traffic[from as usize].peers.contains_key(&to) || self.learnt[from as usize].contains(&to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WORLD;
    use crate::algorithms::{Allgather, Barrier};
    use alloc::boxed::Box;

    fn ring(size: u32) -> Ranks {
        let mut ranks = Ranks::apart((0..size).map(|rank| Peer { rank, address: vec![7; 15] }));
        for rank in 0..size {
            ranks.form(WORLD, rank);
            ranks.collect(rank).unwrap();
        }
        ranks.settle().unwrap();
        ranks
    }

    #[test]
    fn the_longest_chain_and_the_traffic_are_those_of_the_definitions() {
        let mut ranks = ring(100);
        // Building the graph takes 6 steps; a message has 17 header bytes, the rank, the address and the address's
        // length.
        assert_eq!((ranks.rounds, ranks.results.len()), (6, 100));
        assert!(ranks.traffic.iter().all(|traffic| (traffic.messages, traffic.bytes) == (12, 12 * (17 + 8 + 15))));
        assert!(ranks.learnt.iter().all(|learnt| learnt.len() == 14));
        ranks.rounds = 0;
        for rank in 0..100 {
            ranks.members[rank as usize].start(WORLD, Box::new(Barrier::default()));
            ranks.collect(rank).unwrap();
        }
        assert_eq!(ranks.under_way.len(), 100);
        ranks.settle().unwrap();
        assert_eq!(ranks.rounds, 7);
    }

    #[test]
    fn ranks_that_are_wrong_are_reported() {
        let mut ranks = Ranks::apart((0..2).map(|rank| Peer { rank, address: vec![7; 15] }));
        let wrong = Peer { rank: 1, address: vec![8; 15] };
        ranks.members[0].form(WORLD, 0, 2, wrong.clone(), wrong.clone());
        assert_eq!(ranks.collect(0), Err(Wrong::Learnt { by: 0, peer: wrong }));
        let mut ranks = ring(2);
        ranks.members[0].start(WORLD, Box::new(Allgather::new(Vec::new())));
        ranks.collect(0).unwrap();
        ranks.members[1].on_lost(0);
        assert_eq!(ranks.send(0, 1, vec![9; 17], 0), Ok(()));
        assert_eq!(ranks.settle(), Err(Wrong::Refused { by: 1, from: 0 }));
    }

    #[test]
    fn messages_of_a_pair_keep_their_order() {
        let mut ranks = ring(2);
        let sent = [b"one", b"two"].map(|text| ranks.members[0].send_tagged(1, WORLD, 0, text));
        ranks.collect(0).unwrap();
        assert_eq!((sent.len(), ranks.under_way.len()), (2, 2));
        ranks.deliver(1).unwrap();
        let first = ranks.members[1].receive_tagged(0, WORLD, 0);
        ranks.collect(1).unwrap();
        assert_eq!(ranks.results[&(1, first)], Ok(Done::Bytes(b"one".to_vec())));
    }
}
