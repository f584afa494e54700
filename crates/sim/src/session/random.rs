//! Random sessions, by seed.

use super::spec::{Fault, JobPlan, Mischief, SessionSpec};
use crate::rng::Rng;
use std::ops::RangeInclusive;
use wireup_wire::peer::AgentTransport;

/// The time within which jobs and faults begin (ns).
const SPAN_NS: u64 = 3_000_000_000;

/// A session with jobs, and no faults that affect more than one of them.
pub fn calm(seed: u64) -> SessionSpec {
    let mut rng = Rng::stream(seed, "random session");
    let agents = rng.between(1, 20) as u32;
    let jobs = rng.between(1, 40);
    let transport = if rng.chance(250) { AgentTransport::Tree } else { AgentTransport::Auto };
    let fanout = rng.between(1, 5) as u32;
    let jobs = (0..jobs).map(|_| job(&mut rng, agents)).collect();
    // Ends the jobs that do not end by themselves.
    let ends = (1..=4).map(|turn| (turn * SPAN_NS, Fault::EndJobs)).collect();
    SessionSpec { seed, agents, fanout, transport, jobs, faults: ends, ..SessionSpec::default() }
}

/// The same with one to six faults.
pub fn stormy(seed: u64) -> SessionSpec {
    with_faults(seed, "storm", 1..=6)
}

/// The same with seven to 25 faults.
pub fn wild(seed: u64) -> SessionSpec {
    with_faults(seed, "wild", 7..=25)
}

fn with_faults(seed: u64, stream: &str, faults: RangeInclusive<u64>) -> SessionSpec {
    let mut spec = calm(seed);
    let mut rng = Rng::stream(seed, stream);
    let one = |rng: &mut Rng| rng.below(u64::from(spec.agents)) as u32;
    for _ in 0..rng.between(*faults.start(), *faults.end()) {
        let agent = one(&mut rng);
        let fault = match rng.below(10) {
            0..=4 => Fault::KillAgent { agent },
            5 => Fault::CutLink { agent },
            6 => Fault::SilenceLink { agent },
            7 => Fault::CutDirect,
            _ => Fault::Revive,
        };
        let silent = matches!(fault, Fault::SilenceLink { .. });
        // If a link falls silent before the agents below it are reported, nothing is known of them.
        let at_ns = rng.below(SPAN_NS).max(if silent { 200_000_000 } else { 0 });
        spec.faults.push((at_ns, fault));
    }
    if rng.chance(300) {
        spec.no_start.push((one(&mut rng).max(1), rng.between(1, 2) as u32));
    }
    if rng.chance(500) {
        spec.faults.push((SPAN_NS + rng.below(SPAN_NS), Fault::Revive));
    }
    // Ends the jobs that hang, also when everything else is over.
    spec.faults.push((20 * SPAN_NS, Fault::EndJobs));
    spec
}

/// A session in which hosts lose power or cannot reach each other, and agents are started again beside older copies that still run.
pub fn fierce(seed: u64) -> SessionSpec {
    let mut spec = calm(seed);
    let mut rng = Rng::stream(seed, "fierce");
    let agents = spec.agents;
    for _ in 0..rng.between(1, 12) {
        let fault = fierce_fault(&mut rng, agents);
        let at_ns = rng.below(2 * SPAN_NS).max(200_000_000);
        spec.faults.push((at_ns, fault));
        if rng.chance(400) {
            // Some revivals come before the session has noticed a loss, or all of it.
            let longest_ns = *rng.pick(&[10_000_000, 1_000_000_000, 6_000_000_000]);
            spec.faults.push((at_ns + rng.below(longest_ns), Fault::Revive));
        }
    }
    for list in [&mut spec.no_start, &mut spec.broken_shells] {
        if rng.chance(300) {
            list.push((rng.below(u64::from(agents)).max(1) as u32, rng.between(1, 2) as u32));
        }
    }
    if rng.chance(500) {
        spec.faults.push((4 * SPAN_NS + rng.below(4 * SPAN_NS), Fault::Revive));
    }
    spec.remote = rng.chance(500);
    // Ends the jobs that hang, also when everything else is over.
    spec.faults.extend([(20 * SPAN_NS, Fault::EndJobs), (40 * SPAN_NS, Fault::EndJobs)]);
    spec
}

fn fierce_fault(rng: &mut Rng, agents: u32) -> Fault {
    let one = |rng: &mut Rng| rng.below(u64::from(agents)) as u32;
    let agent = one(rng);
    let for_ns = rng.below(2 * SPAN_NS);
    match rng.below(12) {
        0..=1 => Fault::KillAgent { agent },
        2 => Fault::CutLink { agent },
        3..=4 => Fault::SilenceLink { agent },
        5..=7 => {
            let above = if rng.chance(500) { 2 } else { 0 };
            let off_ns = if rng.chance(300) { u64::MAX } else { for_ns };
            Fault::PowerLoss { agent, above, off_ns }
        }
        8..=9 => {
            let to = if rng.chance(500) { 0 } else { one(rng) };
            Fault::Wall { from: agent, to, is_both: rng.chance(500), for_ns }
        }
        // Never stopped forever: nothing would notice that while nothing waits for the agent.
        10 => Fault::Stop { agent, for_ns: 1 + rng.below(6 * SPAN_NS) },
        _ => Fault::Revive,
    }
}

fn job(rng: &mut Rng, agents: u32) -> JobPlan {
    let mut chosen: Vec<u32> = (0..agents).filter(|_| rng.chance(400)).collect();
    if chosen.is_empty() {
        chosen.push(rng.below(u64::from(agents)) as u32);
    }
    if rng.chance(300) {
        chosen.reverse();
    }
    let ppn = rng.between(1, 3) as u32;
    let ranks = ppn * chosen.len() as u32;
    let rank = rng.below(u64::from(ranks)) as u32;
    let mischief = match rng.below(20) {
        0 => Some(Mischief::Crashes { rank }),
        1 => Some(Mischief::Fails { rank, code: 7 }),
        2 => Some(Mischief::Lies { rank }),
        3 => Some(Mischief::Floods { rank }),
        4 => Some(Mischief::Hangs { rank }),
        _ => None,
    };
    let at_ns = if rng.chance(300) { 0 } else { rng.below(SPAN_NS) };
    let longest_ns = if rng.chance(200) { 1_000_000_000 } else { 5_000_000 };
    JobPlan {
        wait_ns: if rng.chance(300) { rng.below(500_000_000) } else { 0 },
        work_ns: rng.below(longest_ns),
        lines: rng.below(4) as u32,
        mischief,
        launcher_dies_ns: rng.chance(100).then(|| rng.below(200_000_000)),
        reads: !matches!(mischief, Some(Mischief::Floods { .. })) || rng.chance(500),
        ..JobPlan::plain(at_ns, chosen, ppn)
    }
}
