//! Lost agents are started again.
//!
//! ```text
//!   launcher: Revive ──► the root: Return { all lost, their next life } ↓ to all ──► the parent of each starts it
//! ```
//!
//! A lost agent whose parent is lost too is started by that one when it is back. Agents that were adopted stay where they are: the one
//! that returns is told who of its subtree is there already.

use super::{Membership, loss, next};
use crate::session::inputs::membership::{Input, Next};
use crate::session::inputs::starter;
use crate::session::{Effect, Effects, Keeper, View};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::Control;

impl Membership {
    pub(super) fn revive(&mut self, fx: &mut Effects) {
        let Some(nodes) = &mut self.nodes else { return };
        let agents = nodes.take_lost();
        if !agents.is_empty() {
            let life = nodes.next_life();
            fx.push(Effect::Membership(Input::Return { agents: agents.clone(), life }));
            fx.push(Effect::Starter(starter::Input::CallStep(agents)));
        }
    }

    /// These agents are started again.
    pub(super) fn on_return(&mut self, view: &View<'_>, agents: &[AgentId], life: u32, fx: &mut Effects) {
        let is_news = |agent: &AgentId| *agent != view.me && life > self.routes.life(*agent);
        let agents: Vec<AgentId> = agents.iter().copied().filter(is_news).collect();
        if agents.is_empty() {
            return;
        }
        for &agent in &agents {
            // Who was out of reach has not heard of the loss.
            fx.push(Effect::Membership(Input::Lost(agent)));
            fx.push(next(Next::Found { agent, life }));
        }
        fx.push(Effect::Children(Control::Return { agents: agents.clone(), life }));
        fx.push(Effect::Starter(starter::Input::Anew));
        // Its parent is started too and starts it then.
        let is_others = |agent: AgentId| view.tree.parent(agent).is_none_or(|parent| agents.contains(&parent));
        for &agent in agents.iter().filter(|agent| !is_others(**agent) && view.is_below_here(**agent)) {
            fx.push(next(Next::StartReturned(agent)));
        }
    }

    /// Its parent starts it, or somebody on the way to it does.
    pub(super) fn start_returned(&mut self, view: &View<'_>, agent: AgentId, fx: &mut Effects) {
        if self.routes.keeper(view.neighbours, agent) == Keeper::Nobody {
            loss::start_child(agent, fx);
        }
    }
}
