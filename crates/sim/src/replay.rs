//! Plays back what one agent was told.
//!
//! An agent is a function of its birth and its inputs: a replay's outputs have the digest of the recorded run's.
//! Outputs do not depend on when they are polled, so a recording needs no marks of its driver's turns. The recording's
//! file format is its driver's affair.

use wireup_proto::io::{Input, Output};
use wireup_proto::{Agent, AgentConfig, Instant, OutputDigest};
use wireup_wire::job::JobSpec;

/// One thing that an agent was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    Begin(Instant),
    /// A job of its bootstrap message.
    Launch(Instant, Box<JobSpec>),
    Input(Instant, Input),
    /// What it had asked for by then, as the recording says.
    Asked(OutputDigest),
}

/// What an agent wanted done, summed up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplayReport {
    pub told: u64,
    /// Of all outputs, in order.
    pub digest: OutputDigest,
    /// Whether the agent left.
    pub left: bool,
    /// How many things had been told when the agent asked for something else than the recording says.
    pub differs_after: Option<u64>,
}

/// All that one simulated agent was told, and what it wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recording {
    pub config: AgentConfig,
    pub told: Vec<Told>,
    pub report: ReplayReport,
}

impl ReplayReport {
    pub fn on_output(&mut self, output: &Output) {
        self.left |= *output == Output::Exit;
        self.digest.add(output);
    }
}

impl Recording {
    pub fn new(config: AgentConfig) -> Self {
        Recording { config, told: Vec::new(), report: ReplayReport::default() }
    }

    pub fn on_told(&mut self, told: Told) {
        self.told.push(told);
        self.report.told += 1;
    }
}

/// Tells a new agent everything again; it is asked for outputs after each thing.
pub fn replay(config: AgentConfig, told: impl Iterator<Item = Told>) -> ReplayReport {
    let mut agent = Agent::new(config);
    let mut report = ReplayReport::default();
    for told in told {
        report.told += 1;
        match told {
            Told::Begin(now) => agent.begin(now),
            Told::Launch(now, job) => agent.launch(now, *job),
            Told::Input(now, input) => agent.handle(now, input),
            Told::Asked(recorded) => {
                report.told -= 1;
                if recorded != report.digest {
                    report.differs_after.get_or_insert(report.told);
                }
            }
        }
        while let Some(output) = agent.poll() {
            report.on_output(&output);
        }
    }
    report
}
