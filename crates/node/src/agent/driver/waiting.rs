//! Waits for events and deadlines.

use super::AgentDriver;
use crate::agent::ranks::JobRanks;
use crate::agent::turn::Turn;
use std::io;
use std::time::Duration;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::Event;
use wireup_proto::io::Input;

impl AgentDriver {
    /// Waits for events, at most until `until_ns`; the caller dispatches them.
    pub fn wait(&mut self, until_ns: Option<u64>) -> io::Result<Vec<Event>> {
        self.flush_recording();
        if let Some(events) = self.look_again(until_ns)? {
            return Ok(events);
        }
        let mut timeout = until_ns.map(|until| Duration::from_nanos(until.saturating_sub(monotonic_ns())));
        if !self.links.arm() {
            self.poll_links();
            // A transport that is always busy must not keep other descriptors from being checked.
            timeout = Some(Duration::ZERO);
        }
        Ok(self.reactor.wait(timeout)?.to_vec())
    }

    fn poll_links(&mut self) {
        let Self { reactor, links, inputs, buffer, .. } = self;
        links.poll(&mut Turn { now_ns: monotonic_ns(), reactor, buffer, inputs });
    }

    /// Polls for a moment, in case another agent sends more; `None`: it is time to sleep.
    fn look_again(&mut self, until_ns: Option<u64>) -> io::Result<Option<Vec<Event>>> {
        if self.cpus < 2 {
            return Ok(None);
        }
        let now_ns = monotonic_ns();
        let Some(mut end_ns) = self.spin.until_ns(now_ns) else { return Ok(None) };
        end_ns = end_ns.min(until_ns.unwrap_or(end_ns));
        loop {
            self.poll_links();
            if self.spin.may_read_first() {
                let Self { reactor, links, inputs, buffer, .. } = self;
                links.read_hot(&mut Turn { now_ns, reactor, buffer, inputs });
                if !self.inputs.is_empty() {
                    self.spin.on_result(true);
                    self.spin.on_talk();
                    return Ok(Some(Vec::new()));
                }
            }
            let events = self.reactor.wait(Some(Duration::ZERO))?;
            if !events.is_empty() || !self.inputs.is_empty() {
                self.spin.on_result(true);
                return Ok(Some(events.to_vec()));
            }
            if monotonic_ns() >= end_ns {
                self.spin.on_result(false);
                return Ok(None);
            }
        }
    }

    /// When `on_tick` is due.
    pub fn deadline_ns(&mut self) -> Option<u64> {
        self.due_ns = self.find_deadline_ns();
        self.due_ns
    }

    fn find_deadline_ns(&self) -> Option<u64> {
        let machine = self.agent.deadline().map(|at| at.0);
        let ranks = self.jobs.values().filter_map(JobRanks::deadline_ns);
        let own =
            self.links.deadline_ns().into_iter().chain(self.keepers.deadline_ns()).chain(self.orphans.deadline_ns());
        ranks.chain(machine).chain(own).min()
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
        self.look_for_orphans(now_ns);
        self.inputs.push(Input::Tick);
        self.take_inputs();
    }
}
