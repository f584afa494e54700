//! The agents of a world and their machines: power, remote shells, and walls (hosts that cannot dial each other).

use crate::agents::AgentProcess;
use crate::cx::Cx;
use crate::fault_injection::{Fault, NoStart};
use crate::spec::WorldSpec;
use crate::traffic::Recording;
use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};
use std::sync::Arc;
use wireup_coll::tree::Tree;
use wireup_proto::Instant;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::JobSpec;

/// The machine on which one agent runs.
#[derive(Default)]
pub struct Host {
    /// Parent of the host's agent in the original tree.
    pub parent: Option<u32>,
    /// The processes that were started here, the oldest first.
    pub processes: Vec<u32>,
    /// Number of calls that the host has refused so far.
    pub refusals: u32,
    /// Whether the agents' program was sent to the host.
    pub has_program: bool,
    /// Whether the host is permanently unreachable for remote shells.
    pub is_gone: bool,
    /// Time until which the host has no power.
    pub off_until: Instant,
    /// How the host's agent fails to start; `None`: it starts.
    pub no_start: Option<NoStart>,
    /// Number of remote shells that will still break as soon as they have started the host's agent.
    pub broken_shells: u32,
}

/// A wall: dials from one host to another get no answer.
pub struct Wall {
    pub from: u32,
    pub to: u32,
    pub until: Instant,
}

/// The agents, hosts and walls of a world.
pub struct Agents {
    /// The machines, by agent.
    pub hosts: Vec<Host>,
    /// The processes of agents, in the order in which they were started; process 0 is the root.
    pub all: Vec<AgentProcess>,
    pub walls: Vec<Wall>,
    /// The inputs of the agents that the spec asks to record.
    pub recordings: BTreeMap<u32, Recording>,
    /// The descriptions of jobs: agents share one copy of each.
    pub specs: BTreeMap<JobId, Arc<JobSpec>>,
}

impl Index<u32> for Agents {
    type Output = AgentProcess;

    fn index(&self, agent: u32) -> &AgentProcess {
        &self.all[agent as usize]
    }
}

impl IndexMut<u32> for Agents {
    fn index_mut(&mut self, agent: u32) -> &mut AgentProcess {
        &mut self.all[agent as usize]
    }
}

impl Agents {
    pub fn new(spec: &WorldSpec) -> Self {
        let tree = Tree::new(spec.agents, spec.fanout);
        let parent = |agent: u32| tree.parent(AgentId(agent)).map(|parent| parent.0);
        let host = |agent| Host { parent: parent(agent), ..Host::default() };
        let mut hosts: Vec<Host> = (0..spec.agents_max()).map(host).collect();
        for fault in &spec.faults {
            match *fault {
                Fault::NoStart { agent, how } => hosts[agent as usize].no_start = Some(how),
                Fault::BreakShells { agent, times } => hosts[agent as usize].broken_shells += times,
                _ => {}
            }
        }
        Agents { hosts, all: Vec::new(), walls: Vec::new(), recordings: BTreeMap::new(), specs: BTreeMap::new() }
    }

    pub fn is_off(&self, cx: &Cx, host: u32) -> bool {
        self.hosts[host as usize].off_until > cx.clock.now()
    }

    pub fn is_walled_off(&self, cx: &Cx, from: u32, to: u32) -> bool {
        let now = cx.clock.now();
        self.walls.iter().any(|wall| wall.from == from && wall.to == to && wall.until > now)
    }

    /// The name of a process in messages, which is also the address where the process listens.
    pub fn name(&self, agent: u32) -> String {
        let AgentProcess { host, start, .. } = self[agent];
        if start == 1 { format!("agent {host}") } else { format!("agent {host} start {start}") }
    }

    /// The running processes of a host's agent, oldest first.
    pub fn running_at(&self, host: u32) -> Vec<u32> {
        let processes = self.hosts[host as usize].processes.iter().copied();
        processes.filter(|agent| self[*agent].is_running()).collect()
    }

    /// The process of a host's agent that was started last, if it still runs.
    pub fn newest_at(&self, host: u32) -> Option<u32> {
        self.running_at(host).last().copied()
    }

    /// Whether a running agent process of this host was ever linked to a parent.
    pub fn is_linked(&self, host: u32) -> bool {
        self.newest_at(host).is_some_and(|agent| self[agent].up.is_some())
    }

    /// An agent and `above` of its ancestors in the original tree, without the root.
    pub fn with_above(&self, agent: u32, above: u32) -> Vec<u32> {
        self.up_from(agent).take(above as usize + 1).filter(|agent| *agent != 0).collect()
    }

    /// The agents in the subtree of the original tree whose top is the agent `top`, including `top`.
    pub fn subtree(&self, top: u32) -> Vec<u32> {
        (0..self.hosts.len() as u32).filter(|agent| self.up_from(*agent).any(|at| at == top)).collect()
    }

    fn up_from(&self, agent: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(agent), |at| self.hosts[*at as usize].parent)
    }
}
