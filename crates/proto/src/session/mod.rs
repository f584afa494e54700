//! One agent's share of a session: its components ("parts", such as `names`), each with its own state and tests, and
//! how they are connected.
//!
//! A part makes decisions, and sends frames and passes events to jobs immediately, through [`Cx`]. If another part must
//! act, the part returns this as its result or stores it in a list; [`Session`] carries it out in the function that has
//! called the part. No part calls another. A job may make a request while a part is working, so requests are handled
//! after the part has returned ([`Session::serve_jobs`]).

mod across;
mod agreement;
pub mod child_starts;
mod cx;
mod early;
mod heartbeat;
mod launchers;
mod leaving;
mod membership;
mod names;
mod rank_ports;
pub mod shell_calls;

pub use cx::{AddedHost, Begin, Cx, SnapshotOf, UNKNOWN_NODE, placement};
use heartbeat::Heartbeat;
pub use heartbeat::Side;

use crate::io::{LinkId, Peer};
pub use crate::job::JobNode;
use crate::job::{AgentCx, Born, FromJob, Job, JobTree, Wait, agents_of, on_no_link, participants};
use crate::link::{Arrived, Routes, UpHop};
use crate::outbox::control_frame;
use crate::policy::Policy;
use crate::time::Instant;
use across::Across;
use agreement::Agreement;
use child_starts::ChildStarts;
use early::Early;
use launchers::{Asked, Launchers};
use leaving::Leaving;
use membership::{LiveOf, Membership, News, Nodes, Unfit};
use names::Names;
use rank_ports::RankPorts;
use std::sync::Arc;
use wireup_coll::tree::Tree;
use wireup_wire::frame::{DownFrame, Frame, FrameKind};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::JobSpec;
use wireup_wire::names::{Ask, Up as Request};
use wireup_wire::peer::{Cause, Ended, Failure, MissingAgent, Note, PeerError, Problem, Rejoin, SessionSpec};
use wireup_wire::session::{Log, NodeState, RankPortsReport, SessionSnapshot};
use wireup_wire::talk::{Control, JobUp, SessionDown, ToLauncher};

/// The problem that a job reports for an agent that was lost before the job started.
const LOST_BEFORE: &str = "its node was already lost in this session";

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentConfig {
    pub agent: AgentId,
    pub session: SessionSpec,
    pub born: Born,
    /// Addresses of the parent agent, preferred first; used only in a standing session.
    pub parent: Vec<String>,
    pub snapshot: SessionSnapshot,
    /// The architecture of this machine, as Rust names it, if it is known.
    pub arch: Option<&'static str>,
}

impl AgentConfig {
    /// The configuration of an agent that is not in a standing session.
    pub fn new(agent: AgentId, session: SessionSpec, born: Born) -> Self {
        AgentConfig { agent, session, born, parent: Vec::new(), snapshot: SessionSnapshot::default(), arch: None }
    }
}

/// Numbers of entries and bytes that an agent stores, for the simulator's checkers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Holds {
    pub jobs: usize,
    pub early_frames: usize,
    pub direct_jobs: usize,
    pub direct_bytes: usize,
    pub session: usize,
}

pub struct Session {
    pub cx: Cx,
    pub child_starts: ChildStarts,
    pub membership: Membership,
    pub launchers: Launchers,
    pub agreement: Agreement,
    pub heartbeat: Heartbeat,
    pub leaving: Leaving,
    pub early: Early,
    born: Born,
    names: Names,
    across: Across,
    rank_ports: RankPorts,
}

impl Session {
    pub fn new(config: AgentConfig) -> Self {
        let AgentConfig { agent: me, session, born, parent, snapshot, arch } = config;
        let tree = Tree::new(session.agents.len() as u32, session.fanout);
        let routes = Routes::new(me, tree, Policy::of(&session), &snapshot);
        Session {
            child_starts: ChildStarts::new(me, &session, arch),
            early: Early::new(snapshot.newest, &snapshot.live),
            membership: Membership::new(me, &session, parent, &snapshot, &routes),
            launchers: Launchers::default(),
            agreement: Agreement::default(),
            heartbeat: Heartbeat::default(),
            names: Names::default(),
            across: Across::default(),
            rank_ports: RankPorts::default(),
            leaving: Leaving::default(),
            cx: Cx::new(me, Instant(born.process_ns), session, routes),
            born,
        }
    }

