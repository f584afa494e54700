//! What the part that looks after neighbours is told.

use wireup_wire::ids::AgentId;

/// A neighbour in the tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Side {
    Above,
    Below(AgentId),
}

pub enum Input {
    /// A neighbour wants to know whether this agent is alive.
    Asked(Side),
    /// A neighbour is.
    Answered(Side),
    JobBegun,
    /// At the root: whether nodes are waited for.
    Starting(bool),
    Tick,
}
