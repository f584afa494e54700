//! Keeps or answers frames from other agents for jobs that this agent does not have yet, or no longer has.
//!
//! A job's frames may arrive before the job itself: they wait for it. When a job ends, data of its ranks is kept that
//! other nodes may still request.

use super::Cx;
use crate::pmi_server::all_left;
use crate::pmix::{Remains, modex_frame, modex_gone, report_of_gone};
use crate::store::{Dictionary, answers_of_ended, frame as store_frame};
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::frame::{DownFrame, Frame, FrameKind, PeerFrame};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::inter_job::Order;
use wireup_wire::limits::DIRECT_WAITING_BYTES_MAX;
use wireup_wire::modex::Between;
use wireup_wire::names::{Answer, Down};
use wireup_wire::peer::{self, Cause, PeerError};
use wireup_wire::relay;
use wireup_wire::talk::{Control, JobDown};

/// Frames for jobs that this agent does not know yet.
#[derive(Default)]
pub struct Early {
    /// The newest known job. Job numbers increase, so a frame of an older job is too late unless that job is in `live`.
    newest: JobId,
    /// Jobs that may still be in progress somewhere. Empty in a session of one run, where jobs follow each other.
    live: BTreeSet<JobId>,
    /// Jobs of `live` that were started here.
    begun: BTreeSet<JobId>,
    frames: BTreeMap<JobId, Waited>,
    bytes: usize,
    /// PMIx data of the ranks of ended jobs, which other nodes may still request.
    remains: BTreeMap<JobId, Remains>,
    /// The entries of ended jobs' key-value stores that this agent holds.
    dictionaries: BTreeMap<JobId, Dictionary>,
}

/// The frames that arrived for one job.
#[derive(Default)]
pub struct Waited {
    pub frames: Vec<(AgentId, Frame)>,
    /// Whether frames were dropped because too many bytes were waiting.
    pub is_cut: bool,
}

impl Early {
    /// The state of a new agent. `newest`, `live`: as sent by the agent that started it.
    pub fn new(newest: JobId, live: &[JobId]) -> Self {
        let mut early = Early::default();
        early.set_live(newest, live);
        early
    }

    /// Records that, of the jobs numbered up to `newest`, only the jobs in `live` may still send frames. Ends the
    /// others, if this agent still runs them.
    pub fn on_live(&mut self, cx: &mut Cx, newest: JobId, live: &[JobId]) {
        if newest >= self.newest {
            // The root reports the end of a job to the job's agents, but this agent may have been unreachable at that
            // time.
            let is_over = |id: &JobId| *id <= newest && !live.contains(id);
            let over = cx.jobs.ids().into_iter().filter(is_over).collect();
            cx.jobs.tell_each(&mut cx.agent, over, |job, cx| job.abandon(cx));
        }
        self.set_live(newest, live);
        let with_frames = cx.agent.links.direct.jobs().into_iter();
        let over: Vec<JobId> = with_frames.filter(|job| !cx.jobs.contains_key(job) && self.is_over(*job)).collect();
        cx.forget_direct(&over);
    }

    /// A job that this agent does not run has ended on all nodes.
    pub fn on_over(&mut self, cx: &mut Cx, job: JobId) {
        self.forget(job);
        cx.forget_direct(&[job]);
    }

    /// A frame of a job was handled. If the job has ended, its traffic with peers is forgotten.
    pub fn forget_if_over(&self, cx: &mut Cx, job: JobId) {
        if cx.policy.outlives_jobs() && !cx.jobs.contains_key(&job) && self.is_over(job) {
            cx.forget_direct(&[job]);
        }
    }

    /// Handles a frame from another agent, anywhere in the tree, for a job that is not here: keeps it until the job
    /// starts, or answers it if the job has ended.
    ///
    /// # Errors
    /// No correct agent sends such a frame.
    pub fn on_frame(&mut self, cx: &mut Cx, from: AgentId, frame: Frame) -> Result<(), PeerError> {
        let id = JobId(frame.job);
        if self.is_over(id) {
            return self.answer_for_gone(cx, id, from, &frame);
        } else if is_over(&frame) {
            // The job will not start on this agent: the agents that waited for this agent have given up.
            self.on_over(cx, id);
        } else {
            self.keep(from, frame);
        }
        Ok(())
    }

