//! Signals to the launcher reach the ranks, or end or stop the job.

use rustix::process::{Signal, kill_process};
use std::os::unix::fs::PermissionsExt;
use wireup_e2e::Run;
use wireup_e2e::folders::Folder;

#[test]
fn each_signal_is_forwarded_to_all_ranks_whose_exit_code_is_the_jobs() {
    let signals = [
        ("INT", Signal::INT, 3),
        ("TERM", Signal::TERM, 0),
        ("HUP", Signal::HUP, 0),
        ("QUIT", Signal::QUIT, 0),
        ("USR1", Signal::USR1, 0),
        ("USR2", Signal::USR2, 0),
    ];
    let folder = Folder::new("signals");
    for (name, signal, code) in signals {
        // A rank that exits with code 3 ends the others, so each rank waits until all ranks have printed that they got
        // the signal.
        let all = folder.at(name);
        let wait = format!("until [ -e {} ]; do sleep 0.02; done", all.display());
        let script =
            format!("trap 'echo got {name}; {wait}; exit {code}' {name}; echo ready; while :; do sleep 0.02; done");
        let mut running = Run::job("-n 3 --virtual-nodes 2").sh(&script).start_until("ready\n", 3);
        running.signal(signal);
        running.await_out(&format!("got {name}\n"), 3);
        folder.write(name, "");
        running.finish().expect_code(code);
    }
}

#[test]
fn a_job_continues_after_sigusr1() {
    let script = "trap 'echo got' USR1; echo ready; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done; exit 0";
    let mut running = Run::job("-n 2 --virtual-nodes 2").sh(script).start_until("ready\n", 2);
    running.signal(Signal::USR1);
    running.await_out("got\n", 2);
    running.succeed();
}

#[test]
fn ctrl_c_once_ends_ordinary_programs() {
    for placement in ["-n 2", "-n 2 --virtual-nodes 2"] {
        let mut running = Run::job(placement).sh("echo ready; exec sleep 1000").start();
        running.await_out("ready\n", 2);
        running.signal(Signal::INT);
        running.finish().expect_code(130);
    }
}

#[test]
fn ctrl_c_twice_kills_ranks_that_ignore_it() {
    let mut running =
        Run::job("-n 2 --virtual-nodes 2").sh("trap '' INT TERM; echo ready; while :; do sleep 0.1; done").start();
    running.await_out("ready\n", 2);
    running.signal(Signal::INT);
    // A second SIGINT earlier than this would count as the same interrupt.
    std::thread::sleep(std::time::Duration::from_millis(1200));
    assert!(!running.has_ended(), "the first interrupt ended the job");
    running.signal(Signal::INT);
    assert_ne!(running.finish().code(), 0);
}

/// `timeout` of coreutils signals its child, and then the child's whole process group, so that the launcher gets the
/// signal twice.
#[test]
fn a_signal_that_is_repeated_at_once_is_one_signal() {
    let script = "trap 'sleep 0.3; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.02; done";
    let mut running = Run::job("-n 2").sh(script).start_until("ready\n", 2);
    running.signal(Signal::TERM);
    running.await_that("the first is reported", |running| running.err_text().contains("SIGTERM was sent to all ranks"));
    running.signal(Signal::TERM);
    let outcome = running.succeed();
    assert_eq!(outcome.out().matches("saved\n").count(), 2, "{outcome}");
}

#[test]
fn a_signal_during_the_start_is_not_said_to_reach_ranks() {
    let shell = std::env::temp_dir().join(format!("wireup-hangs-{}", std::process::id()));
    std::fs::write(&shell, "#!/bin/sh\nexec sleep 1000\n").expect("write the remote shell");
    std::fs::set_permissions(&shell, PermissionsExt::from_mode(0o755)).expect("make it executable");
    let mut running = Run::job("--hosts n1,n2 -n 2 --remote-shell").arg(&shell).arg("true").start();
    running.await_that("the remote shells run", |running| {
        running.processes().iter().filter(|process| process.command.trim() == "sleep 1000").count() == 2
    });
    running.signal(Signal::INT);
    let outcome = running.finish().expect_code(130);
    std::fs::remove_file(&shell).expect("remove the remote shell");
    outcome.expect_err_line(&["SIGINT arrived before all ranks had started"]);
    assert!(!outcome.err().contains("sent to all ranks"), "{outcome}");
}

