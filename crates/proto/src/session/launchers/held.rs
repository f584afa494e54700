//! A job that waits for nodes which are being started.

use crate::io::LinkId;
use crate::session::membership::Nodes;
use crate::time::Instant;
use wireup_wire::ids::AgentId;
use wireup_wire::job::JobSpec;

/// How long it waits before whoever has launched it is told for whom (ns). Chosen: agents start in milliseconds on one machine, in a second
/// by ssh.
const UNTOLD_NS: u64 = 2_000_000_000;

pub struct Held {
    pub link: LinkId,
    pub spec: JobSpec,
    pub since: Instant,
    pub is_told: bool,
}

impl Held {
    /// When to say for whom it waits.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.is_told).then_some(self.since + UNTOLD_NS)
    }
}

pub fn are_up(nodes: &Nodes, agents: &[AgentId]) -> bool {
    agents.iter().all(|agent| nodes.is_up(*agent))
}
