//! Ends processes that a command left behind, which would otherwise disturb later rounds; and turns Ctrl-C
//! into a flag, so that the running command is ended and nothing is left behind.
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use procfs::process::Process;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Time that a launcher's helper processes may take to notice that their job has ended (chosen).
const GRACE: Duration = Duration::from_secs(2);
/// Time within which killed processes exit, unless they are stuck in the kernel (chosen).
const DEATH: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);

#[derive(Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    pub fn install() -> io::Result<Interrupt> {
        let interrupt = Interrupt::default();
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, interrupt.0.clone())?;
        }
        Ok(interrupt)
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Waits until no process of the last command is left, and after a grace period kills the remaining processes. Must be
/// called while no command runs. The processes in `kept` may remain. Returns how many processes had to be killed.
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
                // The children of the killed process become children of this process and are found in the next
                // iteration.
                let _ = waitpid(Some(child), WaitOptions::empty());
                killed += 1;
            }
        }
        std::thread::sleep(PAUSE);
    }
}

/// The child processes of a process; none if it has exited.
pub fn children_of(parent: Pid) -> Vec<Pid> {
    let tasks = process(parent).and_then(|parent| parent.tasks());
    let children = tasks.into_iter().flatten().flatten().filter_map(|task| task.children().ok()).flatten();
    children.filter_map(|pid| Pid::from_raw(pid as i32)).collect()
}

/// The entry of a process in `/proc`.
pub fn process(pid: Pid) -> procfs::ProcResult<Process> {
    Process::new(pid.as_raw_nonzero().get())
}
