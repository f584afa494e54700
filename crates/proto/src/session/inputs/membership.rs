//! What the part that knows who is in the session is told.

use crate::io::LinkId;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::MissingAgent;
use wireup_wire::session::Ancestor;

pub enum Input {
    /// Those that were drawn below an agent, this one or a lost one, become this one's children if they are nobody's.
    AdoptChildrenOf(AgentId),
    /// A child is lost, or was never there: this agent takes its place.
    TakePlaceOf(AgentId),
    /// An agent of the subtree is gone; those above are to know.
    ReportLost(MissingAgent),
    /// The root has said that an agent is lost.
    Lost(AgentId),
    /// These lost agents are started again, to live that life.
    Return {
        agents: Vec<AgentId>,
        life: u32,
    },
    /// At the root: somebody wants all nodes.
    Revive,
    /// A child has linked.
    Linked(AgentId),
    /// A child that links may have missed something.
    TellState(AgentId),
    /// These agents of a child's subtree are linked.
    Here {
        branch: AgentId,
        agents: Vec<AgentId>,
    },
    /// Agents of this subtree were taken in by somebody further up.
    Elsewhere(Vec<AgentId>),
    /// These agents have a new way.
    Moved {
        agents: Vec<AgentId>,
        newest: JobId,
        live: Vec<JobId>,
    },
    /// The link to a parent is up: the first, or a new one.
    ParentUp,
    ParentLost,
    RejoinFailed,
    /// More is known of those above the parent.
    Ancestors(Vec<Ancestor>),
    /// An agent further down asks to be taken in.
    Orphan {
        link: LinkId,
        agent: AgentId,
        life: u32,
    },
    Tick,
    /// How the part goes on when what it caused before is done.
    Next(Next),
}

/// A further step of something longer.
pub enum Next {
    /// One of those that were drawn below `lost`.
    Adopt {
        child: AgentId,
        lost: AgentId,
    },
    /// Those that a lost child had taken in, and nobody else has, are waited for.
    AwaitBehind(AgentId),
    /// These agents are linked below `branch`, or (`None`) not below this agent.
    TellOthers {
        agents: Vec<AgentId>,
        branch: Option<AgentId>,
    },
    ForgetOrphan(AgentId),
    /// One of those that a child has named is linked.
    IsHere {
        branch: AgentId,
        agent: AgentId,
    },
    /// All of them were looked at.
    SettleHere {
        branch: AgentId,
        agents: Vec<AgentId>,
    },
    IsElsewhere(AgentId),
    Found {
        agent: AgentId,
        life: u32,
    },
    StartReturned(AgentId),
    CheckSeeking,
}
