//! The outputs of an agent, queued until its driver polls them.

use crate::io::{LinkId, Output};
use std::collections::VecDeque;
use wireup_wire::frame::{Class, Frame, FrameKind};
use wireup_wire::ids::JobId;
use wireup_wire::peer;
use wireup_wire::talk::{Control, JobUp, ToLauncher};

#[derive(Default)]
pub struct Outbox {
    queue: VecDeque<Output>,
}

impl Outbox {
    pub fn push(&mut self, output: Output) {
        self.queue.push_back(output);
    }

    pub fn pop(&mut self) -> Option<Output> {
        self.queue.pop_front()
    }

    pub fn send(&mut self, link: LinkId, frame: Frame) {
        self.push(Output::Send { link, frame });
    }
}

/// A control message in its frame.
///
/// `Done` and `Ended` mean that nothing follows, so neither of them may overtake anything: the two messages are sent in
/// the last class, all other messages in the first class.
pub fn control_frame(job: JobId, message: &Control) -> Frame {
    let is_last = matches!(message, Control::JobUp(JobUp::Done(_)) | Control::ToLauncher(ToLauncher::Ended(_)));
    let class = if is_last { Class::AfterOutput } else { Class::Control };
    Frame { class, ..Frame::new(FrameKind::Control, 0, job.0, 0, peer::encode(message).into()) }
}
