//! One group of a process: its collectives, the addresses of its members, and tagged messages between two members.

use crate::addresses::{Addresses, Graph};
use crate::collectives::Collectives;
use crate::outbox::{Context, Failure, Outbox, Output, Request};
use crate::shape::{Peer, Shape};
use crate::tagged::Tagged;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

pub struct Group {
    pub collectives: Collectives,
    pub addresses: Addresses,
    pub tagged: Tagged,
    pub failed: Option<Failure>,
    /// The group from which this one is being made: if a member fails there, it never joins this group, which fails
    /// too.
    pub made_from: Option<Context>,
    /// Whether place `n` of the group is rank `n` of the job, so that the driver finds the addresses of members itself.
    pub is_known: bool,
    /// Ranks of the shape's peers that were reported to the driver, and the shape's number of links at the last report.
    learnt: BTreeSet<u32>,
    learnt_links: usize,
}

/// The processes for whose messages a process waits.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Awaited {
    /// Ranks whose messages are missing in collectives, in the creation of groups or in searches for addresses.
    pub parts: BTreeSet<u32>,
    /// Ranks from which a receive expects a message.
    pub senders: BTreeSet<u32>,
    /// Senders of expected messages whose ranks are not known, each by its group and its place there.
    pub unknown: Vec<(Context, u32)>,
}

impl Awaited {
    pub fn has(&self, rank: u32) -> bool {
        self.parts.contains(&rank) || self.senders.contains(&rank)
    }
}

impl Group {
    pub fn new(context: Context, shape: Shape) -> Group {
        Group {
            collectives: Collectives::new(context, shape),
            addresses: Addresses::default(),
            tagged: Tagged::default(),
            failed: None,
            made_from: None,
            is_known: false,
            learnt: BTreeSet::new(),
            learnt_links: 0,
        }
    }

    pub fn shape(&self) -> &Shape {
        &self.collectives.shape
    }

    /// The addresses of members, and the graph in which they are searched for.
    pub fn searching<'a>(&'a mut self, context: Context, out: &'a Outbox) -> (&'a mut Addresses, Graph<'a>) {
        let shape = &self.collectives.shape;
        (&mut self.addresses, Graph { context, shape, own: &out.own, left: &out.left })
    }

    pub fn has(&self, rank: u32) -> bool {
        let is_place = self.is_known && rank < self.shape().size;
        is_place || self.addresses.known(self.shape()).any(|peer| peer.rank == rank)
    }

    /// Queues an `Output::Learnt` for each other member that the shape knows and that was not reported before. Returns
    /// the rank of one of these members that is lost; `None` if none is lost or the group has failed.
    pub fn learn(&mut self, out: &mut Outbox) -> Option<u32> {
        let Group { collectives: Collectives { shape, .. }, learnt, learnt_links, failed, .. } = self;
        if core::mem::replace(learnt_links, shape.links()) == shape.links() {
            return None;
        }
        let new: Vec<&Peer> =
            shape.known().filter(|(_, peer)| learnt.insert(peer.rank)).map(|(_, peer)| peer).collect();
        let others = new.iter().filter(|peer| peer.rank != out.own.rank);
        out.queue.extend(others.map(|peer| Output::Learnt((*peer).clone())));
        let lost = new.iter().find(|peer| out.lost.contains(&peer.rank));
        lost.filter(|_| failed.is_none()).map(|peer| peer.rank)
    }

    pub fn add_awaited(&self, context: Context, awaited: &mut Awaited) {
        let shape = self.shape();
        awaited.parts.extend(self.collectives.awaited());
        awaited.parts.extend(self.addresses.asked());
        for place in self.tagged.awaited().filter(|place| *place != shape.me) {
            match self.addresses.get(shape, place) {
                Some(peer) => drop(awaited.senders.insert(peer.rank)),
                None if self.is_known => drop(awaited.senders.insert(place)),
                None => awaited.unknown.push((context, place)),
            }
        }
    }

    /// Size of the messages that wait for a collective or a receive, in bytes.
    pub fn kept_bytes(&self) -> usize {
        self.collectives.mail.bytes() + self.tagged.bytes()
    }

    pub fn kept_bytes_of(&self, rank: u32) -> usize {
        self.collectives.mail.bytes_of(rank) + self.tagged.bytes_of(rank)
    }

    /// Cancels what is in progress in the group; returns the requests that waited for it.
    pub fn stop(&mut self) -> Vec<Request> {
        self.collectives.stop().chain(self.addresses.stop()).chain(self.tagged.stop()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::WORLD;

    #[test]
    fn a_group_reports_each_peer_once_and_knows_who_is_lost_or_awaited() {
        let peer = |rank| Peer { rank, address: vec![rank as u8] };
        let mut out = Outbox::new(peer(4));
        out.lost.insert(3);
        let mut group = Group::new(WORLD, Shape::new(4, 9, peer(3), peer(5)));
        assert_eq!(group.learn(&mut out), Some(3));
        assert_eq!(out.queue, [peer(5), peer(3)].map(Output::Learnt));
        out.queue.clear();
        assert_eq!((group.learn(&mut out), out.queue.len()), (None, 0));
        assert_eq!([3, 4, 6].map(|rank| group.has(rank)), [true, false, false]);
        for (request, from) in [(1, 3), (2, 4), (3, 6)] {
            group.tagged.receive((from, 0), request);
        }
        let mut awaited = Awaited::default();
        group.add_awaited(WORLD, &mut awaited);
        assert_eq!(awaited, Awaited { parts: [].into(), senders: [3].into(), unknown: vec![(WORLD, 6)] });
        group.is_known = true;
        assert!(group.has(6) && !group.has(9));
        assert_eq!(group.stop(), [1, 2, 3]);
    }
}
