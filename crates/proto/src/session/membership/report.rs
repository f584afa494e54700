//! Reports of an agent about its subtree, up to the root: which agents are linked, which are gone.
//!
//! Each hop keeps what it has forwarded until the root has decided, and repeats it to a new parent, because reports
//! that the previous parent had not forwarded are lost with it. Every report contains an incarnation, so it never
//! affects a later one.

use super::{LiveOf, Membership};
use crate::session::inputs::{agreement, membership, starter};
use crate::session::{Effect, Effects, View};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Gone, MissingAgent};
use wireup_wire::talk::{Control, SessionUp};

impl Membership {
    pub(super) fn begin(&mut self, view: &View<'_>, fx: &mut Effects) {
        for child in self.routes.roster.children(view.me) {
            fx.push(Effect::Starter(starter::Input::Start(child)));
        }
        if view.policy.survives_losses() {
            self.tell_nodes(fx);
        }
    }

    pub(super) fn on_linked(&mut self, view: &View<'_>, child: AgentId, fx: &mut Effects) {
        if view.policy.survives_losses() {
            let incarnation = self.routes.roster.incarnation(child);
            fx.push(Effect::Agreement(agreement::Input::Tell(child)));
            fx.push(Effect::Membership(membership::Input::Here { branch: child, agents: vec![(child, incarnation)] }));
        }
    }

    /// Handles a report that agents are linked; reports about previous incarnations are ignored.
    pub(super) fn on_here(
        &mut self,
        view: &View<'_>,
        branch: AgentId,
        mut agents: Vec<(AgentId, u32)>,
        fx: &mut Effects,
    ) {
        let roster = &self.routes.roster;
        agents.retain(|(agent, incarnation)| {
            roster.is_below(branch, *agent) && roster.incarnation(*agent) == *incarnation && !roster.is_lost(*agent)
        });
        if self.writer.is_some() {
            return self.note_up(agents.iter().map(|(agent, _)| *agent), fx);
        }
        self.up.extend(agents.iter().map(|(agent, _)| *agent));
        // An agent without a parent reports them once it has one.
        if view.neighbours.has_up() && !agents.is_empty() {
            fx.up(Control::SessionUp(SessionUp::Here(agents)));
        }
    }

    /// This agent has observed that another one is gone, or missing.
    pub(super) fn report_lost(&mut self, view: &View<'_>, live: LiveOf<'_>, missing: MissingAgent, fx: &mut Effects) {
        let MissingAgent { agent, problem } = missing;
        let gone = Gone { by: view.me, agent, incarnation: self.routes.roster.incarnation(agent), problem };
        self.on_gone(view, live, view.me, vec![gone], fx);
    }

    pub(super) fn on_gone(
        &mut self,
        view: &View<'_>,
        live: LiveOf<'_>,
        branch: AgentId,
        mut gone: Vec<Gone>,
        fx: &mut Effects,
    ) {
        let roster = &self.routes.roster;
        gone.retain(|gone| {
            roster.is_below(branch, gone.agent)
                && roster.incarnation(gone.agent) == gone.incarnation
                && !roster.is_lost(gone.agent)
        });
        if self.writer.is_some() {
            return self.judge(view, live, gone, fx);
        }
        for gone in &gone {
            self.up.remove(&gone.agent);
            self.reported.insert(gone.agent, gone.clone());
        }
        if view.neighbours.has_up() && !gone.is_empty() {
            fx.up(Control::SessionUp(SessionUp::Gone(gone)));
        }
    }

    /// Repeats the reports that the previous parent may not have forwarded.
    pub(super) fn on_parent_up(&mut self, view: &View<'_>, fx: &mut Effects) {
        if !view.policy.survives_losses() {
            return;
        }
        let roster = &self.routes.roster;
        let here = std::iter::once(view.me).chain(self.up.iter().copied());
        fx.up(Control::SessionUp(SessionUp::Here(here.map(|agent| (agent, roster.incarnation(agent))).collect())));
        if !self.reported.is_empty() {
            fx.up(Control::SessionUp(SessionUp::Gone(self.reported.values().cloned().collect())));
        }
    }
}
