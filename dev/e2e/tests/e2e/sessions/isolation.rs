//! A job does not affect other jobs, and leaves nothing behind.

use std::fs;
use wireup_e2e::peers::{plain, program};
use wireup_e2e::sessions::{Session, status_of};
use wireup_e2e::wireup;
use xtask::programs::Flavour;

/// Runs jobs that misbehave, each in its own way: their ranks crash, flood the server, send wrong requests, leave
/// processes behind.
fn bad_jobs(session: &Session) {
    session.job("-n 2").arg(plain("crash")).arg("1").finish().expect_code(128 + 11);
    session.job("-n 4").arg(plain("badpmi")).arg("leave").finish();
    session.job("-n 2").sh("head -c 1000000 /dev/zero >&$PMI_FD; exec sleep 1000").finish();
    session.job("-n 2").sh("printf 'cmd=get kvsname=x key=\\n' >&$PMI_FD; exit 3").finish();
    session.job("-n 2 --timeout 0.5").sh("exec yes").stdout_unread().finish().expect_code(124);
    session
        .job("-n 2")
        .sh("for i in 1 2 3; do setsid sleep 1000 & done; (setsid sh -c 'sleep 1000 & sleep 1000' &); exit 0")
        .succeed();
    session.job("-n 2").sh("kill -9 $$").finish().expect_code(137);
    session.job("-n 2").arg("nonexistent-program").finish().expect_code(127);
}

#[test]
fn bad_jobs_do_not_harm_other_jobs() {
    let session = Session::up("--virtual-nodes 2");
    let mut good = session.job("-n 4").sh("echo ready; read line; echo $line").stdin_open().start();
    good.await_out("ready\n", 4);
    bad_jobs(&session);
    good.write(b"unharmed\n");
    assert!(good.succeed().out().contains("unharmed"));
    let wireup = wireup();
    let exchange = ["-n", "4", wireup.to_str().expect("a path in UTF-8"), "pmi", "exchange"];
    session.job("").args(exchange).linked().succeed();
    session.down("");
}

/// One keeper serves several jobs one after the other, and also starts the PMIx server, which writes files.
#[test]
fn limits_of_one_job_do_not_apply_to_the_next() {
    let session = Session::up("--virtual-nodes 1");
    let fsize = "ulimit -Sf";
    let before = session.job("-n 1").sh(fsize).succeed().out();
    let limited = format!("ulimit -Sf 0; $WIREUP run -n 2 sh -c '{fsize}'");
    assert_eq!(session.shell(&limited).succeed().out(), "0\n0\n");
    assert_eq!(session.job("-n 1").sh(fsize).succeed().out(), before);
    session.shell(&limited).succeed();
    if let Some(exchange) = program(Flavour::Pmix, "exchange") {
        session.job("--pmi pmix -n 2").arg(exchange).succeed();
    }
    session.down("");
}

/// Number of the session's processes, number of descriptors of the root and the agents, and number of files in the
/// session's directory.
fn account(session: &Session) -> (usize, usize, usize) {
    let processes = session.processes();
    let open = |process: &wireup_e2e::run_processes::Process| {
        fs::read_dir(format!("/proc/{}/fd", process.pid.as_raw_nonzero())).map_or(0, Iterator::count)
    };
    let ours = |name: &str| name == "wireup-session" || name == "wireup";
    let fds = processes.iter().filter(|process| ours(&process.name)).map(open).sum();
    let files = fs::read_dir(session.place("default")).map_or(0, Iterator::count);
    (processes.len(), fds, files)
}

/// Resident memory of each agent (KiB).
fn memory(session: &Session) -> Vec<u64> {
    let mut agents: Vec<_> = session.agents().iter().map(|agent| agent.pid).collect();
    agents.push(session.daemon());
    agents.into_iter().map(|pid| status_of(pid, "status", "RssAnon:")).collect()
}

#[test]
fn hundreds_of_jobs_do_not_grow_the_session() {
    let large = std::env::var_os("WIREUP_LARGE").is_some();
    let jobs = if large { 10_000 } else { 300 };
    let session = Session::up("--virtual-nodes 2");
    let some = |count: u32| {
        let script = format!(
            "i=0; while test $i -lt {count}; do for j in 1 2 3 4 5 6 7 8; do i=$((i+1)); \
             case $((i % 10)) in 3) $WIREUP run -n 2 false 2>/dev/null;; 6) $WIREUP run -n 1 /bin/sh -c 'kill -9 $$' \
             2>/dev/null;; \
             *) $WIREUP run -n 2 true;; esac & done; wait; done"
        );
        session.shell(&script).guard(std::time::Duration::from_secs(3000)).succeed();
    };
    some(40);
    let settled = |expected: Option<(usize, usize, usize)>| {
        // After a burst of jobs, surplus keepers exit a moment later.
        let mut last = account(&session);
        session.await_that("the session's initial state", || {
            std::thread::sleep(std::time::Duration::from_millis(300));
            let now = account(&session);
            let same = now == std::mem::replace(&mut last, now) && expected.is_none_or(|expected| expected == now);
            same && session.named("wireup-keeper").len() <= 2 * 2 + 3
        });
        account(&session)
    };
    let (before, memory_before) = (settled(None), memory(&session));
    some(jobs);
    settled(Some(before));
    for (before, after) in memory_before.into_iter().zip(memory(&session)) {
        assert!(after <= before + 1024, "an agent had {before} KiB, and has {after} KiB after {jobs} jobs");
    }
    session.down("");
}
