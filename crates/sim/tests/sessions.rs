//! Standing sessions by seed: jobs from many launchers, agents that are lost and return. `WIREUP_SIM_SEEDS=1000..2000` (or a count)
//! asks for others.

mod seeds;

use wireup_sim::session::random::{calm, stormy, wild};
use wireup_sim::session::spec::{Fault, JobPlan};
use wireup_sim::session::{SessionSpec, run};
use wireup_wire::peer::AgentTransport;

#[test]
fn every_rule_holds_in_every_session() {
    let (mut launched, mut succeeded, mut torn, mut lost) = (0, 0, 0, 0);
    for seed in seeds::seeds(200) {
        // Shown only if this seed panics.
        println!("seed {seed}");
        let report = run(calm(seed)).expect_good();
        assert_eq!((report.torn, report.nodes.1), (0, 0), "seed {seed}");
        let report = run(stormy(seed)).expect_good();
        launched += report.launched;
        succeeded += report.succeeded;
        torn += report.torn;
        lost += report.nodes.1;
        if seed % 5 == 0 {
            run(wild(seed)).expect_good();
        }
    }
    println!("{succeeded} of {launched} jobs succeeded, {torn} lost a node; {lost} nodes were lost at the end");
}

/// What seeds have found.
#[test]
fn found_sessions_stay_good() {
    for (seed, what) in [
        (143, "late frames of a job that one agent had given up before the others were noted as a job's, for ever"),
        (235, "a job's start went to an agent while it changed its parent, and to nobody"),
        (1253, "an agent out of reach took one that was started again for the one before; so did that one its frames"),
        (1427, "the end of a job went to an agent while it changed its parent, and its early frames stayed"),
        (1825, "what had come too early was acknowledged before it was taken, and so never"),
        (1887, "two agents started a third one again, since one of them did not know what was below the other"),
        (1906, "frames for an agent that had been adopted went to where the tree was drawn, and nowhere"),
        (1971, "an agent that was linked below one child was waited for when another one was lost"),
    ] {
        println!("seed {seed}: {what}");
        run(stormy(seed)).expect_good();
    }
    for (seed, what) in [
        (119, "an agent was lost where nobody was heard, and those who were there did not come back to tell"),
        (209, "an agent was born that did not know that others had been started again"),
        (235, "an agent claimed others that had left it, and those who had them were told that they did not"),
        (346, "an agent was born that did not know that its child was lost, and nobody started the next one"),
        (444, "the claim of a child that had been told otherwise was believed"),
        (560, "an agent was born that took a job for coming that was over"),
        (579, "a job's start waited for an orphan, and went on its way when the job was over"),
        (675, "an agent was started again whose parent had been lost below one agent and drawn below another"),
    ] {
        println!("seed {seed}: {what}");
        run(wild(seed)).expect_good();
    }
}

#[test]
fn same_seed_same_session() {
    for seed in seeds::seeds(200).take(10) {
        assert_eq!(run(stormy(seed)), run(stormy(seed)), "seed {seed}");
        let other = SessionSpec { seed: seed + 1_000_000, ..stormy(seed) };
        assert_ne!(run(stormy(seed)).digest, run(other).digest, "seed {seed}");
    }
}

/// A thousand jobs leave no more behind than ten.
#[test]
fn agents_do_not_grow_with_jobs() {
    let after = |jobs: u64| {
        let job = |index: u64| JobPlan::plain(10_000_000 * index, [(index % 5) as u32, (index % 4) as u32 + 5, 9], 1);
        let spec = SessionSpec { agents: 10, fanout: 3, jobs: (0..jobs).map(job).collect(), ..SessionSpec::default() };
        let report = run(spec).expect_good();
        assert_eq!(u64::from(report.succeeded), jobs);
        report.holds
    };
    let (few, many) = (after(90), after(1080));
    for (few, many) in few.iter().zip(&many) {
        assert_eq!((few.jobs, few.early_frames, few.session), (many.jobs, many.early_frames, many.session));
    }
}

