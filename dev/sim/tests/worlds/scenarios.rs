//! Simulated scenarios with names, each about one subject, with several seeds.

use std::rc::Rc;
use wireup_sim::fault_injection::{Fault, NoStart};
use wireup_sim::spec::{Delay, Timing};
use wireup_sim::workload::{Dialect, Disposition, Script, Step, StoreStep};
use wireup_sim::{RunReport, WorldSpec, run};
use wireup_wire::ids::Rank;
use wireup_wire::job::{Block, Framework, StdinTarget};
use wireup_wire::peer::{Cause, Failure};

const MS: u64 = 1_000_000;
const SEEDS: u64 = 10;

fn exchange(seed: u64) -> WorldSpec {
    WorldSpec { fanout: 2, ..WorldSpec::even(seed, 7, 3, Script::exchange(Dialect::Pmi1, 40, 3)) }
}

/// A world in which ranks wait in a fence for rank 0, which never enters it.
fn stuck(seed: u64, of_rank_0: Step) -> WorldSpec {
    let steps = [Step::Init, Step::OnlyRank { rank: 0 }, of_rank_0, Step::Fence, Step::Finalize];
    WorldSpec { fanout: 2, ..WorldSpec::even(seed, 7, 3, Script::new(Dialect::Pmi2, &steps)) }
}

fn failure(report: &RunReport) -> &Failure {
    report.failure().unwrap_or_else(|| panic!("seed {}: no failure was reported: {:?}", report.seed, report.notices))
}

/// Runs a world that must fail with exit code `code` and with a cause that fits `is_cause`.
fn fails(spec: WorldSpec, code: u8, is_cause: impl Fn(&Cause) -> bool) -> RunReport {
    let report = run(spec).expect_good();
    assert_eq!(report.code, Some(code), "seed {}: {:?}", report.seed, report.notices);
    assert!(is_cause(&failure(&report).cause), "seed {}: {:?}", report.seed, report.notices);
    report
}

#[test]
fn a_clean_exchange_ends_well() {
    for seed in 0..SEEDS {
        for dialect in [Dialect::Pmi1, Dialect::Pmi2] {
            let script = Script::exchange(dialect, 40, 3);
            let report = run(WorldSpec { fanout: 2, ..WorldSpec::even(seed, 5, 3, script) }).expect_good();
            assert_eq!((report.code, report.checks.started, report.jobs.fences), (Some(0), 15, 1), "seed {seed}");
        }
    }
}

#[test]
fn nodes_without_ranks_hold_no_fence_up() {
    for seed in 0..SEEDS {
        let script = Rc::new(Script::exchange(Dialect::Pmi1, 40, 3));
        let blocks = vec![Block { first_node: 0, nodes: 7, ppn: 3 }];
        let spec = exchange(seed).job(|job| (job.blocks, job.apps) = (blocks, vec![(8, script)]));
        let report = run(spec).expect_good();
        assert_eq!((report.code, report.jobs.fences), (Some(0), 1), "seed {seed}");
    }
}

#[test]
fn a_rank_killed_in_the_fence_ends_the_job() {
    for seed in 0..SEEDS {
        let kill = Fault::KillRank { rank: 20, at_ns: 200 * MS };
        let spec = WorldSpec { faults: vec![kill], ..stuck(seed, Step::Hang) };
        let report = fails(spec, 137, |cause| matches!(cause, Cause::Signalled { signal: 9, .. }));
        assert_eq!(failure(&report).rank, Some(Rank(20)));
    }
}

#[test]
fn a_rank_that_leaves_others_in_the_fence_is_named() {
    for seed in 0..SEEDS {
        let report = fails(stuck(seed, Step::Exit { code: 0 }), 1, |cause| matches!(cause, Cause::LeftFence { .. }));
        assert_eq!(failure(&report).rank, Some(Rank(0)), "seed {seed}");
        let report = fails(stuck(seed, Step::CloseClient), 1, |cause| {
            matches!(cause, Cause::LeftFence { .. } | Cause::Exited(1))
        });
        assert_eq!(failure(&report).rank, Some(Rank(0)), "seed {seed}");
    }
}

#[test]
fn a_lost_agent_ends_the_job_and_its_subtree_leaves() {
    for seed in 0..SEEDS {
        for agent in 1..7 {
            let lost = |cause: &Cause| matches!(cause, Cause::AgentLost { agent: lost, .. } if lost.0 == agent);
            for fault in [Fault::KillAgent { agent, at_ns: 100 * MS }, Fault::CutLink { agent, at_ns: 100 * MS }] {
                fails(WorldSpec { faults: vec![fault], ..stuck(seed, Step::Hang) }, 125, lost);
            }
            let fault = Fault::KillKeeper { agent, at_ns: 100 * MS };
            fails(WorldSpec { faults: vec![fault], ..stuck(seed, Step::Hang) }, 125, |cause| {
                matches!(cause, Cause::KeeperLost { .. })
            });
        }
    }
}

