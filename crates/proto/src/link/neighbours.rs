//! The neighbours of this agent in the tree that are linked or expected, and the frames that wait for their links.
//!
//! The link up (to the parent; at the root of one run, to the launcher) may be made after there are frames for it: they
//! wait here until then, and so do frames for children that were started.

use crate::io::LinkId;
use std::collections::BTreeMap;
use wireup_wire::frame::Frame;
use wireup_wire::ids::AgentId;

#[derive(Default)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash, Debug))]
pub struct Neighbours {
    children: BTreeMap<AgentId, LinkId>,
    /// Children that were started and have not linked, each with the frames that wait for its link.
    expected: BTreeMap<AgentId, Vec<Frame>>,
    up: Option<LinkId>,
    waiting_up: Vec<Frame>,
}

impl Neighbours {
    /// The link of a child.
    pub fn child(&self, agent: AgentId) -> Option<LinkId> {
        self.children.get(&agent).copied()
    }

    pub fn expects(&self, agent: AgentId) -> bool {
        self.expected.contains_key(&agent)
    }

    /// Whether an agent is a child: linked, or expected.
    pub fn has_child(&self, agent: AgentId) -> bool {
        self.children.contains_key(&agent) || self.expected.contains_key(&agent)
    }

    /// Children that are linked.
    pub fn linked(&self) -> impl Iterator<Item = AgentId> {
        self.children.keys().copied()
    }

    /// Children that are linked, then those expected.
    pub fn all(&self) -> impl Iterator<Item = AgentId> {
        self.children.keys().chain(self.expected.keys()).copied()
    }

    /// Whether no child is linked or expected.
    pub fn is_leaf(&self) -> bool {
        self.children.is_empty() && self.expected.is_empty()
    }

    /// The link to the parent.
    pub fn up(&self) -> Option<LinkId> {
        self.up
    }

    /// Whether the parent is linked.
    pub fn has_up(&self) -> bool {
        self.up.is_some()
    }

    /// A child is linked; returns the frames that waited for it.
    pub fn on_child_up(&mut self, agent: AgentId, link: LinkId) -> Vec<Frame> {
        self.children.insert(agent, link);
        self.expected.remove(&agent).unwrap_or_default()
    }

    pub fn on_child_down(&mut self, agent: AgentId) -> Option<LinkId> {
        self.children.remove(&agent)
    }

    /// The parent is linked; returns the frames that waited for it.
    pub fn on_link_up(&mut self, link: LinkId) -> Vec<Frame> {
        self.up = Some(link);
        std::mem::take(&mut self.waiting_up)
    }

    pub fn on_up_lost(&mut self) {
        self.up = None;
    }

    /// A child was started: frames for it wait for its link.
    pub fn expect(&mut self, agent: AgentId) {
        self.expected.insert(agent, Vec::new());
    }

    /// A child will not link; returns the frames for it, which are undeliverable.
    pub fn forget(&mut self, agent: AgentId) -> Vec<Frame> {
        self.expected.remove(&agent).unwrap_or_default()
    }

    /// The link by which a frame for a child is sent; without one the frame waits if the child is expected, otherwise
    /// it is dropped.
    pub fn for_child(&mut self, agent: AgentId, frame: Frame) -> Option<(LinkId, Frame)> {
        if let Some(link) = self.child(agent) {
            return Some((link, frame));
        }
        if let Some(waiting) = self.expected.get_mut(&agent) {
            waiting.push(frame);
        }
        None
    }

    /// The link by which a frame for the parent is sent; without one the frame waits.
    pub fn for_parent(&mut self, frame: Frame) -> Option<(LinkId, Frame)> {
        if self.up.is_none() {
            self.waiting_up.push(frame);
            return None;
        }
        self.up.map(|link| (link, frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::control_frame;
    use wireup_wire::ids::JobId;
    use wireup_wire::talk::{Control, SessionDown};

    const CHILD: AgentId = AgentId(1);
    const LINK: LinkId = LinkId(7);

    fn frame() -> Frame {
        control_frame(JobId(0), &Control::SessionDown(SessionDown::Shutdown))
    }

    #[test]
    fn frames_wait_for_a_child_that_is_expected_and_for_no_other() {
        let mut neighbours = Neighbours::default();
        assert!(neighbours.for_child(CHILD, frame()).is_none());
        assert!(neighbours.is_leaf(), "the child is not expected");
        neighbours.expect(CHILD);
        assert!(neighbours.for_child(CHILD, frame()).is_none());
        assert_eq!(neighbours.on_child_up(CHILD, LINK), [frame()]);
        assert_eq!(neighbours.for_child(CHILD, frame()), Some((LINK, frame())));
        assert!(!neighbours.expects(CHILD) && neighbours.has_child(CHILD));
    }

    #[test]
    fn frames_to_the_parent_wait_until_there_is_one() {
        let mut neighbours = Neighbours::default();
        assert!(neighbours.for_parent(frame()).is_none());
        assert_eq!(neighbours.on_link_up(LINK).len(), 1);
        assert_eq!(neighbours.for_parent(frame()), Some((LINK, frame())));
        neighbours.on_up_lost();
        assert!(neighbours.for_parent(frame()).is_none());
        assert_eq!(neighbours.on_link_up(LinkId(8)).len(), 1);
    }
}
