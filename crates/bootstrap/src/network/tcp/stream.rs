//! Messages over a proved TCP connection: divided into units, encrypted, and put together again.
//!
//! On the wire, everything is a unit: a length (u16 LE) and that many bytes. The decrypted units form a stream of
//! messages.

use crate::network::messages::{Unframed, framed};
use crate::network::proof::{Broken, Proved, SEAL_LEN, SEALED_LEN_MAX};
use alloc::vec;
use alloc::vec::Vec;
use snow::TransportState;

pub fn push_unit(out: &mut Vec<u8>, unit: &[u8]) {
    out.extend_from_slice(&(unit.len() as u16).to_le_bytes());
    out.extend_from_slice(unit);
}

pub fn take_unit<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (unit, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
    *bytes = rest;
    Some(unit)
}

/// Number of bytes missing until the first unit is complete, or until its length is known.
pub fn unit_left(bytes: &[u8]) -> usize {
    let len = bytes.first_chunk().map_or(0, |len| usize::from(u16::from_le_bytes(*len)));
    (2 + len).saturating_sub(bytes.len())
}

pub struct Stream {
    pub peer: u32,
    seals: TransportState,
    plain: Unframed,
}

impl Stream {
    pub fn new(proved: Proved) -> Result<Stream, Broken> {
        let seals = proved.state.into_transport_mode()?;
        Ok(Stream { peer: proved.peer, seals, plain: Unframed::default() })
    }

    /// Appends an empty unit: it shows that this end has the new key, and did not replay an old handshake.
    ///
    /// # Errors
    /// The nonces are used up.
    pub fn confirm(&mut self, out: &mut Vec<u8>) -> Result<(), Broken> {
        let mut room = [0; SEAL_LEN];
        let len = self.seals.write_message(&[], &mut room)?;
        push_unit(out, &room[..len]);
        Ok(())
    }

    /// Appends an encrypted message.
    ///
    /// # Errors
    /// The nonces are used up.
    pub fn seal(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), Broken> {
        let plain = framed(message);
        let mut room = vec![0; SEALED_LEN_MAX.min(plain.len() + SEAL_LEN)];
        for piece in plain.chunks(SEALED_LEN_MAX - SEAL_LEN) {
            let len = self.seals.write_message(piece, &mut room)?;
            push_unit(out, &room[..len]);
        }
        Ok(())
    }

    /// Decrypts a unit; returns the messages that are complete now.
    ///
    /// # Errors
    /// The unit was not encrypted by the other end, is out of order, or contains a message that is too long.
    pub fn open(&mut self, unit: &[u8]) -> Result<Vec<Vec<u8>>, Broken> {
        let plain = &mut self.plain.bytes;
        let before = plain.len();
        plain.resize(before + unit.len(), 0);
        let opened = self.seals.read_message(unit, &mut plain[before..]);
        plain.truncate(before + opened.as_ref().map_or(0, |len| *len));
        opened?;
        self.plain.take_whole()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::proof::{Purpose, proved_pair};

    fn pair() -> [Stream; 2] {
        proved_pair(Purpose::Messages { closed: 0 }).map(|proved| Stream::new(proved).unwrap())
    }

    #[test]
    fn messages_of_any_length_arrive_whole_and_in_order() {
        let [mut here, mut there] = pair();
        let sent: Vec<Vec<u8>> =
            [0, 1, 65_515, 65_519, 65_520, 200_000].iter().map(|len| vec![*len as u8; *len]).collect();
        let mut bytes = Vec::new();
        sent.iter().for_each(|message| here.seal(message, &mut bytes).unwrap());
        let (mut left, mut arrived) = (&bytes[..], Vec::new());
        while let Some(unit) = take_unit(&mut left) {
            arrived.extend(there.open(unit).unwrap());
        }
        assert!(left.is_empty() && arrived == sent);
    }

    #[test]
    fn a_changed_or_repeated_unit_is_refused() {
        let [mut here, mut there] = pair();
        let mut bytes = Vec::new();
        here.seal(b"one", &mut bytes).unwrap();
        let unit = take_unit(&mut &bytes[..]).unwrap().to_vec();
        let mut changed = unit.clone();
        changed[0] ^= 1;
        assert_eq!(there.open(&changed), Err(Broken));
        assert_eq!(there.open(&unit).map(|messages| messages.len()), Ok(1));
        assert_eq!(there.open(&unit), Err(Broken));
    }

    #[test]
    fn a_message_that_is_too_long_is_refused_at_its_beginning() {
        let [mut here, mut there] = pair();
        let mut room = vec![0; 64];
        let len = here.seals.write_message(&u32::MAX.to_le_bytes(), &mut room).unwrap();
        assert_eq!(there.open(&room[..len]), Err(Broken));
    }
}
