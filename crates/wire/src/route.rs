//! A frame routed to another agent through the tree, and the address for reaching its sender directly.
//!
//! The frame gets another kind ([`FrameKind::Routed`]) and a header before its payload. A hop reads only the first
//! eight bytes and forwards everything:
//!
//! ```text
//! byte  0     4      8                12                 16         20     21       22       24
//!       +-----+------+----------------+------------------+----------+------+--------+--------+----------+---------+
//!       | to  | from | to_incarnation | from_incarnation | sequence | kind | parts  | length | endpoint | payload |
//!       | u32 | u32  | u32            | u32              | u32      | u8   | u8     | u16    | length   | the rest|
//!       +-----+------+----------------+------------------+----------+------+--------+--------+----------+---------+
//! ```
//!
//! The `incarnation` fields are the incarnations of the two agents known to the sender: a restarted agent drops frames
//! for its previous incarnation and frames from an earlier incarnation of the sender.
//!
//! `parts`: bit 0 is set if there is a frame; `kind` and `sequence` are its own. If `length` is not 0 there is an
//! endpoint, `postcard` of [`Endpoint`]: the first message to a peer carries it (S3), so that the answer can avoid the
//! tree.

use crate::frame::{Frame, FrameKind};
use crate::ids::AgentId;
use crate::peer::{self, PeerError};
use alloc::string::String;
use alloc::vec::Vec;
use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

/// Length of the header before an endpoint and a payload.
pub const ROUTE_LEN: usize = 24;
const HAS_FRAME: u8 = 1;

/// The addresses at which an agent can be reached without the tree.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Endpoint {
    /// Addresses at which the agent listens, `ip:port`, best first. Empty: this agent cannot be dialled.
    pub addresses: Vec<String>,
    /// The agent's address for the transport that all agents have agreed on, if there is such a transport.
    pub point: Option<Point>,
    /// Why the sender could not connect to the receiver's endpoint, if it failed.
    pub failed: Option<String>,
}

/// An agent's address for a transport that all agents must have; only that transport interprets it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    pub address: Vec<u8>,
    /// A key whose possession proves that an agent has received this point from its owner, over authenticated links.
    pub key: [u8; 32],
}

impl core::fmt::Debug for Point {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Point({} bytes, ..)", self.address.len())
    }
}

/// The incarnations of two agents; 0 is the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Incarnations {
    pub to: u32,
    pub from: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Routed {
    pub to: AgentId,
    pub from: AgentId,
    pub incarnations: Incarnations,
    pub endpoint: Option<Endpoint>,
    /// A frame, with its sequence number among those from `from` to `to` (the low 32 bits).
    pub frame: Option<(u32, Frame)>,
}

impl Routed {
    /// Encodes the message as a frame. `job`: the job in the frame's header, if the message contains no frame.
    pub fn wrap(self, job: u32) -> Frame {
        let endpoint = self.endpoint.as_ref().map(peer::encode).unwrap_or_default();
        let length = u16::try_from(endpoint.len()).expect("addresses of one host are few");
        let parts = if self.frame.is_some() { HAS_FRAME } else { 0 };
        let empty = Frame::new(FrameKind::Routed, 0, job, 0, Bytes::new());
        let (sequence, frame) = self.frame.unwrap_or((0, empty));
        let mut payload = BytesMut::with_capacity(ROUTE_LEN + endpoint.len() + frame.payload.len());
        payload.put_u32_le(self.to.0);
        payload.put_u32_le(self.from.0);
        payload.put_u32_le(self.incarnations.to);
        payload.put_u32_le(self.incarnations.from);
        payload.put_u32_le(sequence);
        payload.put_u8(frame.kind.to_byte());
        payload.put_u8(parts);
        payload.put_u16_le(length);
        payload.put_slice(&endpoint);
        payload.put_slice(&frame.payload);
        Frame { kind: FrameKind::Routed, payload: payload.freeze(), ..frame }
    }

