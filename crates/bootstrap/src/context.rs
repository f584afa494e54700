//! A process's place in its job, its groups, and what it has started.

use crate::agents;
use crate::answers::Answers;
use crate::network::{Network, Transport};
use crate::operation::{Operation, Request, Then};
use crate::parts::{self, Parts};
use crate::start::{self, ADDRESS_NAME, Phases, Start};
use crate::view::View;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::c_int;
use core::net::SocketAddr;
use wireup_capi::clique::{node, ranks_across, ranks_beside};
use wireup_capi::codes::Code;
use wireup_capi::job::{ADDRESS_NAME_LEN_MAX, Endpoints, Gather, Gathered, Job, MAX_LEN};
use wireup_capi::net::{self, Errno, host_number, now_ms};
use wireup_group::algorithms::{Allgather, Allreduce, Alltoall, Barrier, Broadcast, Prefix, Shift, Wanted};
use wireup_group::{Algorithm, Done, Failure};
use wireup_wire::pmi::Request as PmiRequest;
use wireup_wire::rank_address;

/// Why a call has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The job's server is gone, or has refused.
    Server(Code),
    /// A system call has failed.
    System(c_int),
    /// In a group of ranks.
    Group(Failure),
    /// The ranks do not call the same, or a value makes no sense.
    Mismatch,
    /// Not over in time; it goes on.
    TimedOut,
    /// The argument makes no sense.
    Argument,
    /// There is no such thing.
    NotFound,
    /// libfabric cannot be used.
    Fabric(wireup_fabric::Error),
}

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
    place: Place,
    pub rank: u32,
    pub size: u32,
}

impl Group {
    /// If the agents exchange for it: its context.
    fn part(self) -> Option<wireup_group::Context> {
        if let Place::Part(context) = self.place { Some(context) } else { None }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// The whole job, by its server.
    Job,
    /// The whole job, by the ranks.
    World,
    Peers(wireup_group::Context),
    /// By the agents, and over the ranks' network what they cannot do.
    Part(wireup_group::Context),
}

/// What this process has done in the network of ranks, and what it holds. The messages are those of groups; what makes and proves
/// connections is not counted.
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
    /// Connections that wait for the other end's consent to be closed, and those that were closed because there were too many.
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
    /// The same ranks, for the fences of a server that answers them before all ranks have started theirs.
    fences: Option<wireup_group::Context>,
    phases: Phases,
    /// To the program's questions for addresses.
    addresses: Answers<Option<Vec<u8>>>,
    parts: Parts,
    gathers: Answers<Result<Gather, Code>>,
    /// Collectives of groups that the server has not answered.
    gathering: usize,
}

/// Added to the number of a question of the program; those of the network are ranks, which are lower.
const OWN_QUESTIONS: u32 = 1 << 31;

