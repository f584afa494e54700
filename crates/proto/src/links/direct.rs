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
//! Only [`ROUTED_BYTES_MAX`] go through the tree that way; more waits for the link, half a second at most. If both begin at once, two
//! endpoints cross: then the lower id is dialled, the higher one answers what it hears, the lower one leaves the other's alone. So
//! there is one link for each pair.
//!
//! Who cannot dial a peer says so and sends its own endpoint along, to be dialled itself. If that fails too, or the link breaks later,
//! the tree is the way for as long as the session lasts, with one note for a person; nobody tries again. Numbers keep the frames in
//! order across all changes and lose none ([`window`]): what a broken link may have lost goes again. The note comes a moment later and only if a job still uses the way, since mostly
//! a node is gone when a link breaks, and the tree tells more about that.
//!
//! Cost: a message of some hundred bytes, with the first frame, for each hop between the two; then the handshake's round trips.

mod window;

use crate::io::LinkId;
use crate::outbox::Outbox;
use crate::time::Instant;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use window::Window;
use wireup_wire::frame::{Class, Frame, Kind};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::limits::{DIRECT_WAIT_NS_MAX, DIRECT_WAITING_BYTES_MAX, ROUTED_BYTES_MAX};
use wireup_wire::peer::AgentTransport;
use wireup_wire::route::{Endpoint, Routed, UcxPoint};

/// How long the tree may explain a lost link before it is told as such (ns). Chosen: an agent that is gone is reported by its
/// parent after a fifth of a second at most, and then some hops.
const EXPLAIN_NS: u64 = 500_000_000;
/// How long what a link may have lost waits to go again (ns): at the end of a session all links go, one after the other, and nobody
/// needs anything any more. Chosen: agents of one session leave within that.
const AGAIN_NS: u64 = 100_000_000;
/// Bytes that a peer may keep for us when no job is under way between the two. Chosen: less than a job's own state.
const IDLE_BYTES_MAX: usize = 4 << 10;
/// `stream` of a [`Kind::Pair`] frame.
const BEGIN: u16 = 0;
const ACKNOWLEDGE: u16 = 1;

/// All peers of one agent that are no neighbours.
pub struct Direct {
    me: AgentId,
    ways: Ways,
    /// Where this agent can be dialled; none before it listens.
    addresses: Option<Vec<String>>,
    /// The driver was asked for them.
    asked_to_listen: bool,
    /// Where it can be reached by UCX.
    ucx: Option<UcxPoint>,
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

struct Peer {
    state: State,
    window: Window,
    /// Frames that wait for the link, and since when.
    waiting: VecDeque<Frame>,
    waiting_since: Option<Instant>,
    /// Went through the tree while the link was made.
    routed_bytes: usize,
    /// The link took too long: nothing waits for it any more.
    is_late: bool,
    /// Why this agent could not dial the peer, and the peer not this one.
    failed_here: Option<String>,
    failed_there: Option<String>,
    /// The link is lost; then what it may have lost goes again.
    lost: Option<(Instant, String)>,
    /// To be told, then.
    note: Option<(Instant, String)>,
    /// What ends the jobs of this peer.
    broken: Option<String>,
    /// Jobs under way that have something to say to it.
    jobs: BTreeSet<JobId>,
}

/// ```text
///             send                  addresses known        LinkUp
///   (none) ─────────► Unasked ───────────────────► Offered ──────────► Up
///      │                 │        endpoint leaves     │ endpoint of     │ LinkDown
///      │ endpoint        ▼                            ▼ a lower id      ▼
///      └────────────► Dialling ◄──────────────────────┘               Routed
///                        │ LinkUp: Up                                    ▲
///                        │ DialFailed: Offered, with word of it          │
///                        └── DialFailed on both sides, or nobody listens ┘
/// ```
///
/// Whatever is not drawn changes nothing; a link that comes up elsewhere is turned away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// This agent cannot be dialled yet.
    Unasked,
    /// The peer has our endpoint, or will have it.
    Offered,
    Dialling,
    Up(LinkId),
    /// Everything goes through the tree.
    Routed,
}

