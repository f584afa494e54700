//! Relays connections between ranks whose hosts cannot connect to each other, because of a firewall or for lack of a
//! route: the agents of both carry the bytes, which the ranks have encrypted from end to end.
//!
//! ```text
//!   rank ◄═ pair of sockets ═► its agent ◄── frames ──► other agent ◄═ connection on its host ═► other rank
//!                              opens                    accepts
//! ```
//!
//! Each end sends at most [`RELAY_WINDOW_BYTES`] that have not reached the rank at the other end: then it stops reading
//! its socket. The two directions end one by one, as on a connection. A relay ends when both directions have ended, or
//! at once when one of the sockets breaks.
//!
//! Cost: one frame in each direction for each read of a socket, and one for each quarter of a window.

use crate::io::{RelayAct, RelayEvent, RelayId};
use bytes::Bytes;
use std::collections::BTreeMap;
use wireup_wire::ids::NodeId;
use wireup_wire::limits::{RELAY_WINDOW_BYTES, RELAYS_MAX};
use wireup_wire::relay::{Between, IS_CONNECTED, Target, What};

/// Number of bytes from the other end that the rank must have read before the other end is allowed to send more.
const TELL_BYTES: u32 = RELAY_WINDOW_BYTES as u32 / 4;

#[derive(Default)]
pub struct Relays {
    relays: BTreeMap<RelayId, Relay>,
    /// Relays that other nodes have opened, by node and the number that the node's agent uses.
    accepted: BTreeMap<(NodeId, u32), RelayId>,
    last: u32,
    acts: Vec<(RelayId, RelayAct)>,
    messages: Vec<(NodeId, Between)>,
}

/// This end of a relay.
struct Relay {
    node: NodeId,
    /// The number that is used by the agent that has opened the relay.
    number: u32,
    is_own: bool,
    /// Bytes that were sent here and have not reached the rank at the other end yet.
    under_way: usize,
    is_stopped: bool,
    /// Bytes that have reached the rank here and were not reported to the other end yet.
    untold: u32,
    has_ended_here: bool,
    has_ended_there: bool,
}

impl Relays {
    /// Opens a relay to a rank of another node; `act` passes the rank here its socket. `false`: there are too many
    /// relays.
    pub fn open(&mut self, node: NodeId, target: Target, act: RelayAct) -> bool {
        if self.relays.len() >= RELAYS_MAX {
            return false;
        }
        let relay = self.insert(node, None);
        self.acts.push((relay, act));
        self.tell(relay, What::Open(target));
        true
    }

    /// Handles a message of another node's agent. `find`: returns the address at which a rank of this node listens.
    pub fn on_message(&mut self, node: NodeId, message: Between, find: impl Fn(&Target) -> Option<Bytes>) {
        let Between { number, by_opener, what } = message;
        let relay = match by_opener {
            true => self.accepted.get(&(node, number)).copied(),
            false => Some(RelayId(number)),
        };
        let is_theirs = |one: &Relay| (one.node, one.is_own) == (node, !by_opener);
        let relay = relay.filter(|relay| self.relays.get(relay).is_some_and(is_theirs));
        match (relay, what) {
            (None, What::Open(target)) if by_opener => match find(&target).filter(|_| self.relays.len() < RELAYS_MAX) {
                Some(address) => {
                    let relay = self.insert(node, Some(number));
                    self.acts.push((relay, RelayAct::Connect { address }));
                }
                None => self.messages.push((node, Between { number, by_opener: false, what: What::Close })),
            },
            // The relay has ended here: a message to the other end reports it, or the other end has reported it itself.
            (None, _) | (Some(_), What::Open(_)) => {}
            (Some(relay), What::Connected) => {
                self.acts.push((relay, RelayAct::Write(Bytes::from_static(&[IS_CONNECTED]))));
            }
            (Some(relay), What::Bytes(bytes)) => self.acts.push((relay, RelayAct::Write(bytes))),
            (Some(relay), What::Taken(count)) => self.on_room(relay, count as usize),
            (Some(relay), What::End) => {
                self.acts.push((relay, RelayAct::EndOutput));
                self.relays.get_mut(&relay).into_iter().for_each(|one| one.has_ended_there = true);
                self.forget_if_over(relay);
            }
            (Some(relay), What::Close) => self.forget(relay),
        }
    }

