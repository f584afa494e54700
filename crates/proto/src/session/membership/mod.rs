//! The membership of the session: which agents belong to its tree.
//!
//! Only the root decides about the membership. Its decisions are a log of `Entry`: agents are lost, or are started
//! again. Each agent folds the prefix of the log that has reached it into a tree (`Roster`); so there is nothing to
//! merge.
//!
//! ```text
//!   an agent links      Here ↑ ──────────────► the root: it is up
//!   its link breaks     Gone ↑ (its parent) ─► the root: Lost ↓ to all ──► its jobs end; the root adopts its children
//!   its children        dial the root, which adopts them, each with its subtree
//!   a launcher asks     Revive ──────────────► the root: Return ↓ to all ─► its new parent starts a new incarnation
//! ```
//!
//! `report` sends events in the subtree up to the root; `decide` is the root's part, with its log (`Writer`); `follow`
//! carries out decisions on each agent, and returns what they mean to its other parts ([`News`]); `search` is an agent
//! that has lost its parent (`Seeking`); `nodes` is the state of nodes for launchers; `added` hosts that jobs add to
//! them.
//!
//! In a session of one run no agent is lost here: a loss is reported to the jobs, which end.
//!
//! Cost: for each agent one message up per level above it, once; for each loss one message up, one to every agent, and
//! one dial per child of the lost agent, or more if the root has not noticed the loss yet.

mod added;
mod decide;
mod follow;
#[cfg(test)]
mod model;
mod nodes;
mod report;
mod search;
#[cfg(test)]
mod tests;

use super::Cx;
use crate::io::LinkId;
use crate::link::Routes;
use crate::time::Instant;
pub use nodes::Nodes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::{Gone, SessionSpec};
use wireup_wire::session::{Entry, SessionSnapshot};

/// An agent that has not heard from the root for this long stops dialling it (ns). Chosen: enough for several attempts.
pub const REJOIN_NS_MAX: u64 = 5_000_000_000;
/// Longest time that an agent searches for the root (ns): an attempt may take as long again as `REJOIN_NS_MAX`, and
/// only then do the agents below notice that they too have lost their parent.
const SEARCH_NS_MAX: u64 = 2 * REJOIN_NS_MAX;
/// The first pause between two attempts, and the longest (ns); each is twice the previous one. Chosen: the root learns
/// of most losses within the first.
const PAUSE_NS: u64 = 100_000_000;
const PAUSE_NS_MAX: u64 = 1_600_000_000;

/// Number of entries kept for agents that rejoin. Chosen: more losses, and jobs that add hosts, than occur in any
/// session during one lease.
const KEPT_MAX: usize = 4096;

/// The newest job's number, and the jobs that may still send frames.
pub type LiveOf<'a> = &'a dyn Fn() -> (JobId, Vec<JobId>);

#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash, Debug))]
pub struct Membership {
    /// Linked agents of the subtree.
    up: BTreeSet<AgentId>,
    /// Reports about agents that are gone, kept until the root has decided.
    reported: BTreeMap<AgentId, Gone>,
    /// The root's addresses, best first.
    root: Vec<String>,
    /// The agent at the other end of the current or last link to a parent; the log may since have assigned another
    /// parent.
    linked_to: AgentId,
    /// The search for the root, while this agent has no parent.
    seeking: Option<Seeking>,
    /// The log and the leases, at the root.
    writer: Option<Writer>,
}

impl Membership {
    /// The state of a new agent. `parent`: the parent's addresses.
    pub fn new(
        me: AgentId,
        session: &SessionSpec,
        parent: Vec<String>,
        snapshot: &SessionSnapshot,
        routes: &Routes,
    ) -> Self {
        Membership {
            linked_to: routes.roster.parent(me).unwrap_or_default(),
            up: BTreeSet::new(),
            reported: BTreeMap::new(),
            root: if snapshot.root.is_empty() { parent } else { snapshot.root.clone() },
            seeking: None,
            writer: (me == AgentId(0)).then(|| Writer::new(session)),
        }
    }

    /// The root's table of all nodes.
    pub fn nodes(&self) -> Option<&Nodes> {
        self.writer.as_ref().map(|writer| &writer.nodes)
    }

