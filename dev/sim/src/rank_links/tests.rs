use super::*;
use crate::costs::Costs;
use crate::phases::Point;
use crate::rank_network::{Call, Cost, RankNetwork};
use crate::report::RunReport;
use crate::spec::{Delay, Timing, WorldSpec};
use crate::workload::{Script, Step};

const LINK_NS: u64 = 25_000;
const CLIENT_NS: u64 = 2_000;
const BARRIER: GroupStep = GroupStep::Collective(Call::Barrier);

/// Fixed delays, and connections that take no time.
fn timing(costs: Option<Costs>) -> Timing {
    let always = |ns| Delay::between(ns, ns);
    Timing {
        link: always(LINK_NS),
        client: always(CLIENT_NS),
        handshake: always(0),
        think: always(0),
        batch_permille: 0,
        cut_permille: 0,
        costs,
        ..Timing::default()
    }
}

/// A world whose ranks make a network and then do `steps`.
fn world(nodes: u32, ppn: u32, steps: &[Step]) -> WorldSpec {
    let begin = [Step::Init, Step::Ring { value_bytes: 38 }, Step::Group(GroupStep::Form)];
    let script = Script::own(&[&begin[..], steps, &[Step::Finalize, Step::Exit { code: 0 }]].concat());
    WorldSpec { timing: timing(None), ..WorldSpec::even(1, nodes, ppn, script) }
}

/// Duration of one barrier: from the end of the barrier before it to its own end (ns).
fn barrier_ns(nodes: u32, ppn: u32, timing: Timing) -> u64 {
    let barrier = Step::Group(BARRIER);
    let steps = [barrier, Step::Reach(Point::Exchanged), barrier, Step::Reach(Point::Ready)];
    let report = crate::run(WorldSpec { timing, ..world(nodes, ppn, &steps) }).expect_good();
    let [begin, end] = [Point::Exchanged, Point::Ready].map(|point| report.checks.phases.at(point));
    assert_eq!((begin.count, end.count), (nodes * ppn, nodes * ppn));
    end.last_ns - begin.last_ns
}

fn traffic(report: RunReport) -> RankTraffic {
    report.expect_good().rank_traffic.expect("the ranks have made a network")
}

#[test]
fn the_ranks_send_what_they_send_without_a_clock() {
    let group = GroupStep::Collective;
    for (nodes, ppn) in [(1, 1), (1, 5), (6, 4), (17, 3)] {
        let size = nodes * ppn;
        let calls = [Call::Split(ppn), Call::Allgather(9), Call::Alltoall(9), Call::Barrier];
        let steps = [GroupStep::Node, group(calls[1]), group(calls[2]), group(calls[3])].map(Step::Group);
        let (mut network, mut costs) = RankNetwork::new(size, ADDRESS_LEN).expect("ranks");
        calls.into_iter().for_each(|call| costs.extend(network.run(call).expect("ranks")));
        let sum = |of: fn(&Cost) -> u64| costs.iter().map(of).sum::<u64>();
        let found = traffic(crate::run(world(nodes, ppn, &steps)));
        assert_eq!((found.messages, found.bytes), (sum(|cost| cost.messages), sum(|cost| cost.bytes)), "{size}");
        let rounds = (0..size as usize).map(|rank| costs.iter().skip(rank).step_by(size as usize));
        assert_eq!(Some(found.rounds), rounds.map(|all| all.map(|cost| cost.rounds).sum()).max(), "{size}");
        let ends: usize = network.held().iter().map(|held| held.connections).sum();
        // If the ring is not in the order of ranks, the ranks of a node have other neighbours in the node's group.
        assert!(found.connections as usize >= ends / 2, "{size}: {found:?}, {ends} ends");
    }
}

#[test]
fn a_barrier_takes_a_latency_for_each_power_of_two() {
    let costs = Costs { cores: 4, input_ns: 3_000, frame_ns: 5_000, ..Costs::default() };
    for (size, powers) in [(2, 1), (5, 3), (8, 3), (33, 6)] {
        assert_eq!(barrier_ns(size, 1, timing(None)), powers * (LINK_NS + 1), "{size}");
        assert_eq!(barrier_ns(size, 1, timing(Some(costs))), powers * (LINK_NS + 1 + 8_000), "{size}");
        assert_eq!(barrier_ns(1, size, timing(None)), powers * CLIENT_NS, "{size}");
    }
}

#[test]
fn each_cost_makes_the_network_slower() {
    let free = Costs { cores: 2, ..Costs::default() };
    let base = barrier_ns(4, 8, timing(Some(free)));
    // Eight ranks of a node share one network card or two processors.
    for costs in [
        Costs { card_kib_ns: 1_000_000, ..free },
        Costs { input_ns: 10_000, ..free },
        Costs { frame_ns: 10_000, ..free },
        Costs { kib_ns: 1_000_000, ..free },
    ] {
        let ns = barrier_ns(4, 8, timing(Some(costs)));
        let many = barrier_ns(4, 8, timing(Some(Costs { cores: 100, ..costs })));
        assert!(ns > base && (many < ns) != (costs.card_kib_ns > 0), "{costs:?}: {base}, {ns}, {many}");
    }
}

#[test]
fn a_first_message_waits_for_its_connection() {
    let ready_ns = |costs, handshake_ns| {
        let steps = [GroupStep::Talk(3), BARRIER].map(Step::Group);
        let timing = Timing { handshake: Delay::between(handshake_ns, handshake_ns), ..timing(Some(costs)) };
        let world = world(9, 1, &[&steps[..], &[Step::Reach(Point::Ready)]].concat());
        let report = crate::run(WorldSpec { timing, ..world }).expect_good();
        report.checks.phases.at(Point::Ready).last_ns
    };
    let free = Costs { cores: 1, ..Costs::default() };
    let each_ns = 1_000_000;
    // Each agent has one link, and a rank has at least four connections.
    let base = ready_ns(free, 0);
    assert!(ready_ns(free, each_ns) >= base + 3 * each_ns);
    assert!(ready_ns(Costs { handshake_ns: each_ns, ..free }, 0) >= base + 5 * each_ns);
}

#[test]
fn groups_of_all_nodes_and_leaders_keep_addresses_few() {
    let (nodes, ppn, partners) = (16, 6, 7);
    let steps = [GroupStep::Order, GroupStep::Node, GroupStep::Leaders, GroupStep::Talk(partners), BARRIER];
    let spec = WorldSpec { timing: Timing::default(), ..world(nodes, ppn, &steps.map(Step::Group)) };
    let runs = [1, 1, 2].map(|seed| crate::run(WorldSpec { seed, ..spec.clone() }).expect_good());
    let digests = [0, 1, 2].map(|run: usize| runs[run].digest);
    assert!(digests[0] == digests[1] && digests[0] != digests[2], "{digests:?}");
    let [found, ..] = runs.map(traffic);
    // Addresses on both sides in the graphs of the ring, of the ranks, of the node and of the leaders; and at most four
    // addresses for each partner.
    let most = ppn * 2 * (7 + 7 + 3 + 4) + ppn * partners * 4;
    assert!(found.addresses.different < found.addresses.held, "{found:?}");
    assert!(found.addresses.held <= most as usize, "{found:?}, {most}");
}

#[test]
fn a_rank_that_dies_ends_the_job_of_those_that_wait_for_it() {
    let steps = [Step::OnlyRank { rank: 3 }, Step::Die { signal: 9 }, Step::Group(BARRIER)];
    let report = crate::run(world(4, 2, &steps)).expect_good();
    assert!(report.code.is_some_and(|code| code > 0), "{:?}", report.code);
}
