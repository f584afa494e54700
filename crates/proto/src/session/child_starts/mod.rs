//! Starts an agent's children: by the agent's own remote shell, otherwise by the nearest ancestor that can; otherwise
//! they are missing.
//!
//! Missing agents are reported immediately, and the agents below them are probed, so that one message names all
//! problems. The agents below a child are also probed if the child has not linked after half of the start timeout.
//!
//! `children` has the state of each child, `shell_calls` the remote shells, `steps` the agents that a batch system
//! starts, `probes` the probes of hosts below a child, `losses` the reasons why children were lost.

mod children;
mod losses;
mod probes;
mod steps;
#[cfg(test)]
mod tests;

use super::shell_calls::{self, Outcome, Purpose, ShellCalls, Wish};
use super::{Begin, Cx, SnapshotOf};
use crate::io::{ExitStatus, How, ShellId};
use crate::job::Job;
use crate::outbox::control_frame;
use crate::time::Instant;
use children::Children;
use losses::Losses;
use probes::Probes;
use std::collections::{BTreeMap, BTreeSet};
use steps::{Call, NOT_BEGUN, Step, StepEnd, Steps};
use wireup_coll::tree::{Hop, Tree};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::{MissingAgent, Note, Problem, ProblemKind, SessionSpec, SpawnError, SpawnStep};
use wireup_wire::talk::{SessionDown, SessionUp};

/// A child that took longer than this to link (ns) gets a message with the time left until the start timeout, since it
/// counts the timeout from its own start. Chosen: a smaller error does no harm, and quick launches need no message.
const LONG_START_NS: u64 = 500_000_000;

/// Number of notes that are forwarded per agent of a child's subtree. If each level of the tree fails to start an agent
/// even after retries, there are ten notes per level.
const NOTES_PER_AGENT_MAX: u32 = 64;

pub struct ChildStarts {
    pub children: Children,
    pub shell_calls: ShellCalls,
    pub losses: Losses,
    steps: Steps,
    probes: Probes,
    /// Whether the parent has shortened the start timeout. If so, each child that links receives the time left, because
    /// children count the timeout from their own start.
    hurried: bool,
    /// Error messages of the children that this agent's remote shell could not reach.
    refused: BTreeMap<AgentId, Problem>,
    /// Agents that children have asked this agent to start: each is started once.
    asked: BTreeSet<AgentId>,
}

impl ChildStarts {
    pub fn new(me: AgentId, session: &SessionSpec, arch: Option<&'static str>) -> Self {
        ChildStarts {
            children: Children::default(),
            shell_calls: ShellCalls::new(me, &session.remote_shell, session.shells_max, arch),
            losses: Losses::default(),
            steps: Steps::default(),
            probes: Probes::default(),
            hurried: false,
            refused: BTreeMap::new(),
            asked: BTreeSet::new(),
        }
    }

    /// `start_by`: time by which agents must have linked.
    pub fn deadline(&self, start_by: Instant) -> Option<Instant> {
        let serves_others = self.shell_calls.serves_others() || !self.probes.unheard.is_empty();
        let for_others = serves_others.then_some(start_by);
        let children = self.children.deadline().into_iter().chain(self.losses.deadline());
        children.chain(self.shell_calls.deadline()).chain(for_others).min()
    }

    /// Lost agents are started again: restarts the start timeout, and lets children repeat their requests to start
    /// agents.
    pub fn on_return(&mut self, cx: &mut Cx) {
        self.new_time(cx);
        self.asked.clear();
    }

    /// An agent has become a child because its parent is lost.
    pub fn on_adopted(&mut self, cx: &Cx, child: AgentId) {
        self.shell_calls.on_linked(child);
        self.probes.below.remove(&child);
        self.children.adopt(child, notes_max(cx.tree, child));
    }

