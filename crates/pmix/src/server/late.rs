//! Schedules checks for keys that a rank had not committed when another node requested them.
//!
//! The library does not report commits to its server. But a commit consists of bytes from a client, whose arrival the
//! main thread notices ([`super::acks`]). The library's thread reads these bytes soon after, usually within a
//! millisecond; a busy machine may delay the thread. So after each arrival the server checks after one millisecond, and
//! then after pauses that double, as long as a request waits for a key.

use super::state::Server;
use std::time::{Duration, Instant};

/// Time from an arrival to the first check. Chosen: several times as long as the library takes to read a commit.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Maximum pause between two checks. This pause bounds the delay if the library's thread was held up for long; one
/// check takes some microseconds for each key.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The main thread's schedule of checks.
#[derive(Default)]
pub struct Late {
    due: Option<Instant>,
    pause: Duration,
}

impl Late {
    /// Schedules a check now: a request has begun to wait, whose rank has committed something that may include the key.
    pub fn look_now(&mut self, server: &Server) {
        self.look_after(Duration::ZERO, server);
    }

    /// Schedules a check, because bytes have arrived from a client.
    pub fn look_soon(&mut self, server: &Server) {
        self.look_after(PAUSE_MIN, server);
    }

    fn look_after(&mut self, delay: Duration, server: &Server) {
        if server.requests().first_late().is_some() {
            self.pause = PAUSE_MIN;
            self.due = Some(Instant::now() + delay);
        }
    }

    /// Time of the next check; `None`: no request waits.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Checks for keys that were committed late, if a check is due.
    pub fn settle(&mut self, server: &'static Server) {
        if self.due.is_none_or(|due| Instant::now() < due) {
            return;
        }
        server.look_for_late_keys();
        self.pause = (2 * self.pause).min(PAUSE_MAX);
        let first = server.requests().first_late();
        self.due = first.map(|until| until.min(Instant::now() + self.pause));
    }
}
