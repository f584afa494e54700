//! Fences of PMIx clients, and groups, which are fences with a name.
//!
//! A fence of the whole job is an exchange (`crate::exchange`) with epochs of its own; a fence of some ranks is a barrier that
//! brings data along (`crate::groups`), told apart from PMI's by a bit of its frames, from other groups' by a tag. The server
//! process speaks when all members of its node are in, so the node enters for all of them at once. `whole` and `subsets` are the two,
//! `parts` what nodes bring to them.
//!
//! A member that has departed: a fence of the whole job ends the job, as with PMI, since that says best which rank left
//! whom waiting. A fence of some ranks is answered `RankGone`: the others are a program of their own and may go on.
//! Its node contributes `Part::Gone` in its stead.
//!
//! Patience: a fence of the whole job that takes too long for one is over for all (`Up::GiveUp`, `Down::Over`), so that no node
//! counts another way than the others; so a rank that has left does not end the job while somebody waits with patience that
//! ends (`Up::Impatient`). A fence of some ranks is over for that node alone; what comes of it is not told.

mod parts;
pub mod subsets;
pub mod whole;

use crate::exchange::Site;
pub use subsets::Subsets;
pub use whole::Whole;
use wireup_wire::limits::FRAME_PAYLOAD_MAX;

/// The tag of fences; those of groups are others.
const FENCE: i32 = 0;

pub struct Fences {
    pub whole: Whole,
    pub subsets: Subsets,
}

impl Fences {
    pub fn new(site: Site, children: usize) -> Fences {
        Fences { whole: Whole::new(site), subsets: Subsets::new(children) }
    }
}

fn too_much(bytes: usize) -> String {
    format!(
        "its data is {bytes} bytes, more than {FRAME_PAYLOAD_MAX} in a message; --modex direct leaves it where it is"
    )
}