    /// The root has decided that an agent is lost.
    pub fn on_lost(&mut self, cx: &mut Cx, child: AgentId) {
        self.children.on_lost(child);
        self.losses.forget(child);
        self.shell_calls.on_lost(child);
        self.shell_calls.give_up(cx, |wish| wish.agent == child);
        self.forget_added(cx, child);
    }

    /// A job was launched: restarts the start timeout.
    pub fn new_time(&mut self, cx: &mut Cx) {
        cx.agent.start_by = cx.agent.now + cx.session.start_timeout_ns;
        self.hurried = false;
    }

    /// A job starts: starts the children that it needs, or sends it to them. Returns the job, with the children that
    /// were lost before.
    pub fn launch(&mut self, cx: &mut Cx, snapshot: SnapshotOf<'_>, mut begin: Begin, children: Vec<AgentId>) -> Begin {
        // Children may send the requests that they sent for an earlier job once more for a new job.
        self.asked.clear();
        self.probes.asked_about.clear();
        let id = begin.spec.job;
        for child in children {
            if self.children.is_new(child) {
                self.start(cx, child, Some(id));
            } else if self.children.is_lost(child) {
                begin.lost.push(child);
            } else {
                let message = SessionDown::Launch((*begin.spec).clone().into());
                cx.agent.links.send_child(child, control_frame(id, &message.into()));
            }
        }
        if let Some(call) = self.steps.uncalled(cx, &begin) {
            self.steps.call(cx, snapshot, self.shell_calls.new_shell(), call);
        }
        self.shell_calls.call_shells(cx, snapshot);
        begin
    }

    /// Starts a child; `job`: the job that needs it, if there is one.
    pub fn start(&mut self, cx: &mut Cx, child: AgentId, job: Option<JobId>) {
        // Messages about a previous incarnation of the child do not apply to the one that starts now.
        self.losses.forget(child);
        self.probes.below.remove(&child);
        self.children.on_start(cx.agent.now, child, cx.agent.start_by);
        cx.agent.links.neighbours.expect(child);
        if !cx.is_by_step() {
            self.shell_calls.wish(Wish { agent: child, jobs: job.into_iter().collect(), purpose: Purpose::Child });
        }
    }

    /// Calls a step for agents of a standing session.
    pub fn call_step_for(&mut self, cx: &mut Cx, snapshot: SnapshotOf<'_>, agents: Vec<AgentId>) {
        let agents: BTreeSet<AgentId> = agents.into_iter().filter(|agent| *agent != AgentId(0)).collect();
        if cx.is_root() && cx.is_by_step() && !agents.is_empty() {
            self.steps.call(cx, snapshot, self.shell_calls.new_shell(), Call { agents, job: None, how: How::Plain });
        }
    }

    /// A child has linked. `address`: the local address of the link, for a note to the user; empty: unknown.
    pub fn on_agent_up(&mut self, cx: &mut Cx, child: AgentId, address: String) {
        self.shell_calls.on_linked(child);
        self.shell_calls.give_up(cx, |wish| wish.purpose == Purpose::Probe { below: child });
        self.probes.on_linked(child);
        let Some((since, delegated)) = self.children.on_agent_up(child, notes_max(cx.tree, child)) else {
            return;
        };
        if self.hurried || cx.agent.now - since > LONG_START_NS {
            tell_time_left(cx, child);
        }
        if delegated {
            let problem = self.refused.remove(&child).unwrap_or_default().words;
            cx.note(Note::StartedFor { agent: child, parent: cx.me, starter: AgentId(0), problem });
        }
        if cx.session.verbose && !address.is_empty() {
            cx.note(Note::Linked { agent: child, parent: cx.me, address });
        }
    }

    /// The parent reports the time left until its start timeout, which may end before this agent's own.
    pub fn on_time_left(&mut self, cx: &mut Cx, left_ns: u64) {
        let start_by = cx.agent.now + left_ns;
        if start_by < cx.agent.start_by {
            cx.agent.start_by = start_by;
            self.hurried = true;
            self.children.hurry(cx.agent.now, start_by);
            let linked: Vec<AgentId> = cx.agent.links.neighbours.linked().collect();
            linked.into_iter().for_each(|child| tell_time_left(cx, child));
        }
    }

