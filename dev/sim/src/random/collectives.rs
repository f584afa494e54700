//! Worlds for collectives: many in progress, of all kinds and sizes, with every scheme, and faults at the same time;
//! and worlds for barriers of groups.

use super::{add_misbehaviour, draw_blocks, draw_early_wireup, draw_timing, draw_transport, one_job};
use crate::RunReport;
use crate::fault_injection::Fault;
use crate::rng::Rng;
use crate::spec::{JobPlan, WorldSpec};
use crate::workload::{BarrierGroup, Dialect, Lens, Script, Speaks, Step, Which, Who, Whose};
use std::rc::Rc;
use wireup_wire::job::{ExchangeScheme, PmiFence, PmiVersion};

/// Maximum bytes of the values of one allgather, for all ranks together. Chosen: one allgather takes a fraction of a
/// second of real time.
const ALLGATHER_BYTES_MAX: u64 = 2 << 20;
/// Time for which ranks continue after their last collective, so that nothing is in progress any more (ns).
const QUIET_NS: u64 = 500_000_000;

/// A random world without faults.
pub fn collective_world(seed: u64) -> WorldSpec {
    let rng = &mut Rng::stream(seed, "collectives");
    let nodes = rng.between(1, 9) as u32;
    let mut blocks = draw_blocks(rng, nodes);
    let mut spread = nodes;
    if rng.chance(250) {
        // Some nodes without ranks, in the middle and at the end.
        blocks.iter_mut().for_each(|block| block.first_node += block.first_node / 2);
        spread = nodes + nodes / 2 + rng.below(3) as u32;
    }
    let slots: u32 = blocks.iter().map(|block| block.nodes * block.ppn).sum();
    let size = rng.between(1, u64::from(slots) + 2) as u32;
    let mut job =
        JobPlan { blocks, apps: vec![(size, Rc::default())], ..JobPlan::even(0..spread, 1, Script::default()) };
    set_program(rng, &mut job);
    use ExchangeScheme::{Auto, Tree};
    let (ring, bruck) = (ExchangeScheme::RING, ExchangeScheme::BRUCK);
    let fanout = rng.between(1, 4) as u32;
    let root_is_node = rng.chance(800);
    job.options.profile = rng.chance(300);
    let (timing, transport) = (draw_timing(rng), draw_transport(seed));
    job.options.stall_report_ns = *rng.pick(&[0, 1_000_000_000]);
    job.options.exchange.scheme = *rng.pick(&[Auto, Tree, ring, ring, bruck, bruck]);
    job.options.exchange.early_wireup = draw_early_wireup(seed);
    // Compression uses a random stream of its own, so that everything else that a seed draws does not change.
    job.options.exchange.compress_bytes_min = *Rng::stream(seed, "compress").pick(&[0, 0, 1, 200]);
    one_job(
        WorldSpec { fanout, timing, transport, ..WorldSpec::even(seed, spread, 1, Script::default()) },
        job,
        root_is_node,
    )
}

/// Gives a job programs that all do the same collectives.
pub(super) fn set_program(rng: &mut Rng, job: &mut JobPlan) {
    let size = job.size();
    let plan = Plan::draw(rng, size);
    let is_lazy = rng.chance(300) && !plan.overwrites;
    job.options.pmi.fence = if is_lazy { PmiFence::Lazy } else { PmiFence::Strict };
    job.apps = vec![(size, Rc::new(plan.script(rng)))];
    if size > 1 && rng.chance(400) {
        let first = rng.between(1, u64::from(size) - 1) as u32;
        job.apps = vec![(first, job.apps[0].1.clone()), (size - first, Rc::new(plan.script(rng)))];
    }
}

/// The collective world of `seed` with faults, most of them while frames of an exchange are in flight; `calm` is the
/// run without faults.
pub fn with_faults(seed: u64, calm: &RunReport) -> WorldSpec {
    strike(&mut Rng::stream(seed, "collective faults"), collective_world(seed), calm)
}

/// A world with random faults.
pub(super) fn strike(rng: &mut Rng, stormy: WorldSpec, calm: &RunReport) -> WorldSpec {
    strike_with(rng, stormy, calm, add_misbehaviour)
}

