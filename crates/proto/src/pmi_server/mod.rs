//! The PMI-1 and PMI-2 server for the ranks of one node: their conversations, the pairs, the node's attributes.
//!
//! `connection` is one conversation and the tables that it answers from; [`Clients`] are all conversations; `kvs` has
//! the pairs, `names` requests what the root has, `addresses` is where ranks are reached (`questions`: their requests),
//! `endpoints` where those listen that have sockets from their start, `relays` the connections that agents carry;
//! `arena` and `array` lay out the results of allgathers.

mod addresses;
mod arena;
mod array;
mod collectives;
mod connection;
pub mod endpoints;
pub mod kvs;
mod names;
pub mod node_attrs;
mod own_groups;
mod questions;
mod relays;
mod state;

use crate::collective::{Outcome, ReplyTo};
use crate::io::{Output, RelayEvent, RelayId};
use crate::job::cx::Cx;
use crate::job::facts::Facts;
use crate::memory::{Array, Content, ShareId};
use crate::plan::app_of;
pub use addresses::all_left;
use bytes::Bytes;
use collectives::Completion;
pub use connection::Asked;
use connection::{Line, PmiClient, PmiLink, Tables};
use state::State;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::addresses::Between;
use wireup_wire::block;
use wireup_wire::frame::PeerFrame;
use wireup_wire::group::Group;
use wireup_wire::ids::{AgentId, Client, LocalRank, Rank};
use wireup_wire::limits::GATHER_INLINE_MAX;
use wireup_wire::names::Answer;
use wireup_wire::peer::{self, Cause, Secret};
use wireup_wire::pmi::{Command, Reply};
use wireup_wire::rank_address;
use wireup_wire::relay::{self, Target};

pub struct PmiServer {
    pub clients: Clients,
    pub tables: Tables,
}

/// What others must do because collectives are complete.
#[derive(Default)]
pub struct Told {
    /// Ranks with gets that waited for their lazy fences: more of their requests can be answered.
    pub resumed: Vec<LocalRank>,
    /// The addresses of all ranks: one row for each node.
    pub endpoints: Option<Vec<Bytes>>,
}

impl PmiServer {
    pub fn new(facts: &Facts) -> Self {
        PmiServer { clients: Clients::new(facts), tables: Tables::new(facts) }
    }

    /// Takes bytes from a rank, and handles its requests until one needs something of another part of the job, which is
    /// returned; then call again without bytes. `None`: all have been handled, or the next ones wait for something.
    pub fn on_bytes(&mut self, cx: &mut Cx<'_>, client: Client, bytes: &[u8]) -> Option<Asked> {
        let PmiServer { clients, tables } = self;
        let line = clients.line(client).filter(|line| line.link.state != State::Closed)?;
        let read = line.on_bytes(cx, tables, bytes);
        let asked = read.unwrap_or_else(|problem| Some(Asked::Unreadable { problem: problem.to_string() }));
        if asked.as_ref().is_some_and(Asked::is_silent) {
            return asked;
        }
        tables.send_replies(cx, client);
        tables.give_memory_up(cx);
        if tables.relays.has_news() {
            self.carry_relays(cx);
        }
        if self.tables.addresses.has_news() {
            self.send_addresses(cx);
        }
        if let Some(Asked::Unreadable { .. }) = asked {
            self.clients.line(client).map(Line::close);
            cx.output(Output::CloseClient { job: cx.facts.id(), client });
        }
        asked
    }

    /// The secret of the job's ranks.
    pub fn on_secret(&mut self, cx: &mut Cx<'_>, secret: &Secret) {
        let PmiServer { clients, tables } = self;
        for (client, thread) in tables.endpoints.on_secret(secret) {
            let Some(link) = clients.open(client) else { continue };
            let secret = Reply::Secret(tables.endpoints.secret.as_bytes());
            let reply = link.client.encode(Command::Secret, thread.as_deref(), &secret);
            tables.send(cx, client, reply.into(), Vec::new());
        }
    }

    /// Another node's agent asks where ranks of this node are reached, or answers that.
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

