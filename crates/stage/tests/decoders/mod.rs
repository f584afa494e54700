//! The decoders of staging, and what must hold for any input. Shared by the fuzz target and by `corpus.rs`, as those of
//! `wireup-wire`.

use std::io::{self, Read};
use wireup_stage::answer::Answer;
use wireup_stage::receive::Receiver;
use wireup_stage::set::{Content, PIECE_LEN, Set};
use wireup_stage::stream::{Buffered, Cluster, Input, Piece};

/// The first byte gives the length of the parts in which the rest arrives; 0: at once.
pub fn stream(input: &[u8]) {
    let Some((&first, bytes)) = input.split_first() else { return };
    let part = if first == 0 { usize::MAX } else { usize::from(first) };
    answer(bytes);
    if let Ok(set) = Set::from_manifest(bytes.to_vec()) {
        is_of_a_launcher(&set);
    }
    let mut input = Buffered::new(InParts { bytes, part });
    let (mut receiver, mut contents) = (Receiver::default(), None);
    loop {
        let mut rest = input.bytes();
        let len = rest.len();
        let Ok(piece) = receiver.next_piece(&mut rest) else { return };
        let (used, is_whole) = (len - rest.len(), piece.is_some());
        match piece {
            None => {}
            Some(Piece::Set(set)) => {
                is_of_a_launcher(&set);
                assert!(contents.replace(set.contents().to_vec()).is_none(), "two sets");
            }
            Some(Piece::Clusters { clusters, bytes }) => {
                let contents = contents.as_ref().expect("after the set");
                let mut at = 0;
                for cluster in &clusters {
                    assert!(cluster.stored.start == at && cluster.stored.len() <= cluster.len);
                    at = cluster.stored.end;
                }
                assert_eq!(at, bytes.len());
                assert!(all_lie_in(contents, &clusters));
            }
            Some(Piece::Damaged(clusters)) => {
                let contents = contents.as_ref().expect("after the set");
                assert!(all_lie_in(contents, &clusters));
            }
            Some(Piece::Name(_)) => assert!(contents.is_none(), "after the set"),
            Some(Piece::End) => assert!(contents.is_some(), "before the set"),
        }
        input.consume(used);
        if !is_whole && !input.wait().expect("bytes in memory") {
            return;
        }
    }
}

struct InParts<'a> {
    bytes: &'a [u8],
    part: usize,
}

impl Read for InParts<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.part.min(buffer.len());
        self.bytes.read(&mut buffer[..count])
    }
}

/// Checks that a set that was accepted is one that a launcher would send.
fn is_of_a_launcher(set: &Set) {
    assert_eq!(&Set::from_entries(set.entries()).expect("not too much"), set);
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
