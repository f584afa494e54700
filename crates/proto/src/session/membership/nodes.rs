//! The root's table of all nodes: which are up, starting or lost, and why. Nodes of the session come first, then hosts
//! that jobs have added.

use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{Problem, SessionSpec};
use wireup_wire::session::{NodeState, Presence};

#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash, Debug))]
pub struct Nodes {
    nodes: Vec<NodeState>,
    /// Number of nodes that belong to the session; the first ones of `nodes`.
    own: usize,
    added: BTreeMap<AgentId, JobId>,
    /// Numbers of agents that have left, which other agents may get.
    free: BTreeSet<AgentId>,
    /// Number of nodes of the session that are neither up nor lost.
    starting: usize,
}

impl Nodes {
    pub fn new(session: &SessionSpec) -> Self {
        let slots = |index| session.standing.as_ref().and_then(|standing| standing.slots.get(index).copied());
        let nodes = session.agents.iter().enumerate().map(|(index, agent)| NodeState {
            host: agent.host.clone(),
            slots: slots(index).unwrap_or(1),
            presence: if index == 0 { Presence::Up } else { Presence::Starting },
        });
        let own = session.agents.len();
        let (added, free) = (BTreeMap::new(), BTreeSet::new());
        Nodes { nodes: nodes.collect(), own, added, free, starting: own.saturating_sub(1) }
    }

    /// The nodes that belong to the session.
    pub fn own(&self) -> &[NodeState] {
        &self.nodes[..self.own]
    }

    pub fn host(&self, agent: AgentId) -> &str {
        self.nodes.get(agent.index()).map_or("", |node| &node.host)
    }

    /// The session's agent on this host.
    pub fn own_agent(&self, host: &str) -> Option<AgentId> {
        self.own().iter().position(|node| node.host == host).map(|agent| AgentId(agent as u32))
    }

    /// Adds a host for a job; its agent is starting.
    pub fn add(&mut self, host: &str, job: JobId) -> AgentId {
        let agent = self.free.pop_first().unwrap_or(AgentId(self.nodes.len() as u32));
        if agent.index() == self.nodes.len() {
            self.nodes.push(NodeState { host: String::new(), slots: 0, presence: Presence::Starting });
        }
        self.nodes[agent.index()].host = host.to_owned();
        self.added.insert(agent, job);
        self.change(agent, Presence::Starting);
        agent
    }

    /// Removes a host: its agent leaves. `is_free`: whether another agent may get the number.
    pub fn remove(&mut self, agent: AgentId, is_free: bool) {
        self.added.remove(&agent);
        self.on_lost(agent, &Problem::default());
        self.free.extend(is_free.then_some(agent));
    }

    pub fn added(&self) -> impl Iterator<Item = (AgentId, JobId)> {
        self.added.iter().map(|(agent, job)| (*agent, *job))
    }

    pub fn is_own(&self, agent: AgentId) -> bool {
        agent.index() < self.own
    }

    /// Whether all nodes of a job belong to the session, or were added for the job.
    pub fn have_all(&self, spec: &JobSpec) -> bool {
        let is_there = |agent: AgentId| self.is_own(agent) || self.added.get(&agent) == Some(&spec.job);
        spec.nodes.iter().all(|node| is_there(node.agent))
    }

    /// Whether every node of the session is known to be up or lost.
    pub fn is_settled(&self) -> bool {
        self.starting == 0
    }

    /// Whether an agent is known to be linked.
    pub fn is_up(&self, agent: AgentId) -> bool {
        self.nodes.get(agent.index()).is_some_and(|node| node.presence == Presence::Up)
    }

    /// Whether an agent is neither up nor lost.
    pub fn is_starting(&self, agent: AgentId) -> bool {
        self.nodes.get(agent.index()).is_some_and(|node| node.presence == Presence::Starting)
    }

    pub fn on_agent_up(&mut self, agent: AgentId) {
        self.change(agent, Presence::Up);
    }

    /// An agent is started again, or awaited.
    pub fn on_return(&mut self, agent: AgentId) {
        self.change(agent, Presence::Starting);
    }

    pub fn on_lost(&mut self, agent: AgentId, problem: &Problem) {
        self.change(agent, Presence::Lost { problem: problem.clone() });
    }

    fn change(&mut self, agent: AgentId, to: Presence) {
        let Some(node) = self.nodes.get_mut(agent.index()) else { return };
        let is_starting = to == Presence::Starting;
        let was_starting = std::mem::replace(&mut node.presence, to) == Presence::Starting;
        if self.is_own(agent) {
            self.starting = self.starting + usize::from(is_starting) - usize::from(was_starting);
        }
    }

    /// Why a node is lost, if it is.
    pub fn problem(&self, agent: AgentId) -> Option<&Problem> {
        match &self.nodes.get(agent.index())?.presence {
            Presence::Lost { problem } => Some(problem),
            Presence::Starting | Presence::Up => None,
        }
    }

    pub fn lost(&self) -> Vec<AgentId> {
        let agents = (0..self.own as u32).map(AgentId);
        agents.filter(|agent| self.problem(*agent).is_some()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::in_session;

    #[test]
    fn nodes_are_settled_when_each_is_up_or_lost() {
        let mut nodes = Nodes::new(&in_session(0).session);
        (1..14).map(AgentId).for_each(|agent| nodes.on_agent_up(agent));
        nodes.on_agent_up(AgentId(3));
        assert!(!nodes.is_settled() && nodes.is_up(AgentId(3)) && !nodes.is_up(AgentId(14)));
        nodes.on_lost(AgentId(14), &"no route".into());
        nodes.on_agent_up(AgentId(99));
        assert!(nodes.is_settled());
        assert_eq!((nodes.problem(AgentId(14)), nodes.lost()), (Some(&"no route".into()), vec![AgentId(14)]));
        nodes.on_return(AgentId(14));
        assert!(!nodes.is_settled() && nodes.lost().is_empty());
    }
}
