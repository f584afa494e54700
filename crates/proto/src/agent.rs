//! One agent of a session: routes each input to the part that owns it.
//!
//! ```text
//!                 launcher or parent  (up)
//!                        │ ▲
//!   LinkBytes ──► Links ─┴─┴─► Job ◄── ClientBytes, StdioBytes, Child* (this node's ranks)
//!                        │ ▲
//!                     children  (down)
//! ```
//!
//! The root is an agent like any other. A one-shot run is a session with one job; the differences between the two are
//! in `Policy`.
//!
//! Each part takes its own state, a read-only view and an input, and pushes effects. The agent pops them from a stack
//! one by one: everything that an effect causes is done before the effects after it. So things happen in the order in
//! which they were requested, and no part is re-entered.

use crate::io::{Input, LinkId, Output, Peer};
use crate::job::{Act, Acts, Born, Job, JobInput, JobTree, Turn, Up, Wait, participants};
use crate::link::Links;
use crate::outbox::{Outbox, control_frame};
use crate::session::inputs::heartbeat::Side;
use crate::session::inputs::{across, agreement, early, heartbeat, launchers, membership, names, rank_ports, starter};
use crate::session::{
    Across, Agreement, Begin, Clock, Early, Effect, Effects, From, Heartbeat, Jobs, Launchers, Leaving, Membership,
    Names, Policy, RankPorts, Starter, UNKNOWN_NODE, View, on_control, placement,
};
pub use crate::session::{AgentConfig, Holds};
use crate::time::Instant;
use bytes::Bytes;
use std::mem;
use std::sync::Arc;
use wireup_coll::tree::Tree;
use wireup_wire::frame::{Frame, Kind};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::JobSpec;
use wireup_wire::names::{Ask, Up as Asked};
use wireup_wire::peer::{self, Cause, Ended, Failure, MissingAgent, Note, PeerError, Problem, SessionSpec};
use wireup_wire::session::Log;
use wireup_wire::talk::{Control, JobUp, SessionDown, ToLauncher};

/// Why a later job of the session lacks an agent.
const LOST_BEFORE: &str = "its node was already lost in this session";

pub struct Agent {
    me: AgentId,
    tree: Tree,
    session: SessionSpec,
    policy: Policy,
    born: Born,
    links: Links,
    out: Outbox,
    starter: Starter,
    membership: Membership,
    launchers: Launchers,
    early: Early,
    agreement: Agreement,
    heartbeat: Heartbeat,
    clock: Clock,
    names: Names,
    across: Across,
    rank_ports: RankPorts,
    leaving: Leaving,
    jobs: Jobs,
    /// The effects of the current input that remain to be carried out; the last one is next.
    stack: Vec<Effect>,
    /// Empty lists, kept because their memory is used again for the next input.
    room: (Effects, Acts),
}

/// The view that a part gets together with an input.
macro_rules! view {
    ($agent:ident, $now:expr) => {
        View {
            now: $now,
            me: $agent.me,
            tree: $agent.tree,
            session: &$agent.session,
            policy: $agent.policy,
            neighbours: &$agent.links.neighbours,
            addresses: $agent.links.addresses(),
            jobs: &$agent.jobs,
            is_leaving: $agent.leaving.has_begun(),
        }
    };
}

impl Agent {
    pub fn new(config: AgentConfig) -> Self {
        let AgentConfig { agent: me, session, born, parent, snapshot, arch } = config;
        let tree = Tree::new(session.agents.len() as u32, session.fanout);
        let policy = Policy::of(&session);
        Agent {
            me,
            tree,
            policy,
            born,
            links: Links::new(me, session.transport, policy),
            out: Outbox::default(),
            starter: Starter::new(me, &session, born.process_ns, arch),
            early: Early::new(snapshot.newest, &snapshot.live),
            membership: Membership::new(me, tree, &session, parent, &snapshot),
            launchers: Launchers::default(),
            agreement: Agreement::default(),
            heartbeat: Heartbeat::default(),
            clock: Clock::of(&session.remote_shell),
            names: Names::default(),
            across: Across::default(),
            rank_ports: RankPorts::default(),
            leaving: Leaving::default(),
            jobs: Jobs::default(),
            session,
            stack: Vec::new(),
            room: Default::default(),
        }
    }

