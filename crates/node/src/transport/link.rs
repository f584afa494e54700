//! One link: its handshake, then frames, queued by class and encrypted, on any carrier of bytes.
//!
//! A frame of which a part has been sent is completed first; then a frame of the lowest non-empty class goes next, so a
//! fence or an abort waits for at most one stdio chunk. All frames that are ready are sent at once. On an encrypted
//! link, frames that have begun are encrypted before they are written, at most as many bytes at once as one write
//! takes.
//!
//! Encrypted bytes are Noise transport messages, with a separate counter for each direction. A message is a 2-byte
//! little-endian length followed by that many bytes: up to [`PLAIN_LEN_MAX`] bytes of frames, encrypted, and a tag of
//! 16 bytes. Messages need not begin or end where frames do. Each direction numbers its messages, which makes the
//! nonces unique: from 0 (from 1 if the handshake's confirmation used 0), at most 2^64 - 1 messages. The key of a
//! direction is replaced (Noise: rekey) after every [`MESSAGES_PER_KEY`] messages. A message that was omitted,
//! repeated, changed or reordered fails to decrypt, which ends the link.
//!
//! A carrier carries the bytes: a connected socket (TCP between machines, a Unix socket on this one), or two UCX
//! endpoints. It keeps bytes in order and loses none, or fails. It never blocks, and knows neither secrets nor frames.

use super::handshake::{Handshake, HandshakeError, Progress, Seal};
use bytes::{Buf, Bytes, BytesMut};
use rustix::buffer::spare_capacity;
use rustix::io::retry_on_intr;
use snow::TransportState;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;
use wireup_os::reactor::{Interest, Reactor};
use wireup_os::socket::{self, Unacknowledged};
use wireup_wire::frame::{Class, Frame};
use wireup_wire::limits::LAUNCHER_UNREAD_BYTES_MAX;
use wireup_wire::peer::{Hello, Problem, ProblemKind};

pub struct Link {
    pub carrier: Box<dyn Carrier>,
    stage: Stage,
    /// Bytes to be sent next: the bytes of the handshake, or the remaining bytes of frames that have been sent in part.
    begun: VecDeque<Bytes>,
    waiting: Waiting,
    /// A buffer for joining small frames; kept for its allocation.
    joined: Vec<u8>,
    /// Frames that arrived directly after the handshake.
    early: Bytes,
    encrypt: bool,
    /// Encryption of frames; present on an encrypted link once the handshake is done.
    sealed: Option<Sealed>,
    /// Longest time without an acknowledgement from the peer, after which the link fails.
    patience: Option<Duration>,
    local: bool,
}

enum Stage {
    Handshake(Box<Handshake>),
    Open,
}

/// The result of reading a link.
pub enum Received {
    /// Bytes of frames.
    Bytes(Bytes),
    /// The handshake is done; the field is the hello of the peer, if the peer dialled. Frames may already have arrived
    /// after the handshake.
    Up(Option<Hello>),
    /// Nothing more is available now.
    Nothing,
}

impl Link {
    /// A link whose handshake begins with the bytes `first`, which are empty if this side listens. `encrypt`: whether
    /// frames are encrypted, as in the handshake's terms.
    pub fn begun(carrier: Box<dyn Carrier>, handshake: Handshake, first: Vec<u8>, encrypt: bool) -> Link {
        let mut link = Link::new(carrier, Stage::Handshake(Box::new(handshake)));
        link.encrypt = encrypt;
        link.push_begun(first);
        link
    }

    /// A link to a process of the same user on this machine, over a Unix socket that no other user can reach. `early`:
    /// the bytes that followed the peer's version header.
    pub fn local(socket: OwnedFd, early: Bytes) -> Link {
        Link { early, local: true, ..Link::new(Box::new(Socket::local(socket)), Stage::Open) }
    }

