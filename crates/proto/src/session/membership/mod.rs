//! Who is in the session.
//!
//! The root decides, and nobody else. Its decisions are a log (`Entry`): an agent is lost, or is started again. Each agent folds as
//! much of it as has reached it into a tree (`Roster`); so there is nothing to merge.
//!
//! ```text
//!   an agent links      Here ↑ ──────────────► the root: it is up
//!   its link breaks     Gone ↑ (its parent) ─► the root: Lost ↓ to all ──► its jobs end; its children are the root's
//!   its children        dial the root, which takes them in, each with all below it
//!   somebody wants it   Revive ──────────────► the root: Return ↓ to all ─► its new parent starts it, a new incarnation
//! ```
//!
//! `report` says what happens below, up to the root; `decide` is the root's part, with its log (`writer`); `follow` is what each agent does
//! about a decision; `search` is an agent without a parent (`seeking`); `nodes` is what launchers are told.
//!
//! In a session of one run nobody is ever lost here: the jobs hear of a loss, and end.
//!
//! Cost: for each agent one message up for each level above it, once; for each loss one up, one to every agent, and one dial of each
//! child of the lost agent, more if the root has not noticed the loss yet.

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
use wireup_wire::session::Kin;
use writer::Writer;

/// The last job's number, and jobs that may still have something to say.
pub type LiveOf<'a> = &'a dyn Fn() -> (JobId, Vec<JobId>);

#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash, Debug))]
pub struct Membership {
    routes: Routes,
    /// Agents of the subtree that are linked.
    up: BTreeSet<AgentId>,
    /// What was said of agents that are gone, until the root has decided.
    reported: BTreeMap<AgentId, Gone>,
    /// Where the root listens, best first.
    root: Vec<String>,
    /// Who is at the other end of the link up, or was; the log may have given this agent another parent since.
    linked_to: AgentId,
    /// This agent has no parent.
    seeking: Option<Seeking>,
    /// At the root.
    writer: Option<Writer>,
}

impl Membership {
    /// With what the agent is told at its birth. `parent`: where it listens.
    pub fn new(me: AgentId, tree: Tree, session: &SessionSpec, parent: Vec<String>, kin: &Kin) -> Self {
        let routes = Routes::new(me, tree, Policy::of(session), kin);
        Membership {
            linked_to: routes.roster.parent(me).unwrap_or_default(),
            routes,
            up: BTreeSet::new(),
            reported: BTreeMap::new(),
            root: if kin.root.is_empty() { parent } else { kin.root.clone() },
            seeking: None,
            writer: (me == AgentId(0)).then(|| Writer::new(session)),
        }
    }

    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// What the root knows of all.
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

    /// Entries of all tables, for the simulator's checkers.
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
            Input::Orphan { link, agent, orphan } => self.on_orphan(view, live, link, agent, orphan, fx),
            Input::Tick => {
                self.check_leases(view, live, fx);
                self.seek_if_due(view, fx);
            }
        }
    }

    /// What an agent is told at its birth.
    pub fn kin(&self, policy: Policy, live: LiveOf<'_>) -> Kin {
        if !policy.survives_losses() {
            return Kin::default();
        }
        let (newest, live) = live();
        let roster = &self.routes.roster;
        Kin { root: self.root.clone(), at: roster.at(), places: roster.places(), newest, live }
    }
}
