//! A rank's half of PMI, without I/O: the same engine for the C libraries, `wireup pmi` and the simulator.
//!
//! A crate of its own, because the C libraries, the program `wireup pmi` and the simulator drive the same engine, each
//! with its own sockets and memory: it forbids `unsafe` and has no standard library, no clock and no socket.
//!
//! ```text
//!   env ──► join ──► collectives ── own server ──► arena    memory that the server shares
//!             │          │     └─── other server ► emulated           put, fence, get
//!             ▼          ▼
//!            link: requests out, answers in, and which answer belongs to which request
//! ```
//!
//! A driver owns the socket and maps the memory ([`memory::Memory`]). Nothing here waits.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod arena;
pub mod collectives;
pub mod emulated;
pub mod env;
pub mod join;
pub mod link;
pub mod local;
pub mod memory;
pub mod number;
pub mod requests;

pub use link::{Failure, Link};
pub use wireup_wire::pmi::escape;
