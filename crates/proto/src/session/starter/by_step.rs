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
use super::{SnapshotOf, Starter};
use crate::io::{ExitStatus, How, Output, ShellId};
use crate::job::Job;
use crate::session::starts;
use crate::session::{Begin, Cx};
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
    pub(super) fn call_step(&mut self, cx: &mut Cx, snapshot: SnapshotOf<'_>, begin: &Begin) {
        if !cx.is_root() || !cx.is_by_step() {
            return;
        }
        let mut agents = agents_up_to_root(cx, &begin.spec, &begin.mapping);
        agents.retain(|agent| !self.steps.called.contains_key(agent));
        if !agents.is_empty() {
            self.start_step(cx, snapshot, agents, Some(begin.spec.job), How::Plain);
        }
    }

    /// Calls a step for agents of a standing session.
    pub fn call_step_for(&mut self, cx: &mut Cx, snapshot: SnapshotOf<'_>, agents: Vec<AgentId>) {
        let agents: BTreeSet<AgentId> = agents.into_iter().filter(|agent| *agent != AgentId(0)).collect();
        if cx.is_root() && cx.is_by_step() && !agents.is_empty() {
            self.start_step(cx, snapshot, agents, None, How::Plain);
        }
    }

    fn start_step(
        &mut self,
        cx: &mut Cx,
        snapshot: SnapshotOf<'_>,
        agents: BTreeSet<AgentId>,
        job: Option<JobId>,
        how: How,
    ) {
        let shell = self.starts.new_shell();
        let mut session = cx.session.clone();
        session.start_timeout_ns = cx.start_by - cx.now;
        session.hold_ranks = false;
        let bootstrap = Bootstrap {
            // All agents get the same state; each takes the part that concerns it.
            snapshot: snapshot(cx),
            secret: Secret([0; 32]),
            // Each agent finds out its own number.
            agent: AgentId(0),
            parent: Vec::new(),
            by_parent: false,
            session,
            jobs: job.and_then(|job| cx.jobs.spec(job)).cloned().into_iter().collect(),
        };
        self.steps.called.extend(agents.iter().map(|agent| (*agent, shell)));
        let list = agents.iter().copied().collect();
        self.steps.running.insert(shell, Step::new(agents, job, how));
        cx.output(Output::StartStep { shell, agents: list, how, bootstrap: Box::new(bootstrap) });
    }

    /// A task of a step has started its agent, or has failed.
    pub fn on_step_told(&mut self, cx: &mut Cx, shell: ShellId, agent: AgentId, problem: Option<Problem>) {
        if !self.steps.is_of(agent, shell) {
            return;
        }
        let Some(step) = self.steps.running.get_mut(&shell) else { return };
        let has_begun = problem.is_none();
        match problem {
            None => drop(step.begun.insert(agent)),
            Some(problem) => drop(step.failed.entry(agent).or_insert(problem)),
        }
        // Until one agent has started, possibly no node has the program, and another step may help.
        let mut tasks = if step.begun.is_empty() { Vec::new() } else { step.take_failed() };
        tasks.retain(|task| self.steps.is_of(task.agent, shell));
        if has_begun {
            self.on_task_known(cx, agent);
        }
        self.on_tasks_lost(cx, tasks);
    }

    /// Tasks will not start their agents, or have ended. Jobs are told immediately of all agents that never started:
    /// the agents between them and the root may be missing too, and cannot report it.
    fn on_tasks_lost(&mut self, cx: &mut Cx, tasks: Vec<FailedTask>) {
        let jobs = if cx.policy.survives_losses() { Vec::new() } else { cx.jobs.ids() };
        for id in jobs {
            let Some(job) = cx.jobs.get(id) else { continue };
            let missing = tasks.iter().filter(|task| !task.had_begun && needs(cx, job, task.agent));
            let missing: Vec<_> = missing
                .map(|FailedTask { agent, problem, .. }| MissingAgent { agent: *agent, problem: problem.clone() })
                .collect();
            if !missing.is_empty() {
                cx.tell_job(id, |job, cx| job.on_missing(cx, missing));
            }
        }
        for FailedTask { agent, problem, .. } in tasks {
            self.on_task_lost(cx, agent, problem);
        }
    }

    /// Handles the failed task of one agent.
    fn on_task_lost(&mut self, cx: &mut Cx, agent: AgentId, problem: Problem) {
        match cx.tree.next_hop(AgentId(0), agent) {
            _ if self.children.is_starting(agent) => self.on_missing(cx, agent, problem),
            Hop::Child(child) if child == agent => self.on_last_words(agent, problem),
            // The log tells the agent that was to be the parent.
            Hop::Child(_) if cx.policy.survives_losses() => {
                self.lost.push(MissingAgent { agent, problem });
            }
            // The jobs know that the agent, or an agent on the path to it, is missing.
            Hop::Child(child) if self.children.is_lost(child) => {}
            Hop::Child(child) => {
                cx.child(child, Control::SessionDown(SessionDown::NotStarted(MissingAgent { agent, problem })))
            }
            Hop::Here | Hop::Parent => {}
        }
        self.on_task_known(cx, agent);
    }

    /// Handles the end of a shell if the shell was a step: calls another step if that may help, otherwise gives up the
    /// agents that have not started. Returns whether the shell was a step.
    pub(super) fn on_step_exited(
        &mut self,
        cx: &mut Cx,
        snapshot: SnapshotOf<'_>,
        shell: ShellId,
        status: ExitStatus,
        stderr: &str,
    ) -> bool {
        let Some((mut step, batch)) = self.steps.take(shell).zip(cx.batch()) else {
            return false;
        };
        let may_help = cx.now < cx.start_by && is_wanted(cx, step.job);
        if let Some(how) = step.other_way(batch, status, stderr).filter(|_| may_help) {
            if step.how == How::Send {
                step.agents.iter().for_each(|agent| cx.note(Note::Sent { agent: *agent }));
            }
            self.start_step(cx, snapshot, step.agents, step.job, how);
            return true;
        }
        let mut problem = starts::step_problem(batch, status, stderr);
        if cx.session.installed_only && step.how == How::Send && status == ExitStatus::Exited(starts::NEEDED) {
            // What the step has said about its tasks is that they have answered so.
            step.failed.clear();
            problem.kind = ProblemKind::NotInstalled;
        }
        self.give_up_step(cx, step, &problem);
        true
    }

    /// A step could not be called. Returns whether the shell was a step.
    pub(super) fn on_step_failed(&mut self, cx: &mut Cx, shell: ShellId, problem: &Problem) -> bool {
        let step = self.steps.take(shell);
        step.map(|step| self.give_up_step(cx, step, problem)).is_some()
    }

    /// A step will start no more agents. First handles those with a reported problem; if there are such, the others
    /// failed because of them.
    fn give_up_step(&mut self, cx: &mut Cx, mut step: Step, problem: &Problem) {
        self.on_tasks_lost(cx, step.take_failed());
        if step.named.is_empty() || cx.policy.survives_losses() {
            step.fail_unheard(problem);
        }
        self.on_tasks_lost(cx, step.take_failed());
        self.end_tasks(cx, &step, problem);
    }

    /// The failures of single tasks have been reported; stops waiting for the step's other agents.
    fn end_tasks(&mut self, cx: &mut Cx, step: &Step, problem: &Problem) {
        let starting: Vec<AgentId> = self.children.starting().filter(|child| step.agents.contains(child)).collect();
        for child in starting {
            if !cx.policy.survives_losses() && all_miss_some(cx, child, step) {
                self.forget_starting(cx, child);
            } else {
                self.on_missing(cx, child, problem.clone());
            }
        }
        step.agents.iter().for_each(|agent| self.on_task_known(cx, *agent));
        self.end_last_words(cx, &step.agents, problem);
    }

    /// The problem to report for a child that is late.
    pub(super) fn late_task(&self, cx: &Cx, agent: AgentId) -> &'static str {
        match (cx.is_root(), self.steps.has_begun(agent)) {
            (true, true) => "its agent started but did not connect to its parent",
            (true, false) => NOT_BEGUN,
            (false, _) => "it did not connect to its parent",
        }
    }

    /// Agents below a late child about which nothing was heard either.
    pub(super) fn unheard_below(&self, cx: &Cx, child: AgentId) -> Vec<AgentId> {
        let unheard = |agent: &AgentId| *agent != child && self.steps.is_unheard(*agent);
        cx.tree.subtree(child).filter(unheard).collect()
    }
}

