//! A set on its way: its manifest, then pieces of the contents that somebody lacks.
//!
//! ```text
//!   +--------+------+---------------------------------------------+   kind 1: a part of the manifest
//!   | length | kind | body: `length` bytes                         |        2, 3: a piece of a content, as it is or packed by LZ4:
//!   | u32 LE | u8   |                                             |              content u32, offset u64, check u64, then its bytes
//!   +--------+------+---------------------------------------------+        6: the digest of the manifest; 5: it is whole; 4: so are the contents
//! ```
//!
//! The check is XXH3 of the piece's bytes, with its place: a damaged piece is noticed where it arrives, and its content can be sent again.

use crate::set::{Digest, Kind, MANIFEST_LEN_MAX, PIECE_LEN, Problem, Set, open_file};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::PathBuf;
use thiserror::Error;
use twox_hash::XxHash3_64;

const HEAD_LEN: usize = 5;
const PIECE_HEAD_LEN: usize = 20;
/// A piece that LZ4 makes larger travels as it is.
const BODY_LEN_MAX: usize = PIECE_HEAD_LEN + PIECE_LEN;
/// Room for a few pieces, so that little is moved.
const BUFFER_LEN: usize = 4 * (HEAD_LEN + BODY_LEN_MAX);
const READ_LEN_MIN: usize = 128 << 10;
/// A piece is packed if that saves a sixteenth (chosen): otherwise unpacking costs more than it saves.
const PACKED_SHARE: usize = 16;

const MANIFEST: u8 = 1;
const PLAIN: u8 = 2;
const PACKED: u8 = 3;
const END: u8 = 4;
const MANIFEST_END: u8 = 5;
const NAME: u8 = 6;

/// One content of a set; several files may have it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Content {
    pub digest: Digest,
    pub len: u64,
    /// A file that has it.
    pub path: PathBuf,
}

impl Set {
    /// The different contents, numbered in the order of the entries. Empty files have none.
    pub fn contents(&self) -> Vec<Content> {
        let mut seen = BTreeSet::new();
        let mut all = Vec::new();
        for entry in &self.entries {
            let Kind::File { len, digest } = entry.kind else { continue };
            if len > 0 && seen.insert(digest) {
                all.push(Content { digest, len, path: entry.path().to_owned() });
            }
        }
        all
    }
}

/// What arrives.
#[derive(PartialEq, Eq, Debug)]
pub enum Piece<'a> {
    /// The digest of the manifest that follows.
    Name(Digest),
    Set(Set),
    Bytes {
        content: u32,
        offset: u64,
        bytes: Cow<'a, [u8]>,
    },
    /// A piece of this content was damaged on its way.
    Damaged {
        content: u32,
    },
    /// The contents that were wanted have been sent.
    End,
}

#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum Damaged {
    #[error("the stream of a staged set is malformed")]
    Malformed,
    #[error("{0}")]
    Manifest(String),
}

/// Makes the stream of a set, one part after the other.
pub struct Sender {
    /// What comes first.
    name: Option<Digest>,
    /// Somebody lacks the set.
    is_wanted: bool,
    manifest: Vec<u8>,
    /// Numbers of contents that are left, the next one last; `None`: it is not known yet what is wanted.
    left: Option<Vec<u32>>,
    contents: Vec<Content>,
    open: Option<Open>,
    manifest_sent: bool,
}

struct Open {
    number: u32,
    file: File,
    offset: u64,
    hasher: blake3::Hasher,
}

/// What a sender has next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    Bytes(Vec<u8>),
    /// Nothing until [`Sender::want_set`], then [`Sender::want`].
    Waits,
}

impl Sender {
    pub fn new(set: &Set) -> Sender {
        let mut manifest = set.manifest();
        let name = Some(*blake3::hash(&manifest).as_bytes());
        manifest.reverse();
        Sender {
            name,
            is_wanted: false,
            manifest,
            left: None,
            contents: set.contents(),
            open: None,
            manifest_sent: false,
        }
    }

    /// The manifest is to follow.
    pub fn want_set(&mut self) {
        self.is_wanted = true;
    }

    /// The contents of these numbers are to follow, and then the end of the contents.
    pub fn want(&mut self, numbers: &BTreeSet<u32>) {
        let known = |number: &u32| (*number as usize) < self.contents.len();
        self.left = Some(numbers.iter().rev().copied().filter(known).collect());
    }

