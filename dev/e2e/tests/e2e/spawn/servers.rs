//! PMIx server processes that are started before the children that they serve.
//!
//! A script that starts the ranks prints the directory of their server. A server that was started ahead has a
//! directory whose name ends in `-next`.

use rustix::process::{Signal, kill_process};
use std::fs;
use std::path::PathBuf;
use wireup_e2e::peers::program;
use wireup_e2e::run_processes::Process;
use wireup_e2e::sessions::Session;
use wireup_e2e::{Outcome, Run, Running, folders};
use xtask::programs::{Flavour, environment};

/// Placements of keepers: in a PID namespace of each family (if run by root), in the PID namespace of all nodes of the
/// machine, and without one.
const PLACEMENTS: [&str; 3] = ["-n 1", "-n 1 --virtual-nodes 2", "-n 1 --contain none"];

/// A script for ranks, in a folder of its own, where ranks may wait for a file.
struct Script(PathBuf);

impl Script {
    fn new(name: &str) -> Option<Script> {
        let program = program(Flavour::OpenMpi5, "children")?;
        let folder = wireup_e2e::programs::scratch().join(format!("servers-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("create a folder");
        let script = Script(folder);
        let text = format!(
            "#!/bin/bash\necho \"server $PMIX_SERVER_TMPDIR\"\n\
             while test -n \"$CHILDREN_WAIT\" -a -z \"$2\" -a ! -e '{}'; do sleep 0.01; done\n\
             exec -a \"$0\" '{}' \"$@\"\n",
            script.go().display(),
            program.display()
        );
        folders::write_program(&script.program(), &text, 0o755);
        Some(script)
    }

    fn program(&self) -> PathBuf {
        self.0.join("children")
    }

    /// The file for which children wait if `CHILDREN_WAIT` is set.
    fn go(&self) -> PathBuf {
        self.0.join("go")
    }

    /// Makes the script the program of a run whose first rank spawns `count` children one after the other.
    fn add(&self, run: Run, count: usize) -> Run {
        run.arg(self.program()).args(["repeat", &count.to_string()]).envs(environment(Flavour::OpenMpi5))
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// For each job, whether its server was started before the job.
fn ahead(outcome: &Outcome) -> Vec<bool> {
    outcome.out().lines().filter_map(|line| line.strip_prefix("server ")).map(|path| path.ends_with("-next")).collect()
}

fn is_server(process: &Process) -> bool {
    process.command.contains(" pmix-server ")
}

#[test]
fn children_get_a_server_that_was_started_ahead() {
    let Some(script) = Script::new("ahead") else { return };
    for placement in PLACEMENTS {
        let outcome = script.add(Run::job(&format!("{placement} --pmi pmix")), 4).succeed();
        let ahead = ahead(&outcome);
        assert_eq!(ahead.len(), 5, "{placement}: {outcome}");
        assert!(!ahead[0] && !ahead[1], "ranks have not started a job before: {placement}: {outcome}");
        assert!(ahead[2..].contains(&true), "{placement}: {outcome}");
        assert!(outcome.out().contains("parent 0 counts 8\n"), "{placement}: {outcome}");
    }
}

/// Waits for three servers: those of a parent and of a waiting child, and the one for the next child.
fn three(running: &mut Running) -> Vec<Process> {
    let mut servers = Vec::new();
    running.await_that("three servers", |running| {
        servers = running.processes().into_iter().filter(is_server).collect();
        servers.len() == 3
    });
    servers
}

#[test]
fn a_killed_server_that_waits_does_no_harm() {
    let Some(script) = Script::new("killed") else { return };
    for placement in PLACEMENTS {
        let _ = fs::remove_file(script.go());
        let run = script.add(Run::job(&format!("{placement} --pmi pmix")), 2).env("CHILDREN_WAIT", "1");
        let mut running = run.start_until("server ", 2);
        let servers = three(&mut running);
        let youngest = servers.iter().max_by_key(|process| process.pid.as_raw_nonzero()).expect("three of them");
        kill_process(youngest.pid, Signal::KILL).expect("send the signal");
        running.await_that("its end", |running| running.processes().iter().filter(|one| is_server(one)).count() < 3);
        fs::write(script.go(), "").expect("let the children go on");
        let outcome = running.succeed();
        assert_eq!(ahead(&outcome), [false; 3], "{placement}: {outcome}");
        assert!(outcome.out().contains("parent 0 counts 4\n"), "{placement}: {outcome}");
    }
}

#[test]
fn a_run_that_ends_while_a_server_waits_leaves_nothing() {
    let Some(script) = Script::new("left") else { return };
    for placement in PLACEMENTS {
        for signal in [Signal::KILL, Signal::TERM] {
            let run = script.add(Run::job(&format!("{placement} --pmi pmix")), 2).env("CHILDREN_WAIT", "1");
            let mut running = run.start_until("server ", 2);
            three(&mut running);
            running.signal(signal);
            assert_ne!(running.finish().code(), 0, "{placement}");
        }
    }
}

#[test]
fn a_session_ends_a_server_that_waits_with_the_last_job() {
    let Some(script) = Script::new("session") else { return };
    let session = Session::up("--virtual-nodes 1");
    let outcome = script.add(session.job("-n 1 --pmi pmix"), 3).succeed();
    assert!(ahead(&outcome)[2..].contains(&true), "{outcome}");
    session.await_that("the end of all servers", || !session.processes().iter().any(is_server));
    session.down("");
}