    pub fn session(&self) -> &SessionSpec {
        &self.session
    }

    /// Starts an agent of a standing session: it starts its children without waiting for a job.
    pub fn begin(&mut self, now: Instant) {
        if !self.policy.starts_all_agents() {
            return;
        }
        let all = self.tree.subtree(AgentId(0)).collect();
        let mut fx = mem::take(&mut self.room.0);
        fx.push(Effect::RankPorts(rank_ports::Input::Begin));
        fx.push(Effect::Membership(membership::Input::Begin));
        fx.push(Effect::Agreement(agreement::Input::AskAll));
        fx.push(Effect::Starter(starter::Input::CallStep(all)));
        fx.push(Effect::Starter(starter::Input::CallShells));
        self.run(now, fx);
    }

    /// Starts a job from the bootstrap message.
    pub fn launch(&mut self, now: Instant, spec: impl Into<Arc<JobSpec>>) {
        let mut fx = mem::take(&mut self.room.0);
        fx.push(Effect::Launch(spec.into()));
        self.run(now, fx);
    }

    /// Tells the agent about one event at time `now`. Never blocks.
    pub fn handle(&mut self, now: Instant, input: Input) {
        if self.leaving.has_left() {
            return;
        }
        self.links.direct.at(now);
        let mut fx = mem::take(&mut self.room.0);
        if self.hear(now, input, &mut fx) {
            fx.push(Effect::LookAround(0));
        }
        self.run(now, fx);
    }

