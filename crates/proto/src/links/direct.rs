//! Links beside the tree, between any two agents, each made when there is a first frame for it.
//!
//! Whoever has a frame for an agent that is no neighbour listens, and asks through the tree to be dialled:
//!
//! ```text
//!   wisher                        tree                         peer
//!     ── Reach { to, from, addresses } ──►  … ──►  ── dials `from` ──┐
//!     ◄──────────────── handshake, link ─────────────────────────────┘
//! ```
//!
//! If both wish at once, two requests cross. Then the lower id is dialled: the higher one answers the request that it hears,
//! the lower one leaves the other's unanswered. So there is one link for each pair, and neither waits for both.
//!
//! A link stays for as long as both agents live, whatever jobs come and go. One that could not be made or that broke is not
//! made again, as in the tree: jobs that want it fail. They are told a moment later, since mostly a node is gone then, and
//! the tree knows more about that.
//!
//! Cost: a message of some hundred bytes for each hop between the two, then the handshake's round trips.

use crate::io::LinkId;
use crate::outbox::Outbox;
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::frame::Frame;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::limits::{DIRECT_LINK_NS_MAX, DIRECT_WAITING_BYTES_MAX};

/// How long the tree may explain a lost link before it is told as such (ns). Chosen: an agent that is gone is reported by its
/// parent after a fifth of a second at most, and then some hops.
const EXPLAIN_NS: u64 = 500_000_000;

/// All direct links of one agent, by the agent at the other end.
#[derive(Default)]
pub struct Direct {
    peers: BTreeMap<AgentId, Peer>,
    now: Instant,
    start_by: Instant,
}

struct Peer {
    state: State,
    /// Frames that wait for the link.
    waiting: Vec<Frame>,
    waiting_bytes: usize,
    /// Jobs under way that have spoken over it, or wanted to.
    jobs: BTreeSet<JobId>,
}

/// ```text
///             send                addresses known           LinkUp
///   (none) ─────────► Unasked ──────────────────► Asked ──────────────► Up
///      │                 │ Reach                    │ Reach of a lower   │ LinkDown
///      │ Reach           ▼                          ▼ id                 ▼
///      └────────────► Dialling ◄────────────────────┘                  Lost
///                        └── LinkUp: Up; DialFailed: Lost   (Asked, its time over: Lost)
/// ```
///
/// Whatever is not drawn changes nothing; a link that comes up elsewhere is turned away.
#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    /// There is a wish, and no address to be dialled at yet.
    Unasked,
    /// The other end was asked to dial us.
    Asked {
        until: Instant,
    },
    Dialling,
    Up(LinkId),
    /// `tell_at`: the jobs that want it have not been told yet.
    Lost {
        problem: String,
        tell_at: Option<Instant>,
    },
}

/// What comes of a frame for a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// It was sent, or waits for what is under way, or is lost with its link.
    Nothing,
    /// The first one: whoever has addresses to be dialled at asks now.
    New,
}

/// A direct link that is lost, with the jobs that wanted it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostLink {
    pub agent: AgentId,
    pub problem: String,
    pub jobs: Vec<JobId>,
}

impl Direct {
    /// What the clock says, and until when agents may be starting.
    pub fn at(&mut self, now: Instant, start_by: Instant) {
        (self.now, self.start_by) = (now, start_by);
    }

    /// Sends a frame, or keeps it until there is a link.
    pub fn send(&mut self, agent: AgentId, frame: Frame, out: &mut Outbox) -> Wish {
        let (now, is_new) = (self.now, !self.peers.contains_key(&agent));
        let peer = self.peers.entry(agent).or_insert_with(|| Peer::new(State::Unasked));
        peer.jobs.insert(JobId(frame.job));
        match &mut peer.state {
            State::Up(link) => out.send(*link, frame),
            State::Lost { tell_at, .. } => {
                tell_at.get_or_insert(now);
            }
            State::Unasked | State::Asked { .. } | State::Dialling => {
                peer.waiting_bytes += frame.wire_len();
                peer.waiting.push(frame);
                if peer.waiting_bytes > DIRECT_WAITING_BYTES_MAX {
                    let problem = format!("more than {DIRECT_WAITING_BYTES_MAX} bytes wait for it to be made");
                    peer.lose(problem, now);
                }
            }
        }
        if is_new { Wish::New } else { Wish::Nothing }
    }

