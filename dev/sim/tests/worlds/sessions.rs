//! Standing sessions by seed: jobs from many launchers, agents that are lost and return. `WIREUP_SIM_SEEDS=1000..2000`
//! (or a count) selects other seeds. `WIREUP_SIM_LIST=fierce:1000..2000` lists the seeds that break a rule.
//! `WIREUP_SIM_SHRINK=fierce:1234` reduces a session as far as it still breaks the rule, and prints it.
//! `WIREUP_SIM_TRACE=fierce:1234` prints what happens in one.

use crate::seeds;
use std::ops::Range;
use wireup_sim::fault_injection::Fault;
use wireup_sim::random::sessions::{calm, empty, fierce, growing, stormy, wild};
use wireup_sim::remote::{Remote, ssh};
use wireup_sim::shrink::shrink;
use wireup_sim::workload::{Dialect, Script, Step, Whose};
use wireup_sim::{JobPlan, WorldSpec, run};
use wireup_wire::job::{EarlyWireup, StdinTarget};
use wireup_wire::peer::AgentTransport;

/// Runs the sessions of these seeds of one kind; none may break a rule.
fn all_good(seeds: Range<u64>, kind: fn(u64) -> WorldSpec) {
    let (mut launched, mut succeeded, mut torn, mut lost) = (0, 0, 0, 0);
    for seed in seeds {
        // The test runner shows this only if the test fails with this seed.
        println!("seed {seed}");
        let report = run(kind(seed)).expect_good();
        launched += report.jobs.launched;
        succeeded += report.jobs.succeeded;
        torn += report.jobs.torn;
        lost += report.nodes.1;
    }
    println!("{succeeded} of {launched} jobs succeeded, {torn} lost a node; {lost} nodes were lost at the end");
}

#[test]
fn every_rule_holds_in_calm_sessions_and_nobody_is_lost() {
    for seed in seeds::seeds(200) {
        println!("seed {seed}");
        let report = run(calm(seed)).expect_good();
        assert_eq!((report.jobs.torn, report.nodes.1), (0, 0), "seed {seed}");
    }
}

#[test]
fn every_rule_holds_in_stormy_sessions() {
    all_good(seeds::seeds(200), stormy);
}

#[test]
fn every_rule_holds_in_wild_sessions() {
    all_good(seeds::seeds(500), wild);
}

#[test]
fn every_rule_holds_in_fierce_sessions() {
    all_good(seeds::seeds(200), fierce);
}

#[test]
fn every_rule_holds_in_sessions_to_which_jobs_add_hosts() {
    all_good(seeds::seeds(200), growing);
}

/// Sessions that have broken a rule before the defect was fixed.
#[test]
fn sessions_that_found_a_defect_break_no_rule() {
    for seed in [1195, 6166, 1_000_148, 1_075_421] {
        all_good(seed..seed + 1, wild);
    }
    for seed in [686, 2605, 4797] {
        all_good(seed..seed + 1, fierce);
    }
    all_good(1693..1694, growing);
}

/// Lists all sessions that break a rule, not only the first one. Does nothing without `WIREUP_SIM_LIST`.
#[test]
fn sessions_that_break_a_rule_are_listed() {
    let Ok(text) = std::env::var("WIREUP_SIM_LIST") else { return };
    let (kind, range) = text.split_once(':').expect("a kind and seeds, as in wild:1000..2000");
    // Starts a new line: the test harness may have printed this test's name without ending the line.
    println!();
    for seed in seeds::parse(range) {
        match std::panic::catch_unwind(|| run(of_kind(kind, seed))) {
            Err(_) => println!("seed {seed}: panics, or has no end"),
            Ok(report) if !report.checks.problems.is_empty() => {
                println!("seed {seed}: {}", report.checks.problems.join("; "))
            }
            Ok(_) => {}
        }
    }
    println!("listed {text}");
}

/// The rules that a session breaks: the first words of each problem, without numbers.
fn broken_rules(spec: &WorldSpec) -> Vec<String> {
    let Ok(report) = std::panic::catch_unwind(|| run(spec.clone())) else { return vec!["panics".into()] };
    let is_plain = |word: &&str| word.chars().all(char::is_alphabetic);
    let rule = |problem: &String| problem.split_whitespace().filter(is_plain).take(4).collect::<Vec<_>>().join(" ");
    report.checks.problems.iter().map(rule).collect()
}