    /// Answers a frame of agent `from` for a job that has ended on this agent and not yet on agent `from`: the ranks
    /// here are gone.
    fn answer_for_gone(&mut self, cx: &mut Cx, id: JobId, from: AgentId, frame: &Frame) -> Result<(), PeerError> {
        match frame.kind {
            FrameKind::Peer(PeerFrame::Modex) => match peer::decode(&frame.payload)? {
                Between::Want { wanted } => {
                    let answers = modex_gone(wanted, self.remains(id)).into_iter();
                    answers.for_each(|answer| cx.agent.links.send_peer(from, modex_frame(id, &answer)));
                }
                Between::Order(order) => self.report_of_gone(cx, id, order),
                Between::Have { .. } | Between::Report(_) => {}
            },
            FrameKind::Peer(PeerFrame::Addresses) => {
                if let Some(answer) = all_left(peer::decode(&frame.payload)?) {
                    let payload = peer::encode(&answer).into();
                    cx.agent.links.send_peer(from, Frame::new(PeerFrame::Addresses, 0, id.0, 0, payload));
                }
            }
            FrameKind::Peer(PeerFrame::Relay) => {
                let message = relay::Between::decode(frame.stream, frame.arg, frame.payload.clone())?;
                if let Some((stream, payload)) = message.refused().map(|answer| answer.encode()) {
                    cx.agent.links.send_peer(from, Frame::new(PeerFrame::Relay, stream, id.0, frame.arg, payload));
                }
            }
            FrameKind::Peer(PeerFrame::Store) => {
                let message = peer::decode(&frame.payload)?;
                for (to, answer) in answers_of_ended(self.dictionaries.get_mut(&id), from, message) {
                    cx.agent.links.send_peer(to, store_frame(id, &answer));
                }
            }
            // The root has sent the order before it learned that the job has ended on this agent.
            FrameKind::Down(DownFrame::NamesDown) => {
                if let Down { answer: Answer::Order(order), .. } = peer::decode(&frame.payload)? {
                    self.report_of_gone(cx, id, order);
                }
            }
            // The senders of all other frames do not wait for an answer.
            _ => {}
        }
        Ok(())
    }

    /// Answers an order of the root for a job that has ended here.
    fn report_of_gone(&self, cx: &mut Cx, id: JobId, order: Order) {
        if let Some(report) = report_of_gone(order, self.remains(id)) {
            cx.agent.links.send_peer(AgentId(0), modex_frame(id, &Between::Report(report)));
        }
    }

    /// A job has started on this agent: delivers the frames that arrived before it.
    pub fn on_begun(&mut self, cx: &mut Cx, job: JobId) {
        let Waited { frames, is_cut } = self.take_waited(job);
        if is_cut {
            let problem = format!("more than {DIRECT_WAITING_BYTES_MAX} bytes arrived for the job before it started");
            cx.jobs.tell(&mut cx.agent, job, |_, cx| cx.fail_here(Cause::Pmi { problem }));
        }
        for (from, frame) in frames {
            if let Err(error) = cx.jobs.deliver(&mut cx.agent, from, frame) {
                cx.jobs.blame(&mut cx.agent, from, job, error);
            }
        }
    }

    /// Keeps a frame of a job that may still start; if there are too many bytes it is dropped, and the job gets an
    /// error when it starts.
    fn keep(&mut self, from: AgentId, frame: Frame) {
        let id = JobId(frame.job);
        let bytes = self.bytes + frame.wire_len();
        let waited = self.frames.entry(id).or_default();
        if bytes <= DIRECT_WAITING_BYTES_MAX {
            self.bytes = bytes;
            waited.frames.push((from, frame));
        } else {
            waited.is_cut = true;
        }
    }

    /// A job has ended; keeps the data that other nodes may still request.
    pub fn leave_behind(&mut self, id: JobId, remains: Remains, dictionary: Option<Dictionary>) {
        if !remains.is_empty() {
            self.remains.insert(id, remains);
        }
        self.dictionaries.extend(dictionary.map(|dictionary| (id, dictionary)));
    }

    fn remains(&self, id: JobId) -> &Remains {
        static NOTHING: Remains = Remains::new();
        self.remains.get(&id).unwrap_or(&NOTHING)
    }

    /// For a job that is not on this agent: whether it has ended, or will never start here.
    pub fn is_over(&self, id: JobId) -> bool {
        self.begun.contains(&id) || (id <= self.newest && !self.live.contains(&id))
    }

    pub fn newest(&self) -> JobId {
        self.newest
    }

    pub fn live(&self) -> Vec<JobId> {
        self.live.iter().copied().collect()
    }

    /// Sets which jobs, of those up to `newest`, may still send frames.
    pub fn set_live(&mut self, newest: JobId, live: &[JobId]) {
        if newest < self.newest {
            // This is an outdated message that was sent again.
            return;
        }
        // Ended jobs remain ended, even if the sender does not know of their end.
        let may_be_live = |id: &&JobId| **id > self.newest || self.live.contains(*id);
        self.live = live.iter().filter(may_be_live).copied().collect();
        self.newest = newest;
        self.prune();
    }

