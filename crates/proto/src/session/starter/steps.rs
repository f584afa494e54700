//! The steps that the root has called, and what each has said of its agents.

use crate::io::{ExitStatus, How, ShellId};
use crate::session::starts::NEEDED;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::Batch;

#[derive(Default)]
pub struct Steps {
    /// Agents that some step was called for, and the last one: what others say of it is of an earlier life.
    pub called: BTreeMap<AgentId, ShellId>,
    pub running: BTreeMap<ShellId, Step>,
    /// Agents that were not heard of yet, and who wants to know what becomes of each: their parents are missing.
    asked: BTreeSet<(AgentId, AgentId)>,
}

/// An agent that its task does not bring, or has brought and is gone.
pub struct FailedTask {
    pub agent: AgentId,
    pub problem: String,
    pub had_begun: bool,
}

/// A step under way.
pub struct Step {
    pub agents: BTreeSet<AgentId>,
    /// The job that they begin with, if they do.
    pub job: Option<JobId>,
    pub how: How,
    pub begun: BTreeSet<AgentId>,
    /// What is wrong with some, not told yet: perhaps none of them has the program.
    pub failed: BTreeMap<AgentId, String>,
    /// Agents that will not begin, as was told.
    pub named: BTreeSet<AgentId>,
}

impl Steps {
    /// Whether an agent's task may still say something.
    pub fn holds(&self, agent: AgentId) -> bool {
        self.step_of(agent).is_some()
    }

    pub fn has_begun(&self, agent: AgentId) -> bool {
        self.step_of(agent).is_some_and(|step| step.begun.contains(&agent))
    }

    /// Whether an agent may still begin, or be named.
    pub fn is_unheard(&self, agent: AgentId) -> bool {
        self.step_of(agent).is_some_and(|step| !step.begun.contains(&agent) && !step.named.contains(&agent))
    }

    /// What becomes of an agent will be told.
    pub fn ask(&mut self, agent: AgentId, asker: AgentId) {
        self.asked.insert((agent, asker));
    }

    pub fn is_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Who asked about these agents, and about which.
    pub fn take_asked(&mut self, which: impl Fn(AgentId) -> bool) -> BTreeSet<(AgentId, AgentId)> {
        let (taken, kept) = std::mem::take(&mut self.asked).into_iter().partition(|(agent, _)| which(*agent));
        self.asked = kept;
        taken
    }

    pub fn step_of(&self, agent: AgentId) -> Option<&Step> {
        self.running.get(self.called.get(&agent)?)
    }

    pub fn is_of(&self, agent: AgentId, shell: ShellId) -> bool {
        self.called.get(&agent) == Some(&shell)
    }

    /// A step is over; what is left of it is of agents that no later one was called for.
    pub fn take(&mut self, shell: ShellId) -> Option<Step> {
        let mut step = self.running.remove(&shell)?;
        step.agents.retain(|agent| self.is_of(*agent, shell));
        step.failed.retain(|agent, _| self.is_of(*agent, shell));
        Some(step)
    }
}

impl Step {
    pub fn new(agents: BTreeSet<AgentId>, job: Option<JobId>, how: How) -> Self {
        Step { agents, job, how, begun: BTreeSet::new(), failed: BTreeMap::new(), named: BTreeSet::new() }
    }

    /// What is wrong with some agents and was not told yet.
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

    /// The same is wrong with all of which nothing was said.
    pub fn fail_unheard(&mut self, problem: &str) {
        let unheard = self.agents.difference(&self.begun).filter(|agent| !self.named.contains(agent));
        self.failed.extend(unheard.map(|agent| (*agent, problem.to_owned())));
    }

    /// How to try again, if nobody has begun and that may help.
    pub fn other_way(&self, batch: &Batch, status: ExitStatus, stderr: &str) -> Option<How> {
        let ExitStatus::Exited(code) = status else { return None };
        match self.how {
            _ if !self.begun.is_empty() || self.agents.is_empty() => None,
            How::Plain if code == NEEDED || stderr.contains(batch.not_executable) => Some(How::Look),
            How::Look if code == NEEDED => Some(How::Send),
            How::Send if code == 0 => Some(How::Look),
            How::Plain | How::Look | How::Send => None,
        }
    }
}
