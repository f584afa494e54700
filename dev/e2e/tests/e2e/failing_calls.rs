//! Every system call of launcher, agents and keepers may fail: each call of a run fails once, in a run of its own, with
//! each error that it can have on a real system. The run must end, leave nothing behind, and either do its work or say
//! on standard error what has failed.
//!
//! By default only some of the calls are tried. `WIREUP_CALLS=all` tries all of them, `WIREUP_CALLS=NAME` those of one
//! system call, such as `openat`.

use rustix::io::Errno;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;
use wireup_e2e::may_isolate;
use wireup_e2e::peers::program;
use wireup_e2e::{Outcome, Run, wireup};
use wireup_testbed::failing_calls::{Call, Failing, Supervision};
use xtask::programs::Flavour;

/// Default number of trials of each scenario.
const TRIALS: usize = 160;
/// Number of trials that run at the same time.
const WORKERS: usize = 3;

/// A system call that is made to fail: its number, its name, and the errors with which it fails.
type FailingCall = (i64, &'static str, &'static [Errno]);

macro_rules! calls {
    ($($errors:expr => $($call:ident)*;)*) => {
        &[$($((libc::$call, stringify!($call), &$errors),)*)*]
    };
}

use Errno as E;

/// The system calls that are made to fail, after their errors: errors of calls that a sandbox refuses (`EPERM`,
/// `ENOSYS`) or that run out of a resource (`EMFILE`, `ENOSPC`); `EINTR` only for calls that wait. Calls that cannot
/// fail in a correct program are missing (`close`, `munmap`, `rt_sigaction`), and so are calls whose failure makes the
/// C library or Rust's standard library abort (`mmap`, `futex`).
const CALLS: &[FailingCall] = calls! {
    [E::MFILE, E::PERM] => SYS_openat SYS_socket SYS_socketpair SYS_pipe2 SYS_eventfd2 SYS_epoll_create1 SYS_signalfd4
        SYS_timerfd_create SYS_fcntl;
    [E::NOSYS, E::PERM, E::MFILE] => SYS_openat2 SYS_memfd_create SYS_pidfd_open SYS_landlock_create_ruleset;
    [E::NOSYS, E::PERM] => SYS_pidfd_send_signal SYS_epoll_pwait2 SYS_statx SYS_clone3 SYS_close_range
        SYS_landlock_add_rule SYS_landlock_restrict_self;
    [E::MFILE, E::PERM, E::INTR] => SYS_accept4;
    [E::MFILE] => SYS_dup SYS_dup3;
    [E::INTR] => SYS_read SYS_readv SYS_recvfrom SYS_recvmsg SYS_writev SYS_sendto SYS_sendmsg SYS_ppoll
        SYS_epoll_pwait SYS_wait4 SYS_waitid SYS_clock_nanosleep SYS_flock;
    [E::NOSPC, E::PERM] => SYS_mkdirat;
    [E::NOSPC] => SYS_ftruncate SYS_fallocate SYS_epoll_ctl;
    [E::AGAIN, E::PERM] => SYS_clone;
    [E::PERM] => SYS_connect SYS_bind SYS_listen SYS_getsockopt SYS_setsockopt SYS_ioctl SYS_unlinkat SYS_fchmod
        SYS_newfstatat SYS_readlinkat SYS_getdents64 SYS_execve SYS_unshare SYS_setns SYS_mount SYS_umount2 SYS_prctl
        SYS_prlimit64 SYS_setsid SYS_setpgid SYS_kill SYS_tgkill SYS_setpriority SYS_sched_getaffinity
        SYS_sched_setaffinity SYS_sched_setattr SYS_sched_getattr;
};
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[FailingCall] = calls! {
    [E::INTR] => SYS_poll SYS_epoll_wait;
    [E::NOSPC, E::PERM] => SYS_mkdir SYS_rename;
    [E::AGAIN] => SYS_fork SYS_vfork;
    [E::PERM] => SYS_unlink SYS_chmod SYS_readlink;
};
/// Newer architectures do not have these calls, but only variants with more arguments.
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[FailingCall] = &[];

