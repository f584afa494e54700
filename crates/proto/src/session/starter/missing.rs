//! A child is missing: it has not linked and never will.

use super::Starter;
use crate::job::JobInput;
use crate::session::inputs::membership;
use crate::session::{Effect, Effects, View};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::MissingAgent;

impl Starter {
    pub(super) fn on_missing(&mut self, view: &View<'_>, child: AgentId, problem: String, fx: &mut Effects) {
        self.on_missing_with(view, child, problem, Vec::new(), fx);
    }

    /// The same; `below` are known to be missing too.
    pub(super) fn on_missing_with(
        &mut self,
        view: &View<'_>,
        child: AgentId,
        problem: String,
        below: Vec<MissingAgent>,
        fx: &mut Effects,
    ) {
        if !self.children.is_starting(child) || !self.children.on_lost(child) {
            return;
        }
        fx.push(Effect::Forget(child));
        if view.policy.survives_losses() {
            return fx.push(Effect::Membership(membership::Input::ReportLost(MissingAgent { agent: child, problem })));
        }
        if view.now < self.start_by {
            self.probe_below(view, child, fx);
        }
        let mut missing = vec![MissingAgent { agent: child, problem }];
        missing.extend(below);
        missing.extend(self.children.take_unreachable(child));
        self.report_missing(view, child, missing, fx);
    }

    pub(super) fn report_missing(&self, view: &View<'_>, child: AgentId, missing: Vec<MissingAgent>, fx: &mut Effects) {
        let settled = self.children.is_settled(child);
        let input = || JobInput::ChildMissing { agent: child, settled, missing: missing.clone() };
        fx.jobs(view.jobs.of_child(child), input);
    }

    pub(super) fn forget_starting(&mut self, view: &View<'_>, child: AgentId, fx: &mut Effects) {
        self.children.on_lost(child);
        fx.push(Effect::Forget(child));
        let input = || JobInput::ChildMissing { agent: child, settled: true, missing: Vec::new() };
        fx.jobs(view.jobs.ids(), input);
    }
}