    /// Starts an agent of a standing session: it starts its children without waiting for a job.
    pub fn begin(&mut self) {
        self.rank_ports.reserve(&mut self.cx);
        let children = self.cx.agent.links.routes.roster.children(self.cx.me);
        self.start(|child_starts, cx, _| children.into_iter().for_each(|child| child_starts.start(cx, child, None)));
        self.on_nodes_changed();
        let asked = self.cx.agent.links.neighbours.all().collect();
        self.agreement.ask(&mut self.cx, asked);
        let all = self.cx.tree.subtree(AgentId(0)).collect();
        self.start(|child_starts, cx, snapshot| {
            child_starts.call_step_for(cx, snapshot, all);
            child_starts.shell_calls.call_shells(cx, snapshot);
        });
    }

    /// The session's nodes, as the root knows them; empty at other agents.
    pub fn nodes(&self) -> &[NodeState] {
        self.membership.nodes().map(Nodes::own).unwrap_or_default()
    }

    /// When to call `on_tick` if nothing else happens first.
    pub fn deadline(&self) -> Option<Instant> {
        let jobs = self.cx.jobs.values().filter_map(Job::deadline);
        jobs.chain(self.child_starts.deadline(self.cx.agent.start_by))
            .chain(self.cx.agent.links.direct.deadline())
            .chain(self.membership.deadline())
            .chain(self.launchers.deadline())
            .chain(self.heartbeat.deadline())
            .chain(self.names.deadline())
            .chain(self.leaving.deadline())
            .min()
    }

    /// Numbers of entries and bytes that the agent stores, for the simulator's checkers.
    pub fn holds(&self) -> Holds {
        let Cx { agent: AgentCx { links, .. }, jobs, .. } = &self.cx;
        let of_session = links.routes.roster.len() + self.membership.size() + self.launchers.size();
        Holds {
            jobs: jobs.size(),
            early_frames: self.early.len(),
            direct_jobs: links.direct.jobs().len(),
            direct_bytes: links.direct.held_bytes(),
            session: of_session + self.names.size() + self.across.size(),
        }
    }

    pub fn on_tick(&mut self) {
        self.start(|child_starts, cx, _| child_starts.check(cx));
        let cx = &mut self.cx;
        let (notes, broken) = cx.agent.links.check_direct();
        for (peer, problem) in notes {
            cx.note(Note::Routed { agent: cx.me, peer, problem });
        }
        for peer in broken {
            cx.jobs.tell_each(&mut cx.agent, peer.jobs, |_, cx| on_no_link(cx, peer.agent, peer.problem.clone()));
        }
        self.serve_jobs();
        self.decide(|membership, cx, live| membership.check_leases(cx, live));
        if let Some(link) = self.membership.seek_if_due(&mut self.cx) {
            self.cx.close(link);
            self.on_link_down(link, "the root does not answer".into());
        }
        self.serve_launchers(|launchers, cx, nodes| launchers.tell_of_deferred(cx, nodes));
        for (link, problem) in self.heartbeat.on_tick(&mut self.cx) {
            self.cx.close(link);
            self.on_link_down(link, problem);
        }
        self.names.on_tick(&mut self.cx);
        self.serve_jobs();
        self.cx.jobs.tell_each(&mut self.cx.agent, self.cx.jobs.ids(), |job, cx| job.on_tick(cx));
        self.serve_jobs();
        self.leaving.on_tick(&mut self.cx);
    }

    /// Handles the requests of jobs. Also calls `look_around` if a job has changed, or if `may_concern_all`: the last
    /// input may concern the whole agent, not only one job.
    pub fn finish(&mut self, may_concern_all: bool) {
        self.serve_jobs();
        let mut is_due = may_concern_all;
        while is_due | std::mem::take(&mut self.cx.jobs.have_changed) {
            is_due = false;
            self.look_around();
            self.serve_jobs();
        }
    }

    /// Does what may have become due: releases added hosts, calls or stops remote shells, ends this agent.
    fn look_around(&mut self) {
        if let Some(nodes) = self.membership.nodes() {
            let unneeded = self.launchers.unneeded(&self.cx, nodes);
            if !unneeded.is_empty() {
                self.decide(|membership, cx, live| membership.release(cx, live, unneeded));
            }
        }
        self.start(|child_starts, cx, snapshot| {
            child_starts.stop_if_ending(cx);
            child_starts.shell_calls.call_shells(cx, snapshot);
        });
        let cx = &mut self.cx;
        if self.launchers.may_end(cx) {
            self.leaving.on_shutdown(cx);
        }
        self.leaving.leave_if_told(cx);
        self.leaving.leave_if_done(cx);
    }