    fn new(carrier: Box<dyn Carrier>, stage: Stage) -> Link {
        Link {
            carrier,
            stage,
            begun: VecDeque::new(),
            waiting: Waiting::default(),
            joined: Vec::new(),
            early: Bytes::new(),
            encrypt: false,
            sealed: None,
            patience: None,
            local: false,
        }
    }

    pub fn is_local(&self) -> bool {
        self.local
    }

    fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    /// The seal of the hello that a dialling peer has sent, while its confirmation is awaited; a member of this session
    /// has made it.
    pub fn heard(&self) -> Option<&Seal> {
        if let Stage::Handshake(handshake) = &self.stage { handshake.heard() } else { None }
    }

    /// Makes the link fail if the peer acknowledges neither probes nor data for the time `patience`.
    pub fn keep_alive(&mut self, patience: Duration) -> io::Result<()> {
        self.patience = Some(patience);
        self.carrier.keep_alive(patience)
    }

    /// Queues a frame; `flush` sends it.
    pub fn send(&mut self, frame: Frame) {
        self.waiting.push(frame);
    }

    /// Bytes of frames that have not begun to be sent.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting.bytes()
    }

    /// Whether `flush` has something to do.
    pub fn wants_to_write(&self) -> bool {
        let sealing = self.sealed.as_ref().is_some_and(|sealed| !sealed.pieces.is_empty());
        !self.begun.is_empty() || (self.is_open() && (sealing || !self.waiting.is_empty()))
    }

    /// Sends until nothing is left or there is no room; `true`: everything has been sent.
    pub fn flush(&mut self) -> Result<bool, LinkError> {
        loop {
            if self.begun.is_empty() && self.is_open() && self.sealed.is_none() && !self.write_small()? {
                return Ok(false);
            }
            self.begin_frames()?;
            if self.begun.is_empty() {
                return Ok(true);
            }
            match self.carrier.write_pieces(&mut self.begun) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(self.broken(error)),
            }
        }
    }

    /// Copies small frames into one buffer and sends that, which is cheaper than tracking their pieces; repeats while
    /// the next frames are small. `false`: there is no more room, and the rest of the frames has been moved to `begun`.
    fn write_small(&mut self) -> Result<bool, LinkError> {
        let mut joined = std::mem::take(&mut self.joined);
        let has_room = loop {
            joined.clear();
            let next = self.waiting.join_small(&mut joined);
            if joined.is_empty() {
                break true;
            }
            let written = match self.carrier.write(&joined) {
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => return Err(self.broken(error)),
            };
            if written < joined.len() {
                self.begun.push_back(Bytes::copy_from_slice(&joined[written..]));
                break false;
            }
            if next == Next::Nothing {
                break true;
            }
        };
        self.joined = joined;
        Ok(has_room)
    }

    fn begin_frames(&mut self) -> Result<(), SealError> {
        if !self.begun.is_empty() || !self.is_open() {
            return Ok(());
        }
        let Some(sealed) = &mut self.sealed else {
            self.waiting.move_next_group(&mut self.begun);
            return Ok(());
        };
        if sealed.pieces.is_empty() {
            self.waiting.move_next_group(&mut sealed.pieces);
        }
        if !sealed.pieces.is_empty() {
            self.begun.push_back(sealed.seal(BEGUN_BYTES_MAX)?);
        }
        Ok(())
    }

    /// Reads once. An event follows if more data arrive; but if `has_more` returns `true`, call `receive` again at
    /// once.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<Received, LinkError> {
        let came = match self.carrier.read(buffer) {
            Ok(Came::End) => return Err(self.ended()),
            Ok(came) => came,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Received::Nothing),
            Err(error) => return Err(self.broken(error)),
        };
        match std::mem::replace(&mut self.stage, Stage::Open) {
            Stage::Open => match (&mut self.sealed, came) {
                (Some(sealed), came) => Ok(received(sealed.open(came.as_slice())?)),
                (None, came) => Ok(received(came.into_bytes())),
            },
            Stage::Handshake(handshake) => self.shake(*handshake, came.as_slice()),
        }
    }

    fn shake(&mut self, handshake: Handshake, bytes: &[u8]) -> Result<Received, LinkError> {
        let mut output = Vec::new();
        match handshake.on_bytes(bytes, &mut output)? {
            Progress::Wait(handshake) => {
                self.stage = Stage::Handshake(Box::new(handshake));
                self.push_begun(output);
                Ok(Received::Nothing)
            }
            Progress::Done { peer, rest, noise } => {
                self.push_begun(output);
                self.carrier.on_proved();
                self.early = rest.freeze();
                if self.encrypt {
                    let sealed = self.sealed.insert(Sealed::new(noise));
                    self.early = sealed.open(&self.early)?;
                }
                Ok(Received::Up(peer))
            }
        }
    }

    /// Returns the frames that arrived directly after the handshake; each is returned only once.
    pub fn receive_early(&mut self) -> Received {
        received(std::mem::take(&mut self.early))
    }

    /// The error for a link that the peer has closed.
    fn ended(&self) -> LinkError {
        match &self.sealed {
            _ if !self.is_open() => LinkError::Refused,
            Some(sealed) => sealed.end().map_or_else(LinkError::Seal, |()| LinkError::Closed),
            None => LinkError::Closed,
        }
    }

    /// The error for a connection that the kernel has closed with an error.
    fn broken(&self, error: io::Error) -> LinkError {
        use io::ErrorKind::{HostUnreachable, NetworkUnreachable, TimedOut};
        match self.patience {
            // If a router or the neighbour look-up reported a problem, the kernel returns that error instead of a
            // timeout.
            Some(patience) if matches!(error.kind(), TimedOut | HostUnreachable | NetworkUnreachable) => {
                LinkError::Silent { patience, error }
            }
            _ => LinkError::Io(error),
        }
    }

    fn push_begun(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.begun.push_back(Bytes::from(bytes));
        }
    }
}

