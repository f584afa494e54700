//! Takes a stream apart, however it is cut. It is read straight into the receiver's buffer, and pieces are used there.

use super::{
    BODY_LEN_MAX, Damaged, END, FOLLOWING, HEAD_LEN, MANIFEST, MANIFEST_END, NAME, PACKED, PLAIN, Piece, Slice, check,
};
use crate::set::{MANIFEST_LEN_MAX, PIECE_LEN, Set};
use std::ops::Range;

/// Room for a few pieces, so that little is moved.
const BUFFER_LEN: usize = 4 * (HEAD_LEN + BODY_LEN_MAX);
const READ_LEN_MIN: usize = 128 << 10;

pub struct Receiver {
    buffer: Vec<u8>,
    /// The part of the buffer that has been filled and not used.
    filled: Range<usize>,
    unpacked: Vec<u8>,
    manifest: Vec<u8>,
    /// The lengths of the contents, once the manifest is whole.
    lens: Option<Vec<u64>>,
    following: Following,
}

/// The contents that follow, in order.
#[derive(Default)]
struct Following {
    /// With the offset of each.
    contents: Vec<(u32, u64)>,
    len: u64,
    /// Of the next piece.
    offset: u64,
    /// The content of the next piece's first byte.
    at: usize,
}

impl Default for Receiver {
    fn default() -> Receiver {
        Receiver {
            buffer: vec![0; BUFFER_LEN],
            filled: 0..0,
            unpacked: vec![0; PIECE_LEN],
            manifest: Vec::new(),
            lens: None,
            following: Following::default(),
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
                    return Ok(Some(Piece::Name(name)));
                }
                (MANIFEST, None) => {
                    self.manifest.extend_from_slice(&self.buffer[body]);
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
                (FOLLOWING, Some(lens)) => self.following.announce(&self.buffer[body], lens)?,
                (PLAIN | PACKED, Some(lens)) => {
                    return self
                        .following
                        .piece(lens, kind == PACKED, &self.buffer[body], &mut self.unpacked)
                        .map(Some);
                }
                (END, Some(_)) if body.is_empty() && self.following.is_over() => {
                    self.following = Following::default();
                    return Ok(Some(Piece::End));
                }
                _ => return Err(Damaged::Malformed),
            }
        }
    }
}

impl Following {
    /// More contents, whose numbers are greater than those before.
    fn announce(&mut self, body: &[u8], lens: &[u64]) -> Result<(), Damaged> {
        let (wanted, rows) = body.split_first_chunk::<8>().ok_or(Damaged::Malformed)?;
        if check(0, rows) != *wanted || rows.len() % 8 != 0 || self.offset > 0 {
            return Err(Damaged::Malformed);
        }
        for row in rows.chunks_exact(8) {
            let number = |at: usize| u32::from_le_bytes([row[at], row[at + 1], row[at + 2], row[at + 3]]);
            let (first, count) = (number(0), number(4));
            let end = first.checked_add(count).filter(|end| *end as usize <= lens.len()).ok_or(Damaged::Malformed)?;
            if self.contents.last().is_some_and(|(last, _)| *last >= first) {
                return Err(Damaged::Malformed);
            }
            for content in first..end {
                self.contents.push((content, self.len));
                self.len = self.len.checked_add(lens[content as usize]).ok_or(Damaged::Malformed)?;
            }
        }
        Ok(())
    }

    fn piece<'a>(
        &mut self,
        lens: &[u64],
        is_packed: bool,
        body: &'a [u8],
        unpacked: &'a mut [u8],
    ) -> Result<Piece<'a>, Damaged> {
        let (offset, rest) = body.split_first_chunk().ok_or(Damaged::Malformed)?;
        let (wanted, rest) = rest.split_first_chunk::<8>().ok_or(Damaged::Malformed)?;
        let offset = u64::from_le_bytes(*offset);
        let len = (self.len - self.offset).min(PIECE_LEN as u64) as usize;
        // Pieces follow each other: whatever is wrong with the bytes, their place is known.
        let slices = self.advance(len, lens);
        let bytes = match is_packed {
            true => {
                let unpacked = &mut unpacked[..len];
                let count = lz4_flex::block::decompress_into(rest, unpacked).unwrap_or(0);
                &unpacked[..count]
            }
            false => rest,
        };
        let at = self.offset - len as u64;
        let is_right = len > 0 && offset == at && bytes.len() == len && check(at, bytes) == *wanted;
        match is_right {
            true => Ok(Piece::Bytes { slices, bytes }),
            false if slices.is_empty() => Err(Damaged::Malformed),
            false => Ok(Piece::Damaged(slices)),
        }
    }

    /// The contents of the next bytes, which are behind then.
    fn advance(&mut self, len: usize, lens: &[u64]) -> Vec<Slice> {
        let mut slices = Vec::new();
        let mut done = 0;
        while done < len {
            let (content, from) = self.contents[self.at];
            let offset = self.offset + done as u64 - from;
            let left = lens[content as usize] - offset;
            let count = left.min((len - done) as u64) as usize;
            slices.push(Slice { content, offset, bytes: done..done + count });
            done += count;
            self.at += usize::from(count as u64 == left);
        }
        self.offset += len as u64;
        slices
    }

    fn is_over(&self) -> bool {
        self.offset == self.len
    }
}
