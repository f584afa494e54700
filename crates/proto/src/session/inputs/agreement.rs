//! What the part is told that agrees about a transport that all agents must have.

use wireup_wire::ids::AgentId;
use wireup_wire::peer::MissingAgent;
use wireup_wire::route::Point;

pub enum Input {
    /// These children and this agent are to look for it, if that is wanted and nobody has.
    Ask(Vec<AgentId>),
    /// The same for all children that there are.
    AskAll,
    /// This agent has looked.
    Opened(Result<Point, String>),
    /// All of a child's subtree have looked.
    Looked { branch: AgentId, missing: Option<MissingAgent> },
    /// Agents are lost: those are not waited for.
    Lost,
    /// A child that links late hears what is the case.
    Tell(AgentId),
    /// The root has decided.
    Decided(bool),
}
