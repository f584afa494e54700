//! Connects the processes of a job: takes a process from its start to the point where it can send messages to any other
//! process of the job. Written for the authors of communication libraries.
//!
//! A crate of its own next to `libwireup`, because other crates cannot depend on a static library for C: measuring
//! programs and fuzz targets call this one from Rust. It joins PMI (`capi`) with the ranks' network (`group`) and with
//! libfabric.
//!
//! ```text
//!   Context ── groups ── agents' engine: the allgathers of the job's server (whole job; goes on while ranks compute)
//!                   └─── peers' engine:  wireup-group over connections of ranks (any group, any server)
//! ```
//!
//! `context` is a process's view of its job, `worker` makes progress on what was started there; `agents` builds
//! collectives from allgathers for groups that are `runs` of ranks, `answers` holds the answers that the program has
//! not collected yet; `network` carries the messages of the peers' engine, and `start` makes it when it is first
//! needed. `libwireup` is the C interface to this crate.
#![no_std]
#![cfg_attr(not(test), forbid(unsafe_code))]
#[macro_use]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod agents;
mod agreement;
mod answers;
mod context;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod network;
mod operation;
mod runs;
mod start;
mod worker;

pub use context::{Context, Engine, Group};
pub use error::Error;
pub use network::{Counts, Transport};
pub use operation::{Operation, Request, View};
pub use start::{Phases, Start};
pub use wireup_fabric::Error as FabricError;
pub use wireup_group::algorithms::Wanted;
pub use wireup_group::reduce::{Number, Op, Reduce};
pub use wireup_group::{Done, Failure, Peer};
pub use worker::Worker;