    /// Calls `act` with `child_starts`, then reports the agents that `child_starts` has observed to be lost.
    pub fn start<T>(&mut self, act: impl FnOnce(&mut ChildStarts, &mut Cx, SnapshotOf<'_>) -> T) -> T {
        let Session { child_starts, membership, launchers, early, cx, .. } = self;
        let me = cx.me;
        let live = || live_jobs(me, launchers, early);
        let snapshot = |cx: &Cx| membership.snapshot(cx, &live);
        let result = act(child_starts, cx, &snapshot);
        let lost = self.child_starts.losses.take_observed();
        if !lost.is_empty() {
            self.decide(|membership, cx, live| membership.report_lost(cx, live, lost));
        }
        self.serve_jobs();
        result
    }

    /// At the root of a standing session: calls `act` with `launchers`, then carries out what `launchers.asked`
    /// requests. At other agents, which serve no launchers, does nothing.
    pub fn serve_launchers(&mut self, act: impl FnOnce(&mut Launchers, &mut Cx, &Nodes)) {
        let nodes = self.membership.nodes().filter(|_| self.cx.policy.has_many_launchers());
        let Some(nodes) = nodes else { return };
        act(&mut self.launchers, &mut self.cx, nodes);
        self.serve_jobs();
        while let Some(asked) = self.launchers.asked.pop_front() {
            match asked {
                Asked::Revive => self.decide(|membership, cx, live| membership.revive(cx, live)),
                Asked::Number { spec, link } => self.number(*spec, Some(link)),
                Asked::StartAdded(job) => self.decide(|membership, cx, live| membership.start_added(cx, live, job)),
                Asked::Start { begin, live: (newest, live), later } => {
                    let job = begin.spec.job;
                    // When an agent is lost, jobs that were sent through it are sent again. A job that arrives twice
                    // starts only once.
                    if !self.early.is_over(job) {
                        self.early.set_live(newest, &live);
                        self.begin_job(*begin);
                    }
                    later.into_iter().for_each(|later| later.deliver(&mut self.cx, job));
                    self.serve_jobs();
                }
            }
        }
    }

    /// Handles the requests of jobs, and forgets the jobs that have ended.
    pub fn serve_jobs(&mut self) {
        while let Some(due) = self.cx.agent.from_jobs.pop_front() {
            match due {
                FromJob::Asked(job, message) => self.on_asked(job, message),
                // The job has given up this child, which does not respond: later jobs are not sent to it.
                FromJob::Dropped(child) => drop(self.child_starts.children.on_lost(child)),
                FromJob::Over => {
                    let job = self.cx.jobs.over.pop_front().expect("each `Over` has its job");
                    self.on_job_over(job);
                }
            }
        }
    }

    /// At the root: handles a message from an agent of a job about published names, spawned processes or other jobs.
    fn on_asked(&mut self, job: JobId, message: Request) {
        let cx = &mut self.cx;
        match message {
            Request::Ask { agent, asker, from, ask: Ask::Spawn(request) } => {
                // The launcher of the job places the new processes, and must not choose nodes that are lost.
                let lost = match cx.policy.survives_losses() {
                    true => self.membership.nodes().map(|nodes| nodes.lost()).unwrap_or_default(),
                    false => self.child_starts.children.lost_branches(cx.tree),
                };
                let missing = lost.into_iter().map(|agent| MissingAgent { agent, problem: Problem::default() });
                cx.agent.links.send_up(control_frame(job, &JobUp::Missing(missing.collect()).into()));
                self.launchers.on_spawn(cx, job, (agent, asker), from, request);
            }
            Request::Ask { agent, asker, ask: Ask::Join(joint), .. } => {
                self.across.on_join(cx, (JobNode { job, agent }, asker), joint);
            }
            Request::Ask { agent, asker, ask: Ask::Fetch(fetch), .. } => {
                self.across.on_fetch(cx, (JobNode { job, agent }, asker), fetch);
            }
            Request::Report { agent, report } => self.across.on_report(cx, JobNode { job, agent }, report),
            message => self.names.on_message(cx, job, message),
        }
    }

    /// A job has ended on this agent. Keeps the data of the job's ranks for requests of other agents, unless the job
    /// was abandoned here, because no other agent waits for it.
    fn on_job_over(&mut self, mut job: Job) {
        let id = job.id();
        if job.up() != UpHop::Nowhere {
            self.early.leave_behind(id, job.take_remains(), job.take_dictionary());
        }
        let cx = &mut self.cx;
        self.names.on_job_over(id);
        self.across.on_job_over(cx, id);
        self.rank_ports.on_job_gone(cx, id);
        cx.forget_direct(&[id]);
        if cx.is_root() && cx.policy.has_many_launchers() {
            let traces = job.leaves_traces().then(|| job.facts.agents());
            self.early.forget(id);
            if traces.is_some() {
                self.rank_ports.on_over(cx, id);
            }
            self.launchers.on_job_over(cx, id, traces);
        }
    }

    /// Calls `act` with `membership`, then carries out the decisions that `act` returns.
    pub fn decide(&mut self, act: impl FnOnce(&mut Membership, &mut Cx, LiveOf<'_>) -> Vec<News>) {
        let Session { membership, launchers, early, cx, .. } = self;
        let me = cx.me;
        let live = || live_jobs(me, launchers, early);
        let news = act(membership, cx, &live);
        self.serve_jobs();
        self.follow(news);
    }

    /// Makes the other parts act on recorded decisions of the root.
    fn follow(&mut self, news: Vec<News>) {
        if news.is_empty() {
            return;
        }
        let mut lost = Vec::new();
        for one in news {
            match one {
                News::Lost(agents) => {
                    agents.iter().for_each(|agent| self.on_agent_lost(*agent));
                    self.agreement.settle(&mut self.cx);
                    lost.extend(agents);
                }
                News::Returned { agents, own, are_below } => self.start(|child_starts, cx, snapshot| {
                    if are_below {
                        child_starts.on_return(cx);
                    }
                    own.into_iter().for_each(|agent| child_starts.start(cx, agent, None));
                    child_starts.call_step_for(cx, snapshot, agents);
                }),
                News::Dismissed => return self.leaving.leave(&mut self.cx),
            }
        }
        if self.cx.is_root() {
            for agent in lost {
                self.serve_launchers(|launchers, cx, _| launchers.start_again(cx, agent));
            }
            self.on_nodes_changed();
        }
    }

    fn on_agent_lost(&mut self, agent: AgentId) {
        // Messages that still arrive about the lost agent must not be attributed to its next incarnation.
        self.start(|child_starts, cx, _| child_starts.on_lost(cx, agent));
        let cx = &mut self.cx;
        if cx.agent.links.neighbours.has_child(agent) {
            // The link to the lost agent may still work, but all other agents count it as lost: closes the link.
            cx.agent.links.cut_child(agent);
        }
        cx.jobs.tell_each(&mut cx.agent, cx.jobs.ids(), |job, cx| job.on_agent_lost(cx, agent));
        self.serve_jobs();
        self.cx.agent.links.direct.lose(agent);
        self.cx.route_again(agent);
    }

    /// At the root: the state of some nodes (up, lost or starting) has changed.
    fn on_nodes_changed(&mut self) {
        let Some(nodes) = self.membership.nodes().filter(|_| self.cx.policy.survives_losses()) else { return };
        self.heartbeat.on_starting(&self.cx, !nodes.is_settled());
        self.serve_launchers(|launchers, cx, nodes| launchers.on_nodes_changed(cx, nodes));
    }

    /// Entries of the root's log of decisions have arrived.
    pub fn on_log(&mut self, mut log: Log) {
        match self.membership.on_log(&self.cx, &log) {
            Ok(None) => {}
            Ok(Some(link)) => {
                self.cx.agent.links.on_taken_in(link);
                self.on_parent_up();
            }
            Err(Unfit) => return self.leaving.leave(&mut self.cx),
        }
        self.early.on_live(&mut self.cx, log.newest, &log.live);
        self.serve_jobs();
        let has_moved = log.has_moved;
        while let Some(news) = self.membership.next_decision(&mut self.cx, &mut log) {
            self.follow(vec![news]);
            if self.leaving.has_left() {
                return;
            }
        }
        if has_moved {
            // The path to the root has changed. Frames that were sent again when this agent learned of the loss, but
            // over the lost parent's link, are sent again once more.
            self.cx.route_again(self.cx.me);
        }
    }

    pub fn on_link_up(&mut self, link: LinkId, peer: Peer, local: String) {
        let cx = &mut self.cx;
        let is_expected = match peer {
            // A child that is not expected has dialled a second time or too late, or has an old incarnation: it is not
            // needed.
            Peer::Child { agent, incarnation } => {
                self.child_starts.children.is_starting(agent)
                    && cx.agent.links.neighbours.expects(agent)
                    && cx.agent.links.routes.roster.incarnation(agent) == incarnation
            }
            Peer::Direct(agent) => cx.agent.links.direct.expects(agent),
            Peer::Rejoin { agent, rejoin } => return self.on_rejoin(link, agent, rejoin),
            Peer::Parent if self.membership.is_seeking() => {
                cx.agent.links.on_reached(link);
                return self.membership.on_root_reached(cx, link);
            }
            Peer::Parent | Peer::Launcher => true,
        };
        if !is_expected {
            if matches!(peer, Peer::Child { .. }) && cx.policy.survives_losses() {
                // The child must exit. Without this message it would take the closed link for the loss of its parent,
                // and ask the root to adopt it.
                cx.answer(link, SessionDown::Log(Log::unfit()));
            }
            return cx.close(link);
        }
        cx.agent.links.on_link_up(link, peer);
        match peer {
            Peer::Child { agent: child, .. } => {
                self.on_child_linked(child);
                self.start(|child_starts, cx, _| child_starts.on_agent_up(cx, child, local));
            }
            // Launchers attach only to the root.
            Peer::Launcher if cx.policy.has_many_launchers() && !cx.is_root() => cx.close(link),
            Peer::Launcher if cx.policy.has_many_launchers() => {
                self.serve_launchers(|launchers, cx, nodes| launchers.attach(cx, nodes, link));
            }
            Peer::Parent => self.on_parent_up(),
            Peer::Launcher | Peer::Direct(_) | Peer::Rejoin { .. } => {}
        }
    }

    pub fn on_link_down(&mut self, link: LinkId, problem: Problem) {
        let cx = &mut self.cx;
        match cx.agent.links.on_link_down(link) {
            // `None`: the link was not accepted.
            None | Some(Peer::Rejoin { .. }) => {}
            Some(Peer::Launcher) if cx.policy.has_many_launchers() => {
                self.serve_launchers(|launchers, cx, _| launchers.on_down(cx, link));
            }
            Some(Peer::Launcher) => self.leaving.leave(cx),
            Some(Peer::Parent) => {
                if self.membership.on_parent_lost(cx) {
                    self.leaving.leave(cx);
                }
            }
            Some(Peer::Child { agent: child, .. }) => {
                self.start(|child_starts, cx, _| child_starts.on_link_down(cx, child, problem));
            }
            Some(Peer::Direct(agent)) => {
                cx.agent.links.with_direct(|direct| direct.on_lost(agent, link, &problem));
            }
        }
    }

    /// The link towards the root is up, for the first time or again.
    fn on_parent_up(&mut self) {
        let cx = &mut self.cx;
        cx.agent.clock.start_over();
        self.membership.on_parent_up(cx);
        self.report_ports(|ports, cx| ports.reserved(cx));
        let cx = &mut self.cx;
        cx.jobs.tell_each(&mut cx.agent, cx.jobs.ids(), |job, cx| job.on_linked(cx));
        if cx.jobs.values().any(Job::is_profiled) {
            cx.ask_clock(self.membership.linked_to);
        }
        self.serve_jobs();
    }

    /// Calls `act` with `rank_ports`, then sends the report that it returns, if any, to the root.
    pub fn report_ports(&mut self, act: impl FnOnce(&mut RankPorts, &mut Cx) -> Option<RankPortsReport>) {
        let Some(report) = act(&mut self.rank_ports, &mut self.cx) else { return };
        if let Some(report) = rank_ports::pass_on(&mut self.cx, report) {
            self.serve_launchers(|launchers, _, _| launchers.ports.on_report(report));
        }
    }

    fn on_child_linked(&mut self, child: AgentId) {
        let survives = self.cx.policy.survives_losses();
        if survives {
            self.agreement.tell(&mut self.cx, child);
        }
        // In a session of one run only the root records which of its children are linked, to show what it waits for.
        if survives || self.cx.is_root() {
            let incarnation = self.cx.agent.links.routes.roster.incarnation(child);
            self.on_here(child, vec![(child, incarnation)]);
        }
    }

    /// A child reports that these agents of its subtree are linked, with their incarnations.
    pub fn on_here(&mut self, branch: AgentId, agents: Vec<(AgentId, u32)>) {
        if self.membership.on_here(&mut self.cx, branch, agents) {
            self.on_nodes_changed();
        }
    }

    /// An agent that has lost its parent has dialled this agent, to be adopted.
    fn on_rejoin(&mut self, link: LinkId, agent: AgentId, rejoin: Rejoin) {
        let mut missed = None;
        self.decide(|membership, cx, live| match membership.on_rejoin(cx, live, link, agent, rejoin) {
            Ok(log) => {
                missed = Some(log);
                Vec::new()
            }
            Err(news) => news,
        });
        if let Some(missed) = missed {
            self.adopt(link, agent, missed);
        }
    }

    /// Adopts an agent that has lost its parent: sends it the log entries that it lacks (`missed`), then its queued
    /// frames.
    fn adopt(&mut self, link: LinkId, child: AgentId, missed: Log) {
        let cx = &mut self.cx;
        let waiting = cx.agent.links.neighbours.forget(child);
        let incarnation = cx.agent.links.routes.roster.incarnation(child);
        cx.agent.links.on_link_up(link, Peer::Child { agent: child, incarnation });
        self.child_starts.on_adopted(cx, child);
        cx.child(child, SessionDown::Log(missed));
        self.on_child_linked(child);
        waiting.into_iter().for_each(|frame| self.cx.agent.links.send_child(child, frame));
    }

    /// A frame for a job has arrived from another agent. Handles it, then the later frames that waited for it.
    ///
    /// # Errors
    /// One of these frames is a message that no correct agent sends, and its job fails. The other frames were handled.
    pub fn on_arrived(&mut self, Arrived { from, job, frame }: Arrived) -> Result<(), PeerError> {
        let mut result = Ok(());
        let mut next = frame;
        while let Some(frame) = next {
            // A frame that waited may belong to another job than the frame before it.
            let job = JobId(frame.job);
            // In a session of one run, an agent accepts frames along the tree only from its parent and its children.
            // Exceptions: frames between any two agents (`Peer`), and answers of the root (`NamesDown`), which may
            // arrive after the job has ended here.
            let is_from_any = matches!(frame.kind, FrameKind::Peer(_) | FrameKind::Down(DownFrame::NamesDown));
            let handled = if !is_from_any && !self.cx.policy.has_trees_of_jobs() {
                Err(PeerError::Misdirected)
            } else if self.cx.jobs.contains_key(&job) {
                self.cx.jobs.deliver(&mut self.cx.agent, from, frame)
            } else {
                self.early.on_frame(&mut self.cx, from, frame)
            };
            if let Err(error) = handled {
                self.cx.jobs.blame(&mut self.cx.agent, from, job, error);
                result = Err(error);
            }
            self.serve_jobs();
            self.early.forget_if_over(&mut self.cx, job);
            next = self.cx.agent.links.direct.follower(from);
        }
        // A frame counts as traffic of its job even if it arrived out of order and was not handled yet.
        self.early.forget_if_over(&mut self.cx, job);
        result
    }

    /// A launcher or the parent has sent a job that runs on the whole session's tree.
    pub fn on_job_sent(&mut self, spec: Box<JobSpec>) {
        self.child_starts.new_time(&mut self.cx);
        self.on_launch(Arc::from(spec));
    }

    /// Starts a job that runs on the whole session's tree: from the bootstrap message, or from the launcher of a
    /// one-shot run.
    pub fn on_launch(&mut self, spec: Arc<JobSpec>) {
        let cx = &mut self.cx;
        if cx.jobs.spec(spec.job).is_some() {
            // An agent that was started by an ancestor other than its parent gets the job twice: in the bootstrap
            // message and from the parent.
            return;
        }
        if let Some(nodes) = self.membership.nodes() {
            if spec.nodes.iter().any(|node| node.agent == AgentId::ADDED) {
                return self.number(Arc::unwrap_or_clone(spec), None);
            }
            if !nodes.have_all(&spec) {
                return refuse(cx, &spec, UNKNOWN_NODE.into());
            }
        }
        let mapping = match placement(&spec) {
            Ok(mapping) => mapping,
            Err(problem) => return refuse(cx, &spec, problem),
        };
        cx.jobs.announce(spec.clone());
        let tree = JobTree::whole(cx.me, cx.tree);
        let children = participants(&spec, &mapping, &tree);
        let begin = Begin { spec, mapping, tree, lost: Vec::new() };
        let begin = self.start(|child_starts, cx, snapshot| child_starts.launch(cx, snapshot, begin, children));
        self.begin_job(begin);
    }

    /// Gives numbers to the agents of the hosts that a job adds, then starts the job. `link`: the link of the job's
    /// launcher; `None`: the session has only one launcher.
    fn number(&mut self, mut spec: JobSpec, link: Option<LinkId>) {
        let agents = self.membership.number(&mut self.cx, &mut spec);
        let told = Control::ToLauncher(ToLauncher::Added { agents });
        match link {
            None => {
                self.cx.up_about(spec.job, told);
                self.on_launch(spec.into());
            }
            Some(link) => {
                self.cx.agent.links.out.send(link, control_frame(spec.job, &told));
                self.serve_launchers(|launchers, cx, nodes| launchers.on_numbered(cx, nodes, link, spec));
            }
        }
    }

    /// A job of a standing session arrives from the parent.
    pub fn on_start(&mut self, frame: &Frame, spec: JobSpec, newest: JobId, live: &[JobId]) {
        // The root has checked the job's description: an invalid description comes from no correct root, and is
        // ignored.
        let Ok(mapping) = placement(&spec) else { return };
        let agents = agents_of(&spec, &mapping);
        self.cx.agent.links.pass_on(&agents, frame);
        self.early.on_live(&mut self.cx, newest, live);
        self.serve_jobs();
        let Session { cx, early, .. } = self;
        let is_lost = |agent: &AgentId| cx.agent.links.routes.roster.is_lost(*agent);
        if agents.contains(&cx.me) && !agents.iter().any(is_lost) && !early.is_over(spec.job) {
            let tree = JobTree::of_job(&spec, cx.me, &cx.session, agents);
            self.begin_job(Begin { spec: spec.into(), mapping, tree, lost: Vec::new() });
        }
    }

    fn begin_job(&mut self, begin: Begin) {
        let Begin { spec, mapping, tree, lost } = begin;
        let cx = &mut self.cx;
        let id = spec.job;
        let has_up = cx.agent.links.neighbours.has_up();
        let link = (cx.session.hold_ranks && !has_up).then_some(Wait::Link);
        let others: &[Wait] = if cx.session.start_together { &[Wait::Below, Wait::Others] } else { &[] };
        let waits: Vec<Wait> = link.into_iter().chain(others.iter().copied()).collect();
        cx.jobs.announce(spec.clone());
        let job = Job::new(spec, &mapping, cx.me, tree, self.born, &waits, cx.agent.now);
        let below: Vec<AgentId> = job.facts.below.iter().copied().filter(|child| !lost.contains(child)).collect();
        let asks_clock = job.is_profiled() && has_up;
        cx.jobs.insert(id, job);
        self.heartbeat.schedule_questions(cx);
        let missing = |agent| MissingAgent { agent, problem: LOST_BEFORE.into() };
        let lost = lost.into_iter().map(missing).collect();
        cx.jobs.tell(&mut cx.agent, id, |job, cx| job.begin(cx, lost));
        if asks_clock {
            cx.ask_clock(self.membership.linked_to);
        }
        if !cx.policy.starts_all_agents() {
            self.agreement.ask(cx, below);
        }
        self.early.on_begun(cx, id);
        self.serve_jobs();
    }

    /// A job has ended on all of its nodes. An agent that still has it ends it locally.
    pub fn on_over(&mut self, agents: Vec<AgentId>, frame: &Frame) {
        let (job, cx) = (JobId(frame.job), &mut self.cx);
        cx.agent.links.pass_on(&agents, frame);
        self.rank_ports.on_over(cx, job);
        match cx.jobs.contains_key(&job) {
            true => cx.jobs.tell(&mut cx.agent, job, |job, cx| job.abandon(cx)),
            false => self.early.on_over(cx, job),
        }
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

/// Refuses a job that no correct launcher sends: reports that the job has failed before its start.
fn refuse(cx: &mut Cx, spec: &JobSpec, problem: String) {
    let failure = Failure::from(Cause::Launcher { problem });
    let message = match cx.is_root() {
        true => Control::ToLauncher(ToLauncher::Ended(Ended { failure: Some(failure), done: Default::default() })),
        false => Control::JobUp(JobUp::Failed(failure)),
    };
    cx.up_about(spec.job, message);
}
