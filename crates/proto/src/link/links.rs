//! The links of one agent: the peer at the other end of each, and the partially read frames.
//!
//! Direct links to other agents are made when first needed (`direct`); neighbours in the tree do not need them.
//! `routes` determines the route of a frame to an agent that is not a neighbour, [`Owners`] the launchers to which the
//! root of a standing session sends the frames of a job.

use super::direct::{Broken, Direct};
use super::{Neighbours, Routes};
use crate::io::{LinkId, Output, Peer};
use crate::outbox::Outbox;
use crate::policy::Policy;
use std::collections::{BTreeMap, BTreeSet};
use wireup_coll::tree::Hop;
use wireup_wire::frame::{Frame, FrameReader};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::limits::LAUNCHER_PAYLOAD_MAX;
use wireup_wire::peer::{AgentTransport, PeerError};
use wireup_wire::route::{self, Routed};

/// The next hop of a job's frames towards its launcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpHop {
    /// The launcher itself: this agent is the root.
    Launcher,
    Agent(AgentId),
    /// The launcher cannot be reached any more.
    Nowhere,
}

pub struct Links {
    me: AgentId,
    policy: Policy,
    open: BTreeMap<LinkId, OpenLink>,
    pub neighbours: Neighbours,
    pub direct: Direct,
    pub routes: Routes,
    pub owners: Owners,
    /// The agent's outputs.
    pub out: Outbox,
}

struct OpenLink {
    peer: Peer,
    reader: FrameReader,
}

/// What another agent has sent for a job, through the tree or over a direct link.
pub struct Arrived {
    pub from: AgentId,
    pub job: JobId,
    /// The frame, if the frames before it have arrived. Frames that waited for it follow ([`Direct::follower`]).
    pub frame: Option<Frame>,
}

impl Links {
    pub fn new(me: AgentId, transport: AgentTransport, policy: Policy, routes: Routes) -> Self {
        Links {
            me,
            policy,
            open: BTreeMap::new(),
            neighbours: Neighbours::default(),
            direct: Direct::new(me, transport, policy.survives_losses()),
            routes,
            owners: Owners::default(),
            out: Outbox::default(),
        }
    }

    pub fn is_root(&self) -> bool {
        self.me == AgentId(0)
    }

    pub fn on_link_up(&mut self, link: LinkId, peer: Peer) {
        let is_one_of_many = peer == Peer::Launcher && self.policy.has_many_launchers();
        let reader = match is_one_of_many {
            true => FrameReader::with_limit(LAUNCHER_PAYLOAD_MAX),
            false => FrameReader::new(),
        };
        self.open.insert(link, OpenLink { peer, reader });
        let waited = match peer {
            Peer::Child { agent, .. } => self.neighbours.on_child_up(agent, link),
            Peer::Parent | Peer::Launcher if !is_one_of_many => self.neighbours.on_link_up(link),
            // Where there are many launchers, no frames are kept for one of them. An agent that asks to be adopted gets
            // its frames when the root has adopted it.
            Peer::Parent | Peer::Launcher | Peer::Rejoin { .. } => Vec::new(),
            Peer::Direct(agent) => return self.direct.on_link_up(agent, link, &mut self.out),
        };
        waited.into_iter().for_each(|frame| self.out.send(link, frame));
    }

    /// The root is linked but has not yet confirmed the adoption: nothing is sent.
    pub fn on_reached(&mut self, link: LinkId) {
        self.open.insert(link, OpenLink { peer: Peer::Parent, reader: FrameReader::new() });
    }

    /// The root has confirmed the adoption: sends the frames that waited for a parent.
    pub fn on_taken_in(&mut self, link: LinkId) {
        self.neighbours.on_link_up(link).into_iter().for_each(|frame| self.out.send(link, frame));
    }

    /// Forgets a link; returns its peer.
    pub fn on_link_down(&mut self, link: LinkId) -> Option<Peer> {
        let peer = self.open.remove(&link)?.peer;
        match peer {
            Peer::Child { agent, .. } => drop(self.neighbours.on_child_down(agent)),
            Peer::Launcher if self.policy.has_many_launchers() => {}
            Peer::Parent | Peer::Launcher => self.neighbours.on_up_lost(),
            // `Direct::on_lost` handles the loss of a direct link, because it also needs the reason.
            Peer::Rejoin { .. } | Peer::Direct(_) => {}
        }
        Some(peer)
    }

