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

pub use called::{Called, announce_problem, find_self};
pub use calling::Steps;
