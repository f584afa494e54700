//! Staging as the protocol sees it: a job with one rank on each node, all of which read the same standard input, before
//! the job itself.
//!
//! The bytes are checked by each rank (`ReadStdin`: the right ones, in order, to the end), the memory of agents by the
//! checkers of every run (`checkers/bounds`). Files come from one server, as in S2.

use std::rc::Rc;
use wireup_sim::costs::Costs;
use wireup_sim::fault_injection::Fault;
use wireup_sim::phases::Point;
use wireup_sim::spec::{Delay, Timing};
use wireup_sim::traffic::received;
use wireup_sim::workload::{Dialect, Script, Step};
use wireup_sim::{JobPlan, RunReport, WorldSpec, run};
use wireup_wire::ids::AgentId;
use wireup_wire::job::{Block, StdinTarget};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// A staging job; nodes write their answers, before and after they read the contents, as lines.
fn staging(nodes: u32, bytes: u64) -> JobPlan {
    let line = Step::Write { stream: 1, lines: 1, line_bytes: 40 };
    let mut job = JobPlan::even(0..nodes, 1, Script::plain(&[line, Step::ReadStdin, line]));
    (job.options.stdio.stdin, job.options.stdio.split_output, job.stdin_bytes) = (StdinTarget::All, true, bytes);
    job
}

fn single(seed: u64, nodes: u32, bytes: u64, faults: Vec<Fault>) -> RunReport {
    let spec = WorldSpec::even(seed, nodes, 1, Script::default());
    let event_max = 2_000_000_000;
    run(WorldSpec { jobs: vec![staging(nodes, bytes)], fanout: 4, faults, event_max, ..spec }).expect_good()
}

#[test]
fn every_node_has_every_byte() {
    for (seed, nodes, bytes) in [(1, 64, 3 << 20), (2, 17, 5_000_001), (3, 200, 700_000), (4, 1, 1 << 20), (5, 9, 0)] {
        let report = single(seed, nodes, bytes, Vec::new());
        assert_eq!((report.code, report.checks.stdin_bytes), (Some(0), u64::from(nodes) * bytes), "seed {seed}");
    }
}

/// One node reads no more, like a node whose store is full: the other nodes continue, even those below it in the tree.
#[test]
fn a_node_that_reads_no_more_does_not_stop_the_others() {
    let (nodes, bytes) = (21, 5 << 20);
    for (seed, rank) in [(1, 1), (2, 20), (3, 4), (4, 0)] {
        let steps = [Step::OnlyRank { rank }, Step::Exit { code: 0 }, Step::ReadStdin];
        let mut job = staging(nodes, bytes);
        job.apps = vec![(nodes, Rc::new(Script::plain(&steps)))];
        let spec = WorldSpec { jobs: vec![job], fanout: 3, ..WorldSpec::even(seed, nodes, 1, Script::default()) };
        let report = run(spec).expect_good();
        assert_eq!((report.code, report.checks.stdin_bytes), (Some(0), u64::from(nodes - 1) * bytes), "rank {rank}");
    }
}

/// Nodes without ranks are in the middle of the tree and at its ends.
#[test]
fn nodes_without_ranks_do_not_stop_the_others() {
    let bytes = 5 << 20;
    let mut job = staging(13, bytes);
    job.blocks = vec![Block { first_node: 0, nodes: 7, ppn: 1 }];
    job.apps = vec![(7, Rc::new(Script::plain(&[Step::ReadStdin])))];
    let spec = WorldSpec { jobs: vec![job], fanout: 2, ..WorldSpec::even(1, 13, 1, Script::default()) };
    let report = run(spec).expect_good();
    assert_eq!((report.code, report.checks.stdin_bytes), (Some(0), 7 * bytes));
}

#[test]
fn a_fault_ends_the_job_or_changes_nothing() {
    let (nodes, bytes) = (30, 4 << 20);
    let (mut failed, whole_ns) = (0, single(1, nodes, bytes, Vec::new()).elapsed_ns);
    for seed in 0..24 {
        let at_ns = whole_ns * (seed + 1) / 25;
        let agent = 1 + (seed * 7 % 29) as u32;
        let fault = match seed % 6 {
            0 => Fault::CutLink { agent, at_ns },
            1 => Fault::SilenceLink { agent, at_ns },
            2 => Fault::KillAgent { agent, at_ns },
            3 => Fault::KillRank { rank: agent, at_ns },
            4 => Fault::StopTerminal { at_ns, for_ns: SECOND / 2 },
            _ => Fault::StopAgent { agent, for_ns: SECOND / 2, at_ns },
        };
        let report = single(seed, nodes, bytes, vec![fault]);
        let has_all = report.checks.stdin_bytes == u64::from(nodes) * bytes;
        assert!(report.code != Some(0) || has_all, "seed {seed}: {:?}", report.notices);
        failed += u32::from(report.code != Some(0));
    }
    assert!((6..24).contains(&failed), "{failed} of 24 faults ended the job");
}

