//! Starts an agent's children: by the agent's own remote shell, otherwise by the nearest ancestor that can; otherwise
//! they are missing.
//!
//! Missing agents are reported immediately, and the agents below them are probed, so that one message names all
//! problems. A child that takes half of its start time is treated as missing in this respect: the agents below it are
//! probed in the meantime.
//!
//! `children` has the state of each child, `elsewhere` what agents do for each other, `probes` checks hosts, `losses`
//! reports agents that do not link and finds out why a child was lost (`last_words`), `by_step` handles agents that a
//! batch system starts (`steps`, `unheard`), `ends` gives up.

mod by_step;
mod children;
mod elsewhere;
mod ends;
mod last_words;
mod losses;
mod probes;
mod steps;
#[cfg(test)]
mod tests;
mod unheard;

use super::starts::{Outcome, Purpose, Starts, Wish};
use super::{Begin, Cx};
use crate::io::{ExitStatus, Output, ShellId};
use crate::outbox::control_frame;
use crate::time::Instant;
use children::Children;
use last_words::LastWords;
use std::collections::{BTreeMap, BTreeSet};
use steps::Steps;
use wireup_coll::tree::Tree;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::{
    Bootstrap, MissingAgent, Note, Problem, ProblemKind, Secret, SessionSpec, SpawnError, SpawnStep,
};
use wireup_wire::session::SessionSnapshot;
use wireup_wire::talk::{Control, SessionDown};

/// A child whose start took longer than this is told how much of the start time is left, since it counts from its own
/// start (ns). Chosen: a smaller error does no harm, and quick launches need no message.
const LONG_START_NS: u64 = 500_000_000;

/// Number of notes that are forwarded per agent of a child's subtree. An agent that is refused at every level and
/// retried causes ten notes per level.
const NOTES_PER_AGENT_MAX: u32 = 64;

/// The state that a new agent receives about the session.
pub type SnapshotOf<'a> = &'a dyn Fn(&Cx) -> SessionSnapshot;

pub struct Starter {
    children: Children,
    starts: Starts,
    /// Whether the start time was shortened: children count from their own start and must be told.
    hurried: bool,
    /// Error messages of the children that this agent's remote shell could not reach.
    refused: BTreeMap<AgentId, Problem>,
    /// Agents whose start children have requested: each is started once.
    asked: BTreeSet<AgentId>,
    /// Agents about which children have asked, each with the agent that asked.
    asked_about: BTreeSet<(AgentId, AgentId)>,
    last_words: LastWords,
    steps: Steps,
    /// Agents that this one has observed to be lost, in a standing session, and has not reported yet.
    lost: Vec<MissingAgent>,
}

impl Starter {
    pub fn new(me: AgentId, session: &SessionSpec, arch: Option<&'static str>) -> Self {
        Starter {
            children: Children::default(),
            starts: Starts::new(me, &session.remote_shell, session.shells_max, arch),
            hurried: false,
            refused: BTreeMap::new(),
            asked: BTreeSet::new(),
            asked_about: BTreeSet::new(),
            last_words: LastWords::default(),
            steps: Steps::default(),
            lost: Vec::new(),
        }
    }

    /// `start_by`: time by which agents must have linked.
    pub fn deadline(&self, start_by: Instant) -> Option<Instant> {
        let serves_others = self.starts.serves_others() || self.steps.is_asked();
        let for_others = serves_others.then_some(start_by);
        let children = self.children.deadline().into_iter().chain(self.last_words.deadline());
        children.chain(self.starts.deadline()).chain(for_others).min()
    }

    /// Whether a child was called and has not linked.
    pub fn is_starting(&self, child: AgentId) -> bool {
        self.children.is_starting(child)
    }

    /// Children that are lost, and the agents below them, which are lost too in a session of one run.
    pub fn lost(&self, tree: Tree) -> Vec<AgentId> {
        self.children.lost().flat_map(|child| tree.subtree(child)).collect()
    }

    /// Removes and returns the agents that this one has observed to be lost, in a standing session: the root decides
    /// about them.
    pub fn take_lost(&mut self) -> Vec<MissingAgent> {
        std::mem::take(&mut self.lost)
    }

    /// Lost agents are started again: the time for starting agents begins again, and children may repeat requests to
    /// ancestors.
    pub fn on_return(&mut self, cx: &mut Cx) {
        self.new_time(cx);
        self.asked.clear();
    }

