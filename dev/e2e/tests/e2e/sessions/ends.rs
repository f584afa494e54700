//! How sessions end, and what happens when one of their processes is killed.

use rustix::process::{Signal, kill_process};
use std::fs;
use wireup_e2e::Run;
use wireup_e2e::sessions::Session;

const SLEEPERS: &str = "setsid sleep 1000 & echo ready; exec sleep 1000";

#[test]
fn a_killed_session_daemon_leaves_nothing() {
    let session = Session::up("--virtual-nodes 4");
    let running = session.job("-n 4").sh(SLEEPERS).start_until("ready\n", 4);
    let detached = session.detach("-n 4", SLEEPERS);
    let viewer = session.wireup(&format!("attach {detached}")).start_until("ready\n", 4);
    session.kill(session.daemon());
    running.finish().expect_code(125).expect_err_line(&["the connection to the session is lost"]);
    viewer.finish().expect_code(125);
    session.expect_gone();
}

/// Writes `said` to the session's log and kills the session's process; returns the files that are left, with their
/// lengths.
fn crash(session: &Session, said: &str) -> Vec<(String, u64)> {
    let (daemon, place) = (session.daemon(), session.place("default"));
    fs::write(place.join("log"), said).expect("write the log");
    session.kill(daemon);
    session.await_that("the end of all processes", || session.processes().is_empty());
    let entries = fs::read_dir(place).expect("read the directory").map(|entry| entry.expect("an entry"));
    entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len())).collect()
}

#[test]
fn a_crashed_daemon_leaves_only_the_end_of_its_log() {
    let session = Session::up("--virtual-nodes 2");
    session.detach("-n 2", "echo kept");
    let left = crash(&session, &format!("{}one\ntwo\nno room\n", "early\n".repeat(2000)));
    assert_eq!(left, [("last-words".to_owned(), 4096)]);
    let words = ["session default ended unexpectedly", "(one; two; no room)"];
    let outcome = session.job("-n 1 true").succeed();
    outcome.expect_err_line(&[&words[..], &["without a session"]].concat());
    session.job("-n 1 --session default true").finish().expect_code(125).expect_err_line(&words);
    session.wireup("status").finish().expect_code(1).expect_err_line(&words);
    session.again("--virtual-nodes 2").expect_code(0).expect_err_line(&["ended unexpectedly", "no room"]);
    session.job("-n 2 true").succeed().expect_quiet();
    assert_eq!(crash(&session, "out of luck\n").len(), 1);
    let outcome = session.down("");
    assert_eq!(
        outcome.err(),
        "wireup: session default had already ended, unexpectedly (out of luck); its remaining files were removed\n"
    );
}

/// The links of a stopped agent look intact; the agent counts as lost because it does not answer.
#[test]
fn a_killed_or_stopped_agent_ends_its_jobs_and_up_restarts_it() {
    for signal in [Signal::KILL, Signal::STOP] {
        let session = Session::up("--virtual-nodes 4 --fanout 1 --node-timeout 1");
        let mut elsewhere =
            session.job("--virtual-nodes 2 -n 2").sh("echo ready; read line; echo $line").stdin_open().start();
        // While its agent is stopped, a rank is left.
        let job = if signal == Signal::STOP { session.job_leaving("-n 4") } else { session.job("-n 4") };
        let mut there = job.sh(SLEEPERS).start();
        elsewhere.await_out("ready\n", 2);
        there.await_out("ready\n", 4);
        // The third of a chain of four agents; its child is healthy.
        let third = session.agents()[1].pid;
        kill_process(third, signal).expect("send the signal");
        let words = if signal == Signal::STOP { &["node2", "has not responded"][..] } else { &["node2"] };
        there.finish().expect_code(125).expect_err_line(words);
        session.await_that("the status of the other nodes", || {
            let status = session.wireup("status").finish();
            let is_lost = |node: &str| status.out().contains(&format!("lost      {node}"));
            status.code() == 1 && is_lost("node2") && !is_lost("node3")
        });
        elsewhere.write(b"goes on\n");
        assert!(elsewhere.succeed().out().contains("goes on"));
        let outcome = session.job("-n 6").sh("echo $WIREUP_NODE").succeed();
        assert_eq!(outcome.sorted_lines(), ["0", "0", "1", "1", "2", "2"]);
        outcome.expect_err_line(&["has lost these nodes", "node2"]);
        let _ = kill_process(third, Signal::CONT);
        session.await_that("the end of the agent", || session.agents().iter().all(|agent| agent.pid != third));
        assert_eq!(session.again("").expect_code(0).err(), "wireup: session default is running again: 4 nodes\n");
        let outcome = session.job("-n 4").sh("echo $WIREUP_NODE").succeed();
        assert_eq!(outcome.sorted_lines(), ["0", "1", "2", "3"]);
        outcome.expect_quiet();
        session.down("");
    }
}

