//! Ends the agent itself: when nothing is left to do, or its time is up.
//!
//! ```text
//!   told to leave ──► tells its children ──► no children, no jobs ──► left
//!                                        └──► time is up ───────────► left
//! ```

use super::{Effect, Effects, View};
use crate::io::Output;
use crate::time::Instant;
use wireup_wire::talk::{Control, SessionDown};

/// How long an agent that was told to leave waits for its children (ns). Chosen: an agent with nothing left to do needs
/// milliseconds; the keeper kills whatever is still running then.
const SHUTDOWN_NS_MAX: u64 = 5_000_000_000;

#[derive(Default)]
pub struct Leaving {
    /// Time by which the agent leaves; `None`: it was not told to leave.
    until: Option<Instant>,
    left: bool,
    /// Whether the batch system has told this agent to end.
    told_to_end: bool,
}

impl Leaving {
    pub fn has_begun(&self) -> bool {
        self.until.is_some()
    }

    pub fn has_left(&self) -> bool {
        self.left
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.until
    }

    pub fn on_told_to_end(&mut self) {
        self.told_to_end = true;
    }

    pub fn on_shutdown(&mut self, view: &View<'_>, fx: &mut Effects) {
        if self.until.is_none() {
            self.until = Some(view.now + SHUTDOWN_NS_MAX);
            fx.push(Effect::Children(Control::SessionDown(SessionDown::Shutdown)));
        }
    }

    /// Leaves once there are no children and no jobs, if the agent was told to leave.
    pub fn leave_if_done(&mut self, view: &View<'_>, fx: &mut Effects) {
        if self.until.is_some() && view.neighbours.is_leaf() && view.jobs.is_empty() {
            self.leave(fx);
        }
    }

    /// Leaves when all jobs here have ended, if the batch system has told this agent to end. Agents above and below it
    /// recover from its loss.
    pub fn leave_if_told(&mut self, view: &View<'_>, fx: &mut Effects) {
        if self.told_to_end && view.policy.outlives_jobs() && !view.is_root() && view.jobs.is_empty() {
            self.leave(fx);
        }
    }

    pub fn on_tick(&mut self, now: Instant, fx: &mut Effects) {
        if self.until.is_some_and(|until| now >= until) {
            self.leave(fx);
        }
    }

    pub fn leave(&mut self, fx: &mut Effects) {
        if !std::mem::replace(&mut self.left, true) {
            fx.push(Effect::Output(Output::Exit));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::LinkId;
    use crate::testing::Scene;
    use wireup_wire::ids::AgentId;

    fn exits(fx: &Effects) -> bool {
        fx.iter().any(|effect| matches!(effect, Effect::Output(Output::Exit)))
    }

    #[test]
    fn an_agent_waits_for_its_children_for_a_limited_time() {
        let (mut scene, mut leaving) = (Scene::one_run(1), Leaving::default());
        scene.neighbours.on_child_up(AgentId(3), LinkId(3));
        let mut fx = Effects::default();
        leaving.on_shutdown(&scene.view(), &mut fx);
        leaving.on_shutdown(&scene.view(), &mut fx);
        assert_eq!(fx.iter().count(), 1, "children are told once");
        leaving.leave_if_done(&scene.view(), &mut fx);
        assert!(!exits(&fx));
        leaving.on_tick(leaving.deadline().expect("the wait is limited"), &mut fx);
        assert!(exits(&fx) && leaving.has_left());
    }

    #[test]
    fn an_agent_leaves_once_when_its_last_child_has_left() {
        let (mut scene, mut leaving, mut fx) = (Scene::one_run(1), Leaving::default(), Effects::default());
        scene.neighbours.on_child_up(AgentId(3), LinkId(3));
        leaving.on_shutdown(&scene.view(), &mut fx);
        scene.neighbours.on_child_down(AgentId(3));
        leaving.leave_if_done(&scene.view(), &mut fx);
        leaving.leave_if_done(&scene.view(), &mut fx);
        assert_eq!(fx.iter().filter(|effect| matches!(effect, Effect::Output(Output::Exit))).count(), 1);
    }

    #[test]
    fn only_agents_of_a_standing_session_leave_at_the_request_of_the_batch_system() {
        for (scene, goes) in [(Scene::standing(1), true), (Scene::standing(0), false), (Scene::one_run(1), false)] {
            let (mut leaving, mut fx) = (Leaving::default(), Effects::default());
            leaving.on_told_to_end();
            leaving.leave_if_told(&scene.view(), &mut fx);
            assert_eq!(exits(&fx), goes);
        }
    }
}
