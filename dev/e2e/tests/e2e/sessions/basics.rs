//! Sessions: `wireup up`, jobs by `wireup run`, and `wireup down`.

use rustix::process::Signal;
use wireup_e2e::Run;
use wireup_e2e::sessions::Session;

#[test]
fn a_session_goes_up_runs_a_job_and_goes_down() {
    let session = Session::up("--virtual-nodes 4");
    let outcome = session.job("-n 8 --label").sh("echo $WIREUP_RANK of $WIREUP_SIZE on $WIREUP_NODE").succeed();
    let lines: Vec<String> = (0..8).map(|rank| format!("[{rank}] {rank} of 8 on {}", rank / 2)).collect();
    assert_eq!(outcome.sorted_lines(), lines);
    outcome.expect_quiet();
    let outcome = session.down("");
    assert_eq!(outcome.err(), "wireup: session default ended\n");
}

#[test]
fn run_features_work_inside_a_session() {
    let session = Session::up("--virtual-nodes 3");
    session.job("-n 6").sh("test $WIREUP_RANK = 4 && exit 9; exec sleep 1000").finish().expect_code(9);
    session.job("-n 3").arg("nonexistent-program").finish().expect_code(127).expect_err_line(&["not found"]);
    session.job("-n 3 --timeout 0.3 sleep 1000").finish().expect_code(124);
    let outcome = session.job("-n 3 --stdin all").arg("cat").stdin("typed\n").succeed();
    assert_eq!(outcome.out(), "typed\n".repeat(3));
    let outcome = session.job("-n 2 --pty").sh("test $WIREUP_RANK = 1 || tty").succeed();
    assert!(outcome.out().contains("/dev/pts/"), "{outcome}");
    let outcome = session.job("-n 4 --wdir / -x A=b").sh("echo $PWD $A").succeed();
    assert_eq!(outcome.out(), "/ b\n".repeat(4));
    // Large output is complete and in order for each rank.
    let outcome = session.job("-n 3").sh("seq 1 20000").succeed();
    assert_eq!(outcome.out().lines().count(), 60_000);
    session.down("");
}

#[test]
fn a_run_chooses_the_session_that_fits() {
    let session = Session::up("--virtual-nodes 2 --session lab");
    session.again("--virtual-nodes 3").expect_code(0);
    let nodes = |line: &str| session.job(&format!("{line} --map-by node -n 6")).sh("echo $WIREUP_NODE").succeed();
    assert_eq!(nodes("--session lab").sorted_lines().last().expect("lines"), "1");
    assert_eq!(nodes("").sorted_lines().last().expect("lines"), "2");
    assert_eq!(nodes("--virtual-nodes 2").sorted_lines().last().expect("lines"), "1");
    // The session has three nodes; a run outside of the session has as many nodes as requested.
    let outcome = nodes("--virtual-nodes 4 --verbose");
    assert_eq!(outcome.sorted_lines().last().expect("lines"), "3");
    outcome.expect_err_line(&["session default does not have 4 virtual nodes", "for this job only"]);
    assert_eq!(nodes("--no-session").sorted_lines().last().expect("lines"), "0");
    nodes("--fanout 1").expect_quiet();
    session.wireup("status lab").succeed();
    // A variable names a session as well.
    let lab = |run: Run| run.env("WIREUP_SESSION", "lab").succeed();
    let outcome = lab(session.job("-n 6 --map-by node").sh("echo $WIREUP_NODE"));
    assert_eq!(outcome.sorted_lines().last().expect("lines"), "1");
    lab(session.wireup("down"));
    lab(session.job("-n 1 --no-session true")).expect_quiet();
    session.down("");
}

