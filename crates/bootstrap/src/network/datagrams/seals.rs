//! Encrypts the datagrams of a connection: each has a counter that is never used twice, because it is the nonce of the
//! encryption.

use crate::network::carrier::Number;
use crate::network::proof::SEAL_LEN;
use alloc::vec::Vec;
use snow::StatelessTransportState;
use wireup_group::datagrams::Replay;

pub const DATA: u8 = 3;

/// How much of a datagram an ICMP error has to quote (bytes). Chosen: all hosts quote more, and only whoever has seen
/// the datagram knows it: it contains random bytes of a hello, or encrypted ones.
pub const QUOTE_LEN: usize = 48;

pub const HEADER_LEN: usize = 1 + 8 + 8;
/// Number of latest datagrams that an ICMP error may quote. Chosen: more than are sent at once to a rank that does not
/// answer.
const LATEST: usize = 32;
/// Number of encrypted bytes that an ICMP error must quote, which a stranger cannot guess.
const QUOTED_LEN: usize = 16;
const _: () = assert!(QUOTED_LEN <= SEAL_LEN && HEADER_LEN + QUOTED_LEN <= QUOTE_LEN);

pub struct Seals {
    /// The number by which the peer names this connection.
    theirs: Number,
    state: StatelessTransportState,
    counter: u64,
    /// The first encrypted bytes of the latest datagrams, at index `counter % LATEST`.
    latest: [[u8; QUOTED_LEN]; LATEST],
    replay: Replay,
}

/// Splits a datagram into the receiver's number of the connection, the counter, and the encrypted part.
pub fn header(bytes: &[u8]) -> Option<(Number, u64, &[u8])> {
    let rest = bytes.strip_prefix(&[DATA])?;
    let (to, rest) = rest.split_first_chunk()?;
    let (counter, sealed) = rest.split_first_chunk()?;
    Some((u64::from_le_bytes(*to), u64::from_le_bytes(*counter), sealed))
}

impl Seals {
    pub fn new(theirs: Number, state: StatelessTransportState) -> Seals {
        Seals { theirs, state, counter: 0, latest: [[0; QUOTED_LEN]; LATEST], replay: Replay::default() }
    }

    /// Writes the next datagram to `out`, which must be empty; `false`: it cannot be encrypted.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> bool {
        out.push(DATA);
        out.extend_from_slice(&self.theirs.to_le_bytes());
        out.extend_from_slice(&self.counter.to_le_bytes());
        out.resize(HEADER_LEN + plain.len() + SEAL_LEN, 0);
        let is_sealed = self.state.write_message(self.counter, plain, &mut out[HEADER_LEN..]).is_ok();
        // The slice is long enough, because the authentication tag alone has as many bytes.
        self.latest[self.counter as usize % LATEST].copy_from_slice(&out[HEADER_LEN..HEADER_LEN + QUOTED_LEN]);
        self.counter += 1;
        is_sealed
    }

    /// Decrypts a datagram into `plain`; returns its content, and whether its counter is the highest so far. `None`:
    /// the datagram comes from a stranger, or has arrived before.
    pub fn open<'p>(&mut self, (counter, sealed): (u64, &[u8]), plain: &'p mut [u8]) -> Option<(&'p [u8], bool)> {
        if !self.replay.is_new(counter) || sealed.len() > plain.len() {
            return None;
        }
        let len = self.state.read_message(counter, sealed, plain).ok()?;
        Some((&plain[..len], self.replay.note(counter)))
    }

    /// Whether `quote` is the beginning of one of the latest datagrams that this end has sent.
    pub fn has_sent(&self, quote: &[u8]) -> bool {
        let Some((number, counter, sealed)) = header(quote) else { return false };
        let is_recent = counter < self.counter && self.counter - counter <= LATEST as u64;
        number == self.theirs && is_recent && sealed.starts_with(&self.latest[counter as usize % LATEST])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::proof::{Purpose, proved_pair};

    #[test]
    fn a_datagram_is_opened_once_and_an_error_must_quote_a_late_one() {
        let [dialled, accepted] = proved_pair(Purpose::Messages { closed: 0 });
        let [mut one, mut other] = [(8, dialled), (9, accepted)]
            .map(|(theirs, proved)| Seals::new(theirs, proved.state.into_stateless_transport_mode().unwrap()));
        let mut sent = Vec::new();
        for number in 0..=LATEST as u8 {
            let mut out = Vec::new();
            assert!(one.seal(&[number; 9], &mut out));
            sent.push(out);
        }
        let mut plain = [0; 64];
        for (at, is_latest) in [(1, true), (0, false), (2, true)] {
            let (to, counter, sealed) = header(&sent[at]).unwrap();
            assert_eq!((to, counter), (8, at as u64));
            assert_eq!(other.open((counter, sealed), &mut plain), Some((&[at as u8; 9][..], is_latest)));
            assert_eq!(other.open((counter, sealed), &mut plain), None, "repeated");
        }
        let quote = |at: usize| &sent[at][..QUOTE_LEN.min(sent[at].len())];
        assert_eq!([0, 1, LATEST].map(|at| one.has_sent(quote(at))), [false, true, true]);
        assert!(!one.has_sent(&quote(1)[..HEADER_LEN + QUOTED_LEN - 1]) && !other.has_sent(quote(1)));
    }
}
