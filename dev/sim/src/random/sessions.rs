//! Sessions that outlive their jobs: many launchers and jobs of all kinds, at the same time and one after another, and
//! faults.

use super::{Program, add_misbehaviour, collectives, draw_early_wireup, draw_exchange, modex};
use crate::agents::RANK_PORTS;
use crate::fault_injection::{Fault, NoServer, NoStart};
use crate::remote::{Remote, ssh};
use crate::rng::Rng;
use crate::spec::{ADDED, JobPlan, WorldSpec};
use crate::workload::{Script, Step};
use std::ops::RangeInclusive;
use std::rc::Rc;
use wireup_wire::ids::Rank;
use wireup_wire::job::{PmiVersion, RankPorts, StdinTarget};
use wireup_wire::peer::AgentTransport;

/// The time within which jobs and faults begin (ns).
const SPAN_NS: u64 = 3_000_000_000;
/// The time limit of a job in which a rank misbehaves.
const TIMEOUT_NS: u64 = 20_000_000_000;
/// A step that writes more than all pipes and windows hold.
const FLOOD: Step = Step::Write { stream: 1, lines: 20_000, line_bytes: 100 };

/// A session without jobs.
pub fn empty(seed: u64, agents: u32, fanout: u32) -> WorldSpec {
    WorldSpec {
        is_standing: true,
        fanout,
        jobs: Vec::new(),
        node_timeout_ns: 3_000_000_000,
        start_timeout_ns: 20_000_000_000,
        event_max: 5_000_000,
        ..WorldSpec::even(seed, agents, 1, Script::default())
    }
}

/// A session with jobs, and with faults that affect no more than one job each.
pub fn calm(seed: u64) -> WorldSpec {
    let mut rng = Rng::stream(seed, "random session");
    let agents = rng.between(1, 20) as u32;
    let jobs = rng.between(1, 40);
    let transport = if rng.chance(250) { AgentTransport::Tree } else { AgentTransport::Auto };
    let fanout = rng.between(1, 5) as u32;
    let mut jobs: Vec<JobPlan> = (0..jobs).map(|_| job(&mut rng, agents)).collect();
    let mut rng = Rng::stream(seed, "rank ports");
    let ports = RankPorts { range: RANK_PORTS.range, listen: true };
    jobs.iter_mut().for_each(|job| job.options.process.rank_ports = rng.chance(400).then_some(ports));
    // At these times, jobs that do not end by themselves are ended.
    let faults = (1..=4).map(|turn| Fault::EndJobs { at_ns: turn * SPAN_NS }).collect();
    WorldSpec { transport, jobs, faults, ..empty(seed, agents, fanout) }
}

/// The calm session of `seed` with one to six faults.
pub fn stormy(seed: u64) -> WorldSpec {
    with_faults(seed, "storm", 1..=6)
}

/// The calm session of `seed` with seven to 25 faults.
pub fn wild(seed: u64) -> WorldSpec {
    with_faults(seed, "wild", 7..=25)
}

fn with_faults(seed: u64, stream: &str, faults: RangeInclusive<u64>) -> WorldSpec {
    let mut spec = calm(seed);
    let mut rng = Rng::stream(seed, stream);
    for _ in 0..rng.between(*faults.start(), *faults.end()) {
        let fault = fault(&mut rng, &spec);
        spec.faults.push(fault);
    }
    if rng.chance(300) {
        let agent = rng.below(u64::from(spec.agents)).max(1) as u32;
        spec.faults.push(first_calls(&mut rng, agent));
    }
    if rng.chance(500) {
        spec.faults.push(Fault::Revive { at_ns: SPAN_NS + rng.below(SPAN_NS) });
    }
    // Ends the jobs that hang, also when everything else is over.
    spec.faults.push(Fault::EndJobs { at_ns: 20 * SPAN_NS });
    spec.faults.retain(|fault| fault.agents().iter().all(|agent| *agent < spec.agents));
    spec
}

fn first_calls(rng: &mut Rng, agent: u32) -> Fault {
    Fault::NoStart { agent, how: NoStart::FirstCalls { times: rng.between(1, 2) as u32 } }
}

fn fault(rng: &mut Rng, spec: &WorldSpec) -> Fault {
    let agent = rng.below(u64::from(spec.agents)) as u32;
    let at_ns = rng.below(SPAN_NS);
    // If a link falls silent before the agents below it are reported to the root, the root knows nothing of them.
    let late_ns = at_ns.max(200_000_000);
    match rng.below(14) {
        0..=4 => Fault::KillAgent { agent, at_ns },
        5 => Fault::CutLink { agent, at_ns },
        6 => Fault::SilenceLink { agent, at_ns: late_ns },
        7 => Fault::CutDirect { agent, at_ns },
        8..=9 => Fault::Revive { at_ns },
        _ => job_fault(rng, spec),
    }
}

