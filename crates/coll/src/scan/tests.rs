//! The scan on trees of any shape compared with a list of all processes; malformed messages.

use super::*;
use alloc::format;
use proptest::prelude::*;

/// A peer: its processes and its children.
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
    places: Vec<Down>,
}

fn up(peer: &Peer, next_value: &mut usize) -> (Run, Up) {
    let mut scan = RingScan::new(peer.children.len(), peer.local_size);
    let own = (0..peer.local_size).map(|offset| format!("value {}", *next_value + offset).into()).collect();
    *next_value += peer.local_size;
    let (mut children, mut ups) = (Vec::new(), Vec::new());
    for child in &peer.children {
        let (run, up) = up(child, next_value);
        children.push(run);
        ups.push(Up::decode(&up.encode()).unwrap());
    }
    // Children arrive from last to first, this peer's processes in between: the order must not matter.
    let mut total = None;
    for (index, up) in ups.into_iter().enumerate().rev() {
        if index == 0 {
            continue;
        }
        total = scan.child(index, up.clone()).unwrap();
        assert_eq!(scan.child(index, up), Err(Refused::ChildTwice(index)));
        assert_eq!(total, None);
    }
    total = scan.own(own).unwrap().or(total);
    if let Some(first) = children.first() {
        assert_eq!(total, None);
        assert_eq!(scan.missing_children().collect::<Vec<_>>(), [0]);
        total = scan.child(0, first.scan.total.clone().unwrap()).unwrap();
    }
    (Run { scan, children, places: Vec::new() }, total.expect("all contributions have arrived"))
}

fn down(run: &mut Run, down_here: Down, places: &mut Vec<Down>) {
    let (downs, own) = run.scan.on_down(Down::decode(&down_here.encode()).unwrap()).unwrap();
    assert_eq!(run.scan.on_down(Down::default()), Err(Refused::TooEarly));
    places.extend(own.iter().cloned());
    run.places = own;
    assert_eq!(downs.len(), run.children.len());
    for (index, below) in downs {
        down(&mut run.children[index], below, places);
    }
}

proptest! {
    #[test]
    fn every_process_gets_its_neighbours_values(tree in tree()) {
        let mut size = 0;
        let (mut run, total) = up(&tree, &mut size);
        prop_assert_eq!(total.count as usize, size);
        let mut places = Vec::new();
        let all = run.scan.root();
        down(&mut run, all, &mut places);
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
        let mut scan = RingScan::new(counts.len(), 1);
        let mut result = scan.own(vec![Bytes::from_static(b"own")]);
        for (index, count) in counts.iter().enumerate() {
            result = scan.child(index, Up { count: *count, ..Up::default() });
        }
        let sum: u64 = 1 + counts.iter().map(|count| u64::from(*count)).sum::<u64>();
        prop_assert_eq!(result.is_ok(), u32::try_from(sum).is_ok());
        prop_assert_eq!(scan.on_down(Down { before, ..Down::default() }).is_ok(), result.is_ok());
    }
}

#[test]
fn a_single_process_is_its_own_neighbour() {
    let mut scan = RingScan::new(0, 1);
    let value = Bytes::from_static(b"me");
    assert_eq!(scan.own(vec![]), Err(Refused::Own { found: 0, expected: 1 }));
    scan.own(vec![value.clone()]).unwrap().unwrap();
    assert_eq!(scan.own(vec![value.clone()]), Err(Refused::OwnTwice));
    let (_, places) = scan.on_down(scan.root()).unwrap();
    assert_eq!(places, [Down { before: 0, left: value.clone(), right: value }]);
}

#[test]
fn the_byte_layout_matches_the_documentation() {
    let up = Up { count: 0x0102, left: Bytes::from_static(b"ab"), right: Bytes::from_static(b"c") };
    assert_eq!(up.encode()[..], *b"\x02\x01\0\0\x02ab\x01c");
    for bytes in [&b"\x02\x01\0"[..], b"\x02\x01\0\0\x02ab", b"\x02\x01\0\0\x02ab\x01", b"\x02\x01\0\0\0\0\0"] {
        assert_eq!(Up::decode(&Bytes::from_static(bytes)), Err(Refused::Malformed));
    }
}
