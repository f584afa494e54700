//! Waits for events.

use super::LinkSet;
use crate::agent::turn::Turn;
use std::io;
use std::time::Duration;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::{Event, Reactor};
use wireup_proto::io::Input;

impl LinkSet {
    /// Waits for events, at most until `until_ns`; the caller dispatches them. What links without descriptors have
    /// received goes to `inputs`.
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
        let now_ns = monotonic_ns();
        // A transport that is always busy must not keep other descriptors from being checked.
        let timeout = match self.arm(&mut Turn { now_ns, reactor, buffer, inputs }) {
            true => until_ns.map(|until| Duration::from_nanos(until.saturating_sub(now_ns))),
            false => Some(Duration::ZERO),
        };
        Ok(reactor.wait(timeout)?.to_vec())
    }
}
