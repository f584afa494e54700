//! What the root knows of all nodes: which are there, which are on their way, which are lost, and why.

use wireup_wire::ids::AgentId;
use wireup_wire::peer::SessionSpec;
use wireup_wire::session::{NodeState, Presence};

pub struct Nodes {
    nodes: Vec<NodeState>,
    /// Nodes of which it is not known yet whether they come.
    starting: usize,
    /// The last life that lost agents were started to.
    life: u32,
}

impl Nodes {
    pub fn new(session: &SessionSpec) -> Self {
        let slots = |index| session.standing.as_ref().and_then(|standing| standing.slots.get(index).copied());
        let nodes = session.agents.iter().enumerate().map(|(index, agent)| NodeState {
            host: agent.host.clone(),
            slots: slots(index).unwrap_or(1),
            presence: if index == 0 { Presence::Up } else { Presence::Starting },
        });
        Nodes { nodes: nodes.collect(), starting: session.agents.len().saturating_sub(1), life: 0 }
    }

    pub fn all(&self) -> &[NodeState] {
        &self.nodes
    }

    /// Whether it is known of all nodes that they are there, or are not.
    pub fn is_settled(&self) -> bool {
        self.starting == 0
    }

    /// These agents are linked; handed back are those that were before.
    pub fn on_here(&mut self, agents: &[AgentId]) -> Vec<AgentId> {
        let mut before = Vec::new();
        for &agent in agents {
            let Some(node) = self.nodes.get_mut(agent.index()) else { continue };
            match node.presence {
                Presence::Starting => {
                    node.presence = Presence::Up;
                    self.starting -= 1;
                }
                Presence::Up => before.push(agent),
                Presence::Lost { .. } => {}
            }
        }
        before
    }

    /// True if that is news.
    pub fn on_lost(&mut self, agent: AgentId, problem: &str) -> bool {
        let Some(node) = self.nodes.get_mut(agent.index()).filter(|_| agent != AgentId(0)) else { return false };
        let before = std::mem::replace(&mut node.presence, Presence::Lost { problem: problem.to_owned() });
        match before {
            Presence::Lost { .. } => {
                node.presence = before;
                false
            }
            Presence::Starting => {
                self.starting -= 1;
                true
            }
            Presence::Up => true,
        }
    }

    /// Why a node is lost, if it is.
    pub fn problem(&self, agent: AgentId) -> Option<&str> {
        match &self.nodes.get(agent.index())?.presence {
            Presence::Lost { problem } => Some(problem),
            Presence::Starting | Presence::Up => None,
        }
    }

    /// All that are lost: they are being started from now on.
    pub fn take_lost(&mut self) -> Vec<AgentId> {
        let mut lost = Vec::new();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            if matches!(node.presence, Presence::Lost { .. }) {
                node.presence = Presence::Starting;
                self.starting += 1;
                lost.push(AgentId(index as u32));
            }
        }
        lost
    }

    pub fn next_life(&mut self) -> u32 {
        self.life += 1;
        self.life
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Scene;

    #[test]
    fn it_is_settled_when_each_is_there_or_known_to_be_missing() {
        let mut nodes = Nodes::new(&Scene::standing(0).session);
        assert!(nodes.on_here(&(1..14).map(AgentId).collect::<Vec<_>>()).is_empty());
        assert!(!nodes.is_settled());
        assert!(nodes.on_lost(AgentId(14), "no route") && !nodes.on_lost(AgentId(14), "something else"));
        assert!(nodes.is_settled());
        assert_eq!(nodes.problem(AgentId(14)), Some("no route"), "what was said first");
        assert_eq!(nodes.on_here(&[AgentId(3)]), [AgentId(3)], "it was there before");
    }

    #[test]
    fn the_lost_are_started_once() {
        let mut nodes = Nodes::new(&Scene::standing(0).session);
        nodes.on_lost(AgentId(2), "its link broke");
        assert_eq!(nodes.take_lost(), [AgentId(2)]);
        assert!(nodes.take_lost().is_empty() && nodes.problem(AgentId(2)).is_none());
        assert!(!nodes.on_lost(AgentId(0), "the root is never lost"));
    }
}
