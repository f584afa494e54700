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
//! Each agent reports events in its subtree up to the root, carries out decisions, and returns what they mean to its
//! other parts ([`News`]); an agent that has lost its parent searches for the root (`Seeking`). `decide` is the root's
//! part, with its log (`Writer`); `nodes` is the state of nodes for launchers.
//!
//! In a session of one run no agent is lost here: a loss is reported to the jobs, which end.
//!
//! Cost: for each agent one message up per level above it, once; for each loss one message up, one to every agent, and
//! one dial per child of the lost agent, or more if the root has not noticed the loss yet.

mod decide;
#[cfg(test)]
mod model;
mod nodes;
#[cfg(test)]
mod tests;

use super::Cx;
use crate::io::{LinkId, Output};
use crate::link::Routes;
use crate::time::Instant;
pub use nodes::Nodes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::{Gone, MissingAgent, Rejoin, SessionSpec};
use wireup_wire::session::{Entry, Log, SessionSnapshot};
use wireup_wire::talk::{SessionDown, SessionUp};

/// An agent that has not heard from the root for this long stops dialling it (ns). Chosen: enough for several attempts.
pub const REJOIN_NS_MAX: u64 = 5_000_000_000;
/// Longest time that an agent searches for the root (ns): an attempt may take as long again as `REJOIN_NS_MAX`, and
/// only then do the agents below notice that they too have lost their parent.
const SEARCH_NS_MAX: u64 = 2 * REJOIN_NS_MAX;
/// Pause before the root is dialled again (ns), doubled each time; and the longest pause. Chosen: the root learns of
/// most losses within the first pause.
const PAUSE_NS: u64 = 100_000_000;
const PAUSE_NS_MAX: u64 = 1_600_000_000;

/// Number of log entries that the root keeps for agents that rejoin. Chosen: more losses, and jobs that add hosts, than
/// occur in any session during one lease.
const KEPT_MAX: usize = 4096;

/// The newest job's number, and the jobs that may still send frames.
pub type LiveOf<'a> = &'a dyn Fn() -> (JobId, Vec<JobId>);

#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash, Debug))]
pub struct Membership {
    /// Agents of this agent's subtree that are linked.
    up: BTreeSet<AgentId>,
    /// Reports about agents that are gone, kept until the root has decided.
    reported: BTreeMap<AgentId, Gone>,
    /// The root's addresses, best first.
    root: Vec<String>,
    /// The agent at the other end of the current or last link to a parent; the log may since have assigned another
    /// parent.
    pub linked_to: AgentId,
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

    /// Whether this agent has lost its parent and has no new one yet.
    pub fn is_seeking(&self) -> bool {
        self.seeking.is_some()
    }

    pub fn deadline(&self) -> Option<Instant> {
        let leases = self.writer.iter().flat_map(|writer| writer.leases.values().copied());
        leases.chain(self.seeking.as_ref().and_then(|seeking| seeking.again_at)).min()
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
        let roster = &cx.agent.links.routes.roster;
        SessionSnapshot { root: self.root.clone(), at: roster.at(), places: roster.places(), newest, live }
    }
}

/// Reports of an agent about its subtree, up to the root: which agents are linked, which are gone.
///
/// Each hop keeps what it has forwarded until the root has decided, and repeats it to a new parent, because reports
/// that the previous parent had not forwarded are lost with it. Every report contains an agent's incarnation, so it
/// never affects a later incarnation.
impl Membership {
    /// Handles a report that agents are linked; reports about previous incarnations are ignored. Returns whether the
    /// root's table of nodes has changed.
    pub fn on_here(&mut self, cx: &mut Cx, branch: AgentId, mut agents: Vec<(AgentId, u32)>) -> bool {
        let roster = &cx.agent.links.routes.roster;
        agents.retain(|(agent, incarnation)| {
            roster.is_below(branch, *agent) && roster.incarnation(*agent) == *incarnation && !roster.is_lost(*agent)
        });
        if let Some(writer) = &mut self.writer {
            agents.iter().for_each(|(agent, _)| writer.nodes.on_agent_up(*agent));
            return true;
        }
        self.up.extend(agents.iter().map(|(agent, _)| *agent));
        // An agent without a parent reports the linked agents once it has a parent.
        if cx.agent.links.neighbours.has_up() && !agents.is_empty() {
            cx.up(SessionUp::Here(agents));
        }
        false
    }

    /// This agent has observed that other agents are lost, or did not start.
    pub fn report_lost(&mut self, cx: &mut Cx, live: LiveOf<'_>, missing: Vec<MissingAgent>) -> Vec<News> {
        let roster = &cx.agent.links.routes.roster;
        let gone = |MissingAgent { agent, problem }| {
            let incarnation = roster.incarnation(agent);
            Gone { by: cx.me, agent, incarnation, problem }
        };
        let gone = missing.into_iter().map(gone).collect();
        self.on_gone(cx, live, cx.me, gone)
    }

