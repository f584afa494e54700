//! The collectives of a job on one node.
//!
//! `exchanges` numbers them, keeps them in order and runs each; `groups` are barriers of some ranks, which are not
//! numbered. How blocks reach all nodes is up to `wireup_coll`.

mod exchanges;
pub mod groups;

pub use exchanges::{Arrived, CollectiveConfig, Entering, Entry, Exchanges, Finished, Outcome, ReplyTo};