    /// Forwards a note from a child's subtree. If it says that an agent was started on behalf of another, and this
    /// agent has called that remote shell, fills in this agent as the starter.
    pub fn on_note(&mut self, cx: &mut Cx, branch: AgentId, (job, mut note): (JobId, Note)) {
        if let Note::StartedFor { agent, starter, .. } = &mut note
            && cx.is_strictly_below(branch, *agent)
            && self.shell_calls.on_linked(*agent)
        {
            *starter = cx.me;
        }
        if self.children.may_note(branch) {
            cx.up_about(job, note);
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
        match self.steps.on_exited(cx, shell, status, stderr) {
            StepEnd::NoStep => {}
            StepEnd::Again(call) => return self.steps.call(cx, snapshot, self.shell_calls.new_shell(), call),
            StepEnd::Over(step, problem) => return self.give_up_step(cx, step, &problem),
        }
        if let Some(child) = self.shell_calls.linked_by(shell) {
            self.losses.on_shell_ended(
                cx,
                child,
                shell_calls::final_message(status, stderr, self.shell_calls.is_remote()),
            );
        }
        match self.shell_calls.on_exited(cx.agent.now, cx.agent.start_by, shell, status, stderr) {
            Outcome::Nothing => {}
            Outcome::Again(note) => note.into_iter().for_each(|note| cx.note(note)),
            Outcome::Lost(wish, problem) => self.on_start_lost(cx, snapshot, wish, problem),
            Outcome::Reached(wish) => self.conclude(cx, wish, None),
        }
    }

    /// A remote shell, or the step of a batch system, could not be called.
    pub fn on_failed(&mut self, cx: &mut Cx, snapshot: SnapshotOf<'_>, shell: ShellId, error: SpawnError) {
        let words = match error.step {
            // The problem is on this agent's own host: no remote shell was called.
            SpawnStep::Listen | SpawnStep::Secret => {
                format!("{} could not start its agent: {}", cx.host(), error.what)
            }
            _ => error.what,
        };
        // Without an error number, the text is a complete message that says what to do.
        let kind = if error.errno == 0 { ProblemKind::Advised } else { ProblemKind::System(error.errno) };
        let problem = kind.with(words);
        if let Some(step) = self.steps.take_step(shell) {
            return self.give_up_step(cx, step, &problem);
        }
        if let Outcome::Lost(wish, problem) = self.shell_calls.on_failed(shell, problem) {
            self.on_start_lost(cx, snapshot, wish, problem);
        }
    }
}

/// Steps of a batch system.
impl ChildStarts {
    /// A task of a step has started its agent, or has failed.
    pub fn on_step_told(&mut self, cx: &mut Cx, shell: ShellId, agent: AgentId, problem: Option<Problem>) {
        let has_begun = problem.is_none();
        let Some(tasks) = self.steps.on_told(shell, agent, problem) else { return };
        if has_begun {
            self.answer_askers(cx, |asked| asked == agent, None);
        }
        self.on_tasks_lost(cx, tasks);
    }

    /// Handles tasks that will not start their agents, or whose agents have ended.
    fn on_tasks_lost(&mut self, cx: &mut Cx, tasks: Vec<steps::FailedTask>) {
        steps::tell_jobs(cx, &tasks);
        for steps::FailedTask { agent, problem, .. } in tasks {
            match cx.tree.next_hop(AgentId(0), agent) {
                _ if self.children.is_starting(agent) => self.on_missing(cx, agent, problem, Vec::new()),
                Hop::Child(child) if child == agent => self.losses.keep(agent, problem),
                // The parent of the agent learns of the loss from the root's log.
                Hop::Child(_) if cx.policy.survives_losses() => {
                    self.losses.observed.push(MissingAgent { agent, problem })
                }
                // The jobs know that the agent, or an agent on the path to it, is missing.
                Hop::Child(child) if self.children.is_lost(child) => {}
                Hop::Child(child) => tell_not_started(cx, child, agent, problem),
                Hop::Here | Hop::Parent => {}
            }
            self.answer_askers(cx, |asked| asked == agent, None);
        }
    }