    /// Handles an event of the socket at this end of the relay.
    pub fn on_event(&mut self, relay: RelayId, event: RelayEvent) {
        let Some(one) = self.relays.get_mut(&relay) else { return };
        match event {
            RelayEvent::Connected => self.tell(relay, What::Connected),
            RelayEvent::Bytes(bytes) => {
                one.under_way += bytes.len();
                if one.under_way >= RELAY_WINDOW_BYTES && !std::mem::replace(&mut one.is_stopped, true) {
                    self.acts.push((relay, RelayAct::Read(false)));
                }
                self.tell(relay, What::Bytes(bytes));
            }
            RelayEvent::Taken(count) => {
                one.untold += count;
                if one.untold >= TELL_BYTES {
                    let count = std::mem::take(&mut one.untold);
                    self.tell(relay, What::Taken(count));
                }
            }
            RelayEvent::End => {
                one.has_ended_here = true;
                self.tell(relay, What::End);
                self.forget_if_over(relay);
            }
            RelayEvent::Gone => {
                self.tell(relay, What::Close);
                self.forget(relay);
            }
        }
    }

    /// Whether there are actions or messages.
    pub fn has_news(&self) -> bool {
        !self.acts.is_empty() || !self.messages.is_empty()
    }

    /// Removes and returns the actions for sockets of this node, in order.
    pub fn take_acts(&mut self) -> Vec<(RelayId, RelayAct)> {
        std::mem::take(&mut self.acts)
    }

    /// Messages to the agents of other nodes, in order.
    pub fn take_messages(&mut self) -> Vec<(NodeId, Between)> {
        std::mem::take(&mut self.messages)
    }

    /// Adds a relay. `number`: the number that is used by another node's agent, which has opened the relay; `None`:
    /// this agent opens the relay.
    fn insert(&mut self, node: NodeId, number: Option<u32>) -> RelayId {
        self.last += 1;
        let relay = RelayId(self.last);
        if let Some(number) = number {
            self.accepted.insert((node, number), relay);
        }
        let one = Relay {
            node,
            number: number.unwrap_or(self.last),
            is_own: number.is_none(),
            under_way: 0,
            is_stopped: false,
            untold: 0,
            has_ended_here: false,
            has_ended_there: false,
        };
        self.relays.insert(relay, one);
        relay
    }

    /// Bytes have reached the rank at the other end.
    fn on_room(&mut self, relay: RelayId, count: usize) {
        let Some(one) = self.relays.get_mut(&relay) else { return };
        one.under_way = one.under_way.saturating_sub(count);
        if one.under_way <= RELAY_WINDOW_BYTES / 2 && std::mem::take(&mut one.is_stopped) {
            self.acts.push((relay, RelayAct::Read(true)));
        }
    }

    fn tell(&mut self, relay: RelayId, what: What) {
        if let Some(Relay { node, number, is_own, .. }) = self.relays.get(&relay) {
            self.messages.push((*node, Between { number: *number, by_opener: *is_own, what }));
        }
    }

    fn forget_if_over(&mut self, relay: RelayId) {
        if self.relays.get(&relay).is_some_and(|one| one.has_ended_here && one.has_ended_there) {
            self.forget(relay);
        }
    }

