//! Remembers ranks whose replies must wait because their user has too many descriptors in flight between processes.
//!
//! The kernel counts the descriptors that all processes of a user have sent and that have not been received
//! (`ETOOMANYREFS` beyond the sender's limit of open files). Other ranks make room when they read their replies, but
//! nothing signals that: the agent retries at intervals. It does so without a time limit, as it also waits for room in
//! a full socket.

use std::io::Write;
use wireup_os::clock::monotonic_ns;
use wireup_wire::ids::Client;

/// Time between two tries to send the waiting replies (ns). Chosen: a rank reads its reply in a shorter time, and a job
/// takes far longer to start.
const RETRY_NS: u64 = 2_000_000;
/// Longest wait of a rank (ns) before a warning is printed.
const TELL_NS: u64 = 1_000_000_000;

#[derive(Default)]
pub struct FdBackoff {
    waiting: Vec<Client>,
    /// Time of the next try (ns).
    due_ns: u64,
    /// Time since which some rank has been waiting (ns); `None`: no rank waits.
    since_ns: Option<u64>,
    told: bool,
}

impl FdBackoff {
    /// Adds a rank whose reply must wait. Prints a warning, once, if ranks have been waiting for too long.
    pub fn push(&mut self, client: Client) {
        let now_ns = monotonic_ns();
        if self.waiting.is_empty() {
            self.due_ns = now_ns + RETRY_NS;
        }
        if !self.waiting.contains(&client) {
            self.waiting.push(client);
        }
        if now_ns - *self.since_ns.get_or_insert(now_ns) > TELL_NS && !std::mem::replace(&mut self.told, true) {
            // Nothing can be done if the reader of standard error is gone.
            let _ = writeln!(
                std::io::stderr(),
                "wireup: replies to ranks are delayed: this user has too many descriptors in transit between \
                 processes; raise the hard limit of open files (ulimit -Hn)"
            );
        }
    }

    pub fn due_ns(&self) -> Option<u64> {
        (!self.waiting.is_empty()).then_some(self.due_ns)
    }

    /// Removes and returns the waiting ranks if the next try is due; otherwise returns none.
    pub fn take_due(&mut self, now_ns: u64) -> Vec<Client> {
        if self.due_ns().is_some_and(|due| due <= now_ns) {
            return std::mem::take(&mut self.waiting);
        }
        Vec::new()
    }

    /// Call after [`FdBackoff::take_due`] and the tries. `tried`: whether there were any; if no rank waits again, all
    /// have their replies.
    pub fn settle(&mut self, tried: bool) {
        if tried && self.waiting.is_empty() {
            self.since_ns = None;
        }
    }
}