    /// Sends what was found out about addresses: to each client as few writes, to each agent as few frames as possible.
    fn send_addresses(&mut self, cx: &mut Cx<'_>) {
        let PmiServer { clients, tables } = self;
        let answers = tables.addresses.take_answers();
        for same in answers.chunk_by(|(one, _), (other, _)| one.client == other.client) {
            let (client, mut reply) = (same[0].0.client, Vec::new());
            let Some(link) = clients.open(client) else { continue };
            same.iter().for_each(|(question, value)| link.answer_address(question.id, value.as_deref(), &mut reply));
            tables.send(cx, client, reply.into(), Vec::new());
        }
        for (node, message) in tables.addresses.take_messages() {
            cx.for_node(node, cx.facts.frame(PeerFrame::Addresses, 0, 0, peer::encode(&message).into()));
        }
    }

    /// Handles a message of another node's agent about a relay between ranks.
    pub fn on_relayed(&mut self, cx: &mut Cx<'_>, from: AgentId, message: relay::Between) {
        let Some(node) = cx.facts.node_of(from) else { return };
        let Tables { relays, addresses, endpoints, .. } = &mut self.tables;
        relays.on_message(node, message, |Target { rank, name, datagrams }| {
            let local = cx.facts.local_of(*rank)?;
            let tag = if *datagrams { rank_address::UDP } else { rank_address::TCP };
            // Sockets that were bound for ranks are those of TCP.
            addresses.tagged(name, *rank, tag).or_else(|| endpoints.own(local).filter(|_| !datagrams))
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
            cx.for_node(node, cx.facts.frame(PeerFrame::Relay, stream, number, payload));
        }
    }

    /// Memory for slots exists.
    pub fn on_shared(&mut self, cx: &mut Cx<'_>, share: ShareId) {
        let Tables { arenas, shares, .. } = &mut self.tables;
        arenas.on_made(share, shares);
        self.tables.give_memory_up(cx);
    }

    /// Memory could not be created or written.
    pub fn on_share_failed(&mut self, cx: &mut Cx<'_>, share: ShareId, problem: String) {
        if !self.tables.arenas.on_failed(share) {
            cx.fail_here(Cause::Pmi { problem });
        }
    }

    /// A secondary client connects. If its rank has departed, that may already have been reported: the client is too
    /// late.
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
            self.clients.forget(client);
        } else {
            self.tables.attrs.on_gone(client.local);
        }
        was_member
    }

    /// A rank enters no more collectives of the job, and reads no more results of them.
    pub fn on_departed(&mut self, local: LocalRank) {
        self.tables.arenas.on_gone(local);
        self.clients.depart(local);
    }

    /// No library of a rank enters collectives or tells addresses any more.
    pub fn on_left(&mut self, cx: &mut Cx<'_>, rank: Rank) {
        self.tables.addresses.on_left(rank);
        self.send_addresses(cx);
    }

    /// A collective is complete: stores its outcome and answers the local ranks.
    pub fn on_finished(&mut self, cx: &mut Cx<'_>, waiting: Vec<(LocalRank, ReplyTo)>, outcome: Outcome) -> Told {
        let mut told = Told::default();
        let result = match outcome {
            Outcome::Values { blocks, .. } if waiting.iter().any(|(_, reply_to)| *reply_to == ReplyTo::Endpoints) => {
                endpoints::table(cx.facts.spec.nodes.len(), &blocks).map(|rows| told.endpoints = Some(rows))
            }
            Outcome::Pairs(blocks) => self.publish(cx, blocks).map(|()| told.resumed = self.answer_fence(cx, waiting)),
            Outcome::Values { max_len, shared, blocks } => {
                array::lay_out(&cx.facts.mapping, (max_len, shared), &blocks)
                    .map(|array| self.answer_allgather(cx, waiting, array))
            }
            Outcome::Places(places) => {
                for (local, reply_to) in waiting {
                    let mut reply = Vec::new();
                    self.clients.own(local).answer_collective(
                        &reply_to,
                        &Completion::Place(&places[local.index()]),
                        &mut reply,
                    );
                    self.tables.send(cx, local.into(), reply.into(), Vec::new());
                }
                Ok(())
            }
        };
        if let Err(problem) = result {
            cx.fail_here(Cause::Pmi { problem });
        }
        told
    }

    /// The addresses at which the ranks listen are known: answers the ranks that have asked for them.
    pub fn on_endpoints(&mut self, cx: &mut Cx<'_>, rows: Vec<Bytes>) {
        let PmiServer { clients, tables } = self;
        let own = cx.facts.node.and_then(|node| rows.get(node.index())).cloned();
        let (table, waiting) = tables.endpoints.on_known(own.unwrap_or_default(), rows, &mut tables.shares);
        tables.shares.put_made(cx);
        for (client, thread) in waiting {
            let Some(link) = clients.open(client) else { continue };
            let reply = link.client.encode(Command::Endpoints, thread.as_deref(), &Reply::Done);
            tables.send(cx, client, reply.into(), vec![table]);
        }
    }

    /// Publishes the pairs of all nodes after a fence.
    fn publish(&mut self, cx: &Cx<'_>, parts: Vec<Bytes>) -> Result<(), String> {
        let mut pairs = Vec::new();
        let mut heard = vec![false; cx.facts.spec.nodes.len()];
        for block in parts.into_iter().flat_map(block::blocks) {
            let block = block.map_err(|error| error.to_string())?;
            let known = heard.get_mut(block.node.index()).is_some_and(|heard| !std::mem::replace(heard, true));
            if !known {
                return Err(format!(
                    "a fence delivered pairs of node {} twice, or of a node that does not exist",
                    block.node
                ));
            }
            pairs.push(block.into_plain().map_err(|error| error.to_string())?);
        }
        self.tables.kvs.commit(pairs).map_err(|error| error.to_string())
    }

    /// Returns the ranks whose later requests can be answered now.
    fn answer_fence(&mut self, cx: &mut Cx<'_>, waiting: Vec<(LocalRank, ReplyTo)>) -> Vec<LocalRank> {
        let PmiServer { clients, tables } = self;
        let told = Completion::Fence { version: tables.kvs.version };
        let (mut reply, mut shared) = (Vec::new(), Bytes::new());
        let mut resumed = Vec::new();
        for (local, reply_to) in waiting {
            reply.clear();
            let link = clients.own(local);
            link.answer_collective(&reply_to, &told, &mut reply);
            if link.may_resume() {
                resumed.push(local);
            }
            if shared != reply {
                // Most ranks get exactly the same reply.
                shared = Bytes::copy_from_slice(&reply);
            }
            tables.send(cx, local.into(), shared.clone(), Vec::new());
        }
        resumed
    }

    /// Puts the array into the arena if there is room, otherwise into memory of its own, which is released once all
    /// ranks were told.
    fn answer_allgather(&mut self, cx: &mut Cx<'_>, waiting: Vec<(LocalRank, ReplyTo)>, array: Array) {
        if waiting.is_empty() {
            return;
        }
        let PmiServer { clients, tables } = self;
        let place = tables.arenas.place(array.byte_len(), waiting.iter().map(|(local, _)| *local));
        let share = match place {
            Some(place) => {
                tables.shares.write(place.share, place.slot, array);
                place.share
            }
            None => tables.shares.make(Content::Array(array)),
        };
        tables.shares.put_made(cx);
        for (local, reply_to) in waiting {
            let link = clients.own(local);
            let new = place.is_some_and(|place| link.see_arena(place.arena()));
            let mut reply = Vec::new();
            link.answer_collective(
                &reply_to,
                &Completion::Array { place: place.map(|place| place.number), new },
                &mut reply,
            );
            let handed = if new || place.is_none() { vec![share] } else { Vec::new() };
            tables.send(cx, local.into(), reply.into(), handed);
        }
        if place.is_none() {
            tables.shares.give_up(share);
        }
        tables.give_memory_up(cx);
    }

    /// The root's answer to a rank's request about a name or for processes. The rank's further requests can be answered
    /// now.
    pub fn on_named(&mut self, cx: &mut Cx<'_>, client: Client, answer: Answer) {
        let Some(link) = self.clients.open(client) else { return };
        self.tables.send(cx, client, link.answer_name(answer).into(), Vec::new());
    }

    /// A group's barrier is complete: its local members may get each other's pairs.
    pub fn on_barrier_over(&mut self, cx: &mut Cx<'_>, group: &Group, waiting: Vec<LocalRank>, pairs: Bytes) {
        if let Err(error) = self.tables.kvs.commit(vec![pairs]) {
            return connection::fail_unreadable(cx, &error);
        }
        for local in waiting {
            let Some(link) = self.clients.open(local.into()) else { continue };
            self.tables.send(cx, local.into(), link.answer_group(group.tag).into(), Vec::new());
        }
    }

    /// Another collective of a group is complete: its local members get the values of all.
    pub fn on_gathered(&mut self, cx: &mut Cx<'_>, group: &Group, waiting: Vec<LocalRank>, values: &Bytes) {
        let PmiServer { clients, tables } = self;
        let array = match collectives::lay_out_values(&group.members, cx.facts.job_size, values) {
            Ok(array) => array,
            Err(problem) => return cx.fail_here(Cause::Pmi { problem }),
        };
        let inline = array.as_ref().filter(|array| array.byte_len() <= GATHER_INLINE_MAX).map(|array| {
            let mut bytes = vec![0; array.byte_len()];
            array.fill(&mut bytes);
            bytes
        });
        let told = array.is_some().then_some(inline.as_deref());
        let share = array.filter(|_| inline.is_none()).map(|array| tables.shares.make(Content::Array(array)));
        tables.shares.put_made(cx);
        for local in waiting {
            // The member may have closed its socket.
            let Some(link) = clients.in_group(local, group) else { continue };
            let reply = link.answer_gather(group, told);
            tables.send(cx, link.client.id, reply.into(), share.into_iter().collect());
        }
        share.into_iter().for_each(|share| tables.shares.give_up(share));
        tables.give_memory_up(cx);
    }
}

