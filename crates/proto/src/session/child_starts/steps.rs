//! Agents started by a batch system: all of them by one call, a step, which the root makes.
//!
//! ```text
//!   root ── one step ──► task on each node ──► agent
//!     ▲  each agent reports that it has started, and its   │
//!     │  addresses, through the step's output              │
//!     └────────────────────────────────────────────────────┘
//!   the parents' addresses, through the step's input ─► all
//! ```
//!
//! Only the root calls steps: the other agents expect their children, which start independently. The root forwards what
//! the step reports about an agent to that agent's parent. If no node has the program, further steps look for it and
//! then send it; once one agent has started, its ranks run, and no other step is called for the same agents.
//!
//! Cost: one line from each agent, and from the root one line per agent with children, which the step sends to all
//! tasks.

use crate::io::{ExitStatus, How, Output, ShellId};
use crate::job::Job;
use crate::session::shell_calls::{self, NEEDED};
use crate::session::{Begin, Cx, SnapshotOf};
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::{AgentId, JobId, NodeId};
use wireup_wire::peer::{Batch, Bootstrap, MissingAgent, Note, Problem, ProblemKind, Secret};

/// The problem of an agent whose start the step has not reported by the start timeout.
pub const NOT_BEGUN: &str = "its task in the step did not start";

/// The steps that the root has called, and the reports of each about its agents.
#[derive(Default)]
pub struct Steps {
    /// The last step that was called for each agent: reports of earlier steps concern a previous incarnation.
    called: BTreeMap<AgentId, ShellId>,
    running: BTreeMap<ShellId, Step>,
}

/// An agent that its task failed to start, or that has started and ended.
pub struct FailedTask {
    pub agent: AgentId,
    pub problem: Problem,
    had_begun: bool,
}

/// The agents that a step is to start, how, and the job that they run when they start; `None`: no job.
pub struct Call {
    pub agents: BTreeSet<AgentId>,
    pub job: Option<JobId>,
    pub how: How,
}

pub struct Step {
    pub call: Call,
    begun: BTreeSet<AgentId>,
    /// Problems of agents that are not reported to jobs yet: as long as no agent has started, the cause may be that no
    /// node has the program, and another step may help.
    failed: BTreeMap<AgentId, Problem>,
    /// Agents that were reported as failed without having started.
    named: BTreeSet<AgentId>,
}

/// What the end of a call (`ShellId`) means, if the call was a step of a batch system.
pub enum StepEnd {
    NoStep,
    /// Another step, called in this way, may start the agents.
    Again(Call),
    /// The step will start no more agents, for this reason.
    Over(Step, Problem),
}

impl Steps {
    /// The agents of a job for which no step was called yet, if the root calls steps.
    pub fn uncalled(&self, cx: &Cx, begin: &Begin) -> Option<Call> {
        if !cx.is_root() || !cx.is_by_step() {
            return None;
        }
        let mut agents = agents_up_to_root(cx, begin);
        agents.retain(|agent| !self.called.contains_key(agent));
        (!agents.is_empty()).then_some(Call { agents, job: Some(begin.spec.job), how: How::Plain })
    }

    pub fn call(&mut self, cx: &mut Cx, snapshot: SnapshotOf<'_>, shell: ShellId, call: Call) {
        let Call { agents, job, how } = &call;
        let mut session = cx.session.clone();
        session.start_timeout_ns = cx.agent.start_by - cx.agent.now;
        session.hold_ranks = false;
        let bootstrap = Bootstrap {
            // All agents get the same session state; each uses the part that concerns it.
            snapshot: snapshot(cx),
            secret: Secret([0; 32]),
            // A placeholder: each agent finds out its own id.
            agent: AgentId(0),
            parent: Vec::new(),
            by_parent: false,
            session,
            jobs: job.and_then(|job| cx.jobs.spec(job)).cloned().into_iter().collect(),
        };
        self.called.extend(agents.iter().map(|agent| (*agent, shell)));
        let (agents, how, bootstrap) = (agents.iter().copied().collect(), *how, Box::new(bootstrap));
        let step = Step { call, begun: BTreeSet::new(), failed: BTreeMap::new(), named: BTreeSet::new() };
        self.running.insert(shell, step);
        cx.output(Output::StartStep { shell, agents, how, bootstrap });
    }

    /// A task of a step has started its agent, or has failed. Returns the tasks that have failed; `None`: the report
    /// concerns a previous incarnation of the agent.
    pub fn on_told(&mut self, shell: ShellId, agent: AgentId, problem: Option<Problem>) -> Option<Vec<FailedTask>> {
        let step = self.running.get_mut(&shell).filter(|_| self.called.get(&agent) == Some(&shell))?;
        match problem {
            None => drop(step.begun.insert(agent)),
            Some(problem) => drop(step.failed.entry(agent).or_insert(problem)),
        }
        // Until one agent has started, possibly no node has the program, and another step may help.
        let mut tasks = if step.begun.is_empty() { Vec::new() } else { step.take_failed() };
        tasks.retain(|task| self.is_of(task.agent, shell));
        Some(tasks)
    }

