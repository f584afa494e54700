//! One peer: the state of its link, the frames that wait for it, the reports about it; and the messages to it.

use crate::io::LinkId;
use crate::link::window::{TooMuch, Window};
use crate::outbox::Outbox;
use crate::time::Instant;
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};
use wireup_wire::frame::{Class, Frame, FrameKind};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::limits::DIRECT_WAITING_BYTES_MAX;
use wireup_wire::route::{Endpoint, Incarnations, Routed};

pub struct Peer {
    pub state: State,
    pub window: Window,
    /// Frames that wait for the link; `waiting_since`: when the wait started.
    pub waiting: VecDeque<Frame>,
    pub waiting_since: Option<Instant>,
    /// Bytes sent through the tree while the link was being made.
    pub routed_bytes: usize,
    /// Whether the link took too long: frames no longer wait for it.
    pub is_late: bool,
    /// Why this agent could not dial the peer; `failed_there`: why the peer could not dial this agent.
    pub failed_here: Option<String>,
    pub failed_there: Option<String>,
    /// Time at which the frames that a lost link may have lost are sent again, and why the link broke; `None`: no link
    /// is lost.
    pub lost: Option<(Instant, String)>,
    /// A note for the user, and the time at which it is due.
    pub note: Option<(Instant, String)>,
    /// The problem that ends the jobs with traffic to this peer.
    pub broken: Option<String>,
    /// Jobs in progress with traffic to this peer.
    pub jobs: BTreeSet<JobId>,
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
pub enum State {
    /// This agent cannot be dialled yet.
    Unasked,
    /// The peer has this agent's endpoint, or the endpoint is in transit.
    Offered,
    Dialling,
    Up(LinkId),
    /// All frames go through the tree.
    Routed,
}

impl Peer {
    pub fn new(state: State, standing: bool) -> Peer {
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

    /// Sends a frame over the link. All frames use one class, since the receiver counts them to know their order.
    pub fn send_on(&mut self, link: LinkId, frame: Frame, out: &mut Outbox) {
        let frame = Frame { class: Class::Exchange, ..frame };
        self.window.keep(frame.clone());
        out.send(link, frame);
    }

    pub fn route(&mut self, from: AgentId, to: AgentId, frame: Frame, endpoint: Option<Endpoint>) -> (JobId, Routed) {
        let (job, routed) = numbered(from, to, self.window.route(&frame), frame);
        (job, Routed { endpoint, ..routed })
    }

    pub fn placed(&mut self, placed: Result<Option<Frame>, TooMuch>) -> Option<Frame> {
        placed.unwrap_or_else(|TooMuch| {
            let problem =
                format!("more than {DIRECT_WAITING_BYTES_MAX} bytes arrived while earlier frames are missing");
            self.broken.get_or_insert(problem);
            None
        })
    }
}

/// Values of `stream` in a [`FrameKind::Pair`] frame.
pub const BEGIN: u16 = 0;
pub const ACKNOWLEDGE: u16 = 1;

pub fn acknowledged(me: AgentId, to: AgentId, job: JobId, before: u32) -> (JobId, Routed) {
    (job, numbered(me, to, 0, about(ACKNOWLEDGE, before)).1)
}

/// A frame through the tree. The incarnations of the two agents are filled in when it is sent.
pub fn numbered(me: AgentId, to: AgentId, number: u64, frame: Frame) -> (JobId, Routed) {
    let job = JobId(frame.job);
    let frame = Some((number as u32, frame));
    (job, Routed { to, from: me, incarnations: Incarnations::default(), endpoint: None, frame })
}

/// Tells a peer through the tree where this agent can be reached, or that it cannot.
pub fn offer(me: AgentId, to: AgentId, job: JobId, endpoint: Endpoint) -> (JobId, Routed) {
    (job, Routed { to, from: me, incarnations: Incarnations::default(), endpoint: Some(endpoint), frame: None })
}

/// A [`FrameKind::Pair`] frame, which is about the frames of a link.
pub fn about(stream: u16, arg: u32) -> Frame {
    Frame::new(FrameKind::Pair, stream, 0, arg, Bytes::new())
}
