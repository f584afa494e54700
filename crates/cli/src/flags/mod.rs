//! The command line of `wireup run`, parsed in two steps.
//!
//! `table` lists the flags; `parsed` holds what was typed; `resolved` is its meaning: a job and a session, with every default applied and every
//! contradiction refused.

pub mod chosen;
pub mod command;
pub mod error;
mod interface;
mod layout;
mod nearest;
pub mod parsed;
mod placement;
mod programs;
pub mod remote_shell;
pub mod resolved;
pub mod session;
pub mod session_nodes;
mod streams;
pub mod table;
mod value_reader;
mod values;

pub use error::FlagError;
pub use nearest::nearest;
