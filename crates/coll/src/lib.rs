//! Tree shapes and collectives over numbered peers: who sends what to whom. The caller sends the messages.
//!
//! `tree` is the k-ary tree of a session's agents; `mapping` says which rank runs on which node; `allgather` holds the
//! algorithms that bring every peer's bytes to every peer; `scan` tells each process its neighbours in a ring.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod allgather;
pub mod mapping;
pub mod scan;
pub mod tree;

pub use mapping::{Mapping, MappingError};
pub use tree::{Hop, Tree};