fn received(bytes: Bytes) -> Received {
    if bytes.is_empty() { Received::Nothing } else { Received::Bytes(bytes) }
}

#[derive(thiserror::Error, Debug)]
pub enum LinkError {
    #[error("closed by the other end")]
    Closed,
    #[error("closed by the other end during the handshake")]
    Refused,
    #[error("it does not read; more than {LAUNCHER_UNREAD_BYTES_MAX} bytes are waiting for it")]
    Unread,
    #[error("no answer within {} s", seconds(.0))]
    Late(Duration),
    /// `error`: the network's own error, shown if it says more than that the peer was silent for too long.
    #[error("no answer for {} s{}", seconds(.patience), network(.error))]
    Silent { patience: Duration, error: io::Error },
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error(transparent)]
    Seal(#[from] SealError),
}

impl LinkError {
    /// The error in the form that the state machine takes.
    pub fn problem(&self) -> Problem {
        let kind = match self {
            LinkError::Late(_) | LinkError::Silent { .. } => ProblemKind::Silent,
            LinkError::Closed
            | LinkError::Refused
            | LinkError::Unread
            | LinkError::Io(_)
            | LinkError::Handshake(_)
            | LinkError::Seal(_) => ProblemKind::Other,
        };
        kind.with(self.to_string())
    }
}

fn seconds(time: &Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}

fn network(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::TimedOut { String::new() } else { format!(" ({error})") }
}

/// Bytes of frames that are moved out of the queues at once. Chosen: for more bytes, the cost of a system call is
/// small.
pub const BEGUN_BYTES_MAX: usize = 256 << 10;
/// Most pieces of frames that are moved out of the queues at once.
const BEGUN_PIECES_MAX: usize = 64;
/// Most bytes of frames joined in one buffer. Chosen: to copy fewer bytes than this costs less than to track pieces.
const SMALL_BYTES_MAX: usize = 8 << 10;

