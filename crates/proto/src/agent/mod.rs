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
mod jobs;
mod last_words;
mod leaving;
mod neighbours;
mod standing;
mod starting;
mod step;
mod ucx;

use crate::children::Children;
use crate::clock_offset::ClockOffset;
use crate::io::{Input, Output};
use crate::job::{Born, Job, JobInput};
use crate::links::{Below, Links};
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
use wireup_coll::tree::Tree;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{Cause, RemoteShell, SessionSpec, SpawnStep};
use wireup_wire::session::Kin;

/// What an agent is told at birth.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentConfig {
    pub agent: AgentId,
    pub session: SessionSpec,
    pub born: Born,
    /// Where its parent listens, best first; of a standing session.
    pub parent: Vec<String>,
    pub kin: Kin,
    /// The architecture of this machine, as Rust names it, if it is known.
    pub arch: Option<&'static str>,
}

impl AgentConfig {
    /// Of an agent that nobody has told about its kin.
    pub fn new(agent: AgentId, session: SessionSpec, born: Born) -> Self {
        AgentConfig { agent, session, born, parent: Vec::new(), kin: Kin::default(), arch: None }
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
    leaving: Option<Instant>,
    left: bool,
    /// The batch system wants this agent gone.
    told_to_end: bool,
    ucx: UcxAgreement,
    /// Of a session that outlives its jobs.
    standing: Option<Standing>,
}

impl Agent {
    pub fn new(config: AgentConfig) -> Self {
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
            starts: Starts::new(config.agent, &config.session.remote_shell, config.session.shells_max, config.arch),
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
            leaving: None,
            left: false,
            told_to_end: false,
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
                    SpawnStep::Find
                    | SpawnStep::Interpreter
                    | SpawnStep::Exec
                    | SpawnStep::Cwd
                    | SpawnStep::Fork
                    | SpawnStep::Devices => error.what,
                };
                self.on_shell_failed(now, shell, problem);
            }
            Input::StepTold { shell, agent, problem } => self.on_step_told(now, shell, agent, problem),
            Input::Ancestors { ancestors } => self.config.kin.ancestors = ancestors,
            Input::ToldToEnd { signal } => {
                self.told_to_end = true;
                self.tell_all_jobs(now, || JobInput::FailHere(Cause::ToldToEnd { signal }));
            }
            Input::ChildStarted { job, local, pid, spawn_ns, exec_ns } => {
                self.tell_job(now, job, JobInput::Started { local, pid, spawn_ns, exec_ns });
            }
            Input::ChildFailed { job, local, error } => {
                self.tell_job(now, job, JobInput::StartFailed { local, error });
            }
            Input::ChildExited { job, local, status } => {
                self.tell_job(now, job, JobInput::Exited { local, status });
            }
            Input::ClientBytes { job, local, bytes } => {
                self.tell_job(now, job, JobInput::ClientBytes { local, bytes });
            }
            Input::ClientGone { job, local } => {
                self.tell_job(now, job, JobInput::ClientGone { local });
            }
            Input::Shared { job, share } => self.tell_job(now, job, JobInput::Shared(share)),
            Input::ShareFailed { job, share, problem } => {
                self.tell_job(now, job, JobInput::ShareFailed { share, problem });
            }
            Input::StdioBytes { job, local, stream, bytes } => {
                self.tell_job(now, job, JobInput::StdioBytes { local, stream, bytes });
            }
            Input::StdioClosed { job, local, stream } => {
                self.tell_job(now, job, JobInput::StdioClosed { local, stream });
            }
            Input::StdinTaken { job, local, bytes } => {
                self.tell_job(now, job, JobInput::StdinTaken { local, bytes });
            }
            Input::PmixBytes { job, bytes } => {
                self.tell_job(now, job, JobInput::PmixBytes(bytes));
            }
            Input::PmixGone { job, status, stderr } => {
                self.tell_job(now, job, JobInput::PmixGone { status, stderr });
            }
            Input::PmixFailed { job, error } => {
                self.tell_job(now, job, JobInput::PmixFailed(error));
            }
            Input::KeeperLost { job } => self.tell_job(now, job, JobInput::KeeperLost),
            Input::RejoinFailed { .. } => self.on_rejoin_failed(now),
            Input::EndSession { reason } => self.end_session(now, reason),
            Input::Tick => self.on_tick(now),
        }
        self.stop_starting(now);
        self.call_shells(now);
        self.end_if_idle(now);
        self.leave_if_told();
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

    fn on_tick(&mut self, now: Instant) {
        self.check_starts(now);
        self.check_last_words(now);
        self.check_direct(now);
        self.check_standing(now);
        self.tell_all_jobs(now, || JobInput::Tick);
        if self.leaving.is_some_and(|until| now >= until) {
            self.leave();
        }
    }
}

#[cfg(test)]
mod tests;