/// A world with random faults, in which `add_misbehaviour` makes a rank misbehave.
pub(super) fn strike_with(
    rng: &mut Rng,
    mut stormy: WorldSpec,
    calm: &RunReport,
    add_misbehaviour: impl Fn(&mut Rng, &mut JobPlan),
) -> WorldSpec {
    let count = if rng.chance(750) { 1 } else { rng.between(2, 3) };
    for _ in 0..count {
        if rng.chance(300) {
            add_misbehaviour(rng, &mut stormy.jobs[0]);
            continue;
        }
        let at_ns = moment(rng, calm);
        let rank = rng.below(u64::from(stormy.jobs[0].size())) as u32;
        let agents = stormy.agents;
        let agent = rng.below(u64::from(agents)) as u32;
        let below_root = (agents > 1).then(|| rng.between(1, u64::from(agents) - 1) as u32);
        let fault = match (rng.below(10), below_root) {
            (0..=1, Some(agent)) => Fault::KillAgent { agent, at_ns },
            (2, Some(agent)) => Fault::CutLink { agent, at_ns },
            (3, Some(agent)) => Fault::SilenceLink { agent, at_ns },
            (4, _) if calm.direct_links > 0 => Fault::CutDirect { agent, at_ns },
            (5, _) if calm.direct_links > 0 => Fault::SilenceDirect { agent, at_ns },
            (6, _) => Fault::KillKeeper { agent, at_ns },
            (7, _) if calm.direct_links > 0 && rng.chance(300) => Fault::NoDial { agent },
            (8, _) if rng.chance(200) => Fault::KillAgent { agent: 0, at_ns },
            _ => Fault::KillRank { rank, at_ns },
        };
        stormy.faults.push(fault);
    }
    stormy
}

/// A time when an exchange is in progress, if there is one: close to the time at which a frame was sent.
fn moment(rng: &mut Rng, calm: &RunReport) -> u64 {
    if calm.checks.exchange_ns.is_empty() || rng.chance(100) {
        return rng.below(calm.elapsed_ns + 1);
    }
    let sent_ns = *rng.pick(&calm.checks.exchange_ns);
    sent_ns.saturating_sub(rng.below(50_000)) + rng.below(150_000)
}

/// Properties that all programs of a job share: their collectives in order, and the contributions.
struct Plan {
    rounds: Vec<Round>,
    /// Whether there are only collectives that clients of the text protocol can do.
    for_text: bool,
    /// Whether all rounds put the same pairs, so that no rank may put a pair before all ranks have read the pair's old
    /// value. Otherwise each round puts new pairs.
    overwrites: bool,
    quiet: bool,
}

#[derive(Clone, Copy)]
enum Round {
    /// A fence, before which pairs `first..end` are put.
    Fence {
        first: u16,
        end: u16,
        value_bytes: u16,
    },
    Allgather(Lens),
    Ring {
        value_bytes: u16,
    },
}

impl Plan {
    fn draw(rng: &mut Rng, size: u32) -> Self {
        let for_text = rng.chance(300);
        let mut pairs = 0;
        let overwrites = rng.chance(300);
        let rounds = (0..rng.between(1, 7)).map(|_| match rng.below(if for_text { 3 } else { 6 }) {
            0..=1 => {
                let puts = *rng.pick(&[0, 1, 1, 1, 2, 12]);
                let first = if overwrites { 0 } else { pairs };
                pairs += puts;
                Round::Fence { first, end: first + puts, value_bytes: *rng.pick(&[1, 32, 33, 200, 1000]) }
            }
            2 => Round::Ring { value_bytes: *rng.pick(&[1, 40, 400]) },
            _ => Round::Allgather(draw_lens(rng, size)),
        });
        let rounds = rounds.collect();
        Plan { rounds, for_text, overwrites, quiet: rng.chance(400) }
    }

    fn script(&self, rng: &mut Rng) -> Script {
        let speaks = match rng.below(3) {
            0 if self.for_text => Speaks::Text(Dialect::Pmi2),
            1 if self.for_text && !self.rounds.iter().any(|round| matches!(round, Round::Ring { .. })) => {
                Speaks::Text(Dialect::Pmi1)
            }
            _ => Speaks::Own,
        };
        let is_own = speaks == Speaks::Own;
        let mut steps = vec![Step::Init];
        // `published`: pairs of fences that the rank has waited for. `unpublished`: pairs put since then. Each pair has
        // the length of its last value.
        let (mut published, mut unpublished) = (Vec::new(), Vec::new());
        for round in &self.rounds {
            if rng.chance(150) {
                steps.push(Step::Compute { ns: rng.below(20_000_000) });
            }
            match *round {
                Round::Fence { first, end, value_bytes } => {
                    let puts = (first..end).map(|pair| (pair, value_bytes));
                    published.retain(|(pair, _)| !(first..end).contains(pair));
                    steps.extend(puts.clone().map(|(pair, value_bytes)| Step::Put { pair, value_bytes }));
                    unpublished.extend(puts);
                    if is_own {
                        steps.push(Step::StartFence);
                    } else {
                        steps.push(Step::Fence);
                        published.append(&mut unpublished);
                    }
                }
                Round::Allgather(lens) => steps.push(Step::StartAllgather { lens, shared: rng.chance(300) }),
                Round::Ring { value_bytes } => steps.push(Step::Ring { value_bytes }),
            }
            if !is_own {
                draw_gets(rng, &published, false, &mut steps);
                continue;
            }
            match rng.below(5) {
                _ if self.overwrites => steps.push(Step::Wait(Which::All)),
                0 => steps.push(Step::Wait(*rng.pick(&[Which::Oldest, Which::Newest, Which::Random]))),
                1..=2 => steps.push(Step::Wait(Which::All)),
                _ => {}
            }
            if steps.last() == Some(&Step::Wait(Which::All)) {
                published.append(&mut unpublished);
                draw_gets(rng, &published, true, &mut steps);
            }
        }
        for _ in 0..rng.below(3) {
            steps.push(Step::Wait(Which::Random));
        }
        if is_own {
            steps.push(Step::Wait(Which::All));
        }
        published.append(&mut unpublished);
        draw_gets(rng, &published, is_own, &mut steps);
        steps.push(Step::Finalize);
        if self.quiet {
            steps.push(Step::Compute { ns: QUIET_NS });
        }
        steps.push(Step::Exit { code: 0 });
        Script { speaks, ..Script::new(Dialect::Pmi2, &steps) }
    }
}