#[derive(Default)]
pub struct Waiting {
    queues: [VecDeque<Frame>; Class::ALL.len()],
    bytes: usize,
}

/// Whether a frame follows the small frames at the head of the queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    Nothing,
    /// The next frame is large, or there are more small frames than are joined at once.
    More,
}

impl Waiting {
    pub fn push(&mut self, frame: Frame) {
        self.bytes += frame.wire_len();
        self.queues[frame.class as usize].push_back(frame);
    }

    /// Total bytes of all frames.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty)
    }

    /// Moves the next frames into one buffer as long as they are small.
    pub fn join_small(&mut self, joined: &mut Vec<u8>) -> Next {
        while let Some(queue) = self.queues.iter_mut().find(|queue| !queue.is_empty())
            && let Some(frame) = queue.pop_front()
        {
            if joined.len() + frame.wire_len() > SMALL_BYTES_MAX {
                queue.push_front(frame);
                return Next::More;
            }
            self.bytes -= frame.wire_len();
            joined.extend_from_slice(&frame.header());
            joined.extend_from_slice(&frame.payload);
        }
        Next::Nothing
    }

    /// Moves the frames to be sent now to `pieces`; a frame of a bulk class (stdio or staging) ends the group.
    pub fn move_next_group(&mut self, pieces: &mut VecDeque<Bytes>) {
        let mut bytes = 0;
        while bytes < BEGUN_BYTES_MAX && pieces.len() + 2 <= BEGUN_PIECES_MAX {
            let Some(frame) = self.queues.iter_mut().find_map(VecDeque::pop_front) else {
                break;
            };
            bytes += frame.wire_len();
            let last = frame.class >= Class::Stdio;
            pieces.push_back(Bytes::copy_from_slice(&frame.header()));
            if !frame.payload.is_empty() {
                pieces.push_back(frame.payload);
            }
            if last {
                break;
            }
        }
        self.bytes -= bytes;
    }
}

/// The result of a read.
pub enum Came<'b> {
    /// Bytes that were read into the caller's buffer.
    Read(&'b [u8]),
    /// Bytes in a buffer that the carrier has allocated.
    Whole(Bytes),
    /// The peer has closed the link properly.
    End,
}

impl Came<'_> {
    /// The bytes that were read; empty at the end of the link.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Came::Read(bytes) => bytes,
            Came::Whole(bytes) => bytes,
            Came::End => &[],
        }
    }

    pub fn into_bytes(self) -> Bytes {
        match self {
            Came::Read(bytes) => Bytes::copy_from_slice(bytes),
            Came::Whole(bytes) => bytes,
            Came::End => Bytes::new(),
        }
    }
}

pub trait Carrier {
    /// Makes the reactor or the carrier's transport report events of the link with `token`. Called again when the
    /// interest changes.
    fn watch(&mut self, token: u64, interest: Interest, reactor: &Reactor) -> io::Result<()>;

    /// Stops events for the link.
    fn unwatch(&mut self, reactor: &Reactor);

    /// Handles an event: there may be room to write, or the attempt to connect has ended.
    fn on_writable(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Sends as many of these bytes as possible; returns the number of bytes sent.
    ///
    /// # Errors
    /// `WouldBlock`: there is no room now; an event follows when there is room. Other errors end the link.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Sends as many of these pieces as possible and removes the bytes that were sent.
    fn write_pieces(&mut self, pieces: &mut VecDeque<Bytes>) -> io::Result<()>;

    /// Reads once.
    ///
    /// # Errors
    /// `WouldBlock`: nothing is available. Other errors end the link.
    fn read<'b>(&mut self, buffer: &'b mut [u8]) -> io::Result<Came<'b>>;

    /// Whether `read` must be called again before waiting, because no event will report data that has already arrived.
    fn has_more(&self) -> bool {
        false
    }

    /// Data, besides the terms, that both ends of the link know beforehand: the handshake proves that they agree on it.
    fn binding(&self) -> &[u8] {
        &[]
    }

