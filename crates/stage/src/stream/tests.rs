//! Tests the pieces that a receiver gets from the stream of a folder: whole, cut into portions, and damaged.

use super::*;
use crate::receive::Receiver;
use crate::send::Sender;
use crate::set::Problem;
use crate::testing::folder_with;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;

fn folder() -> (tempfile::TempDir, Set) {
    let noise: Vec<u8> = (0..PIECE_LEN + 1_000).map(|at| (at * at % 251) as u8 ^ (at >> 8) as u8).collect();
    let zeros = vec![0; 3 * PIECE_LEN];
    let folder = folder_with([
        ("noise", &noise[..]),
        ("same", b"short"),
        ("as this", b"short"),
        ("zeros", &zeros),
        ("empty", b""),
    ]);
    let set = Set::collect([folder.path()]).unwrap();
    (folder, set)
}

fn stream(set: &Set, wanted: &BTreeSet<u32>) -> Vec<Vec<u8>> {
    let mut sender = Sender::new(set);
    sender.want_set();
    sender.want(wanted);
    std::iter::from_fn(|| sender.next_part().unwrap()).collect()
}

/// A piece with its bytes copied out of the buffer.
#[derive(PartialEq, Debug)]
enum Taken {
    Name(Digest),
    Set(Set),
    Bytes(Vec<(u32, u64, Vec<u8>)>),
    Damaged(Vec<u32>),
    End,
}

/// A receiver whose stream arrives in portions.
struct Parts {
    receiver: Receiver,
    input: Buffered<VecDeque<u8>>,
}

impl Parts {
    fn new() -> Parts {
        Parts { receiver: Receiver::default(), input: Buffered::new(VecDeque::new()) }
    }

    /// The pieces that are complete with these bytes.
    fn take(&mut self, bytes: &[u8]) -> Result<Vec<Taken>, String> {
        self.input.get_mut().extend(bytes);
        let mut pieces = Vec::new();
        loop {
            let mut rest = self.input.bytes();
            let len = rest.len();
            let taken = self.receiver.next_piece(&mut rest)?.map(taken);
            let used = len - rest.len();
            self.input.consume(used);
            match taken {
                Some(taken) => pieces.push(taken),
                None if self.input.wait().unwrap() => {}
                None => return Ok(pieces),
            }
        }
    }
}

fn taken(piece: Piece) -> Taken {
    match piece {
        Piece::Clusters { clusters, bytes } => {
            let part = |cluster: &Cluster| {
                let stored = &bytes[cluster.stored.clone()];
                (cluster.content, cluster.offset, unpack(cluster.len, stored, &mut Vec::new()).unwrap().to_vec())
            };
            Taken::Bytes(clusters.iter().map(part).collect())
        }
        Piece::Name(name) => Taken::Name(name),
        Piece::Set(set) => Taken::Set(set),
        Piece::Damaged(clusters) => Taken::Damaged(clusters.iter().map(|cluster| cluster.content).collect()),
        Piece::End => Taken::End,
    }
}

fn contents(pieces: &[Taken]) -> BTreeMap<u32, Vec<u8>> {
    let mut all: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    for piece in pieces {
        let Taken::Bytes(parts) = piece else { continue };
        for (content, offset, bytes) in parts {
            let one = all.entry(*content).or_default();
            assert_eq!(one.len() as u64, *offset);
            one.extend_from_slice(bytes);
        }
    }
    all
}

#[test]
fn contents_arrive_once_each_and_only_those_that_are_wanted() {
    let (_folder, set) = folder();
    let all = set.contents();
    assert_eq!(all.len(), 3);
    let wanted = |numbers: &[u32]| numbers.iter().copied().collect::<BTreeSet<u32>>();
    for numbers in [wanted(&[0, 1, 2]), wanted(&[1]), wanted(&[])] {
        let parts = stream(&set, &numbers);
        let mut receiver = Parts::new();
        let pieces: Vec<Taken> = parts.iter().flat_map(|part| receiver.take(part).unwrap()).collect();
        assert_eq!(pieces[..2], [Taken::Name(set.digest()), Taken::Set(set.clone())]);
        assert_eq!(pieces.last(), Some(&Taken::End));
        let arrived = contents(&pieces);
        assert!(arrived.keys().eq(numbers.iter()));
        for (number, bytes) in arrived {
            assert_eq!(*blake3::hash(&bytes).as_bytes(), all[number as usize].digest);
        }
        assert!(receiver.take(&[0; 5]).is_err());
    }
    let packed: usize = stream(&set, &wanted(&[0, 1, 2])).iter().map(Vec::len).sum();
    assert!(packed < 2 * PIECE_LEN, "zeros are packed: {packed}");
}

