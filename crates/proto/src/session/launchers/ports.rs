//! Gives jobs a share of the ports that agents have reserved for ranks: at the root.
//!
//! A job gets a contiguous share on each of its nodes, the lowest that fits. On each node the share is free again when
//! the agent reports it (`Renewed`): then the job has ended everywhere, so nobody connects for it any more, and the
//! ports listen for others. If one of the job's nodes has no such share, the job gets none, and its agents find ports
//! as in a session without reserved ports.

use crate::session::membership::Nodes;
use bytes::Bytes;
use std::collections::BTreeMap;
use wireup_coll::mapping::Mapping;
use wireup_wire::ids::{AgentId, JobId, NodeId};
use wireup_wire::job::{JobSpec, PortRange, RankPorts};
use wireup_wire::rank_address;
use wireup_wire::session::{RankPortsNews, RankPortsReport};

#[derive(Default)]
pub struct Ports {
    agents: BTreeMap<AgentId, AgentPorts>,
}

struct AgentPorts {
    incarnation: u32,
    count: u32,
    /// The agent's address with the lowest of the reserved ports.
    address: Bytes,
    /// Shares of jobs, in ascending order of their ports.
    shares: Vec<Share>,
}

/// The ports of one job, from `first` on, counted from the agent's lowest port.
struct Share {
    job: JobId,
    first: u32,
    count: u32,
}

impl Ports {
    /// Handles an agent's report: the ports that it has reserved, possibly repeated, or a job whose ports are free.
    pub fn on_report(&mut self, RankPortsReport { agent, incarnation, news }: RankPortsReport) {
        let known = self.agents.get_mut(&agent).filter(|known| known.incarnation == incarnation);
        match (news, known) {
            (RankPortsNews::Reserved { count, address }, None) => {
                let ports = AgentPorts { incarnation, count: count.into(), address, shares: Vec::new() };
                self.agents.insert(agent, ports);
            }
            (RankPortsNews::Renewed(job), Some(known)) => known.shares.retain(|share| share.job != job),
            (RankPortsNews::Reserved { .. }, Some(_)) | (RankPortsNews::Renewed(_), None) => {}
        }
    }

    /// Forgets the ports of agents that are lost: a new incarnation reserves its own.
    pub fn forget_lost(&mut self, nodes: &Nodes) {
        self.agents.retain(|agent, _| nodes.problem(*agent).is_none());
    }

    /// Gives ports to a job: returns, for each of its nodes, the address of the node's first rank; empty: some node has
    /// too few ports, so the job gets none.
    pub fn allot(&mut self, spec: &JobSpec, mapping: &Mapping) -> Vec<Bytes> {
        // Sockets already listen on the reserved ports, so these suit only jobs that want listening sockets.
        let Some(RankPorts { range, listen: true }) = spec.options.process.rank_ports else { return Vec::new() };
        let mut share = |(index, node): (u32, &wireup_wire::job::NodeSpec)| match mapping.local_size(NodeId(index)) {
            0 => Some(Bytes::new()),
            count => self.agents.get_mut(&node.agent)?.allot(spec.job, count, range),
        };
        let addresses: Option<Vec<Bytes>> = (0..).zip(&spec.nodes).map(&mut share).collect();
        if addresses.is_none() {
            self.agents.values_mut().for_each(|ports| ports.shares.retain(|share| share.job != spec.job));
        }
        addresses.unwrap_or_default()
    }
}

