//! The PMI-1 and PMI-2 server for the ranks of one node: their conversations, the pairs, the node's attributes.
//!
//! `connection` is one conversation, `clients` all of them, `requests` answers a single request, `kvs` stores the
//! pairs, `names` requests what the root has, `addresses` is where ranks are reached (`questions`: their requests),
//! `endpoints` where those listen that have sockets from their start, `relays` the connections that agents carry;
//! `arena` and `array` lay out the results of allgathers. Consequences of a request for others are effects.

mod addresses;
mod arena;
mod array;
mod clients;
mod collectives;
mod connection;
mod dialects;
pub mod endpoints;
mod gathers;
pub mod kvs;
mod names;
pub mod node_attrs;
mod own_groups;
mod questions;
mod relays;
mod requests;
mod shares;
mod spawn;
mod state;
mod turn;

use crate::collective::ReplyTo;
use crate::collective::{Entry, Outcome};
use crate::io::{Output, RelayAct, RelayEvent, RelayId};
use crate::job::effect::{Effect, Effects};
use crate::job::facts::Facts;
use crate::job::ranks::Process;
use crate::memory::{Array, Content, ShareId};
pub use addresses::all_left;
use addresses::{Addresses, Question};
use arena::Arenas;
use bytes::Bytes;
use clients::Clients;
use collectives::Completion;
use connection::PmiLink;
use endpoints::Endpoints;
use kvs::Kvs;
use node_attrs::NodeAttrs;
use relays::Relays;
use shares::Shares;
use state::State;
use turn::{Effect as Asked, Requester, Tables};
use wireup_wire::addresses::Between;
use wireup_wire::block;
use wireup_wire::frame::Kind;
use wireup_wire::group::Group;
use wireup_wire::ids::{Client, JobId, LocalRank, NodeId, Rank};
use wireup_wire::job::PmiFence;
use wireup_wire::limits::GATHER_INLINE_MAX;
use wireup_wire::names::{Answer, Asker};
use wireup_wire::peer::{self, Cause, Secret};
use wireup_wire::rank_address;
use wireup_wire::relay::{self, Target};

pub struct PmiServer {
    job: JobId,
    clients: Clients,
    /// Value of `PMI_process_mapping`; `None`: it is longer than a value may be.
    process_mapping: Option<Vec<u8>>,
    kvs: Kvs,
    attrs: NodeAttrs,
    addresses: Addresses,
    endpoints: Endpoints,
    relays: Relays,
    arenas: Arenas,
    shares: Shares,
}

impl PmiServer {
    pub fn new(facts: &Facts) -> Self {
        PmiServer {
            job: facts.id(),
            clients: Clients::new(facts.local_size()),
            process_mapping: facts.mapping.process_mapping(),
            kvs: Kvs::with(facts.spec.spawned.iter().flat_map(|spawned| &spawned.preput)),
            attrs: NodeAttrs::default(),
            addresses: Addresses::default(),
            endpoints: Endpoints::default(),
            relays: Relays::default(),
            arenas: Arenas::default(),
            shares: Shares::new(facts.id()),
        }
    }

    /// Handles bytes from a rank. If empty: a get that waited for the rank's lazy fences, and the requests after it,
    /// can be answered.
    pub fn on_bytes(&mut self, facts: &Facts, (client, process): (Client, &Process), bytes: &[u8], out: &mut Effects) {
        let PmiServer { clients, process_mapping, kvs, attrs, addresses, endpoints, shares, .. } = self;
        let Some(link) = clients.get_mut(client).filter(|link| link.state() != State::Closed) else { return };
        let options = &facts.spec.options;
        let told = turn::Facts {
            nspace: &facts.spec.nspace,
            job_size: facts.job_size,
            process_mapping: process_mapping.as_deref(),
            lazy_fence: options.pmi_fence == PmiFence::Lazy,
            has_endpoints: options.rank_ports.is_some(),
            pmi_version: options.pmi_version,
            spawned: facts.spec.spawned.as_ref(),
            universe_size: options.universe_size,
            memory_alloc_kinds: options.memory_alloc_kinds.as_deref(),
        };
        let who = Requester { client, rank: process.rank, appnum: process.appnum };
        let mut tables = Tables { kvs, attrs, addresses, endpoints, shares, handed: Vec::new() };
        let (mut reply, mut asked) = (Vec::new(), Vec::new());
        let result = link.on_bytes(bytes, who, &told, &mut tables, &mut reply, &mut asked);
        let handed = tables.handed;
        self.shares.put_made(out);
        self.reply(client, reply.into(), handed, out);
        self.give_memory_up(out);
        asked.into_iter().for_each(|asked| self.on_asked(facts, (client, process.rank), asked, out));
        self.send_addresses(facts, out);
        if let Err(problem) = result {
            out.push(Effect::ClientUnreadable { client, problem: problem.to_string() });
        }
    }

