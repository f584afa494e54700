//! Files that are on every node before the ranks start: what they are, how they travel, where a node keeps them, how
//! ranks see them.
//!
//! ```text
//!   launcher                                             each node
//!   set: names, contents, digests ── send ─► a stream ─► receive ─► store: contents by digest, an image or a tree
//!        ▲ needed to send               ◄─ answer: what is missing ─┘                     │      for each set
//!   digests, known: files that have not changed         view: the files of a set over the originals, for a job's ranks
//! ```
//!
//! Nothing here knows agents: a stream is bytes, answers are lines. `image` makes a set a file system that the kernel
//! can mount, `mounts` mounts it, [`gather`] brings files back after a job, [`file_system`] looks at what is mounted.

pub mod answer;
pub mod digests;
pub mod file_system;
pub mod gather;
mod image;
pub mod known;
mod mounts;
pub mod receive;
pub mod send;
pub mod set;
pub mod store;
pub mod stream;
#[cfg(test)]
mod testing;
pub mod view;

pub use mounts::Files;
pub use set::{Entry, EntryKind, Set};
pub use store::Store;