    /// Notes that the peer has proved that it knows the secret.
    fn on_proved(&mut self) {}

    /// Makes the link fail if the peer sends no acknowledgement for the time `_patience`.
    fn keep_alive(&mut self, _patience: Duration) -> io::Result<()> {
        Ok(())
    }

    #[cfg(test)]
    fn is_kept_alive(&self) -> bool {
        false
    }

    /// Whether the peer acknowledges the written bytes, if the carrier knows this.
    fn silence(&self) -> Unacknowledged {
        Unacknowledged::Nothing
    }

    /// The address at this end of the link, if this end has an address.
    fn local_address(&self) -> Option<IpAddr> {
        None
    }
}

/// Most pieces in one `writev`. Chosen: above this the system call is a small part of the cost.
const WRITE_PIECES_MAX: usize = 64;
/// After a read of at least this many bytes, the next read uses a separately allocated buffer (chosen: a quarter of the
/// caller's buffer).
const LARGE: usize = 64 << 10;

pub struct Socket {
    fd: OwnedFd,
    connecting: bool,
    watched: bool,
    /// Buffer for the next read, if the last read was large.
    large: Option<Vec<u8>>,
    /// Whether both ends are on this machine.
    local: bool,
}

impl Socket {
    /// A carrier for a socket that was dialled and is not connected yet.
    pub fn dialled(fd: OwnedFd) -> Socket {
        Socket { connecting: true, ..Socket::accepted(fd) }
    }

    /// A carrier for a socket that was accepted.
    pub fn accepted(fd: OwnedFd) -> Socket {
        Socket { fd, connecting: false, watched: false, large: None, local: false }
    }

    /// A carrier for a socket to a process on this machine.
    pub fn local(fd: OwnedFd) -> Socket {
        Socket { local: true, ..Socket::accepted(fd) }
    }

    fn check_connected(&self) -> io::Result<()> {
        if self.connecting { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    }
}

impl Carrier for Socket {
    fn watch(&mut self, token: u64, interest: Interest, reactor: &Reactor) -> io::Result<()> {
        if self.watched {
            return reactor.modify(&self.fd, token, interest);
        }
        reactor.add(&self.fd, token, interest)?;
        self.watched = true;
        Ok(())
    }

    fn unwatch(&mut self, reactor: &Reactor) {
        if std::mem::take(&mut self.watched) {
            let _ = reactor.remove(&self.fd);
        }
    }

    fn on_writable(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.connecting) {
            socket::dial_result(&self.fd)?;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check_connected()?;
        Ok(retry_on_intr(|| rustix::io::write(&self.fd, bytes))?)
    }

    fn write_pieces(&mut self, pieces: &mut VecDeque<Bytes>) -> io::Result<()> {
        self.check_connected()?;
        let mut slices = [IoSlice::new(&[]); WRITE_PIECES_MAX];
        let count = pieces.len().min(WRITE_PIECES_MAX);
        for (slot, piece) in slices.iter_mut().zip(&*pieces) {
            *slot = IoSlice::new(piece);
        }
        let written = retry_on_intr(|| rustix::io::writev(&self.fd, &slices[..count]))?;
        advance(pieces, written);
        Ok(())
    }

