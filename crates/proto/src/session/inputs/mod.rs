//! What each part is told, by the agent or by another part.
//!
//! They lie apart from the parts, so that an effect can name an input and no part needs another one.

pub mod agreement;
pub mod early;
pub mod heartbeat;
pub mod launchers;
pub mod membership;
pub mod starter;