    /// A child forwards the report that these agents are gone.
    pub fn on_gone(&mut self, cx: &mut Cx, live: LiveOf<'_>, branch: AgentId, mut gone: Vec<Gone>) -> Vec<News> {
        let roster = &cx.agent.links.routes.roster;
        gone.retain(|gone| {
            roster.is_below(branch, gone.agent)
                && roster.incarnation(gone.agent) == gone.incarnation
                && !roster.is_lost(gone.agent)
        });
        if self.writer.is_some() {
            return self.judge(cx, live, gone);
        }
        for gone in &gone {
            self.up.remove(&gone.agent);
            self.reported.insert(gone.agent, gone.clone());
        }
        if cx.agent.links.neighbours.has_up() && !gone.is_empty() {
            cx.up(SessionUp::Gone(gone));
        }
        Vec::new()
    }

    /// The parent is linked: the original parent, or the root in its place. Repeats the reports that the previous
    /// parent may not have forwarded.
    pub fn on_parent_up(&mut self, cx: &mut Cx) {
        if !cx.policy.survives_losses() {
            return;
        }
        let roster = &cx.agent.links.routes.roster;
        let here = std::iter::once(cx.me).chain(self.up.iter().copied());
        let here = here.map(|agent| (agent, roster.incarnation(agent))).collect();
        cx.up(SessionUp::Here(here));
        if !self.reported.is_empty() {
            cx.up(SessionUp::Gone(self.reported.values().cloned().collect()));
        }
    }
}

/// Carries out the root's decisions on each agent, in order.
///
/// A decision is forwarded to the children before anything else is done about it: so a child always knows at least as
/// much as the sender of any frame that reaches it through this agent. And an agent below the root finishes one
/// decision before it records the next: so nothing meant for one incarnation reaches a later one.
impl Membership {
    /// A part of the log arrives. If it confirms that the root has adopted this agent, returns the link to the root.
    ///
    /// # Errors
    /// This agent lacks earlier entries, which a correct parent never leaves out, so it cannot take part in the
    /// session.
    pub fn on_log(&mut self, cx: &Cx, log: &Log) -> Result<Option<LinkId>, Unfit> {
        if log.at > cx.agent.links.routes.roster.at() {
            return Err(Unfit);
        }
        let link = self.seeking.take().and_then(|seeking| seeking.link);
        if link.is_some() {
            self.linked_to = AgentId(0);
        }
        Ok(link)
    }

    /// Records the next decision in this part of the log, and forwards it to the children. Returns what the decision
    /// means to the agent's other parts; `None`: no decision is left.
    pub fn next_decision(&mut self, cx: &mut Cx, log: &mut Log) -> Option<News> {
        let known = cx.agent.links.routes.roster.at();
        log.entries.drain(..log.entries.len().min((known - log.at) as usize));
        let has_moved = log.entries.len() <= 1 && log.has_moved;
        let entry = (!log.entries.is_empty()).then(|| log.entries.remove(0));
        log.at = known + u32::from(entry.is_some());
        if entry.is_some() || has_moved {
            let next = Log { at: known, entries: entry.iter().cloned().collect(), has_moved, ..log.clone() };
            cx.children(SessionDown::Log(next));
            log.has_moved &= !has_moved;
        }
        match entry? {
            Entry::Lost(agents) if agents.contains(&cx.me) => {
                *log = Log { at: known, ..Log::default() };
                Some(News::Dismissed)
            }
            entry @ Entry::Lost(_) => {
                self.follow_loss(cx, &entry);
                let Entry::Lost(agents) = entry else { return None };
                Some(News::Lost(agents))
            }
            Entry::Return(agents) => Some(self.follow_return(cx, &Entry::Return(agents.clone()), agents)),
        }
    }

    /// Records a loss; returns the agents that the root has to adopt.
    fn follow_loss(&mut self, cx: &mut Cx, entry: &Entry) -> Vec<AgentId> {
        let moved = cx.agent.links.routes.roster.apply(entry);
        let roster = &cx.agent.links.routes.roster;
        let is_ours = |agent: AgentId| !roster.is_lost(agent) && roster.is_below(cx.me, agent);
        self.up.retain(|agent| is_ours(*agent));
        self.reported.retain(|agent, _| is_ours(*agent));
        if self.writer.is_some() {
            // Frames that are sent again to the adopted agents wait until these agents have linked to the root.
            moved.iter().for_each(|child| cx.agent.links.neighbours.expect(*child));
        }
        moved
    }

    /// Records that agents are started again, some of them by this agent.
    fn follow_return(&mut self, cx: &mut Cx, entry: &Entry, agents: Vec<AgentId>) -> News {
        cx.agent.links.routes.roster.apply(entry);
        let roster = &cx.agent.links.routes.roster;
        let are_below = agents.iter().any(|agent| roster.is_below(cx.me, *agent));
        let own = agents.iter().filter(|agent| roster.parent(**agent) == Some(cx.me)).copied().collect();
        News::Returned { agents, own, are_below }
    }
}