/// The PMI conversations with this node's ranks: one over the socket that each rank inherits, and those of secondary
/// clients, which are other PMI libraries in a rank's process.
///
/// A secondary client has groups, addresses, relays and published names of its own. The job's fences, pairs and node
/// attributes belong to the inherited socket.
pub struct Clients {
    /// Conversations over the inherited sockets, by local rank.
    own: Vec<Line>,
    secondary: BTreeMap<Client, Line>,
    /// Ranks that enter no more collectives of the job.
    departed: BTreeSet<LocalRank>,
}

impl Clients {
    pub fn new(facts: &Facts) -> Self {
        let ranks = facts.node.map(|node| facts.mapping.ranks_of(node));
        let line = |(local, rank)| Line::new(LocalRank(local).into(), rank, app_of(&facts.spec, rank));
        Clients {
            own: (0..).zip(ranks.into_iter().flatten()).map(line).collect(),
            secondary: BTreeMap::new(),
            departed: BTreeSet::new(),
        }
    }

    /// A secondary client (another PMI library in a rank's process) connects.
    pub fn join(&mut self, client: Client) {
        if let Some(Line { link: PmiLink { client: PmiClient { rank, appnum, .. }, .. }, .. }) =
            self.own.get(client.local.index())
        {
            self.secondary.insert(client, Line::new(client, *rank, *appnum));
        }
    }

