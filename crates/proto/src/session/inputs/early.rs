//! What the part that keeps frames of jobs that are not here is told.

use crate::session::Begin;
use wireup_wire::frame::Frame;
use wireup_wire::ids::{AgentId, JobId};

pub enum Input {
    /// Another agent, wherever it is in the tree, has sent this one a frame.
    Frame { from: AgentId, frame: Frame },
    /// Of the jobs up to `newest` only these may still have something to say.
    Live { newest: JobId, live: Vec<JobId> },
    /// A job of a standing session comes down the tree; at the root, with what is live now.
    Start { begin: Box<Begin>, live: Option<(JobId, Vec<JobId>)> },
    /// A job has begun here.
    Begun(JobId),
    /// A job that is not here is over on all nodes.
    Over(JobId),
    /// At the root: a job is over on all nodes.
    OverEverywhere(JobId),
    /// A frame of a job was heard: what comes late of it leaves nothing behind.
    ForgetIfOver(JobId),
}
