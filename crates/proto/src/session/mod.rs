//! The parts of a session in one agent, each with its own state and tested separately.
//!
//! A part takes its own state, a [`View`] of what it may know about the agent, and an input; it pushes [`Effect`]s. The
//! router (`agent.rs`) carries them out one by one, including everything that one causes before the next. So a part
//! that needs something from another part, or must continue after it, pushes an effect; no part calls another.

mod across;
mod agreement;
mod clock;
mod config;
mod control;
mod described;
mod early;
mod effects;
mod heartbeat;
pub mod inputs;
mod jobs;
mod launchers;
mod leaving;
pub mod membership;
mod names;
mod placement;
mod rank_ports;
mod roster;
mod routes;
pub mod starter;
pub mod starts;
mod view;

pub use across::Across;
pub use agreement::Agreement;
pub use clock::Clock;
pub use config::{AgentConfig, Holds, Policy};
pub use control::{From, on_control};
pub use described::described;
pub use early::Early;
pub use effects::{Effect, Effects};
pub use heartbeat::Heartbeat;
pub use jobs::Jobs;
pub use launchers::Launchers;
pub use leaving::Leaving;
pub use membership::Membership;
pub use names::Names;
pub use placement::{Begin, UNKNOWN_NODE, placement};
pub use rank_ports::RankPorts;
pub use roster::Roster;
pub use routes::Routes;
pub use starter::Starter;
pub use view::View;
