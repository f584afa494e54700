//! The PMI-1 and PMI-2 server for the ranks of one node: their conversations, the pairs, the node's attributes.
//!
//! - `connection`: the conversations, the fences, and the tables that answers come from
//! - `kvs`: the pairs; `gets`: their gets, and gets and puts of attributes
//! - `collectives`: what else ranks enter together; `arena` lays out the results of allgathers
//! - `names`: requests about published names, for processes, and about addresses
//! - `addresses`: at which addresses ranks are reached
//! - `endpoints`: listening sockets that ranks have from their start
//! - `relays`: connections between ranks that pass through agents

mod addresses;
mod arena;
mod collectives;
mod connection;
pub mod endpoints;
mod gets;
pub mod kvs;
mod names;
pub mod node_attrs;
mod relays;
mod state;

use crate::io::{Output, RelayEvent, RelayId};
use crate::job::cx::Cx;
use crate::memory::ShareId;
pub use addresses::all_left;
use bytes::Bytes;
use connection::Tables;
pub use connection::{Asked, PmiServer};
use wireup_wire::addresses::Between;
use wireup_wire::frame::PeerFrame;
use wireup_wire::ids::{AgentId, Client, LocalRank, Rank};
use wireup_wire::peer::{self, Cause, Secret};
use wireup_wire::pmi::{Command, Reply};
use wireup_wire::rank_address;
use wireup_wire::relay::{self, Target};

impl PmiServer {
    /// Handles the driver's answer with the secret of the job's ranks.
    pub fn on_secret(&mut self, cx: &mut Cx<'_>, secret: &Secret) {
        let PmiServer { clients, tables, .. } = self;
        for (client, thread) in tables.endpoints.on_secret(secret) {
            let Some(link) = clients.open(client) else { continue };
            let secret = Reply::Secret(tables.endpoints.secret.as_bytes());
            let reply = link.client.encode(Command::Secret, thread.as_deref(), &secret);
            tables.send(cx, client, reply.into(), Vec::new());
        }
    }

    /// Handles another agent's request for the addresses of ranks of this node, or its answer to such a request.
    pub fn on_addresses(&mut self, cx: &mut Cx<'_>, from: AgentId, message: Between) {
        let facts = cx.facts;
        let Some(node) = facts.node_of(from) else { return };
        match message {
            Between::Want { name, ranks } => {
                self.tables.addresses.on_want(node, &name, ranks, |rank| facts.local_of(rank).is_some());
            }
            Between::Have { name, cards } => {
                let is_there = |rank| facts.mapping.place(rank).is_some_and(|(of, _)| of == node);
                self.tables.addresses.on_have(&name, cards, is_there);
            }
        }
        self.send_addresses(cx);
    }

    /// Sends answers and requests about addresses, with as few writes to each client and frames to each agent as
    /// possible.
    fn send_addresses(&mut self, cx: &mut Cx<'_>) {
        let PmiServer { clients, tables, .. } = self;
        let answers = tables.addresses.take_answers();
        for same in answers.chunk_by(|(one, _), (other, _)| one.client == other.client) {
            let (client, mut reply) = (same[0].0.client, Vec::new());
            let Some(link) = clients.open(client) else { continue };
            same.iter().for_each(|(question, value)| link.answer_address(question.id, value.as_deref(), &mut reply));
            tables.send(cx, client, reply.into(), Vec::new());
        }
        for (node, message) in tables.addresses.take_messages() {
            cx.agent.links.send_peer(
                cx.facts.agent_of(node),
                cx.facts.frame(PeerFrame::Addresses, 0, 0, peer::encode(&message).into()),
            );
        }
    }

    /// Handles a message of another node's agent about a relay between ranks.
    pub fn on_relayed(&mut self, cx: &mut Cx<'_>, from: AgentId, message: relay::Between) {
        let Some(node) = cx.facts.node_of(from) else { return };
        let Tables { relays, addresses, endpoints, .. } = &mut self.tables;
        relays.on_message(node, message, |Target { rank, name }| {
            let local = cx.facts.local_of(*rank)?;
            addresses.tagged(name, *rank, rank_address::TCP).or_else(|| endpoints.own(local))
        });
        self.carry_relays(cx);
    }

    /// Handles an event of the socket at this end of a relay.
    pub fn on_relay_event(&mut self, cx: &mut Cx<'_>, relay: RelayId, event: RelayEvent) {
        self.tables.relays.on_event(relay, event);
        self.carry_relays(cx);
    }

    fn carry_relays(&mut self, cx: &mut Cx<'_>) {
        let Tables { relays, .. } = &mut self.tables;
        for (relay, act) in relays.take_acts() {
            cx.output(Output::Relay { job: cx.facts.id(), relay, act });
        }
        for (node, message) in relays.take_messages() {
            let number = message.number;
            let (stream, payload) = message.encode();
            cx.agent
                .links
                .send_peer(cx.facts.agent_of(node), cx.facts.frame(PeerFrame::Relay, stream, number, payload));
        }
    }

    /// Handles the report that memory for array slots exists.
    pub fn on_shared(&mut self, cx: &mut Cx<'_>, share: ShareId) {
        let Tables { arenas, shares, .. } = &mut self.tables;
        arenas.on_made(share, shares);
        self.tables.give_memory_up(cx);
    }

    /// Called when memory could not be created or written: fails the job unless arrays can do without it.
    pub fn on_share_failed(&mut self, cx: &mut Cx<'_>, share: ShareId, problem: String) {
        if !self.tables.arenas.on_failed(share) {
            cx.fail_here(Cause::Pmi { problem });
        }
    }

    /// A secondary client connects. If its rank's departure may already have been reported, the connection is closed.
    pub fn on_joined(&mut self, cx: &mut Cx<'_>, client: Client) {
        if self.clients.has_left(client.local) {
            cx.output(Output::CloseClient { job: cx.facts.id(), client });
        } else {
            self.clients.join(client);
        }
    }

    /// A rank closed a socket. Returns whether the rank had initialised over this socket and not finalized.
    pub fn on_closed(&mut self, client: Client) -> bool {
        let was_member = self.clients.line(client).is_some_and(|line| line.close().is_member());
        self.tables.addresses.on_closed(client);
        if client.is_secondary() {
            self.clients.secondary.remove(&client);
        } else {
            self.tables.attrs.on_gone(client.local);
        }
        was_member
    }

    /// A rank enters no more collectives of the job, and reads no more results of them.
    pub fn on_departed(&mut self, local: LocalRank) {
        self.tables.arenas.on_gone(local);
        self.clients.departed.insert(local);
    }

    /// No library of a rank will enter collectives or report addresses any more.
    pub fn on_left(&mut self, cx: &mut Cx<'_>, rank: Rank) {
        self.tables.addresses.on_left(rank);
        self.send_addresses(cx);
    }

    /// The addresses at which the ranks listen are known: answers the ranks that have asked for them.
    pub fn on_endpoints(&mut self, cx: &mut Cx<'_>, rows: Vec<Bytes>) {
        let PmiServer { clients, tables, .. } = self;
        let own = cx.facts.node.and_then(|node| rows.get(node.index())).cloned();
        let (table, waiting) = tables.endpoints.on_known(own.unwrap_or_default(), rows, &mut tables.shares);
        tables.shares.put_made(cx);
        for (client, thread) in waiting {
            let Some(link) = clients.open(client) else { continue };
            let reply = link.client.encode(Command::Endpoints, thread.as_deref(), &Reply::Done);
            tables.send(cx, client, reply.into(), vec![table]);
        }
    }
}
