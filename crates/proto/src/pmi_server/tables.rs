//! What the conversations with a node's ranks share: the tables from which requests are answered, and the replies that
//! are collected until they are sent.

use super::addresses::Addresses;
use super::arena::Arenas;
use super::endpoints::Endpoints;
use super::kvs::{Kvs, KvsError};
use super::node_attrs::NodeAttrs;
use super::relays::Relays;
use super::shares::Shares;
use crate::collective::{Entry, ReplyTo};
use crate::io::Output;
use crate::job::cx::Cx;
use crate::job::facts::Facts;
use crate::memory::ShareId;
use bytes::Bytes;
use wireup_wire::group::Group;
use wireup_wire::ids::Client;
use wireup_wire::names::Ask;
use wireup_wire::peer::Cause;

pub struct Tables {
    /// Value of `PMI_process_mapping`; `None`: it is longer than a value may be.
    pub process_mapping: Option<Vec<u8>>,
    pub kvs: Kvs,
    pub attrs: NodeAttrs,
    pub addresses: Addresses,
    pub endpoints: Endpoints,
    pub relays: Relays,
    pub arenas: Arenas,
    pub shares: Shares,
    /// Replies to the rank whose requests are being handled, so that a batch of requests is answered by one write.
    pub reply: Vec<u8>,
    /// Memory to be sent to that rank with the replies.
    pub handed: Vec<ShareId>,
}

/// What a request of a rank needs of other parts of the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    Initialised,
    /// The rank has asked which ranks share its node: its library begins to wait for them in shared memory.
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
    /// The rank publishes, looks up or withdraws a name, or asks for processes.
    Name {
        client: Client,
        ask: Ask,
    },
    Finalized,
    Abort {
        code: i32,
        message: String,
    },
    /// The rank's requests cannot be understood: its conversation was closed.
    Unreadable {
        problem: String,
    },
}

impl Asked {
    /// Whether nothing is sent to the rank because of this, so that the collected replies may wait for those to the
    /// requests after it.
    pub fn is_silent(&self) -> bool {
        match self {
            Asked::Initialised | Asked::MeetsNode | Asked::Abort { .. } => true,
            Asked::Enter { .. }
            | Asked::EnterGroup { .. }
            | Asked::Name { .. }
            | Asked::Finalized
            | Asked::Unreadable { .. } => false,
        }
    }
}

/// Room for replies that is kept between two reads (bytes). Chosen: more than a batch of answers to gets of the longest
/// values that a rank sends in one write.
const REPLY_ROOM_KEPT: usize = 64 << 10;

/// The answer to the requesting rank while its job fails.
pub const UNREADABLE: &str = "the_pairs_of_the_fences_cannot_be_read";

impl Tables {
    pub fn new(facts: &Facts) -> Tables {
        Tables {
            process_mapping: facts.mapping.process_mapping(),
            kvs: Kvs::with(facts.spec.spawned.iter().flat_map(|spawned| &spawned.preput)),
            attrs: NodeAttrs::default(),
            addresses: Addresses::default(),
            endpoints: Endpoints::default(),
            relays: Relays::default(),
            arenas: Arenas::default(),
            shares: Shares::new(facts.id()),
            reply: Vec::new(),
            handed: Vec::new(),
        }
    }

    /// Sends the collected replies to the rank whose requests were handled.
    pub fn send_replies(&mut self, cx: &mut Cx<'_>, client: Client) {
        // A copy has no room to spare, and the buffer is used again.
        let bytes = Bytes::copy_from_slice(&self.reply);
        self.reply.clear();
        self.reply.shrink_to(REPLY_ROOM_KEPT);
        let shares = std::mem::take(&mut self.handed);
        self.send(cx, client, bytes, shares);
    }

    /// Sends a reply, and first makes the memory that it refers to.
    pub fn send(&mut self, cx: &mut Cx<'_>, client: Client, bytes: Bytes, shares: Vec<ShareId>) {
        self.shares.put_made(cx);
        if !bytes.is_empty() {
            cx.output(Output::Reply { job: cx.facts.id(), client, bytes, shares });
        }
    }

    /// Releases memory that no later reply names; to be called after the replies.
    pub fn give_memory_up(&mut self, cx: &mut Cx<'_>) {
        self.kvs.take_merged().for_each(|share| self.shares.give_up(share));
        self.shares.put_dropped(cx);
    }
}

/// The pairs of the fences cannot be read here: the job fails.
pub fn fail_unreadable(cx: &mut Cx<'_>, error: &KvsError) {
    cx.fail_here(Cause::Pmi { problem: error.to_string() });
}
