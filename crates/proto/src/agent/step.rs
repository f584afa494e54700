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

use super::Agent;
use crate::io::{ExitStatus, How, Output, ShellId};
use crate::job::JobInput;
use crate::starts::{self, NEEDED};
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use wireup_coll::mapping::Mapping;
use wireup_coll::tree::Hop;
use wireup_wire::ids::{AgentId, JobId, NodeId};
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{Bootstrap, Control, MissingAgent, Note, RemoteShell, Secret};

#[derive(Default)]
pub struct Steps {
    /// Agents that some step was called for, and the last one: what others say of it is of an earlier life.
    called: BTreeMap<AgentId, ShellId>,
    running: BTreeMap<ShellId, Step>,
}

/// A step under way.
struct Step {
    agents: BTreeSet<AgentId>,
    /// The job that they begin with, if they do.
    job: Option<JobId>,
    how: How,
    begun: BTreeSet<AgentId>,
    /// What is wrong with some, not told yet: perhaps none of them has the program.
    failed: BTreeMap<AgentId, String>,
    /// Somebody was named.
    told: bool,
}

impl Steps {
    /// Whether an agent's task may still say something.
    pub fn holds(&self, agent: AgentId) -> bool {
        self.step_of(agent).is_some()
    }

    fn has_begun(&self, agent: AgentId) -> bool {
        self.step_of(agent).is_some_and(|step| step.begun.contains(&agent))
    }

    fn step_of(&self, agent: AgentId) -> Option<&Step> {
        self.running.get(self.called.get(&agent)?)
    }

    fn is_of(&self, agent: AgentId, shell: ShellId) -> bool {
        self.called.get(&agent) == Some(&shell)
    }

    /// A step is over; what is left of it is of agents that no later one was called for.
    fn take(&mut self, shell: ShellId) -> Option<Step> {
        let mut step = self.running.remove(&shell)?;
        step.told |= !step.failed.is_empty();
        step.agents.retain(|agent| self.is_of(*agent, shell));
        step.failed.retain(|agent, _| self.is_of(*agent, shell));
        Some(step)
    }
}

impl Step {
    /// How to try again, if nobody has begun and that may help.
    fn other_way(&self, status: ExitStatus, stderr: &str) -> Option<How> {
        let ExitStatus::Exited(code) = status else { return None };
        match self.how {
            _ if !self.begun.is_empty() || self.agents.is_empty() => None,
            // What a batch system says of a program that it cannot execute.
            How::Plain if code == NEEDED || stderr.contains("execve") => Some(How::Look),
            How::Look if code == NEEDED => Some(How::Send),
            How::Send if code == 0 => Some(How::Look),
            How::Plain | How::Look | How::Send => None,
        }
    }
}

impl Agent {
    /// Whether agents come by steps that the root calls.
    pub(super) fn is_by_step(&self) -> bool {
        matches!(self.config.session.remote_shell, RemoteShell::Srun(_))
    }

    /// Calls a step for the agents of a job that were not called before.
    pub(super) fn call_step(&mut self, now: Instant, spec: &JobSpec, mapping: &Mapping) {
        if !self.is_root() || !self.is_by_step() {
            return;
        }
        let mut agents = self.agents_up_to_root(spec, mapping);
        agents.retain(|agent| !self.steps.called.contains_key(agent));
        if !agents.is_empty() {
            self.start_step(now, agents, Some(spec.job), How::Plain);
        }
    }

    /// Calls a step for agents of a standing session.
    pub(super) fn call_step_for(&mut self, now: Instant, agents: impl Iterator<Item = AgentId>) {
        let agents: BTreeSet<AgentId> = agents.filter(|agent| *agent != AgentId(0)).collect();
        if self.is_root() && self.is_by_step() && !agents.is_empty() {
            self.start_step(now, agents, None, How::Plain);
        }
    }

    /// The agents with ranks of a job, and those between them and the root.
    fn agents_up_to_root(&self, spec: &JobSpec, mapping: &Mapping) -> BTreeSet<AgentId> {
        let mut agents = BTreeSet::new();
        for (index, node) in spec.nodes.iter().enumerate() {
            let mut at = node.agent;
            if mapping.local_size(NodeId(index as u32)) == 0 {
                continue;
            }
            while let Some(parent) = self.tree.parent(at).filter(|_| agents.insert(at)) {
                at = parent;
            }
            agents.remove(&AgentId(0));
        }
        agents
    }

    fn start_step(&mut self, now: Instant, agents: BTreeSet<AgentId>, job: Option<JobId>, how: How) {
        let shell = self.starts.new_shell();
        let mut session = self.config.session.clone();
        session.start_timeout_ns = self.start_by - now;
        session.hold_ranks = false;
        let bootstrap = Bootstrap {
            // Of all; each takes its part.
            kin: self.kin_of(AgentId(0)),
            secret: Secret([0; 32]),
            // Each of them finds itself.
            agent: AgentId(0),
            parent: Vec::new(),
            by_parent: false,
            session,
            jobs: job.and_then(|job| self.specs.get(&job)).map(|spec| (**spec).clone()).into_iter().collect(),
        };
        self.steps.called.extend(agents.iter().map(|agent| (*agent, shell)));
        let list = agents.iter().copied().collect();
        let step = Step { agents, job, how, begun: BTreeSet::new(), failed: BTreeMap::new(), told: false };
        self.steps.running.insert(shell, step);
        self.out.push(Output::StartStep { shell, agents: list, how, bootstrap: Box::new(bootstrap) });
    }

