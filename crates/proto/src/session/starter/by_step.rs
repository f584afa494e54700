//! Agents that a batch system starts: all of them by one call, which the root makes.
//!
//! ```text
//!   root ── one step ──► task on each node ──► agent
//!     ▲  each says that it has begun, and where it listens │
//!     └────────────── through the step's output ───────────┘
//!     └─ where the parents listen, through its input ─► all
//! ```
//!
//! Nobody else calls anything: an agent expects its children, which come by themselves. What the step says of an agent goes
//! from here to that agent's parent. A program that no node has is looked for, then sent, by further steps; once one agent
//! has begun, its ranks run, and no other step is called for the same agents.
//!
//! Cost: a line from each agent, and from the root a line for each agent with children, which the step brings to all.

use super::steps::{FailedTask, Step};
use super::{KinOf, Starter, next};
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
use wireup_wire::peer::{Bootstrap, Control, MissingAgent, Note, Secret};

/// What is wrong with an agent of which a step has said nothing.
pub const NOT_BEGUN: &str = "its task of the step did not begin";

impl Starter {
    /// Calls a step for the agents of a job that were not called before.
    pub(super) fn call_step(&mut self, view: &View<'_>, kin: KinOf<'_>, begin: &Begin, fx: &mut Effects) {
        if !view.is_root() || !view.is_by_step() {
            return;
        }
        let mut agents = agents_up_to_root(view, &begin.spec, &begin.mapping);
        agents.retain(|agent| !self.steps.called.contains_key(agent));
        if !agents.is_empty() {
            self.start_step(view, kin, agents, Some(begin.spec.job), How::Plain, fx);
        }
    }

    /// Calls a step for agents of a standing session.
    pub(super) fn call_step_for(&mut self, view: &View<'_>, kin: KinOf<'_>, agents: Vec<AgentId>, fx: &mut Effects) {
        let agents: BTreeSet<AgentId> = agents.into_iter().filter(|agent| *agent != AgentId(0)).collect();
        if view.is_root() && view.is_by_step() && !agents.is_empty() {
            self.start_step(view, kin, agents, None, How::Plain, fx);
        }
    }

