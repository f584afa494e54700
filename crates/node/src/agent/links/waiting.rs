//! Waits for events; polls for a moment before it sleeps if another agent may be about to send something.

use super::LinkSet;
use crate::agent::turn::Turn;
use std::io;
use std::time::Duration;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::{Event, Reactor};
use wireup_proto::io::Input;

impl LinkSet {
    /// Waits for events, at most until `until_ns`; the caller dispatches them. What links receive while they are polled
    /// goes to `inputs`.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn wait(
        &mut self,
        until_ns: Option<u64>,
        reactor: &mut Reactor,
        buffer: &mut [u8],
        inputs: &mut Vec<Input>,
    ) -> io::Result<Vec<Event>> {
        if let Some(events) = self.poll_for_a_moment(until_ns, reactor, buffer, inputs)? {
            return Ok(events);
        }
        let mut timeout = until_ns.map(|until| Duration::from_nanos(until.saturating_sub(monotonic_ns())));
        if !self.arm() {
            self.poll(&mut Turn { now_ns: monotonic_ns(), reactor, buffer, inputs });
            // A transport that is always busy must not keep other descriptors from being checked.
            timeout = Some(Duration::ZERO);
        }
        Ok(reactor.wait(timeout)?.to_vec())
    }

    /// Polls for events; `None`: it is time to sleep.
    fn poll_for_a_moment(
        &mut self,
        until_ns: Option<u64>,
        reactor: &mut Reactor,
        buffer: &mut [u8],
        inputs: &mut Vec<Input>,
    ) -> io::Result<Option<Vec<Event>>> {
        let now_ns = monotonic_ns();
        let Some(mut end_ns) = self.spin.until_ns(now_ns) else { return Ok(None) };
        end_ns = end_ns.min(until_ns.unwrap_or(end_ns));
        loop {
            self.poll(&mut Turn { now_ns: monotonic_ns(), reactor, buffer, inputs });
            if self.spin.may_read_first() {
                self.read_hot(&mut Turn { now_ns, reactor, buffer, inputs });
                if !inputs.is_empty() {
                    self.spin.on_result(true);
                    self.spin.on_talk();
                    return Ok(Some(Vec::new()));
                }
            }
            let events = reactor.wait(Some(Duration::ZERO))?;
            if !events.is_empty() || !inputs.is_empty() {
                self.spin.on_result(true);
                return Ok(Some(events.to_vec()));
            }
            if monotonic_ns() >= end_ns {
                self.spin.on_result(false);
                return Ok(None);
            }
        }
    }
}
