//! Memory that a simulation takes, estimated before it begins.
//!
//! The constants are fitted to the peaks of simulations with 32 to 4,096 nodes and 1,024 to 131,072 ranks.

use crate::plan::{Exchange, Plan, Scenario, Start};
use procfs::process::Process;
use procfs::{Current, Meminfo};
use wireup_coll::allgather::choice::choose;
use wireup_wire::job::ExchangeScheme;

/// Memory of the program itself (bytes).
const PROGRAM: f64 = 6e6;
/// Memory of a rank (bytes).
const RANK: f64 = 2_700.0;
/// Additional memory of a rank that uses PMIx (bytes).
const PMIX_RANK: f64 = 2_200.0;
/// Memory of an agent (bytes), without its table of the other nodes.
const AGENT: f64 = 23_000.0;
/// Additional memory of an agent and of the simulated PMIx server of its node, in a job with PMIx (bytes).
const PMIX_AGENT: f64 = 10_000.0;
/// Memory of a PMIx server for each rank after a full modex (bytes).
const MODEX_RANK: f64 = 9.5;
/// Memory of a node that keeps staged files (bytes).
const STAGED_NODE: f64 = 4_200.0;
/// Additional memory for a rank that puts a value before a fence (bytes): first at the rank and its own agent, then at
/// each agent.
const PUT: [f64; 2] = [1_000.0, 2.9];
/// Bytes of a value in an exchange, not counting the value: its length, and a part of its key if it has one.
const VALUE_HEAD: f64 = 6.0;
/// Memory of a pair of key and value at an agent (bytes), not counting the value.
const PAIR: f64 = 17.0;
/// Memory of a rank in a network among P ranks (bytes), divided by `ceil(log2 P)`.
const NETWORK_RANK: f64 = 2_700.0;
/// Memory of a row of an alltoall at a rank (bytes), not counting its value.
const ROW: f64 = 46.0;

const MIB: f64 = 1_048_576.0;

/// Memory (bytes) that the simulation of this scenario takes.
pub fn estimate(scenario: &Scenario) -> u64 {
    let plan = &scenario.plan;
    let [ranks, nodes] = [plan.ranks, plan.nodes].map(f64::from);
    // Size of an entry in an agent's table of nodes (bytes): entries are larger in a session.
    let listed_node = if plan.start == Start::Session { 18.0 } else { 10.0 };
    let is_pmix = matches!(plan.exchange, Exchange::PmixFull | Exchange::PmixDirect);
    let [rank, agent] = if is_pmix { [RANK + PMIX_RANK, AGENT + PMIX_AGENT] } else { [RANK, AGENT] };
    let put = match plan.exchange {
        Exchange::Fence | Exchange::FencePmi2 | Exchange::Ifence => PUT[0] + nodes * PUT[1],
        // All agents keep the pairs until the ranks have their groups.
        Exchange::PmiGroups => PUT[0] + nodes * (PAIR + f64::from(plan.value_bytes)),
        _ => 0.0,
    };
    let values = ranks * (f64::from(plan.value_bytes) + VALUE_HEAD);
    let is_shared = match plan.scheme {
        ExchangeScheme::Auto => choose(plan.nodes, values as u64).is_none(),
        scheme => scheme == ExchangeScheme::Tree,
    };
    let exchanges = matches!(
        plan.exchange,
        Exchange::Allgather | Exchange::Iallgather | Exchange::Fence | Exchange::FencePmi2 | Exchange::Ifence
    );
    let copies = if exchanges && !is_shared { nodes * values } else { 0.0 };
    let modex = if plan.exchange == Exchange::PmixFull { ranks * nodes * MODEX_RANK } else { 0.0 };
    let staged = scenario.stage_mib.map_or(0.0, |_| f64::from(scenario.stores()) * STAGED_NODE);
    let jobs = ranks * (rank + put) + network_bytes(plan) + copies + modex + staged;
    (PROGRAM + jobs + nodes * (agent + nodes * listed_node)) as u64
}

/// Memory of ranks for the network that they make among themselves (bytes).
fn network_bytes(plan: &Plan) -> f64 {
    let ranks = f64::from(plan.ranks);
    let rows = match plan.exchange {
        Exchange::RankGroups | Exchange::PmiGroups => 0.0,
        Exchange::RankAlltoall => ranks * ranks * (ROW + f64::from(plan.value_bytes)),
        _ => return 0.0,
    };
    rows + ranks * f64::from(plan.partners()) * NETWORK_RANK
}

/// Memory of this machine that is still available to programs (bytes).
pub fn available() -> u64 {
    Meminfo::current().ok().and_then(|memory| memory.mem_available).unwrap_or(u64::MAX)
}

/// From now on the kernel counts the peak of this process's memory anew. A system without this keeps the earlier peak.
pub fn forget_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Peak memory of this process (bytes); 0 if the system does not report it.
pub fn peak() -> u64 {
    let status = Process::myself().and_then(|process| process.status()).ok();
    status.and_then(|status| status.vmhwm).unwrap_or(0) * 1024
}

/// A number of bytes as text for people, in MiB or GiB.
pub fn shown(bytes: u64) -> String {
    let mib = bytes as f64 / MIB;
    if mib < 1024.0 { format!("{mib:.0} MiB") } else { format!("{:.1} GiB", mib / 1024.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::VALUE_BYTES;

    /// Compares the estimates with peaks of memory that were measured.
    #[test]
    fn estimates_are_near_what_was_measured() {
        let session = Start::Session;
        for (exchange, start, nodes, ppn, measured_kib) in [
            (Exchange::None, session, 4096, 1, 346_608),
            (Exchange::Allgather, session, 1024, 4, 56_188),
            (Exchange::Allgather, session, 4096, 32, 735_528),
            (Exchange::Allgather, Start::Ssh, 1024, 4, 52_800),
            (Exchange::Allgather, Start::Ssh, 4096, 4, 315_268),
            (Exchange::Allgather, Start::Srun, 1024, 4, 55_576),
            (Exchange::Fence, session, 4096, 16, 1_390_764),
            (Exchange::Fence, session, 256, 16, 36_036),
            (Exchange::PmixFull, session, 64, 64, 24_788),
            (Exchange::PmixFull, session, 2048, 2, 215_544),
            (Exchange::PmixFull, session, 2048, 16, 779_696),
            (Exchange::PmixDirect, session, 1024, 4, 72_356),
            (Exchange::RankGroups, Start::Ssh, 64, 16, 35_700),
            (Exchange::RankGroups, Start::Ssh, 32, 128, 139_624),
            (Exchange::PmiGroups, session, 1024, 36, 2_831_000),
            (Exchange::RankAlltoall, Start::Ssh, 128, 16, 314_552),
        ] {
            let (ranks, scheme) = (nodes * ppn, ExchangeScheme::Auto);
            let value_bytes = VALUE_BYTES;
            let plan = Plan { ranks, nodes, ppn, fanout: 8, start, exchange, scheme, value_bytes, seed: 1 };
            assert_near(&plan.into(), measured_kib);
            if (exchange, nodes, ppn) == (Exchange::Allgather, 1024, 4) && start == session {
                assert_near(&Scenario { stage_mib: Some(16), ..plan.into() }, 60_236);
            }
        }
    }

    fn assert_near(scenario: &Scenario, measured_kib: u32) {
        let ratio = estimate(scenario) as f64 / (f64::from(measured_kib) * 1024.0);
        assert!((0.8..1.25).contains(&ratio), "{scenario:?}: {ratio}");
    }
}