    /// Peers that are to be asked, each with a job that wants it: there are addresses now.
    pub fn ask(&mut self) -> Vec<(AgentId, JobId)> {
        let until = self.now.max(self.start_by) + DIRECT_LINK_NS_MAX;
        let mut asked = Vec::new();
        for (&agent, peer) in &mut self.peers {
            if peer.state == State::Unasked {
                peer.state = State::Asked { until };
                asked.push((agent, peer.jobs.first().copied().unwrap_or_default()));
            }
        }
        asked
    }

    /// Nobody can dial this agent.
    pub fn on_unreachable(&mut self, problem: &str) {
        for peer in self.peers.values_mut().filter(|peer| peer.state == State::Unasked) {
            peer.lose(problem.to_owned(), self.now);
        }
    }

    /// A peer asks to be dialled; whether to do so. `mine`: our own id.
    pub fn on_reach(&mut self, mine: AgentId, from: AgentId, job: JobId) -> bool {
        let peer = self.peers.entry(from).or_insert_with(|| Peer::new(State::Unasked));
        peer.jobs.insert(job);
        let dials = match peer.state {
            State::Unasked => true,
            State::Asked { .. } => from < mine,
            State::Dialling | State::Up(_) | State::Lost { .. } => false,
        };
        if dials {
            peer.state = State::Dialling;
        }
        dials
    }

    /// Whether a link with this agent is waited for.
    pub fn expects(&self, agent: AgentId) -> bool {
        let expected = |peer: &Peer| matches!(peer.state, State::Asked { .. } | State::Dialling);
        self.peers.get(&agent).is_some_and(expected)
    }

    pub fn on_up(&mut self, agent: AgentId, link: LinkId, out: &mut Outbox) {
        let Some(peer) = self.peers.get_mut(&agent) else { return };
        peer.state = State::Up(link);
        peer.waiting_bytes = 0;
        for frame in std::mem::take(&mut peer.waiting) {
            out.send(link, frame);
        }
    }

    /// A link broke, or could not be made.
    pub fn on_lost(&mut self, agent: AgentId, problem: String) {
        if let Some(peer) = self.peers.get_mut(&agent) {
            peer.lose(problem, self.now + EXPLAIN_NS);
        }
    }

    /// A frame of this job came from a peer.
    pub fn on_heard(&mut self, agent: AgentId, job: JobId) {
        if let Some(peer) = self.peers.get_mut(&agent) {
            peer.jobs.insert(job);
        }
    }

    /// Whether frames of a job wait for a link.
    pub fn waits(&self, job: JobId) -> bool {
        self.peers.values().any(|peer| peer.waiting.iter().any(|frame| frame.job == job.0))
    }

    /// A job is over.
    pub fn forget(&mut self, job: JobId) {
        for peer in self.peers.values_mut() {
            peer.jobs.remove(&job);
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        let due = |peer: &Peer| match peer.state {
            State::Asked { until } => Some(until),
            State::Lost { tell_at, .. } => tell_at,
            State::Unasked | State::Dialling | State::Up(_) => None,
        };
        self.peers.values().filter_map(due).min()
    }

    /// Links whose jobs are to be told now. `asked`: where this agent can be dialled, for a person.
    pub fn take_lost(&mut self, asked: &[String]) -> Vec<LostLink> {
        let now = self.now;
        let mut lost = Vec::new();
        for (&agent, peer) in &mut self.peers {
            if matches!(peer.state, State::Asked { until } if until <= now) {
                peer.lose(format!("it was asked to dial {}, and did not in time", asked.join(" or ")), now);
            }
            if let State::Lost { problem, tell_at } = &mut peer.state
                && tell_at.take_if(|at| *at <= now).is_some()
            {
                let jobs = std::mem::take(&mut peer.jobs).into_iter().collect();
                lost.push(LostLink { agent, problem: problem.clone(), jobs });
            }
        }
        lost
    }
}

impl Peer {
    fn new(state: State) -> Peer {
        Peer { state, waiting: Vec::new(), waiting_bytes: 0, jobs: BTreeSet::new() }
    }

    fn lose(&mut self, problem: String, tell_at: Instant) {
        self.state = State::Lost { problem, tell_at: Some(tell_at) };
        self.waiting.clear();
        self.waiting_bytes = 0;
    }
}
