//! Simulates every peer of an allgather, delivering messages in an order drawn from a seed. Properties of any algorithm
//! are tested with each line of the table; `whole` does the same with each scheme.

mod whole;

use super::*;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Range;
use proptest::prelude::*;
use wireup_wire::block::{self, Block};
use wireup_wire::collective::{Algorithm, Collective, RoundTag};
use wireup_wire::ids::NodeId;
use wireup_wire::rope::Rope;

/// A pseudo-random generator (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// The blocks that the peers contribute: as blocks, and encoded.
struct Own {
    blocks: Vec<Block>,
    encoded: Vec<Bytes>,
}

impl Own {
    fn new(lens: impl IntoIterator<Item = usize>) -> Self {
        let block = |(node, len)| Block {
            node: NodeId(node as u32),
            compressed: node % 3 == 1,
            bytes: vec![node as u8; len].into(),
        };
        let blocks: Vec<Block> = lens.into_iter().enumerate().map(block).collect();
        Own { encoded: blocks.iter().map(Block::encode).collect(), blocks }
    }

    fn bytes(&self) -> usize {
        self.encoded.iter().map(Bytes::len).sum()
    }

    /// Asserts that every slice still points into the buffer where its peer created it.
    #[track_caller]
    fn expect_shared(&self, rope: &Rope) {
        let places: Vec<Range<*const u8>> = self.encoded.iter().map(|own| own.as_ptr_range()).collect();
        for slice in rope.slices() {
            let (first, last) = (slice.as_ptr(), &raw const slice[slice.len() - 1]);
            let within = |place: &Range<_>| place.contains(&first) && place.contains(&last);
            assert!(places.iter().any(within), "{} bytes were copied", slice.len());
        }
    }

    /// Asserts that all of the blocks are there, each once; empty ones count only if `with_bare`.
    #[track_caller]
    fn expect_all(&self, parts: &[Rope], with_bare: bool) {
        let slices = parts.iter().flat_map(Rope::slices).cloned();
        let mut seen: Vec<Block> = slices.flat_map(block::blocks).map(Result::unwrap).collect();
        seen.sort_by_key(|block| block.node);
        let counts = |block: &&Block| with_bare || !block.bytes.is_empty();
        assert!(seen.iter().filter(counts).eq(self.blocks.iter().filter(counts)), "a block is missing or duplicated");
    }
}

struct Run {
    /// The peers' state machines; index = peer.
    peers: Vec<Box<dyn Rounds>>,
    done: Vec<Option<Vec<Rope>>>,
    messages_in: Vec<usize>,
    bytes_in: Vec<usize>,
    sent_to: Vec<Vec<u32>>,
}

/// An event of the simulation that may happen next.
enum Event {
    Start(u32),
    Deliver { from: u32, message: Message },
}

/// How messages are delivered.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Travel {
    /// Messages are delivered as lists of slices.
    Listed,
    /// Each message arrives as one contiguous buffer, as in a frame.
    Framed,
}

/// Checks that a peer refuses invalid variants of `message` before it receives the valid one.
fn expect_refused(direct: &Direct, peer: &mut dyn Rounds, n: u32, from: u32, message: &Message) {
    let mut refused = |round, payload| peer.on_message(from, round, payload).expect_err("a refusal");
    let rounds = (direct.rounds)(n);
    let beyond = Refused::NoSuchRound { from, round: rounds as u16, rounds };
    assert_eq!(refused(rounds as u16, message.payload.clone()), beyond);
    let empty = refused(message.round, Rope::default());
    assert!(matches!(empty, Refused::Blocks { found: 0, .. }), "{empty}");
    let cut = refused(message.round, message.payload.prefix(message.payload.len() - 1));
    assert!(matches!(cut, Refused::Truncated(_) | Refused::Blocks { .. }), "{cut}");
}