/// Bytes of the name of a set of files, and of the list of its files.
const HEADS: [u64; 2] = [37, 200];

/// The times of S2 (MVAPICH2 on 2,048 nodes): the initial barrier waits 27.9 s for a shared file system, and 0.38 s
/// with staged files. `requests` of each node, 0.2 ms each, at one server. `staged`: bytes that are staged before the
/// job; the launcher has read the files already.
fn start(nodes: u32, requests: u32, staged: Option<u64>) -> RunReport {
    let load = Step::Load { requests, request_ns: MS / 5 };
    let steps = [load, Step::Init, Step::Fence, Step::Reach(Point::Exchanged), Step::Finalize];
    let plain = WorldSpec::even(7, nodes, 1, Script::new(Dialect::Pmi1, &steps));
    let event_max = 2_000_000_000;
    // The start timeout must cover the whole run: on 16,384 nodes the file server is busy for 223 s.
    let world = WorldSpec { event_max, start_timeout_ns: 300 * SECOND, ..plain };
    run(staged.map_or(world.clone(), |bytes| stage(world, bytes))).expect_good()
}

/// A world whose job waits until `bytes` bytes of files are staged on all nodes.
fn stage(world: WorldSpec, bytes: u64) -> WorldSpec {
    let nodes = 0..world.agents;
    world.staged(nodes, [HEADS[0], HEADS[1], bytes])
}

/// Time at which the last rank leaves its first barrier (ns from the start of the session).
fn barrier_ns(report: &RunReport) -> u64 {
    report.checks.phases.at(Point::Exchanged).last_ns
}

fn expect_gain(nodes: u32, requests: u32, bytes: u64, times: u64) {
    let [without, with] = [start(nodes, requests, None), start(nodes, 0, Some(bytes))];
    assert_eq!((without.jobs.succeeded, with.jobs.succeeded), (1, 2));
    let staged = with.checks.phases.at(Point::Staged);
    assert_eq!(
        (with.checks.stdin_bytes, staged.count),
        (u64::from(nodes) * (HEADS.iter().sum::<u64>() + bytes), nodes)
    );
    // Times count from the start of the session, so `with_ns` includes the staging.
    let [without_ns, with_ns] = [&without, &with].map(barrier_ns);
    println!("{nodes} nodes: barrier after {} ms, with staged files after {} ms", without_ns / MS, with_ns / MS);
    assert!(with_ns > staged.last_ns && with_ns * times < without_ns, "{with_ns} {without_ns}");
    for report in [without, with] {
        assert_eq!(report.failure(), None);
    }
}

#[test]
fn staged_ranks_do_not_wait_for_the_file_server() {
    expect_gain(128, 300, 2 << 20, 10);
}

/// Takes minutes and 3 GiB of memory: `cargo test --profile proof -p wireup-sim --test worlds sixteen_thousand --
/// --ignored`.
#[test]
#[ignore = "minutes and 3 GiB of memory"]
fn sixteen_thousand_nodes() {
    // The number of file requests in S2 on 2,048 nodes, then on eight times as many nodes.
    expect_gain(2_048, 68, 1 << 20, 50);
    let (nodes, bytes) = (16_384, 128 << 10);
    // These are single runs, since each agent of a session would keep the lists of nodes of both jobs; so each run
    // starts all agents once more.
    let [without, with] = [68, 0].map(|requests| start(nodes, requests, None));
    let staging = single(7, nodes, bytes, Vec::new());
    assert_eq!(
        (without.jobs.succeeded, with.jobs.succeeded, staging.checks.stdin_bytes),
        (1, 1, u64::from(nodes) * bytes)
    );
    let [without_ns, with_ns] = [&without, &with].map(barrier_ns);
    let with_ns = staging.elapsed_ns + with_ns;
    println!("{nodes} nodes: staged after {} ms", staging.elapsed_ns / MS);
    println!("{nodes} nodes: barrier after {} ms, with staged files after {} ms", without_ns / MS, with_ns / MS);
    assert!(with_ns * 25 < without_ns, "{with_ns} {without_ns}");
    // A cut link ends the job, or the agents below the link get the bytes another way.
    let cut = Fault::CutLink { agent: 1_000, at_ns: staging.elapsed_ns / 10 * 9 };
    let report = single(8, nodes, bytes, vec![cut]);
    assert!(report.code == Some(125) || report.checks.stdin_bytes == staging.checks.stdin_bytes, "{:?}", report.code);
}

