//! A set that is sent to some stores: whole, damaged, broken off.

use super::*;
use crate::send::{Next, Sending};
use crate::stream::Buffered;
use crate::testing::{folder_with, look, noise};
use std::fs;

fn pull(sending: &mut Sending, bytes_max: usize) -> Vec<u8> {
    let mut stream = Vec::new();
    while let Next::Bytes(bytes) = sending.next(bytes_max).unwrap() {
        stream.extend(bytes);
    }
    stream
}

/// The answers of a node that has received this beginning of the stream.
fn said(store: &Store, stream: &[u8]) -> String {
    let mut answers = Vec::new();
    receive(store, Buffered::new(stream), &mut answers, || ()).unwrap();
    String::from_utf8(answers).unwrap()
}

/// Sends a set to some stores; returns the outcome of each.
fn send(set: &Set, stores: &[Store]) -> Vec<Option<Answer>> {
    let mut sending = Sending::new(set, stores.len() as u32);
    let mut stream = Vec::new();
    // Each node answers what it lacks after the name, and again after the manifest; its third answer is the
    // outcome.
    for line in 0..3 {
        stream.extend(pull(&mut sending, 1_000));
        for (rank, store) in stores.iter().enumerate() {
            let said = said(store, &stream);
            let line = said.split_inclusive('\n').nth(line).unwrap_or_default();
            if !line.starts_with("failed the launcher") {
                sending.output(rank as u32, line.as_bytes());
            }
        }
    }
    sending.ends().cloned().collect()
}

#[test]
fn nodes_receive_what_they_lack() {
    let files = folder_with([("one", &[1; 5_000][..]), ("two", &[2; 6_000])]);
    let homes: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let stores: Vec<Store> =
        homes.iter().map(|home| Store::open(&home.path().join("store"), 1 << 20).unwrap()).collect();
    let set = Set::collect([files.path()]).unwrap();
    assert!(send(&set, &stores).iter().all(|end| *end == Some(Answer::Kept)));
    for store in &stores {
        let kept = store.use_set(&set.digest()).unwrap().unwrap();
        let two = files.path().strip_prefix("/").unwrap().join("two");
        assert_eq!(look(&kept, store.form(), |root| fs::read(root.join(two)).unwrap()), [2; 6_000]);
    }
    // The second time only the set's name is sent.
    let mut sending = Sending::new(&set, 1);
    let name = pull(&mut sending, 1_000);
    assert!(name.len() < 40);
    assert_eq!((said(&stores[0], &name), sending.next(1_000).unwrap()), ("kept\n".to_owned(), Next::Waits));
    sending.output(0, b"kept\n");
    assert_eq!((sending.next(1_000).unwrap(), sending.kept()), (Next::Over, 1));
}

#[test]
fn the_manifest_waits_for_the_first_node_and_contents_wait_for_all() {
    let files = folder_with([("one", &[1; 5_000][..])]);
    let set = Set::collect([files.path()]).unwrap();
    let mut sending = Sending::new(&set, 3);
    assert!(!pull(&mut sending, 1_000).is_empty());
    sending.output(0, b"kept\n");
    assert!(pull(&mut sending, 1_000).is_empty());
    sending.output(1, b"lacks\n");
    assert!(pull(&mut sending, 1_000).len() > 40);
    sending.output(1, b"missing 0\n");
    assert!(pull(&mut sending, 1_000).is_empty());
    sending.output(2, b"lacks\nmissing 0\n");
    assert!(pull(&mut sending, 1_000).len() > 40);
    assert_eq!(sending.next(1_000).unwrap(), Next::Waits);
}

#[test]
fn a_damaged_content_is_sent_again_and_no_other() {
    let files = folder_with([("one", &noise(1, 600_000)[..]), ("two", &noise(2, 600_000))]);
    let home = tempfile::tempdir().unwrap();
    let set = Set::collect([files.path()]).unwrap();
    let store = Store::open(&home.path().join("store"), 0).unwrap();
    let mut sending = Sending::new(&set, 1);
    let mut stream = pull(&mut sending, 100_000);
    sending.output(0, b"lacks\n");
    stream.extend(pull(&mut sending, 100_000));
    sending.output(0, b"missing 0-1\n");
    let contents = pull(&mut sending, 100_000);
    let first = contents.len();
    stream.extend(contents);
    // Damages a byte in the first piece, which is the beginning of the first content.
    let damaged = stream.len() - first * 9 / 10;
    stream[damaged] ^= 1;
    // The node's last list of missing contents asks for the second round.
    let said = |stream: &[u8]| said(&store, stream);
    assert_eq!(said(&stream), "lacks\nmissing 0-1\nmissing 0\nfailed the launcher stopped sending\n");
    sending.output(0, b"missing 0\n");
    let again = pull(&mut sending, 100_000);
    assert!(again.len() < first * 8 / 10);
    stream.extend(again);
    // Contents that arrived before the stream broke off are still in the store.
    assert_eq!(said(&stream), "lacks\nmissing 0\nmissing 0\nkept\n");
    sending.output(0, b"kept\n");
    assert_eq!((sending.next(9).unwrap(), sending.kept()), (Next::Over, 1));
}

#[test]
fn a_stream_that_breaks_off_and_a_store_without_room_are_told() {
    let (files, home) = (folder_with([("one", &[1; 5_000][..])]), tempfile::tempdir().unwrap());
    let set = Set::collect([files.path()]).unwrap();
    let small = [Store::open(&home.path().join("store"), 1_000).unwrap()];
    let mut sending = Sending::new(&set, 1);
    let mut stream = pull(&mut sending, 1_000);
    sending.output(0, b"lacks\n");
    stream.extend(pull(&mut sending, 1_000));
    let refused = said(&small[0], &stream);
    assert!(refused.starts_with("lacks\nfailed ") && refused.contains(" bytes do not fit in "), "{refused}");
    let large = Store::open(&home.path().join("store"), 10_000).unwrap();
    assert_eq!(said(&large, &stream), "lacks\nmissing 0\nfailed the launcher stopped sending\n");
    assert!(said(&large, b"nonsense").starts_with("failed the stream of a staged set is malformed"));
}
