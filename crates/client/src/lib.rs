//! A rank's half of PMI: what to send, what a reply means.
//!
//! `env` finds out how the launcher can be reached; `pmi_link` is the conversation with it, in either dialect,
//! without any I/O: the test client of the command line drives it over a socket, the simulator over its heap.
//! `pipeline` is the same for the C libraries, with several requests under way at once.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod env;
pub use wireup_wire::pmi::escape;
pub mod number;
pub mod pipeline;
pub mod pmi_link;

pub use pmi_link::{Event, LinkError, PmiLink, Unsendable};
