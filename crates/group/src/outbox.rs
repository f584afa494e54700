//! The outputs of a process's groups for their driver: messages, addresses of ranks, and completed requests with their
//! results.

use crate::message::{Message, MessageKind};
use crate::shape::Peer;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

/// Identifies a group.
pub type Context = u64;
/// Identifies an operation that a caller has started.
pub type Request = u64;

/// The group of all ranks.
pub const WORLD: Context = 1;

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

/// Counters of what a process has done since its start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Number of waits for messages: one per step of a collective that receives, and one per search for an address.
    pub rounds: u64,
    /// Number of questions for addresses of members that were sent or passed on.
    pub questions: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// A message for another rank. `is_needed`: whether the rank counts as lost if it cannot be reached. Otherwise the
    /// driver drops the message then, and calls `Groups::on_left`, since the rank may have exited in an orderly way.
    Send { to: u32, message: Vec<u8>, is_needed: bool },
    /// The address of a rank to which messages may be sent later.
    Learnt(Peer),
    /// A request that is complete.
    Done { request: Request, result: Result<Done, Failure> },
}

pub struct Outbox {
    /// The rank and address of this process.
    pub own: Peer,
    pub lost: BTreeSet<u32>,
    /// Ranks that have left the job in an orderly way, or could not be reached for an inquiry.
    pub left: BTreeSet<u32>,
    last_request: Request,
    pub queue: VecDeque<Output>,
}

impl Outbox {
    pub fn new(own: Peer) -> Outbox {
        Outbox { own, lost: BTreeSet::new(), left: BTreeSet::new(), last_request: 0, queue: VecDeque::new() }
    }

    pub fn request(&mut self) -> Request {
        self.last_request += 1;
        self.last_request
    }

    pub fn send(&mut self, to: u32, message: Vec<u8>) {
        self.queue.push_back(Output::Send { to, message, is_needed: true });
    }

    pub fn done(&mut self, request: Request, result: Result<Done, Failure>) {
        self.queue.push_back(Output::Done { request, result });
    }

    /// Informs a member that a group has failed, unless the member is lost or is the rank that caused the failure.
    pub fn tell_failure(&mut self, context: Context, failure: Failure, to: u32) {
        let (kind, rank) = match failure {
            Failure::Lost { rank } => (MessageKind::Failed { rank }, rank),
            Failure::Disagrees { rank } => (MessageKind::Disagrees { rank }, rank),
            _ => return,
        };
        if to != rank && to != self.own.rank && !self.lost.contains(&to) {
            self.send(to, Message { context, kind, payload: &[] }.encode());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_to_those_who_live_and_do_not_know_it() {
        let mut out = Outbox::new(Peer { rank: 1, address: Vec::new() });
        out.lost.insert(2);
        for to in 0..5 {
            out.tell_failure(7, Failure::Lost { rank: 2 }, to);
            out.tell_failure(7, Failure::Disagrees { rank: 3 }, to);
            out.tell_failure(7, Failure::Cancelled, to);
        }
        let told = core::iter::from_fn(|| out.queue.pop_front()).map(|output| match output {
            Output::Send { to, message, .. } => (to, message[0]),
            output => panic!("{output:?}"),
        });
        assert_eq!(told.collect::<Vec<(u32, u8)>>(), [(0, 1), (0, 5), (3, 1), (4, 1), (4, 5)]);
    }
}