#[test]
fn an_agent_that_does_not_start_is_named() {
    for seed in 0..SEEDS {
        for how in [NoStart::NoShell, NoStart::ShellFails { code: 255 }, NoStart::Silence] {
            for agent in [1, 6] {
                let spec = WorldSpec { faults: vec![Fault::NoStart { agent, how }], ..exchange(seed) };
                assert!(fails(spec, 125, |_| true).missing().contains(&agent), "seed {seed}");
            }
        }
    }
}

#[test]
fn nothing_outlives_a_killed_launcher() {
    for seed in 0..SEEDS {
        for at_ns in [MS, 5 * MS, 20 * MS, 200 * MS] {
            let kill = Fault::KillAgent { agent: 0, at_ns };
            let report = run(WorldSpec { faults: vec![kill], ..stuck(seed, Step::Hang) }).expect_good();
            assert_eq!(report.code, None);
        }
    }
}

#[test]
fn a_program_that_cannot_be_started_is_named() {
    for seed in 0..SEEDS {
        for (errno, code) in [(2, 127), (13, 126)] {
            let spec = WorldSpec { faults: vec![Fault::NoExec { rank: 11, errno }], ..exchange(seed) };
            let report = fails(spec, code, |cause| matches!(cause, Cause::Spawn(_)));
            assert_eq!(failure(&report).rank, Some(Rank(11)));
        }
    }
}

#[test]
fn one_ctrl_c_asks_and_two_kill() {
    let press = |at_ns| Fault::Signal { signal: 2, at_ns };
    for seed in 0..SEEDS {
        let spec = WorldSpec { faults: vec![press(200 * MS)], ..stuck(seed, Step::Hang) };
        fails(spec, 130, |cause| {
            matches!(cause, Cause::Signalled { signal: 2, .. } | Cause::Interrupted { signal: 2 })
        });
        let stubborn = Script::plain(&[Step::Hang]).with_disposition(Disposition::Ignore);
        let faults = vec![press(200 * MS), press(300 * MS)];
        let spec = WorldSpec { faults, ..WorldSpec::even(seed, 7, 3, stubborn) };
        let report = fails(spec, 130, |cause| *cause == Cause::Interrupted { signal: 2 });
        assert!(report.elapsed_ns < 400 * MS, "seed {seed}: no grace period after two: {}", report.elapsed_ns);
    }
}

#[test]
fn a_rank_that_ignores_the_end_is_killed_after_the_grace() {
    for seed in 0..SEEDS {
        let steps = [Step::OnlyRank { rank: 4 }, Step::Exit { code: 7 }, Step::Hang];
        let stubborn = Script::plain(&steps).with_disposition(Disposition::Ignore);
        let spec = WorldSpec::even(seed, 7, 3, stubborn);
        let grace_ns = spec.jobs[0].options.kill_grace_ns;
        let report = fails(spec, 7, |cause| *cause == Cause::Exited(7));
        assert!((grace_ns..grace_ns + 200 * MS).contains(&report.elapsed_ns), "seed {seed}: {}", report.elapsed_ns);
    }
}

#[test]
fn garbage_from_a_rank_ends_the_job_cleanly() {
    for seed in 0..SEEDS {
        for step in [Step::SendGarbage, Step::HalfRequest] {
            let spec = stuck(seed, step).job(|job| job.timeout_ns = Some(20_000 * MS));
            let report = run(spec).expect_good();
            assert_eq!(failure(&report).rank, Some(Rank(0)), "seed {seed}: {:?}", report.notices);
        }
    }
}

