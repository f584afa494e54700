//! Fences of PMIx clients, and groups, which are fences with a name.
//!
//! A fence of the whole job is an exchange (`crate::collective`) with epochs of its own; a fence of some ranks is a barrier that
//! brings data along (`crate::collective::groups`), told apart from PMI's by a bit of its frames, from other groups' by a tag. The server
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

use crate::collective::Site;
pub use subsets::Subsets;
pub use whole::Whole;

pub struct Fences {
    pub whole: Whole,
    pub subsets: Subsets,
}

impl Fences {
    pub fn new(site: Site, children: usize) -> Fences {
        Fences { whole: Whole::new(site), subsets: Subsets::new(children) }
    }
}
