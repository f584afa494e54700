//! Tests requests in a bad network with a clock of its own, and two connection managers over loopback.

use super::*;
use crate::network::carrier::{ConnectionEvent, SERVER};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SECRET: Secret = [6; 32];

/// The addresses of a rank: a rank answers from each of them.
fn places(rank: u32) -> Vec<SocketAddr> {
    [1, 2].map(|network| SocketAddr::new(Ipv4Addr::new(10, network, 0, rank as u8).into(), 9)).into()
}

fn rank_at(place: &SocketAddr) -> u32 {
    let SocketAddr::V4(v4) = place else { panic!("an address of this network") };
    v4.ip().octets()[3].into()
}

/// The requests of several ranks, in a network that loses, repeats and delays datagrams, and in which strangers send
/// old ones again.
struct World {
    ends: Vec<Requests>,
    settled: Vec<Vec<Settled>>,
    sent: usize,
    seed: u64,
    /// Probability (percent) that a datagram is lost, repeated, or sent again later by a stranger.
    faults: [u64; 3],
    now: u64,
    /// Source, destination and bytes of each datagram under way, by its time of arrival and its number.
    under_way: BTreeMap<(u64, u64), (SocketAddr, SocketAddr, Vec<u8>)>,
}

impl World {
    fn new(size: u32, seed: u64, faults: [u64; 3]) -> World {
        let ends = (0..size).map(|me| Requests::new(me, &SECRET).unwrap()).collect();
        let settled = (0..size).map(|_| Vec::new()).collect();
        World { ends, settled, sent: 0, seed, faults, now: 0, under_way: BTreeMap::new() }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    fn ask(&mut self, from: u32, to: u32, number: Number) {
        let dial = Dial { to, address: Vec::new(), closed: 0 };
        self.ends[from as usize].ask(self.now, number, dial, places(to));
    }

    fn deliver_later(&mut self, datagram: (SocketAddr, SocketAddr, Vec<u8>), delay_max: u64) {
        let at = self.now + 1 + self.random(delay_max);
        self.under_way.insert((at, self.seed), datagram);
    }

    /// Runs until no request is pending and no datagram under way.
    fn run(&mut self) {
        loop {
            for me in 0..self.ends.len() {
                self.ends[me].on_tick(self.now);
                self.settled[me].extend(core::iter::from_fn(|| self.ends[me].poll()));
                while let Some((to, bytes)) = self.ends[me].transmit() {
                    self.sent += 1;
                    let datagram = (places(me as u32)[0], to, bytes);
                    let [lost, repeated, replayed] = self.faults.map(|percent| self.random(100) < percent);
                    if !lost {
                        self.deliver_later(datagram.clone(), 100);
                    }
                    if repeated {
                        self.deliver_later(datagram.clone(), 100);
                    }
                    if replayed {
                        let stranger = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1);
                        self.deliver_later((stranger, datagram.1, datagram.2), 5_000);
                    }
                }
            }
            let arrival = self.under_way.first_key_value().map(|((at, _), _)| *at);
            let deadlines = self.ends.iter().filter_map(Requests::deadline);
            let Some(next) = deadlines.chain(arrival).min() else { return };
            self.now = next.max(self.now);
            while let Some(first) = self.under_way.first_entry().filter(|first| first.key().0 <= self.now) {
                let (from, to, bytes) = first.remove();
                // An answer to a stranger reaches no rank.
                if to.ip().is_loopback() {
                    continue;
                }
                let me = rank_at(&to) as usize;
                let connecting: Vec<u32> = self.settled[me].iter().map(|settled| settled.dial.to).collect();
                self.ends[me].on_datagram(from, &bytes, |peer| connecting.contains(&peer));
            }
        }
    }

