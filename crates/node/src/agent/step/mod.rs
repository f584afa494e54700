//! Agents that come by a step of a batch system: one call for all of them. What is a system's own is in a file named after it.
//!
//! ```text
//!   root ──► call ──stdin──► every task: the bootstrap message, then where each parent listens, as that is known
//!     ▲        └──stdout──── every task: that it has begun, and where it listens; or why it cannot
//!     └─ links: as ever
//! ```
//!
//! What tells parents where they are is the step itself and not a link of each agent to the root: the root reads a short
//! line of each agent and writes one for each that has children, which the system brings to all.

mod called;
mod calling;
mod lines;
pub mod srun;

pub use called::{Called, SILENCE_MAX, announce_problem, find_self};
pub use calling::Steps;

/// What a task executes, which no log-in shell reads: a line for one gets a shell.
pub fn executed(mut command: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    if command.len() == 1 {
        command.splice(0..0, [b"/bin/sh".to_vec(), b"-c".to_vec()]);
    }
    command
}
