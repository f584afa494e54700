//! Probes of the hosts below a child that is missing or slow, so that one message names all problems.

use super::Starter;
use crate::session::starts::{Purpose, Wish};
use crate::session::{Effects, View};
use std::collections::BTreeSet;
use wireup_coll::tree::Hop;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::Problem;
use wireup_wire::talk::{Control, SessionDown};

impl Starter {
    /// Probes all hosts below a child that is missing or slow.
    pub(super) fn probe_below(&mut self, view: &View<'_>, child: AgentId, fx: &mut Effects) {
        if self.children.is_probed(child) {
            return;
        }
        let mut below: BTreeSet<AgentId> = view.tree.subtree(child).filter(|agent| *agent != child).collect();
        if !self.starts.is_remote() || view.policy.survives_losses() {
            // All agents are on this machine, or the agents below will be started in any case.
            below.clear();
        }
        if view.is_by_step() {
            self.ask_step(view, &mut below, fx);
        } else {
            let purpose = || Purpose::Probe { below: child };
            below
                .iter()
                .for_each(|agent| self.starts.wish(Wish { agent: *agent, jobs: Vec::new(), purpose: purpose() }));
        }
        self.children.on_probing(child, below);
    }

    pub(super) fn on_probed(
        &mut self,
        view: &View<'_>,
        below: AgentId,
        agent: AgentId,
        problem: Option<Problem>,
        fx: &mut Effects,
    ) {
        self.children.on_probed(below, agent, problem);
        let missing = self.children.take_unreachable(below);
        if !missing.is_empty() || self.children.is_settled(below) {
            self.report_missing(view, below, missing, fx);
        }
    }

    /// A host answered, or is not probed any more.
    pub(super) fn on_reached(&mut self, view: &View<'_>, wish: &Wish, fx: &mut Effects) {
        match wish.purpose {
            Purpose::Probe { below } => self.on_probed(view, below, wish.agent, None, fx),
            Purpose::ProbeFor { branch, asker } => {
                fx.child(branch, Control::SessionDown(SessionDown::Probed { agent: wish.agent, asker, problem: None }));
            }
            Purpose::Child | Purpose::Stead { .. } => {}
        }
    }

    pub(super) fn on_probe_for(
        &mut self,
        view: &View<'_>,
        branch: AgentId,
        agent: AgentId,
        asker: AgentId,
        fx: &mut Effects,
    ) {
        if !view.tree.subtree_contains(branch, asker) || !view.is_strictly_below(asker, agent) {
            return;
        }
        if view.is_by_step() {
            return self.on_step_asked(view, branch, agent, asker, fx);
        }
        if view.now >= self.start_by || !self.asked_about.insert((agent, asker)) {
            return fx.child(branch, Control::SessionDown(SessionDown::Probed { agent, asker, problem: None }));
        }
        self.starts.wish(Wish { agent, jobs: Vec::new(), purpose: Purpose::ProbeFor { branch, asker } });
    }

    pub(super) fn on_probed_above(
        &mut self,
        view: &View<'_>,
        agent: AgentId,
        asker: AgentId,
        problem: Option<Problem>,
        fx: &mut Effects,
    ) {
        match view.tree.next_hop(view.me, asker) {
            Hop::Child(branch) => fx.child(branch, Control::SessionDown(SessionDown::Probed { agent, asker, problem })),
            Hop::Here => {
                if let Hop::Child(below) = view.tree.next_hop(asker, agent) {
                    self.on_probed(view, below, agent, problem, fx);
                }
            }
            Hop::Parent => {}
        }
    }
}
