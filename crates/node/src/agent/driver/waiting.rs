//! Waits for events and deadlines.

use super::AgentDriver;
use crate::agent::ranks::JobRanks;
use crate::agent::shells::Shells;
use crate::agent::turn::Turn;
use crate::keeper::leaving;
use std::io;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::Event;
use wireup_proto::io::Input;

impl AgentDriver {
    /// Waits for events, at most until `until_ns`; the caller dispatches them.
    pub fn wait(&mut self, until_ns: Option<u64>) -> io::Result<Vec<Event>> {
        self.flush_recording();
        let Self { reactor, links, inputs, buffer, .. } = self;
        links.wait(until_ns, reactor, buffer, inputs)
    }

    /// When `on_tick` is due.
    pub fn deadline_ns(&mut self) -> Option<u64> {
        self.due_ns = self.find_deadline_ns();
        self.due_ns
    }

    fn find_deadline_ns(&self) -> Option<u64> {
        let machine = self.agent.deadline().map(|at| at.0);
        let ranks = self.jobs.values().filter_map(JobRanks::deadline_ns);
        let own = [
            self.links.deadline_ns(),
            self.shells.as_ref().and_then(Shells::deadline_ns),
            self.keepers.deadline_ns(),
            self.orphans.deadline_ns(),
            self.parent_weight.deadline_ns(),
            leaving::deadline_ns(),
        ];
        ranks.chain(machine).chain(own.into_iter().flatten()).min()
    }

    /// Handles deadlines that have passed.
    pub fn on_tick(&mut self) {
        // Deadlines that were set since the last `deadline_ns` are found by the next one, before any wait.
        let Some(due_ns) = self.due_ns else { return };
        let now_ns = monotonic_ns();
        if now_ns < due_ns {
            return;
        }
        let Self { reactor, links, jobs, inputs, buffer, .. } = self;
        let turn = &mut Turn { now_ns, reactor, buffer, inputs };
        links.on_tick(turn);
        for ranks in jobs.values_mut() {
            ranks.on_tick(turn);
        }
        self.keepers.on_tick(now_ns, &self.reactor);
        self.parent_weight.on_tick(now_ns);
        self.shells.iter_mut().for_each(|shells| shells.on_tick(now_ns));
        leaving::look();
        self.look_for_orphans(now_ns);
        self.inputs.push(Input::Tick);
        self.take_inputs();
    }
}
