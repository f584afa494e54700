//! Agents that a batch system starts, all with one call of the root: whatever problems the hosts have, all missing ones
//! are reported together and in time, and no others. `WIREUP_SIM_SEEDS` works as for the random worlds.

mod seeds;

use wireup_sim::fault_injection::{Fault, NoStart};
use wireup_sim::random::{step_with_faults, step_world};
use wireup_sim::remote::{self, HostSpec, Pace, Program, Reach, Remote};
use wireup_sim::workload::{Dialect, Script, Step};
use wireup_sim::{WorldSpec, run};
use wireup_wire::peer::{Cause, Note};

const MS: u64 = 1_000_000;
const SEEDS: u64 = 10;

#[test]
fn every_rule_holds_with_tasks_in_trouble() {
    let (mut ran, mut struck) = (0, 0);
    for seed in seeds::seeds(300) {
        // Shown only if this seed panics.
        println!("seed {seed}");
        ran += u32::from(run(step_world(seed)).expect_good().code == Some(0));
        struck += run(step_with_faults(seed)).expect_good().checks.strikes;
    }
    println!("{ran} jobs ran undisturbed, {struck} faults struck");
}

/// Fifteen hosts in a binary tree: 0 - (1, 2), 1 - (3, 4), 3 - (7, 8).
fn world(seed: u64, trouble: &[(u32, HostSpec)]) -> WorldSpec {
    let mut remote = Remote::prompt(15, remote::srun());
    for (agent, host) in trouble {
        remote.hosts[*agent as usize] = *host;
    }
    let script = Script::exchange(Dialect::Pmi1, 40, 3);
    WorldSpec { fanout: 2, remote: Some(remote), ..WorldSpec::even(seed, 15, 2, script) }
}

/// A world of steps in which ranks never end by themselves.
fn endless(seed: u64, fault: Fault) -> WorldSpec {
    let apps = vec![(30, std::rc::Rc::new(Script::plain(&[Step::Hang])))];
    WorldSpec { faults: vec![fault], ..world(seed, &[]).job(|job| job.apps = apps) }
}

fn fine() -> HostSpec {
    HostSpec::default()
}

fn silent() -> HostSpec {
    HostSpec { pace: Pace::Never, ..fine() }
}

#[test]
fn one_step_brings_all() {
    for seed in 0..SEEDS {
        let slow = HostSpec { pace: Pace::Slow { by_ns: 3_000 * MS }, ..fine() };
        let report = run(world(seed, &[(1, slow), (8, slow)])).expect_good();
        assert_eq!(report.code, Some(0), "seed {seed}: {:?}", report.notices);
    }
}

#[test]
fn a_program_that_no_node_has_is_sent_to_all() {
    for seed in 0..SEEDS {
        let without = HostSpec { program: Program::Missing, ..fine() };
        let all: Vec<(u32, HostSpec)> = (0..15).map(|agent| (agent, without)).collect();
        let report = run(world(seed, &all)).expect_good();
        assert_eq!(report.code, Some(0), "seed {seed}: {:?}", report.notices);
        let sent = report.notes().filter(|note| matches!(note, Note::Sent { .. })).count();
        assert_eq!(sent, 14, "seed {seed}");
    }
}

#[test]
fn tasks_that_cannot_execute_it_are_named() {
    for seed in 0..SEEDS {
        let other = HostSpec { program: Program::OtherArch, ..fine() };
        let report = run(world(seed, &[(3, other), (6, silent())])).expect_good();
        assert_eq!(report.missing(), [3, 6], "seed {seed}: {:?}", report.notices);
    }
}

#[test]
fn tasks_that_never_begin_are_named_when_the_time_is_over() {
    for seed in 0..SEEDS {
        let report = run(world(seed, &[(1, silent()), (4, silent()), (8, silent())])).expect_good();
        assert_eq!(report.missing(), [1, 4, 8], "seed {seed}: {:?}", report.notices);
        assert!(report.elapsed_ns < 20_000 * MS, "seed {seed}: {}", report.elapsed_ns);
    }
}

#[test]
fn silent_tasks_behind_an_agent_that_is_out_are_named_too() {
    for seed in 0..SEEDS {
        let other = HostSpec { program: Program::OtherArch, ..fine() };
        for (out, behind) in [(1, [3, 9]), (3, [7, 8])] {
            let report = run(world(seed, &[(out, other), (behind[0], silent()), (behind[1], silent())])).expect_good();
            assert_eq!(report.missing(), [out, behind[0], behind[1]], "seed {seed}: {:?}", report.notices);
        }
    }
}

/// The batch system kills the other tasks, which have no problem.
#[test]
fn a_node_that_the_step_does_not_reach_is_named_alone() {
    for seed in 0..SEEDS {
        let out = HostSpec { reach: Reach::Nobody, ..fine() };
        let report = run(world(seed, &[(2, out), (9, out)])).expect_good();
        assert_eq!(report.missing(), [2, 9], "seed {seed}: {:?}", report.notices);
        assert!(report.elapsed_ns < 5_000 * MS, "seed {seed}: no timeout was needed");
    }
}

#[test]
fn a_step_that_cannot_be_called_misses_all() {
    for seed in 0..SEEDS {
        let faults = vec![Fault::NoStart { agent: 5, how: NoStart::NoShell }];
        let report = run(WorldSpec { faults, ..world(seed, &[]) }).expect_good();
        assert_eq!(report.missing(), (1..15).collect::<Vec<_>>(), "seed {seed}: {:?}", report.notices);
    }
}

#[test]
fn a_cancelled_step_ends_the_job() {
    for seed in 0..SEEDS {
        let report = run(endless(seed, Fault::CancelStep { at_ns: 2_000 * MS })).expect_good();
        let cause = report.failure().map(|failure| &failure.cause);
        assert!(matches!(cause, Some(Cause::ToldToEnd { signal: 15 })), "seed {seed}: {cause:?}");
    }
}

/// Agents that have linked no longer need the step.
#[test]
fn the_end_of_the_call_alone_is_no_end_of_the_job() {
    for seed in 0..SEEDS {
        let faults = vec![Fault::KillStep { at_ns: 2_000 * MS }];
        let apps = vec![(30, std::rc::Rc::new(Script::plain(&[Step::Compute { ns: 4_000 * MS }])))];
        let report = run(WorldSpec { faults, ..world(seed, &[]).job(|job| job.apps = apps) }).expect_good();
        assert_eq!((report.code, report.checks.strikes), (Some(0), 1), "seed {seed}: {:?}", report.notices);
    }
}
