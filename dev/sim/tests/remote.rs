//! Agents on separate hosts: whatever problems the hosts have, all missing ones are reported together and in time, and
//! no others. `WIREUP_SIM_SEEDS` works as for the random worlds.

mod seeds;

use wireup_proto::launcher_io::Notice;
use wireup_sim::fault_injection::Fault;
use wireup_sim::random::{remote_with_faults, remote_world};
use wireup_sim::remote::{self, HostSpec, Pace, Program, Reach, Remote};
use wireup_sim::workload::{Dialect, Script, Step};
use wireup_sim::{WorldSpec, run};
use wireup_wire::peer::{Cause, Note};

const MS: u64 = 1_000_000;
const SEEDS: u64 = 10;

#[test]
fn every_rule_holds_with_hosts_in_trouble() {
    let (mut ran, mut struck) = (0, 0);
    for seed in seeds::seeds(300) {
        // Shown only if this seed panics.
        println!("seed {seed}");
        ran += u32::from(run(remote_world(seed)).expect_good().code == Some(0));
        struck += run(remote_with_faults(seed)).expect_good().checks.strikes;
    }
    println!("{ran} jobs ran undisturbed, {struck} faults struck");
}

/// Fifteen hosts in a binary tree: 0 - (1, 2), 1 - (3, 4), 3 - (7, 8).
fn world(seed: u64, ssh: bool, trouble: &[(u32, HostSpec)]) -> WorldSpec {
    let mut remote = Remote::prompt(15, if ssh { remote::ssh() } else { remote::rsh() });
    for (agent, host) in trouble {
        remote.hosts[*agent as usize] = *host;
    }
    let script = Script::exchange(Dialect::Pmi1, 40, 3);
    WorldSpec { fanout: 2, remote: Some(remote), ..WorldSpec::even(seed, 15, 2, script) }
}

fn fine() -> HostSpec {
    HostSpec::default()
}

fn out() -> HostSpec {
    HostSpec { reach: Reach::Nobody, ..fine() }
}

fn silent() -> HostSpec {
    HostSpec { pace: Pace::Never, ..fine() }
}

#[test]
fn a_host_without_the_program_is_sent_it_once() {
    for seed in 0..SEEDS {
        for ssh in [true, false] {
            let without = HostSpec { program: Program::Missing, ..fine() };
            let report = run(world(seed, ssh, &[(1, without), (8, without)])).expect_good();
            assert_eq!(report.code, Some(0), "seed {seed}");
            let sent = report.notes().filter(|note| matches!(note, Note::Sent { .. })).count();
            assert_eq!(sent, 2, "seed {seed}: {:?}", report.notices);
        }
    }
}

#[test]
fn all_that_are_out_are_named_together_and_at_once() {
    for seed in 0..SEEDS {
        let other = HostSpec { program: Program::OtherArch, ..fine() };
        // Hosts below each other, hosts beside each other, and one whose problem only its parent finds.
        let report =
            run(world(seed, true, &[(1, out()), (3, other), (7, out()), (2, out()), (11, other)])).expect_good();
        assert_eq!(report.missing(), [1, 2, 3, 7, 11], "seed {seed}");
        assert!(report.elapsed_ns < 2_000 * MS, "seed {seed}: no timeout was needed");
    }
}

#[test]
fn hosts_that_never_answer_are_named_when_the_time_is_over() {
    for seed in 0..SEEDS {
        for trouble in [
            vec![(1, silent()), (4, silent()), (7, out())],
            // The root waits only for an answer to its probe, not for a child.
            vec![(1, out()), (4, silent()), (7, out())],
            vec![(3, out()), (8, silent())],
        ] {
            let report = run(world(seed, true, &trouble)).expect_good();
            let all: Vec<u32> = trouble.iter().map(|(agent, _)| *agent).collect();
            assert_eq!(report.missing(), all, "seed {seed}");
        }
    }
}

#[test]
fn a_busy_host_is_tried_again() {
    for seed in 0..SEEDS {
        let report = run(world(seed, true, &[(1, HostSpec { busy: 3, ..fine() })])).expect_good();
        assert_eq!(report.code, Some(0));
        let retries = report.notes().filter(|note| matches!(note, Note::Retry { .. })).count();
        assert_eq!(retries, 3, "seed {seed}");
    }
}