/// Runs one allgather to its end. `lost`: a peer that never starts and handles no message.
fn exchange(direct: &Direct, own: &Own, travel: Travel, lost: Option<u32>, seed: u64) -> Run {
    let n = own.blocks.len();
    let mut run = Run {
        peers: (0..n).map(|me| (direct.new)(me as u32, n as u32)).collect(),
        done: vec![None; n],
        messages_in: vec![0; n],
        bytes_in: vec![0; n],
        sent_to: vec![Vec::new(); n],
    };
    let mut events: Vec<_> = (0..n as u32).map(Event::Start).collect();
    let mut dice = Dice(seed | 1);
    while !events.is_empty() {
        let event = events.swap_remove(dice.below(events.len()));
        let at = match &event {
            Event::Start(at) => *at,
            Event::Deliver { message, .. } => message.to,
        };
        if Some(at) == lost {
            continue;
        }
        let peer = &mut run.peers[at as usize];
        let step = match event {
            Event::Start(_) => peer.start(own.encoded[at as usize].clone().into()),
            Event::Deliver { from, message } => {
                run.messages_in[at as usize] += 1;
                run.bytes_in[at as usize] += message.payload.len();
                expect_refused(direct, &mut **peer, n as u32, from, &message);
                let step = peer.on_message(from, message.round, message.payload.clone()).unwrap();
                peer.on_message(from, message.round, message.payload).expect_err("a second time");
                step
            }
        };
        assert!(run.done[at as usize].is_none(), "a peer sends nothing after its result");
        for mut message in step.sends {
            assert!(u32::from(message.round) < (direct.rounds)(n as u32));
            run.sent_to[at as usize].push(message.to);
            match travel {
                Travel::Listed => own.expect_shared(&message.payload),
                Travel::Framed => message.payload = message.payload.into_bytes().into(),
            }
            events.push(Event::Deliver { from: at, message });
        }
        run.done[at as usize] = step.done;
    }
    run
}

#[track_caller]
fn check(direct: &Direct, own: &Own, travel: Travel, seed: u64) -> Run {
    let n = own.blocks.len() as u32;
    let run = exchange(direct, own, travel, None, seed);
    for me in 0..n {
        let at = me as usize;
        let parts = run.done[at].as_deref().unwrap_or_else(|| panic!("peer {me} of {n} did not end, seed {seed}"));
        own.expect_all(parts, true);
        if travel == Travel::Listed {
            parts.iter().for_each(|part| own.expect_shared(part));
        }
        assert_eq!(run.peers[at].awaited(), []);
        let told = (direct.receivers)(me, n);
        let unique: BTreeSet<u32> = told.iter().copied().collect();
        assert_eq!(told.len(), unique.len(), "{}: the receivers of peer {me} of {n} are listed once each", direct.name);
        assert_eq!(unique, run.sent_to[at].iter().copied().collect(), "{}: peer {me} of {n}", direct.name);
    }
    run
}

fn lens() -> impl Strategy<Value = Vec<usize>> {
    let len = prop_oneof![2 => Just(0usize), 6 => 1usize..50, 1 => 100usize..5000];
    proptest::collection::vec(len, 1..=40)
}

fn travel() -> impl Strategy<Value = Travel> {
    prop_oneof![Just(Travel::Listed), Just(Travel::Framed)]
}

proptest! {
    #[test]
    fn every_peer_ends_with_every_block_once(lens in lens(), travel in travel(), seed in any::<u64>()) {
        let own = Own::new(lens);
        for direct in DIRECT {
            check(direct, &own, travel, seed);
        }
    }

    #[test]
    fn no_peer_completes_without_a_lost_peer(lens in lens(), lost in any::<u32>(), seed in any::<u64>()) {
        let own = Own::new(lens);
        let n = own.blocks.len() as u32;
        let lost = lost % n;
        for direct in DIRECT {
            let run = exchange(direct, &own, Travel::Framed, Some(lost), seed);
            let others = || (0..n as usize).filter(|peer| *peer != lost as usize);
            prop_assert!(others().all(|peer| run.done[peer].is_none()), "no peer completes without the lost one");
            let awaited: Vec<_> = others().map(|peer| run.peers[peer].awaited()).collect();
            prop_assert!(awaited.iter().all(|awaited| !awaited.is_empty()), "{}: every peer waits", direct.name);
            let lost_is_awaited = awaited.iter().flatten().any(|peer| *peer == lost);
            prop_assert!(n == 1 || lost_is_awaited, "{}: some peer waits for the lost one", direct.name);
        }
    }
}

