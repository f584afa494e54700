//! The transport UCX: one worker for all links of this agent; each link has a tag.
//!
//! ```text
//!   offers its worker's address and a key            dials: chooses a tag
//!     ◄─ opening: tag, own address, hello ──────────   with the tag of openings
//!     ── answer ────────────────────────────────────►  with the link's tag, like all that follows
//!     ◄─ confirm; frames ───────────────────────────
//! ```
//!
//! Hello, answer and confirmation are those of the Noise handshake, as on TCP. The opening's tag and address, and the
//! offered key, are bound to it: an opening that was changed, or made for another worker, is refused at the first
//! message, before the address in it is used.
//!
//! Any process that can reach the worker can send to any tag. So a message is judged before a buffer is allocated for
//! it. With the tag of openings, or on a link that is not proved yet, it must be as short as those messages are; on a
//! proved link, it may be as long as the other side makes them; with any other tag it is discarded.

mod carrier;
pub(crate) mod inbox;
pub(crate) mod opening;

use super::{Begin, Candidate, Offer, Transport, Which};
use crate::agent::token::Token;
use crate::transport::carrier::Carrier;
use carrier::UcxCarrier;
use inbox::{Inbox, OPENING, Shared};
use opening::{OPENING_LEN_MAX, Opening};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;
use wireup_os::reactor::{Interest, Reactor};
use wireup_ucx::{Budget, Endpoint, Message, Verdict, Worker};
use wireup_wire::peer::AgentTransport;
use wireup_wire::route::Point;

/// Time limit of the handshake (ns), after which another transport is tried. Chosen: three messages take less than a
/// second on a busy machine.
const ANSWER_NS_MAX: u64 = 5_000_000_000;
/// Most messages and rounds of one turn of the worker. Chosen: a turn takes less than a millisecond, unless its
/// messages are long, and there is room for the guests of two turns.
const BUDGET: Budget = Budget { messages: 64, rounds: 64 };

pub struct Ucx {
    shared: Rc<RefCell<Shared>>,
    key: [u8; 32],
}

impl Ucx {
    fn guest(&self, opening: &Opening<'_>) -> Option<Box<dyn Carrier>> {
        let inbox = Inbox::with(opening.hello.clone());
        self.shared.borrow_mut().insert(opening.tag, inbox).then(|| -> Box<dyn Carrier> {
            let binding = opening.binding(&self.key);
            Box::new(UcxCarrier::accepted(self.shared.clone(), opening.tag, opening.address.to_vec(), binding))
        })
    }
}

impl Begin for Ucx {
    const AGREED: Option<AgentTransport> = Some(AgentTransport::Ucx);

    fn open(reactor: &Reactor) -> Result<(Ucx, Point), String> {
        let open = || -> Result<(Ucx, Point), Box<dyn std::error::Error>> {
            let worker = Worker::open()?;
            reactor.add(worker.fd(), Token::Transport(Which::Ucx).pack(), Interest::READABLE)?;
            let key = wireup_os::random::bytes()?;
            let point = Point { address: worker.address().to_vec(), key };
            let shared = Shared { worker, inboxes: BTreeMap::new(), ready: BTreeSet::new() };
            Ok((Ucx { shared: Rc::new(RefCell::new(shared)), key }, point))
        };
        open().map_err(|problem| format!("cannot use UCX: {problem}"))
    }
}

impl Transport for Ucx {
    fn candidates(&mut self, offer: &Offer) -> Result<Vec<Candidate>, String> {
        let Some(point) = offer.point.clone() else { return Ok(Vec::new()) };
        let shared = self.shared.clone();
        let open = move || -> io::Result<Box<dyn Carrier>> { Ok(Box::new(UcxCarrier::dial(shared, &point)?)) };
        Ok(vec![Candidate { words: "UCX".into(), limit_ns: ANSWER_NS_MAX, open: Box::new(open) }])
    }

    fn take_in(&mut self, _now_ns: u64, _reactor: &Reactor) -> Vec<Box<dyn Carrier>> {
        let openings = self.shared.borrow_mut().turn();
        openings.iter().filter_map(|bytes| self.guest(&Opening::decode(bytes)?)).collect()
    }

    fn ready(&mut self) -> Vec<u64> {
        let mut shared = self.shared.borrow_mut();
        let tags = std::mem::take(&mut shared.ready);
        tags.iter().filter_map(|tag| shared.inboxes.get(tag)?.token).collect()
    }

    fn arm(&mut self) -> bool {
        self.shared.borrow_mut().worker.arm()
    }
}

impl Shared {
    /// Lets the worker make progress. Messages for links are put into their inboxes; openings are returned.
    fn turn(&mut self) -> Vec<bytes::Bytes> {
        let (mut messages, mut broken) = (Vec::new(), Vec::new());
        let Shared { worker, inboxes, ready } = self;
        let judge = |tag, len| match tag {
            OPENING if len > OPENING_LEN_MAX => Verdict::Drop,
            OPENING => Verdict::TakeUnordered,
            tag => match inboxes.get_mut(&tag) {
                Some(inbox) => {
                    ready.insert(tag);
                    inbox.judge(len)
                }
                None => Verdict::Drop,
            },
        };
        worker.poll(BUDGET, judge, &mut messages, &mut broken);
        let openings = messages.extract_if(.., |message| message.tag == OPENING);
        let openings: Vec<bytes::Bytes> = openings.filter_map(|message| message.bytes.ok()).collect();
        for Message { tag, bytes } in messages {
            if let Some(inbox) = inboxes.get_mut(&tag) {
                inbox.push(bytes);
                ready.insert(tag);
            }
        }
        for (endpoint, status) in broken {
            self.on_broken(endpoint, status);
        }
        self.find_room();
        openings
    }

    fn on_broken(&mut self, endpoint: Endpoint, status: i8) {
        for (&tag, inbox) in self.inboxes.iter_mut().filter(|(_, inbox)| inbox.endpoint == Some(endpoint)) {
            inbox.fail(format!("UCX closed the connection (status {status})"));
            self.ready.insert(tag);
        }
    }

    /// Checks whether links that were out of room have some now.
    fn find_room(&mut self) {
        for (&tag, inbox) in self.inboxes.iter_mut().filter(|(_, inbox)| inbox.wants_room) {
            if inbox.endpoint.is_none_or(|endpoint| carrier::has_room(&self.worker, endpoint)) {
                inbox.wants_room = false;
                self.ready.insert(tag);
            }
        }
    }

    /// Adds a link; `false`: its tag is in use.
    fn insert(&mut self, tag: u64, inbox: Inbox) -> bool {
        let is_free = tag != OPENING && !self.inboxes.contains_key(&tag);
        if is_free {
            self.inboxes.insert(tag, inbox);
        }
        is_free
    }
}
