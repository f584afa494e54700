//! Parses a stream, in whatever portions its bytes arrive. Pieces borrow the caller's buffer: nothing is copied.

use super::cluster::{Cluster, Cut, Stored};
use super::{BODY_LEN_MAX, CLUSTERS, END, FOLLOWING, HEAD_LEN, MALFORMED, MANIFEST, MANIFEST_END, NAME, Piece, check};
use crate::set::{Digest, MANIFEST_LEN_MAX, Set};

#[derive(Default)]
pub struct Receiver {
    /// The digest of the manifest that follows.
    name: Option<Digest>,
    manifest: Vec<u8>,
    /// The lengths of the contents, once the manifest is whole.
    lens: Option<Vec<u64>>,
    /// The contents that follow, in order.
    following: Cut,
}

impl Receiver {
    /// Takes the next piece of the stream from the beginning of `bytes`, and removes the used bytes. `None`: more bytes
    /// are needed.
    ///
    /// # Errors
    /// The bytes are no stream of a set. Do not call this again.
    pub fn next_piece<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Piece<'a>>, String> {
        loop {
            let Some((head, rest)) = bytes.split_first_chunk::<HEAD_LEN>() else {
                return Ok(None);
            };
            let (len, kind) = (u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize, head[4]);
            if len > BODY_LEN_MAX {
                return Err(MALFORMED.to_owned());
            }
            let Some((body, rest)) = rest.split_at_checked(len) else {
                return Ok(None);
            };
            *bytes = rest;
            match (kind, &self.lens) {
                (NAME, None) => {
                    let name = body.try_into().map_err(|_| MALFORMED)?;
                    self.name = Some(name);
                    return Ok(Some(Piece::Name(name)));
                }
                (MANIFEST, None) => {
                    self.manifest.extend_from_slice(body);
                    if self.manifest.len() > MANIFEST_LEN_MAX {
                        return Err(MALFORMED.to_owned());
                    }
                }
                (MANIFEST_END, None) if body.is_empty() => {
                    let set = Set::from_manifest(std::mem::take(&mut self.manifest));
                    let set = set.map_err(|problem| problem.to_string())?;
                    if self.name != Some(set.digest()) {
                        return Err("the list of staged files was damaged on its way; stage them again".to_owned());
                    }
                    self.lens = Some(set.contents().iter().map(|content| content.len).collect());
                    return Ok(Some(Piece::Set(set)));
                }
                (FOLLOWING, Some(lens)) => announce(&mut self.following, body, lens)?,
                (CLUSTERS, Some(_)) => return piece(&mut self.following, body).map(Some),
                (END, Some(_)) if body.is_empty() && self.following.left() == 0 => {
                    self.following = Cut::default();
                    return Ok(Some(Piece::End));
                }
                _ => return Err(MALFORMED.to_owned()),
            }
        }
    }
}

/// Appends the announced contents; their numbers must be greater than the numbers of all contents before them.
fn announce(following: &mut Cut, body: &[u8], lens: &[u64]) -> Result<(), String> {
    let (wanted, rows) = body.split_first_chunk::<8>().ok_or(MALFORMED)?;
    if check(0, rows) != *wanted || rows.len() % 8 != 0 || following.done() > 0 {
        return Err(MALFORMED.to_owned());
    }
    for row in rows.chunks_exact(8) {
        let number = |at: usize| u32::from_le_bytes([row[at], row[at + 1], row[at + 2], row[at + 3]]);
        let (first, count) = (number(0), number(4));
        let end = first.checked_add(count).filter(|end| *end as usize <= lens.len()).ok_or(MALFORMED)?;
        if following.last().is_some_and(|last| last >= first) {
            return Err(MALFORMED.to_owned());
        }
        for content in first..end {
            following.push(content, lens[content as usize]).ok_or(MALFORMED)?;
        }
    }
    Ok(())
}

fn piece<'a>(following: &mut Cut, body: &'a [u8]) -> Result<Piece<'a>, String> {
    let (offset, rest) = body.split_first_chunk().ok_or(MALFORMED)?;
    let (wanted, rest) = rest.split_first_chunk::<8>().ok_or(MALFORMED)?;
    let at = following.done();
    // Pieces follow each other: the place of a piece is known even if its bytes are damaged.
    let mut clusters = following.next_piece();
    if clusters.is_empty() {
        return Err(MALFORMED.to_owned());
    }
    let is_right = u64::from_le_bytes(*offset) == at && check(at, rest) == *wanted;
    match place(&mut clusters, rest).filter(|_| is_right) {
        Some(bytes) => Ok(Piece::Clusters { clusters, bytes }),
        None => Ok(Piece::Damaged(clusters)),
    }
}

/// Finds the stored bytes of each cluster in the body of a piece.
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
