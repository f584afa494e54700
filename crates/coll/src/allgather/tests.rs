//! Every peer of an allgather on a bench: messages are delivered in an order drawn from a seed.

use super::*;
use alloc::collections::BTreeSet;
use alloc::vec;
use proptest::prelude::*;
use wireup_wire::ids::NodeId;

const ALGORITHMS: [Algorithm; 2] = [Algorithm::Ring, Algorithm::Bruck];

/// A few bits of noise at a time (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// What a bench of peers saw.
struct Run {
    /// By peer.
    done: Vec<Vec<Bytes>>,
    messages_in: Vec<usize>,
    bytes_in: Vec<usize>,
    sent_to: Vec<BTreeSet<u32>>,
}

/// Something that may happen next.
enum Event {
    Start(u32),
    Deliver { from: u32, message: Message },
}

fn run(algorithm: Algorithm, own: &[Block], seed: u64) -> Run {
    let n = own.len();
    let mut peers: Vec<_> = (0..n).map(|me| Direct::new(algorithm, me as u32, n as u32)).collect();
    let mut events: Vec<_> = (0..n as u32).map(Event::Start).collect();
    let sent_to = vec![BTreeSet::new(); n];
    let mut run = Run { done: vec![Vec::new(); n], messages_in: vec![0; n], bytes_in: vec![0; n], sent_to };
    let mut dice = Dice(seed | 1);
    while !events.is_empty() {
        let event = events.swap_remove(dice.below(events.len()));
        let (at, step) = match event {
            Event::Start(at) => (at, peers[at as usize].start(&own[at as usize])),
            Event::Deliver { from, message } => {
                let at = message.to;
                run.messages_in[at as usize] += 1;
                run.bytes_in[at as usize] += message.payload.len();
                (at, peers[at as usize].on_message(from, message.round, message.payload).unwrap())
            }
        };
        run.sent_to[at as usize].extend(step.sends.iter().map(|message| message.to));
        events.extend(step.sends.into_iter().map(|message| Event::Deliver { from: at, message }));
        if let Some(parts) = step.done {
            assert!(run.done[at as usize].is_empty(), "done is given once");
            run.done[at as usize] = parts;
        }
    }
    for peer in &peers {
        assert_eq!(peer.awaited(), []);
    }
    run
}

fn block(node: usize, len: usize) -> Block {
    Block { node: NodeId(node as u32), compressed: node % 3 == 1, bytes: vec![node as u8; len].into() }
}

fn messages(algorithm: Algorithm, n: usize) -> usize {
    match algorithm {
        Algorithm::Ring => n - 1,
        Algorithm::Bruck => n.next_power_of_two().ilog2() as usize,
    }
}

fn check(algorithm: Algorithm, own: &[Block], seed: u64) {
    let n = own.len();
    let run = run(algorithm, own, seed);
    let total: usize = own.iter().map(|block| block.encode().len()).sum();
    for (me, parts) in run.done.iter().enumerate() {
        let mut seen: Vec<_> = parts.iter().flat_map(|part| block::blocks(part.clone())).map(Result::unwrap).collect();
        seen.sort_by_key(|block| block.node);
        assert_eq!(seen, own, "peer {me} of {n}, seed {seed}");
        assert_eq!(run.messages_in[me], messages(algorithm, n), "peer {me} of {n}, seed {seed}");
        assert_eq!(run.bytes_in[me], total - own[me].encode().len(), "peer {me} of {n}, seed {seed}");
    }
}

fn blocks() -> impl Strategy<Value = Vec<Block>> {
    let len = prop_oneof![2 => Just(0usize), 6 => 1usize..50, 1 => 100usize..5000];
    proptest::collection::vec(len, 1..40)
        .prop_map(|lens| lens.into_iter().enumerate().map(|(node, len)| block(node, len)).collect())
}

proptest! {
    #[test]
    fn every_peer_ends_with_every_block_once(own in blocks(), seed in any::<u64>()) {
        for algorithm in ALGORITHMS {
            check(algorithm, &own, seed);
        }
    }
}

#[test]
fn any_number_of_peers() {
    for n in 1..=67 {
        let own: Vec<_> = (0..n).map(|node| block(node, node % 5)).collect();
        for algorithm in ALGORITHMS {
            check(algorithm, &own, 7);
        }
    }
}

/// The bound asked of an allgather: 1.05 x (value + 1 byte) for 16 values of 18 bytes a node.
#[test]
fn headers_are_a_twentieth_at_most() {
    let (values, value) = (16, vec![7; 18]);
    let mut bytes = Vec::new();
    for _ in 0..values {
        wireup_wire::values::push(&mut bytes, &value);
    }
    let own: Vec<_> =
        (0..256).map(|node| Block { node: NodeId(node), compressed: false, bytes: bytes.clone().into() }).collect();
    for algorithm in ALGORITHMS {
        let run = run(algorithm, &own, 3);
        let most = (own.len() * values * (value.len() + 1)) as f64 * 1.05;
        assert!(run.bytes_in.iter().all(|&bytes| (bytes as f64) <= most));
    }
}

#[test]
fn strangers_are_refused() {
    let one = block(3, 2).encode();
    for algorithm in ALGORITHMS {
        let mut peer = Direct::new(algorithm, 0, 4);
        let from = match algorithm {
            Algorithm::Ring => 3,
            Algorithm::Bruck => 1,
        };
        let refused = |result: Result<Step, Refused>| result.map(|_| ()).unwrap_err();
        let wrong = refused(peer.on_message(2, 0, one.clone()));
        assert_eq!(wrong, Refused::WrongSender { from: 2, round: 0, expected: from });
        assert!(matches!(refused(peer.on_message(from, 9, one.clone())), Refused::NoSuchRound { round: 9, .. }));
        let empty = refused(peer.on_message(from, 0, Bytes::new()));
        assert_eq!(empty, Refused::Blocks { from, round: 0, found: 0, expected: 1 });
        let cut = refused(peer.on_message(from, 0, one.slice(..3)));
        assert_eq!(cut, Refused::Truncated(block::Truncated));
        peer.on_message(from, 0, one.clone()).unwrap();
        assert_eq!(refused(peer.on_message(from, 0, one.clone())), Refused::Twice { from, round: 0 });
        peer.start(&block(0, 0));
        assert_eq!(refused(peer.on_message(from, 0, one.clone())), Refused::Twice { from, round: 0 });
    }
}

#[test]
fn says_whom_it_waits_for() {
    let mut ring = Direct::new(Algorithm::Ring, 0, 5);
    let mut bruck = Direct::new(Algorithm::Bruck, 0, 5);
    assert_eq!((ring.awaited(), bruck.awaited()), (vec![4], vec![1, 2, 4]));
    let two = join(vec![block(2, 1).encode(), block(3, 1).encode()]);
    bruck.on_message(2, 1, two).unwrap();
    ring.start(&block(0, 1));
    bruck.start(&block(0, 1));
    assert_eq!((ring.awaited(), bruck.awaited()), (vec![4], vec![1, 4]));
}

#[test]
fn the_receivers_are_those_that_messages_go_to() {
    for algorithm in ALGORITHMS {
        for n in 1..20 {
            let own: Vec<_> = (0..n).map(|node| block(node, 1)).collect();
            let run = run(algorithm, &own, 7);
            for (me, sent_to) in run.sent_to.into_iter().enumerate() {
                let mut told = receivers(algorithm, me as u32, n as u32);
                told.sort_unstable();
                assert_eq!(told, sent_to.into_iter().collect::<Vec<_>>(), "{algorithm:?}, peer {me} of {n}");
            }
        }
    }
}