    /// An agent has become a child because its parent is lost.
    pub fn on_adopted(&mut self, cx: &Cx, child: AgentId) {
        self.starts.on_linked(child);
        self.children.adopt(child, notes_max(cx.tree, child));
    }

    /// The root has decided that an agent is lost.
    pub fn on_lost(&mut self, cx: &mut Cx, child: AgentId) {
        self.children.on_lost(child);
        self.last_words.forget(child);
        self.starts.on_lost(child);
        self.give_up_child(cx, child);
        self.forget_added(cx, child);
    }

    /// A child does not respond: later jobs are not sent to it.
    pub fn on_dropped(&mut self, child: AgentId) {
        self.children.on_lost(child);
    }

    /// A job was launched: the time for starting agents begins again.
    pub fn new_time(&mut self, cx: &mut Cx) {
        cx.start_by = cx.now + cx.session.start_timeout_ns;
        self.hurried = false;
    }

    /// A job starts: starts the children that it needs, or sends it to them. Returns the job, with the children that
    /// were lost before.
    pub fn launch(&mut self, cx: &mut Cx, snapshot: SnapshotOf<'_>, mut begin: Begin, children: Vec<AgentId>) -> Begin {
        // For a new job children may request again what they requested for an earlier one.
        self.asked.clear();
        self.asked_about.clear();
        let id = begin.spec.job;
        for child in children {
            if self.children.is_new(child) {
                self.start(cx, child, Some(id));
            } else if self.children.is_lost(child) {
                begin.lost.push(child);
            } else {
                let message = Control::SessionDown(SessionDown::Launch((*begin.spec).clone().into()));
                cx.child_frame(child, control_frame(id, &message));
            }
        }
        self.call_step(cx, snapshot, &begin);
        self.call_shells(cx, snapshot);
        begin
    }

    /// Starts a child; `job`: the job that needs it, if there is one.
    pub fn start(&mut self, cx: &mut Cx, child: AgentId, job: Option<JobId>) {
        // Messages about a previous incarnation do not apply to this one.
        self.last_words.forget(child);
        self.children.on_start(cx.now, child, cx.start_by);
        cx.links.neighbours.expect(child);
        if !cx.is_by_step() {
            self.starts.wish(Wish { agent: child, jobs: job.into_iter().collect(), purpose: Purpose::Child });
        }
    }

    /// Calls as many remote shells as allowed.
    pub fn call_shells(&mut self, cx: &mut Cx, snapshot: SnapshotOf<'_>) {
        while let Some((shell, wish, how)) = self.starts.next(cx.now) {
            let bootstrap = self.bootstrap(cx, snapshot, &wish).map(Box::new);
            let host = cx.host_of(wish.agent).unwrap_or_default().to_owned();
            cx.output(Output::StartAgent { shell, agent: wish.agent, host, how, bootstrap });
        }
    }

    /// The bootstrap message for an agent; `None` for a probe.
    fn bootstrap(&self, cx: &Cx, snapshot: SnapshotOf<'_>, wish: &Wish) -> Option<Bootstrap> {
        let (parent, by_parent, snapshot) = match &wish.purpose {
            Purpose::Child => (Vec::new(), true, snapshot(cx)),
            Purpose::Stead { parent, snapshot, .. } => (parent.clone(), false, (**snapshot).clone()),
            Purpose::Probe { .. } | Purpose::ProbeFor { .. } => return None,
        };
        let mut session = cx.session.clone();
        session.start_timeout_ns = cx.start_by - cx.now;
        // If another call may have started the same agent, only the one that links runs the program.
        session.hold_ranks = !by_parent || self.starts.is_called_again(wish.agent);
        let jobs = wish.jobs.iter().filter_map(|job| cx.jobs.spec(*job)).cloned().collect();
        Some(Bootstrap { secret: Secret([0; 32]), agent: wish.agent, parent, by_parent, session, jobs, snapshot })
    }

