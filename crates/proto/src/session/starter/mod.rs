//! Starts an agent's children: by the agent's own remote shell, otherwise by the nearest ancestor that can; otherwise
//! they are missing.
//!
//! Missing agents are reported immediately, and the agents below them are probed, so that one message names all
//! problems. A child that takes half of its start time is treated as missing in this respect: the agents below it are
//! probed in the meantime.
//!
//! `children` has the state of each child, `elsewhere` what agents do for each other, `probes` checks hosts, `missing`
//! reports agents that do not link, `losses` why a child was lost (`last_words`), `by_step` handles agents that a batch
//! system starts (`steps`, `unheard`), `ends` gives up.

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

use super::inputs::starter::{Input, Next};
use super::starts::{Outcome, Purpose, Starts, Wish};
use super::{Begin, Effect, Effects, View};
use crate::io::{ExitStatus, Output, ShellId};
use crate::outbox::control_frame;
use crate::time::Instant;
use children::Children;
use last_words::LastWords;
use std::collections::{BTreeMap, BTreeSet};
use steps::Steps;
pub use steps::{FailedTask, Step};
use wireup_coll::tree::Tree;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::{Bootstrap, Note, Problem, ProblemKind, Secret, SessionSpec, SpawnError, SpawnStep};
use wireup_wire::session::SessionSnapshot;
use wireup_wire::talk::{Control, SessionDown};

/// A child whose start took longer than this is told how much of the start time is left, since it counts from its own
/// start (ns). Chosen: a smaller error does no harm, and quick launches need no message.
const LONG_START_NS: u64 = 500_000_000;

/// Number of notes that are forwarded per agent of a child's subtree. An agent that is refused at every level and
/// retried causes ten notes per level.
const NOTES_PER_AGENT_MAX: u32 = 64;

/// The state that a new agent receives about the session.
pub type SnapshotOf<'a> = &'a dyn Fn() -> SessionSnapshot;

pub struct Starter {
    children: Children,
    starts: Starts,
    /// Time by which agents must have linked; later they count as missing.
    start_by: Instant,
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
    /// Names of the hosts of agents that do not belong to the session.
    added: BTreeMap<AgentId, String>,
}

impl Starter {
    /// The state of an agent that was started at this time.
    pub fn new(me: AgentId, session: &SessionSpec, born_ns: u64, arch: Option<&'static str>) -> Self {
        Starter {
            children: Children::default(),
            starts: Starts::new(me, &session.remote_shell, session.shells_max, arch),
            start_by: Instant(born_ns) + session.start_timeout_ns,
            hurried: false,
            refused: BTreeMap::new(),
            asked: BTreeSet::new(),
            asked_about: BTreeSet::new(),
            last_words: LastWords::default(),
            steps: Steps::default(),
            added: BTreeMap::new(),
        }
    }

    /// Time by which agents must have linked; later they count as missing.
    pub fn start_by(&self) -> Instant {
        self.start_by
    }

