//! Takes a stream apart, however it is cut. It is read straight into the receiver's buffer, and pieces are used there.

use super::cluster::{Cluster, Cut, Stored};
use super::{BODY_LEN_MAX, CLUSTERS, Damaged, END, FOLLOWING, HEAD_LEN, MANIFEST, MANIFEST_END, NAME, Piece, check};
use crate::set::{Digest, MANIFEST_LEN_MAX, Set};
use std::ops::Range;

/// Room for a few pieces, so that little is moved.
const BUFFER_LEN: usize = 4 * (HEAD_LEN + BODY_LEN_MAX);
const READ_LEN_MIN: usize = 128 << 10;

pub struct Receiver {
    buffer: Vec<u8>,
    /// The part of the buffer that has been filled and not used.
    filled: Range<usize>,
    /// The digest of the manifest that follows.
    name: Option<Digest>,
    manifest: Vec<u8>,
    /// The lengths of the contents, once the manifest is whole.
    lens: Option<Vec<u64>>,
    /// The contents that follow, in order.
    following: Cut,
}

impl Default for Receiver {
    fn default() -> Receiver {
        Receiver {
            buffer: vec![0; BUFFER_LEN],
            filled: 0..0,
            name: None,
            manifest: Vec::new(),
            lens: None,
            following: Cut::default(),
        }
    }
}

impl Receiver {
    /// Where the next bytes of the stream go; call [`Receiver::fill`] then.
    pub fn room(&mut self) -> &mut [u8] {
        if self.filled.is_empty() {
            self.filled = 0..0;
        } else if self.buffer.len() - self.filled.end < READ_LEN_MIN {
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
            let body = from..from + len;
            match (kind, &self.lens) {
                (NAME, None) => {
                    let name = self.buffer[body].try_into().map_err(|_| Damaged::Malformed)?;
                    self.name = Some(name);
                    return Ok(Some(Piece::Name(name)));
                }
                (MANIFEST, None) => {
                    self.manifest.extend_from_slice(&self.buffer[body]);
                    if self.manifest.len() > MANIFEST_LEN_MAX {
                        return Err(Damaged::Malformed);
                    }
                }
                (MANIFEST_END, None) if body.is_empty() => {
                    let set = Set::from_manifest(std::mem::take(&mut self.manifest));
                    let set = set.map_err(|problem| Damaged::Manifest(problem.to_string()))?;
                    if self.name != Some(set.digest()) {
                        return Err(Damaged::OtherSet);
                    }
                    self.lens = Some(set.contents().iter().map(|content| content.len).collect());
                    return Ok(Some(Piece::Set(set)));
                }
                (FOLLOWING, Some(lens)) => announce(&mut self.following, &self.buffer[body], lens)?,
                (CLUSTERS, Some(_)) => return piece(&mut self.following, &self.buffer[body]).map(Some),
                (END, Some(_)) if body.is_empty() && self.following.left() == 0 => {
                    self.following = Cut::default();
                    return Ok(Some(Piece::End));
                }
                _ => return Err(Damaged::Malformed),
            }
        }
    }
}

/// More contents, whose numbers are greater than those before.
fn announce(following: &mut Cut, body: &[u8], lens: &[u64]) -> Result<(), Damaged> {
    let (wanted, rows) = body.split_first_chunk::<8>().ok_or(Damaged::Malformed)?;
    if check(0, rows) != *wanted || rows.len() % 8 != 0 || following.done() > 0 {
        return Err(Damaged::Malformed);
    }
    for row in rows.chunks_exact(8) {
        let number = |at: usize| u32::from_le_bytes([row[at], row[at + 1], row[at + 2], row[at + 3]]);
        let (first, count) = (number(0), number(4));
        let end = first.checked_add(count).filter(|end| *end as usize <= lens.len()).ok_or(Damaged::Malformed)?;
        if following.last().is_some_and(|last| last >= first) {
            return Err(Damaged::Malformed);
        }
        for content in first..end {
            following.push(content, lens[content as usize]).ok_or(Damaged::Malformed)?;
        }
    }
    Ok(())
}

fn piece<'a>(following: &mut Cut, body: &'a [u8]) -> Result<Piece<'a>, Damaged> {
    let (offset, rest) = body.split_first_chunk().ok_or(Damaged::Malformed)?;
    let (wanted, rest) = rest.split_first_chunk::<8>().ok_or(Damaged::Malformed)?;
    let at = following.done();
    // Pieces follow each other: whatever is wrong with the bytes, their place is known.
    let mut clusters = following.next_piece();
    if clusters.is_empty() {
        return Err(Damaged::Malformed);
    }
    let is_right = u64::from_le_bytes(*offset) == at && check(at, rest) == *wanted;
    match place(&mut clusters, rest).filter(|_| is_right) {
        Some(bytes) => Ok(Piece::Clusters { clusters, bytes }),
        None => Ok(Piece::Damaged(clusters)),
    }
}

/// Finds what is stored of each cluster.
fn place<'a>(clusters: &mut [Cluster], body: &'a [u8]) -> Option<&'a [u8]> {
    let (lens, bytes) = body.split_at_checked(4 * clusters.len())?;
    let mut at = 0;
    for (cluster, len) in clusters.iter_mut().zip(lens.chunks_exact(4)) {
        let len = u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize;
        let stored = at..at + len;
        Stored::of(cluster.len, bytes.get(stored.clone())?)?;
        (cluster.stored, at) = (stored, at + len);
    }
    (at == bytes.len()).then_some(bytes)
}
