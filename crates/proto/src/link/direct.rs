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
//! link breaks because a node is gone, and the loss of the node is then reported through the tree.
//!
//! Cost: a message of a few hundred bytes, with the first frame, per hop between the two; then the handshake's round
//! trips.

use super::window::{TooMuch, Window};
use crate::io::{LinkId, Output};
use crate::outbox::Outbox;
use crate::time::Instant;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wireup_wire::frame::{Class, Frame, FrameKind};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::limits::{DIRECT_WAIT_NS_MAX, DIRECT_WAITING_BYTES_MAX, ROUTED_BYTES_MAX};
use wireup_wire::peer::AgentTransport;
use wireup_wire::route::{Endpoint, Incarnations, Point, Routed};

/// How long the note about a broken link is delayed (ns), since the loss of the whole agent may explain it. Chosen: the
/// agent's parent reports its loss after at most a fifth of a second, and the report needs some hops.
const EXPLAIN_NS: u64 = 500_000_000;
/// How long to wait before frames that a link may have lost are sent again (ns): at the end of a session all links
/// close, one after another, and no frame is needed any more. Chosen: agents of one session leave within this time.
const AGAIN_NS: u64 = 100_000_000;
/// Bytes of unacknowledged frames that a peer may keep for this agent while no job is in progress between the two.
/// Chosen: less than a job's own state.
const IDLE_BYTES_MAX: usize = 4 << 10;
/// The peers of one agent that are not its neighbours in the tree, and its direct links to them.
pub struct Direct {
    me: AgentId,
    ways: Ways,
    /// Where this agent can be dialled; `None` before it listens.
    addresses: Option<Vec<String>>,
    asked_to_listen: bool,
    /// This agent's address in the transport that all agents have agreed on.
    point: Option<Point>,
    /// Whether the agents still have to agree on a transport; until then no endpoint is sent.
    is_undecided: bool,
    peers: BTreeMap<AgentId, Peer>,
    /// Messages to be sent through the tree, in order, each with its job. The caller must send them after every call.
    pub routed: VecDeque<(JobId, Routed)>,
    /// Links to be closed. The caller must close them after every call.
    pub closing: Vec<LinkId>,
    now: Instant,
}

/// Restrictions on how frames reach peers in this session.
#[derive(Clone, Copy)]
struct Ways {
    /// Whether direct links are never made, so that all frames go through the tree.
    tree_only: bool,
    /// Whether the session is standing: agents on the path through the tree may be lost while others continue.
    standing: bool,
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

