//! Checks the rules for the bytes of a node, and of the launcher, when files are gathered. The fuzz target `gather`
//! searches for violations.

use super::frames::{Frame, Frames, Malformed};
use super::request::{GatheredNode, Request, await_permission};
use super::rule::{escaped, is_pattern, plain};
use super::{Gathering, Rule};
use std::fs;
use std::path::Path;

/// The first byte gives the length of the parts in which the rest arrives; 0: at once.
pub fn gather(input: &[u8]) {
    let Some((&first, bytes)) = input.split_first() else { return };
    rules_and_names(bytes);
    let mut launcher = bytes;
    if let Ok(request) = Request::read(&mut launcher) {
        assert_eq!(Request::read(&mut &request.encode()[..]).expect("our own"), request);
        let _ = await_permission(first.into(), &mut launcher);
    }
    let part = if first == 0 { bytes.len().max(1) } else { first.into() };
    assert_eq!(frames(bytes, part), frames(bytes, bytes.len().max(1)), "the frames depend on the split");
    files_lie_in_their_folder(bytes, part);
}

fn rules_and_names(bytes: &[u8]) {
    if let Ok(rule) = Rule::parse(bytes) {
        let text = [&rule.pattern[..], b"=>", &rule.folder].concat();
        assert_eq!(text, bytes);
        assert_eq!(
            rule.is_per_rank(),
            rule.pattern_of(1, "") != rule.pattern_of(2, "") || rule.folder_of(1, "") != rule.folder_of(2, "")
        );
    }
    let own = escaped(bytes);
    assert!(!is_pattern(&own) && plain(&own) == bytes);
}

/// Parses the frames from portions of `part` bytes; returns them encoded again.
fn frames(bytes: &[u8], part: usize) -> (Vec<Vec<u8>>, Result<(), Malformed>) {
    let (mut frames, mut seen) = (Frames::default(), Vec::new());
    for part in bytes.chunks(part) {
        frames.add(part);
        loop {
            match frames.next_frame() {
                Ok(Some(frame)) => seen.push(encoded(&frame)),
                Ok(None) => break,
                Err(malformed) => return (seen, Err(malformed)),
            }
        }
    }
    (seen, Ok(()))
}

/// Encodes a frame, and checks that it survives a round trip.
fn encoded(frame: &Frame<'_>) -> Vec<u8> {
    let (mut bytes, mut again) = (Vec::new(), Frames::default());
    frame.encode(&mut bytes);
    again.add(&bytes);
    assert_eq!(again.next_frame().as_ref().map(Option::as_ref), Ok(Some(frame)));
    bytes
}

/// Checks that a node that sends these bytes makes nothing outside of the rule's folder.
fn files_lie_in_their_folder(bytes: &[u8], part: usize) {
    let base = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    let inside = base.path().join("inside");
    fs::create_dir(&inside).expect("a folder");
    fs::write(base.path().join("precious"), b"precious").expect("a file");
    let rules = [Rule { pattern: b"*".to_vec(), folder: b"out/{node}".to_vec() }];
    let mut gathering = Gathering::new(&rules, &inside, vec!["n0".into(), "n1".into()]);
    gathering.expect_gatherers([&[GatheredNode::new(0, "n0", [(0, 0)])][..]]);
    for part in bytes.chunks(part) {
        gathering.output(0, part);
    }
    gathering.finish();
    let (problems, count) = gathering.problems();
    assert!(problems.len() as u64 <= count && gathering.done() <= 1);
    let names =
        |folder: &Path| fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    assert_eq!(names(base.path()).count(), 2, "something was written next to the folder");
    assert!(names(&inside).all(|name| name == "out"), "something was written next to the rule's folder");
    assert_eq!(fs::read(base.path().join("precious")).expect("a file"), b"precious");
    make_removable(&inside);
}

/// Makes folders writable for their owner: an ordinary user cannot remove the contents of a folder without that bit.
fn make_removable(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_removable(&entry.path());
        }
    }
}

#[cfg(test)]
#[path = "../../../../dev/fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    #[test]
    fn every_corpus_file_passes_its_target() {
        super::replay::replay(&[("gather", super::gather)]);
    }
}
