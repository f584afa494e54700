//! The steps that the root has called, and what each has said of its agents.

use crate::io::{ExitStatus, How, ShellId};
use crate::session::starts::NEEDED;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::{AgentId, JobId};

#[derive(Default)]
pub struct Steps {
    /// Agents that some step was called for, and the last one: what others say of it is of an earlier life.
    pub called: BTreeMap<AgentId, ShellId>,
    pub running: BTreeMap<ShellId, Step>,
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
    /// Somebody was named.
    pub told: bool,
}

impl Steps {
    /// Whether an agent's task may still say something.
    pub fn holds(&self, agent: AgentId) -> bool {
        self.step_of(agent).is_some()
    }

    pub fn has_begun(&self, agent: AgentId) -> bool {
        self.step_of(agent).is_some_and(|step| step.begun.contains(&agent))
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
        step.told |= !step.failed.is_empty();
        step.agents.retain(|agent| self.is_of(*agent, shell));
        step.failed.retain(|agent, _| self.is_of(*agent, shell));
        Some(step)
    }
}

impl Step {
    /// How to try again, if nobody has begun and that may help.
    pub fn other_way(&self, status: ExitStatus, stderr: &str) -> Option<How> {
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
