//! Several endpoints, connected by a bad network in which strangers send too.

use super::open::DATA;
use super::*;
use crate::network::carrier::{ConnectionEvent, Number, Word};
use proptest::prelude::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use wireup_group::connections::{Connections, Route, Verdict};

const SECRET: Secret = [5; 32];
const DATAGRAM_LEN: usize = 200;
/// The place of a rank that does not exist.
const NOWHERE: u8 = 255;

/// Network faults: probabilities in percent, and the maximum delay.
#[derive(Clone, Copy, Default, Debug)]
struct Weather {
    lost: u64,
    repeated: u64,
    changed: u64,
    cut: u64,
    /// Probability (percent) that a stranger sends an earlier datagram again.
    replayed: u64,
    delay_ms_max: u64,
}

struct End {
    endpoint: Endpoint,
    connections: Connections,
    waiting: BTreeMap<u32, Vec<Vec<u8>>>,
    got: BTreeMap<u32, Vec<Vec<u8>>>,
    goodbyes: Vec<u32>,
    lost: Vec<u32>,
    /// The time (ms) until which this rank computes, and reads no datagrams.
    busy_until: u64,
}

#[derive(Clone)]
struct Datagram {
    to: u8,
    bytes: Vec<u8>,
}

struct World {
    ends: Vec<End>,
    weather: Weather,
    seed: u64,
    now: u64,
    last: u64,
    under_way: BTreeMap<(u64, u64), Datagram>,
    history: Vec<Datagram>,
}

