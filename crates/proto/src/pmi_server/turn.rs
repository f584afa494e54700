//! The data from which a request is answered, and its possible consequences for others.

use super::addresses::Addresses;
use super::endpoints::Endpoints;
use super::kvs::{Kvs, KvsError};
use super::node_attrs::{NodeAttrs, Parked};
use super::own_groups::OwnGroups;
use super::shares::Shares;
use super::state::State;
use crate::collective::Entry;
use crate::collective::ReplyTo;
use crate::memory::ShareId;
use bytes::Bytes;
use wireup_wire::group::Group;
use wireup_wire::ids::{Client, Rank};
use wireup_wire::job::{PmiVersion, Spawned};
use wireup_wire::names::Ask;
use wireup_wire::pmi::{Command, Dialect};
use wireup_wire::relay::Target;

/// Data that is the same for every client of the job on this node.
pub struct Facts<'a> {
    pub nspace: &'a str,
    pub job_size: u32,
    /// Value of `PMI_process_mapping`; `None`: it is longer than a value may be.
    pub process_mapping: Option<&'a [u8]>,
    /// Whether fences of text clients are answered before they are complete, if possible.
    pub lazy_fence: bool,
    /// Whether the ranks have listening sockets.
    pub has_endpoints: bool,
    /// Which version of PMI-1 the server offers.
    pub pmi_version: PmiVersion,
    /// The rank of another job that has asked for this job, and its request; `None`: the user has launched the job.
    pub spawned: Option<&'a Spawned>,
    pub universe_size: Option<u32>,
    pub memory_alloc_kinds: Option<&'a str>,
}

/// The requesting rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Requester {
    pub client: Client,
    pub rank: Rank,
    pub appnum: u16,
}

/// The tables that a request may read or change.
pub struct Tables<'a> {
    pub kvs: &'a mut Kvs,
    pub attrs: &'a mut NodeAttrs,
    pub addresses: &'a mut Addresses,
    pub endpoints: &'a mut Endpoints,
    /// Requests for memory that the rank reads itself.
    pub shares: &'a mut Shares,
    /// Memory to be sent to the rank with the replies.
    pub handed: Vec<ShareId>,
}

/// The consequences of a request for others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    Initialised,
    /// The rank has asked which ranks share its node.
    MeetsNode,
    /// The rank starts its next collective.
    Enter {
        entry: Entry,
        reply_to: ReplyTo,
    },
    /// The rank enters the barrier of a group, or (with its packed value) another collective of the group.
    EnterGroup {
        group: Group,
        value: Option<Bytes>,
    },
    /// The rank has finished with a place in the arena.
    Freed {
        place: u32,
    },
    /// The rank has read a pair that the rank which spawned its job has put into the kvs.
    MeetsFamily,
    Finalized,
    Abort {
        code: i32,
        message: String,
    },
    /// A put has answered gets of other ranks. `value`: the value that they get.
    Woken {
        parked: Vec<Parked>,
        value: Vec<u8>,
    },
    /// The rank asks for the address of another one. `id`: the rank's number for the request.
    AskAddress {
        id: u32,
        rank: Rank,
        name: Bytes,
    },
    /// The rank wants a connection to a rank that it cannot connect to itself. `reply`: the answer with a socket;
    /// `refusal`: the answer if no socket can be made.
    Relay {
        target: Target,
        reply: Bytes,
        refusal: Bytes,
    },
    /// The rank waits for the ranks' secret, which the driver must be asked for.
    NeedSecret,
    /// The rank publishes, looks up or withdraws a name, or asks for processes.
    Name(Ask),
    /// The fences' pairs cannot be read here: the job fails.
    Unreadable {
        problem: String,
    },
}

/// How to continue after a request.
pub enum Next {
    Go,
    /// Wait until the rank's lazy fences are complete, or for the answer about a name.
    Wait,
    /// Go on in PMI-1, with this subversion.
    Agreed(u32),
    SwitchToPmi2,
}

/// One request being answered.
pub struct Turn<'a, 't> {
    /// Whether a secondary client has sent the request.
    pub is_further: bool,
    pub state: &'a mut State,
    pub outstanding: &'a mut u32,
    pub has_put: &'a mut bool,
    pub lazy: &'a mut u32,
    pub waiting_get: &'a mut Option<WaitingGet>,
    pub waiting_name: &'a mut Option<WaitingName>,
    pub groups: &'a mut usize,
    pub own_groups: &'a mut OwnGroups,
    pub questions: &'a mut u32,
    pub dialect: Dialect,
    pub subversion: u32,
    pub who: Requester,
    pub facts: &'a Facts<'a>,
    pub tables: &'a mut Tables<'t>,
    pub reply: &'a mut Vec<u8>,
    pub effects: &'a mut Vec<Effect>,
}

/// A get that waits until the rank's lazy fences are complete.
pub enum WaitingGet {
    Key {
        key: Vec<u8>,
        thread: Option<Vec<u8>>,
    },
    /// A step of the iteration over all pairs.
    Number(u32),
}

/// A request about a name or for processes that the root has not answered.
pub struct WaitingName {
    pub command: Command,
    pub thread: Option<Vec<u8>>,
}

/// The answer to the requesting rank while its job fails.
pub const UNREADABLE: &str = "the_pairs_of_the_fences_cannot_be_read";

impl Effect {
    pub fn unreadable(error: KvsError) -> Effect {
        Effect::Unreadable { problem: error.to_string() }
    }
}
