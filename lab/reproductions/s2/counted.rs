//! Every scheme of groups: real ranks, whose times and counts are taken and whose counts are compared with simulated
//! ones; then the simulator alone, for jobs that no machine of this size can run.
use wireup_sim::rank_network::{Call, Cost, RankNetwork, Trouble, one_for_all};

use super::super::flags::Flags;
use super::super::job::with_job;
use super::super::report::Cell;
use super::super::rounds;
use super::super::scheme::Step;
use super::super::surroundings::Surroundings;
use super::scheme::{BUILD, SCHEMES};
use super::{PEERS, SIMULATED, counts, key};
use crate::cases::Place;
use crate::command::Failure;
use crate::metric::{Metric, Sample};

/// Real jobs, unless the user chooses.
pub const RANKS: [u32; 4] = [16, 64, 256, 1024];
/// Larger jobs hold the results of all ranks in memory only for calls whose results are short.
const ALL_RESULTS_RANKS_MAX: u32 = 1024;
/// Bytes of an address where no real rank has told its own: of a host with one IPv4 address.
const ADDRESS_LEN: usize = 15;

pub fn real(flags: &Flags, surroundings: &Surroundings, place: Place) -> Result<Vec<Cell>, Failure> {
    let launch = surroundings.launch_groups(flags, place, "peers");
    with_job(&launch, &surroundings.scratch, &surroundings.interrupt, |job| {
        let built = job.networks()?;
        let address_len = built.first().map_or(0, |network| network.address_len as usize);
        let (mut network, simulated) = RankNetwork::new(place.job_size(), address_len).map_err(wrong)?;
        let mut start = job.joins()?;
        start.0.extend(counts::compared(&counts::once(&built, 1)?, &simulated).0);
        let mut cells = vec![Cell { key: key(flags, place, PEERS, BUILD), runs: vec![start] }];
        let expected = SCHEMES.map(|scheme| network.run(scheme.call(place, flags.lengths)));
        let expected: Vec<Vec<Cost>> = expected.into_iter().collect::<Result<_, _>>().map_err(wrong)?;
        cells.extend(SCHEMES.map(|scheme| Cell::new(key(flags, place, PEERS, scheme.name))));
        for _ in 0..=flags.rounds.unwrap_or_else(|| rounds::default_count(place.job_size())) {
            for ((cell, scheme), expected) in cells[1..].iter_mut().zip(SCHEMES).zip(&expected) {
                let repeat = if scheme.is_short { flags.repeat } else { 1 };
                let mut sample = job.step(&Step::of(scheme.operation, flags.lengths).repeated(repeat))?;
                sample.0.extend(counts::compared(&counts::once(&job.networks()?, repeat)?, expected).0);
                cell.runs.push(sample);
            }
        }
        Ok(cells)
    })
}

/// Without real ranks.
pub fn simulated(flags: &Flags, place: Place) -> Result<Vec<Cell>, Failure> {
    let cell = |scheme: &str, sample: Sample| Cell { key: key(flags, place, SIMULATED, scheme), runs: vec![sample] };
    let (mut network, built) = RankNetwork::new(place.job_size(), ADDRESS_LEN).map_err(wrong)?;
    let mut cells = vec![cell(BUILD, counts::figures(&built))];
    for scheme in SCHEMES {
        let sample = simulate(&mut network, scheme.call(place, flags.lengths)).map_err(wrong)?;
        cells.push(cell(scheme.name, sample));
    }
    Ok(cells)
}

fn simulate(network: &mut RankNetwork, call: Call) -> Result<Sample, Trouble> {
    let size = network.size();
    if size > ALL_RESULTS_RANKS_MAX
        && let Some(cost) = one_for_all(call, size)?
    {
        let mut sample = counts::figures(&[cost]);
        for (metric, value) in &mut sample.0 {
            if matches!(metric, Metric::MessagesAll | Metric::SentAll) {
                *value *= f64::from(size);
            }
        }
        return Ok(sample);
    }
    Ok(counts::figures(&network.run(call)?))
}

pub fn wrong(trouble: Trouble) -> Failure {
    Failure::Wrong(format!("simulated ranks: {trouble:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_job_is_simulated_by_one_rank_where_ranks_are_alike() {
        let (mut network, _) = RankNetwork::new(2048, ADDRESS_LEN).unwrap();
        let sample = simulate(&mut network, Call::Allgather(18)).unwrap();
        let bytes = 11 * 17 + 2047 * (4 + 18);
        assert_eq!(sample.get(Metric::Sent), Some(f64::from(bytes)));
        assert_eq!(sample.get(Metric::SentAll), Some(f64::from(bytes) * 2048.0));
        assert_eq!(sample.get(Metric::MessagesAll), Some(11.0 * 2048.0));
        let sample = simulate(&mut network, Call::Broadcast(18)).unwrap();
        assert_eq!(sample.get(Metric::MessagesAll), Some(2047.0));
    }
}