impl AgentPorts {
    /// The address of the first of `count` free ports in the range that the job asks for.
    fn allot(&mut self, job: JobId, count: u32, range: PortRange) -> Option<Bytes> {
        let lowest = u32::from(rank_address::port(&self.address)?);
        let mut first = u32::from(range.low).saturating_sub(lowest);
        let end = self.count.min((u32::from(range.high) + 1).saturating_sub(lowest));
        let mut place = 0;
        for (index, share) in self.shares.iter().enumerate() {
            if share.first >= first + count {
                break;
            }
            first = first.max(share.first + share.count);
            place = index + 1;
        }
        if first + count > end {
            return None;
        }
        self.shares.insert(place, Share { job, first, count });
        rank_address::shift_port(&self.address, first).map(Bytes::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::job_on;

    const ANY: PortRange = PortRange { low: 1, high: u16::MAX };

    fn reserved(agent: u32, incarnation: u32, port: u16) -> RankPortsReport {
        let news = RankPortsNews::Reserved { count: 10, address: rank_address::encode(7, port, &[]).into() };
        RankPortsReport { agent: AgentId(agent), incarnation, news }
    }

    fn renewed(ports: &mut Ports, job: u32, agents: &[u32]) {
        for agent in agents.iter().copied().map(AgentId) {
            ports.on_report(RankPortsReport { agent, incarnation: 0, news: RankPortsNews::Renewed(JobId(job)) });
        }
    }

    /// Agents 0 and 1 have ten ports each, from 100 and 200.
    fn ports() -> Ports {
        let mut ports = Ports::default();
        ports.on_report(reserved(0, 0, 100));
        ports.on_report(reserved(1, 0, 200));
        ports
    }

    fn allot(ports: &mut Ports, job: u32, agents: &[u32], ppn: u32, range: PortRange) -> Vec<Option<u16>> {
        let mut spec = job_on(job, agents.iter().copied(), ppn);
        spec.options.process.rank_ports = Some(RankPorts { range, listen: true });
        let mapping = Mapping::new(&spec.blocks, spec.job_size(), agents.len() as u32).unwrap();
        ports.allot(&spec, &mapping).iter().map(|address| rank_address::port(address)).collect()
    }

    #[test]
    fn jobs_get_the_lowest_ports_that_no_other_job_has() {
        let mut ports = ports();
        assert_eq!(allot(&mut ports, 1, &[0, 1], 3, ANY), [Some(100), Some(200)]);
        assert_eq!(allot(&mut ports, 2, &[1], 4, ANY), [Some(203)]);
        assert_eq!(allot(&mut ports, 3, &[0, 1], 3, ANY), [Some(103), Some(207)]);
        assert_eq!(allot(&mut ports, 4, &[0, 1], 1, ANY), [], "agent 1 has none left");
        renewed(&mut ports, 2, &[1]);
        assert_eq!(
            allot(&mut ports, 5, &[1, 0], 2, ANY),
            [Some(203), Some(106)],
            "the failed attempt has left no trace"
        );
        assert_eq!(allot(&mut ports, 6, &[1], 3, ANY), []);
        [1, 3].into_iter().for_each(|job| renewed(&mut ports, job, &[0, 1]));
        renewed(&mut ports, 5, &[1]);
        assert_eq!(allot(&mut ports, 7, &[0], 10, ANY), [], "agent 0 has not renewed all");
        renewed(&mut ports, 5, &[0]);
        assert_eq!(allot(&mut ports, 7, &[0, 1], 10, ANY), [Some(100), Some(200)]);
    }

    #[test]
    fn a_job_may_ask_for_certain_ports() {
        let mut ports = ports();
        let range = |low, high| PortRange { low, high };
        assert_eq!(allot(&mut ports, 1, &[0], 2, range(104, 107)), [Some(104)]);
        assert_eq!(allot(&mut ports, 2, &[0], 2, range(104, 107)), [Some(106)]);
        assert_eq!(allot(&mut ports, 3, &[0], 1, range(104, 107)), []);
        assert_eq!(allot(&mut ports, 3, &[0], 3, range(90, 120)), [Some(100)]);
        assert_eq!(allot(&mut ports, 4, &[0], 1, range(10, 90)), []);
        assert_eq!(allot(&mut ports, 4, &[0], 2, range(109, 300)), []);
    }

    #[test]
    fn an_agent_that_is_started_again_has_other_ports() {
        let mut ports = ports();
        assert_eq!(allot(&mut ports, 1, &[0], 10, ANY), [Some(100)]);
        ports.on_report(reserved(0, 0, 100));
        assert_eq!(allot(&mut ports, 2, &[0], 1, ANY), [], "it has only said so again");
        ports.on_report(reserved(0, 3, 400));
        assert_eq!(allot(&mut ports, 2, &[0], 1, ANY), [Some(400)]);
        let mut nodes = Nodes::new(&crate::testing::in_session(0).session);
        nodes.on_lost(AgentId(0), &"gone".into());
        ports.forget_lost(&nodes);
        assert_eq!(allot(&mut ports, 3, &[0], 1, ANY), []);
        assert_eq!(allot(&mut ports, 3, &[1], 1, ANY), [Some(200)]);
    }
}
