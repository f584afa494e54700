//! Waits that must end, and slow readers that must not block others.

use rustix::process::{Signal, kill_process};
use wireup_e2e::Run;

/// A program for ranks that writes more than all windows and pipes on the way can hold.
const ENDLESS: &str = "exec cat /dev/zero";

#[test]
fn a_time_limit_ends_a_job_whose_output_is_not_read() {
    let outcome = Run::job("-n 1 --timeout 0.3 --kill-grace 0.1").sh(ENDLESS).stdout_unread().finish();
    assert_eq!(outcome.code(), 124, "{outcome}");
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

#[test]
fn a_rank_that_closes_its_input_does_not_starve_others() {
    let script = "if [ $WIREUP_RANK = 0 ]; then exec 0<&-; exec sleep 100; fi; wc -c; kill -TERM $PPID";
    let mut running = Run::job("-n 2 --stdin all").sh(script).stdin(vec![b'x'; 2 << 20]).start();
    running.await_out("2097152", 1);
    running.signal(Signal::INT);
    running.finish();
}

#[test]
fn a_terminals_input_may_end_in_the_middle_of_a_line() {
    let outcome = Run::job("-n 1 --pty 0").sh("cat >/dev/null; echo done").stdin("abc").finish();
    assert_eq!(outcome.code(), 0, "{outcome}");
}

#[test]
fn a_slow_reader_of_terminal_output_loses_nothing() {
    // More bytes than credit and pipes can hold, so that some bytes are still in the pseudo-terminal when the rank has
    // exited.
    let script =
        "$WIREUP run -n 1 --pty 0 sh -c 'head -c 600000 /dev/zero | tr \"\\0\" x' </dev/null | (sleep 1; wc -c)";
    let outcome = Run::shell(script).succeed();
    assert_eq!(outcome.out().trim(), "600000");
}
