//! Carries out the root's decisions on each agent, in order.
//!
//! A decision is forwarded to the children before anything else is done about it: so a child always knows at least as
//! much as the sender of any frame that reaches it through this agent. And everything that follows from one decision is
//! done before the next: so nothing meant for one incarnation reaches a later one.

use super::Membership;
use crate::job::JobInput;
use crate::session::inputs::{agreement, early, membership::Input, starter};
use crate::session::{Effect, Effects, View};
use wireup_wire::ids::AgentId;
use wireup_wire::session::{Entry, Log};
use wireup_wire::talk::{Control, SessionDown};

impl Membership {
    pub(super) fn on_log(&mut self, view: &View<'_>, mut log: Log, fx: &mut Effects) {
        let known = self.routes.roster.at();
        if log.at > known {
            // A correct parent leaves out nothing. An agent that lacks a decision cannot take part.
            return fx.push(Effect::Leave);
        }
        if let Some(link) = self.seeking.take().and_then(|seeking| seeking.link) {
            self.linked_to = AgentId(0);
            fx.push(Effect::TakenIn(link));
        }
        fx.push(Effect::Early(early::Input::Live { newest: log.newest, live: log.live.clone() }));
        let mut news = log.entries.split_off(log.entries.len().min((known - log.at) as usize));
        let rest = news.split_off(news.len().min(1));
        let has_moved = log.has_moved && rest.is_empty();
        if news.is_empty() && !has_moved {
            return;
        }
        fx.push(Effect::Children(Control::SessionDown(SessionDown::Log(Log {
            at: known,
            entries: news.clone(),
            has_moved,
            ..log.clone()
        }))));
        match news.first() {
            Some(Entry::Lost(agents)) if agents.contains(&view.me) => {
                // The others continue without this agent.
                return fx.push(Effect::Leave);
            }
            Some(entry @ Entry::Lost(agents)) => drop(self.follow_loss(view, entry, agents, fx)),
            Some(entry @ Entry::Return(agents)) => self.follow_return(view, entry, agents, fx),
            None => {}
        }
        if !rest.is_empty() {
            let rest = Log { at: self.routes.roster.at(), entries: rest, ..log };
            fx.push(Effect::Membership(Input::Log(rest)));
        } else if has_moved {
            // Frames that took the old path when this decision was already known are sent again too.
            fx.push(Effect::RouteAgain(view.me));
        }
    }

    /// Carries out a loss; returns the agents that the root has to adopt.
    pub(super) fn follow_loss(
        &mut self,
        view: &View<'_>,
        entry: &Entry,
        agents: &[AgentId],
        fx: &mut Effects,
    ) -> Vec<AgentId> {
        let moved = self.routes.roster.apply(entry);
        let roster = &self.routes.roster;
        let is_ours = |agent: AgentId| !roster.is_lost(agent) && roster.is_below(view.me, agent);
        self.up.retain(|agent| is_ours(*agent));
        self.reported.retain(|agent, _| is_ours(*agent));
        if self.writer.is_some() {
            // Frames that are sent again to the adopted agents wait for their links.
            moved.iter().for_each(|child| fx.push(Effect::Expect(*child)));
        }
        for &agent in agents {
            // Messages that still arrive about the lost agent must not be attributed to its next incarnation.
            fx.push(Effect::Starter(starter::Input::Lost(agent)));
            if view.neighbours.has_child(agent) {
                // The lost agent's link may work, but the others continue without it.
                fx.push(Effect::Cut(agent));
            }
            fx.jobs(view.jobs.ids(), || JobInput::AgentLost(agent));
            fx.push(Effect::LoseDirect(agent));
            fx.push(Effect::RouteAgain(agent));
        }
        fx.push(Effect::Agreement(agreement::Input::Lost));
        moved
    }

    /// Agents are started again, some of them by this agent.
    pub(super) fn follow_return(&mut self, view: &View<'_>, entry: &Entry, agents: &[AgentId], fx: &mut Effects) {
        self.routes.roster.apply(entry);
        if agents.iter().any(|agent| self.routes.roster.is_below(view.me, *agent)) {
            fx.push(Effect::Starter(starter::Input::Anew));
        }
        for &agent in agents.iter().filter(|agent| self.routes.roster.parent(**agent) == Some(view.me)) {
            fx.push(Effect::Starter(starter::Input::Start(agent)));
        }
    }
}