/// The session that an environment variable names, as `fierce:1234`.
fn named(variable: &str) -> Option<WorldSpec> {
    let text = std::env::var(variable).ok()?;
    let (kind, seed) = text.split_once(':').expect("a kind and a seed, as in fierce:1234");
    Some(of_kind(kind, seed.parse().expect("a number after the colon")))
}

fn of_kind(kind: &str, seed: u64) -> WorldSpec {
    match kind {
        "calm" => calm(seed),
        "stormy" => stormy(seed),
        "wild" => wild(seed),
        "fierce" => fierce(seed),
        "growing" => growing(seed),
        other => panic!("unknown kind {other}: use calm, stormy, wild, fierce or growing"),
    }
}

/// Does nothing unless requested.
#[test]
fn a_session_that_breaks_a_rule_is_made_small() {
    if let Some(spec) = named("WIREUP_SIM_TRACE") {
        println!("{:?}", run(WorldSpec { trace: true, ..spec }).checks.problems);
    }
    let Some(spec) = named("WIREUP_SIM_SHRINK") else { return };
    let Some(rule) = broken_rules(&spec).first().cloned() else { return println!("it breaks no rule") };
    let small = shrink(spec, |spec| broken_rules(spec).contains(&rule));
    println!("{small:#?}");
    println!("{:?}", run(WorldSpec { trace: true, ..small }).checks.problems);
}

/// The jobs of random sessions do all that the jobs of single runs do, also while agents are lost.
#[test]
fn jobs_in_sessions_use_all_interfaces() {
    for kind in [calm, stormy, wild, fierce] {
        let (mut fences, mut barriers, mut gets, mut pmix, mut wanted) = (0, 0, 0, 0, 0);
        let (mut stdin_bytes, mut shared, mut direct_links, mut output_bytes) = (0, 0, 0, 0);
        for seed in 0..20 {
            let report = run(kind(seed)).expect_good();
            fences += report.jobs.fences;
            barriers += report.jobs.barriers;
            gets += report.checks.gets;
            pmix += report.jobs.pmix_complete;
            wanted += report.jobs.modex_wanted;
            stdin_bytes += report.checks.stdin_bytes;
            shared += report.checks.shared;
            direct_links += report.direct_links;
            output_bytes += report.jobs.output_bytes;
        }
        println!("{fences} fences, {barriers} barriers, {gets} gets; PMIx: {pmix} calls, {wanted} requests");
        println!("{stdin_bytes} bytes read, {shared} pieces of memory, {direct_links} links, {output_bytes} written");
        assert!(fences > 100 && barriers > 100 && gets > 1000 && pmix > 100 && wanted > 100);
        assert!(stdin_bytes > 1 << 20 && shared > 100 && direct_links > 100 && output_bytes > 1 << 20);
    }
}

#[test]
fn same_seed_same_session() {
    for seed in seeds::seeds(200).take(10) {
        assert_eq!(run(stormy(seed)), run(stormy(seed)), "seed {seed}");
        let other = WorldSpec { seed: seed + 1_000_000, ..stormy(seed) };
        assert_ne!(run(stormy(seed)).digest, run(other).digest, "seed {seed}");
    }
}

/// Agents hold no more memory after a thousand jobs than after ninety.
#[test]
fn agents_do_not_grow_with_jobs() {
    let after = |jobs: u64| {
        let job = |index: u64| job(10_000_000 * index, &[(index % 5) as u32, (index % 4) as u32 + 5, 9], 1, MS);
        let spec = WorldSpec { jobs: (0..jobs).map(job).collect(), ..empty(1, 10, 3) };
        let report = run(spec).expect_good();
        assert_eq!(u64::from(report.jobs.succeeded), jobs);
        report.checks.holds
    };
    let (few, many) = (after(90), after(1080));
    for (few, many) in few.iter().zip(&many) {
        assert_eq!((few.jobs, few.early_frames, few.session), (many.jobs, many.early_frames, many.session));
    }
}

