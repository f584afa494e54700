//! Kernels without newer system calls, and older filters of containers, which refuse system calls that they do not
//! know.
//!
//! All system calls since Linux 5.1 have the same numbers on all architectures: `pidfd_open` (5.3) and related calls,
//! `open_tree` and `move_mount` (5.2), `clone3` (5.3), `close_range` (5.9), `openat2` (5.6), `faccessat2` (5.8), and
//! all future ones.

use rustix::io::Errno;
use rustix::process::{Signal, kill_process};
use wireup_e2e::Run;
use wireup_e2e::folders::Folder;
use wireup_e2e::may_isolate;
use wireup_e2e::sessions::Session;

/// The lowest number of the system calls since Linux 5.1.
const NEWER: u32 = 424;

/// The error of a kernel that lacks a system call, and the error of a filter that does not know the call. Only a
/// privileged process can give others a filter without changing how they start programs.
fn lacks() -> &'static [Errno] {
    if may_isolate() {
        return &[Errno::NOSYS, Errno::PERM];
    }
    println!("SKIPPED: it needs CAP_SYS_ADMIN");
    &[]
}

#[test]
fn jobs_run_without_newer_system_calls() {
    for &errno in lacks() {
        for containment in ["auto", "none", "user"] {
            for nodes in ["", " --virtual-nodes 2"] {
                let line = format!("-n 2{nodes} --contain {containment}");
                let outcome = Run::job(&line).without_calls_from(NEWER, errno).sh("echo here").succeed();
                assert_eq!(outcome.out(), "here\nhere\n", "{errno:?} {outcome}");
            }
        }
    }
}

#[test]
fn sessions_run_without_newer_system_calls() {
    for &errno in lacks() {
        let session = Session::nowhere();
        let up = session.again_later("--virtual-nodes 2").without_calls_from(NEWER, errno).succeed();
        up.expect_err_line(&["cannot determine your login session", "wireup down"]);
        for _ in 0..2 {
            let job = session.job("-n 2 --virtual-nodes 2").without_calls_from(NEWER, errno).sh("echo here").succeed();
            assert_eq!(job.out(), "here\nhere\n", "{errno:?} {job}");
        }
        session.down("");
    }
}

/// A job that is not part of a standing session stages through a session that ends with the launcher. Without
/// `open_tree` and `move_mount`, no file can be mounted over another: the ranks use the originals, unless the user has
/// forbidden that.
#[test]
fn ranks_use_the_originals_where_mounts_cannot_be_moved() {
    for &errno in lacks() {
        let folder = Folder::new("staging");
        let data = folder.write("data", "original");
        let job = |how: &str| {
            let run = Run::job("-n 1 --pmi simple").args([&folder.stage(), how, "--stage-also"]).arg(&data);
            run.args(["cat"]).arg(&data).without_calls_from(NEWER, errno).finish()
        };
        let outcome = job("--stage").expect_code(0).expect_out("original");
        outcome.expect_err_line(&["open_tree and move_mount", "Linux 5.2"]);
        job("--stage=require").expect_code(125).expect_err_line(&["open_tree and move_mount", "--stage=require"]);
    }
}

/// Without `pidfd_open`, the agent checks at intervals whether a keeper has ended; a stopped keeper is given up as
/// usual.
#[test]
fn a_stopped_keeper_is_not_waited_for_forever() {
    let Some(&errno) = lacks().first() else { return };
    let run = Run::job("-n 1 --contain none").without_calls_from(NEWER, errno).sh("echo up; exec sleep 100");
    let mut running = run.start_until("up", 1);
    let keeper = running.processes().into_iter().find(|process| process.name == "wireup-keeper").expect("a keeper").pid;
    kill_process(keeper, Signal::STOP).expect("send the signal");
    running.signal(Signal::INT);
    running.signal(Signal::TERM);
    running.await_that("the end of the launcher", |running| running.has_ended());
    kill_process(keeper, Signal::CONT).expect("send the signal");
    assert!(running.finish().code() > 128);
}
