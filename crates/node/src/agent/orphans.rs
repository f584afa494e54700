//! Ends the processes that a killed keeper leaves behind: they become children of this process, which is a subreaper.
//!
//! Orphans are killed in several scans of all descendants with a pause in between: each scan catches what was forked
//! during the one before, and a scan that finds no process is the last. The agent does not block meanwhile: its driver
//! runs each scan at a deadline.

use std::time::Duration;
use wireup_os::clock::monotonic_ns;
use wireup_os::process;

/// Most scans after the loss of a keeper. Chosen: after a tenth of a second, processes that cannot be killed are given
/// up.
const LOOKS_MAX: u32 = 50;
/// Time between two scans (ns). Chosen: a killed process has ended by then.
const PAUSE_NS: u64 = 2_000_000;

#[derive(Default)]
pub struct Orphans {
    /// When the lost keeper was started (clock ticks): descendants started since then are orphans to be killed.
    since: Option<u64>,
    looks_left: u32,
    /// Time of the next scan (ns); `None`: no scan is planned.
    due_ns: Option<u64>,
}

impl Orphans {
    /// Begins scans, because keepers were lost. `since`: start time of the oldest of them (clock ticks).
    pub fn on_keepers_lost(&mut self, since: u64, now_ns: u64) {
        self.since = Some(since);
        self.looks_left = LOOKS_MAX;
        self.due_ns = Some(now_ns);
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// Kills orphans if a scan is due. The keepers in `living` and their descendants are not orphans.
    pub fn look(&mut self, now_ns: u64, living: &[u32]) {
        let (Some(since), Some(_)) = (self.since, self.due_ns.filter(|due_ns| *due_ns <= now_ns)) else { return };
        self.looks_left -= 1;
        let found = process::kill_descendants(Some(since), |pid| living.contains(&pid)).killed > 0;
        if found {
            while let process::Reaped::Child { .. } = process::reap() {}
        }
        self.due_ns = (found && self.looks_left > 0).then_some(now_ns + PAUSE_NS);
    }

    /// Kills the remaining orphans. By now this agent has no keepers and nothing else to do, so it may block.
    pub fn end(mut self) {
        let Some(since) = self.since else { return };
        self.on_keepers_lost(since, monotonic_ns());
        while let Some(due_ns) = self.due_ns {
            std::thread::sleep(Duration::from_nanos(due_ns.saturating_sub(monotonic_ns())));
            self.look(due_ns, &[]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_os::process::{Ended, Fork};

    /// Runs a test in a process of its own, which has no other children.
    fn alone(test: impl FnOnce()) {
        let Fork::Parent { child } = process::fork().unwrap() else {
            // Descriptors copied from other tests are closed, since they would keep those tests' pipes and locks open.
            let standard = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
            wireup_os::files::close_all_but(&standard);
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test));
            process::leave(outcome.is_err().into());
        };
        assert_eq!(process::wait_for(child).unwrap(), Ended::Exited(0));
    }

    /// Forks a child that does nothing.
    fn sleeper() -> u32 {
        match process::fork().unwrap() {
            Fork::Parent { child } => child,
            Fork::Child => loop {
                std::thread::sleep(Duration::from_secs(60));
            },
        }
    }

    #[test]
    fn scans_repeat_until_no_orphan_is_left_and_spare_other_children() {
        alone(|| {
            process::set_subreaper().unwrap();
            let (living, since) = (sleeper(), process::start_ticks(process::own_pid()).unwrap());
            let mut orphans = Orphans::default();
            assert_eq!(orphans.deadline_ns(), None, "no keeper was lost");
            // Forked twice: when the child is killed, its own child is reparented to this process.
            let Fork::Parent { child } = process::fork().unwrap() else {
                sleeper();
                process::leave(0);
            };
            orphans.on_keepers_lost(since, 100);
            orphans.look(99, &[living]);
            assert_eq!((orphans.deadline_ns(), orphans.looks_left), (Some(100), LOOKS_MAX), "too early");
            let mut looks = 0;
            while let Some(due_ns) = orphans.deadline_ns() {
                orphans.look(due_ns, &[living]);
                looks += 1;
                // The test's time jumps to each deadline, but the kernel needs real time to end killed processes.
                std::thread::sleep(Duration::from_millis(20));
            }
            assert!(looks >= 2, "the last scan must find no process");
            assert_eq!(process::start_ticks(child), None);
            assert_eq!(process::descendants(), [living]);
            orphans.end();
            assert_eq!(process::descendants(), [0; 0], "end() must spare no process");
        });
    }

    #[test]
    fn scans_stop_at_their_limit_if_new_orphans_keep_appearing() {
        alone(|| {
            let since = process::start_ticks(process::own_pid()).unwrap();
            let mut orphans = Orphans::default();
            orphans.on_keepers_lost(since, 0);
            orphans.looks_left = 3;
            let mut now_ns = 0;
            while let Some(due_ns) = orphans.deadline_ns() {
                now_ns = due_ns;
                // A new child is made before each scan, so that each scan finds one.
                sleeper();
                orphans.look(due_ns, &[]);
            }
            assert_eq!((orphans.looks_left, now_ns), (0, 2 * PAUSE_NS));
            orphans.end();
            assert_eq!(process::descendants(), [0; 0]);
        });
    }
}
