//! Probes of the hosts below a child that is missing or slow, so that one message names all problems.

use super::Starter;
use crate::session::Cx;
use crate::session::starts::{Purpose, Wish};
use std::collections::BTreeSet;
use wireup_coll::tree::Hop;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::Problem;
use wireup_wire::talk::{Control, SessionDown};

impl Starter {
    /// Probes all hosts below a child that is missing or slow.
    pub(super) fn probe_below(&mut self, cx: &mut Cx, child: AgentId) {
        if self.children.is_probed(child) {
            return;
        }
        let mut below: BTreeSet<AgentId> = cx.tree.subtree(child).filter(|agent| *agent != child).collect();
        if !self.starts.is_remote() || cx.policy.survives_losses() {
            // All agents are on this machine, or the agents below will be started in any case.
            below.clear();
        }
        if cx.is_by_step() {
            self.ask_step(cx, &mut below);
        } else {
            let purpose = || Purpose::Probe { below: child };
            below
                .iter()
                .for_each(|agent| self.starts.wish(Wish { agent: *agent, jobs: Vec::new(), purpose: purpose() }));
        }
        self.children.on_probing(child, below);
    }

    pub(super) fn on_probed(&mut self, cx: &mut Cx, below: AgentId, agent: AgentId, problem: Option<Problem>) {
        self.children.on_probed(below, agent, problem);
        let missing = self.children.take_unreachable(below);
        if !missing.is_empty() || self.children.is_settled(below) {
            self.report_missing(cx, below, missing);
        }
    }

    /// A host answered, or is not probed any more.
    pub(super) fn on_reached(&mut self, cx: &mut Cx, wish: &Wish) {
        match wish.purpose {
            Purpose::Probe { below } => self.on_probed(cx, below, wish.agent, None),
            Purpose::ProbeFor { branch, asker } => {
                cx.child(branch, Control::SessionDown(SessionDown::Probed { agent: wish.agent, asker, problem: None }));
            }
            Purpose::Child | Purpose::Stead { .. } => {}
        }
    }

    /// An agent in a child's subtree requests a probe of a host below it.
    pub fn on_probe_for(&mut self, cx: &mut Cx, branch: AgentId, agent: AgentId, asker: AgentId) {
        if !cx.tree.subtree_contains(branch, asker) || !cx.is_strictly_below(asker, agent) {
            return;
        }
        if cx.is_by_step() {
            return self.on_step_asked(cx, branch, agent, asker);
        }
        if cx.now >= cx.start_by || !self.asked_about.insert((agent, asker)) {
            return cx.child(branch, Control::SessionDown(SessionDown::Probed { agent, asker, problem: None }));
        }
        self.starts.wish(Wish { agent, jobs: Vec::new(), purpose: Purpose::ProbeFor { branch, asker } });
    }

    /// An ancestor reports the result of a probe.
    pub fn on_probed_above(&mut self, cx: &mut Cx, agent: AgentId, asker: AgentId, problem: Option<Problem>) {
        match cx.tree.next_hop(cx.me, asker) {
            Hop::Child(branch) => cx.child(branch, Control::SessionDown(SessionDown::Probed { agent, asker, problem })),
            Hop::Here => {
                if let Hop::Child(below) = cx.tree.next_hop(asker, agent) {
                    self.on_probed(cx, below, agent, problem);
                }
            }
            Hop::Parent => {}
        }
    }
}