    /// Applies the consequences of a request for others.
    fn on_asked(&mut self, facts: &Facts, (client, from): (Client, Rank), asked: Asked, out: &mut Effects) {
        let local = client.local;
        match asked {
            Asked::Initialised => out.push(Effect::Connected { local, by_pmix: false }),
            Asked::MeetsNode => out.push(Effect::MeetsNode(local)),
            Asked::Enter { entry, reply_to } => {
                self.prepare(facts, &entry, &reply_to, out);
                out.push(Effect::Enter { local, entry, reply_to });
            }
            Asked::Freed { place } => out.push(Effect::Freed { local, place }),
            Asked::AskAddress { id, rank, name } => {
                let node = facts.mapping.place(rank).map(|(node, _)| node).filter(|node| Some(*node) != facts.node);
                self.addresses.ask(Question { client, id }, name, rank, node);
            }
            Asked::Relay { target, reply, refusal } => {
                let node =
                    facts.mapping.place(target.rank).map(|(node, _)| node).filter(|node| Some(*node) != facts.node);
                let act = RelayAct::Hand { client, datagrams: target.datagrams, reply, refusal: refusal.clone() };
                let opened = node.is_some_and(|node| self.relays.open(node, target, act).is_ok());
                if !opened {
                    self.reply(client, refusal, Vec::new(), out);
                }
                self.carry_relays(facts, out);
            }
            Asked::NeedSecret => out.output(Output::TellSecret { job: self.job }),
            Asked::Name(ask) => out.push(Effect::AskName { from, asker: Asker::Client(client), ask }),
            Asked::EnterGroup { group, value } => out.push(Effect::EnterGroup { local, group, value }),
            Asked::MeetsFamily => out.output(Output::MeetsFamily { job: self.job }),
            Asked::Finalized => out.push(Effect::Finalized { local, by_pmix: false }),
            Asked::Abort { code, message } => {
                out.push(Effect::FailRank { local, cause: Cause::Aborted { code, message } });
            }
            Asked::Unreadable { problem } => out.fail_here(Cause::Pmi { problem }),
            Asked::Woken { parked, value } => {
                for get in parked {
                    let mut reply = Vec::new();
                    self.clients.own(get.local).wake(&get, &value, &mut reply);
                    self.reply(get.local.into(), reply.into(), Vec::new(), out);
                }
            }
        }
    }

    /// A rank enters a collective: the array of an allgather may need an arena.
    fn prepare(&mut self, facts: &Facts, entry: &Entry, reply_to: &ReplyTo, out: &mut Effects) {
        if let (Entry::Allgather { max_len, shared, .. }, ReplyTo::Allgather { .. }) = (entry, reply_to) {
            self.arenas.prepare(facts.job_size, *max_len, *shared, &mut self.shares);
            self.shares.put_made(out);
        }
    }

    /// The secret of the job's ranks.
    pub fn on_secret(&mut self, secret: &Secret, out: &mut Effects) {
        for (client, thread) in self.endpoints.on_secret(secret) {
            let Some(link) = self.clients.get_mut(client) else { continue };
            let mut reply = Vec::new();
            link.answer_secret(thread.as_deref(), self.endpoints.secret(), &mut reply);
            self.reply(client, reply.into(), Vec::new(), out);
        }
    }

