//! Makes the stream of a set, one part after the other.

use super::{Content, END, FOLLOWING, MANIFEST, MANIFEST_END, NAME, PACKED, PLAIN, ROWS_MAX, check, framed};
use crate::set::{Digest, PIECE_LEN, Problem, Set, open_file};
use lz4_flex::block::get_maximum_output_size;
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::Read;

/// A piece is packed if that saves a sixteenth (chosen): otherwise unpacking costs more than it saves.
const PACKED_SHARE: usize = 16;

pub struct Sender {
    /// What comes first.
    name: Option<Digest>,
    /// Somebody lacks the set.
    is_wanted: bool,
    manifest: Vec<u8>,
    manifest_sent: bool,
    contents: Vec<Content>,
    /// What is wanted; `None`: it is not known yet.
    wanted: Option<Wanted>,
    bytes_left: u64,
    /// For packing.
    packed: Vec<u8>,
}

struct Wanted {
    /// Numbers that have not been announced.
    announce: Vec<u32>,
    /// Numbers of contents that are left.
    left: VecDeque<u32>,
    /// Bytes of contents that were sent.
    offset: u64,
    open: Option<Open>,
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
            manifest_sent: false,
            contents: set.contents(),
            wanted: None,
            bytes_left: 0,
            packed: vec![0; get_maximum_output_size(PIECE_LEN)],
        }
    }

    /// The manifest is to follow.
    pub fn want_set(&mut self) {
        self.is_wanted = true;
    }

    /// The contents of these numbers are to follow, and then the end of the contents.
    pub fn want(&mut self, numbers: &BTreeSet<u32>) {
        let known = |number: &u32| (*number as usize) < self.contents.len();
        let left: VecDeque<u32> = numbers.iter().copied().filter(known).collect();
        self.bytes_left = left.iter().map(|number| self.contents[*number as usize].len).sum();
        let announce = left.iter().copied().collect();
        self.wanted = Some(Wanted { announce, left, offset: 0, open: None });
    }

    /// Bytes of the contents that are left to be sent.
    pub fn bytes_left(&self) -> u64 {
        self.bytes_left
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
            return Ok(Part::Bytes(self.manifest_part()));
        }
        let Some(wanted) = &mut self.wanted else { return Ok(Part::Waits) };
        if !wanted.announce.is_empty() {
            return Ok(Part::Bytes(following(&mut wanted.announce)));
        }
        if wanted.left.is_empty() && wanted.open.is_none() {
            self.wanted = None;
            return Ok(Part::Bytes(framed(END, &[])));
        }
        let offset = wanted.offset;
        let bytes = wanted.read(&self.contents)?;
        self.bytes_left -= bytes.len() as u64;
        Ok(Part::Bytes(self.piece(offset, &bytes)))
    }

    fn manifest_part(&mut self) -> Vec<u8> {
        let at = self.manifest.len().saturating_sub(PIECE_LEN);
        let mut part = self.manifest.split_off(at);
        if part.is_empty() {
            self.manifest_sent = true;
            return framed(MANIFEST_END, &[]);
        }
        part.reverse();
        framed(MANIFEST, &[&part])
    }

    fn piece(&mut self, offset: u64, bytes: &[u8]) -> Vec<u8> {
        let head = [offset.to_le_bytes(), check(offset, bytes)].concat();
        match lz4_flex::block::compress_into(bytes, &mut self.packed) {
            Ok(len) if len + bytes.len() / PACKED_SHARE < bytes.len() => framed(PACKED, &[&head, &self.packed[..len]]),
            _ => framed(PLAIN, &[&head, bytes]),
        }
    }
}

/// The announcement of some of these numbers, which are removed.
fn following(numbers: &mut Vec<u32>) -> Vec<u8> {
    let mut rows: Vec<(u32, u32)> = Vec::new();
    let mut count = 0;
    for number in numbers.iter() {
        match rows.pop() {
            Some((first, len)) if first + len == *number => rows.push((first, len + 1)),
            Some(row) if rows.len() + 1 == ROWS_MAX => {
                rows.push(row);
                break;
            }
            row => {
                rows.extend(row);
                rows.push((*number, 1));
            }
        }
        count += 1;
    }
    numbers.drain(..count);
    let rows: Vec<u8> =
        rows.iter().flat_map(|(first, len)| [first.to_le_bytes(), len.to_le_bytes()].concat()).collect();
    framed(FOLLOWING, &[&check(0, &rows), &rows])
}

impl Wanted {
    /// The next bytes: a piece, or what is left.
    fn read(&mut self, contents: &[Content]) -> Result<Vec<u8>, Problem> {
        let mut bytes = vec![0; PIECE_LEN];
        let mut len = 0;
        while len < PIECE_LEN {
            let mut open = match self.open.take() {
                Some(open) => open,
                None => match self.left.pop_front() {
                    Some(number) => Open::new(number, contents)?,
                    None => break,
                },
            };
            let content = &contents[open.number as usize];
            let count = (content.len - open.offset).min((PIECE_LEN - len) as u64) as usize;
            let part = &mut bytes[len..len + count];
            open.file.read_exact(part).map_err(|_| Problem::Changes(content.path.clone()))?;
            open.hasher.update(part);
            open.offset += count as u64;
            len += count;
            if open.offset < content.len {
                self.open = Some(open);
            } else if *open.hasher.finalize().as_bytes() != content.digest {
                return Err(Problem::Changes(content.path.clone()));
            }
        }
        bytes.truncate(len);
        self.offset += len as u64;
        Ok(bytes)
    }
}

impl Open {
    fn new(number: u32, contents: &[Content]) -> Result<Open, Problem> {
        let path = &contents[number as usize].path;
        let file = open_file(path).map_err(|error| Problem::Io { path: path.clone(), error })?;
        Ok(Open { number, file, offset: 0, hasher: blake3::Hasher::new() })
    }
}
