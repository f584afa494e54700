//! The scan on trees of any shape compared with a list of all processes; malformed messages.

use super::*;
use alloc::format;
use proptest::prelude::*;
use wireup_wire::collective::{Algorithm, RoundTag};

#[derive(Clone, Debug)]
struct Peer {
    local_size: usize,
    children: Vec<Peer>,
}

fn tree() -> impl Strategy<Value = Peer> {
    let local_size = || prop_oneof![1 => Just(0usize), 2 => 1usize..5];
    let leaf = local_size().prop_map(|local_size| Peer { local_size, children: Vec::new() });
    leaf.prop_recursive(4, 40, 4, move |inner| {
        (local_size(), proptest::collection::vec(inner, 0..4))
            .prop_map(|(local_size, children)| Peer { local_size, children })
    })
}

/// The scan of a whole tree; values are numbers in the order of a depth-first walk.
struct Run {
    scan: RingScan,
    children: Vec<Run>,
}

fn from_child(index: usize) -> Sender {
    Sender::Child(index, TAG)
}

/// The bytes of the one message that a peer has sent to its parent.
fn to_parent(progress: RingProgress) -> Bytes {
    assert_eq!(progress.done, None);
    let [(Receiver::Parent(_), payload)] = &progress.sends[..] else { panic!("{progress:?}") };
    payload.clone().into_bytes()
}

/// Runs the upward half of the scan in a subtree; returns the result of the top peer's last call.
fn up(peer: &Peer, is_root: bool, next_value: &mut usize) -> (Run, RingProgress) {
    let mut scan = RingScan::new(is_root, peer.children.len(), peer.local_size);
    let own = (0..peer.local_size).map(|offset| format!("value {}", *next_value + offset).into()).collect();
    *next_value += peer.local_size;
    let (mut children, mut ups) = (Vec::new(), Vec::new());
    for child in &peer.children {
        let (run, progress) = up(child, false, next_value);
        children.push(run);
        ups.push(to_parent(progress));
    }
    // Children arrive from last to first, this peer's processes in between: the order must not matter.
    for (index, payload) in ups.iter().enumerate().skip(1).rev() {
        assert_eq!(scan.on_message(from_child(index), payload), Ok(RingProgress::default()));
        assert_eq!(scan.on_message(from_child(index), payload), Err(Refused::ChildTwice(index)));
    }
    let mut last = RingProgress::default();
    if peer.local_size > 0 || ups.is_empty() {
        last = scan.start(own).unwrap();
    }
    if let Some(first) = ups.first() {
        assert_eq!((last, scan.is_gathered()), (RingProgress::default(), false));
        last = scan.on_message(from_child(0), first).unwrap();
    }
    assert!(scan.is_gathered(), "all contributions have arrived");
    (Run { scan, children }, last)
}

/// Runs the downward half of the scan in a subtree; appends the surroundings of its processes to `places`.
fn down(run: &mut Run, progress: RingProgress, places: &mut Vec<Down>) {
    assert_eq!(run.scan.on_down(Down::default()), Err(Refused::TooEarly));
    places.extend(progress.done.expect("the surroundings are known"));
    assert_eq!(progress.sends.len(), run.children.len());
    for (to, payload) in progress.sends {
        let Receiver::Child(index, tag) = to else { panic!("{to:?}") };
        let child = &mut run.children[index];
        let progress = child.scan.on_message(Sender::Parent(tag), &payload.into_bytes()).unwrap();
        down(child, progress, places);
    }
}

proptest! {
    #[test]
    fn every_process_gets_its_neighbours_values(tree in tree()) {
        let mut size = 0;
        let (mut run, progress) = up(&tree, true, &mut size);
        let mut places = Vec::new();
        down(&mut run, progress, &mut places);
        // The walk assigned the values in the ring's order.
        let value = |index: usize| Bytes::from(format!("value {}", index % size));
        let expected: Vec<_> = (0..size)
            .map(|index| Down { before: index as u32, left: value(index + size - 1), right: value(index + 1) })
            .collect();
        prop_assert_eq!(places, expected);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic_the_decoder(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let payload = Bytes::from(bytes);
        if let Ok(up) = Up::decode(&payload) {
            prop_assert_eq!(up.encode(), payload);
        }
    }

    #[test]
    fn process_counts_beyond_32_bits_are_refused(
        counts in proptest::collection::vec(any::<u32>(), 1..5),
        before in any::<u32>(),
    ) {
        let mut scan = RingScan::new(false, counts.len(), 1);
        let mut result = scan.start(vec![Bytes::from_static(b"own")]);
        for (index, count) in counts.iter().enumerate() {
            result = scan.on_child(index, Up { count: *count, ..Up::default() });
        }
        let sum: u64 = 1 + counts.iter().map(|count| u64::from(*count)).sum::<u64>();
        prop_assert_eq!(result.is_ok(), u32::try_from(sum).is_ok());
        prop_assert_eq!(scan.on_down(Down { before, ..Down::default() }).is_ok(), result.is_ok());
    }
}

#[test]
fn a_single_process_is_its_own_neighbour() {
    let mut scan = RingScan::new(true, 0, 1);
    let value = Bytes::from_static(b"me");
    assert_eq!(scan.start(vec![]), Err(Refused::Own { found: 0, expected: 1 }));
    let places = vec![Down { before: 0, left: value.clone(), right: value.clone() }];
    assert_eq!(scan.start(vec![value.clone()]), Ok(Progress { sends: vec![], done: Some(places) }));
    assert_eq!(scan.start(vec![value]), Err(Refused::OwnTwice));
}

#[test]
fn a_message_from_elsewhere_than_the_tree_is_refused() {
    let tag = RoundTag { collective: Collective::Ring, algorithm: Algorithm::RING, round: 0 };
    let mut scan = RingScan::new(true, 0, 1);
    assert_eq!(scan.on_message(Sender::Peer(1, tag), &Bytes::new()), Err(Refused::BesideTheTree));
}

#[test]
fn the_byte_layout_matches_the_documentation() {
    let up = Up { count: 0x0102, left: Bytes::from_static(b"ab"), right: Bytes::from_static(b"c") };
    assert_eq!(up.encode()[..], *b"\x02\x01\0\0\x02ab\x01c");
    for bytes in [&b"\x02\x01\0"[..], b"\x02\x01\0\0\x02ab", b"\x02\x01\0\0\x02ab\x01", b"\x02\x01\0\0\0\0\0"] {
        assert_eq!(Up::decode(&Bytes::from_static(bytes)), Err(Refused::Malformed));
    }
}
