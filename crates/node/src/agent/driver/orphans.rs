//! What a keeper that was killed leaves behind: this process is the next subreaper above.
//!
//! Orphans are killed by looks at all descendants, one after the other with a pause in between: each look catches what was forked
//! during the one before, and none is left when a look finds nobody. Nothing else waits for that: a look is a deadline of the driver.

use super::AgentDriver;
use crate::agent::keeper_link::KeeperLink;
use crate::agent::ranks::JobRanks;
use crate::agent::shells::Shells;
use std::time::Duration;
use wireup_os::clock::monotonic_ns;
use wireup_os::process;

/// Looks after the loss of a keeper. Chosen: processes that cannot be killed are left after a tenth of a second.
const LOOKS_MAX: u32 = 50;
/// From one look to the next (ns). Chosen: a process that was killed is gone by then.
const PAUSE_NS: u64 = 2_000_000;

#[derive(Default)]
pub(super) struct Orphans {
    /// A keeper was lost that was born then (clock ticks): orphans at least that young are ours to end.
    since: Option<u64>,
    looks_left: u32,
    /// When to look again.
    due_ns: Option<u64>,
}

impl Orphans {
    /// Keepers were lost, the oldest of them born at `since`; the first look is due.
    fn begin(&mut self, since: u64, now_ns: u64) {
        self.since = Some(since);
        self.looks_left = LOOKS_MAX;
        self.due_ns = Some(now_ns);
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// Kills orphans if it is time to look. The keepers in `living` and what descends from them are no orphans.
    fn look(&mut self, now_ns: u64, living: &[u32]) {
        let (Some(since), Some(_)) = (self.since, self.due_ns.filter(|due_ns| *due_ns <= now_ns)) else { return };
        self.looks_left -= 1;
        let found = process::kill_descendants(Some(since), living).killed > 0;
        if found {
            while let process::Reaped::Child { .. } = process::reap() {}
        }
        self.due_ns = (found && self.looks_left > 0).then_some(now_ns + PAUSE_NS);
    }

    /// Kills what is left, when this agent has no keeper any more and serves nobody: it may wait.
    pub fn end(mut self) {
        let Some(since) = self.since else { return };
        self.begin(since, monotonic_ns());
        while let Some(due_ns) = self.due_ns {
            std::thread::sleep(Duration::from_nanos(due_ns.saturating_sub(monotonic_ns())));
            self.look(due_ns, &[]);
        }
    }
}

impl AgentDriver {
    /// A job is over; if its keeper was killed, that leaves its orphans to this subreaper.
    pub(super) fn collect_orphans(&mut self) {
        if let Some(since) = self.all_keepers().filter_map(KeeperLink::lost).min() {
            self.orphans.begin(since, monotonic_ns());
            self.look_for_orphans(monotonic_ns());
        }
    }

    pub(super) fn look_for_orphans(&mut self, now_ns: u64) {
        if self.orphans.deadline_ns().is_some() {
            // A keeper's socket closes before its children are ours: until then they are found below it.
            let living = self.all_keepers().filter(|keeper| keeper.lost().is_none()).map(KeeperLink::pid);
            let living: Vec<u32> = living.chain(self.keepers.pids()).collect();
            self.orphans.look(now_ns, &living);
        }
    }

    /// The keepers of ranks and of remote shells.
    fn all_keepers(&self) -> impl Iterator<Item = &KeeperLink> {
        self.jobs.values().map(JobRanks::keeper).chain(self.shells.as_ref().map(Shells::keeper))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use wireup_os::process::{Ended, Fork};

    /// In a process of its own, which has no other children than those of the test.
    fn alone(test: impl FnOnce()) {
        let Fork::Parent { child } = process::fork().unwrap() else {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test));
            process::leave(outcome.is_err().into());
        };
        assert_eq!(process::wait_for(child).unwrap(), Ended::Exited(0));
    }

    fn sleeper() -> std::process::Child {
        Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn looks_go_on_until_nobody_is_left_and_spare_what_is_not_theirs() {
        alone(|| {
            process::set_subreaper().unwrap();
            let (living, since) = (sleeper(), process::start_ticks(process::own_pid()).unwrap());
            let mut orphans = Orphans::default();
            assert_eq!(orphans.deadline_ns(), None, "no keeper was lost");
            // Forked twice: what is below the child that is killed comes to this process.
            let script = Command::new("sh").args(["-c", "sh -c 'sleep 60 & wait' & wait"]).spawn().unwrap();
            orphans.begin(since, 100);
            orphans.look(99, &[living.id()]);
            assert_eq!((orphans.deadline_ns(), orphans.looks_left), (Some(100), LOOKS_MAX), "too early");
            let mut looks = 0;
            while let Some(due_ns) = orphans.deadline_ns() {
                orphans.look(due_ns, &[living.id()]);
                looks += 1;
                // The test's clock does not wait, the kernel's does.
                std::thread::sleep(Duration::from_millis(20));
            }
            assert!(looks >= 2, "the last look finds nobody");
            assert_eq!(process::start_ticks(script.id()), None);
            assert_eq!(process::descendants(), [living.id()]);
            orphans.end();
            assert_eq!(process::descendants(), [0; 0], "at the end nobody is spared");
        });
    }

    #[test]
    fn what_cannot_be_ended_is_left_after_some_looks() {
        alone(|| {
            let since = process::start_ticks(process::own_pid()).unwrap();
            let mut orphans = Orphans::default();
            orphans.begin(since, 0);
            orphans.looks_left = 3;
            let mut now_ns = 0;
            while let Some(due_ns) = orphans.deadline_ns() {
                now_ns = due_ns;
                // Forked anew before each look.
                let _ = sleeper();
                orphans.look(due_ns, &[]);
            }
            assert_eq!((orphans.looks_left, now_ns), (0, 2 * PAUSE_NS));
            orphans.end();
            assert_eq!(process::descendants(), [0; 0]);
        });
    }
}
