//! Standing sessions: agents that wait for jobs, and the launchers that submit them.
//!
//! `session_directory` is a session's directory, `daemon` its process, `callers` the connections to it, `call` the
//! launcher's end of a connection. `spool` stores the output of a detached job, `crash_log` the last output of a
//! crashed session; `unended` remembers sessions that were not ended by the user.

pub mod call;
mod callers;
pub mod crash_log;
pub mod daemon;
pub mod session_directory;
pub mod spool;
pub mod unended;

pub use call::{Attached, CallError, Calling};
pub use daemon::{Facts, Owner};
pub use session_directory::{Claim, DEFAULT_NAME, SessionDirectory, SessionDirectoryError};