    /// Handles the end of a step, which will start no more agents. Agents whose problem the step has reported are
    /// handled first: if there are any, the other agents failed because of them.
    fn give_up_step(&mut self, cx: &mut Cx, mut step: Step, problem: &Problem) {
        self.on_tasks_lost(cx, step.take_failed());
        step.fail_unheard(cx, problem);
        self.on_tasks_lost(cx, step.take_failed());
        let agents = &step.call.agents;
        for child in self.children.starting().into_iter().filter(|child| agents.contains(child)) {
            if !cx.policy.survives_losses() && step.explains_loss_of(cx, child) {
                self.forget_starting(cx, child);
            } else {
                self.on_missing(cx, child, problem.clone(), Vec::new());
            }
        }
        self.answer_askers(cx, |agent| agents.contains(&agent), None);
        self.losses.on_step_ended(cx, agents, problem);
    }
}

/// Agents that a remote shell cannot reach: an ancestor is asked to start them, or this agent starts them for an agent
/// below.
impl ChildStarts {
    /// A remote shell did not start its agent. The remote shell of an ancestor may start it.
    fn on_start_lost(&mut self, cx: &mut Cx, snapshot: SnapshotOf<'_>, wish: Wish, problem: Problem) {
        let Wish { agent, jobs, purpose } = wish;
        let is_last = cx.is_root() || !self.shell_calls.is_remote();
        match purpose {
            Purpose::Child if !self.children.is_starting(agent) => {}
            // The child could not dial this agent, which has no address, whichever agent starts the child.
            Purpose::Child if is_last || cx.agent.links.direct.addresses().is_empty() => {
                self.on_missing(cx, agent, problem, Vec::new())
            }
            Purpose::Child => {
                self.children.on_delegated(agent);
                self.refused.insert(agent, problem.clone());
                let (parent, snapshot) = (cx.agent.links.direct.addresses().to_vec(), Box::new(snapshot(cx)));
                cx.up(SessionUp::StartFor { agent, jobs, parent, problem, snapshot });
            }
            Purpose::Stead { parent, snapshot, .. } if !is_last => {
                cx.up(SessionUp::StartFor { agent, jobs, parent, problem, snapshot });
            }
            Purpose::Probe { .. } if !is_last => cx.up(SessionUp::Probe { agent, asker: cx.me }),
            Purpose::ProbeFor { asker, .. } if !is_last => cx.up(SessionUp::Probe { agent, asker }),
            Purpose::Stead { .. } | Purpose::Probe { .. } | Purpose::ProbeFor { .. } => {
                self.conclude(cx, Wish { agent, jobs, purpose }, Some(problem));
            }
        }
    }

    /// Reports the outcome of a `Wish` to the agent that made it. `problem`: why neither this agent nor an ancestor can
    /// fulfil it; `None`: the host that was probed has answered, or is not probed any more.
    fn conclude(&mut self, cx: &mut Cx, Wish { agent, purpose, .. }: Wish, problem: Option<Problem>) {
        match (purpose, problem) {
            (Purpose::Child, Some(problem)) => self.on_missing(cx, agent, problem, Vec::new()),
            (Purpose::Stead { branch, .. }, Some(problem)) => tell_not_started(cx, branch, agent, problem),
            (Purpose::Child | Purpose::Stead { .. }, None) => {}
            (Purpose::Probe { below }, problem) => self.on_probed(cx, below, agent, problem),
            (Purpose::ProbeFor { branch, asker }, problem) => tell_probed(cx, branch, agent, asker, problem),
        }
    }