/// (Role, call) pairs whose failure another process reports, each with its reason.
const SAID_OTHERWISE: &[(&str, &str)] = &[
    // The accepting agent closes a connection that it cannot watch, and the agent that has connected reports that.
    ("wireup run", "epoll_ctl"),
    ("wireup run", "setsockopt"),
    // The keeper that is the first process of the nodes' PID namespace serves no job: when it ends, the kernel kills
    // the keepers that serve jobs, and their ends are reported.
    ("wireup-keeper run", "epoll_create1"),
    ("wireup-keeper run", "epoll_ctl"),
    ("wireup-keeper run", "fcntl"),
    ("wireup-keeper run", "prctl"),
    ("wireup-keeper run", "signalfd4"),
];

/// Calls without which the directory of a session or of a PMIx server cannot be removed. The directory of a session is
/// removed by the next session of that name, or that session reports why not; the name of a PMIx server's directory is
/// used by no other job.
const REMOVE: [&str; 7] = ["unlink", "unlinkat", "openat", "getdents64", "newfstatat", "statx", "fcntl"];

/// `write` is tried only for certain kinds of files, so it is not in the table `CALLS`.
const WRITE: (i64, &str) = (libc::SYS_write, "write");

fn known(call: &Call) -> Option<&'static FailingCall> {
    CALLS.iter().chain(OLD_CALLS).find(|(number, ..)| *number == call.number)
}

fn errors(call: &Call) -> &'static [Errno] {
    if call.number == WRITE.0 {
        return if call.on_file { &[Errno::NOSPC] } else { &[Errno::INTR] };
    }
    known(call).map_or(&[], |(_, _, errors)| errors)
}

fn name(call: &Call) -> &'static str {
    known(call).map_or(WRITE.1, |(_, name, _)| name.trim_start_matches("SYS_"))
}

/// A command line to be run, and a check whether a run has done its work.
struct Scenario {
    run: Box<dyn Fn() -> Run + Sync>,
    works: fn(&Outcome) -> bool,
    /// Whether the failing process writes to the user's terminal. Otherwise its launcher only sees that the process has
    /// closed the connection.
    names_cause: bool,
}

/// Runs a scenario in which one call fails; returns whether that call was reached, or what is wrong with the run.
fn trial(scenario: &Scenario, failing: &Failing) -> Result<bool, String> {
    let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let supervision = Supervision::new().expect("descriptors");
        let run = (scenario.run)().supervised(&supervision);
        let supervisor = supervision.start(product(), Some(failing.clone())).expect("a thread");
        let outcome = run.finish();
        let (_, is_reached) = supervisor.finish().expect("a supervisor");
        (outcome, is_reached)
    }));
    let (outcome, is_reached) = match tried {
        Ok(tried) => tried,
        Err(panic) => {
            let problem = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            let is_directory = problem.contains("exit status: 0") && problem.contains("left behind: [");
            let removes = ["wireup-session up", "wireup-keeper run", "wireup down"].contains(&&*failing.call.role);
            let may_stay = removes && REMOVE.contains(&name(&failing.call));
            // After a failed call the PMIx library continues without the event or the file, so the job may hang. The
            // library's messages are shown, and Ctrl-C ends the job.
            let library_waits = failing.call.role == "wireup pmix-server" && problem.contains("its PMIx server said:");
            return if (is_directory && may_stay) || library_waits { Ok(true) } else { Err(problem) };
        }
    };
    if outcome.code() == 0 {
        return if (scenario.works)(&outcome) { Ok(is_reached) } else { Err(format!("exit code 0, but: {outcome}")) };
    }
    let err = outcome.err();
    let mut lines = err.lines().filter(|line| line.starts_with("wireup"));
    // The kernel's text for the error, which the product's message should contain; the dynamic loader has texts of its
    // own.
    let words = std::io::Error::from_raw_os_error(failing.errno).to_string();
    let words = words.split(" (os error").next().unwrap_or_default();
    let is_elsewhere = SAID_OTHERWISE.contains(&(&failing.call.role, name(&failing.call)));
    let is_said = match scenario.names_cause && !is_elsewhere {
        true => lines.any(|line| line.contains(words)),
        false => lines.next().is_some(),
    };
    match is_said || err.contains("error while loading shared libraries") {
        true => Ok(is_reached),
        false => Err(format!("it does not say \"{words}\": {outcome}")),
    }
}