    fn start_step(
        &mut self,
        view: &View<'_>,
        kin: KinOf<'_>,
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
            // Of all; each takes its part.
            kin: kin(),
            secret: Secret([0; 32]),
            // Each of them finds itself.
            agent: AgentId(0),
            parent: Vec::new(),
            by_parent: false,
            session,
            jobs: job.and_then(|job| view.jobs.spec(job)).map(|spec| (**spec).clone()).into_iter().collect(),
        };
        self.steps.called.extend(agents.iter().map(|agent| (*agent, shell)));
        let list = agents.iter().copied().collect();
        self.steps.running.insert(shell, Step::new(agents, job, how));
        fx.push(Effect::Do(Output::StartStep { shell, agents: list, how, bootstrap: Box::new(bootstrap) }));
    }

    /// A task of a step has begun, or something is wrong with it.
    pub(super) fn on_step_told(&mut self, shell: ShellId, agent: AgentId, problem: Option<String>, fx: &mut Effects) {
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

    /// Tasks will not bring their agents, or have ended. Of those that never began the jobs hear at once, and of all together: the
    /// agents between them and the root may not come to say so.
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

    /// The same, for one of them.
    pub(super) fn on_task_lost(&mut self, view: &View<'_>, agent: AgentId, problem: String, fx: &mut Effects) {
        match view.tree.next_hop(AgentId(0), agent) {
            _ if self.children.is_starting(agent) => self.on_missing(view, agent, problem, fx),
            Hop::Child(child) if child == agent => self.on_last_words(agent, problem),
            // Whoever is to have it for a child hears it from the log.
            Hop::Child(_) if view.policy.survives_losses() => {
                fx.push(Effect::Membership(membership::Input::ReportLost(MissingAgent { agent, problem })));
            }
            // Its jobs know that it is missing, or that those on the way to it are.
            Hop::Child(child) if self.children.is_lost(child) => {}
            Hop::Child(child) => fx.child(child, Control::NotStarted(MissingAgent { agent, problem })),
            Hop::Here | Hop::Parent => {}
        }
        fx.push(next(Next::TaskKnown(agent)));
    }

    /// True if it was a step.
    pub(super) fn on_step_exited(
        &mut self,
        view: &View<'_>,
        kin: KinOf<'_>,
        shell: ShellId,
        status: ExitStatus,
        stderr: &str,
        fx: &mut Effects,
    ) -> bool {
        let Some((step, batch)) = self.steps.take(shell).zip(view.batch()) else {
            return false;
        };
        let may_help = view.now < self.start_by && is_wanted(view, step.job);
        if let Some(how) = step.other_way(batch, status, stderr).filter(|_| may_help) {
            if how == How::Send {
                step.agents.iter().for_each(|agent| fx.note(Note::Sent { agent: *agent }));
            }
            self.start_step(view, kin, step.agents, step.job, how, fx);
            return true;
        }
        give_up_step(step, &starts::step_words(batch, status, stderr), fx);
        true
    }

    /// A step could not even be called. True if it was one.
    pub(super) fn on_step_failed(&mut self, shell: ShellId, problem: &str, fx: &mut Effects) -> bool {
        let step = self.steps.take(shell);
        step.map(|step| give_up_step(step, problem, fx)).is_some()
    }

    /// Nobody else comes. Where the step has named some, the others went with them.
    pub(super) fn end_step(&mut self, view: &View<'_>, mut step: Step, words: String, fx: &mut Effects) {
        if step.named.is_empty() || view.policy.survives_losses() {
            step.fail_unheard(&words);
        }
        fx.push(next(Next::TasksLost(step.take_failed())));
        fx.push(next(Next::EndTasks { step, words }));
    }

    /// What was said of single tasks is told; the other agents of the step are waited for no more.
    pub(super) fn end_tasks(&mut self, view: &View<'_>, step: &Step, words: &str, fx: &mut Effects) {
        let starting: Vec<AgentId> = self.children.starting().filter(|child| step.agents.contains(child)).collect();
        for child in starting {
            if !view.policy.survives_losses() && all_miss_some(view, child, step) {
                self.forget_starting(view, child, fx);
            } else {
                self.on_missing(view, child, words.to_owned(), fx);
            }
        }
        step.agents.iter().for_each(|agent| fx.push(next(Next::TaskKnown(*agent))));
        self.end_last_words(view, &step.agents, words, fx);
    }

    /// What to say of a child that is late.
    pub(super) fn late_task(&self, view: &View<'_>, agent: AgentId) -> &'static str {
        match (view.is_root(), self.steps.has_begun(agent)) {
            (true, true) => "its agent began and did not link back",
            (true, false) => NOT_BEGUN,
            (false, _) => "it did not link back",
        }
    }

    /// Agents behind a child that is late, of which nothing was heard either.
    pub(super) fn unheard_below(&self, view: &View<'_>, child: AgentId) -> Vec<AgentId> {
        let unheard = |agent: &AgentId| *agent != child && self.steps.is_unheard(*agent);
        view.tree.subtree(child).filter(unheard).collect()
    }
}

/// The agents with ranks of a job, and those between them and the root.
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

/// A step brings nobody any more: first those of which it has said why.
fn give_up_step(mut step: Step, words: &str, fx: &mut Effects) {
    fx.push(next(Next::TasksLost(step.take_failed())));
    fx.push(next(Next::EndStep { step, words: words.to_owned() }));
}

/// Whether a job has ranks on an agent, or behind it.
fn needs(view: &View<'_>, job: &Job, agent: AgentId) -> bool {
    view.tree.subtree(agent).any(|agent| job.has_agent(agent))
}

/// Whether each job of a child knows why it cannot go on: it needs an agent that the step has named.
fn all_miss_some(view: &View<'_>, child: AgentId, step: &Step) -> bool {
    let misses_some = |job: &Job| step.named.iter().any(|agent| needs(view, job, *agent));
    view.jobs.all().filter(|job| job.has_child(child)).all(misses_some)
}
