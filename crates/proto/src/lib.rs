//! The state machines of the launcher and of the agents: no I/O, no clock, no threads.
//!
//! A driver (`node` with real processes, `sim` with scripted ones) passes events to a machine by `handle` and carries
//! out what `poll` returns until `None`. The types of this interface are in [`io`] and [`launcher_io`].
#![forbid(unsafe_code)]

pub mod agent;
pub mod clock_offset;
mod collective;
mod digest;
pub mod exit_code;
mod input;
pub mod io;
mod job;
pub mod launcher;
pub mod launcher_io;
mod link;
pub mod memory;
mod outbox;
mod output;
mod plan;
mod pmi_server;
mod pmix;
pub mod replay;
mod session;
#[cfg(test)]
mod testing;
mod text;
pub mod time;

pub use agent::{Agent, AgentConfig, Holds};
pub use digest::OutputDigest;
pub use job::Born;
pub use launcher::{Growth, Launcher, LauncherConfig, Place};
pub use outbox::control_frame;
pub use output::{Next, Origin};
pub use session::starts::{CANNOT_BEGIN, NEEDED, NEEDED_WORDS, probe_result};
pub use time::Instant;