    pub fn deadline(&self) -> Option<Instant> {
        let serves_others = self.starts.serves_others() || self.steps.is_asked();
        let for_others = serves_others.then_some(self.start_by);
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

    pub fn handle(&mut self, view: &View<'_>, snapshot: SnapshotOf<'_>, input: Input, fx: &mut Effects) {
        match input {
            Input::Launch { begin, children } => self.launch(view, snapshot, begin, children, fx),
            Input::Added { agent, host } => drop(self.added.insert(agent, host)),
            Input::Start(child) => self.start(view, child, None, fx),
            Input::NewTime => self.new_time(view),
            Input::Anew => {
                self.new_time(view);
                self.asked.clear();
            }
            Input::CallStep(agents) => self.call_step_for(view, snapshot, agents, fx),
            Input::CallShells => self.call_shells(view, snapshot, fx),
            Input::Up { child, local } => self.on_agent_up(view, child, local, fx),
            Input::Adopted(child) => {
                self.starts.on_linked(child);
                self.children.adopt(child, notes_max(view.tree, child));
            }
            Input::LinkDown { child, problem } => self.on_link_down(view, child, problem, fx),
            Input::Lost(child) => {
                self.children.on_lost(child);
                self.last_words.forget(child);
                self.starts.on_lost(child);
                self.give_up_child(child, fx);
                self.forget_added(view, child);
            }
            Input::Dropped(child) => drop(self.children.on_lost(child)),
            Input::ShellExited { shell, status, stderr } => self.on_exited(view, snapshot, shell, status, &stderr, fx),
            Input::ShellFailed { shell, error } => self.on_failed(view, snapshot, shell, error, fx),
            Input::StepTold { shell, agent, problem } => self.on_step_told(shell, agent, problem, fx),
            Input::TimeLeft(left_ns) => self.on_time_left(view, left_ns, fx),
            Input::NotStarted(missing) => self.on_not_started(view, missing, fx),
            Input::Probed { agent, asker, problem } => self.on_probed_above(view, agent, asker, problem, fx),
            Input::StartFor { wish, branch, problem } => self.on_start_for(view, branch, wish, problem, fx),
            Input::ProbeFor { branch, agent, asker } => self.on_probe_for(view, branch, agent, asker, fx),
            Input::Note { branch, job, note } => self.on_note(view, branch, (job, note), fx),
            Input::StopIfEnding => self.stop_if_ending(view, fx),
            Input::Tick => self.check(view, fx),
            Input::Next(next) => self.go_on(view, next, fx),
        }
    }

    fn go_on(&mut self, view: &View<'_>, next: Next, fx: &mut Effects) {
        match next {
            Next::TasksLost(tasks) => self.on_tasks_lost(view, tasks, fx),
            Next::TaskLost { agent, problem } => self.on_task_lost(view, agent, problem, fx),
            Next::TaskKnown(agent) => self.on_task_known(view, agent, fx),
            Next::EndStep { step, problem } => self.end_step(view, step, problem, fx),
            Next::EndTasks { step, problem } => self.end_tasks(view, &step, &problem, fx),
            Next::CheckLate => self.check_late(view, fx),
            Next::Late(child) => self.on_late(view, child, fx),
            Next::CheckSuspects => self.check_suspects(view, fx),
            Next::CheckLastWords => self.check_last_words(view, fx),
        }
    }

    fn new_time(&mut self, view: &View<'_>) {
        self.start_by = view.now + view.session.start_timeout_ns;
        self.hurried = false;
    }

    fn launch(
        &mut self,
        view: &View<'_>,
        snapshot: SnapshotOf<'_>,
        mut begin: Box<Begin>,
        children: Vec<AgentId>,
        fx: &mut Effects,
    ) {
        // For a new job children may request again what they requested for an earlier one.
        self.asked.clear();
        self.asked_about.clear();
        let id = begin.spec.job;
        for child in children {
            if self.children.is_new(child) {
                self.start(view, child, Some(id), fx);
            } else if self.children.is_lost(child) {
                begin.lost.push(child);
            } else {
                let message = Control::SessionDown(SessionDown::Launch((*begin.spec).clone().into()));
                fx.push(Effect::ChildFrame(child, control_frame(id, &message)));
            }
        }
        self.call_step(view, snapshot, &begin, fx);
        self.call_shells(view, snapshot, fx);
        fx.push(Effect::Begin(begin));
    }

    fn start(&mut self, view: &View<'_>, child: AgentId, job: Option<JobId>, fx: &mut Effects) {
        // Messages about a previous incarnation do not apply to this one.
        self.last_words.forget(child);
        self.children.on_start(view.now, child, self.start_by);
        fx.push(Effect::Expect(child));
        if !view.is_by_step() {
            self.starts.wish(Wish { agent: child, jobs: job.into_iter().collect(), purpose: Purpose::Child });
        }
    }

    /// Calls as many remote shells as allowed.
    fn call_shells(&mut self, view: &View<'_>, snapshot: SnapshotOf<'_>, fx: &mut Effects) {
        while let Some((shell, wish, how)) = self.starts.next(view.now) {
            let bootstrap = self.bootstrap(view, snapshot, &wish).map(Box::new);
            let host = view.host_of(wish.agent).or_else(|| self.added.get(&wish.agent).map(String::as_str));
            let host = host.unwrap_or_default().to_owned();
            fx.push(Effect::Output(Output::StartAgent { shell, agent: wish.agent, host, how, bootstrap }));
        }
    }

    /// The bootstrap message for an agent; `None` for a probe.
    fn bootstrap(&self, view: &View<'_>, snapshot: SnapshotOf<'_>, wish: &Wish) -> Option<Bootstrap> {
        let (parent, by_parent, snapshot) = match &wish.purpose {
            Purpose::Child => (Vec::new(), true, snapshot()),
            Purpose::Stead { parent, snapshot, .. } => (parent.clone(), false, (**snapshot).clone()),
            Purpose::Probe { .. } | Purpose::ProbeFor { .. } => return None,
        };
        let mut session = view.session.clone();
        session.start_timeout_ns = self.start_by - view.now;
        // If another call may have started the same agent, only the one that links runs the program.
        session.hold_ranks = !by_parent || self.starts.is_called_again(wish.agent);
        let jobs = wish.jobs.iter().filter_map(|job| view.jobs.spec(*job)).cloned().collect();
        Some(Bootstrap { secret: Secret([0; 32]), agent: wish.agent, parent, by_parent, session, jobs, snapshot })
    }

    fn on_agent_up(&mut self, view: &View<'_>, child: AgentId, address: String, fx: &mut Effects) {
        self.starts.on_linked(child);
        let (_, shells) = self.starts.give_up(|wish| wish.purpose == Purpose::Probe { below: child });
        stop(shells, fx);
        let Some((since, delegated)) = self.children.on_agent_up(child, notes_max(view.tree, child)) else {
            return;
        };
        if self.hurried || view.now - since > LONG_START_NS {
            self.tell_time_left(view, child, fx);
        }
        if delegated {
            let problem = self.refused.remove(&child).unwrap_or_default().words;
            fx.note(Note::StartedFor { agent: child, parent: view.me, starter: AgentId(0), problem });
        }
        if view.session.verbose && !address.is_empty() {
            fx.note(Note::Linked { agent: child, parent: view.me, address });
        }
    }

    fn tell_time_left(&self, view: &View<'_>, child: AgentId, fx: &mut Effects) {
        fx.child(child, Control::SessionDown(SessionDown::TimeLeft { left_ns: self.start_by - view.now }));
    }

    fn on_time_left(&mut self, view: &View<'_>, left_ns: u64, fx: &mut Effects) {
        let start_by = view.now + left_ns;
        if start_by < self.start_by {
            self.start_by = start_by;
            self.hurried = true;
            self.children.hurry(view.now, start_by);
            view.neighbours.linked().for_each(|child| self.tell_time_left(view, child, fx));
        }
    }

    /// A note that an agent was started for another: if this agent called its shell, fills in the starter.
    fn on_note(&mut self, view: &View<'_>, branch: AgentId, (job, mut note): (JobId, Note), fx: &mut Effects) {
        if let Note::StartedFor { agent, starter, .. } = &mut note
            && view.is_strictly_below(branch, *agent)
            && self.starts.on_linked(*agent)
        {
            *starter = view.me;
        }
        if self.children.may_note(branch) {
            fx.push(Effect::Up(job, Control::Note(note)));
        }
    }

    fn on_exited(
        &mut self,
        view: &View<'_>,
        snapshot: SnapshotOf<'_>,
        shell: ShellId,
        status: ExitStatus,
        stderr: &str,
        fx: &mut Effects,
    ) {
        if self.on_step_exited(view, snapshot, shell, status, stderr, fx) {
            return;
        }
        self.on_linked_shell_exited(view, shell, status, stderr, fx);
        match self.starts.on_exited(view.now, self.start_by, shell, status, stderr) {
            Outcome::Nothing => {}
            Outcome::Again(note) => note.into_iter().for_each(|note| fx.note(note)),
            Outcome::Lost(wish, problem) => self.on_start_lost(view, snapshot, wish, problem, fx),
            Outcome::Reached(wish) => self.on_reached(view, &wish, fx),
        }
    }

    fn on_failed(
        &mut self,
        view: &View<'_>,
        snapshot: SnapshotOf<'_>,
        shell: ShellId,
        error: SpawnError,
        fx: &mut Effects,
    ) {
        let words = match error.step {
            // The problem is this agent's own: nothing was called.
            SpawnStep::Listen | SpawnStep::Secret => {
                format!("{} could not start its agent: {}", view.host(), error.what)
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
        if self.on_step_failed(shell, &problem, fx) {
            return;
        }
        if let Outcome::Lost(wish, problem) = self.starts.on_failed(shell, problem) {
            self.on_start_lost(view, snapshot, wish, problem, fx);
        }
    }
}

/// How many notes of a child's subtree are forwarded.
fn notes_max(tree: Tree, child: AgentId) -> u32 {
    NOTES_PER_AGENT_MAX.saturating_mul(tree.subtree(child).count() as u32)
}

fn stop(shells: Vec<ShellId>, fx: &mut Effects) {
    shells.into_iter().for_each(|shell| fx.push(Effect::Output(Output::StopShell { shell })));
}

fn next(next: Next) -> Effect {
    Effect::Starter(Input::Next(next))
}
