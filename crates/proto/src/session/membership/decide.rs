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

use super::{LiveOf, Membership};
use super::{REJOIN_NS_MAX, lease_ns};
use crate::io::LinkId;
use crate::job::JobInput;
use crate::session::inputs::{heartbeat, launchers, starter};
use crate::session::{Effect, Effects, View};
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Cause, Gone, MissingAgent, Problem, Rejoin};
use wireup_wire::session::{Entry, Log};
use wireup_wire::talk::{Control, SessionDown};

const DID_NOT_COME: &str = "it lost its parent agent and did not reconnect in time";

impl Membership {
    /// Records at the root that agents are linked.
    pub(super) fn note_up(&mut self, agents: impl Iterator<Item = AgentId>, fx: &mut Effects) {
        let Some(writer) = &mut self.writer else { return };
        agents.for_each(|agent| writer.nodes.on_agent_up(agent));
        self.tell_nodes(fx);
    }

    /// Decides about agents that are reported as gone. A report counts if its sender can know: the parent or, while the
    /// agent is starting, any ancestor.
    pub(super) fn judge(&mut self, view: &View<'_>, live: LiveOf<'_>, gone: Vec<Gone>, fx: &mut Effects) {
        let Some(writer) = &self.writer else { return };
        let roster = &self.routes.roster;
        let knows = |gone: &Gone| {
            roster.parent(gone.agent) == Some(gone.by)
                || (!writer.is_known(gone.agent) && roster.is_below(gone.by, gone.agent))
        };
        let gone = gone.into_iter().filter(knows);
        let missing = gone.map(|Gone { agent, problem, .. }| MissingAgent { agent, problem }).collect();
        self.lose(view, live, missing, lease_ns(view), fx);
    }

