//! Small random worlds: size, timing, programs, and faults at any moment of the run.

pub mod collectives;
pub mod modex;
pub mod sessions;

use crate::fault_injection::{Fault, NoStart};
use crate::remote::Remote;
use crate::rng::Rng;
use crate::spec::{Delay, JobPlan, Timing, WorldSpec};
use crate::workload::{Dialect, Disposition, Script, Step, Whose};
use crate::{RunReport, run};
use std::rc::Rc;
use wireup_wire::ids::Rank;
use wireup_wire::job::{Block, EarlyWireup, ExchangeScheme, StdinTarget};
use wireup_wire::peer::AgentTransport;

/// Maximum bytes of lines that one `Write` step writes: enough to fill pipes and windows in some runs.
const WRITE_BYTES_MAX: u64 = 1 << 20;

/// Time limit of a job with a rank that may hang.
const MISBEHAVIOUR_TIMEOUT_NS: u64 = 30_000_000_000;

/// A random world without faults.
pub fn world(seed: u64) -> WorldSpec {
    let rng = &mut Rng::stream(seed, "random world");
    let nodes = rng.between(1, 9) as u32;
    let blocks = draw_blocks(rng, nodes);
    let slots: u32 = blocks.iter().map(|block| block.nodes * block.ppn).sum();
    let size = rng.between(1, u64::from(slots) + 2) as u32;
    let program = Program::draw(rng);
    let mut apps = vec![(size, Rc::new(program.script(rng)))];
    if size > 1 && rng.chance(300) {
        let first = rng.between(1, u64::from(size) - 1) as u32;
        apps = vec![(first, apps[0].1.clone()), (size - first, Rc::new(program.script(rng)))];
    }
    let stdin = if rng.chance(700) {
        StdinTarget::None
    } else if rng.chance(500) {
        StdinTarget::All
    } else {
        StdinTarget::One(Rank(rng.below(u64::from(size)) as u32))
    };
    let root_is_node = rng.chance(800);
    let fanout = rng.between(1, 4) as u32;
    let mut job = JobPlan { blocks, apps, ..JobPlan::even(0..nodes, 1, Script::default()) };
    job.stdin_bytes = if rng.chance(500) { rng.below(1000) } else { rng.below(2 << 20) };
    let options = &mut job.options;
    options.stdio.stdin = stdin;
    options.stdio.label = rng.chance(300);
    options.stdio.split_output = rng.chance(200);
    options.profile = rng.chance(300);
    options.stall_report_ns = if rng.chance(200) { rng.between(1_000_000, 1_000_000_000) } else { 0 };
    options.exchange.scheme = draw_exchange(seed);
    options.exchange.early_wireup = draw_early_wireup(seed);
    let (timing, transport) = (draw_timing(rng), draw_transport(seed));
    one_job(
        WorldSpec { fanout, timing, transport, ..WorldSpec::even(seed, nodes, 1, Script::default()) },
        job,
        root_is_node,
    )
}

/// A world with this job on all nodes. The root's host is a node of the job, or an extra host above all nodes.
fn one_job(world: WorldSpec, mut job: JobPlan, root_is_node: bool) -> WorldSpec {
    let above = u32::from(!root_is_node);
    job.nodes.iter_mut().for_each(|agent| *agent += above);
    WorldSpec { agents: world.agents + above, jobs: vec![job], ..world }
}

/// A world whose agents are on separate hosts, some of which have problems.
pub fn remote_world(seed: u64) -> WorldSpec {
    on_hosts(seed, "remote hosts", |rng, calm, timeout_ns| Remote::draw(rng, calm.agents, calm.fanout, timeout_ns))
}

/// A world whose agents are started by a batch system, on hosts some of which have problems.
pub fn step_world(seed: u64) -> WorldSpec {
    on_hosts(seed, "allocation", |rng, calm, timeout_ns| Remote::draw_allocation(rng, calm.agents, timeout_ns))
}