    /// Drops the frames and the data of ended jobs.
    fn prune(&mut self) {
        let (newest, live) = (self.newest, &self.live);
        let may_come = |id: &JobId| *id > newest || live.contains(id);
        self.begun.retain(may_come);
        self.remains.retain(|id, _| may_come(id));
        self.dictionaries.retain(|id, _| may_come(id));
        let begun = &self.begun;
        self.frames.retain(|id, _| may_come(id) && !begun.contains(id));
        let bytes = |waited: &Waited| waited.frames.iter().map(|(_, frame)| frame.wire_len()).sum::<usize>();
        self.bytes = self.frames.values().map(bytes).sum();
    }

    /// A job has ended on all nodes.
    pub fn forget(&mut self, id: JobId) {
        self.live.remove(&id);
        if id > self.newest {
            // The job was never started here, and will not be: an entry in `begun` makes `is_over` return `true` for
            // it.
            self.begun.insert(id);
        }
        self.prune();
    }

    /// A job is started: returns the frames for it, and drops those for jobs that are no longer live.
    pub fn take_waited(&mut self, id: JobId) -> Waited {
        self.newest = self.newest.max(id);
        self.begun.insert(id);
        let waited = self.frames.remove(&id).unwrap_or_default();
        self.prune();
        waited
    }

    /// Number of stored entries, for the simulator's checkers.
    pub fn len(&self) -> usize {
        self.frames.values().map(|waited| waited.frames.len()).sum::<usize>()
            + self.remains.len()
            + self.dictionaries.len()
    }
}

/// Whether the frame reports that no agent waits for the job any more (`JobDown::Over`).
fn is_over(frame: &Frame) -> bool {
    frame.kind == FrameKind::Control
        && matches!(peer::decode(&frame.payload), Ok(Control::JobDown(JobDown::Over { .. })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Output;
    use crate::outbox::control_frame;
    use crate::testing::{UP, in_session, one_run};
    use wireup_wire::ids::Rank;
    use wireup_wire::inter_job::InterJobReport;
    use wireup_wire::names::Asker;
    use wireup_wire::pmix::{Status, Wanted};

    const FROM: AgentId = AgentId(5);

    fn frame(job: u32, bytes: usize) -> Frame {
        Frame::new(PeerFrame::Direct, 0, job, 0, vec![0; bytes].into())
    }

    #[test]
    fn frames_of_ended_jobs_are_dropped() {
        let (mut cx, mut early) = (in_session(1), Early::new(JobId(4), &[JobId(2)]));
        early.on_frame(&mut cx, FROM, frame(2, 1)).unwrap();
        early.on_frame(&mut cx, FROM, frame(3, 1)).unwrap();
        assert_eq!(early.len(), 1, "job 3 has ended");
        early.on_live(&mut cx, JobId(5), &[JobId(5)]);
        assert_eq!(early.len(), 0);
    }

    #[test]
    fn orders_that_arrive_after_the_end_of_a_job_are_answered() {
        let wanted = Wanted::data_of(Rank(3));
        let down = |order| peer::encode(&Down { asker: Asker::Agent, answer: Answer::Order(order) });
        let give = Order::Give { ticket: 9, wanted };
        let given = InterJobReport::Given { ticket: 9, status: Status::RankGone, blob: Default::default() };
        for (kind, payload, report) in [
            (FrameKind::Down(DownFrame::NamesDown), down(give.clone()), given.clone()),
            (FrameKind::Down(DownFrame::NamesDown), down(Order::TellDeparted), InterJobReport::Ended),
            (FrameKind::Peer(PeerFrame::Modex), peer::encode(&Between::Order(give)), given),
        ] {
            for cx in [one_run(1), in_session(1)] {
                // The parent of agent 1 is the root, to which reports are sent.
                let (mut cx, mut early) = (cx.linked(), Early::default());
                cx.outputs();
                early.on_begun(&mut cx, JobId(1));
                early.on_frame(&mut cx, FROM, Frame::new(kind, 0, 1, 5, payload.clone().into())).unwrap();
                let outputs = cx.outputs();
                let [Output::Send { link: UP, frame }] = &outputs[..] else { panic!("{kind:?}: {outputs:?}") };
                assert_eq!(peer::decode::<Between>(&frame.payload), Ok(Between::Report(report.clone())));
            }
        }
    }

    #[test]
    fn a_job_that_others_have_ended_never_starts() {
        let (mut cx, mut early) = (in_session(1), Early::default());
        early.on_frame(&mut cx, FROM, frame(1, 1)).unwrap();
        let over = control_frame(JobId(1), &Control::JobDown(JobDown::Over { agents: Vec::new() }));
        early.on_frame(&mut cx, FROM, over).unwrap();
        assert!(early.is_over(JobId(1)));
        assert_eq!(early.len(), 0);
    }
}
