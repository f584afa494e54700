//! Standing sessions: agents that wait for jobs, and the launchers that bring them.
//!
//! `place` is where a session is found, `daemon` its process, `callers` who calls there, `call` the call; `owner` is whose end
//! ends it. `spool` keeps what a
//! detached job writes.

pub mod call;
mod callers;
pub mod daemon;
mod facts;
pub mod owner;
pub mod place;
pub mod spool;

pub use call::{Attached, CallError, Calling};
pub use facts::Facts;
pub use owner::Owner;
pub use place::{Claim, DEFAULT_NAME, Place, PlaceError};
