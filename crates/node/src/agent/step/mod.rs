//! Agents that come by a step of Slurm: one `srun` for all of them.
//!
//! ```text
//!   root ──► srun ──stdin──► every task: the bootstrap message, then where each parent listens, as that is known
//!     ▲        └──stdout──── every task: that it has begun, and where it listens; or why it cannot
//!     └─ links: as ever
//! ```
//!
//! What tells parents where they are is the step itself and not a link of each agent to the root: the root reads a short
//! line of each agent and writes one for each that has children, which `srun` brings to all.

mod called;
mod calling;
mod complaints;
mod environment;
mod lines;

pub use called::{Called, SILENCE_MAX, announce_problem, find_self, is_here, own_kin};
pub use calling::Steps;
pub use environment::of_step;

/// What a task executes, which no log-in shell reads: a line for one gets a shell.
pub fn executed(mut command: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    if command.len() == 1 {
        command.splice(0..0, [b"/bin/sh".to_vec(), b"-c".to_vec()]);
    }
    command
}
