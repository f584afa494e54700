//! The links of one agent: who is at the other end, and the half-read frames of each.
//!
//! The way up (the parent; at the root, the launcher) may come up after there is something to say: frames for
//! it wait here until then. Links beside the tree are made when they are first wanted (`direct`); a neighbour in the tree
//! needs none.
//!
//! In a standing session the root has any number of launchers instead of one way up, and an agent whose parent is gone gets another one.
//! `below` knows who is linked where, `ways` what that means for frames.

mod below;
mod direct;
mod owners;
mod ways;

use crate::io::{LinkId, Output, Peer};
use crate::outbox::{Outbox, control_frame};
pub use below::Below;
use bytes::Bytes;
use direct::{Dial, Direct};
use owners::Owners;
use std::collections::{BTreeMap, BTreeSet};
pub use ways::Keeper;
use wireup_coll::tree::Tree;
use wireup_wire::frame::{Frame, FrameError, FrameReader};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::limits::LAUNCHER_PAYLOAD_MAX;
use wireup_wire::peer::{AgentTransport, Control};
use wireup_wire::route::{Endpoint, Lives, Routed, UcxPoint};

pub struct Links {
    me: AgentId,
    tree: Tree,
    open: BTreeMap<LinkId, OpenLink>,
    children: BTreeMap<AgentId, LinkId>,
    up: Option<LinkId>,
    waiting_up: Vec<Frame>,
    /// Frames for children that were started and have not linked back.
    expected: BTreeMap<AgentId, Vec<Frame>>,
    dropped: Vec<AgentId>,
    pub direct: Direct,
    /// Where other agents can dial in, once this agent listens.
    addresses: Vec<String>,
    /// Of a standing session.
    pub standing: Option<Standing>,
}

/// What differs in a standing session.
#[derive(Default)]
pub struct Standing {
    /// The way up does not lead to the agent that the tree says.
    pub is_adopted: bool,
    pub owners: Owners,
    /// Agents of the subtree.
    pub below: Below,
    /// Agents that nothing is sent to, and nothing taken from.
    pub lost: BTreeSet<AgentId>,
    /// Which of its lives an agent lives, where it is not the first.
    pub lives: BTreeMap<AgentId, u32>,
}

struct OpenLink {
    peer: Peer,
    reader: FrameReader,
}

impl Links {
    pub fn new(me: AgentId, tree: Tree, transport: AgentTransport, is_standing: bool) -> Self {
        Links {
            me,
            tree,
            open: BTreeMap::new(),
            children: BTreeMap::new(),
            up: None,
            waiting_up: Vec::new(),
            expected: BTreeMap::new(),
            dropped: Vec::new(),
            direct: Direct::new(me, transport, is_standing),
            addresses: Vec::new(),
            standing: is_standing.then(Standing::default),
        }
    }

    pub fn on_up(&mut self, link: LinkId, peer: Peer, out: &mut Outbox) {
        let reader = match (peer, &self.standing) {
            (Peer::Launcher, Some(_)) => FrameReader::with_limit(LAUNCHER_PAYLOAD_MAX),
            _ => FrameReader::new(),
        };
        self.open.insert(link, OpenLink { peer, reader });
        match peer {
            Peer::Child(agent) => {
                self.children.insert(agent, link);
                for frame in self.expected.remove(&agent).unwrap_or_default() {
                    out.send(link, frame);
                }
            }
            // Launchers come and go; orphans are taken in as children, or not at all.
            Peer::Launcher if self.standing.is_some() => {}
            Peer::Orphan { .. } => {}
            Peer::Parent | Peer::Launcher => {
                self.up = Some(link);
                for frame in self.waiting_up.drain(..) {
                    out.send(link, frame);
                }
            }
            Peer::Direct(agent) => self.direct.on_up(agent, link, out),
        }
    }