    /// A task of a step has begun, or something is wrong with it.
    pub(super) fn on_step_told(&mut self, now: Instant, shell: ShellId, agent: AgentId, problem: Option<String>) {
        if !self.steps.is_of(agent, shell) {
            return;
        }
        let Some(step) = self.steps.running.get_mut(&shell) else { return };
        match problem {
            None => drop(step.begun.insert(agent)),
            Some(problem) => drop(step.failed.entry(agent).or_insert(problem)),
        }
        if step.begun.is_empty() {
            return;
        }
        let failed = std::mem::take(&mut step.failed);
        step.told |= !failed.is_empty();
        for (agent, problem) in failed {
            if self.steps.is_of(agent, shell) {
                self.on_task_lost(now, agent, problem);
            }
        }
    }

    /// An agent's task will not bring it, or has ended.
    pub(super) fn on_task_lost(&mut self, now: Instant, agent: AgentId, problem: String) {
        match self.tree.next_hop(AgentId(0), agent) {
            _ if self.children.is_starting(agent) => self.on_missing(now, agent, problem),
            Hop::Child(child) if self.is_standing() && self.children.is_lost(child) => {
                self.report_lost(now, agent, problem);
            }
            Hop::Child(child) if child == agent => self.on_last_words(agent, problem),
            Hop::Child(child) if self.children.is_lost(child) => {
                let missing = vec![MissingAgent { agent, problem }];
                self.tell_jobs_where(now, |job| job.has_child(child), || JobInput::Missing(missing.clone()));
            }
            Hop::Child(child) => {
                let message = Control::NotStarted(MissingAgent { agent, problem });
                self.links.control_child(child, JobId(0), &message, &mut self.out);
            }
            Hop::Here | Hop::Parent => {}
        }
    }

    /// True if it was a step.
    pub(super) fn on_step_exited(&mut self, now: Instant, shell: ShellId, status: ExitStatus, stderr: &str) -> bool {
        let Some(step) = self.steps.take(shell) else {
            return false;
        };
        if let Some(how) = step.other_way(status, stderr).filter(|_| now < self.start_by && self.wants(step.job)) {
            if how == How::Send {
                for &agent in &step.agents {
                    self.note(Note::Sent { agent });
                }
            }
            self.start_step(now, step.agents, step.job, how);
            return true;
        }
        let words = starts::step_words(status, stderr);
        self.end_step(now, step, &words);
        true
    }

    /// A step could not even be called. True if it was one.
    pub(super) fn on_step_failed(&mut self, now: Instant, shell: ShellId, problem: &str) -> bool {
        let Some(step) = self.steps.take(shell) else {
            return false;
        };
        self.end_step(now, step, problem);
        true
    }

    fn wants(&self, job: Option<JobId>) -> bool {
        match job {
            Some(job) => self.jobs.get(&job).is_some_and(|job| !job.is_ending()),
            None => self.leaving.is_none(),
        }
    }

    /// Nobody else comes. Where the step has named some, the others went with it.
    fn end_step(&mut self, now: Instant, mut step: Step, words: &str) {
        for (agent, problem) in std::mem::take(&mut step.failed) {
            self.on_task_lost(now, agent, problem);
        }
        let starting = self.children.starting().filter(|child| step.agents.contains(child));
        for child in starting.collect::<Vec<_>>() {
            if step.told {
                self.forget_starting(now, child);
                continue;
            }
            let gone = |agent: &AgentId| *agent != child && step.agents.contains(agent) && !step.begun.contains(agent);
            let below = self.tree.subtree(child).filter(gone);
            let below = below.map(|agent| MissingAgent { agent, problem: words.to_owned() }).collect();
            self.on_missing_with(now, child, words.to_owned(), below);
        }
        for &agent in step.agents.difference(&step.begun).filter(|_| !step.told) {
            self.on_task_lost(now, agent, words.to_owned());
        }
        self.end_last_words(now, &step.agents, words);
    }

    /// What to say of a child that is late.
    pub(super) fn late_task(&self, agent: AgentId) -> &'static str {
        match (self.is_root(), self.steps.has_begun(agent)) {
            (true, true) => "its agent began and did not link back",
            (true, false) => "its task of the step did not begin",
            (false, _) => "it did not link back",
        }
    }

    /// Agents behind a child that is late, of which nothing was heard either.
    pub(super) fn unheard_below(&self, child: AgentId) -> Vec<AgentId> {
        let unheard = |agent: &AgentId| *agent != child && self.steps.holds(*agent) && !self.steps.has_begun(*agent);
        self.tree.subtree(child).filter(unheard).collect()
    }
}
