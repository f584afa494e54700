//! Splits the byte stream of one link between agents into frames.
//!
//! A frame is a fixed header of 16 bytes, little-endian, followed by an opaque payload:
//!
//! ```text
//! byte  0        4      5       6        8         12        16
//!       +--------+------+-------+--------+---------+---------+----------------+
//!       | length | kind | class | stream | job     | arg     | payload        |
//!       | u32    | u8   | u8    | u16    | u32     | u32     | length bytes   |
//!       +--------+------+-------+--------+---------+---------+----------------+
//! ```
//!
//! `length` counts only the payload. `kind` is a [`FrameKind`]; `class` is the [`Class`], which gives the priority of
//! frames on a congested link; the meaning of `stream` and `arg` depends on the kind. A payload that arrives entirely
//! within one chunk is returned as a slice of that chunk, without a copy.
//!
//! ```text
//!          possible  in use  free
//! kinds    256       21      0, 20 to 31, 34 to 255
//! classes  256       4       4 to 255
//! ```
//!
//! An unassigned number is an error that contains it; the agent that read it closes the link and names the peer.

use crate::limits::FRAME_PAYLOAD_MAX;
use bytes::{Bytes, BytesMut};
use thiserror::Error;
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub const HEADER_LEN: usize = 16;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawHeader {
    length: U32,
    kind: u8,
    class: u8,
    stream: U16,
    job: U32,
    arg: U32,
}