    /// Another node's agent asks where ranks of this node are reached, or answers that.
    pub fn on_addresses(&mut self, facts: &Facts, node: NodeId, message: Between, out: &mut Effects) {
        match message {
            Between::Want { name, ranks } => {
                self.addresses.on_want(node, &name, ranks, |rank| facts.local_of(rank).is_some());
            }
            Between::Have { name, cards } => {
                let is_there = |rank| facts.mapping.place(rank).is_some_and(|(of, _)| of == node);
                self.addresses.on_have(&name, cards, is_there);
            }
        }
        self.send_addresses(facts, out);
    }

    /// Sends what was found out about addresses: to each client as few writes, to each agent as few frames as possible.
    fn send_addresses(&mut self, facts: &Facts, out: &mut Effects) {
        let answers = self.addresses.take_answers();
        for same in answers.chunk_by(|(one, _), (other, _)| one.client == other.client) {
            let (client, mut reply) = (same[0].0.client, Vec::new());
            let Some(link) = self.clients.get_mut(client) else { continue };
            same.iter().for_each(|(question, value)| link.answer_address(question.id, value.as_deref(), &mut reply));
            self.reply(client, reply.into(), Vec::new(), out);
        }
        for (node, message) in self.addresses.take_messages() {
            let frame = facts.frame(Kind::Addresses, 0, 0, peer::encode(&message).into());
            out.for_agent(facts.agent_of(node), frame);
        }
    }

    /// Handles a message of another node's agent about a relay between ranks.
    pub fn on_relayed(&mut self, facts: &Facts, node: NodeId, message: relay::Between, out: &mut Effects) {
        let PmiServer { relays, addresses, endpoints, .. } = self;
        relays.on_message(node, message, |Target { rank, name, datagrams }| {
            let local = facts.local_of(*rank)?;
            let tag = if *datagrams { rank_address::UDP } else { rank_address::TCP };
            // Sockets that were bound for ranks are those of TCP.
            addresses.tagged(name, *rank, tag).or_else(|| endpoints.own(local).filter(|_| !datagrams))
        });
        self.carry_relays(facts, out);
    }

    /// Handles an event of the socket at this end of a relay.
    pub fn on_relay_event(&mut self, facts: &Facts, relay: RelayId, event: RelayEvent, out: &mut Effects) {
        self.relays.on_event(relay, event);
        self.carry_relays(facts, out);
    }

    fn carry_relays(&mut self, facts: &Facts, out: &mut Effects) {
        for (relay, act) in self.relays.take_acts() {
            out.output(Output::Relay { job: self.job, relay, act });
        }
        for (node, message) in self.relays.take_messages() {
            let number = message.number;
            let (stream, payload) = message.encode();
            out.for_agent(facts.agent_of(node), facts.frame(Kind::Relay, stream, number, payload));
        }
    }

    /// Memory for slots exists.
    pub fn on_shared(&mut self, share: ShareId, out: &mut Effects) {
        self.arenas.on_made(share, &mut self.shares);
        self.give_memory_up(out);
    }

    /// Memory could not be created or written.
    pub fn on_share_failed(&mut self, share: ShareId, problem: String, out: &mut Effects) {
        if !self.arenas.on_failed(share) {
            out.fail_here(Cause::Pmi { problem });
        }
    }

    /// Releases memory that no later reply names; to be called after the replies.
    fn give_memory_up(&mut self, out: &mut Effects) {
        self.kvs.take_merged().for_each(|share| self.shares.give_up(share));
        self.shares.put_dropped(out);
    }

    fn reply(&self, client: Client, bytes: Bytes, shares: Vec<ShareId>, out: &mut Effects) {
        if !bytes.is_empty() {
            out.output(Output::Reply { job: self.job, client, bytes, shares });
        }
    }

    /// A secondary client connects. If its rank has departed, that may already have been reported: the client is too
    /// late.
    pub fn on_joined(&mut self, client: Client, out: &mut Effects) {
        if self.clients.has_left(client.local) {
            out.output(Output::CloseClient { job: self.job, client });
        } else {
            self.clients.join(client);
        }
    }

    /// A conversation cannot continue.
    pub fn break_off(&mut self, client: Client, problem: String, out: &mut Effects) {
        out.output(Output::CloseClient { job: self.job, client });
        self.clients.get_mut(client).map(PmiLink::close);
        out.push(Effect::FailRank { local: client.local, cause: Cause::Pmi { problem } });
    }

