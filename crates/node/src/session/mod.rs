//! Standing sessions: agents that wait for jobs, and the launchers that bring them.

pub mod owner;
pub mod place;
