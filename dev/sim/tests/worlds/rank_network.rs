//! The ranks' own network, at the size of the largest run in S2.
use wireup_sim::rank_network::{Call, Cost, RankNetwork, one_for_all};

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
    let asked: Vec<u64> = located.iter().map(|cost| cost.questions).filter(|questions| *questions > 0).collect();
    assert!(asked.len() == 2 && asked.iter().all(|questions| *questions <= LOG.div_ceil(2)), "{asked:?}");
    assert!(network.held().iter().all(|held| held.addresses <= 2 * LOG as usize + LOG as usize));
}

#[test]
fn a_job_of_thousands_is_split_into_nodes() {
    const LOG: u64 = 13;
    let (mut network, _) = RankNetwork::new(5_000, 15).unwrap();
    let split = network.run(Call::Split(64)).unwrap();
    assert!(split.iter().all(|cost| cost.rounds <= LOG * (LOG + 1) + LOG + 8));
}

#[test]
fn allgathers_and_alltoalls_of_that_job_are_counted_on_one_rank() {
    let head = 17;
    let others = u64::from(SIZE) - 1;
    let allgather = Cost { messages: LOG, rounds: LOG, bytes: LOG * head + others * (4 + 18), questions: 0 };
    assert_eq!(one_for_all(Call::Allgather(18), SIZE), Ok(Some(allgather)));
    let rows: u64 = (0..u64::from(SIZE)).map(|row| u64::from(row.count_ones())).sum();
    let alltoall = Cost { bytes: LOG * head + rows * (4 + 18), ..allgather };
    assert_eq!(one_for_all(Call::Alltoall(18), SIZE), Ok(Some(alltoall)));
}
