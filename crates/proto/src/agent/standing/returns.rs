//! Lost agents are started again.
//!
//! ```text
//!   launcher: Revive ──► the root: Return { all lost, their next life } ↓ to all ──► the parent of each starts it
//! ```
//!
//! A lost agent whose parent is lost too is started by that one when it is back. Agents that were adopted stay where they are: the one
//! that returns is told who of its subtree is there already.

use super::Agent;
use crate::links::Keeper;
use crate::time::Instant;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::Control;

impl Agent {
    /// At the root: somebody wants all nodes.
    pub(super) fn revive(&mut self, now: Instant) {
        let Some(root) = self.standing.as_mut().and_then(|standing| standing.root.as_mut()) else { return };
        let lost = root.take_lost();
        if !lost.is_empty() {
            let life = root.next_life();
            self.on_return(now, &lost, life);
            self.call_step_for(now, lost.into_iter());
        }
    }

    /// These agents are started again.
    pub(super) fn on_return(&mut self, now: Instant, agents: &[AgentId], life: u32) {
        let me = self.config.agent;
        let is_news = |agent: &AgentId| *agent != me && life > self.links.life(*agent);
        let agents: Vec<AgentId> = agents.iter().copied().filter(is_news).collect();
        if agents.is_empty() {
            return;
        }
        for &agent in &agents {
            // Who was out of reach has not heard of the loss.
            self.on_lost(now, agent);
            self.links.find(agent, life);
        }
        for child in self.links.all_children() {
            let message = Control::Return { agents: agents.clone(), life };
            self.links.control_child(child, JobId(0), &message, &mut self.out);
        }
        self.start_by = now + self.config.session.start_timeout_ns;
        self.hurried = false;
        self.asked.clear();
        for &agent in &agents {
            // Its parent is started too and starts it then, or somebody on the way to it does.
            let is_others = self.tree.parent(agent).is_none_or(|parent| agents.contains(&parent))
                || self.links.keeper(agent) != Keeper::Nobody;
            if !is_others && self.tree.subtree_contains(me, agent) {
                self.start_child(now, agent, None);
                self.tell_others(&[agent], Some(agent));
            }
        }
    }
}
