//! An agent's links beside the tree: requests for them on their way, frames that come over them, those that are lost.
//!
//! A link that an earlier job of the session made may bring a job's frames before the tree brings the job: they wait for it.

use super::Agent;
use crate::io::{LinkId, Output, Peer};
use crate::job::{Remains, modex_frame, modex_gone};
use crate::time::Instant;
use std::collections::BTreeMap;
use wireup_wire::frame::{Frame, Kind};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::limits::DIRECT_WAITING_BYTES_MAX;
use wireup_wire::modex::Between;
use wireup_wire::peer::{self, PeerError};

/// Frames for jobs that this agent does not know yet.
#[derive(Default)]
pub struct Early {
    /// The latest job that was launched here. Ids grow: frames of others that are not there came too late.
    newest: JobId,
    frames: BTreeMap<JobId, Vec<(AgentId, Frame)>>,
    bytes: usize,
    /// What ranks of the last job that is over have left behind.
    remains: (JobId, Remains),
}

impl Early {
    /// Keeps a frame of a job that may still come. False: it would be one too many.
    pub fn keep(&mut self, from: AgentId, frame: Frame) -> bool {
        let id = JobId(frame.job);
        if id <= self.newest {
            return true;
        }
        self.bytes += frame.wire_len();
        self.frames.entry(id).or_default().push((from, frame));
        self.bytes <= DIRECT_WAITING_BYTES_MAX
    }

    /// A job is over; others may still ask for what its ranks have left behind.
    pub fn leave_behind(&mut self, id: JobId, remains: Remains) {
        self.remains = (id, remains);
    }

    fn remains(&self, id: JobId) -> &Remains {
        static NOTHING: Remains = Remains::new();
        if self.remains.0 == id { &self.remains.1 } else { &NOTHING }
    }

    /// Whether a job that is not here was, or never will be.
    pub fn is_over(&self, id: JobId) -> bool {
        id <= self.newest
    }

    /// A job is launched: its frames, and an end of those that waited for earlier ones.
    pub fn take(&mut self, id: JobId) -> Vec<(AgentId, Frame)> {
        self.newest = self.newest.max(id);
        self.remains = Default::default();
        let later = self.frames.split_off(&JobId(id.0.saturating_add(1)));
        let frames = std::mem::replace(&mut self.frames, later).remove(&id).unwrap_or_default();
        self.bytes = self.frames.values().flatten().map(|(_, frame)| frame.wire_len()).sum();
        frames
    }
}

impl Agent {
    /// `wisher` wants a link with `to`. `from`: the child that passes it on; `None`: from above.
    pub(super) fn on_reach(
        &mut self,
        from: Option<AgentId>,
        wisher: AgentId,
        to: AgentId,
        addresses: Vec<String>,
        job: JobId,
    ) {
        let (me, count) = (self.config.agent, self.tree.count());
        let below = |top: AgentId, agent: AgentId| self.tree.subtree_contains(top, agent);
        let is_on_its_way = match from {
            Some(branch) => below(branch, wisher) && !below(branch, to),
            None => !below(me, wisher) && below(me, to),
        };
        if is_on_its_way && wisher.0 < count && to.0 < count {
            self.links.on_reach(to, wisher, addresses, job, &mut self.out);
        }
    }

    /// A frame of another agent, over whichever link the two have.
    pub(super) fn on_direct(&mut self, now: Instant, link: LinkId, peer: Peer, frame: Frame) -> Result<(), PeerError> {
        let Some(from) = self.links.agent_at(peer) else {
            return Ok(());
        };
        let id = JobId(frame.job);
        if self.jobs.contains_key(&id) {
            self.links.direct.on_heard(from, id);
            return self.take_direct(now, id, from, frame);
        } else if self.early.is_over(id) {
            self.answer_for_gone(id, from, &frame)?;
        } else if !self.early.keep(from, frame) {
            self.out.push(Output::CloseLink { link });
            self.on_link_down(now, link, "it sent too much for a job that is not here".into());
        }
        Ok(())
    }

    fn take_direct(&mut self, now: Instant, id: JobId, from: AgentId, frame: Frame) -> Result<(), PeerError> {
        if frame.kind == Kind::Modex {
            let message: Between = peer::decode(&frame.payload)?;
            self.with_job(now, id, |job, cx| job.on_between(from, message, cx));
        } else {
            self.with_job(now, id, |job, cx| job.on_direct(from, frame, cx));
        }
        Ok(())
    }

    /// A job that is over here, and not where `from` is: nothing of its ranks is left.
    fn answer_for_gone(&mut self, id: JobId, from: AgentId, frame: &Frame) -> Result<(), PeerError> {
        if frame.kind == Kind::Modex
            && let Between::Want { ranks } = peer::decode(&frame.payload)?
        {
            for answer in modex_gone(ranks, self.early.remains(id)) {
                self.links.send_peer(from, modex_frame(id, &answer), &mut self.out);
            }
        }
        Ok(())
    }

    /// A job begins: what came for it before.
    pub(super) fn take_early(&mut self, now: Instant, id: JobId) {
        for (from, frame) in self.early.take(id) {
            self.links.direct.on_heard(from, id);
            // What an agent of ours cannot have written changes nothing.
            let _ = self.take_direct(now, id, from, frame);
        }
    }

    pub(super) fn check_direct(&mut self, now: Instant) {
        let here = self.links.addresses().to_vec();
        for lost in self.links.direct.take_lost(&here) {
            for job in lost.jobs {
                self.with_job(now, job, |job, cx| job.fail_direct(lost.agent, &lost.problem, cx));
            }
        }
    }
}
