//! The stream that carries a set to the nodes: its manifest, then the contents that any node lacks, cut into pieces.
//!
//! ```text
//!   +--------+------+----------------------+   kind 6: the digest of the manifest
//!   | length | kind | body: `length` bytes |        1: a part of the manifest; 5: it is whole
//!   | u32 LE | u8   |                      |        7: the contents that follow: check u64, then pairs of u32: the
//!   +--------+------+----------------------+           first of a row of numbers, and how many they are
//!                                                  2: clusters of these contents: offset u64, check u64, what is
//!                                                     stored of each: its length u32, then its bytes
//!                                                  4: all have been sent
//! ```
//!
//! A piece has many small files, or a part of a large one. A node writes the stored form of a cluster unchanged: the
//! sender packs the cluster, and the node's kernel unpacks it when a rank reads it. The check is XXH3 of the piece's
//! bytes, with its place: a damaged piece is noticed where it arrives, and the contents in it can be sent again.

mod cluster;
#[cfg(test)]
mod tests;

pub use cluster::Cluster;
pub(crate) use cluster::{BLOCK, CLUSTER_LEN, Cut, Stored, blocks, unpack};

use crate::set::{Digest, PIECE_LEN, Set};
use std::io::{self, Read};
use std::ops::Range;
use twox_hash::XxHash3_64;

pub(crate) const HEAD_LEN: usize = 5;
const PIECE_HEAD_LEN: usize = 16;
pub(crate) const BODY_LEN_MAX: usize = PIECE_HEAD_LEN + 4 * cluster::CLUSTERS_MAX + PIECE_LEN;
/// Most runs of content numbers in one announcement.
pub(crate) const ROWS_MAX: usize = PIECE_LEN / 8;

pub(crate) const MANIFEST: u8 = 1;
pub(crate) const CLUSTERS: u8 = 2;
pub(crate) const END: u8 = 4;
pub(crate) const MANIFEST_END: u8 = 5;
pub(crate) const NAME: u8 = 6;
pub(crate) const FOLLOWING: u8 = 7;

/// A part of the stream, as the receiver gets it.
#[derive(PartialEq, Eq, Debug)]
pub enum Piece<'a> {
    /// The digest of the manifest that follows.
    Name(Digest),
    Set(Set),
    /// Some clusters, and the bytes that contain their stored forms in the same order.
    Clusters {
        clusters: Vec<Cluster>,
        bytes: &'a [u8],
    },
    /// A piece with these clusters was damaged on its way: the contents must be sent again.
    Damaged(Vec<Cluster>),
    /// The contents that were wanted have been sent.
    End,
}

pub const MALFORMED: &str = "the stream of a staged set is malformed";

pub(crate) fn framed(kind: u8, body: &[&[u8]]) -> Vec<u8> {
    let len: usize = body.iter().map(|part| part.len()).sum();
    let mut out = Vec::with_capacity(HEAD_LEN + len);
    out.extend_from_slice(&(len as u32).to_le_bytes());
    out.push(kind);
    body.iter().for_each(|part| out.extend_from_slice(part));
    out
}

pub(crate) fn check(offset: u64, bytes: &[u8]) -> [u8; 8] {
    XxHash3_64::oneshot_with_seed(offset, bytes).to_le_bytes()
}

/// Room for a few pieces, so that bytes are seldom moved to the beginning of the buffer.
const BUFFER_LEN: usize = 4 * (HEAD_LEN + BODY_LEN_MAX);
const READ_LEN_MIN: usize = 128 << 10;

/// The source of a stream, whose bytes are read in place.
pub trait Input {
    /// The bytes that have arrived and were not consumed.
    fn bytes(&self) -> &[u8];

    /// Marks this many of these bytes as consumed.
    fn consume(&mut self, count: usize);

    /// Waits for more bytes. `false`: the stream has ended.
    fn wait(&mut self) -> io::Result<bool>;
}

/// An input that reads into a buffer of its own.
pub struct Buffered<R> {
    from: R,
    buffer: Vec<u8>,
    /// The part of the buffer that has been filled and not used.
    filled: Range<usize>,
}

impl<R: Read> Buffered<R> {
    pub fn new(from: R) -> Buffered<R> {
        Buffered { from, buffer: vec![0; BUFFER_LEN], filled: 0..0 }
    }

    #[cfg(test)]
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.from
    }
}

impl<R: Read> Input for Buffered<R> {
    fn bytes(&self) -> &[u8] {
        &self.buffer[self.filled.clone()]
    }

    fn consume(&mut self, count: usize) {
        self.filled.start += count;
    }

    fn wait(&mut self) -> io::Result<bool> {
        if self.filled.is_empty() {
            self.filled = 0..0;
        } else if self.buffer.len() - self.filled.end < READ_LEN_MIN {
            self.buffer.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
        loop {
            match self.from.read(&mut self.buffer[self.filled.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => {
                    let count = read?;
                    self.filled.end += count;
                    return Ok(count > 0);
                }
            }
        }
    }
}
