//! The steps that the root has called, and the reports of each about its agents.

use crate::io::{ExitStatus, How, ShellId};
use crate::session::starts::NEEDED;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::{Batch, Problem};

#[derive(Default)]
pub struct Steps {
    /// The last step that was called for each agent: reports of earlier steps concern a previous incarnation.
    pub called: BTreeMap<AgentId, ShellId>,
    pub running: BTreeMap<ShellId, Step>,
    /// Agents that have not been heard of, and the agents that asked about them, because their parents are missing.
    asked: BTreeSet<(AgentId, AgentId)>,
}

/// An agent that its task failed to start, or that has started and ended.
pub struct FailedTask {
    pub agent: AgentId,
    pub problem: Problem,
    pub had_begun: bool,
}

/// A step in progress.
pub struct Step {
    pub agents: BTreeSet<AgentId>,
    /// The job that the agents run when they start; `None`: no job.
    pub job: Option<JobId>,
    pub how: How,
    pub begun: BTreeSet<AgentId>,
    /// Problems of agents that are not reported yet, because possibly no node has the program.
    pub failed: BTreeMap<AgentId, Problem>,
    /// Agents that were reported as never starting.
    pub named: BTreeSet<AgentId>,
}

impl Steps {
    /// Whether the task of an agent may still report something.
    pub fn holds(&self, agent: AgentId) -> bool {
        self.step_of(agent).is_some()
    }

    pub fn has_begun(&self, agent: AgentId) -> bool {
        self.step_of(agent).is_some_and(|step| step.begun.contains(&agent))
    }

    /// Whether an agent may still start or be reported.
    pub fn is_unheard(&self, agent: AgentId) -> bool {
        self.step_of(agent).is_some_and(|step| !step.begun.contains(&agent) && !step.named.contains(&agent))
    }

    /// Records that the asker must be told the result for an agent.
    pub fn ask(&mut self, agent: AgentId, asker: AgentId) {
        self.asked.insert((agent, asker));
    }

    pub fn is_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Removes and returns the requests about the agents for which `which` holds.
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

    /// A step has ended; returns it with only the agents for which no later step was called.
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

    /// The problems that have not been reported yet.
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

    /// Sets the same problem for all agents about which nothing was reported.
    pub fn fail_unheard(&mut self, problem: &Problem) {
        let unheard = self.agents.difference(&self.begun).filter(|agent| !self.named.contains(agent));
        self.failed.extend(unheard.map(|agent| (*agent, problem.clone())));
    }

    /// How to try again, if no agent has started and another way may help.
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