/// Searches for a new parent: an agent that has lost its parent asks the root to adopt it.
///
/// ```text
///   linked ── link down ──► dials the root ──► Log: adopted, with its subtree; it gets the entries that it lacks
///     ▲                      │  ▲    │
///     └── it is the root's ──┘  │    ├── link closed: the root does not know yet that the parent is gone;
///         own child: it leaves  └────┘   again after a pause
///                                    └── told to leave, or the root is unreachable for too long: it leaves
/// ```
///
/// Only the root decides whether an agent is lost. An agent that reaches the root leaves when the root says so. One
/// that cannot reach it for some seconds leaves by itself, long before the root stops waiting for the agents below it.
impl Membership {
    /// The link to the parent broke; or, if this agent has no parent, its link to the root broke before the root had
    /// adopted it. Returns whether the agent leaves: always in a session of one run, where the agent's keeper then ends
    /// what the agent has started; in a standing session if the parent was the root, which counts a child as lost when
    /// the child's link breaks.
    pub fn on_parent_lost(&mut self, cx: &mut Cx) -> bool {
        let was_roots = self.seeking.is_none() && self.linked_to == AgentId(0);
        if !cx.policy.survives_losses() || cx.is_leaving || was_roots {
            return true;
        }
        match &mut self.seeking {
            // The link to the root ended before the root had adopted this agent: it dials again after a pause.
            Some(seeking) => {
                seeking.heard = cx.agent.now;
                seeking.link = None;
                seeking.pause(cx.agent.now);
            }
            None => {
                self.seeking = Some(Seeking::new(cx.agent.now));
                self.seek(cx);
            }
        }
        false
    }

    fn seek(&self, cx: &mut Cx) {
        let roster = &cx.agent.links.routes.roster;
        let rejoin = Rejoin { incarnation: roster.incarnation(cx.me), at: roster.at() };
        cx.output(Output::Rejoin { root: self.root.clone(), rejoin });
    }

    /// The root is linked; it has not yet confirmed that it adopts this agent.
    pub fn on_root_reached(&mut self, cx: &Cx, link: LinkId) {
        if let Some(seeking) = &mut self.seeking {
            seeking.on_reached(cx.agent.now, link);
        }
    }

    /// The root cannot be reached at any of its addresses. Returns whether the agent leaves.
    pub fn on_rejoin_failed(&mut self, cx: &Cx) -> bool {
        let Some(seeking) = &mut self.seeking else { return false };
        let gives_up = cx.agent.now >= seeking.heard + REJOIN_NS_MAX;
        if !gives_up {
            seeking.pause(cx.agent.now);
        }
        gives_up
    }

    /// Dials the root again when it is time. If the root has linked and sent nothing, returns that link, which the
    /// caller closes.
    pub fn seek_if_due(&mut self, cx: &mut Cx) -> Option<LinkId> {
        let seeking = self.seeking.as_mut()?;
        seeking.again_at.take_if(|at| *at <= cx.agent.now)?;
        if seeking.link.is_none() {
            self.seek(cx);
        }
        self.seeking.as_ref()?.link
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
    /// The root counts this agent as lost: it must exit.
    Dismissed,
}

/// How long the root waits for an agent without a parent (ns): the agent may notice late that its parent is gone, after
/// the parent has tried in vain to reach the root, and then needs several attempts itself.
pub fn lease_ns(cx: &Cx) -> u64 {
    cx.session.links.node_timeout_ns.saturating_add(SEARCH_NS_MAX + REJOIN_NS_MAX)
}

/// The search of an agent without a parent for the root.
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash, Debug))]
struct Seeking {
    /// When the agent last heard from the root, or lost its parent.
    heard: Instant,
    again_at: Option<Instant>,
    pause_ns: u64,
    /// The link to the root, which has not yet confirmed the adoption.
    link: Option<LinkId>,
}

impl Seeking {
    /// Begins the search for the root, when the parent is lost.
    fn new(now: Instant) -> Seeking {
        Seeking { heard: now, again_at: None, pause_ns: PAUSE_NS, link: None }
    }

    /// The root is linked. If it sends nothing, the agent dials it again.
    fn on_reached(&mut self, now: Instant, link: LinkId) {
        self.heard = now;
        self.link = Some(link);
        self.again_at = Some(now + REJOIN_NS_MAX);
    }

    fn pause(&mut self, now: Instant) {
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
    /// Agents that the root awaits, and when it gives up each of them; among them agents that were told to try again.
    pub leases: BTreeMap<AgentId, Instant>,
}

impl Writer {
    pub fn new(session: &SessionSpec) -> Writer {
        Writer { nodes: Nodes::new(session), kept: VecDeque::new(), leases: BTreeMap::new() }
    }

    /// Whether an agent is known to have started: it is up, or on its way to a new parent.
    pub fn is_known(&self, agent: AgentId) -> bool {
        self.nodes.is_up(agent) || self.leases.contains_key(&agent)
    }

    /// The root has become an agent's parent, and the agent must dial the root by the time `until`. Until then the
    /// agent is not up: no job starts there.
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

    /// The last `all - at` entries of a log of `all` entries. `None`: some are no longer kept, or `at` exceeds `all`.
    pub fn since(&self, at: u32, all: u32) -> Option<Vec<Entry>> {
        let missed = all.checked_sub(at)? as usize;
        let first = self.kept.len().checked_sub(missed)?;
        Some(self.kept.range(first..).cloned().collect())
    }
}
