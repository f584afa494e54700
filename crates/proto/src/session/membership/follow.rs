//! Carries out the root's decisions on each agent, in order.
//!
//! A decision is forwarded to the children before anything else is done about it: so a child always knows at least as
//! much as the sender of any frame that reaches it through this agent. And an agent below the root finishes one
//! decision before it records the next: so nothing meant for one incarnation reaches a later one.

use super::{Membership, News, Unfit};
use crate::io::LinkId;
use crate::session::Cx;
use wireup_wire::ids::AgentId;
use wireup_wire::session::{Entry, Log};
use wireup_wire::talk::{Control, SessionDown};

impl Membership {
    /// A part of the log arrives. If it confirms that the root has adopted this agent, returns the link to the root.
    ///
    /// # Errors
    /// This agent lacks a decision, and cannot take part: a correct parent leaves out nothing.
    pub fn on_log(&mut self, cx: &Cx, log: &Log) -> Result<Option<LinkId>, Unfit> {
        if log.at > cx.links.routes.roster.at() {
            return Err(Unfit);
        }
        let link = self.seeking.take().and_then(|seeking| seeking.link);
        if link.is_some() {
            self.linked_to = AgentId(0);
        }
        Ok(link)
    }

    /// Records the next decision in this part of the log, and forwards it to the children. Returns what the decision
    /// means to the agent's other parts; `None`: no decision is left.
    pub fn next_decision(&mut self, cx: &mut Cx, log: &mut Log) -> Option<News> {
        let known = cx.links.routes.roster.at();
        log.entries.drain(..log.entries.len().min((known - log.at) as usize));
        let has_moved = log.entries.len() <= 1 && log.has_moved;
        let entry = (!log.entries.is_empty()).then(|| log.entries.remove(0));
        log.at = known + u32::from(entry.is_some());
        if entry.is_some() || has_moved {
            let next = Log { at: known, entries: entry.iter().cloned().collect(), has_moved, ..log.clone() };
            cx.children(Control::SessionDown(SessionDown::Log(next)));
            log.has_moved &= !has_moved;
        }
        match entry? {
            Entry::Lost(agents) if agents.contains(&cx.me) => {
                *log = Log { at: known, ..Log::default() };
                Some(News::Dismissed)
            }
            entry @ Entry::Lost(_) => {
                self.follow_loss(cx, &entry);
                let Entry::Lost(agents) = entry else { return None };
                Some(News::Lost(agents))
            }
            Entry::Return(agents) => Some(self.follow_return(cx, &Entry::Return(agents.clone()), agents)),
        }
    }

    /// Records a loss; returns the agents that the root has to adopt.
    pub(super) fn follow_loss(&mut self, cx: &mut Cx, entry: &Entry) -> Vec<AgentId> {
        let moved = cx.links.routes.roster.apply(entry);
        let roster = &cx.links.routes.roster;
        let is_ours = |agent: AgentId| !roster.is_lost(agent) && roster.is_below(cx.me, agent);
        self.up.retain(|agent| is_ours(*agent));
        self.reported.retain(|agent, _| is_ours(*agent));
        if self.writer.is_some() {
            // Frames that are sent again to the adopted agents wait for their links.
            moved.iter().for_each(|child| cx.links.neighbours.expect(*child));
        }
        moved
    }

    /// Records that agents are started again, some of them by this agent.
    pub(super) fn follow_return(&mut self, cx: &mut Cx, entry: &Entry, agents: Vec<AgentId>) -> News {
        cx.links.routes.roster.apply(entry);
        let roster = &cx.links.routes.roster;
        let are_below = agents.iter().any(|agent| roster.is_below(cx.me, *agent));
        let own = agents.iter().filter(|agent| roster.parent(**agent) == Some(cx.me)).copied().collect();
        News::Returned { agents, own, are_below }
    }
}
