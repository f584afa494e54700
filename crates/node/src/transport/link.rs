//! One link on any carrier: its handshake, then frames, queued by class.
//!
//! A frame of which a part has been sent is completed first; then a frame of the lowest non-empty class goes next, so a
//! fence or an abort waits for at most one stdio chunk. All frames that are ready are sent at once. On an encrypted
//! link, frames that have begun are encrypted before they are written, at most as many bytes at once as one write
//! takes.

use super::carrier::{Came, Carrier, Socket};
use super::handshake::{Handshake, HandshakeError, Progress, Seal};
use super::sealed::{SealError, Sealed};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
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
        let sealing = self.sealed.as_ref().is_some_and(Sealed::has_pieces);
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
        if !sealed.has_pieces() {
            self.waiting.move_next_group(sealed.pieces());
        }
        if sealed.has_pieces() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::frame::{FrameKind, HEADER_LEN};

    fn frame(class: Class, len: usize) -> Frame {
        Frame { kind: FrameKind::Control, class, stream: 0, job: 1, arg: 0, payload: vec![class as u8; len].into() }
    }

    #[test]
    fn small_frames_leave_together_ordered_by_class() {
        let mut waiting = Waiting::default();
        for (class, len) in [(Class::Stdio, 5), (Class::Exchange, 7), (Class::Control, 0), (Class::Stdio, 9_000)] {
            waiting.push(frame(class, len));
        }
        assert_eq!(waiting.bytes(), 4 * HEADER_LEN + 9_012);
        let mut joined = Vec::new();
        assert_eq!(waiting.join_small(&mut joined), Next::More);
        assert_eq!((joined.len(), joined[2 * HEADER_LEN]), (3 * HEADER_LEN + 12, Class::Exchange as u8));
        let mut pieces = VecDeque::new();
        waiting.move_next_group(&mut pieces);
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [HEADER_LEN, 9_000]);
        assert!(waiting.is_empty() && waiting.bytes() == 0);
        joined.clear();
        assert_eq!((waiting.join_small(&mut joined), joined.len()), (Next::Nothing, 0));
    }

    #[test]
    fn only_a_few_large_frames_begin_at_once() {
        let mut waiting = Waiting::default();
        for _ in 0..3 {
            waiting.push(frame(Class::Stdio, 10));
            waiting.push(frame(Class::Exchange, 200_000));
        }
        let mut begun = || {
            let mut pieces = VecDeque::new();
            waiting.move_next_group(&mut pieces);
            pieces.iter().map(Bytes::len).collect::<Vec<_>>()
        };
        assert_eq!(begun(), [HEADER_LEN, 200_000, HEADER_LEN, 200_000]);
        assert_eq!(begun(), [HEADER_LEN, 200_000, HEADER_LEN, 10]);
        assert_eq!(begun(), [HEADER_LEN, 10]);
    }
}
