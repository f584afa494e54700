//! Worlds whose ranks wait in barriers of groups, between fences, and faults at the same time.

use super::collectives::{collective_world, strike};
use crate::RunReport;
use crate::rng::Rng;
use crate::spec::WorldSpec;
use crate::workload::{BarrierGroup, Dialect, Script, Step, Who, Whose};
use std::rc::Rc;
use wireup_wire::job::{PmiFence, PmiVersion};

/// A world without faults: the shape of the collective world of this seed, with another program.
pub fn group_world(seed: u64) -> WorldSpec {
    let rng = &mut Rng::stream(seed, "groups");
    collective_world(seed).job(|job| {
        job.apps = vec![(job.size(), Rc::new(script(rng)))];
        job.options.pmi.version = PmiVersion::Groups;
        job.options.pmi.fence = PmiFence::Strict;
        job.options.stall_report_ns = if rng.chance(300) { rng.between(1_000_000, 1_000_000_000) } else { 0 };
    })
}

/// The group world of `seed` with faults; `calm` is the run without faults.
pub fn with_faults(seed: u64, calm: &RunReport) -> WorldSpec {
    strike(&mut Rng::stream(seed, "group faults"), group_world(seed), calm)
}

pub(super) fn script(rng: &mut Rng) -> Script {
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
