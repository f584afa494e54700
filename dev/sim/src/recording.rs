//! The recorded inputs of a simulated agent, for a replay.

use wireup_proto::AgentConfig;
use wireup_proto::replay::{Recorded, ReplayReport};

/// All inputs of one simulated agent, and a summary of its outputs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recording {
    pub config: AgentConfig,
    pub inputs: Vec<Recorded>,
    pub report: ReplayReport,
}

impl Recording {
    pub fn new(config: AgentConfig) -> Self {
        Recording { config, inputs: Vec::new(), report: ReplayReport::default() }
    }

    pub fn push(&mut self, inputs: Recorded) {
        self.inputs.push(inputs);
        self.report.inputs += 1;
    }
}