    pub fn peer(&self, link: LinkId) -> Option<Peer> {
        self.open.get(&link).map(|open| open.peer)
    }

    /// The reader of the frames on `link`; `None`: the link is unknown.
    pub fn reader(&mut self, link: LinkId) -> Option<&mut FrameReader> {
        self.open.get_mut(&link).map(|open| &mut open.reader)
    }

    /// Sends a frame to the parent, now or when it is linked. At the root of a standing session: to the launcher of the
    /// frame's job or, for job 0, to all launchers that receive notes about the session.
    pub fn send_up(&mut self, frame: Frame) {
        if self.is_root() && self.policy.has_many_launchers() {
            for link in self.owners.links_of(JobId(frame.job)) {
                self.out.send(link, frame.clone());
            }
        } else if let Some((link, frame)) = self.neighbours.for_parent(frame) {
            self.out.send(link, frame);
        }
    }

    /// Sends a frame of a job towards the job's launcher. `up`: the next hop in the job's tree.
    pub fn send_job_up(&mut self, up: UpHop, frame: Frame) {
        match up {
            UpHop::Launcher => self.send_up(frame),
            UpHop::Agent(agent) => self.send_peer(agent, frame),
            UpHop::Nowhere => {}
        }
    }

    /// At the root: sends a report about the waits of a job's ranks to all launchers that watch the job. `is_last`:
    /// removes these watchers afterwards. Returns whether the job had any.
    pub fn report(&mut self, frame: &Frame, is_last: bool) -> bool {
        let watchers = self.owners.watchers.get(&JobId(frame.job)).cloned().unwrap_or_default();
        watchers.iter().for_each(|link| self.out.send(*link, frame.clone()));
        if is_last {
            self.owners.watchers.remove(&JobId(frame.job));
        }
        !watchers.is_empty()
    }

    /// Removes a child. Returns whether it was linked.
    pub fn cut_child(&mut self, agent: AgentId) -> bool {
        self.neighbours.forget(agent);
        let link = self.neighbours.on_child_down(agent);
        if let Some(link) = link {
            self.open.remove(&link);
            self.out.push(Output::CloseLink { link });
        }
        link.is_some()
    }

    /// Sends a frame to a child, now or when the child has linked; frames for a lost child are dropped.
    pub fn send_child(&mut self, agent: AgentId, frame: Frame) {
        if let Some((link, frame)) = self.neighbours.for_child(agent, frame) {
            self.out.send(link, frame);
        }
    }

    /// Sends a frame to all children that are linked or expected.
    pub fn send_children(&mut self, frame: &Frame) {
        for child in self.neighbours.all().collect::<Vec<_>>() {
            self.send_child(child, frame.clone());
        }
    }

    /// Sends a frame towards these agents, down the session's tree; each child gets the frame once.
    pub fn pass_on(&mut self, agents: &[AgentId], frame: &Frame) {
        for child in self.routes.branches_to(agents) {
            self.send_child(child, frame.clone());
        }
    }

    /// Forwards a frame towards an agent, hop by hop.
    fn route(&mut self, to: AgentId, frame: Frame) {
        match self.routes.next_hop(to) {
            Hop::Child(child) => self.send_child(child, frame),
            Hop::Parent if !self.is_root() => self.send_up(frame),
            // The receiver is unknown here: the frame is dropped.
            Hop::Parent | Hop::Here => {}
        }
    }

    /// Calls `act` with the direct links, then queues what they request: to listen, to close links, to route frames.
    pub fn with_direct(&mut self, act: impl FnOnce(&mut Direct)) {
        act(&mut self.direct);
        self.settle_direct();
    }

    fn settle_direct(&mut self) {
        if self.direct.wants_to_listen() {
            self.out.push(Output::Listen);
        }
        for link in std::mem::take(&mut self.direct.closing) {
            self.open.remove(&link);
            self.out.push(Output::CloseLink { link });
        }
        while let Some((job, routed)) = self.direct.routed.pop_front() {
            let to = routed.to;
            let incarnations = self.routes.incarnations_to(to);
            self.route(to, Routed { incarnations, ..routed }.wrap(job.0));
        }
    }

