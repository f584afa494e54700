//! The collectives, made of what any PMI-2 server has: put, fence, get.
//!
//! A fence is `kvs-fence`. An allgather is a put of the value under a key of ours, a fence, and a get for each other
//! rank when it is finished ([`Gather`]). Put and fence leave together at the start, unless another fence is under way;
//! a value of more than [`BATCH`] pieces leaves in batches. Gets leave in batches too where the server answers in
//! order. Slurm's and ours do (they set `PMI_JOBID`); Hydra answers those first that it need not ask others for, and no
//! answer says which get it belongs to.
//!
//! Cost for each rank: start: one write. Finish of a fence: one read. Finish of an allgather: one read, then P - 1 gets
//! in (P - 1) / 16 round trips, or P - 1 under Hydra; values longer than [`PIECE_LEN_MAX`] take further gets.

use crate::link::{Answer, Failure, Link};
use crate::memory::Memory;
use crate::number;
use crate::requests::{CollectiveKind, Requests, Stage};
use alloc::vec::Vec;
use wireup_wire::limits::{ALLGATHER_LEN_MAX, VALUE_LEN_MAX};
use wireup_wire::pmi::escape::halve;
use wireup_wire::pmi::{Command, Request};

/// The prefix of this library's own keys: no key of a program may begin with it.
pub const KEY_PREFIX: &[u8] = b"-wireup-";

/// Puts or gets that are sent before the first answer is read. A thousand bytes each, they fit into the buffers of the
/// sockets on the way, also into those between Hydra's processes, which stop reading while they cannot write.
const BATCH: usize = 16;
/// Text of one put: room is left for the number of pieces in front of the first.
const PIECE_LEN_MAX: usize = VALUE_LEN_MAX - 8;

/// Ends the fence that is complete, and starts the requests that waited for it.
pub fn advance<M: Memory>(requests: &mut Requests<M>, link: &mut Link<M>, rank: u32) {
    while let Some(first) = requests.first() {
        let stage = match (&mut first.stage, first.kind) {
            (Stage::Queued, CollectiveKind::Allgather { .. }) => Ok(Stage::Putting(pieces(&first.value))),
            (Stage::Queued, CollectiveKind::Fence) => link.begin_fence(None).map(|()| Stage::UnderWay),
            (Stage::Putting(pieces), CollectiveKind::Allgather { generation, .. }) if !pieces.is_empty() => {
                if link.unanswered_posts() > 0 {
                    return;
                }
                put(link, generation, rank, pieces).map(|()| Stage::Putting(core::mem::take(pieces)))
            }
            (Stage::Putting(_), _) => link.begin_fence(None).map(|()| Stage::UnderWay),
            (Stage::UnderWay | Stage::Over(_), _) => match link.take_fence_end() {
                Some(result) => result.map(|()| Stage::Over(Ok(None))),
                None => return,
            },
        };
        first.stage = stage.unwrap_or_else(|failure| Stage::Over(Err(failure)));
    }
}

/// Adds the puts of the next pieces, at most [`BATCH`].
fn put<M>(link: &mut Link<M>, generation: usize, rank: u32, pieces: &mut Vec<Vec<u8>>) -> Result<(), Failure> {
    for _ in 0..BATCH {
        let Some(text) = pieces.pop() else { break };
        let key = key(generation, rank, pieces.len());
        link.post(&Request::Put { kvsname: None, key: &key, value: &text })?;
    }
    Ok(())
}

/// The gets that follow the fence of an allgather. The driver calls [`Gather::ask`], passes on the answers in the order
/// of the requests, takes the complete values, and asks again, until nothing is left to ask.
pub struct Gather {
    generation: usize,
    /// The most gets that are sent in one batch.
    at_once: usize,
    /// The ranks whose values have not been requested yet, the next one last.
    ranks: Vec<u32>,
    /// Values of which at least one piece has been requested.
    partial: Vec<Partial>,
    /// For each outstanding get, the index in `partial` of the value that it is for.
    asked: Vec<usize>,
    is_wrong: bool,
}

struct Partial {
    rank: u32,
    text: Vec<u8>,
    /// The number of pieces that were requested, and the number of all pieces, which the first piece states.
    next: usize,
    count: usize,
}

impl Gather {
    pub fn new(generation: usize, ranks: &[u32], is_in_order: bool) -> Gather {
        let at_once = if is_in_order { BATCH } else { 1 };
        let ranks = ranks.iter().rev().copied().collect();
        Gather { generation, at_once, ranks, partial: Vec::new(), asked: Vec::new(), is_wrong: false }
    }

    /// Adds the next gets; `false`: nothing is left to ask for.
    ///
    /// # Errors
    /// An answer was wrong, or the server is gone.
    pub fn ask<M>(&mut self, link: &mut Link<M>) -> Result<bool, Failure> {
        if self.is_wrong {
            return Err(Failure::Refused);
        }
        self.asked.clear();
        for (at, value) in self.partial.iter_mut().enumerate() {
            while value.next < value.count && self.asked.len() < self.at_once {
                get(link, self.generation, value.rank, value.next)?;
                self.asked.push(at);
                value.next += 1;
            }
        }
        while self.asked.len() < self.at_once
            && let Some(rank) = self.ranks.pop()
        {
            get(link, self.generation, rank, 0)?;
            self.asked.push(self.partial.len());
            self.partial.push(Partial { rank, text: Vec::new(), next: 1, count: 1 });
        }
        Ok(!self.asked.is_empty())
    }