/// The agents with ranks of a job, and all agents between them and the root.
fn agents_up_to_root(cx: &Cx, spec: &JobSpec, mapping: &Mapping) -> BTreeSet<AgentId> {
    let mut agents = BTreeSet::new();
    for (index, node) in spec.nodes.iter().enumerate() {
        let mut at = node.agent;
        if mapping.local_size(NodeId(index as u32)) == 0 {
            continue;
        }
        while let Some(parent) = cx.tree.parent(at).filter(|_| agents.insert(at)) {
            at = parent;
        }
        agents.remove(&AgentId(0));
    }
    agents
}

fn is_wanted(cx: &Cx, job: Option<JobId>) -> bool {
    match job {
        Some(job) => cx.jobs.get(job).is_some_and(|job| !job.is_ending()),
        None => !cx.is_leaving,
    }
}

/// Whether a job has ranks on an agent or below it.
fn needs(cx: &Cx, job: &Job, agent: AgentId) -> bool {
    cx.tree.subtree(agent).any(|agent| job.facts.has_agent(agent))
}

/// Whether each job of a child already knows why it fails: it needs an agent that the step has reported.
fn all_miss_some(cx: &Cx, child: AgentId, step: &Step) -> bool {
    let misses_some = |job: &Job| step.named.iter().any(|agent| needs(cx, job, *agent));
    cx.jobs.all().filter(|job| job.has_child(child)).all(misses_some)
}
