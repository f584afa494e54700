//! The inputs of each part, from the agent or from other parts.
//!
//! They are separate from the parts, so that an effect can name an input without one part depending on another.

pub mod agreement;
pub mod early;
pub mod heartbeat;
pub mod launchers;
pub mod membership;
pub mod starter;
