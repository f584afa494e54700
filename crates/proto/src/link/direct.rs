//! Moves frames between agents that are not neighbours in the tree: through the tree, or over a direct link.
//!
//! The first frame for a peer goes through the tree and carries the sender's endpoint; the peer dials it, and both use
//! the link from then on (S3: direct-connect). No frame waits for the round trip of another:
//!
//! ```text
//!   sender                        tree                         peer
//!     ── Routed { endpoint, frame 0 } ──►  … ──►  ── dials the sender ─┐
//!     ── Routed { frame 1 } ──►  … ──►                                 │
//!     ◄──────────────── handshake, link ───────────────────────────────┘
//!     ◄────────── frames 2, 3, … both ways ──────────────►
//! ```
//!
//! Only `ROUTED_BYTES_MAX` go through the tree in this way; more frames wait for the link, half a second at most. If
//! both agents start at once, their endpoints cross: then the agent with the higher id dials the other one, and the
//! agent with the lower id ignores the endpoint that it receives. So each pair has one link.
//!
//! An agent that cannot dial a peer says so and sends its own endpoint, so that the peer dials it. If that fails too,
//! or the link breaks later, the two use the tree for the rest of the session, with one note for the user; neither
//! tries again. Sequence numbers keep the frames in order across all changes and lose none (`window`): frames that a
//! broken link may have lost are sent again. The note is delayed and sent only if a job still uses the route: usually a
//! link breaks because a node is gone, and then the tree reports more.
//!
//! `peer` is the state of one peer, `making` makes and loses links.
//!
//! Cost: a message of a few hundred bytes, with the first frame, per hop between the two; then the handshake's round
//! trips.

mod making;
mod peer;

use crate::io::LinkId;
use crate::outbox::Outbox;
use crate::time::Instant;
use peer::{ACKNOWLEDGE, BEGIN, Peer, State, about, acknowledged};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wireup_wire::frame::{Frame, Kind};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::limits::DIRECT_WAIT_NS_MAX;
use wireup_wire::peer::AgentTransport;
use wireup_wire::route::{Point, Routed};

/// When the parent's explanation of a lost link is awaited no longer (ns), and the loss is reported. Chosen: the parent
/// reports a gone agent after at most a fifth of a second, and the report needs some hops.
const EXPLAIN_NS: u64 = 500_000_000;
/// How long to wait before frames that a link may have lost are sent again (ns): at the end of a session all links
/// close, one after another, and no frame is needed any more. Chosen: agents of one session leave within this time.
const AGAIN_NS: u64 = 100_000_000;
/// Bytes that a peer may keep for this agent while no job is in progress between the two. Chosen: less than a job's own
/// state.
const IDLE_BYTES_MAX: usize = 4 << 10;
/// All peers of one agent that are not neighbours.
pub struct Direct {
    me: AgentId,
    ways: Ways,
    /// Where this agent can be dialled; `None` before it listens.
    addresses: Option<Vec<String>>,
    /// Whether the driver was asked to listen.
    asked_to_listen: bool,
    /// This agent's address in the transport that all agents have agreed on.
    point: Option<Point>,
    /// Whether the agents have not agreed on a transport yet.
    is_undecided: bool,
    peers: BTreeMap<AgentId, Peer>,
    /// Messages to be sent through the tree, in order, each with its job.
    routed: VecDeque<(JobId, Routed)>,
    /// Links to be closed.
    closing: Vec<LinkId>,
    now: Instant,
}

/// How frames reach peers in this session.
#[derive(Clone, Copy)]
struct Ways {
    /// Whether no direct links are made.
    tree_only: bool,
    /// Whether agents on the path through the tree may be lost while others continue.
    standing: bool,
}

/// A peer to be dialled, and its addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dial {
    pub agent: AgentId,
    pub addresses: Vec<String>,
    pub point: Option<Point>,
}

/// A peer whose frames can no longer be put in order, with the affected jobs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    pub agent: AgentId,
    pub problem: String,
    pub jobs: Vec<JobId>,
}

impl Direct {
    pub fn new(me: AgentId, transport: AgentTransport, standing: bool) -> Self {
        Direct {
            me,
            ways: Ways { tree_only: transport == AgentTransport::Tree, standing },
            addresses: None,
            asked_to_listen: false,
            point: None,
            is_undecided: transport.is_agreed_on(),
            peers: BTreeMap::new(),
            routed: VecDeque::new(),
            closing: Vec::new(),
            now: Instant(0),
        }
    }

    /// Sets the current time.
    pub fn at(&mut self, now: Instant) {
        self.now = now;
    }

    /// The next message to send through the tree; to be called after every other call.
    pub fn next_routed(&mut self) -> Option<(JobId, Routed)> {
        self.routed.pop_front()
    }

    /// Links to close.
    pub fn take_closing(&mut self) -> Vec<LinkId> {
        std::mem::take(&mut self.closing)
    }

    /// Sends a frame over the link or through the tree, as available.
    pub fn send(&mut self, agent: AgentId, frame: Frame, out: &mut Outbox) {
        let (me, now) = (self.me, self.now);
        let peer = peer(&mut self.peers, self.ways, agent);
        peer.jobs.insert(JobId(frame.job));
        match peer.state {
            State::Up(link) => peer.send_on(link, frame, out),
            State::Routed => self.routed.push_back(peer.route(me, agent, frame, None)),
            State::Unasked | State::Offered | State::Dialling => {
                peer.waiting.push_back(frame);
                peer.waiting_since.get_or_insert(now);
                self.release(agent);
            }
        }
    }

