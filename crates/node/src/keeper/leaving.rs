//! Reaps keepers that were asked to exit, without blocking for each. A keeper needs milliseconds to exit, or seconds if
//! one of its processes cannot be killed: so the exiting keepers are polled from time to time, and when the agent ends,
//! the remaining keepers are waited for together.

use super::directories::remove_all;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wireup_os::clock::monotonic_ns;
use wireup_os::process::{self, Ended};

/// Longest wait for a keeper that was asked to exit. A keeper needs milliseconds to exit, or up to 2 s if some of its
/// processes belong to another user and cannot be killed.
pub(super) const LEAVE_MAX: Duration = Duration::from_secs(3);
/// Time between two checks of the exiting processes (ns).
const LOOK_NS: u64 = 5_000_000;

/// Children of this process that were asked to exit and have not been reaped.
static ALL: Mutex<Vec<Leaving>> = Mutex::new(Vec::new());

/// An exiting process: a keeper whose socket is closed, or the forker.
pub(super) struct Leaving {
    pub pid: u32,
    /// Whether the keeper's end of the socket was closed before the keeper was asked to exit: then the keeper may have
    /// been killed.
    pub gone: bool,
    /// Whether the keeper has received every request that was sent to it.
    pub has_requests: bool,
    /// Directories that the keeper was asked to remove at its end.
    pub directories: Vec<Vec<u8>>,
    /// Time after which the agent no longer waits for the keeper.
    pub until: Instant,
}

impl Leaving {
    /// A process that has nothing to remove.
    pub fn of(pid: u32) -> Leaving {
        Leaving { pid, gone: false, has_requests: true, directories: Vec::new(), until: Instant::now() + LEAVE_MAX }
    }

    /// Waits for the process to exit; removes its directories if the process cannot have removed them itself.
    pub fn wait(self, limit: Duration) -> io::Result<()> {
        let ended = process::wait_for_within(self.pid, limit);
        self.over(&ended);
        ended.map(drop)
    }

    fn over(self, ended: &io::Result<Ended>) {
        let has_removed_them = match ended {
            Ok(ended) => *ended == Ended::Exited(0) && self.has_requests,
            // The keeper will remove its directories, unless it was killed and its end is only delayed by a process
            // that cannot be killed.
            Err(error) => error.kind() == io::ErrorKind::TimedOut && !self.gone,
        };
        if !has_removed_them {
            remove_all(self.directories);
        }
    }

    /// Checks the process; `None`: the process has exited, or its time limit has passed.
    fn look(self) -> Option<Leaving> {
        let ended = match process::try_wait_for(self.pid) {
            Ok(None) if Instant::now() < self.until => return Some(self),
            Ok(None) => Err(io::ErrorKind::TimedOut.into()),
            Ok(Some(ended)) => Ok(ended),
            Err(error) => Err(error),
        };
        self.over(&ended);
        None
    }
}

fn all() -> MutexGuard<'static, Vec<Leaving>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn add(leaving: Leaving) {
    all().extend(leaving.look());
}

/// Time of the next check of the exiting processes (ns); `None`: there are no exiting processes.
pub fn deadline_ns() -> Option<u64> {
    (!all().is_empty()).then(|| monotonic_ns() + LOOK_NS)
}

/// Forgets the processes that have ended.
pub fn look() {
    let mut all = all();
    *all = std::mem::take(&mut *all).into_iter().filter_map(Leaving::look).collect();
}

pub fn pids() -> Vec<u32> {
    all().iter().map(|leaving| leaving.pid).collect()
}

/// Waits for all exiting processes, in the order in which they were asked to exit, with one time limit for all.
pub fn end() {
    let until = Instant::now() + LEAVE_MAX;
    for leaving in std::mem::take(&mut *all()) {
        // An error means that the process was already reaped, or did not exit in time.
        let _ = leaving.wait(until.saturating_duration_since(Instant::now()));
    }
}