/// A program whose handler of SIGTSTP does something before the program stops gets the time for that.
#[test]
fn a_job_stops_and_continues_and_its_handlers_of_sigtstp_run() {
    let script = "trap 'echo tidied' TSTP; echo ready; while :; do sleep 0.02; done";
    let mut running = Run::job("-n 2 --virtual-nodes 2").sh(script).start_until("ready\n", 2);
    let stopped = |running: &wireup_e2e::Running| {
        let all = running.processes();
        all.iter().filter(|one| one.command.starts_with("/bin/sh -c") && one.state == 'T').count()
    };
    running.signal(Signal::TSTP);
    running.await_that("both ranks stop", |running| stopped(running) >= 2);
    running.signal(Signal::CONT);
    running.await_that("both ranks go on", |running| stopped(running) == 0);
    running.await_out("tidied\n", 2);
    running.signal(Signal::TERM);
    running.finish();
}

/// The kernel lets a rank stop itself by SIGTSTP only if another process in its session could continue it.
#[test]
fn a_rank_can_stop_itself_and_continue() {
    let mut running = Run::job("-n 2").sh("echo ready; kill -TSTP $$; echo through").start();
    running.await_out("ready\n", 2);
    let stopped = |running: &wireup_e2e::Running| {
        let all = running.processes();
        all.iter().filter(|p| p.command.starts_with("/bin/sh -c echo ready") && p.state == 'T').count()
    };
    running.await_that("both ranks stop", |running| stopped(running) == 2);
    running.signal(Signal::CONT);
    assert_eq!(running.succeed().out().matches("through\n").count(), 2);
}

/// If a job hangs, the user can request a report on which ranks have not arrived.
#[test]
fn a_stall_report_names_the_rank_missing_in_a_fence() {
    let badpmi = wireup_e2e::peers::plain("badpmi");
    let script =
        format!("test $WIREUP_RANK = 2 && {{ echo late; exec sleep 1000; }}; exec {} unknown 99", badpmi.display());
    let mut running = Run::job("-n 4 --virtual-nodes 2").sh(&script).start_until("late\n", 1);
    // The test requests reports until one names rank 2: before that, other ranks may not have entered the fence yet.
    running.await_that("the missing rank is named", |running| {
        running.signal(STALL_REPORT);
        std::thread::sleep(std::time::Duration::from_millis(100));
        running.err_text().lines().any(|line| line.contains("fence") && line.contains("rank 2"))
    });
    running.signal(Signal::TERM);
    running.finish();
}

/// The signal by which a user requests a stall report.
const STALL_REPORT: Signal = Signal::ALARM;

/// With `nohup`, the job's ranks and its launcher outlive the terminal.
#[test]
fn an_ignored_hangup_stays_ignored() {
    let script = "trap '' HUP; exec $WIREUP run -n 2 --virtual-nodes 2 sh -c \
        'grep SigIgn /proc/self/status; echo ready; kill -HUP $$; sleep 0.5; echo through'";
    let running = Run::shell(script).start_until("ready\n", 2);
    running.signal(Signal::HUP);
    let outcome = running.succeed().expect_quiet();
    assert_eq!(outcome.out().matches("through\n").count(), 2, "{outcome}");
    let ignored = outcome.out().lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:\t")?, 16).ok());
    assert_eq!(ignored.map(|bits| bits & 1), Some(1), "{outcome}");
}

/// Otherwise the job could not end its ranks by these signals.
#[test]
fn ranks_do_not_inherit_ignored_sigterm_and_sigusr1() {
    let outcome = Run::shell("trap '' TERM USR1; exec $WIREUP run -n 1 grep SigIgn /proc/self/status").succeed();
    let bits = u64::from_str_radix(outcome.out().trim().trim_start_matches("SigIgn:\t"), 16);
    assert_eq!(bits.map(|bits| bits & (1 << 14 | 1 << 9)), Ok(0), "{outcome}");
}

#[test]
fn a_second_signal_ends_the_launcher_despite_a_stopped_agent() {
    let mut running = Run::job("-n 2 --virtual-nodes 2").sh("echo up; exec sleep 100").start();
    running.await_out("up", 2);
    let agent = running.processes().into_iter().find(|one| one.command.contains("wireup agent "));
    kill_process(agent.expect("an agent of its own").pid, Signal::STOP).expect("send the signal");
    running.signal(Signal::INT);
    running.signal(Signal::TERM);
    let outcome = running.finish();
    assert!(outcome.code() > 128, "{outcome}");
}
