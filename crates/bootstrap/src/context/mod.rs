//! A process's view of its job: its groups, its key-value pairs, and the results of the operations that it has started.

mod groups;

use crate::agent_groups::{self, AgentGroups};
use crate::agents;
use crate::error::Error;
use crate::network::Transport;
use crate::operation::{Operation, Request, Then, View};
use crate::pairs::Pairs;
use crate::start::{LazyNetwork, Start};
use crate::worker::Worker;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::c_int;
use wireup_capi::job::{Gathered, Job, MAX_LEN};
use wireup_group::Done;
use wireup_group::algorithms::Barrier;

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
    fn agents_context(self) -> Option<wireup_group::Context> {
        if let GroupKind::Agents(context) = self.kind { Some(context) } else { None }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GroupKind {
    /// The whole job; its server carries out the collectives.
    Job,
    /// The whole job; the ranks carry out the collectives.
    World,
    Peers(wireup_group::Context),
    /// A group whose collectives the agents carry out; other operations use the ranks' network.
    Agents(wireup_group::Context),
}

/// Starts requests and returns their results; `worker` makes progress on them.
pub struct Context {
    pub worker: Worker,
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
        let mut context = Context { worker, engine, agent_groups: AgentGroups::default(), pairs: Pairs::default() };
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
    fn whole(&self) -> Option<wireup_group::Context> {
        let job = &self.worker.job;
        let is_part = self.worker.is_secondary() && self.engine == Engine::Agents && job.answers_questions();
        is_part.then(|| agent_groups::named(&job.name))
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
        let bytes = self.pairs.take_put();
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
                        let members =
                            agents::members(&agents::gathered(&gathered, place.1)?, wanted).ok_or(Error::Mismatch)?;
                        let ranks = agent_groups.get(*context)?.ranks();
                        let ranks: Vec<u32> = members.into_iter().map(|member| ranks[member as usize]).collect();
                        self.make(*of, &ranks).map(Done::Group)
                    }
                }
            }
            Request::Peers(request) => worker.take_done(*request),
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
}
