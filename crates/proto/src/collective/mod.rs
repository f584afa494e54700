//! The collectives of a job on one node.
//!
//! `epochs` numbers them and keeps them in order; `exchange` is a single collective; `groups` are barriers of some ranks, which are not
//! numbered. `entry` has the inputs and outputs, `ticket` says how to answer a rank. How blocks reach all nodes is up to `wireup_coll`.

mod entry;
mod epochs;
mod exchange;
pub mod groups;
pub mod ticket;

pub use entry::{Do, Entering, Entry, Finished, Outcome, Site};
pub use epochs::Exchanges;
