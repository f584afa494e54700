//! One job as seen by one agent: its local ranks, the child agents that run other parts of it, and the parent in its
//! tree.
//!
//! [`Jobs`] finds the job that an input of the agent is for, and passes the input on by one of the `on_*` functions
//! of [`JobParts`], which owns the parts of the job. Each event is handled by one part, which sends frames and returns
//! what the other parts must do; the function that called the part then calls those, so that the whole flow of an event
//! is on the stack. A request to end the job is handled after the rest of the input ([`JobParts::end_if_asked`]); until
//! then the job does not count as ending.

pub mod cx;
pub mod facts;
mod failure;
mod lifecycle;
pub mod names;
mod profile;
mod rank_service;
pub mod ranks;
mod stacks;
mod stalls;
mod stdin;

use crate::collective::Arrived;
use crate::framework::rendezvous_ports;
use crate::io::{ExitStatus, JobEvent, Output, SignalTarget, Started};
use crate::link::UpHop;
use crate::output::JobOutput;
use crate::plan::{kernel_session, spawn_plan};
use crate::pmi_server::kvs::PairMemory;
use crate::pmix::{AskedOfJob, Pmix, Remains};
use crate::store::Dictionary;
use crate::time::Instant;
pub use cx::{AgentCx, Cx, FromJob};
use cx::{Common, Ending};
use facts::Facts;
pub use facts::{JobTree, agents_of, participants};
use failure::Ends;
pub use lifecycle::Wait;
use lifecycle::{Event, Lifecycle};
pub use profile::Born;
use profile::Profile;
use rank_service::RankService;
use ranks::Exit;
use stacks::Stacks;
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;
use stdin::{Sink, Stdin};
use wireup_coll::mapping::Mapping;
use wireup_wire::collective::Collective;
use wireup_wire::frame::{DownFrame, Frame, FrameKind, PeerFrame, UpFrame};
use wireup_wire::ids::{AgentId, Client, JobId, LocalRank, NodeId, Rank};
use wireup_wire::job::JobSpec;
use wireup_wire::names::{Answer, Asker, Down};
use wireup_wire::peer::{self, Cause, Done, Ended, MissingAgent, Note, PeerError, RankError, SpawnError};
use wireup_wire::rank_address;
use wireup_wire::relay;
use wireup_wire::signal::is_fatal;
use wireup_wire::talk::{Control, JobDown, JobUp, ToLauncher};

/// The jobs of one agent.
///
/// A job's frames travel along its own tree. In a session of one run that is the session's tree; in a standing session
/// it is a tree of the job's nodes, so the frames may come from any agent.
#[derive(Default)]
pub struct Jobs {
    /// Descriptions of all jobs here, and of a job that is about to start.
    specs: BTreeMap<JobId, Arc<JobSpec>>,
    jobs: BTreeMap<JobId, Job>,
    /// Whether a job on this agent has ended, begun to end, or had its ranks killed since the agent last checked what
    /// is due (`Session::look_around`).
    pub have_changed: bool,
    /// Jobs that have ended on this agent, oldest first; the session has still to release their names, ports and links.
    pub over: VecDeque<Job>,
    /// Answers that were sent to requests about names or other jobs, recorded for tests.
    #[cfg(test)]
    pub answered: Vec<(JobNode, Answer)>,
}

/// A node of a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct JobNode {
    pub job: JobId,
    pub agent: AgentId,
}

impl Deref for Jobs {
    type Target = BTreeMap<JobId, Job>;

    fn deref(&self) -> &Self::Target {
        &self.jobs
    }
}

impl Jobs {
    pub fn remove(&mut self, id: JobId) -> Option<Job> {
        self.specs.remove(&id);
        self.jobs.remove(&id)
    }

    pub fn ids(&self) -> Vec<JobId> {
        self.jobs.keys().copied().collect()
    }

    /// The jobs for which `which` holds.
    pub fn ids_where(&self, which: impl Fn(&Job) -> bool) -> Vec<JobId> {
        self.iter().filter(|(_, job)| which(job)).map(|(id, _)| *id).collect()
    }

    /// The jobs of which a child runs a part.
    pub fn of_child(&self, child: AgentId) -> Vec<JobId> {
        self.ids_where(|job| job.has_child(child))
    }

    pub fn spec(&self, id: JobId) -> Option<&Arc<JobSpec>> {
        self.specs.get(&id)
    }

    pub fn specs(&self) -> impl Iterator<Item = &Arc<JobSpec>> {
        self.specs.values()
    }

    /// Records the description of a job that is about to start.
    pub fn announce(&mut self, spec: Arc<JobSpec>) {
        self.specs.insert(spec.job, spec);
    }

    /// Replaces each job description by the equal one that `share` returns, so that simulated agents share its memory.
    pub fn share_specs(&mut self, mut share: impl FnMut(&Arc<JobSpec>) -> Arc<JobSpec>) {
        for (id, spec) in &mut self.specs {
            *spec = share(spec);
            if let Some(job) = self.jobs.get_mut(id) {
                job.facts.spec = spec.clone();
            }
        }
    }

    pub fn insert(&mut self, id: JobId, job: Job) {
        self.jobs.insert(id, job);
    }

    /// Number of entries in all tables, for the simulator's checkers.
    pub fn size(&self) -> usize {
        self.jobs.len() + self.specs.len()
    }

