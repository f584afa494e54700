//! Starts agents as the tasks of a step of a batch system such as Slurm: one call starts all of them. The code for each
//! batch system is in a file with its name.
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

use wireup_wire::peer::Problem;

/// A batch system, which starts a step by one call: one task with an agent on each of many hosts.
pub trait BatchSystem: Sync {
    /// Options of the call that are placed before the user's own.
    fn options(&self) -> &'static [&'static str];

    /// The arguments of the call that place one task on each of these hosts.
    fn placement(&self, hosts: &[String]) -> Vec<String>;

    /// Whether to pass a variable of this process's environment to the call and its tasks; ranks get none of these.
    fn keeps(&self, variable: &str) -> bool;

    /// Whether a step of this batch system has started this process or one of its ancestors.
    fn is_here(&self) -> bool;

    /// The node on which this process runs as a task, named as in the host list.
    ///
    /// # Errors
    /// This process is not a task.
    fn own_node(&self) -> Result<String, String>;

    /// What a line of the call's standard error says about tasks; `None`: nothing that names a node.
    fn complaint(&self, line: &str) -> Option<Complaint>;
}

/// A batch system's message about a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Complaint {
    About {
        nodes: Vec<String>,
        problem: Problem,
    },
    /// The whole step was cancelled, with this message.
    Cancelled(String),
    /// Not all tasks could be launched, so the step was given up. Earlier lines have named the tasks that failed.
    GivenUp,
}

/// Argument of a task's command: the task must refuse a bootstrap message that is not encrypted. Someone who can
/// replace the task's standard input cannot change this argument, which travels in the batch system's own messages.
pub const SEALED: &str = "sealed";

/// The command that a task executes. A single word is a line for a login shell, which a step does not have, so it is
/// run by `/bin/sh`.
pub fn executed(mut command: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    if command.len() == 1 {
        command.splice(0..0, [b"/bin/sh".to_vec(), b"-c".to_vec()]);
    }
    command
}