    fn forget(&mut self, relay: RelayId) {
        if let Some(one) = self.relays.remove(&relay) {
            if !one.is_own {
                self.accepted.remove(&(one.node, one.number));
            }
            self.acts.push((relay, RelayAct::Close));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use wireup_wire::ids::{LocalRank, Rank};

    const NODES: [NodeId; 2] = [NodeId(0), NodeId(1)];

    fn target() -> Target {
        Target { rank: Rank(7), name: Bytes::from_static(b"net") }
    }

    fn hand() -> RelayAct {
        RelayAct::Hand { client: LocalRank(0).into(), reply: Bytes::new(), refusal: Bytes::new() }
    }

    /// Two agents, and what arrives at the sockets of one relay.
    #[derive(Default)]
    struct Pair {
        ends: [Relays; 2],
        socket: [Option<RelayId>; 2],
        /// Bytes to be written to the socket, for each end.
        queue: [VecDeque<Bytes>; 2],
        arrived: [Vec<u8>; 2],
        reads: [bool; 2],
        ended: [bool; 2],
        closed: [bool; 2],
    }

    impl Pair {
        fn new() -> Pair {
            let mut pair = Pair { reads: [true; 2], ..Pair::default() };
            assert!(pair.ends[0].open(NODES[1], target(), hand()));
            pair.settle();
            pair
        }

        /// Delivers messages until none is in transit.
        fn settle(&mut self) {
            loop {
                let mut is_quiet = true;
                for at in 0..2 {
                    for (relay, act) in self.ends[at].take_acts() {
                        is_quiet = false;
                        match act {
                            RelayAct::Hand { .. } | RelayAct::Connect { .. } => self.socket[at] = Some(relay),
                            RelayAct::Write(bytes) => self.queue[at].push_back(bytes),
                            RelayAct::Read(on) => self.reads[at] = on,
                            RelayAct::EndOutput => self.ended[at] = true,
                            RelayAct::Close => self.closed[at] = true,
                        }
                    }
                    for (node, message) in self.ends[at].take_messages() {
                        is_quiet = false;
                        assert_eq!(node, NODES[1 - at]);
                        self.ends[1 - at].on_message(NODES[at], message, |_| Some(Bytes::from_static(b"here")));
                    }
                }
                if is_quiet {
                    return;
                }
            }
        }

        fn event(&mut self, at: usize, event: RelayEvent) {
            let relay = self.socket[at].expect("there is a socket");
            self.ends[at].on_event(relay, event);
            self.settle();
        }

        /// The rank reads one piece.
        fn read(&mut self, at: usize) {
            if let Some(bytes) = self.queue[at].pop_front() {
                self.arrived[at].extend_from_slice(&bytes);
                self.event(at, RelayEvent::Taken(bytes.len() as u32));
            }
        }
    }

    proptest! {
        #[test]
        fn bytes_arrive_in_order_and_few_are_under_way(
            steps in proptest::collection::vec((0..2_usize, any::<bool>(), 1..40_000_usize), 0..200)
        ) {
            let mut pair = Pair::new();
            let mut sent = [Vec::new(), Vec::new()];
            for (at, writes, len) in steps {
                if !writes {
                    pair.read(at);
                } else if pair.reads[at] {
                    let bytes = vec![len as u8; len];
                    sent[at].extend_from_slice(&bytes);
                    pair.event(at, RelayEvent::Bytes(bytes.into()));
                }
                for at in 0..2 {
                    let queued: usize = pair.queue[at].iter().map(Bytes::len).sum();
                    prop_assert!(queued < RELAY_WINDOW_BYTES + 40_000);
                }
            }
            for at in [0, 1] {
                while !pair.queue[at].is_empty() {
                    pair.read(at);
                }
            }
            // Both ends read their sockets again.
            prop_assert_eq!(pair.reads, [true, true]);
            pair.event(0, RelayEvent::End);
            prop_assert_eq!((pair.ended, pair.closed), ([false, true], [false, false]));
            pair.event(1, RelayEvent::End);
            prop_assert_eq!((pair.ended, pair.closed), ([true, true], [true, true]));
            prop_assert_eq!([&pair.arrived[1], &pair.arrived[0]], [&sent[0], &sent[1]]);
            prop_assert!(pair.ends.iter().all(|end| end.relays.is_empty() && end.accepted.is_empty()));
        }
    }

    #[test]
    fn the_opener_is_told_that_the_rank_is_connected() {
        let mut pair = Pair::new();
        assert!(pair.queue[0].is_empty());
        pair.event(1, RelayEvent::Connected);
        assert_eq!((&pair.queue[0][0][..], pair.queue[1].len()), (&[IS_CONNECTED][..], 0));
    }

    #[test]
    fn a_broken_socket_closes_the_other_at_once() {
        for at in [0, 1] {
            let mut pair = Pair::new();
            pair.event(at, RelayEvent::Gone);
            assert_eq!(pair.closed, [true, true]);
            assert!(pair.ends.iter().all(|end| end.relays.is_empty() && end.accepted.is_empty()));
            pair.event(1 - at, RelayEvent::Bytes(Bytes::from_static(b"late")));
        }
    }

    #[test]
    fn a_rank_that_has_told_no_address_is_refused() {
        let mut here = Relays::default();
        let open = Between { number: 5, by_opener: true, what: What::Open(target()) };
        here.on_message(NODES[1], open.clone(), |_| None);
        assert_eq!(here.take_messages(), [(NODES[1], open.refused().unwrap())]);
        assert!(here.take_acts().is_empty() && here.relays.is_empty());
    }

    #[test]
    fn another_nodes_relay_is_not_touched() {
        let mut here = Relays::default();
        assert!(here.open(NODES[1], target(), hand()));
        here.take_acts();
        here.on_message(NodeId(2), Between { number: 1, by_opener: false, what: What::Close }, |_| None);
        assert!(here.take_acts().is_empty() && here.relays.len() == 1);
    }

    #[test]
    fn a_node_has_a_bounded_number_of_relays() {
        let mut here = Relays::default();
        (0..RELAYS_MAX).for_each(|_| assert!(here.open(NODES[1], target(), hand())));
        assert!(!here.open(NODES[1], target(), hand()));
        here.take_messages();
        let open = Between { number: 1, by_opener: true, what: What::Open(target()) };
        here.on_message(NODES[1], open, |_| Some(Bytes::new()));
        assert!(matches!(&here.take_messages()[..], [(_, Between { what: What::Close, .. })]));
    }
}