    /// Passes an event to a job, by one of the `on_*` functions of [`JobParts`]. Does nothing if the job is not on this
    /// agent.
    pub fn tell(&mut self, agent: &mut AgentCx, id: JobId, act: impl FnOnce(&mut JobParts, &mut Cx<'_>)) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let before = (job.is_ending(), job.is_forced());
        if let Some(profile) = &mut job.common.profile {
            profile.on_event(agent.now);
        }
        let mut cx = Cx::new(agent, &job.facts, &mut job.common, before.0);
        act(&mut job.parts, &mut cx);
        let is_over = job.parts.after_input(&mut cx);
        self.have_changed |= is_over || before != (job.is_ending(), job.is_forced());
        if is_over {
            let job = self.remove(id);
            self.over.extend(job);
            agent.from_jobs.push_back(FromJob::Over);
        }
    }

    /// Passes an event to each of these jobs, by one of the `on_*` functions of [`JobParts`].
    pub fn tell_each(&mut self, agent: &mut AgentCx, ids: Vec<JobId>, act: impl Fn(&mut JobParts, &mut Cx<'_>)) {
        ids.into_iter().for_each(|id| self.tell(agent, id, &act));
    }

    /// At the root: sends an answer or an order to an agent of a job, about names or other jobs.
    pub fn answer(&mut self, agent: &mut AgentCx, at: JobNode, asker: Asker, answer: Answer) {
        #[cfg(test)]
        self.answered.push((at, answer.clone()));
        self.tell(agent, at.job, |job, cx| {
            let here = names::answer(cx, at.agent, Down { asker, answer });
            job.on_named(cx, here);
        });
    }

    /// Handles a job's frame from a neighbour in its tree, or (`None`) from the launcher. Frames from other agents, and
    /// for jobs that are not here, are too late and ignored.
    ///
    /// # Errors
    /// The frame travels in the other direction of the job's tree.
    pub fn on_frame(&mut self, agent: &mut AgentCx, from: Option<AgentId>, frame: Frame) -> Result<(), PeerError> {
        let id = JobId(frame.job);
        let Some(side) = self.side(id, from) else { return Ok(()) };
        match (side, frame.kind) {
            (Some(child), FrameKind::Up(kind)) => {
                self.tell(agent, id, |job, cx| job.on_frame_up(cx, child, kind, frame));
            }
            (None, FrameKind::Down(kind)) if !agent.links.is_root() || kind.may_come_from_launcher() => {
                self.tell(agent, id, |job, cx| job.on_frame_down(cx, kind, frame));
            }
            _ => return Err(PeerError::Misdirected),
        }
        Ok(())
    }

    /// Handles a message from a job's parent in its tree, or (`None`) from the launcher.
    ///
    /// # Errors
    /// A child has sent the message, or a launcher has sent one that launchers must not send.
    pub fn on_control_down(
        &mut self,
        agent: &mut AgentCx,
        from: Option<AgentId>,
        id: JobId,
        message: JobDown,
    ) -> Result<(), PeerError> {
        match self.side(id, from) {
            None => {}
            Some(None) if !agent.links.is_root() || message.may_come_from_launcher() => {
                self.tell(agent, id, |job, cx| job.on_control_down(cx, message));
            }
            Some(_) => return Err(PeerError::Misdirected),
        }
        Ok(())
    }

    /// Handles a message from a job's child in its tree.
    ///
    /// # Errors
    /// The parent or the launcher has sent it.
    pub fn on_control_up(
        &mut self,
        agent: &mut AgentCx,
        from: Option<AgentId>,
        id: JobId,
        mut message: JobUp,
    ) -> Result<(), PeerError> {
        let Some(side) = self.side(id, from) else { return Ok(()) };
        let from = side.ok_or(PeerError::Misdirected)?;
        if let JobUp::Missing(missing) = &mut message {
            missing.retain(|missing| agent.links.routes.tree.subtree_contains(from, missing.agent));
        }
        self.tell(agent, id, |job, cx| job.on_control_up(cx, from, message));
        Ok(())
    }

    /// Another agent has sent a message for a job that no correct agent sends: the job fails.
    pub fn blame(&mut self, agent: &mut AgentCx, from: AgentId, job: JobId, error: PeerError) {
        self.tell(agent, job, |_, cx| {
            let sender = cx.facts.node_of(from).map(|node| cx.facts.name_of(node));
            let sender = sender.unwrap_or_else(|| format!("agent {from}"));
            cx.fail_here(Cause::Pmi { problem: format!("{sender}: {error}") });
        });
    }

    /// Handles a frame that another agent, anywhere in the tree, has sent for a job that is here.
    ///
    /// # Errors
    /// The message is one that no correct agent sends.
    pub fn deliver(&mut self, agent: &mut AgentCx, from: AgentId, frame: Frame) -> Result<(), PeerError> {
        let id = JobId(frame.job);
        match frame.kind {
            FrameKind::Peer(PeerFrame::Modex) => {
                let message = peer::decode(&frame.payload)?;
                self.tell(agent, id, |job, cx| job.tell_pmix(cx, |pmix, cx| pmix.on_between(cx, from, message)));
            }
            FrameKind::Peer(PeerFrame::Addresses) => {
                let message = peer::decode(&frame.payload)?;
                self.tell(agent, id, |job, cx| job.service.pmi.on_addresses(cx, from, message));
            }
            FrameKind::Peer(PeerFrame::Relay) => {
                let message = relay::Between::decode(frame.stream, frame.arg, frame.payload)?;
                self.tell(agent, id, |job, cx| job.service.pmi.on_relayed(cx, from, message));
            }
            FrameKind::Peer(PeerFrame::Store) => {
                let message = peer::decode(&frame.payload)?;
                self.tell(agent, id, |job, cx| {
                    if let Some(store) = &mut job.service.store {
                        store.on_between(cx, from, message);
                    }
                });
            }
            FrameKind::Peer(PeerFrame::Direct) => self.tell(agent, id, |job, cx| {
                if let Some(node) = cx.facts.node_of(from) {
                    job.on_exchange(cx, job.service.pmi.collectives.exchanges.of_node(node, frame));
                }
            }),
            FrameKind::Control => match peer::decode(&frame.payload)? {
                Control::JobDown(message) => return self.on_control_down(agent, Some(from), id, message),
                Control::JobUp(message) => return self.on_control_up(agent, Some(from), id, message),
                // Other control messages are exchanged only between neighbours in the session's tree.
                _message => return Err(PeerError::Misdirected),
            },
            FrameKind::Up(_) | FrameKind::Down(_) => return self.on_frame(agent, Some(from), frame),
            FrameKind::Routed | FrameKind::Pair => return Err(PeerError::Misdirected),
        }
        Ok(())
    }

    /// Finds out which neighbour in a job's tree has sent a frame. `Some(None)`: the parent or the launcher;
    /// `Some(Some(_))`: this child; `None`: an agent that is no neighbour, or the job is not here.
    fn side(&self, id: JobId, from: Option<AgentId>) -> Option<Option<AgentId>> {
        let job = self.jobs.get(&id)?;
        from.map_or(Some(None), |agent| job.side(agent))
    }
}

/// A job on this agent: the interface for the agent's other parts.
pub struct Job {
    pub facts: Facts,
    common: Common,
    parts: JobParts,
}

/// The parts of a job that handle its events.
pub struct JobParts {
    lifecycle: Lifecycle,
    output: JobOutput,
    stdin: Stdin,
    ends: Ends,
    service: RankService,
    stacks: Stacks,
}

impl Job {
    /// Makes a job that has not started here. `waits`: what its ranks wait for before they start.
    pub fn new(
        spec: Arc<JobSpec>,
        mapping: &Mapping,
        me: AgentId,
        tree: JobTree,
        born: Born,
        waits: &[Wait],
        now: Instant,
    ) -> Job {
        let facts = Facts::new(spec, mapping, me, tree);
        let mut lifecycle = Lifecycle::new();
        lifecycle.waits.extend(waits);
        Job {
            common: Common::new(&facts, Profile::new(&facts, born, now)),
            parts: JobParts {
                lifecycle,
                output: JobOutput::new(&facts),
                stdin: Stdin::new(&facts),
                ends: Ends::default(),
                service: RankService::new(&facts),
                stacks: Stacks::default(),
            },
            facts,
        }
    }

    /// Time at which the job must get a `Tick`; `None`: no deadline.
    pub fn deadline(&self) -> Option<Instant> {
        let Job { facts, common: Common { ranks, profile, .. }, parts: JobParts { output, ends, service, .. } } = self;
        let after_ns = facts.spec.options.stall_report_ns;
        let of_common = [ranks.deadline(), ranks.stall_deadline(after_ns), profile.as_ref().and_then(|p| p.deadline())];
        let of_parts = [output.deadline(), service.deadline(after_ns), ends.deadline()];
        of_common.into_iter().chain(of_parts).flatten().min()
    }

    pub fn is_profiled(&self) -> bool {
        self.common.profile.is_some()
    }

    /// Whether the ranks were told to end.
    pub fn is_ending(&self) -> bool {
        self.parts.ends.is_ending()
    }

    /// Whether the ranks were killed.
    pub fn is_forced(&self) -> bool {
        self.parts.ends.is_forced()
    }

    /// Whether all ranks are running or have ended.
    pub fn has_started(&self) -> bool {
        self.parts.lifecycle.has_started()
    }

    pub fn id(&self) -> JobId {
        self.facts.id()
    }

    /// The next hop of the job's frames towards its launcher.
    pub fn up(&self) -> UpHop {
        self.common.up
    }

    pub fn has_child(&self, agent: AgentId) -> bool {
        self.facts.child_index(agent).is_some()
    }

    /// The position of another agent in the job's tree: parent (`Some(None)`), child, or neither (`None`).
    pub fn side(&self, agent: AgentId) -> Option<Option<AgentId>> {
        if self.up() == UpHop::Agent(agent) { Some(None) } else { self.has_child(agent).then_some(Some(agent)) }
    }

    /// Whether the job may leave data or reserved ports at agents when it has ended.
    pub fn leaves_traces(&self) -> bool {
        let spec = &self.facts.spec;
        let has_data = spec.options.pmi.flavour.has_pmix() || spec.options.process.has_store();
        self.parts.ends.is_torn || has_data || !spec.endpoints.is_empty()
    }

    /// Removes and returns PMIx data of the local ranks that other agents may request after the job's end.
    pub fn take_remains(&mut self) -> Remains {
        self.parts.service.pmix.as_mut().map(|pmix| pmix.modex.offers.take_kept()).unwrap_or_default()
    }

    /// Removes and returns the keys of the job's store that this agent owns; `None`: the job has no store.
    pub fn take_dictionary(&mut self) -> Option<Dictionary> {
        self.parts.service.store.take().map(|store| store.into_dictionary())
    }

    /// Bytes of output buffered here, for the simulator's checkers.
    pub fn held_output_bytes(&self) -> usize {
        self.parts.output.held_bytes()
    }

    /// The memory that pairs of fences have taken here, for the simulator's costs.
    pub fn pair_memory(&self) -> PairMemory {
        self.parts.service.pmi.tables.kvs.memory
    }

    /// Number of collectives in progress here, for the simulator's checkers.
    pub fn open_exchanges(&self) -> usize {
        self.parts.service.open_collectives() + self.parts.service.pmi.collectives.barriers.open()
    }
}

impl JobParts {
    /// Performs the actions that are due after all parts have handled an input. Returns whether the job has ended here.
    fn after_input(&mut self, cx: &mut Cx<'_>) -> bool {
        while let Some(client) = self.service.pmi.resumed.pop_front() {
            self.on_client_bytes(cx, client, &[]);
        }
        self.follow_service(cx);
        if self.ends.failure.is_none() {
            self.service.check_broken(cx);
        }
        self.end_if_asked(cx);
        self.output.flush(cx);
        self.stacks.tell_if_complete(cx);
        self.lifecycle.say_ready(cx, &mut self.ends);
        // Failures are handled before the start of the ranks is reported: a job that was reported as started cannot
        // fail to start.
        self.end_if_asked(cx);
        let opened = self.service.pmix.as_ref().and_then(|pmix| pmix.library.clone());
        self.lifecycle.say_started(cx, &mut self.ends, opened);
        self.end_if_asked(cx);
        let is_over = self.is_over(cx);
        if is_over {
            self.say_done(cx);
        }
        is_over
    }

    /// Lets the service of this node's ranks act, and then does what it asks for.
    fn serve<T>(&mut self, cx: &mut Cx<'_>, act: impl FnOnce(&mut RankService, &mut Cx<'_>) -> T) -> T {
        let result = act(&mut self.service, cx);
        self.follow_service(cx);
        result
    }

    /// Performs the actions that the service of this node's ranks has requested of the job.
    fn follow_service(&mut self, cx: &mut Cx<'_>) {
        for asked in std::mem::take(&mut self.service.asked) {
            match asked {
                AskedOfJob::Log { local, stream, bytes } => self.output.on_bytes(cx, local, stream, &bytes),
                AskedOfJob::StartRanks(env) => {
                    self.lifecycle.add_env(env);
                    self.lifecycle.release(cx, Wait::Server);
                }
                AskedOfJob::DropRanks => self.drop_deferred(cx),
            }
        }
    }

    /// Handles the requests of a client: those in `bytes`, and earlier ones that had to wait.
    fn on_client_bytes(&mut self, cx: &mut Cx<'_>, client: Client, bytes: &[u8]) {
        let mut asked = self.service.pmi.on_bytes(cx, client, bytes);
        while let Some(one) = asked {
            self.service.on_pmi_asked(cx, client.local, one);
            asked = self.service.pmi.on_bytes(cx, client, &[]);
        }
    }

    /// Lets the PMIx service act, if the job offers PMIx.
    fn tell_pmix(&mut self, cx: &mut Cx<'_>, tell: impl FnOnce(&mut Pmix, &mut Cx<'_>)) {
        self.serve(cx, |service, cx| service.pmix(cx, tell));
    }

