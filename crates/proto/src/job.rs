//! One job as seen by one agent: its local ranks, the children that run more of it, and the parent in its tree.
//!
//! `Job` owns the parts of a job. The agent lets it act ([`Job::act`]) by one of its `on_*` functions. Each event is
//! handled by one part, which sends what it has to send through [`Cx`] and returns what the others must do; the
//! function that called the part then calls those, so that the whole flow of an event is on the stack. What ends the
//! job is acted on after the rest of the input ([`Job::end_if_asked`]); until then the job does not count as ending.

pub mod children;
pub mod collectives;
pub mod cx;
pub mod facts;
mod failure;
pub mod groups;
mod lifecycle;
mod names;
mod profile;
pub mod ranks;
mod stalls;
mod stdio;
mod tree;

use crate::collective::{Entering, Finished};
use crate::input::Sink;
use crate::io::{ExitStatus, JobEvent, Output, SignalTarget, Stream};
use crate::outbox::control_frame;
use crate::plan::{kernel_session, spawn_plan};
use crate::pmi_server::{self, PmiServer, endpoints};
use crate::pmix::{self, Pmix, Remains};
use crate::time::Instant;
use bytes::Bytes;
use children::Children;
use collectives::{Arrived, Collectives};
use cx::Ending;
pub use cx::{AgentCx, Cx, FromJob};
use facts::{Facts, View};
use failure::Ends;
use groups::{Arrived as Barrier, Barriers, Over};
use lifecycle::Lifecycle;
pub use lifecycle::Wait;
use names::Names;
pub use profile::Born;
use profile::Profile;
use ranks::{Exit, Process, ProcessState, Ranks};
use stalls::Stalls;
use std::collections::VecDeque;
use std::sync::Arc;
use stdio::Stdio;
pub use tree::{JobTree, Up, agents_of, participants};
use wireup_coll::mapping::Mapping;
use wireup_wire::addresses;
use wireup_wire::collective::Collective;
use wireup_wire::frame::{Frame, Kind};
use wireup_wire::group::Purpose;
use wireup_wire::ids::{AgentId, Client, Epoch, JobId, LocalRank};
use wireup_wire::job::JobSpec;
use wireup_wire::modex::Between;
use wireup_wire::names::{Asker, Down};
use wireup_wire::peer::{Cause, Departed, Done, Ended, MissingAgent, Note, SpawnError};
use wireup_wire::rank_address;
use wireup_wire::relay;
use wireup_wire::signal::is_fatal;
use wireup_wire::talk::{Control, JobDown, JobUp, ToLauncher};