fn on_hosts(seed: u64, stream: &str, draw: impl Fn(&mut Rng, &WorldSpec, u64) -> Remote) -> WorldSpec {
    let rng = &mut Rng::stream(seed, stream);
    let calm = world(seed);
    let start_timeout_ns = *rng.pick(&[10_000_000_000, 60_000_000_000]);
    let remote = draw(rng, &calm, start_timeout_ns);
    WorldSpec { start_timeout_ns, remote: Some(remote), event_max: 5_000_000, ..calm }
}

/// The step world of `seed` with faults, including faults of the step.
pub fn step_with_faults(seed: u64) -> WorldSpec {
    let rng = &mut Rng::stream(seed, "step faults");
    strike_hosts(rng, step_world(seed), 300, |rng, world, horizon_ns| {
        let at_ns = rng.below(horizon_ns);
        match rng.below(4) {
            0 => Fault::CancelStep { at_ns },
            1 => Fault::KillStep { at_ns },
            _ => Fault::draw(rng, world.agents, world.jobs[0].size(), horizon_ns),
        }
    })
}

/// The remote world of `seed` with faults, most of them while agents start.
pub fn remote_with_faults(seed: u64) -> WorldSpec {
    let rng = &mut Rng::stream(seed, "remote faults");
    strike_hosts(rng, remote_world(seed), 500, |rng, world, horizon_ns| match (rng.below(4), world.agents) {
        (0, agents @ 2..) => {
            let agent = rng.between(1, u64::from(agents) - 1) as u32;
            Fault::SilenceLink { agent, at_ns: rng.below(horizon_ns) }
        }
        (_, agents) => Fault::draw(rng, agents, world.jobs[0].size(), horizon_ns),
    })
}

/// A world with some faults: in `start_permille` of 1,000 worlds they happen before the start timeout, in the others
/// during the run.
fn strike_hosts(
    rng: &mut Rng,
    mut stormy: WorldSpec,
    start_permille: u32,
    draw: impl Fn(&mut Rng, &WorldSpec, u64) -> Fault,
) -> WorldSpec {
    let calm = run(stormy.clone());
    let horizon_ns = if rng.chance(start_permille) { stormy.start_timeout_ns } else { calm.elapsed_ns + 1_000_000 };
    for _ in 0..rng.between(1, 3) {
        let fault = draw(rng, &stormy, horizon_ns);
        stormy.faults.push(fault);
    }
    stormy
}

/// Runs a random world twice: without faults, to measure its duration, then with faults at any moment of that time.
/// Returns both reports.
pub fn run_with_faults(seed: u64) -> [RunReport; 2] {
    let calm = run(world(seed));
    let stormy = run(with_faults(seed, calm.elapsed_ns));
    [calm, stormy]
}

/// The world of `seed` with faults, given its duration without faults.
pub fn with_faults(seed: u64, elapsed_ns: u64) -> WorldSpec {
    let calm = world(seed);
    let rng = &mut Rng::stream(seed, "random faults");
    let horizon_ns = elapsed_ns + elapsed_ns / 10 + 1;
    let count = if rng.chance(700) { 1 } else { rng.between(2, 4) };
    let mut stormy = calm;
    for _ in 0..count {
        if rng.chance(250) {
            add_misbehaviour(rng, &mut stormy.jobs[0]);
        } else {
            let fault = Fault::draw(rng, stormy.agents, stormy.jobs[0].size(), horizon_ns);
            stormy.faults.push(fault);
        }
    }
    // These faults use a random stream of their own, so that the other faults of a seed do not change.
    let beside = &mut Rng::stream(seed, "faults beside the tree");
    let scheme = stormy.jobs[0].options.exchange.scheme;
    if matches!(scheme, ExchangeScheme::Direct(_)) && beside.chance(300) {
        stormy.faults.push(Fault::draw_direct(beside, stormy.agents, horizon_ns));
    }
    if rng.chance(100) {
        stormy.jobs[0].timeout_ns = Some(rng.below(horizon_ns));
    }
    stormy
}

