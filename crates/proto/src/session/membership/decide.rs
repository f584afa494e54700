//! Decides, at the root alone, which agents are lost and which return, and writes the log of these decisions.
//!
//! ```text
//!              Here                              Gone, from its parent
//!   Starting ────────► Up ────────────────────────────────────────────► Lost ──► Starting (a new incarnation)
//!      │                │                                                ▲ Revive
//!      │                └─ its parent is lost ─► awaited ── too late ────┤
//!      └─ not started, or its starter is lost ───────────────────────────┘ second case: Starting again at once
//! ```
//!
//! An agent whose parent is lost has a lease: it must dial the root before the lease ends. If an agent dials while its
//! parent is not lost, either their link broke or the loss has not been reported yet; it is told to try again, and it
//! is lost if its parent is still not lost when its lease ends. An awaited agent is not up: jobs wait until it is up or
//! lost.

use super::{LiveOf, Membership, News, REJOIN_NS_MAX, lease_ns};
use crate::io::LinkId;
use crate::session::{AddedHost, Cx};
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{Cause, Gone, MissingAgent, Problem, Rejoin};
use wireup_wire::session::{Entry, Log};
use wireup_wire::talk::SessionDown;

const JOB_OVER: &str = "the job that it was added for is over";
const DID_NOT_COME: &str = "it lost its parent agent and did not reconnect in time";

impl Membership {
    /// Decides about agents that are reported as gone. A report is ignored unless its sender can know of the loss: the
    /// agent's parent or, while the agent is starting, any of its ancestors.
    pub(super) fn judge(&mut self, cx: &mut Cx, live: LiveOf<'_>, gone: Vec<Gone>) -> Vec<News> {
        let Some(writer) = &self.writer else { return Vec::new() };
        let roster = &cx.agent.links.routes.roster;
        let knows = |gone: &Gone| {
            roster.parent(gone.agent) == Some(gone.by)
                || (!writer.is_known(gone.agent) && roster.is_below(gone.by, gone.agent))
        };
        let gone = gone.into_iter().filter(knows);
        let missing = gone.map(|Gone { agent, problem, .. }| MissingAgent { agent, problem }).collect();
        self.lose(cx, live, missing, lease_ns(cx))
    }

    /// Decides at the root that agents are lost. Agents below them that are up get a lease of `lease_ns`; the other
    /// agents below them, whose starter is lost, are started again.
    pub(super) fn lose(
        &mut self,
        cx: &mut Cx,
        live: LiveOf<'_>,
        missing: Vec<MissingAgent>,
        lease_ns: u64,
    ) -> Vec<News> {
        let Some(writer) = &mut self.writer else { return Vec::new() };
        let roster = &cx.agent.links.routes.roster;
        let mut lost: BTreeMap<AgentId, Problem> = BTreeMap::new();
        for MissingAgent { agent, problem } in missing {
            if agent != cx.me && !roster.is_lost(agent) {
                lost.insert(agent, problem);
            }
        }
        let below = lost.keys().flat_map(|agent| roster.subtree(*agent));
        let unheard: BTreeSet<AgentId> =
            below.filter(|agent| !lost.contains_key(agent) && !writer.is_known(*agent)).collect();
        for agent in &unheard {
            lost.insert(*agent, "the agent that was starting it was lost".into());
        }
        if lost.is_empty() {
            return Vec::new();
        }
        let agents: Vec<AgentId> = lost.keys().copied().collect();
        for (agent, problem) in lost {
            writer.leases.remove(&agent);
            writer.nodes.on_lost(agent, &problem);
            let jobs = cx.jobs.ids_where(|job| job.facts.has_agent(agent));
            let cause = Cause::AgentLost { agent, problem };
            // Before the log entry is sent: messages that end the jobs then use the tree that the children know.
            cx.jobs.tell_each(&mut cx.agent, jobs, |job, cx| job.on_agent_failed(cx, agent, cause.clone()));
        }
        let entry = self.write(cx, live, Entry::Lost(agents.clone()));
        let moved = self.follow_loss(cx, &entry);
        if let Some(writer) = &mut self.writer {
            moved.into_iter().for_each(|child| writer.await_rejoin(child, cx.agent.now + lease_ns));
        }
        let mut news = vec![News::Lost(agents)];
        if !unheard.is_empty() && !cx.is_leaving {
            news.push(self.bring_back(cx, live, unheard.into_iter().collect()));
        }
        news
    }