    pub fn line(&mut self, client: Client) -> Option<&mut Line> {
        if client.is_secondary() { self.secondary.get_mut(&client) } else { self.own.get_mut(client.local.index()) }
    }

    /// The conversation of a client that may still get answers.
    pub fn open(&mut self, client: Client) -> Option<&mut PmiLink> {
        self.line(client).map(|line| &mut line.link).filter(|link| link.state != State::Closed)
    }

    /// The conversation over a rank's inherited socket.
    pub fn own(&mut self, local: LocalRank) -> &mut PmiLink {
        &mut self.own[local.index()].link
    }

    /// The conversation in which a rank has started a collective of a group that is not over.
    pub fn in_group(&mut self, local: LocalRank, group: &Group) -> Option<&mut PmiLink> {
        let own = self.own.get_mut(local.index()).into_iter();
        let all = (Client { local, number: 1 })..=(Client { local, number: u16::MAX });
        let secondary = self.secondary.range_mut(all).map(|(_, line)| line);
        own.chain(secondary).map(|line| &mut line.link).find(|link| link.own_groups.is_under_way(group))
    }

    /// A secondary client has closed its socket, or its rank has ended.
    pub fn forget(&mut self, client: Client) {
        self.secondary.remove(&client);
    }

    /// A rank enters no more collectives of the job.
    pub fn depart(&mut self, local: LocalRank) {
        self.departed.insert(local);
    }

    /// Whether neither the rank itself nor a secondary client in its process can enter a collective any more.
    pub fn has_left(&self, local: LocalRank) -> bool {
        self.departed.contains(&local) && !self.secondary.keys().any(|client| client.local == local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_has_left_when_the_last_of_its_libraries_has() {
        let local = LocalRank(1);
        let secondary = |number| Client { local, number };
        let mut clients = Clients::new(&Facts::for_test(1, 2, 0));
        clients.join(secondary(1));
        clients.join(secondary(2));
        clients.depart(local);
        clients.forget(secondary(2));
        assert!(!clients.has_left(local) && !clients.has_left(LocalRank(0)));
        clients.forget(secondary(1));
        assert!(clients.has_left(local));
        assert!(clients.open(secondary(1)).is_none() && clients.open(local.into()).is_some());
    }
}