impl Context {
    /// `engine`: of the whole job's group; `None`: the server's if that is wireup's.
    ///
    /// # Errors
    /// With [`Engine::Peers`], the connections could not be made.
    pub fn new(job: Job, engine: Option<Engine>, start: Start, transport: Transport) -> Result<Context, Error> {
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
        };
        if context.engine == Engine::Peers {
            context.network()?;
        }
        Ok(context)
    }

    /// From now on connections are closed when more than so many are open, the least recently used first, but not while somebody waits for a
    /// message over them. Of no effect where a connection costs no descriptor.
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
        let place = if self.engine == Engine::Agents { Place::Job } else { Place::World };
        Group { place, rank: self.job.rank, size: self.job.size }
    }

    pub fn engine(&self, group: Group) -> Engine {
        match group.place {
            Place::Job | Place::Part(_) => Engine::Agents,
            Place::World | Place::Peers(_) => Engine::Peers,
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

    /// A descriptor that is readable when [`Context::progress`] has something to do; none without a server. The first group that is split
    /// off changes it.
    pub fn fd(&mut self) -> Option<c_int> {
        match &self.network {
            Some((network, _)) => Some(network.fd()),
            None => self.job.server().ok().map(|server| server.socket().fd()),
        }
    }

    /// The descriptor of the network of ranks, and for how long it may be waited for until there is something to do in any case (ms;
    /// negative: without limit). `None`: there is no network yet.
    pub fn watched(&self) -> Option<(c_int, c_int)> {
        self.network.as_ref().map(|(network, _)| (network.fd(), network.limit(-1)))
    }

    /// The network of ranks. Where the server does not answer questions for addresses, the first call waits for all ranks.
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
        let book = self.job.bound_endpoints().map_err(Error::Server)?.map(Arc::new);
        if let Some(socket) = book.as_ref().and_then(|book| book.listening()) {
            self.they_listen = net::listens(socket).map_err(|Errno(number)| Error::System(number))?;
        }
        Ok(self.book.insert(book).clone())
    }

    /// The socket that the server has given this rank; `None`: it has given none, or the network uses it.
    pub fn listening(&mut self) -> Result<Option<c_int>, Error> {
        let book = self.book()?;
        let is_used = self.wants_sockets() && self.they_listen;
        Ok(book.filter(|_| !is_used).and_then(|book| book.listening()))
    }

    /// Where a rank's socket of the server listens, best first; `None`: the server has given none, or there is no such rank. If the sockets
    /// do not listen, these are the same addresses on all ranks: those for other hosts, since the ranks' own sockets may be at one of them.
    pub fn listens_at(&mut self, rank: u32) -> Result<Option<Vec<SocketAddr>>, Error> {
        let own = self.job.rank;
        let Some(book) = self.book()? else { return Ok(None) };
        let Some(address) = book.address(rank) else { return Ok(None) };
        if !self.they_listen {
            return Ok(Some(rank_address::for_all(&address)));
        }
        let host = book.address(own).as_deref().and_then(rank_address::host);
        Ok(host.map(|host| rank_address::candidates(&address, host)))
    }

    fn peers(&mut self, group: Group) -> Result<(&mut Network, wireup_group::Context), Error> {
        let unformed = match group.place {
            Place::Part(context) => self.parts.get(context)?.unformed(),
            Place::Job | Place::World | Place::Peers(_) => None,
        };
        let (network, world) = self.network()?;
        let context = match group.place {
            Place::Job | Place::World => *world,
            Place::Peers(context) | Place::Part(context) => context,
        };
        if let Some(ranks) = unformed {
            network.part(context, &ranks);
        }
        Ok((network, context))
    }

    /// Whether the agents exchange for groups too.
    fn has_parts(&self) -> bool {
        self.engine == Engine::Agents && self.start == Start::Auto && self.job.answers_questions()
    }

    /// Makes a group of these ranks, which all of them do; none if there are none.
    fn make(
        &mut self,
        (of, child): (wireup_group::Context, u32),
        ranks: &[u32],
    ) -> Result<Option<wireup_group::Context>, Error> {
        let Some(first) = ranks.first() else { return Ok(None) };
        let context = parts::context(of, child, *first);
        if let Some(runs) = parts::runs(ranks) {
            self.parts.define(&mut self.job, context, runs)?;
        } else {
            self.network()?.0.part(context, ranks);
            self.pump();
        }
        Ok(Some(context))
    }

    fn gather(&mut self, context: wireup_group::Context, value: &[u8], then: Then) -> Result<Request, Error> {
        let part = self.parts.get(context)?;
        let (number, place) = (part.number, (part.me, part.size()));
        let id = self.gathers.begin();
        self.job.start_gather(id, number, value).map_err(Error::Server)?;
        self.gathering += 1;
        Ok(Request::Gather { id, context, place, then: Box::new(then) })
    }

    /// Starts a collective.
    pub fn start(&mut self, group: Group, operation: Operation) -> Result<Request, Error> {
        if !operation.is_sound(group.size) {
            return Err(Error::Argument);
        }
        if group.place == Place::Job
            && let Some(id) = agents::start(&mut self.job, &operation)
        {
            return Ok(Request::Server { id, then: Box::new(Then::Finish(operation)) });
        }
        if let Place::Part(context) = group.place
            && let Some((own, len_max)) = agents::contribution(&operation, group.rank)
            && len_max <= MAX_LEN
        {
            let own = own.to_vec();
            return self.gather(context, &own, Then::Finish(operation));
        }
        let (network, context) = self.peers(group)?;
        let algorithm: Box<dyn Algorithm> = match operation {
            Operation::Barrier => Box::new(Barrier::default()),
            Operation::Broadcast { root, bytes } => Box::new(Broadcast::new(root, bytes)),
            Operation::Allgather { bytes, .. } => Box::new(Allgather::new(bytes)),
            Operation::Allreduce { reduce, bytes } => Box::new(Allreduce::new(reduce, bytes)),
            Operation::Prefix { reduce, bytes, is_exclusive } => Box::new(Prefix::new(reduce, bytes, is_exclusive)),
            Operation::Alltoall(rows) => Box::new(Alltoall::new(rows)),
            Operation::Shift(bytes) => Box::new(Shift::new(bytes)),
        };
        let request = network.groups.start(context, algorithm);
        self.pump();
        Ok(Request::Peers(request))
    }

    /// Divides a group.
    pub fn split(&mut self, group: Group, wanted: Wanted) -> Result<Request, Error> {
        if let Place::Part(context) = group.place {
            let of = self.parts.origin(group.part())?;
            return self.gather(context, &agents::told(&wanted), Then::Divide { wanted, of });
        }
        if group.place == Place::Job && self.has_parts() {
            // One exchange by the server tells every rank who is in its group.
            let of = self.parts.origin(group.part())?;
            let id = agents::start_split(&mut self.job, &wanted);
            return Ok(Request::Server { id, then: Box::new(Then::Divide { wanted, of }) });
        }
        let (network, context) = self.peers(group)?;
        let request = network.groups.split(context, wanted);
        self.pump();
        Ok(Request::Peers(request))
    }

    /// The ranks of this process's node. All ranks must call it, and it waits for them.
    pub fn node(&mut self) -> Result<Group, Error> {
        if let Some(group) = self.placed(ranks_beside)? {
            return Ok(group);
        }
        let colour = self.node_name()?;
        let world = self.world();
        self.divided(world, Wanted { colour: Some(colour), key: 0 })
    }

    /// The ranks with the same number on their nodes: those with number 0 are their nodes' leaders. All ranks must call it, and it waits
    /// for them.
    pub fn leaders(&mut self) -> Result<Group, Error> {
        if let Some(group) = self.placed(ranks_across)? {
            return Ok(group);
        }
        let node = self.node()?;
        let world = self.world();
        let leaders = self.divided(world, Wanted { colour: Some(node.rank.to_be_bytes().into()), key: 0 });
        self.free(node);
        leaders
    }

    /// A group of ranks that every member finds by itself, from who is on which node; `None`: it cannot.
    fn placed(&mut self, choose: fn(&[u8], u32, u32) -> Option<Vec<u32>>) -> Result<Option<Group>, Error> {
        let (rank, size) = (self.job.rank, self.job.size);
        if !self.has_parts() && !self.network()?.0.has_book() {
            return Ok(None);
        }
        let Some(ranks) = self.mapping()?.and_then(|mapping| choose(&mapping, rank, size)) else { return Ok(None) };
        let context = if self.has_parts() {
            let of = self.parts.origin(None)?;
            self.make(of, &ranks)?
        } else {
            let (network, world) = self.network()?;
            let number = network.groups.reserve(*world).map_err(Error::Group)?;
            let context = parts::context(*world, number, ranks.first().copied().unwrap_or_default());
            network.part(context, &ranks);
            self.pump();
            Some(context)
        };
        self.group(&Done::Group(context)).ok_or(Error::Mismatch).map(Some)
    }

    /// `PMI_process_mapping`; `None` if the server has none.
    fn mapping(&mut self) -> Result<Option<Vec<u8>>, Error> {
        match self.job.look_up(&PmiRequest::GetJobAttr { key: b"PMI_process_mapping" }) {
            Ok(mapping) => Ok(mapping),
            // A server without job attributes, or a singleton.
            Err(Code::OTHER | Code::FAIL) => Ok(None),
            Err(code) => Err(Error::Server(code)),
        }
    }

    /// The same on the ranks of a node, and nowhere else.
    fn node_name(&mut self) -> Result<Vec<u8>, Error> {
        let rank = self.job.rank;
        let mapping = self.mapping()?;
        let node = mapping.and_then(|mapping| node(&mapping, rank)).map(|node| node.to_be_bytes().to_vec());
        Ok(node.unwrap_or_else(|| host_number().to_be_bytes().to_vec()))
    }

    fn divided(&mut self, group: Group, wanted: Wanted) -> Result<Group, Error> {
        let request = self.split(group, wanted)?;
        let done = self.wait(&request, -1)?;
        self.group(&done).ok_or(Error::Mismatch)
    }

    /// A group with the same members, whose messages never meet those of the first one.
    pub fn duplicate(&mut self, group: Group) -> Result<Group, Error> {
        if self.has_parts() && matches!(group.place, Place::Job | Place::Part(_)) {
            let runs = match group.place {
                Place::Part(context) => self.parts.get(context)?.runs().to_vec(),
                Place::Job | Place::World | Place::Peers(_) => [(0, group.size - 1)].into(),
            };
            let (of, child) = self.parts.origin(group.part())?;
            let context = parts::context(of, child, u32::MAX);
            self.parts.define(&mut self.job, context, runs)?;
            return Ok(Group { place: Place::Part(context), ..group });
        }
        let (network, context) = self.peers(group)?;
        let context = network.groups.duplicate(context).map_err(Error::Group)?;
        Ok(Group { place: Place::Peers(context), ..group })
    }

    /// Makes a group of these members of another one, in this order. They call it with the same list and name, and nobody else calls it.
    pub fn create(&mut self, of: Group, members: &[u32], name: &[u8]) -> Result<Request, Error> {
        let (network, context) = self.peers(of)?;
        let request = network.groups.create(context, members, name);
        self.pump();
        Ok(Request::Peers(request))
    }

    pub fn free(&mut self, group: Group) {
        let is_formed = match group.place {
            Place::Peers(_) => true,
            Place::Part(context) => self.parts.free(&mut self.job, context),
            Place::Job | Place::World => false,
        };
        if let (true, Place::Peers(context) | Place::Part(context), Some((network, _))) =
            (is_formed, group.place, &mut self.network)
        {
            network.groups.free(context);
            self.pump();
        }
    }

    pub fn send(&mut self, group: Group, to: u32, tag: u32, bytes: &[u8]) -> Result<Request, Error> {
        let (network, context) = self.peers(group)?;
        let request = network.groups.send_tagged(to, context, tag, bytes);
        self.pump();
        Ok(Request::Peers(request))
    }

    pub fn receive(&mut self, group: Group, from: u32, tag: u32) -> Result<Request, Error> {
        let (network, context) = self.peers(group)?;
        let request = network.groups.receive_tagged(from, context, tag);
        self.pump();
        Ok(Request::Peers(request))
    }

    /// The group that a split has made.
    pub fn group(&mut self, done: &Done) -> Option<Group> {
        let Done::Group(Some(context)) = done else { return None };
        if let Ok(part) = self.parts.get(*context) {
            return Some(Group { place: Place::Part(*context), rank: part.me, size: part.size() });
        }
        let (network, _) = self.network.as_ref()?;
        let shape = network.groups.shape(*context)?;
        Some(Group { place: Place::Peers(*context), rank: shape.me, size: shape.size })
    }

    /// Carries out what the groups want, without waiting. Returns whether the server has answered something.
    fn pump(&mut self) -> bool {
        let is_answered = self.take_addresses() | self.take_gathers();
        let Context { job, network, .. } = self;
        let Some((network, _)) = network else { return is_answered };
        network.pump();
        let wanted = network.take_wanted();
        if !wanted.is_empty() {
            // A rank is asked for once at a time: its number serves as the question's.
            let asked = wanted.into_iter().try_for_each(|rank| job.ask_address(rank, ADDRESS_NAME, rank));
            if asked.and_then(|()| Ok(job.server()?.flush()?)).is_err() {
                network.on_unanswered();
                network.pump();
            }
        }
        for (number, rank) in network.take_unanswered() {
            network.on_relay(number, job.relay(ADDRESS_NAME, rank, network.has_datagrams()));
            network.pump();
        }
        is_answered
    }

    /// Hands the server's answers about addresses to those who wait for them. Returns whether there were any.
    fn take_addresses(&mut self) -> bool {
        let answers = self.job.take_addresses();
        let is_answered = !answers.is_empty();
        for (id, address) in answers {
            match &mut self.network {
                Some((network, _)) if id < OWN_QUESTIONS => network.on_address(id, address),
                _ => self.addresses.on_answer(id & !OWN_QUESTIONS, address),
            }
        }
        is_answered
    }

    /// The same for collectives of groups.
    fn take_gathers(&mut self) -> bool {
        let all = self.job.take_gathers();
        let is_answered = !all.is_empty();
        for (id, gathered) in all {
            self.gathering -= 1;
            self.gathers.on_answer(id, gathered);
        }
        is_answered
    }

    /// Tells where this rank is reached in a network of the program's own, once under each name.
    pub fn set_address(&mut self, network: &[u8], address: &[u8]) -> Result<(), Error> {
        self.job.set_address(&in_programs(network), address).map_err(|code| match code {
            Code::INVALID_ARG => Error::Argument,
            code => Error::Server(code),
        })
    }

    /// Asks where a rank is reached in a network of the program's own.
    pub fn address(&mut self, network: &[u8], rank: u32) -> Result<Request, Error> {
        if rank >= self.job.size || network.len() > ADDRESS_NAME_LEN_MAX {
            return Err(Error::Argument);
        }
        let name = in_programs(network);
        let id = self.addresses.begin();
        if self.job.answers_questions() {
            let asked = self.job.ask_address(OWN_QUESTIONS | id, &name, rank);
            asked.and_then(|()| Ok(self.job.server()?.flush()?)).map_err(Error::Server)?;
        } else {
            let found = self.job.look_up_address(&name, rank).map_err(Error::Server)?;
            self.addresses.on_answer(id, found);
        }
        Ok(Request::Address(id))
    }

    /// Starts to make a plain TCP connection to another rank, which does the same. The result is the descriptor's bytes.
    pub fn connect(&mut self, rank: u32) -> Result<Request, Error> {
        if rank >= self.job.size || rank == self.job.rank {
            return Err(Error::Argument);
        }
        let (network, world) = self.network()?;
        let key = network.connect(*world, rank).ok_or(Error::Argument)?;
        self.pump();
        Ok(Request::Connection(key))
    }

    /// Why an operation of a group has failed.
    fn failure(&self, failure: Failure) -> Error {
        match failure {
            Failure::Lost { rank } if self.network.as_ref().is_some_and(|(network, _)| network.is_misfit(rank)) => {
                Error::Mismatch
            }
            failure => Error::Group(failure),
        }
    }

    /// Does what is possible without waiting.
    pub fn progress(&mut self) {
        self.progress_for(0);
    }

    /// The same, and waits for at most `ms` milliseconds (negative: without limit) if nothing is possible. The server's answers are taken in
    /// any case: otherwise its descriptor would stay readable, and waits would not wait.
    fn progress_for(&mut self, ms: c_int) {
        let ms = if self.pump() { 0 } else { ms };
        let Context { job, network, .. } = self;
        let Some((network, _)) = network else {
            if let (Ok(server), true) = (job.server(), ms != 0) {
                server.socket().await_input(ms);
            }
            job.take_answers();
            self.take_addresses();
            self.take_gathers();
            return;
        };
        if network.progress(ms)
            && !job.take_answers()
            && let Ok(server) = job.server()
        {
            network.forget_server(server.socket().fd());
            network.on_unanswered();
        }
        self.pump();
    }

    /// Whether a request is over.
    pub fn test(&mut self, request: &Request) -> bool {
        self.progress();
        self.is_over(request)
    }

    /// The same, without progress. One that has failed is over.
    fn is_over(&mut self, request: &Request) -> bool {
        match request {
            Request::Server { id, .. } => self.job.is_over(*id) != Ok(false),
            Request::Peers(request) => self.network.as_ref().is_none_or(|(network, _)| network.is_done(*request)),
            Request::Gather { id, .. } => self.gathers.is_over(*id) || self.is_unserved(),
            Request::Address(id) => self.addresses.is_over(*id) || self.is_unserved(),
            Request::Connection(key) => self.network.as_mut().is_none_or(|(network, _)| network.plain().is_over(*key)),
        }
    }

    /// Whether the server answers no more.
    fn is_unserved(&mut self) -> bool {
        self.job.server().is_ok_and(|server| server.link.is_broken())
    }

    /// Waits for at most `ms` milliseconds (negative: without limit), and takes the result.
    ///
    /// # Errors
    /// [`Error::TimedOut`]: the request goes on. Otherwise it is over.
    pub fn wait(&mut self, request: &Request, ms: c_int) -> Result<Done, Error> {
        // Nothing else is to be done meanwhile: the server's answer is read where it is taken.
        let is_alone = self.network.is_none() && ms < 0;
        if !(is_alone && matches!(request, Request::Server { .. })) {
            self.wait_any(&[request], ms)?;
        }
        self.take(request)
    }

    /// Waits until one of these is over; its place among them. Fails as [`Context::wait`] does.
    pub fn wait_any(&mut self, requests: &[&Request], ms: c_int) -> Result<usize, Error> {
        let until = u64::try_from(ms).ok().map(|ms| now_ms() + ms);
        // Every call does what is possible, also one that need not wait.
        let mut limit = if self.first_over(requests).is_some() { 0 } else { ms };
        loop {
            self.progress_for(limit);
            if let Some(at) = self.first_over(requests) {
                return Ok(at);
            }
            let left = until.map(|until| until.saturating_sub(now_ms()));
            if left == Some(0) {
                return Err(Error::TimedOut);
            }
            limit = left.map_or(-1, |left| c_int::try_from(left).unwrap_or(c_int::MAX));
        }
    }

    fn first_over(&mut self, requests: &[&Request]) -> Option<usize> {
        requests.iter().position(|request| self.is_over(request))
    }

    fn take(&mut self, request: &Request) -> Result<Done, Error> {
        match request {
            Request::Server { id, then } => match &**then {
                Then::Finish(operation) => agents::finish(&mut self.job, *id, operation),
                Then::Divide { wanted, of } => {
                    let members = agents::finish_split(&mut self.job, *id, wanted)?;
                    self.make(*of, &members).map(Done::Group)
                }
            },
            Request::Gather { id, context, place, then } => {
                let gathered = self.gathers.take(*id).unwrap_or(Err(Code::FAIL)).map_err(Error::Server)?;
                match &**then {
                    Then::Finish(operation) => agents::finish_gather(&gathered, operation, *place),
                    Then::Divide { wanted, of } => {
                        let members =
                            agents::members(&agents::gathered(&gathered, place.1)?, wanted).ok_or(Error::Mismatch)?;
                        let ranks = self.parts.get(*context)?.ranks();
                        let ranks: Vec<u32> = members.into_iter().map(|member| ranks[member as usize]).collect();
                        self.make(*of, &ranks).map(Done::Group)
                    }
                }
            }
            Request::Peers(request) => {
                let done = self.network.as_mut().and_then(|(network, _)| network.take_done(*request));
                done.ok_or(Error::Argument)?.map_err(|failure| self.failure(failure))
            }
            Request::Address(id) => match self.addresses.take(*id) {
                Some(address) => address.map(Done::Bytes).ok_or(Error::NotFound),
                None => Err(Error::Server(Code::FAIL)),
            },
            Request::Connection(key) => {
                let made = self.network.as_mut().and_then(|(network, _)| network.plain().take(*key));
                let socket = made.ok_or(Error::Argument)?.map_err(|_| self.failure(Failure::Lost { rank: key.0 }))?;
                let fd = socket.into_blocking().map_err(|error| Error::System(error.0))?;
                Ok(Done::Bytes(fd.to_ne_bytes().into()))
            }
        }
    }

    /// Waits for an allgather of values of one length, and takes the rows where they are. Fails as [`Context::wait`] does.
    pub fn view(&mut self, request: &Request, ms: c_int) -> Result<View, Error> {
        self.wait_any(&[request], ms)?;
        let array = match request {
            Request::Server { id, .. } if self.job.answers_questions() => match self.job.collect(*id) {
                Ok(Gathered::Array(values)) => Ok(View::Job(values)),
                Ok(Gathered::Pairs { .. }) => Err(Error::Mismatch),
                Err(code) => Err(Error::Server(code)),
            },
            Request::Gather { id, .. } => {
                let gathered = self.gathers.take(*id).unwrap_or(Err(Code::FAIL));
                gathered.map(View::Group).map_err(Error::Server)
            }
            Request::Server { .. } | Request::Peers(_) | Request::Address(_) | Request::Connection(_) => {
                let Done::Rows(rows) = self.take(request)? else { return Err(Error::Mismatch) };
                return Ok(View::Own(rows.concat()));
            }
        }?;
        Ok(array)
    }

    /// The result is not wanted.
    pub fn forget(&mut self, request: &Request) {
        match request {
            // The other ranks wait for this one's part in any case.
            Request::Server { .. } => {}
            Request::Gather { id, .. } => self.gathers.forget(*id),
            Request::Address(id) => self.addresses.forget(*id),
            Request::Connection(key) => {
                if let Some((network, _)) = &mut self.network {
                    network.plain().forget(*key);
                }
            }
            Request::Peers(request) => {
                if let Some((network, _)) = &mut self.network {
                    network.forget(*request);
                }
            }
        }
    }

    /// Publishes the pairs that the ranks have put. The connections go on meanwhile: another rank may wait, before its own fence, for
    /// something that this one must send again.
    ///
    /// Where the server does not wait for all ranks, their gets do, and a rank makes no progress in a get. So the ranks wait here.
    pub fn fence(&mut self) -> Result<(), Error> {
        let id = self.job.start_fence();
        if let (Some(fences), Some((network, _))) = (self.fences, &mut self.network) {
            let barrier = Request::Peers(network.groups.start(fences, Box::new(Barrier::default())));
            self.wait(&barrier, -1)?;
        }
        let request = Request::Server { id, then: Box::new(Then::Finish(Operation::Barrier)) };
        self.wait(&request, -1).map(drop)
    }

    /// Leaves the job; returns it, for the goodbye to its server.
    pub fn leave(mut self) -> Job {
        /// How long the goodbyes to other ranks may take (ms).
        const GOODBYE_MS_MAX: u64 = 1_000;
        self.pump();
        while self.gathering > 0 && !self.is_unserved() {
            self.progress_for(-1);
        }
        while self.network.as_ref().is_some_and(|(network, _)| network.has_waiting()) {
            self.progress_for(-1);
        }
        if let Some((network, _)) = &mut self.network {
            // What the server says is read below; until then its descriptor would stay readable.
            if let Ok(server) = self.job.server() {
                network.forget_server(server.socket().fd());
            }
            network.leave(GOODBYE_MS_MAX);
        }
        self.job.finish_all();
        self.job
    }
}

/// The name of a network of the program's own: never that of this library.
fn in_programs(network: &[u8]) -> Vec<u8> {
    [b".", network].concat()
}