    /// The next action for the driver; call until `None`.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop()
    }

    /// When to call `handle` with `Input::Tick` if no other input comes first.
    pub fn deadline(&self) -> Option<Instant> {
        let jobs = self.jobs.all().filter_map(Job::deadline);
        jobs.chain(self.starter.deadline())
            .chain(self.links.direct.deadline())
            .chain(self.membership.deadline())
            .chain(self.launchers.deadline())
            .chain(self.heartbeat.deadline())
            .chain(self.names.deadline())
            .chain(self.leaving.deadline())
            .min()
    }

    /// Bytes of output buffered here, for the simulator's checkers.
    pub fn held_output_bytes(&self) -> usize {
        self.jobs.all().map(Job::held_output_bytes).sum()
    }

    /// Number of collectives in progress here, for the simulator's checkers.
    pub fn open_exchanges(&self) -> usize {
        self.jobs.all().map(Job::open_exchanges).sum()
    }

    /// Number of unanswered requests of PMIx servers, for the simulator's checkers.
    pub fn outstanding_asks(&self) -> usize {
        self.jobs.all().map(Job::outstanding_asks).sum()
    }

    /// What this agent stores, for the simulator's checkers: the number of entries in tables that grow and shrink with
    /// jobs, and the bytes of frames that wait or are kept.
    pub fn holds(&self) -> Holds {
        Holds {
            jobs: self.jobs.size(),
            early_frames: self.early.len(),
            direct_jobs: self.links.direct.jobs().len(),
            direct_bytes: self.links.direct.held_bytes(),
            session: self.membership.size() + self.launchers.size() + self.names.size() + self.across.size(),
        }
    }

    /// Carries out the effects and everything that they cause, in order.
    fn run(&mut self, now: Instant, mut fx: Effects) {
        self.stack.extend(fx.reversed());
        while let Some(effect) = self.stack.pop() {
            self.apply(now, effect, &mut fx);
            self.stack.extend(fx.reversed());
        }
        self.room.0 = fx;
    }

    /// The checks after each input, from the given step on. Most inputs lead to nothing here, so a check that finds
    /// nothing costs no effect.
    fn look_around(&mut self, now: Instant, mut step: u8, fx: &mut Effects) {
        while fx.is_empty() {
            let effect = match step {
                0 => Effect::Launchers(launchers::Input::ReleaseAdded),
                1 => Effect::Starter(starter::Input::StopIfEnding),
                2 => Effect::Starter(starter::Input::CallShells),
                3 => Effect::Launchers(launchers::Input::EndIfIdle),
                4 => Effect::LeaveIfTold,
                5 => Effect::LeaveIfDone,
                _ => return,
            };
            self.apply(now, effect, fx);
            step += 1;
        }
        fx.push(Effect::LookAround(step));
    }

    /// Dispatches an input to the part that handles it. Returns whether the checks after it are needed: most events of a
    /// job concern nothing else.
    fn hear(&mut self, now: Instant, input: Input, fx: &mut Effects) -> bool {
        let routes = self.membership.routes();
        match input {
            Input::LinkUp { link, peer, local } => self.on_link_up(link, peer, local, fx),
            Input::LinkBytes { link, bytes } => fx.push(Effect::Bytes(link, bytes)),
            Input::LinkDown { link, problem } => fx.push(Effect::LinkDown(link, problem)),
            Input::Listening { addresses } => self.links.on_listening(routes, addresses, &mut self.out),
            Input::ListenFailed { problem } => self.links.on_listen_failed(routes, &problem, &mut self.out),
            Input::TransportOpened { result } => fx.push(Effect::Agreement(agreement::Input::Opened(result))),
            Input::DialFailed { agent, problem } => {
                self.links.on_dial_failed(routes, agent, problem, &mut self.out);
            }
            Input::ShellExited { shell, status, stderr } => {
                fx.push(Effect::Starter(starter::Input::ShellExited { shell, status, stderr }));
            }
            Input::ShellFailed { shell, error } => {
                fx.push(Effect::Starter(starter::Input::ShellFailed { shell, error }));
            }
            Input::StepTold { shell, agent, problem } => {
                fx.push(Effect::Starter(starter::Input::StepTold { shell, agent, problem }));
            }
            Input::ParentReached { address, took_ns, failed } => {
                if self.session.verbose {
                    fx.note(Note::Dialled { agent: self.me, address, took_ns, failed });
                }
            }
            Input::StepNotSealed { problem } => fx.note(Note::NotSealed { problem }),
            Input::ToldToEnd { signal } => {
                self.leaving.on_told_to_end();
                fx.jobs(self.jobs.ids(), || JobInput::FailHere(Cause::ToldToEnd { signal }));
            }
            Input::RankPortsReserved { result } => {
                fx.push(Effect::RankPorts(rank_ports::Input::Reserved(result)));
            }
            Input::RankPortsRenewed { job } => fx.push(Effect::RankPorts(rank_ports::Input::Renewed(job))),
            Input::Job { job, event } => return self.tell_job(now, job, JobInput::Event(event), fx),
            Input::RejoinFailed { .. } => fx.push(Effect::Membership(membership::Input::RejoinFailed)),
            Input::EndSession { reason } => fx.push(Effect::Launchers(launchers::Input::EndSession { reason })),
            Input::Tick => {
                fx.push(Effect::Starter(starter::Input::Tick));
                fx.push(Effect::CheckDirect);
                fx.push(Effect::Membership(membership::Input::Tick));
                fx.push(Effect::Launchers(launchers::Input::Tick));
                fx.push(Effect::Heartbeat(heartbeat::Input::Tick));
                fx.push(Effect::Names(names::Input::Tick));
                fx.push(Effect::TickJobs);
                fx.push(Effect::LeaveIfLate);
            }
        }
        true
    }

    /// Carries out one effect.
    fn apply(&mut self, now: Instant, effect: Effect, fx: &mut Effects) {
        let view = view!(self, now);
        let routes = self.membership.routes();
        match effect {
            Effect::Up(job, message) => {
                // Notes about the start of an added host go to the launcher of its job.
                let starts = if let Control::Note(note) = &message { note.starts() } else { None };
                let added_for = || self.membership.nodes()?.added_for(starts?);
                let job = added_for().filter(|_| self.policy.has_many_launchers()).unwrap_or(job);
                self.send_up(control_frame(job, &message));
            }
            Effect::Child(child, message) => {
                self.links.send_child(child, control_frame(JobId(0), &message), &mut self.out);
            }
            Effect::Children(message) => self.links.send_children(&control_frame(JobId(0), &message), &mut self.out),
            Effect::ChildFrame(child, frame) => self.links.send_child(child, frame, &mut self.out),
            Effect::PassOn(agents, frame) => self.links.pass_on(routes, &agents, &frame, &mut self.out),
            Effect::Peer(agent, frame) => self.links.send_peer(routes, agent, frame, &mut self.out),
            Effect::Send(link, frame) => self.out.send(link, frame),
            Effect::Output(output) => self.out.push(output),

            Effect::Bytes(link, bytes) => self.on_bytes(now, link, bytes, fx),
            Effect::LinkDown(link, problem) => self.on_link_down(link, problem, fx),
            Effect::GiveUp(side, problem) => {
                let link = match side {
                    Side::Above => self.links.neighbours.up(),
                    Side::Below(child) => self.links.neighbours.child(child),
                };
                if let Some(link) = link {
                    fx.close(link);
                    fx.push(Effect::LinkDown(link, problem));
                }
            }
            Effect::Expect(child) => self.links.neighbours.expect(child),
            Effect::Forget(child) => drop(self.links.neighbours.forget(child)),
            Effect::Cut(child) => drop(self.links.cut_child(child, &mut self.out)),
            Effect::TakeIn { link, agent, missed } => self.take_in(link, agent, missed, fx),
            Effect::TakenIn(link) => {
                self.links.on_taken_in(link, &mut self.out);
                self.on_parent_up(fx);
            }
            Effect::LoseDirect(agent) => self.links.direct.lose(agent),
            Effect::RouteAgain(top) => {
                let is_behind = |agent| self.tree.subtree_contains(top, agent);
                let has_moved = is_behind(self.me);
                self.links.direct.route_again(|peer| has_moved || is_behind(peer));
                self.links.settle_direct(routes, &mut self.out);
            }
            Effect::ForgetDirect(jobs) => {
                jobs.into_iter().for_each(|job| self.links.direct.forget(job));
                self.links.settle_direct(routes, &mut self.out);
            }
            Effect::ForgetEnded => {
                let jobs = self.links.direct.jobs().into_iter();
                let ended = jobs.filter(|job| !self.jobs.has(*job) && self.early.is_over(*job)).collect();
                fx.push(Effect::ForgetDirect(ended));
            }
            Effect::Followers(from) => self.links.on_followers(from, fx),
            Effect::CheckDirect => self.links.check_direct(routes, &mut self.out, fx),
            Effect::UseTransport(point) => self.links.on_decided(routes, point, &mut self.out),

            Effect::Starter(input) => {
                let live = || live_jobs(self.me, &self.launchers, &self.early);
                let snapshot = || self.membership.snapshot(self.policy, &live);
                self.starter.handle(&view, &snapshot, input, fx);
            }
            Effect::Membership(input) => {
                let live = || live_jobs(self.me, &self.launchers, &self.early);
                self.membership.handle(&view, &live, input, fx);
            }
            Effect::Launchers(input) => self.launchers.handle(&view, self.membership.nodes(), input, fx),
            Effect::Early(input) => self.early.handle(&view, input, fx),
            Effect::Agreement(input) => self.agreement.handle(&view, input, fx),
            Effect::Heartbeat(input) => self.heartbeat.handle(&view, input, fx),
            Effect::Names(input) => self.names.handle(&view, input, fx),
            Effect::Across(input) => self.across.handle(&view, input, fx),
            Effect::RankPorts(input) => self.rank_ports.handle(&view, routes, input, fx),
            Effect::AskClock { only_profiled } => {
                if !only_profiled || self.jobs.all().any(Job::is_profiled) {
                    self.clock.ask_parent(&view, self.membership.linked_to(), fx);
                }
            }
            Effect::ClockTold { asked_ns, told_ns } => self.clock.on_parent_told(&view, asked_ns, told_ns, fx),
            Effect::Shutdown => self.leaving.on_shutdown(&view, fx),
            Effect::LeaveIfDone => self.leaving.leave_if_done(&view, fx),
            Effect::LeaveIfTold => self.leaving.leave_if_told(&view, fx),
            Effect::LeaveIfLate => self.leaving.on_tick(now, fx),
            Effect::Leave => self.leaving.leave(fx),

            Effect::LookAround(step) => self.look_around(now, step, fx),
            Effect::Launch(spec) => self.on_launch(now, spec, fx),
            Effect::Begin(begin) => self.begin_job(now, *begin, fx),
            Effect::Job(id, input) => {
                if self.tell_job(now, id, input, fx) {
                    fx.push(Effect::LookAround(0));
                }
            }
            Effect::TickJobs => fx.jobs(self.jobs.ids(), || JobInput::Tick),
            // Frames that no correct agent sends are ignored.
            Effect::Deliver { job, from, frame } => drop(self.jobs.deliver(self.tree, job, from, frame, fx)),
            Effect::JobOver(id) => self.forget_job(id, fx),
        }
    }

    /// Sends a frame towards the root; at the root of a standing session, to the job's launchers.
    fn send_up(&mut self, frame: Frame) {
        if self.me == AgentId(0) && self.policy.has_many_launchers() {
            for link in self.launchers.links_of(JobId(frame.job)) {
                self.out.send(link, frame.clone());
            }
        } else {
            self.links.send_up(frame, &mut self.out);
        }
    }

    fn on_link_up(&mut self, link: LinkId, peer: Peer, local: String, fx: &mut Effects) {
        let is_expected = match peer {
            // A child that is not expected has dialled a second time or too late, or has an old incarnation: it is not
            // needed.
            Peer::Child { agent, incarnation } => {
                self.starter.is_starting(agent)
                    && self.links.neighbours.expects(agent)
                    && self.membership.routes().roster.incarnation(agent) == incarnation
            }
            Peer::Direct(agent) => self.links.direct.expects(agent),
            Peer::Rejoin { agent, rejoin } => {
                return fx.push(Effect::Membership(membership::Input::Rejoin { link, agent, rejoin }));
            }
            Peer::Parent if self.membership.is_seeking() => {
                self.links.on_reached(link);
                return fx.push(Effect::Membership(membership::Input::RootReached(link)));
            }
            Peer::Parent | Peer::Launcher => true,
        };
        if !is_expected {
            if matches!(peer, Peer::Child { .. }) && self.policy.survives_losses() {
                // Another incarnation is expected: this one must leave instead of taking the closed link for the loss
                // of its parent.
                fx.answer(link, &Control::SessionDown(SessionDown::Log(Log::unfit())));
            }
            return fx.close(link);
        }
        self.links.on_link_up(link, peer, &mut self.out);
        match peer {
            Peer::Child { agent: child, .. } => {
                fx.push(Effect::Membership(membership::Input::Linked(child)));
                fx.push(Effect::Starter(starter::Input::Up { child, local }));
            }
            Peer::Launcher if self.policy.has_many_launchers() => {
                fx.push(Effect::Launchers(launchers::Input::Up(link)));
            }
            Peer::Parent => self.on_parent_up(fx),
            Peer::Launcher | Peer::Direct(_) | Peer::Rejoin { .. } => {}
        }
    }

    fn on_link_down(&mut self, link: LinkId, problem: Problem, fx: &mut Effects) {
        match self.links.on_link_down(link) {
            // `None`: the link was not accepted.
            None | Some(Peer::Rejoin { .. }) => {}
            Some(Peer::Launcher) if self.policy.has_many_launchers() => {
                fx.push(Effect::Launchers(launchers::Input::Down(link)));
            }
            Some(Peer::Launcher) => fx.push(Effect::Leave),
            Some(Peer::Parent) => fx.push(Effect::Membership(membership::Input::ParentLost)),
            Some(Peer::Child { agent: child, .. }) => {
                fx.push(Effect::Starter(starter::Input::LinkDown { child, problem }));
            }
            Some(Peer::Direct(agent)) => {
                let routes = self.membership.routes();
                self.links.on_direct_lost(routes, agent, link, &problem, &mut self.out);
            }
        }
    }

    /// The link towards the root is up, for the first time or again.
    fn on_parent_up(&mut self, fx: &mut Effects) {
        self.clock.on_parent_up();
        fx.push(Effect::Membership(membership::Input::ParentUp));
        fx.push(Effect::RankPorts(rank_ports::Input::ParentUp));
        fx.jobs(self.jobs.ids(), || JobInput::Linked);
        fx.push(Effect::AskClock { only_profiled: true });
    }

    /// Adopts an agent that has lost its parent: the frames queued for it follow the log entries that it lacks.
    fn take_in(&mut self, link: LinkId, child: AgentId, missed: Log, fx: &mut Effects) {
        let waiting = self.links.neighbours.forget(child);
        let incarnation = self.membership.routes().roster.incarnation(child);
        self.links.on_link_up(link, Peer::Child { agent: child, incarnation }, &mut self.out);
        fx.push(Effect::Starter(starter::Input::Adopted(child)));
        fx.child(child, Control::SessionDown(SessionDown::Log(missed)));
        fx.push(Effect::Membership(membership::Input::Linked(child)));
        waiting.into_iter().for_each(|frame| fx.push(Effect::ChildFrame(child, frame)));
    }

    /// Handles one frame of the bytes received on a link, then queues the rest.
    fn on_bytes(&mut self, now: Instant, link: LinkId, mut bytes: Bytes, fx: &mut Effects) {
        let problem = match self.links.next_frame(link, &mut bytes) {
            Ok(None) => return fx.push(Effect::Launchers(launchers::Input::Answer(link))),
            Ok(Some(frame)) => match self.on_frame(now, link, frame, fx) {
                Ok(()) => return fx.push(Effect::Bytes(link, bytes)),
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        fx.push(Effect::Launchers(launchers::Input::Refuse { link, problem: problem.clone() }));
        fx.close(link);
        fx.push(Effect::LinkDown(link, problem.into()));
    }

    /// Dispatches a frame to the part that handles it.
    fn on_frame(&mut self, now: Instant, link: LinkId, frame: Frame, fx: &mut Effects) -> Result<(), PeerError> {
        let routes = self.membership.routes();
        let Some(peer) = self.links.peer(link) else { return Ok(()) };
        let branch = match peer {
            Peer::Child { agent, .. } => Some(agent),
            Peer::Launcher if self.policy.has_many_launchers() => return self.on_launcher_frame(link, frame, fx),
            Peer::Parent | Peer::Launcher => None,
            Peer::Direct(agent) => {
                self.links.on_beside(link, agent, frame, &mut self.out, fx);
                return Ok(());
            }
            // An agent that has lost its parent becomes a child when it is adopted; until then its frames are ignored.
            Peer::Rejoin { .. } => return Ok(()),
        };
        let neighbour = self.links.agent_at(routes, peer);
        match (frame.kind, neighbour) {
            (Kind::Routed, _) => return self.links.on_routed(routes, branch, frame, &mut self.out, fx),
            (Kind::Direct | Kind::Modex | Kind::Addresses | Kind::Relay, None) => {}
            // Orders of the root (`NamesDown`) are answered even after the job has ended here.
            (Kind::Direct | Kind::Modex | Kind::Addresses | Kind::Relay | Kind::NamesDown, Some(from)) => {
                let job = JobId(frame.job);
                fx.push(Effect::Early(early::Input::Frame { from, frame }));
                // The answer about an ended job may have used a direct link.
                fx.push(Effect::Early(early::Input::ForgetIfOver(job)));
            }
            (Kind::Control, _) => {
                let message: Control = peer::decode(&frame.payload)?;
                on_control(&view!(self, now), routes, From { branch, neighbour }, &frame, message, fx);
            }
            (
                Kind::ExchangeUp
                | Kind::ExchangeDown
                | Kind::Output
                | Kind::OutputCredit
                | Kind::Input
                | Kind::InputCredit
                | Kind::Trace
                | Kind::Pair
                | Kind::GroupUp
                | Kind::GroupDown
                | Kind::PmixUp
                | Kind::PmixDown
                | Kind::NamesUp
                | Kind::NamesDown,
                _,
            ) => self.jobs.on_frame(neighbour, frame, fx),
        }
        Ok(())
    }

    fn on_launcher_frame(&mut self, link: LinkId, frame: Frame, fx: &mut Effects) -> Result<(), PeerError> {
        if self.launchers.is_attached(link) {
            fx.push(Effect::Launchers(match frame.kind == Kind::Control {
                true => {
                    let message = Box::new(peer::decode(&frame.payload)?);
                    launchers::Input::Said { link, job: JobId(frame.job), message }
                }
                false => launchers::Input::Frame { link, frame },
            }));
        }
        Ok(())
    }

    /// Starts a job that runs on the whole session's tree: from the bootstrap message, or from the launcher of a
    /// one-shot run.
    fn on_launch(&mut self, now: Instant, spec: Arc<JobSpec>, fx: &mut Effects) {
        if self.jobs.spec(spec.job).is_some() {
            // An agent that was started by another ancestor got the job from it, and then again from its parent.
            return;
        }
        self.links.direct.at(now);
        if let Some(nodes) = self.membership.nodes() {
            if spec.nodes.iter().any(|node| node.agent == AgentId::ADDED) {
                return fx.push(Effect::Membership(membership::Input::Number { spec, link: None }));
            }
            if !nodes.have_all(&spec) {
                return self.refuse(&spec, UNKNOWN_NODE.into(), fx);
            }
        }
        let mapping = match placement(&spec) {
            Ok(mapping) => mapping,
            Err(problem) => return self.refuse(&spec, problem, fx),
        };
        self.jobs.announce(spec.clone());
        let tree = JobTree::whole(self.me, self.tree);
        let children = participants(&spec, &mapping, &tree);
        let begin = Box::new(Begin { spec, mapping, tree, lost: Vec::new() });
        fx.push(Effect::Starter(starter::Input::Launch { begin, children }));
    }

    /// Refuses a job that no correct launcher sends: it ends before it starts.
    fn refuse(&self, spec: &JobSpec, problem: String, fx: &mut Effects) {
        let cause = Cause::Launcher { problem };
        let failure = Failure { node: Default::default(), host: String::new(), rank: None, pid: None, cause };
        let message = match self.me {
            AgentId(0) => {
                Control::ToLauncher(ToLauncher::Ended(Ended { failure: Some(failure), done: Default::default() }))
            }
            _ => Control::JobUp(JobUp::Failed(failure)),
        };
        fx.push(Effect::Up(spec.job, message));
    }

    fn begin_job(&mut self, now: Instant, begin: Begin, fx: &mut Effects) {
        let Begin { spec, mapping, tree, lost } = begin;
        let id = spec.job;
        let has_up = self.links.neighbours.has_up();
        let link = (self.session.hold_ranks && !has_up).then_some(Wait::Link);
        let others: &[Wait] = if self.session.start_together { &[Wait::Below, Wait::Others] } else { &[] };
        let waits: Vec<Wait> = link.into_iter().chain(others.iter().copied()).collect();
        self.jobs.announce(spec.clone());
        let job = Job::new(spec, &mapping, self.me, tree, self.born, &waits, now);
        let below: Vec<AgentId> = job.child_agents().filter(|child| !lost.contains(child)).collect();
        let asks_clock = job.is_profiled() && has_up;
        self.jobs.begin(id, job);
        fx.push(Effect::Heartbeat(heartbeat::Input::JobBegun));
        let missing = |agent| MissingAgent { agent, problem: LOST_BEFORE.into() };
        fx.push(Effect::Job(id, JobInput::Begin { lost: lost.into_iter().map(missing).collect() }));
        if asks_clock {
            fx.push(Effect::AskClock { only_profiled: false });
        }
        if !self.policy.starts_all_agents() {
            fx.push(Effect::Agreement(agreement::Input::Ask(below)));
        }
        fx.push(Effect::Early(early::Input::Begun(id)));
    }

    /// Returns whether the job has ended, or is being ended in another way than before.
    fn tell_job(&mut self, now: Instant, id: JobId, input: JobInput, fx: &mut Effects) -> bool {
        let neighbours = &self.links.neighbours;
        let turn = Turn {
            now,
            start_by: self.starter.start_by(),
            clock: self.clock.offset(),
            standing: self.policy.survives_losses(),
            is_linked: &|agent| neighbours.child(agent).is_some(),
        };
        let mut acts = mem::take(&mut self.room.1);
        let (is_over, has_changed) = self.jobs.tell(id, &turn, input, &mut acts);
        acts.drain().for_each(|act| self.carry_out(id, act, fx));
        self.room.1 = acts;
        if is_over {
            fx.push(Effect::JobOver(id));
        }
        is_over || has_changed
    }

    fn carry_out(&mut self, id: JobId, act: Act, fx: &mut Effects) {
        let routes = self.membership.routes();
        match act {
            Act::ToLauncher(frame) | Act::NoteUp(frame) => self.send_up(frame),
            Act::ToAgent(agent, frame) => self.links.send_peer(routes, agent, frame, &mut self.out),
            Act::Names(Asked::Ask { agent, asker, from, ask: Ask::Spawn(request) }) => {
                // The launcher of the job places the new processes, and must not choose nodes that are lost.
                let lost = match self.policy.survives_losses() {
                    true => self.membership.nodes().map(|nodes| nodes.lost()).unwrap_or_default(),
                    false => self.starter.lost(self.tree),
                };
                let missing = lost.into_iter().map(|agent| MissingAgent { agent, problem: Problem::default() });
                fx.push(Effect::Up(id, Control::JobUp(JobUp::Missing(missing.collect()))));
                fx.push(Effect::Launchers(launchers::Input::Spawn { job: id, agent, asker, from, request }));
            }
            Act::Names(Asked::Ask { agent, asker, ask: Ask::Join(joint), .. }) => {
                fx.push(Effect::Across(across::Input::Join { job: id, agent, asker, joint }));
            }
            Act::Names(Asked::Ask { agent, asker, ask: Ask::Fetch(fetch), .. }) => {
                fx.push(Effect::Across(across::Input::Fetch { job: id, agent, asker, fetch }));
            }
            Act::Names(Asked::Report { agent, report }) => {
                fx.push(Effect::Across(across::Input::Report { job: id, agent, report }));
            }
            Act::Names(message) => fx.push(Effect::Names(names::Input::Said { job: id, message })),
            Act::Prepare(agents) => self.links.prepare_peers(routes, agents, id, &mut self.out),
            Act::DropChild(agent) => {
                if self.links.cut_child(agent, &mut self.out) {
                    fx.push(Effect::Starter(starter::Input::Dropped(agent)));
                }
            }
            Act::Output(output) => self.out.push(output),
        }
    }

    /// A job has ended here. Its ranks' data remains available to other agents, unless they have given up on this
    /// agent.
    fn forget_job(&mut self, id: JobId, fx: &mut Effects) {
        let Some(mut job) = self.jobs.remove(id) else { return };
        if job.up() != Up::Nowhere {
            self.early.leave_behind(id, job.take_remains());
        }
        fx.push(Effect::Names(names::Input::JobOver(id)));
        fx.push(Effect::Across(across::Input::JobOver(id)));
        fx.push(Effect::RankPorts(rank_ports::Input::JobGone(id)));
        fx.push(Effect::ForgetDirect(vec![id]));
        let traces = job.leaves_traces().then(|| job.agents());
        fx.push(Effect::Launchers(launchers::Input::JobOver { job: id, traces }));
    }
}

/// The number of the newest job, and the jobs that may still send frames. The root knows them from its launchers, every
/// other agent from its parent.
fn live_jobs(me: AgentId, launchers: &Launchers, early: &Early) -> (JobId, Vec<JobId>) {
    match me {
        AgentId(0) => launchers.live(),
        _ => (early.newest(), early.live()),
    }
}

#[cfg(test)]
mod tests;
