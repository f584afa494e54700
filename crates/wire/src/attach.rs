//! The first bytes that a launcher and a standing session send each other: the protocol versions that each supports.
//!
//! ```text
//! byte  0        4        6         8
//!       +--------+--------+---------+
//!       | "WUA\n"| lowest | highest |      versions, u16, little-endian
//!       +--------+--------+---------+
//! ```
//!
//! Both sides send theirs at once; from then on they use the highest version that both support, in frames. This layout
//! never changes, so that any two versions can report that they are incompatible.

use crate::peer::PROTOCOL_VERSION;
use thiserror::Error;

pub const ATTACH_MAGIC: [u8; 4] = *b"WUA\n";
pub const ATTACH_LEN: usize = 8;

/// The versions that one side supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spoken {
    pub lowest: u16,
    pub highest: u16,
}

/// Why the two sides cannot communicate.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachError {
    #[error("the other side does not speak the protocol of wireup's sessions")]
    Foreign,
    #[error("the other side closed after {0} of {ATTACH_LEN} bytes")]
    Cut(usize),
    /// No common version: the other side runs an older wireup.
    #[error("the other side speaks protocol versions up to {theirs}, this wireup {ours} and later")]
    Older { theirs: u16, ours: u16 },
    /// No common version: the other side runs a newer wireup.
    #[error("the other side speaks protocol version {theirs} and later, this wireup only up to {ours}")]
    Newer { theirs: u16, ours: u16 },
}

impl Spoken {
    /// The versions that this wireup supports.
    pub const OURS: Spoken = Spoken { lowest: PROTOCOL_VERSION, highest: PROTOCOL_VERSION };

    pub fn encode(self) -> [u8; ATTACH_LEN] {
        let mut bytes = [0; ATTACH_LEN];
        bytes[..4].copy_from_slice(&ATTACH_MAGIC);
        bytes[4..6].copy_from_slice(&self.lowest.to_le_bytes());
        bytes[6..].copy_from_slice(&self.highest.to_le_bytes());
        bytes
    }

    /// Decodes the versions that the other side supports; `None`: not all bytes are there yet. The bytes from
    /// [`ATTACH_LEN`] on belong to the frames that follow.
    ///
    /// # Errors
    /// The bytes cannot be the beginning of such a header.
    pub fn decode(bytes: &[u8]) -> Result<Option<Spoken>, AttachError> {
        let known = bytes.len().min(ATTACH_MAGIC.len());
        if bytes[..known] != ATTACH_MAGIC[..known] {
            return Err(AttachError::Foreign);
        }
        let &[_, _, _, _, a, b, c, d, ..] = bytes else { return Ok(None) };
        let (lowest, highest) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
        if lowest > highest {
            return Err(AttachError::Foreign);
        }
        Ok(Some(Spoken { lowest, highest }))
    }

    /// The highest version that both sides support.
    ///
    /// # Errors
    /// There is no common version.
    pub fn agree(self, theirs: Spoken) -> Result<u16, AttachError> {
        if theirs.highest < self.lowest {
            return Err(AttachError::Older { theirs: theirs.highest, ours: self.lowest });
        }
        if theirs.lowest > self.highest {
            return Err(AttachError::Newer { theirs: theirs.lowest, ours: self.highest });
        }
        Ok(self.highest.min(theirs.highest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_byte_layout_never_changes() {
        assert_eq!(Spoken { lowest: 7, highest: 0x0102 }.encode(), *b"WUA\n\x07\0\x02\x01");
    }

    #[test]
    fn a_cut_off_message_waits_for_more_bytes() {
        let whole = Spoken::OURS.encode();
        for len in 0..ATTACH_LEN {
            assert_eq!(Spoken::decode(&whole[..len]), Ok(None));
        }
        assert_eq!(Spoken::decode(&whole), Ok(Some(Spoken::OURS)));
    }

    #[test]
    fn foreign_bytes_are_refused_at_the_first_byte() {
        assert_eq!(Spoken::decode(b"S"), Err(AttachError::Foreign));
        assert_eq!(Spoken::decode(b"WUP\n\x06\0\0\0"), Err(AttachError::Foreign));
        let upside_down = Spoken { lowest: 3, highest: 2 };
        assert_eq!(Spoken::decode(&upside_down.encode()), Err(AttachError::Foreign));
    }

    #[test]
    fn the_highest_common_version_is_chosen() {
        let ours = Spoken { lowest: 5, highest: 8 };
        let with = |lowest, highest| ours.agree(Spoken { lowest, highest });
        assert_eq!((with(1, 5), with(7, 20), with(6, 6)), (Ok(5), Ok(8), Ok(6)));
        assert_eq!(with(2, 4), Err(AttachError::Older { theirs: 4, ours: 5 }));
        assert_eq!(with(9, 9), Err(AttachError::Newer { theirs: 9, ours: 8 }));
    }

    proptest! {
        #[test]
        fn both_sides_agree_on_the_version(a in any::<[u16; 2]>(), b in any::<[u16; 2]>()) {
            let spoken = |[x, y]: [u16; 2]| Spoken { lowest: x.min(y), highest: x.max(y) };
            let (a, b) = (spoken(a), spoken(b));
            prop_assert_eq!(a.agree(b).ok(), b.agree(a).ok());
            prop_assert_eq!(Spoken::decode(&a.encode()), Ok(Some(a)));
            if let Ok(version) = a.agree(b) {
                prop_assert!(a.lowest.max(b.lowest) <= version && version == a.highest.min(b.highest));
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic_the_decoder(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            prop_assert!(!matches!(Spoken::decode(&bytes), Ok(None)) || bytes.len() < ATTACH_LEN);
        }
    }
}
