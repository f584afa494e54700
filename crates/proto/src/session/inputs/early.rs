//! The inputs of the part that keeps frames for jobs that are not here.

use crate::session::Begin;
use wireup_wire::frame::Frame;
use wireup_wire::ids::{AgentId, JobId};

pub enum Input {
    /// A frame from another agent, anywhere in the tree.
    Frame { from: AgentId, frame: Frame },
    /// Of the jobs up to `newest` only these may still send frames.
    Live { newest: JobId, live: Vec<JobId> },
    /// A job of a standing session arrives from the parent; at the root, with the jobs that are live now.
    Start { begin: Box<Begin>, live: Option<(JobId, Vec<JobId>)> },
    /// A job has started here.
    Begun(JobId),
    /// A job that is not here has ended on all nodes.
    Over(JobId),
    /// At the root: a job has ended on all nodes.
    OverEverywhere(JobId),
    /// A frame of a job was handled: if the job has ended, keep nothing of it.
    ForgetIfOver(JobId),
}
