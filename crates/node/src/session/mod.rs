//! Standing sessions: agents that wait for jobs, and the launchers that bring them.
//!
//! `place` is where a session is found, `daemon` its process, `callers` who calls there, `call` the call; `owner` is whose end
//! ends it. `spool` keeps what a detached job writes, `last_words` what a process that crashed had to say.

pub mod call;
mod callers;
pub mod daemon;
mod facts;
pub mod last_words;
pub mod owner;
pub mod place;
pub mod spool;

pub use call::{Attached, CallError, Calling};
pub use facts::Facts;
pub use owner::Owner;
pub use place::{Claim, DEFAULT_NAME, Place, PlaceError};