/// Fan-out 2: agent 1, the parent of 3 and 4, is lost and returns.
#[test]
fn the_tree_closes_around_a_lost_agent() {
    let on = |at_ns, agents: &[u32]| job(at_ns, agents, 2, MS);
    let long = job(SECOND / 2, &[3, 4, 6], 2, 3 * SECOND);
    let hit = job(SECOND / 2, &[0, 1, 2], 2, 3 * SECOND);
    let spec = WorldSpec {
        jobs: vec![long, hit, on(2 * SECOND, &[3, 6]), on(2 * SECOND, &[0, 1, 3]), on(20 * SECOND, &[1, 3, 4])],
        faults: vec![Fault::KillAgent { agent: 1, at_ns: SECOND }, Fault::Revive { at_ns: 10 * SECOND }],
        ..empty(1, 7, 2)
    };
    let report = run(spec).expect_good();
    assert_eq!((report.jobs.launched, report.jobs.succeeded, report.jobs.torn, report.nodes), (5, 4, 1, (7, 0)));
}

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// A job whose ranks exchange values, work, write two lines and leave.
fn job(at_ns: u64, agents: &[u32], ppn: u32, work_ns: u64) -> JobPlan {
    let (pair, value_bytes) = (0, 40);
    let steps = [
        Step::Init,
        Step::Put { pair, value_bytes },
        Step::Fence,
        Step::Get { pair, value_bytes, whose: Whose::Neighbours },
        Step::Compute { ns: work_ns },
        Step::Write { stream: 1, lines: 2, line_bytes: 30 },
        Step::Finalize,
    ];
    JobPlan { at_ns, ..JobPlan::even(agents.iter().copied(), ppn, Script::new(Dialect::Pmi1, &steps)) }
}

/// A chain of agents, with jobs of two ranks on each of some of them, and faults.
fn chain(agents: u32, jobs: &[(u64, &[u32])], faults: &[Fault]) -> WorldSpec {
    let jobs = jobs.iter().map(|(at_ns, agents)| job(*at_ns, agents, 2, MS)).collect();
    WorldSpec { jobs, faults: faults.to_vec(), ..empty(1, agents, 1) }
}

/// A chain of agents, with jobs of two ranks on each of some of them, and faults. The first job works for `work_ns`.
fn chain_with_long_job(agents: u32, work_ns: u64, jobs: &[(u64, &[u32])], faults: &[Fault]) -> WorldSpec {
    let mut spec = chain(agents, jobs, faults);
    spec.jobs[0] = job(jobs[0].0, jobs[0].1, 2, work_ns);
    spec
}

/// Agents 2 and then 3 are lost and return; agent 4 stays a child of the root, which adopted it in the meantime.
#[test]
fn who_was_adopted_is_found_there() {
    let on: &[u32] = &[2, 3, 4];
    let faults = [
        Fault::KillAgent { agent: 2, at_ns: SECOND },
        Fault::KillAgent { agent: 3, at_ns: SECOND * 3 / 2 },
        Fault::Revive { at_ns: 2 * SECOND },
    ];
    for transport in [AgentTransport::Auto, AgentTransport::Tree] {
        let spec = WorldSpec { transport, ..chain(5, &[(3 * SECOND, on), (4 * SECOND, &on[1..])], &faults) };
        let report = run(spec).expect_good();
        assert_eq!((report.jobs.succeeded, report.nodes), (2, (5, 0)));
    }
}

/// Agents 2 and then 4 are lost and return. Their children 3 and 5 have been adopted by the root. The root also starts
/// agent 4 again, instead of agents 2 and 3.
#[test]
fn one_agent_starts_another_again() {
    let faults = [
        Fault::KillAgent { agent: 2, at_ns: SECOND },
        Fault::Revive { at_ns: 2 * SECOND },
        Fault::KillAgent { agent: 4, at_ns: 3 * SECOND },
        Fault::Revive { at_ns: 4 * SECOND },
    ];
    let report = run(chain(6, &[(5 * SECOND, &[2, 3, 4, 5])], &faults)).expect_good();
    assert_eq!((report.jobs.succeeded, report.nodes), (1, (6, 0)));
}

