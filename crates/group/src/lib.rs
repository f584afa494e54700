//! The ranks' own network: groups of processes that exchange messages among themselves, without the agents.
//!
//! A crate of its own, because the simulator and the fuzz targets carry its messages in memory, but `libwireup` over
//! sockets: it forbids `unsafe`, has no standard library, and depends on no other crate of wireup, not even on PMI.
//!
//! ```text
//!   two neighbours ──► build: a binomial graph ─┬─► collectives: barrier, scan, reduce, allgather, broadcast, alltoall
//!                                               ├─► split: sort, scan, sort ──► two neighbours in a new group
//!                                               ├─► addresses: that of any member, from a member nearer to it
//!                                               └─► tagged: messages from one member to another
//! ```
//!
//! A member of a group of P processes knows `2 log2 P` others, those at distance 1, 2, 4, … on both sides of the ring.
//! Nothing else grows with P, except the results that a caller asks for.
//!
//! [`Groups`] holds a process's groups and only routes; `group` is one of them, `collectives` its collectives in
//! progress. `early_messages` keeps messages that arrive before their group is made; `creation` makes groups from a
//! list of members; [`algorithms`] has the collectives. [`connections`] decides when a pair of ranks connects and when
//! its connection is closed.
//!
//! A message is a byte string for a rank. The driver carries messages, and keeps the order of those between two ranks.
//! [`in_memory`] carries them between the ranks of one process, for tests and simulations.
//!
//! Source: S2 (spawnnet, lwgrp), S4's future work (a hypercube instead of a ring).
#![no_std]
#![forbid(unsafe_code)]
#[macro_use]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod addresses;
pub mod algorithms;
mod collectives;
pub mod connections;
mod creation;
mod early_messages;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod group;
mod groups;
pub mod in_memory;
mod message;
mod outbox;
pub mod reduce;
pub mod shape;
mod tagged;
#[cfg(test)]
mod testing;

pub use algorithms::{Algorithm, Outcome, Step};
pub use group::Awaited;
pub use groups::{Groups, KEPT_BYTES_MAX};
pub use message::{Malformed, message_len};
pub use outbox::{Context, Counts, Done, Failure, Output, Request, WORLD, derived};
pub use shape::{Link, Peer, Shape, Side};
