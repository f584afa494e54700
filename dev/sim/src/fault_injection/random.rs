//! Random faults of a run of one job.

use super::{Fault, NoStart};
use crate::rng::Rng;

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