    /// A child requests the start of an agent in its subtree.
    pub fn on_start_for(&mut self, cx: &mut Cx, branch: AgentId, mut wish: Wish, problem: Problem) {
        let agent = wish.agent;
        if !cx.is_strictly_below(branch, agent) {
            return;
        }
        wish.jobs.retain(|id| cx.jobs.get(id).is_some_and(|job| job.has_child(branch)));
        let is_wanted = !wish.jobs.is_empty() || cx.policy.starts_all_agents();
        if !is_wanted || cx.agent.now >= cx.agent.start_by || !self.asked.insert(agent) {
            return tell_not_started(cx, branch, agent, problem);
        }
        self.shell_calls.wish(wish);
    }

    /// No ancestor could start this agent: reports it as missing, or forwards the message towards the agent that has
    /// asked.
    pub fn on_not_started(&mut self, cx: &mut Cx, MissingAgent { agent, problem }: MissingAgent) {
        if self.children.is_starting(agent) {
            self.on_missing(cx, agent, problem, Vec::new());
        } else if let Hop::Child(child) = cx.tree.next_hop(cx.me, agent) {
            tell_not_started(cx, child, agent, problem);
        }
    }
}

/// Gives up children that link too late, requests on behalf of other agents, and all starts when the jobs end.
impl ChildStarts {
    /// Gives up children and requests that have taken too long.
    pub fn check(&mut self, cx: &mut Cx) {
        if cx.agent.now >= cx.agent.start_by && self.shell_calls.serves_others() {
            for wish in self.shell_calls.give_up_uncalled(|wish| wish.purpose.is_probe()) {
                self.conclude(cx, wish, None);
            }
            for wish in self.shell_calls.give_up(cx, |wish| wish.purpose != Purpose::Child) {
                let problem = too_late(cx, "it did not answer");
                self.conclude(cx, wish, Some(problem));
            }
        }
        if cx.agent.now >= cx.agent.start_by {
            // The agents whose tasks have not started in time are reported to the agents that have asked about them.
            let problem = too_late(cx, NOT_BEGUN);
            self.answer_askers(cx, |_| true, Some(problem));
        }
        self.children.late(cx.agent.now).into_iter().for_each(|child| self.on_late(cx, child));
        self.children.suspects(cx.agent.now).into_iter().for_each(|child| self.probe_below(cx, child));
        self.losses.check(cx);
    }

    fn on_late(&mut self, cx: &mut Cx, child: AgentId) {
        let what = if cx.is_by_step() {
            self.steps.late_words(cx, child)
        } else if self.shell_calls.is_queued(child) {
            "its remote shell, which had to wait for others, was not started"
        } else {
            "its remote shell did not start an agent"
        };
        let mut problem = too_late(cx, what);
        if let Some(reason) =
            self.refused.remove(&child).or_else(|| self.shell_calls.busy_words(child).map(Problem::from))
        {
            problem = reason.kind.with(format!("{problem}: {reason}"));
        }
        self.shell_calls.give_up(cx, |wish| wish.agent == child);
        // Agents below the child about which the step has reported nothing: they are late too.
        let unheard = cx.tree.subtree(child).filter(|agent| *agent != child && self.steps.is_unheard(*agent));
        let below = unheard
            .map(|agent| MissingAgent { agent, problem: too_late(cx, self.steps.late_words(cx, agent)) })
            .collect();
        self.on_missing(cx, child, problem, below);
    }

