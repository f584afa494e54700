//! Types of messages about PMIx, both within a node and between jobs: programs, sets of ranks, requests for data,
//! results.

use crate::ids::Rank;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct App {
    pub ranks: u32,
    /// Program and arguments, for display.
    pub argv: Vec<String>,
    pub cwd: String,
}

/// The result of a request. The server process translates it into the library's codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Status {
    Ok,
    NotFound,
    /// The client's timeout (`PMIX_TIMEOUT`) has expired.
    Timeout,
    /// A rank that the request needs has ended.
    RankGone,
    BadParam,
    /// There is no room for the data of the request.
    Full,
    /// An error code of the PMIx library, which is passed on unchanged.
    Library(i32),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Set {
    All,
    /// Ranks of the job, in ascending order, each once.
    Ranks(Vec<Rank>),
}

impl Set {
    /// Whether a rank of the job belongs to the set.
    pub fn contains(&self, rank: Rank) -> bool {
        match self {
            Set::All => true,
            Set::Ranks(ranks) => ranks.binary_search(&rank).is_ok(),
        }
    }
}

/// A request for the data of a rank on another node: all that the rank has committed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Wanted {
    pub rank: Rank,
    /// The key that the data must contain: if the rank has committed other data only, the request waits. `None`:
    /// whatever it has committed.
    pub key: Option<String>,
    pub timeout_s: Option<u32>,
}

impl Wanted {
    /// A request for whatever the rank has committed.
    pub fn data_of(rank: Rank) -> Wanted {
        Wanted { rank, key: None, timeout_s: None }
    }
}
