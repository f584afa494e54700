//! Detached jobs, which continue without a terminal.

use rustix::process::Signal;
use wireup_e2e::sessions::Session;
use wireup_e2e::tables::reports;

#[test]
fn attach_shows_output_and_returns_the_exit_code() {
    let session = Session::up("--virtual-nodes 2");
    let job = session.detach("-n 1", "echo out $WIREUP_RANK; echo err $WIREUP_RANK >&2; exit 7");
    let outcome = session.wireup(&format!("attach {job}")).finish().expect_code(7);
    assert!(outcome.out().contains("out 0\n"), "{outcome}");
    outcome.expect_err_line(&["exited with code 7"]);
    // The output of the detached job was stored for `wireup attach`.
    let outcome = session.wireup(&format!("attach {job}")).finish().expect_code(7);
    assert_eq!(outcome.out(), "out 0\n", "{outcome}");
    let outcome = session.wireup("attach 99").finish().expect_code(125);
    outcome.expect_err_line(&["no output of a job 99"]);
    session.down("");
}

#[test]
fn logs_show_the_output_of_some_ranks_as_often_as_wanted() {
    let session = Session::up("--virtual-nodes 2");
    let gate = session.runtime_dir().with_file_name("gate");
    let script = "echo begun $WIREUP_RANK; until test -e GATE; do sleep 0.02; done; echo over $WIREUP_RANK";
    let job = session.detach("-n 3", &script.replace("GATE", &gate.display().to_string()));
    let all = |line: &str| {
        let outcome = session.wireup(&format!("logs {line} {job}")).succeed();
        let mut lines: Vec<String> = outcome.out().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    session.await_that("the first lines", || all("").len() == 3);
    assert_eq!(all("--rank 0,2"), ["begun 0", "begun 2"], "the job has not ended");
    let follower = session.wireup(&format!("logs -f --rank 1 {job}")).start_until("begun 1\n", 1);
    std::fs::write(&gate, "").unwrap();
    assert_eq!(follower.succeed().out(), "begun 1\nover 1\n");
    for _ in 0..2 {
        assert_eq!(all("--rank 2").concat(), "begun 2over 2");
        assert_eq!(all("-f").len(), 6);
    }
    session.down("");
}

#[test]
fn attach_follows_output_and_its_end_leaves_the_job_running() {
    let session = Session::up("--virtual-nodes 2");
    let gate = session.runtime_dir().with_file_name("gate");
    let job = session
        .detach("-n 1", &format!("echo begun; until test -e {}; do sleep 0.02; done; echo over", gate.display()));
    for signal in [Signal::HUP, Signal::TERM, Signal::KILL] {
        let viewer = session.wireup(&format!("attach {job}")).start_until("begun\n", 1);
        viewer.signal(signal);
        viewer.finish();
    }
    let jobs = session.wireup("jobs").succeed();
    assert!(jobs.out().contains("running, detached"), "{jobs}");
    let viewer = session.wireup(&format!("attach {job}")).start_until("begun\n", 1);
    std::fs::write(&gate, "").unwrap();
    let outcome = viewer.succeed();
    assert_eq!(outcome.out(), "begun\nover\n");
    session.down("");
}

#[test]
fn ctrl_c_in_attach_interrupts_the_job() {
    let session = Session::up("--virtual-nodes 2");
    let job = session.detach("-n 2", "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.02; done");
    let viewer = session.wireup(&format!("attach {job}")).start_until("ready\n", 2);
    viewer.signal(Signal::INT);
    let outcome = viewer.finish().expect_code(5);
    outcome.expect_err_line(&["SIGINT was sent to all ranks"]);
    let job = session.detach("-n 2", "trap '' INT TERM; echo ready; while :; do sleep 0.02; done");
    let mut viewer = session.wireup(&format!("attach {job}")).start_until("ready\n", 2);
    viewer.signal(Signal::INT);
    viewer.await_that("the first Ctrl-C is reported", |viewer| viewer.err_text().contains("was sent to all ranks"));
    viewer.signal(Signal::INT);
    let outcome = viewer.finish();
    assert_ne!(outcome.code(), 0, "{outcome}");
    outcome.expect_err_line(&["killing all ranks"]);
    session.down("");
}

#[test]
fn a_detached_job_that_cannot_start_fails_at_once() {
    let session = Session::up("--virtual-nodes 2");
    let outcome = session.job("--detach -n 2 nonexistent-program").finish().expect_code(127);
    outcome.expect_err_line(&["nonexistent-program", "not found"]);
    // The number of the job is printed before the job ends, so that the user can end the job.
    assert!(outcome.out().trim_end().parse::<u32>().is_ok(), "{outcome}");
    reports(
        |script| session.shell(script),
        "wireup run --detach -n 2 --output-dir /dev/null/out true => 125 cannot create the output directory
         wireup run --detach --hosts elsewhere -n 2 true => 125 needs a running session | elsewhere
         wireup run --detach --pty -n 2 true => 125 --detach | --pty
         wireup run --detach --no-session -n 2 true => 125 needs a running session",
    );
    session.down("");
}

#[test]
fn killing_the_launcher_of_a_detached_job_ends_the_job() {
    let session = Session::up("--virtual-nodes 2");
    let job = session.detach("-n 2", "echo ready; exec sleep 1000");
    let viewer = session.wireup(&format!("attach {job}")).start_until("ready\n", 2);
    let all = session.processes();
    let launcher = all.iter().find(|process| process.command.contains("run --detach")).expect("the launcher");
    session.kill(launcher.pid);
    let outcome = viewer.finish().expect_code(125);
    outcome.expect_err_line(&["launcher of job", "was killed"]);
    session.await_that("the end of its ranks", || {
        session.processes().iter().all(|process| !process.command.starts_with("sleep"))
    });
    session.job("-n 2 true").succeed();
    session.down("");
}

#[test]
fn down_with_kill_ends_detached_jobs() {
    let session = Session::up("--virtual-nodes 2");
    session.detach("-n 2", "exec sleep 1000");
    session.wireup("down").finish().expect_code(125);
    let outcome = session.down("--kill");
    assert_eq!(outcome.err(), "wireup: session default ended; 1 job killed\n");
}

/// A user can have only few `inotify` instances; only commands that wait for output use one.
#[test]
fn jobs_are_listed_where_no_inotify_instance_is_left() {
    let session = Session::up("--virtual-nodes 1");
    let job = session.detach("-n 1", "true");
    session.await_that("the end of the job", || session.wireup("jobs").succeed().out().contains("finished, code 0"));
    let listing = "echo 0 > /proc/sys/user/max_inotify_instances && exec \"$WIREUP\" jobs";
    let outcome = session.shell(&format!("unshare --user --map-root-user sh -c '{listing}'")).succeed();
    assert!(outcome.out().contains(&format!("{job} ")) && outcome.out().contains("finished, code 0"), "{outcome}");
    session.down("");
}
