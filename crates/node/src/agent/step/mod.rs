//! Agents started by a step of a batch system: one call for all of them. The code for each batch system is in a file
//! with its name.
//!
//! ```text
//!   root ──► call ──stdin──► every task: the bootstrap message, then each parent's addresses as they become known
//!     ▲        └──stdout──── every task: that it has started, and its addresses; or why it cannot start
//!     └─ links: as usual
//! ```
//!
//! Parents' addresses are exchanged through the step itself, so that agents need no link to the root for that: the root
//! reads a short line from each agent and writes one for each agent with children, which the batch system copies to all
//! tasks.

mod called;
mod calling;
pub(crate) mod lines;
mod sealing;
pub mod srun;

pub use called::{Called, SILENCE_MAX, announce_problem, find_self};
pub use calling::Steps;
pub use sealing::{NotSealed, Sealed, Sealing};

/// Argument of a task's command: the task must refuse a bootstrap message that is not encrypted. Someone who can
/// replace the task's standard input cannot change this argument, which travels in the batch system's own messages.
pub const SEALED: &str = "sealed";

/// The command that a task executes. A single word is a line for a log-in shell, which a step does not have, so it is
/// run by `/bin/sh`.
pub fn executed(mut command: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    if command.len() == 1 {
        command.splice(0..0, [b"/bin/sh".to_vec(), b"-c".to_vec()]);
    }
    command
}
