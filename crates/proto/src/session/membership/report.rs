//! Reports of an agent about its subtree, up to the root: which agents are linked, which are gone.
//!
//! Each hop keeps what it has forwarded until the root has decided, and repeats it to a new parent, because reports
//! that the previous parent had not forwarded are lost with it. Every report contains an incarnation, so it never
//! affects a later one.

use super::{LiveOf, Membership, News};
use crate::session::Cx;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Gone, MissingAgent};
use wireup_wire::talk::{Control, SessionUp};

impl Membership {
    /// Handles a report that agents are linked; reports about previous incarnations are ignored. Returns whether the
    /// root's table of nodes has changed.
    pub fn on_here(&mut self, cx: &mut Cx, branch: AgentId, mut agents: Vec<(AgentId, u32)>) -> bool {
        let roster = &cx.links.routes.roster;
        agents.retain(|(agent, incarnation)| {
            roster.is_below(branch, *agent) && roster.incarnation(*agent) == *incarnation && !roster.is_lost(*agent)
        });
        if let Some(writer) = &mut self.writer {
            agents.iter().for_each(|(agent, _)| writer.nodes.on_agent_up(*agent));
            return true;
        }
        self.up.extend(agents.iter().map(|(agent, _)| *agent));
        // An agent without a parent reports them once it has one.
        if cx.links.neighbours.has_up() && !agents.is_empty() {
            cx.up(Control::SessionUp(SessionUp::Here(agents)));
        }
        false
    }

    /// This agent has observed that others are gone, or missing.
    pub fn report_lost(&mut self, cx: &mut Cx, live: LiveOf<'_>, missing: Vec<MissingAgent>) -> Vec<News> {
        let roster = &cx.links.routes.roster;
        let gone = |MissingAgent { agent, problem }| {
            let incarnation = roster.incarnation(agent);
            Gone { by: cx.me, agent, incarnation, problem }
        };
        let gone = missing.into_iter().map(gone).collect();
        self.on_gone(cx, live, cx.me, gone)
    }

    /// A child forwards that these agents are gone.
    pub fn on_gone(&mut self, cx: &mut Cx, live: LiveOf<'_>, branch: AgentId, mut gone: Vec<Gone>) -> Vec<News> {
        let roster = &cx.links.routes.roster;
        gone.retain(|gone| {
            roster.is_below(branch, gone.agent)
                && roster.incarnation(gone.agent) == gone.incarnation
                && !roster.is_lost(gone.agent)
        });
        if self.writer.is_some() {
            return self.judge(cx, live, gone);
        }
        for gone in &gone {
            self.up.remove(&gone.agent);
            self.reported.insert(gone.agent, gone.clone());
        }
        if cx.links.neighbours.has_up() && !gone.is_empty() {
            cx.up(Control::SessionUp(SessionUp::Gone(gone)));
        }
        Vec::new()
    }

    /// The parent is linked: the original parent, or the root in its place. Repeats the reports that the previous
    /// parent may not have forwarded.
    pub fn on_parent_up(&mut self, cx: &mut Cx) {
        if !cx.policy.survives_losses() {
            return;
        }
        let roster = &cx.links.routes.roster;
        let here = std::iter::once(cx.me).chain(self.up.iter().copied());
        let here = here.map(|agent| (agent, roster.incarnation(agent))).collect();
        cx.up(Control::SessionUp(SessionUp::Here(here)));
        if !self.reported.is_empty() {
            cx.up(Control::SessionUp(SessionUp::Gone(self.reported.values().cloned().collect())));
        }
    }
}
