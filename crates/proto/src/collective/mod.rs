//! The collectives of a job on one node.
//!
//! `epochs` numbers them and keeps them in order; `exchange` is a single collective; `groups` are barriers of some
//! ranks, which are not numbered. `entry` has the inputs and outputs, `reply_to` says how to answer a rank. How blocks
//! reach all nodes is up to `wireup_coll`.

mod entry;
mod epochs;
mod exchange;
pub mod groups;

pub use entry::{Action, CollectiveConfig, Entering, Entry, Finished, Outcome, ReplyTo};
pub use epochs::Exchanges;
