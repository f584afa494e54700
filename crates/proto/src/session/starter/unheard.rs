//! Agents below a missing one about which a step has reported nothing: no other agent waits for them.
//!
//! ```text
//!   parent of the missing agent ── Probe, for each agent below it ──► root, which hears of all tasks
//!                               ◄── Probed ──────────────────────────   it has started, is reported, or is too late
//! ```
//!
//! So one message names all problems. Cost: as for probing hosts (`probes`), without a remote shell.

use super::Starter;
use super::by_step::NOT_BEGUN;
use super::ends::too_late;
use crate::session::Cx;
use std::collections::BTreeSet;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::Problem;
use wireup_wire::talk::{Control, SessionDown, SessionUp};

impl Starter {
    /// Asks about these agents, which are below a missing or slow child. Removes those about which nothing more can be
    /// learned.
    pub(super) fn ask_step(&mut self, cx: &mut Cx, below: &mut BTreeSet<AgentId>) {
        if cx.is_root() {
            below.retain(|agent| self.steps.is_unheard(*agent));
            below.iter().for_each(|agent| self.steps.ask(*agent, cx.me));
        } else {
            below.iter().for_each(|agent| cx.up(Control::SessionUp(SessionUp::Probe { agent: *agent, asker: cx.me })));
        }
    }

    pub(super) fn on_step_asked(&mut self, cx: &mut Cx, branch: AgentId, agent: AgentId, asker: AgentId) {
        if !cx.is_root() {
            cx.up(Control::SessionUp(SessionUp::Probe { agent, asker }));
        } else if self.steps.is_unheard(agent) {
            self.steps.ask(agent, asker);
        } else {
            cx.child(branch, Control::SessionDown(SessionDown::Probed { agent, asker, problem: None }));
        }
    }

    /// Answers the agents that asked about `agent` that they need not report it: it has started, or its jobs know that
    /// it is missing.
    pub(super) fn on_task_known(&mut self, cx: &mut Cx, agent: AgentId) {
        self.answer_asked(cx, |asked| asked == agent, None);
    }

    /// Reports the agents that have not started in time to the agents that asked about them.
    pub(super) fn name_unheard(&mut self, cx: &mut Cx) {
        let problem = too_late(cx, NOT_BEGUN);
        self.answer_asked(cx, |_| true, Some(problem.into()));
    }

    /// Answers all open questions about agents as if there were no problem: the jobs are ending, so nobody needs the
    /// results.
    pub(super) fn forget_unheard(&mut self, cx: &mut Cx) {
        self.answer_asked(cx, |_| true, None);
    }

    fn answer_asked(&mut self, cx: &mut Cx, which: impl Fn(AgentId) -> bool, problem: Option<Problem>) {
        for (agent, asker) in self.steps.take_asked(which) {
            self.on_probed_above(cx, agent, asker, problem.clone());
        }
    }
}
