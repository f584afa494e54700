//! Makes the stream of a set, one part after the other.

use super::cluster::{CLUSTER_LEN, Cut, Packer};
use super::{CLUSTERS, END, FOLLOWING, MANIFEST, MANIFEST_END, NAME, ROWS_MAX, check, framed};
use crate::set::{Content, PIECE_LEN, Problem, Set, open_file};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

pub struct Sender<'a> {
    set: &'a Set,
    /// Whether the set's name, the first part of the stream, was sent.
    name_sent: bool,
    /// Whether a node has answered that it lacks the set.
    is_wanted: bool,
    /// The unsent part of the manifest; `None`: the end of the manifest was sent, too.
    manifest: Option<&'a [u8]>,
    /// The contents to be sent in this round; `None`: nodes have not asked yet.
    wanted: Option<Wanted>,
    packer: Packer,
}

struct Wanted {
    /// The numbers of contents that have not been announced yet.
    announce: Vec<u32>,
    cut: Cut,
    open: Option<Open>,
}

struct Open {
    file: File,
    hasher: blake3::Hasher,
}

impl<'a> Sender<'a> {
    pub fn new(set: &'a Set) -> Sender<'a> {
        Sender {
            set,
            name_sent: false,
            is_wanted: false,
            manifest: Some(set.manifest()),
            wanted: None,
            packer: Packer::new(),
        }
    }

    /// Lets the manifest be sent next.
    pub fn want_set(&mut self) {
        self.is_wanted = true;
    }

    /// Lets the contents of these numbers be sent next, and then the end of the contents.
    pub fn want(&mut self, numbers: &BTreeSet<u32>) {
        let (mut announce, mut cut) = (Vec::new(), Cut::default());
        for number in numbers {
            let content = self.set.contents().get(*number as usize);
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

    /// The next part of the stream; `None`: nothing until [`Sender::want_set`], then [`Sender::want`].
    ///
    /// # Errors
    /// A file cannot be read, or has changed since the set was made.
    pub fn next_part(&mut self) -> Result<Option<Vec<u8>>, Problem> {
        if !std::mem::replace(&mut self.name_sent, true) {
            return Ok(Some(framed(NAME, &[&self.set.digest()])));
        }
        if !self.is_wanted {
            return Ok(None);
        }
        if let Some(manifest) = self.manifest {
            let (part, rest) = manifest.split_at(manifest.len().min(PIECE_LEN));
            self.manifest = (!part.is_empty()).then_some(rest);
            return Ok(Some(framed(if part.is_empty() { MANIFEST_END } else { MANIFEST }, &[part])));
        }
        let Some(wanted) = &mut self.wanted else { return Ok(None) };
        if !wanted.announce.is_empty() {
            return Ok(Some(following(&mut wanted.announce)));
        }
        let piece = wanted.next_piece(self.set, &mut self.packer)?;
        if piece.is_none() {
            self.wanted = None;
        }
        Ok(Some(piece.unwrap_or_else(|| framed(END, &[]))))
    }
}

/// Makes the announcement of as many of these numbers as fit, and removes them.
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
    /// The next piece of the contents; `None`: there is nothing left.
    fn next_piece(&mut self, set: &Set, packer: &mut Packer) -> Result<Option<Vec<u8>>, Problem> {
        let offset = self.cut.done();
        let clusters = self.cut.next_piece();
        if clusters.is_empty() {
            return Ok(None);
        }
        let mut buffer = [0; CLUSTER_LEN];
        let mut lens = 0;
        let mut body = vec![0; 4 * clusters.len()];
        for cluster in clusters {
            let (content, bytes) = (&set.contents()[cluster.content as usize], &mut buffer[..cluster.len]);
            self.read(content, set.path_of(content), cluster.offset, bytes)?;
            let stored = packer.pack(bytes, content.len);
            body[lens..lens + 4].copy_from_slice(&(stored.len() as u32).to_le_bytes());
            lens += 4;
            body.extend_from_slice(stored);
        }
        Ok(Some(framed(CLUSTERS, &[&offset.to_le_bytes(), &check(offset, &body), &body])))
    }

    /// Reads the next bytes of a content.
    fn read(&mut self, content: &Content, path: &Path, offset: u64, bytes: &mut [u8]) -> Result<(), Problem> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => Open::new(path)?,
        };
        let changes = || Problem::Changes(path.to_owned());
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
    fn new(path: &Path) -> Result<Open, Problem> {
        let file = open_file(path).map_err(|error| Problem::Io { path: path.to_owned(), error })?;
        Ok(Open { file, hasher: blake3::Hasher::new() })
    }
}