/// Makes one rank of a program misbehave, somewhere in its script.
fn add_misbehaviour(rng: &mut Rng, job: &mut JobPlan) {
    let rank = rng.below(u64::from(job.size())) as u32;
    let script = job.script_of(rank).clone();
    let fault = match rng.below(9) {
        0 => Step::Exit { code: 0 },
        1 => Step::Exit { code: rng.between(1, 255) as u8 },
        2 => Step::Die { signal: *rng.pick(&[6, 9, 11]) },
        3 => Step::Hang,
        4 => Step::SendGarbage,
        5 => Step::HalfRequest,
        6 => Step::CloseClient,
        7 => Step::Finalize,
        _ => Step::Abort { code: rng.below(256) as u8 },
    };
    let at = rng.below(script.steps.len() as u64) as usize;
    let is_up = script.steps[..at].contains(&Step::Init) && !script.steps[..at].contains(&Step::Finalize);
    if matches!(fault, Step::Abort { .. } | Step::Finalize) && !is_up {
        return;
    }
    if script.steps[..at].last().is_some_and(|before| matches!(before, Step::OnlyRank { .. })) {
        // `OnlyRank` applies only to the step after it, so nothing may be inserted between the two.
        return;
    }
    let only = Step::OnlyRank { rank };
    match fault {
        // The rank finalizes, so that it takes no part in the fences after that, and exits afterwards.
        Step::Finalize => job.insert(rank, at, &[only, fault, only, Step::Exit { code: 0 }]),
        _ => job.insert(rank, at, &[only, fault]),
    }
    // A rank that hangs does not end the job, so the job needs a time limit.
    job.timeout_ns = Some(MISBEHAVIOUR_TIMEOUT_NS);
}

fn draw_blocks(rng: &mut Rng, nodes: u32) -> Vec<Block> {
    let ppn = rng.between(1, 5) as u32;
    match rng.below(4) {
        0 => vec![Block { first_node: 0, nodes, ppn: 1 }; ppn as usize],
        1 if nodes > 1 => {
            let first = rng.between(1, u64::from(nodes) - 1) as u32;
            let rest = Block { first_node: first, nodes: nodes - first, ppn: rng.between(1, 5) as u32 };
            vec![Block { first_node: 0, nodes: first, ppn }, rest]
        }
        _ => vec![Block { first_node: 0, nodes, ppn }],
    }
}

/// Draws the scheme of exchanges, from a random stream of its own, so that everything else that a seed draws does not
/// change.
fn draw_exchange(seed: u64) -> ExchangeScheme {
    use ExchangeScheme::{Auto, Tree};
    let (ring, bruck) = (ExchangeScheme::RING, ExchangeScheme::BRUCK);
    *Rng::stream(seed, "exchange").pick(&[Auto, Auto, Tree, ring, ring, bruck, bruck])
}

/// Draws how agents that are not neighbours reach each other.
fn draw_transport(seed: u64) -> AgentTransport {
    use AgentTransport::{Auto, Tcp, Tree, Ucx};
    *Rng::stream(seed, "transport").pick(&[Auto, Auto, Tcp, Tree, Ucx])
}

fn draw_early_wireup(seed: u64) -> EarlyWireup {
    *Rng::stream(seed, "early wireup").pick(&[EarlyWireup::Auto, EarlyWireup::Yes, EarlyWireup::No])
}

fn draw_timing(rng: &mut Rng) -> Timing {
    let slow = |rng: &mut Rng, max: u64| Delay::between(1, max << rng.below(8));
    Timing {
        link: slow(rng, 50_000),
        link_bytes_per_us: 1 << rng.between(2, 14),
        cut_permille: rng.below(500) as u32,
        batch_permille: rng.below(800) as u32,
        agent_start: slow(rng, 1_000_000),
        handshake: slow(rng, 500_000),
        spawn: slow(rng, 1_000_000),
        report: slow(rng, 50_000),
        client: slow(rng, 20_000),
        think: slow(rng, 50_000),
        stdio: slow(rng, 50_000),
        terminal: slow(rng, 50_000),
        costs: None,
    }
}

/// Properties that all programs of a job share: the number of fences, and the pairs that are put.
struct Program {
    speaks_pmi: bool,
    rounds: u16,
    value_bytes: u16,
}

