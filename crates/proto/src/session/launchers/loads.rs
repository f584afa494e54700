//! Counts the ranks on each node of a session, and chooses the nodes that the next job gets: at the root, where all
//! jobs are known.
//!
//! A launcher whose user names no nodes asks the root for some. The job's ranks count as load from the answer on, so
//! that a hundred launchers that ask at once get different nodes. Once the job is launched, its description determines
//! its load. Choosing k of N nodes takes O(N + k log k) steps, and the answer is O(k) bytes.

use std::collections::BTreeMap;
use wireup_coll::mapping::Mapping;
use wireup_wire::ids::{AgentId, JobId, NodeId};
use wireup_wire::job::JobSpec;
use wireup_wire::session::{NodeState, Presence, SeatOrder, SeatRequest};

#[derive(Default)]
pub struct Loads {
    pub jobs: BTreeMap<JobId, Load>,
    /// Number of ranks of all jobs, by node; nodes without ranks have no entry.
    ranks: BTreeMap<AgentId, u64>,
}

#[derive(Default)]
pub struct Load {
    /// Number of the job's ranks on each of its nodes.
    ranks: Vec<(AgentId, u32)>,
    /// The order by which the session has chosen the job's nodes; `None`: the job's launcher has named them.
    by: Option<SeatOrder>,
}

impl Loads {
    /// The order in which the nodes of a job were chosen; `None`: its launcher named them.
    pub fn order_of(&self, job: JobId) -> Option<SeatOrder> {
        self.jobs.get(&job)?.by
    }

    /// A job is launched: from now on its description determines its load.
    pub fn launch(&mut self, spec: &JobSpec, mapping: &Mapping) {
        let on = |(index, agent): (u32, AgentId)| (agent, mapping.local_size(NodeId(index)));
        let agents = spec.nodes.iter().map(|node| node.agent);
        let ranks = (0..).zip(agents).map(on).filter(|(_, ranks)| *ranks > 0).collect();
        self.set(spec.job, ranks, self.order_of(spec.job));
    }

    /// A job has ended, or will not be launched: its ranks no longer count as load.
    pub fn remove(&mut self, job: JobId) {
        for (agent, ranks) in self.jobs.remove(&job).unwrap_or_default().ranks {
            let of_node = self.ranks.entry(agent).or_default();
            *of_node -= u64::from(ranks);
            if *of_node == 0 {
                self.ranks.remove(&agent);
            }
        }
    }

    fn set(&mut self, job: JobId, ranks: Vec<(AgentId, u32)>, by: Option<SeatOrder>) {
        self.remove(job);
        for (agent, ranks) in &ranks {
            *self.ranks.entry(*agent).or_default() += u64::from(*ranks);
        }
        self.jobs.insert(job, Load { ranks, by });
    }

    /// Chooses the nodes for a job whose launcher asks for nodes. The job's ranks count as load on these nodes from now
    /// on.
    pub fn assign(&mut self, job: JobId, nodes: &[NodeState], request: &SeatRequest) -> Vec<AgentId> {
        let agents = self.choose(nodes, request);
        let (each, more) = match agents.len() as u32 {
            0 => (0, 0),
            count => (request.ranks / count, request.ranks % count),
        };
        let ranks = (0..).zip(&agents).map(|(index, agent)| (*agent, each + u32::from(index < more))).collect();
        self.set(job, ranks, Some(request.by));
        agents
    }