/// Agent 2 is lost and started again while nothing is received from agent 1 and its subtree; jobs on 2, 3 and 5 run
/// before and after that.
#[test]
fn frames_of_another_life_are_void() {
    let faults = [
        Fault::SilenceLink { agent: 1, at_ns: SECOND },
        Fault::KillAgent { agent: 2, at_ns: SECOND * 3 / 2 },
        Fault::Revive { at_ns: 2 * SECOND },
        Fault::Revive { at_ns: 10 * SECOND },
    ];
    let on: &[u32] = &[2, 3, 5];
    for transport in [AgentTransport::Auto, AgentTransport::Tree] {
        let jobs: [(u64, &[u32]); 2] = [(SECOND / 2, on), (20 * SECOND, on)];
        let spec = WorldSpec { transport, fanout: 2, ..chain(7, &jobs, &faults) };
        let report = run(spec).expect_good();
        assert_eq!((report.jobs.succeeded, report.nodes), (2, (7, 0)));
    }
}

/// A chain of agents: 1, 2 and 3 lose power at the same time and stay lost. A job on 4 and 5 continues, and other jobs
/// begin there.
#[test]
fn a_healthy_agent_outlives_all_three_above_it() {
    for transport in [AgentTransport::Auto, AgentTransport::Tree] {
        let faults = [Fault::PowerLoss { agent: 3, above: 2, off_ns: u64::MAX, at_ns: SECOND }];
        let spec = chain_with_long_job(
            6,
            30 * SECOND,
            &[(SECOND / 2, &[4, 5]), (2 * SECOND, &[4, 5]), (40 * SECOND, &[0, 4, 5])],
            &faults,
        );
        let report = run(WorldSpec { transport, ..spec }).expect_good();
        assert_eq!((report.jobs.launched, report.jobs.succeeded, report.nodes), (3, 3, (3, 3)));
    }
}

/// Nodes are revived while no agent or only some agents know of a loss; at the end all agents are up.
#[test]
fn a_revival_may_come_during_a_failure() {
    let off_ns = SECOND / 10;
    let power_loss = Fault::PowerLoss { agent: 3, above: 1, off_ns, at_ns: SECOND };
    for fault in [Fault::KillAgent { agent: 1, at_ns: SECOND }, power_loss] {
        for after_ms in [0, 1, 10, 100, 1000, 3000, 3500, 4000, 8000, 12_000] {
            let revive = Fault::Revive { at_ns: SECOND + after_ms * MS };
            let jobs: [(u64, &[u32]); 2] = [(SECOND / 2, &[5, 6]), (40 * SECOND, &[1, 2, 3, 4, 5, 6])];
            let faults = [fault, revive, Fault::Revive { at_ns: 30 * SECOND }];
            let spec = chain_with_long_job(7, 20 * SECOND, &jobs, &faults);
            let report = run(WorldSpec { fanout: 2, ..spec }).expect_good();
            assert_eq!((report.jobs.succeeded, report.nodes), (2, (7, 0)), "{fault:?}, revived after {after_ms} ms");
        }
    }
}

/// For some seconds nothing is received from agent 3, and it cannot reach the root. It is started again, and the old
/// process exits when it learns of the new one. Agent 3's subtree stays in the session, with its job.
#[test]
fn of_two_living_copies_the_older_one_leaves() {
    let faults = [
        Fault::SilenceLink { agent: 3, at_ns: SECOND },
        Fault::Wall { from: 3, to: 0, is_both: false, for_ns: 6 * SECOND, at_ns: SECOND },
        Fault::Revive { at_ns: SECOND * 15 / 2 },
    ];
    let jobs: [(u64, &[u32]); 2] = [(SECOND / 2, &[7, 8]), (40 * SECOND, &[1, 3, 7, 8])];
    let spec = chain_with_long_job(15, 20 * SECOND, &jobs, &faults);
    let report = run(WorldSpec { fanout: 2, ..spec }).expect_good();
    assert_eq!((report.checks.copies_most, report.jobs.succeeded, report.nodes), (2, 2, (15, 0)));
}

/// Nothing is received from agent 3, and it cannot reach the root for longer than the leases of its children last. The
/// children reach the root before their leases end.
#[test]
fn an_agent_that_is_cut_off_does_not_take_others_with_it() {
    let faults = [
        Fault::SilenceLink { agent: 3, at_ns: SECOND },
        Fault::Wall { from: 3, to: 0, is_both: false, for_ns: 60 * SECOND, at_ns: SECOND },
    ];
    let spec = chain_with_long_job(15, 20 * SECOND, &[(SECOND / 2, &[7, 8])], &faults);
    let report = run(WorldSpec { fanout: 2, ..spec }).expect_good();
    assert_eq!((report.jobs.succeeded, report.nodes), (1, (14, 1)));
}

