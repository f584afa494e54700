//! Fences of PMIx clients, and groups, which are fences with a name.
//!
//! A fence of the whole job is an exchange (`crate::collective`) with separate epochs; a fence of some ranks is a
//! barrier that carries data (`crate::collective::groups`). A bit of its frames distinguishes it from PMI's barriers, a
//! tag from those of other groups. The server process sends its request when all members on its node have entered, so
//! the node enters for all of them at once. `whole` and `subsets` are the two kinds.
//!
//! If a member has departed, a fence of the whole job ends the job, as with PMI, since that best reports which rank
//! left which others waiting. A fence of some ranks is answered `RankGone`: the other members may be a separate program
//! that can continue. The departed rank's node contributes `NodeContribution::Gone` in its place.
//!
//! Timeouts: if one rank's timeout for a fence of the whole job expires, the fence ends for all ranks (`Up::GiveUp`,
//! `Down::Over`), so that all nodes count epochs in the same way. And while a rank with a timeout waits, a departed
//! rank does not end the job (`Up::Impatient`). If a fence of some ranks times out, it ends for that node only; its
//! later result is not reported.

pub mod subsets;
pub mod whole;

use crate::collective::CollectiveConfig;
use crate::time::Instant;
pub use subsets::Subsets;
pub use whole::Whole;
use wireup_wire::collective::Collective;
use wireup_wire::ids::Epoch;
use wireup_wire::peer::Departed;

pub struct Fences {
    pub whole: Whole,
    pub subsets: Subsets,
}

impl Fences {
    pub fn new(site: CollectiveConfig, children: usize) -> Fences {
        Fences { whole: Whole::new(site), subsets: Subsets::new(children) }
    }

    /// A fence of the whole job that cannot complete, and how many local ranks wait in it.
    pub fn broken(&self) -> Option<((Departed, Epoch, Collective), u32)> {
        Some((self.whole.broken()?, self.whole.exchanges.arrived()))
    }

    /// The missing ranks were requested.
    pub fn on_asked(&mut self) {
        self.whole.exchanges.on_asked();
        self.subsets.barriers.groups.on_asked();
    }

    /// When a wait of `after_ns` expires.
    pub fn stall_deadline(&self, after_ns: u64) -> Option<Instant> {
        let groups = self.subsets.barriers.groups.stall_deadline(after_ns);
        self.whole.exchanges.stall_deadline(after_ns).into_iter().chain(groups).min()
    }
}