    /// Chooses nodes for a job. Nodes that are up come before nodes that are starting; lost nodes are left out.
    fn choose(&self, nodes: &[NodeState], request: &SeatRequest) -> Vec<AgentId> {
        let rank = |agent: AgentId| {
            let node = nodes.get(agent.index()).filter(|node| node.slots > 0)?;
            let (ranks, slots) = (self.ranks.get(&agent).copied().unwrap_or(0), u64::from(node.slots));
            let load = match request.by {
                // Ranks per slot, exact to 1 / 2^20.
                SeatOrder::Spread => (ranks << 20) / slots,
                SeatOrder::Pack => ranks / slots,
            };
            match node.presence {
                Presence::Up => Some((false, load, agent)),
                Presence::Starting => Some((true, load, agent)),
                Presence::Lost { .. } => None,
            }
        };
        let mut by_load: Vec<_> = match request.among.is_empty() {
            true => (0..nodes.len() as u32).filter_map(|agent| rank(AgentId(agent))).collect(),
            false => request.among.iter().filter_map(|agent| rank(*agent)).collect(),
        };
        if let Some(count) = request.nodes.map(|count| count as usize).filter(|count| *count < by_load.len()) {
            by_load.select_nth_unstable(count);
            by_load.truncate(count);
        }
        by_load.sort_unstable();
        let mut left = u64::from(request.ranks);
        let is_needed = |agent: &AgentId| {
            let is_needed = request.nodes.is_some() || left > 0;
            left = left.saturating_sub(u64::from(nodes[agent.index()].slots));
            is_needed
        };
        by_load.into_iter().map(|(_, _, agent)| agent).take_while(is_needed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::job_on;

    fn nodes(slots: &[u32]) -> Vec<NodeState> {
        let node = |slots: &u32| NodeState { host: String::new(), slots: *slots, presence: Presence::Up };
        slots.iter().map(node).collect()
    }

    fn chosen(loads: &Loads, nodes: &[NodeState], ranks: u32, count: Option<u32>, by: SeatOrder) -> Vec<u32> {
        let request = SeatRequest { ranks, nodes: count, among: Vec::new(), by };
        loads.choose(nodes, &request).into_iter().map(|agent| agent.0).collect()
    }

    fn launch(loads: &mut Loads, job: u32, agents: &[u32], ppn: u32) {
        let spec = job_on(job, agents.iter().copied(), ppn);
        loads.launch(&spec, &Mapping::new(&spec.blocks, spec.job_size(), agents.len() as u32).unwrap());
    }

    #[test]
    fn nodes_with_the_fewest_ranks_per_slot_come_first() {
        let (mut loads, nodes) = (Loads::default(), nodes(&[0, 2, 4, 1]));
        assert_eq!(chosen(&loads, &nodes, 1, Some(1), SeatOrder::Spread), [1], "node 0 runs no ranks");
        launch(&mut loads, 1, &[1], 1);
        launch(&mut loads, 2, &[2], 1);
        assert_eq!(chosen(&loads, &nodes, 9, Some(9), SeatOrder::Spread), [3, 2, 1]);
        assert_eq!(chosen(&loads, &nodes, 2, None, SeatOrder::Spread), [3, 2], "until there are slots for two");
        assert_eq!(chosen(&loads, &nodes, 1, Some(1), SeatOrder::Pack), [1], "it has a free slot");
        launch(&mut loads, 3, &[1], 1);
        assert_eq!(chosen(&loads, &nodes, 1, Some(1), SeatOrder::Pack), [2], "the first is full");
        [1, 2, 3].into_iter().for_each(|job| loads.remove(JobId(job)));
        assert_eq!((loads.jobs.len(), loads.ranks.len()), (0, 0));
    }

    #[test]
    fn lost_nodes_are_left_out_and_those_that_start_come_last() {
        let (loads, mut nodes) = (Loads::default(), nodes(&[1, 1, 1]));
        nodes[0].presence = Presence::Starting;
        nodes[1].presence = Presence::Lost { problem: "gone".into() };
        assert_eq!(chosen(&loads, &nodes, 3, Some(3), SeatOrder::Spread), [2, 0]);
        let request =
            SeatRequest { ranks: 1, nodes: Some(1), among: vec![AgentId(0), AgentId(9)], by: SeatOrder::Pack };
        assert_eq!(loads.choose(&nodes, &request), [AgentId(0)]);
    }
}
