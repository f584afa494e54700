//! Replays the inputs of one agent.
//!
//! An agent is a function of its configuration and its inputs, so the outputs of a replay have the digest of the
//! recorded run. Outputs do not depend on when they are polled, so a recording does not mark the turns of its driver.
//! A driver writes recordings into files.

use crate::io::{Input, Output};
use crate::{Agent, AgentConfig, Instant};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write};
use wireup_wire::job::JobSpec;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Recorded {
    /// The driver has called [`Agent::begin`], because the session is a standing one.
    Begin(Instant),
    /// The driver has called [`Agent::launch`] with the job in the bootstrap message.
    Launch(Instant, Box<JobSpec>),
    Input(Instant, Input),
    /// The digest of the agent's outputs so far, according to the recording.
    Asked(OutputDigest),
}

/// A summary of an agent's outputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplayReport {
    pub inputs: u64,
    pub digest: OutputDigest,
    pub left: bool,
    /// The number of entries after which the outputs first differed from the recording.
    pub differs_after: Option<u64>,
}

impl ReplayReport {
    pub fn on_output(&mut self, output: &Output) {
        self.left |= *output == Output::Exit;
        self.digest.add(output);
    }
}

/// Gives all entries to a new agent, and polls its outputs after each.
pub fn replay(config: AgentConfig, inputs: impl Iterator<Item = Recorded>) -> ReplayReport {
    let mut agent = Agent::new(config);
    let mut report = ReplayReport::default();
    for inputs in inputs {
        report.inputs += 1;
        match inputs {
            Recorded::Begin(now) => agent.begin(now),
            Recorded::Launch(now, job) => agent.launch(now, *job),
            Recorded::Input(now, input) => agent.handle(now, input),
            Recorded::Asked(recorded) => {
                report.inputs -= 1;
                if recorded != report.digest {
                    report.differs_after.get_or_insert(report.inputs);
                }
            }
        }
        while let Some(output) = agent.poll() {
            report.on_output(&output);
        }
    }
    report
}

/// A digest of all outputs so far, in order; independent of when they were polled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutputDigest {
    pub outputs: u64,
    value: u64,
}

impl Default for OutputDigest {
    fn default() -> Self {
        OutputDigest { outputs: 0, value: 0xcbf2_9ce4_8422_2325 }
    }
}

impl OutputDigest {
    pub fn add(&mut self, output: &Output) {
        self.outputs += 1;
        // Adding text to the digest cannot fail.
        let _ = write!(self, "{output:?}");
    }

    pub fn value(self) -> u64 {
        self.value
    }
}

impl Write for OutputDigest {
    /// FNV-1a: independent of how the formatter splits its text.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.value = (self.value ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        Ok(())
    }
}