    /// A launcher requests all nodes: lost agents are started again.
    pub fn revive(&mut self, cx: &mut Cx, live: LiveOf<'_>) -> Vec<News> {
        let lost = self.nodes().map(|nodes| nodes.lost()).unwrap_or_default();
        if lost.is_empty() { Vec::new() } else { vec![self.bring_back(cx, live, lost)] }
    }

    pub(super) fn bring_back(&mut self, cx: &mut Cx, live: LiveOf<'_>, agents: Vec<AgentId>) -> News {
        if let Some(writer) = &mut self.writer {
            agents.iter().for_each(|agent| writer.nodes.on_return(*agent));
        }
        let entry = self.write(cx, live, Entry::Return(agents.clone()));
        self.follow_return(cx, &entry, agents)
    }

    /// Appends an entry to the log, and sends it to the children before anything else is done about it.
    fn write(&mut self, cx: &mut Cx, live: LiveOf<'_>, entry: Entry) -> Entry {
        let (newest, live) = live();
        let at = cx.agent.links.routes.roster.at();
        let log = Log { at, entries: vec![entry.clone()], has_moved: false, newest, live };
        cx.children(SessionDown::Log(log));
        if let Some(writer) = &mut self.writer {
            writer.keep(entry.clone());
        }
        entry
    }

    /// Gives up agents whose lease has ended.
    pub fn check_leases(&mut self, cx: &mut Cx, live: LiveOf<'_>) -> Vec<News> {
        if self.writer.is_none() {
            return Vec::new();
        }
        // First the root's own awaited children: if one is lost, the agents below it get a new lease or are started
        // again.
        let mut news =
            self.lose_late(cx, live, |_, cx, agent| cx.agent.links.routes.roster.parent(agent) == Some(cx.me));
        news.extend(self.lose_late(cx, live, |membership, cx, agent| !membership.is_behind_awaited(cx, agent)));
        if let Some(writer) = &mut self.writer {
            let late = writer.leases.values_mut().filter(|until| **until <= cx.agent.now);
            late.for_each(|until| *until = cx.agent.now + REJOIN_NS_MAX);
        }
        news
    }

    fn lose_late(
        &mut self,
        cx: &mut Cx,
        live: LiveOf<'_>,
        which: impl Fn(&Membership, &Cx, AgentId) -> bool,
    ) -> Vec<News> {
        let Some(writer) = &self.writer else { return Vec::new() };
        let late = writer.leases.iter().filter(|(agent, until)| **until <= cx.agent.now && which(self, cx, **agent));
        let missing = late.map(|(agent, _)| MissingAgent { agent: *agent, problem: DID_NOT_COME.into() }).collect();
        // The agents below the late agents get the short lease, because they have had the same time to notice the loss.
        self.lose(cx, live, missing, REJOIN_NS_MAX)
    }

    /// Whether the path from the root to an agent contains an awaited agent.
    fn is_behind_awaited(&self, cx: &Cx, agent: AgentId) -> bool {
        let Some(writer) = &self.writer else { return false };
        let roster = &cx.agent.links.routes.roster;
        let mut above = std::iter::successors(roster.parent(agent), |above| roster.parent(*above));
        above.any(|above| writer.leases.contains_key(&above))
    }

    /// An agent that has lost its parent has dialled this agent. Returns the log entries that it lacks: the caller
    /// adopts it.
    ///
    /// # Errors
    /// The agent is not adopted, and its link is closed. Contains the decisions that followed.
    pub fn on_rejoin(
        &mut self,
        cx: &mut Cx,
        live: LiveOf<'_>,
        link: LinkId,
        agent: AgentId,
        rejoin: Rejoin,
    ) -> Result<Log, Vec<News>> {
        let roster = &cx.agent.links.routes.roster;
        let Some(writer) = self.writer.as_mut().filter(|_| cx.policy.survives_losses() && agent.0 < cx.tree.count())
        else {
            cx.close(link);
            return Err(Vec::new());
        };
        let (newest, live_jobs) = live();
        // The agent must leave if the entries that it lacks are no longer kept, or if the session is ending.
        let Some(entries) = writer.since(rejoin.at, roster.at()).filter(|_| !cx.is_leaving) else {
            if cx.is_leaving && writer.leases.remove(&agent).is_some() {
                // The root no longer waits for this agent at the end of the session.
                drop(cx.agent.links.neighbours.forget(agent));
            }
            dismiss(cx, link, Log::unfit());
            return Err(Vec::new());
        };
        let missed = Log { at: rejoin.at, entries, has_moved: true, newest, live: live_jobs };
        if rejoin.incarnation != roster.incarnation(agent) || roster.is_lost(agent) {
            dismiss(cx, link, missed);
            return Err(Vec::new());
        }
        if roster.parent(agent) != Some(cx.me) {
            // The agent's parent is not known to be lost: the agent may try again. If the parent is itself awaited, it
            // is most likely gone: otherwise it would usually have dialled by now. This guess is wrong only if the
            // parent has lost its child but cannot know that it has lost its own parent, which takes two faults at
            // once.
            writer.leases.entry(agent).or_insert(cx.agent.now + lease_ns(cx));
            let parent = roster.parent(agent).filter(|parent| roster.parent(*parent) == Some(cx.me));
            if let Some(until) = parent.and_then(|parent| writer.leases.get_mut(&parent)) {
                *until = (*until).min(cx.agent.now + REJOIN_NS_MAX);
            }
            cx.close(link);
            return Err(Vec::new());
        }
        if !cx.agent.links.neighbours.expects(agent) {
            // A link to this child exists, but the child has dialled again: its end of the link is broken.
            let problem = "its link broke".into();
            let news = self.lose(cx, live, vec![MissingAgent { agent, problem }], lease_ns(cx));
            dismiss(cx, link, Log::unfit());
            return Err(news);
        }
        writer.leases.remove(&agent);
        Ok(missed)
    }
}