/// Where a peer that is to be dialled listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dial {
    pub agent: AgentId,
    pub addresses: Vec<String>,
    pub ucx: Option<UcxPoint>,
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
            ucx: None,
            is_undecided: transport == AgentTransport::Ucx,
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

    /// Whether the driver is to listen: once, when there is first something to be dialled for.
    pub fn wants_to_listen(&mut self) -> bool {
        let wanted = self.addresses.is_none()
            && !self.is_undecided
            && self.peers.values().any(|peer| peer.state == State::Unasked);
        wanted && !std::mem::replace(&mut self.asked_to_listen, true)
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

    /// Begins a link that will be wanted, before there is a frame for it.
    pub fn prepare(&mut self, agent: AgentId, job: JobId) {
        peer(&mut self.peers, self.ways, agent).jobs.insert(job);
        self.release(agent);
    }

    /// Lets go what may go through the tree while there is no link; the first of it takes our endpoint along.
    fn release(&mut self, agent: AgentId) {
        let Some(peer) = self.peers.get_mut(&agent) else { return };
        let mut endpoint = None;
        if peer.state == State::Unasked {
            let Some(addresses) = self.addresses.as_ref().filter(|_| !self.is_undecided) else { return };
            peer.state = State::Offered;
            let failed = peer.failed_here.clone();
            endpoint = Some(Endpoint { addresses: addresses.clone(), ucx: self.ucx.clone(), failed });
        }
        while let Some(first) = peer.waiting.front()
            && (peer.is_late || peer.routed_bytes + first.wire_len() <= ROUTED_BYTES_MAX)
        {
            peer.routed_bytes += first.wire_len();
            let frame = peer.waiting.pop_front().expect("it was seen");
            self.routed.push_back(peer.route(self.me, agent, frame, endpoint.take()));
        }
        if peer.waiting.is_empty() {
            peer.waiting_since = None;
        }
        if endpoint.is_some() {
            let job = peer.jobs.first().copied().unwrap_or_default();
            self.routed.push_back((job, Routed { to: agent, from: self.me, endpoint, frame: None }));
        }
    }

    /// Others can dial this agent there.
    pub fn on_listening(&mut self, addresses: Vec<String>) {
        self.addresses = Some(addresses);
        for agent in self.unasked() {
            self.release(agent);
        }
    }

    /// Links are made by UCX, if there is where to reach this agent by it.
    pub fn on_decided(&mut self, ucx: Option<UcxPoint>) {
        self.ucx = ucx;
        self.is_undecided = false;
        for agent in self.unasked() {
            self.release(agent);
        }
    }

    /// Nobody can dial this agent. Peers may still be dialled if they send their endpoints.
    pub fn on_listen_failed(&mut self, problem: &str) {
        for agent in self.unasked() {
            let problem = format!("{problem}; so nobody can dial it");
            self.go_by_tree(agent, Some(problem), true);
        }
        // It may be there next time.
        self.asked_to_listen = false;
    }

    fn unasked(&self) -> Vec<AgentId> {
        let unasked = self.peers.iter().filter(|(_, peer)| peer.state == State::Unasked);
        unasked.map(|(agent, _)| *agent).collect()
    }

    /// A peer's endpoint came; whom to dial.
    pub fn on_endpoint(&mut self, from: AgentId, endpoint: Endpoint, job: JobId) -> Option<Dial> {
        let me = self.me;
        let peer = peer(&mut self.peers, self.ways, from);
        peer.jobs.insert(job);
        let Endpoint { addresses, ucx, failed } = endpoint;
        let is_answer = failed.is_some();
        peer.failed_there = peer.failed_there.take().or(failed);
        let dials = match peer.state {
            State::Unasked => true,
            State::Offered => is_answer || from < me,
            // The link of an agent that says it has none is none.
            State::Up(link) => {
                if is_answer && addresses.is_empty() {
                    self.closing.push(link);
                    self.go_by_tree(from, None, false);
                }
                return None;
            }
            State::Routed if peer.lost.is_some() => {
                self.send_again(from);
                return None;
            }
            State::Dialling | State::Routed => return None,
        };
        if addresses.is_empty() || (is_answer && peer.failed_here.is_some()) {
            // Whoever failed last says so.
            let problem = peer.failed_there.clone().filter(|_| peer.failed_here.is_none());
            self.go_by_tree(from, problem, false);
            return None;
        }
        if !dials {
            return None;
        }
        peer.state = State::Dialling;
        self.release(from);
        Some(Dial { agent: from, addresses, ucx })
    }

    /// A peer was dialled in vain.
    pub fn on_dial_failed(&mut self, agent: AgentId, problem: String) {
        let Some(peer) = self.peers.get_mut(&agent).filter(|peer| peer.state == State::Dialling) else { return };
        let there = peer.failed_there.clone();
        peer.failed_here = Some(problem.clone());
        match there {
            // Neither reaches the other.
            Some(there) => self.go_by_tree(agent, Some(format!("{problem}; the other way: {there}")), true),
            None => {
                peer.state = State::Unasked;
                self.release(agent);
            }
        }
    }

    /// There will be no link: what waits goes through the tree.
    ///
    /// `note` is for a person; `tell` the peer that it need not wait either.
    fn go_by_tree(&mut self, agent: AgentId, note: Option<String>, tell: bool) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&agent) else { return };
        peer.state = State::Routed;
        peer.waiting_since = None;
        if let Some(problem) = &note {
            peer.note.get_or_insert((now, problem.clone()));
        }
        if tell {
            self.tell_failed(agent, note);
        }
        self.send_again(agent);
    }

    fn tell_failed(&mut self, agent: AgentId, problem: Option<String>) {
        let Some(peer) = self.peers.get(&agent) else { return };
        let failed = Some(problem.unwrap_or_else(|| "no link".into()));
        let endpoint = Some(Endpoint { failed, ..Endpoint::default() });
        let job = peer.jobs.first().copied().unwrap_or_default();
        self.routed.push_back((job, Routed { to: agent, from: self.me, endpoint, frame: None }));
    }

    /// What may be lost goes again, then what waits; all through the tree.
    fn send_again(&mut self, agent: AgentId) {
        let me = self.me;
        let Some(peer) = self.peers.get_mut(&agent) else { return };
        peer.lost = None;
        for (number, frame) in peer.window.take_kept() {
            let job = JobId(frame.job);
            let frame = Some((number as u32, frame));
            self.routed.push_back((job, Routed { to: agent, from: me, endpoint: None, frame }));
        }
        for frame in std::mem::take(&mut peer.waiting) {
            self.routed.push_back(peer.route(me, agent, frame, None));
        }
    }

    /// Whether a link with this agent is waited for.
    pub fn expects(&self, agent: AgentId) -> bool {
        self.peers.get(&agent).is_some_and(|peer| matches!(peer.state, State::Offered | State::Dialling))
    }

    pub fn on_up(&mut self, agent: AgentId, link: LinkId, out: &mut Outbox) {
        let Some(peer) = self.peers.get_mut(&agent) else { return };
        peer.state = State::Up(link);
        peer.waiting_since = None;
        out.send(link, about(BEGIN, peer.window.next() as u32));
        for frame in std::mem::take(&mut peer.waiting) {
            peer.send_on(link, frame, out);
        }
    }

    /// A link broke.
    pub fn on_lost(&mut self, agent: AgentId, link: LinkId, problem: &str) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&agent).filter(|peer| peer.state == State::Up(link)) else { return };
        let problem = format!("their link broke: {problem}");
        peer.state = State::Routed;
        peer.note.get_or_insert((now + EXPLAIN_NS, problem.clone()));
        peer.lost = Some((now + AGAIN_NS, problem));
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

    /// An agent is gone for good: nothing is for it, or from it, any more.
    pub fn lose(&mut self, agent: AgentId) {
        if let Some(Peer { state: State::Up(link), .. }) = self.peers.remove(&agent) {
            self.closing.push(link);
        }
        self.routed.retain(|(_, routed)| routed.to != agent);
    }

    /// What went through the tree to these peers may be lost: it goes again.
    pub fn route_again(&mut self, peers: impl Fn(AgentId) -> bool) {
        for (&agent, peer) in self.peers.iter().filter(|(agent, _)| peers(**agent)) {
            if peer.state == State::Offered {
                let endpoint = Endpoint {
                    addresses: self.addresses.clone().unwrap_or_default(),
                    ucx: self.ucx.clone(),
                    failed: peer.failed_here.clone(),
                };
                let job = peer.jobs.first().copied().unwrap_or_default();
                self.routed
                    .push_back((job, Routed { to: agent, from: self.me, endpoint: Some(endpoint), frame: None }));
            }
            let job = peer.jobs.first().copied().unwrap_or_default();
            let before = peer.window.received();
            self.routed.extend(before.map(|before| acknowledged(self.me, agent, job, before)));
            for (number, frame) in peer.window.routed() {
                let job = JobId(frame.job);
                let frame = Some((number as u32, frame));
                self.routed.push_back((job, Routed { to: agent, from: self.me, endpoint: None, frame }));
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

    /// Frames that have waited for long enough go through the tree.
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

    /// Peers that are not reached but through the tree, and why; each once.
    pub fn take_notes(&mut self) -> Vec<(AgentId, String)> {
        let now = self.now;
        let due = |(agent, peer): (&AgentId, &mut Peer)| {
            let (_, problem) = peer.note.take_if(|(at, _)| *at <= now)?;
            (!peer.jobs.is_empty()).then_some((*agent, problem))
        };
        self.peers.iter_mut().filter_map(due).collect()
    }

    /// Peers whose jobs cannot go on.
    pub fn take_broken(&mut self) -> Vec<Broken> {
        let broken = |(&agent, peer): (&AgentId, &mut Peer)| {
            let problem = peer.broken.take()?;
            Some(Broken { agent, problem, jobs: peer.jobs.iter().copied().collect() })
        };
        self.peers.iter_mut().filter_map(broken).collect()
    }
}

fn peer(peers: &mut BTreeMap<AgentId, Peer>, ways: Ways, agent: AgentId) -> &mut Peer {
    let state = if ways.tree_only { State::Routed } else { State::Unasked };
    peers.entry(agent).or_insert_with(|| Peer::new(state, ways.standing))
}

fn acknowledged(me: AgentId, to: AgentId, job: JobId, before: u32) -> (JobId, Routed) {
    (job, Routed { to, from: me, endpoint: None, frame: Some((0, about(ACKNOWLEDGE, before))) })
}

/// A frame about the frames of a link.
fn about(stream: u16, arg: u32) -> Frame {
    Frame { kind: Kind::Pair, class: Class::Exchange, stream, job: 0, arg, payload: Bytes::new() }
}

impl Peer {
    fn new(state: State, standing: bool) -> Peer {
        Peer {
            state,
            window: Window::new(standing),
            waiting: VecDeque::new(),
            waiting_since: None,
            routed_bytes: 0,
            is_late: false,
            failed_here: None,
            failed_there: None,
            lost: None,
            note: None,
            broken: None,
            jobs: BTreeSet::new(),
        }
    }

    /// Over the link: all in one class, since the order is told by counting.
    fn send_on(&mut self, link: LinkId, frame: Frame, out: &mut Outbox) {
        let frame = Frame { class: Class::Exchange, ..frame };
        self.window.keep(frame.clone());
        out.send(link, frame);
    }

    fn route(&mut self, from: AgentId, to: AgentId, frame: Frame, endpoint: Option<Endpoint>) -> (JobId, Routed) {
        let job = JobId(frame.job);
        let frame = Some((self.window.route(&frame) as u32, frame));
        (job, Routed { to, from, endpoint, frame })
    }

    fn placed(&mut self, placed: Result<Option<Frame>, window::TooMuch>) -> Option<Frame> {
        placed.unwrap_or_else(|window::TooMuch| {
            let problem = format!("more than {DIRECT_WAITING_BYTES_MAX} bytes came before what they follow");
            self.broken.get_or_insert(problem);
            None
        })
    }
}