/// A fault that affects jobs, and not the membership.
fn job_fault(rng: &mut Rng, spec: &WorldSpec) -> Fault {
    let agent = rng.below(u64::from(spec.agents)) as u32;
    let ranks: u32 = spec.jobs.iter().map(JobPlan::size).sum();
    let rank = rng.below(u64::from(ranks)) as u32;
    let at_ns = rng.below(SPAN_NS);
    match rng.below(10) {
        0..=1 => Fault::KillRank { rank, at_ns },
        2 => Fault::KillKeeper { agent, at_ns },
        3 => Fault::KillServer { agent, at_ns },
        4 => Fault::NoServer { agent, how: *rng.pick(&[NoServer::Fails, NoServer::Dies, NoServer::Garbage]) },
        5 => Fault::NoExec { rank, errno: *rng.pick(&[2, 13]) },
        6 => Fault::NoDial { agent },
        7 => Fault::SilenceDirect { agent, at_ns },
        8 => Fault::StopTerminal { at_ns, for_ns: rng.between(1_000_000, 2_000_000_000) },
        _ => Fault::Signal { signal: *rng.pick(&[1, 2, 2, 15]), at_ns },
    }
}

/// A session in which hosts lose power or cannot reach each other, and agents are started again while older processes
/// of the same agents still run.
pub fn fierce(seed: u64) -> WorldSpec {
    let mut spec = calm(seed);
    let mut rng = Rng::stream(seed, "fierce");
    let agents = u64::from(spec.agents);
    for _ in 0..rng.between(1, 12) {
        let at_ns = rng.below(2 * SPAN_NS).max(200_000_000);
        let fault = fierce_fault(&mut rng, &spec, at_ns);
        spec.faults.push(fault);
        if rng.chance(400) {
            // Some revivals are requested before the session has noticed the loss, or all of its consequences.
            let longest_ns = *rng.pick(&[10_000_000, 1_000_000_000, 6_000_000_000]);
            spec.faults.push(Fault::Revive { at_ns: at_ns + rng.below(longest_ns) });
        }
    }
    let agent = rng.below(agents).max(1) as u32;
    if rng.chance(300) {
        spec.faults.push(first_calls(&mut rng, agent));
    }
    let agent = rng.below(agents).max(1) as u32;
    if rng.chance(300) {
        spec.faults.push(Fault::BreakShells { agent, times: rng.between(1, 2) as u32 });
    }
    if rng.chance(500) {
        spec.faults.push(Fault::Revive { at_ns: 4 * SPAN_NS + rng.below(4 * SPAN_NS) });
    }
    spec.remote = rng.chance(500).then(|| Remote::prompt(spec.agents, ssh()));
    // Ends the jobs that hang, also when everything else is over.
    spec.faults.extend([20, 40].map(|turn| Fault::EndJobs { at_ns: turn * SPAN_NS }));
    spec.faults.retain(|fault| fault.agents().iter().all(|agent| *agent < spec.agents));
    spec
}

/// The fierce session of `seed` with jobs that add hosts, which faults affect as well.
pub fn growing(seed: u64) -> WorldSpec {
    let mut spec = fierce(seed);
    let mut rng = Rng::stream(seed, "growing");
    for job in &mut spec.jobs {
        if rng.chance(400) {
            let many = rng.between(1, job.nodes.len().min(3) as u64) as usize;
            job.nodes[..many].fill(ADDED);
        }
    }
    let agents = spec.agents_max();
    spec.remote = Some(Remote::prompt(agents, ssh()));
    for _ in 0..rng.below(6) {
        let agent = rng.below(u64::from(agents)) as u32;
        let at_ns = rng.below(2 * SPAN_NS);
        spec.faults.push(match rng.below(4) {
            0 => Fault::CutLink { agent, at_ns },
            1 => Fault::PowerLoss { agent, above: 0, off_ns: rng.below(SPAN_NS), at_ns },
            2 if agent > 0 => first_calls(&mut rng, agent),
            _ => Fault::KillAgent { agent, at_ns },
        });
    }
    spec
}