/// Adds hosts to those of the session for a job, and releases them after it: at the root.
///
/// ```text
///   Launch names hosts to add ──► Number ──► the job waits ──► StartAdded: Return ↓ to all
///   the agents are up ──► the job begins
///   the job neither waits nor runs ──► Release: Lost ↓ to all; the numbers are free again
/// ```
///
/// An added agent is a child of the root, without children. It serves one job, and leaves with it (`launchers`).
/// In a session of one run it is started with its job, as all others are, without a log; so its number is not used
/// again.
impl Membership {
    /// Gives numbers to the agents of the hosts that a job adds; returns them.
    pub fn number(&mut self, cx: &mut Cx, spec: &mut JobSpec) -> Vec<AgentId> {
        let Some(writer) = &mut self.writer else { return Vec::new() };
        let mut agents = Vec::new();
        for node in spec.nodes.iter_mut().filter(|node| node.agent == AgentId::ADDED) {
            // The host may be a node of the session that the launcher's run does not use.
            node.agent = writer.nodes.own_agent(&node.name).unwrap_or_else(|| {
                let agent = writer.nodes.add(&node.name, spec.job);
                cx.added.insert(agent, AddedHost { name: node.name.clone(), job: spec.job });
                agent
            });
            agents.push(node.agent);
        }
        agents
    }

    /// Starts the agents that were added for a job, which waits for them.
    pub fn start_added(&mut self, cx: &mut Cx, live: LiveOf<'_>, job: JobId) -> Vec<News> {
        let added = self.nodes().into_iter().flat_map(|nodes| nodes.added());
        let agents: Vec<AgentId> = added.filter(|(_, of)| *of == job).map(|(agent, _)| agent).collect();
        if agents.is_empty() { Vec::new() } else { vec![self.bring_back(cx, live, agents)] }
    }

    /// Dismisses the agents on hosts that were added for jobs that have ended.
    pub fn release(&mut self, cx: &mut Cx, live: LiveOf<'_>, agents: Vec<AgentId>) -> Vec<News> {
        let Some(writer) = &mut self.writer else { return Vec::new() };
        let has_log = cx.policy.survives_losses();
        // Without a log, agents have no incarnations, so an agent's number is not given to another agent.
        agents.iter().for_each(|agent| writer.nodes.remove(*agent, has_log));
        if has_log {
            let lost = |agent| MissingAgent { agent, problem: JOB_OVER.into() };
            let lost = agents.into_iter().map(lost).collect();
            return self.lose(cx, live, lost, lease_ns(cx));
        }
        let (linked, unlinked): (Vec<AgentId>, Vec<AgentId>) =
            agents.into_iter().partition(|agent| cx.agent.links.neighbours.child(*agent).is_some());
        linked.into_iter().for_each(|agent| cx.child(agent, SessionDown::Shutdown));
        if unlinked.is_empty() { Vec::new() } else { vec![News::Lost(unlinked)] }
    }
}

/// Dismisses an agent that is lost, or that lacks entries which are no longer kept: it leaves by itself.
fn dismiss(cx: &mut Cx, link: LinkId, missed: Log) {
    cx.answer(link, SessionDown::Log(missed));
    cx.close(link);
}
