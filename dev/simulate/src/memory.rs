//! Memory that a simulation takes, estimated before it begins.
//!
//! The constants are fitted to the peaks of simulations with 64 to 2,048 nodes and 4,096 to 16,384 ranks.

use crate::plan::{Exchange, Plan};
use procfs::process::Process;
use procfs::{Current, Meminfo};

/// The program itself (bytes).
const PROGRAM: f64 = 6e6;
/// A rank without PMIx (bytes).
const RANK: f64 = 1_400.0;
/// A rank with PMIx (bytes).
const PMIX_RANK: f64 = 20_000.0;
/// An agent (bytes), without its list of nodes.
const AGENT: f64 = 25_000.0;
/// A rank in a network of the ranks (bytes), for each power of two below their number.
const NETWORK_RANK: f64 = 2_700.0;
/// A row of an alltoall at a rank (bytes), without its value.
const ROW: f64 = 46.0;
/// A node in the list of an agent (bytes).
const LISTED_NODE: f64 = 14.0;

const MIB: f64 = 1_048_576.0;

/// Memory (bytes) that the simulation of this plan takes.
pub fn estimate(plan: &Plan) -> u64 {
    let [ranks, nodes] = [plan.ranks, plan.nodes].map(f64::from);
    let is_pmix = matches!(plan.exchange, Exchange::PmixFull | Exchange::PmixDirect);
    let rank_bytes = if is_pmix { PMIX_RANK } else { RANK };
    let bytes = PROGRAM + ranks * rank_bytes + nodes * AGENT + nodes * nodes * LISTED_NODE;
    (bytes + nodes * ranks * value_bytes(plan.exchange) + network_bytes(plan)) as u64
}

/// What each agent holds of each rank's value (bytes).
fn value_bytes(exchange: Exchange) -> f64 {
    match exchange {
        Exchange::Allgather | Exchange::Iallgather => 28.0,
        Exchange::Fence | Exchange::Ifence | Exchange::PmixFull => 44.0,
        Exchange::PmixDirect | Exchange::Ring | Exchange::Groups | Exchange::None => 0.0,
        Exchange::RankGroups | Exchange::RankAlltoall => 0.0,
    }
}

/// What ranks hold for a network of their own (bytes).
fn network_bytes(plan: &Plan) -> f64 {
    let ranks = f64::from(plan.ranks);
    let rows = match plan.exchange {
        Exchange::RankGroups => 0.0,
        Exchange::RankAlltoall => ranks * ranks * (ROW + f64::from(plan.value_bytes)),
        _ => return 0.0,
    };
    rows + ranks * f64::from(plan.partners()) * NETWORK_RANK
}

/// Memory of this machine that programs can still have (bytes).
pub fn available() -> u64 {
    Meminfo::current().ok().and_then(|memory| memory.mem_available).unwrap_or(u64::MAX)
}

/// Most memory that this process has had (bytes); 0 if the system does not say.
pub fn peak() -> u64 {
    let status = Process::myself().and_then(|process| process.status()).ok();
    status.and_then(|status| status.vmhwm).unwrap_or(0) * 1024
}

/// Bytes for people.
pub fn shown(bytes: u64) -> String {
    let mib = bytes as f64 / MIB;
    if mib < 1024.0 { format!("{mib:.0} MiB") } else { format!("{:.1} GiB", mib / 1024.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Start, VALUE_BYTES};
    use wireup_wire::job::ExchangeScheme;

    /// Peaks that were measured, and that the estimates must come near to.
    #[test]
    fn estimates_are_near_what_was_measured() {
        for (exchange, nodes, ppn, measured_kib) in [
            (Exchange::None, 1024, 16, 65_160),
            (Exchange::Allgather, 1024, 4, 165_140),
            (Exchange::Allgather, 256, 64, 143_856),
            (Exchange::Fence, 256, 16, 60_224),
            (Exchange::Fence, 2048, 2, 438_676),
            (Exchange::RankGroups, 64, 16, 35_700),
            (Exchange::RankGroups, 32, 128, 139_624),
            (Exchange::RankAlltoall, 128, 16, 314_552),
            (Exchange::PmixFull, 64, 64, 118_408),
            (Exchange::PmixFull, 2048, 2, 575_388),
        ] {
            let (ranks, start, scheme) = (nodes * ppn, Start::Ssh, ExchangeScheme::Auto);
            let value_bytes = VALUE_BYTES;
            let plan = Plan { ranks, nodes, ppn, fanout: 8, start, exchange, scheme, value_bytes, seed: 1 };
            let ratio = estimate(&plan) as f64 / (f64::from(measured_kib) * 1024.0);
            assert!((0.8..1.25).contains(&ratio), "{plan:?}: {ratio}");
        }
    }
}
