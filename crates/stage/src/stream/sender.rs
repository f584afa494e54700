//! Makes the stream of a set, one part after the other.

use super::cluster::{CLUSTER_LEN, Cut, Packer};
use super::{CLUSTERS, Content, END, FOLLOWING, MANIFEST, MANIFEST_END, NAME, ROWS_MAX, check, framed};
use crate::set::{Digest, PIECE_LEN, Problem, Set, open_file};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;

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
    packer: Packer,
}

struct Wanted {
    /// Numbers that have not been announced.
    announce: Vec<u32>,
    cut: Cut,
    open: Option<Open>,
}

struct Open {
    file: File,
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
            packer: Packer::new(),
        }
    }

    /// The manifest is to follow.
    pub fn want_set(&mut self) {
        self.is_wanted = true;
    }

    /// The contents of these numbers are to follow, and then the end of the contents.
    pub fn want(&mut self, numbers: &BTreeSet<u32>) {
        let (mut announce, mut cut) = (Vec::new(), Cut::default());
        for number in numbers {
            let content = self.contents.get(*number as usize);
            if content.and_then(|content| cut.push(*number, content.len)).is_some() {
                announce.push(*number);
            }
        }
        self.wanted = Some(Wanted { announce, cut, open: None });
    }

    /// Bytes of the contents that are left to be sent.
    pub fn bytes_left(&self) -> u64 {
        self.wanted.as_ref().map_or(0, |wanted| wanted.cut.left())
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
        let piece = wanted.next_piece(&self.contents, &mut self.packer)?;
        if piece.is_none() {
            self.wanted = None;
        }
        Ok(Part::Bytes(piece.unwrap_or_else(|| framed(END, &[]))))
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
    /// `None`: there is nothing left.
    fn next_piece(&mut self, contents: &[Content], packer: &mut Packer) -> Result<Option<Vec<u8>>, Problem> {
        let offset = self.cut.done();
        let clusters = self.cut.next_piece();
        if clusters.is_empty() {
            return Ok(None);
        }
        let mut buffer = [0; CLUSTER_LEN];
        let mut lens = 0;
        let mut body = vec![0; 4 * clusters.len()];
        for cluster in clusters {
            let (content, bytes) = (&contents[cluster.content as usize], &mut buffer[..cluster.len]);
            self.read(content, cluster.offset, bytes)?;
            let stored = packer.pack(bytes, content.len);
            body[lens..lens + 4].copy_from_slice(&(stored.len() as u32).to_le_bytes());
            lens += 4;
            body.extend_from_slice(stored);
        }
        Ok(Some(framed(CLUSTERS, &[&offset.to_le_bytes(), &check(offset, &body), &body])))
    }

    /// Reads the next bytes of a content.
    fn read(&mut self, content: &Content, offset: u64, bytes: &mut [u8]) -> Result<(), Problem> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => Open::new(content)?,
        };
        let changes = || Problem::Changes(content.path.clone());
        open.file.read_exact(bytes).map_err(|_| changes())?;
        open.hasher.update(bytes);
        if offset + (bytes.len() as u64) < content.len {
            self.open = Some(open);
        } else if *open.hasher.finalize().as_bytes() != content.digest {
            return Err(changes());
        }
        Ok(())
    }
}

impl Open {
    fn new(content: &Content) -> Result<Open, Problem> {
        let path = &content.path;
        let file = open_file(path).map_err(|error| Problem::Io { path: path.clone(), error })?;
        Ok(Open { file, hasher: blake3::Hasher::new() })
    }
}
