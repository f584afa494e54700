//! The messages between the members of a group.
//!
//! ```text
//! +------+---------+----------+----------+---------+
//! | kind | context | a        | b        | payload |
//! | u8   | u64 LE  | u32 LE   | u32 LE   |         |
//! +------+---------+----------+----------+---------+
//! kind 0: a step of a collective: a its epoch, b the step and the side
//!      1: the group has failed: a is the rank that was lost
//!      2: where is member a? b: number of the question; payload: the ranks that it has passed
//!      3: the answer to question b: the peer of member a, and the ranks that the answer has yet to pass, the next
//!         one last
//!      4: for a receive: a the place of the sender, b the tag
//!      5: the group's members disagree: a is the rank that has another list
//!      6: member a makes a group of others: its name, list, context (u64)
//! ```
//!
//! On a connection, each message is preceded by its length. Payloads contain numbers (u32 LE), byte strings (called
//! rows), each after its length, and peers: a rank and the row of its address.

use crate::shape::Peer;
use alloc::vec::Vec;
use thiserror::Error;

/// The error for bytes that no correct member sends.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("not a message between members of a group")]
pub struct Malformed;

pub const HEADER_LEN: usize = 17;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageKind {
    Step { epoch: u32, step: u32 },
    Failed { rank: u32 },
    WhereIs { member: u32, question: u32 },
    ThereIs { member: u32, question: u32 },
    Tagged { from: u32, tag: u32 },
    Disagrees { rank: u32 },
    Creates { from: u32 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    pub context: u64,
    pub kind: MessageKind,
    pub payload: &'a [u8],
}

pub fn message_len(payload: &[u8]) -> usize {
    HEADER_LEN + payload.len()
}

impl Message<'_> {
    pub fn encode(&self) -> Vec<u8> {
        let (kind, a, b) = match self.kind {
            MessageKind::Step { epoch, step } => (0, epoch, step),
            MessageKind::Failed { rank } => (1, rank, 0),
            MessageKind::WhereIs { member, question } => (2, member, question),
            MessageKind::ThereIs { member, question } => (3, member, question),
            MessageKind::Tagged { from, tag } => (4, from, tag),
            MessageKind::Disagrees { rank } => (5, rank, 0),
            MessageKind::Creates { from } => (6, from, 0),
        };
        [&[kind], &self.context.to_le_bytes()[..], &u32::to_le_bytes(a), &u32::to_le_bytes(b), self.payload].concat()
    }
}

pub fn decode(bytes: &[u8]) -> Result<Message<'_>, Malformed> {
    let (head, payload) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(Malformed)?;
    let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let context = u64::from(number(1)) | u64::from(number(5)) << 32;
    let (a, b) = (number(9), number(13));
    let kind = match head[0] {
        0 => MessageKind::Step { epoch: a, step: b },
        1 if b == 0 => MessageKind::Failed { rank: a },
        2 => MessageKind::WhereIs { member: a, question: b },
        3 => MessageKind::ThereIs { member: a, question: b },
        4 => MessageKind::Tagged { from: a, tag: b },
        5 if b == 0 => MessageKind::Disagrees { rank: a },
        6 if b == 0 => MessageKind::Creates { from: a },
        _ => return Err(Malformed),
    };
    Ok(Message { context, kind, payload })
}

pub fn push_row(out: &mut Vec<u8>, row: &[u8]) {
    out.extend_from_slice(&(row.len() as u32).to_le_bytes());
    out.extend_from_slice(row);
}

pub fn take_row<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let len = take_number(bytes)?;
    let (row, rest) = bytes.split_at_checked(len as usize).ok_or(Malformed)?;
    *bytes = rest;
    Ok(row)
}

/// Decodes a payload of rows.
pub fn all_rows(mut bytes: &[u8]) -> Result<Vec<&[u8]>, Malformed> {
    let mut rows = Vec::new();
    while !bytes.is_empty() {
        rows.push(take_row(&mut bytes)?);
    }
    Ok(rows)
}

pub fn take_number(bytes: &mut &[u8]) -> Result<u32, Malformed> {
    let (number, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
    *bytes = rest;
    Ok(u32::from_le_bytes(*number))
}

pub fn encode_peer(peer: &Peer) -> Vec<u8> {
    [&peer.rank.to_le_bytes()[..], &(peer.address.len() as u32).to_le_bytes(), &peer.address].concat()
}

pub fn take_peer(bytes: &mut &[u8]) -> Result<Peer, Malformed> {
    Ok(Peer { rank: take_number(bytes)?, address: take_row(bytes)?.to_vec() })
}

/// Decodes a payload of one peer.
pub fn decode_peer(mut bytes: &[u8]) -> Result<Peer, Malformed> {
    let peer = take_peer(&mut bytes)?;
    if bytes.is_empty() { Ok(peer) } else { Err(Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_byte_layout_matches_the_documentation() {
        let kind = MessageKind::Step { epoch: 2, step: 0x0403_0201 };
        let bytes = Message { context: 0x0807_0605_0403_0201, kind, payload: b"xy" }.encode();
        assert_eq!(bytes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 2, 0, 0, 0, 1, 2, 3, 4, b'x', b'y']);
    }

    proptest! {
        #[test]
        fn decoded_messages_encode_to_the_same_bytes(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..40),
            kind in 0u8..8,
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            if let Ok(message) = decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }
    }
}
