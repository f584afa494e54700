//! Who is in the session, as one agent knows it: who is lost, who is linked where, who is looked for.
//!
//! ```text
//!   born ──► starts its children ──► Here ↑ (it and who is below)
//!                                    a loss:         Missing ↑, Lost ↓   (`loss`)
//!                                    its parent's:   an orphan           (`orphans`, `moves`)
//!                                    the lost again: Return ↓            (`returns`)
//! ```
//!
//! The root alone knows of all (`nodes`). In a session of one run nobody is ever lost here: the jobs hear of a loss, and end.
//!
//! Cost: for each agent one message up for each level above it, once; for each loss one up and one to every agent.

mod loss;
mod moves;
mod nodes;
mod orphans;
mod returns;
mod seeking;
#[cfg(test)]
mod tests;

use super::inputs::early;
use super::inputs::membership::{Input, Next};
use super::{Effect, Effects, Policy, Routes, View, Whom};
use crate::time::Instant;
pub use nodes::Nodes;
use seeking::Seeking;
use std::collections::{BTreeMap, BTreeSet};
use wireup_coll::tree::Tree;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::{Control, SessionSpec};
use wireup_wire::session::{Ancestor, Kin};

pub struct Membership {
    routes: Routes,
    /// Told to those above as lost, and not heard of since; why.
    reported: BTreeMap<AgentId, String>,
    /// Agents whose parent is lost: they should dial this one by then.
    orphans: BTreeMap<AgentId, Instant>,
    /// This agent's own parent is gone.
    seeking: Option<Seeking>,
    /// Where the parent listens, best first.
    parent: Ancestor,
    /// Those above the parent, the nearest first.
    ancestors: Vec<Ancestor>,
    /// At the root.
    nodes: Option<Nodes>,
}

impl Membership {
    /// With what the agent is told at its birth. `parent`: where it listens.
    pub fn new(me: AgentId, tree: Tree, session: &SessionSpec, parent: Vec<String>, kin: Kin) -> Self {
        Membership {
            routes: Routes::new(me, tree, Policy::of(session), &kin),
            reported: BTreeMap::new(),
            orphans: BTreeMap::new(),
            seeking: None,
            parent: Ancestor { agent: kin.parent, addresses: parent },
            ancestors: kin.ancestors,
            nodes: (me == AgentId(0)).then(|| Nodes::new(session)),
        }
    }

    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// What the root knows of all.
    pub fn nodes(&self) -> Option<&Nodes> {
        self.nodes.as_ref()
    }

    pub fn deadline(&self) -> Option<Instant> {
        let orphans = self.orphans.values().copied();
        orphans.chain(self.seeking.as_ref().and_then(Seeking::deadline)).min()
    }

    /// Entries of all tables, for the simulator's checkers.
    pub fn size(&self) -> usize {
        self.reported.len() + self.orphans.len() + self.routes.len()
    }

    pub fn handle(&mut self, view: &View<'_>, input: Input, fx: &mut Effects) {
        match input {
            Input::AdoptChildrenOf(lost) => adopt_children_of(view, lost, fx),
            Input::TakePlaceOf(lost) => {
                adopt_children_of(view, lost, fx);
                fx.push(next(Next::AwaitBehind(lost)));
            }
            Input::ReportLost(missing) => self.report_lost(view, missing, fx),
            Input::Lost(agent) => self.on_lost(view, agent, fx),
            Input::Return { agents, life } => self.on_return(view, &agents, life, fx),
            Input::Revive => self.revive(fx),
            Input::Linked(child) => self.routes.below.on_linked(child),
            Input::TellState(child) => self.tell_state(view, child, fx),
            Input::Here { branch, agents } => on_here(view, branch, agents, fx),
            Input::Elsewhere(agents) => on_elsewhere(view, agents, fx),
            Input::Moved { agents, newest, live } => on_moved(agents, newest, live, fx),
            Input::ParentUp => self.on_parent_up(view, fx),
            Input::ParentLost => self.on_parent_lost(view, fx),
            Input::RejoinFailed => self.on_rejoin_failed(view, fx),
            Input::Ancestors(ancestors) => self.ancestors = ancestors,
            Input::Orphan { link, agent, life } => self.on_orphan(view, link, agent, life, fx),
            Input::Tick => self.check(view, fx),
            Input::Next(next) => self.go_on(view, next, fx),
        }
    }

