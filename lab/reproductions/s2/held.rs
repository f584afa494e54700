//! Connections, addresses and memory of ranks that talk to log2 P others, beside those of ranks that talk to all.
//!
//! Each job does one of the two, once, because connections stay. What a rank that talks to all must hold in a simulated
//! job needs no simulation: P - 1 of each.
use wireup_sim::rank_network::{Held, RankNetwork};

use super::super::board::Network;
use super::super::flags::Flags;
use super::super::job::with_job;
use super::super::report::Cell;
use super::super::scheme::{Operation, Step};
use super::super::surroundings::Surroundings;
use super::counted::wrong;
use super::scheme::{GroupScheme, powers};
use super::{HELD, HELD_SIMULATED, counts, key};
use crate::cases::Place;
use crate::command::Failure;
use crate::metric::{Metric, Sample};

/// Of ranks that have done nothing but open the library; that talk to log2 P others; that talk to all.
pub const OPEN: &str = "graph-alone";
pub const TALK: GroupScheme = GroupScheme { name: "talk-log2", operation: Operation::Talk, is_short: false };
pub const TALK_TO_ALL: GroupScheme =
    GroupScheme { name: "talk-to-all", operation: Operation::TalkToAll, is_short: false };
/// Real jobs; simulated ones.
pub const RANKS: [u32; 3] = [16, 64, 256];
pub const SIMULATED_RANKS: [u32; 6] = [16, 64, 256, 1024, 4096, 16384];
/// As in the simulator where no real rank has told its own.
const ADDRESS_LEN: usize = 15;

pub fn real(flags: &Flags, surroundings: &Surroundings, place: Place) -> Result<Vec<Cell>, Failure> {
    let mut cells: Vec<Cell> =
        [OPEN, TALK.name, TALK_TO_ALL.name].map(|name| Cell::new(key(flags, place, HELD, name))).into();
    for (at, scheme) in [(1, TALK), (2, TALK_TO_ALL)] {
        let launch = surroundings.launch_groups(flags, place, "peers");
        with_job(&launch, &surroundings.scratch, &surroundings.interrupt, |job| {
            if at == 1 {
                let mut sample = of_networks(&job.networks()?, place);
                sample.0.extend(job.memory()?.0);
                cells[0].runs.push(sample);
            }
            let mut sample = job.step(&Step::of(scheme.operation, flags.lengths))?;
            let networks = job.networks()?;
            sample.0.extend(counts::figures(&counts::once(&networks, 1)?).0);
            sample.0.extend(of_networks(&networks, place).0);
            sample.0.extend(job.memory()?.0);
            cells[at].runs.push(sample);
            Ok(())
        })?;
    }
    Ok(cells)
}

pub fn simulated(flags: &Flags, place: Place) -> Result<Vec<Cell>, Failure> {
    let size = place.job_size();
    let (mut network, _) = RankNetwork::new(size, ADDRESS_LEN).map_err(wrong)?;
    let mut cells = vec![(OPEN, of_simulated(&network, place))];
    let costs = network.run(TALK.call(place, flags.lengths)).map_err(wrong)?;
    let mut talk = counts::figures(&costs);
    talk.0.extend(of_simulated(&network, place).0);
    cells.push((TALK.name, talk));
    let others = f64::from(size) - 1.0;
    let all = vec![
        (Metric::Connections, others),
        (Metric::ConnectionsAll, others * f64::from(size) / 2.0),
        (Metric::Addresses, others),
        (Metric::NodeAddresses, others * f64::from(place.ppn)),
        (Metric::NodeDifferent, if place.ppn > 1 { f64::from(size) } else { others }),
    ];
    cells.push((TALK_TO_ALL.name, Sample(all)));
    let cell = |(name, sample)| Cell { key: key(flags, place, HELD_SIMULATED, name), runs: vec![sample] };
    Ok(cells.into_iter().map(cell).collect())
}

fn of_networks(networks: &[Network], place: Place) -> Sample {
    let held: Vec<Held> = networks
        .iter()
        .map(|network| Held { connections: network.connections as usize, addresses: network.addresses as usize })
        .collect();
    of_held(&held, place)
}

fn of_simulated(network: &RankNetwork, place: Place) -> Sample {
    let mut sample = of_held(&network.held(), place);
    let node = network.worst_node(place.ppn);
    sample.0.push((Metric::NodeDifferent, node.different as f64));
    sample
}

/// A connection has two ends.
fn of_held(held: &[Held], place: Place) -> Sample {
    let most = |of: fn(&Held) -> usize| held.iter().map(of).max().unwrap_or(0) as f64;
    let ends: usize = held.iter().map(|held| held.connections).sum();
    let nodes = held.chunks(place.ppn as usize);
    let of_node = nodes.map(|node| node.iter().map(|held| held.addresses).sum::<usize>()).max().unwrap_or(0);
    Sample(vec![
        (Metric::Connections, most(|held| held.connections)),
        (Metric::ConnectionsAll, ends as f64 / 2.0),
        (Metric::Addresses, most(|held| held.addresses)),
        (Metric::NodeAddresses, of_node as f64),
    ])
}

/// How many connections a rank may hold that talks to log2 P others, of which the square matters: the graph on both
/// sides, those that it talks to and that talk to it, and those that were asked on the way to the former and asked for
/// the latter.
pub fn connections_max(size: u32) -> f64 {
    let log = f64::from(powers(size));
    let most = 2.0 * log + 2.0 * log * (1.0 + (log / 2.0).ceil());
    most.min(f64::from(size) - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ranks_hold_is_summed_by_node() {
        let held = [(3, 4), (5, 6), (1, 2), (1, 7)].map(|(connections, addresses)| Held { connections, addresses });
        let sample = of_held(&held, Place { node_count: 2, ppn: 2 });
        let get = |metric| sample.get(metric).unwrap();
        assert_eq!((get(Metric::Connections), get(Metric::ConnectionsAll)), (5.0, 5.0));
        assert_eq!((get(Metric::Addresses), get(Metric::NodeAddresses)), (7.0, 10.0));
    }

    #[test]
    fn a_simulated_job_holds_less_than_the_bound_and_than_all() {
        let line = crate::common_flags::line(&crate::startup::flags::COMMAND, "").unwrap();
        let flags = crate::startup::flags::read(crate::startup::flags::Benchmark::Exchange, &line).unwrap();
        let cells = simulated(&flags, Place { node_count: 16, ppn: 16 }).unwrap();
        let median = |at: usize, metric| cells[at].median(metric).unwrap();
        assert!(median(0, Metric::Connections) <= 16.0);
        assert!(median(1, Metric::Connections) > median(0, Metric::Connections));
        assert!(median(1, Metric::Connections) <= connections_max(256) && median(2, Metric::Connections) == 255.0);
        assert!(median(1, Metric::NodeDifferent) < median(1, Metric::NodeAddresses));
    }
}
