//! Several ranks' links, connected by a reliable network with little room, in which strangers send too.

use super::open::{DATA, WINDOW};
use super::*;
use crate::network::carrier::{ConnectionEvent, Word};
use proptest::prelude::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::VecDeque;
use wireup_group::connections::{Connections, Route, Verdict};

const SECRET: Secret = [5; 32];
const MESSAGE_LEN: usize = 200;
/// Maximum number of messages on their way from one rank to another.
const ROOM: usize = 4;
/// Number of steps after which a test has failed.
const STEPS_MAX: usize = 200_000;

struct End {
    links: Links,
    connections: Connections,
    waiting: BTreeMap<u32, Vec<Vec<u8>>>,
    got: BTreeMap<u32, Vec<Vec<u8>>>,
    goodbyes: Vec<u32>,
    lost: Vec<u32>,
    /// Whether this rank computes, and neither reads nor sends.
    is_busy: bool,
}

struct World {
    ends: Vec<End>,
    /// Probability (percent) that a stranger sends something in a step.
    strangers: u64,
    seed: u64,
    under_way: BTreeMap<(u8, u8), VecDeque<Vec<u8>>>,
    now: u64,
    /// All messages that were sent, with their receivers.
    history: Vec<(u8, Vec<u8>)>,
}

impl World {
    fn new(size: u32, strangers: u64, seed: u64) -> World {
        let end = |me| End {
            links: Links::new(me, &SECRET, &[me as u8], MESSAGE_LEN).unwrap(),
            connections: Connections::default(),
            waiting: BTreeMap::new(),
            got: BTreeMap::new(),
            goodbyes: vec![],
            lost: vec![],
            is_busy: false,
        };
        World {
            ends: (0..size).map(end).collect(),
            strangers,
            seed,
            under_way: BTreeMap::new(),
            now: 0,
            history: vec![],
        }
    }

