//! The collectives of a job on one node.
//!
//! `exchanges` numbers the collectives of the whole job, keeps them in order and runs each; `groups` are barriers of
//! some ranks, which are not numbered. How blocks reach all nodes is up to `wireup_coll`. The ranks have one
//! [`Collectives`], and their PMIx servers have another.

mod exchanges;
pub mod groups;

use crate::job::facts::Facts;
use crate::time::Instant;
pub use exchanges::{Arrived, Broken, CollectiveConfig, Entry, Exchanges, Finished, Outcome, ReplyTo};
use groups::Barriers;

/// The collectives of the ranks, or of their PMIx servers: collectives of the whole job, and barriers of some ranks.
pub struct Collectives {
    pub exchanges: Exchanges,
    pub barriers: Barriers,
}

impl Collectives {
    pub fn new(facts: &Facts, config: CollectiveConfig, are_of_servers: bool) -> Self {
        Collectives { exchanges: Exchanges::new(config), barriers: Barriers::new(facts.below.len(), are_of_servers) }
    }

    /// Time at which the first collective in progress has waited for `after_ns`.
    pub fn stall_deadline(&self, after_ns: u64) -> Option<Instant> {
        let of_some = self.barriers.stall_deadline(after_ns);
        self.exchanges.stall_deadline(after_ns).into_iter().chain(of_some).min()
    }

    /// Records that the missing ranks were asked for, so that they are not asked for again.
    pub fn on_asked(&mut self) {
        self.exchanges.on_asked();
        self.barriers.on_asked();
    }
}
