//! A process's view of its job: its groups, its key-value pairs, and the results of the operations that it has started.

use crate::agents::{self, AgentGroups};
use crate::error::Error;
use crate::network::{Network, Transport};
use crate::operation::{Operation, Request, Then, View};
use crate::runs::{listed, rank_at, runs};
use crate::start::{LazyNetwork, Start};
use crate::worker::Worker;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ffi::c_int;
use wireup_capi::clique::{node, ranks_across, ranks_beside};
use wireup_capi::codes::Code;
use wireup_capi::job::{Gathered, Job, MAX_LEN};
use wireup_capi::net::host_number;
use wireup_group::algorithms::{Allgather, Allreduce, Alltoall, Barrier, Broadcast, Prefix, Shift, Wanted};
use wireup_group::{Algorithm, Context as GroupContext, Done, Groups, derived};
use wireup_wire::pmi::Request as PmiRequest;
use wireup_wire::values;

/// Maximum size of a group whose split collects the keys and colours of all members in each rank, if nothing else is
/// chosen. Chosen for the memory: with about 64 bytes for each member, a rank needs 1 MiB during the split. The ranks'
/// own split needs memory in proportion to log P, but is slower: it has 3 log² P steps.
pub const SPLIT_GATHER_MAX: u32 = 16_384;

/// The processes that exchange the data of a group's collectives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// The server of the job exchanges the data: wireup's agents, or another launcher's server.
    Agents,
    /// The ranks exchange the data among themselves.
    Peers,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    kind: GroupKind,
    pub rank: u32,
    pub size: u32,
}

impl Group {
    /// The group's context, if the agents carry out its collectives.
    fn agents_context(self) -> Option<GroupContext> {
        if let GroupKind::Agents(context) = self.kind { Some(context) } else { None }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GroupKind {
    /// The whole job; its server carries out the collectives.
    Job,
    /// The whole job; the ranks carry out the collectives.
    World,
    Peers(GroupContext),
    /// A group whose collectives the agents carry out; other operations use the ranks' network.
    Agents(GroupContext),
}

/// Starts requests and returns their results; `worker` makes progress on them.
pub struct Context {
    pub worker: Worker,
    /// See [`SPLIT_GATHER_MAX`]; the same on all ranks.
    pub split_gather_max: u32,
    engine: Engine,
    agent_groups: AgentGroups,
    /// Key-value pairs of a secondary library in this process, which the job's server does not keep.
    pairs: Pairs,
}

impl Context {
    /// `engine`: the engine of the group of all ranks; `None`: the agents if the server is wireup's, otherwise the
    /// ranks themselves.
    ///
    /// # Errors
    /// With [`Engine::Peers`], the connections could not be made.
    pub fn new(job: Job, engine: Option<Engine>, start: Start, transport: Transport) -> Result<Context, Error> {
        if !job.name.is_empty() && job.answers_questions() && start != Start::Auto {
            // The other ways to start need allgathers of the whole job, which only the library with the inherited PMI
            // socket can use.
            return Err(Error::Argument);
        }
        let best = if job.collectives.own.is_some() { Engine::Agents } else { Engine::Peers };
        let engine = engine.unwrap_or(best);
        let worker = Worker::new(job, LazyNetwork::new(start, transport));
        let (agent_groups, pairs) = (AgentGroups::default(), Pairs::default());
        let mut context = Context { worker, split_gather_max: SPLIT_GATHER_MAX, engine, agent_groups, pairs };
        if context.engine == Engine::Peers {
            context.worker.network()?;
        } else if let Some(whole) = context.whole() {
            let all = (0, context.worker.job.size - 1);
            context.agent_groups.define(&mut context.worker.job, whole, [all].into())?;
        }
        Ok(context)
    }

    pub fn world(&self) -> Group {
        let kind = match (self.engine, self.whole()) {
            (Engine::Peers, _) => GroupKind::World,
            (Engine::Agents, Some(whole)) => GroupKind::Agents(whole),
            (Engine::Agents, None) => GroupKind::Job,
        };
        Group { kind, rank: self.worker.job.rank, size: self.worker.job.size }
    }

    /// The context of the group of all ranks, if the server knows it as a group.
    fn whole(&self) -> Option<GroupContext> {
        let job = &self.worker.job;
        let is_part = self.worker.is_secondary() && self.engine == Engine::Agents && job.answers_questions();
        is_part.then(|| agents::named(&job.name))
    }

    pub fn engine(&self, group: Group) -> Engine {
        match group.kind {
            GroupKind::Job | GroupKind::Agents(_) => Engine::Agents,
            GroupKind::World | GroupKind::Peers(_) => Engine::Peers,
        }
    }

    /// Adds a key-value pair, which the next fence publishes.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if self.worker.is_secondary() {
            return self.pairs.put(key, value);
        }
        self.worker.job.put(key, value).map_err(Error::Server)
    }

