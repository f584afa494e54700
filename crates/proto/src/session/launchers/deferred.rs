//! Jobs that wait for nodes that are starting.
//!
//! An agent that does not link may be started again, and only one of the two incarnations stays linked. So no agent is
//! sent a job before all of the job's agents are up.

use crate::io::LinkId;
use crate::session::Cx;
use crate::time::Instant;
use std::collections::BTreeMap;
use wireup_wire::frame::{DownFrame, Frame};
use wireup_wire::ids::JobId;
use wireup_wire::job::JobSpec;
use wireup_wire::limits::STDIO_WINDOW_BYTES;
use wireup_wire::signal::is_fatal;
use wireup_wire::talk::JobDown;

/// Time after which a launcher is told which nodes its job waits for (ns). Chosen: agents start in milliseconds on one
/// machine, within a second by ssh.
const UNTOLD_NS: u64 = 2_000_000_000;

/// Maximum size of the standard input frames kept for a job that waits (bytes). Chosen: more than a launcher may send
/// with its credit, even as frames of one byte, whose headers count too.
const LATER_BYTES_MAX: usize = 32 * STDIO_WINDOW_BYTES;

#[derive(Default)]
pub struct DeferredJobs {
    pub jobs: BTreeMap<JobId, DeferredJob>,
}

pub struct DeferredJob {
    pub link: LinkId,
    pub spec: JobSpec,
    pub since: Instant,
    is_told: bool,
    /// Frames and messages of the launcher for this job, to be delivered when it starts.
    pub later: Vec<Later>,
    later_bytes: usize,
}

/// What a launcher has sent for the ranks of a job that waits, to be delivered when the job starts.
pub enum Later {
    Frame(DownFrame, Frame),
    Size(JobDown),
}

impl Later {
    pub fn deliver(self, cx: &mut Cx, job: JobId) {
        match self {
            Later::Frame(kind, frame) => cx.jobs.tell(&mut cx.agent, job, |job, cx| job.on_frame_down(cx, kind, frame)),
            Later::Size(message) => cx.jobs.tell(&mut cx.agent, job, |job, cx| job.on_control_down(cx, message)),
        }
    }
}

impl DeferredJobs {
    pub fn ids_where(&self, which: impl Fn(&DeferredJob) -> bool) -> Vec<JobId> {
        self.jobs.iter().filter(|(_, deferred)| which(deferred)).map(|(job, _)| *job).collect()
    }

    /// Lets a job wait for its nodes. `later`: what the job's launcher has already sent for its ranks.
    pub fn defer(&mut self, link: LinkId, spec: JobSpec, since: Instant, later: Vec<Later>) {
        self.jobs.insert(spec.job, DeferredJob { link, spec, since, is_told: false, later, later_bytes: 0 });
    }

    /// Keeps a frame for the ranks of a job. Returns `false` if it exceeds what a launcher may send before they have
    /// started.
    pub fn keep(&mut self, job: JobId, kind: DownFrame, frame: Frame) -> bool {
        let Some(deferred) = self.jobs.get_mut(&job) else { return true };
        deferred.later_bytes += frame.wire_len();
        let is_room = deferred.later_bytes <= LATER_BYTES_MAX;
        if is_room {
            deferred.later.push(Later::Frame(kind, frame));
        }
        is_room
    }

    /// Handles a message for a job, which has no ranks yet: keeps the latest size of the terminal for them. Returns
    /// whether the message would end ranks, and so ends the job.
    pub fn on_control(&mut self, job: JobId, message: JobDown) -> bool {
        match message {
            JobDown::Signal { signal } => is_fatal(signal),
            JobDown::Kill { .. } => true,
            JobDown::Resize { .. } => {
                if let Some(DeferredJob { later, .. }) = self.jobs.get_mut(&job) {
                    later.retain(|later| !matches!(later, Later::Size(_)));
                    later.push(Later::Size(message));
                }
                false
            }
            _ => false,
        }
    }

    /// Jobs whose launchers must now get a note about the nodes that the job waits for, with the launchers' links.
    /// Returns each job once.
    pub fn take_untold(&mut self, now: Instant) -> Vec<(LinkId, JobSpec)> {
        let due = self.jobs.values_mut().filter(|deferred| deferred.deadline().is_some_and(|at| at <= now));
        due.map(|deferred| {
            deferred.is_told = true;
            (deferred.link, deferred.spec.clone())
        })
        .collect()
    }

    /// When the next note about the nodes that a job waits for is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.jobs.values().filter_map(DeferredJob::deadline).min()
    }
}

impl DeferredJob {
    fn deadline(&self) -> Option<Instant> {
        (!self.is_told).then_some(self.since + UNTOLD_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::job_on;
    use bytes::Bytes;

    #[test]
    fn a_launcher_cannot_send_more_input_than_its_credit_before_the_ranks_run() {
        let mut deferred = DeferredJobs::default();
        let input = || Frame::new(DownFrame::Input, 0, 1, 0, Bytes::from(vec![0; STDIO_WINDOW_BYTES]));
        deferred.defer(LinkId(1), job_on(1, [1], 1), Instant(0), Vec::new());
        assert_eq!(
            (0..40).take_while(|_| deferred.keep(JobId(1), DownFrame::Input, input())).count(),
            31,
            "frames have headers"
        );
        assert!(deferred.keep(JobId(2), DownFrame::Input, input()), "it does not wait");
    }
}
