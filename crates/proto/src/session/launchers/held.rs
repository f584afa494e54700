//! A job that waits for nodes which are being started.

use crate::io::LinkId;
use crate::session::inputs::launchers::Input;
use crate::session::membership::Nodes;
use crate::time::Instant;
use wireup_wire::frame::Frame;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::JobSpec;
use wireup_wire::limits::STDIO_WINDOW_BYTES;
use wireup_wire::peer::Control;

/// How long it waits before whoever has launched it is told for whom (ns). Chosen: agents start in milliseconds on one machine, in a second
/// by ssh.
const UNTOLD_NS: u64 = 2_000_000_000;

/// What is kept of standard input. Chosen: a launcher has credit for less, and frames of one byte have headers.
const LATER_BYTES_MAX: usize = 32 * STDIO_WINDOW_BYTES;

pub struct Held {
    pub link: LinkId,
    pub spec: JobSpec,
    pub since: Instant,
    pub is_told: bool,
    /// What its launcher says meanwhile: for its ranks, when there are any.
    pub later: Vec<Input>,
    later_bytes: usize,
}

impl Held {
    pub fn new(link: LinkId, spec: JobSpec, since: Instant) -> Held {
        Held { link, spec, since, is_told: false, later: Vec::new(), later_bytes: 0 }
    }

    /// Keeps what is for the ranks. False: it is more than a launcher may send before it hears of them.
    pub fn keep(&mut self, frame: Frame) -> bool {
        self.later_bytes += frame.wire_len();
        let is_room = self.later_bytes <= LATER_BYTES_MAX;
        if is_room {
            self.later.push(Input::Frame { link: self.link, frame });
        }
        is_room
    }

    /// The terminal has this size now, whatever it had before.
    pub fn keep_size(&mut self, job: JobId, message: Control) {
        self.later.retain(|input| !matches!(input, Input::Said { .. }));
        self.later.push(Input::Said { link: self.link, job, message: Box::new(message) });
    }

    /// When to say for whom it waits.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.is_told).then_some(self.since + UNTOLD_NS)
    }
}

pub fn are_up(nodes: &Nodes, agents: &[AgentId]) -> bool {
    agents.iter().all(|agent| nodes.is_up(*agent))
}

/// Whether a signal ends a process that does nothing about it; a job without ranks does nothing about any.
pub fn is_fatal(signal: i32) -> bool {
    // CHLD, CONT, STOP, TSTP, TTIN, TTOU, URG, WINCH.
    !matches!(signal, 17..=23 | 28)
}
