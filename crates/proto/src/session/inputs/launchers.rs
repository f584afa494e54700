//! What the part that hears the launchers of a standing session is told.

use crate::io::LinkId;
use wireup_wire::frame::Frame;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::Control;

pub enum Input {
    Up(LinkId),
    Down(LinkId),
    /// A frame that is no control message.
    Frame {
        link: LinkId,
        frame: Frame,
    },
    Said {
        link: LinkId,
        job: JobId,
        message: Box<Control>,
    },
    /// All that came with one read was heard.
    Answer(LinkId),
    /// A link is about to be closed, since this is wrong with it.
    Refuse {
        link: LinkId,
        problem: String,
    },
    /// Nodes are up or lost that were not.
    NodesChanged,
    /// Those that were drawn below this agent may not have heard of jobs that began before.
    StartAgain(AgentId),
    /// A job is over everywhere. `traces`: agents that may hold something of it.
    JobOver {
        job: JobId,
        traces: Option<Vec<AgentId>>,
    },
    /// The session is to end: its jobs first, then its agents.
    EndSession {
        reason: String,
    },
    EndIfIdle,
    Tick,
}