    /// Forgets a link; says who was there.
    pub fn on_down(&mut self, link: LinkId) -> Option<Peer> {
        let peer = self.open.remove(&link)?.peer;
        match peer {
            Peer::Child(agent) => {
                self.children.remove(&agent);
            }
            Peer::Orphan { .. } => {}
            Peer::Parent | Peer::Launcher => match &mut self.standing {
                Some(standing) if peer == Peer::Launcher => standing.owners.forget_link(link),
                Some(standing) => {
                    self.up = None;
                    standing.is_adopted = true;
                }
                None => self.up = None,
            },
            // What becomes of it is said with the reason.
            Peer::Direct(_) => {}
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
        if let Some(standing) = self.standing.as_ref().filter(|_| self.me == AgentId(0)) {
            for link in standing.owners.links_of(JobId(frame.job)) {
                out.send(link, frame.clone());
            }
            return;
        }
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

    /// A child will not link back; what was for it, in vain.
    pub fn forget_child(&mut self, agent: AgentId) -> Vec<Frame> {
        self.expected.remove(&agent).unwrap_or_default()
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
        if self.cut_child(agent, out) {
            self.dropped.push(agent);
        }
    }

    /// A child is none any more. True if it was linked.
    pub fn cut_child(&mut self, agent: AgentId, out: &mut Outbox) -> bool {
        self.forget_child(agent);
        let link = self.children.remove(&agent);
        if let Some(link) = link {
            self.open.remove(&link);
            out.push(Output::CloseLink { link });
        }
        link.is_some()
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

    /// Where other agents can dial in.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    pub fn on_listening(&mut self, addresses: Vec<String>, out: &mut Outbox) {
        self.addresses.clone_from(&addresses);
        self.direct.on_listening(addresses);
        self.settle_direct(out);
    }

    /// Nobody can dial in; a later wish tries it again.
    pub fn on_listen_failed(&mut self, problem: &str, out: &mut Outbox) {
        self.direct.on_listen_failed(problem);
        self.settle_direct(out);
    }

    /// By what links are made beside the tree.
    pub fn on_decided(&mut self, ucx: Option<UcxPoint>, out: &mut Outbox) {
        self.direct.on_decided(ucx);
        self.settle_direct(out);
    }

    /// Sends to any other agent: on the link of the tree if it is a neighbour, else as `direct` has it.
    ///
    /// # Panics
    /// For this agent itself.
    pub fn send_peer(&mut self, agent: AgentId, frame: Frame, out: &mut Outbox) {
        assert_ne!(agent, self.me, "an agent has no link to itself");
        if self.is_lost(agent) {
            // Its jobs are being ended.
        } else if self.is_parent(agent) {
            self.send_up(frame, out);
        } else if self.is_own_child(agent) {
            self.send_child(agent, frame, out);
        } else {
            self.direct.send(agent, frame, out);
            self.settle_direct(out);
        }
    }

    /// Begins the links that will be wanted for these agents.
    pub fn prepare_peers(&mut self, agents: impl IntoIterator<Item = AgentId>, job: JobId, out: &mut Outbox) {
        for agent in agents {
            if !self.is_neighbour(agent) {
                self.direct.prepare(agent, job);
            }
        }
        self.settle_direct(out);
    }

    /// Carries out what `direct` has decided.
    pub fn settle_direct(&mut self, out: &mut Outbox) {
        if self.direct.wants_to_listen() {
            out.push(Output::Listen);
        }
        for link in self.direct.take_closing() {
            self.open.remove(&link);
            out.push(Output::CloseLink { link });
        }
        while let Some((job, routed)) = self.direct.next_routed() {
            let to = routed.to;
            let lives = Lives { to: self.life(to), from: self.life(self.me) };
            self.route(to, Routed { lives, ..routed }.wrap(job.0), out);
        }
    }

    /// Another agent says where it listens.
    pub fn on_endpoint(&mut self, from: AgentId, endpoint: Endpoint, job: JobId, out: &mut Outbox) {
        if !self.is_neighbour(from) {
            if let Some(Dial { agent, addresses, ucx }) = self.direct.on_endpoint(from, endpoint, job) {
                out.push(Output::Dial { agent, addresses, ucx });
            }
            self.settle_direct(out);
        }
    }

    /// An agent was dialled in vain.
    pub fn on_dial_failed(&mut self, agent: AgentId, problem: String, out: &mut Outbox) {
        self.direct.on_dial_failed(agent, problem);
        self.settle_direct(out);
    }

    /// A link beside the tree is gone.
    pub fn on_direct_lost(&mut self, agent: AgentId, link: LinkId, problem: &str, out: &mut Outbox) {
        self.direct.on_lost(agent, link, problem);
        self.settle_direct(out);
    }

    /// An agent is lost. True if that is news.
    pub fn lose(&mut self, agent: AgentId) -> bool {
        self.standing.as_mut().is_some_and(|standing| standing.lost.insert(agent))
    }

    /// A lost agent is started again, to live that life.
    pub fn find(&mut self, agent: AgentId, life: u32) {
        if let Some(standing) = &mut self.standing {
            standing.lost.remove(&agent);
            standing.lives.insert(agent, life);
        }
    }

    /// Which of its lives an agent lives.
    pub fn life(&self, agent: AgentId) -> u32 {
        let life = self.standing.as_ref().and_then(|standing| standing.lives.get(&agent));
        life.copied().unwrap_or(0)
    }

    pub fn lost(&self) -> impl Iterator<Item = AgentId> {
        self.standing.iter().flat_map(|standing| standing.lost.iter().copied())
    }

    pub fn is_lost(&self, agent: AgentId) -> bool {
        self.standing.as_ref().is_some_and(|standing| standing.lost.contains(&agent))
    }

    /// Whether an agent is a neighbour that is reached by a link of the tree. Those that were adopted reach their new
    /// parents as any other agent: so all frames of two agents take ways that keep their order.
    fn is_neighbour(&self, agent: AgentId) -> bool {
        agent == self.me || self.is_parent(agent) || self.is_own_child(agent)
    }

    fn is_parent(&self, agent: AgentId) -> bool {
        let is_adopted = self.standing.as_ref().is_some_and(|standing| standing.is_adopted);
        self.tree.parent(self.me) == Some(agent) && !is_adopted
    }

    fn is_own_child(&self, agent: AgentId) -> bool {
        let is_there = || self.children.contains_key(&agent) || self.expected.contains_key(&agent);
        self.tree.parent(agent) == Some(self.me) && (self.standing.is_none() || is_there())
    }

    /// The agent at the other end of a link; the launcher is none.
    pub fn agent_at(&self, peer: Peer) -> Option<AgentId> {
        match peer {
            Peer::Parent => self.tree.parent(self.me).filter(|parent| self.is_parent(*parent)),
            Peer::Child(agent) | Peer::Direct(agent) => Some(agent),
            Peer::Launcher | Peer::Orphan { .. } => None,
        }
    }
}
