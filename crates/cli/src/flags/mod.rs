//! The command line of `wireup run`, parsed in two steps.
//!
//! `table` lists the flags; `low` holds what was typed; `high` is its meaning: a job and a session, with every default applied and every
//! contradiction refused.

mod agent_bench;
mod behind;
pub mod chosen;
pub mod command;
pub mod error;
pub mod ground;
pub mod high;
mod interface;
mod layout;
pub mod low;
mod nearest;
mod placement;
mod programs;
pub mod remote_shell;
pub mod session;
mod streams;
pub mod table;
mod values;

pub use error::FlagError;
pub use nearest::nearest;
