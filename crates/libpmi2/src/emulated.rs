//! The collectives, made of what any PMI-2 server has: put, fence, get.
//!
//! A fence is `kvs-fence`, whose answer is read when somebody waits for it. An allgather is a put of the value under a key of
//! ours, a fence, and a get for each other rank when it is finished. Put and fence leave together in one write at the start,
//! unless another fence is on the wire; gets leave in batches of [`BATCH`] where the server answers in order. Slurm's and ours do
//! (they give `PMI_JOBID`); Hydra answers those first that need no asking around, and no answer says what it answers.
//!
//! Cost for each rank: start: one write. Finish of a fence: one read. Finish of an allgather: one read, then P - 1 gets in
//! (P - 1) / 16 round trips, or P - 1 under Hydra; values longer than [`PIECE_LEN_MAX`] take further gets.

use crate::exchange::{Kind, MAX_LEN, Push};
use crate::requests::Stage;
use crate::state::{Job, value};
use alloc::vec::Vec;
use wireup_capi::codes::{Code, Result};
use wireup_capi::{Failure, Server, ints};
use wireup_wire::limits::VALUE_LEN_MAX;
use wireup_wire::pmi::{Command, Request};

/// No key of a program may begin so.
pub const KEY_PREFIX: &[u8] = b"-wireup-";

/// Gets that are sent before the first answer is read. Their answers, a thousand bytes each, fit into the socket's buffer, so that
/// the server never waits for us while we wait for it.
const BATCH: usize = 16;
/// Text of one put: room is left for the number of pieces in front of the first.
const PIECE_LEN_MAX: usize = VALUE_LEN_MAX - 8;

impl Job {
    pub fn advance_emulated(&mut self, push: Push) {
        let rank = self.rank;
        let (Ok(server), requests) = (self.with.server(), &mut self.requests) else {
            return;
        };
        while let Some(first) = requests.first() {
            let wait = matches!(push, Push::Wait(id) if first.id <= id);
            first.stage = match first.stage {
                Stage::Queued => send(server, first.kind, rank, &first.value),
                _ if push == Push::Start => return,
                _ => match server.end_fence(wait) {
                    Some(result) => Stage::Over(result.map(|()| None)),
                    None => return,
                },
            };
        }
    }

    /// Hands the values of `ranks` in an allgather to `row`, in any order.
    pub fn get_values(
        &mut self,
        generation: usize,
        own: &[u8],
        ranks: &[u32],
        row: &mut dyn FnMut(u32, &[u8]) -> Result,
    ) -> Result {
        let mut others = Vec::with_capacity(ranks.len());
        for &rank in ranks {
            if rank == self.rank { row(rank, own)? } else { others.push(rank) }
        }
        if others.is_empty() {
            return Ok(());
        }
        let at_once = if self.server_is_known { BATCH } else { 1 };
        let server = self.server()?;
        for batch in others.chunks(at_once) {
            let first_pieces = get_all(server, batch.iter().map(|&rank| (rank, key(generation, rank, 0))))?;
            for (&rank, first) in batch.iter().zip(first_pieces) {
                row(rank, &whole(server, generation, rank, first, at_once)?)?;
            }
        }
        Ok(())
    }
}

/// Sends the puts and the fence of a collective.
fn send(server: &mut Server, kind: Kind, rank: u32, value: &[u8]) -> Stage {
    let sent = match kind {
        Kind::Fence => Ok(()),
        Kind::Allgather { generation, .. } => pieces(value).iter().enumerate().try_for_each(|(piece, text)| {
            server.post(&Request::Put { kvsname: None, key: &key(generation, rank, piece), value: text })
        }),
    };
    match sent.and_then(|()| server.send_fence()) {
        Ok(()) => Stage::UnderWay,
        Err(failure) => Stage::Over(Err(failure)),
    }
}

fn key(generation: usize, rank: u32, piece: usize) -> Vec<u8> {
    let mut key = KEY_PREFIX.to_vec();
    for (separator, number) in [(b'g', generation), (b'-', rank as usize), (b'.', piece)] {
        key.push(separator);
        ints::push(number, &mut key);
    }
    key
}

