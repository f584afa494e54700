//! The inputs of the part that monitors neighbours.

use wireup_wire::ids::AgentId;

/// A neighbour in the tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Side {
    Above,
    Below(AgentId),
}

pub enum Input {
    /// A neighbour asks whether this agent is alive.
    Asked(Side),
    /// A neighbour answers that it is alive.
    Answered(Side),
    JobBegun,
    /// At the root: whether nodes are starting.
    Starting(bool),
    Tick,
}
