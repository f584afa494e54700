//! The inputs of the part that serves the launchers of a standing session.

use crate::io::LinkId;
use wireup_wire::frame::Frame;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::Control;

pub enum Input {
    Up(LinkId),
    Down(LinkId),
    /// A frame that is not a control message.
    Frame {
        link: LinkId,
        frame: Frame,
    },
    Said {
        link: LinkId,
        job: JobId,
        message: Box<Control>,
    },
    /// All frames of one read have been handled.
    Answer(LinkId),
    /// A link is about to be closed because of this problem.
    Refuse {
        link: LinkId,
        problem: String,
    },
    /// The state of some nodes has changed.
    NodesChanged,
    /// Agents below this one in the original tree may not have received jobs that were started before.
    StartAgain(AgentId),
    /// A job has ended everywhere. `traces`: agents that may still store something of it.
    JobOver {
        job: JobId,
        traces: Option<Vec<AgentId>>,
    },
    /// End the session: first its jobs, then its agents.
    EndSession {
        reason: String,
    },
    EndIfIdle,
    Tick,
}
