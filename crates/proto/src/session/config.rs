//! The configuration with which an agent is started, and the statistics for the simulator.

use crate::job::Born;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::SessionSpec;
use wireup_wire::session::SessionSnapshot;

/// The configuration of a new agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentConfig {
    pub agent: AgentId,
    pub session: SessionSpec,
    pub born: Born,
    /// In a standing session: the parent's addresses, best first.
    pub parent: Vec<String>,
    pub snapshot: SessionSnapshot,
    /// The architecture of this machine, as Rust names it, if it is known.
    pub arch: Option<&'static str>,
}

impl AgentConfig {
    /// The configuration of an agent that is not in a standing session.
    pub fn new(agent: AgentId, session: SessionSpec, born: Born) -> Self {
        AgentConfig { agent, session, born, parent: Vec::new(), snapshot: SessionSnapshot::default(), arch: None }
    }
}

/// Amounts of data that an agent stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Holds {
    pub jobs: usize,
    pub early_frames: usize,
    pub direct_jobs: usize,
    pub direct_bytes: usize,
    pub session: usize,
}
