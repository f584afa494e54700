//! The command line of `wireup run`, in two steps.
//!
//! `table` has a row for each flag: its names, its help, how its value is read (`values`), and the field that holds it.
//! Reading a command line by this table gives a `Parsed`. `resolved` resolves that with the surroundings (hosts, an
//! allocation, a session) into what the launcher runs: a job and a session, with every default applied and every
//! contradiction refused.

pub mod chosen;
pub mod mapping;
pub mod parsed;
pub mod placement;
mod programs;
pub mod rankfile;
pub mod remote_shell;
pub mod resolved;
pub mod session;
pub mod session_nodes;
pub mod table;
mod values;
