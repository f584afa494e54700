//! Detects links whose other end does not answer any more.

use super::{LinkKind, LinkSet};
use crate::agent::turn::Turn;
use crate::transport::link::LinkError;
use std::io;
use std::time::Duration;
use wireup_os::clock::monotonic_ns;
use wireup_os::socket::Unacknowledged;

/// Checks of unacknowledged bytes within `--node-timeout`.
const LOOKS: u64 = 4;
/// Time from a suspicion to the second check: far more than an answer takes on a busy machine, however short
/// `--node-timeout` is.
const SUSPECT_NS: u64 = 1_000_000_000;

impl LinkSet {
    /// Plans a check whether the bytes that will be sent are answered.
    pub(super) fn plan_look(&mut self) {
        if self.look_ns.is_none() && self.config.node_timeout_ns > 0 {
            self.look_ns = Some(monotonic_ns() + self.config.node_timeout_ns / LOOKS);
        }
    }

    /// Fails links whose bytes have been unanswered for too long. Idle links are left to the kernel's keepalive.
    pub(super) fn look(&mut self, turn: &mut Turn<'_>) {
        let patience = Duration::from_nanos(self.config.node_timeout_ns);
        let (mut again_ns, mut dead) = (None, Vec::new());
        for (&id, entry) in self.links.iter_mut().filter(|(_, entry)| entry.kind == LinkKind::Up) {
            let pause_ns = match entry.link.silence() {
                Unacknowledged::Nothing => continue,
                Unacknowledged::Silent(since) if since >= patience && entry.suspect => {
                    dead.push(id);
                    continue;
                }
                Unacknowledged::Silent(since) if since >= patience => {
                    entry.suspect = true;
                    SUSPECT_NS
                }
                Unacknowledged::Silent(_) | Unacknowledged::Answered => {
                    entry.suspect = false;
                    self.config.node_timeout_ns / LOOKS
                }
            };
            again_ns = again_ns.into_iter().chain([turn.now_ns + pause_ns]).min();
        }
        self.look_ns = again_ns;
        for id in dead {
            let error = LinkError::Silent { patience, error: io::ErrorKind::TimedOut.into() };
            self.fail(id, error, turn.reactor, turn.inputs);
        }
    }
}