macro_rules! byte_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $value:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $value,)* }

        impl $name {
            /// All values, in numeric order.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            pub(crate) fn from_byte(byte: u8) -> Option<Self> {
                match byte {
                    $($value => Some($name::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

/// The purpose of a frame, by the conversation that it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameKind {
    /// A control message: `postcard` of [`crate::talk::Control`].
    Control,
    Up(UpFrame),
    Down(DownFrame),
    Peer(PeerFrame),
    /// A frame for any agent, which each hop forwards towards it: [`crate::route::Routed`].
    Routed,
    /// Control of a direct link. `stream` 0: the next frame is number `arg` of those in this direction; 1: all frames
    /// before number `arg` of the other direction have arrived.
    Pair,
}

byte_enum! {
    /// A frame up the tree of its job: from an agent to its parent, and from the root to the launcher.
    UpFrame {
        /// A subtree's part of collective `arg`; `stream` is a [`crate::collective::Tag`].
        ExchangeUp = 2,
        /// Bytes that rank `arg` wrote to `stream` (1 or 2); `arg` is `u32::MAX` if the lines are already labelled.
        Output = 4,
        /// `arg` bytes of standard input were consumed.
        InputCredit = 7,
        /// `postcard` of [`crate::peer::TracePart`], sent once, before the subtree is done.
        Trace = 8,
        /// All members of a group in this subtree have entered its barrier; the payload is the group
        /// ([`crate::group`]), then packed pairs. Bit 1 of `stream`: the barrier is one of PMIx servers; then blocks
        /// ([`crate::block`]) follow the group.
        GroupUp = 10,
        /// To the root: `postcard` of [`crate::modex::Up`].
        PmixUp = 13,
        /// To the root: `postcard` of [`crate::names::Up`].
        NamesUp = 15,
    }
}

byte_enum! {
    /// A frame down the tree of its job: from the launcher to the root, and from an agent to a child.
    DownFrame {
        /// The outcome of collective `arg`, or the algorithm by which to obtain it.
        ExchangeDown = 3,
        /// `arg` bytes of `stream` were forwarded; the child may send that many more.
        OutputCredit = 5,
        /// Bytes for the standard input of the job; an empty payload means end of file.
        Input = 6,
        /// `stream` 0: the barrier of a group is complete. 1: members wait for others in the child's subtree; `arg` is
        /// the number of [`UpFrame::GroupUp`] frames that had arrived from the child by then.
        GroupDown = 11,
        /// To agent `arg` or to all (`u32::MAX`): `postcard` of [`crate::modex::Down`].
        PmixDown = 14,
        /// To agent `arg`: `postcard` of [`crate::names::Down`].
        NamesDown = 16,
    }
}

byte_enum! {
    /// A frame of a job between any two of its agents.
    PeerFrame {
        /// A round of a collective; `stream` and `arg` as defined by the exchange.
        Direct = 9,
        /// `postcard` of [`crate::modex::Between`].
        Modex = 12,
        /// `postcard` of [`crate::addresses::Between`].
        Addresses = 17,
        /// [`crate::relay::Between`]; `stream` and `arg` as defined there.
        Relay = 18,
        /// `postcard` of [`crate::store::Between`].
        Store = 19,
    }
}

byte_enum! {
    /// Priority on a congested link: a frame never waits for frames of a higher class.
    Class {
        /// Launch, signals, failures, end of a job.
        Control = 0,
        /// Fences and modex.
        Exchange = 1,
        /// Standard input, output, error.
        Stdio = 2,
        /// Traces, and the last control message of a job: both follow the output of the ranks.
        AfterOutput = 3,
    }
}

impl FrameKind {
    /// The number of this kind on the wire.
    pub(crate) fn to_byte(self) -> u8 {
        match self {
            FrameKind::Control => 1,
            FrameKind::Up(kind) => kind as u8,
            FrameKind::Down(kind) => kind as u8,
            FrameKind::Peer(kind) => kind as u8,
            FrameKind::Routed => 32,
            FrameKind::Pair => 33,
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        let of_job = || {
            let up = UpFrame::from_byte(byte).map(FrameKind::Up);
            let down = || DownFrame::from_byte(byte).map(FrameKind::Down);
            up.or_else(down).or_else(|| PeerFrame::from_byte(byte).map(FrameKind::Peer))
        };
        match byte {
            1 => Some(FrameKind::Control),
            32 => Some(FrameKind::Routed),
            33 => Some(FrameKind::Pair),
            _ => of_job(),
        }
    }

    /// The class of frames of this kind on the links of the tree; only the last control message of a job has a lower
    /// priority, so that it follows the output. On a direct link all frames have one class, which keeps them in order;
    /// the receiver restores the class of each frame.
    pub fn class(self) -> Class {
        match self {
            // A credit must not wait behind the bytes for which it is granted.
            FrameKind::Control | FrameKind::Down(DownFrame::OutputCredit) | FrameKind::Up(UpFrame::InputCredit) => {
                Class::Control
            }
            FrameKind::Up(UpFrame::Output) | FrameKind::Down(DownFrame::Input) | FrameKind::Peer(PeerFrame::Relay) => {
                Class::Stdio
            }
            FrameKind::Up(UpFrame::Trace) => Class::AfterOutput,
            FrameKind::Up(_) | FrameKind::Down(_) | FrameKind::Peer(_) | FrameKind::Routed | FrameKind::Pair => {
                Class::Exchange
            }
        }
    }
}

impl DownFrame {
    /// Whether a launcher sends such frames to the root; the others come from agents only.
    pub fn may_come_from_launcher(self) -> bool {
        matches!(self, DownFrame::OutputCredit | DownFrame::Input)
    }
}

impl core::fmt::Debug for FrameKind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            FrameKind::Control => f.write_str("Control"),
            FrameKind::Up(kind) => kind.fmt(f),
            FrameKind::Down(kind) => kind.fmt(f),
            FrameKind::Peer(kind) => kind.fmt(f),
            FrameKind::Routed => f.write_str("Routed"),
            FrameKind::Pair => f.write_str("Pair"),
        }
    }
}

impl From<UpFrame> for FrameKind {
    fn from(kind: UpFrame) -> Self {
        FrameKind::Up(kind)
    }
}

impl From<DownFrame> for FrameKind {
    fn from(kind: DownFrame) -> Self {
        FrameKind::Down(kind)
    }
}

impl From<PeerFrame> for FrameKind {
    fn from(kind: PeerFrame) -> Self {
        FrameKind::Peer(kind)
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Frame {
    pub kind: FrameKind,
    pub class: Class,
    pub stream: u16,
    pub job: u32,
    pub arg: u32,
    pub payload: Bytes,
}

/// A peer sent bytes that are not a frame.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameError {
    #[error("frame of unknown kind {0}")]
    UnknownKind(u8),
    #[error("frame of unknown class {0}")]
    UnknownClass(u8),
    #[error("frame of {length} bytes, more than the limit of {limit}")]
    TooLong { length: u32, limit: usize },
}

impl Frame {
    /// A frame whose class is that of its kind.
    pub fn new(kind: impl Into<FrameKind>, stream: u16, job: u32, arg: u32, payload: Bytes) -> Frame {
        let kind = kind.into();
        Frame { kind, class: kind.class(), stream, job, arg, payload }
    }

    /// The header's bytes; the payload follows them on the wire.
    ///
    /// # Panics
    /// If the payload is longer than [`FRAME_PAYLOAD_MAX`]: that would be a bug of ours.
    pub fn header(&self) -> [u8; HEADER_LEN] {
        assert!(self.payload.len() <= FRAME_PAYLOAD_MAX, "a frame's payload stays within its limit");
        let raw = RawHeader {
            length: U32::new(self.payload.len() as u32),
            kind: self.kind.to_byte(),
            class: self.class as u8,
            stream: U16::new(self.stream),
            job: U32::new(self.job),
            arg: U32::new(self.arg),
        };
        let mut bytes = [0; HEADER_LEN];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// Length of the header and the payload on the wire (bytes).
    pub fn wire_len(&self) -> usize {
        HEADER_LEN + self.payload.len()
    }
}

fn decode_header(bytes: &[u8; HEADER_LEN], limit: usize) -> Result<(Frame, usize), FrameError> {
    let raw = RawHeader::read_from_bytes(bytes).expect("the sizes are equal by type");
    let length = raw.length.get();
    if length as usize > limit {
        return Err(FrameError::TooLong { length, limit });
    }
    let kind = FrameKind::from_byte(raw.kind).ok_or(FrameError::UnknownKind(raw.kind))?;
    let class = Class::from_byte(raw.class).ok_or(FrameError::UnknownClass(raw.class))?;
    let frame =
        Frame { kind, class, stream: raw.stream.get(), job: raw.job.get(), arg: raw.arg.get(), payload: Bytes::new() };
    Ok((frame, length as usize))
}

/// Reads frames from chunks of any size.
pub struct FrameReader {
    payload_max: usize,
    header: [u8; HEADER_LEN],
    header_len: usize,
    body: Option<Body>,
}

struct Body {
    frame: Frame,
    need: usize,
    partial: BytesMut,
}

impl Default for FrameReader {
    fn default() -> Self {
        Self::new()
    }
}

impl FrameReader {
    pub fn new() -> Self {
        Self::with_limit(FRAME_PAYLOAD_MAX)
    }

    /// A reader for a peer whose frames have at most `payload_max` bytes of payload.
    pub fn with_limit(payload_max: usize) -> Self {
        FrameReader { payload_max, header: [0; HEADER_LEN], header_len: 0, body: None }
    }

    /// The next whole frame of `chunk`; the bytes that were read are removed from it. `None` if more are needed.
    pub fn next(&mut self, chunk: &mut Bytes) -> Result<Option<Frame>, FrameError> {
        loop {
            if let Some(body) = &mut self.body {
                let missing = body.need - body.partial.len();
                if body.partial.is_empty() && chunk.len() >= missing {
                    body.frame.payload = chunk.split_to(missing);
                } else {
                    let take = missing.min(chunk.len());
                    if body.partial.is_empty() && take > 0 {
                        // Reserves at most 1 MiB: a false length alone must not cost much memory.
                        body.partial.reserve(body.need.min(1 << 20));
                    }
                    body.partial.extend_from_slice(&chunk.split_to(take));
                    if body.partial.len() < body.need {
                        return Ok(None);
                    }
                    body.frame.payload = core::mem::take(&mut body.partial).freeze();
                }
                return Ok(self.body.take().map(|body| body.frame));
            }
            let take = (HEADER_LEN - self.header_len).min(chunk.len());
            self.header[self.header_len..self.header_len + take].copy_from_slice(&chunk.split_to(take));
            self.header_len += take;
            if self.header_len < HEADER_LEN {
                return Ok(None);
            }
            self.header_len = 0;
            let (frame, need) = decode_header(&self.header, self.payload_max)?;
            self.body = Some(Body { frame, need, partial: BytesMut::new() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn frames() -> impl Strategy<Value = Vec<Frame>> {
        let one = (
            any::<u8>().prop_filter_map("a kind", FrameKind::from_byte),
            0..Class::ALL.len(),
            any::<u16>(),
            any::<u32>(),
            any::<u32>(),
            proptest::collection::vec(any::<u8>(), 0..300),
        )
            .prop_map(|(kind, class, stream, job, arg, payload)| Frame {
                kind,
                class: Class::ALL[class],
                stream,
                job,
                arg,
                payload: payload.into(),
            });
        proptest::collection::vec(one, 0..8)
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_frames(
            frames in frames(),
            cuts in proptest::collection::vec(1usize..40, 1..20),
        ) {
            let mut wire = Vec::new();
            for frame in &frames {
                wire.extend_from_slice(&frame.header());
                wire.extend_from_slice(&frame.payload);
            }
            let mut rest = Bytes::from(wire);
            let mut reader = FrameReader::new();
            let mut seen = Vec::new();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let mut chunk = rest.split_to((*cut).min(rest.len()));
                while let Some(frame) = reader.next(&mut chunk).unwrap() {
                    seen.push(frame);
                }
                prop_assert!(chunk.is_empty());
            }
            prop_assert_eq!(seen, frames);
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused() {
        let mut chunk = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let error = FrameError::TooLong { length: u32::MAX, limit: FRAME_PAYLOAD_MAX };
        assert_eq!(FrameReader::new().next(&mut chunk), Err(error));
    }

    #[test]
    fn unknown_kind_and_class_numbers_are_named() {
        let with = |at: usize, byte| {
            let mut header = Frame::new(FrameKind::Control, 0, 0, 0, Bytes::new()).header();
            header[at] = byte;
            FrameReader::new().next(&mut Bytes::copy_from_slice(&header)).map(|frame| frame.map(|frame| frame.kind))
        };
        for byte in 0..=u8::MAX {
            let is_free = matches!(byte, 0 | 20..=31 | 34..);
            let expected = if is_free { Err(FrameError::UnknownKind(byte)) } else { Ok(Some(byte)) };
            assert_eq!(with(4, byte).map(|kind| kind.map(FrameKind::to_byte)), expected);
            let is_class = Class::ALL.iter().any(|class| *class as u8 == byte);
            assert_eq!(with(5, byte).err(), (!is_class).then_some(FrameError::UnknownClass(byte)));
        }
    }

    #[test]
    fn a_frame_reader_may_have_a_lower_length_limit() {
        let frame = |length| {
            let payload = Bytes::from(alloc::vec![0; length]);
            Frame::new(FrameKind::Control, 0, 0, 0, payload)
        };
        let header = |length| Bytes::copy_from_slice(&frame(length).header());
        assert_eq!(FrameReader::with_limit(10).next(&mut header(10)), Ok(None));
        let error = FrameError::TooLong { length: 11, limit: 10 };
        assert_eq!(FrameReader::with_limit(10).next(&mut header(11)), Err(error));
    }

    #[test]
    fn the_byte_layout_matches_the_documentation() {
        let frame = Frame::new(UpFrame::ExchangeUp, 0x0102, 3, 4, Bytes::from_static(b"ab"));
        assert_eq!(frame.header(), [2, 0, 0, 0, 2, 1, 2, 1, 3, 0, 0, 0, 4, 0, 0, 0]);
    }
}
