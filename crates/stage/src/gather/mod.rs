//! Files that are gathered from the nodes when a job is over: which, how they travel, how they are written.
//!
//! ```text
//!   each node                                                          launcher
//!   rule: a pattern ──► find: what matches ──► sending ── frames ──► receiving ──► target: files that replace nothing
//! ```
//!
//! Folders come before what is in them. A file travels as pieces of its data, without its holes, and a digest of the
//! pieces at the end. A node sends one file at a time, and only so many nodes send at once ([`request::SENDERS_MAX`]),
//! which bounds the launcher's memory and descriptors.

mod find;
mod frames;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod name;
pub mod receiving;
pub mod request;
pub mod rule;
pub mod sending;
mod target;

pub use receiving::Gathering;
pub use request::{Places, Request};
pub use rule::{Rule, RuleError};
