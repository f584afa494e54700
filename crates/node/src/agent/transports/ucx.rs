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
//!
//! The first message of the dialling side over UCX: its address, and the handshake's hello.
//!
//! ```text
//! byte  0     8        10
//!       +-----+--------+---------+----------+
//!       | tag | length | address | hello    |
//!       | u64 | u16    | length  | the rest |
//!       +-----+--------+---------+----------+
//! ```
//!
//! Little-endian. Everything before the hello is bound to the handshake, together with the key of the dialled worker.

use super::{Candidate, Offer, Transport, Which};
use crate::agent::token::Token;
use crate::transport::handshake;
use crate::transport::link::{Came, Carrier};
use bytes::{BufMut, Bytes, BytesMut};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::rc::Rc;
use wireup_os::reactor::{Interest, Reactor};
use wireup_ucx::sys::Status;
use wireup_ucx::{Budget, Endpoint, Message, Verdict, Worker};
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

    /// Opens the transport because all agents must have it; returns the `Point` at which other agents reach this one by
    /// it.
    ///
    /// # Errors
    /// The transport cannot be used here; the text says why.
    pub fn open(reactor: &Reactor) -> Result<(Ucx, Point), String> {
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
            if inbox.endpoint.is_none_or(|endpoint| has_room(&self.worker, endpoint)) {
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

/// Pieces are joined into messages up to this size. Chosen: below this a copy costs less than a separate message.
const SMALL_BYTES_MAX: usize = 8 << 10;
/// Most bytes of one link that UCX holds unsent, so that more urgent data may overtake the rest. Chosen: more than a
/// network holds.
const SENDING_BYTES_MAX: usize = 4 << 20;

/// Carries the bytes of one link in UCX messages: small pieces are joined into one message, large ones get their own,
/// without a copy.
struct UcxCarrier {
    shared: Rc<RefCell<Shared>>,
    tag: u64,
    progress: Progress,
    binding: Vec<u8>,
}

/// The state of the connection to the peer.
enum Progress {
    /// The address of the dialling peer's worker. This agent connects to it when the handshake has an answer to send.
    Address(Vec<u8>),
    /// The endpoint to the peer that is dialled, and the bytes that precede the first message, which is sent as an
    /// opening.
    Opening(Endpoint, Vec<u8>),
    Open(Endpoint),
}

/// Whether UCX may get more bytes of the link with this endpoint.
pub fn has_room(worker: &Worker, endpoint: Endpoint) -> bool {
    worker.sending(endpoint) < SENDING_BYTES_MAX
}

impl UcxCarrier {
    /// Dials the worker of another agent, under a fresh tag.
    pub fn dial(shared: Rc<RefCell<Shared>>, point: &Point) -> io::Result<UcxCarrier> {
        let mut ends = shared.borrow_mut();
        let tag = ends.fresh_tag()?;
        let head = head(tag, ends.worker.address()).ok_or(io::ErrorKind::InvalidInput)?;
        let endpoint = ends.worker.connect(&point.address).map_err(io::Error::other)?;
        ends.insert(tag, Inbox { endpoint: Some(endpoint), ..Inbox::default() });
        drop(ends);
        let binding = binding(&point.key, &head);
        Ok(UcxCarrier { shared, tag, progress: Progress::Opening(endpoint, head), binding })
    }

    /// The link for an accepted opening, whose sender claims to have this address.
    pub fn accepted(shared: Rc<RefCell<Shared>>, tag: u64, address: Vec<u8>, binding: Vec<u8>) -> UcxCarrier {
        UcxCarrier { shared, tag, progress: Progress::Address(address), binding }
    }

    /// The endpoint to the peer; an accepted link connects to it on first use.
    fn endpoint(&mut self, shared: &mut Shared) -> io::Result<Endpoint> {
        match &self.progress {
            Progress::Opening(endpoint, _) | Progress::Open(endpoint) => Ok(*endpoint),
            Progress::Address(address) => {
                let endpoint = shared.worker.connect(address).map_err(io::Error::other)?;
                if let Some(inbox) = shared.inboxes.get_mut(&self.tag) {
                    inbox.endpoint = Some(endpoint);
                }
                self.progress = Progress::Open(endpoint);
                Ok(endpoint)
            }
        }
    }

    fn send(&mut self, shared: &mut Shared, message: Bytes) -> io::Result<()> {
        let endpoint = self.endpoint(shared)?;
        let (tag, message) = match std::mem::replace(&mut self.progress, Progress::Open(endpoint)) {
            Progress::Opening(_, head) => (OPENING, [&head[..], &message].concat().into()),
            Progress::Address(_) | Progress::Open(_) => (self.tag, message),
        };
        shared.worker.send(endpoint, tag, message).map_err(io::Error::other)
    }

    /// # Errors
    /// `WouldBlock`: there is no room; the link gets an event when there is.
    fn check_room(&self, shared: &mut Shared) -> io::Result<()> {
        let Shared { worker, inboxes, .. } = shared;
        match inboxes.get_mut(&self.tag) {
            Some(inbox) if inbox.endpoint.is_some_and(|endpoint| !has_room(worker, endpoint)) => {
                inbox.wants_room = true;
                Err(io::ErrorKind::WouldBlock.into())
            }
            _ => Ok(()),
        }
    }
}

impl Carrier for UcxCarrier {
    fn watch(&mut self, token: u64, _interest: Interest, _reactor: &Reactor) -> io::Result<()> {
        let Shared { inboxes, ready, .. } = &mut *self.shared.borrow_mut();
        if let Some(inbox) = inboxes.get_mut(&self.tag) {
            inbox.token = Some(token);
            if inbox.has_more() {
                ready.insert(self.tag);
            }
        }
        Ok(())
    }

    fn unwatch(&mut self, _reactor: &Reactor) {
        if let Some(inbox) = self.shared.borrow_mut().inboxes.get_mut(&self.tag) {
            inbox.token = None;
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let shared = self.shared.clone();
        let shared = &mut *shared.borrow_mut();
        self.check_room(shared)?;
        self.send(shared, Bytes::copy_from_slice(bytes))?;
        Ok(bytes.len())
    }

    fn write_pieces(&mut self, pieces: &mut VecDeque<Bytes>) -> io::Result<()> {
        let shared = self.shared.clone();
        let shared = &mut *shared.borrow_mut();
        self.check_room(shared)?;
        while let Some(message) = next_message(pieces) {
            self.send(shared, message)?;
        }
        Ok(())
    }

    fn read<'b>(&mut self, _buffer: &'b mut [u8]) -> io::Result<Came<'b>> {
        match self.shared.borrow_mut().inboxes.get_mut(&self.tag) {
            Some(inbox) => inbox.pop().map(Came::Whole),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn has_more(&self) -> bool {
        self.shared.borrow().inboxes.get(&self.tag).is_some_and(Inbox::has_more)
    }

    fn binding(&self) -> &[u8] {
        &self.binding
    }

    fn on_proved(&mut self) {
        if let Some(inbox) = self.shared.borrow_mut().inboxes.get_mut(&self.tag) {
            inbox.on_proved();
        }
    }
}

impl Drop for UcxCarrier {
    fn drop(&mut self) {
        let mut shared = self.shared.borrow_mut();
        if let Some(endpoint) = shared.inboxes.remove(&self.tag).and_then(|inbox| inbox.endpoint) {
            shared.worker.close(endpoint);
        }
    }
}

impl Shared {
    fn fresh_tag(&self) -> io::Result<u64> {
        loop {
            let tag = wireup_os::random::number()?;
            if tag != OPENING && !self.inboxes.contains_key(&tag) {
                return Ok(tag);
            }
        }
    }
}

/// Takes the next message from `pieces`: a part of a long piece, or several small ones joined.
fn next_message(pieces: &mut VecDeque<Bytes>) -> Option<Bytes> {
    let first = pieces.front_mut()?;
    if first.len() > MESSAGE_LEN_MAX {
        return Some(first.split_to(MESSAGE_LEN_MAX));
    }
    let first = pieces.pop_front()?;
    if pieces.front().is_none_or(|second| first.len() + second.len() > SMALL_BYTES_MAX) {
        return Some(first);
    }
    let mut joined = BytesMut::with_capacity(SMALL_BYTES_MAX);
    joined.put(first);
    while pieces.front().is_some_and(|piece| joined.len() + piece.len() <= SMALL_BYTES_MAX) {
        joined.extend(pieces.pop_front());
    }
    Some(joined.freeze())
}

/// Longest message; a longer piece is split. Chosen: the pieces of all but the largest exchanges fit, and arrive
/// without a copy.
pub(super) const MESSAGE_LEN_MAX: usize = 16 << 20;
/// The tag of openings, which no link has.
pub(super) const OPENING: u64 = u64::MAX;
/// Length of the longest handshake message, with its own length field.
const HANDSHAKE_LEN_MAX: usize = 2 + handshake::MESSAGE_LEN_MAX;

/// State that the transport shares with its carriers.
pub(super) struct Shared {
    pub worker: Worker,
    /// Messages that have arrived for each link, by tag.
    pub inboxes: BTreeMap<u64, Inbox>,
    /// Tags of links with events that were not reported yet.
    pub ready: BTreeSet<u64>,
}

/// Messages that arrived for one link and have not been read.
#[derive(Default)]
pub struct Inbox {
    /// The link's token in the reactor's events.
    pub token: Option<u64>,
    /// The endpoint towards the peer, once there is one.
    pub endpoint: Option<Endpoint>,
    /// Whether the link needs an event when there is room for more.
    pub wants_room: bool,
    is_proved: bool,
    messages: VecDeque<Bytes>,
    /// Why no more messages arrive; `None`: more may arrive.
    problem: Option<String>,
}

impl Inbox {
    /// The inbox of a link that the peer has dialled, with its first message.
    pub fn with(message: Bytes) -> Inbox {
        Inbox { messages: VecDeque::from([message]), ..Inbox::default() }
    }

    /// What to do with a message for the link, of which only the length is known yet.
    pub fn judge(&mut self, len: usize) -> Verdict {
        let len_max = if self.is_proved { MESSAGE_LEN_MAX } else { HANDSHAKE_LEN_MAX };
        if len > len_max {
            self.fail(format!("a message of {len} bytes is too long"));
        }
        match (&self.problem, self.is_proved) {
            (Some(_), _) => Verdict::Drop,
            (None, true) => Verdict::Take,
            // The message may be the one that proves the secret; then the following ones may be longer.
            (None, false) => Verdict::TakeAlone,
        }
    }

    pub fn push(&mut self, message: Result<Bytes, Status>) {
        match message {
            Ok(bytes) if self.problem.is_none() => self.messages.push_back(bytes),
            Ok(_) => {}
            Err(status) => self.fail(format!("receiving a message failed (status {status})")),
        }
    }

    pub fn fail(&mut self, problem: String) {
        self.problem.get_or_insert(problem);
    }

    pub fn on_proved(&mut self) {
        self.is_proved = true;
    }

    pub fn has_more(&self) -> bool {
        !self.messages.is_empty() || self.problem.is_some()
    }

    /// The next message.
    ///
    /// # Errors
    /// No message has arrived (`WouldBlock`), or none will arrive any more.
    pub fn pop(&mut self) -> io::Result<Bytes> {
        match (self.messages.pop_front(), &self.problem) {
            (Some(bytes), _) => Ok(bytes),
            (None, Some(problem)) => Err(io::Error::other(problem.clone())),
            (None, None) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

const HEADER_LEN: usize = 10;
/// Longest address of a worker: it has some hundred bytes for each of its networks.
const ADDRESS_LEN_MAX: usize = 12 << 10;
/// Longest opening that is accepted.
pub const OPENING_LEN_MAX: usize = HEADER_LEN + ADDRESS_LEN_MAX + 2 + handshake::MESSAGE_LEN_MAX;

pub struct Opening<'a> {
    /// The tag of all later messages of the link, in both directions.
    pub tag: u64,
    /// The address of the sender's worker.
    pub address: &'a [u8],
    pub hello: Bytes,
    head: &'a [u8],
}

impl<'a> Opening<'a> {
    pub fn decode(bytes: &'a Bytes) -> Option<Opening<'a>> {
        let (tag, rest) = bytes.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_le_bytes(*length));
        let address = rest.get(..length).filter(|_| length <= ADDRESS_LEN_MAX)?;
        let (head, hello) = (&bytes[..HEADER_LEN + length], bytes.slice(HEADER_LEN + length..));
        Some(Opening { tag: u64::from_le_bytes(*tag), address, hello, head })
    }

    /// The bytes to which the handshake is bound. `key`: the key of the dialled worker.
    pub fn binding(&self, key: &[u8; 32]) -> Vec<u8> {
        binding(key, self.head)
    }
}

/// The bytes before the hello; `None`: the address is too long.
pub fn head(tag: u64, address: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(address.len()).ok().filter(|_| address.len() <= ADDRESS_LEN_MAX)?;
    Some([&tag.to_le_bytes()[..], &length.to_le_bytes(), address].concat())
}

pub fn binding(key: &[u8; 32], head: &[u8]) -> Vec<u8> {
    [key, head].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pieces_share_a_message_and_long_pieces_are_split() {
        let lens = [16, 0, 100, 9_000, 16, 8_176, 1, 40 << 20];
        let mut pieces: VecDeque<Bytes> = lens.iter().map(|len| Bytes::from(vec![0; *len])).collect();
        let messages: Vec<usize> = std::iter::from_fn(|| next_message(&mut pieces)).map(|bytes| bytes.len()).collect();
        assert_eq!(messages, [116, 9_000, 8_192, 1, 16 << 20, 16 << 20, 8 << 20]);
    }

    #[test]
    fn before_authentication_messages_are_short_and_taken_one_by_one() {
        let mut inbox = Inbox::default();
        assert_eq!(inbox.judge(HANDSHAKE_LEN_MAX), Verdict::TakeAlone);
        inbox.on_proved();
        assert_eq!(inbox.judge(HANDSHAKE_LEN_MAX + 1), Verdict::Take);
        assert_eq!(inbox.judge(MESSAGE_LEN_MAX), Verdict::Take);
        assert!(!inbox.has_more());
        let mut inbox = Inbox::default();
        assert_eq!(inbox.judge(HANDSHAKE_LEN_MAX + 1), Verdict::Drop);
        assert_eq!(inbox.judge(1), Verdict::Drop, "a link that has lost a message is closed");
    }

    #[test]
    fn messages_before_a_problem_are_read_first() {
        let mut inbox = Inbox::with(Bytes::from_static(b"one"));
        inbox.on_proved();
        inbox.push(Ok(Bytes::from_static(b"two")));
        assert_eq!(inbox.judge(MESSAGE_LEN_MAX + 1), Verdict::Drop);
        inbox.push(Ok(Bytes::from_static(b"three")));
        assert_eq!((inbox.pop().unwrap(), inbox.pop().unwrap()), ("one".into(), "two".into()));
        let problem = inbox.pop().unwrap_err().to_string();
        assert!(inbox.has_more() && problem.contains("16777217 bytes is too long"), "{problem}");
    }

    #[test]
    fn openings_round_trip_and_both_sides_compute_the_same_binding() {
        let head = head(7, b"somewhere").unwrap();
        let bytes = Bytes::from([&head[..], b"hello"].concat());
        let opening = Opening::decode(&bytes).unwrap();
        assert_eq!((opening.tag, opening.address, &opening.hello[..]), (7, &b"somewhere"[..], &b"hello"[..]));
        assert_eq!(opening.binding(&[3; 32]), binding(&[3; 32], &head));
        assert_ne!(opening.binding(&[4; 32]), binding(&[3; 32], &head));
    }

    #[test]
    fn openings_that_are_too_short_or_state_a_false_length_are_refused() {
        let bytes = Bytes::from(head(7, &[1; 300]).unwrap());
        assert!(Opening::decode(&bytes).is_some_and(|opening| opening.hello.is_empty()));
        for len in 0..bytes.len() {
            assert!(Opening::decode(&bytes.slice(..len)).is_none(), "{len}");
        }
        assert!(head(7, &[0; ADDRESS_LEN_MAX]).is_some() && head(7, &[0; ADDRESS_LEN_MAX + 1]).is_none());
        let long = Bytes::from([&[0; 8][..], &[0xff; 2], &[0; 70_000]].concat());
        assert!(Opening::decode(&long).is_none());
    }
}