    /// Bytes of the contents that are left to be sent.
    pub fn bytes_left(&self) -> u64 {
        let left: u64 = self.left.iter().flatten().map(|number| self.contents[*number as usize].len).sum();
        let open = self.open.as_ref().map_or(0, |open| self.contents[open.number as usize].len - open.offset);
        left + open
    }

    /// The next part of the stream.
    ///
    /// # Errors
    /// A file cannot be read, or is not what it was when the set was made.
    pub fn next_part(&mut self) -> Result<Part, Problem> {
        if let Some(name) = self.name.take() {
            return Ok(Part::Bytes(framed(NAME, &[&name])));
        }
        if !self.is_wanted {
            return Ok(Part::Waits);
        }
        if !self.manifest_sent {
            let at = self.manifest.len().saturating_sub(PIECE_LEN);
            let mut part = self.manifest.split_off(at);
            if part.is_empty() {
                self.manifest_sent = true;
                return Ok(Part::Bytes(framed(MANIFEST_END, &[])));
            }
            part.reverse();
            return Ok(Part::Bytes(framed(MANIFEST, &[&part])));
        }
        if self.open.is_none() {
            let Some(left) = &mut self.left else { return Ok(Part::Waits) };
            let Some(number) = left.pop() else {
                self.left = None;
                return Ok(Part::Bytes(framed(END, &[])));
            };
            let path = &self.contents[number as usize].path;
            let file = open_file(path).map_err(|error| Problem::Io { path: path.clone(), error })?;
            self.open = Some(Open { number, file, offset: 0, hasher: blake3::Hasher::new() });
        }
        self.piece().map(Part::Bytes)
    }

    fn piece(&mut self) -> Result<Vec<u8>, Problem> {
        let Some(mut open) = self.open.take() else { return Err(Problem::Manifest("no file is open")) };
        let content = &self.contents[open.number as usize];
        let len = (content.len - open.offset).min(PIECE_LEN as u64) as usize;
        let mut bytes = vec![0; len];
        open.file.read_exact(&mut bytes).map_err(|_| Problem::Changes(content.path.clone()))?;
        open.hasher.update(&bytes);
        let head =
            [&open.number.to_le_bytes()[..], &open.offset.to_le_bytes(), &check(open.number, open.offset, &bytes)]
                .concat();
        open.offset += len as u64;
        if open.offset == content.len {
            if *open.hasher.finalize().as_bytes() != content.digest {
                return Err(Problem::Changes(content.path.clone()));
            }
        } else {
            self.open = Some(open);
        }
        let packed = lz4_flex::compress(&bytes);
        let is_smaller = packed.len() + bytes.len() / PACKED_SHARE < bytes.len();
        let (kind, body) = if is_smaller { (PACKED, &packed) } else { (PLAIN, &bytes) };
        Ok(framed(kind, &[&head, body]))
    }
}

fn framed(kind: u8, body: &[&[u8]]) -> Vec<u8> {
    let len: usize = body.iter().map(|part| part.len()).sum();
    let mut out = Vec::with_capacity(HEAD_LEN + len);
    out.extend_from_slice(&(len as u32).to_le_bytes());
    out.push(kind);
    body.iter().for_each(|part| out.extend_from_slice(part));
    out
}

fn check(content: u32, offset: u64, bytes: &[u8]) -> [u8; 8] {
    XxHash3_64::oneshot_with_seed(offset ^ u64::from(content) << 40, bytes).to_le_bytes()
}

/// Takes a stream apart, however it is cut. It is read straight into the receiver's buffer, and pieces are used there.
pub struct Receiver {
    buffer: Vec<u8>,
    /// The part of the buffer that has been filled and not used.
    filled: Range<usize>,
    manifest: Vec<u8>,
    /// The lengths of the contents, once the manifest is whole.
    lens: Option<Vec<u64>>,
}

impl Default for Receiver {
    fn default() -> Receiver {
        Receiver { buffer: vec![0; BUFFER_LEN], filled: 0..0, manifest: Vec::new(), lens: None }
    }
}

