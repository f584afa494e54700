//! A process's place in its job, its groups, and what it has started.

use crate::agents;
use crate::network::{Network, Transport};
use crate::start::{self, Phases, Start};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::c_int;
use core::net::SocketAddr;
use wireup_capi::clique::node;
use wireup_capi::codes::Code;
use wireup_capi::job::{Endpoints, Job};
use wireup_capi::net::{host_number, now_ms};
use wireup_client::requests::Id;
use wireup_group::algorithms::{Allgather, Allreduce, Alltoall, Barrier, Broadcast, Prefix, Shift, Wanted};
use wireup_group::reduce::Reduce;
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// The whole job, by its server.
    Job,
    /// The whole job, by the ranks.
    World,
    Peers(wireup_group::Context),
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

/// A collective. Every member of a group starts the same ones in the same order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    Barrier,
    /// `bytes` are the root's; those of others have the same length and are ignored.
    Broadcast {
        root: u32,
        bytes: Vec<u8>,
    },
    /// No member has more than `len_max` bytes.
    Allgather {
        bytes: Vec<u8>,
        len_max: usize,
    },
    Allreduce {
        reduce: Reduce,
        bytes: Vec<u8>,
    },
    Prefix {
        reduce: Reduce,
        bytes: Vec<u8>,
        is_exclusive: bool,
    },
    /// A row for each member.
    Alltoall(Vec<Vec<u8>>),
    /// To the right neighbour, from the left one.
    Shift(Vec<u8>),
}

/// What a request of the server ends with.
#[derive(Debug)]
pub enum Then {
    Finish(Operation),
    /// The whole job is divided: the group's number in that of all.
    Divide {
        wanted: Wanted,
        of: (wireup_group::Context, u32),
    },
}

/// Something that was started. Its result is taken once.
#[derive(Debug)]
pub enum Request {
    Server { id: Id, then: Box<Then> },
    Peers(wireup_group::Request),
}

