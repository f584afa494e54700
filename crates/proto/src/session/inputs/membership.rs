//! What the part that knows who is in the session is told.

use crate::io::LinkId;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Gone, MissingAgent, Orphan};
use wireup_wire::session::Log;

pub enum Input {
    /// The session begins here: the children are started.
    Begin,
    /// A child has linked.
    Linked(AgentId),
    /// A child says that these of its subtree are linked, with their incarnations.
    Here {
        branch: AgentId,
        agents: Vec<(AgentId, u32)>,
    },
    /// This agent has seen that a child, or one that it should know of, is gone or does not come.
    ReportLost(MissingAgent),
    /// A child passes on that these are gone.
    Gone {
        branch: AgentId,
        gone: Vec<Gone>,
    },
    /// What the root has decided.
    Log(Log),
    /// At the root: somebody wants all nodes.
    Revive,
    /// The parent is heard: the first, or the root in its place.
    ParentUp,
    /// The link to the parent is gone, or the one to the root that was to be in its place.
    ParentLost,
    /// The root listens; it has not said yet whether it is the parent.
    RootReached(LinkId),
    /// The root cannot be reached.
    RejoinFailed,
    /// An agent without a parent has dialled this one.
    Orphan {
        link: LinkId,
        agent: AgentId,
        orphan: Orphan,
    },
    Tick,
}
