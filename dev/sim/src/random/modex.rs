//! Worlds whose ranks use PMIx: fences of all ranks and of some, direct gets, groups, published keys; and faults.

use super::collectives::{collective_world, strike_with};
use crate::RunReport;
use crate::fault_injection::Fault;
use crate::rng::Rng;
use crate::servers::NoServer;
use crate::spec::{JobPlan, WorldSpec};
use crate::workload::{PmixStep, Script, Step, Who, Whose};
use std::rc::Rc;
use wireup_wire::job::{Modex, PmiFlavour, PortRange, RankPorts};

/// A random world without faults.
pub fn modex_world(seed: u64) -> WorldSpec {
    let rng = &mut Rng::stream(seed, "modex");
    let mut world = collective_world(seed).job(|job| set_program(rng, job));
    world.servers.are_deaf = rng.chance(200);
    world.servers.are_stubborn = rng.chance(100);
    let ports = rng.chance(300).then_some(RankPorts { range: PortRange { low: 10_000, high: 20_000 }, listen: true });
    world.options(|options| {
        options.process.rank_ports = ports;
        options.stall_report_ns = if rng.chance(300) { rng.between(1_000_000, 1_000_000_000) } else { 0 };
    })
}

/// Makes all ranks of a job PMIx clients.
pub(super) fn set_program(rng: &mut Rng, job: &mut JobPlan) {
    job.apps = vec![(job.size(), Rc::new(script(rng)))];
    job.options.pmi.flavour = PmiFlavour::Pmix;
    job.options.pmi.modex = *rng.pick(&[Modex::Auto, Modex::Full, Modex::Direct]);
}

/// The PMIx world of `seed` with faults; `calm` is the run without faults.
pub fn with_faults(seed: u64, calm: &RunReport) -> WorldSpec {
    let rng = &mut Rng::stream(seed, "modex faults");
    let world = modex_world(seed);
    let agents = u64::from(world.agents);
    if rng.chance(250) {
        let (agent, at_ns) = (rng.below(agents) as u32, rng.below(calm.elapsed_ns + 1));
        let how = *rng.pick(&[NoServer::Fails, NoServer::Dies, NoServer::Garbage, NoServer::Silent]);
        let fault = match rng.below(3) {
            0 => Fault::NoServer { agent, how },
            1 => Fault::OtherLibrary { agent },
            _ => Fault::KillServer { agent, at_ns },
        };
        return WorldSpec { faults: vec![fault], ..world };
    }
    strike_with(rng, world, calm, add_misbehaviour)
}

/// Makes one rank misbehave.
pub(super) fn add_misbehaviour(rng: &mut Rng, job: &mut JobPlan) {
    let rank = rng.below(u64::from(job.size())) as u32;
    let script = job.script_of(rank).clone();
    let at = rng.between(1, script.steps.len() as u64 - 2) as usize;
    let only = Step::OnlyRank { rank };
    if matches!(script.steps[at - 1], Step::OnlyRank { .. }) {
        // `OnlyRank` applies only to the step after it, so nothing may be inserted between the two.
        return;
    }
    let fault: &[Step] = match rng.below(6) {
        0 => &[Step::Exit { code: 0 }],
        1 => &[Step::Exit { code: 7 }],
        2 => &[Step::Die { signal: 11 }],
        3 => &[Step::Pmix(PmixStep::Abort { code: 9 })],
        _ => &[Step::Pmix(PmixStep::Finalize), Step::Exit { code: 0 }],
    };
    let fault: Vec<Step> = fault.iter().flat_map(|step| [only, *step]).collect();
    job.insert(rank, at, &fault);
}

fn script(rng: &mut Rng) -> Script {
    use PmixStep::{Commit, Fence, Get, Group, LookUp, Procs, Publish, Watch};
    let pmix = Step::Pmix;
    let mut steps = vec![pmix(PmixStep::Init), pmix(Commit { bytes: 0 })];
    if rng.chance(200) {
        steps.push(pmix(Watch));
    }
    let mut published = false;
    for _ in 0..rng.between(1, 8) {
        let alike = Who::Alike(rng.between(1, 6) as u16);
        let who = *rng.pick(&[Who::World, Who::World, Who::Node, alike, alike]);
        let timeout_s = rng.chance(100).then_some(1);
        let whose = *rng.pick(&[Whose::All, Whose::Neighbours, Whose::Random(3), Whose::Rank(0)]);
        match rng.below(12) {
            0 => steps.push(Step::Compute { ns: rng.below(3_000_000_000) }),
            1 => steps.push(pmix(Commit { bytes: 0 })),
            2..=5 => steps.push(pmix(Fence { who, collect: rng.chance(600), timeout_s })),
            6..=7 => steps.push(pmix(Get { whose, key: None })),
            8 => steps.push(pmix(Group { who, tag: rng.below(3) as u8, timeout_s })),
            9 if !published => {
                published = true;
                steps.push(pmix(Publish));
            }
            9 => steps.push(pmix(LookUp { whose })),
            10 => steps.push(pmix(Procs)),
            _ => steps.push(pmix(Fence { who: Who::World, collect: true, timeout_s: None })),
        }
    }
    if rng.chance(300) {
        steps.push(Step::Compute { ns: rng.below(1_000_000_000) });
    }
    steps.extend([pmix(PmixStep::Finalize), Step::Exit { code: 0 }]);
    Script::plain(&steps)
}
