//! The inputs of the part that agrees on a transport which all agents must have.

use wireup_wire::ids::AgentId;
use wireup_wire::peer::MissingAgent;
use wireup_wire::route::Point;

pub enum Input {
    /// Check for the transport on these children and this agent, if it was requested and that has not been done.
    Ask(Vec<AgentId>),
    /// The same for all current children.
    AskAll,
    /// This agent has opened the transport, or failed to.
    Opened(Result<Point, String>),
    /// A child's whole subtree has checked.
    Looked { branch: AgentId, missing: Option<MissingAgent> },
    /// Agents are lost: do not wait for them.
    Lost,
    /// Tell a child that links late about the decision.
    Tell(AgentId),
    /// The root has decided.
    Decided(bool),
}