    /// Passes the value of a published key to `take`; `false`: the key was not published.
    pub fn get(&mut self, key: &[u8], take: &mut dyn FnMut(&[u8])) -> Result<bool, Error> {
        if self.worker.is_secondary() {
            let found = self.pairs.get(key);
            found.into_iter().for_each(&mut *take);
            return Ok(found.is_some());
        }
        self.worker.job.get(&[], -1, key, take).map_err(Error::Server)
    }

    /// Publishes the pairs that the ranks have put. This rank's connections make progress meanwhile: another rank may
    /// wait, before its own fence, for a message that this one must retransmit.
    ///
    /// Some servers complete a fence before all ranks have started it, and make gets wait instead; a rank makes no
    /// progress on its connections during a get. With these servers, the ranks wait for each other here.
    pub fn fence(&mut self) -> Result<(), Error> {
        if self.worker.is_secondary() {
            return self.exchange_pairs();
        }
        let id = self.worker.job.start_fence();
        let lazy_network = &mut self.worker.lazy_network;
        if let (Some(fences), Some(network)) = (lazy_network.fences, lazy_network.made_mut()) {
            let barrier = Request::Peers(network.groups.start(fences, Box::new(Barrier::default())));
            self.wait(&barrier, -1)?;
        }
        let request = Request::Server { id, then: Box::new(Then::Finish(Operation::Barrier)) };
        self.wait(&request, -1).map(drop)
    }

    /// Exchanges the pairs that the ranks have put since the last exchange.
    fn exchange_pairs(&mut self) -> Result<(), Error> {
        let bytes = core::mem::take(&mut self.pairs.put);
        let operation = Operation::Allgather { bytes, len_max: MAX_LEN, in_memory: false };
        let request = self.start(self.world(), operation)?;
        let Done::Rows(rows) = self.wait(&request, -1)? else { return Err(Error::Mismatch) };
        rows.iter().try_for_each(|put| self.pairs.learn(put))
    }

    /// Waits for at most `ms` milliseconds (negative: without limit), and returns the result.
    ///
    /// # Errors
    /// [`Error::TimedOut`]: the request continues. After any other error it has ended.
    pub fn wait(&mut self, request: &Request, ms: c_int) -> Result<Done, Error> {
        // Without a network there is nothing else to make progress on: `take_done` waits for the server's answer.
        let is_alone = self.worker.lazy_network.made().is_none() && ms < 0;
        if !(is_alone && matches!(request, Request::Server { .. })) {
            self.worker.wait_any(&[request], ms)?;
        }
        self.take_done(request)
    }

    fn take_done(&mut self, request: &Request) -> Result<Done, Error> {
        let Context { worker, agent_groups, .. } = self;
        match request {
            Request::Server { id, then } => match &**then {
                Then::Finish(operation) => agents::finish(&mut worker.job, *id, operation),
                Then::Divide { wanted, of } => {
                    let members = agents::finish_split(&mut worker.job, *id, wanted)?;
                    self.make(*of, &members).map(Done::Group)
                }
            },
            Request::Gather { id, context, place, then } => {
                let gathered = worker.take_gather(*id)?;
                match &**then {
                    Then::Finish(operation) => agents::finish_gather(&gathered, operation, *place),
                    Then::Divide { wanted, of } => {
                        let members = agents::members(&agents::gathered(&gathered, place.1)?, wanted)?;
                        let runs = &agent_groups.get(*context)?.runs;
                        let ranks: Vec<u32> = members.iter().filter_map(|member| rank_at(runs, *member)).collect();
                        self.make(*of, &ranks).map(Done::Group)
                    }
                }
            }
            Request::Peers(request) => {
                let done = worker.take_done(*request)?;
                self.adopt(&done)?;
                Ok(done)
            }
            Request::Address(id) => worker.take_address(*id),
            Request::Connection(key) => worker.take_connection(*key),
        }
    }

