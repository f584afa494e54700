//! Which connection leads to which rank: made when first needed, and one only, also where both ends dial at once.
//!
//! ```text
//!   none ──need──► dialling ──connected──► open ──goodbye──► none
//!     └──────── a hello arrives ─────────────▲
//!   dialling, and a hello arrives: the connection that the lower rank dialled stays
//! ```
//!
//! A rank that has said goodbye has left: a hello of it that arrives now is of a dial that it gave up before.

use alloc::collections::BTreeMap;

/// The driver's number for a connection; never used twice.
pub type Number = u64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Dialling(Number),
    Open { number: Number, was_dialled: bool },
    Left,
}

#[derive(Default)]
pub struct Connections {
    peers: BTreeMap<u32, State>,
}

/// Where messages for a rank go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    Open(Number),
    /// They wait: it is being dialled.
    Wait,
    /// They wait: dial it.
    Dial,
    /// It has left.
    Nowhere,
}

/// What to do with a connection whose dialler has said who it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Keep,
    /// And close this one, which was being dialled.
    KeepInsteadOf(Number),
    Refuse,
}

impl Connections {
    pub fn route(&self, to: u32) -> Route {
        match self.peers.get(&to) {
            None => Route::Dial,
            Some(State::Dialling(_)) => Route::Wait,
            Some(State::Open { number, .. }) => Route::Open(*number),
            Some(State::Left) => Route::Nowhere,
        }
    }

    /// The rank is being dialled.
    pub fn on_dial(&mut self, to: u32, number: Number) {
        self.peers.insert(to, State::Dialling(number));
    }

    /// A connection that this process has dialled is proved.
    pub fn on_dialled(&mut self, to: u32, number: Number) {
        self.peers.insert(to, State::Open { number, was_dialled: true });
    }

    /// Another process has connected and proved that it is `from`.
    pub fn on_hello(&mut self, me: u32, from: u32, number: Number) -> Verdict {
        let verdict = match self.peers.get(&from) {
            None => Verdict::Keep,
            Some(State::Left) => Verdict::Refuse,
            // Also when its hello is late, and this process's own dial has been taken.
            Some(State::Dialling(_) | State::Open { was_dialled: true, .. }) if me < from => Verdict::Refuse,
            Some(State::Dialling(dialled)) => Verdict::KeepInsteadOf(*dialled),
            // The other end has given up the one that is open, and this process has not noticed yet.
            Some(State::Open { number, .. }) => Verdict::KeepInsteadOf(*number),
        };
        if verdict != Verdict::Refuse {
            self.peers.insert(from, State::Open { number, was_dialled: false });
        }
        verdict
    }

    /// A connection is closed; whether it was the one that leads to the rank.
    pub fn on_closed(&mut self, peer: u32, number: Number) -> bool {
        let current = self.peers.get(&peer);
        let is_current = matches!(current, Some(State::Dialling(at) | State::Open { number: at, .. }) if *at == number);
        if is_current {
            self.peers.remove(&peer);
        }
        is_current
    }

    /// A rank has said goodbye.
    pub fn on_left(&mut self, peer: u32) {
        self.peers.insert(peer, State::Left);
    }

    /// How many are open.
    pub fn open(&self) -> usize {
        self.peers.values().filter(|state| matches!(state, State::Open { .. })).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::vec::Vec;

    #[test]
    fn a_connection_is_dialled_once_and_then_used() {
        let mut connections = Connections::default();
        assert_eq!(connections.route(5), Route::Dial);
        connections.on_dial(5, 1);
        assert_eq!(connections.route(5), Route::Wait);
        connections.on_dialled(5, 1);
        assert_eq!((connections.route(5), connections.open()), (Route::Open(1), 1));
        assert!(!connections.on_closed(5, 9) && connections.on_closed(5, 1));
        assert_eq!(connections.route(5), Route::Dial);
    }

    /// Two processes that may dial each other at any time, with each dial, hello and refusal delayed as wished.
    #[derive(Default)]
    struct Two {
        ends: [Connections; 2],
        /// Under way to each: hellos of the other's dials, and the outcomes of its own.
        hellos: [VecDeque<Number>; 2],
        outcomes: [VecDeque<(Number, bool)>; 2],
        last: Number,
    }

    impl Two {
        fn need(&mut self, end: usize) {
            if self.ends[end].route(1 - end as u32) == Route::Dial {
                self.last += 1;
                self.ends[end].on_dial(1 - end as u32, self.last);
                self.hellos[1 - end].push_back(self.last);
            }
        }

        fn hear(&mut self, end: usize) {
            if let Some(number) = self.hellos[end].pop_front() {
                let verdict = self.ends[end].on_hello(end as u32, 1 - end as u32, number);
                self.outcomes[1 - end].push_back((number, verdict != Verdict::Refuse));
            }
        }

        fn learn(&mut self, end: usize) {
            let other = 1 - end as u32;
            if let Some((number, is_kept)) = self.outcomes[end].pop_front() {
                match self.ends[end].peers.get(&other) {
                    Some(State::Dialling(at)) if *at == number && is_kept => self.ends[end].on_dialled(other, number),
                    Some(State::Dialling(at)) if *at == number => drop(self.ends[end].on_closed(other, number)),
                    _ => {}
                }
            }
        }
    }

    proptest! {
        #[test]
        fn two_processes_that_dial_each_other_agree_on_one_connection(
            events in proptest::collection::vec((0usize..2, 0u8..3), 1..40),
        ) {
            let mut two = Two::default();
            for (end, event) in events {
                match event {
                    0 => two.need(end),
                    1 => two.hear(end),
                    _ => two.learn(end),
                }
            }
            two.need(0);
            for _ in 0..10 {
                for end in 0..2 {
                    two.hear(end);
                    two.learn(end);
                }
            }
            let routes: Vec<Route> = (0..2).map(|end| two.ends[end].route(1 - end as u32)).collect();
            prop_assert!(matches!(routes[0], Route::Open(_)) && routes[0] == routes[1], "{:?}", routes);
        }
    }
}
