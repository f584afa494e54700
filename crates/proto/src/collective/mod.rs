//! The collectives of a job on one node.
//!
//! `epochs` numbers them and keeps them in order; `exchange` is one of them; `groups` are barriers of some ranks, which have no numbers.
//! `entry` is what goes in and comes out, `ticket` how a rank is answered. How blocks reach all nodes is `wireup_coll`'s.

mod entry;
mod epochs;
mod exchange;
pub mod groups;
pub mod ticket;

pub use entry::{Do, Entering, Entry, Finished, Outcome, Site};
pub use epochs::Exchanges;