    /// Waits for an allgather of values of one length, and returns the rows without copying them where possible. Fails
    /// as [`Context::wait`] does.
    pub fn view(&mut self, request: &Request, ms: c_int) -> Result<View, Error> {
        self.worker.wait_any(&[request], ms)?;
        match request {
            Request::Server { id, .. } if self.worker.job.answers_questions() => match self.worker.job.collect(*id) {
                Ok(Gathered::Array(values)) => Ok(View::Job(values)),
                Ok(Gathered::Pairs { .. }) => Err(Error::Mismatch),
                Err(code) => Err(Error::Server(code)),
            },
            Request::Gather { id, .. } => self.worker.take_gather(*id).map(View::Group),
            Request::Server { .. } | Request::Peers(_) | Request::Address(_) | Request::Connection(_) => {
                let Done::Rows(rows) = self.take_done(request)? else { return Err(Error::Mismatch) };
                Ok(View::Own(rows.concat()))
            }
        }
    }

    fn peers(&mut self, group: Group) -> Result<(&mut Network, GroupContext), Error> {
        let unformed = match group.kind {
            GroupKind::Agents(context) => self.agent_groups.get(context)?.unformed(),
            GroupKind::Job | GroupKind::World | GroupKind::Peers(_) => None,
        };
        let (network, world) = self.worker.network()?;
        let context = match group.kind {
            GroupKind::Job | GroupKind::World => *world,
            GroupKind::Peers(context) | GroupKind::Agents(context) => context,
        };
        if let Some(runs) = unformed {
            network.form_group(context, &runs);
        }
        Ok((network, context))
    }

    /// Starts a request of a group in the network of ranks.
    fn start_among_peers(
        &mut self,
        group: Group,
        start: impl FnOnce(&mut Groups, GroupContext) -> wireup_group::Request,
    ) -> Result<Request, Error> {
        let (network, context) = self.peers(group)?;
        let request = start(&mut network.groups, context);
        self.worker.pump();
        Ok(Request::Peers(request))
    }

    /// Whether the agents carry out collectives of groups, rather than only those of the whole job.
    fn has_agent_groups(&self) -> bool {
        self.engine == Engine::Agents
            && self.worker.lazy_network.start == Start::Auto
            && self.worker.job.answers_questions()
    }

    /// Makes a group of these ranks, each of which must call this; returns `None` if `ranks` is empty.
    fn make(&mut self, (of, child): (GroupContext, u32), ranks: &[u32]) -> Result<Option<GroupContext>, Error> {
        let Some(first) = ranks.first() else { return Ok(None) };
        let context = derived(of, child, *first);
        if let Some(runs) = runs(ranks) {
            self.agent_groups.define(&mut self.worker.job, context, runs)?;
        } else {
            self.worker.network()?.0.form_group(context, &listed(ranks));
            self.worker.pump();
        }
        Ok(Some(context))
    }

    /// Lets the agents carry out the collectives of a group that the ranks have made by a split, if they can: if its
    /// members are consecutive ranks, which each of them knows without a list.
    fn adopt(&mut self, done: &Done) -> Result<(), Error> {
        let (true, Done::Group(Some(context))) = (self.has_agent_groups(), done) else { return Ok(()) };
        let Context { worker: Worker { job, lazy_network, .. }, agent_groups, .. } = self;
        let groups = lazy_network.made().map(|network| &network.groups);
        match groups.and_then(|groups| groups.shape(*context)).filter(|shape| shape.is_consecutive) {
            Some(shape) => {
                let place = (shape.me, shape.size);
                // If the server refuses, the caller gets an error and no group that it could free.
                agent_groups.adopt(job, *context, place).inspect_err(|_| {
                    lazy_network.made_mut().into_iter().for_each(|network| network.groups.free(*context));
                })
            }
            None => Ok(()),
        }
    }

    fn gather(&mut self, context: GroupContext, value: &[u8], then: Then) -> Result<Request, Error> {
        let group = self.agent_groups.get(context)?;
        self.worker.gather((context, group.number, (group.me, group.size())), value, then)
    }