    /// When all jobs are ending, gives up agents whose shells were not called yet. Agents that are starting are given
    /// up only when the ranks are sent SIGKILL, so that reports of those that link meanwhile arrive.
    pub fn stop_if_ending(&mut self, cx: &mut Cx) {
        let stays = cx.policy.outlives_jobs() && !cx.is_leaving;
        if stays || !cx.jobs.values().all(Job::is_ending) {
            return;
        }
        // All jobs are ending, so no agent needs the results of probes.
        self.answer_askers(cx, |_| true, None);
        if !self.shell_calls.is_busy() && self.children.starting().is_empty() {
            return;
        }
        let forced = cx.jobs.values().all(Job::is_forced);
        let mut wishes = self.shell_calls.give_up(cx, |wish| forced || wish.purpose.is_probe());
        wishes.extend(self.shell_calls.give_up_uncalled(|_| true));
        for wish in wishes {
            match wish.purpose {
                Purpose::Child => self.forget_starting(cx, wish.agent),
                Purpose::Stead { branch, .. } => {
                    tell_not_started(cx, branch, wish.agent, "the job ended before this host was started".into());
                }
                Purpose::Probe { .. } | Purpose::ProbeFor { .. } => self.conclude(cx, wish, None),
            }
        }
        if forced {
            // An ancestor may still be starting these agents.
            self.children.starting().into_iter().for_each(|child| self.forget_starting(cx, child));
        }
    }
}

/// Children that are lost, and children that have not linked and never will.
impl ChildStarts {
    pub fn on_link_down(&mut self, cx: &mut Cx, child: AgentId, problem: Problem) {
        if !self.children.on_lost(child) || cx.is_leaving {
            return;
        }
        if cx.jobs.of_child(child).is_empty() {
            self.forget_added(cx, child);
        }
        drop(cx.agent.links.neighbours.forget(child));
        // The wishes that the lost child has sent for agents below it are dropped.
        self.shell_calls.give_up(cx, |wish| match wish.purpose {
            Purpose::Stead { branch, .. } | Purpose::ProbeFor { branch, .. } => branch == child,
            Purpose::Child | Purpose::Probe { .. } => false,
        });
        let is_missed = cx.policy.survives_losses() || !cx.jobs.of_child(child).is_empty();
        let may_say = (self.shell_calls.has_linked(child) || self.steps.holds(child)) && is_missed;
        self.losses.on_link_down(cx, child, problem, may_say);
    }

    /// Forgets a child that was added for a job: it does not return.
    fn forget_added(&mut self, cx: &mut Cx, child: AgentId) {
        if cx.tree.is_beside(child) {
            self.children.forget(child);
            self.probes.below.remove(&child);
            cx.added.remove(&child);
        }
    }

    /// Reports a missing child, with the agents in `below`, which are known to be missing too.
    fn on_missing(&mut self, cx: &mut Cx, child: AgentId, problem: Problem, below: Vec<MissingAgent>) {
        if !self.children.is_starting(child) || !self.children.on_lost(child) {
            return;
        }
        drop(cx.agent.links.neighbours.forget(child));
        let missing = MissingAgent { agent: child, problem };
        if cx.policy.survives_losses() {
            return self.losses.observed.push(missing);
        }
        if cx.agent.now < cx.agent.start_by {
            self.probe_below(cx, child);
        }
        self.probes.report(cx, child, [missing].into_iter().chain(below).collect());
    }

    fn forget_starting(&mut self, cx: &mut Cx, child: AgentId) {
        self.children.on_lost(child);
        drop(cx.agent.links.neighbours.forget(child));
        cx.jobs.tell_each(&mut cx.agent, cx.jobs.ids(), |job, cx| job.on_child_missing(cx, child, true, Vec::new()));
    }
}

/// Probes the hosts below children that are missing or slow.
impl ChildStarts {
    /// Probes all hosts below a child that is missing or slow.
    fn probe_below(&mut self, cx: &mut Cx, child: AgentId) {
        if self.probes.below.contains_key(&child) {
            return;
        }
        let mut below: BTreeSet<AgentId> = cx.tree.subtree(child).filter(|agent| *agent != child).collect();
        if !self.shell_calls.is_remote() || cx.policy.survives_losses() {
            // Probes are useless: all agents are on this machine, or the root has the agents below started in any case.
            below.clear();
        }
        let by_step_of_root = cx.is_by_step() && cx.is_root();
        if by_step_of_root {
            below.retain(|agent| self.steps.is_unheard(*agent));
        }
        for &agent in &below {
            match cx.is_by_step() {
                true if by_step_of_root => drop(self.probes.unheard.insert((agent, cx.me))),
                true => cx.up(SessionUp::Probe { agent, asker: cx.me }),
                false => {
                    self.shell_calls.wish(Wish { agent, jobs: Vec::new(), purpose: Purpose::Probe { below: child } })
                }
            }
        }
        self.children.on_probing(child);
        self.probes.begin(child, below);
    }