    fn read<'b>(&mut self, buffer: &'b mut [u8]) -> io::Result<Came<'b>> {
        // After a large read, the next read uses a newly allocated buffer, which is passed on without a copy. A link on
        // which nothing arrives keeps no such buffer.
        let (length, own) = match self.large.take() {
            Some(mut own) => (rustix::io::read(&self.fd, spare_capacity(&mut own)), own),
            None => (rustix::io::read(&self.fd, &mut *buffer), Vec::new()),
        };
        let length = match length {
            Ok(0) => return Ok(Came::End),
            Ok(length) => length,
            Err(rustix::io::Errno::INTR) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => return Err(error.into()),
        };
        if length >= LARGE {
            self.large = Some(Vec::with_capacity(buffer.len()));
        }
        match own.len() {
            0 => Ok(Came::Read(&buffer[..length])),
            LARGE.. => Ok(Came::Whole(own.into())),
            _ => {
                buffer[..length].copy_from_slice(&own);
                Ok(Came::Read(&buffer[..length]))
            }
        }
    }

    fn keep_alive(&mut self, patience: Duration) -> io::Result<()> {
        if self.local {
            // No probes are needed: the kernel reports at once when a local peer has closed the socket.
            return Ok(());
        }
        socket::keep_alive(&self.fd, patience)
    }

    #[cfg(test)]
    fn is_kept_alive(&self) -> bool {
        rustix::net::sockopt::socket_keepalive(&self.fd).unwrap()
    }

    fn silence(&self) -> Unacknowledged {
        if self.local {
            return Unacknowledged::Nothing;
        }
        // If the kernel does not report the state, the link is treated as acknowledged, so that it does not fail.
        socket::silence(&self.fd).unwrap_or(Unacknowledged::Answered)
    }

    fn local_address(&self) -> Option<IpAddr> {
        if self.local {
            return None;
        }
        socket::local_address(&self.fd).ok().map(|address| address.ip())
    }
}

fn advance(pieces: &mut VecDeque<Bytes>, mut written: usize) {
    while let Some(piece) = pieces.front_mut() {
        if piece.len() > written {
            return piece.advance(written);
        }
        written -= piece.len();
        pieces.pop_front();
    }
}

/// Size of the length field before each message (bytes).
const LENGTH_LEN: usize = 2;
/// Size of the tag that ends each message (bytes).
const TAG_LEN: usize = 16;
/// Longest message: Noise's own bound.
const MESSAGE_LEN_MAX: usize = 65_535;
/// Most bytes of frames in one message.
pub const PLAIN_LEN_MAX: usize = MESSAGE_LEN_MAX - TAG_LEN;

/// Number of messages with one key. Chosen: at most 64 GiB of frames, a hundredth of what the known bounds for AES-GCM
/// allow (RFC 8446, 5.5).
#[cfg(not(any(test, fuzzing)))]
const MESSAGES_PER_KEY: u32 = 1 << 20;
#[cfg(any(test, fuzzing))]
const MESSAGES_PER_KEY: u32 = 3;

#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum SealError {
    #[error("an encrypted message is damaged or was modified")]
    Changed,
    #[error("the link was cut within an encrypted message")]
    Cut,
    #[error("an encrypted link has reached its limit of messages")]
    Exhausted,
}

/// The encryption state of both directions of one link.
pub struct Sealed {
    noise: Keys,
    /// Pieces of frames that have begun and are not encrypted yet.
    pub pieces: VecDeque<Bytes>,
    /// The bytes received so far of an incomplete message.
    partial: BytesMut,
    /// A buffer for joining small pieces before they are encrypted.
    joined: Vec<u8>,
}

impl Sealed {
    pub fn new(noise: Box<TransportState>) -> Self {
        let noise = Keys { noise, sealed: 0, opened: 0 };
        Sealed { noise, pieces: VecDeque::new(), partial: BytesMut::new(), joined: Vec::new() }
    }

    /// Encrypts pieces in order, into as few messages as possible, until the messages have `limit` bytes or more.
    ///
    /// A piece that fills a message by itself is encrypted without a copy; only smaller pieces and remainders are
    /// joined first.
    ///
    /// # Errors
    /// The counter is exhausted: close the link.
    pub fn seal(&mut self, limit: usize) -> Result<Bytes, SealError> {
        let mut sealed = Vec::new();
        self.joined.clear();
        while let Some(mut piece) = self.pieces.pop_front() {
            if self.joined.is_empty() && piece.len() >= PLAIN_LEN_MAX {
                seal_one(&mut self.noise, &piece.split_to(PLAIN_LEN_MAX), &mut sealed)?;
            } else {
                let length = piece.len().min(PLAIN_LEN_MAX - self.joined.len());
                self.joined.extend_from_slice(&piece.split_to(length));
            }
            if !piece.is_empty() {
                self.pieces.push_front(piece);
            }
            if self.joined.len() == PLAIN_LEN_MAX {
                seal_one(&mut self.noise, &self.joined, &mut sealed)?;
                self.joined.clear();
            }
            if sealed.len() + self.joined.len() >= limit {
                break;
            }
        }
        if !self.joined.is_empty() {
            seal_one(&mut self.noise, &self.joined, &mut sealed)?;
        }
        Ok(sealed.into())
    }