    pub fn start(&mut self, group: Group, operation: Operation) -> Result<Request, Error> {
        if !operation.is_sound(group.size) {
            return Err(Error::Argument);
        }
        if group.kind == GroupKind::Job
            && let Some(id) = agents::start(&mut self.worker.job, &operation)
        {
            return Ok(Request::Server { id, then: Box::new(Then::Finish(operation)) });
        }
        if let GroupKind::Agents(context) = group.kind
            && let Some((own, len_max)) = agents::contribution(&operation, group.rank)
            && len_max <= MAX_LEN
        {
            let own = own.to_vec();
            return self.gather(context, &own, Then::Finish(operation));
        }
        let algorithm: Box<dyn Algorithm> = match operation {
            Operation::Barrier => Box::new(Barrier::default()),
            Operation::Broadcast { root, bytes } => Box::new(Broadcast::new(root, bytes)),
            Operation::Allgather { bytes, .. } => Box::new(Allgather::new(bytes)),
            Operation::Allreduce { reduce, bytes } => Box::new(Allreduce::new(reduce, bytes)),
            Operation::Prefix { reduce, bytes, is_exclusive } => Box::new(Prefix::new(reduce, bytes, is_exclusive)),
            Operation::Alltoall(rows) => Box::new(Alltoall::new(rows)),
            Operation::Shift(bytes) => Box::new(Shift::new(bytes)),
        };
        self.start_among_peers(group, |groups, context| groups.start(context, algorithm))
    }

    pub fn split(&mut self, group: Group, wanted: Wanted) -> Result<Request, Error> {
        // All members choose alike: the size is the same for all.
        if group.size > self.split_gather_max {
            return self.start_among_peers(group, |groups, context| groups.split(context, wanted));
        }
        if let GroupKind::Agents(context) = group.kind {
            let of = self.agent_groups.origin(group.agents_context())?;
            return self.gather(context, &agents::told(&wanted), Then::Divide { wanted, of });
        }
        if group.kind == GroupKind::Job && self.has_agent_groups() {
            // One exchange of all keys and colours by the server tells every rank the members of its group.
            let of = self.agent_groups.origin(group.agents_context())?;
            let id = self.worker.job.start_allgather(&agents::told(&wanted), agents::SPLIT_LEN_MAX, false);
            return Ok(Request::Server { id, then: Box::new(Then::Divide { wanted, of }) });
        }
        self.start_among_peers(group, |groups, context| groups.split(context, wanted))
    }

    /// The group of the ranks on this process's node. All ranks must call it, and it waits for them.
    pub fn node(&mut self) -> Result<Group, Error> {
        if let Some(group) = self.placed(ranks_beside)? {
            return Ok(group);
        }
        let colour = self.node_name()?;
        let world = self.world();
        self.divided(world, Wanted { colour: Some(colour), key: 0 })
    }

    /// The group of the ranks with the same number on their nodes; those with number 0 are their nodes' leaders. All
    /// ranks must call it, and it waits for them.
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

    /// A group whose ranks every member computes by itself from the process mapping; `None`: the members cannot be
    /// computed.
    fn placed(&mut self, choose: fn(&[u8], u32, u32) -> Option<Vec<u32>>) -> Result<Option<Group>, Error> {
        let (rank, size) = (self.worker.job.rank, self.worker.job.size);
        if !self.has_agent_groups() && !self.worker.network()?.0.book.has_all() {
            return Ok(None);
        }
        let Some(ranks) = self.mapping()?.and_then(|mapping| choose(&mapping, rank, size)) else { return Ok(None) };
        let context = if self.has_agent_groups() {
            let of = self.agent_groups.origin(self.whole())?;
            self.make(of, &ranks)?
        } else {
            let (network, world) = self.worker.network()?;
            let number = network.groups.reserve(*world).map_err(Error::Group)?;
            let context = derived(*world, number, ranks.first().copied().unwrap_or_default());
            network.form_group(context, &listed(&ranks));
            self.worker.pump();
            Some(context)
        };
        self.group(&Done::Group(context)).ok_or(Error::Mismatch).map(Some)
    }

    /// The job's attribute `PMI_process_mapping`; `None`: the server has none.
    fn mapping(&mut self) -> Result<Option<Vec<u8>>, Error> {
        match self.worker.job.look_up(&PmiRequest::GetJobAttr { key: b"PMI_process_mapping" }) {
            Ok(mapping) => Ok(mapping),
            // The server has no job attributes, or this process is a singleton.
            Err(Code::OTHER | Code::FAIL) => Ok(None),
            Err(code) => Err(Error::Server(code)),
        }
    }

    /// A name for this rank's node, equal on all ranks of the node and on no others.
    fn node_name(&mut self) -> Result<Vec<u8>, Error> {
        let rank = self.worker.job.rank;
        let mapping = self.mapping()?;
        let node = mapping.and_then(|mapping| node(&mapping, rank)).map(|node| node.to_be_bytes().to_vec());
        Ok(node.unwrap_or_else(|| host_number().to_be_bytes().to_vec()))
    }

    fn divided(&mut self, group: Group, wanted: Wanted) -> Result<Group, Error> {
        let request = self.split(group, wanted)?;
        let done = self.wait(&request, -1)?;
        self.group(&done).ok_or(Error::Mismatch)
    }

