//! What the `stream` field of an exchange frame says: which collective it belongs to, and what its payload is.
//!
//! The epoch is the frame's `arg`. Both sides of a link check the collective: ranks that call different collectives as their
//! n-th are told so, whatever route the frames take.
//!
//! ```text
//!   up, down   bits 0-1 collective   bits 2-3 form
//!   direct     bits 0-1 collective   bit 2 algorithm   bits 3-15 round
//! ```

use core::fmt;

/// What ranks do together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
pub enum Collective {
    /// Publishes the puts; a barrier.
    #[default]
    Fence = 0,
    /// One value of each rank, in the order of ranks.
    Allgather = 1,
    /// The values of both neighbours.
    Ring = 2,
    /// A fence of PMIx clients, with or without what they have committed. Numbered apart from the others.
    Modex = 3,
}

/// What the payload of a frame up or down the tree is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Form {
    /// Blocks (see [`crate::block`]), or a ring's message.
    Data = 0,
    /// The number of bytes that the subtree holds (u64, little-endian): too many to send them this way.
    Size = 1,
    /// Down: the blocks go around the ring of nodes.
    GoRing = 2,
    /// Down: the blocks go by the logarithmic allgather.
    GoBruck = 3,
}

/// How nodes exchange blocks without the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    Ring = 0,
    Bruck = 1,
}

/// Most rounds that a frame can number.
pub const ROUNDS_MAX: u16 = 1 << 13;

/// `stream` of a frame along the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    pub collective: Collective,
    pub form: Form,
}

/// `stream` of a frame between any two nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoundTag {
    pub collective: Collective,
    pub algorithm: Algorithm,
    pub round: u16,
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Collective::Fence => "fence",
            Collective::Allgather => "allgather",
            Collective::Ring => "ring",
            Collective::Modex => "PMIx fence",
        })
    }
}

fn collective(bits: u16) -> Collective {
    match bits & 3 {
        0 => Collective::Fence,
        1 => Collective::Allgather,
        2 => Collective::Ring,
        _ => Collective::Modex,
    }
}

impl Tag {
    pub fn new(collective: Collective, form: Form) -> Self {
        Tag { collective, form }
    }

    pub fn to_stream(self) -> u16 {
        self.collective as u16 | (self.form as u16) << 2
    }

    /// `None`: no agent of this version says so.
    pub fn from_stream(stream: u16) -> Option<Self> {
        let form = match stream >> 2 {
            0 => Form::Data,
            1 => Form::Size,
            2 => Form::GoRing,
            3 => Form::GoBruck,
            _ => return None,
        };
        Some(Tag { collective: collective(stream), form })
    }
}

impl RoundTag {
    /// # Panics
    /// If the round is none below [`ROUNDS_MAX`].
    pub fn to_stream(self) -> u16 {
        assert!(self.round < ROUNDS_MAX, "an algorithm with more rounds is not chosen");
        self.collective as u16 | (self.algorithm as u16) << 2 | self.round << 3
    }

    pub fn from_stream(stream: u16) -> Self {
        let algorithm = if stream & 4 == 0 { Algorithm::Ring } else { Algorithm::Bruck };
        RoundTag { collective: collective(stream), algorithm, round: stream >> 3 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stream_is_read_as_it_was_written() {
        for stream in 0..=u16::MAX {
            if let Some(tag) = Tag::from_stream(stream) {
                assert_eq!(tag.to_stream(), stream);
            }
            assert_eq!(RoundTag::from_stream(stream).to_stream(), stream);
        }
        assert_eq!(Tag::new(Collective::Allgather, Form::GoBruck).to_stream(), 0b1101);
        let round = RoundTag { collective: Collective::Fence, algorithm: Algorithm::Bruck, round: 5 };
        assert_eq!(round.to_stream(), 5 << 3 | 4);
        assert_eq!((Tag::from_stream(3), Tag::from_stream(16)), (Some(Tag::new(Collective::Modex, Form::Data)), None));
    }
}