pub struct Job {
    facts: Arc<Facts>,
    up: Up,
    lifecycle: Lifecycle,
    children: Children,
    ranks: Ranks,
    stdio: Stdio,
    ends: Ends,
    stalls: Stalls,
    pmi: PmiServer,
    collectives: Collectives,
    barriers: Barriers,
    pmix: Option<Box<Pmix>>,
    names: Names,
    profile: Option<Box<Profile>>,
    /// Clients with requests that can be answered, because what these waited for has come. One client is resumed after
    /// the other: nested calls would use stack for each client, of which there may be thousands.
    resumed: VecDeque<Client>,
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
        let config = collectives::config(&facts);
        let mut lifecycle = Lifecycle::new();
        waits.iter().for_each(|wait| lifecycle.wait_for(*wait));
        let ranks = facts.node.map(|node| mapping.ranks_of(node).map(Process::new).collect()).unwrap_or_default();
        Job {
            up: facts.tree.up(),
            lifecycle,
            children: Children::new(&facts.below),
            ranks: Ranks::new(ranks),
            stdio: Stdio::new(&facts),
            ends: Ends::default(),
            stalls: Stalls::default(),
            pmi: PmiServer::new(&facts),
            pmix: Pmix::new(&facts, &config),
            names: Names::default(),
            collectives: Collectives::new(config),
            barriers: Barriers::new(facts.below.len()),
            profile: Profile::new(&facts, born, now),
            resumed: VecDeque::new(),
            facts: Arc::new(facts),
        }
    }

    /// Lets the job act, by one of its `on_*` functions. Returns whether the job has ended here and can be forgotten.
    pub fn act(&mut self, agent: AgentCx<'_>, act: impl FnOnce(&mut Job, &mut Cx<'_>)) -> bool {
        let facts = Arc::clone(&self.facts);
        let mut cx = Cx::new(agent, &facts, self.up);
        cx.profile = self.profile.take();
        act(self, &mut cx);
        while let Some(client) = self.resumed.pop_front() {
            self.on_client_bytes(&mut cx, client, &[]);
        }
        self.check_broken(&mut cx);
        self.end_if_asked(&mut cx);
        self.settle(&mut cx);
        self.end_if_asked(&mut cx);
        self.profile = cx.profile.take();
        let is_over = self.is_over(&cx);
        if is_over {
            self.say_done(&mut cx);
        }
        is_over
    }

    /// Something has happened to the part of the job on this node.
    pub fn on_event(&mut self, cx: &mut Cx<'_>, event: JobEvent) {
        match event {
            JobEvent::RankStarted { local, pid, spawn_ns, exec_ns } => {
                self.on_started(cx, local, pid, (spawn_ns, exec_ns))
            }
            JobEvent::RankStartFailed { local, error } => self.on_start_failed(cx, local, error),
            JobEvent::OutOfMemory { local } => self.ranks.on_out_of_memory(local),
            JobEvent::RanksLack { what } => cx.note(Note::Lacks { host: cx.facts.host(), what }),
            JobEvent::RanksBound { picture } => cx.note(Note::Bound { host: cx.facts.host(), picture }),
            JobEvent::RankExited { local, status } => self.on_exited(cx, local, status),
            JobEvent::KeeperLost { problem } if self.is_ending() => self.on_keeper_lost(cx, problem),
            JobEvent::KeeperLost { problem } => self.ends.on_keeper_lost(cx.now(), problem),
            JobEvent::ClientJoined { client } => {
                self.ranks.on_joined(client.local);
                self.pmi.on_joined(cx, client);
            }
            JobEvent::ClientBytes { client, bytes } => {
                self.on_client_bytes(cx, client, &bytes);
            }
            JobEvent::ClientGone { client } => self.on_client_gone(cx, client),
            JobEvent::RanksListen { address } => self.on_ranks_listen(cx, &address),
            JobEvent::SecretOfRanks { secret } => self.pmi.on_secret(cx, &secret),
            JobEvent::Shared { share } => self.pmi.on_shared(cx, share),
            JobEvent::ShareFailed { share, problem } => self.pmi.on_share_failed(cx, share, problem),
            JobEvent::StdioBytes { local, stream, bytes } => self.on_output(cx, local, stream, &bytes),
            JobEvent::StdioClosed { local, stream } => {
                if self.ranks.on_stream_closed(local, stream) {
                    self.stdio.on_ended((local, self.ranks[local.index()].rank), stream);
                }
            }
            JobEvent::StdinTaken { local, bytes } => self.stdio.on_taken(cx, Sink::Local(local), bytes),
            JobEvent::PmixBytes { bytes } => {
                self.pmix(cx, |pmix, _, _| pmix.on_bytes(&bytes));
                while self.pmix(cx, Pmix::read) == Some(true) {}
            }
            JobEvent::PmixSaid { text } => self.tell_pmix(cx, |pmix, cx, _| pmix.on_said(cx, text)),
            JobEvent::PmixGone { status, stderr, no_room } => {
                self.tell_pmix(cx, |pmix, cx, view| pmix.on_gone(cx, view, status, &stderr, no_room));
            }
            JobEvent::PmixFailed { error } => self.tell_pmix(cx, |pmix, cx, view| pmix.on_failed(cx, view, &error)),
            JobEvent::Relay { relay, event } => self.pmi.on_relay_event(cx, relay, event),
            JobEvent::RanksListenFailed { error } => {
                cx.fail_here(Cause::Spawn(error));
                self.drop_deferred();
            }
        }
    }

    /// Ends the job if a part has found a reason, and sends the signals that parts have asked for.
    fn end_if_asked(&mut self, cx: &mut Cx<'_>) {
        while let Some(ending) = cx.take_ending() {
            let failure = match ending {
                Ending::Fail(failure) => failure,
                Ending::FailBy(failure) => {
                    self.ends.on_unwanted();
                    failure
                }
                Ending::Kill { grace_ns } => {
                    self.kill(cx, grace_ns);
                    continue;
                }
                Ending::Signal(signal) => {
                    self.signal(cx, signal);
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
        self.lifecycle.on_kill();
        let Some(signals) = signals else { return };
        cx.control_down(JobDown::Kill { grace_ns });
        self.tell_pmix(cx, Pmix::drop_deferred);
        if self.lifecycle.waits_for(Wait::Others) {
            self.drop_deferred();
        }
        signals.iter().for_each(|signal| self.signal(cx, *signal));
    }

    /// Sends a signal to all local ranks.
    fn signal(&mut self, cx: &mut Cx<'_>, signal: i32) {
        if self.ranks.are_busy() {
            let output = Output::Signal { job: cx.facts.id(), target: SignalTarget::All, signal };
            self.lifecycle.for_ranks(cx, output);
        }
    }

    /// Gives up the local ranks that wait to be started: they will not be started.
    fn drop_deferred(&mut self) {
        if self.lifecycle.drop_deferred() {
            self.give_ranks_up();
        }
    }

    /// No more events about the local ranks are expected.
    fn give_ranks_up(&mut self) {
        for (local, stream) in self.ranks.give_up() {
            self.stdio.on_ended((local, self.ranks[local.index()].rank), stream);
        }
    }

    /// The view given to a part.
    fn view<'a>(&'a self, cx: &Cx<'a>) -> View<'a> {
        let Job { ranks, children, ends, .. } = self;
        View { now: cx.now(), facts: cx.facts, ranks, children, is_ending: ends.is_ending() }
    }

    /// Lets the PMIx part act, if the job offers PMIx, and does what the part asks for.
    fn pmix<T>(&mut self, cx: &mut Cx<'_>, tell: impl FnOnce(&mut Pmix, &mut Cx<'_>, &View<'_>) -> T) -> Option<T> {
        let Job { pmix, ranks, children, ends, .. } = self;
        let pmix = pmix.as_mut()?;
        let view = View { now: cx.now(), facts: cx.facts, ranks, children, is_ending: ends.is_ending() };
        let result = tell(pmix, cx, &view);
        for asked in pmix.take_asked() {
            self.on_pmix_asked(cx, asked);
        }
        Some(result)
    }

    fn tell_pmix(&mut self, cx: &mut Cx<'_>, tell: impl FnOnce(&mut Pmix, &mut Cx<'_>, &View<'_>)) {
        self.pmix(cx, tell);
    }

    fn on_pmix_asked(&mut self, cx: &mut Cx<'_>, asked: pmix::Asked) {
        match asked {
            pmix::Asked::Connected(local) => {
                self.ranks.on_connected(cx.now(), local, true);
                self.miss_absent(cx);
            }
            pmix::Asked::Finalized(local) => self.on_finalized(cx, local, true),
            pmix::Asked::Name { from, id, ask } => self.names.ask(cx, from, Asker::Server(id), ask),
            pmix::Asked::Log { local, stream, bytes } => self.on_output(cx, local, stream, &bytes),
            pmix::Asked::StartRanks(env) => {
                self.lifecycle.add_env(env);
                self.lifecycle.release(cx, Wait::Server);
            }
            pmix::Asked::DropRanks => self.drop_deferred(),
            pmix::Asked::Gone => {
                for local in self.ranks.on_server_gone() {
                    self.depart(cx, local);
                }
                self.sweep_if_gone(cx);
            }
        }
    }

    /// Spawns the local ranks unless something holds them. The children were told, except those in `lost`, which were
    /// lost before.
    pub fn begin(&mut self, cx: &mut Cx<'_>, lost: Vec<MissingAgent>) {
        let facts = cx.facts;
        if let Some(node) = facts.node.filter(|_| !self.ranks.is_empty()) {
            if let Some(spawned) = &facts.spec.spawned {
                cx.output(Output::OfFamily { job: facts.id(), family: spawned.family, by: spawned.by });
            }
            self.lifecycle.defer(spawn_plan(&facts.spec, &facts.mapping, node));
            if self.pmix.is_some() {
                self.lifecycle.wait_for(Wait::Server);
            }
            if let Some(ports) = facts.spec.options.rank_ports {
                self.lifecycle.wait_for(Wait::Sockets);
                let (job, count) = (facts.id(), facts.local_size());
                let base = facts.spec.endpoints.get(node.index()).and_then(|address| rank_address::port(address));
                let kernel_session = kernel_session(&facts.spec, node);
                cx.output(Output::ListenForRanks { job, count, ports, base, kernel_session });
            }
            self.tell_pmix(cx, Pmix::start);
            self.lifecycle.spawn_if_free(cx);
        }
        if let Some(agents) = self.collectives.first_links(facts) {
            cx.prepare_links(agents);
        }
        for missing in lost {
            self.children.on_lost(missing.agent);
            self.on_missing(cx, vec![missing]);
        }
    }

    /// The listening sockets of the local ranks exist, so the ranks can start. The sockets' address goes to all nodes,
    /// unless the job's description has the addresses of all nodes.
    fn on_ranks_listen(&mut self, cx: &mut Cx<'_>, address: &Bytes) {
        let rows = &cx.facts.spec.endpoints;
        if rows.is_empty() {
            for entering in endpoints::entering(&self.ranks, address) {
                let finished = self.collectives.enter(cx, entering, Bytes::new);
                self.on_finished(cx, finished);
            }
        } else {
            self.on_endpoints(cx, rows.clone());
        }
        self.lifecycle.release(cx, Wait::Sockets);
    }

    /// The addresses of all ranks are known: one row for each node.
    fn on_endpoints(&mut self, cx: &mut Cx<'_>, rows: Vec<Bytes>) {
        self.pmi.on_endpoints(cx, rows.clone());
        self.tell_pmix(cx, |pmix, cx, _| pmix.on_endpoints(cx, rows));
    }

    /// The link to the parent is up.
    pub fn on_linked(&mut self, cx: &mut Cx<'_>) {
        self.lifecycle.release(cx, Wait::Link);
        if let Some(profile) = &mut cx.profile {
            profile.on_linked(cx.agent.now);
        }
    }

    pub fn on_tick(&mut self, cx: &mut Cx<'_>) {
        let Job { ranks, stdio, .. } = self;
        stdio.on_tick(cx.now(), |local| ranks[local.index()].rank);
        for local in self.ranks.on_tick(cx.now()) {
            self.depart(cx, local);
        }
        if self.ends.on_tick(cx) {
            self.give_up(cx);
        }
        if let Some(lost) = self.ends.take_lost_keeper(cx.now()) {
            self.on_keeper_lost(cx, lost.problem);
        }
        self.check_stall(cx);
        let over = self.barriers.on_tick(cx);
        self.on_groups_over(cx, over);
        self.tell_pmix(cx, Pmix::on_tick);
    }

    fn on_start_failed(&mut self, cx: &mut Cx<'_>, local: LocalRank, error: SpawnError) {
        if self.ranks.on_start_failed(local) {
            cx.fail_rank(&self.ranks[local.index()], Cause::Spawn(error));
            self.end_server_if_alone(cx);
        }
    }

    /// A local rank has ended.
    fn on_exited(&mut self, cx: &mut Cx<'_>, local: LocalRank, status: ExitStatus) {
        let Some(exit) = self.ranks.on_exited(cx.now(), local, status) else { return };
        self.end_server_if_alone(cx);
        self.pmi.on_gone(local);
        self.names.on_gone(cx, self.ranks[local.index()].rank);
        self.tell_pmix(cx, |pmix, cx, view| pmix.on_rank_gone(cx, view, local));
        self.stdio.on_sink_gone(cx, Sink::Local(local));
        match exit {
            Exit::Bad(cause) => cx.fail_rank(&self.ranks[local.index()], cause),
            Exit::Good => {
                let listens = self.pmix.as_ref().is_some_and(|pmix| pmix.listens());
                if self.ranks.on_left_well(cx.now(), local, listens) {
                    self.depart(cx, local);
                }
            }
        }
    }

    /// Ends the PMIx server if the last local rank has ended.
    fn end_server_if_alone(&mut self, cx: &mut Cx<'_>) {
        if !self.ranks.are_alive() {
            self.tell_pmix(cx, Pmix::end);
            self.sweep_if_gone(cx);
        }
    }

    /// Kills the processes that the ranks left behind, once the ranks and their PMIx server have ended, even while
    /// output of the ranks is unread.
    fn sweep_if_gone(&self, cx: &mut Cx<'_>) {
        let has_server = self.pmix.as_ref().is_some_and(|pmix| pmix.is_there());
        if !has_server && !self.ranks.are_alive() {
            cx.output(Output::Sweep { job: cx.facts.id() });
        }
    }

    /// A rank wrote, or the agent writes for it.
    fn on_output(&mut self, cx: &Cx<'_>, local: LocalRank, stream: Stream, bytes: &Bytes) {
        if let Some(process) = self.ranks.get(local.index()) {
            self.stdio.on_bytes(cx.now(), cx.facts, (local, process.rank), stream, bytes);
        }
    }

    fn on_started(&mut self, cx: &mut Cx<'_>, local: LocalRank, pid: u32, (spawn_ns, exec_ns): (u64, u64)) {
        if self.ranks.on_started(local, pid, spawn_ns, exec_ns)
            && let Some(signal) = self.ends.signal_for_newcomers()
        {
            cx.output(Output::Signal { job: cx.facts.id(), target: SignalTarget::One(local), signal });
        }
    }

    /// The keeper has ended, and the kernel kills the ranks: no more events about them will arrive.
    fn on_keeper_lost(&mut self, cx: &mut Cx<'_>, problem: Option<SpawnError>) {
        self.give_ranks_up();
        if let Some(pmix) = &mut self.pmix {
            pmix.on_keeper_lost();
        }
        cx.fail_here(Cause::KeeperLost { problem });
    }

    /// Handles the requests of a client: those in `bytes`, and earlier ones that had to wait.
    fn on_client_bytes(&mut self, cx: &mut Cx<'_>, client: Client, bytes: &[u8]) {
        let mut asked = self.pmi.on_bytes(cx, client, bytes);
        while let Some(one) = asked {
            self.on_pmi_asked(cx, client.local, one);
            asked = self.pmi.on_bytes(cx, client, &[]);
        }
    }

    fn on_pmi_asked(&mut self, cx: &mut Cx<'_>, local: LocalRank, asked: pmi_server::Asked) {
        match asked {
            pmi_server::Asked::Initialised => self.ranks.on_connected(cx.now(), local, false),
            pmi_server::Asked::MeetsNode => {
                self.ranks.on_meets_node(cx.now(), local);
                self.miss_absent(cx);
            }
            pmi_server::Asked::Enter { entry, reply_to } => {
                let (pmi, rank) = (&mut self.pmi, self.ranks[local.index()].rank);
                let entering = Entering { local, rank, entry, reply_to };
                let finished = self.collectives.enter(cx, entering, || pmi.take_pending());
                self.on_finished(cx, finished);
            }
            pmi_server::Asked::EnterGroup { group, value } => {
                let pairs = || self.pmi.pending_since(self.barriers.mark(&group.members));
                let own = value.unwrap_or_else(pairs);
                let over = self.barriers.enter(cx, local, group, own);
                self.on_groups_over(cx, over);
            }
            pmi_server::Asked::Name { client, ask } => {
                self.names.ask(cx, self.ranks[local.index()].rank, Asker::Client(client), ask);
            }
            pmi_server::Asked::Finalized => self.on_finalized(cx, local, false),
            pmi_server::Asked::Abort { code, message } => {
                cx.fail_rank(&self.ranks[local.index()], Cause::Aborted { code, message });
            }
            pmi_server::Asked::Unreadable { problem } => {
                cx.fail_rank(&self.ranks[local.index()], Cause::Pmi { problem });
            }
        }
    }

    fn on_finalized(&mut self, cx: &mut Cx<'_>, local: LocalRank, by_pmix: bool) {
        self.ranks.on_finalized(cx.now(), local, by_pmix);
        self.depart(cx, local);
    }

    /// The root's answer about names, for an asker on this node.
    fn on_named(&mut self, cx: &mut Cx<'_>, down: Option<Down>) {
        let Some(Down { asker, answer }) = down else { return };
        match asker {
            Asker::Client(client) => {
                self.pmi.on_named(cx, client, answer);
                self.resumed.push_back(client);
            }
            Asker::Server(id) => self.tell_pmix(cx, |pmix, cx, _| pmix.on_named(cx, id, answer)),
            Asker::Agent => self.tell_pmix(cx, |pmix, cx, view| pmix.on_order(cx, view, answer)),
        }
    }

    fn on_client_gone(&mut self, cx: &mut Cx<'_>, client: Client) {
        let was_member = self.pmi.on_closed(client);
        if client.is_secondary() {
            self.leave_groups(cx, client.local);
        } else if was_member {
            self.ranks.on_socket_closed(cx.now(), client.local);
        }
    }

    /// A frame along the job's tree, from child `from` or (`None`) from the parent.
    pub fn on_frame(&mut self, cx: &mut Cx<'_>, from: Option<AgentId>, frame: Frame) {
        let child = from.map(|agent| self.facts.child_index(agent));
        let Some(child) = child.map_or(Some(None), |index| index.map(Some)) else { return };
        match (child, frame.kind) {
            (Some(_), Kind::ExchangeUp) | (None, Kind::ExchangeDown) => {
                self.on_exchange(cx, Arrived::of_tree(cx.facts, child, frame));
            }
            (Some(_), Kind::GroupUp) | (None, Kind::GroupDown) => self.on_group(cx, child, frame),
            (Some(child), Kind::Output) => self.stdio.on_child_output(child, frame),
            (None, Kind::OutputCredit) => self.stdio.on_output_credit(&frame),
            (None, Kind::Input) => {
                for local in self.stdio.on_input(cx, &frame) {
                    let bytes = frame.payload.clone();
                    self.lifecycle.for_ranks(cx, Output::Write { job: cx.facts.id(), local, bytes });
                }
            }
            (Some(child), Kind::InputCredit) => {
                self.stdio.on_taken(cx, Sink::Child(child), frame.arg);
            }
            (Some(_), Kind::PmixUp) | (None, Kind::PmixDown) => {
                self.tell_pmix(cx, |pmix, cx, view| pmix.on_frame(cx, view, from, &frame));
            }
            (Some(_), Kind::NamesUp) => names::on_request(cx, frame),
            (None, Kind::NamesDown) => {
                let view = self.view(cx);
                let here = names::on_answer(cx, &view, frame);
                self.on_named(cx, here);
            }
            (Some(_), Kind::Trace) => cx.up(profile::frame(cx.facts, frame.payload)),
            // No correct agent sends frames in the wrong direction: ignore them.
            (
                _,
                Kind::Control
                | Kind::ExchangeUp
                | Kind::ExchangeDown
                | Kind::Output
                | Kind::OutputCredit
                | Kind::Input
                | Kind::InputCredit
                | Kind::Trace
                | Kind::Direct
                | Kind::Routed
                | Kind::Pair
                | Kind::GroupUp
                | Kind::GroupDown
                | Kind::Modex
                | Kind::Addresses
                | Kind::Relay
                | Kind::PmixUp
                | Kind::PmixDown
                | Kind::NamesUp
                | Kind::NamesDown,
            ) => {}
        }
    }

    fn on_exchange(&mut self, cx: &mut Cx<'_>, arrived: Result<Arrived, String>) {
        let arrived = match arrived {
            Ok(arrived) => arrived,
            Err(problem) => return cx.fail_here(Cause::Pmi { problem }),
        };
        if arrived.collective() == Collective::Modex {
            return self.tell_pmix(cx, |pmix, cx, view| pmix.on_exchange(cx, view, arrived));
        }
        let finished = self.collectives.on_frame(cx, arrived);
        self.on_finished(cx, finished);
    }

    fn on_group(&mut self, cx: &mut Cx<'_>, child: Option<usize>, frame: Frame) {
        match Barrier::read(cx.facts, child, frame) {
            Ok(arrived) if arrived.is_of_servers() => {
                self.tell_pmix(cx, |pmix, cx, view| pmix.on_group_frame(cx, view, arrived));
            }
            Ok(arrived) => {
                let over = self.barriers.on_frame(cx, arrived);
                self.on_groups_over(cx, over);
            }
            Err(problem) => cx.fail_here(Cause::Pmi { problem }),
        }
    }

    /// Collectives of groups are complete: answers the local members.
    fn on_groups_over(&mut self, cx: &mut Cx<'_>, over: Vec<Over>) {
        for Over { group, waiting, pairs } in over {
            match group.purpose {
                Purpose::Barrier => self.pmi.on_barrier_over(cx, &group, waiting, pairs),
                Purpose::Gather => self.pmi.on_gathered(cx, &group, waiting, &pairs),
            }
        }
    }

    /// Handles a message from the parent.
    pub fn on_control_down(&mut self, cx: &mut Cx<'_>, message: JobDown) {
        match message {
            JobDown::Signal { signal } if self.lifecycle.waits_for(Wait::Others) && is_fatal(signal) => {
                cx.fail_by(Cause::Interrupted { signal });
            }
            JobDown::Signal { signal } => {
                self.signal(cx, signal);
                cx.control_down(message);
            }
            JobDown::Kill { grace_ns } => cx.kill(grace_ns),
            JobDown::Resize { rows, columns } => {
                self.resize(cx, rows, columns);
                cx.control_down(message);
            }
            JobDown::StallAsk { collective } if cx.facts.root => self.ask_stall(cx, collective),
            JobDown::StallAsk { collective } => self.survey(cx, collective),
            JobDown::Over { .. } => self.abandon(cx),
            JobDown::StartRanks => self.start_together(cx),
        }
    }

    /// Handles a message from a child.
    pub fn on_control_up(&mut self, cx: &mut Cx<'_>, from: AgentId, message: JobUp) {
        let Some(child) = cx.facts.child_index(from) else { return };
        match message {
            JobUp::Started { ranks, pmix } => {
                self.children.on_started(from, ranks);
                if let Some(opened) = pmix {
                    self.tell_pmix(cx, |pmix, cx, _| pmix.on_opened(cx, opened));
                }
            }
            JobUp::Ready => self.children.on_ready(from),
            JobUp::Done(done) => self.on_child_done(cx, child, done),
            JobUp::Failed(failure) => cx.fail(failure),
            JobUp::Departed(departed) => self.on_departed(cx, departed),
            JobUp::StallAsk { collective } => self.ask_stall(cx, collective),
            JobUp::Stall(_) => cx.control_up(message),
            JobUp::Missing(missing) => self.on_missing(cx, missing),
        }
    }

    fn on_child_done(&mut self, cx: &mut Cx<'_>, child: usize, done: Done) {
        self.children.on_done(cx.facts.below[child], done);
        if done.is_torn {
            self.ends.tear();
        }
        self.stdio.on_sink_gone(cx, Sink::Child(child));
        self.barriers.on_child_done(child);
        self.tell_pmix(cx, |pmix, cx, view| pmix.on_child_done(cx, view, child));
    }

    fn resize(&mut self, cx: &mut Cx<'_>, rows: u16, columns: u16) {
        let Some(pty) = cx.facts.spec.options.pty else { return };
        if let Some(index) = self.ranks.iter().position(|process| process.rank == pty.rank) {
            let (job, local) = (cx.facts.id(), LocalRank(index as u16));
            self.lifecycle.for_ranks(cx, Output::Resize { job, local, rows, columns });
        }
    }

    /// A collective's direct frame from another node's agent.
    pub fn on_direct(&mut self, cx: &mut Cx<'_>, from: AgentId, frame: Frame) {
        if let Some(node) = cx.facts.node_of(from) {
            self.on_exchange(cx, Arrived::of_node(node, frame));
        }
    }

    /// A request from another node's agent for data of local PMIx ranks, or its answer.
    pub fn on_between(&mut self, cx: &mut Cx<'_>, from: AgentId, message: Between) {
        self.tell_pmix(cx, |pmix, cx, view| pmix.on_between(cx, view, from, message));
    }

    /// A question of another node's agent about where local ranks are reached, or its answer.
    pub fn on_addresses(&mut self, cx: &mut Cx<'_>, from: AgentId, message: addresses::Between) {
        if let Some(node) = cx.facts.node_of(from) {
            self.pmi.on_addresses(cx, node, message);
        }
    }

    /// A message of another node's agent about a relay between ranks.
    pub fn on_relayed(&mut self, cx: &mut Cx<'_>, from: AgentId, message: relay::Between) {
        if let Some(node) = cx.facts.node_of(from) {
            self.pmi.on_relayed(cx, node, message);
        }
    }

    /// At the root: an answer about names for one of the job's agents.
    pub fn on_answer(&mut self, cx: &mut Cx<'_>, agent: AgentId, down: Down) {
        let view = self.view(cx);
        let here = names::answer(cx, &view, agent, down);
        self.on_named(cx, here);
    }

    pub fn on_launcher_gone(&mut self, cx: &mut Cx<'_>) {
        self.stdio.discard();
        cx.fail_by(Cause::Launcher { problem: "its launcher has exited".into() });
    }

    /// A child has not linked. `settled`: no more reports about its subtree are expected. `missing`: the child and the
    /// agents below it that must be reported now.
    pub fn on_child_missing(&mut self, cx: &mut Cx<'_>, child: AgentId, settled: bool, missing: Vec<MissingAgent>) {
        if settled {
            self.children.on_lost(child);
        }
        if !missing.is_empty() {
            self.on_missing(cx, missing);
        }
    }

    /// A linked child is gone, in a session of one run.
    pub fn on_child_lost(&mut self, cx: &mut Cx<'_>, child: AgentId, cause: Cause) {
        self.on_agent_failed(cx, child, cause);
        self.children.on_lost(child);
    }

    /// At the root of a standing session: an agent of the job is lost.
    pub fn on_agent_failed(&mut self, cx: &mut Cx<'_>, agent: AgentId, cause: Cause) {
        self.ends.on_agent_failed(cx, agent, cause);
    }

    /// Agents have not started or linked.
    pub fn on_missing(&mut self, cx: &mut Cx<'_>, missing: Vec<MissingAgent>) {
        if cx.facts.root {
            self.ends.on_missing((cx.now(), cx.agent.start_by), missing);
        } else {
            cx.control_up(JobUp::Missing(missing));
        }
    }

    /// An agent is permanently lost; the root has already reported it.
    pub fn on_agent_lost(&mut self, cx: &mut Cx<'_>, agent: AgentId) {
        if !cx.facts.has_agent(agent) {
            return;
        }
        self.ends.tear();
        self.children.on_lost(agent);
        if cx.facts.tree.subtree_contains(agent, cx.facts.me) {
            self.abandon(cx);
        }
    }

    /// No ancestor waits for the job any more.
    pub fn abandon(&mut self, cx: &mut Cx<'_>) {
        self.up = Up::Nowhere;
        cx.up = Up::Nowhere;
        self.stdio.discard();
        cx.kill(0);
    }

    /// Gives up waiting: the kill did not end everything in time. If only output that waits for a reader is left, that
    /// is no failure.
    fn give_up(&mut self, cx: &mut Cx<'_>) {
        let held_up = !self.stdio.is_flushed();
        // In a standing session a job's end must not affect the link to an agent.
        let standing = cx.agent.standing;
        let is_lost = |agent| !held_up || (!standing && !cx.is_linked(agent));
        for agent in self.children.give_up(is_lost) {
            self.ends.tear();
            if standing {
                cx.for_agent(
                    agent,
                    control_frame(cx.facts.id(), &Control::JobDown(JobDown::Over { agents: Vec::new() })),
                );
            } else {
                cx.drop_child(agent);
            }
        }
        if self.ranks.are_alive() {
            self.give_ranks_up();
        }
        if held_up {
            if self.ends.is_unwanted() {
                self.stdio.discard();
            }
            self.ends.wait_longer(cx.now());
        } else if let Some(pmix) = &mut self.pmix {
            pmix.on_keeper_lost();
        }
    }

    /// A rank waits for the others of its node: ranks that have ended without calling init count as departed.
    fn miss_absent(&mut self, cx: &mut Cx<'_>) {
        let ranks = &self.ranks;
        if !ranks.are_fewer() {
            return;
        }
        let mut all = (0..ranks.len() as u16).map(LocalRank);
        if let Some(absent) = all.find(|local| ranks.is_awaited_in_library(*local)) {
            self.on_departed(cx, self.departed(absent));
        }
    }

    /// The report about a local rank that enters no more collectives.
    fn departed(&self, local: LocalRank) -> Departed {
        let process = &self.ranks[local.index()];
        let exit = match process.state {
            ProcessState::Gone { exit } => exit,
            ProcessState::Planned | ProcessState::Running => None,
        };
        let awaited = process.spoke_pmi || self.ranks.is_awaited_in_library(local);
        Departed {
            rank: process.rank,
            pid: process.pid,
            node: self.facts.own_node(),
            epoch: self.collectives.exchanges.next_of(local),
            modex_epoch: self.pmix.as_ref().map_or(Epoch(0), |pmix| pmix.exchanges().next_of(local)),
            finalized: process.finalized,
            initialised: process.spoke_pmi,
            deserted: awaited && !process.finalized && exit.is_some(),
            exit,
        }
    }

    /// A local rank enters no more collectives.
    fn depart(&mut self, cx: &mut Cx<'_>, local: LocalRank) {
        let departed = self.departed(local);
        self.pmi.on_departed(local);
        self.leave_groups(cx, local);
        self.tell_pmix(cx, |pmix, cx, view| pmix.on_member_departed(cx, view, local, departed));
        self.on_departed(cx, departed);
    }

    /// A local rank enters no more collectives of groups, unless another library in its process may still enter some.
    fn leave_groups(&mut self, cx: &mut Cx<'_>, local: LocalRank) {
        if self.pmi.has_left(local) {
            let departed = self.departed(local);
            self.pmi.on_left(cx, departed.rank);
            self.barriers.on_departed(local, departed);
        }
    }

    /// A rank of the subtree enters no more collectives.
    fn on_departed(&mut self, cx: &mut Cx<'_>, departed: Departed) {
        let of_servers = Departed { epoch: departed.modex_epoch, ..departed };
        let news = self.collectives.exchanges.on_departed(departed)
            | self.pmix.as_mut().is_some_and(|pmix| pmix.on_departed(of_servers));
        if news && cx.facts.root {
            self.ends.on_departed(cx.now(), departed);
        } else if news {
            cx.control_up(JobUp::Departed(departed));
        }
    }

    /// Ends the job if ranks wait in a collective for a rank that will never enter it.
    fn check_broken(&mut self, cx: &mut Cx<'_>) {
        if self.ends.has_failed() {
            return;
        }
        self.barriers.check_broken(cx);
        let exchanges = &self.collectives.exchanges;
        let broken = exchanges.broken().map(|broken| (broken, exchanges.arrived()));
        let broken = broken.or_else(|| self.pmix.as_ref().and_then(|pmix| pmix.broken()));
        if let Some(((departed, epoch, collective), waiting)) = broken {
            let (exit, finalized) = (departed.exit, departed.finalized);
            cx.fail_departed(departed, Cause::LeftFence { epoch, collective, exit, finalized, waiting });
        }
    }

    /// Collectives are complete: stores their outcomes and answers the local ranks.
    fn on_finished(&mut self, cx: &mut Cx<'_>, finished: Vec<Finished>) {
        for finished in finished {
            let Finished { waiting, outcome, trace, .. } = finished;
            let told = self.pmi.on_finished(cx, waiting, outcome);
            self.resumed.extend(told.resumed.into_iter().map(Client::from));
            if let Some(rows) = told.endpoints {
                self.on_endpoints(cx, rows);
            }
            cx.trace(trace);
        }
    }

    /// If a wait has become too long, the root asks all agents for the missing ranks.
    fn check_stall(&mut self, cx: &mut Cx<'_>) {
        let in_init = self.ranks.check_init(cx.now(), cx.facts.spec.options.stall_report_ns);
        if in_init || self.wait_deadline().is_some_and(|due| cx.now() >= due) {
            self.mark_asked();
            self.ask_stall(cx, None);
        }
        self.survey_if_due(cx);
    }

    fn wait_deadline(&self) -> Option<Instant> {
        let after_ns = self.facts.spec.options.stall_report_ns;
        let of_ranks = self.collectives.exchanges.stall_deadline(after_ns).into_iter();
        let of_servers = self.pmix.as_ref().and_then(|pmix| pmix.stall_deadline(after_ns));
        let of_init = self.ranks.stall_deadline(after_ns);
        of_ranks.chain(self.barriers.stall_deadline(after_ns)).chain(of_servers).chain(of_init).min()
    }

    fn mark_asked(&mut self) {
        self.collectives.exchanges.on_asked();
        self.barriers.on_asked();
        if let Some(pmix) = &mut self.pmix {
            pmix.on_asked();
        }
    }

    fn first_collective(&self) -> Option<Collective> {
        self.collectives.exchanges.first().or(self.pmix.as_ref().and_then(|pmix| pmix.exchanges().first()))
    }

    fn ask_stall(&mut self, cx: &mut Cx<'_>, collective: Option<Collective>) {
        let first = self.first_collective();
        self.stalls.ask(cx, collective, first);
        self.survey_if_due(cx);
    }

    fn survey_if_due(&mut self, cx: &mut Cx<'_>) {
        if let Some(collective) = self.stalls.take_due(cx.now()) {
            self.survey(cx, collective);
        }
    }

    /// Asks the children for missing ranks, and reports those of this node.
    fn survey(&mut self, cx: &mut Cx<'_>, collective: Option<Collective>) {
        let collective = collective.or(self.first_collective());
        self.mark_asked();
        cx.control_down(JobDown::StallAsk { collective });
        // A node's PMIx server does not say which of its ranks have entered: either all have, or none.
        let exchanges = match &self.pmix {
            Some(pmix) if collective == Some(Collective::Modex) => pmix.exchanges(),
            _ => &self.collectives.exchanges,
        };
        let of_servers = self.pmix.iter().flat_map(|pmix| pmix.group_stalls());
        let groups = self.barriers.stalls().chain(of_servers);
        let report = stalls::report(cx.facts, &self.ranks, collective, exchanges, groups);
        report.into_iter().for_each(|report| cx.control_up(JobUp::Stall(report)));
    }

    /// Flushes output and reports the start of the ranks, as far as possible.
    fn settle(&mut self, cx: &mut Cx<'_>) {
        self.stdio.flush(cx);
        self.say_ready(cx);
        // A failure is reported first: a job that was reported as started cannot fail to start.
        self.end_if_asked(cx);
        self.say_started(cx);
    }

    /// Once all agents of the subtree are there: tells the parent; the root lets the ranks start, unless agents are
    /// missing.
    fn say_ready(&mut self, cx: &mut Cx<'_>) {
        if !self.lifecycle.waits_for(Wait::Below) || !self.children.are_ready() {
            return;
        }
        self.lifecycle.release(cx, Wait::Below);
        if !cx.facts.root {
            cx.control_up(JobUp::Ready);
        } else if !self.ends.name_missing(cx) {
            self.start_together(cx);
        }
    }

    fn start_together(&mut self, cx: &mut Cx<'_>) {
        cx.control_down(JobDown::StartRanks);
        self.lifecycle.release(cx, Wait::Others);
    }

    /// Whether the job can be forgotten on this agent.
    fn is_over(&mut self, cx: &Cx<'_>) -> bool {
        // A missing child counts as done only when no more reports about the agents below it are expected.
        let all_gone = !self.ranks.are_busy() && self.children.are_done();
        let is_over = all_gone && self.lifecycle.on_all_gone() && self.is_drained(cx);
        if is_over {
            self.lifecycle.on_settled();
        }
        is_over
    }

    /// Whether nothing that the ended ranks have left is still awaited.
    fn is_drained(&self, cx: &Cx<'_>) -> bool {
        let has_server = self.pmix.as_ref().is_some_and(|pmix| pmix.is_there());
        // Local ranks need not wait for their collectives; but other nodes need what this one forwards.
        let passes_on = !self.ends.is_ending() && self.open_collectives() > 0;
        // Without the clock offset the time stamps cannot be compared with those of other agents.
        let wants_clock =
            self.profile.is_some() && !self.facts.root && !cx.agent.clock.is_known() && !self.ends.is_forced();
        !has_server && self.stdio.is_flushed() && !passes_on && !wants_clock
    }

    fn say_started(&mut self, cx: &mut Cx<'_>) {
        if self.ranks.are_starting() || !self.children.have_started() || !self.lifecycle.on_all_started() {
            return;
        }
        if self.ends.name_missing(cx) {
            return;
        }
        if let Some(profile) = &mut cx.profile {
            profile.on_all_started(cx.agent.now);
        }
        let ranks = self.children.ranks_started() + self.ranks.len() as u32;
        let pmix = self.pmix.as_ref().and_then(|pmix| pmix.opened());
        cx.control_up(JobUp::Started { ranks, pmix });
    }

    fn say_done(&mut self, cx: &mut Cx<'_>) {
        let mut done = Done {
            ranks: self.ranks.len() as u32,
            pmi_clients: self.ranks.iter().filter(|process| process.spoke_pmi || process.has_further).count() as u32,
            is_torn: self.ends.is_torn(),
        };
        for below in self.children.iter().filter_map(|child| child.done) {
            done.ranks += below.ranks;
            done.pmi_clients += below.pmi_clients;
        }
        if let Some(profile) = self.profile.take() {
            let of_servers = self.pmix.as_ref().map(|pmix| pmix.traffic()).unwrap_or_default();
            let traffic = [self.collectives.traffic(), self.barriers.traffic(), of_servers];
            cx.up(profile.finish(cx.facts, cx.agent.clock, traffic, &self.ranks));
        }
        if cx.facts.root {
            let ended = ToLauncher::Ended(Ended { failure: self.ends.take_failure(), done });
            cx.up(control_frame(cx.facts.id(), &Control::ToLauncher(ended)));
        } else {
            cx.control_up(JobUp::Done(done));
        }
        cx.output(Output::JobGone { job: cx.facts.id() });
    }

    fn open_collectives(&self) -> usize {
        self.collectives.exchanges.open() + self.pmix.as_ref().map_or(0, |pmix| pmix.open())
    }

    /// Time at which the job must get a `Tick`; `None`: no deadline.
    pub fn deadline(&self) -> Option<Instant> {
        let parts = [
            self.stdio.deadline(),
            self.wait_deadline(),
            self.stalls.deadline(),
            self.barriers.deadline(),
            self.pmix.as_ref().and_then(|pmix| pmix.deadline()),
            self.ends.deadline(),
            self.ranks.deadline(),
        ];
        parts.into_iter().flatten().min()
    }

    pub fn is_profiled(&self) -> bool {
        self.profile.is_some()
    }

    /// Whether the ranks were told to end.
    pub fn is_ending(&self) -> bool {
        self.ends.is_ending()
    }

    /// Whether the ranks were killed.
    pub fn is_forced(&self) -> bool {
        self.ends.is_forced()
    }

    /// Whether all ranks are running or have ended.
    pub fn has_started(&self) -> bool {
        self.lifecycle.has_started()
    }

    pub fn id(&self) -> JobId {
        self.facts.id()
    }

    /// The next hop of the job's frames towards its launcher.
    pub fn up(&self) -> Up {
        self.up
    }

    /// The agents with ranks of the job.
    pub fn agents(&self) -> Vec<AgentId> {
        self.facts.agents()
    }

    pub fn has_agent(&self, agent: AgentId) -> bool {
        self.facts.has_agent(agent)
    }

    /// The children that run a part of the job.
    pub fn child_agents(&self) -> impl Iterator<Item = AgentId> {
        self.facts.below.iter().copied()
    }

    pub fn has_child(&self, agent: AgentId) -> bool {
        self.facts.child_index(agent).is_some()
    }

    /// The position of another agent in the job's tree: parent (`Some(None)`), child, or neither (`None`).
    pub fn side(&self, agent: AgentId) -> Option<Option<AgentId>> {
        if self.up == Up::Agent(agent) { Some(None) } else { self.has_child(agent).then_some(Some(agent)) }
    }

    /// Whether agents may still store something of the job after its end, or keep ports for it.
    pub fn leaves_traces(&self) -> bool {
        let spec = &self.facts.spec;
        self.ends.is_torn() || spec.options.pmi.has_pmix() || !spec.endpoints.is_empty()
    }

    /// The data that the local ranks have left behind.
    pub fn take_remains(&mut self) -> Remains {
        self.pmix.as_mut().map(|pmix| pmix.take_remains()).unwrap_or_default()
    }

    /// Bytes of output buffered here, for the simulator's checkers.
    pub fn held_output_bytes(&self) -> usize {
        self.stdio.held_bytes()
    }

    /// Number of collectives in progress here, for the simulator's checkers.
    pub fn open_exchanges(&self) -> usize {
        self.open_collectives() + self.barriers.open()
    }

    /// Number of unanswered requests of PMIx servers, for the simulator's checkers.
    pub fn outstanding_asks(&self) -> usize {
        self.pmix.as_ref().map_or(0, |pmix| pmix.outstanding())
    }
}

/// A direct link to an agent that is no neighbour in the tree could not be made, or broke.
pub fn on_no_link(cx: &mut Cx<'_>, agent: AgentId, problem: String) {
    let host = cx.facts.node_of(agent).map(|node| cx.facts.name_of(node));
    let host = host.unwrap_or_else(|| format!("agent {agent}"));
    cx.fail_here(Cause::NoDirectLink { agent, host, problem });
}