#[test]
fn agents_restarted_while_others_are_lost_return_eventually() {
    let session = Session::up("--virtual-nodes 6 --fanout 1");
    for _ in 0..3 {
        let agents = session.agents();
        // Some agents may still be starting and are not in the list yet.
        let [_, first, .., last] = &agents[..] else { continue };
        session.kill(first.pid);
        // If the last agent is lost at the wrong moment, agents that it should have started are reported as missing
        // only after the start timeout.
        let up = session.again_later("").start();
        // The last agent may have ended already, since it lost its parent.
        let _ = kill_process(last.pid, Signal::KILL);
        up.finish();
    }
    // A loss is reported a fifth of a second after it occurs, so a job may still fail for a moment.
    session.await_that("a job on all nodes", || {
        let all = session.again("").code() == 0;
        all && session.job("-n 6").sh("echo $WIREUP_NODE").finish().sorted_lines() == ["0", "1", "2", "3", "4", "5"]
    });
    session.down("");
}

#[test]
fn a_killed_keeper_and_then_a_killed_daemon_leave_nothing() {
    let session = Session::up("--virtual-nodes 2");
    let running = session.job("-n 2").sh(SLEEPERS).start_until("ready\n", 2);
    let keepers = session.named("wireup-keeper");
    session.kill(keepers[0].pid);
    session.kill(session.daemon());
    running.finish().expect_code(125);
    session.await_that("the end of all processes", || session.processes().is_empty());
    session.wireup("down").finish();
}

#[test]
fn a_killed_keeper_ends_its_job_and_is_replaced() {
    let session = Session::up("--virtual-nodes 2");
    let running = session.job("-n 2").sh(SLEEPERS).start_until("ready\n", 2);
    let rank = running.processes().into_iter().find(|process| process.command.starts_with("sleep")).expect("a rank");
    let keepers = session.named("wireup-keeper");
    let keeper = keepers.iter().find(|keeper| keeper.pid.as_raw_nonzero().get() == rank.parent).expect("its keeper");
    session.kill(keeper.pid);
    running.finish().expect_code(125);
    session.job("-n 2 true").succeed();
    // Idle keepers are killed as well; the next job gets a new keeper.
    for keeper in session.named("wireup-keeper") {
        // When the first process of their PID namespace is killed, all of its keepers end.
        let _ = kill_process(keeper.pid, Signal::KILL);
    }
    session.shell("for i in 1 2 3 4 5; do $WIREUP run -n 2 true && exit 0; sleep 0.2; done; exit 1").succeed();
    session.wireup("down").finish();
    session.await_that("the end of all processes", || session.processes().is_empty());
}

#[test]
fn a_session_ends_with_its_owner() {
    let session = Session::nowhere();
    let gate = session.runtime_dir().with_file_name("gate");
    let script = format!(
        "setsid sh -c '$WIREUP up --virtual-nodes 2; until test -e {0}; do sleep 0.02; done' >/dev/null 2>&1 &
        until $WIREUP status; do sleep 0.05; done",
        gate.display()
    );
    session.shell_leaving(&script).expect_code(0);
    let running = session.job("-n 2").sh(SLEEPERS).start_until("ready\n", 2);
    fs::write(&gate, "").unwrap();
    running.finish().expect_err_line(&["login", "has ended"]);
    session.expect_gone();
}

