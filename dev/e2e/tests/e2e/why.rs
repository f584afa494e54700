//! Where a job hangs: `wireup why`, SIGALRM and `--timeout` show which ranks have not arrived, and the call stacks of
//! all ranks.

use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Command;
use wireup_e2e::Run;
use wireup_e2e::peers::{program, skip};
use wireup_e2e::sessions::Session;
use xtask::layout;
use xtask::programs::{Flavour, environment};

fn has(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok()
}

/// Path of the program whose rank 3 is late for a barrier; `None`: it cannot be compiled, or no tool can show its
/// stacks.
fn stuck() -> Option<PathBuf> {
    if !has("eu-stack") && !has("gdb") {
        return skip("no eu-stack and no gdb");
    }
    program(Flavour::Mpich4, "stuck")
}

/// The functions in the call stack that the text shows for `ranks`, innermost first.
fn calls<'t>(text: &'t str, ranks: &str) -> Vec<&'t str> {
    let text = text.lines().map(|line| line.strip_prefix("wireup: ").unwrap_or(line));
    let calls = text.skip_while(|line| *line != format!("call stack of {ranks}, innermost first:")).skip(1);
    calls.map_while(|line| line.strip_prefix("    ")).collect()
}

fn expect_stuck(text: &str) {
    let (late, others) = (calls(text, "rank 3"), calls(text, "ranks 0-2"));
    assert!(late.contains(&"stuck_here") && late.contains(&"main"), "{text}");
    assert!(others.first().is_some_and(|call| call.ends_with("MPI_Barrier")) && others.contains(&"main"), "{text}");
}

#[test]
fn why_shows_who_is_late_and_equal_stacks_once() {
    let Some(program) = stuck() else { return };
    let session = Session::up("--virtual-nodes 2");
    let job = session.detach("-n 4", &format!("exec {}", program.display()));
    let logs = || session.wireup(&format!("logs {job}")).succeed().out();
    session.await_that("all ranks", || logs().matches("ready").count() == 4);
    session.await_that("the barrier", || {
        let outcome = session.wireup(&format!("why {job}")).succeed();
        !calls(&outcome.out(), "ranks 0-2").is_empty()
    });
    expect_stuck(&session.wireup(&format!("why {job}")).succeed().out());
    let errors = session.wireup(&format!("logs {job}")).succeed();
    assert_eq!(errors.err(), "", "the job's output has nothing of it");
    session.wireup("why 99").finish().expect_code(125).expect_err_line(&["there is no job 99"]);
    session.down("--kill");
}

#[test]
fn a_run_shows_stacks_when_it_is_asked_and_before_its_time_limit_ends_it() {
    let Some(program) = stuck() else { return };
    let run = Run::job("-n 4 --virtual-nodes 2 --timeout 8").envs(environment(Flavour::Mpich4)).arg(&program);
    let mut running = run.start_until("ready\n", 4);
    running.signal(Signal::ALARM);
    running.await_that("stacks", |running| running.err_text().contains("call stack of rank 3"));
    let outcome = running.finish().expect_code(124);
    let err = outcome.err();
    let (asked, at_the_end) = err.rsplit_once("call stack of ranks 0-2").expect("two reports");
    assert!(asked.contains("call stack of rank 3, "), "{outcome}");
    expect_stuck(&format!("call stack of ranks 0-2{at_the_end}"));
    outcome.expect_err_line(&["reached its time limit of 8 s"]);
}

#[test]
fn the_stacks_of_python_are_those_of_its_functions() {
    let tools = layout::peer("py-spy").join("bin");
    if !tools.join("py-spy").is_file() {
        return skip("no py-spy").unwrap_or_default();
    }
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default());
    let program = "import time\ndef stuck_here():\n    print('ready', flush=True)\n    time.sleep(1000)\nstuck_here()";
    let mut running = Run::job("-n 2 python3 -c").arg(program).env("PATH", path).start_until("ready\n", 2);
    running.signal(Signal::ALARM);
    running.await_that("stacks", |running| running.err_text().contains("call stack of ranks 0-1"));
    running.signal(Signal::TERM);
    let outcome = running.finish();
    let err = outcome.err();
    let calls = calls(&err, "ranks 0-1");
    assert!(calls[0].starts_with("stuck_here (") && calls[1].starts_with("<module> ("), "{outcome}");
}
