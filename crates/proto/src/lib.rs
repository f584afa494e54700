//! The state machines of the launcher and of the agents: no I/O, no clock, no threads.
//!
//! A driver (`node` with real processes, `sim` with scripted ones) passes events to a machine by `handle` and carries
//! out what `poll` returns until `None`. The types of this interface are in [`io`] and [`launcher_io`].
//!
//! ```text
//!   agent ──► session/     membership, starting children, launchers, names, ports: what concerns the whole session
//!     │   └─► link/        links to the neighbours in the tree, and direct links to other agents
//!     └─► job ──► job/         a job's lifecycle, ranks, child agents, input and output, failures
//!           ├───► pmi_server/  what ranks ask by PMI-1 and PMI-2, and the pairs that they put
//!           ├───► pmix/        what ranks ask by PMIx, through the PMIx server process
//!           ├───► store/       what PyTorch's processes ask of each other: pairs, counters, barriers
//!           └───► collective/  fences, allgathers, rings and barriers of groups on one node
//!   launcher/              the user's end of a job, and of the jobs that its ranks start
//! ```
//!
//! `plan` derives the processes of a node from a job's description, `framework` the variables of AI frameworks;
//! `output` sends the output of ranks up the tree as far as credit allows; [`memory`] describes memory that ranks read;
//! `outbox` queues outputs; [`clock_offset`] compares clocks; [`exit_code`] determines a job's exit code; [`replay`]
//! replays recorded inputs and digests outputs; `testing` supports this crate's tests.
#![forbid(unsafe_code)]

pub mod agent;
pub mod clock_offset;
mod collective;
pub mod exit_code;
mod framework;
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
mod policy;
pub mod replay;
mod session;
mod store;
#[cfg(any(test, fuzzing))]
pub use store::fuzzing;
#[cfg(test)]
mod testing;
pub mod time;

pub use agent::{Agent, AgentConfig, Holds};
pub use job::Born;
pub use launcher::{Growth, Launcher, LauncherConfig, SpawnNode};
pub use outbox::control_frame;
pub use output::{Next, Origin};
pub use pmi_server::kvs::PairMemory;
pub use replay::OutputDigest;
pub use session::shell_calls::{CANNOT_BEGIN, NEEDED, NEEDED_WORDS, SECOND_CACHE_WORDS, probe_result};
pub use time::Instant;
