//! A job of a standing session that loses an agent, or its launcher, while the session goes on.
//!
//! The root ends it as after any failure. Agents whose way to the root led by way of the lost one are not reached any more: they end
//! their ranks by force, tell nobody, and forget the job.

use super::{Context, Job, Up};
use wireup_wire::ids::{AgentId, NodeId};
use wireup_wire::peer::{Cause, Failure};

impl Job {
    /// All ranks run, or are gone.
    pub fn has_started(&self) -> bool {
        self.started_said
    }

    /// Whether agents may hold something of it when it is over.
    pub fn leaves_traces(&self) -> bool {
        self.is_torn || self.facts.spec.options.pmi.has_pmix()
    }

    /// An agent is lost for good; at the root it was named already.
    pub fn on_agent_lost(&mut self, agent: AgentId, cx: &mut Context<'_>) {
        if !self.has_agent(agent) {
            return;
        }
        self.is_torn = true;
        self.on_child_lost(agent);
        if self.facts.tree.subtree_contains(agent, self.facts.me) {
            self.abandon(cx);
        }
    }

    /// Nobody above waits for it any more.
    pub fn abandon(&mut self, cx: &mut Context<'_>) {
        self.up = Up::Nowhere;
        cx.up = Up::Nowhere;
        self.discard_output();
        self.kill(0, cx);
    }

    /// Nobody wants it any more.
    pub fn on_launcher_gone(&mut self, cx: &mut Context<'_>) {
        self.discard_output();
        self.fail_by(Cause::Launcher { problem: "its launcher is gone".into() }, cx);
    }

    /// Something that is no node's fault ends it.
    pub fn fail_by(&mut self, cause: Cause, cx: &mut Context<'_>) {
        self.is_unwanted = true;
        self.fail(Failure { node: NodeId(0), host: String::new(), rank: None, pid: None, cause }, cx);
    }

    pub(super) fn discard_output(&mut self) {
        self.output.iter_mut().for_each(|stream| stream.discard());
    }
}
