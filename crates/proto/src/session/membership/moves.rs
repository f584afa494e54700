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
//! know the new ones. Frames' numbers (`link/window`) keep what is sent twice from coming twice.

use super::{Membership, next};
use crate::session::inputs::launchers;
use crate::session::inputs::membership::Next;
use crate::session::{Effect, Effects, View};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Control, MissingAgent};

impl Membership {
    /// A child has named these, and each was looked at.
    pub(super) fn settle_here(&mut self, view: &View<'_>, branch: AgentId, agents: Vec<AgentId>, fx: &mut Effects) {
        let is_through = |agent: &AgentId| self.routes.branch_of(view.neighbours, *agent) == Some(branch);
        let through: Vec<AgentId> = agents.iter().copied().filter(is_through).collect();
        self.settle_below(&through, branch, fx);
        match &mut self.nodes {
            Some(nodes) => {
                let moved = nodes.on_here(&agents);
                fx.push(Effect::Launchers(launchers::Input::TellIfSettled));
                fx.push(Effect::Launchers(launchers::Input::Moved(moved)));
            }
            None if view.neighbours.has_up() => fx.up(Control::Here(agents)),
            // With the link it is said anyway.
            None => {}
        }
    }

    /// These agents are linked below `branch`, and nobody else is to speak for them.
    pub(super) fn settle_below(&mut self, agents: &[AgentId], branch: AgentId, fx: &mut Effects) {
        agents.iter().for_each(|agent| self.routes.below.settle(*agent, branch));
        fx.push(next(Next::TellOthers { agents: agents.to_vec(), branch: Some(branch) }));
    }

    /// What the last link up may have kept is said again.
    pub(super) fn on_parent_up(&mut self, view: &View<'_>, fx: &mut Effects) {
        if !view.policy.survives_losses() {
            return;
        }
        self.seeking = None;
        fx.up(Control::Here(std::iter::once(view.me).chain(self.routes.below.here()).collect()));
        let missing = |(agent, problem): (&AgentId, &String)| MissingAgent { agent: *agent, problem: problem.clone() };
        let missing: Vec<_> = self.reported.iter().map(missing).collect();
        if !missing.is_empty() {
            fx.up(Control::Missing(missing));
        }
    }
}