    /// Decrypts bytes received from the link, split anywhere; returns the frames' bytes in the messages that are now
    /// complete.
    ///
    /// # Errors
    /// A message cannot be decrypted: close the link.
    pub fn open(&mut self, mut bytes: &[u8]) -> Result<Bytes, SealError> {
        let mut plain = Vec::with_capacity(bytes.len());
        while !bytes.is_empty() {
            if self.partial.is_empty()
                && let Some(length) = whole(bytes)
            {
                open_one(&mut self.noise, &bytes[LENGTH_LEN..length], &mut plain)?;
                bytes = &bytes[length..];
                continue;
            }
            let wanted = match self.partial.first_chunk() {
                Some(length) => LENGTH_LEN + usize::from(u16::from_le_bytes(*length)),
                None => LENGTH_LEN,
            };
            let length = bytes.len().min(wanted - self.partial.len());
            self.partial.extend_from_slice(&bytes[..length]);
            bytes = &bytes[length..];
            if whole(&self.partial).is_some() {
                open_one(&mut self.noise, &self.partial[LENGTH_LEN..], &mut plain)?;
                self.partial.clear();
            }
        }
        Ok(plain.into())
    }

    /// Checks that the peer may close the link now: a peer may not close the link within a message.
    ///
    /// # Errors
    /// The link ends within a message.
    pub fn end(&self) -> Result<(), SealError> {
        if self.partial.is_empty() { Ok(()) } else { Err(SealError::Cut) }
    }
}

/// The keys of both directions, and the number of messages for which each key has been used.
struct Keys {
    noise: Box<TransportState>,
    sealed: u32,
    opened: u32,
}

/// The length of the message at the beginning of these bytes, if it is complete.
fn whole(bytes: &[u8]) -> Option<usize> {
    let length = LENGTH_LEN + usize::from(u16::from_le_bytes(*bytes.first_chunk()?));
    (bytes.len() >= length).then_some(length)
}

fn seal_one(keys: &mut Keys, plain: &[u8], sealed: &mut Vec<u8>) -> Result<(), SealError> {
    let begin = sealed.len();
    let length = plain.len() + TAG_LEN;
    sealed.extend_from_slice(&(length as u16).to_le_bytes());
    sealed.resize(begin + LENGTH_LEN + length, 0);
    let written =
        keys.noise.write_message(plain, &mut sealed[begin + LENGTH_LEN..]).map_err(|_| SealError::Exhausted)?;
    assert_eq!(written, length, "a tag is 16 bytes long");
    keys.sealed += 1;
    if keys.sealed == MESSAGES_PER_KEY {
        keys.noise.rekey_outgoing();
        keys.sealed = 0;
    }
    Ok(())
}

fn open_one(keys: &mut Keys, message: &[u8], plain: &mut Vec<u8>) -> Result<(), SealError> {
    let begin = plain.len();
    plain.resize(begin + message.len().checked_sub(TAG_LEN).ok_or(SealError::Changed)?, 0);
    keys.noise.read_message(message, &mut plain[begin..]).map_err(|_| SealError::Changed)?;
    keys.opened += 1;
    if keys.opened == MESSAGES_PER_KEY {
        keys.noise.rekey_incoming();
        keys.opened = 0;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