    /// Handles a frame that arrived over a direct link. Returns the frame if it is for this agent and the next one in
    /// order. The caller must then call [`Self::follower`] until that returns `None`.
    pub fn on_frame(&mut self, from: AgentId, link: LinkId, frame: Frame, out: &mut Outbox) -> Option<Frame> {
        let peer = self.peers.get_mut(&from)?;
        if frame.kind == Kind::Pair {
            match frame.stream {
                BEGIN => peer.window.begin(frame.arg),
                ACKNOWLEDGE => peer.window.on_acknowledged(frame.arg),
                _ => {}
            }
            return None;
        }
        peer.jobs.insert(JobId(frame.job));
        let placed = peer.window.on_link(frame);
        if let Some(before) = peer.window.acknowledge() {
            out.send(link, about(ACKNOWLEDGE, before));
        }
        peer.placed(placed)
    }

    /// Handles a frame that arrived through the tree. Returns the frame if it is the next one in order. The caller must
    /// then call [`Self::follower`] until that returns `None`.
    pub fn on_routed(&mut self, from: AgentId, number: u32, frame: Frame) -> Option<Frame> {
        let peer = peer(&mut self.peers, self.ways, from);
        if frame.kind == Kind::Pair {
            if frame.stream == ACKNOWLEDGE {
                peer.window.on_acknowledged(frame.arg);
            }
            return None;
        }
        let job = JobId(frame.job);
        peer.jobs.insert(job);
        let placed = peer.window.on_routed(number, frame);
        if let Some(before) = peer.window.acknowledge() {
            self.routed.push_back(acknowledged(self.me, from, job, before));
        }
        peer.placed(placed)
    }

    /// Takes the next frame in order, if it is one of those that arrived before their predecessors.
    pub fn follower(&mut self, from: AgentId) -> Option<Frame> {
        self.peers.get_mut(&from)?.window.follower()
    }

    /// A job has ended.
    pub fn forget(&mut self, job: JobId) {
        for (&agent, peer) in &mut self.peers {
            peer.jobs.remove(&job);
            // In a session with other jobs the sender must not keep frames of an ended job for long.
            if self.ways.standing
                && peer.jobs.is_empty()
                && let Some(before) = peer.window.acknowledge_now(IDLE_BYTES_MAX)
            {
                self.routed.push_back(acknowledged(self.me, agent, job, before));
            }
        }
    }

    /// Bytes kept for peers, for the simulator's checkers.
    pub fn held_bytes(&self) -> usize {
        let waiting = |peer: &Peer| peer.waiting.iter().map(Frame::wire_len).sum::<usize>();
        self.peers.values().map(|peer| peer.window.held_bytes() + waiting(peer)).sum()
    }

    /// Jobs with traffic to peers, for the simulator's checkers.
    pub fn jobs(&self) -> BTreeSet<JobId> {
        self.peers.values().flat_map(|peer| peer.jobs.iter().copied()).collect()
    }
}

fn peer(peers: &mut BTreeMap<AgentId, Peer>, ways: Ways, agent: AgentId) -> &mut Peer {
    let state = if ways.tree_only { State::Routed } else { State::Unasked };
    peers.entry(agent).or_insert_with(|| Peer::new(state, ways.standing))
}

/// Timeouts: frames that waited too long, and reports to the user or to jobs.
impl Direct {
    pub fn deadline(&self) -> Option<Instant> {
        let due = |peer: &Peer| {
            let waits = peer.waiting_since.map(|since| since + DIRECT_WAIT_NS_MAX);
            let note = peer.note.as_ref().map(|(at, _)| *at);
            let broken = peer.broken.as_ref().map(|_| Instant(0));
            let again = peer.lost.as_ref().map(|(at, _)| *at);
            waits.into_iter().chain(note).chain(broken).chain(again).min()
        };
        self.peers.values().filter_map(due).min()
    }

    /// Frames that have waited long enough go through the tree.
    pub fn on_tick(&mut self) {
        let (me, now) = (self.me, self.now);
        let is_due = |peer: &Peer| peer.lost.as_ref().is_some_and(|(at, _)| *at <= now);
        let lost: Vec<AgentId> = self.peers.iter().filter(|(_, peer)| is_due(peer)).map(|(agent, _)| *agent).collect();
        for agent in lost {
            let problem = self.peers.get_mut(&agent).and_then(|peer| peer.lost.take()).map(|(_, problem)| problem);
            self.tell_failed(agent, problem);
            self.send_again(agent);
        }
        for (&agent, peer) in &mut self.peers {
            if peer.waiting_since.is_some_and(|since| since + DIRECT_WAIT_NS_MAX <= now) {
                peer.waiting_since = None;
                peer.is_late = true;
                for frame in std::mem::take(&mut peer.waiting) {
                    self.routed.push_back(peer.route(me, agent, frame, None));
                }
            }
        }
    }

    /// Peers that are reached only through the tree, and why; each is returned once.
    pub fn take_notes(&mut self) -> Vec<(AgentId, String)> {
        let now = self.now;
        let due = |(agent, peer): (&AgentId, &mut Peer)| {
            let (_, problem) = peer.note.take_if(|(at, _)| *at <= now)?;
            (!peer.jobs.is_empty()).then_some((*agent, problem))
        };
        self.peers.iter_mut().filter_map(due).collect()
    }

    /// Peers whose jobs cannot continue.
    pub fn take_broken(&mut self) -> Vec<Broken> {
        let broken = |(&agent, peer): (&AgentId, &mut Peer)| {
            let problem = peer.broken.take()?;
            Some(Broken { agent, problem, jobs: peer.jobs.iter().copied().collect() })
        };
        self.peers.iter_mut().filter_map(broken).collect()
    }
}
