//! Agents started by a batch system: all of them by one call, which the root makes.
//!
//! ```text
//!   root ── one step ──► task on each node ──► agent
//!     ▲  each agent reports that it has started, and its   │
//!     │  addresses, through the step's output              │
//!     └────────────────────────────────────────────────────┘
//!   the parents' addresses, through the step's input ─► all
//! ```
//!
//! Only the root calls anything: the other agents expect their children, which start independently. The root forwards
//! what the step reports about an agent to that agent's parent. If no node has the program, further steps look for it
//! and then send it; once one agent has started, its ranks run, and no other step is called for the same agents.
//!
//! Cost: one line from each agent, and from the root one line per agent with children, which the step sends to all
//! tasks.

use super::steps::{FailedTask, Step};
use super::{SnapshotOf, Starter, next};
use crate::io::{ExitStatus, How, Output, ShellId};
use crate::job::{Job, JobInput};
use crate::session::inputs::membership;
use crate::session::inputs::starter::Next;
use crate::session::starts;
use crate::session::{Begin, Effect, Effects, View};
use std::collections::BTreeSet;
use wireup_coll::mapping::Mapping;
use wireup_coll::tree::Hop;
use wireup_wire::ids::{AgentId, JobId, NodeId};
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{Bootstrap, MissingAgent, Note, Problem, ProblemKind, Secret};
use wireup_wire::talk::{Control, SessionDown};

/// The problem of an agent about which a step has reported nothing.
pub const NOT_BEGUN: &str = "its task in the step did not start";

impl Starter {
    /// Calls a step for those agents of a job that were not called before.
    pub(super) fn call_step(&mut self, view: &View<'_>, snapshot: SnapshotOf<'_>, begin: &Begin, fx: &mut Effects) {
        if !view.is_root() || !view.is_by_step() {
            return;
        }
        let mut agents = agents_up_to_root(view, &begin.spec, &begin.mapping);
        agents.retain(|agent| !self.steps.called.contains_key(agent));
        if !agents.is_empty() {
            self.start_step(view, snapshot, agents, Some(begin.spec.job), How::Plain, fx);
        }
    }

    /// Calls a step for agents of a standing session.
    pub(super) fn call_step_for(
        &mut self,
        view: &View<'_>,
        snapshot: SnapshotOf<'_>,
        agents: Vec<AgentId>,
        fx: &mut Effects,
    ) {
        let agents: BTreeSet<AgentId> = agents.into_iter().filter(|agent| *agent != AgentId(0)).collect();
        if view.is_root() && view.is_by_step() && !agents.is_empty() {
            self.start_step(view, snapshot, agents, None, How::Plain, fx);
        }
    }

    fn start_step(
        &mut self,
        view: &View<'_>,
        snapshot: SnapshotOf<'_>,
        agents: BTreeSet<AgentId>,
        job: Option<JobId>,
        how: How,
        fx: &mut Effects,
    ) {
        let shell = self.starts.new_shell();
        let mut session = view.session.clone();
        session.start_timeout_ns = self.start_by - view.now;
        session.hold_ranks = false;
        let bootstrap = Bootstrap {
            // All agents get the same state; each takes the part that concerns it.
            snapshot: snapshot(),
            secret: Secret([0; 32]),
            // Each agent finds out its own number.
            agent: AgentId(0),
            parent: Vec::new(),
            by_parent: false,
            session,
            jobs: job.and_then(|job| view.jobs.spec(job)).cloned().into_iter().collect(),
        };
        self.steps.called.extend(agents.iter().map(|agent| (*agent, shell)));
        let list = agents.iter().copied().collect();
        self.steps.running.insert(shell, Step::new(agents, job, how));
        fx.push(Effect::Output(Output::StartStep { shell, agents: list, how, bootstrap: Box::new(bootstrap) }));
    }

