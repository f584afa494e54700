//! Ranks whose replies wait because their user has too many descriptors under way between processes.
//!
//! The kernel counts what all processes of a user have sent and nobody has received (`ETOOMANYREFS` beyond the sender's
//! limit of open files). Other ranks make room when they read their replies, and nobody tells: the agent tries again every
//! now and then, for as long as it takes, as it would with a full socket.

use std::io::Write;
use wireup_os::clock::monotonic_ns;
use wireup_wire::ids::LocalRank;

/// Between two tries (ns). Chosen: long beside a rank that reads its reply, short beside a start.
const RETRY_NS: u64 = 2_000_000;
/// Waiting in vain so long is told (ns).
const TELL_NS: u64 = 1_000_000_000;

#[derive(Default)]
pub struct Crowd {
    waiting: Vec<LocalRank>,
    /// When to try again.
    due_ns: u64,
    /// Since when somebody waits.
    since_ns: Option<u64>,
    told: bool,
}

impl Crowd {
    /// Lets a rank wait.
    pub fn push(&mut self, local: LocalRank) {
        let now_ns = monotonic_ns();
        if self.waiting.is_empty() {
            self.due_ns = now_ns + RETRY_NS;
        }
        if !self.waiting.contains(&local) {
            self.waiting.push(local);
        }
        if now_ns - *self.since_ns.get_or_insert(now_ns) > TELL_NS && !std::mem::replace(&mut self.told, true) {
            // Whoever held the other end may be gone: nothing to die of.
            let _ = writeln!(
                std::io::stderr(),
                "wireup: replies to ranks wait: too many descriptors of this user are under way; \
                 raise the hard limit of open files (ulimit -Hn)"
            );
        }
    }

    pub fn due_ns(&self) -> Option<u64> {
        (!self.waiting.is_empty()).then_some(self.due_ns)
    }

    /// The ranks to try again, if it is time.
    pub fn take_due(&mut self, now_ns: u64) -> Vec<LocalRank> {
        if self.due_ns().is_some_and(|due| due <= now_ns) {
            return std::mem::take(&mut self.waiting);
        }
        Vec::new()
    }

    /// After a try: if nobody waits again, all got through.
    pub fn settle(&mut self, tried: bool) {
        if tried && self.waiting.is_empty() {
            self.since_ns = None;
        }
    }
}
