//! Creates groups, and starts operations in them.

use super::{Context, Engine, Group, GroupKind};
use crate::agent_groups;
use crate::agents;
use crate::error::Error;
use crate::network::Network;
use crate::operation::{Operation, Request, Then};
use crate::start::Start;
use alloc::boxed::Box;
use alloc::vec::Vec;
use wireup_capi::clique::{node, ranks_across, ranks_beside};
use wireup_capi::codes::Code;
use wireup_capi::job::MAX_LEN;
use wireup_capi::net::host_number;
use wireup_group::algorithms::{Allgather, Allreduce, Alltoall, Barrier, Broadcast, Prefix, Shift, Wanted};
use wireup_group::{Algorithm, Done, Groups, derived};
use wireup_wire::pmi::Request as PmiRequest;

impl Context {
    fn peers(&mut self, group: Group) -> Result<(&mut Network, wireup_group::Context), Error> {
        let unformed = match group.kind {
            GroupKind::Agents(context) => self.agent_groups.get(context)?.unformed(),
            GroupKind::Job | GroupKind::World | GroupKind::Peers(_) => None,
        };
        let (network, world) = self.worker.network()?;
        let context = match group.kind {
            GroupKind::Job | GroupKind::World => *world,
            GroupKind::Peers(context) | GroupKind::Agents(context) => context,
        };
        if let Some(ranks) = unformed {
            network.form_group(context, &ranks);
        }
        Ok((network, context))
    }

    /// Starts a request of a group in the network of ranks.
    fn start_among_peers(
        &mut self,
        group: Group,
        start: impl FnOnce(&mut Groups, wireup_group::Context) -> wireup_group::Request,
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
    pub(super) fn make(
        &mut self,
        (of, child): (wireup_group::Context, u32),
        ranks: &[u32],
    ) -> Result<Option<wireup_group::Context>, Error> {
        let Some(first) = ranks.first() else { return Ok(None) };
        let context = derived(of, child, *first);
        if let Some(runs) = agent_groups::runs(ranks) {
            self.agent_groups.define(&mut self.worker.job, context, runs)?;
        } else {
            self.worker.network()?.0.form_group(context, ranks);
            self.worker.pump();
        }
        Ok(Some(context))
    }

    fn gather(&mut self, context: wireup_group::Context, value: &[u8], then: Then) -> Result<Request, Error> {
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
        if let GroupKind::Agents(context) = group.kind {
            let of = self.agent_groups.origin(group.agents_context())?;
            return self.gather(context, &agents::told(&wanted), Then::Divide { wanted, of });
        }
        if group.kind == GroupKind::Job && self.has_agent_groups() {
            // One exchange by the server tells every rank the members of its group.
            let of = self.agent_groups.origin(group.agents_context())?;
            let id = agents::start_split(&mut self.worker.job, &wanted);
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
            network.form_group(context, &ranks);
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
                GroupKind::Agents(context) => self.agent_groups.get(context)?.runs().to_vec(),
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
