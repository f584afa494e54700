use super::*;

/// `ceil(log2 size)`.
fn powers(size: u32) -> u64 {
    (u32::BITS - size.saturating_sub(1).leading_zeros()).into()
}

/// Length of a message's header; `PEER`: length of a peer in a message: its number, the length of its address, the
/// address.
const HEAD: u64 = 17;
const PEER: u64 = 8 + ADDRESS_LEN as u64;

fn network(size: u32) -> RankNetwork {
    RankNetwork::new(size, ADDRESS_LEN).unwrap().0
}

#[test]
fn a_graph_costs_two_messages_for_each_distance() {
    for size in [1, 2, 3, 64, 100, 1000] {
        let (network, costs) = RankNetwork::new(size, ADDRESS_LEN).unwrap();
        let rounds = powers(size).saturating_sub(1);
        let messages = 2 * rounds;
        let expected = Cost { messages, bytes: messages * (HEAD + PEER), rounds, questions: 0 };
        assert!(costs.iter().all(|cost| *cost == expected), "{size}: {:?}", costs[0]);
        assert_eq!(network.chain(), rounds);
        let most = 2 * powers(size) as usize;
        assert!(network.held().iter().all(|held| held.addresses <= most && held.connections <= most));
    }
}

#[test]
fn collectives_cost_what_their_tables_say() {
    for size in [1u32, 2, 5, 64, 100] {
        let mut network = network(size);
        let (log, others) = (powers(size), u64::from(size) - 1);
        let barrier = Cost { messages: log, bytes: log * HEAD, rounds: log, questions: 0 };
        assert!(network.run(Call::Barrier).unwrap().iter().all(|cost| *cost == barrier), "{size}");
        assert_eq!(network.chain(), log);
        let allgather = Cost { bytes: log * HEAD + others * (4 + 9), ..barrier };
        assert!(network.run(Call::Allgather(9)).unwrap().iter().all(|cost| *cost == allgather), "{size}");
        let rows: u64 = (0..u64::from(size)).map(|row| u64::from(row.count_ones())).sum();
        let alltoall = Cost { bytes: log * HEAD + rows * (4 + 9), ..barrier };
        assert!(network.run(Call::Alltoall(9)).unwrap().iter().all(|cost| *cost == alltoall), "{size}");
        for call in [Call::Broadcast(9), Call::Shift(9), Call::Allreduce(2)] {
            let costs = network.run(call).unwrap();
            assert!(costs.iter().all(|cost| cost.rounds <= log && cost.messages <= 2 * log), "{call:?}, {size}");
        }
        let broadcast: u64 = network.run(Call::Broadcast(9)).unwrap().iter().map(|cost| cost.messages).sum();
        assert_eq!(broadcast, others, "every other member gets it once");
    }
}

#[test]
fn one_member_and_its_reflection_cost_as_much_as_each_of_all_members() {
    for size in [1, 2, 3, 31, 64, 100] {
        let mut network = network(size);
        for call in [Call::Barrier, Call::Allgather(7), Call::Alltoall(7), Call::Shift(7)] {
            let one = one_for_all(call, size).unwrap().unwrap();
            let all = network.run(call).unwrap();
            assert!(all.iter().all(|cost| *cost == one), "{call:?}, {size}: {one:?} {:?}", all[0]);
        }
    }
    assert_eq!(one_for_all(Call::Split(4), 8), Ok(None));
}

#[test]
fn splits_are_right_and_cost_a_square_of_the_logarithm() {
    for (size, ppn) in [(1, 1), (16, 4), (100, 16), (257, 1), (64, 64)] {
        let mut network = network(size);
        let costs = network.run(Call::Split(ppn)).unwrap();
        let (log, group) = (powers(size), powers(ppn));
        // Rounds of two sorts, of finding the neighbours, of a scan, and of building the new graph.
        let most = log * (log + 1) + 2 + log + group;
        assert!(costs.iter().all(|cost| cost.rounds <= most), "{size}: {:?}, {most}", costs[0]);
    }
}

#[test]
fn addresses_are_found_in_half_as_many_questions_as_the_size_has_bits() {
    for size in [2, 3, 16, 100, 1024] {
        let mut network = network(size);
        let asked = |costs: &[Cost]| costs.iter().map(|cost| cost.questions).sum::<u64>();
        let farthest = asked(&network.run(Call::Locate(1)).unwrap());
        assert!(farthest <= powers(size).div_ceil(2), "{size}");
        assert!(
            size < 1024 || farthest == 4,
            "341 = 256 + 64 + 16 + 4 + 1, of which the last is known to the one asked"
        );
        let costs = network.run(Call::Locate(16)).unwrap();
        let messages: u64 = costs.iter().map(|cost| cost.messages).sum();
        let askers = u64::from(size.min(16));
        // Each question and its answer, one message of each asker, and a barrier.
        let most = 2 * asked(&costs) + askers + powers(size) * u64::from(size);
        assert!(messages <= most && (messages == most || size < 1024), "{size}");
        assert!(asked(&costs) <= askers * powers(size).div_ceil(2), "{size}");
    }
}