pub struct Context {
    job: Job,
    engine: Engine,
    start: Start,
    /// Where all ranks listen, if the server knows; asked once.
    book: Option<Option<Arc<Endpoints>>>,
    transport: Transport,
    connections_max: Option<usize>,
    /// The connections between ranks, and the group of all.
    network: Option<(Network, wireup_group::Context)>,
    /// The same ranks, for the fences of a server that answers them before all ranks have started theirs.
    fences: Option<wireup_group::Context>,
    phases: Phases,
}

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
            network: None,
            fences: None,
            phases: Phases::default(),
        };
        if context.engine == Engine::Peers {
            context.network()?;
        }
        Ok(context)
    }

    /// From now on connections are closed when more than so many are open, the least recently used first, but not while somebody waits for a
    /// message over them.
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
        if group.place == Place::Job { Engine::Agents } else { Engine::Peers }
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

    /// The network of ranks. The first call waits for all ranks.
    fn network(&mut self) -> Result<&mut (Network, wireup_group::Context), Error> {
        if self.network.is_none() {
            // The server's sockets are those of TCP.
            let is_known = self.start == Start::Auto && self.transport == Transport::Tcp;
            let book = if is_known { self.book()? } else { None };
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

    /// Where all ranks listen, if the server has given them sockets; waits until those of all nodes are bound.
    fn book(&mut self) -> Result<Option<Arc<Endpoints>>, Error> {
        if let Some(book) = &self.book {
            return Ok(book.clone());
        }
        let book = self.job.endpoints().map_err(Error::Server)?.map(Arc::new);
        Ok(self.book.insert(book).clone())
    }

    /// The socket that the server has given this rank; `None`: it has given none, or the network uses it.
    pub fn listening(&mut self) -> Result<Option<c_int>, Error> {
        let is_free = self.start != Start::Auto || self.transport != Transport::Tcp;
        Ok(self.book()?.filter(|_| is_free).and_then(|book| book.listening()))
    }

    /// Where a rank's socket of the server listens, best first; `None`: the server has given none, or there is no such rank.
    pub fn listens_at(&mut self, rank: u32) -> Result<Option<Vec<SocketAddr>>, Error> {
        let own = self.job.rank;
        let Some(book) = self.book()? else { return Ok(None) };
        let host = book.address(own).as_deref().and_then(rank_address::host);
        let address = book.address(rank).zip(host);
        Ok(address.map(|(address, host)| rank_address::candidates(&address, host)))
    }

    fn peers(&mut self, group: Group) -> Result<(&mut Network, wireup_group::Context), Error> {
        let (network, world) = self.network()?;
        let context = match group.place {
            Place::Job | Place::World => *world,
            Place::Peers(context) => context,
        };
        Ok((network, context))
    }

    /// Starts a collective.
    pub fn start(&mut self, group: Group, operation: Operation) -> Result<Request, Error> {
        if !is_sound(&operation, group) {
            return Err(Error::Argument);
        }
        if group.place == Place::Job
            && let Some(id) = agents::start(&mut self.job, &operation)
        {
            return Ok(Request::Server { id, then: Box::new(Then::Finish(operation)) });
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
        network.pump();
        Ok(Request::Peers(request))
    }

    /// Divides a group.
    pub fn split(&mut self, group: Group, wanted: Wanted) -> Result<Request, Error> {
        let is_by_server = group.place == Place::Job;
        let (network, context) = self.peers(group)?;
        if is_by_server && network.has_book() {
            // One exchange by the server tells every rank who is in its group.
            let of = (context, network.groups.reserve(context).map_err(Error::Group)?);
            let id = agents::start_split(&mut self.job, &wanted);
            return Ok(Request::Server { id, then: Box::new(Then::Divide { wanted, of }) });
        }
        let request = network.groups.split(context, wanted);
        network.pump();
        Ok(Request::Peers(request))
    }

    /// The ranks of this process's node. All ranks must call it, and it waits for them.
    pub fn node(&mut self) -> Result<Group, Error> {
        let rank = self.job.rank;
        if let Some(group) = self.part(|book| book.beside(rank))? {
            return Ok(group);
        }
        let colour = self.node_name()?;
        let world = self.world();
        self.divided(world, Wanted { colour: Some(colour), key: 0 })
    }

    /// The ranks with the same number on their nodes: those with number 0 are their nodes' leaders. All ranks must call it, and it waits
    /// for them.
    pub fn leaders(&mut self) -> Result<Group, Error> {
        let rank = self.job.rank;
        if let Some(group) = self.part(|book| book.across(rank))? {
            return Ok(group);
        }
        let node = self.node()?;
        let world = self.world();
        let leaders = self.divided(world, Wanted { colour: Some(node.rank.to_be_bytes().into()), key: 0 });
        self.free(node);
        leaders
    }

    /// A group of ranks that every member finds by itself; `None`: it cannot.
    fn part(&mut self, choose: impl FnOnce(&Endpoints) -> Vec<u32>) -> Result<Option<Group>, Error> {
        let (network, world) = self.network()?;
        if !network.has_book() {
            return Ok(None);
        }
        let of = (*world, network.groups.reserve(*world).map_err(Error::Group)?);
        let context = network.part(of, choose);
        network.pump();
        self.group(&Done::Group(context)).ok_or(Error::Mismatch).map(Some)
    }

    /// The same on the ranks of a node, and nowhere else.
    fn node_name(&mut self) -> Result<Vec<u8>, Error> {
        let rank = self.job.rank;
        let mapping = match self.job.look_up(&PmiRequest::GetJobAttr { key: b"PMI_process_mapping" }) {
            Ok(mapping) => mapping,
            // A server without job attributes, or a singleton.
            Err(Code::OTHER | Code::FAIL) => None,
            Err(code) => return Err(Error::Server(code)),
        };
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
        let (network, context) = self.peers(group)?;
        let context = network.groups.duplicate(context).map_err(Error::Group)?;
        Ok(Group { place: Place::Peers(context), ..group })
    }

    /// Makes a group of these members of another one, in this order. They call it with the same list and name, and nobody else calls it.
    pub fn create(&mut self, of: Group, members: &[u32], name: &[u8]) -> Result<Request, Error> {
        let (network, context) = self.peers(of)?;
        let request = network.groups.create(context, members, name);
        network.pump();
        Ok(Request::Peers(request))
    }

    pub fn free(&mut self, group: Group) {
        if let (Place::Peers(context), Some((network, _))) = (group.place, &mut self.network) {
            network.groups.free(context);
            network.pump();
        }
    }

    pub fn send(&mut self, group: Group, to: u32, tag: u32, bytes: &[u8]) -> Result<Request, Error> {
        let (network, context) = self.peers(group)?;
        let request = network.groups.send_tagged(to, context, tag, bytes);
        network.pump();
        Ok(Request::Peers(request))
    }

    pub fn receive(&mut self, group: Group, from: u32, tag: u32) -> Result<Request, Error> {
        let (network, context) = self.peers(group)?;
        let request = network.groups.receive_tagged(from, context, tag);
        network.pump();
        Ok(Request::Peers(request))
    }

    /// The group that a split has made.
    pub fn group(&self, done: &Done) -> Option<Group> {
        let (Done::Group(Some(context)), Some((network, _))) = (done, &self.network) else { return None };
        let shape = network.groups.shape(*context)?;
        Some(Group { place: Place::Peers(*context), rank: shape.me, size: shape.size })
    }

    /// Does what is possible without waiting.
    pub fn progress(&mut self) {
        self.progress_for(0);
    }

    /// The same, and waits for at most `ms` milliseconds (negative: without limit) if nothing is possible. The server's answers are taken in
    /// any case: otherwise its descriptor would stay readable, and waits would not wait.
    fn progress_for(&mut self, ms: c_int) {
        let Context { job, network, .. } = self;
        let Some((network, _)) = network else {
            if let (Ok(server), true) = (job.server(), ms != 0) {
                server.socket().await_input(ms);
            }
            return;
        };
        if network.progress(ms)
            && !job.take_answers()
            && let Ok(server) = job.server()
        {
            network.forget_server(server.socket().fd());
        }
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
        }
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
                    let (network, _) = self.network.as_mut().ok_or(Error::Mismatch)?;
                    let context = network.part(*of, |_| members);
                    network.pump();
                    Ok(Done::Group(context))
                }
            },
            Request::Peers(request) => {
                let done = self.network.as_mut().and_then(|(network, _)| network.take_done(*request));
                done.ok_or(Error::Argument)?.map_err(Error::Group)
            }
        }
    }

    /// The result is not wanted.
    pub fn forget(&mut self, request: &Request) {
        match request {
            // The other ranks wait for this one's part in any case.
            Request::Server { .. } => {}
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

fn is_sound(operation: &Operation, group: Group) -> bool {
    match operation {
        Operation::Broadcast { root, .. } => *root < group.size,
        Operation::Allgather { bytes, len_max } => bytes.len() <= *len_max,
        Operation::Allreduce { reduce, bytes } | Operation::Prefix { reduce, bytes, .. } => {
            reduce.is_defined() && bytes.len().is_multiple_of(8)
        }
        Operation::Alltoall(rows) => rows.len() == group.size as usize,
        Operation::Barrier | Operation::Shift(_) => true,
    }
}
