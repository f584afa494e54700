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
//! An agent holds a map of jobs; a job is the unit of state and of clean-up. The root is an agent like the others, with a
//! launcher where they have a parent. In a session of one run an agent whose parent is lost leaves at once, and its keeper ends
//! what it started; so does its own children's. Sessions that outlive their jobs are `standing`.

mod direct;
mod frames;
mod last_words;
mod standing;
mod starting;
mod step;
mod ucx;

use crate::children::Children;
use crate::clock_offset::ClockOffset;
use crate::io::{Input, LinkId, Output, Peer};
use crate::job::{Born, Context, Job, JobTree, participants};
use crate::links::{Below, Links};
use crate::memory::{Heap, Memory};
use crate::outbox::Outbox;
use crate::starts::Starts;
use crate::time::Instant;
use direct::Early;
use last_words::LastWords;
pub use standing::Holds;
use standing::Standing;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use step::Steps;
use ucx::UcxAgreement;
use wireup_coll::mapping::Mapping;
use wireup_coll::tree::Tree;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{self, Cause, Control, Failure, MissingAgent, RemoteShell, SessionSpec, SpawnStep};
use wireup_wire::session::Kin;

/// How long an agent that was told to leave waits for its children to leave (ns). Chosen: an agent with nothing left
/// to do needs milliseconds; whatever still runs then is killed by the keeper.
const SHUTDOWN_NS_MAX: u64 = 5_000_000_000;

/// Why a later job of the session misses an agent.
const LOST_BEFORE: &str = "it was lost in an earlier job of the session";

/// What an agent is told at birth.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentConfig {
    pub agent: AgentId,
    pub session: SessionSpec,
    pub born: Born,
    /// Where its parent listens, best first; of a standing session.
    pub parent: Vec<String>,
    pub kin: Kin,
}

impl AgentConfig {
    /// Of an agent that nobody has told about its kin.
    pub fn new(agent: AgentId, session: SessionSpec, born: Born) -> Self {
        AgentConfig { agent, session, born, parent: Vec::new(), kin: Kin::default() }
    }
}

pub struct Agent {
    config: AgentConfig,
    tree: Tree,
    links: Links,
    children: Children,
    starts: Starts,
    /// Agents that were not there by then are missed.
    start_by: Instant,
    /// Children that our remote shell did not reach, and what it said.
    refused: BTreeMap<AgentId, String>,
    last_words: LastWords,
    steps: Steps,
    /// Agents that children asked to be started: once is enough.
    asked: BTreeSet<AgentId>,
    /// Agents that they asked about, and who did.
    asked_about: BTreeSet<(AgentId, AgentId)>,
    /// The start time was cut short: children count it from their own birth and must be told.
    hurried: bool,
    clock: ClockOffset,
    /// Frames of other agents for jobs that have not come down the tree yet.
    early: Early,
    specs: BTreeMap<JobId, Arc<JobSpec>>,
    jobs: BTreeMap<JobId, Job>,
    out: Outbox,
    memory: Box<dyn Memory>,
    leaving: Option<Instant>,
    left: bool,
    ucx: UcxAgreement,
    /// Of a session that outlives its jobs.
    standing: Option<Standing>,
}

impl Agent {
    /// An agent whose ranks, if any, share its address space.
    pub fn new(config: AgentConfig) -> Self {
        Agent::with_memory(config, Box::new(Heap))
    }

    /// An agent that shares `memory` with its ranks.
    pub fn with_memory(config: AgentConfig, memory: Box<dyn Memory>) -> Self {
        let tree = Tree::new(config.session.agents.len() as u32, config.session.fanout);
        let mut links = Links::new(config.agent, tree, config.session.transport, config.session.standing.is_some());
        if let Some(standing) = &mut links.standing {
            standing.is_adopted = tree.parent(config.agent).is_some_and(|parent| parent != config.kin.parent);
            standing.below = Below::new(config.kin.there.iter().copied());
            standing.lost = config.kin.lost.iter().copied().collect();
            standing.lives = config.kin.lives.iter().copied().collect();
        }
        let mut early = Early::default();
        early.on_live(config.kin.newest, &config.kin.live);
        Agent {
            starts: Starts::new(config.agent, &config.session.remote_shell, config.session.shells_max),
            start_by: Instant(config.born.process_ns) + config.session.start_timeout_ns,
            refused: BTreeMap::new(),
            last_words: LastWords::default(),
            steps: Steps::default(),
            asked: BTreeSet::new(),
            asked_about: BTreeSet::new(),
            hurried: false,
            clock: match config.session.remote_shell {
                RemoteShell::Local => ClockOffset::shared(),
                RemoteShell::Command(_) | RemoteShell::Ssh(_) | RemoteShell::Srun(_) => ClockOffset::default(),
            },
            tree,
            links,
            standing: Standing::new(&config),
            config,
            children: Children::default(),
            early,
            specs: BTreeMap::new(),
            jobs: BTreeMap::new(),
            out: Outbox::default(),
            memory,
            leaving: None,
            left: false,
            ucx: UcxAgreement::default(),
        }
    }

