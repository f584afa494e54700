//! Pauses a listener for a while, most likely because no descriptor is left for new connections.

use std::os::fd::AsFd;
use wireup_os::reactor::{Interest, Reactor};

/// Length of a pause (ns). Chosen: other descriptors may have been closed by then, and the delay is not noticeable.
pub const PAUSE_NS: u64 = 100_000_000;

/// Time until which the reactor does not watch the listener.
#[derive(Default)]
pub struct Pause {
    until_ns: Option<u64>,
}

impl Pause {
    pub fn begin(&mut self, listener: impl AsFd, token: u64, now_ns: u64, reactor: &Reactor) {
        if reactor.modify(listener, token, Interest::NONE).is_ok() {
            self.until_ns = Some(now_ns + PAUSE_NS);
        }
    }

    /// Makes the reactor watch the listener again if the end of the pause has been reached.
    pub fn end_if_due(&mut self, listener: impl AsFd, token: u64, now_ns: u64, reactor: &Reactor) {
        if self.until_ns.is_some_and(|until_ns| until_ns <= now_ns)
            && reactor.modify(listener, token, Interest::READABLE).is_ok()
        {
            self.until_ns = None;
        }
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        self.until_ns
    }
}
