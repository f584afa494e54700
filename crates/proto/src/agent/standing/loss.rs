//! An agent is lost: it is named, its jobs end, and the tree closes around it.
//!
//! ```text
//!   its parent:  Missing ↑ ──► the root: Lost ↓ to all ──► each: ends its jobs with that agent, forgets it, and sends again what
//!       │                         │                         went through the tree by way of it
//!       │                         └── Start ↓ again, of jobs that have nodes behind it
//!       └── takes its children's place: those that were there dial it (`orphans`), others it starts itself
//! ```
//!
//! A broken link counts as a lost agent, whatever is the case: two agents that do not hear each other cannot both go on, and the one
//! further down is the one that is told to leave when it is heard again. What is said of a loss is said again over every new link
//! up, until the root has told it to all. Numbers of frames (`links/direct/window`) keep what is sent twice from coming twice.

use super::Agent;
use crate::job::JobInput;
use crate::links::Keeper;
use crate::time::Instant;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::{Cause, Control, MissingAgent};

pub fn missing(agent: AgentId, problem: String) -> MissingAgent {
    MissingAgent { agent, problem }
}

impl Agent {
    /// An agent of the subtree is gone; those above are to know.
    pub(in super::super) fn report_lost(&mut self, now: Instant, agent: AgentId, problem: String) {
        if self.is_root() {
            return self.confirm_lost(now, agent, problem);
        }
        if self.links.is_lost(agent) {
            return;
        }
        let Some(standing) = &mut self.standing else { return };
        standing.reported.insert(agent, problem.clone());
        if self.links.has_up() {
            self.links.control_up(JobId(0), &Control::Missing(vec![missing(agent, problem)]), &mut self.out);
        }
    }

    /// The root hears of a loss and tells everybody.
    fn confirm_lost(&mut self, now: Instant, agent: AgentId, problem: String) {
        let Some(root) = self.standing.as_mut().and_then(|standing| standing.root.as_mut()) else { return };
        if !root.on_lost(agent, &problem) {
            return;
        }
        let cause = Cause::AgentLost { agent, problem };
        self.tell_jobs_where(now, |job| job.has_agent(agent), || JobInput::AgentFailed { agent, cause: cause.clone() });
        self.on_lost(now, agent);
        let tree = self.tree;
        self.start_again(|other| tree.subtree_contains(agent, other));
        self.tell_if_settled();
    }

    /// The root has said that an agent is lost.
    pub(super) fn on_lost(&mut self, now: Instant, agent: AgentId) {
        if agent == self.config.agent {
            // The others go on without this one.
            return self.leave();
        }
        let (Some(standing), Some(links)) = (&mut self.standing, &mut self.links.standing) else { return };
        links.below.forget(agent);
        standing.reported.remove(&agent);
        standing.orphans.remove(&agent);
        if !self.links.lose(agent) {
            return;
        }
        for child in self.links.all_children() {
            self.links.control_child(child, JobId(0), &Control::Lost { agent }, &mut self.out);
        }
        if self.links.child(agent).is_some() || self.links.expects(agent) {
            // Its link may work, but somebody cannot do without another one.
            self.children.on_lost(agent);
            self.give_up_child(agent);
            self.links.cut_child(agent, &mut self.out);
            self.take_place_of(now, agent);
        } else if self.tree.subtree_contains(self.config.agent, agent) && self.links.keeper(agent) == Keeper::Nobody {
            // It was linked to somebody further up, who does not start those that return while this agent is there.
            self.adopt_children_of(now, agent);
        }
        self.tell_all_jobs(now, || JobInput::AgentLost(agent));
        let (me, tree) = (self.config.agent, self.tree);
        let is_behind = tree.subtree_contains(agent, me);
        self.links.direct.lose(agent);
        self.links.direct.route_again(|peer| is_behind || tree.subtree_contains(agent, peer));
        self.links.settle_direct(&mut self.out);
    }

    /// A child is lost, or was never there: this agent takes its place.
    pub(in super::super) fn take_place_of(&mut self, now: Instant, lost: AgentId) {
        self.adopt_children_of(now, lost);
        let until = self.rejoin_by(now);
        let (Some(standing), Some(links)) = (&mut self.standing, &self.links.standing) else { return };
        // Some that it had adopted may have been lost before, and nobody else knows.
        let is_awaited = |agent: &AgentId| !links.lost.contains(agent) && self.links.branch_of(*agent).is_none();
        let behind = links.below.behind(lost).filter(is_awaited);
        for agent in behind {
            standing.orphans.entry(agent).or_insert(until);
        }
    }

    /// Those that were drawn below an agent, this one or a lost one, become this one's children if they are nobody's.
    pub(super) fn adopt_children_of(&mut self, now: Instant, lost: AgentId) {
        for child in self.tree.children(lost).map(AgentId) {
            let Some(links) = &self.links.standing else { return };
            let was_here = links.below.branches_of(child).next().is_some();
            if self.is_lost(child) {
                self.adopt_children_of(now, child);
            } else if self.links.has_child(child) || self.links.branch_of(child).is_some() {
                // It is this agent's already, or another child's.
            } else if was_here {
                self.expect_orphan(now, child);
            } else if self.links.keeper(child) == Keeper::Above {
                // It is another's, or what is above it is.
            } else if self.leaving.is_none() {
                if lost != self.config.agent {
                    self.start_by = self.start_by.max(now + self.config.session.start_timeout_ns);
                }
                self.start_child(now, child, None);
                self.tell_others(&[child], Some(child));
            }
        }
    }
}
