//! Plays the recorded inputs of one agent back to a new one.
//!
//! An agent is a function of its birth and its inputs: the outputs of a replay have the digest of the recorded run's.

use crate::digest::Digest;
use wireup_proto::Instant;
use wireup_proto::agent::Agent;
use wireup_proto::io::{Input, Output};

/// What a replay came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplayReport {
    pub inputs: u64,
    pub outputs: u64,
    /// Of all outputs, in order.
    pub digest: u64,
    /// Whether the agent left.
    pub left: bool,
}

/// Gives `inputs` to `agent`, which is as new or has been told its bootstrap's jobs; polls after each input.
///
/// Outputs do not depend on when they are polled: a recording needs no marks of its driver's turns.
pub fn replay(mut agent: Agent, inputs: impl Iterator<Item = (Instant, Input)>) -> ReplayReport {
    let mut report = ReplayReport { inputs: 0, outputs: 0, digest: 0, left: false };
    let mut digest = Digest::default();
    let mut collect = |agent: &mut Agent, report: &mut ReplayReport| {
        while let Some(output) = agent.poll() {
            report.outputs += 1;
            report.left |= output == Output::Exit;
            digest.output(&output);
        }
        report.digest = digest.value();
    };
    collect(&mut agent, &mut report);
    for (now, input) in inputs {
        report.inputs += 1;
        agent.handle(now, input);
        collect(&mut agent, &mut report);
    }
    report
}
