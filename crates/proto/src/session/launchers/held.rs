//! A job that waits for nodes which are being started.

use crate::io::LinkId;
use crate::session::membership::Nodes;
use crate::time::Instant;
use wireup_wire::ids::AgentId;
use wireup_wire::job::JobSpec;

pub struct Held {
    pub link: LinkId,
    pub spec: JobSpec,
    pub since: Instant,
}

pub fn are_up(nodes: &Nodes, agents: &[AgentId]) -> bool {
    agents.iter().all(|agent| nodes.is_up(*agent))
}