impl Program {
    fn draw(rng: &mut Rng) -> Self {
        let value_bytes = *rng.pick(&[1, 8, 32, 32, 200, 1000]);
        Program { speaks_pmi: rng.chance(850), rounds: rng.between(0, 3) as u16, value_bytes }
    }

    fn script(&self, rng: &mut Rng) -> Script {
        let value_bytes = self.value_bytes;
        let mut steps = Vec::new();
        let detour = |rng: &mut Rng, steps: &mut Vec<Step>| match rng.below(6) {
            0 => {
                let line_bytes = rng.between(10, 3000) as u16;
                let bytes = if rng.chance(900) { 2000 } else { WRITE_BYTES_MAX };
                let lines = rng.below(bytes / u64::from(line_bytes) + 2) as u32;
                steps.push(Step::Write { stream: rng.between(1, 2) as u8, lines, line_bytes });
            }
            1 => steps.push(Step::Compute { ns: rng.below(20_000_000) }),
            _ => {}
        };
        detour(rng, &mut steps);
        if self.speaks_pmi {
            steps.push(Step::Init);
            for pair in 0..self.rounds {
                detour(rng, &mut steps);
                steps.push(Step::Put { pair, value_bytes });
                steps.push(Step::Fence);
                detour(rng, &mut steps);
                let whose = *rng.pick(&[Whose::All, Whose::Neighbours, Whose::Random(3), Whose::Rank(0)]);
                steps.push(Step::Get { pair, value_bytes, whose });
                if rng.chance(300) {
                    steps.push(Step::GetMissing);
                }
            }
            steps.push(Step::Finalize);
        }
        detour(rng, &mut steps);
        steps.push(Step::Exit { code: 0 });
        let dialect = *rng.pick(&[Dialect::Pmi1, Dialect::Pmi2]);
        let disposition = match rng.below(8) {
            0 => Disposition::Ignore,
            1 => Disposition::Handler { after_ns: rng.below(100_000_000), code: rng.below(3) as u8 },
            _ => Disposition::Default,
        };
        Script::new(dialect, &steps).with_disposition(disposition)
    }
}

impl Fault {
    /// A random fault of direct links.
    pub fn draw_direct(rng: &mut Rng, agents: u32, horizon_ns: u64) -> Fault {
        let agent = rng.below(u64::from(agents)) as u32;
        if rng.chance(700) { Fault::CutDirect { agent, at_ns: rng.below(horizon_ns) } } else { Fault::NoDial { agent } }
    }

    /// A random fault in the first `horizon_ns` of a world with `agents` agents and `ranks` ranks.
    pub fn draw(rng: &mut Rng, agents: u32, ranks: u32, horizon_ns: u64) -> Fault {
        let at_ns = rng.below(horizon_ns);
        let rank = rng.below(u64::from(ranks)) as u32;
        let agent = rng.below(u64::from(agents)) as u32;
        // The root has no parent link and nothing starts it, so a fault of a parent link or of a start happens to
        // another agent; if there is no other agent, a rank is killed instead.
        let below_root = (agents > 1).then(|| rng.between(1, u64::from(agents) - 1) as u32);
        match (rng.below(12), below_root) {
            (0..=1, Some(agent)) => Fault::CutLink { agent, at_ns },
            (2..=3, _) => Fault::KillAgent { agent, at_ns },
            (4, _) => Fault::KillKeeper { agent, at_ns },
            (5, Some(agent)) => Fault::NoStart { agent, how: draw_no_start(rng) },
            (6, _) => Fault::StopTerminal { at_ns, for_ns: rng.between(1_000_000, 2_000_000_000) },
            (7, _) => Fault::Signal { signal: *rng.pick(&[1, 2, 2, 2, 3, 10, 15, 28]), at_ns },
            (8, _) => Fault::NoExec { rank, errno: *rng.pick(&[2, 13]) },
            _ => Fault::KillRank { rank, at_ns },
        }
    }
}

fn draw_no_start(rng: &mut Rng) -> NoStart {
    match rng.below(3) {
        0 => NoStart::NoShell,
        1 => NoStart::ShellFails { code: *rng.pick(&[1, 127, 255]) },
        _ => NoStart::Silence,
    }
}