fn fierce_fault(rng: &mut Rng, spec: &WorldSpec, at_ns: u64) -> Fault {
    let one = |rng: &mut Rng| rng.below(u64::from(spec.agents)) as u32;
    let agent = one(rng);
    let for_ns = rng.below(2 * SPAN_NS);
    match rng.below(14) {
        0..=1 => Fault::KillAgent { agent, at_ns },
        2 => Fault::CutLink { agent, at_ns },
        3..=4 => Fault::SilenceLink { agent, at_ns },
        5..=7 => {
            let above = if rng.chance(500) { 2 } else { 0 };
            let off_ns = if rng.chance(300) { u64::MAX } else { for_ns };
            Fault::PowerLoss { agent, above, off_ns, at_ns }
        }
        8..=9 => {
            let to = if rng.chance(500) { 0 } else { one(rng) };
            Fault::Wall { from: agent, to, is_both: rng.chance(500), for_ns, at_ns }
        }
        // The agent is not stopped forever: without jobs, nothing waits for the agent and notices that it is stopped.
        10 => Fault::StopAgent { agent, for_ns: 1 + rng.below(6 * SPAN_NS), at_ns },
        11 => Fault::Revive { at_ns },
        _ => job_fault(rng, spec),
    }
}

/// A job of any kind.
fn job(rng: &mut Rng, agents: u32) -> JobPlan {
    let mut nodes: Vec<u32> = (0..agents).filter(|_| rng.chance(400)).collect();
    if nodes.is_empty() {
        nodes.push(rng.below(u64::from(agents)) as u32);
    }
    if rng.chance(300) {
        nodes.reverse();
    }
    let ppn = rng.between(1, 3) as u32;
    let mut job = JobPlan::even(nodes, ppn, Script::default());
    set_program(rng, &mut job);
    set_input(rng, &mut job);
    let longest_ns = if rng.chance(200) { 1_000_000_000 } else { 5_000_000 };
    prepend(&mut job, &[Step::Compute { ns: rng.below(longest_ns) }]);
    job.options.exchange.scheme = draw_exchange(rng.draw());
    job.options.exchange.early_wireup = draw_early_wireup(rng.draw());
    job.options.stdio.label = rng.chance(200);
    job.options.stdio.split_output = rng.chance(200);
    job.options.profile = rng.chance(100);
    job.options.stall_report_ns = if rng.chance(200) { rng.between(1_000_000, 1_000_000_000) } else { 0 };
    job.at_ns = if rng.chance(300) { 0 } else { rng.below(SPAN_NS) };
    job.wait_ns = if rng.chance(300) { rng.below(500_000_000) } else { 0 };
    job.launcher_dies_ns = rng.chance(100).then(|| rng.below(200_000_000));
    job
}

/// Gives a job its programs; in a quarter of the jobs, one rank misbehaves.
fn set_program(rng: &mut Rng, job: &mut JobPlan) {
    let size = job.size();
    let misbehaves = rng.chance(250);
    match rng.below(6) {
        0..=1 => job.apps = vec![(size, Rc::new(Program::draw(rng).script(rng)))],
        2..=3 => collectives::set_program(rng, job),
        4 => {
            job.apps = vec![(size, Rc::new(collectives::group_script(rng)))];
            job.options.pmi.version = PmiVersion::Groups;
        }
        _ => {
            modex::set_program(rng, job);
            if misbehaves {
                job.timeout_ns = Some(TIMEOUT_NS);
                modex::add_misbehaviour(rng, job);
            }
            return;
        }
    }
    let rank = rng.below(u64::from(size)) as u32;
    match rng.below(5) {
        _ if !misbehaves => {}
        0 => {
            job.insert(rank, 0, &[Step::OnlyRank { rank }, FLOOD]);
            job.reads = rng.chance(500);
        }
        1 => job.insert(rank, 0, &[Step::OnlyRank { rank }, Step::Hang]),
        _ => {
            add_misbehaviour(rng, job);
            job.timeout_ns = Some(TIMEOUT_NS);
        }
    }
}

/// Gives some jobs standard input, which some of these jobs read.
fn set_input(rng: &mut Rng, job: &mut JobPlan) {
    if rng.chance(700) {
        return;
    }
    let is_one = rng.chance(500);
    job.options.stdio.stdin = if is_one { StdinTarget::One(Rank(0)) } else { StdinTarget::All };
    job.stdin_bytes = if rng.chance(500) { rng.below(1000) } else { rng.below(200_000) };
    if rng.chance(700) {
        let reads: &[Step] = if is_one { &[Step::OnlyRank { rank: 0 }, Step::ReadStdin] } else { &[Step::ReadStdin] };
        prepend(job, reads);
    }
}

/// Inserts steps that all programs of a job do first.
fn prepend(job: &mut JobPlan, steps: &[Step]) {
    for (_, script) in &mut job.apps {
        *script = Rc::new(Script { steps: [steps, &script.steps].concat().into(), ..(**script).clone() });
    }
}