/// The length of the last value of a pair, if the pair was put.
fn known(pairs: &[(u16, u16)], pair: u16) -> Option<u16> {
    pairs.iter().rev().find(|(known, _)| *known == pair).map(|(_, value_bytes)| *value_bytes)
}

/// Adds gets or look-ups of some published pairs to `steps`.
fn draw_gets(rng: &mut Rng, published: &[(u16, u16)], may_look_up: bool, steps: &mut Vec<Step>) {
    for _ in 0..rng.below(3) {
        if published.is_empty() {
            return;
        }
        let (pair, _) = *rng.pick(published);
        let value_bytes = known(published, pair).expect("the pair is one of the published ones");
        let whose = *rng.pick(&[Whose::All, Whose::Neighbours, Whose::Random(3), Whose::Rank(0)]);
        steps.push(match may_look_up && rng.chance(700) {
            true => Step::LookUp { pair, value_bytes, whose },
            false => Step::Get { pair, value_bytes, whose },
        });
    }
    if rng.chance(100) {
        steps.push(Step::GetMissing);
    }
}

/// Draws the lengths of an allgather's values: short ones, or so long that the values of a subtree exceed the limit of
/// what is sent eagerly.
fn draw_lens(rng: &mut Rng, size: u32) -> Lens {
    let most = (ALLGATHER_BYTES_MAX / u64::from(size)).min(1 << 16) as u32;
    let max = (*rng.pick(&[1, 8, 18, 18, 32, 254, 255, 300, 6_000, 1 << 16])).min(most);
    if rng.chance(500) { Lens::Fixed(max) } else { Lens::UpTo(max) }
}

/// A world whose ranks wait in barriers of groups, between fences: the shape of the collective world of this seed, with
/// another program.
pub fn group_world(seed: u64) -> WorldSpec {
    let rng = &mut Rng::stream(seed, "groups");
    collective_world(seed).job(|job| {
        job.apps = vec![(job.size(), Rc::new(group_script(rng)))];
        job.options.pmi.version = PmiVersion::Groups;
        job.options.pmi.fence = PmiFence::Strict;
        job.options.stall_report_ns = if rng.chance(300) { rng.between(1_000_000, 1_000_000_000) } else { 0 };
    })
}

/// The group world of `seed` with faults; `calm` is the run without faults.
pub fn group_world_with_faults(seed: u64, calm: &RunReport) -> WorldSpec {
    strike(&mut Rng::stream(seed, "group faults"), group_world(seed), calm)
}

/// A program of barriers of groups, with a few fences.
pub(super) fn group_script(rng: &mut Rng) -> Script {
    let mut steps = vec![Step::Init];
    for pair in 0..rng.between(1, 8) as u16 {
        match rng.below(8) {
            0 => steps.push(Step::Compute { ns: rng.below(2_000_000_000) }),
            1 => {
                let value_bytes = 32;
                steps.push(Step::Put { pair, value_bytes });
                steps.push(Step::Fence);
                steps.push(Step::Get { pair, value_bytes, whose: Whose::Neighbours });
            }
            _ => {
                let alike = Who::Alike(rng.between(1, 6) as u16);
                let who = *rng.pick(&[Who::World, Who::Node, alike, alike, alike]);
                steps.push(Step::Barrier(BarrierGroup { who, tag: rng.below(3) as u8 }));
            }
        }
    }
    steps.extend([Step::Finalize, Step::Exit { code: 0 }]);
    Script::new(Dialect::Pmi1, &steps)
}