/// The shell that starts agent 2 breaks at that moment, and another shell starts the agent once more: one of the two
/// processes continues, and no agent is lost.
#[test]
fn of_two_processes_at_the_start_one_stays() {
    for transport in [AgentTransport::Auto, AgentTransport::Tree] {
        for seed in 0..20 {
            let faults = [Fault::BreakShells { agent: 2, times: 1 }];
            let spec = chain_with_long_job(4, 20 * SECOND, &[(SECOND / 2, &[1, 2, 3])], &faults);
            let remote = Some(Remote::prompt(4, ssh()));
            let spec = WorldSpec { seed, transport, remote, ..spec };
            let report = run(spec).expect_good();
            assert_eq!((report.checks.copies_most, report.jobs.succeeded, report.nodes), (2, 1, (4, 0)), "seed {seed}");
        }
    }
}

/// Agent 5 learns that it was declared lost and exits. Agent 16, below it, resends frames over the link that it still
/// has to agent 5, and they are lost.
#[test]
fn what_goes_again_waits_for_the_new_parent() {
    let mut spec = chain(17, &[], &[Fault::SilenceLink { agent: 5, at_ns: 1_869_716_325 }]);
    let agents = [16, 13, 12, 9, 4, 1];
    spec.jobs = vec![job(1_815_677_093, &agents, 3, 705_117_011)];
    let spec = WorldSpec { seed: 2042, fanout: 3, transport: AgentTransport::Tree, ..spec };
    assert_eq!(run(spec).expect_good().jobs.succeeded, 1);
}

/// The end of a job is sent to agent 9 through agent 4, which has no power, as nobody knows yet. Then the root adopts
/// agent 9.
#[test]
fn who_is_taken_in_ends_jobs_that_are_over() {
    let faults = [
        Fault::PowerLoss { agent: 12, above: 2, off_ns: u64::MAX, at_ns: 200_000_000 },
        Fault::CutLink { agent: 10, at_ns: 2_823_564_009 },
        Fault::PowerLoss { agent: 4, above: 0, off_ns: u64::MAX, at_ns: 3_681_840_821 },
    ];
    let agents = [0, 5, 6, 7, 8, 9, 10, 13, 18];
    let job = JobPlan { wait_ns: 403_722_788, ..job(2_264_739_141, &agents, 2, 1_716_535) };
    let spec = WorldSpec { seed: 1246, fanout: 2, jobs: vec![job], ..chain(19, &[], &faults) };
    run(spec).expect_good();
}

/// Agent 1 is stopped for good: its links stay up, but it is lost.
#[test]
fn a_stopped_agent_is_lost() {
    let faults = [Fault::StopAgent { agent: 1, for_ns: u64::MAX, at_ns: SECOND }];
    let jobs: [(u64, &[u32]); 2] = [(SECOND / 2, &[3, 4]), (20 * SECOND, &[0, 3, 4])];
    let spec = chain_with_long_job(7, 15 * SECOND, &jobs, &faults);
    let report = run(WorldSpec { fanout: 2, ..spec }).expect_good();
    assert_eq!((report.jobs.succeeded, report.nodes), (2, (6, 1)));
}

/// Agent 14 dials agent 0 in vain, and its report of this is lost, since agent 13 between them has no power. When 14
/// has a new parent, both send again what may be lost; only one of them dials.
#[test]
fn two_agents_never_have_two_links() {
    let faults = vec![
        Fault::Wall { from: 14, to: 0, is_both: false, for_ns: 4_359_905_330, at_ns: 1_116_424_640 },
        Fault::PowerLoss { agent: 13, above: 0, off_ns: u64::MAX, at_ns: 4_155_641_512 },
    ];
    let plan = JobPlan::even([14, 11, 9, 3, 0], 3, Script::own(&[]));
    let times = JobPlan { at_ns: 807_520_739, wait_ns: 497_681_975, launcher_dies_ns: Some(199_222_268), ..plan };
    let mut job = JobPlan { stdin_bytes: 519, ..times };
    (job.options.stdio.stdin, job.options.exchange.early_wireup) = (StdinTarget::All, EarlyWireup::Yes);
    let spec = WorldSpec { jobs: vec![job], faults, remote: Some(Remote::prompt(15, ssh())), ..empty(5288, 15, 1) };
    run(spec).expect_good();
}