#[test]
fn a_stopped_terminal_delays_no_fence() {
    for seed in 0..SEEDS {
        // One program writes far more than all windows and pipes hold, while another one exits.
        let writer =
            Script::plain(&[Step::Write { stream: 1, lines: 20_000, line_bytes: 100 }, Step::Exit { code: 0 }]);
        let apps = vec![(3, Rc::new(writer)), (18, Rc::new(Script::plain(&[Step::Exit { code: 0 }])))];
        let stop = Fault::StopTerminal { at_ns: 0, for_ns: 2_000 * MS };
        let report = run(WorldSpec { faults: vec![stop], ..exchange(seed).job(|job| job.apps = apps) }).expect_good();
        assert_eq!((report.code, report.jobs.output_bytes), (Some(0), 3 * 20_000 * 100), "seed {seed}");
        assert!(report.elapsed_ns > 2_000 * MS);

        let steps = [
            Step::Init,
            Step::OnlyRank { rank: 20 },
            Step::Write { stream: 1, lines: 500, line_bytes: 100 },
            Step::Put { pair: 0, value_bytes: 50 },
            Step::Fence,
            Step::Finalize,
            Step::OnlyRank { rank: 3 },
            Step::Exit { code: 9 },
            Step::Write { stream: 1, lines: 20_000, line_bytes: 100 },
        ];
        let apps = vec![(21, Rc::new(Script::new(Dialect::Pmi1, &steps)))];
        let report = run(WorldSpec { faults: vec![stop], ..exchange(seed).job(|job| job.apps = apps) }).expect_good();
        assert_eq!((report.code, report.jobs.fences), (Some(9), 1), "seed {seed}");
    }
}

#[test]
fn standard_input_reaches_who_reads_it() {
    for seed in 0..SEEDS {
        for (stdin, stdin_bytes) in
            [(StdinTarget::One(Rank(20)), 3 << 20), (StdinTarget::All, 1 << 20), (StdinTarget::One(Rank(0)), 0)]
        {
            let only = match stdin {
                StdinTarget::One(rank) => vec![Step::OnlyRank { rank: rank.0 }, Step::ReadStdin],
                _ => vec![Step::ReadStdin],
            };
            let apps = vec![(21, Rc::new(Script::plain(&only)))];
            let spec = exchange(seed).options(|options| options.stdio.stdin = stdin);
            let report = run(spec.job(|job| (job.apps, job.stdin_bytes) = (apps, stdin_bytes))).expect_good();
            assert_eq!(report.code, Some(0), "seed {seed}");
        }
        // The rank that gets the standard input does not read it: nothing may wait for that.
        let spec = exchange(seed).options(|options| options.stdio.stdin = StdinTarget::One(Rank(5)));
        let report = run(spec.job(|job| job.stdin_bytes = 8 << 20));
        assert_eq!(report.expect_good().code, Some(0), "seed {seed}");
    }
}

/// An agent receives the pipes of a rank after the rank has written and exited.
#[test]
fn worlds_whose_pipes_take_no_time_end() {
    for steps in [vec![], vec![Step::Write { stream: 1, lines: 2_000, line_bytes: 100 }], vec![Step::Hang]] {
        let ends_by_timeout = steps.contains(&Step::Hang).then_some(MS);
        let none = Delay::between(0, 0);
        let timing = Timing { stdio: none, terminal: none, think: none, ..Timing::default() };
        let spec = WorldSpec { timing, event_max: 100_000, ..WorldSpec::even(1, 7, 3, Script::plain(&steps)) };
        let report = run(spec.job(|job| job.timeout_ns = ends_by_timeout)).expect_good();
        assert_eq!(report.code == Some(0), ends_by_timeout.is_none(), "{steps:?}: {:?}", report.notices);
    }
}

const VALUE_BYTES: u16 = 60;
const SET: Step = Step::Store(StoreStep::Set { value_bytes: VALUE_BYTES });
const WAIT: Step = Step::Store(StoreStep::Wait);
const GET: Step = Step::Store(StoreStep::Get { value_bytes: VALUE_BYTES });
const BARRIER: Step = Step::Store(StoreStep::Barrier);

/// A world of a job with PyTorch's store. Most seeds have 7 nodes, which all own keys; some have 90 nodes, of which 21
/// own keys.
fn store_world(seed: u64, steps: &[Step]) -> WorldSpec {
    let (nodes, fanout) = if seed % 10 == 9 { (90, 4) } else { (7, 2) };
    let world = WorldSpec { fanout, ..WorldSpec::even(seed, nodes, 2, Script::plain(steps)) };
    world.options(|options| options.process.framework = Some(Framework::Torch))
}

#[test]
fn ranks_meet_in_the_store() {
    for seed in 0..50 {
        let steps = [SET, WAIT, GET, BARRIER, SET, GET, Step::Exit { code: 0 }];
        assert_eq!(run(store_world(seed, &steps)).expect_good().code, Some(0), "seed {seed}");
    }
}

/// All ranks but one set their key and exit. The remaining rank waits for keys that ranks of the last node and of its
/// own node have set.
#[test]
fn what_ranks_wrote_before_they_exited_is_there() {
    for seed in 0..50 {
        let only = Step::OnlyRank { rank: 0 };
        let steps = [SET, only, WAIT, only, GET, Step::Exit { code: 0 }];
        assert_eq!(run(store_world(seed, &steps)).expect_good().code, Some(0), "seed {seed}");
    }
}
