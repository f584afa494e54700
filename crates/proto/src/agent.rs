//! One agent: routes each input to the part that owns it.
use crate::io::{Input, Output};
use crate::time::Instant;
use wireup_wire::peer::{AgentSpec, SessionSpec};
use wireup_wire::ids::AgentId;

/// What an agent is told at birth.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentConfig {
    pub agent: AgentId,
    pub session: SessionSpec,
}

pub struct Agent { _a: Vec<AgentSpec> }

impl Agent {
    pub fn new(_config: AgentConfig, _now: Instant) -> Self { todo!() }
    /// Tells the agent one thing that happened at `now`. Never blocks.
    pub fn handle(&mut self, _now: Instant, _input: Input) { todo!() }
    /// The next thing to do; call until `None`.
    pub fn poll(&mut self) -> Option<Output> { todo!() }
    /// When to call `handle` with `Input::Tick` if nothing else happens first.
    pub fn deadline(&self) -> Option<Instant> { todo!() }
    /// A job that the bootstrap message brought along (or, at the root, the launcher's frame).
    pub fn launch(&mut self, _now: Instant, _job: wireup_wire::job::JobSpec) { todo!() }
}