    /// A rank closed a socket. Returns whether the rank had initialised over this socket and not finalized.
    pub fn on_closed(&mut self, client: Client) -> bool {
        let was_member = self.clients.get_mut(client).is_some_and(|link| link.close().is_member());
        self.addresses.on_closed(client);
        if client.is_secondary() {
            self.clients.forget(client);
        } else {
            self.attrs.on_gone(client.local);
        }
        was_member
    }

    /// Whether neither the rank itself nor a secondary client in its process can enter a collective any more.
    pub fn has_left(&self, local: LocalRank) -> bool {
        self.clients.has_left(local)
    }

    /// A rank has ended: its parked gets are dropped.
    pub fn on_gone(&mut self, local: LocalRank) {
        self.attrs.on_gone(local);
    }

    /// A rank enters no more collectives of the job, and reads no more results of them.
    pub fn on_departed(&mut self, local: LocalRank) {
        self.arenas.on_gone(local);
        self.clients.depart(local);
    }

    /// No library of a rank enters collectives or tells addresses any more.
    pub fn on_left(&mut self, facts: &Facts, rank: Rank, out: &mut Effects) {
        self.addresses.on_left(rank);
        self.send_addresses(facts, out);
    }

    /// A rank has finished with a place in the arena.
    pub fn on_freed(&mut self, local: LocalRank, place: u32) {
        self.arenas.free(local, place);
    }

    /// The pairs put on this node since the last fence.
    pub fn take_pending(&mut self) -> Bytes {
        self.kvs.take_pending()
    }

    /// The pairs put on this node since `mark`, which is advanced.
    pub fn pending_since(&mut self, mark: &mut kvs::Mark) -> Bytes {
        self.kvs.pending_since(mark)
    }

    /// A collective is complete: stores its outcome and answers the local ranks.
    pub fn on_finished(
        &mut self,
        facts: &Facts,
        waiting: Vec<(LocalRank, ReplyTo)>,
        outcome: Outcome,
        out: &mut Effects,
    ) {
        let result = match outcome {
            Outcome::Values { blocks, .. } if waiting.iter().any(|(_, reply_to)| *reply_to == ReplyTo::Endpoints) => {
                endpoints::table(facts.spec.nodes.len(), &blocks).map(|rows| out.push(Effect::Endpoints { rows }))
            }
            Outcome::Pairs(blocks) => self.publish(facts, blocks).map(|()| self.answer_fence(waiting, out)),
            Outcome::Values { max_len, shared, blocks } => array::lay_out(&facts.mapping, (max_len, shared), &blocks)
                .map(|array| self.answer_allgather(waiting, array, out)),
            Outcome::Places(places) => {
                for (local, reply_to) in waiting {
                    let mut reply = Vec::new();
                    self.clients.own(local).answer(&reply_to, &Completion::Place(&places[local.index()]), &mut reply);
                    self.reply(local.into(), reply.into(), Vec::new(), out);
                }
                Ok(())
            }
        };
        if let Err(problem) = result {
            out.fail_here(Cause::Pmi { problem });
        }
    }

    /// The addresses at which the ranks listen are known: answers the ranks that have asked for them.
    pub fn on_endpoints(&mut self, facts: &Facts, rows: Vec<Bytes>, out: &mut Effects) {
        let own = facts.node.and_then(|node| rows.get(node.index())).cloned();
        let (table, waiting) = self.endpoints.on_known(own.unwrap_or_default(), rows, &mut self.shares);
        self.shares.put_made(out);
        for (client, thread) in waiting {
            let Some(link) = self.clients.get_mut(client) else { continue };
            let mut reply = Vec::new();
            link.answer_endpoints(thread.as_deref(), &mut reply);
            self.reply(client, reply.into(), vec![table], out);
        }
    }

    /// Publishes the pairs of all nodes after a fence.
    fn publish(&mut self, facts: &Facts, parts: Vec<Bytes>) -> Result<(), String> {
        let mut pairs = Vec::new();
        let mut heard = vec![false; facts.spec.nodes.len()];
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
        self.kvs.commit(pairs).map_err(|error| error.to_string())
    }

