//! The agent's own end: when nothing is left, or its time is over.

use super::Agent;
use crate::io::Output;
use crate::time::Instant;
use wireup_wire::ids::JobId;
use wireup_wire::peer::Control;

/// How long an agent that was told to leave waits for its children to leave (ns). Chosen: an agent with nothing left
/// to do needs milliseconds; whatever still runs then is killed by the keeper.
const SHUTDOWN_NS_MAX: u64 = 5_000_000_000;

impl Agent {
    pub(super) fn on_shutdown(&mut self, now: Instant) {
        if self.leaving.is_none() {
            self.leaving = Some(now + SHUTDOWN_NS_MAX);
            for agent in self.links.all_children() {
                self.links.control_child(agent, JobId(0), &Control::Shutdown, &mut self.out);
            }
        }
    }

    pub(super) fn leave_if_done(&mut self) {
        let waits = self.links.has_children() || self.links.expects_children() || !self.jobs.is_empty();
        if self.leaving.is_some() && !waits {
            self.leave();
        }
    }

    pub(super) fn leave(&mut self) {
        if !std::mem::replace(&mut self.left, true) {
            self.out.push(Output::Exit);
        }
    }
}
