//! What ranks ask of the root, by PMI or by PMIx: names that they publish and look up, new processes, and what concerns
//! other jobs. Plain structs, encoded by `postcard`. The root stores the names; it passes requests for processes on to
//! the launcher of the job.
//!
//! ```text
//!   rank or PMIx server ── Ask ──► its agent ── Up ──► … ──► root
//!                       ◄─ Answer ──           ◄─ Down ── … ──
//! ```

use crate::ids::{AgentId, Client, Rank};
use crate::inter_job::{Fetch, Fetched, InterJobReport, Joined, Joint, Order};
use crate::pmi::SpawnRequest;
use crate::pmix_types::Status;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ask {
    /// Publish all of the items, or none.
    Publish { items: Vec<Item>, range: Range, keep: Keep },
    /// `wait`: answer only when this many of the names exist (0: at once).
    LookUp { names: Vec<Bytes>, range: Range, wait: u32, timeout_s: Option<u32> },
    /// Withdraw these names; if none are listed, withdraw all names that the publisher has published in this range.
    Withdraw { names: Vec<Bytes>, range: Range, by: Publisher },
    /// Start these programs as a new job.
    Spawn(SpawnRequest),
    /// The ranks of this node enter a collective of several jobs.
    Join(Joint),
    /// Return what a rank of another job has committed.
    Fetch(Fetch),
}

/// The names that a rank may withdraw.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Publisher {
    /// Names that the rank itself has published.
    Rank,
    /// Names that any rank of the same job has published.
    Job,
}

/// Which ranks find a name; in a look-up and a withdrawal, whose names are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Range {
    /// The ranks of the publisher's node, of any job of the session.
    Node,
    Job,
    Session,
}

/// Lifetime of a name: at most that of its publisher's job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Keep {
    Job,
    /// The name exists until its publisher ends.
    Rank,
    /// The name exists until it is looked up for the first time.
    FirstRead,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Item {
    pub name: Bytes,
    pub value: Value,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Value {
    /// A value of PMI, or a string of PMIx.
    Text(Bytes),
    /// Any other value of PMIx, packed by its library.
    Packed(Bytes),
}

impl Value {
    pub fn len(&self) -> usize {
        match self {
            Value::Text(bytes) | Value::Packed(bytes) => bytes.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// A name was published or withdrawn.
    Done,
    /// The wanted names that exist.
    Found(Vec<Found>),
    /// The request about names cannot be met.
    Refused(Refusal),
    /// The requested processes run.
    Spawned(NewJob),
    /// The requested processes were not started, for this reason.
    NotSpawned { problem: String },
    /// The outcome of a collective of several jobs.
    Joined(Joined),
    /// Data of a rank of another job.
    Fetched(Fetched),
    /// A collective of several jobs, or a request for data of another job, has failed.
    Failed(Status),
    /// Not an answer: an order of the root to the agent.
    Order(Order),
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewJob {
    pub nspace: String,
    pub ranks: u32,
}

/// A name that exists, with its publisher.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Found {
    pub nspace: String,
    pub rank: Rank,
    pub item: Item,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// A name could not be published, because it already exists in this range.
    Taken,
    NotFound,
    /// The names did not all exist in time.
    TimedOut,
    /// The job or the session has reached the limit for names that it has published or waits for.
    Full,
}

/// The receiver of an answer on its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Asker {
    /// A library in a rank, by PMI.
    Client(Client),
    /// The PMIx server process, by the number of its request.
    Server(u64),
    /// No rank: the root sends an order to the agent itself.
    Agent,
}

/// A message to the root, in frames of [`crate::frame::UpFrame::NamesUp`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Up {
    /// A request of a rank, or of its node's PMIx server.
    Ask { agent: AgentId, asker: Asker, from: Rank, ask: Ask },
    /// A rank that has published something of [`Keep::Rank`] has ended.
    Left { rank: Rank },
    /// An agent's answer to an order, or news for other jobs.
    Report { agent: AgentId, report: InterJobReport },
}

/// A message from the root to one agent, in frames of [`crate::frame::DownFrame::NamesDown`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Down {
    pub asker: Asker,
    pub answer: Answer,
}
