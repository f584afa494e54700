//! Sweeps: kills all descendants, round after round, until none is left.
//!
//! A listing may miss processes that are forked while it is read, and orphans are reparented to the keeper only when
//! their parents are gone. So rounds repeat at growing intervals; the keeper's own loop reaps meanwhile.
//!
//! If the agent is gone, agents and keepers that are descendants of this keeper have noticed the end of the agent too:
//! each of them ends its own processes and removes directories that no other process knows. The sweep gives these
//! agents and keepers a moment to do so.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use wireup_os::clock::monotonic_ns;
use wireup_os::process::kill_descendants;

/// Shortest and longest pause between the rounds of a sweep (ns).
const PAUSE_NS_MIN: u64 = 1_000_000;
const PAUSE_NS_MAX: u64 = 32_000_000;
/// Time after which a sweep gives up if some processes belong to another user and cannot be killed (ns).
const DENIED_NS: u64 = 2_000_000_000;
/// Time for wireup processes to end by themselves (ns). Chosen: a wireup process needs milliseconds to end, and half a
/// second where several busy processes compete for each CPU.
pub const FELLOWS_NS: u64 = 2_000_000_000;

/// The state of a sweep.
pub(super) struct Sweep {
    since_ns: u64,
    next_round_ns: u64,
    pause_ns: u64,
    /// Time until which wireup processes are left alone (ns).
    patient_until_ns: u64,
    /// Consecutive rounds that found nothing to kill.
    empty_rounds: u32,
}

/// How a sweep has ended.
pub(super) enum Swept {
    All,
    /// The remaining processes belong to another user and cannot be killed.
    AllButDenied,
}

impl Sweep {
    /// Begins a sweep. `patient`: whether wireup processes are about to end by themselves.
    pub fn begin(patient: bool) -> Sweep {
        let now = monotonic_ns();
        let patient_until_ns = if patient { now + FELLOWS_NS } else { now };
        Sweep { since_ns: now, next_round_ns: now, pause_ns: PAUSE_NS_MIN, patient_until_ns, empty_rounds: 0 }
    }

    pub fn until_next(&self) -> Duration {
        Duration::from_nanos(self.next_round_ns.saturating_sub(monotonic_ns()))
    }

    /// Kills all descendants if a round is due. `kept`: a process that is not killed; while the process `kept` lives,
    /// the end of all other processes cannot be noticed by reaping and is noticed here. Returns `None` if some
    /// descendants may be left.
    pub fn kill_again(&mut self, kept: Option<u32>) -> Option<Swept> {
        let now = monotonic_ns();
        if now < self.next_round_ns {
            return None;
        }
        let fellow = if now < self.patient_until_ns { program("self") } else { None };
        let is_fellow = |pid: u32| fellow.is_some() && program(&pid.to_string()) == fellow;
        let round = kill_descendants(None, |pid| kept == Some(pid) || is_fellow(pid));
        self.pause_ns = (self.pause_ns * 2).min(PAUSE_NS_MAX);
        self.next_round_ns = monotonic_ns() + self.pause_ns;
        let is_empty = round.killed == 0 && round.denied == 0;
        self.empty_rounds = if is_empty { self.empty_rounds + 1 } else { 0 };
        // One round may have missed a process that was forked meanwhile.
        if kept.is_some() && self.empty_rounds > 1 {
            return Some(Swept::All);
        }
        (round.denied > 0 && now - self.since_ns > DENIED_NS).then_some(Swept::AllButDenied)
    }
}

/// The executable of a process: its device and inode.
fn program(process: &str) -> Option<(u64, u64)> {
    fs::metadata(format!("/proc/{process}/exe")).map(|file| (file.dev(), file.ino())).ok()
}
