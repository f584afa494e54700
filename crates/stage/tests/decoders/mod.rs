//! The decoders of staging, and what must hold for any input. Shared by the fuzz target and by `corpus.rs`, as those of `wireup-wire`.

use wireup_stage::answer::Answer;
use wireup_stage::set::{Content, PIECE_LEN, Set};
use wireup_stage::stream::{Cluster, Piece, Receiver};

/// The first byte gives the length of the parts in which the rest arrives; 0: at once.
pub fn stream(input: &[u8]) {
    let Some((&first, mut bytes)) = input.split_first() else { return };
    let part = if first == 0 { usize::MAX } else { usize::from(first) };
    answer(bytes);
    // What a node sends to the launcher when a job is over.
    let _ = wireup_stage::gather::take_apart(bytes);
    if let Ok(set) = Set::from_manifest(bytes.to_vec()) {
        is_of_a_launcher(&set);
    }
    let (mut receiver, mut contents) = (Receiver::default(), None);
    while !bytes.is_empty() {
        let room = receiver.room();
        let count = room.len().min(bytes.len()).min(part);
        room[..count].copy_from_slice(&bytes[..count]);
        receiver.fill(count);
        bytes = &bytes[count..];
        loop {
            match receiver.next_piece() {
                Ok(None) => break,
                Err(_) => return,
                Ok(Some(Piece::Set(set))) => {
                    is_of_a_launcher(&set);
                    assert!(contents.replace(set.contents().to_vec()).is_none(), "two sets");
                }
                Ok(Some(Piece::Clusters { clusters, bytes })) => {
                    let contents = contents.as_ref().expect("after the set");
                    let mut at = 0;
                    for cluster in &clusters {
                        assert!(cluster.stored.start == at && cluster.stored.len() <= cluster.len);
                        at = cluster.stored.end;
                    }
                    assert_eq!(at, bytes.len());
                    assert!(all_lie_in(contents, &clusters));
                }
                Ok(Some(Piece::Damaged(clusters))) => {
                    let contents = contents.as_ref().expect("after the set");
                    assert!(all_lie_in(contents, &clusters));
                }
                Ok(Some(Piece::Name(_))) => assert!(contents.is_none(), "after the set"),
                Ok(Some(Piece::End)) => assert!(contents.is_some(), "before the set"),
            }
        }
    }
}

/// What was accepted is what a launcher would send.
fn is_of_a_launcher(set: &Set) {
    assert_eq!(&Set::of(set.entries()).expect("not too much"), set);
}

fn all_lie_in(contents: &[Content], clusters: &[Cluster]) -> bool {
    let lies = |cluster: &Cluster| cluster.offset + cluster.len as u64 <= contents[cluster.content as usize].len;
    let len: usize = clusters.iter().map(|cluster| cluster.len).sum();
    !clusters.is_empty() && len <= PIECE_LEN && clusters.iter().all(lies)
}

fn answer(bytes: &[u8]) {
    let Some(answer) = std::str::from_utf8(bytes).ok().and_then(Answer::read) else { return };
    assert_eq!(Answer::read(answer.line().trim_end_matches('\n')), Some(answer));
}