    /// Decides at the root that agents are lost. Agents below them that are up get a lease of `lease_ns`; the other
    /// agents below them, whose starter is lost, are started again.
    pub(super) fn lose(
        &mut self,
        view: &View<'_>,
        live: LiveOf<'_>,
        missing: Vec<MissingAgent>,
        lease_ns: u64,
        fx: &mut Effects,
    ) {
        let Some(writer) = &mut self.writer else { return };
        let roster = &self.routes.roster;
        let mut lost: BTreeMap<AgentId, Problem> = BTreeMap::new();
        for MissingAgent { agent, problem } in missing {
            if agent != view.me && !roster.is_lost(agent) {
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
            return;
        }
        let agents: Vec<AgentId> = lost.keys().copied().collect();
        for (agent, problem) in lost {
            writer.leases.remove(&agent);
            writer.nodes.on_lost(agent, &problem);
            let jobs = view.jobs.ids_where(|job| job.has_agent(agent));
            let cause = Cause::AgentLost { agent, problem };
            fx.jobs(jobs, || JobInput::AgentFailed { agent, cause: cause.clone() });
        }
        let entry = self.write(live, Entry::Lost(agents.clone()), fx);
        for child in self.follow_loss(view, &entry, &agents, fx) {
            let Some(writer) = &mut self.writer else { return };
            writer.await_rejoin(child, view.now + lease_ns);
        }
        if !unheard.is_empty() && !view.is_leaving {
            self.bring_back(view, live, unheard.into_iter().collect(), fx);
        }
        agents.into_iter().for_each(|agent| fx.push(Effect::Launchers(launchers::Input::StartAgain(agent))));
        self.tell_nodes(fx);
    }

    pub(super) fn revive(&mut self, view: &View<'_>, live: LiveOf<'_>, fx: &mut Effects) {
        let Some(writer) = &self.writer else { return };
        let lost = writer.nodes.lost();
        if !lost.is_empty() {
            self.bring_back(view, live, lost, fx);
        }
    }

    pub(super) fn bring_back(&mut self, view: &View<'_>, live: LiveOf<'_>, agents: Vec<AgentId>, fx: &mut Effects) {
        let Some(writer) = &mut self.writer else { return };
        agents.iter().for_each(|agent| writer.nodes.on_return(*agent));
        let entry = self.write(live, Entry::Return(agents.clone()), fx);
        self.follow_return(view, &entry, &agents, fx);
        fx.push(Effect::Starter(starter::Input::CallStep(agents)));
        self.tell_nodes(fx);
    }

    /// Reports that some nodes are now up, lost or awaited.
    pub(super) fn tell_nodes(&self, fx: &mut Effects) {
        let Some(writer) = &self.writer else { return };
        fx.push(Effect::Heartbeat(heartbeat::Input::Starting(!writer.nodes.is_settled())));
        fx.push(Effect::Launchers(launchers::Input::NodesChanged));
    }

    /// Appends an entry to the log: all other agents are sent it before anything else is done.
    fn write(&mut self, live: LiveOf<'_>, entry: Entry, fx: &mut Effects) -> Entry {
        let (newest, live) = live();
        let log = Log { at: self.routes.roster.at(), entries: vec![entry.clone()], has_moved: false, newest, live };
        fx.push(Effect::Children(Control::SessionDown(SessionDown::Log(log))));
        if let Some(writer) = &mut self.writer {
            writer.keep(entry.clone());
        }
        entry
    }

    pub(super) fn check_leases(&mut self, view: &View<'_>, live: LiveOf<'_>, fx: &mut Effects) {
        // First the root's own awaited children: the decision about them affects those below.
        self.lose_late(view, live, |membership, agent| membership.routes.roster.parent(agent) == Some(view.me), fx);
        self.lose_late(view, live, |membership, agent| !membership.is_behind_awaited(agent), fx);
        let Some(writer) = &mut self.writer else { return };
        let late = writer.leases.values_mut().filter(|until| **until <= view.now);
        late.for_each(|until| *until = view.now + REJOIN_NS_MAX);
    }

    fn lose_late(
        &mut self,
        view: &View<'_>,
        live: LiveOf<'_>,
        which: impl Fn(&Membership, AgentId) -> bool,
        fx: &mut Effects,
    ) {
        let Some(writer) = &self.writer else { return };
        let late = writer.leases.iter().filter(|(agent, until)| **until <= view.now && which(self, **agent));
        let missing = late.map(|(agent, _)| MissingAgent { agent: *agent, problem: DID_NOT_COME.into() }).collect();
        // Agents below the late ones have had the same time to notice.
        self.lose(view, live, missing, REJOIN_NS_MAX, fx);
    }

    /// Whether the path from the root to an agent contains an awaited agent.
    fn is_behind_awaited(&self, agent: AgentId) -> bool {
        let Some(writer) = &self.writer else { return false };
        let mut above =
            std::iter::successors(self.routes.roster.parent(agent), |above| self.routes.roster.parent(*above));
        above.any(|above| writer.leases.contains_key(&above))
    }

    pub(super) fn on_rejoin(
        &mut self,
        view: &View<'_>,
        live: LiveOf<'_>,
        link: LinkId,
        agent: AgentId,
        rejoin: Rejoin,
        fx: &mut Effects,
    ) {
        let roster = &self.routes.roster;
        let Some(writer) =
            self.writer.as_mut().filter(|_| view.policy.survives_losses() && agent.0 < view.tree.count())
        else {
            return fx.close(link);
        };
        let (newest, live_jobs) = live();
        // The agent cannot continue without the entries that it lacks.
        let Some(entries) = writer.since(rejoin.at, roster.at()).filter(|_| !view.is_leaving) else {
            if view.is_leaving && writer.leases.remove(&agent).is_some() {
                // The end of the session need not wait for the agent.
                fx.push(Effect::Forget(agent));
            }
            return dismiss(link, Log::unfit(), fx);
        };
        let missed = Log { at: rejoin.at, entries, has_moved: true, newest, live: live_jobs };
        if rejoin.incarnation != roster.incarnation(agent) || roster.is_lost(agent) {
            return dismiss(link, missed, fx);
        }
        if roster.parent(agent) != Some(view.me) {
            // The agent's parent is not known to be lost: the agent may try again. If the parent is itself awaited, it
            // is most likely gone: otherwise it would usually have dialled by now. This guess is wrong only if the
            // parent has lost its child but cannot know that it has lost its own parent, which takes two faults at
            // once.
            writer.leases.entry(agent).or_insert(view.now + lease_ns(view));
            let parent = roster.parent(agent).filter(|parent| roster.parent(*parent) == Some(view.me));
            if let Some(until) = parent.and_then(|parent| writer.leases.get_mut(&parent)) {
                *until = (*until).min(view.now + REJOIN_NS_MAX);
            }
            return fx.close(link);
        }
        if !view.neighbours.expects(agent) {
            // The child's end of the existing link is broken, even if this end looks healthy.
            let problem = "its link broke".into();
            self.lose(view, live, vec![MissingAgent { agent, problem }], lease_ns(view), fx);
            return dismiss(link, Log::unfit(), fx);
        }
        writer.leases.remove(&agent);
        fx.push(Effect::TakeIn { link, agent, missed });
    }
}

/// Dismisses an agent that is lost, or that lacks entries which are no longer kept: it leaves by itself.
fn dismiss(link: LinkId, missed: Log, fx: &mut Effects) {
    fx.answer(link, &Control::SessionDown(SessionDown::Log(missed)));
    fx.close(link);
}