impl Receiver {
    /// Where the next bytes of the stream go; call [`Receiver::fill`] then.
    pub fn room(&mut self) -> &mut [u8] {
        if self.buffer.len() - self.filled.end < READ_LEN_MIN {
            self.buffer.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
        &mut self.buffer[self.filled.end..]
    }

    /// This many bytes of [`Receiver::room`] have been filled.
    pub fn fill(&mut self, count: usize) {
        self.filled.end += count;
    }

    /// What is whole now.
    ///
    /// # Errors
    /// The bytes are no stream of a set. Nothing is to follow.
    pub fn next_piece(&mut self) -> Result<Option<Piece<'_>>, Damaged> {
        loop {
            let Some((head, rest)) = self.buffer[self.filled.clone()].split_first_chunk::<HEAD_LEN>() else {
                return Ok(None);
            };
            let (len, kind) = (u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize, head[4]);
            if len > BODY_LEN_MAX {
                return Err(Damaged::Malformed);
            }
            if rest.len() < len {
                return Ok(None);
            }
            let from = self.filled.start + HEAD_LEN;
            self.filled.start = from + len;
            let body = &self.buffer[from..from + len];
            match (kind, &self.lens) {
                (NAME, None) => {
                    let name = body.try_into().map_err(|_| Damaged::Malformed)?;
                    return Ok(Some(Piece::Name(name)));
                }
                (MANIFEST, None) => {
                    self.manifest.extend_from_slice(body);
                    if self.manifest.len() > MANIFEST_LEN_MAX {
                        return Err(Damaged::Malformed);
                    }
                }
                (MANIFEST_END, None) if body.is_empty() => {
                    let set = Set::from_manifest(&std::mem::take(&mut self.manifest));
                    let set = set.map_err(|problem| Damaged::Manifest(problem.to_string()))?;
                    self.lens = Some(set.contents().into_iter().map(|content| content.len).collect());
                    return Ok(Some(Piece::Set(set)));
                }
                (PLAIN | PACKED, Some(lens)) => return piece(lens, kind == PACKED, body).map(Some),
                (END, Some(_)) if body.is_empty() => return Ok(Some(Piece::End)),
                _ => return Err(Damaged::Malformed),
            }
        }
    }
}

