//! A process's place in its job, its groups, and what it has started.

mod addresses;
mod groups;
mod pairs;
mod waiting;

use crate::agents;
use crate::answers::Answers;
use crate::error::Error;
use crate::network::{Network, Transport};
use crate::pairs::Pairs;
use crate::parts::{self, Parts};
use crate::start::{self, Phases, Start};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::c_int;
use wireup_capi::codes::Code;
use wireup_capi::job::{Endpoints, Gather, Job};
use wireup_capi::net::{self, Errno};

/// Who exchanges the data of a group's collectives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// The server of the job: wireup's agents, or another launcher's.
    Agents,
    /// The ranks themselves.
    Peers,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    kind: GroupKind,
    pub rank: u32,
    pub size: u32,
}

impl Group {
    /// If the agents exchange for it: its context.
    fn part(self) -> Option<wireup_group::Context> {
        if let GroupKind::Part(context) = self.kind { Some(context) } else { None }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GroupKind {
    /// The whole job, by its server.
    Job,
    /// The whole job, by the ranks.
    World,
    Peers(wireup_group::Context),
    /// A group whose collectives the agents carry out; what agents cannot do goes over the ranks' network.
    Part(wireup_group::Context),
}

/// What this process has done in the network of ranks, and what it holds. The messages are those of groups; what makes
/// and proves connections is not counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    pub messages: u64,
    /// Before encryption.
    pub bytes: u64,
    /// Waits for messages of others, one behind the other in each collective and in each search for an address.
    pub rounds: u64,
    /// Messages that asked for an address.
    pub questions: u64,
    pub connections: usize,
    /// Connections that wait for the other end's consent to be closed, and those that were closed because there were
    /// too many.
    pub closing: usize,
    pub closed: u64,
    pub addresses: usize,
    /// Bytes of this process's own address.
    pub address_len: usize,
}

pub struct Context {
    job: Job,
    engine: Engine,
    start: Start,
    /// Where all ranks listen, if the server knows; asked once.
    book: Option<Option<Arc<Endpoints>>>,
    /// Whether the server's sockets listen, rather than only keep their ports.
    they_listen: bool,
    transport: Transport,
    connections_max: Option<usize>,
    /// The connections between ranks, and the group of all.
    network: Option<(Network, wireup_group::Context)>,
    /// A second group of all ranks, for barriers during fences, if the server answers a fence before all ranks have
    /// started theirs.
    fences: Option<wireup_group::Context>,
    phases: Phases,
    /// Answers to the program's questions for addresses.
    addresses: Answers<Option<Vec<u8>>>,
    parts: Parts,
    gathers: Answers<Result<Gather, Code>>,
    /// Collectives of groups that the server has not answered.
    gathering: usize,
    /// After the loss of a rank: the time (ms) until which failing calls still pass the news on to other ranks.
    tells_until: Option<u64>,
    /// Key-value pairs of a further library in this process, which are not kept by the job's server.
    pairs: Pairs,
}

impl Context {
    /// `engine`: of the whole job's group; `None`: the server's if that is wireup's.
    ///
    /// # Errors
    /// With [`Engine::Peers`], the connections could not be made.
    pub fn new(job: Job, engine: Option<Engine>, start: Start, transport: Transport) -> Result<Context, Error> {
        if !job.name.is_empty() && job.answers_questions() && start != Start::Auto {
            // The others need allgathers of the whole job, which the inherited socket has.
            return Err(Error::Argument);
        }
        let best = if job.collectives.own.is_some() { Engine::Agents } else { Engine::Peers };
        let engine = engine.unwrap_or(best);
        let mut context = Context {
            engine,
            start,
            transport,
            connections_max: None,
            job,
            book: None,
            they_listen: false,
            network: None,
            fences: None,
            phases: Phases::default(),
            addresses: Answers::default(),
            parts: Parts::default(),
            gathers: Answers::default(),
            gathering: 0,
            tells_until: None,
            pairs: Pairs::default(),
        };
        if context.engine == Engine::Peers {
            context.network()?;
        } else if let Some(whole) = context.whole() {
            let all = (0, context.job.size - 1);
            context.parts.define(&mut context.job, whole, [all].into())?;
        }
        Ok(context)
    }

    /// From now on connections are closed when more than so many are open, the least recently used first, but not while
    /// somebody waits for a message over them. Of no effect where a connection costs no descriptor.
    pub fn bound_connections(&mut self, open_max: usize) {
        self.connections_max = Some(open_max);
        if let Some((network, _)) = &mut self.network {
            network.bound_connections(open_max);
        }
    }

