//! The launcher's and the agents' next step: no I/O, no clock, no threads.
//!
//! A driver (`node` with real processes, `sim` with scripted ones) tells a machine what happened by `handle`
//! and does what `poll` returns until `None`. The types at that border are in [`io`] and [`launcher_io`].
#![forbid(unsafe_code)]

pub mod agent;
pub mod io;
pub mod launcher;
pub mod launcher_io;
pub mod time;

pub use agent::Agent;
pub use launcher::Launcher;
pub use time::Instant;