    pub fn on_exited(&mut self, cx: &mut Cx, shell: ShellId, status: ExitStatus, stderr: &str) -> StepEnd {
        let Some((mut step, batch)) = self.take_step(shell).zip(cx.batch()) else { return StepEnd::NoStep };
        let may_help = cx.agent.now < cx.agent.start_by && is_wanted(cx, step.call.job);
        if let Some(how) = step.other_way(batch, status, stderr).filter(|_| may_help) {
            if step.call.how == How::Send {
                for &agent in &step.call.agents {
                    let to_second_cache = shell_calls::is_in_second_cache(stderr, cx.host_of(agent));
                    cx.note(Note::Sent { agent, to_second_cache });
                }
            }
            return StepEnd::Again(Call { how, ..step.call });
        }
        let mut problem = shell_calls::step_problem(batch, status, stderr);
        if cx.session.installed_only && step.call.how == How::Send && status == ExitStatus::Exited(NEEDED) {
            // The problems that the step has reported only repeat that its tasks have exited with `NEEDED`.
            step.failed.clear();
            problem.kind = ProblemKind::NotInstalled;
        }
        StepEnd::Over(step, problem)
    }

    /// A step has ended, or could not be called; returns it with only the agents for which no later step was called.
    pub fn take_step(&mut self, shell: ShellId) -> Option<Step> {
        let mut step = self.running.remove(&shell)?;
        step.call.agents.retain(|agent| self.is_of(*agent, shell));
        step.failed.retain(|agent, _| self.is_of(*agent, shell));
        Some(step)
    }

    fn is_of(&self, agent: AgentId, shell: ShellId) -> bool {
        self.called.get(&agent) == Some(&shell)
    }

    fn step_of(&self, agent: AgentId) -> Option<&Step> {
        self.running.get(self.called.get(&agent)?)
    }

    /// Whether the step of an agent's task is still running, so that it may report the agent's end.
    pub fn holds(&self, agent: AgentId) -> bool {
        self.step_of(agent).is_some()
    }

    /// Whether a running step has not yet reported an agent: neither that it has started nor that it cannot.
    pub fn is_unheard(&self, agent: AgentId) -> bool {
        self.step_of(agent).is_some_and(|step| !step.begun.contains(&agent) && !step.named.contains(&agent))
    }

    /// The problem to report for an agent that has not linked by the start timeout.
    pub fn late_words(&self, cx: &Cx, agent: AgentId) -> &'static str {
        let has_begun = || self.step_of(agent).is_some_and(|step| step.begun.contains(&agent));
        match cx.is_root() {
            true if has_begun() => "its agent started but did not connect to its parent",
            true => NOT_BEGUN,
            false => "it did not connect to its parent",
        }
    }
}

impl Step {
    /// Removes and returns the tasks whose problems were not reported to jobs yet.
    pub fn take_failed(&mut self) -> Vec<FailedTask> {
        let failed = std::mem::take(&mut self.failed).into_iter();
        let failed = failed.map(|(agent, problem)| {
            let had_begun = self.begun.contains(&agent);
            if !had_begun {
                self.named.insert(agent);
            }
            FailedTask { agent, problem, had_begun }
        });
        failed.collect()
    }

    /// Gives all agents about which nothing was reported the same problem; in a session of one run only if no agent was
    /// reported, since otherwise they failed because of the reported ones.
    pub fn fail_unheard(&mut self, cx: &Cx, problem: &Problem) {
        if self.named.is_empty() || cx.policy.survives_losses() {
            let unheard = self.call.agents.difference(&self.begun).filter(|agent| !self.named.contains(agent));
            self.failed.extend(unheard.map(|agent| (*agent, problem.clone())));
        }
    }

    /// The way in which to call the step again, if no agent has started and another way may help.
    fn other_way(&self, batch: &Batch, status: ExitStatus, stderr: &str) -> Option<How> {
        let ExitStatus::Exited(code) = status else { return None };
        match self.call.how {
            _ if !self.begun.is_empty() || self.call.agents.is_empty() => None,
            How::Plain if code == NEEDED || stderr.contains(batch.not_executable) => Some(How::Look),
            How::Look if code == NEEDED => Some(How::Send),
            How::Send if code == 0 => Some(How::Look),
            How::Plain | How::Look | How::Send => None,
        }
    }

    /// Whether each job of a child already knows why it fails: it needs an agent that the step has reported.
    pub fn explains_loss_of(&self, cx: &Cx, child: AgentId) -> bool {
        let misses_some = |job: &Job| self.named.iter().any(|agent| needs(cx, job, *agent));
        cx.jobs.values().filter(|job| job.has_child(child)).all(misses_some)
    }
}

/// Tells jobs in a session of one run immediately of all agents that never started: the agents between them and the
/// root may be missing too, and cannot report it.
pub fn tell_jobs(cx: &mut Cx, tasks: &[FailedTask]) {
    let jobs = if cx.policy.survives_losses() { Vec::new() } else { cx.jobs.ids() };
    for id in jobs {
        let Some(job) = cx.jobs.get(&id) else { continue };
        let missing = tasks.iter().filter(|task| !task.had_begun && needs(cx, job, task.agent));
        let missing: Vec<_> = missing
            .map(|FailedTask { agent, problem, .. }| MissingAgent { agent: *agent, problem: problem.clone() })
            .collect();
        if !missing.is_empty() {
            cx.jobs.tell(&mut cx.agent, id, |job, cx| job.on_missing(cx, missing));
        }
    }
}

/// The agents with ranks of a job, and all agents between them and the root.
fn agents_up_to_root(cx: &Cx, Begin { spec, mapping, .. }: &Begin) -> BTreeSet<AgentId> {
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
        Some(job) => cx.jobs.get(&job).is_some_and(|job| !job.is_ending()),
        None => !cx.is_leaving,
    }
}

/// Whether a job has ranks on an agent or below it.
fn needs(cx: &Cx, job: &Job, agent: AgentId) -> bool {
    cx.tree.subtree(agent).any(|agent| job.facts.has_agent(agent))
}
