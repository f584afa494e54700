//! The links of one agent: who is at the other end, and the half-read frames of each.
//!
//! The way up (the parent; at the root, the launcher) may come up after there is something to say: frames for
//! it wait here until then.

use crate::io::{LinkId, Output, Peer};
use crate::outbox::{Outbox, control_frame};
use bytes::Bytes;
use std::collections::BTreeMap;
use wireup_wire::frame::{Frame, FrameError, FrameReader};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::Control;

#[derive(Default)]
pub struct Links {
    open: BTreeMap<LinkId, OpenLink>,
    children: BTreeMap<AgentId, LinkId>,
    up: Option<LinkId>,
    waiting_up: Vec<Frame>,
    /// Frames for children that were started and have not linked back.
    expected: BTreeMap<AgentId, Vec<Frame>>,
    dropped: Vec<AgentId>,
}

struct OpenLink {
    peer: Peer,
    reader: FrameReader,
}

impl Links {
    pub fn on_up(&mut self, link: LinkId, peer: Peer, out: &mut Outbox) {
        self.open.insert(link, OpenLink { peer, reader: FrameReader::new() });
        match peer {
            Peer::Child(agent) => {
                self.children.insert(agent, link);
                for frame in self.expected.remove(&agent).unwrap_or_default() {
                    out.send(link, frame);
                }
            }
            Peer::Parent | Peer::Launcher => {
                self.up = Some(link);
                for frame in self.waiting_up.drain(..) {
                    out.send(link, frame);
                }
            }
        }
    }

    /// Forgets a link; says who was there.
    pub fn on_down(&mut self, link: LinkId) -> Option<Peer> {
        let peer = self.open.remove(&link)?.peer;
        match peer {
            Peer::Child(agent) => {
                self.children.remove(&agent);
            }
            Peer::Parent | Peer::Launcher => self.up = None,
        }
        Some(peer)
    }

    pub fn peer(&self, link: LinkId) -> Option<Peer> {
        self.open.get(&link).map(|open| open.peer)
    }

    /// The next whole frame of `chunk` on `link`; an unknown link has none.
    pub fn next_frame(&mut self, link: LinkId, chunk: &mut Bytes) -> Result<Option<Frame>, FrameError> {
        match self.open.get_mut(&link) {
            Some(open) => open.reader.next(chunk),
            None => Ok(None),
        }
    }

    pub fn child(&self, agent: AgentId) -> Option<LinkId> {
        self.children.get(&agent).copied()
    }

    /// Children that are linked, then those expected.
    pub fn all_children(&self) -> Vec<AgentId> {
        self.children.keys().chain(self.expected.keys()).copied().collect()
    }

    pub fn has_children(&self) -> bool {
        !self.children.is_empty()
    }

    pub fn send_up(&mut self, frame: Frame, out: &mut Outbox) {
        match self.up {
            Some(link) => out.send(link, frame),
            None => self.waiting_up.push(frame),
        }
    }

    pub fn control_up(&mut self, job: JobId, message: &Control, out: &mut Outbox) {
        self.send_up(control_frame(job, message), out);
    }

    /// A child was started: what is sent to it waits for its link.
    pub fn expect_child(&mut self, agent: AgentId) {
        self.expected.insert(agent, Vec::new());
    }

    /// A child will not link back.
    pub fn forget_child(&mut self, agent: AgentId) {
        self.expected.remove(&agent);
    }

    pub fn expects(&self, agent: AgentId) -> bool {
        self.expected.contains_key(&agent)
    }

    /// Children that are linked.
    pub fn linked_children(&self) -> Vec<AgentId> {
        self.children.keys().copied().collect()
    }

    pub fn expects_children(&self) -> bool {
        !self.expected.is_empty()
    }

    /// Whether there is a way up.
    pub fn has_up(&self) -> bool {
        self.up.is_some()
    }

    /// Children that were dropped since this was asked last.
    pub fn take_dropped(&mut self) -> Vec<AgentId> {
        std::mem::take(&mut self.dropped)
    }

    /// A child does not answer: whatever it still does, its link is of no use any more.
    pub fn drop_child(&mut self, agent: AgentId, out: &mut Outbox) {
        self.forget_child(agent);
        if let Some(link) = self.children.remove(&agent) {
            self.open.remove(&link);
            self.dropped.push(agent);
            out.push(Output::CloseLink { link });
        }
    }

    /// Sends to a child, now or when it has linked back; a lost child gets nothing.
    pub fn send_child(&mut self, agent: AgentId, frame: Frame, out: &mut Outbox) {
        if let Some(link) = self.child(agent) {
            out.send(link, frame);
        } else if let Some(waiting) = self.expected.get_mut(&agent) {
            waiting.push(frame);
        }
    }

    pub fn control_child(&mut self, agent: AgentId, job: JobId, message: &Control, out: &mut Outbox) {
        self.send_child(agent, control_frame(job, message), out);
    }
}