    /// Handles an event of the part of the job on this node.
    pub fn on_event(&mut self, cx: &mut Cx<'_>, event: JobEvent) {
        match event {
            JobEvent::RankStarted { local, result: Ok(started) } => self.on_started(cx, local, started),
            JobEvent::RankStarted { local, result: Err(error) } => {
                if cx.common.ranks.on_start_failed(local) {
                    cx.fail_rank(local, Cause::Spawn(error));
                    self.serve(cx, RankService::end_server_if_alone);
                }
            }
            JobEvent::RankError { local, at_ns, text } => {
                let (rank, host) = (cx.rank(local), cx.facts.host());
                self.ends.on_rank_error(RankError { rank, host, at_ns, text: text.to_vec() });
            }
            JobEvent::RanksLack { what } => cx.note(Note::Lacks { host: cx.facts.host(), what }),
            JobEvent::Stacks { stacks } => self.stacks.on_own(stacks),
            JobEvent::RanksPreload { modules } => cx.note(Note::Preloads { host: cx.facts.host(), modules }),
            JobEvent::RanksBound { picture } => cx.note(Note::Bound { host: cx.facts.host(), picture }),
            JobEvent::RankExited { local, status, out_of_memory } => self.on_exited(cx, local, status, out_of_memory),
            JobEvent::KeeperLost { problem } if self.ends.is_ending() => self.on_keeper_lost(cx, problem),
            JobEvent::KeeperLost { problem } => self.ends.on_keeper_lost(cx.now(), problem),
            JobEvent::ClientJoined { client } => {
                cx.common.ranks.on_joined(client.local);
                self.service.pmi.on_joined(cx, client);
            }
            JobEvent::ClientBytes { client, bytes } => {
                self.on_client_bytes(cx, client, &bytes);
                self.follow_service(cx);
            }
            JobEvent::ClientGone { client } => self.service.on_client_gone(cx, client),
            JobEvent::RanksListen { result: Ok(address) } => {
                self.serve(cx, |service, cx| service.on_ranks_listen(cx, &address));
                self.lifecycle.release(cx, Wait::Sockets);
            }
            JobEvent::StoreListens { result: Ok(port) } => {
                self.lifecycle.set_rendezvous(cx.facts, SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
                self.lifecycle.release(cx, Wait::Store);
            }
            JobEvent::RanksListen { result: Err(error) }
            | JobEvent::RendezvousReserved { result: Err(error) }
            | JobEvent::StoreListens { result: Err(error) } => {
                cx.fail_here(Cause::Spawn(error));
                self.drop_deferred(cx);
            }
            JobEvent::RendezvousReserved { result: Ok(address) } => self.on_rendezvous_reserved(cx, address),
            JobEvent::Store { client, event } => {
                if let Some(store) = &mut self.service.store {
                    store.on_event(cx, client, event);
                }
            }
            JobEvent::SecretOfRanks { secret } => self.service.pmi.on_secret(cx, &secret),
            JobEvent::Shared { share, result: Ok(()) } => self.service.pmi.on_shared(cx, share),
            JobEvent::Shared { share, result: Err(problem) } => self.service.pmi.on_share_failed(cx, share, problem),
            JobEvent::StdioBytes { local, stream, bytes } => self.output.on_bytes(cx, local, stream, &bytes),
            JobEvent::StdioClosed { local, stream } => {
                if cx.common.ranks.on_stream_closed(local, stream) {
                    self.output.on_ended((local, cx.rank(local)), stream);
                }
            }
            JobEvent::StdinTaken { local, bytes } => self.stdin.on_taken(cx, Sink::Local(local), bytes),
            JobEvent::PmixBytes { bytes } => {
                self.tell_pmix(cx, |pmix, _| pmix.server.on_bytes(&bytes));
                while self.serve(cx, |service, cx| service.pmix(cx, Pmix::read)) == Some(true) {}
            }
            JobEvent::PmixSaid { text } => self.tell_pmix(cx, |pmix, cx| pmix.server.on_said(cx, text)),
            JobEvent::PmixGone { end } => self.tell_pmix(cx, |pmix, cx| pmix.server.on_gone(cx, end)),
            JobEvent::Relay { relay, event } => self.service.pmi.on_relay_event(cx, relay, event),
        }
    }

    /// Ends the job if a part has found a reason, and sends the signals that parts have asked for.
    fn end_if_asked(&mut self, cx: &mut Cx<'_>) {
        while let Some(ending) = cx.take_ending() {
            let failure = match ending {
                Ending::Fail(failure) => failure,
                Ending::FailBy(failure) => {
                    self.ends.is_unwanted = true;
                    failure
                }
                Ending::Departed(departed) => {
                    self.ends.on_departed(cx.now(), departed);
                    continue;
                }
                Ending::Kill { grace_ns } => {
                    self.kill(cx, grace_ns);
                    continue;
                }
                Ending::Signal(signal) => {
                    self.lifecycle.signal(cx, signal);
                    continue;
                }
            };
            if self.ends.on_failure(cx, failure) {
                self.kill(cx, cx.facts.spec.options.kill_grace_ns);
            }
        }
    }

    /// Ends all ranks of the subtree.
    fn kill(&mut self, cx: &mut Cx<'_>, grace_ns: u64) {
        let signals = self.ends.kill(cx.now(), grace_ns);
        cx.is_ending = true;
        self.lifecycle.on(Event::Kill);
        let Some(signals) = signals else { return };
        cx.control_down(JobDown::Kill { grace_ns });
        self.tell_pmix(cx, |pmix, cx| pmix.server.drop_deferred(cx));
        // Other nodes, or the rendezvous, may never become ready: the ranks that wait for them are not started.
        if self.lifecycle.waits_for(Wait::Others) || self.lifecycle.waits_for(Wait::Rendezvous) {
            self.drop_deferred(cx);
        }
        signals.iter().for_each(|signal| self.lifecycle.signal(cx, *signal));
    }

    /// Gives up the local ranks that wait to be started: they will not be started.
    fn drop_deferred(&mut self, cx: &mut Cx<'_>) {
        if self.lifecycle.drop_deferred() {
            self.output.give_ranks_up(cx);
        }
    }

    /// Spawns the local ranks, or defers them until everything that they wait for is ready. The job was already sent to
    /// the child agents, except those in `lost`, which were lost before.
    pub fn begin(&mut self, cx: &mut Cx<'_>, lost: Vec<MissingAgent>) {
        let facts = cx.facts;
        if let Some(node) = facts.node.filter(|_| !cx.common.ranks.is_empty()) {
            if let Some(spawned) = &facts.spec.spawned {
                cx.output(Output::OfFamily { job: facts.id(), family: spawned.family, by: spawned.by });
            }
            self.lifecycle.defer(spawn_plan(&facts.spec, &facts.mapping, node));
            if self.service.pmix.is_some() {
                self.lifecycle.waits.push(Wait::Server);
            }
            if let Some(ports) = facts.spec.options.process.rank_ports {
                self.lifecycle.waits.push(Wait::Sockets);
                let (job, count) = (facts.id(), facts.local_size());
                let base = facts.spec.endpoints.get(node.index()).and_then(|address| rank_address::port(address));
                let kernel_session = kernel_session(&facts.spec, node);
                cx.output(Output::ListenForRanks { job, count, ports, base, kernel_session });
            }
            self.reserve_rendezvous(cx, node);
            if let Some(store) = &self.service.store {
                // While programs import their modules, there is time to make the links that their first requests need.
                cx.agent.links.prepare_peers(store.asked_owners(), facts.id());
                self.lifecycle.waits.push(Wait::Store);
                let kernel_session = kernel_session(&facts.spec, node);
                cx.output(Output::ListenForStore { job: facts.id(), kernel_session });
            }
            self.tell_pmix(cx, |pmix, cx| pmix.server.start(cx));
            self.lifecycle.spawn_if_free(cx);
        }
        if let Some(agents) = self.service.pmi.collectives.exchanges.first_links(facts) {
            // The first exchange will need direct links to these agents, so the links are opened in advance.
            cx.agent.links.prepare_peers(agents, cx.facts.id());
        }
        for missing in lost {
            cx.common.children.on_lost(missing.agent);
            self.on_missing(cx, vec![missing]);
        }
    }

    /// Lets the local ranks wait for the address of the job's rendezvous; on the node of rank 0, reserves its ports.
    fn reserve_rendezvous(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let process = &cx.facts.spec.options.process;
        let (count, range) = (rendezvous_ports(process), process.rendezvous_range);
        if count == 0 {
            return;
        }
        self.lifecycle.waits.push(Wait::Rendezvous);
        if cx.facts.local_of(Rank(0)).is_some() {
            let kernel_session = kernel_session(&cx.facts.spec, node);
            cx.output(Output::ReserveRendezvous { job: cx.facts.id(), count, range, kernel_session });
        }
    }

    /// The agent of rank 0 has reserved the ports of the rendezvous: the root sends their address to all agents.
    fn on_rendezvous_reserved(&mut self, cx: &mut Cx<'_>, address: SocketAddr) {
        match cx.facts.root {
            true => self.lifecycle.on_rendezvous(cx, address),
            false => cx.agent.links.send_job_up(cx.common.up, cx.facts.control(JobUp::Rendezvous { address })),
        }
    }

    /// Called when the link to the parent is up.
    pub fn on_linked(&mut self, cx: &mut Cx<'_>) {
        self.lifecycle.release(cx, Wait::Link);
        if let Some(profile) = &mut cx.common.profile {
            profile.on_linked(cx.agent.now);
        }
    }

    pub fn on_tick(&mut self, cx: &mut Cx<'_>) {
        if let Some(profile) = &mut cx.common.profile {
            // Simulated time may not have passed since the driver carried out what it was asked for.
            profile.on_answered(cx.agent.now);
        }
        self.output.on_tick(cx);
        for local in cx.common.ranks.on_tick(cx.agent.now) {
            self.serve(cx, |service, cx| service.depart(cx, local));
        }
        if self.ends.on_tick(cx) {
            self.give_up(cx);
        }
        if let Some((_, problem)) = self.ends.take_lost_keeper(cx.now()) {
            self.on_keeper_lost(cx, problem);
        }
        self.serve(cx, RankService::on_tick);
    }

    /// Handles the end of a local rank.
    fn on_exited(&mut self, cx: &mut Cx<'_>, local: LocalRank, status: ExitStatus, out_of_memory: bool) {
        let Some(exit) = cx.common.ranks.on_exited(cx.agent.now, local, status, out_of_memory) else { return };
        self.serve(cx, |service, cx| service.on_rank_gone(cx, local));
        self.stdin.on_gone(cx, Sink::Local(local));
        match exit {
            Exit::Bad(cause) => cx.fail_rank(local, cause),
            Exit::Good => {
                let listens = self.service.pmix.as_ref().is_some_and(|pmix| pmix.server.phase.listens());
                if cx.common.ranks.on_left_well(cx.agent.now, local, listens) {
                    self.serve(cx, |service, cx| service.depart(cx, local));
                }
            }
        }
    }

    fn on_started(&mut self, cx: &mut Cx<'_>, local: LocalRank, Started { pid, spawn_ns, exec_ns }: Started) {
        if cx.common.ranks.on_started(local, pid, spawn_ns, exec_ns)
            && let Some(signal) = self.ends.signal_for_newcomers()
        {
            cx.output(Output::Signal { job: cx.facts.id(), target: SignalTarget::One(local), signal });
        }
    }

    /// The keeper has ended, and the kernel kills the ranks: no more events about them will arrive.
    fn on_keeper_lost(&mut self, cx: &mut Cx<'_>, problem: Option<SpawnError>) {
        self.output.give_ranks_up(cx);
        if let Some(pmix) = &mut self.service.pmix {
            pmix.server.on_keeper_lost();
        }
        cx.fail_here(Cause::KeeperLost { problem });
    }

    /// Handles a frame from a child in the job's tree.
    pub fn on_frame_up(&mut self, cx: &mut Cx<'_>, from: AgentId, kind: UpFrame, frame: Frame) {
        let Some(child) = cx.facts.child_index(from) else { return };
        match kind {
            UpFrame::ExchangeUp => self.on_exchange(cx, Arrived::of_tree(cx.facts, Some(child), frame)),
            UpFrame::GroupUp => self.serve(cx, |service, cx| service.on_group(cx, Some(child), frame)),
            UpFrame::Output => self.output.on_child(child, frame),
            UpFrame::InputCredit => self.stdin.on_taken(cx, Sink::Child(child), frame.arg),
            UpFrame::PmixUp => self.tell_pmix(cx, |pmix, cx| pmix.on_child_frame(cx, from, &frame)),
            UpFrame::NamesUp => names::on_request(cx, frame),
            UpFrame::Trace => cx.agent.links.send_job_up(cx.common.up, profile::frame(cx.facts, frame.payload)),
        }
    }

    /// Handles a frame from the parent in the job's tree; at the root, from the launcher.
    pub fn on_frame_down(&mut self, cx: &mut Cx<'_>, kind: DownFrame, frame: Frame) {
        match kind {
            DownFrame::ExchangeDown => self.on_exchange(cx, Arrived::of_tree(cx.facts, None, frame)),
            DownFrame::GroupDown => self.serve(cx, |service, cx| service.on_group(cx, None, frame)),
            DownFrame::OutputCredit => self.output.on_credit(&frame),
            DownFrame::Input => {
                for local in self.stdin.on_input(cx, &frame) {
                    let bytes = frame.payload.clone();
                    self.lifecycle.for_ranks(cx, Output::Write { job: cx.facts.id(), local, bytes });
                }
            }
            DownFrame::PmixDown => self.tell_pmix(cx, |pmix, cx| pmix.on_parent_frame(cx, &frame)),
            DownFrame::NamesDown => {
                let here = names::on_answer(cx, frame);
                self.on_named(cx, here);
            }
        }
    }

    /// Handles a frame of a collective of the whole job.
    fn on_exchange(&mut self, cx: &mut Cx<'_>, arrived: Result<Arrived, String>) {
        match arrived {
            Ok(arrived) if arrived.collective() == Collective::Modex => {
                self.tell_pmix(cx, |pmix, cx| pmix.fences.on_exchange(cx, arrived, &mut pmix.server));
            }
            Ok(arrived) => {
                if let Some(rows) = self.service.pmi.on_exchange(cx, arrived) {
                    self.tell_pmix(cx, |pmix, cx| pmix.server.on_endpoints(cx, rows));
                }
            }
            Err(problem) => cx.fail_here(Cause::Pmi { problem }),
        }
    }

    /// Handles a message from the parent.
    pub fn on_control_down(&mut self, cx: &mut Cx<'_>, message: JobDown) {
        match message {
            JobDown::Signal { signal } if self.lifecycle.precedes_ranks(cx) && is_fatal(signal) => {
                cx.fail_by(Cause::Interrupted { signal });
            }
            JobDown::Signal { signal } => {
                self.lifecycle.signal(cx, signal);
                cx.control_down(message);
            }
            JobDown::Kill { grace_ns } => cx.kill(grace_ns),
            JobDown::Resize { rows, columns } => {
                self.lifecycle.resize(cx, rows, columns);
                cx.control_down(message);
            }
            JobDown::StallAsk { collective } if cx.facts.root => self.service.ask_stall(cx, collective),
            JobDown::StallAsk { collective } => self.service.survey(cx, collective),
            JobDown::StackAsk => self.stacks.ask(cx),
            JobDown::Over { .. } => self.abandon(cx),
            JobDown::StartRanks => self.lifecycle.start_together(cx),
            JobDown::Rendezvous { address } => self.lifecycle.on_rendezvous(cx, address),
        }
    }

    /// Handles a message from a child.
    pub fn on_control_up(&mut self, cx: &mut Cx<'_>, from: AgentId, message: JobUp) {
        let Some(child) = cx.facts.child_index(from) else { return };
        match message {
            JobUp::Started { ranks, pmix } => {
                cx.common.children.0[child].started = Some(ranks);
                if let Some(opened) = pmix {
                    self.tell_pmix(cx, |pmix, cx| pmix.on_opened(cx, opened));
                }
            }
            JobUp::Ready => cx.common.children.0[child].ready = true,
            JobUp::Done(done) => self.on_child_done(cx, child, done),
            JobUp::Failed(failure) => cx.fail(failure),
            JobUp::Departed(departed) => self.service.on_departed(cx, departed),
            JobUp::StallAsk { collective } => self.service.ask_stall(cx, collective),
            JobUp::Stall(_) => cx.report(message),
            JobUp::Stacks(stacks) => self.stacks.on_child(from, stacks),
            JobUp::Missing(missing) => self.on_missing(cx, missing),
            JobUp::RankError(error) => self.ends.on_rank_error(error),
            JobUp::Rendezvous { address } => self.on_rendezvous_reserved(cx, address),
        }
    }

    fn on_child_done(&mut self, cx: &mut Cx<'_>, child: usize, done: Done) {
        cx.common.children.0[child].done = Some(done);
        if done.is_torn {
            self.ends.is_torn = true;
        }
        self.stdin.on_gone(cx, Sink::Child(child));
        self.service.pmi.collectives.barriers.on_child_done(child);
        self.tell_pmix(cx, |pmix, cx| pmix.on_child_done(cx, child));
    }

    /// Handles the root's answer about names or other jobs, if there is one for this node.
    fn on_named(&mut self, cx: &mut Cx<'_>, down: Option<Down>) {
        let Some(Down { asker, answer }) = down else { return };
        match (asker, answer) {
            (Asker::Client(client), answer) => self.service.pmi.on_named(cx, client, answer),
            (Asker::Server(id), answer) => {
                let answer = wireup_wire::pmix::Answer::Names(answer);
                self.tell_pmix(cx, |pmix, cx| pmix.server.answer(cx, id, answer));
            }
            (Asker::Agent, Answer::Order(order)) => self.tell_pmix(cx, |pmix, cx| pmix.on_order(cx, order)),
            // The only answer that a correct root sends to an agent itself, and not for a client or PMIx server of the
            // agent, is an order.
            (Asker::Agent, _) => {}
        }
    }

    pub fn on_launcher_gone(&mut self, cx: &mut Cx<'_>) {
        self.output.discard();
        cx.fail_by(Cause::Launcher { problem: "its launcher has exited".into() });
    }

    /// A child has not linked. `settled`: no more reports about its subtree are expected. `missing`: the child and the
    /// agents below it that must be reported now.
    pub fn on_child_missing(&mut self, cx: &mut Cx<'_>, child: AgentId, settled: bool, missing: Vec<MissingAgent>) {
        if settled {
            cx.common.children.on_lost(child);
        }
        if !missing.is_empty() {
            self.on_missing(cx, missing);
        }
    }

    /// In a session of one run: the link to a child has broken.
    pub fn on_child_lost(&mut self, cx: &mut Cx<'_>, child: AgentId, cause: Cause) {
        self.on_agent_failed(cx, child, cause);
        cx.common.children.on_lost(child);
    }

    /// At the root of a standing session: handles the loss of an agent of the job.
    pub fn on_agent_failed(&mut self, cx: &mut Cx<'_>, agent: AgentId, cause: Cause) {
        self.ends.on_agent_failed(cx, agent, cause);
    }

    /// Handles a report of agents that have not started or linked.
    pub fn on_missing(&mut self, cx: &mut Cx<'_>, missing: Vec<MissingAgent>) {
        if cx.facts.root {
            self.ends.on_missing((cx.now(), cx.agent.start_by), missing);
        } else {
            cx.agent.links.send_job_up(cx.common.up, cx.facts.control(JobUp::Missing(missing)));
        }
    }

    /// Handles the permanent loss of an agent, which the root has already reported.
    pub fn on_agent_lost(&mut self, cx: &mut Cx<'_>, agent: AgentId) {
        if !cx.facts.has_agent(agent) {
            return;
        }
        self.ends.is_torn = true;
        cx.common.children.on_lost(agent);
        if cx.facts.tree.subtree_contains(agent, cx.facts.me) {
            self.abandon(cx);
        }
    }

    /// Ends the job on this agent, because no agent above it in the job's tree waits for the job any more.
    pub fn abandon(&mut self, cx: &mut Cx<'_>) {
        cx.common.up = UpHop::Nowhere;
        self.output.discard();
        cx.kill(0);
    }

    /// Gives up waiting: the kill did not end everything in time. If only output that waits for a reader is left, that
    /// is no failure.
    fn give_up(&mut self, cx: &mut Cx<'_>) {
        let held_up = !self.output.is_flushed();
        // In a standing session a job's end must not affect the link to an agent.
        let standing = cx.agent.standing;
        let links = &cx.agent.links;
        let is_lost = |agent| !held_up || (!standing && links.neighbours.child(agent).is_none());
        for agent in cx.common.children.give_up(is_lost) {
            self.ends.is_torn = true;
            if standing {
                cx.agent.links.send_peer(agent, cx.facts.control(JobDown::Over { agents: Vec::new() }));
            } else {
                cx.drop_child(agent);
            }
        }
        if cx.common.ranks.are_alive() {
            self.output.give_ranks_up(cx);
        }
        if held_up {
            if self.ends.is_unwanted {
                self.output.discard();
            }
            self.ends.force(cx.now());
        } else if let Some(pmix) = &mut self.service.pmix {
            pmix.server.on_keeper_lost();
        }
    }

    /// Whether the job can be forgotten on this agent.
    fn is_over(&mut self, cx: &Cx<'_>) -> bool {
        // A missing child counts as done only when no more reports about the agents below it are expected.
        let all_gone = !cx.common.ranks.are_busy() && cx.common.children.are_done();
        let is_over = all_gone && self.lifecycle.on_all_gone() && self.is_drained(cx);
        if is_over {
            self.lifecycle.on(Event::Settled);
        }
        is_over
    }

    /// Whether nothing of the ended ranks is awaited any more: output, PMIx server, forwarded collectives, store
    /// writes, clock offset.
    fn is_drained(&self, cx: &Cx<'_>) -> bool {
        // Local ranks need not wait for their collectives, but this agent may still have to forward frames for other
        // nodes.
        let passes_on = !self.ends.is_ending() && self.service.open_collectives() > 0;
        // Without the clock offset the time stamps cannot be compared with those of other agents.
        let wants_clock =
            cx.common.profile.is_some() && !cx.facts.root && !cx.agent.clock.is_known() && !self.ends.is_forced();
        // Ranks of other nodes may wait for values that the local ranks have written to the store before they ended.
        let has_writes = !self.ends.is_ending() && self.service.store.as_ref().is_some_and(|store| !store.is_drained());
        !self.service.has_server() && self.output.is_flushed() && !passes_on && !wants_clock && !has_writes
    }

    fn say_done(&mut self, cx: &mut Cx<'_>) {
        let mut done = Done {
            ranks: cx.common.ranks.len() as u32,
            pmi_clients: cx.common.ranks.iter().filter(|process| process.spoke_pmi || process.has_further).count()
                as u32,
            is_torn: self.ends.is_torn,
        };
        for below in cx.common.children.iter().filter_map(|child| child.done) {
            done.ranks += below.ranks;
            done.pmi_clients += below.pmi_clients;
        }
        if let Some(profile) = cx.common.profile.take() {
            let of_pmix = self.service.pmix.as_ref().map(|pmix| &pmix.fences.all);
            let collectives = [Some(&self.service.pmi.collectives), of_pmix].into_iter().flatten();
            let traffic = collectives.flat_map(|of| [of.exchanges.traffic, of.barriers.traffic]);
            cx.agent
                .links
                .send_job_up(cx.common.up, profile.finish(cx.facts, &cx.agent.clock, traffic, &cx.common.ranks));
        }
        if let Some(error) = self.ends.first_error.take() {
            cx.agent.links.send_job_up(cx.common.up, cx.facts.control(JobUp::RankError(error)));
        }
        if cx.facts.root {
            let ended = ToLauncher::Ended(Ended { failure: self.ends.take_failure(), done });
            cx.agent.links.send_job_up(cx.common.up, cx.facts.control(ended));
            let answer = ToLauncher::Decided(Err(format!("job {} has ended", cx.facts.id())));
            cx.agent.links.report(&cx.facts.control(answer), true);
        } else {
            cx.agent.links.send_job_up(cx.common.up, cx.facts.control(JobUp::Done(done)));
        }
        cx.output(Output::JobGone { job: cx.facts.id() });
    }
}

/// Fails the job because a direct link to an agent that is no neighbour in the tree could not be made, or broke.
pub fn on_no_link(cx: &mut Cx<'_>, agent: AgentId, problem: String) {
    let host = cx.facts.node_of(agent).map(|node| cx.facts.name_of(node));
    let host = host.unwrap_or_else(|| format!("agent {agent}"));
    cx.fail_here(Cause::NoDirectLink { agent, host, problem });
}
