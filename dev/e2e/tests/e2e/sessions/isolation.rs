//! A job does not affect other jobs, and leaves nothing behind; a session without jobs does not use the processor.

use rustix::process::Pid;
use std::fs;
use std::path::Path;
use std::time::Duration;
use wireup_e2e::peers::{plain, program};
use wireup_e2e::run_processes::Process;
use wireup_e2e::sessions::{Session, status_of};
use wireup_e2e::wireup;
use xtask::programs::{Flavour, environment};

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
    let open = |process: &Process| {
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
        session.shell(&script).guard(Duration::from_secs(3000)).succeed();
    };
    some(40);
    let settled = |expected: Option<(usize, usize, usize)>| {
        // After a burst of jobs, surplus keepers exit a moment later.
        let mut last = account(&session);
        session.await_that("the session's initial state", || {
            std::thread::sleep(Duration::from_millis(300));
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

/// Processor time (ticks) and number of voluntary context switches of a process.
fn activity(pid: Pid) -> (u64, u64) {
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

/// The kernel session of a process, which determines its scheduling group, according to its `/proc` entry.
fn session_of(pid: Pid) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).expect("it runs");
    let (_, fields) = stat.rsplit_once(')').expect("its name");
    fields.split_whitespace().nth(3).and_then(|field| field.parse().ok()).expect("its session")
}

/// Runs a job, and checks the kernel sessions of its processes and the program's result.
fn check_kernel_session(session: &Session, (flavour, program): (Flavour, &Path)) {
    let is_pmix = flavour == Flavour::OpenMpi5;
    let script = "echo ready; read line; exec \"$0\"";
    let line = if is_pmix { "-n 1 --pmi pmix" } else { "-n 1 --pmi simple" };
    let run = session.job(line).args(["sh", "-c", script]).arg(program).envs(environment(flavour));
    let mut running = run.stdin_open().start_until("ready\n", 1);
    let all = running.processes();
    let one = |is_it: fn(&Process) -> bool| all.iter().find(|process| is_it(process));
    let rank = one(|process| process.command.starts_with("sh -c ")).expect("a rank");
    let keeper = Pid::from_raw(rank.parent).expect("its keeper");
    let server = one(|process| process.command.contains(" pmix-server "));
    assert_eq!(server.is_some(), is_pmix);
    // The root agent is the agent of the only node.
    let agent = session.daemon();
    let wanted = if is_pmix { session_of(agent) } else { rank.parent };
    assert_ne!(session_of(agent), rank.parent);
    for pid in [keeper, rank.pid].into_iter().chain(server.map(|server| server.pid)) {
        assert_eq!(session_of(pid), wanted, "{flavour:?}, process {pid} of the keeper {keeper}");
    }
    running.write(b"go on\n");
    assert!(running.succeed().out().contains("of 1"));
}

/// A keeper serves one job after the other. Jobs with a PMIx server are in the kernel session of their agent, other
/// jobs in that of their keeper.
#[test]
fn each_job_has_a_keeper_of_its_kind() {
    use Flavour::{Mpich5, OpenMpi5};
    let Some(mpich) = program(Mpich5, "hello") else { return };
    let Some(open_mpi) = program(OpenMpi5, "hello") else { return };
    let (mpich, open_mpi) = ((Mpich5, &*mpich), (OpenMpi5, &*open_mpi));
    for flags in ["", "--contain none"] {
        let session = Session::up(flags);
        for program in [mpich, open_mpi, mpich, mpich, open_mpi, open_mpi, mpich] {
            check_kernel_session(&session, program);
        }
        session.down("");
    }
}
