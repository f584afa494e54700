//! One peer: how far its link is, what waits for it, what is told of it.

use super::frames::numbered;
use crate::io::LinkId;
use crate::link::window::{TooMuch, Window};
use crate::outbox::Outbox;
use crate::time::Instant;
use std::collections::{BTreeSet, VecDeque};
use wireup_wire::frame::{Class, Frame};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::limits::DIRECT_WAITING_BYTES_MAX;
use wireup_wire::route::{Endpoint, Routed};

pub struct Peer {
    pub state: State,
    pub window: Window,
    /// Frames that wait for the link, and since when.
    pub waiting: VecDeque<Frame>,
    pub waiting_since: Option<Instant>,
    /// Went through the tree while the link was made.
    pub routed_bytes: usize,
    /// The link took too long: nothing waits for it any more.
    pub is_late: bool,
    /// Why this agent could not dial the peer, and the peer not this one.
    pub failed_here: Option<String>,
    pub failed_there: Option<String>,
    /// The link is lost; then what it may have lost goes again.
    pub lost: Option<(Instant, String)>,
    /// To be told, then.
    pub note: Option<(Instant, String)>,
    /// What ends the jobs of this peer.
    pub broken: Option<String>,
    /// Jobs under way that have something to say to it.
    pub jobs: BTreeSet<JobId>,
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
pub enum State {
    /// This agent cannot be dialled yet.
    Unasked,
    /// The peer has our endpoint, or will have it.
    Offered,
    Dialling,
    Up(LinkId),
    /// Everything goes through the tree.
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

    /// Over the link: all in one class, since the order is told by counting.
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
            let problem = format!("more than {DIRECT_WAITING_BYTES_MAX} bytes came before what they follow");
            self.broken.get_or_insert(problem);
            None
        })
    }
}