    fn answer_fence(&mut self, waiting: Vec<(LocalRank, ReplyTo)>, out: &mut Effects) {
        let told = Completion::Fence { version: self.kvs.version() };
        let (mut reply, mut shared) = (Vec::new(), Bytes::new());
        let mut waiters = Vec::new();
        for (local, reply_to) in waiting {
            reply.clear();
            let link = self.clients.own(local);
            link.answer(&reply_to, &told, &mut reply);
            if link.may_resume() {
                waiters.push(local);
            }
            if shared != reply {
                // Most ranks get exactly the same reply.
                shared = Bytes::copy_from_slice(&reply);
            }
            self.reply(local.into(), shared.clone(), Vec::new(), out);
        }
        waiters.into_iter().for_each(|local| out.push(Effect::Resume(local.into())));
    }

    /// Puts the array into the arena if there is room, otherwise into memory of its own, which is released once all
    /// ranks were told.
    fn answer_allgather(&mut self, waiting: Vec<(LocalRank, ReplyTo)>, array: Array, out: &mut Effects) {
        if waiting.is_empty() {
            return;
        }
        let place = self.arenas.place(array.byte_len(), waiting.iter().map(|(local, _)| *local));
        let share = match place {
            Some(place) => {
                self.shares.write(place.share, place.slot, array);
                place.share
            }
            None => self.shares.make(Content::Array(array)),
        };
        self.shares.put_made(out);
        for (local, reply_to) in waiting {
            let link = self.clients.own(local);
            let new = place.is_some_and(|place| link.see_arena(place.arena()));
            let mut reply = Vec::new();
            link.answer(&reply_to, &Completion::Array { place: place.map(|place| place.number), new }, &mut reply);
            let handed = if new || place.is_none() { vec![share] } else { Vec::new() };
            self.reply(local.into(), reply.into(), handed, out);
        }
        if place.is_none() {
            self.shares.give_up(share);
        }
        self.give_memory_up(out);
    }

    /// The root's answer to a rank's request about a name or for processes. The rank's further requests can be answered
    /// now.
    pub fn on_named(&mut self, client: Client, answer: Answer, out: &mut Effects) {
        let Some(link) = self.clients.get_mut(client) else { return };
        let mut reply = Vec::new();
        link.answer_name(answer, &mut reply);
        self.reply(client, reply.into(), Vec::new(), out);
        out.push(Effect::Resume(client));
    }

    /// A group's barrier is complete: its local members may get each other's pairs.
    pub fn on_barrier_over(&mut self, group: &Group, waiting: Vec<LocalRank>, pairs: Bytes, out: &mut Effects) {
        if let Err(error) = self.kvs.commit(vec![pairs]) {
            return out.fail_here(Cause::Pmi { problem: error.to_string() });
        }
        for local in waiting {
            let mut reply = Vec::new();
            self.clients.own(local).answer_group(group.tag, &mut reply);
            self.reply(local.into(), reply.into(), Vec::new(), out);
        }
    }

    /// Another collective of a group is complete: its local members get the values of all.
    pub fn on_gathered(
        &mut self,
        facts: &Facts,
        group: &Group,
        waiting: Vec<LocalRank>,
        values: &Bytes,
        out: &mut Effects,
    ) {
        let array = match gathers::lay_out(&group.members, facts.job_size, values) {
            Ok(array) => array,
            Err(problem) => return out.fail_here(Cause::Pmi { problem }),
        };
        let inline = array.as_ref().filter(|array| array.byte_len() <= GATHER_INLINE_MAX).map(|array| {
            let mut bytes = vec![0; array.byte_len()];
            array.fill(&mut bytes);
            bytes
        });
        let told = array.is_some().then_some(inline.as_deref());
        let share = array.filter(|_| inline.is_none()).map(|array| self.shares.make(Content::Array(array)));
        self.shares.put_made(out);
        for local in waiting {
            // The member may have closed its socket.
            let Some((client, link)) = self.clients.in_group(local, group) else { continue };
            let mut reply = Vec::new();
            link.answer_gather(group, told, &mut reply);
            self.reply(client, reply.into(), share.into_iter().collect(), out);
        }
        share.into_iter().for_each(|share| self.shares.give_up(share));
        self.give_memory_up(out);
    }
}
