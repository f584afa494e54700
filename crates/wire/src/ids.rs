//! The indices used throughout the system, each with a type of its own so that they cannot be confused.
//!
//! They are in this crate because every frame contains some of them.

use core::fmt;
use serde::{Deserialize, Serialize};

macro_rules! index {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl $name {
            /// The index as an array position.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

index!(/// An agent's index in the session's tree; 0 is the root, which the launcher runs or attaches to.
    AgentId(u32));
impl AgentId {
    /// In the node list of a job that a launcher sends: a host that the root must add. The root numbers the host's
    /// agent.
    pub const ADDED: AgentId = AgentId(u32::MAX);
}

index!(/// A node's index in one job's node list, from 0.
    NodeId(u32));
index!(/// A process of a job, from 0 to `job_size - 1`.
    Rank(u32));
index!(/// A rank's index among the ranks of its job on its node.
    LocalRank(u16));
/// A library in a rank that talks to the rank's agent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Client {
    pub local: LocalRank,
    /// 0: the library that uses the socket which the rank inherits. Further libraries in the rank are numbered as they
    /// join; their numbers are never reused.
    pub number: u16,
}

impl Client {
    pub const fn is_secondary(self) -> bool {
        self.number > 0
    }
}

impl From<LocalRank> for Client {
    fn from(local: LocalRank) -> Self {
        Client { local, number: 0 }
    }
}

index!(/// A job of a session.
    JobId(u32));
index!(/// The number of a collective on one set of peers, from 0.
    Epoch(u32));
index!(/// The index of a program of an MPMD command line (the programs are separated by `:`).
    AppIndex(u16));