/// If only the launcher's host may call remote shells, it starts all agents.
#[test]
fn a_site_that_forbids_onward_calls_runs_jobs_all_the_same() {
    let shut = HostSpec { onward: false, ..fine() };
    for seed in 0..SEEDS {
        let mut trouble: Vec<(u32, HostSpec)> = (1..15).map(|agent| (agent, shut)).collect();
        let report = run(world(seed, true, &trouble)).expect_good();
        assert_eq!(report.code, Some(0), "seed {seed}: {:?}", report.notices);
        let mut started: Vec<u32> = report
            .notes()
            .filter_map(|note| match note {
                Note::StartedFor { agent, starter, .. } if starter.0 == 0 => Some(agent.0),
                _ => None,
            })
            .collect();
        started.sort_unstable();
        assert_eq!(started, (3..15).collect::<Vec<_>>(), "seed {seed}");
        // Hosts below a missing host are also probed by the launcher's host, and are not reported as missing.
        trouble[2].1.reach = Reach::Nobody;
        trouble[13].1.reach = Reach::Nobody;
        let report = run(world(seed, true, &trouble)).expect_good();
        assert_eq!(report.missing(), [3, 14], "seed {seed}");
    }
}

/// The start time is counted from the launcher's start, however late an agent in between started.
#[test]
fn a_late_birth_does_not_prolong_the_start_time() {
    for seed in 0..SEEDS {
        let slow = HostSpec { pace: Pace::Slow { by_ns: 6_000 * MS }, ..fine() };
        let report = run(world(seed, true, &[(1, slow), (8, silent())])).expect_good();
        assert_eq!(report.missing(), [8], "seed {seed}");
        assert!(report.elapsed_ns < 13_000 * MS, "seed {seed}: {}", report.elapsed_ns);
    }
}

#[test]
fn a_silent_link_ends_the_job_in_its_time() {
    for seed in 0..SEEDS {
        for agent in [1, 7, 14] {
            let faults = vec![Fault::SilenceLink { agent, at_ns: 300 * MS }];
            let apps = vec![(30, std::rc::Rc::new(Script::plain(&[Step::Hang])))];
            let report = run(WorldSpec { faults, ..world(seed, true, &[]).job(|job| job.apps = apps) }).expect_good();
            let cause = report.failure().map(|failure| &failure.cause);
            let is_lost = matches!(cause, Some(Cause::AgentLost { agent: lost, .. }) if lost.0 == agent);
            assert!(is_lost, "seed {seed}: {:?}", report.notices);
            assert!(report.elapsed_ns < 300 * MS + 2_500 * MS + 4_000 * MS, "seed {seed}: {}", report.elapsed_ns);
        }
    }
}

#[test]
fn clocks_that_differ_by_days_are_brought_together() {
    for seed in 0..SEEDS {
        let ahead = |agent: u32| HostSpec { clock_ahead_ns: u64::from(agent % 4) * 86_400_000 * MS, ..fine() };
        let trouble: Vec<(u32, HostSpec)> = (0..15).map(|agent| (agent, ahead(agent))).collect();
        let report = run(world(seed, true, &trouble).options(|options| options.profile = true)).expect_good();
        let traces = report.notices.iter().filter(|notice| matches!(notice, Notice::Trace(_))).count();
        assert_eq!((report.code, traces), (Some(0), 15), "seed {seed}");
    }
}

/// Seeds that once failed, here or in the simulator itself, and why.
#[test]
fn kept_seeds() {
    for (seed, what) in [
        (97, "a trace without a clock measurement claimed an error of 0"),
        (648, "an agent sent a trace, and its parent did not"),
        (787, "hosts below a missing one were reported because an agent that may not call others had probed them"),
        (481, "a probe that timed out was repeated by an ancestor, and its host was forgotten"),
        (6761, "a child of an agent that started late was not suspected before the start time was over"),
        (8303, "two shells started one agent, since the first was taken for dead"),
        (11576, "a silent link delivered parts of frames"),
        (4097, "the output of the ranks of a refused agent was lost"),
        (737, "a shell ended early, its agent linked, and the agent was started again"),
    ] {
        println!("seed {seed}: {what}");
        run(remote_world(seed)).expect_good();
        run(remote_with_faults(seed)).expect_good();
    }
}