    pub fn session(&self) -> &SessionSpec {
        &self.config.session
    }

    /// Tells the agent one thing that happened at `now`. Never blocks.
    pub fn handle(&mut self, now: Instant, input: Input) {
        if self.left {
            return;
        }
        self.links.direct.at(now);
        match input {
            Input::LinkUp { link, peer, local } => self.on_link_up(now, link, peer, local),
            Input::LinkBytes { link, bytes } => self.on_link_bytes(now, link, bytes),
            Input::LinkDown { link, problem } => self.on_link_down(now, link, problem),
            Input::Listening { addresses } => self.links.on_listening(addresses, &mut self.out),
            Input::ListenFailed { problem } => self.links.on_listen_failed(&problem, &mut self.out),
            Input::UcxOpened { result } => self.on_ucx_opened(result),
            Input::DialFailed { agent, problem } => self.links.on_dial_failed(agent, problem, &mut self.out),
            Input::ShellExited { shell, status, stderr } => self.on_shell_exited(now, shell, status, &stderr),
            Input::ShellFailed { shell, error } => {
                let problem = match error.step {
                    SpawnStep::Stdio => format!("{} could not call it: {}", self.host(), error.what),
                    step => {
                        let reason = std::io::Error::from_raw_os_error(error.errno);
                        format!("{}: {reason} ({})", error.what, step.words())
                    }
                };
                self.on_shell_failed(now, shell, problem);
            }
            Input::StepTold { shell, agent, problem } => self.on_step_told(now, shell, agent, problem),
            Input::Ancestors { ancestors } => self.config.kin.ancestors = ancestors,
            Input::ToldToEnd { signal } => {
                self.with_all_jobs(now, |job, cx| job.fail_here(Cause::ToldToEnd { signal }, cx));
            }
            Input::ChildStarted { job, local, pid, spawn_ns, exec_ns } => {
                self.with_job(now, job, |job, cx| job.on_started(local, pid, spawn_ns, exec_ns, cx));
            }
            Input::ChildFailed { job, local, error } => {
                self.with_job(now, job, |job, cx| job.on_start_failed(local, error, cx));
            }
            Input::ChildExited { job, local, status } => {
                self.with_job(now, job, |job, cx| job.on_exited(local, status, cx));
            }
            Input::ClientBytes { job, local, bytes } => {
                self.with_job(now, job, |job, cx| job.on_client_bytes(local, &bytes, cx));
            }
            Input::ClientGone { job, local } => {
                self.with_job(now, job, |job, cx| job.on_socket_closed(local, cx.now));
            }
            Input::StdioBytes { job, local, stream, bytes } => {
                self.with_job(now, job, |job, cx| job.on_stdio_bytes(local, stream, &bytes, cx));
            }
            Input::StdioClosed { job, local, stream } => {
                self.with_job(now, job, |job, _| job.on_stream_closed(local, stream));
            }
            Input::StdinTaken { job, local, bytes } => {
                self.with_job(now, job, |job, cx| job.on_stdin_taken(local, bytes, cx));
            }
            Input::PmixBytes { job, bytes } => {
                self.with_job(now, job, |job, cx| job.on_pmix_bytes(&bytes, cx));
            }
            Input::PmixGone { job, status, stderr } => {
                self.with_job(now, job, |job, cx| job.on_pmix_gone(status, &stderr, cx));
            }
            Input::PmixFailed { job, error } => {
                self.with_job(now, job, |job, cx| job.on_pmix_failed(&error, cx));
            }
            Input::KeeperLost { job } => self.with_job(now, job, |job, cx| job.on_keeper_lost(cx)),
            Input::RejoinFailed { .. } => self.on_rejoin_failed(now),
            Input::EndSession { reason } => self.end_session(now, reason),
            Input::Tick => self.on_tick(now),
        }
        self.stop_starting(now);
        self.call_shells(now);
        self.end_if_idle(now);
        self.leave_if_done();
    }

