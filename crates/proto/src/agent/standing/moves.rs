//! Agents say where they are linked, at first and whenever that has changed.
//!
//! ```text
//!   a child links:    Here ↑ (it and who is below) to the root; on the way down again to all that the tree was drawn through and
//!                     that they are not below any more, so that these neither wait for them, nor start them, nor pass frames on
//!   the root:         were they there before? Moved ↓ to all ──► each sends again what was for them or by way of them
//!                     └── Start ↓ again, of their jobs that have not begun everywhere
//! ```
//!
//! An agent only ever moves up: to an ancestor of the one that it was linked to. When `Moved` comes, all on the ways to these agents
//! know the new ones. Frames' numbers (`links/direct/window`) keep what is sent twice from coming twice.

use super::{Agent, loss};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::Control;

impl Agent {
    /// These agents of a child's subtree are linked.
    pub(super) fn on_here(&mut self, branch: AgentId, mut agents: Vec<AgentId>) {
        agents.retain(|agent| self.tree.subtree_contains(branch, *agent));
        for &agent in &agents {
            self.forget_orphan(agent);
            if let Some(links) = &mut self.links.standing {
                links.below.on_here(agent, branch);
            }
        }
        let is_through = |agent: &AgentId| self.links.branch_of(*agent) == Some(branch);
        let through: Vec<AgentId> = agents.iter().copied().filter(is_through).collect();
        self.settle_below(&through, branch);
        let Some(standing) = &mut self.standing else { return };
        match &mut standing.root {
            Some(root) => {
                let moved = root.on_here(&agents);
                self.tell_if_settled();
                self.tell_moved(moved);
            }
            None if self.links.has_up() => {
                self.links.control_up(JobId(0), &Control::Here(agents), &mut self.out);
            }
            // With the link it is said anyway.
            None => {}
        }
    }

    /// The link to a parent is up: the first, or a new one. What the last one may have kept is said again.
    pub(in super::super) fn on_parent_up(&mut self) {
        let (Some(standing), Some(links)) = (&mut self.standing, &self.links.standing) else { return };
        standing.seeking = None;
        let here = Control::Here(std::iter::once(self.config.agent).chain(links.below.here()).collect());
        let reported = standing.reported.iter();
        let missing = reported.map(|(agent, problem)| loss::missing(*agent, problem.clone())).collect::<Vec<_>>();
        self.links.control_up(JobId(0), &here, &mut self.out);
        if !missing.is_empty() {
            self.links.control_up(JobId(0), &Control::Missing(missing), &mut self.out);
        }
    }

    /// These agents are linked below `branch`, and nobody else is to speak for them.
    pub(super) fn settle_below(&mut self, agents: &[AgentId], branch: AgentId) {
        if let Some(links) = &mut self.links.standing {
            agents.iter().for_each(|agent| links.below.settle(*agent, branch));
        }
        self.tell_others(agents, Some(branch));
    }

    /// These agents are linked below `branch`, or not below this agent: other children that they were drawn below need not wait for them.
    pub(super) fn tell_others(&mut self, agents: &[AgentId], branch: Option<AgentId>) {
        for child in self.links.all_children() {
            let is_below = |agent: &AgentId| *agent != child && self.tree.subtree_contains(child, *agent);
            let gone: Vec<AgentId> = agents.iter().copied().filter(is_below).collect();
            if Some(child) != branch && !gone.is_empty() {
                self.links.control_child(child, JobId(0), &Control::Here(gone), &mut self.out);
            }
        }
    }

    /// Agents of this subtree were taken in by somebody further up.
    pub(super) fn on_elsewhere(&mut self, mut agents: Vec<AgentId>) {
        let me = self.config.agent;
        agents.retain(|agent| *agent != me && self.tree.subtree_contains(me, *agent));
        for &agent in &agents {
            if let Some(links) = &mut self.links.standing {
                links.below.on_elsewhere(agent);
            }
            self.forget_orphan(agent);
        }
        self.tell_others(&agents, None);
    }

    /// At the root: agents that were there have a new way.
    fn tell_moved(&mut self, agents: Vec<AgentId>) {
        let Some(root) = self.standing.as_ref().and_then(|standing| standing.root.as_ref()) else { return };
        if agents.is_empty() {
            return;
        }
        let (newest, live) = root.live();
        self.start_again(|agent| agents.contains(&agent));
        self.on_moved(agents, newest, live);
    }

    /// These agents have a new way.
    pub(super) fn on_moved(&mut self, agents: Vec<AgentId>, newest: JobId, live: Vec<JobId>) {
        let pruned = self.early.on_live(newest, &live);
        self.forget_frames_of(pruned);
        let has_moved = agents.contains(&self.config.agent);
        self.links.direct.route_again(|peer| has_moved || agents.contains(&peer));
        self.links.settle_direct(&mut self.out);
        let message = Control::Moved { agents, newest, live };
        for child in self.links.all_children() {
            self.links.control_child(child, JobId(0), &message, &mut self.out);
        }
    }
}
