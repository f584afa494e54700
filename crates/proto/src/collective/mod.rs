//! The collectives of a job on one node.
//!
//! `exchanges` numbers them, keeps them in order and runs each; `groups` are barriers of some ranks, which are not
//! numbered. `entry` has the inputs and outputs, and says how to answer a rank. How blocks reach all nodes is up to
//! `wireup_coll`.

mod entry;
mod exchanges;
pub mod groups;

pub use entry::{CollectiveConfig, Entering, Entry, Finished, Outcome, ReplyTo};
pub use exchanges::{Arrived, Exchanges};