    /// The next thing to do; call until `None`.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop()
    }

    /// When to call `handle` with `Input::Tick` if nothing else happens first.
    pub fn deadline(&self) -> Option<Instant> {
        let jobs = self.jobs.values().filter_map(Job::deadline);
        let for_others = self.starts.serves_others().then_some(self.start_by);
        let children = self.children.deadline().into_iter().chain(self.last_words.deadline());
        jobs.chain(children)
            .chain(self.starts.deadline())
            .chain(self.links.direct.deadline())
            .chain(for_others)
            .chain(self.standing.as_ref().and_then(Standing::deadline))
            .chain(self.leaving)
            .min()
    }

    /// Takes a job on: the bootstrap message's, or one that came down a link.
    pub fn launch(&mut self, now: Instant, spec: JobSpec) {
        let id = spec.job;
        if self.specs.contains_key(&id) {
            // Whoever started this agent in its parent's stead gave it the job, and so does the parent.
            return;
        }
        self.links.direct.at(now);
        let mapping = match check(&spec, self.config.session.agents.len()) {
            Ok(mapping) => mapping,
            Err(problem) => return self.refuse(&spec, problem),
        };
        let spec = Arc::new(spec);
        self.specs.insert(id, spec.clone());
        // What children asked for an earlier job they may ask again.
        self.asked.clear();
        self.asked_about.clear();
        let mut lost = Vec::new();
        let tree = JobTree::whole(self.config.agent, self.tree);
        for child in participants(&spec, &mapping, &tree) {
            if self.children.is_new(child) {
                self.start_child(now, child, Some(id));
            } else if self.children.is_lost(child) {
                lost.push(child);
            } else {
                self.links.control_child(child, id, &Control::Launch((*spec).clone()), &mut self.out);
            }
        }
        self.call_step(now, &spec, &mapping);
        self.call_shells(now);
        self.begin_job(now, spec, &mapping, tree, &lost);
    }

    /// Takes a job on here: others that run it were told. Of children, those are `lost`.
    fn begin_job(&mut self, now: Instant, spec: Arc<JobSpec>, mapping: &Mapping, tree: JobTree, lost: &[AgentId]) {
        let id = spec.job;
        self.specs.insert(id, spec.clone());
        let (me, born) = (self.config.agent, self.config.born);
        let mut cx = Context {
            up: tree.up(),
            now,
            start_by: self.start_by,
            clock: &self.clock,
            links: &mut self.links,
            out: &mut self.out,
            memory: &mut *self.memory,
        };
        let hold = self.config.session.hold_ranks && !cx.links.has_up();
        let mut job = Job::launch(spec, mapping, me, tree, born, hold, &mut cx);
        job.wire_up(&mut cx);
        job.begin_bench(&mut cx);
        let below: Vec<AgentId> = job.child_agents().filter(|child| !lost.contains(child)).collect();
        let ask_clock = job.is_profiled() && cx.links.has_up();
        for &agent in lost {
            job.on_child_missing(agent, true);
            job.on_missing(vec![MissingAgent { agent, problem: LOST_BEFORE.into() }], &mut cx);
        }
        let is_over = job.settle(&mut cx);
        self.jobs.insert(id, job);
        if is_over {
            self.forget_job(id);
        }
        if ask_clock {
            self.ask_clock(now);
        }
        if !self.is_standing() {
            self.ask_for_ucx(below);
        }
        self.take_early(now, id);
    }

    /// Asks the parent once; nobody is asked for the clock of this very machine.
    fn ask_clock(&mut self, now: Instant) {
        if !self.is_root() && self.clock.is_new() {
            let message = self.clock.ask(now);
            self.links.control_up(JobId(0), &message, &mut self.out);
        }
    }

    /// Bytes of output held here, for the simulator's checkers.
    pub fn held_output_bytes(&self) -> usize {
        self.jobs.values().map(Job::held_output_bytes).sum()
    }

    /// Collectives that are not over here, for the simulator's checkers.
    pub fn open_exchanges(&self) -> usize {
        self.jobs.values().map(Job::open_exchanges).sum()
    }

    /// Requests of PMIx servers that are not answered, for the simulator's checkers.
    pub fn outstanding_asks(&self) -> usize {
        self.jobs.values().map(Job::outstanding_asks).sum()
    }

    fn host(&self) -> &str {
        self.config.session.agents.get(self.config.agent.index()).map_or("its parent", |agent| agent.host.as_str())
    }

    fn is_root(&self) -> bool {
        self.config.agent == AgentId(0)
    }

    /// A job that no honest launcher sends: it ends before it began.
    fn refuse(&mut self, spec: &JobSpec, problem: String) {
        let failure = Failure {
            node: Default::default(),
            host: String::new(),
            rank: None,
            pid: None,
            cause: Cause::Launcher { problem },
        };
        let message = if self.is_root() {
            Control::Ended(peer::Ended { failure: Some(failure), done: Default::default() })
        } else {
            Control::Failed(failure)
        };
        self.links.control_up(spec.job, &message, &mut self.out);
    }

    fn on_link_up(&mut self, now: Instant, link: LinkId, peer: Peer, local: String) {
        if let Peer::Child(agent) = peer {
            if !self.is_expected(agent) {
                // A second dial, or one after its time: whoever that is, it is not needed.
                return self.turn_away(link);
            }
            self.links.on_up(link, peer, &mut self.out);
            return self.on_child_up(now, agent, local);
        }
        if let Peer::Orphan { agent, life } = peer {
            return self.on_orphan(link, agent, life);
        }
        if matches!(peer, Peer::Direct(agent) if !self.links.direct.expects(agent)) {
            return self.turn_away(link);
        }
        self.links.on_up(link, peer, &mut self.out);
        if peer == Peer::Launcher && self.is_standing() {
            return self.on_launcher_up(link);
        }
        if peer == Peer::Parent {
            self.on_parent_up();
            self.with_all_jobs(now, |job, cx| job.on_linked(cx));
            if self.jobs.values().any(Job::is_profiled) {
                self.ask_clock(now);
            }
        }
    }

    fn on_link_down(&mut self, now: Instant, link: LinkId, problem: String) {
        match self.links.on_down(link) {
            None => {}
            Some(Peer::Launcher) if self.is_standing() => self.on_launcher_down(now, link),
            Some(Peer::Parent) => self.on_parent_lost(now),
            Some(Peer::Launcher) => self.leave(),
            // It was not taken in.
            Some(Peer::Orphan { .. }) => {}
            Some(Peer::Child(agent)) => self.on_child_link_down(now, agent, problem),
            Some(Peer::Direct(agent)) => self.links.on_direct_lost(agent, link, &problem, &mut self.out),
        }
    }

    fn on_tick(&mut self, now: Instant) {
        self.check_starts(now);
        self.check_last_words(now);
        self.check_direct(now);
        self.check_standing(now);
        self.with_all_jobs(now, |job, cx| job.on_tick(cx));
        if self.leaving.is_some_and(|until| now >= until) {
            self.leave();
        }
    }

    fn on_shutdown(&mut self, now: Instant) {
        if self.leaving.is_none() {
            self.leaving = Some(now + SHUTDOWN_NS_MAX);
            for agent in self.links.all_children() {
                self.links.control_child(agent, JobId(0), &Control::Shutdown, &mut self.out);
            }
        }
    }

    fn leave_if_done(&mut self) {
        let waits = self.links.has_children() || self.links.expects_children() || !self.jobs.is_empty();
        if self.leaving.is_some() && !waits {
            self.leave();
        }
    }

    fn leave(&mut self) {
        if !std::mem::replace(&mut self.left, true) {
            self.out.push(Output::Exit);
        }
    }

    fn with_job(&mut self, now: Instant, id: JobId, act: impl FnOnce(&mut Job, &mut Context<'_>)) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let mut cx = Context {
            up: job.up(),
            now,
            start_by: self.start_by,
            clock: &self.clock,
            links: &mut self.links,
            out: &mut self.out,
            memory: &mut *self.memory,
        };
        act(job, &mut cx);
        if job.settle(&mut cx) {
            self.forget_job(id);
        }
        for agent in self.links.take_dropped() {
            // A later job is not sent to it.
            self.children.on_lost(agent);
        }
    }

    /// A job is over here.
    fn forget_job(&mut self, id: JobId) {
        let Some(mut job) = self.jobs.remove(&id) else { return };
        self.specs.remove(&id);
        self.early.leave_behind(id, job.take_remains());
        self.links.direct.forget(id);
        self.links.settle_direct(&mut self.out);
        if self.is_standing() {
            self.on_job_over(id, &job);
        }
    }

    fn with_all_jobs(&mut self, now: Instant, mut act: impl FnMut(&mut Job, &mut Context<'_>)) {
        for id in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.with_job(now, id, &mut act);
        }
    }
}

/// Whether a job description makes sense; its placement.
fn check(spec: &JobSpec, agents: usize) -> Result<Mapping, String> {
    if spec.apps.is_empty() || spec.apps.iter().any(|app| app.argv.is_empty() || app.ranks == 0) {
        return Err("a program of the job has no ranks or no name".into());
    }
    if spec.nodes.iter().any(|node| node.agent.index() >= agents) {
        return Err("the job names a node that the session does not have".into());
    }
    let mut agents_seen = BTreeSet::new();
    if let Some(node) = spec.nodes.iter().find(|node| !agents_seen.insert(node.agent)) {
        return Err(format!("the job names node {} twice", node.agent));
    }
    Mapping::new(&spec.blocks, spec.job_size(), spec.nodes.len() as u32).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
