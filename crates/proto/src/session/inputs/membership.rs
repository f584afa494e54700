//! The inputs of the membership part.

use crate::io::LinkId;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Gone, MissingAgent, Rejoin};
use wireup_wire::session::Log;

pub enum Input {
    /// The session starts on this agent: start the children.
    Begin,
    /// A child has linked.
    Linked(AgentId),
    /// A child reports that these agents of its subtree are linked, with their incarnations.
    Here {
        branch: AgentId,
        agents: Vec<(AgentId, u32)>,
    },
    /// This agent has observed that a child, or another agent that it is responsible for, is gone or missing.
    ReportLost(MissingAgent),
    /// A child forwards that these agents are gone.
    Gone {
        branch: AgentId,
        gone: Vec<Gone>,
    },
    /// The root's decisions.
    Log(Log),
    /// At the root: a launcher requests all nodes.
    Revive,
    /// The parent is linked: the first one, or the root in its place.
    ParentUp,
    /// The link to the parent broke, or the one to the root that was to adopt this agent.
    ParentLost,
    /// The root is linked; it has not yet confirmed that it adopts this agent.
    RootReached(LinkId),
    /// The root cannot be reached.
    RejoinFailed,
    /// An agent that has lost its parent has dialled this one.
    Rejoin {
        link: LinkId,
        agent: AgentId,
        rejoin: Rejoin,
    },
    Tick,
}