    fn on_probed(&mut self, cx: &mut Cx, below: AgentId, agent: AgentId, problem: Option<Problem>) {
        // A child that is up reports what is missing below it.
        self.probes.on_probed(below, agent, problem.filter(|_| !self.children.is_up(below)));
        if self.children.is_lost(below) {
            self.probes.report(cx, below, Vec::new());
        }
    }

    /// An agent `asker` in a child's subtree requests a probe of the host of `agent`, which is below `asker`.
    pub fn on_probe_for(&mut self, cx: &mut Cx, branch: AgentId, agent: AgentId, asker: AgentId) {
        if !cx.tree.subtree_contains(branch, asker) || !cx.is_strictly_below(asker, agent) {
            return;
        }
        match (cx.is_by_step(), cx.is_root()) {
            (true, false) => cx.up(SessionUp::Probe { agent, asker }),
            (true, true) if self.steps.is_unheard(agent) => drop(self.probes.unheard.insert((agent, asker))),
            (false, _) if cx.agent.now < cx.agent.start_by && self.probes.asked_about.insert((agent, asker)) => {
                self.shell_calls.wish(Wish { agent, jobs: Vec::new(), purpose: Purpose::ProbeFor { branch, asker } });
            }
            (true | false, _) => tell_probed(cx, branch, agent, asker, None),
        }
    }

    /// An ancestor reports the result of a probe.
    pub fn on_probed_above(&mut self, cx: &mut Cx, agent: AgentId, asker: AgentId, problem: Option<Problem>) {
        match cx.tree.next_hop(cx.me, asker) {
            Hop::Child(branch) => tell_probed(cx, branch, agent, asker, problem),
            Hop::Here => {
                if let Hop::Child(below) = cx.tree.next_hop(asker, agent) {
                    self.on_probed(cx, below, agent, problem);
                }
            }
            Hop::Parent => {}
        }
    }

    /// Answers the agents that have asked the root about tasks of a step. `problem`: `None`: they need not report the
    /// agent, since it has started, or its jobs know that it is missing, or the jobs are ending.
    fn answer_askers(&mut self, cx: &mut Cx, which: impl Fn(AgentId) -> bool, problem: Option<Problem>) {
        for (agent, asker) in self.probes.take_unheard(which) {
            self.on_probed_above(cx, agent, asker, problem.clone());
        }
    }
}

fn tell_not_started(cx: &mut Cx, branch: AgentId, agent: AgentId, problem: Problem) {
    cx.child(branch, SessionDown::NotStarted(MissingAgent { agent, problem }));
}

fn tell_probed(cx: &mut Cx, branch: AgentId, agent: AgentId, asker: AgentId, problem: Option<Problem>) {
    cx.child(branch, SessionDown::Probed { agent, asker, problem });
}

fn tell_time_left(cx: &mut Cx, child: AgentId) {
    cx.child(child, SessionDown::TimeLeft { left_ns: cx.agent.start_by - cx.agent.now });
}

fn too_late(cx: &Cx, what: &str) -> Problem {
    let seconds = cx.session.start_timeout_ns.div_ceil(1_000_000_000);
    format!("{what} within {seconds} s").into()
}

/// The maximum number of notes that are forwarded from a child's subtree.
fn notes_max(tree: Tree, child: AgentId) -> u32 {
    NOTES_PER_AGENT_MAX.saturating_mul(tree.subtree(child).count() as u32)
}