    /// Makes a group with the same members; messages of the two groups are never confused.
    pub fn duplicate(&mut self, group: Group) -> Result<Group, Error> {
        if self.has_agent_groups() && matches!(group.kind, GroupKind::Job | GroupKind::Agents(_)) {
            let runs = match group.kind {
                GroupKind::Agents(context) => self.agent_groups.get(context)?.runs.clone(),
                GroupKind::Job | GroupKind::World | GroupKind::Peers(_) => [(0, group.size - 1)].into(),
            };
            let (of, child) = self.agent_groups.origin(group.agents_context())?;
            let context = derived(of, child, u32::MAX);
            self.agent_groups.define(&mut self.worker.job, context, runs)?;
            return Ok(Group { kind: GroupKind::Agents(context), ..group });
        }
        let (network, context) = self.peers(group)?;
        let context = network.groups.duplicate(context).map_err(Error::Group)?;
        Ok(Group { kind: GroupKind::Peers(context), ..group })
    }

    /// Makes a group of these members of `of`, in this order. Exactly these members must call it, with the same list
    /// and name.
    pub fn create(&mut self, of: Group, members: &[u32], name: &[u8]) -> Result<Request, Error> {
        self.start_among_peers(of, |groups, context| groups.create(context, members, name))
    }

    pub fn free(&mut self, group: Group) {
        let is_formed = match group.kind {
            GroupKind::Peers(_) => true,
            GroupKind::Agents(context) if Some(context) == self.whole() => false,
            GroupKind::Agents(context) => self.agent_groups.free(&mut self.worker.job, context),
            GroupKind::Job | GroupKind::World => false,
        };
        if let (true, GroupKind::Peers(context) | GroupKind::Agents(context), Some(network)) =
            (is_formed, group.kind, self.worker.lazy_network.made_mut())
        {
            network.groups.free(context);
            self.worker.pump();
        }
    }

    pub fn send(&mut self, group: Group, to: u32, tag: u32, bytes: &[u8]) -> Result<Request, Error> {
        self.start_among_peers(group, |groups, context| groups.send_tagged(to, context, tag, bytes))
    }

    pub fn receive(&mut self, group: Group, from: u32, tag: u32) -> Result<Request, Error> {
        self.start_among_peers(group, |groups, context| groups.receive_tagged(from, context, tag))
    }

    /// The group that an operation has made; `None`: it has made none.
    pub fn group(&mut self, done: &Done) -> Option<Group> {
        let Done::Group(Some(context)) = done else { return None };
        if let Ok(group) = self.agent_groups.get(*context) {
            return Some(Group { kind: GroupKind::Agents(*context), rank: group.me, size: group.size() });
        }
        let shape = self.worker.lazy_network.made()?.groups.shape(*context)?;
        Some(Group { kind: GroupKind::Peers(*context), rank: shape.me, size: shape.size })
    }
}

/// The key-value pairs of a secondary library in a process: put locally, exchanged by an allgather, and held by every
/// rank.
#[derive(Default)]
struct Pairs {
    /// Pairs put since the last fence: keys and values in turn.
    put: Vec<u8>,
    known: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Pairs {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let len = values::encoded_len(key.len()) + values::encoded_len(value.len());
        if self.put.len() + len > MAX_LEN {
            return Err(Error::Argument);
        }
        [key, value].into_iter().for_each(|one| values::push(&mut self.put, one));
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.known.get(key).map(Vec::as_slice)
    }

    fn learn(&mut self, put: &[u8]) -> Result<(), Error> {
        let mut all = values::values(put);
        while let Some(key) = all.next() {
            let (Ok(key), Some(Ok(value))) = (key, all.next()) else { return Err(Error::Mismatch) };
            self.known.insert(key.to_vec(), value.to_vec());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_learnt_and_too_much_is_refused() {
        let (mut here, mut there) = (Pairs::default(), Pairs::default());
        here.put(b"a", b"1").unwrap();
        here.put(b"b", b"").unwrap();
        here.put(b"a", b"2").unwrap();
        there.learn(&here.put).unwrap();
        assert_eq!((there.known[&b"a"[..]].as_slice(), there.known[&b"b"[..]].as_slice()), (&b"2"[..], &b""[..]));
        assert_eq!(here.put(b"c", &[0; MAX_LEN]), Err(Error::Argument));
        assert_eq!(there.learn(&here.put[..3]), Err(Error::Mismatch));
    }
}