    /// A task of a step has started its agent, or has failed.
    pub(super) fn on_step_told(&mut self, shell: ShellId, agent: AgentId, problem: Option<Problem>, fx: &mut Effects) {
        if !self.steps.is_of(agent, shell) {
            return;
        }
        let Some(step) = self.steps.running.get_mut(&shell) else { return };
        match problem {
            None => {
                step.begun.insert(agent);
                fx.push(next(Next::TaskKnown(agent)));
            }
            Some(problem) => drop(step.failed.entry(agent).or_insert(problem)),
        }
        if step.begun.is_empty() {
            return;
        }
        let mut tasks = step.take_failed();
        tasks.retain(|task| self.steps.is_of(task.agent, shell));
        fx.push(next(Next::TasksLost(tasks)));
    }

    /// Tasks will not start their agents, or have ended. Jobs are told immediately of all agents that never started:
    /// the agents between them and the root may be missing too, and cannot report it.
    pub(super) fn on_tasks_lost(&mut self, view: &View<'_>, tasks: Vec<FailedTask>, fx: &mut Effects) {
        let jobs = view.jobs.iter().filter(|_| !view.policy.survives_losses());
        for (id, job) in jobs {
            let missing = tasks.iter().filter(|task| !task.had_begun && needs(view, job, task.agent));
            let missing: Vec<_> = missing
                .map(|FailedTask { agent, problem, .. }| MissingAgent { agent: *agent, problem: problem.clone() })
                .collect();
            if !missing.is_empty() {
                fx.push(Effect::Job(id, JobInput::Missing(missing)));
            }
        }
        for FailedTask { agent, problem, .. } in tasks {
            fx.push(next(Next::TaskLost { agent, problem }));
        }
    }

    /// Handles the failed task of one agent.
    pub(super) fn on_task_lost(&mut self, view: &View<'_>, agent: AgentId, problem: Problem, fx: &mut Effects) {
        match view.tree.next_hop(AgentId(0), agent) {
            _ if self.children.is_starting(agent) => self.on_missing(view, agent, problem, fx),
            Hop::Child(child) if child == agent => self.on_last_words(agent, problem),
            // The log tells the agent that was to be the parent.
            Hop::Child(_) if view.policy.survives_losses() => {
                fx.push(Effect::Membership(membership::Input::ReportLost(MissingAgent { agent, problem })));
            }
            // The jobs know that the agent, or an agent on the path to it, is missing.
            Hop::Child(child) if self.children.is_lost(child) => {}
            Hop::Child(child) => {
                fx.child(child, Control::SessionDown(SessionDown::NotStarted(MissingAgent { agent, problem })))
            }
            Hop::Here | Hop::Parent => {}
        }
        fx.push(next(Next::TaskKnown(agent)));
    }

    /// Returns whether it was a step.
    pub(super) fn on_step_exited(
        &mut self,
        view: &View<'_>,
        snapshot: SnapshotOf<'_>,
        shell: ShellId,
        status: ExitStatus,
        stderr: &str,
        fx: &mut Effects,
    ) -> bool {
        let Some((mut step, batch)) = self.steps.take(shell).zip(view.batch()) else {
            return false;
        };
        let may_help = view.now < self.start_by && is_wanted(view, step.job);
        if let Some(how) = step.other_way(batch, status, stderr).filter(|_| may_help) {
            if step.how == How::Send {
                step.agents.iter().for_each(|agent| fx.note(Note::Sent { agent: *agent }));
            }
            self.start_step(view, snapshot, step.agents, step.job, how, fx);
            return true;
        }
        let mut problem = starts::step_problem(batch, status, stderr);
        if view.session.installed_only && step.how == How::Send && status == ExitStatus::Exited(starts::NEEDED) {
            // What the step has said about its tasks is that they have answered so.
            step.failed.clear();
            problem.kind = ProblemKind::NotInstalled;
        }
        give_up_step(step, problem, fx);
        true
    }

