//! Gathers files from the nodes after a job has ended: finds them, sends them to the launcher, writes them.
//!
//! ```text
//!   each node                                                          launcher
//!   rule: a pattern ──► what matches ──► sending ── frames ──► receiving ──► target: files that replace nothing
//! ```
//!
//! Folders are sent before the files in them. A file travels as pieces of its data, without its holes. A node sends one
//! file at a time, and only so many nodes send at once ([`request::SENDERS_MAX`]), which bounds the launcher's memory
//! and descriptors.
//!
//! The stream is not an archive of `tar`, where the length of a file and all of its holes stand before its data: a file
//! that changes while it is read could not be taken back, and whoever reads the archive needs as much memory as the
//! node announces.

mod frames;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod receiving;
pub mod request;
pub mod rule;
pub mod sending;
mod target;

pub use receiving::Gathering;
pub use request::{GatheredNodes, Request};
pub use rule::Rule;