    /// Handles the answer to one of the gets.
    pub fn on_answer(&mut self, answer: &Answer<'_>) {
        let nth = self.asked.len().checked_sub(1 + answer.after);
        let at = nth.and_then(|nth| self.asked.get(nth));
        let value =
            answer.fields.get("value").filter(|_| answer.fields.answers(Command::Get) && answer.fields.succeeded());
        let taken = at.zip(value).and_then(|(at, value)| self.partial.get_mut(*at)?.add_piece(value));
        self.is_wrong |= taken.is_none();
    }

    /// Takes out a complete value, with its rank.
    pub fn take(&mut self) -> Option<Result<(u32, Vec<u8>), Failure>> {
        let is_whole = |value: &Partial| value.next == value.count;
        let at = self.partial.iter().position(is_whole).filter(|_| !self.is_wrong)?;
        let Partial { rank, text, .. } = self.partial.remove(at);
        Some(unescaped(&text).map(|value| (rank, value)).ok_or(Failure::Refused))
    }
}

impl Partial {
    /// Adds the next piece; `None`: it is malformed.
    fn add_piece(&mut self, value: &[u8]) -> Option<()> {
        let mut plain = Vec::new();
        let mut text = halve(value, &mut plain);
        if self.count == 1 {
            let colon = text.iter().position(|byte| *byte == b':')?;
            self.count = number::parse(&text[..colon]).filter(|count| (1..=pieces_max()).contains(count))?;
            text = &text[colon + 1..];
        }
        self.text.extend_from_slice(text);
        Some(())
    }
}

fn get<M>(link: &mut Link<M>, generation: usize, rank: u32, piece: usize) -> Result<(), Failure> {
    link.ask(&Request::Get { kvsname: None, key: &key(generation, rank, piece), source: Some(rank as i32) })
}

fn key(generation: usize, rank: u32, piece: usize) -> Vec<u8> {
    let mut key = KEY_PREFIX.to_vec();
    for (separator, number) in [(b'g', generation), (b'-', rank as usize), (b'.', piece)] {
        key.push(separator);
        number::push(number, &mut key);
    }
    key
}

fn pieces_max() -> usize {
    (3 * ALLGATHER_LEN_MAX).div_ceil(PIECE_LEN_MAX)
}

/// Cuts a value into texts of one put each; the first begins with the number of texts and a colon.
fn pieces(value: &[u8]) -> Vec<Vec<u8>> {
    let text = escaped(value);
    let count = text.len().div_ceil(PIECE_LEN_MAX).max(1);
    let mut first = Vec::new();
    number::push(count, &mut first);
    first.push(b':');
    first.extend_from_slice(&text[..text.len().min(PIECE_LEN_MAX)]);
    let mut pieces = alloc::vec![first];
    pieces.extend(text.chunks(PIECE_LEN_MAX).skip(1).map(<[u8]>::to_vec));
    pieces
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The value in characters that every server passes on unchanged; others become `%` and two digits.
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
    use crate::memory::NoMemory;
    use wireup_wire::pmi::Dialect;

    #[test]
    fn any_value_round_trips_as_text_pieces() {
        let all: Vec<u8> = (1..=255).collect();
        for value in [&b""[..], b"a", b"%;= \\\n", &all, &all.repeat(30)] {
            let pieces = pieces(value);
            let count: usize = number::parse(pieces[0].split(|byte| *byte == b':').next().unwrap()).unwrap();
            assert_eq!(count, pieces.len());
            assert!(pieces.iter().all(|piece| piece.len() <= VALUE_LEN_MAX && !piece.contains(&b';')));
            let text = pieces.concat();
            let colon = text.iter().position(|byte| *byte == b':').unwrap();
            assert_eq!(unescaped(&text[colon + 1..]).as_deref(), Some(value));
        }
        assert_eq!(unescaped(b"%4"), None);
        assert_eq!(unescaped(b"%zz"), None);
    }

    /// A server that stops reading while it cannot write is never sent more than one batch.
    #[test]
    fn a_long_value_is_put_in_batches() {
        let mut link = Link::<NoMemory>::new(Dialect::Pmi2);
        link.switch_to_pmi2();
        let mut requests = Requests::default();
        let kind = CollectiveKind::Allgather { generation: 1, max_len: 40_000, shared: false };
        requests.push(kind, b"v".repeat(40_000), 0);
        let (mut batches, mut puts) = (0, 0);
        while !link.is_in_fence() {
            advance(&mut requests, &mut link, 0);
            let sent = link.unanswered_posts();
            assert!((1..=BATCH as u64).contains(&sent) && link.to_send().len() < 2 * BATCH * VALUE_LEN_MAX);
            link.on_sent();
            (batches, puts) = (batches + 1, puts + sent);
            for left in (0..sent).rev() {
                assert_eq!(link.unanswered_posts(), left + 1);
                link.push(b"    26cmd=kvs-put-response;rc=0;").unwrap();
                assert_eq!(link.next(&mut |_| panic!("nobody waits for a put")), Ok(true));
            }
        }
        let count = pieces(&b"v".repeat(40_000)).len() as u64;
        assert_eq!((puts, batches), (count, count.div_ceil(BATCH as u64)));
    }

    #[test]
    fn emulated_keys_are_short_enough_and_distinct() {
        let longest = key(usize::MAX, u32::MAX, pieces_max());
        assert!(longest.len() <= wireup_wire::limits::KEY_LEN_MAX);
        assert_ne!(key(1, 11, 0), key(11, 1, 0));
    }
}
