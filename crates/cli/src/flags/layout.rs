//! The agents of a session and the nodes of a job: which agent runs on which machine.
//!
//! Agent 0 is the launcher's own process. If the launcher's machine is one of the hosts, agent 0 runs that node;
//! otherwise agent 0 has no node. Nodes keep the user's order.

use super::parsed::Start;
use crate::hosts::Hosts;
use std::sync::Arc;
use wireup_coll::mapping::Mapping;
use wireup_coll::tree;
use wireup_wire::ids::{AgentId, Rank};
use wireup_wire::job::NodeSpec;
use wireup_wire::peer::AgentSpec;

/// Remote shells in progress at once below one agent. Chosen: more than the default fan-out, so that only `--start
/// ssh-flat` has to wait; few enough for the memory and the process limit of a login node.
const SHELLS_MAX: u32 = 64;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    pub agents: Arc<[AgentSpec]>,
    pub nodes: Vec<NodeSpec>,
}

impl Layout {
    /// The layout of a job on this machine, or on the given number of virtual nodes of it.
    pub fn surroundings(virtual_nodes: Option<u32>, own: &str) -> Layout {
        let nodes: Vec<NodeSpec> = match virtual_nodes {
            None => vec![NodeSpec { agent: AgentId(0), name: own.to_owned(), shared: false }],
            Some(count) => (0..count)
                .map(|node| NodeSpec { agent: AgentId(node), name: format!("node{node}"), shared: count > 1 })
                .collect(),
        };
        Layout { agents: nodes.iter().map(|node| AgentSpec { host: node.name.clone() }).collect(), nodes }
    }

    /// The layout with one agent per host.
    pub fn of_hosts(hosts: &Hosts, own: &str) -> Layout {
        let own = hosts.list.iter().find(|host| host.is_local).map_or(own, |host| &host.name);
        let mut agents = vec![AgentSpec { host: own.to_owned() }];
        let mut nodes = Vec::with_capacity(hosts.list.len());
        for host in &hosts.list {
            let agent = if host.is_local { AgentId(0) } else { add(&mut agents, &host.name) };
            nodes.push(NodeSpec { agent, name: host.name.clone(), shared: false });
        }
        Layout { agents: agents.into(), nodes }
    }

    /// One agent for each rank. Each agent is a separate node, on the host where the mapping has placed the rank.
    /// Agents on this machine are started by the remote shell, too.
    pub fn of_ranks(hosts: &Hosts, mapping: &Mapping, own: &str) -> Layout {
        let mut agents = vec![AgentSpec { host: own.to_owned() }];
        let node = |rank| {
            let (place, _) = mapping.place(Rank(rank))?;
            let name = hosts.list[place.index()].name.clone();
            Some(NodeSpec { agent: add(&mut agents, &name), name, shared: mapping.local_size(place) > 1 })
        };
        let nodes = (0..mapping.job_size()).filter_map(node).collect();
        Layout { agents: agents.into(), nodes }
    }

    /// Whether there is only the launcher's own agent.
    pub fn is_alone(&self) -> bool {
        self.agents.len() == 1
    }

    pub fn fanout(&self, start: Start, asked: Option<u32>) -> u32 {
        let agents = self.agents.len() as u32;
        match start {
            Start::Tree => asked.unwrap_or_else(|| tree::default_fanout(agents)),
            Start::Flat | Start::Serial => agents,
        }
    }
}

fn add(agents: &mut Vec<AgentSpec>, host: &str) -> AgentId {
    agents.push(AgentSpec { host: host.to_owned() });
    AgentId(agents.len() as u32 - 1)
}

pub fn shells_max(start: Start) -> u32 {
    match start {
        Start::Tree | Start::Flat => SHELLS_MAX,
        Start::Serial => 1,
    }
}
