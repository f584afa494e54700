//! What an agent is told at its birth, and what it tells of itself to the simulator.

use crate::job::Born;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::SessionSpec;
use wireup_wire::session::Kin;

/// What an agent is told at birth.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentConfig {
    pub agent: AgentId,
    pub session: SessionSpec,
    pub born: Born,
    /// Where its parent listens, best first; of a standing session.
    pub parent: Vec<String>,
    pub kin: Kin,
    /// The architecture of this machine, as Rust names it, if it is known.
    pub arch: Option<&'static str>,
}

impl AgentConfig {
    /// Of an agent that nobody has told about its kin.
    pub fn new(agent: AgentId, session: SessionSpec, born: Born) -> Self {
        AgentConfig { agent, session, born, parent: Vec::new(), kin: Kin::default(), arch: None }
    }
}

/// What an agent holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Holds {
    pub jobs: usize,
    pub early_frames: usize,
    pub direct_jobs: usize,
    pub direct_bytes: usize,
    pub session: usize,
}