    fn go_on(&mut self, view: &View<'_>, next: Next, fx: &mut Effects) {
        match next {
            Next::Adopt { child, lost } => self.adopt(view, child, lost, fx),
            Next::AwaitBehind(lost) => self.await_behind(view, lost),
            Next::TellOthers { agents, branch } => tell_others(view, &agents, branch, fx),
            Next::ForgetOrphan(agent) => self.forget_orphan(agent, fx),
            Next::IsHere { branch, agent } => self.routes.below.on_here(agent, branch),
            Next::SettleHere { branch, agents } => self.settle_here(view, branch, agents, fx),
            Next::IsElsewhere(agent) => {
                self.routes.below.on_elsewhere(agent);
                self.forget_orphan(agent, fx);
            }
            Next::Found { agent, life } => self.routes.find(agent, life),
            Next::StartReturned(agent) => self.start_returned(view, agent, fx),
            Next::CheckSeeking => self.check_seeking(view, fx),
        }
    }

    /// Whether nothing is to be said to an agent any more, as far as is known here.
    fn is_lost(&self, agent: AgentId) -> bool {
        self.routes.is_lost(agent) || self.reported.contains_key(&agent)
    }

    /// What an agent is told at its birth of those around it.
    pub fn kin_of(&self, tree: Tree, me: AgentId, policy: Policy, early: (JobId, Vec<JobId>), child: AgentId) -> Kin {
        if !policy.survives_losses() {
            return Kin::default();
        }
        let is_below = |agent: &AgentId| tree.subtree_contains(child, *agent);
        let there = self.routes.below.there().into_iter().filter(|agent| *agent != child && is_below(agent));
        let is_gone = |agent: &AgentId| is_below(agent) && self.is_lost(*agent);
        let lost = self.routes.lost().chain(self.reported.keys().copied());
        let lost = lost.filter(|agent| *agent != child && is_gone(agent)).collect::<BTreeSet<_>>();
        let (newest, live) = early;
        Kin {
            parent: me,
            ancestors: self.ancestors_of_children(),
            there: there.filter(|agent| !lost.contains(agent)).collect(),
            lost: lost.iter().copied().collect(),
            lives: self.routes.lives().collect(),
            newest,
            live,
        }
    }

    fn ancestors_of_children(&self) -> Vec<Ancestor> {
        // Of the root there are no addresses.
        let known = std::iter::once(self.parent.clone()).chain(self.ancestors.iter().cloned());
        known.filter(|ancestor| !ancestor.addresses.is_empty() && !self.routes.is_lost(ancestor.agent)).collect()
    }
}

/// Each that is nobody's, one after the other: what becomes of one may be news for the next.
fn adopt_children_of(view: &View<'_>, lost: AgentId, fx: &mut Effects) {
    let children = view.tree.children(lost).map(AgentId);
    children.for_each(|child| fx.push(next(Next::Adopt { child, lost })));
}

fn on_here(view: &View<'_>, branch: AgentId, mut agents: Vec<AgentId>, fx: &mut Effects) {
    agents.retain(|agent| view.tree.subtree_contains(branch, *agent));
    for &agent in &agents {
        fx.push(next(Next::ForgetOrphan(agent)));
        fx.push(next(Next::IsHere { branch, agent }));
    }
    fx.push(next(Next::SettleHere { branch, agents }));
}

fn on_elsewhere(view: &View<'_>, mut agents: Vec<AgentId>, fx: &mut Effects) {
    agents.retain(|agent| view.is_strictly_below(view.me, *agent));
    agents.iter().for_each(|agent| fx.push(next(Next::IsElsewhere(*agent))));
    fx.push(next(Next::TellOthers { agents, branch: None }));
}

fn on_moved(agents: Vec<AgentId>, newest: JobId, live: Vec<JobId>, fx: &mut Effects) {
    fx.push(Effect::Early(early::Input::Live { newest, live: live.clone() }));
    fx.push(Effect::RouteAgain(Whom::These(agents.clone())));
    fx.push(Effect::Children(Control::Moved { agents, newest, live }));
}

/// Other children that these agents were drawn below need not wait for them.
fn tell_others(view: &View<'_>, agents: &[AgentId], branch: Option<AgentId>, fx: &mut Effects) {
    for child in view.neighbours.all().filter(|child| Some(*child) != branch) {
        let is_below = |agent: &AgentId| view.is_strictly_below(child, *agent);
        let gone: Vec<AgentId> = agents.iter().copied().filter(is_below).collect();
        if !gone.is_empty() {
            fx.child(child, Control::Here(gone));
        }
    }
}

fn next(next: Next) -> Effect {
    Effect::Membership(Input::Next(next))
}