#[test]
fn scheme_names_and_numbers_are_unique() {
    let names: BTreeSet<_> = schemes().map(|(name, _)| name).collect();
    let numbers: BTreeSet<u8> = schemes().map(|(_, scheme)| scheme.into()).collect();
    assert_eq!((names.len(), numbers.len()), (DIRECT.len() + 2, DIRECT.len() + 2));
    assert_eq!(find(Algorithm::new(8)).err(), Some(Refused::NoSuchAlgorithm(8)));
}

#[test]
fn too_many_rounds_for_the_ring_fall_back_to_bruck() {
    let fitting = |n| fitting(Collective::Fence, Algorithm::RING, n).map(|direct| direct.algorithm);
    assert_eq!((fitting(8192), fitting(8193)), (Ok(Algorithm::RING), Ok(Algorithm::BRUCK)));
    let bruck = find(Algorithm::BRUCK).unwrap();
    for collective in [Collective::Fence, Collective::Allgather, Collective::Modex] {
        assert!((bruck.rounds)(u32::MAX) < RoundTag::rounds_max(collective, Algorithm::BRUCK));
    }
}

/// The number of messages per peer is the one that the head of each algorithm's file states, and the bytes of every
/// other peer arrive once.
#[test]
fn messages_and_bytes_per_peer_match_the_documentation() {
    for n in 1..=67_usize {
        let own = Own::new((0..n).map(|node| node * 7 % 50));
        let log = n.next_power_of_two().ilog2() as usize;
        for (algorithm, messages) in [(Algorithm::RING, n - 1), (Algorithm::BRUCK, log)] {
            check(find(algorithm).unwrap(), &own, Travel::Listed, 7);
            let run = check(find(algorithm).unwrap(), &own, Travel::Framed, 7);
            for me in 0..n {
                assert_eq!(run.messages_in[me], messages, "peer {me} of {n}");
                assert_eq!(run.bytes_in[me], own.bytes() - own.encoded[me].len(), "peer {me} of {n}");
            }
        }
    }
}

/// The required bound for an allgather: 1.05 x (value + 1 byte) for 16 values of 18 bytes per node.
#[test]
fn headers_add_at_most_five_percent() {
    let (values, value) = (16, 18);
    let own = Own::new([values * (value + 1); 256]);
    for algorithm in [Algorithm::RING, Algorithm::BRUCK] {
        let run = exchange(find(algorithm).unwrap(), &own, Travel::Framed, None, 3);
        let most = (own.blocks.len() * values * (value + 1)) as f64 * 1.05;
        assert!(run.bytes_in.iter().all(|&bytes| (bytes as f64) <= most));
    }
}

#[test]
fn messages_from_the_wrong_sender_are_refused() {
    let own = Own::new([2]);
    for (algorithm, expected) in [(Algorithm::RING, 3), (Algorithm::BRUCK, 1)] {
        let mut peer = (find(algorithm).unwrap().new)(0, 4);
        let wrong = peer.on_message(2, 0, own.encoded[0].clone().into());
        assert_eq!(wrong, Err(Refused::WrongSender { from: 2, round: 0, expected }));
    }
}

#[test]
fn awaited_lists_the_missing_senders() {
    let peer = |algorithm| (find(algorithm).unwrap().new)(0, 5);
    let (mut ring, mut bruck) = (peer(Algorithm::RING), peer(Algorithm::BRUCK));
    assert_eq!((ring.awaited(), bruck.awaited()), (vec![4], vec![1, 2, 4]));
    let own = Own::new([1; 5]);
    let block = |node: usize| Rope::from(own.encoded[node].clone());
    bruck.on_message(2, 1, Rope::join([block(2), block(3)])).unwrap();
    ring.start(block(0));
    bruck.start(block(0));
    assert_eq!((ring.awaited(), bruck.awaited()), (vec![4], vec![1, 4]));
}