    /// Decodes a received frame.
    ///
    /// # Errors
    /// No correct agent sends this.
    pub fn unwrap(frame: Frame) -> Result<Routed, PeerError> {
        let (to, from) = ends(&frame).ok_or(PeerError::Malformed)?;
        let mut payload = frame.payload.clone();
        let header = payload.split_to(ROUTE_LEN);
        let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let incarnations = Incarnations { to: word(8), from: word(12) };
        let length = usize::from(u16::from_le_bytes([header[22], header[23]]));
        if payload.len() < length {
            return Err(PeerError::Malformed);
        }
        let endpoint = payload.split_to(length);
        let endpoint = if length == 0 { None } else { Some(peer::decode(&endpoint)?) };
        let inner = match header[21] & HAS_FRAME {
            0 => None,
            _ => {
                let kind = FrameKind::from_byte(header[20]).ok_or(PeerError::Malformed)?;
                Some((word(16), Frame { kind, payload, ..frame }))
            }
        };
        Ok(Routed { to, from, incarnations, endpoint, frame: inner })
    }
}

/// The destination and the source of a routed frame.
pub fn ends(frame: &Frame) -> Option<(AgentId, AgentId)> {
    if frame.payload.len() < ROUTE_LEN {
        return None;
    }
    let (to, rest) = frame.payload.split_first_chunk()?;
    let (from, _) = rest.split_first_chunk()?;
    Some((AgentId(u32::from_le_bytes(*to)), AgentId(u32::from_le_bytes(*from))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::PeerFrame;
    use alloc::vec;
    use proptest::prelude::*;

    fn frame(kind: impl Into<FrameKind>, payload: Vec<u8>) -> Frame {
        Frame::new(kind, 7, 3, 9, payload.into())
    }

    proptest! {
        #[test]
        fn routed_frames_round_trip(
            to in any::<u32>(),
            from in any::<u32>(),
            incarnations in any::<(u32, u32)>(),
            sequence in any::<u32>(),
            addresses in proptest::option::of(proptest::collection::vec(".{0,20}", 0..4)),
            point in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..400)),
            failed in proptest::option::of(".{0,20}"),
            payload in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..200)),
        ) {
            let point = point.map(|address| Point { address, key: [7; 32] });
            let endpoint = addresses.map(|addresses| Endpoint { addresses, point, failed });
            let inner = payload.map(|payload| (sequence, frame(PeerFrame::Direct, payload)));
            let incarnations = Incarnations { to: incarnations.0, from: incarnations.1 };
            let routed = Routed { to: AgentId(to), from: AgentId(from), incarnations, endpoint, frame: inner };
            let wrapped = routed.clone().wrap(3);
            prop_assert_eq!((wrapped.kind, wrapped.job), (FrameKind::Routed, 3));
            prop_assert_eq!(ends(&wrapped), Some((AgentId(to), AgentId(from))));
            prop_assert_eq!(Routed::unwrap(wrapped), Ok(routed));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic_the_decoder(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let wrapped = frame(FrameKind::Routed, bytes);
            let known = ends(&wrapped).is_some();
            prop_assert!(Routed::unwrap(wrapped).is_err() || known);
        }
    }

    #[test]
    fn the_byte_layout_matches_the_documentation() {
        let inner = Some((0x0403_0201, frame(PeerFrame::Direct, vec![0xaa])));
        let incarnations = Incarnations { to: 2, from: 3 };
        let wrapped = Routed { to: AgentId(5), from: AgentId(6), incarnations, endpoint: None, frame: inner }.wrap(0);
        let ends = [5, 0, 0, 0, 6, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0];
        assert_eq!(wrapped.payload[..16], ends);
        assert_eq!(wrapped.payload[16..], [1, 2, 3, 4, 9, 1, 0, 0, 0xaa]);
        assert_eq!((wrapped.stream, wrapped.job, wrapped.arg), (7, 3, 9));
    }
}