#[test]
fn contents_wait_until_it_is_known_what_is_wanted() {
    let (_folder, set) = folder();
    let mut sender = Sender::new(&set);
    let mut receiver = Parts::new();
    let mut pull = |sender: &mut Sender| {
        let mut pieces = Vec::new();
        while let Some(part) = sender.next_part().unwrap() {
            pieces.extend(receiver.take(&part).unwrap());
        }
        pieces
    };
    assert_eq!(pull(&mut sender), [Taken::Name(set.digest())]);
    sender.want_set();
    assert_eq!(pull(&mut sender), [Taken::Set(set.clone())]);
    sender.want(&[1].into());
    assert!(sender.bytes_left() > 0 && sender.next_part().unwrap().is_some());
}

#[test]
fn a_file_that_has_changed_is_not_sent() {
    let (folder, set) = folder();
    for change in [&b"SHORT"[..], b"x"] {
        fs::write(folder.path().join("as this"), change).unwrap();
        let mut sender = Sender::new(&set);
        sender.want_set();
        sender.want(&(0..3).collect());
        let mut results = std::iter::from_fn(|| sender.next_part().transpose());
        assert!(results.any(|result| matches!(result, Err(Problem::Changes(_)))));
    }
}

#[test]
fn every_changed_byte_is_noticed() {
    let folder = folder_with([("one", &b"one"[..]), ("two", b"other")]);
    let set = Set::collect([folder.path()]).unwrap();
    // The parts of the stream: name, manifest, its end, announcement, a piece, the end.
    let parts = stream(&set, &[0, 1].into());
    assert_eq!(parts.len(), 6);
    for (part, from, end) in [(1, HEAD_LEN, 3), (3, 0, 6), (4, 0, 6)] {
        for at in from..parts[part].len() {
            let mut changed = parts[..end].to_vec();
            changed[part][at] ^= 1;
            let arrived = Parts::new().take(&changed.concat());
            let is_noticed = arrived.is_err() || part > 1 && contents(&arrived.unwrap()).is_empty();
            assert!(is_noticed, "part {part} byte {at}");
        }
    }
    assert!(Parts::new().take(&parts[1..3].concat()).is_err(), "a manifest without a name");
}

/// A piece contains many small files, and a large file is cut into many pieces.
#[test]
fn the_contents_of_a_damaged_piece_are_named_and_the_others_arrive() {
    let (_folder, set) = folder();
    let all: BTreeSet<u32> = (0..3).collect();
    let mut parts = stream(&set, &all);
    let first = parts.len() - 6;
    parts[first][HEAD_LEN + 20] ^= 1;
    let mut receiver = Parts::new();
    let pieces = receiver.take(&parts.concat()).unwrap();
    let damaged: BTreeSet<u32> = pieces
        .iter()
        .flat_map(|piece| if let Taken::Damaged(contents) = piece { contents.clone() } else { Vec::new() })
        .collect();
    assert_eq!(damaged, [0, 1].into(), "{damaged:?}");
    assert_eq!(pieces.last(), Some(&Taken::End));
    // The stream continues with another round.
    let again = stream(&set, &damaged)[3..].concat();
    let pieces = receiver.take(&again).unwrap();
    assert!(contents(&pieces).keys().eq(&damaged));
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_pieces(step in 1usize..70_000) {
        let (_folder, set) = folder();
        let bytes = stream(&set, &(0..3).collect()).concat();
        let whole = Parts::new().take(&bytes).unwrap();
        let mut receiver = Parts::new();
        let cut: Vec<Taken> = bytes.chunks(step).flat_map(|part| receiver.take(part).unwrap()).collect();
        prop_assert!(cut == whole);
    }

    #[test]
    fn any_bytes_are_taken_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Parts::new().take(&bytes);
    }
}