    /// A child is linked; with the address at this end, for messages.
    pub fn on_agent_up(&mut self, cx: &mut Cx, child: AgentId, address: String) {
        self.starts.on_linked(child);
        let (_, shells) = self.starts.give_up(|wish| wish.purpose == Purpose::Probe { below: child });
        stop(cx, shells);
        let Some((since, delegated)) = self.children.on_agent_up(child, notes_max(cx.tree, child)) else {
            return;
        };
        if self.hurried || cx.now - since > LONG_START_NS {
            self.tell_time_left(cx, child);
        }
        if delegated {
            let problem = self.refused.remove(&child).unwrap_or_default().words;
            cx.note(Note::StartedFor { agent: child, parent: cx.me, starter: AgentId(0), problem });
        }
        if cx.session.verbose && !address.is_empty() {
            cx.note(Note::Linked { agent: child, parent: cx.me, address });
        }
    }

    fn tell_time_left(&self, cx: &mut Cx, child: AgentId) {
        cx.child(child, Control::SessionDown(SessionDown::TimeLeft { left_ns: cx.start_by - cx.now }));
    }

    /// The parent's start time ends earlier than this agent's, which counts from its own start.
    pub fn on_time_left(&mut self, cx: &mut Cx, left_ns: u64) {
        let start_by = cx.now + left_ns;
        if start_by < cx.start_by {
            cx.start_by = start_by;
            self.hurried = true;
            self.children.hurry(cx.now, start_by);
            let linked: Vec<AgentId> = cx.links.neighbours.linked().collect();
            linked.into_iter().for_each(|child| self.tell_time_left(cx, child));
        }
    }

    /// A note that an agent was started for another: if this agent called its shell, fills in the starter.
    pub fn on_note(&mut self, cx: &mut Cx, branch: AgentId, (job, mut note): (JobId, Note)) {
        if let Note::StartedFor { agent, starter, .. } = &mut note
            && cx.is_strictly_below(branch, *agent)
            && self.starts.on_linked(*agent)
        {
            *starter = cx.me;
        }
        if self.children.may_note(branch) {
            cx.up_about(job, Control::Note(note));
        }
    }

    /// A remote shell, or the step of a batch system, has ended.
    pub fn on_exited(
        &mut self,
        cx: &mut Cx,
        snapshot: SnapshotOf<'_>,
        shell: ShellId,
        status: ExitStatus,
        stderr: &str,
    ) {
        if self.on_step_exited(cx, snapshot, shell, status, stderr) {
            return;
        }
        self.on_linked_shell_exited(cx, shell, status, stderr);
        match self.starts.on_exited(cx.now, cx.start_by, shell, status, stderr) {
            Outcome::Nothing => {}
            Outcome::Again(note) => note.into_iter().for_each(|note| cx.note(note)),
            Outcome::Lost(wish, problem) => self.on_start_lost(cx, snapshot, wish, problem),
            Outcome::Reached(wish) => self.on_reached(cx, &wish),
        }
    }

    /// A remote shell, or the step of a batch system, could not be called.
    pub fn on_failed(&mut self, cx: &mut Cx, snapshot: SnapshotOf<'_>, shell: ShellId, error: SpawnError) {
        let words = match error.step {
            // The problem is this agent's own: nothing was called.
            SpawnStep::Listen | SpawnStep::Secret => {
                format!("{} could not start its agent: {}", cx.host(), error.what)
            }
            SpawnStep::Stdio
            | SpawnStep::Find
            | SpawnStep::Interpreter
            | SpawnStep::Exec
            | SpawnStep::Cwd
            | SpawnStep::Fork
            | SpawnStep::Devices
            | SpawnStep::Sockets
            | SpawnStep::Staged
            | SpawnStep::Bind => error.what,
        };
        // Without an error number, the text describes the problem completely and says what to do.
        let kind = if error.errno == 0 { ProblemKind::Advised } else { ProblemKind::System(error.errno) };
        let problem = kind.with(words);
        if self.on_step_failed(cx, shell, &problem) {
            return;
        }
        if let Outcome::Lost(wish, problem) = self.starts.on_failed(shell, problem) {
            self.on_start_lost(cx, snapshot, wish, problem);
        }
    }
}

/// How many notes of a child's subtree are forwarded.
fn notes_max(tree: Tree, child: AgentId) -> u32 {
    NOTES_PER_AGENT_MAX.saturating_mul(tree.subtree(child).count() as u32)
}

fn stop(cx: &mut Cx, shells: Vec<ShellId>) {
    shells.into_iter().for_each(|shell| cx.output(Output::StopShell { shell }));
}
