//! The collectives of ranks, and how nodes exchange their data. `tag` encodes these in a frame.
//!
//! The algorithms themselves are in `wireup_coll::allgather`; here an algorithm is only a number.

mod tag;

pub use tag::{Form, RoundTag, Tag};

use core::fmt;
use serde::{Deserialize, Serialize};
use thiserror::Error;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[repr(u8)]
pub enum Collective {
    /// A barrier that publishes the puts.
    #[default]
    Fence = 0,
    /// Each rank contributes one value; the result is all values in rank order.
    Allgather = 1,
    /// Each rank gets the values of both its neighbours in a ring.
    Ring = 2,
    /// A fence of PMIx clients, with or without the data that they have committed. Its epochs are numbered separately.
    Modex = 3,
}

/// An algorithm by which nodes exchange blocks without the tree, as a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Algorithm(u8);

/// The scheme by which nodes exchange the data of collectives; one byte on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub enum ExchangeScheme {
    /// Through the tree while the data is small; otherwise as the root chooses from the numbers of nodes and bytes. On
    /// the wire: 0.
    #[default]
    Auto,
    /// Gathered up the tree and broadcast down: the baseline (S1 I). On the wire 1.
    Tree,
    /// By an algorithm over direct links. On the wire 2 plus the algorithm's number.
    Direct(Algorithm),
}

/// A number that this version does not know.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unknown {
    #[error("a collective of unknown number {0}")]
    Collective(u16),
    #[error("an exchange frame of unknown form {0}")]
    PayloadForm(u16),
    #[error("an exchange algorithm of unknown number {0}")]
    Algorithm(u16),
    #[error("an exchange scheme of unknown number {0}")]
    Scheme(u8),
}

impl Collective {
    fn from_number(number: u16) -> Result<Self, Unknown> {
        match number {
            0 => Ok(Collective::Fence),
            1 => Ok(Collective::Allgather),
            2 => Ok(Collective::Ring),
            3 => Ok(Collective::Modex),
            _ => Err(Unknown::Collective(number)),
        }
    }
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

impl Algorithm {
    pub const RING: Algorithm = Algorithm::new(0);
    pub const BRUCK: Algorithm = Algorithm::new(1);
    /// How many algorithm numbers fit into a frame's tag.
    pub const COUNT_MAX: u8 = 9;

    /// # Panics
    /// If the number is not below [`Algorithm::COUNT_MAX`]; in a constant this is a compile error.
    pub const fn new(number: u8) -> Self {
        assert!(number < Self::COUNT_MAX, "the number of an algorithm must fit into a frame's tag");
        Algorithm(number)
    }

    pub fn number(self) -> u8 {
        self.0
    }

    fn from_number(number: u16) -> Result<Self, Unknown> {
        match u8::try_from(number) {
            Ok(small) if small < Self::COUNT_MAX => Ok(Algorithm(small)),
            _ => Err(Unknown::Algorithm(number)),
        }
    }
}

impl From<ExchangeScheme> for u8 {
    fn from(scheme: ExchangeScheme) -> u8 {
        match scheme {
            ExchangeScheme::Auto => 0,
            ExchangeScheme::Tree => 1,
            ExchangeScheme::Direct(algorithm) => 2 + algorithm.number(),
        }
    }
}

impl TryFrom<u8> for ExchangeScheme {
    type Error = Unknown;

    fn try_from(number: u8) -> Result<Self, Unknown> {
        match number {
            0 => Ok(ExchangeScheme::Auto),
            1 => Ok(ExchangeScheme::Tree),
            _ => match Algorithm::from_number(u16::from(number) - 2) {
                Ok(algorithm) => Ok(ExchangeScheme::Direct(algorithm)),
                Err(_) => Err(Unknown::Scheme(number)),
            },
        }
    }
}

impl ExchangeScheme {
    pub const RING: ExchangeScheme = ExchangeScheme::Direct(Algorithm::RING);
    pub const BRUCK: ExchangeScheme = ExchangeScheme::Direct(Algorithm::BRUCK);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_scheme_is_encoded_as_one_byte() {
        use ExchangeScheme::{Auto, Direct, Tree};
        for (scheme, byte) in [Auto, Tree, ExchangeScheme::RING, ExchangeScheme::BRUCK, Direct(Algorithm::new(8))]
            .into_iter()
            .zip([0, 1, 2, 3, 10])
        {
            assert_eq!(postcard::to_allocvec(&scheme).unwrap(), [byte]);
            assert_eq!(postcard::from_bytes(&[byte]), Ok(scheme));
        }
        assert_eq!(ExchangeScheme::try_from(11), Err(Unknown::Scheme(11)));
        assert!(postcard::from_bytes::<ExchangeScheme>(&[11]).is_err());
    }
}