fn piece<'a>(lens: &[u64], is_packed: bool, body: &'a [u8]) -> Result<Piece<'a>, Damaged> {
    let (content, rest) = body.split_first_chunk().ok_or(Damaged::Malformed)?;
    let (offset, rest) = rest.split_first_chunk().ok_or(Damaged::Malformed)?;
    let (wanted, rest) = rest.split_first_chunk::<8>().ok_or(Damaged::Malformed)?;
    let (content, offset) = (u32::from_le_bytes(*content), u64::from_le_bytes(*offset));
    let len = *lens.get(content as usize).ok_or(Damaged::Malformed)?;
    let left = len.checked_sub(offset).ok_or(Damaged::Malformed)?.min(PIECE_LEN as u64) as usize;
    let bytes = match is_packed {
        true => lz4_flex::decompress(rest, left).map_or(Cow::Borrowed(&[][..]), Cow::Owned),
        false => Cow::Borrowed(rest),
    };
    let is_right = bytes.len() == left && check(content, offset, &bytes) == *wanted;
    Ok(if is_right { Piece::Bytes { content, offset, bytes } } else { Piece::Damaged { content } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::fs;

    fn folder() -> (tempfile::TempDir, Set) {
        let folder = tempfile::tempdir().unwrap();
        let noise: Vec<u8> = (0..PIECE_LEN + 1_000).map(|at| (at * at % 251) as u8 ^ (at >> 8) as u8).collect();
        fs::write(folder.path().join("noise"), noise).unwrap();
        fs::write(folder.path().join("same"), b"short").unwrap();
        fs::write(folder.path().join("as this"), b"short").unwrap();
        fs::write(folder.path().join("zeros"), vec![0; 3 * PIECE_LEN]).unwrap();
        fs::write(folder.path().join("empty"), b"").unwrap();
        let set = Set::collect([folder.path()]).unwrap();
        (folder, set)
    }

    fn stream(set: &Set, wanted: &BTreeSet<u32>) -> Vec<Vec<u8>> {
        let mut sender = Sender::new(set);
        sender.want_set();
        sender.want(wanted);
        std::iter::from_fn(|| match sender.next_part().unwrap() {
            Part::Bytes(part) => Some(part),
            Part::Waits => None,
        })
        .collect()
    }

    fn take(receiver: &mut Receiver, mut bytes: &[u8]) -> Result<Vec<Piece<'static>>, Damaged> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let room = receiver.room();
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            receiver.fill(count);
            bytes = &bytes[count..];
            while let Some(piece) = receiver.next_piece()? {
                pieces.push(match piece {
                    Piece::Bytes { content, offset, bytes } => {
                        Piece::Bytes { content, offset, bytes: bytes.into_owned().into() }
                    }
                    Piece::Name(name) => Piece::Name(name),
                    Piece::Set(set) => Piece::Set(set),
                    Piece::Damaged { content } => Piece::Damaged { content },
                    Piece::End => Piece::End,
                });
            }
        }
        Ok(pieces)
    }

    fn contents(pieces: &[Piece]) -> BTreeMap<u32, Vec<u8>> {
        let mut all: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for piece in pieces {
            if let Piece::Bytes { content, offset, bytes } = piece {
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
            let mut receiver = Receiver::default();
            let pieces: Vec<Piece> = parts.iter().flat_map(|part| take(&mut receiver, part).unwrap()).collect();
            assert_eq!(pieces[..2], [Piece::Name(set.digest()), Piece::Set(set.clone())]);
            assert_eq!(pieces.last(), Some(&Piece::End));
            let arrived = contents(&pieces);
            assert!(arrived.keys().eq(numbers.iter()));
            for (number, bytes) in arrived {
                assert_eq!(*blake3::hash(&bytes).as_bytes(), all[number as usize].digest);
            }
            assert!(take(&mut receiver, &[0; 5]).is_err());
        }
        let packed: usize = stream(&set, &wanted(&[0, 1, 2])).iter().map(Vec::len).sum();
        assert!(packed < 2 * PIECE_LEN, "zeros are packed: {packed}");
    }

    #[test]
    fn contents_wait_until_it_is_known_what_is_wanted() {
        let (_folder, set) = folder();
        let mut sender = Sender::new(&set);
        let mut receiver = Receiver::default();
        let mut pull = |sender: &mut Sender| {
            let mut pieces = Vec::new();
            while let Part::Bytes(part) = sender.next_part().unwrap() {
                pieces.extend(take(&mut receiver, &part).unwrap());
            }
            pieces
        };
        assert_eq!(pull(&mut sender), [Piece::Name(set.digest())]);
        sender.want_set();
        assert_eq!(pull(&mut sender), [Piece::Set(set)]);
        sender.want(&[1].into());
        assert!(sender.bytes_left() > 0 && matches!(sender.next_part().unwrap(), Part::Bytes(_)));
    }

    #[test]
    fn a_file_that_has_changed_is_not_sent() {
        let (folder, set) = folder();
        for change in [&b"SHORT"[..], b"x"] {
            fs::write(folder.path().join("as this"), change).unwrap();
            let mut sender = Sender::new(&set);
            sender.want_set();
            sender.want(&(0..3).collect());
            let mut results = std::iter::from_fn(|| match sender.next_part() {
                Ok(Part::Waits) => None,
                other => Some(other),
            });
            assert!(results.any(|result| matches!(result, Err(Problem::Changes(_)))));
        }
    }

    #[test]
    fn every_changed_byte_of_a_piece_is_noticed() {
        let (_folder, set) = folder();
        let short = *blake3::hash(b"short").as_bytes();
        let number = set.contents().iter().position(|content| content.digest == short).unwrap() as u32;
        let parts = stream(&set, &[number].into());
        let (piece, before) = (parts.len() - 2, parts[..parts.len() - 2].concat());
        for at in 0..parts[piece].len() {
            let mut changed = parts[piece].clone();
            changed[at] ^= 1;
            let mut receiver = Receiver::default();
            take(&mut receiver, &before).unwrap();
            let rest = [changed, parts[piece + 1].clone()].concat();
            let arrived = take(&mut receiver, &rest).map(|pieces| contents(&pieces));
            assert!(arrived.is_err() || arrived.unwrap().is_empty(), "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_pieces(step in 1usize..70_000) {
            let (_folder, set) = folder();
            let bytes = stream(&set, &(0..3).collect()).concat();
            let whole = take(&mut Receiver::default(), &bytes).unwrap();
            let mut receiver = Receiver::default();
            let cut: Vec<Piece> = bytes.chunks(step).flat_map(|part| take(&mut receiver, part).unwrap()).collect();
            prop_assert!(cut == whole);
        }

        #[test]
        fn any_bytes_are_taken_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = take(&mut Receiver::default(), &bytes);
        }
    }
}