    fn accepted(&self, me: usize) -> usize {
        self.settled[me].iter().filter(|settled| settled.accepted_at.is_some()).count()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn each_request_is_settled_once_after_a_bounded_number_of_datagrams(
        seed: u64,
        faults in [0u64..100, 0..50, 0..50],
        asks in proptest::collection::btree_set((0u32..4, 0u32..4), 0..9),
    ) {
        let mut world = World::new(4, seed, faults);
        let asks: Vec<(u32, u32)> = asks.into_iter().filter(|(from, to)| from != to).collect();
        for (number, (from, to)) in (2..).zip(&asks) {
            world.ask(*from, *to, number);
        }
        world.run();
        for (number, (from, to)) in (2..).zip(&asks) {
            let of_it = |settled: &&Settled| settled.number == number;
            let all: Vec<&Settled> = world.settled[*from as usize].iter().filter(of_it).collect();
            prop_assert_eq!(all.len(), 1);
            prop_assert_eq!(all[0].dial.to, *to);
            prop_assert!(all[0].accepted_at.is_none_or(|place| rank_at(&place) == *to || place.ip().is_loopback()));
        }
        // A request has nine datagrams, and each of them or its copies at most one answer each.
        prop_assert!(world.sent <= asks.len() * 9 * 4);
        // Of two requests that cross, at most that of the lower rank is accepted.
        for (from, to) in asks.iter().filter(|(from, to)| from > to && asks.contains(&(*to, *from))) {
            let is_accepted = |settled: &Settled| settled.dial.to == *to && settled.accepted_at.is_some();
            prop_assert!(!world.settled[*from as usize].iter().any(is_accepted));
        }
    }
}

#[test]
fn a_request_is_accepted_at_once_where_nothing_is_lost() {
    let mut world = World::new(2, 1, [0; 3]);
    world.ask(0, 1, 2);
    world.ask(1, 0, 2);
    world.run();
    assert_eq!([world.accepted(0), world.accepted(1)], [1, 0]);
}

#[test]
fn a_request_that_arrives_just_behind_an_accept_is_not_accepted() {
    let [mut low, mut high] = [2, 3].map(|me| Requests::new(me, &SECRET).unwrap());
    let dial = |to| Dial { to, address: Vec::new(), closed: 0 };
    low.ask(0, 7, dial(3), vec![places(3)[0]]);
    low.on_tick(0);
    high.on_datagram(places(2)[0], &low.transmit().unwrap().1, |_| false);
    let accept = high.transmit().unwrap().1;
    high.ask(0, 8, dial(2), vec![places(2)[0]]);
    high.on_tick(0);
    // One turn reads both, before the connection that was accepted is begun.
    low.on_datagram(places(3)[0], &accept, |_| false);
    low.on_datagram(places(3)[0], &high.transmit().unwrap().1, |_| false);
    assert_eq!(low.transmit(), None);
}

#[test]
fn strangers_and_wrong_ranks_settle_nothing_and_get_no_answer() {
    let [mut one, mut other] = [0, 1].map(|me| Requests::new(me, &SECRET).unwrap());
    let mut third = Requests::new(2, &SECRET).unwrap();
    let (place, dial) = (places(1)[0], Dial { to: 1, address: Vec::new(), closed: 0 });
    one.ask(0, 7, dial.clone(), vec![place]);
    one.on_tick(0);
    let request = one.transmit().unwrap().1;
    assert_eq!(request.len(), LEN);
    other.on_datagram(place, &request, |_| false);
    let accept = other.transmit().unwrap().1;
    // The accept of rank 2, for its own request with the same number.
    third.ask(0, 7, Dial { to: 1, ..dial }, vec![place]);
    third.on_tick(0);
    other.on_datagram(place, &third.transmit().unwrap().1, |_| false);
    let wrong = other.transmit().unwrap().1;
    let mut forged = vec![wrong, request.clone(), Vec::new(), vec![5; LEN], accept[..LEN - 1].to_vec()];
    forged.extend((0..LEN).map(|at| {
        let mut changed = accept.clone();
        changed[at] ^= 1;
        changed
    }));
    for bytes in &forged {
        one.on_datagram(place, bytes, |_| false);
        assert_eq!((one.poll(), one.transmit()), (None, None), "{bytes:?}");
    }
    let mut of_other_job = Requests::new(1, &[7; 32]).unwrap();
    of_other_job.on_datagram(place, &request, |_| false);
    assert_eq!(of_other_job.transmit(), None);
    one.on_datagram(place, &accept, |_| false);
    assert!(one.poll().is_some_and(|settled| settled.accepted_at == Some(place)));
}

/// A connection manager over loopback, and its address.
fn manager(me: u32) -> (Manager, Vec<u8>) {
    let (listening, datagrams, port) = listen_both().unwrap();
    let host = wireup_capi::net::host_number();
    let tcp = Tcp::new(listening, me, host, SECRET).unwrap();
    (Manager::new(me, &SECRET, tcp, datagrams).unwrap(), wireup_wire::rank_address::encode(host, port, &[]))
}

/// Lets a connection manager do what it can within a millisecond.
fn drive(one: &mut Manager) {
    let mut events = Vec::new();
    one.flush();
    one.epoll().wait(1, &mut events);
    events.iter().filter(|event| event.token != SERVER).for_each(|event| one.on_event(*event));
    one.flush();
}

/// Runs connection managers until `look` finds something.
fn run_until<T>(all: &mut [&mut Manager], mut look: impl FnMut(&mut [&mut Manager]) -> Option<T>) -> T {
    let until = now_ms() + 30_000;
    loop {
        all.iter_mut().for_each(|one| drive(one));
        if let Some(found) = look(all) {
            return found;
        }
        assert!(now_ms() < until, "nothing happens");
    }
}

fn is_proved(event: &ConnectionEvent) -> bool {
    matches!(event, ConnectionEvent::Proved { .. })
}

#[test]
fn of_two_crossing_requests_only_that_of_the_lower_rank_becomes_a_connection() {
    let ((mut low, low_address), (mut high, high_address)) = (manager(3), manager(5));
    low.dial(5, &high_address, 0);
    let abandoned = high.dial(3, &low_address, 0);
    // Both requests are under way before either rank reads one.
    low.flush();
    high.flush();
    let accepted = run_until(&mut [&mut low, &mut high], |all| {
        assert!(!all[1].tcp.is_connecting(3));
        all[1].poll()
    });
    assert_eq!((accepted.peer, accepted.event), (3, ConnectionEvent::Proved { was_dialled: false, closed: 0 }));
    high.close(abandoned);
    let dialled = run_until(&mut [&mut low, &mut high], |all| all[0].poll());
    assert_eq!((dialled.peer, dialled.event), (5, ConnectionEvent::Proved { was_dialled: true, closed: 0 }));
    assert_eq!((low.requests.deadline(), high.requests.deadline()), (None, None));
}

#[test]
fn lost_requests_and_accepts_are_repeated() {
    let ((mut one, _), (mut other, address)) = (manager(3), manager(5));
    one.dial(5, &address, 0);
    for is_request_lost in [true, false] {
        run_until(&mut [&mut one], |_| other.datagrams.receive(&mut [0; LEN]).map(drop));
        if !is_request_lost {
            // The request arrives, and the accept is lost.
            run_until(&mut [&mut one], |_| {
                other.receive();
                other.requests.transmit()
            });
        }
    }
    assert!(one.requests.deadline().is_some());
    let proved = run_until(&mut [&mut one, &mut other], |all| all[0].poll());
    assert!(is_proved(&proved.event));
}

#[test]
fn a_rank_that_exits_after_it_has_accepted_is_reported_as_unreachable() {
    let ((mut one, _), (mut other, address)) = (manager(3), manager(5));
    let number = one.dial(5, &address, 0);
    one.flush();
    run_until(&mut [], |_| {
        other.receive();
        let (to, accept) = other.requests.transmit()?;
        assert!(other.datagrams.send(&to, &accept));
        Some(())
    });
    drop(other);
    let over = run_until(&mut [&mut one], |all| all[0].poll());
    assert_eq!(over, Happened { number, peer: 5, event: ConnectionEvent::Over { is_lost: true } });
    // A second dial learns from the rank's host that nobody is there.
    one.dial(5, &address, 0);
    let over = run_until(&mut [&mut one], |all| all[0].poll());
    assert_eq!(over.event, ConnectionEvent::Over { is_lost: true });
}

#[test]
fn a_rank_that_accepts_nothing_for_long_is_connected_to() {
    let ((mut one, _), (mut other, address)) = (manager(3), manager(5));
    one.dial(5, &address, 0);
    run_until(&mut [&mut one], |all| all[0].tcp.is_connecting(5).then_some(()));
    assert_eq!(one.requests.deadline(), None);
    let proved = run_until(&mut [&mut one, &mut other], |all| all[1].poll());
    assert!(is_proved(&proved.event));
}
