//! Decides when to ask the parent for its clock.

use super::{Effects, View};
use crate::clock_offset::ClockOffset;
use crate::job::JobInput;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::RemoteShell;

/// The offset of this agent's clock to its parent's, as far as known.
pub struct Clock {
    offset: ClockOffset,
}

impl Clock {
    /// The initial state for an agent that is started by this remote shell.
    pub fn of(shell: &RemoteShell) -> Self {
        Clock { offset: ClockOffset::of(shell) }
    }

    pub fn offset(&self) -> &ClockOffset {
        &self.offset
    }

    /// The link to the parent is up, for the first time or to another parent.
    pub fn on_parent_up(&mut self) {
        self.offset.start_over();
    }

    /// Asks the parent, once; never if it shares this machine's clock.
    pub fn ask_parent(&mut self, view: &View<'_>, parent: AgentId, fx: &mut Effects) {
        if !view.is_root() && self.offset.is_new() {
            fx.up(self.offset.ask(parent, view.now));
        }
    }

    /// Handles the parent's answer. Jobs whose trace waited for it may end now.
    pub fn on_parent_told(&mut self, view: &View<'_>, asked_ns: u64, told_ns: u64, fx: &mut Effects) {
        if let Some(message) = self.offset.on_told(view.now, asked_ns, told_ns) {
            fx.up(message);
        }
        fx.jobs(view.jobs.ids(), || JobInput::ClockTold);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scene;
    use wireup_wire::talk::{Control, SessionUp};

    #[test]
    fn the_clock_is_requested_again_after_each_answer() {
        let (mut scene, mut clock, mut fx) =
            (Scene::one_run(1), Clock::of(&RemoteShell::Ssh(Vec::new())), Effects::default());
        clock.ask_parent(&scene.view(), AgentId(0), &mut fx);
        clock.ask_parent(&scene.view(), AgentId(0), &mut fx);
        let asked_ns = scene.now.0;
        assert_eq!(fx.sent_up(), [&Control::SessionUp(SessionUp::ClockAsk { asked_ns })]);
        for _ in 1..8 {
            scene.now = scene.now + 10;
            let (mut fx, asked_ns) = (Effects::default(), scene.now.0 - 10);
            clock.on_parent_told(&scene.view(), asked_ns, asked_ns + 5, &mut fx);
            assert_eq!(fx.sent_up().len(), 1);
        }
        let mut fx = Effects::default();
        clock.on_parent_told(&scene.view(), scene.now.0, scene.now.0, &mut fx);
        assert!(fx.sent_up().is_empty(), "no more than eight rounds");
    }

    /// A lost parent does not answer, and jobs wait for the answer.
    #[test]
    fn another_parent_is_asked_from_the_start() {
        let (scene, mut clock, mut fx) =
            (Scene::standing(1), Clock::of(&RemoteShell::Ssh(Vec::new())), Effects::default());
        for _ in 0..2 {
            clock.on_parent_up();
            clock.ask_parent(&scene.view(), AgentId(0), &mut fx);
        }
        assert_eq!(fx.sent_up().len(), 2);
        let mut clock = Clock::of(&RemoteShell::Local);
        clock.on_parent_up();
        assert!(clock.offset().is_known());
    }

    #[test]
    fn agents_on_one_machine_do_not_request_the_clock() {
        let mut fx = Effects::default();
        Clock::of(&RemoteShell::Local).ask_parent(&Scene::one_run(1).view(), AgentId(0), &mut fx);
        Clock::of(&RemoteShell::Ssh(Vec::new())).ask_parent(&Scene::one_run(0).view(), AgentId(0), &mut fx);
        assert!(fx.is_empty());
    }
}
