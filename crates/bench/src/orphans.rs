//! Processes that a command left behind: they come to us as the subreaper and would load later rounds.
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};

/// A launcher's helpers may take this long to notice that their job is over (chosen).
const GRACE: Duration = Duration::from_secs(2);
/// Killed processes are gone within this, or are stuck in the kernel (chosen).
const DEATH: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);

/// Makes this process the parent of whatever its children leave behind.
pub fn adopt() -> rustix::io::Result<()> {
    set_child_subreaper(Some(getpid()))
}

/// Waits until nothing of the last command is left, by force after a grace; call it with no command
/// running. What is `kept` may stay. Returns how many processes had to be killed.
pub fn settle(kept: &[Pid]) -> usize {
    let begin = Instant::now();
    let mut killed = 0;
    loop {
        let mut children = children_of(getpid());
        children.retain(|child| !kept.contains(child));
        if children.is_empty() || begin.elapsed() > GRACE + DEATH {
            return killed;
        }
        for child in children {
            let gone = matches!(waitpid(Some(child), WaitOptions::NOHANG), Ok(Some(_)) | Err(_));
            if !gone && begin.elapsed() > GRACE && kill_process(child, Signal::KILL).is_ok() {
                // Its own children come to us in turn and are met in the next round.
                let _ = waitpid(Some(child), WaitOptions::empty());
                killed += 1;
            }
        }
        std::thread::sleep(PAUSE);
    }
}

/// Every process below `root`, parents before children.
pub fn descendants_of(root: Pid) -> Vec<Pid> {
    let mut found = children_of(root);
    let mut next = 0;
    while next < found.len() {
        let children = children_of(found[next]);
        found.extend(children);
        next += 1;
    }
    found
}

/// From `/proc/PID/task/TID/children`; a process that is gone has none.
pub fn children_of(parent: Pid) -> Vec<Pid> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", parent.as_raw_nonzero())) else { return Vec::new() };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect::<Vec<_>>())
        .collect()
}
