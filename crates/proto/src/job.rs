//! One job as seen by one agent: its local ranks, the children that run more of it, and the parent in its tree.
//!
//! ```text
//!   JobInput ──► Job ──► one part ──► effects ──► Job ──► other parts … ──► acts for the agent
//! ```
//!
//! This file only routes. A part takes its own state, a view of what it may read, and the input, and returns effects;
//! parts know nothing of each other. Each effect and everything that it causes is carried out before the next one, so
//! that frames keep the order in which they were caused, and no part is re-entered.

pub mod children;
pub mod collectives;
pub mod effect;
pub mod facts;
mod failure;
pub mod groups;
mod interface;
mod lifecycle;
mod names;
mod profile;
pub mod ranks;
mod stalls;
mod stdio;
mod tree;

use crate::collective::{Entering, Finished};
use crate::input::Sink;
use crate::io::{Output, SignalTarget};
use crate::outbox::control_frame;
use crate::plan::{app_of, kernel_session, spawn_plan};
use crate::pmi_server::{PmiServer, endpoints};
use crate::pmix::{Pmix, Remains};
use crate::time::Instant;
use bytes::Bytes;
use children::Children;
use collectives::{Arrived, Collectives};
use effect::{Effect, Effects};
use facts::{Facts, View};
use failure::Ends;
use groups::{Arrived as Barrier, Barriers};
pub use interface::{Act, Acts, JobInput, Turn};
use lifecycle::Lifecycle;
pub use lifecycle::Wait;
use names::Names;
pub use profile::Born;
use profile::Profile;
use ranks::{Process, ProcessState, Ranks};
use stalls::Stalls;
use std::mem;
use std::sync::Arc;
use stdio::Stdio;
pub use tree::{JobTree, Up, agents_of, participants};
use wireup_coll::mapping::Mapping;
use wireup_wire::collective::Collective;
use wireup_wire::frame::{Frame, Kind};
use wireup_wire::group::Purpose;
use wireup_wire::ids::{AgentId, Client, Epoch, LocalRank};
use wireup_wire::job::JobSpec;
use wireup_wire::names::{Asker, Down};
use wireup_wire::peer::{Cause, Control, Departed, Done, Ended, Failure, MissingAgent, Note, SpawnError};
use wireup_wire::rank_address;
use wireup_wire::signal::is_fatal;

