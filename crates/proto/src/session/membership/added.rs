//! Adds hosts to those of the session for a job, and releases them after it: at the root.
//!
//! ```text
//!   Launch names hosts to add ──► Number ──► the job waits ──► StartAdded: Return ↓ to all
//!   the agents are up ──► the job begins
//!   the job neither waits nor runs ──► Release: Lost ↓ to all; the numbers are free again
//! ```
//!
//! An added agent is a child of the root, without children. It serves one job, and leaves with it (`launchers/jobs`).
//! In a session of one run it is started with its job, as all others are, without a log; so its number is not used
//! again.

use super::{LiveOf, Membership, News, lease_ns};
use crate::session::{AddedHost, Cx};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::JobSpec;
use wireup_wire::peer::MissingAgent;
use wireup_wire::talk::{Control, SessionDown};

const JOB_OVER: &str = "the job that it was added for is over";

impl Membership {
    /// Gives numbers to the agents of the hosts that a job adds; returns them.
    pub fn number(&mut self, cx: &mut Cx, spec: &mut JobSpec) -> Vec<AgentId> {
        let Some(writer) = &mut self.writer else { return Vec::new() };
        let mut agents = Vec::new();
        for node in spec.nodes.iter_mut().filter(|node| node.agent == AgentId::ADDED) {
            // The run may use only some nodes of its session, and the added host may be another one of them.
            node.agent = writer.nodes.own_agent(&node.name).unwrap_or_else(|| {
                let agent = writer.nodes.add(&node.name, spec.job);
                cx.added.insert(agent, AddedHost { name: node.name.clone(), job: spec.job });
                agent
            });
            agents.push(node.agent);
        }
        agents
    }

    /// Starts the agents that were added for a job, which waits for them.
    pub fn start_added(&mut self, cx: &mut Cx, live: LiveOf<'_>, job: JobId) -> Vec<News> {
        let added = self.nodes().into_iter().flat_map(|nodes| nodes.added());
        let agents: Vec<AgentId> = added.filter(|(_, of)| *of == job).map(|(agent, _)| agent).collect();
        if agents.is_empty() { Vec::new() } else { vec![self.bring_back(cx, live, agents)] }
    }

    /// Dismisses the agents on hosts that were added for jobs that are over.
    pub fn release(&mut self, cx: &mut Cx, live: LiveOf<'_>, agents: Vec<AgentId>) -> Vec<News> {
        let Some(writer) = &mut self.writer else { return Vec::new() };
        let has_log = cx.policy.survives_losses();
        // Without incarnations a number belongs to one agent only.
        agents.iter().for_each(|agent| writer.nodes.remove(*agent, has_log));
        if has_log {
            let lost = |agent| MissingAgent { agent, problem: JOB_OVER.into() };
            let lost = agents.into_iter().map(lost).collect();
            return self.lose(cx, live, lost, lease_ns(cx));
        }
        let (linked, unlinked): (Vec<AgentId>, Vec<AgentId>) =
            agents.into_iter().partition(|agent| cx.links.neighbours.child(*agent).is_some());
        linked.into_iter().for_each(|agent| cx.child(agent, Control::SessionDown(SessionDown::Shutdown)));
        if unlinked.is_empty() { Vec::new() } else { vec![News::Lost(unlinked)] }
    }
}
