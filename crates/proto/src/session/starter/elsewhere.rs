//! Handles agents that a remote shell cannot reach: an ancestor is asked to start them, or this agent starts them for
//! an agent below.

use super::{SnapshotOf, Starter};
use crate::session::Cx;
use crate::session::starts::{Purpose, Wish};
use wireup_coll::tree::Hop;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{MissingAgent, Problem};
use wireup_wire::talk::{Control, SessionDown, SessionUp};

impl Starter {
    /// A remote shell did not start its agent. The remote shell of an ancestor may start it.
    pub(super) fn on_start_lost(&mut self, cx: &mut Cx, snapshot: SnapshotOf<'_>, wish: Wish, problem: Problem) {
        let Wish { agent, jobs, purpose } = wish;
        let is_last = cx.is_root() || !self.starts.is_remote();
        match purpose {
            Purpose::Child if !self.children.is_starting(agent) => {}
            // Without an address of this agent it could not link, whichever agent starts it.
            Purpose::Child if is_last || cx.links.addresses().is_empty() => self.on_missing(cx, agent, problem),
            Purpose::Child => {
                self.children.on_delegated(agent);
                self.refused.insert(agent, problem.clone());
                let (parent, snapshot) = (cx.links.addresses().to_vec(), Box::new(snapshot(cx)));
                cx.up(Control::SessionUp(SessionUp::StartFor { agent, jobs, parent, problem, snapshot }));
            }
            Purpose::Stead { parent, snapshot, .. } if !is_last => {
                cx.up(Control::SessionUp(SessionUp::StartFor { agent, jobs, parent, problem, snapshot }));
            }
            Purpose::Probe { .. } if !is_last => cx.up(Control::SessionUp(SessionUp::Probe { agent, asker: cx.me })),
            Purpose::ProbeFor { asker, .. } if !is_last => cx.up(Control::SessionUp(SessionUp::Probe { agent, asker })),
            Purpose::Stead { .. } | Purpose::Probe { .. } | Purpose::ProbeFor { .. } => {
                self.conclude(cx, Wish { agent, jobs, purpose }, problem);
            }
        }
    }

    /// Gives up a wish that neither this agent nor an ancestor can fulfil, and reports the problem to whoever made the
    /// wish.
    pub(super) fn conclude(&mut self, cx: &mut Cx, wish: Wish, problem: Problem) {
        let Wish { agent, purpose, .. } = wish;
        match purpose {
            Purpose::Child => self.on_missing(cx, agent, problem),
            Purpose::Stead { branch, .. } => tell_not_started(cx, branch, agent, problem),
            Purpose::Probe { below } => self.on_probed(cx, below, agent, Some(problem)),
            Purpose::ProbeFor { branch, asker } => {
                cx.child(branch, Control::SessionDown(SessionDown::Probed { agent, asker, problem: Some(problem) }));
            }
        }
    }

    /// A child requests the start of an agent in its subtree.
    pub fn on_start_for(&mut self, cx: &mut Cx, branch: AgentId, mut wish: Wish, problem: Problem) {
        let agent = wish.agent;
        if !cx.is_strictly_below(branch, agent) {
            return;
        }
        wish.jobs.retain(|id| cx.jobs.get(*id).is_some_and(|job| job.has_child(branch)));
        let is_wanted = !wish.jobs.is_empty() || cx.policy.starts_all_agents();
        if !is_wanted || cx.now >= cx.start_by || !self.asked.insert(agent) {
            return tell_not_started(cx, branch, agent, problem);
        }
        self.starts.wish(wish);
    }

    /// No ancestor could start this agent.
    pub fn on_not_started(&mut self, cx: &mut Cx, missing: MissingAgent) {
        if self.children.is_starting(missing.agent) {
            self.on_missing(cx, missing.agent, missing.problem);
        } else if let Hop::Child(child) = cx.tree.next_hop(cx.me, missing.agent) {
            cx.child(child, Control::SessionDown(SessionDown::NotStarted(missing)));
        }
    }
}

pub(super) fn tell_not_started(cx: &mut Cx, branch: AgentId, agent: AgentId, problem: Problem) {
    cx.child(branch, Control::SessionDown(SessionDown::NotStarted(MissingAgent { agent, problem })));
}