pub struct Job {
    facts: Facts,
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
    /// Empty lists, kept because their memory is used again for the next input.
    room: [Effects; 2],
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
        let process = |rank| Process::new(rank, app_of(&facts.spec, rank));
        let ranks = facts.node.map(|node| mapping.ranks_of(node).map(process).collect()).unwrap_or_default();
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
            room: Default::default(),
            facts,
        }
    }

    /// Tells the job about one event. Returns whether the job has ended here and can be forgotten.
    pub fn handle(&mut self, turn: &Turn<'_>, input: JobInput, acts: &mut Acts) -> bool {
        let [mut out, mut caused] = mem::take(&mut self.room);
        self.on_input(turn, input, &mut out);
        self.carry(turn, &mut out, &mut caused, acts);
        self.settle(turn, &mut out);
        self.carry(turn, &mut out, &mut caused, acts);
        let is_over = self.is_over(turn);
        if is_over {
            self.say_done(turn, &mut out);
            self.carry(turn, &mut out, &mut caused, acts);
        }
        self.room = [out, caused];
        is_over
    }

    fn on_input(&mut self, turn: &Turn<'_>, input: JobInput, out: &mut Effects) {
        let now = turn.now;
        match input {
            JobInput::Begin { lost } => self.begin(turn, lost, out),
            JobInput::Linked => self.on_linked(now, out),
            JobInput::ClockTold => {}
            JobInput::Tick => self.on_tick(turn, out),
            JobInput::Started { local, pid, spawn_ns, exec_ns } => {
                self.on_started(local, pid, (spawn_ns, exec_ns), out);
            }
            JobInput::StartFailed { local, error } => self.ranks.on_start_failed(local, error, out),
            JobInput::OutOfMemory { local } => self.ranks.on_out_of_memory(local),
            JobInput::RanksLack(what) => out.note(self.facts.id(), Note::Lacks { host: self.facts.host(), what }),
            JobInput::RanksBound(picture) => {
                out.note(self.facts.id(), Note::Bound { host: self.facts.host(), picture });
            }
            JobInput::Exited { local, status } => self.ranks.on_exited(now, local, status, out),
            JobInput::KeeperLost { problem } if self.is_ending() => self.on_keeper_lost(problem, out),
            JobInput::KeeperLost { problem } => self.ends.on_keeper_lost(turn.now, problem),
            JobInput::ClientJoined { client } => {
                self.ranks.on_joined(client.local);
                self.pmi.on_joined(client, out);
            }
            JobInput::ClientBytes { client, bytes } => self.on_client_bytes(client, &bytes, out),
            JobInput::ClientGone { client } => self.on_client_gone(now, client, out),
            JobInput::RanksListen { address } => self.on_ranks_listen(now, &address, out),
            JobInput::SecretOfRanks(secret) => self.pmi.on_secret(&secret, out),
            JobInput::Shared(share) => self.pmi.on_shared(share, out),
            JobInput::ShareFailed { share, problem } => self.pmi.on_share_failed(share, problem, out),
            JobInput::StdioBytes { local, stream, bytes } => out.push(Effect::Stdio { local, stream, bytes }),
            JobInput::StdioClosed { local, stream } => self.ranks.on_stream_closed(local, stream, out),
            JobInput::StdinTaken { local, bytes } => self.stdio.on_taken(&self.facts, Sink::Local(local), bytes, out),
            JobInput::PmixBytes(bytes) => self.pmix(now, out, |pmix, view, out| pmix.on_bytes(view, &bytes, out)),
            JobInput::PmixSaid(text) => self.pmix(now, out, |pmix, view, out| pmix.on_said(view, text, out)),
            JobInput::PmixGone { status, stderr, no_room } => {
                self.pmix(now, out, |pmix, view, out| pmix.on_gone(view, status, &stderr, no_room, out));
            }
            JobInput::PmixFailed(error) => self.pmix(now, out, |pmix, view, out| pmix.on_failed(view, &error, out)),
            JobInput::Frame { from, frame } => self.on_frame(now, from, frame, out),
            JobInput::ControlDown(message) => self.on_control_down(now, message, out),
            JobInput::ControlUp { from, message } => self.on_control_up(turn, from, message, out),
            JobInput::Direct { from, frame } => self.on_direct(now, from, frame, out),
            JobInput::Between { from, message } => {
                self.pmix(now, out, |pmix, view, out| pmix.on_between(view, from, message, out));
            }
            JobInput::Addresses { from, message } => {
                if let Some(node) = self.facts.node_of(from) {
                    self.pmi.on_addresses(&self.facts, node, message, out);
                }
            }
            JobInput::Relayed { from, message } => {
                if let Some(node) = self.facts.node_of(from) {
                    self.pmi.on_relayed(&self.facts, node, message, out);
                }
            }
            JobInput::RelayEvent { relay, event } => self.pmi.on_relay_event(&self.facts, relay, event, out),
            JobInput::Named { agent, down } => self.with_view(now, |view| names::answer(view, agent, down, out)),
            JobInput::FailHere(cause) => out.fail_here(cause),
            JobInput::RanksListenFailed(error) => {
                out.fail_here(Cause::Spawn(error));
                out.push(Effect::GiveHeldUp);
            }
            JobInput::FailBy(cause) => out.push(Effect::FailBy(cause)),
            JobInput::LauncherGone => {
                self.stdio.discard();
                out.push(Effect::FailBy(Cause::Launcher { problem: "its launcher has exited".into() }));
            }
            JobInput::EarlyOverflow(problem) => out.fail_here(Cause::Pmi { problem }),
            JobInput::NoDirectLink { agent, problem } => self.on_no_link(agent, problem, out),
            JobInput::Missing(missing) => self.on_missing(turn, missing, out),
            JobInput::ChildMissing { agent, settled, missing } => {
                if settled {
                    self.children.on_lost(agent);
                }
                if !missing.is_empty() {
                    self.on_missing(turn, missing, out);
                }
            }
            JobInput::ChildLost { agent, cause } => {
                self.ends.fail_agent(&self.facts, agent, cause, out);
                self.children.on_lost(agent);
            }
            JobInput::AgentFailed { agent, cause } => self.ends.fail_agent(&self.facts, agent, cause, out),
            JobInput::AgentLost(agent) => self.on_agent_lost(agent, out),
            JobInput::Abandon => self.abandon(out),
        }
    }

    /// Carries out the effects of parts.
    fn carry(&mut self, turn: &Turn<'_>, effects: &mut Effects, caused: &mut Effects, acts: &mut Acts) {
        while let Some(effect) = effects.pop() {
            self.apply(turn, effect, acts, caused);
            effects.put_first(caused);
        }
    }

    fn apply(&mut self, turn: &Turn<'_>, effect: Effect, acts: &mut Acts, out: &mut Effects) {
        let (now, facts) = (turn.now, &self.facts);
        match effect {
            Effect::Act(act) => acts.act(act),
            Effect::Up(frame) => match self.up {
                Up::Launcher => acts.act(Act::ToLauncher(frame)),
                Up::Agent(agent) => acts.act(Act::ToAgent(agent, frame)),
                Up::Nowhere => {}
            },
            Effect::ControlUp(message) => out.push(Effect::Up(control_frame(facts.id(), &message))),
            Effect::ControlDown(message) => {
                let frame = control_frame(facts.id(), &message);
                facts.below.iter().for_each(|child| out.for_agent(*child, frame.clone()));
            }
            Effect::ForRanks(output) => self.lifecycle.for_ranks(output, out),
            Effect::Fail(failure) => self.ends.fail(facts, failure, out),
            Effect::FailHere(cause) => self.ends.fail(facts, failure_here(facts, cause), out),
            Effect::FailBy(cause) => self.ends.fail_by(facts, cause, out),
            Effect::FailRank { local, cause } => {
                let Process { rank, pid, .. } = self.ranks[local.index()];
                let failure = failure_here(facts, cause);
                self.ends.fail(facts, Failure { rank: Some(rank), pid: (pid != 0).then_some(pid), ..failure }, out);
            }
            Effect::FailDeparted { departed, cause } => {
                let Departed { node, rank, pid, .. } = departed;
                let host = facts.name_of(node);
                self.ends.fail(facts, Failure { node, host, rank: Some(rank), pid: Some(pid), cause }, out);
            }
            Effect::Kill { grace_ns } => {
                self.ends.kill(now, grace_ns, out);
                self.lifecycle.on_kill();
            }
            Effect::Signal(signal) if self.ranks.are_busy() => {
                let output = Output::Signal { job: facts.id(), target: SignalTarget::All, signal };
                self.lifecycle.for_ranks(output, out);
            }
            Effect::Signal(_) => {}
            Effect::DropDeferred => {
                self.pmix(now, out, |pmix, view, out| pmix.drop_deferred(view, out));
                if self.lifecycle.waits_for(Wait::Others) {
                    out.push(Effect::GiveHeldUp);
                }
            }
            Effect::GiveHeldUp => {
                if self.lifecycle.drop_deferred() {
                    self.ranks.give_up(out);
                }
            }
            Effect::GiveUp => self.give_up(turn, out),
            Effect::Connected { local, by_pmix } => {
                self.ranks.on_connected(now, local, by_pmix);
                if by_pmix {
                    self.miss_absent(out);
                }
            }
            Effect::MeetsNode(local) => {
                self.ranks.on_meets_node(now, local);
                self.miss_absent(out);
            }
            Effect::Finalized { local, by_pmix } => {
                self.ranks.on_finalized(now, local, by_pmix);
                out.push(Effect::Depart(local));
            }
            Effect::RankGone(local) => {
                self.pmi.on_gone(local);
                self.names.on_gone(&self.facts, self.ranks[local.index()].rank, out);
                self.pmix(now, out, |pmix, view, out| pmix.on_rank_gone(view, local, out));
                self.stdio.on_rank_gone(&self.facts, local, out);
            }
            Effect::LeftWell(local) => {
                let listens = self.pmix.as_ref().is_some_and(|pmix| pmix.listens());
                self.ranks.on_left_well(now, local, listens, out);
            }
            Effect::AllGone | Effect::ServerGone => self.on_part_gone(now, effect, out),
            Effect::StreamEnded { local, stream } => {
                self.stdio.on_ended((local, self.ranks[local.index()].rank), stream);
            }
            Effect::ClientUnreadable { client, problem } => self.pmi.break_off(client, problem, out),
            Effect::Resume(client) => self.on_client_bytes(client, &[], out),
            Effect::Freed { local, place } => self.pmi.on_freed(local, place),
            Effect::Depart(local) => self.depart(now, local, out),
            Effect::Departed(departed) => self.on_departed(now, departed, out),
            Effect::Enter { local, entry, reply_to } => {
                let (pmi, rank) = (&mut self.pmi, self.ranks[local.index()].rank);
                let entering = Entering { local, rank, entry, reply_to };
                self.collectives.enter(now, entering, || pmi.take_pending(), out);
            }
            Effect::EnterGroup { local, group, value } => {
                let pairs = || self.pmi.pending_since(self.barriers.mark(&group.members));
                let own = value.unwrap_or_else(pairs);
                self.barriers.enter(now, facts, local, group, own, out);
            }
            Effect::AskName { from, asker, ask } => self.names.ask(facts, from, asker, ask, out),
            Effect::Named(Down { asker, answer }) => match asker {
                Asker::Client(client) => self.pmi.on_named(client, answer, out),
                Asker::Server(id) => self.pmix(now, out, |pmix, view, out| pmix.on_named(view, id, answer, out)),
                Asker::Agent => self.pmix(now, out, |pmix, view, out| pmix.on_order(view, answer, out)),
            },
            Effect::TellRoot(report) => names::report(facts, report, out),
            Effect::Exchange(next) => self.collectives.carry_out(facts, next, out),
            Effect::Finished(finished) => self.on_finished(*finished, out),
            Effect::Endpoints { rows } => {
                self.pmi.on_endpoints(facts, rows.clone(), out);
                self.pmix(now, out, |pmix, view, out| pmix.on_endpoints(view, rows, out));
            }
            Effect::GroupOver { group, waiting, pairs } => match group.purpose {
                Purpose::Barrier => self.pmi.on_barrier_over(&group, waiting, pairs, out),
                Purpose::Gather => self.pmi.on_gathered(facts, &group, waiting, &pairs, out),
            },
            Effect::CheckBroken => self.check_broken(out),
            Effect::Stdio { local, stream, bytes } => {
                if let Some(process) = self.ranks.get(local.index()) {
                    self.stdio.on_bytes(now, facts, (local, process.rank), stream, &bytes);
                }
            }
            Effect::ServerReady(env) => {
                self.lifecycle.add_env(env);
                self.lifecycle.release(Wait::Server, out);
            }
            Effect::ReadServer => self.pmix(now, out, |pmix, view, out| pmix.read_on(view, out)),
            Effect::Survey(collective) => self.survey(collective, out),
            Effect::Traced(trace) => {
                if let Some(profile) = &mut self.profile {
                    profile.on_collective(trace);
                }
            }
        }
    }

    /// The view given to a part.
    fn view<'a>(facts: &'a Facts, ranks: &'a Ranks, children: &'a Children, ends: &Ends, now: Instant) -> View<'a> {
        View { now, facts, ranks, children, is_ending: ends.is_ending() }
    }

    fn with_view(&self, now: Instant, tell: impl FnOnce(&View<'_>)) {
        tell(&Job::view(&self.facts, &self.ranks, &self.children, &self.ends, now));
    }

    /// Tells the PMIx part something, if the job offers PMIx.
    fn pmix(&mut self, now: Instant, out: &mut Effects, tell: impl FnOnce(&mut Pmix, &View<'_>, &mut Effects)) {
        let Job { pmix, facts, ranks, children, ends, .. } = self;
        if let Some(pmix) = pmix {
            tell(pmix, &Job::view(facts, ranks, children, ends, now), out);
        }
    }

    /// Spawns the local ranks unless something holds them; the caller has told the children.
    fn begin(&mut self, turn: &Turn<'_>, lost: Vec<MissingAgent>, out: &mut Effects) {
        if let Some(node) = self.facts.node.filter(|_| !self.ranks.is_empty()) {
            if let Some(spawned) = &self.facts.spec.spawned {
                out.output(Output::OfFamily { job: self.facts.id(), family: spawned.family, by: spawned.by });
            }
            self.lifecycle.defer(spawn_plan(&self.facts.spec, &self.facts.mapping, node));
            if self.pmix.is_some() {
                self.lifecycle.wait_for(Wait::Server);
            }
            if let Some(ports) = self.facts.spec.options.rank_ports {
                self.lifecycle.wait_for(Wait::Sockets);
                let (job, count) = (self.facts.id(), self.facts.local_size());
                let base = self.facts.spec.endpoints.get(node.index()).and_then(|address| rank_address::port(address));
                let kernel_session = kernel_session(&self.facts.spec, node);
                out.output(Output::ListenForRanks { job, count, ports, base, kernel_session });
            }
            self.pmix(turn.now, out, |pmix, view, out| pmix.start(view, out));
            self.lifecycle.spawn_if_free(out);
        }
        if let Some(agents) = self.collectives.first_links(&self.facts) {
            out.push(Effect::Act(Act::Prepare(agents)));
        }
        for missing in lost {
            self.children.on_lost(missing.agent);
            self.on_missing(turn, vec![missing], out);
        }
    }

    /// The listening sockets of the local ranks exist, so the ranks can start. The sockets' address goes to all nodes,
    /// unless the job's description has the addresses of all nodes.
    fn on_ranks_listen(&mut self, now: Instant, address: &Bytes, out: &mut Effects) {
        let rows = self.facts.spec.endpoints.clone();
        if rows.is_empty() {
            for entering in endpoints::entering(&self.ranks, address) {
                self.collectives.enter(now, entering, Bytes::new, out);
            }
        } else {
            out.push(Effect::Endpoints { rows });
        }
        self.lifecycle.release(Wait::Sockets, out);
    }

    fn on_linked(&mut self, now: Instant, out: &mut Effects) {
        self.lifecycle.release(Wait::Link, out);
        if let Some(profile) = &mut self.profile {
            profile.on_linked(now);
        }
    }

    fn on_tick(&mut self, turn: &Turn<'_>, out: &mut Effects) {
        let Job { ranks, stdio, ends, facts, .. } = self;
        stdio.on_tick(turn.now, |local| ranks[local.index()].rank);
        ranks.on_tick(turn.now, out);
        ends.on_tick(turn.now, facts, out);
        if let Some(lost) = ends.take_lost_keeper(turn.now) {
            self.on_keeper_lost(lost.problem, out);
        }
        self.check_stall(turn.now, out);
        self.barriers.on_tick(turn.now, &self.facts, out);
        self.pmix(turn.now, out, |pmix, view, out| pmix.on_tick(view, out));
    }

    fn on_started(&mut self, local: LocalRank, pid: u32, (spawn_ns, exec_ns): (u64, u64), out: &mut Effects) {
        if self.ranks.on_started(local, pid, spawn_ns, exec_ns)
            && let Some(signal) = self.ends.signal_for_newcomers()
        {
            out.output(Output::Signal { job: self.facts.id(), target: SignalTarget::One(local), signal });
        }
    }

    /// The keeper has ended, and the kernel kills the ranks: no more events about them will arrive.
    fn on_keeper_lost(&mut self, problem: Option<SpawnError>, out: &mut Effects) {
        self.ranks.give_up(out);
        if let Some(pmix) = &mut self.pmix {
            pmix.on_keeper_lost();
        }
        out.fail_here(Cause::KeeperLost { problem });
    }

    fn on_client_bytes(&mut self, client: Client, bytes: &[u8], out: &mut Effects) {
        if let Some(process) = self.ranks.get(client.local.index()) {
            self.pmi.on_bytes(&self.facts, (client, process), bytes, out);
        }
    }

    fn on_client_gone(&mut self, now: Instant, client: Client, out: &mut Effects) {
        let was_member = self.pmi.on_closed(client);
        if client.is_secondary() {
            self.leave_groups(client.local, out);
        } else if was_member {
            self.ranks.on_socket_closed(now, client.local);
        }
    }

    /// A frame of the exchange or stdio class, from child `from` or (`None`) from the parent.
    fn on_frame(&mut self, now: Instant, from: Option<AgentId>, frame: Frame, out: &mut Effects) {
        let child = from.map(|agent| self.facts.child_index(agent));
        let Some(child) = child.map_or(Some(None), |index| index.map(Some)) else { return };
        match (child, frame.kind) {
            (Some(_), Kind::ExchangeUp) | (None, Kind::ExchangeDown) => {
                self.on_exchange(now, Arrived::of_tree(&self.facts, child, frame), out);
            }
            (Some(_), Kind::GroupUp) | (None, Kind::GroupDown) => self.on_group(now, child, frame, out),
            (Some(child), Kind::Output) => self.stdio.on_child_output(child, frame),
            (None, Kind::OutputCredit) => self.stdio.on_output_credit(&frame),
            (None, Kind::Input) => self.stdio.on_input(&self.facts, frame, out),
            (Some(child), Kind::InputCredit) => {
                self.stdio.on_taken(&self.facts, Sink::Child(child), frame.arg, out);
            }
            (Some(_), Kind::PmixUp) | (None, Kind::PmixDown) => {
                self.pmix(now, out, |pmix, view, out| pmix.on_frame(view, from, &frame, out));
            }
            (Some(_), Kind::NamesUp) => names::on_request(&self.facts, frame, out),
            (None, Kind::NamesDown) => self.with_view(now, |view| names::on_answer(view, frame, out)),
            (Some(_), Kind::Trace) => out.push(Effect::Up(profile::frame(&self.facts, frame.payload))),
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

    /// A direct frame from another node's agent.
    fn on_direct(&mut self, now: Instant, from: AgentId, frame: Frame, out: &mut Effects) {
        if let Some(node) = self.facts.node_of(from) {
            self.on_exchange(now, Arrived::of_node(node, frame), out);
        }
    }

    fn on_exchange(&mut self, now: Instant, arrived: Result<Arrived, String>, out: &mut Effects) {
        let arrived = match arrived {
            Ok(arrived) => arrived,
            Err(problem) => return out.fail_here(Cause::Pmi { problem }),
        };
        if arrived.collective() != Collective::Modex {
            self.collectives.count(&arrived);
            collectives::carry(arrived.give_to(now, &mut self.collectives.exchanges), out);
        } else if self.pmix.as_ref().is_some_and(|pmix| !pmix.is_given_up(arrived.epoch())) {
            // A frame for a fence that was given up is ignored.
            self.collectives.count(&arrived);
            self.pmix(now, out, |pmix, view, out| pmix.on_exchange(view, arrived, out));
        }
    }

    fn on_group(&mut self, now: Instant, child: Option<usize>, frame: Frame, out: &mut Effects) {
        match Barrier::read(&self.facts, child, frame) {
            Ok(arrived) if arrived.is_of_servers() => {
                self.pmix(now, out, |pmix, view, out| pmix.on_group_frame(view, arrived, out));
            }
            Ok(arrived) => self.barriers.on_frame(now, &self.facts, arrived, out),
            Err(problem) => out.fail_here(Cause::Pmi { problem }),
        }
    }

    /// Handles a control message from the parent. Messages that no parent sends, or that concern the session, are
    /// ignored.
    fn on_control_down(&mut self, now: Instant, message: Control, out: &mut Effects) {
        match message {
            Control::Signal { signal } if self.lifecycle.waits_for(Wait::Others) && is_fatal(signal) => {
                out.push(Effect::FailBy(Cause::Interrupted { signal }));
            }
            Control::Signal { signal } => {
                out.push(Effect::Signal(signal));
                out.push(Effect::ControlDown(message));
            }
            Control::Kill { grace_ns } => out.push(Effect::Kill { grace_ns }),
            Control::Resize { rows, columns } => {
                self.resize(rows, columns, out);
                out.push(Effect::ControlDown(message));
            }
            Control::StallAsk { collective } if self.facts.root => self.ask_stall(now, collective, out),
            Control::StallAsk { collective } => out.push(Effect::Survey(collective)),
            Control::Over { .. } => self.abandon(out),
            Control::StartRanks => self.start_together(out),
            Control::Launch(_)
            | Control::Started { .. }
            | Control::Ready
            | Control::Failed(_)
            | Control::Departed(_)
            | Control::Done(_)
            | Control::Stall(_)
            | Control::Shutdown
            | Control::StartFor { .. }
            | Control::NotStarted(_)
            | Control::TimeLeft { .. }
            | Control::Probe { .. }
            | Control::Probed { .. }
            | Control::TransportLooked { .. }
            | Control::UseTransport { .. }
            | Control::Missing(_)
            | Control::Note(_)
            | Control::ClockAsk { .. }
            | Control::ClockTell { .. }
            | Control::AreYouAlive
            | Control::Alive
            | Control::Ended(_)
            | Control::Spawn { .. }
            | Control::Added { .. }
            | Control::Spawned(_)
            | Control::Together { .. }
            | Control::Welcome(_)
            | Control::Refused { .. }
            | Control::Granted
            | Control::AskJobs
            | Control::JobList(_)
            | Control::AskSeats(_)
            | Control::Seats(_)
            | Control::AskNodes
            | Control::Nodes(_)
            | Control::Revive
            | Control::KillJob { .. }
            | Control::EndSession { .. }
            | Control::Start { .. }
            | Control::Here(_)
            | Control::RankPorts(_)
            | Control::Gone(_)
            | Control::Log(_) => {}
        }
    }

    /// Handles a control message from a child. Messages that no child sends, or that concern the session, are ignored.
    fn on_control_up(&mut self, turn: &Turn<'_>, from: AgentId, message: Control, out: &mut Effects) {
        let Some(child) = self.facts.child_index(from) else { return };
        match message {
            Control::Started { ranks, pmix } => {
                self.children.on_started(from, ranks);
                if let Some(opened) = pmix {
                    self.pmix(turn.now, out, |pmix, view, out| pmix.on_opened(view, opened, out));
                }
            }
            Control::Ready => self.children.on_ready(from),
            Control::Done(done) => self.on_child_done(turn.now, child, done, out),
            Control::Failed(failure) => out.push(Effect::Fail(failure)),
            Control::Departed(departed) => out.push(Effect::Departed(departed)),
            Control::StallAsk { collective } => self.ask_stall(turn.now, collective, out),
            Control::Stall(_) | Control::Note(_) => out.push(Effect::ControlUp(message)),
            Control::Missing(missing) => self.on_missing(turn, missing, out),
            Control::Launch(_)
            | Control::StartRanks
            | Control::Signal { .. }
            | Control::Resize { .. }
            | Control::Kill { .. }
            | Control::Shutdown
            | Control::StartFor { .. }
            | Control::NotStarted(_)
            | Control::TimeLeft { .. }
            | Control::Probe { .. }
            | Control::Probed { .. }
            | Control::TransportLooked { .. }
            | Control::UseTransport { .. }
            | Control::ClockAsk { .. }
            | Control::ClockTell { .. }
            | Control::AreYouAlive
            | Control::Alive
            | Control::Ended(_)
            | Control::Spawn { .. }
            | Control::Added { .. }
            | Control::Spawned(_)
            | Control::Together { .. }
            | Control::Welcome(_)
            | Control::Refused { .. }
            | Control::Granted
            | Control::AskJobs
            | Control::JobList(_)
            | Control::AskSeats(_)
            | Control::Seats(_)
            | Control::AskNodes
            | Control::Nodes(_)
            | Control::Revive
            | Control::KillJob { .. }
            | Control::EndSession { .. }
            | Control::Start { .. }
            | Control::Over { .. }
            | Control::Here(_)
            | Control::RankPorts(_)
            | Control::Gone(_)
            | Control::Log(_) => {}
        }
    }

    fn on_child_done(&mut self, now: Instant, child: usize, done: Done, out: &mut Effects) {
        self.children.on_done(self.facts.below[child], done);
        if done.is_torn {
            self.ends.tear();
        }
        self.stdio.on_child_done(&self.facts, child, out);
        self.barriers.on_child_done(&self.facts, child, out);
        self.pmix(now, out, |pmix, view, out| pmix.on_child_done(view, child, out));
    }

    fn resize(&self, rows: u16, columns: u16, out: &mut Effects) {
        let Some(pty) = self.facts.spec.options.pty else { return };
        if let Some(index) = self.ranks.iter().position(|process| process.rank == pty.rank) {
            let (job, local) = (self.facts.id(), LocalRank(index as u16));
            out.push(Effect::ForRanks(Output::Resize { job, local, rows, columns }));
        }
    }

    /// Agents are missing.
    fn on_missing(&mut self, turn: &Turn<'_>, missing: Vec<MissingAgent>, out: &mut Effects) {
        if self.facts.root {
            self.ends.on_missing((turn.now, turn.start_by), missing);
        } else {
            out.push(Effect::ControlUp(Control::Missing(missing)));
        }
    }

    /// A link that the job needs, apart from those of the tree, could not be made, or broke.
    fn on_no_link(&self, agent: AgentId, problem: String, out: &mut Effects) {
        let host = self.facts.node_of(agent).map(|node| self.facts.name_of(node));
        let host = host.unwrap_or_else(|| format!("agent {agent}"));
        out.fail_here(Cause::NoDirectLink { agent, host, problem });
    }

    /// An agent is permanently lost; the root has already reported it.
    fn on_agent_lost(&mut self, agent: AgentId, out: &mut Effects) {
        if !self.facts.has_agent(agent) {
            return;
        }
        self.ends.tear();
        self.children.on_lost(agent);
        if self.facts.tree.subtree_contains(agent, self.facts.me) {
            self.abandon(out);
        }
    }

    /// No ancestor waits for the job any more.
    fn abandon(&mut self, out: &mut Effects) {
        self.up = Up::Nowhere;
        self.stdio.discard();
        out.push(Effect::Kill { grace_ns: 0 });
    }

    /// Gives up waiting: the kill did not end everything in time. If only output that waits for a reader is left, that
    /// is no failure.
    fn give_up(&mut self, turn: &Turn<'_>, out: &mut Effects) {
        let held_up = !self.stdio.is_flushed();
        // In a standing session a job's end must not affect the link to an agent.
        let is_lost = |agent| !held_up || (!turn.standing && !(turn.is_linked)(agent));
        for agent in self.children.give_up(is_lost) {
            self.ends.tear();
            if turn.standing {
                let over = control_frame(self.facts.id(), &Control::Over { agents: Vec::new() });
                out.for_agent(agent, over);
            } else {
                out.push(Effect::Act(Act::DropChild(agent)));
            }
        }
        if self.ranks.are_alive() {
            self.ranks.give_up(out);
        }
        if held_up {
            if self.ends.is_unwanted() {
                self.stdio.discard();
            }
            self.ends.wait_longer(turn.now);
        } else if let Some(pmix) = &mut self.pmix {
            pmix.on_keeper_lost();
        }
    }

    /// The last local rank or the PMIx server has ended. When both have ended, kills the processes that the ranks left
    /// behind, even while output of the ranks is unread.
    fn on_part_gone(&mut self, now: Instant, what: Effect, out: &mut Effects) {
        if matches!(what, Effect::ServerGone) {
            self.ranks.on_server_gone(out);
        } else {
            self.pmix(now, out, |pmix, view, out| pmix.end(view, out));
        }
        let has_server = self.pmix.as_ref().is_some_and(|pmix| pmix.is_there());
        if !has_server && !self.ranks.are_alive() {
            out.output(Output::Sweep { job: self.facts.id() });
        }
    }

    /// A rank waits for the others of its node: ranks that have ended without calling init count as departed.
    fn miss_absent(&self, out: &mut Effects) {
        let ranks = &self.ranks;
        if !ranks.are_fewer() {
            return;
        }
        let mut all = (0..ranks.len() as u16).map(LocalRank);
        if let Some(absent) = all.find(|local| ranks.is_awaited_in_library(*local)) {
            out.push(Effect::Departed(self.departed(absent)));
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
    fn depart(&mut self, now: Instant, local: LocalRank, out: &mut Effects) {
        let departed = self.departed(local);
        self.pmi.on_departed(local);
        self.leave_groups(local, out);
        self.pmix(now, out, |pmix, view, out| pmix.on_member_departed(view, local, departed, out));
        out.push(Effect::Departed(departed));
    }

    /// A local rank enters no more collectives of groups, unless another library in its process may still enter some.
    fn leave_groups(&mut self, local: LocalRank, out: &mut Effects) {
        if self.pmi.has_left(local) {
            let departed = self.departed(local);
            self.pmi.on_left(&self.facts, departed.rank, out);
            self.barriers.on_departed(&self.facts, local, departed, out);
        }
    }

    /// A rank of the subtree enters no more collectives.
    fn on_departed(&mut self, now: Instant, departed: Departed, out: &mut Effects) {
        let of_servers = Departed { epoch: departed.modex_epoch, ..departed };
        let news = self.collectives.exchanges.on_departed(departed)
            | self.pmix.as_mut().is_some_and(|pmix| pmix.on_departed(of_servers));
        if news && self.facts.root {
            self.ends.on_departed(now, departed);
        } else if news {
            out.push(Effect::ControlUp(Control::Departed(departed)));
        }
        out.push(Effect::CheckBroken);
    }

    /// Ends the job if a rank waits for one that will never enter.
    fn check_broken(&self, out: &mut Effects) {
        let exchanges = &self.collectives.exchanges;
        let broken = exchanges.broken().map(|broken| (broken, exchanges.arrived()));
        let broken = broken.or_else(|| self.pmix.as_ref().and_then(|pmix| pmix.broken()));
        if let Some(((departed, epoch, collective), waiting)) = broken {
            let (exit, finalized) = (departed.exit, departed.finalized);
            let cause = Cause::LeftFence { epoch, collective, exit, finalized, waiting };
            out.push(Effect::FailDeparted { departed, cause });
        }
    }

    /// A collective is complete: stores its outcome and answers the local ranks.
    fn on_finished(&mut self, finished: Finished, out: &mut Effects) {
        let Finished { waiting, outcome, trace, .. } = finished;
        self.pmi.on_finished(&self.facts, waiting, outcome, out);
        out.push(Effect::Traced(trace));
    }

    /// If a wait has become too long, the root asks all agents for the missing ranks.
    fn check_stall(&mut self, now: Instant, out: &mut Effects) {
        let in_init = self.ranks.check_init(now, self.facts.spec.options.stall_report_ns);
        if in_init || self.wait_deadline().is_some_and(|due| now >= due) {
            self.mark_asked();
            self.ask_stall(now, None, out);
        }
        self.stalls.ask_if_due(now, out);
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

    fn ask_stall(&mut self, now: Instant, collective: Option<Collective>, out: &mut Effects) {
        let first = self.first_collective();
        self.stalls.ask(now, &self.facts, collective, first, out);
    }

    /// Asks the children for missing ranks, and reports those of this node.
    fn survey(&mut self, collective: Option<Collective>, out: &mut Effects) {
        let collective = collective.or(self.first_collective());
        self.mark_asked();
        out.push(Effect::ControlDown(Control::StallAsk { collective }));
        // A node's PMIx server does not say which of its ranks have entered: either all have, or none.
        let exchanges = match &self.pmix {
            Some(pmix) if collective == Some(Collective::Modex) => pmix.exchanges(),
            _ => &self.collectives.exchanges,
        };
        let of_servers = self.pmix.iter().flat_map(|pmix| pmix.group_stalls());
        let groups = self.barriers.stalls().chain(of_servers);
        let report = stalls::report(&self.facts, &self.ranks, collective, exchanges, groups);
        out.extend(report.map(|report| Effect::ControlUp(Control::Stall(report))));
    }

    /// Flushes output and reports the start of the ranks, as far as possible.
    fn settle(&mut self, turn: &Turn<'_>, out: &mut Effects) {
        self.stdio.flush(&self.facts, out);
        self.say_ready(out);
        self.say_started(turn.now, out);
    }

    /// Once all agents of the subtree are there: tells the parent; the root lets the ranks start, unless agents are
    /// missing.
    fn say_ready(&mut self, out: &mut Effects) {
        if !self.lifecycle.waits_for(Wait::Below) || !self.children.are_ready() {
            return;
        }
        self.lifecycle.release(Wait::Below, out);
        if !self.facts.root {
            out.push(Effect::ControlUp(Control::Ready));
        } else if !self.ends.name_missing(&self.facts, out) {
            self.start_together(out);
        }
    }

    fn start_together(&mut self, out: &mut Effects) {
        out.push(Effect::ControlDown(Control::StartRanks));
        self.lifecycle.release(Wait::Others, out);
    }

    /// Whether the job can be forgotten on this agent.
    fn is_over(&mut self, turn: &Turn<'_>) -> bool {
        // Reports about the subtree of a missing child may still arrive; nothing was reported about that subtree yet.
        let all_gone = !self.ranks.are_busy() && self.children.are_done();
        let is_over = all_gone && self.lifecycle.on_all_gone() && self.is_drained(turn);
        if is_over {
            self.lifecycle.on_settled();
        }
        is_over
    }

    /// Whether nothing that the ended ranks have left is still awaited.
    fn is_drained(&self, turn: &Turn<'_>) -> bool {
        let has_server = self.pmix.as_ref().is_some_and(|pmix| pmix.is_there());
        // Local ranks need not wait for their collectives; but other nodes need what this one forwards.
        let passes_on = !self.ends.is_ending() && self.open_collectives() > 0;
        // Without the clock offset the time stamps cannot be compared with those of other agents.
        let wants_clock =
            self.profile.is_some() && !self.facts.root && !turn.clock.is_known() && !self.ends.is_forced();
        !has_server && self.stdio.is_flushed() && !passes_on && !wants_clock
    }

    fn say_started(&mut self, now: Instant, out: &mut Effects) {
        if self.ranks.are_starting() || !self.children.have_started() || !self.lifecycle.on_all_started() {
            return;
        }
        if self.ends.name_missing(&self.facts, out) {
            return;
        }
        if let Some(profile) = &mut self.profile {
            profile.on_all_started(now);
        }
        let ranks = self.children.ranks_started() + self.ranks.len() as u32;
        let pmix = self.pmix.as_ref().and_then(|pmix| pmix.opened());
        out.push(Effect::ControlUp(Control::Started { ranks, pmix }));
    }

    fn say_done(&mut self, turn: &Turn<'_>, out: &mut Effects) {
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
            let traffic = [self.collectives.traffic(), self.barriers.traffic()];
            out.push(Effect::Up(profile.finish(&self.facts, turn.clock, traffic, &self.ranks)));
        }
        out.push(Effect::ControlUp(if self.facts.root {
            Control::Ended(Ended { failure: self.ends.take_failure(), done })
        } else {
            Control::Done(done)
        }));
        out.output(Output::JobGone { job: self.facts.id() });
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

/// A failure on this node that no single rank caused.
fn failure_here(facts: &Facts, cause: Cause) -> Failure {
    Failure { node: facts.own_node(), host: facts.host(), rank: None, pid: None, cause }
}
