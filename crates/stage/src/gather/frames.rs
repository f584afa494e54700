//! What a node writes while its files are gathered.
//!
//! ```text
//!   +--------+------+---------------------------+   kind 1: a file, folder or link (postcard); a file's data follow
//!   | length | kind | body: `length` bytes      |        2, 3: data of the file, as they are or packed by LZ4: offset u64, then the bytes
//!   | u32 LE | u8   |                           |        4: all of it has been sent: its digest; 5: what cannot be
//!   +--------+------+---------------------------+           gathered; 6: how often a rule matched; 7: the end
//! ```
//!
//! A file without its digest is not kept: it could not be read, or it has changed meanwhile and begins again.

use super::rule::PATH_LEN_MAX;
use crate::set::{Digest, PIECE_LEN};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use thiserror::Error;

const HEAD_LEN: usize = 5;
const OFFSET_LEN: usize = 8;
/// A piece that LZ4 makes larger travels as it is; everything else is shorter.
const BODY_LEN_MAX: usize = OFFSET_LEN + PIECE_LEN;
/// A piece is packed if that saves a sixteenth (chosen): otherwise unpacking costs more than it saves.
const PACKED_SHARE: usize = 16;

const BEGIN: u8 = 1;
const PLAIN: u8 = 2;
const PACKED: u8 = 3;
const END: u8 = 4;
const PROBLEM: u8 = 5;
const MATCHED: u8 = 6;
const DONE: u8 = 7;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Kind {
    Folder,
    /// Where it leads, as written.
    Link(Vec<u8>),
    File {
        len: u64,
    },
}

/// Something that is gathered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Begin {
    pub rule: u32,
    /// Of the job.
    pub node: u32,
    pub rank: u32,
    /// Below the rule's folder.
    pub name: Vec<u8>,
    /// Its path on the node.
    pub source: Vec<u8>,
    pub kind: Kind,
    /// The permission bits.
    pub mode: u32,
    /// In seconds and nanoseconds.
    pub modified: (i64, u32),
}

impl Begin {
    /// Whether it is what an honest node sends.
    fn is_sound(&self) -> bool {
        let is_path = |path: &[u8]| (1..=PATH_LEN_MAX).contains(&path.len()) && !path.contains(&0);
        let is_name = |part: &[u8]| !matches!(part, b"" | b"." | b"..");
        let is_link_sound = !matches!(&self.kind, Kind::Link(target) if !is_path(target));
        let is_named = is_path(&self.name) && self.name.split(|byte| *byte == b'/').all(is_name);
        is_named && is_path(&self.source) && is_link_sound && self.mode & !0o777 == 0
    }
}

#[derive(PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    Begin(Begin),
    Bytes { offset: u64, bytes: Cow<'a, [u8]> },
    End(Digest),
    Problem { node: u32, text: String },
    Matched { rule: u32, count: u64 },
    Done,
}

#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("its answer is malformed")]
pub struct Malformed;

impl Frame<'_> {
    /// Adds the frame to `out`.
    ///
    /// # Panics
    /// Never: what is encoded is plain data.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let record = |kind, record: Result<Vec<u8>, postcard::Error>| (kind, record.expect("plain data"));
        let (kind, body) = match self {
            Frame::Begin(begin) => record(BEGIN, postcard::to_allocvec(begin)),
            Frame::Bytes { offset, bytes } => {
                let packed = lz4_flex::compress(bytes);
                let is_smaller = packed.len() + bytes.len() / PACKED_SHARE < bytes.len();
                let (kind, bytes) = if is_smaller { (PACKED, &packed[..]) } else { (PLAIN, &bytes[..]) };
                (kind, [&offset.to_le_bytes(), bytes].concat())
            }
            Frame::End(digest) => (END, digest.to_vec()),
            Frame::Problem { node, text } => record(PROBLEM, postcard::to_allocvec(&(node, text))),
            Frame::Matched { rule, count } => record(MATCHED, postcard::to_allocvec(&(rule, count))),
            Frame::Done => (DONE, Vec::new()),
        };
        out.extend_from_slice(&(body.len() as u32).to_le_bytes());
        out.push(kind);
        out.extend_from_slice(&body);
    }
}

/// Takes the stream of one node apart, however it is cut.
#[derive(Default)]
pub struct Frames {
    buffer: Vec<u8>,
    used: usize,
}

impl Frames {
    pub fn add(&mut self, bytes: &[u8]) {
        self.buffer.drain(..std::mem::take(&mut self.used));
        self.buffer.extend_from_slice(bytes);
    }