    pub fn job(&mut self) -> &mut Job {
        &mut self.job
    }

    /// The group of all ranks.
    pub fn world(&self) -> Group {
        let kind = match (self.engine, self.whole()) {
            (Engine::Peers, _) => GroupKind::World,
            (Engine::Agents, Some(whole)) => GroupKind::Part(whole),
            (Engine::Agents, None) => GroupKind::Job,
        };
        Group { kind, rank: self.job.rank, size: self.job.size }
    }

    /// Whether this is a further library in its process, beside the one that has joined by the inherited socket.
    pub fn is_secondary(&self) -> bool {
        !self.job.name.is_empty()
    }

    /// The group of all ranks, if it is one of those that the server knows as groups.
    fn whole(&self) -> Option<wireup_group::Context> {
        (self.is_secondary() && self.engine == Engine::Agents && self.job.answers_questions())
            .then(|| parts::named(&self.job.name))
    }

    pub fn engine(&self, group: Group) -> Engine {
        match group.kind {
            GroupKind::Job | GroupKind::Part(_) => Engine::Agents,
            GroupKind::World | GroupKind::Peers(_) => Engine::Peers,
        }
    }

    /// Open connections to other ranks.
    pub fn connections(&self) -> usize {
        self.network.as_ref().map_or(0, |(network, _)| network.connections())
    }

    pub fn counts(&self) -> Counts {
        let Some((network, _)) = &self.network else { return Counts::default() };
        let (sent, done) = (network.sent(), network.groups.counts());
        let (closing, closed) = network.closed();
        Counts {
            messages: sent.messages,
            bytes: sent.bytes,
            rounds: done.rounds,
            questions: done.questions,
            connections: network.connections(),
            closing,
            closed,
            addresses: network.addresses(),
            address_len: network.own_address().len(),
        }
    }

    /// How long the network of ranks took to make; 0 without one.
    pub fn phases(&self) -> Phases {
        self.phases
    }

    /// A descriptor that is readable when [`Context::progress`] has something to do; none without a server. The first
    /// group that is split off changes it.
    pub fn fd(&mut self) -> Option<c_int> {
        match &self.network {
            Some((network, _)) => Some(network.fd()),
            None => self.job.server().ok().map(|server| server.socket().fd()),
        }
    }

    /// The descriptor of the network of ranks, and for how long it may be waited for until there is something to do in
    /// any case (ms; negative: without limit). `None`: there is no network yet.
    pub fn watched(&self) -> Option<(c_int, c_int)> {
        self.network.as_ref().map(|(network, _)| (network.fd(), network.limit(-1)))
    }

    /// The network of ranks. Where the server does not answer questions for addresses, the first call waits for all
    /// ranks.
    fn network(&mut self) -> Result<&mut (Network, wireup_group::Context), Error> {
        if self.network.is_none() {
            let book = if self.wants_sockets() { self.book()?.filter(|_| self.they_listen) } else { None };
            let (mut network, world, phases) = start::network(&mut self.job, self.start, self.transport, book)?;
            if let Some(open_max) = self.connections_max {
                network.bound_connections(open_max);
            }
            if !agents::fence_waits(&mut self.job) {
                self.fences = Some(network.groups.duplicate(world).map_err(Error::Group)?);
            }
            (self.network, self.phases) = (Some((network, world)), phases);
        }
        self.network.as_mut().ok_or(Error::Mismatch)
    }

    /// Whether the network uses the server's sockets, which are those of TCP, if they listen.
    fn wants_sockets(&self) -> bool {
        self.start == Start::Auto && self.transport == Transport::Tcp
    }

    /// The ports of all ranks, if the server has given them sockets; waits until those of all nodes are bound.
    fn book(&mut self) -> Result<Option<Arc<Endpoints>>, Error> {
        if let Some(book) = &self.book {
            return Ok(book.clone());
        }
        if self.is_secondary() {
            return Ok(self.book.insert(None).clone());
        }
        let book = self.job.bound_endpoints().map_err(Error::Server)?.map(Arc::new);
        if let Some(socket) = book.as_ref().and_then(|book| book.listening()) {
            self.they_listen = net::listens(socket).map_err(|Errno(number)| Error::System(number))?;
        }
        Ok(self.book.insert(book).clone())
    }
}