    /// The agent at the other end of the current or last link to a parent.
    pub fn linked_to(&self) -> AgentId {
        self.linked_to
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
        self.up.len() + self.reported.len() + leases
    }

    /// The state given to a new agent.
    pub fn snapshot(&self, cx: &Cx, live: LiveOf<'_>) -> SessionSnapshot {
        if !cx.policy.survives_losses() {
            return SessionSnapshot::default();
        }
        let (newest, live) = live();
        let roster = &cx.links.routes.roster;
        SessionSnapshot { root: self.root.clone(), at: roster.at(), places: roster.places(), newest, live }
    }
}

/// An error: this agent lacks a decision of the root, so it cannot take part in the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unfit;

/// What a decision of the root, which this agent has recorded, means to the agent's other parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// Agents were lost.
    Lost(Vec<AgentId>),
    /// Agents are started again. `own`: the ones that this agent starts; `are_below`: whether some are in its
    /// subtree.
    Returned { agents: Vec<AgentId>, own: Vec<AgentId>, are_below: bool },
    /// This agent was lost: the others continue without it.
    Dismissed,
}

/// How long the root waits for an agent without a parent (ns): the agent may notice late that its parent is gone, after
/// the parent has tried in vain to reach the root, and then needs several attempts itself.
pub fn lease_ns(cx: &Cx) -> u64 {
    cx.session.links.node_timeout_ns.saturating_add(SEARCH_NS_MAX + REJOIN_NS_MAX)
}

/// The search of an agent without a parent for the root.
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash, Debug))]
pub struct Seeking {
    /// When the agent last heard from the root, or lost its parent.
    pub heard: Instant,
    pub again_at: Option<Instant>,
    pause_ns: u64,
    /// The link to the root, which has not yet confirmed the adoption.
    pub link: Option<LinkId>,
}

impl Seeking {
    /// Begins the search when the parent is lost.
    pub fn new(now: Instant) -> Seeking {
        Seeking { heard: now, again_at: None, pause_ns: PAUSE_NS, link: None }
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.again_at
    }

    /// The root is linked. If it sends nothing, the agent dials it again.
    pub fn on_reached(&mut self, now: Instant, link: LinkId) {
        self.heard = now;
        self.link = Some(link);
        self.again_at = Some(now + REJOIN_NS_MAX);
    }

    pub fn pause(&mut self, now: Instant) {
        self.again_at = Some(now + self.pause_ns);
        self.pause_ns = PAUSE_NS_MAX.min(2 * self.pause_ns);
    }
}

/// The root's log, and the agents for which the root waits.
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash, Debug))]
pub struct Writer {
    pub nodes: Nodes,
    /// The most recent entries of the log.
    kept: VecDeque<Entry>,
    /// Agents that must dial the root by this time, including those that were told to try again.
    pub leases: BTreeMap<AgentId, Instant>,
}

impl Writer {
    pub fn new(session: &SessionSpec) -> Writer {
        Writer { nodes: Nodes::new(session), kept: VecDeque::new(), leases: BTreeMap::new() }
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.leases.values().copied().min()
    }

    /// Whether an agent is known to have started: it is up, or on its way to a new parent.
    pub fn is_known(&self, agent: AgentId) -> bool {
        self.nodes.is_up(agent) || self.leases.contains_key(&agent)
    }

    /// The root is an agent's new parent, and the agent must dial it by this time. Until then it is not up: no job
    /// starts there.
    pub fn await_rejoin(&mut self, agent: AgentId, until: Instant) {
        self.nodes.on_return(agent);
        self.leases.insert(agent, until);
    }

    pub fn keep(&mut self, entry: Entry) {
        self.kept.push_back(entry);
        if self.kept.len() > KEPT_MAX {
            self.kept.pop_front();
        }
    }

    /// The entries after the first `at` of `all`. `None`: they are no longer kept, or never existed.
    pub fn since(&self, at: u32, all: u32) -> Option<Vec<Entry>> {
        let missed = all.checked_sub(at)? as usize;
        let first = self.kept.len().checked_sub(missed)?;
        Some(self.kept.range(first..).cloned().collect())
    }
}
