//! The membership of the session.
//!
//! Only the root decides about it. Its decisions are a log of `Entry`: agents are lost, or are started again. Each agent folds the prefix
//! of the log that has reached it into a tree (`Roster`); so there is nothing to merge.
//!
//! ```text
//!   an agent links      Here ↑ ──────────────► the root: it is up
//!   its link breaks     Gone ↑ (its parent) ─► the root: Lost ↓ to all ──► its jobs end; the root adopts its children
//!   its children        dial the root, which adopts them, each with its subtree
//!   a launcher asks     Revive ──────────────► the root: Return ↓ to all ─► its new parent starts it as a new incarnation
//! ```
//!
//! `report` sends events in the subtree up to the root; `decide` is the root's part, with its log (`writer`); `follow` carries out
//! decisions on each agent; `search` is an agent that has lost its parent (`seeking`); `nodes` is the state of nodes for launchers.
//!
//! In a session of one run no agent is lost here: a loss is reported to the jobs, which end.
//!
//! Cost: for each agent one message up per level above it, once; for each loss one message up, one to every agent, and one dial per child
//! of the lost agent, or more if the root has not noticed the loss yet.

mod decide;
mod follow;
#[cfg(test)]
mod model;
mod nodes;
mod report;
mod search;
mod seeking;
#[cfg(test)]
mod tests;
mod writer;

use super::inputs::membership::Input;
use super::{Effects, Policy, Routes, View};
use crate::time::Instant;
pub use nodes::Nodes;
use seeking::Seeking;
use std::collections::{BTreeMap, BTreeSet};
use wireup_coll::tree::Tree;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::{Gone, SessionSpec};
use wireup_wire::session::SessionSnapshot;
use writer::Writer;

/// The newest job's number, and the jobs that may still send frames.
pub type LiveOf<'a> = &'a dyn Fn() -> (JobId, Vec<JobId>);

#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash, Debug))]
pub struct Membership {
    routes: Routes,
    /// Linked agents of the subtree.
    up: BTreeSet<AgentId>,
    /// Reports about agents that are gone, kept until the root has decided.
    reported: BTreeMap<AgentId, Gone>,
    /// The root's addresses, best first.
    root: Vec<String>,
    /// The agent at the other end of the current or last link up; the log may since have assigned another parent.
    linked_to: AgentId,
    /// Set while this agent has no parent.
    seeking: Option<Seeking>,
    /// Set at the root.
    writer: Option<Writer>,
}

impl Membership {
    /// With the state given to a new agent. `parent`: the parent's addresses.
    pub fn new(
        me: AgentId,
        tree: Tree,
        session: &SessionSpec,
        parent: Vec<String>,
        snapshot: &SessionSnapshot,
    ) -> Self {
        let routes = Routes::new(me, tree, Policy::of(session), snapshot);
        Membership {
            linked_to: routes.roster.parent(me).unwrap_or_default(),
            routes,
            up: BTreeSet::new(),
            reported: BTreeMap::new(),
            root: if snapshot.root.is_empty() { parent } else { snapshot.root.clone() },
            seeking: None,
            writer: (me == AgentId(0)).then(|| Writer::new(session)),
        }
    }

    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The root's table of all nodes.
    pub fn nodes(&self) -> Option<&Nodes> {
        self.writer.as_ref().map(|writer| &writer.nodes)
    }

    /// Whether this agent has no parent.
    pub fn is_seeking(&self) -> bool {
        self.seeking.is_some()
    }

    pub fn deadline(&self) -> Option<Instant> {
        let leases = self.writer.as_ref().and_then(Writer::deadline);
        leases.into_iter().chain(self.seeking.as_ref().and_then(Seeking::deadline)).min()
    }

    /// Number of entries in all tables, for the simulator's checkers.
    pub fn size(&self) -> usize {
        let leases = self.writer.as_ref().map_or(0, |writer| writer.leases.len());
        self.up.len() + self.reported.len() + self.routes.roster.len() + leases
    }

    pub fn handle(&mut self, view: &View<'_>, live: LiveOf<'_>, input: Input, fx: &mut Effects) {
        match input {
            Input::Begin => self.begin(view, fx),
            Input::Linked(child) => self.on_linked(view, child, fx),
            Input::Here { branch, agents } => self.on_here(view, branch, agents, fx),
            Input::ReportLost(missing) => self.report_lost(view, live, missing, fx),
            Input::Gone { branch, gone } => self.on_gone(view, live, branch, gone, fx),
            Input::Log(log) => self.on_log(view, log, fx),
            Input::Revive => self.revive(view, live, fx),
            Input::ParentUp => self.on_parent_up(view, fx),
            Input::ParentLost => self.on_parent_lost(view, fx),
            Input::RootReached(link) => self.on_root_reached(view, link),
            Input::RejoinFailed => self.on_rejoin_failed(view, fx),
            Input::Rejoin { link, agent, rejoin } => self.on_rejoin(view, live, link, agent, rejoin, fx),
            Input::Tick => {
                self.check_leases(view, live, fx);
                self.seek_if_due(view, fx);
            }
        }
    }

    /// The state given to a new agent.
    pub fn snapshot(&self, policy: Policy, live: LiveOf<'_>) -> SessionSnapshot {
        if !policy.survives_losses() {
            return SessionSnapshot::default();
        }
        let (newest, live) = live();
        let roster = &self.routes.roster;
        SessionSnapshot { root: self.root.clone(), at: roster.at(), places: roster.places(), newest, live }
    }
}
