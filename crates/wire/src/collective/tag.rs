//! The `stream` field of an exchange frame: which collective the frame belongs to, and what its payload is.
//!
//! The epoch is in the frame's `arg`. Both ends of a link check the collective, so that ranks whose n-th collectives
//! differ get an error, whatever route the frames take.
//!
//! ```text
//!   up, down   bits 0-1, 8-15  collective: low and high part      bits 2-7  form
//!   direct     bits 0-1 not 2: that collective
//!                       bit 2 = 0: algorithm 0, the ring          bits 3-15 round
//!                       bit 2 = 1: bits 13-15 algorithm - 1       bits 3-12 round
//!            bits 0-1 = 2: the ring of values has no rounds, so this value marks the collectives after the first four
//!                       bits 2-3 collective - 4                   bits 4-7 algorithm   bits 8-15 round
//!
//!                possible  in use
//!   collectives  8         4
//!   forms        64        2, and one for each possible algorithm
//!   algorithms   9         2
//!   rounds       8,192 for the ring, 1,024 for others; 256 in collectives 4 to 7
//! ```

use super::{Algorithm, Collective, Unknown};

/// What the payload of a frame along the tree is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Blocks (see [`crate::block`]), or a message of the ring of values.
    Data,
    /// The number of bytes in the subtree's blocks (u64, little-endian): they are too large to send up the tree.
    Size,
    /// Down the tree: exchange the blocks by this algorithm. On the wire: 2 plus the algorithm's number.
    Go(Algorithm),
}

/// The content of the `stream` field of a frame along the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    pub collective: Collective,
    pub form: Form,
}

/// The content of the `stream` field of a frame between any two nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoundTag {
    pub collective: Collective,
    pub algorithm: Algorithm,
    pub round: u16,
}

/// The value of bits 0-1 that the ring of values would have in a direct frame; free, because it has no rounds.
const LATER_COLLECTIVES: u16 = Collective::Ring as u16;

impl Form {
    fn number(self) -> u16 {
        match self {
            Form::Data => 0,
            Form::Size => 1,
            Form::Go(Algorithm(number)) => 2 + u16::from(number),
        }
    }

    fn from_number(number: u16) -> Result<Self, Unknown> {
        match number {
            0 => Ok(Form::Data),
            1 => Ok(Form::Size),
            _ => Algorithm::from_number(number - 2).map(Form::Go).map_err(|_| Unknown::PayloadForm(number)),
        }
    }
}

impl Tag {
    pub fn new(collective: Collective, form: Form) -> Self {
        Tag { collective, form }
    }

    pub fn to_stream(self) -> u16 {
        let collective = self.collective as u16;
        (collective & 3) | (self.form.number() << 2) | ((collective >> 2) << 8)
    }

    /// # Errors
    /// No agent of this version sends this value.
    pub fn from_stream(stream: u16) -> Result<Self, Unknown> {
        let collective = Collective::from_number((stream & 3) | ((stream >> 8) << 2))?;
        Ok(Tag { collective, form: Form::from_number((stream >> 2) & 0x3f)? })
    }
}

impl RoundTag {
    /// How many rounds of an algorithm can be numbered.
    pub fn rounds_max(collective: Collective, algorithm: Algorithm) -> u32 {
        match (collective as u16, algorithm) {
            (4.., _) => 1 << 8,
            (_, Algorithm::RING) => 1 << 13,
            _ => 1 << 10,
        }
    }

    /// # Panics
    /// If the round is not below [`RoundTag::rounds_max`], or the collective is the ring of values, which has no
    /// rounds.
    pub fn to_stream(self) -> u16 {
        let RoundTag { collective, algorithm, round } = self;
        assert!(u32::from(round) < Self::rounds_max(collective, algorithm), "the round must fit into the tag");
        pack(collective as u16, u16::from(algorithm.number()), round)
    }

    /// # Errors
    /// No agent of this version sends this value.
    pub fn from_stream(stream: u16) -> Result<Self, Unknown> {
        let (collective, algorithm, round) = unpack(stream);
        let collective = Collective::from_number(collective)?;
        Ok(RoundTag { collective, algorithm: Algorithm::from_number(algorithm)?, round })
    }
}

/// Packs collective, algorithm and round of a direct frame as drawn above.
fn pack(collective: u16, algorithm: u16, round: u16) -> u16 {
    assert_ne!(collective, LATER_COLLECTIVES, "the ring of values uses only the tree");
    match (collective, algorithm) {
        (4.., _) => LATER_COLLECTIVES | ((collective - 4) << 2) | (algorithm << 4) | (round << 8),
        (_, 0) => collective | (round << 3),
        (_, 1..) => collective | (1 << 2) | (round << 3) | ((algorithm - 1) << 13),
    }
}

fn unpack(stream: u16) -> (u16, u16, u16) {
    match (stream & 3, (stream >> 2) & 1) {
        (LATER_COLLECTIVES, _) => (4 + ((stream >> 2) & 3), (stream >> 4) & 0xf, stream >> 8),
        (collective, 0) => (collective, 0, stream >> 3),
        (collective, _) => (collective, 1 + (stream >> 13), (stream >> 3) & 0x3ff),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stream_number_round_trips() {
        for stream in 0..=u16::MAX {
            if let Ok(tag) = Tag::from_stream(stream) {
                assert_eq!(tag.to_stream(), stream);
            }
            if let Ok(tag) = RoundTag::from_stream(stream) {
                assert_eq!(tag.to_stream(), stream);
            }
            let (collective, algorithm, round) = unpack(stream);
            assert_eq!(pack(collective, algorithm, round), stream, "numbers that are not in use yet also round-trip");
        }
    }

    /// The encoding of all frames that existed before the format was extended is unchanged.
    #[test]
    fn the_first_collectives_and_algorithms_keep_their_bits() {
        let collectives = [Collective::Fence, Collective::Allgather, Collective::Ring, Collective::Modex];
        let forms = [Form::Data, Form::Size, Form::Go(Algorithm::RING), Form::Go(Algorithm::BRUCK)];
        for (collective, bits) in collectives.into_iter().zip(0..) {
            for (form, number) in forms.into_iter().zip(0..) {
                assert_eq!(Tag::new(collective, form).to_stream(), bits | number << 2);
            }
            for (algorithm, round) in
                [(0, 0), (0, 1), (0, 8191), (1, 0), (1, 5), (1, 31)].into_iter().filter(|_| bits != 2)
            {
                let tag = RoundTag { collective, algorithm: Algorithm::new(algorithm), round };
                assert_eq!(tag.to_stream(), bits | u16::from(algorithm) << 2 | round << 3);
            }
        }
    }

    #[test]
    fn unknown_tag_numbers_are_named() {
        assert_eq!(Tag::from_stream(15 << 2), Err(Unknown::PayloadForm(15)));
        assert_eq!(Tag::from_stream(1 << 8), Err(Unknown::Collective(4)));
        assert_eq!(Tag::from_stream(u16::MAX), Err(Unknown::Collective(0x3ff)));
        assert_eq!(RoundTag::from_stream(2), Err(Unknown::Collective(4)));
        let last = RoundTag { collective: Collective::Modex, algorithm: Algorithm::new(8), round: 1023 };
        assert_eq!(RoundTag::from_stream(u16::MAX), Ok(last));
        assert_eq!(Tag::from_stream(10 << 2).map(|tag| tag.form), Ok(Form::Go(Algorithm::new(8))));
    }
}
