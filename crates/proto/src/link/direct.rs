//! What agents that are no neighbours in the tree say to each other: through the tree, or over a link of their own.
//!
//! The first frame for a peer goes through the tree and carries the sender's endpoint; the peer dials it, and both use the link
//! from then on (S3: direct-connect). No frame waits for another's round trip:
//!
//! ```text
//!   sender                        tree                         peer
//!     ── Routed { endpoint, frame 0 } ──►  … ──►  ── dials the sender ─┐
//!     ── Routed { frame 1 } ──►  … ──►                                 │
//!     ◄──────────────── handshake, link ───────────────────────────────┘
//!     ◄────────── frames 2, 3, … both ways ──────────────►
//! ```
//!
//! Only `ROUTED_BYTES_MAX` go through the tree that way; more waits for the link, half a second at most. If both begin at once, two
//! endpoints cross: then the lower id is dialled, the higher one answers what it hears, the lower one leaves the other's alone. So
//! there is one link for each pair.
//!
//! Who cannot dial a peer says so and sends its own endpoint along, to be dialled itself. If that fails too, or the link breaks later,
//! the tree is the way for as long as the session lasts, with one note for a person; nobody tries again. Numbers keep the frames in
//! order across all changes and lose none (`window`): what a broken link may have lost goes again. The note comes a moment later and only if a job still uses the way, since mostly
//! a node is gone when a link breaks, and the tree tells more about that.
//!
//! `peer` is what is known of one, `making` makes links and loses them, `overdue` looks at the clock.
//!
//! Cost: a message of some hundred bytes, with the first frame, for each hop between the two; then the handshake's round trips.

mod frames;
mod making;
mod overdue;
mod peer;

use crate::io::LinkId;
use crate::outbox::Outbox;
use crate::time::Instant;
use frames::{ACKNOWLEDGE, BEGIN, about, acknowledged};
use peer::{Peer, State};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wireup_wire::frame::{Frame, Kind};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::AgentTransport;
use wireup_wire::route::{Point, Routed};

/// How long the tree may explain a lost link before it is told as such (ns). Chosen: an agent that is gone is reported by its
/// parent after a fifth of a second at most, and then some hops.
const EXPLAIN_NS: u64 = 500_000_000;
/// How long what a link may have lost waits to go again (ns): at the end of a session all links go, one after the other, and nobody
/// needs anything any more. Chosen: agents of one session leave within that.
const AGAIN_NS: u64 = 100_000_000;
/// Bytes that a peer may keep for us when no job is under way between the two. Chosen: less than a job's own state.
const IDLE_BYTES_MAX: usize = 4 << 10;
/// All peers of one agent that are no neighbours.
pub struct Direct {
    me: AgentId,
    ways: Ways,
    /// Where this agent can be dialled; none before it listens.
    addresses: Option<Vec<String>>,
    /// The driver was asked for them.
    asked_to_listen: bool,
    /// Where it is reached by the transport that all agents have agreed on.
    point: Option<Point>,
    /// It is not settled yet by what links are made.
    is_undecided: bool,
    peers: BTreeMap<AgentId, Peer>,
    /// What is to go through the tree next.
    routed: VecDeque<(JobId, Routed)>,
    /// Links that are of no use any more.
    closing: Vec<LinkId>,
    now: Instant,
}

/// How frames reach peers at all.
#[derive(Clone, Copy)]
struct Ways {
    /// No links are made.
    tree_only: bool,
    /// Agents on the way through the tree may be lost while others go on.
    standing: bool,
}

/// Where a peer that is to be dialled listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dial {
    pub agent: AgentId,
    pub addresses: Vec<String>,
    pub point: Option<Point>,
}

/// A peer whose frames cannot be put in order any more, with the jobs that want them.
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

    /// What the clock says.
    pub fn at(&mut self, now: Instant) {
        self.now = now;
    }

    /// What is to go through the tree, in order; to be asked after every call.
    pub fn next_routed(&mut self) -> Option<(JobId, Routed)> {
        self.routed.pop_front()
    }

    /// Links to close.
    pub fn take_closing(&mut self) -> Vec<LinkId> {
        std::mem::take(&mut self.closing)
    }

    /// Sends a frame by the way that there is.
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

    /// A frame came over a link beside the tree; handed back if it is for this agent and its turn. Ask for `follower`s then.
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

    /// A frame came through the tree; as above.
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

    /// The next frame of those that came before their turn.
    pub fn follower(&mut self, from: AgentId) -> Option<Frame> {
        self.peers.get_mut(&from)?.window.follower()
    }

    /// A job is over.
    pub fn forget(&mut self, job: JobId) {
        for (&agent, peer) in &mut self.peers {
            let was_last = peer.jobs.remove(&job) && peer.jobs.is_empty();
            // Nothing of a job stays with its sender for long, in a session with other jobs.
            if self.ways.standing
                && was_last
                && let Some(before) = peer.window.acknowledge_now(IDLE_BYTES_MAX)
            {
                self.routed.push_back(acknowledged(self.me, agent, job, before));
            }
        }
    }

    /// Bytes that are kept for peers, for the simulator's checkers.
    pub fn held_bytes(&self) -> usize {
        let waiting = |peer: &Peer| peer.waiting.iter().map(Frame::wire_len).sum::<usize>();
        self.peers.values().map(|peer| peer.window.held_bytes() + waiting(peer)).sum()
    }

    /// Jobs that have something to say to peers, for the same.
    pub fn jobs(&self) -> BTreeSet<JobId> {
        self.peers.values().flat_map(|peer| peer.jobs.iter().copied()).collect()
    }
}

fn peer(peers: &mut BTreeMap<AgentId, Peer>, ways: Ways, agent: AgentId) -> &mut Peer {
    let state = if ways.tree_only { State::Routed } else { State::Unasked };
    peers.entry(agent).or_insert_with(|| Peer::new(state, ways.standing))
}