    /// What is whole now.
    ///
    /// # Errors
    /// The bytes are no such stream. Nothing is to follow.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Malformed> {
        let Some((head, rest)) = self.buffer[self.used..].split_first_chunk::<HEAD_LEN>() else { return Ok(None) };
        let (len, kind) = (u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize, head[4]);
        if len > BODY_LEN_MAX {
            return Err(Malformed);
        }
        let Some(body) = rest.get(..len) else { return Ok(None) };
        self.used += HEAD_LEN + len;
        frame(kind, body).map(Some)
    }
}

fn frame(kind: u8, body: &[u8]) -> Result<Frame<'_>, Malformed> {
    match kind {
        BEGIN => {
            let begin: Begin = postcard::from_bytes(body).map_err(|_| Malformed)?;
            if begin.is_sound() { Ok(Frame::Begin(begin)) } else { Err(Malformed) }
        }
        PLAIN | PACKED => {
            let (offset, bytes) = body.split_first_chunk::<OFFSET_LEN>().ok_or(Malformed)?;
            let bytes = match kind {
                PACKED => Cow::Owned(lz4_flex::decompress(bytes, PIECE_LEN).map_err(|_| Malformed)?),
                _ => Cow::Borrowed(bytes),
            };
            Ok(Frame::Bytes { offset: u64::from_le_bytes(*offset), bytes })
        }
        END => Ok(Frame::End(body.try_into().map_err(|_| Malformed)?)),
        PROBLEM => {
            let (node, text) = postcard::from_bytes(body).map_err(|_| Malformed)?;
            Ok(Frame::Problem { node, text })
        }
        MATCHED => {
            let (rule, count) = postcard::from_bytes(body).map_err(|_| Malformed)?;
            Ok(Frame::Matched { rule, count })
        }
        DONE if body.is_empty() => Ok(Frame::Done),
        _ => Err(Malformed),
    }
}

/// The digest of a file: of what was announced, and of each piece of its data with its place.
pub struct Hasher(blake3::Hasher);

impl Hasher {
    /// # Panics
    /// Never: what is encoded is plain data.
    pub fn new(begin: &Begin) -> Hasher {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&postcard::to_allocvec(begin).expect("plain data"));
        Hasher(hasher)
    }

    pub fn add(&mut self, offset: u64, bytes: &[u8]) {
        self.0.update(&offset.to_le_bytes()).update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
    }

    pub fn digest(&self) -> Digest {
        *self.0.finalize().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn begin(name: &[u8]) -> Begin {
        let kind = Kind::File { len: 3 };
        Begin {
            rule: 0,
            node: 1,
            rank: 2,
            name: name.to_vec(),
            source: b"/s".to_vec(),
            kind,
            mode: 0o644,
            modified: (1, 2),
        }
    }

    fn frames() -> Vec<Frame<'static>> {
        let noise: Vec<u8> = (0..70_000u64).map(|at| (at * at % 251) as u8 ^ (at >> 8) as u8).collect();
        vec![
            Frame::Begin(begin(b"a/\xff")),
            Frame::Bytes { offset: 7, bytes: noise.into() },
            Frame::Bytes { offset: 1 << 40, bytes: vec![0; PIECE_LEN].into() },
            Frame::End([3; 32]),
            Frame::Problem { node: 3, text: "no".into() },
            Frame::Matched { rule: 1, count: 5 },
            Frame::Done,
        ]
    }

    fn encoded() -> Vec<u8> {
        let mut out = Vec::new();
        frames().iter().for_each(|frame| frame.encode(&mut out));
        out
    }

    #[test]
    fn names_that_lead_elsewhere_are_malformed() {
        let read = |begin: Begin| {
            let (mut bytes, mut frames) = (Vec::new(), Frames::default());
            Frame::Begin(begin).encode(&mut bytes);
            frames.add(&bytes);
            frames.next_frame().map(|frame| frame.is_some())
        };
        assert_eq!(read(begin(b"a/b")), Ok(true));
        for name in [&b""[..], b"/a", b"a/", b"a//b", b"..", b"a/../b", b".", b"a\0b", &[b'a'; 5000]] {
            assert_eq!(read(begin(name)), Err(Malformed), "{}", name.escape_ascii());
        }
        assert_eq!(read(Begin { mode: 0o4755, ..begin(b"a") }), Err(Malformed));
        assert_eq!(read(Begin { kind: Kind::Link(b"a\0".to_vec()), ..begin(b"a") }), Err(Malformed));
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_frames(step in 1usize..40_000) {
            let (mut reader, mut seen, expected) = (Frames::default(), 0, frames());
            for part in encoded().chunks(step) {
                reader.add(part);
                while let Some(frame) = reader.next_frame().unwrap() {
                    prop_assert_eq!(&frame, &expected[seen]);
                    seen += 1;
                }
            }
            prop_assert_eq!(seen, expected.len());
        }
    }
}