/// Fan-out 2: agent 1 is lost with 3 and 4 below it, and returns.
#[test]
fn the_tree_closes_around_a_lost_agent() {
    let on = |at_ns, agents: &[u32]| JobPlan::plain(at_ns, agents.iter().copied(), 2);
    let long = JobPlan { work_ns: 3 * SECOND, ..on(SECOND / 2, &[3, 4, 6]) };
    let hit = JobPlan { work_ns: 3 * SECOND, ..on(SECOND / 2, &[0, 1, 2]) };
    let spec = SessionSpec {
        jobs: vec![long, hit, on(2 * SECOND, &[3, 6]), on(2 * SECOND, &[0, 1, 3]), on(20 * SECOND, &[1, 3, 4])],
        faults: vec![(SECOND, Fault::KillAgent { agent: 1 }), (10 * SECOND, Fault::Revive)],
        ..SessionSpec::default()
    };
    let report = run(spec).expect_good();
    assert_eq!((report.launched, report.succeeded, report.torn, report.nodes), (5, 4, 1, (7, 0)));
}

const SECOND: u64 = 1_000_000_000;

/// A chain of so many agents, jobs of two ranks on each of some, and what happens.
fn chain(agents: u32, jobs: &[(u64, &[u32])], faults: &[(u64, Fault)]) -> SessionSpec {
    let jobs = jobs.iter().map(|(at_ns, agents)| JobPlan::plain(*at_ns, agents.iter().copied(), 2)).collect();
    SessionSpec { agents, fanout: 1, jobs, faults: faults.to_vec(), ..SessionSpec::default() }
}

/// Agents 2 and then 3 are lost and return; 4 stays below 1, which has adopted it.
#[test]
fn who_was_adopted_is_found_there() {
    let on: &[u32] = &[2, 3, 4];
    let faults = [
        (SECOND, Fault::KillAgent { agent: 2 }),
        (SECOND * 3 / 2, Fault::KillAgent { agent: 3 }),
        (2 * SECOND, Fault::Revive),
    ];
    for transport in [AgentTransport::Auto, AgentTransport::Tree] {
        let spec = SessionSpec { transport, ..chain(5, &[(3 * SECOND, on), (4 * SECOND, &on[1..])], &faults) };
        let report = run(spec).expect_good();
        assert_eq!((report.succeeded, report.nodes), (2, (5, 0)));
    }
}

/// Agent 2 was lost and returned, so 3 is below 1 now, and starts 4 again when that is lost; 2 does not.
#[test]
fn one_agent_starts_another_again() {
    let faults = [
        (SECOND, Fault::KillAgent { agent: 2 }),
        (2 * SECOND, Fault::Revive),
        (3 * SECOND, Fault::KillAgent { agent: 4 }),
        (4 * SECOND, Fault::Revive),
    ];
    let report = run(chain(6, &[(5 * SECOND, &[2, 3, 4, 5])], &faults)).expect_good();
    assert_eq!((report.succeeded, report.nodes), (1, (6, 0)));
}

/// Agent 2 is lost and started again while nobody hears 1 and those below it; jobs of 2, 3 and 5 before and after.
#[test]
fn frames_of_another_life_are_void() {
    let faults = [
        (SECOND, Fault::SilenceLink { agent: 1 }),
        (SECOND * 3 / 2, Fault::KillAgent { agent: 2 }),
        (2 * SECOND, Fault::Revive),
        (10 * SECOND, Fault::Revive),
    ];
    let on: &[u32] = &[2, 3, 5];
    for transport in [AgentTransport::Auto, AgentTransport::Tree] {
        let jobs: [(u64, &[u32]); 2] = [(SECOND / 2, on), (20 * SECOND, on)];
        let spec = SessionSpec { transport, fanout: 2, ..chain(7, &jobs, &faults) };
        let report = run(spec).expect_good();
        assert_eq!((report.succeeded, report.nodes), (2, (7, 0)));
    }
}
