//! Ends the agent itself: when nothing is left to do, or its time is up.
//!
//! ```text
//!   told to leave ──► tells its children ──► no children, no jobs ──► left
//!                                        └──► time is up ───────────► left
//! ```

use super::Cx;
use crate::io::Output;
use crate::time::Instant;
use wireup_wire::talk::SessionDown;

/// How long an agent that was told to leave waits for its children (ns). Chosen: an agent with nothing left to do needs
/// milliseconds; the agent's keeper process kills whatever is still running then.
const SHUTDOWN_NS_MAX: u64 = 5_000_000_000;

#[derive(Default)]
pub struct Leaving {
    /// Time by which the agent leaves even if children or jobs remain; `None`: it was not told to leave.
    until: Option<Instant>,
    left: bool,
    /// Whether the batch system has told this agent to end.
    told_to_end: bool,
}

impl Leaving {
    pub fn has_left(&self) -> bool {
        self.left
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.until
    }

    pub fn on_told_to_end(&mut self) {
        self.told_to_end = true;
    }

    /// The session ends: tells the children, and limits the time that this agent waits for them.
    pub fn on_shutdown(&mut self, cx: &mut Cx) {
        if self.until.is_none() {
            self.until = Some(cx.agent.now + SHUTDOWN_NS_MAX);
            cx.is_leaving = true;
            cx.children(SessionDown::Shutdown);
        }
    }

    /// Leaves once there are no children and no jobs, if the agent was told to leave.
    pub fn leave_if_done(&mut self, cx: &mut Cx) {
        if self.until.is_some() && cx.agent.links.neighbours.is_leaf() && cx.jobs.is_empty() {
            self.leave(cx);
        }
    }

    /// Leaves when all jobs here have ended, if the batch system has told this agent to end. The agents above and below
    /// it repair the tree, as after any loss.
    pub fn leave_if_told(&mut self, cx: &mut Cx) {
        if self.told_to_end && cx.policy.outlives_jobs() && !cx.is_root() && cx.jobs.is_empty() {
            self.leave(cx);
        }
    }

    pub fn on_tick(&mut self, cx: &mut Cx) {
        if self.until.is_some_and(|until| cx.agent.now >= until) {
            self.leave(cx);
        }
    }

    pub fn leave(&mut self, cx: &mut Cx) {
        if !std::mem::replace(&mut self.left, true) {
            cx.output(Output::Exit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{in_session, one_run};
    use wireup_wire::ids::AgentId;

    fn exits(cx: &mut Cx) -> usize {
        cx.outputs().iter().filter(|output| matches!(output, Output::Exit)).count()
    }

    #[test]
    fn an_agent_waits_for_its_children_for_a_limited_time() {
        let (mut cx, mut leaving) = (one_run(1), Leaving::default());
        cx.link_child(3);
        cx.outputs();
        leaving.on_shutdown(&mut cx);
        leaving.on_shutdown(&mut cx);
        assert_eq!(cx.outputs().len(), 1, "children are told once");
        leaving.leave_if_done(&mut cx);
        assert_eq!(exits(&mut cx), 0);
        cx.agent.now = leaving.deadline().expect("the wait is limited");
        leaving.on_tick(&mut cx);
        assert!(exits(&mut cx) == 1 && leaving.has_left());
    }

    #[test]
    fn an_agent_leaves_once_when_its_last_child_has_left() {
        let (mut cx, mut leaving) = (one_run(1), Leaving::default());
        cx.link_child(3);
        leaving.on_shutdown(&mut cx);
        cx.agent.links.neighbours.on_child_down(AgentId(3));
        leaving.leave_if_done(&mut cx);
        leaving.leave_if_done(&mut cx);
        assert_eq!(exits(&mut cx), 1);
    }

    #[test]
    fn only_agents_of_a_standing_session_leave_at_the_request_of_the_batch_system() {
        for (mut cx, goes) in [(in_session(1), 1), (in_session(0), 0), (one_run(1), 0)] {
            let mut leaving = Leaving::default();
            leaving.on_told_to_end();
            leaving.leave_if_told(&mut cx);
            assert_eq!(exits(&mut cx), goes);
        }
    }
}
