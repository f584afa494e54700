//! Replays the stored corpus of the fuzz target. `BLESS=1` writes the streams of small sets into it, after a change of
//! the format.

mod decoders;
#[path = "../../../dev/fuzz/replay.rs"]
mod replay;

use std::fs;
use std::path::Path;
use wireup_stage::Set;
use wireup_stage::send::Sender;

/// The stream of a folder with a few files, in parts of `part` bytes.
fn stream(part: u8) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("one"), b"one").expect("a file");
    fs::write(folder.path().join("many"), [7; 3_000]).expect("a file");
    std::os::unix::fs::symlink("one", folder.path().join("link")).expect("a link");
    let set = Set::collect([folder.path()]).expect("a set");
    let mut sender = Sender::new(&set);
    sender.want_set();
    sender.want(&(0..2).collect());
    let mut bytes = vec![part];
    while let Some(next) = sender.next_part().expect("files that do not change") {
        bytes.extend(next);
    }
    bytes
}

#[test]
fn every_corpus_file_passes_the_decoder() {
    if std::env::var_os("BLESS").is_some() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev/fuzz/corpus/stage");
        for (name, part) in [("whole", 0), ("in-parts", 5)] {
            fs::write(corpus.join(name), stream(part)).expect("a file of the corpus");
        }
    }
    replay::replay(&[("stage", decoders::stream)]);
    decoders::stream(&stream(9));
}