/// The script that a batch system or a container runs is the session's owner, not one of the script's short-lived
/// subshells.
#[test]
fn without_a_session_leader_the_script_owns_the_session() {
    let session = Session::nowhere();
    let gate = session.runtime_dir().with_file_name("gate");
    let script = format!(
        "while test -e /proc/$(cut -d' ' -f6 /proc/$$/stat); do sleep 0.02; done
        ($WIREUP up --virtual-nodes 2)
        until test -e {0}; do sleep 0.02; done",
        gate.display()
    );
    let file = session.runtime_dir().with_file_name("script");
    fs::write(&file, script).unwrap();
    let begin = format!(
        "setsid sh -c 'sh {} >/dev/null 2>&1 & exit'
        until $WIREUP status; do sleep 0.05; done",
        file.display()
    );
    session.shell_leaving(&begin).expect_code(0);
    session.shell("sleep 0.3; $WIREUP run --session default -n 2 true").succeed();
    fs::write(&gate, "").unwrap();
    session.expect_gone();
}

/// `wireup up` is called by a script that ignores signals, has a file open, and is in a directory that will be removed.
#[test]
fn a_session_inherits_no_directory_file_or_ignored_signal() {
    let session = Session::nowhere();
    let folder = session.runtime_dir().with_file_name("caller");
    fs::create_dir(&folder).unwrap();
    let script =
        format!("cd {} && trap '' HUP INT QUIT && exec 7>kept && $WIREUP up --virtual-nodes 2", folder.display());
    session.shell_leaving(&script).expect_code(0);
    let own = format!("/proc/{}", session.daemon().as_raw_nonzero());
    assert_eq!(fs::read_link(format!("{own}/cwd")).unwrap(), std::path::Path::new("/"));
    let open = fs::read_dir(format!("{own}/fd")).unwrap().filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
    assert!(open.into_iter().all(|file| !file.starts_with(&folder)));
    let status = fs::read_to_string(format!("{own}/status")).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a field of the kernel's").trim();
    // Of all signals, only SIGPIPE and SIGXFSZ are ignored.
    assert_eq!(u64::from_str_radix(ignored, 16), Ok(1 << 12 | 1 << 24));
    session.down("");
}

#[test]
fn a_lingering_session_outlives_its_owner() {
    let session = Session::nowhere();
    session.shell_leaving("setsid -w $WIREUP up --linger --virtual-nodes 2").expect_code(0);
    session.job("-n 2 true").succeed();
    let outcome = session.wireup("status").succeed();
    assert!(outcome.out().contains("ends with wireup down"), "{outcome}");
    session.down("");
}

#[test]
fn sigterm_ends_the_session_and_its_jobs() {
    let session = Session::up("--virtual-nodes 3");
    let running = session.job("-n 3").sh(SLEEPERS).start_until("ready\n", 3);
    kill_process(session.daemon(), Signal::TERM).expect("send the signal");
    running.finish().expect_err_line(&["the job was terminated because its session ended"]);
    session.expect_gone();
}

/// A session that cannot answer requests must not continue, since nobody could use or end it.
#[test]
fn a_session_that_has_too_few_descriptors_to_answer_is_ended_again() {
    for limit in [17, 18] {
        let session = Session::nowhere();
        let script = format!("ulimit -n {limit}; exec \"$WIREUP\" up --start-timeout 3 --virtual-nodes 3");
        let outcome = session.leaving(Run::shell(&script)).finish();
        match outcome.code() {
            125 => session.await_that("the end of its processes", || session.processes().is_empty()),
            _ => drop(session.down("--kill")),
        }
    }
}