impl World {
    fn new(size: u32, weather: Weather, seed: u64) -> World {
        let end = |me| End {
            endpoint: Endpoint::new(me, &SECRET, vec![me as u8], DATAGRAM_LEN).unwrap(),
            connections: Connections::default(),
            waiting: BTreeMap::new(),
            got: BTreeMap::new(),
            goodbyes: vec![],
            lost: vec![],
            busy_until: 0,
        };
        let (under_way, history) = (BTreeMap::new(), vec![]);
        World { ends: (0..size).map(end).collect(), weather, seed, now: 0, last: 0, under_way, history }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    fn send(&mut self, from: u32, to: u32, message: &[u8]) {
        let now = self.now;
        let end = &mut self.ends[from as usize];
        match end.connections.route(to) {
            Route::Open(number) => return end.endpoint.send(number, message),
            Route::Dial => {
                let number = end.endpoint.dial(now, to, end.connections.closed(to), Some(vec![to as u8]));
                end.connections.on_dial(to, number);
            }
            Route::Wait => {}
            Route::Nowhere => return end.lost.push(to),
        }
        end.waiting.entry(to).or_default().push(message.to_vec());
    }

    /// Reacts like [`crate::network::Network`].
    fn on_happened(&mut self, me: u32, Happened { number, peer, event }: Happened) {
        let End { endpoint, connections, goodbyes, got, lost, .. } = &mut self.ends[me as usize];
        match event {
            ConnectionEvent::Proved { was_dialled, closed } => {
                if was_dialled {
                    connections.on_dialled(peer, number);
                } else {
                    match connections.on_hello(me, (peer, closed), number, |_| true) {
                        Verdict::Keep => {}
                        Verdict::KeepInsteadOf(other) => endpoint.close(other),
                        Verdict::Refuse => return endpoint.close(number),
                    }
                }
                self.send_waiting(me, peer);
            }
            ConnectionEvent::Message(bytes) => got.entry(peer).or_default().push(bytes),
            ConnectionEvent::Said(Word::Goodbye) => {
                connections.on_left(peer);
                endpoint.close(number);
                goodbyes.push(peer);
            }
            ConnectionEvent::Said(_) => panic!("connections stay"),
            ConnectionEvent::Unanswered | ConnectionEvent::Finished => {}
            ConnectionEvent::Over { is_lost } => {
                assert!(is_lost && connections.on_closed(peer, number));
                lost.push(peer);
            }
        }
    }

    fn send_waiting(&mut self, me: u32, peer: u32) {
        for message in self.ends[me as usize].waiting.remove(&peer).unwrap_or_default() {
            self.send(me, peer, &message);
        }
    }

    fn carry(&mut self, datagram: Datagram) {
        assert!(datagram.bytes.len() <= DATAGRAM_LEN);
        self.history.push(datagram.clone());
        let Weather { lost, repeated, changed, cut, replayed, .. } = self.weather;
        let copies = 1 + u64::from(self.random(100) < repeated);
        for _ in 0..copies {
            let mut copy = datagram.clone();
            if self.random(100) < changed {
                let at = self.random(copy.bytes.len() as u64) as usize;
                copy.bytes[at] ^= 1 << self.random(8);
            }
            if self.random(100) < cut {
                let len = self.random(copy.bytes.len() as u64) as usize;
                copy.bytes.truncate(len);
            }
            if self.random(100) >= lost {
                self.deliver_later(copy);
            }
        }
        if self.random(100) < replayed {
            let nth = self.random(self.history.len() as u64) as usize;
            self.deliver_later(self.history[nth].clone());
        }
    }

    fn deliver_later(&mut self, datagram: Datagram) {
        let at = self.now + 1 + self.random(self.weather.delay_ms_max + 1);
        self.last += 1;
        self.under_way.insert((at, self.last), datagram);
    }

    /// Processes everything that is due at the current time.
    fn settle(&mut self) {
        for me in 0..self.ends.len() {
            if self.ends[me].busy_until > self.now {
                continue;
            }
            self.ends[me].endpoint.on_tick(self.now);
            while let Some(happened) = self.ends[me].endpoint.poll() {
                self.on_happened(me as u32, happened);
            }
            let (mut to, mut bytes) = (vec![], vec![]);
            while self.ends[me].endpoint.transmit(self.now, &mut to, &mut bytes) {
                self.carry(Datagram { to: to[0], bytes: bytes.clone() });
            }
        }
    }

    /// Advances the time until `is_over` returns `true`.
    fn run_until(&mut self, is_over: impl Fn(&World) -> bool) {
        let until = self.now + 10_000_000;
        loop {
            self.settle();
            if is_over(self) {
                return;
            }
            let deadlines = self.ends.iter().filter_map(|end| Some(end.endpoint.deadline()?.max(end.busy_until)));
            let arrivals = self.under_way.iter().next().map(|((at, _), datagram)| {
                (*at).max(self.ends.get(usize::from(datagram.to)).map_or(0, |end| end.busy_until))
            });
            let next = deadlines.chain(arrivals).min().expect("something is to happen");
            assert!(next < until, "it takes forever");
            self.now = next.max(self.now);
            let arrived: Vec<(u64, u64)> = self.under_way.range(..=(self.now, u64::MAX)).map(|(key, _)| *key).collect();
            for key in arrived {
                self.arrive(key);
            }
        }
    }

    fn arrive(&mut self, key: (u64, u64)) {
        let to = usize::from(self.under_way[&key].to);
        if self.ends.get(to).is_some_and(|end| end.busy_until > self.now) {
            return;
        }
        let datagram = self.under_way.remove(&key);
        // A datagram for a rank that does not exist is dropped.
        if let Some((end, datagram)) = self.ends.get_mut(to).zip(datagram) {
            end.endpoint.on_datagram(self.now, &datagram.bytes);
        }
    }

    fn route(&self, from: u32, to: u32) -> Route {
        self.ends[from as usize].connections.route(to)
    }
}

fn weather() -> impl Strategy<Value = Weather> {
    let all = [0u64..40, 0..30, 0..20, 0..10, 0..30, 0..100];
    all.prop_map(|all| {
        let [lost, repeated, changed, cut, replayed, delay_ms_max] = all;
        Weather { lost, repeated, changed, cut, replayed, delay_ms_max }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn messages_arrive_once_and_in_order_over_one_connection(
        weather in weather(),
        seed: u64,
        sends in proptest::collection::vec((0u32..3, 1u32..3, 2usize..900, 0u64..200), 1..12),
        busy in 0u64..5_000,
    ) {
        let mut world = World::new(3, weather, seed);
        let mut wanted: BTreeMap<(u32, u32), Vec<Vec<u8>>> = BTreeMap::new();
        for (nth, (from, distance, len, pause)) in sends.into_iter().enumerate() {
            let (to, message) = ((from + distance) % 3, vec![nth as u8 + 1; len]);
            world.send(from, to, &message);
            wanted.entry((from, to)).or_default().push(message);
            let until = world.now + pause;
            world.ends[nth % 3].busy_until = until + busy;
            // Two ends may dial each other at the same time.
            world.run_until(|world| world.now >= until || world.under_way.is_empty());
        }
        let count = |world: &World, from: u32, to: u32| world.ends[to as usize].got.get(&from).map_or(0, Vec::len);
        world.run_until(|world| wanted.iter().all(|((from, to), all)| count(world, *from, *to) >= all.len()));
        world.run_until(|world| world.ends.iter().all(|end| end.endpoint.unsent(world.now) == Unsent::Nothing));
        for ((from, to), all) in &wanted {
            prop_assert_eq!(&world.ends[*to as usize].got[from], all);
            let both = [world.route(*from, *to), world.route(*to, *from)];
            prop_assert!(matches!(both, [Route::Open(_), Route::Open(_)]), "{:?}", both);
        }
        for end in &world.ends {
            prop_assert!(end.lost.is_empty() && end.connections.open() <= 2);
            prop_assert_eq!(end.endpoint.connections(), end.connections.open());
        }
    }

    #[test]
    fn all_leave_in_order(weather in weather(), seed: u64, both_dial: bool) {
        let mut world = World::new(2, weather, seed);
        world.send(0, 1, b"hello");
        if both_dial {
            world.send(1, 0, b"hello");
        }
        world.run_until(|world| world.ends[1].got.contains_key(&0));
        world.run_until(|world| !both_dial || world.ends[0].got.contains_key(&1));
        world.ends[0].endpoint.say_goodbye();
        world.run_until(|world| world.ends[1].goodbyes == [0]);
        world.run_until(|world| world.under_way.is_empty());
        prop_assert_eq!(world.route(1, 0), Route::Nowhere);
        prop_assert!(world.ends[1].endpoint.connections() == 0 && world.ends[1].lost.is_empty());
    }
}

/// Without the answers, rank 0 would wait forever.
#[test]
fn a_rank_that_leaves_answers_goodbyes_until_the_other_is_done() {
    let mut world = World::new(2, Weather::default(), 1);
    world.send(0, 1, b"hello");
    world.run_until(|world| world.ends[1].got.contains_key(&0));
    world.send(0, 1, b"last words");
    world.ends[0].endpoint.say_goodbye();
    world.run_until(|world| world.ends[1].goodbyes == [0]);
    world.ends[1].endpoint.say_goodbye();
    // The acknowledgement of the first goodbye is lost.
    world.under_way.clear();
    assert_eq!(world.ends[1].endpoint.unsent(world.now), Unsent::Goodbyes);
    let before = world.now;
    world.run_until(|world| world.ends[0].endpoint.unsent(world.now) == Unsent::Nothing);
    assert_eq!(world.ends[1].endpoint.unsent(world.now), Unsent::Goodbyes);
    world.run_until(|world| world.ends[1].endpoint.unsent(world.now) == Unsent::Nothing);
    assert!(world.now < before + 1_000);
    // A leaving rank does not wait forever for a peer that has exited.
    assert_eq!(world.ends[1].endpoint.unsent(world.now + 10_000), Unsent::Nothing);
    assert!(world.ends.iter().all(|end| end.lost.is_empty()) && world.ends[1].got[&0].len() == 2);
}

/// An allocator that counts the allocations of the current thread.
struct Counting;

std::thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATED.try_with(|count| count.set(count.get() + 1));
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn nothing_is_allocated_or_answered_for_strangers() {
    let mut world = World::new(2, Weather::default(), 1);
    world.send(0, 1, b"hello");
    world.send(1, 0, b"hello");
    world.run_until(|world| {
        world.ends.iter().all(|end| !end.got.is_empty() && end.endpoint.unsent(world.now) == Unsent::Nothing)
    });
    // A dial that is still in progress.
    let dialled: Number = world.ends[1].endpoint.dial(world.now, 7, 0, Some(vec![NOWHERE]));
    world.settle();
    let mut datagrams: Vec<Vec<u8>> = world.history.iter().map(|datagram| datagram.bytes.clone()).collect();
    let kinds = |kind| datagrams.iter().filter(|bytes| bytes[0] == kind).count();
    assert!([handshake::HELLO, handshake::WELCOME, DATA].map(kinds).iter().all(|count| *count > 0));
    for at in 0..datagrams.len() {
        let bytes = datagrams[at].clone();
        datagrams.extend((0..bytes.len()).step_by(7).map(|len| bytes[..len].to_vec()));
        for changed in (0..bytes.len()).step_by(3) {
            let mut forged = bytes.clone();
            forged[changed] ^= 0x40;
            datagrams.push(forged);
        }
    }
    let welcome = [&[handshake::WELCOME][..], &dialled.to_le_bytes(), &[9; 80]].concat();
    let hello = [&[handshake::HELLO, 9, 0, 0, 0, 1][..], &[0; 90]].concat();
    datagrams.extend([welcome, hello, vec![DATA; 100], vec![0; 100], vec![77; DATAGRAM_LEN + 1], vec![]]);
    let endpoint = &mut world.ends[1].endpoint;
    let (mut to, mut bytes) = (Vec::with_capacity(100), Vec::with_capacity(1000));
    let before = ALLOCATED.get();
    for datagram in &datagrams {
        endpoint.on_datagram(world.now, datagram);
        assert!(endpoint.poll().is_none() && !endpoint.transmit(world.now, &mut to, &mut bytes), "{datagram:?}");
    }
    assert_eq!(ALLOCATED.get() - before, 0, "after {} datagrams", datagrams.len());
    // The forged datagrams have changed nothing: the connection still works.
    world.send(0, 1, b"again");
    world.run_until(|world| world.ends[1].got[&0].len() == 2);
}
