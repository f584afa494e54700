//! Records the probes of hosts below a missing or slow child: which are in progress, and what they have found. So one
//! message to the user can name all problems.
//!
//! An agent that was started by a batch system probes no hosts. It asks the root, which receives reports about all
//! tasks of the step.
//!
//! ```text
//!   parent of the missing agent ── Probe, for each agent below it ──► root
//!                               ◄── Probed ──────────────────────────   it has started, is reported, or is too late
//! ```
//!
//! Cost: two messages for each agent below the child and each level between the two agents.

use crate::session::Cx;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{MissingAgent, Problem};

#[derive(Default)]
pub struct Probes {
    /// The children below which hosts are, or were, probed.
    pub below: BTreeMap<AgentId, Below>,
    /// Agents about which children have asked, each with the agent that asked: each pair is probed once for a job.
    pub asked_about: BTreeSet<(AgentId, AgentId)>,
    /// At the root: agents that no step has reported yet, each with the agent that asked about it.
    pub unheard: BTreeSet<(AgentId, AgentId)>,
}

/// What is known about the agents below a child.
#[derive(Default)]
pub struct Below {
    open: BTreeSet<AgentId>,
    /// Agents that cannot be reached and were not reported yet.
    unreachable: Vec<MissingAgent>,
}

impl Probes {
    pub fn begin(&mut self, child: AgentId, open: BTreeSet<AgentId>) {
        self.below.insert(child, Below { open, unreachable: Vec::new() });
    }

    /// A child has linked, so it reports what is missing below it.
    pub fn on_linked(&mut self, child: AgentId) {
        self.below.entry(child).and_modify(|below| below.unreachable.clear());
    }

    /// Handles the result of probing `agent`, which is below `child`. `problem`: `None`: nothing has to be reported.
    pub fn on_probed(&mut self, child: AgentId, agent: AgentId, problem: Option<Problem>) {
        if let Some(below) = self.below.get_mut(&child) {
            below.open.remove(&agent);
            below.unreachable.extend(problem.map(|problem| MissingAgent { agent, problem }));
        }
    }

    /// Tells the jobs of a lost child which agents are missing: those in `missing`, and those below the child that
    /// cannot be reached, each once; and whether more may follow.
    pub fn report(&mut self, cx: &mut Cx, child: AgentId, mut missing: Vec<MissingAgent>) {
        let below = self.below.get_mut(&child);
        let is_settled = below.as_ref().is_none_or(|below| below.open.is_empty());
        missing.extend(below.into_iter().flat_map(|below| std::mem::take(&mut below.unreachable)));
        if !missing.is_empty() || is_settled {
            let jobs = cx.jobs.of_child(child);
            cx.jobs
                .tell_each(&mut cx.agent, jobs, |job, cx| job.on_child_missing(cx, child, is_settled, missing.clone()));
        }
    }

    /// Removes and returns the pairs (agent, agent that waits for a report about it) for whose first agent `which`
    /// holds.
    pub fn take_unheard(&mut self, which: impl Fn(AgentId) -> bool) -> BTreeSet<(AgentId, AgentId)> {
        let (taken, kept) = std::mem::take(&mut self.unheard).into_iter().partition(|(agent, _)| which(*agent));
        self.unheard = kept;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_agent_below_a_child_is_reported_once() {
        let mut probes = Probes::default();
        let child = AgentId(1);
        probes.on_probed(child, AgentId(3), Some("no route".into()));
        assert!(probes.below.is_empty(), "nobody has asked");
        probes.begin(child, [AgentId(3), AgentId(4)].into());
        probes.on_probed(child, AgentId(3), Some("no route".into()));
        let unreachable = |probes: &Probes| probes.below[&child].unreachable.len();
        assert_eq!((unreachable(&probes), probes.below[&child].open.len()), (1, 1));
        probes.report(&mut crate::testing::one_run(0), child, Vec::new());
        assert_eq!(unreachable(&probes), 0);
        probes.on_probed(child, AgentId(4), Some("no route".into()));
        probes.on_linked(child);
        assert_eq!(unreachable(&probes), 0, "the child reports it");
    }

    #[test]
    fn agents_that_ask_about_a_task_are_told_once() {
        let mut probes = Probes::default();
        for (agent, asker) in [(7, 1), (8, 1), (8, 3)] {
            probes.unheard.insert((AgentId(agent), AgentId(asker)));
        }
        assert_eq!(probes.take_unheard(|agent| agent == AgentId(8)).len(), 2);
        assert_eq!(probes.take_unheard(|_| true), [(AgentId(7), AgentId(1))].into());
        assert!(probes.unheard.is_empty());
    }
}
