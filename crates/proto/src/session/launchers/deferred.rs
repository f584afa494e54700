//! A job that waits for nodes that are starting.

use crate::io::LinkId;
use crate::session::Cx;
use crate::session::membership::Nodes;
use crate::time::Instant;
use wireup_wire::frame::Frame;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::JobSpec;
use wireup_wire::limits::STDIO_WINDOW_BYTES;
use wireup_wire::talk::JobDown;

/// Time after which a launcher is told which nodes its job waits for (ns). Chosen: agents start in milliseconds on one
/// machine, within a second by ssh.
const UNTOLD_NS: u64 = 2_000_000_000;

/// Most standard input that is kept for a job that waits (bytes). Chosen: a launcher has credit for less, and frames of
/// one byte have headers.
const LATER_BYTES_MAX: usize = 32 * STDIO_WINDOW_BYTES;

pub struct DeferredJob {
    pub link: LinkId,
    pub spec: JobSpec,
    pub since: Instant,
    pub is_told: bool,
    /// Frames and messages of the launcher for this job, to be delivered when it starts.
    pub later: Vec<Later>,
    later_bytes: usize,
}

/// What a launcher has sent for the ranks of a job that waits, to be delivered when the job starts.
pub enum Later {
    Frame(Frame),
    /// The size of the terminal.
    Size(JobDown),
}

impl Later {
    pub fn deliver(self, cx: &mut Cx, job: JobId) {
        match self {
            Later::Frame(frame) => cx.on_job_frame(None, frame),
            Later::Size(message) => cx.on_job_down(None, job, message),
        }
    }
}

impl DeferredJob {
    pub fn new(link: LinkId, spec: JobSpec, since: Instant, later: Vec<Later>) -> DeferredJob {
        DeferredJob { link, spec, since, is_told: false, later, later_bytes: 0 }
    }

    /// Keeps a frame for the ranks. Returns `false` if it exceeds what a launcher may send before they have started.
    pub fn keep(&mut self, frame: Frame) -> bool {
        self.later_bytes += frame.wire_len();
        let is_room = self.later_bytes <= LATER_BYTES_MAX;
        if is_room {
            self.later.push(Later::Frame(frame));
        }
        is_room
    }

    /// Keeps the latest size of the terminal, instead of any earlier one.
    pub fn keep_size(&mut self, message: JobDown) {
        self.later.retain(|later| !matches!(later, Later::Size(_)));
        self.later.push(Later::Size(message));
    }

    /// When to report which nodes the job waits for.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.is_told).then_some(self.since + UNTOLD_NS)
    }
}

pub fn are_up(nodes: &Nodes, agents: &[AgentId]) -> bool {
    agents.iter().all(|agent| nodes.is_up(*agent))
}