    fn random(&mut self, below: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) as usize % below.max(1)
    }

    fn send(&mut self, from: u32, to: u32, message: &[u8]) {
        let end = &mut self.ends[from as usize];
        match end.connections.route(to) {
            Route::Open(number) => return end.links.send(number, message),
            Route::Dial => {
                let number = end.links.dial(to, end.connections.closed(to), Some(&[to as u8]));
                end.connections.on_dial(to, number);
            }
            Route::Wait => {}
            Route::Nowhere => return end.lost.push(to),
        }
        end.waiting.entry(to).or_default().push(message.to_vec());
    }

    /// Reacts like [`crate::network::Network`].
    fn on_happened(&mut self, me: u32, Happened { number, peer, event }: Happened) {
        let End { links, connections, goodbyes, got, lost, .. } = &mut self.ends[me as usize];
        match event {
            ConnectionEvent::Proved { was_dialled, closed } => {
                if was_dialled {
                    connections.on_dialled(peer, number);
                } else {
                    match connections.on_hello(me, (peer, closed), number, |_| true) {
                        Verdict::Keep => {}
                        Verdict::KeepInsteadOf(other) => links.close(other),
                        Verdict::Refuse => return links.close(number),
                    }
                }
                for message in self.ends[me as usize].waiting.remove(&peer).unwrap_or_default() {
                    self.send(me, peer, &message);
                }
            }
            ConnectionEvent::Message(bytes) => got.entry(peer).or_default().push(bytes),
            ConnectionEvent::Said(Word::Goodbye) => {
                connections.on_left(peer);
                links.close(number);
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

    fn turn(&mut self, me: usize) {
        while let Some(happened) = self.ends[me].links.poll() {
            self.on_happened(me as u32, happened);
        }
        let World { ends, under_way, history, now, .. } = self;
        let count = ends.len();
        *now += 1;
        let mut failed = Vec::new();
        ends[me].links.transmit(*now, &mut failed, |_, place, bytes| {
            assert!(bytes.len() <= MESSAGE_LEN);
            if usize::from(place[0]) >= count {
                return Posted::Never;
            }
            let pipe = under_way.entry((me as u8, place[0])).or_default();
            if pipe.len() == ROOM {
                return Posted::Later;
            }
            pipe.push_back(bytes.to_vec());
            history.push((place[0], bytes.to_vec()));
            Posted::Yes
        });
        failed.into_iter().for_each(|number| ends[me].links.on_failed(number));
    }

    /// A stranger sends a message that it has seen, perhaps before that one arrives, changed, cut off or to another
    /// rank.
    fn disturb(&mut self) {
        let nth = self.random(self.history.len());
        let Some((to, mut bytes)) = self.history.get(nth).cloned() else { return };
        match self.random(4) {
            0 => bytes[0] = self.random(5) as u8,
            1 => {
                let (at, bit) = (self.random(bytes.len()), self.random(8));
                bytes[at] ^= 1 << bit;
            }
            2 => bytes.truncate(self.random(bytes.len())),
            _ => {}
        }
        let to = if self.random(4) == 0 { self.random(self.ends.len()) } else { usize::from(to) };
        self.ends[to].links.on_message(self.now, &bytes);
    }

    fn step(&mut self) {
        if self.random(100) < self.strangers as usize {
            self.disturb();
        }
        let me = self.random(self.ends.len());
        if self.ends[me].is_busy {
            return;
        }
        let from = self.random(self.ends.len()) as u8;
        if let Some(bytes) = self.under_way.get_mut(&(from, me as u8)).and_then(VecDeque::pop_front) {
            self.ends[me].links.on_message(self.now, &bytes);
        }
        self.turn(me);
    }

    fn run_until(&mut self, is_over: impl Fn(&World) -> bool) {
        for _ in 0..STEPS_MAX {
            if is_over(self) {
                return;
            }
            self.step();
        }
        panic!("it takes forever");
    }

    fn is_settled(&self) -> bool {
        self.under_way.values().all(VecDeque::is_empty) && self.is_all_sent(0)
    }

    fn is_all_sent(&self, now: u64) -> bool {
        self.ends.iter().all(|end| end.links.unsent(now) == Unsent::Nothing)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn messages_arrive_once_and_in_order_over_one_connection(
        strangers in 0u64..60,
        seed: u64,
        sends in proptest::collection::vec((0u32..3, 1u32..3, 2usize..900, 0usize..60), 1..12),
    ) {
        let mut world = World::new(3, strangers, seed);
        let mut wanted: BTreeMap<(u32, u32), Vec<Vec<u8>>> = BTreeMap::new();
        for (nth, (from, distance, len, steps)) in sends.into_iter().enumerate() {
            let (to, message) = ((from + distance) % 3, vec![nth as u8 + 1; len]);
            world.send(from, to, &message);
            wanted.entry((from, to)).or_default().push(message);
            world.ends.iter_mut().enumerate().for_each(|(me, end)| end.is_busy = me == nth % 3);
            // Two ends may dial each other at the same time.
            (0..steps).for_each(|_| world.step());
        }
        world.ends.iter_mut().for_each(|end| end.is_busy = false);
        let count = |world: &World, from: u32, to: u32| world.ends[to as usize].got.get(&from).map_or(0, Vec::len);
        world.run_until(|world| wanted.iter().all(|((from, to), all)| count(world, *from, *to) >= all.len()));
        world.run_until(World::is_settled);
        for ((from, to), all) in &wanted {
            prop_assert_eq!(&world.ends[*to as usize].got[from], all);
            let both = [(from, to), (to, from)].map(|(one, other)| world.ends[*one as usize].connections.route(*other));
            prop_assert!(matches!(both, [Route::Open(_), Route::Open(_)]), "{:?}", both);
        }
        for end in &world.ends {
            prop_assert!(end.lost.is_empty() && end.connections.open() <= 2);
            prop_assert_eq!(end.links.connections(), end.connections.open());
        }
    }

    /// Both ranks leave, rank 0 first, and no rank waits for one that has gone.
    #[test]
    fn all_leave_in_order(strangers in 0u64..60, seed: u64, both_dial: bool, between in 0usize..40) {
        let mut world = World::new(2, strangers, seed);
        world.send(0, 1, &[7; 3_000]);
        if both_dial {
            world.send(1, 0, b"hello");
        }
        world.run_until(|world| world.ends[1].got.contains_key(&0));
        world.run_until(|world| !both_dial || world.ends[0].got.contains_key(&1));
        world.send(0, 1, b"last words");
        for me in 0..2 {
            world.ends[me].links.say_goodbye();
            (0..between).for_each(|_| world.step());
        }
        world.run_until(|world| world.ends.iter().any(|end| !end.goodbyes.is_empty()));
        world.run_until(World::is_settled);
        prop_assert!(world.ends.iter().all(|end| end.links.connections() == 0 || end.goodbyes.is_empty()));
        prop_assert!(world.ends.iter().all(|end| end.lost.is_empty()));
        if world.ends[1].goodbyes == [0] {
            prop_assert_eq!(world.ends[1].got[&0].len(), 2);
        }
    }
}

#[test]
fn a_rank_that_leaves_answers_a_goodbye_until_the_other_is_done() {
    let mut world = World::new(2, 0, 1);
    world.send(0, 1, b"hello");
    world.run_until(|world| world.ends[1].got.contains_key(&0));
    world.ends[0].links.say_goodbye();
    world.run_until(|world| world.ends[1].goodbyes == [0]);
    // Rank 0 computes, and has not read the acknowledgement of its goodbye.
    world.ends[0].is_busy = true;
    (0..100).for_each(|_| world.step());
    // A rank does not wait forever for a peer that has exited.
    let unsent = [0, 1_000].map(|later| world.ends[1].links.unsent(world.now + later));
    assert_eq!(unsent, [Unsent::Goodbyes, Unsent::Nothing]);
    world.ends[0].is_busy = false;
    world.run_until(World::is_settled);
}

#[test]
fn a_rank_that_has_left_long_ago_is_not_answered_and_a_blocked_message_waits_ever_longer() {
    let mut world = World::new(2, 0, 1);
    world.send(0, 1, b"hello");
    world.run_until(|world| world.ends[1].got.contains_key(&0));
    let (links, number) = (&mut world.ends[1].links, 1);
    links.send(number, b"answer");
    let mut tries = Vec::new();
    for now in 10_000..11_000 {
        let blocked = |_: Number, _: &[u8], _: &[u8]| {
            tries.push(now);
            Posted::Later
        };
        links.transmit(now, &mut Vec::new(), blocked);
    }
    assert_eq!(tries[..8], [0, 1, 3, 7, 15, 31, 63, 127].map(|after| 10_000 + after));
    assert!(tries.len() < 25, "at most every 64 ms");
    world.ends[0].links.say_goodbye();
    world.turn(0);
    let now = 12_000;
    let goodbyes = world.under_way.remove(&(0, 1)).unwrap_or_default();
    goodbyes.iter().for_each(|bytes| world.ends[1].links.on_message(now, bytes));
    let mut tries = |now| {
        let mut count = 0;
        let blocked = |_: Number, _: &[u8], _: &[u8]| {
            count += 1;
            Posted::Later
        };
        (world.ends[1].links.transmit(now, &mut Vec::new(), blocked).is_some(), count)
    };
    assert_eq!([12_000, 12_999, 13_000].map(&mut tries), [(true, 1), (true, 1), (false, 0)]);
}

#[test]
fn a_paused_connection_holds_a_window_of_segments_and_disturbs_no_other() {
    let mut world = World::new(3, 0, 1);
    [1, 2].into_iter().for_each(|from| world.send(from, 0, b"hello"));
    world.run_until(|world| world.ends[0].got.len() == 2 && world.is_settled());
    let number = |world: &World| match world.ends[0].connections.route(1) {
        Route::Open(number) => number,
        other => panic!("{other:?}"),
    };
    let number = number(&world);
    world.ends[0].links.set_paused(number, true);
    // Each message fills more than a segment.
    (0..100).for_each(|_| world.send(1, 0, &[8; MESSAGE_LEN]));
    (0..100).for_each(|_| world.send(2, 0, &[9; MESSAGE_LEN]));
    world.run_until(|world| world.ends[0].got[&2].len() == 101 && world.under_way.values().all(VecDeque::is_empty));
    let before = world.ends[0].got[&1].len();
    assert!((WINDOW as usize / 2..=WINDOW as usize).contains(&before), "{before}");
    assert_eq!(world.ends[1].links.unsent(0), Unsent::Messages);
    world.ends[0].links.set_paused(number, false);
    world.run_until(|world| world.ends[0].got[&1].len() == 101 && world.is_settled());
}

#[test]
fn a_rank_that_the_provider_does_not_reach_is_lost_unless_it_has_said_goodbye() {
    let mut world = World::new(3, 0, 1);
    [1, 2].into_iter().for_each(|from| world.send(from, 0, b"hello"));
    world.run_until(|world| world.ends[0].got.len() == 2 && world.is_settled());
    world.ends[2].links.say_goodbye();
    world.run_until(|world| world.ends[0].goodbyes == [2]);
    world.send(0, 1, b"hello");
    // Neither rank 1 nor rank 2 exists any more, nor does rank 9.
    world.ends.truncate(1);
    world.send(0, 9, b"hello");
    (0..20).for_each(|_| world.turn(0));
    world.ends[0].lost.sort_unstable();
    assert_eq!(world.ends[0].lost, [1, 9]);
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
    let mut world = World::new(2, 0, 1);
    world.send(0, 1, b"hello");
    world.send(1, 0, b"hello");
    world.run_until(|world| world.ends.iter().all(|end| !end.got.is_empty()) && world.is_settled());
    // A dial that is still in progress.
    let dialled = world.ends[1].links.dial(7, 0, Some(&[0]));
    world.turn(1);
    let mut messages: Vec<Vec<u8>> = world.history.iter().map(|(_, bytes)| bytes.clone()).collect();
    let kinds = |kind| messages.iter().filter(|bytes| bytes[0] == kind).count();
    assert!([handshake::HELLO, handshake::WELCOME, DATA].map(kinds).iter().all(|count| *count > 0));
    for at in 0..messages.len() {
        let bytes = messages[at].clone();
        messages.extend((0..bytes.len()).step_by(7).map(|len| bytes[..len].to_vec()));
        for changed in (0..bytes.len()).step_by(3) {
            let mut forged = bytes.clone();
            forged[changed] ^= 0x40;
            messages.push(forged);
        }
    }
    let welcome = [&[handshake::WELCOME][..], &dialled.to_le_bytes(), &[9; 80]].concat();
    let hello = [&[handshake::HELLO, 9, 0, 0, 0, 1][..], &[0; 90]].concat();
    messages.extend([welcome, hello, vec![DATA; 100], vec![0; 100], vec![77; MESSAGE_LEN + 1], vec![]]);
    let links = &mut world.ends[1].links;
    let before = ALLOCATED.get();
    for message in &messages {
        links.on_message(0, message);
        assert!(links.poll().is_none() && links.transmit(0, &mut Vec::new(), |_, _, _| panic!("an answer")).is_none());
    }
    assert_eq!(ALLOCATED.get() - before, 0, "after {} messages", messages.len());
    // The forged messages have changed nothing: the connection still works.
    world.send(0, 1, b"again");
    world.run_until(|world| world.ends[1].got[&0].len() == 2);
}