#[test]
fn status_and_jobs_list_nodes_and_jobs_and_kill_ends_one() {
    let session = Session::up("--virtual-nodes 2");
    let outcome = session.wireup("status").succeed();
    assert!(outcome.out().starts_with("session default: 2 of 2 nodes up, no limit on ranks, 0 jobs"), "{outcome}");
    let status: serde_json::Value = serde_json::from_slice(&session.wireup("status --json").succeed().stdout).unwrap();
    assert_eq!(status[0]["nodes"][1]["state"], "up", "{status}");
    assert!(
        outcome.out().contains("limits    PMI pairs 1024 MiB a job on each node; output of detached jobs 0 of 256 MiB")
    );
    let limits = &status[0]["limits"];
    assert_eq!((&limits["output_bytes_used"], &limits["output_bytes_per_job"]), (&0.into(), &(32 << 20).into()));
    session.detach("-n 1", "head -c 3000000 /dev/zero | tr '\\0' x");
    session.await_that("its output is kept and counted", || {
        session.wireup("status").succeed().out().contains("output of detached jobs 3 of 256 MiB used, 32 MiB a job")
    });
    session.await_that("the end of the detached job", || session.wireup("status").succeed().out().contains(" 0 jobs"));
    let mut running = session.job("-n 2").sh("echo ready; exec sleep 1000").start();
    running.await_out("ready\n", 2);
    let jobs: serde_json::Value = serde_json::from_slice(&session.wireup("jobs --json").succeed().stdout).unwrap();
    assert_eq!((&jobs[0]["ranks"], &jobs[0]["state"]), (&2.into(), &"running".into()), "{jobs}");
    let job = jobs[0]["job"].to_string();
    session.wireup("down").finish().expect_code(125).expect_err_line(&["session default still has 1 job", "--kill"]);
    session.wireup(&format!("kill --signal USR1 {job}")).succeed();
    let outcome = running.finish().expect_code(128 + 10);
    outcome.expect_err_line(&["SIGUSR1"]);
    let outcome = session.wireup(&format!("kill {job}")).finish().expect_code(125);
    outcome.expect_err_line(&["job", &job]);
    let jobs = [1, 2].map(|ranks| session.job(&format!("-n {ranks}")).sh("exec sleep 1000").start());
    session.await_that("both jobs run", || session.wireup("ps").succeed().out().matches("running").count() == 2);
    session.wireup("kill --all").succeed().expect_err_line(&["ending 2 jobs"]);
    for running in jobs {
        running.finish().expect_err_line(&["the job was terminated by wireup kill"]);
    }
    session.wireup("kill --all").succeed().expect_err_line(&["session default has no jobs"]);
    session.down("");
}

/// The harness waits until no process of a killed launcher's job is left.
#[test]
fn an_interrupted_or_killed_launcher_ends_only_its_own_job_among_many() {
    let session = Session::up("--virtual-nodes 3");
    for signal in [Signal::INT, Signal::KILL] {
        let mut ended = session.job("-n 3").sh("setsid sleep 1000 & echo ready; exec sleep 1000").start();
        let mut left_alone = session.job("-n 3").sh("echo ready; read line; echo $line").stdin_open().start();
        ended.await_out("ready\n", 3);
        left_alone.await_out("ready\n", 3);
        let short: Vec<_> = (0..12).map(|_| session.job("-n 6").sh("echo $WIREUP_RANK").start()).collect();
        for running in short {
            assert_eq!(running.succeed().sorted_lines(), ["0", "1", "2", "3", "4", "5"]);
        }
        ended.signal(signal);
        ended.finish().expect_code(128 + signal.as_raw());
        left_alone.write(b"goes on\n");
        left_alone.succeed().expect_out("goes on\n");
    }
    session.down("");
}

#[test]
fn recordings_of_a_session_can_be_replayed() {
    let session = Session::nowhere();
    let recordings = session.runtime_dir().with_file_name("recordings");
    session.again(&format!("--virtual-nodes 3 --record {}", recordings.display())).expect_code(0);
    for _ in 0..3 {
        session.job("-n 6 true").succeed();
    }
    session.wireup("down").succeed();
    let outcome = Run::shell(&format!("$WIREUP replay {}/*.rec", recordings.display())).succeed();
    assert_eq!(outcome.out().lines().count(), 3, "{outcome}");
    session.expect_gone();
}

#[test]
fn simultaneous_ups_start_one_session() {
    let session = Session::nowhere();
    let script = "for i in 1 2 3 4 5 6; do $WIREUP up --virtual-nodes 2 || $WIREUP up & done; wait";
    session.shell_leaving(script).expect_code(0);
    assert_eq!(session.named("wireup-session").len(), 1);
    session.job("-n 2 true").succeed();
    session.down("");
}

#[test]
fn session_commands_have_help() {
    for command in ["up", "down", "status", "jobs", "kill", "logs", "attach", "why"] {
        let outcome = Run::wireup([command, "--help"]).succeed();
        assert!(outcome.out().starts_with(&format!("wireup {command}: ")), "{outcome}");
        assert_eq!(Run::wireup(["help", command]).succeed().out(), outcome.out());
    }
}