    /// Sends a frame to any other agent: on the tree's link if the agent is a neighbour, otherwise as `direct` decides.
    ///
    /// # Panics
    /// If `agent` is this agent itself.
    pub fn send_peer(&mut self, agent: AgentId, frame: Frame) {
        assert_ne!(agent, self.me, "an agent has no link to itself");
        if self.routes.roster.is_lost(agent) {
            // The frame is dropped: the jobs with ranks on the lost agent's node are being ended.
        } else if self.routes.is_parent(agent) {
            self.send_up(frame);
        } else if self.routes.is_own_child(&self.neighbours, agent) {
            self.send_child(agent, frame);
        } else {
            self.direct.send(agent, frame, &mut self.out);
            self.settle_direct();
        }
    }

    /// Starts to make the direct links that the job will need: to every agent in `agents` that is not a neighbour in
    /// the tree.
    pub fn prepare_peers(&mut self, mut agents: Vec<AgentId>, job: JobId) {
        agents.retain(|agent| !self.routes.is_neighbour(&self.neighbours, *agent));
        self.with_direct(|direct| agents.into_iter().for_each(|agent| direct.prepare(agent, job)));
    }

    /// Handles a frame routed through the tree, to this agent or another. `branch`: the child that forwarded it;
    /// `None`: the parent.
    ///
    /// # Errors
    /// No correct agent sends such a frame.
    pub fn on_routed(&mut self, branch: Option<AgentId>, frame: Frame) -> Result<Option<Arrived>, PeerError> {
        let (to, from) = route::ends(&frame).ok_or(PeerError::Malformed)?;
        if !self.routes.is_on_its_way(branch, from, to) {
            return Ok(None);
        }
        if to != self.me {
            self.route(to, frame);
            return Ok(None);
        }
        let job = JobId(frame.job);
        let Routed { incarnations, endpoint, frame, .. } = Routed::unwrap(frame)?;
        if incarnations != self.routes.incarnations_from(from) {
            return Ok(None);
        }
        if let Some(endpoint) = endpoint.filter(|_| !self.routes.is_neighbour(&self.neighbours, from)) {
            if let Some(dial) = self.direct.on_endpoint(from, endpoint, job) {
                self.out.push(dial);
            }
            self.settle_direct();
        }
        let frame = frame.and_then(|(number, frame)| self.direct.on_routed(from, number, frame));
        Ok(Some(Arrived { from, job, frame }))
    }

    /// Handles a frame that arrived over a direct link.
    pub fn on_direct_frame(&mut self, link: LinkId, from: AgentId, frame: Frame) -> Arrived {
        let job = JobId(frame.job);
        Arrived { from, job, frame: self.direct.on_frame(from, link, frame, &mut self.out) }
    }

    /// Handles timeouts of direct links. Returns the peers that are reached only through the tree, and why; and the
    /// peers whose jobs cannot continue.
    pub fn check_direct(&mut self) -> (Vec<(AgentId, String)>, Vec<Broken>) {
        self.with_direct(Direct::on_tick);
        (self.direct.take_notes(), self.direct.take_broken())
    }

    /// The agent at the other end of a link; `None` for a launcher.
    pub fn agent_at(&self, peer: Peer) -> Option<AgentId> {
        match peer {
            Peer::Parent => self.routes.parent(),
            Peer::Child { agent, .. } | Peer::Direct(agent) => Some(agent),
            Peer::Launcher | Peer::Rejoin { .. } => None,
        }
    }
}

#[derive(Default)]
pub struct Owners {
    /// The link of each job's launcher, from the time that the job waits for its nodes.
    pub jobs: BTreeMap<JobId, LinkId>,
    /// Links that receive notes about the session.
    pub listeners: BTreeSet<LinkId>,
    /// Links of `wireup why`, by the job that it asks about: they get reports where the ranks wait, then their call
    /// stacks.
    pub watchers: BTreeMap<JobId, BTreeSet<LinkId>>,
}

impl Owners {
    pub fn jobs_of(&self, link: LinkId) -> Vec<JobId> {
        self.jobs.iter().filter(|(_, owner)| **owner == link).map(|(job, _)| *job).collect()
    }

    pub fn forget_link(&mut self, link: LinkId) {
        self.jobs.retain(|_, owner| *owner != link);
        self.listeners.remove(&link);
        self.watchers.retain(|_, watchers| !watchers.remove(&link) || !watchers.is_empty());
    }

    /// The links to which messages about a job are sent; job 0 is the session itself.
    pub fn links_of(&self, job: JobId) -> Vec<LinkId> {
        match job {
            JobId(0) => self.listeners.iter().copied().collect(),
            job => self.jobs.get(&job).copied().into_iter().collect(),
        }
    }
}
