//! Handles agents that a remote shell cannot reach: an ancestor is asked to start them, or this agent starts them for
//! an agent below.

use super::{SnapshotOf, Starter};
use crate::session::starts::{Purpose, Wish};
use crate::session::{Effects, View};
use wireup_coll::tree::Hop;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{MissingAgent, Problem};
use wireup_wire::talk::{Control, SessionDown, SessionUp};

impl Starter {
    /// A remote shell did not start its agent. The remote shell of an ancestor may start it.
    pub(super) fn on_start_lost(
        &mut self,
        view: &View<'_>,
        snapshot: SnapshotOf<'_>,
        wish: Wish,
        problem: Problem,
        fx: &mut Effects,
    ) {
        let Wish { agent, jobs, purpose } = wish;
        let is_last = view.is_root() || !self.starts.is_remote();
        match purpose {
            Purpose::Child if !self.children.is_starting(agent) => {}
            // Without an address of this agent it could not link, whichever agent starts it.
            Purpose::Child if is_last || view.addresses.is_empty() => self.on_missing(view, agent, problem, fx),
            Purpose::Child => {
                self.children.on_delegated(agent);
                self.refused.insert(agent, problem.clone());
                let (parent, snapshot) = (view.addresses.to_vec(), Box::new(snapshot()));
                fx.up(Control::SessionUp(SessionUp::StartFor { agent, jobs, parent, problem, snapshot }));
            }
            Purpose::Stead { parent, snapshot, .. } if !is_last => {
                fx.up(Control::SessionUp(SessionUp::StartFor { agent, jobs, parent, problem, snapshot }));
            }
            Purpose::Probe { .. } if !is_last => fx.up(Control::SessionUp(SessionUp::Probe { agent, asker: view.me })),
            Purpose::ProbeFor { asker, .. } if !is_last => fx.up(Control::SessionUp(SessionUp::Probe { agent, asker })),
            Purpose::Stead { .. } | Purpose::Probe { .. } | Purpose::ProbeFor { .. } => {
                self.conclude(view, Wish { agent, jobs, purpose }, problem, fx);
            }
        }
    }

    /// No ancestor can start it.
    pub(super) fn conclude(&mut self, view: &View<'_>, wish: Wish, problem: Problem, fx: &mut Effects) {
        let Wish { agent, purpose, .. } = wish;
        match purpose {
            Purpose::Child => self.on_missing(view, agent, problem, fx),
            Purpose::Stead { branch, .. } => tell_not_started(branch, agent, problem, fx),
            Purpose::Probe { below } => self.on_probed(view, below, agent, Some(problem), fx),
            Purpose::ProbeFor { branch, asker } => {
                fx.child(branch, Control::SessionDown(SessionDown::Probed { agent, asker, problem: Some(problem) }));
            }
        }
    }

    pub(super) fn on_start_for(
        &mut self,
        view: &View<'_>,
        branch: AgentId,
        mut wish: Wish,
        problem: Problem,
        fx: &mut Effects,
    ) {
        let agent = wish.agent;
        if !view.is_strictly_below(branch, agent) {
            return;
        }
        wish.jobs.retain(|id| view.jobs.get(*id).is_some_and(|job| job.has_child(branch)));
        let is_wanted = !wish.jobs.is_empty() || view.policy.starts_all_agents();
        if !is_wanted || view.now >= self.start_by || !self.asked.insert(agent) {
            return tell_not_started(branch, agent, problem, fx);
        }
        self.starts.wish(wish);
    }

    pub(super) fn on_not_started(&mut self, view: &View<'_>, missing: MissingAgent, fx: &mut Effects) {
        if self.children.is_starting(missing.agent) {
            self.on_missing(view, missing.agent, missing.problem, fx);
        } else if let Hop::Child(child) = view.tree.next_hop(view.me, missing.agent) {
            fx.child(child, Control::SessionDown(SessionDown::NotStarted(missing)));
        }
    }
}

pub(super) fn tell_not_started(branch: AgentId, agent: AgentId, problem: Problem, fx: &mut Effects) {
    fx.child(branch, Control::SessionDown(SessionDown::NotStarted(MissingAgent { agent, problem })));
}
