//! What other agents send to a job here beside the tree.

use super::{Context, Job};
use wireup_wire::frame::Frame;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::Cause;

impl Job {
    /// A frame of kind `Direct`. Nothing is exchanged beside the tree so far: it changes nothing.
    pub fn on_direct(&mut self, _from: AgentId, _frame: Frame, _cx: &mut Context<'_>) {}

    /// A link beside the tree that the job wants could not be made, or broke.
    pub fn fail_direct(&mut self, agent: AgentId, problem: &str, cx: &mut Context<'_>) {
        let name = self.spec.nodes.iter().find(|node| node.agent == agent).map(|node| node.name.clone());
        let host = name.unwrap_or_else(|| format!("agent {agent}"));
        self.fail_here(Cause::NoDirectLink { agent, host, problem: problem.to_owned() }, cx);
    }
}
