//! A node's end: takes the stream of a set and puts it into the store. Contents of which a piece was damaged are missing at the end, and are
//! sent again.

use crate::answer::Answer;
use crate::receiving::Receiving;
use crate::store::{Store, StoreError};
use crate::stream::{Damaged, Piece, Receiver};
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use thiserror::Error;

#[derive(Error, Debug)]
enum Problem {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Damaged(#[from] Damaged),
    #[error("the staged set did not arrive: {0}")]
    Input(io::Error),
    #[error("the launcher stopped sending")]
    BrokeOff,
    #[error("cannot answer: {0}")]
    Output(io::Error),
}

/// Receives one set. What is missing, and the end, are answered on `output`.
///
/// # Errors
/// Nobody takes the answers.
pub fn receive(store: &Store, input: impl Read, mut output: impl Write) -> io::Result<()> {
    let end = match take(store, input, &mut output) {
        Ok(()) => Answer::Kept,
        Err(Problem::Output(error)) => return Err(error),
        Err(problem) => Answer::Failed(problem.to_string()),
    };
    output.write_all(end.line().as_bytes())?;
    output.flush()
}

fn take(store: &Store, mut input: impl Read, output: &mut impl Write) -> Result<(), Problem> {
    let (mut receiver, mut receiving) = (Receiver::default(), None::<Receiving>);
    // In use, so that it is still here at the end.
    let mut kept = None;
    let mut say = |missing: BTreeSet<u32>| {
        let line = Answer::Missing(missing).line();
        output.write_all(line.as_bytes()).and_then(|()| output.flush()).map_err(Problem::Output)
    };
    loop {
        match input.read(receiver.room()) {
            Ok(0) => return Err(Problem::BrokeOff),
            Ok(count) => receiver.fill(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Problem::Input(error)),
        }
        while let Some(piece) = receiver.next_piece()? {
            match (piece, &mut receiving) {
                (Piece::Set(set), None) => {
                    kept = store.take(&set.digest())?;
                    if kept.is_some() {
                        say(BTreeSet::new())?;
                        continue;
                    }
                    let begun = store.receive(set)?;
                    say(begun.missing().clone())?;
                    receiving = Some(begun);
                }
                (Piece::Bytes { content, offset, bytes }, Some(receiving)) => {
                    receiving.write(content, offset, &bytes)?;
                }
                (Piece::Damaged { content }, Some(receiving)) => receiving.spoil(content),
                (Piece::End, Some(begun)) if !begun.missing().is_empty() => say(begun.missing().clone())?,
                (Piece::End, receiving) => {
                    return receiving.take().map_or(Ok(()), |begun| begun.finish().map_err(Into::into));
                }
                (Piece::Bytes { .. } | Piece::Damaged { .. }, None) if kept.is_some() => {}
                (Piece::Set(_) | Piece::Bytes { .. } | Piece::Damaged { .. }, _) => {
                    return Err(Damaged::Malformed.into());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::send::{Next, Sending};
    use crate::set::Set;
    use std::fs;

    /// Sends a set to some stores; the answers of the last round.
    fn send(set: &Set, stores: &[Store]) -> Vec<Option<Answer>> {
        let mut sending = Sending::new(set, stores.len() as u32);
        let mut stream = Vec::new();
        while let Next::Bytes(bytes) = sending.next(1_000).unwrap() {
            stream.extend(bytes);
        }
        // Each node has answered what is missing when the first part of the stream is there.
        for (rank, store) in stores.iter().enumerate() {
            let mut answers = Vec::new();
            receive(store, &*stream, &mut answers).unwrap();
            let first = answers.split_inclusive(|byte| *byte == b'\n').next().unwrap();
            sending.output(rank as u32, first);
        }
        while let Next::Bytes(bytes) = sending.next(1_000).unwrap() {
            stream.extend(bytes);
        }
        for (rank, store) in stores.iter().enumerate() {
            let mut answers = Vec::new();
            receive(store, &*stream, &mut answers).unwrap();
            let second = answers.split_inclusive(|byte| *byte == b'\n').nth(1).unwrap_or_default();
            sending.output(rank as u32, second);
        }
        sending.ends().cloned().collect()
    }

    #[test]
    fn nodes_receive_what_they_lack() {
        let files = tempfile::tempdir().unwrap();
        let homes: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let stores: Vec<Store> =
            homes.iter().map(|home| Store::open(&home.path().join("store"), 1 << 20).unwrap()).collect();
        fs::write(files.path().join("one"), [1; 5_000]).unwrap();
        fs::write(files.path().join("two"), [2; 6_000]).unwrap();
        let set = Set::collect([files.path()]).unwrap();
        assert!(send(&set, &stores).iter().all(|end| *end == Some(Answer::Kept)));
        for store in &stores {
            let kept = store.take(&set.digest()).unwrap().unwrap();
            let file = kept.tree.join(files.path().strip_prefix("/").unwrap()).join("two");
            assert_eq!(fs::read(file).unwrap(), [2; 6_000]);
        }
        // The second time nothing travels but the manifest.
        let mut sending = Sending::new(&set, 1);
        while let Next::Bytes(_) = sending.next(1_000).unwrap() {}
        sending.output(0, b"missing \n");
        let Next::Bytes(rest) = sending.next(1_000).unwrap() else { panic!("the end of the contents") };
        assert!(rest.len() < 10);
        assert_eq!(sending.next(1_000).unwrap(), Next::Waits);
        sending.output(0, b"kept\n");
        assert_eq!(sending.next(1_000).unwrap(), Next::Over);
    }

    #[test]
    fn a_damaged_content_is_sent_again_and_no_other() {
        let (files, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let noise = |seed: u32| (0..600_000u32).map(|at| (at.wrapping_mul(seed) >> 13) as u8).collect::<Vec<u8>>();
        fs::write(files.path().join("one"), noise(2_654_435_761)).unwrap();
        fs::write(files.path().join("two"), noise(2_246_822_519)).unwrap();
        let set = Set::collect([files.path()]).unwrap();
        let store = Store::open(&home.path().join("store"), 0).unwrap();
        let mut sending = Sending::new(&set, 1);
        let pull = |sending: &mut Sending| {
            let mut stream = Vec::new();
            while let Next::Bytes(bytes) = sending.next(100_000).unwrap() {
                stream.extend(bytes);
            }
            stream
        };
        let mut stream = pull(&mut sending);
        sending.output(0, b"missing 0-1\n");
        let contents = pull(&mut sending);
        let first = contents.len();
        stream.extend(contents);
        stream[first / 4] ^= 1;
        // The second round is asked for by what is missing then.
        let said = |stream: &[u8]| {
            let mut answers = Vec::new();
            receive(&store, stream, &mut answers).unwrap();
            String::from_utf8(answers).unwrap()
        };
        assert_eq!(said(&stream), "missing 0-1\nmissing 0\nfailed the launcher stopped sending\n");
        sending.output(0, b"missing 0\n");
        let again = pull(&mut sending);
        assert!(again.len() < first * 8 / 10);
        stream.extend(again);
        // What had arrived of the stream that broke off is still there.
        assert_eq!(said(&stream), "missing 0\nmissing 0\nkept\n");
        sending.output(0, b"kept\n");
        assert_eq!((sending.next(9).unwrap(), sending.kept()), (Next::Over, 1));
    }

    #[test]
    fn a_stream_that_breaks_off_and_a_store_without_room_are_told() {
        let (files, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(files.path().join("one"), [1; 5_000]).unwrap();
        let set = Set::collect([files.path()]).unwrap();
        let small = [Store::open(&home.path().join("store"), 1_000).unwrap()];
        let mut sending = Sending::new(&set, 1);
        let mut stream = Vec::new();
        while let Next::Bytes(bytes) = sending.next(1_000).unwrap() {
            stream.extend(bytes);
        }
        let said = |store: &Store, stream: &[u8]| {
            let mut answers = Vec::new();
            receive(store, stream, &mut answers).unwrap();
            String::from_utf8(answers).unwrap()
        };
        assert!(said(&small[0], &stream).starts_with("failed 5000 bytes do not fit"));
        let large = Store::open(&home.path().join("store"), 10_000).unwrap();
        assert_eq!(said(&large, &stream), "missing 0\nfailed the launcher stopped sending\n");
        assert!(said(&large, b"nonsense").starts_with("failed the stream of a staged set is malformed"));
    }
}