/// The values of keys that must be there, in their order; `rank` is who put it.
fn get_all(server: &mut Server, keys: impl Iterator<Item = (u32, Vec<u8>)>) -> Result<Vec<Vec<u8>>> {
    for (rank, key) in keys {
        server.ask(&Request::Get { kvsname: None, key: &key, source: Some(rank as i32) })?;
    }
    let (mut values, mut missing) = (Vec::new(), false);
    server.settle(&mut |_, fields| {
        missing |= !fields.answers(Command::Get) || !fields.succeeded() || fields.get("value").is_none();
        values.push(value(fields));
    })?;
    if missing { Err(Code::OTHER) } else { Ok(values) }
}

/// The value whose first piece has come.
fn whole(server: &mut Server, generation: usize, rank: u32, first: Vec<u8>, at_once: usize) -> Result<Vec<u8>> {
    let colon = first.iter().position(|byte| *byte == b':').ok_or(Failure::Refused)?;
    let count: usize = ints::parse(&first[..colon]).filter(|count| *count <= pieces_max()).ok_or(Failure::Refused)?;
    let mut text = first[colon + 1..].to_vec();
    let mut next = 1;
    while next < count {
        let end = count.min(next + at_once);
        let further = get_all(server, (next..end).map(|piece| (rank, key(generation, rank, piece))))?;
        text.extend(further.iter().flatten());
        next = end;
    }
    unescaped(&text).ok_or(Code::OTHER)
}

fn pieces_max() -> usize {
    (3 * MAX_LEN).div_ceil(PIECE_LEN_MAX)
}

/// A value as texts for one put each; the first begins with their number and a colon.
fn pieces(value: &[u8]) -> Vec<Vec<u8>> {
    let text = escaped(value);
    let count = text.len().div_ceil(PIECE_LEN_MAX).max(1);
    let mut first = Vec::new();
    ints::push(count, &mut first);
    first.push(b':');
    first.extend_from_slice(&text[..text.len().min(PIECE_LEN_MAX)]);
    let mut pieces = alloc::vec![first];
    pieces.extend(text.chunks(PIECE_LEN_MAX).skip(1).map(<[u8]>::to_vec));
    pieces
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Only characters that every server hands on as they are; others as `%` and two digits.
fn escaped(value: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(value.len());
    for &byte in value {
        if byte.is_ascii_graphic() && !b"%;=\\".contains(&byte) {
            text.push(byte);
        } else {
            text.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
    text
}

fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| HEX.iter().position(|digit| *digit == byte).map(|value| value as u8);
    let mut value = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let (digits, after) = rest.split_first_chunk::<2>()?;
            value.push(digit(digits[0])? << 4 | digit(digits[1])?);
            rest = after;
        } else {
            value.push(byte);
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_value_goes_through_text() {
        let all: Vec<u8> = (1..=255).collect();
        for value in [&b""[..], b"a", b"%;= \\\n", &all, &all.repeat(30)] {
            let pieces = pieces(value);
            let count: usize = ints::parse(pieces[0].split(|byte| *byte == b':').next().unwrap()).unwrap();
            assert_eq!(count, pieces.len());
            assert!(pieces.iter().all(|piece| piece.len() <= VALUE_LEN_MAX && !piece.contains(&b';')));
            let text = pieces.concat();
            let colon = text.iter().position(|byte| *byte == b':').unwrap();
            assert_eq!(unescaped(&text[colon + 1..]).as_deref(), Some(value));
        }
        assert_eq!(unescaped(b"%4"), None);
        assert_eq!(unescaped(b"%zz"), None);
    }

    #[test]
    fn keys_fit_and_differ() {
        let longest = key(usize::MAX, u32::MAX, pieces_max());
        assert!(longest.len() <= wireup_wire::limits::KEY_LEN_MAX);
        assert_ne!(key(1, 11, 0), key(11, 1, 0));
    }
}