fn product() -> PathBuf {
    fs::canonicalize(wireup()).expect("the product")
}

fn every_call_may_fail(scenario: &Scenario) {
    if !may_isolate() {
        return println!("SKIPPED: it needs CAP_SYS_ADMIN");
    }
    let supervision = Supervision::new().expect("descriptors");
    let run = (scenario.run)().supervised(&supervision);
    let supervisor = supervision.start(product(), None).expect("a thread");
    let outcome = run.finish();
    assert!(outcome.code() == 0 && (scenario.works)(&outcome), "{outcome}");
    let (counts, _) = supervisor.finish().expect("a supervisor");
    let chosen = std::env::var("WIREUP_CALLS").unwrap_or_default();
    let mut all = Vec::new();
    for (call, count) in counts.iter().filter(|(call, _)| !call.role.ends_with(" pmi")) {
        for occurrence in 1..=*count {
            let failing = |errno: &Errno| Failing { call: call.clone(), occurrence, errno: errno.raw_os_error() };
            all.extend(errors(call).iter().map(failing));
        }
    }
    let stride = match &*chosen {
        "" => all.len().div_ceil(TRIALS).max(1),
        _ => 1,
    };
    let is_chosen = |failing: &&Failing| ["", "all"].contains(&&*chosen) || name(&failing.call) == chosen;
    let trials: Vec<Failing> = all.iter().filter(is_chosen).step_by(stride).cloned().collect();
    assert!(!trials.is_empty(), "no such call");
    let (next, reached) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (bad, start) = (Mutex::new(Vec::new()), Instant::now());
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(failing) = trials.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let problem = match trial(scenario, failing) {
                        Ok(is_reached) => {
                            reached.fetch_add(usize::from(is_reached), Ordering::Relaxed);
                            continue;
                        }
                        Err(problem) => problem,
                    };
                    let Failing { call, occurrence, errno } = failing;
                    let what = format!(
                        "{}, {} number {occurrence}, {}",
                        call.role,
                        name(call),
                        Errno::from_raw_os_error(*errno)
                    );
                    bad.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{what}: {problem}"));
                }
            });
        }
    });
    let bad = bad.into_inner().unwrap_or_else(PoisonError::into_inner);
    let reached = reached.into_inner() + bad.len();
    println!("{reached} of {} failures tried in {} s", all.len(), start.elapsed().as_secs());
    // A wait may be completed before it sleeps, so a call may be made less often than in the recorded run.
    assert!(reached * 2 > trials.len(), "only {reached} of {} chosen calls were made", trials.len());
    assert!(bad.is_empty(), "{} of {}:\n{}", bad.len(), trials.len(), bad.join("\n---\n"));
}

#[test]
fn every_call_of_a_run_may_fail() {
    every_call_may_fail(&Scenario {
        run: Box::new(|| Run::job("-n 2 --virtual-nodes 2 --pmi simple").arg(wireup()).args(["pmi", "exchange"])),
        works: |outcome| outcome.out().contains("fence_ms"),
        names_cause: true,
    });
}

#[test]
fn every_call_of_a_session_may_fail() {
    every_call_may_fail(&Scenario {
        run: Box::new(|| {
            Run::shell(
                "$WIREUP up --session calls && $WIREUP run --session calls -n 2 --pmi simple echo here; code=$?; \
                 $WIREUP down --session calls || $WIREUP down --session calls; exit $code",
            )
        }),
        works: |outcome| outcome.out() == "here\nhere\n",
        names_cause: false,
    });
}

#[test]
fn every_call_of_a_run_with_a_pmix_server_may_fail() {
    let Some(program) = program(Flavour::Pmix, "brief") else { return };
    every_call_may_fail(&Scenario {
        run: Box::new(move || Run::job("-n 2 --pmi pmix").arg(&program)),
        works: |_| true,
        names_cause: false,
    });
}
