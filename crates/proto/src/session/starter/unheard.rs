//! Agents that a step was called for and has said nothing of, behind one that is missing: nobody else waits for them.
//!
//! ```text
//!   whose child is missing ── Probe, of each behind it ──► root      which hears of all tasks
//!                          ◄── Probed ────────────────────           it has begun, or is named, or its time is over
//! ```
//!
//! So one message names all that is wrong. Cost: as that of asking hosts (`probes`), without a remote shell.

use super::Starter;
use super::by_step::NOT_BEGUN;
use super::ends::too_late;
use crate::session::{Effects, View};
use std::collections::BTreeSet;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::Control;

impl Starter {
    /// Asks for these agents, behind a child that is in doubt. Those that nobody can say more of are taken out.
    pub(super) fn ask_step(&mut self, view: &View<'_>, below: &mut BTreeSet<AgentId>, fx: &mut Effects) {
        if view.is_root() {
            below.retain(|agent| self.steps.is_unheard(*agent));
            below.iter().for_each(|agent| self.steps.ask(*agent, view.me));
        } else {
            below.iter().for_each(|agent| fx.up(Control::Probe { agent: *agent, asker: view.me }));
        }
    }

    pub(super) fn on_step_asked(
        &mut self,
        view: &View<'_>,
        branch: AgentId,
        agent: AgentId,
        asker: AgentId,
        fx: &mut Effects,
    ) {
        if !view.is_root() {
            fx.up(Control::Probe { agent, asker });
        } else if self.steps.is_unheard(agent) {
            self.steps.ask(agent, asker);
        } else {
            fx.child(branch, Control::Probed { agent, asker, problem: None });
        }
    }

    /// Whoever asked about an agent need not name it: it has begun, or its jobs miss it.
    pub(super) fn on_task_known(&mut self, view: &View<'_>, agent: AgentId, fx: &mut Effects) {
        self.answer_asked(view, |asked| asked == agent, None, fx);
    }

    /// Their time is over.
    pub(super) fn name_unheard(&mut self, view: &View<'_>, fx: &mut Effects) {
        let problem = too_late(view, NOT_BEGUN);
        self.answer_asked(view, |_| true, Some(problem), fx);
    }

    /// The jobs end: nobody wants to know any more.
    pub(super) fn forget_unheard(&mut self, view: &View<'_>, fx: &mut Effects) {
        self.answer_asked(view, |_| true, None, fx);
    }

    fn answer_asked(
        &mut self,
        view: &View<'_>,
        which: impl Fn(AgentId) -> bool,
        problem: Option<String>,
        fx: &mut Effects,
    ) {
        for (agent, asker) in self.steps.take_asked(which) {
            self.on_probed_above(view, agent, asker, problem.clone(), fx);
        }
    }
}
