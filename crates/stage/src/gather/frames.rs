//! The output of a node while its files are gathered: frames (postcard), each behind its length (`u32`, little-endian).
//!
//! A file is its [`Begin`], pieces of its data and an end. A file without its end is not kept: the file could not be
//! read, or has changed meanwhile and is sent again from its beginning.
//!
//! The data have no digest. A frame passes through the pipe of the rank that sends it and then through links between
//! agents, which authenticate every byte (with `--plain-links` the user has chosen to trust the network, as for all
//! output of the job).

use super::rule::PATH_LEN_MAX;
use crate::set::PIECE_LEN;
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use thiserror::Error;

const HEAD_LEN: usize = 4;
/// Longest body of a frame: an uncompressed piece with its offset and length. Every other frame is shorter.
const BODY_LEN_MAX: usize = PIECE_LEN + 32;
/// A piece is packed if packing saves at least a sixteenth of its bytes (chosen): otherwise unpacking costs more than
/// the saved bytes.
const PACKED_SHARE: usize = 16;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum GatheredKind {
    Folder,
    /// A symbolic link, with its target as written.
    Link(Vec<u8>),
    File {
        len: u64,
    },
}

/// A file, folder or symbolic link that is gathered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Begin {
    pub rule: u32,
    /// The number in the job of the node that the file comes from.
    pub node: u32,
    pub rank: u32,
    /// The path that the file gets below the rule's folder.
    pub name: Vec<u8>,
    /// The path of the file on the node.
    pub source: Vec<u8>,
    pub kind: GatheredKind,
    /// The permission bits.
    pub mode: u32,
    /// The time of the last change of the file, in seconds and nanoseconds since 1970.
    pub modified: (i64, u32),
}

impl Begin {
    /// Whether the fields are what an honest node sends.
    fn is_sound(&self) -> bool {
        let is_path = |path: &[u8]| (1..=PATH_LEN_MAX).contains(&path.len()) && !path.contains(&0);
        let is_name = |part: &[u8]| !matches!(part, b"" | b"." | b"..");
        let is_link_sound = !matches!(&self.kind, GatheredKind::Link(target) if !is_path(target));
        let is_named = is_path(&self.name) && self.name.split(|byte| *byte == b'/').all(is_name);
        is_named && is_path(&self.source) && is_link_sound && self.mode & !0o777 == 0
    }
}

#[derive(PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Frame<'a> {
    Begin(Begin),
    /// A piece of the file's data; holes of the file are in no piece.
    Data {
        offset: u64,
        /// Whether `bytes` are compressed by LZ4. [`Frames`] decompresses them.
        is_packed: bool,
        #[serde(borrow, serialize_with = "at_once")]
        bytes: Cow<'a, [u8]>,
    },
    /// All of the file has been sent.
    End,
    /// A file or folder that cannot be gathered, with the reason.
    Problem {
        node: u32,
        text: String,
    },
    /// The number of paths that matched a rule.
    Matched {
        rule: u32,
        count: u64,
    },
    Done,
}

/// Serializes as one byte string, because a sequence of numbers would be encoded byte by byte.
fn at_once<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("its answer is malformed")]
pub struct Malformed;

impl<'a> Frame<'a> {
    /// A piece of at most [`PIECE_LEN`] bytes, compressed if that saves enough.
    pub fn data(offset: u64, bytes: &'a [u8]) -> Frame<'a> {
        let packed = lz4_flex::compress(bytes);
        let is_packed = packed.len() + bytes.len() / PACKED_SHARE < bytes.len();
        Frame::Data { offset, is_packed, bytes: if is_packed { packed.into() } else { bytes.into() } }
    }

    /// Adds the frame to `out`.
    ///
    /// # Panics
    /// Never: a frame is plain data.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let at = out.len() + HEAD_LEN;
        out.extend_from_slice(&[0; HEAD_LEN]);
        *out = postcard::to_extend(self, std::mem::take(out)).expect("plain data");
        let len = (out.len() - at) as u32;
        out[at - HEAD_LEN..at].copy_from_slice(&len.to_le_bytes());
    }

    fn decode(body: &'a [u8]) -> Result<Frame<'a>, Malformed> {
        match postcard::from_bytes(body).map_err(|_| Malformed)? {
            Frame::Begin(begin) if !begin.is_sound() => Err(Malformed),
            Frame::Data { offset, is_packed: true, bytes } => {
                let bytes = lz4_flex::decompress(&bytes, PIECE_LEN).map_err(|_| Malformed)?;
                Ok(Frame::Data { offset, is_packed: false, bytes: bytes.into() })
            }
            frame => Ok(frame),
        }
    }
}

/// Parses the stream of one node from portions of any length.
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

    /// The next frame that has arrived completely; `None`: more bytes are needed.
    ///
    /// # Errors
    /// The bytes are not a stream of frames. Do not call this again.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Malformed> {
        let Some((head, rest)) = self.buffer[self.used..].split_first_chunk::<HEAD_LEN>() else { return Ok(None) };
        let len = u32::from_le_bytes(*head) as usize;
        if len > BODY_LEN_MAX {
            return Err(Malformed);
        }
        let Some(body) = rest.get(..len) else { return Ok(None) };
        self.used += HEAD_LEN + len;
        Frame::decode(body).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn begin(name: &[u8]) -> Begin {
        let (name, source, kind) = (name.to_vec(), b"/s".to_vec(), GatheredKind::File { len: 3 });
        Begin { rule: 0, node: 1, rank: 2, name, source, kind, mode: 0o644, modified: (1, 2) }
    }

    /// Frames of every kind; the second one is as long as a frame can be.
    fn frames() -> Vec<Frame<'static>> {
        let noise: Vec<u8> = (0..PIECE_LEN as u64).map(|at| (at * at % 251) as u8 ^ (at >> 8) as u8).collect();
        let data = |offset, bytes: Vec<u8>| Frame::Data { offset, is_packed: false, bytes: bytes.into() };
        vec![
            Frame::Begin(begin(b"a/\xff")),
            data(u64::MAX, noise),
            data(1 << 40, vec![0; PIECE_LEN]),
            Frame::End,
            Frame::Problem { node: 3, text: "no".into() },
            Frame::Matched { rule: 1, count: 5 },
            Frame::Done,
        ]
    }

    fn encoded() -> Vec<u8> {
        let mut out = Vec::new();
        for frame in &frames() {
            match frame {
                Frame::Data { offset, bytes, .. } => Frame::data(*offset, bytes).encode(&mut out),
                frame => frame.encode(&mut out),
            }
        }
        out
    }

    #[test]
    fn data_are_packed_if_that_pays() {
        let is_packed = |bytes: &[u8]| matches!(Frame::data(0, bytes), Frame::Data { is_packed: true, .. });
        assert!(is_packed(&[0; 1_000]) && !is_packed(b"abcdefgh") && !is_packed(b""));
        assert!(encoded().len() < PIECE_LEN + PIECE_LEN / 16, "zeros are packed");
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
        assert_eq!(read(Begin { kind: GatheredKind::Link(b"a\0".to_vec()), ..begin(b"a") }), Err(Malformed));
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
