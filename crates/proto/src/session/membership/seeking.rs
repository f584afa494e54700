//! How long an agent looks for a new parent, and how often.

use crate::time::Instant;

/// How long an agent without a parent looks for one (ns). Chosen: some attempts at each of its ancestors.
pub const REJOIN_NS_MAX: u64 = 5_000_000_000;
/// The pause between two rounds (ns). Chosen: ancestors notice a loss within that, where it is noticed at once.
pub const PAUSE_NS: u64 = 200_000_000;

/// This agent has no parent.
pub struct Seeking {
    pub by: Instant,
    pub again_at: Option<Instant>,
}

impl Seeking {
    pub fn deadline(&self) -> Option<Instant> {
        self.again_at
    }
}
