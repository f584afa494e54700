//! A session without jobs does not use the processor.

use std::fs;
use std::time::Duration;
use wireup_e2e::sessions::{Session, status_of};

/// Processor time (ticks) and number of voluntary context switches of a process.
fn activity(pid: rustix::process::Pid) -> (u64, u64) {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks = fields.get(11..13).into_iter().flatten().filter_map(|field| field.parse::<u64>().ok()).sum();
    (ticks, status_of(pid, "status", "voluntary_ctxt_switches:"))
}

#[test]
fn an_idle_session_uses_no_cpu_time_and_does_not_wake_up() {
    let session = Session::up("--virtual-nodes 3");
    session.shell("for i in 1 2 3 4; do $WIREUP run -n 6 true & done; wait").succeed();
    let all = || session.processes().iter().map(|process| (process.pid, activity(process.pid))).collect::<Vec<_>>();
    // The session finishes its work for a burst of jobs within a moment.
    let mut last = all();
    session.await_that("a second in which nothing happens", || {
        std::thread::sleep(Duration::from_secs(1));
        let now = all();
        now == std::mem::replace(&mut last, now.clone())
    });
    assert!(last.len() >= 3 + 3, "agents or keepers are missing: {last:?}");
    session.down("");
}
