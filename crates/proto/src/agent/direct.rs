//! What other agents than the neighbours say: frames on their way through the tree, frames over links beside it.
//!
//! A job's frames may come before the tree brings the job: they wait for it. In a standing session a job's own tree is not the
//! session's, so all of its frames may come this way; elsewhere nobody gives orders beside the tree.

use super::Agent;
use crate::io::LinkId;
use crate::job::JobInput;
use crate::pmix::{Remains, modex_frame, modex_gone};
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use wireup_coll::tree::Hop;
use wireup_wire::frame::{Frame, Kind};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::limits::DIRECT_WAITING_BYTES_MAX;
use wireup_wire::modex::Between;
use wireup_wire::peer::{self, Control, Note, PeerError};
use wireup_wire::route::{self, Lives, Routed};

/// Frames for jobs that this agent does not know yet.
#[derive(Default)]
pub struct Early {
    /// The latest job that is known of. Ids grow: frames of others up to that came too late, unless they are `live`.
    newest: JobId,
    /// Those that may still be under way somewhere. None in a session of one run: its jobs follow each other.
    live: BTreeSet<JobId>,
    /// Those of them that were launched here.
    begun: BTreeSet<JobId>,
    frames: BTreeMap<JobId, Waited>,
    bytes: usize,
    /// What ranks of jobs that are over have left behind.
    remains: BTreeMap<JobId, Remains>,
}

/// What came for one job.
pub struct Waited {
    pub frames: Vec<(AgentId, Frame)>,
    /// Nothing was thrown away.
    pub is_whole: bool,
}

impl Early {
    /// Keeps a frame of a job that may still come; what is too much is thrown away, and the job told when it comes.
    pub fn keep(&mut self, from: AgentId, frame: Frame) {
        let id = JobId(frame.job);
        let bytes = self.bytes + frame.wire_len();
        let waited = self.frames.entry(id).or_default();
        if bytes <= DIRECT_WAITING_BYTES_MAX {
            self.bytes = bytes;
            waited.frames.push((from, frame));
        } else {
            waited.is_whole = false;
        }
    }

    /// A job is over; others may still ask for what its ranks have left behind.
    pub fn leave_behind(&mut self, id: JobId, remains: Remains) {
        if !remains.is_empty() {
            self.remains.insert(id, remains);
        }
    }

    /// Nobody will ask.
    pub fn take_back(&mut self, id: JobId) {
        self.remains.remove(&id);
    }

    fn remains(&self, id: JobId) -> &Remains {
        static NOTHING: Remains = Remains::new();
        self.remains.get(&id).unwrap_or(&NOTHING)
    }

    /// Whether a job that is not here was, or never will be.
    pub fn is_over(&self, id: JobId) -> bool {
        self.begun.contains(&id) || (id <= self.newest && !self.live.contains(&id))
    }

    pub fn newest(&self) -> JobId {
        self.newest
    }

    pub fn live(&self) -> Vec<JobId> {
        self.live.iter().copied().collect()
    }

    /// Of the jobs up to `newest` only these may still have something to say.
    pub fn on_live(&mut self, newest: JobId, live: &[JobId]) -> Vec<JobId> {
        if newest < self.newest {
            // What was sent twice comes late.
            return Vec::new();
        }
        // What is over stays so, also where somebody has not heard it.
        let may_be_live = |id: &&JobId| **id > self.newest || self.live.contains(*id);
        self.live = live.iter().filter(may_be_live).copied().collect();
        self.newest = newest;
        self.prune()
    }

    /// Forgets jobs that are over; says of which there were frames.
    fn prune(&mut self) -> Vec<JobId> {
        let before: Vec<JobId> = self.frames.keys().copied().collect();
        let (newest, live) = (self.newest, &self.live);
        let may_come = |id: &JobId| *id > newest || live.contains(id);
        self.begun.retain(may_come);
        self.remains.retain(|id, _| may_come(id));
        let begun = &self.begun;
        self.frames.retain(|id, _| may_come(id) && !begun.contains(id));
        let bytes = |waited: &Waited| waited.frames.iter().map(|(_, frame)| frame.wire_len()).sum::<usize>();
        self.bytes = self.frames.values().map(bytes).sum();
        before.into_iter().filter(|id| !self.frames.contains_key(id)).collect()
    }

    /// A job is over on all nodes.
    pub fn forget(&mut self, id: JobId) {
        self.live.remove(&id);
        if id > self.newest {
            // It never came here, and will not.
            self.begun.insert(id);
        }
        self.prune();
    }

    /// A job is launched: its frames, and an end of those that waited for earlier ones.
    pub fn take(&mut self, id: JobId) -> Waited {
        self.newest = self.newest.max(id);
        self.begun.insert(id);
        let waited = self.frames.remove(&id).unwrap_or_default();
        self.prune();
        waited
    }

    /// Frames that wait, for the simulator's checkers.
    pub fn len(&self) -> usize {
        self.frames.values().map(|waited| waited.frames.len()).sum::<usize>() + self.remains.len()
    }
}

/// Whether nobody waits for a job any more.
fn is_over(frame: &Frame) -> bool {
    frame.kind == Kind::Control && matches!(peer::decode(&frame.payload), Ok(Control::Over { .. }))
}

impl Default for Waited {
    fn default() -> Self {
        Waited { frames: Vec::new(), is_whole: true }
    }
}