    /// Sends a frame to an agent over the direct link or through the tree, or queues it while the link is being made.
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
        if frame.kind == FrameKind::Pair {
            match frame.stream {
                BEGIN => peer.window.set_first_number(frame.arg),
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
        if frame.kind == FrameKind::Pair {
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

    /// Takes the next frame in order, if it has arrived before an earlier frame and waits.
    pub fn follower(&mut self, from: AgentId) -> Option<Frame> {
        self.peers.get_mut(&from)?.window.follower()
    }

    /// A job has ended on this agent: forgets that the job had traffic to peers.
    pub fn forget(&mut self, job: JobId) {
        for (&agent, peer) in &mut self.peers {
            peer.jobs.remove(&job);
            // In a standing session the peer must not keep frames of an ended job for long: acknowledges them now.
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

/// Makes and loses direct links, and sends frames through the tree while there is no link.
impl Direct {
    /// Whether the driver must listen: returns `true` once, when the first peer needs this agent's endpoint.
    pub fn wants_to_listen(&mut self) -> bool {
        let wanted = self.addresses.is_none()
            && !self.is_undecided
            && self.peers.values().any(|peer| peer.state == State::Unasked);
        wanted && !std::mem::replace(&mut self.asked_to_listen, true)
    }

    /// Starts to make a link to an agent that a job will need, before there is a frame for it.
    pub fn prepare(&mut self, agent: AgentId, job: JobId) {
        peer(&mut self.peers, self.ways, agent).jobs.insert(job);
        self.release(agent);
    }

    /// Sends the frames that may go through the tree while there is no link; the first one carries our endpoint.
    fn release(&mut self, agent: AgentId) {
        let Some(peer) = self.peers.get_mut(&agent) else { return };
        let mut endpoint = None;
        if peer.state == State::Unasked {
            let Some(addresses) = self.addresses.as_ref().filter(|_| !self.is_undecided) else { return };
            peer.state = State::Offered;
            let failed = peer.failed_here.clone();
            endpoint = Some(Endpoint { addresses: addresses.clone(), point: self.point.clone(), failed });
        }
        while let Some(first) = peer.waiting.front()
            && (peer.is_late || peer.routed_bytes + first.wire_len() <= ROUTED_BYTES_MAX)
        {
            peer.routed_bytes += first.wire_len();
            let frame = peer.waiting.pop_front().expect("the queue is not empty");
            self.routed.push_back(peer.route(self.me, agent, frame, endpoint.take()));
        }
        if peer.waiting.is_empty() {
            peer.waiting_since = None;
        }
        if endpoint.is_some() {
            let job = peer.jobs.first().copied().unwrap_or_default();
            self.routed.extend(endpoint.map(|endpoint| offer(self.me, agent, job, endpoint)));
        }
    }

    /// The addresses at which other agents can dial in; none before this agent listens.
    pub fn addresses(&self) -> &[String] {
        self.addresses.as_deref().unwrap_or_default()
    }

    /// The driver listens at these addresses, or cannot listen: then other agents cannot dial this agent, but it can
    /// still dial peers that send their endpoints.
    pub fn on_listening(&mut self, result: Result<Vec<String>, String>) {
        let problem = result.as_ref().err().map(|problem| format!("{problem}; so other agents cannot connect to it"));
        self.addresses = result.ok();
        for agent in self.unasked() {
            match &problem {
                None => self.release(agent),
                Some(problem) => self.go_by_tree(agent, Some(problem.clone()), true),
            }
        }
        // If listening has failed, the driver is asked again for the next peer, and may succeed then.
        self.asked_to_listen = self.addresses.is_some();
    }

    /// The agents have agreed whether to use the transport; `point` is this agent's address if they do.
    pub fn on_decided(&mut self, point: Option<Point>) {
        self.point = point;
        self.is_undecided = false;
        for agent in self.unasked() {
            self.release(agent);
        }
    }

    fn unasked(&self) -> Vec<AgentId> {
        let unasked = self.peers.iter().filter(|(_, peer)| peer.state == State::Unasked);
        unasked.map(|(agent, _)| *agent).collect()
    }

    /// A peer's endpoint arrived; returns the request to dial the peer, if that is needed.
    pub fn on_endpoint(&mut self, from: AgentId, endpoint: Endpoint, job: JobId) -> Option<Output> {
        let me = self.me;
        let peer = peer(&mut self.peers, self.ways, from);
        peer.jobs.insert(job);
        let Endpoint { addresses, point, failed } = endpoint;
        let is_answer = failed.is_some();
        peer.failed_there = peer.failed_there.take().or(failed);
        let dials = match peer.state {
            State::Unasked => true,
            // An endpoint with `failed` answers this agent's offer: the peer could not dial, so this agent dials.
            State::Offered => is_answer || (from < me && peer.failed_here.is_none()),
            // The peer says that it has no link, so this end must close its own.
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
            // If neither agent could dial the other, the agent that failed last sends the note.
            let problem = peer.failed_there.clone().filter(|_| peer.failed_here.is_none());
            self.go_by_tree(from, problem, false);
            return None;
        }
        if !dials {
            return None;
        }
        peer.state = State::Dialling;
        self.release(from);
        Some(Output::Dial { agent: from, addresses, point })
    }

    pub fn on_dial_failed(&mut self, agent: AgentId, problem: String) {
        let Some(peer) = self.peers.get_mut(&agent).filter(|peer| peer.state == State::Dialling) else { return };
        let there = peer.failed_there.clone();
        peer.failed_here = Some(problem.clone());
        match there {
            // Neither agent could dial the other.
            Some(there) => self.go_by_tree(agent, Some(format!("{problem}; in the other direction: {there}")), true),
            None => {
                peer.state = State::Unasked;
                self.release(agent);
            }
        }
    }

    /// Gives up a link: waiting frames go through the tree.
    ///
    /// `note`: text for the user; `tell`: whether the peer is told not to wait for a link.
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
        let job = peer.jobs.first().copied().unwrap_or_default();
        self.routed.push_back(offer(self.me, agent, job, Endpoint { failed, ..Endpoint::default() }));
    }

    pub fn expects(&self, agent: AgentId) -> bool {
        self.peers.get(&agent).is_some_and(|peer| matches!(peer.state, State::Offered | State::Dialling))
    }

    /// Messages sent through the tree to these peers may be lost: sends them again.
    pub fn route_again(&mut self, peers: impl Fn(AgentId) -> bool) {
        for (&agent, peer) in self.peers.iter().filter(|(agent, _)| peers(**agent)) {
            let job = peer.jobs.first().copied().unwrap_or_default();
            if peer.state == State::Offered {
                let endpoint = Endpoint {
                    addresses: self.addresses.clone().unwrap_or_default(),
                    point: self.point.clone(),
                    failed: peer.failed_here.clone(),
                };
                self.routed.push_back(offer(self.me, agent, job, endpoint));
            }
            let before = peer.window.received();
            self.routed.extend(before.map(|before| acknowledged(self.me, agent, job, before)));
            let frames = peer.window.routed();
            self.routed.extend(frames.into_iter().map(|(number, frame)| numbered(self.me, agent, number, frame)));
        }
    }

    pub fn on_link_up(&mut self, agent: AgentId, link: LinkId, out: &mut Outbox) {
        let Some(peer) = self.peers.get_mut(&agent) else { return };
        peer.state = State::Up(link);
        peer.waiting_since = None;
        out.send(link, about(BEGIN, peer.window.next as u32));
        for frame in std::mem::take(&mut peer.waiting) {
            peer.send_on(link, frame, out);
        }
    }

    pub fn on_lost(&mut self, agent: AgentId, link: LinkId, problem: &str) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&agent).filter(|peer| peer.state == State::Up(link)) else { return };
        let problem = format!("their link broke: {problem}");
        peer.state = State::Routed;
        peer.note.get_or_insert((now + EXPLAIN_NS, problem.clone()));
        peer.lost = Some((now + AGAIN_NS, problem));
    }

    /// Sends everything through the tree: first the frames that may be lost, then those that wait.
    fn send_again(&mut self, agent: AgentId) {
        let me = self.me;
        let Some(peer) = self.peers.get_mut(&agent) else { return };
        peer.lost = None;
        let kept = peer.window.take_kept();
        self.routed.extend(kept.into_iter().map(|(number, frame)| numbered(me, agent, number, frame)));
        for frame in std::mem::take(&mut peer.waiting) {
            self.routed.push_back(peer.route(me, agent, frame, None));
        }
    }

    /// An agent is permanently lost: drops everything for it and from it.
    pub fn lose(&mut self, agent: AgentId) {
        if let Some(Peer { state: State::Up(link), .. }) = self.peers.remove(&agent) {
            self.closing.push(link);
        }
        self.routed.retain(|(_, routed)| routed.to != agent);
    }
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

    /// Sends through the tree the frames that waited too long for a link, and those that a broken link may have lost.
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

    /// Peers that are reached only through the tree, each with the reason for a note to the user; each is returned
    /// once.
    pub fn take_notes(&mut self) -> Vec<(AgentId, String)> {
        let now = self.now;
        let due = |(agent, peer): (&AgentId, &mut Peer)| {
            let (_, problem) = peer.note.take_if(|(at, _)| *at <= now)?;
            (!peer.jobs.is_empty()).then_some((*agent, problem))
        };
        self.peers.iter_mut().filter_map(due).collect()
    }

    /// Peers with which jobs cannot continue: too many bytes wait for a missing frame.
    pub fn take_broken(&mut self) -> Vec<Broken> {
        let broken = |(&agent, peer): (&AgentId, &mut Peer)| {
            let problem = peer.broken.take()?;
            Some(Broken { agent, problem, jobs: peer.jobs.iter().copied().collect() })
        };
        self.peers.iter_mut().filter_map(broken).collect()
    }
}

/// The state of one peer: the link, the frames that wait for it, and the reports about it to users and jobs.
struct Peer {
    state: State,
    window: Window,
    /// Frames that wait for the link; `waiting_since`: when the wait started.
    waiting: VecDeque<Frame>,
    waiting_since: Option<Instant>,
    /// Bytes sent through the tree while the link was being made.
    routed_bytes: usize,
    /// Whether the link took too long: frames no longer wait for it.
    is_late: bool,
    /// Why this agent could not dial the peer; `failed_there`: why the peer could not dial this agent.
    failed_here: Option<String>,
    failed_there: Option<String>,
    /// Time at which the frames that a lost link may have lost are sent again, and why the link broke; `None`: no link
    /// is lost.
    lost: Option<(Instant, String)>,
    /// A note for the user, and the time at which it is due.
    note: Option<(Instant, String)>,
    /// The problem that ends the jobs with traffic to this peer.
    broken: Option<String>,
    /// Jobs in progress with traffic to this peer.
    jobs: BTreeSet<JobId>,
}

/// ```text
///              send                  addresses known        LinkUp
///   (none) ─────────► Unasked ───────────────────► Offered ──────────► Up
///      │                 │        endpoint sent        │ endpoint of     │ LinkDown
///      │ endpoint        ▼                             ▼ a lower id      ▼
///      └────────────► Dialling ◄───────────────────────┘               Routed
///                        │ LinkUp: Up                                     ▲
///                        │ DialFailed: Offered, with the problem          │
///                        └── DialFailed on both sides, or cannot listen ──┘
/// ```
///
/// Any other event is ignored; a link that comes up in another state is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The peer was not sent this agent's endpoint, usually because this agent cannot be dialled yet.
    Unasked,
    /// The peer has this agent's endpoint, or the endpoint is in transit.
    Offered,
    Dialling,
    Up(LinkId),
    /// All frames go through the tree.
    Routed,
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

    /// Sends a frame over the link. All frames get one class, so that none overtakes another: the receiver counts them
    /// to know their numbers.
    fn send_on(&mut self, link: LinkId, frame: Frame, out: &mut Outbox) {
        let frame = Frame { class: Class::Exchange, ..frame };
        self.window.keep(frame.clone());
        out.send(link, frame);
    }

    fn route(&mut self, from: AgentId, to: AgentId, frame: Frame, endpoint: Option<Endpoint>) -> (JobId, Routed) {
        let (job, routed) = numbered(from, to, self.window.route(&frame), frame);
        (job, Routed { endpoint, ..routed })
    }

    fn placed(&mut self, placed: Result<Option<Frame>, TooMuch>) -> Option<Frame> {
        placed.unwrap_or_else(|TooMuch| {
            let problem =
                format!("more than {DIRECT_WAITING_BYTES_MAX} bytes arrived while earlier frames are missing");
            self.broken.get_or_insert(problem);
            None
        })
    }
}

/// Values of `stream` in a [`FrameKind::Pair`] frame.
const BEGIN: u16 = 0;
const ACKNOWLEDGE: u16 = 1;

fn acknowledged(me: AgentId, to: AgentId, job: JobId, before: u32) -> (JobId, Routed) {
    (job, numbered(me, to, 0, about(ACKNOWLEDGE, before)).1)
}

/// Wraps a frame that goes through the tree. `Links` fills in the incarnations of the two agents when it sends the
/// frame.
fn numbered(me: AgentId, to: AgentId, number: u64, frame: Frame) -> (JobId, Routed) {
    let job = JobId(frame.job);
    let frame = Some((number as u32, frame));
    (job, Routed { to, from: me, incarnations: Incarnations::default(), endpoint: None, frame })
}

/// A message through the tree to a peer: where this agent can be dialled, or why no link can be made.
fn offer(me: AgentId, to: AgentId, job: JobId, endpoint: Endpoint) -> (JobId, Routed) {
    (job, Routed { to, from: me, incarnations: Incarnations::default(), endpoint: Some(endpoint), frame: None })
}

/// A [`FrameKind::Pair`] frame, which tells the peer the number of a frame: the first on a link, or the next expected.
fn about(stream: u16, arg: u32) -> Frame {
    Frame::new(FrameKind::Pair, stream, 0, arg, Bytes::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::peer::AgentTransport;

    /// The peer sends its endpoint again when the path through the tree has changed. If both agents dialled then, each
    /// might close the link of the other.
    #[test]
    fn after_a_dial_in_vain_only_the_peer_dials() {
        let endpoint = || Endpoint { addresses: vec!["there".into()], ..Endpoint::default() };
        let mut direct = Direct::new(AgentId(5), AgentTransport::Auto, true);
        direct.on_listening(Ok(vec!["here".into()]));
        assert!(direct.on_endpoint(AgentId(0), endpoint(), JobId(1)).is_some());
        direct.on_dial_failed(AgentId(0), "no answer in time".into());
        assert_eq!(direct.on_endpoint(AgentId(0), endpoint(), JobId(1)), None);
    }
}