#[test]
fn ranks_hold_connections_and_addresses_for_those_they_talk_to() {
    for size in [16, 64, 256] {
        let (mut network, log) = (network(size), powers(size) as usize);
        let costs = network.run(Call::Talk(log as u32)).unwrap();
        assert!(costs.iter().all(|cost| cost.messages >= log as u64));
        for held in network.held() {
            // Neighbours in the graph, and ranks that this rank sends to or, without their addresses, receives from.
            assert!(held.connections >= log && held.connections <= 4 * log, "{held:?}");
            assert!(held.addresses >= log && held.addresses <= 3 * log, "{held:?}");
        }
        let node = network.worst_node(16);
        assert!(node.different < node.held && node.different < size as usize + 1, "{node:?}");
    }
}

/// Number of ranks of the largest job in S2.
const SIZE: u32 = 73_728;
/// `ceil(log2 SIZE)`.
const LOG: u64 = 17;

#[test]
fn the_sources_largest_job_runs_in_one_thread() {
    let (mut network, costs) = RankNetwork::new(SIZE, 15).unwrap();
    assert!(costs.iter().all(|cost| (cost.rounds, cost.messages) == (LOG - 1, 2 * (LOG - 1))));
    let barrier = network.run(Call::Barrier).unwrap();
    assert!(barrier.iter().all(|cost| (cost.rounds, cost.messages) == (LOG, LOG)));
    let located = network.run(Call::Locate(2)).unwrap();
    let asked: u64 = located.iter().map(|cost| cost.questions).sum();
    assert!((2..=2 * LOG.div_ceil(2)).contains(&asked), "{asked}");
    // The graph, and the one address that was asked for or the one rank that has connected.
    assert!(network.held().iter().all(|held| held.addresses.max(held.connections) <= 2 * LOG as usize + 1));
}

#[test]
fn a_job_of_thousands_is_split_into_nodes() {
    const LOG: u64 = 13;
    let (mut network, _) = RankNetwork::new(5_000, 15).unwrap();
    let split = network.run(Call::Split(64)).unwrap();
    assert!(split.iter().all(|cost| cost.rounds <= LOG * (LOG + 1) + LOG + 8));
    hold_little(&network, LOG as usize, 6);
}

/// After a split into groups of `2^group` ranks, which takes memory in proportion to log P only: the links of two
/// graphs are known, and never more than a message of a step for each link has waited.
fn hold_little(network: &RankNetwork, log: usize, group: usize) {
    const MESSAGE_LEN_MAX: usize = 128;
    assert!(network.held().iter().all(|held| held.addresses <= 2 * (log + group)));
    assert!(network.kept_max() <= 2 * log * MESSAGE_LEN_MAX, "{}", network.kept_max());
}

/// Takes a minute and 2 GiB of memory: `cargo test --profile proof -p wireup-sim rank_network -- --ignored`.
#[test]
#[ignore = "a minute and 2 GiB of memory"]
fn the_sources_largest_job_is_split_into_nodes() {
    let (mut network, _) = RankNetwork::new(SIZE, 15).unwrap();
    let split = network.run(Call::Split(36)).unwrap();
    assert!(split.iter().all(|cost| cost.rounds <= LOG * (LOG + 1) + LOG + 8));
    hold_little(&network, LOG as usize, 6);
}

#[test]
fn allgathers_and_alltoalls_of_that_job_are_counted_on_one_rank() {
    let others = u64::from(SIZE) - 1;
    let allgather = Cost { messages: LOG, rounds: LOG, bytes: LOG * HEAD + others * (4 + 18), questions: 0 };
    assert_eq!(one_for_all(Call::Allgather(18), SIZE), Ok(Some(allgather)));
    let rows: u64 = (0..u64::from(SIZE)).map(|row| u64::from(row.count_ones())).sum();
    let alltoall = Cost { bytes: LOG * HEAD + rows * (4 + 18), ..allgather };
    assert_eq!(one_for_all(Call::Alltoall(18), SIZE), Ok(Some(alltoall)));
}

#[test]
fn peers_are_different_and_others() {
    assert_eq!(peers(4, 16), [3, 7, 9, 13]);
    assert_eq!((peers(3, 1), peers(1, 2)), (vec![], vec![1]));
    for size in 2..300u32 {
        let count = u32::BITS - (size - 1).leading_zeros();
        let peers = peers(count, size);
        assert!(peers.iter().all(|peer| (1..size).contains(peer)) && peers.is_sorted());
        // Multiples of the golden ratio modulo 1 are at least 1 / (2.7 n) apart.
        assert!(size < 64 || peers.len() == count as usize, "{size}");
    }
}
