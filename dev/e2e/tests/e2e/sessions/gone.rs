//! Runs whose session is gone, and sessions that do not answer.

use rustix::process::{Signal, kill_process};
use wireup_e2e::sessions::Session;

/// Each run reports that its session was lost, until the session is started again or forgotten.
#[test]
fn a_run_says_that_its_session_was_lost() {
    let up = "$WIREUP up --virtual-nodes 2 2>&1";
    for (script, is_killed, why) in [
        (format!("exec {up}"), true, "its process was killed"),
        (format!("setsid sh -c '{up}; :'"), false, "the login or script that started it (process "),
    ] {
        let session = Session::nowhere();
        let outcome = session.shell_leaving(&script).expect_code(0);
        assert!(outcome.out().contains("started: 2 nodes; it ends with wireup down, or with "), "{outcome}");
        if is_killed {
            session.kill(session.daemon());
        }
        session.expect_gone();
        for _ in 0..2 {
            let outcome = session.job("-n 1 true").succeed();
            outcome.expect_err_line(&["session default, started 0 min ago, has ended: ", why, "runs without it"]);
        }
        session.job("-n 1 --session default true").finish().expect_code(125).expect_err_line(&[why, "wireup up"]);
        session.wireup("down").succeed().expect_err_line(&["has ended", why]);
        session.job("-n 1 true").succeed().expect_quiet();
        session.wireup("down").finish().expect_code(125).expect_err_line(&["there is no session default"]);
    }
}

#[test]
fn a_stopped_session_is_named_and_can_be_continued_or_ended() {
    let session = Session::up("--virtual-nodes 3");
    let mut running = session.job("-n 3").sh("setsid sleep 1000 & echo ready; exec sleep 1000").start();
    running.await_out("ready\n", 3);
    // The root is stopped and one other agent, too.
    let stopped = [session.daemon(), session.agents()[0].pid];
    let signal = |signal| stopped.into_iter().for_each(|pid| kill_process(pid, signal).expect("send the signal"));
    signal(Signal::STOP);
    let said = format!("its process {0} is stopped: kill -CONT {0}", session.daemon().as_raw_nonzero());
    let commands = ["run -n 1 true", "status --session default", "down"];
    let all: Vec<_> = commands.iter().map(|line| session.wireup(line).start()).collect();
    for (command, line) in all.into_iter().zip(commands) {
        let outcome = command.finish().expect_code(125);
        outcome.expect_err_line(&["waiting up to 8 s for session default", &said]);
        let line_of_all = outcome.expect_err_line(&["does not answer", &said, "wireup down --kill ends it"]);
        assert!(!line.starts_with("run") || line_of_all.contains("--no-session"), "{outcome}");
    }
    signal(Signal::CONT);
    session.job("-n 1 true").succeed();
    signal(Signal::STOP);
    session.wireup("down --kill").succeed().expect_err_line(&["session default ended"]);
    running.finish().expect_code(125);
    session.expect_gone();
}

/// A job that starts while its session ends either runs to its end or is refused, by the session or because there is no
/// session any more.
#[test]
fn a_job_that_comes_with_the_end_of_its_session_is_not_killed() {
    let session = Session::nowhere();
    for _ in 0..15 {
        session.again("--virtual-nodes 2").expect_code(0);
        let job = || session.job("-n 2").sh("sleep 0.05; echo done").start();
        let mut jobs: Vec<_> = (0..4).map(|_| job()).collect();
        let down = session.wireup("down").start();
        jobs.extend((0..4).map(|_| job()));
        for job in jobs {
            let outcome = job.finish();
            let (said, code) = (outcome.err(), outcome.code());
            let is_refused = said.contains("the job was not started, because its session ended")
                || said.contains("has ended; wireup up");
            match code {
                0 => assert_eq!(outcome.out(), "done\ndone\n", "{outcome}"),
                _ => assert!(is_refused && outcome.out().is_empty(), "{outcome}"),
            }
        }
        if down.finish().code() != 0 {
            session.wireup("down").succeed();
        }
    }
    session.expect_gone();
}

/// The executable of the session may be a copy in a cache that is cleaned while the session runs.
#[test]
fn a_session_starts_agents_after_its_program_was_removed() {
    let session = Session::nowhere();
    let script = "mkdir $TMPDIR/bin && cp $WIREUP $TMPDIR/bin/ && $TMPDIR/bin/wireup up --virtual-nodes 2 && \
                  rm -r $TMPDIR/bin";
    session.shell_leaving(script).expect_code(0);
    session.kill(session.agents()[0].pid);
    session.again("").expect_code(0).expect_err_line(&["session default is running again: 2 nodes"]);
    let outcome = session.job("-n 2 --map-by node").sh("echo $WIREUP_NODE").succeed();
    assert_eq!(outcome.sorted_lines(), ["0", "1"]);
    session.down("");
}
