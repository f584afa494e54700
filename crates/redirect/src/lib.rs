//! Determines which file is used instead of a staged one if no mounts can be made: without I/O and without allocation,
//! so that both the keeper and the library in each rank (`libwireup-staged`) can use it.
//!
//! ```text
//!   build ──► map: a table of names, which ranks share ──► walk: a path, as the kernel resolves it ──► a copy, an
//!                                                                                        original, or nothing
//!   program: what a file is that is to be started
//!   cache: the system's list of libraries
//!   text: paths in memory of one length
//! ```
#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "build"))]
extern crate std;

#[cfg(any(test, feature = "build"))]
pub mod build;
pub mod cache;
pub mod map;
pub mod program;
pub mod text;
pub mod walk;

pub use map::{Map, StagedKind};
pub use text::Text;
pub use walk::{Found, Walk, resolve};