    /// A step could not be called. Returns whether the shell was a step.
    pub(super) fn on_step_failed(&mut self, shell: ShellId, problem: &str, fx: &mut Effects) -> bool {
        let step = self.steps.take(shell);
        step.map(|step| give_up_step(step, problem.into(), fx)).is_some()
    }

    /// No more agents will start. If the step has reported failed tasks, the others failed because of them.
    pub(super) fn end_step(&mut self, view: &View<'_>, mut step: Step, problem: Problem, fx: &mut Effects) {
        if step.named.is_empty() || view.policy.survives_losses() {
            step.fail_unheard(&problem);
        }
        fx.push(next(Next::TasksLost(step.take_failed())));
        fx.push(next(Next::EndTasks { step, problem }));
    }

    /// The failures of single tasks have been reported; stops waiting for the step's other agents.
    pub(super) fn end_tasks(&mut self, view: &View<'_>, step: &Step, problem: &Problem, fx: &mut Effects) {
        let starting: Vec<AgentId> = self.children.starting().filter(|child| step.agents.contains(child)).collect();
        for child in starting {
            if !view.policy.survives_losses() && all_miss_some(view, child, step) {
                self.forget_starting(view, child, fx);
            } else {
                self.on_missing(view, child, problem.clone(), fx);
            }
        }
        step.agents.iter().for_each(|agent| fx.push(next(Next::TaskKnown(*agent))));
        self.end_last_words(view, &step.agents, problem, fx);
    }

    /// The problem to report for a child that is late.
    pub(super) fn late_task(&self, view: &View<'_>, agent: AgentId) -> &'static str {
        match (view.is_root(), self.steps.has_begun(agent)) {
            (true, true) => "its agent started but did not connect to its parent",
            (true, false) => NOT_BEGUN,
            (false, _) => "it did not connect to its parent",
        }
    }

    /// Agents below a late child about which nothing was heard either.
    pub(super) fn unheard_below(&self, view: &View<'_>, child: AgentId) -> Vec<AgentId> {
        let unheard = |agent: &AgentId| *agent != child && self.steps.is_unheard(*agent);
        view.tree.subtree(child).filter(unheard).collect()
    }
}

/// The agents with ranks of a job, and all agents between them and the root.
fn agents_up_to_root(view: &View<'_>, spec: &JobSpec, mapping: &Mapping) -> BTreeSet<AgentId> {
    let mut agents = BTreeSet::new();
    for (index, node) in spec.nodes.iter().enumerate() {
        let mut at = node.agent;
        if mapping.local_size(NodeId(index as u32)) == 0 {
            continue;
        }
        while let Some(parent) = view.tree.parent(at).filter(|_| agents.insert(at)) {
            at = parent;
        }
        agents.remove(&AgentId(0));
    }
    agents
}

fn is_wanted(view: &View<'_>, job: Option<JobId>) -> bool {
    match job {
        Some(job) => view.jobs.get(job).is_some_and(|job| !job.is_ending()),
        None => !view.is_leaving,
    }
}

/// A step will start no more agents: first handles those with a reported problem.
fn give_up_step(mut step: Step, problem: Problem, fx: &mut Effects) {
    fx.push(next(Next::TasksLost(step.take_failed())));
    fx.push(next(Next::EndStep { step, problem }));
}

/// Whether a job has ranks on an agent or below it.
fn needs(view: &View<'_>, job: &Job, agent: AgentId) -> bool {
    view.tree.subtree(agent).any(|agent| job.has_agent(agent))
}

/// Whether each job of a child already knows why it fails: it needs an agent that the step has reported.
fn all_miss_some(view: &View<'_>, child: AgentId, step: &Step) -> bool {
    let misses_some = |job: &Job| step.named.iter().any(|agent| needs(view, job, *agent));
    view.jobs.all().filter(|job| job.has_child(child)).all(misses_some)
}