#[test]
fn two_staging_jobs_share_the_links() {
    let nodes = 20;
    let jobs = vec![staging(nodes, 2 << 20), staging(nodes, 2 << 20)];
    let spec = WorldSpec { is_standing: true, jobs, fanout: 3, ..WorldSpec::even(9, nodes, 1, Script::default()) };
    let report = run(spec).expect_good();
    assert_eq!((report.jobs.succeeded, report.checks.stdin_bytes), (2, 2 * u64::from(nodes) * (2 << 20)));
}

/// A full tree of agents of three levels with fan-out `fanout`. Only what `costs` lists, links and starts take time.
fn tree(fanout: u32, costs: Costs) -> WorldSpec {
    let none = Delay::between(0, 0);
    let timing = Timing {
        cut_permille: 0,
        batch_permille: 0,
        stdio: none,
        terminal: none,
        think: none,
        costs: Some(Costs { cores: 4, ..costs }),
        ..Timing::default()
    };
    let nodes = 1 + fanout + fanout * fanout;
    WorldSpec { fanout, timing, ..WorldSpec::even(3, nodes, 2, Script::exchange(Dialect::Pmi1, 18, 1)) }
}

/// Each agent receives each byte once, whatever the shape of the tree.
#[test]
fn each_link_carries_the_staged_bytes_once() {
    let bytes = 3_000_001;
    for fanout in [1, 3, 5] {
        let world = tree(fanout, Costs::default());
        let nodes = world.agents;
        let mut report = run(stage(WorldSpec { record: 0..nodes, ..world }, bytes)).expect_good();
        assert_eq!(report.jobs.succeeded, 2);
        for agent in 0..nodes {
            let inputs = report.recordings.remove(&agent).expect("every agent was recorded").inputs;
            let input = received(AgentId(agent), inputs).expect("frames")["Input"];
            // A part of the standard input of less than 256 KiB is one frame.
            assert_eq!(input.bytes, HEADS.iter().sum::<u64>() + bytes, "agent {agent} of {nodes}");
            assert!(input.frames >= 2 + bytes.div_ceil(256 << 10), "{input:?}");
        }
    }
}

/// An agent sends each KiB to two others, one after the other, whatever the session's fan-out: by its network card, or
/// by its processor, which also reads it. The agents of all levels do so at the same time, so that only the time until
/// the first piece has come to the last level does not grow with the size.
#[test]
fn staging_takes_the_time_in_which_an_agent_sends_all_to_two_others() {
    let (small, kib_ns) = (3 << 20, 2_000);
    for fanout in [2, 4] {
        let f = 2;
        for (costs, each_kib_ns) in [
            (Costs { card_kib_ns: kib_ns, ..Costs::default() }, f * kib_ns),
            (Costs { kib_ns, ..Costs::default() }, (f + 1) * kib_ns),
        ] {
            let staged_ns = |bytes| {
                let phases = run(stage(tree(fanout, costs), bytes)).expect_good().checks.phases;
                [Point::Staged, Point::Forked].map(|point| phases.at(point).last_ns)
            };
            let ([short_ns, _], [long_ns, forked_ns]) = (staged_ns(small), staged_ns(2 * small));
            let expected_ns = (small >> 10) * each_kib_ns;
            let ratio = (long_ns - short_ns) as f64 / expected_ns as f64;
            assert!((0.97..1.03).contains(&ratio), "fan-out {fanout}, {costs:?}: {ratio}");
            assert!(forked_ns > long_ns, "ranks begin when everything is there");
        }
    }
}

/// Without staging, the file server sends the program to each node; with staging, only to the launcher.
#[test]
fn the_file_server_is_asked_once() {
    let load_ns = 50 * MS;
    let world = tree(3, Costs { load_ns, ..Costs::default() });
    let begun_ns = |world| run(world).expect_good().checks.phases.at(Point::Begun).last_ns;
    let [alone, staged] = [begun_ns(world.clone()), begun_ns(stage(world, 1 << 20))];
    assert!(alone >= 13 * load_ns && (load_ns..2 * load_ns).contains(&staged), "{alone} {staged}");
}
