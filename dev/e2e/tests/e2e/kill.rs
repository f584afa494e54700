//! SIGKILL of any one process of a job, at any moment, leaves neither processes nor files.
//!
//! The harness checks this at the end of every run.

use crate::faults::Dice;
use rustix::process::{Signal, kill_process};
use std::fs;
use std::thread;
use std::time::Duration;
use wireup_e2e::libraries::own;
use wireup_e2e::run_processes::{self, Process};
use wireup_e2e::{Run, Running};

/// A script for ranks with a child, and with a grandchild in a session of its own.
const RANK: &str = "setsid sh -c 'trap \"\" HUP TERM INT; sleep 1000 & wait' & sleep 1000 & echo ready; wait";

fn job(offered: &str) -> Running {
    Run::job(&format!("-n 4 --virtual-nodes 2 --pmi {offered}")).sh(RANK).start()
}

/// Starts a job and waits until all of its processes run.
fn full(offered: &str) -> Running {
    let mut running = job(offered);
    running.await_out("ready\n", 4);
    running.await_that("all grandchildren run", |running| count(running, "sleep 1000") == 8);
    running
}

fn all_run(running: &Running) -> bool {
    running.out_text().matches("ready\n").count() == 4
}

fn count(running: &Running, command: &str) -> usize {
    running.processes().iter().filter(|process| process.command.trim() == command).count()
}

/// Whether a process is one of wireup's (launcher, agent, keeper) and not a rank.
fn is_ours(process: &Process) -> bool {
    process.command.split(' ').next().is_some_and(|program| program.ends_with("wireup")) || process.name == "wireup"
}

/// wireup's processes and the ranks, but not processes started by ranks. A job continues without the process that forks
/// keepers, until a rank asks for new processes (`spawn::a_spawn_without_its_forker_fails_with_a_message`).
fn victims(running: &Running) -> Vec<Process> {
    let mut all = running.processes();
    all.retain(|process| process.name != "wireup-forker");
    let ours: Vec<i32> = all.iter().filter(|p| is_ours(p)).map(|p| p.pid.as_raw_nonzero().get()).collect();
    all.into_iter().filter(|p| is_ours(p) || ours.contains(&p.parent)).collect()
}

/// Kills each process in turn: launcher, agents, keepers, PMIx servers, ranks.
#[test]
fn killing_any_process_ends_the_job_and_leaves_nothing() {
    for offered in ["simple", "pmix"] {
        for turn in 0.. {
            let running = full(offered);
            let all = victims(&running);
            assert!(all.len() >= 4 + 3, "launcher, two agents, keepers and four ranks: {}", run_processes::list(&all));
            let Some(victim) = all.get(turn) else {
                running.signal(Signal::KILL);
                running.finish().expect_code(137);
                break;
            };
            println!("killed: {victim:?}\nof: {}", run_processes::list(&all));
            kill_process(victim.pid, Signal::KILL).expect("kill one process of the job");
            let outcome = running.finish();
            assert_ne!(outcome.code(), 0, "{outcome}");
            if victim.command.contains("pmix-server") {
                outcome.expect_err_line(&["wireup: ", "PMIx server", "node"]);
            } else if victim.command.contains(" agent ") {
                outcome.expect_err_line(&["node1"]);
            }
        }
    }
}

/// Whether a process is the root's keeper without ranks, the first process of the PID namespace that all nodes of this
/// machine share.
fn is_first_of_a_namespace(process: &Process) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid.as_raw_nonzero())).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    let numbers: Vec<&str> = numbers.split_whitespace().collect();
    numbers.len() > 1 && numbers.last() == Some(&"1")
}

/// Kills a process at a random moment between the first fork and the time when everything runs.
#[test]
fn killing_any_process_during_the_start_leaves_nothing() {
    let mut dice = Dice::printed("WIREUP_KILL_SEED");
    // Every third turn has PMIx servers, which may be killed. With `--pmi both`, a node could continue without a server
    // that dies before it is ready.
    for turn in 0..30 {
        let mut running = if turn % 3 == 0 { job("pmix") } else { job("simple") };
        thread::sleep(Duration::from_micros(dice.below(if turn % 3 == 0 { 200_000 } else { 60_000 })));
        let all = victims(&running);
        if all.is_empty() {
            continue;
        }
        let victim = &all[dice.below(all.len() as u64) as usize];
        println!("killed: {victim:?}\nof: {}", run_processes::list(&all));
        let is_first = is_first_of_a_namespace(victim);
        let all_ran = running.has_ended() || all_run(&running);
        let killed = kill_process(victim.pid, Signal::KILL);
        if killed.is_err() {
            // The process was already exiting (for example a remote shell between two programs): the job is ended by
            // killing the launcher.
            running.signal(Signal::KILL);
        } else if is_first && !running.has_ended() {
            // If no agent had joined the victim's PID namespace yet, the job continues without one.
            running.signal(Signal::TERM);
        }
        // A keeper that was killed before it had any ranks is replaced, and all ranks start.
        if !all_ran {
            running.await_that("it has ended or all ranks run", |running| running.has_ended() || all_run(running));
            if !running.has_ended() {
                running.signal(Signal::TERM);
            }
        }
        let outcome = running.finish();
        assert_ne!(outcome.code(), 0, "{outcome}");
    }
}

/// Kills a rank, an agent or any process while several collectives are in progress, with every exchange scheme.
#[test]
fn killing_a_process_during_exchanges_ends_the_job() {
    let mut dice = Dice::printed("WIREUP_KILL_SEED");
    let program = own("endless");
    for scheme in ["auto", "tree", "ring", "log"] {
        for who in ["rank", "agent", "anyone"] {
            let job = Run::job("-n 6 --virtual-nodes 3 --fanout 1 --exchange").arg(scheme).arg(&program);
            let running = job.linked().start_until("under way\n", 6);
            thread::sleep(Duration::from_micros(dice.below(20_000)));
            let mut all = victims(&running);
            all.retain(|process| match who {
                "rank" => process.name == "endless",
                "agent" => process.command.contains(" agent "),
                _ => process.pid != running.pid(),
            });
            let victim = &all[dice.below(all.len() as u64) as usize];
            println!("{scheme}: killed: {victim:?}\nof: {}", run_processes::list(&all));
            kill_process(victim.pid, Signal::KILL).expect("kill one process of the job");
            let outcome = running.finish();
            assert_ne!(outcome.code(), 0, "{outcome}");
        }
    }
}

#[test]
fn killing_the_launcher_of_an_mpi_job_leaves_no_shared_memory() {
    use xtask::programs::Flavour;
    let Some(program) = wireup_e2e::peers::program(Flavour::Mpich5, "initfin") else { return };
    let mut dice = Dice::printed("WIREUP_KILL_SEED");
    for _ in 0..5 {
        let running = Run::job("-n 4 --virtual-nodes 2").arg(&program).start();
        thread::sleep(Duration::from_micros(dice.below(300_000)));
        running.signal(Signal::KILL);
        running.finish();
    }
}