impl Agent {
    /// A frame on its way through the tree, to this agent or another. `branch`: the child that passes it on; `None`: from above.
    pub(super) fn on_routed(&mut self, now: Instant, branch: Option<AgentId>, frame: Frame) -> Result<(), PeerError> {
        let (to, from) = route::ends(&frame).ok_or(PeerError::Malformed)?;
        let (me, count) = (self.config.agent, self.tree.count());
        if !self.is_on_its_way(branch, from, to) || from.0 >= count || to.0 >= count {
            return Ok(());
        }
        if to != me {
            match branch.filter(|_| self.is_standing()) {
                Some(branch) => self.pass_routed(branch, from, to, frame),
                None => self.links.route(to, frame, &mut self.out),
            }
            return Ok(());
        }
        let job = JobId(frame.job);
        let Routed { lives, endpoint, frame, .. } = Routed::unwrap(frame)?;
        if lives != (Lives { to: self.links.life(me), from: self.links.life(from) }) {
            return Ok(());
        }
        if let Some(endpoint) = endpoint {
            self.links.on_endpoint(from, endpoint, job, &mut self.out);
        }
        if let Some((number, frame)) = frame
            && let Some(frame) = self.links.direct.on_routed(from, number, frame)
        {
            self.on_peer_frames(now, from, frame);
        }
        self.forget_if_over(job);
        Ok(())
    }

    /// What comes late of a job leaves nothing behind.
    fn forget_if_over(&mut self, job: JobId) {
        if self.is_standing() && !self.jobs.contains_key(&job) && self.early.is_over(job) {
            self.links.direct.forget(job);
            self.links.settle_direct(&mut self.out);
        }
    }

    /// Whether a routed frame can have come from there and goes on to somewhere else.
    fn is_on_its_way(&self, branch: Option<AgentId>, from: AgentId, to: AgentId) -> bool {
        let (me, below) = (self.config.agent, |top, agent| self.tree.subtree_contains(top, agent));
        if self.is_standing() {
            // Adopted agents are not where the tree was drawn, but none is above those that it was below.
            let has_way = branch.is_some() || self.links.next_hop(to) != Hop::Parent;
            return branch.is_none_or(|branch| below(branch, from)) && has_way && !self.links.is_lost(from);
        }
        match branch {
            Some(branch) => below(branch, from) && !below(branch, to),
            None => !below(me, from) && below(me, to),
        }
    }

    /// A child's frame for another agent.
    fn pass_routed(&mut self, branch: AgentId, from: AgentId, to: AgentId, frame: Frame) {
        match self.links.next_hop_from(branch, from, to) {
            Hop::Child(child) => self.links.send_child(child, frame, &mut self.out),
            Hop::Parent if !self.is_root() => self.links.send_up(frame, &mut self.out),
            // Nobody here knows it.
            Hop::Parent | Hop::Here => {}
        }
    }

    /// A frame over a link beside the tree.
    pub(super) fn on_beside(&mut self, now: Instant, link: LinkId, from: AgentId, frame: Frame) {
        let job = JobId(frame.job);
        if let Some(frame) = self.links.direct.on_frame(from, link, frame, &mut self.out) {
            self.on_peer_frames(now, from, frame);
        }
        self.forget_if_over(job);
    }

    /// A frame, and those that had waited for it.
    fn on_peer_frames(&mut self, now: Instant, from: AgentId, frame: Frame) {
        let mut next = Some(frame);
        while let Some(frame) = next {
            self.on_peer_frame(now, from, frame);
            next = self.links.direct.follower(from);
        }
    }

    /// A frame that another agent, wherever it is in the tree, has sent to this one.
    pub(super) fn on_peer_frame(&mut self, now: Instant, from: AgentId, frame: Frame) {
        if !matches!(frame.kind, Kind::Direct | Kind::Modex | Kind::Bench) && !self.is_standing() {
            return;
        }
        let id = JobId(frame.job);
        // What an agent of ours cannot have written changes nothing.
        let _ = if self.jobs.contains_key(&id) {
            self.take_direct(now, id, from, frame)
        } else if self.early.is_over(id) {
            self.answer_for_gone(id, from, &frame)
        } else if is_over(&frame) {
            // The job will not come here: those who waited for this agent gave up.
            self.early.forget(id);
            self.forget_frames_of(vec![id]);
            Ok(())
        } else {
            self.early.keep(from, frame);
            Ok(())
        };
    }

    fn take_direct(&mut self, now: Instant, id: JobId, from: AgentId, frame: Frame) -> Result<(), PeerError> {
        if frame.kind == Kind::Modex {
            let message: Between = peer::decode(&frame.payload)?;
            self.tell_job(now, id, JobInput::Between { from, message });
        } else if frame.kind == Kind::Bench {
            self.tell_job(now, id, JobInput::Bench { from, frame });
        } else if frame.kind == Kind::Control {
            let message = peer::decode(&frame.payload)?;
            self.on_job_control(now, Some(from), id, message);
        } else if frame.kind != Kind::Direct {
            self.on_job_frame(now, Some(from), frame);
        } else {
            self.tell_job(now, id, JobInput::Direct { from, frame });
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
        let Waited { frames, is_whole } = self.early.take(id);
        if !is_whole {
            let problem = format!("more than {DIRECT_WAITING_BYTES_MAX} bytes came for the job before it began");
            self.tell_job(now, id, JobInput::EarlyOverflow(problem));
        }
        for (from, frame) in frames {
            // What an agent of ours cannot have written changes nothing.
            let _ = self.take_direct(now, id, from, frame);
        }
    }

    /// Tells what is due of links beside the tree.
    pub(super) fn check_direct(&mut self, now: Instant) {
        self.links.direct.on_tick();
        self.links.settle_direct(&mut self.out);
        let agent = self.config.agent;
        for (peer, problem) in self.links.direct.take_notes() {
            self.note(Note::Routed { agent, peer, problem });
        }
        for broken in self.links.direct.take_broken() {
            for job in broken.jobs {
                let problem = broken.problem.clone();
                self.tell_job(now, job, JobInput::NoDirectLink { agent: broken.agent, problem });
            }
        }
    }
}
