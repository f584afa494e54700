//! One TCP link: its handshake, then frames, queued by class.
//!
//! A frame that has begun is finished first; after that the lowest class with something to say goes next, so a fence or
//! an abort waits for one stdio chunk at most. Everything ready leaves in one `writev`. On an encrypted link the bytes of
//! frames that have begun are sealed in between, no more at once than one `writev` takes.

use super::handshake::{Handshake, HandshakeError, Progress};
use super::sealed::{SealError, Sealed};
use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use wireup_os::socket::Unacknowledged;
use wireup_wire::frame::{Class, Frame};
use wireup_wire::limits::LAUNCHER_UNREAD_BYTES_MAX;
use wireup_wire::peer::Hello;

/// Bytes and pieces of one `writev`. Chosen: above this the system call is a small part of the cost.
const WRITE_BYTES_MAX: usize = 256 << 10;
const WRITE_PIECES_MAX: usize = 64;
/// Frames that are put together into one buffer. Chosen: below this a copy costs less than the account of pieces.
const SMALL_BYTES_MAX: usize = 8 << 10;

pub struct Link {
    socket: OwnedFd,
    stage: Stage,
    /// Bytes on their way out: the handshake's, or what is left of frames that have begun.
    begun: VecDeque<Bytes>,
    waiting: [VecDeque<Frame>; Class::ALL.len()],
    /// Bytes of all of these.
    waiting_bytes: usize,
    /// Where small frames are put together; kept for its allocation.
    joined: Vec<u8>,
    /// Frames that came right behind the handshake.
    early: Bytes,
    encrypt: bool,
    /// On an encrypted link, once the handshake is done.
    sealed: Option<Sealed>,
    /// How long the other end may be silent.
    patience: Option<Duration>,
    /// There is no network in between.
    local: bool,
}

/// What became of the small frames at the head of the queues.
enum Small {
    /// There are none, nor others.
    Nothing,
    /// The next frame is none.
    Large,
    Written,
    /// The socket takes no more; what is left has begun.
    Full,
}

enum Stage {
    Connecting(Box<Handshake>),
    Handshake(Box<Handshake>),
    Open,
}

/// What reading a link gave.
pub enum Received {
    /// Bytes of frames.
    Bytes(Bytes),
    /// The handshake is done; who dialled, if this side listened. More may follow at once.
    Up(Option<Hello>),
    /// Nothing more for now.
    Nothing,
}

#[derive(thiserror::Error, Debug)]
pub enum LinkError {
    #[error("closed by the other end")]
    Closed,
    #[error("closed by the other end during the handshake")]
    Refused,
    #[error("more than {LAUNCHER_UNREAD_BYTES_MAX} bytes wait for it, and it does not read")]
    Unread,
    #[error("no answer within {} s", seconds(.0))]
    Late(Duration),
    /// What the network said of it, if that was more than nothing.
    #[error("no answer for {} s{}", seconds(.patience), network(.error))]
    Silent { patience: Duration, error: io::Error },
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error(transparent)]
    Seal(#[from] SealError),
}

impl Link {
    /// A link that was dialled and is not connected yet. `encrypt`: as in the handshake's terms.
    pub fn dialled(socket: OwnedFd, handshake: Handshake, first: Vec<u8>, encrypt: bool) -> Link {
        Link::new(socket, Stage::Connecting(Box::new(handshake)), first, encrypt)
    }

    /// A link that was accepted.
    pub fn accepted(socket: OwnedFd, handshake: Handshake, encrypt: bool) -> Link {
        Link::new(socket, Stage::Handshake(Box::new(handshake)), Vec::new(), encrypt)
    }

    /// A link to a process of the same user on this machine, behind a Unix socket that nobody else can reach. `early`: what came
    /// behind its greeting.
    pub fn local(socket: OwnedFd, early: Bytes) -> Link {
        Link { early, local: true, ..Link::new(socket, Stage::Open, Vec::new(), false) }
    }

    fn new(socket: OwnedFd, stage: Stage, first: Vec<u8>, encrypt: bool) -> Link {
        let begun = if first.is_empty() { VecDeque::new() } else { VecDeque::from([Bytes::from(first)]) };
        Link {
            socket,
            stage,
            begun,
            waiting: Default::default(),
            waiting_bytes: 0,
            joined: Vec::new(),
            early: Bytes::new(),
            encrypt,
            sealed: None,
            patience: None,
            local: false,
        }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub fn is_local(&self) -> bool {
        self.local
    }

    pub fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    /// Whether the other end, which dialled, has sent a hello that only this session can make.
    pub fn has_heard(&self) -> bool {
        matches!(&self.stage, Stage::Handshake(handshake) if handshake.has_heard())
    }

    /// The address at this end.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        wireup_os::socket::local_address(&self.socket)
    }

    /// From now on the link fails if the other end answers nothing for so long, to probes as to bytes.
    pub fn keep_alive(&mut self, patience: Duration) -> io::Result<()> {
        self.patience = Some(patience);
        wireup_os::socket::keep_alive(&self.socket, patience)
    }

    /// How the bytes fare that were written.
    pub fn silence(&self) -> Unacknowledged {
        if self.local {
            return Unacknowledged::Nothing;
        }
        // What the kernel does not tell is no reason to end a link.
        wireup_os::socket::silence(&self.socket).unwrap_or(Unacknowledged::Answered)
    }

    /// Queues a frame; `flush` sends it.
    pub fn send(&mut self, frame: Frame) {
        self.waiting_bytes += frame.wire_len();
        self.waiting[frame.class as usize].push_back(frame);
    }

    /// Bytes of frames that have not begun to leave.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Whether `flush` has something to do.
    pub fn wants_to_write(&self) -> bool {
        match self.stage {
            Stage::Connecting(_) => true,
            Stage::Handshake(_) => !self.begun.is_empty(),
            Stage::Open => {
                let sealing = self.sealed.as_ref().is_some_and(Sealed::has_pieces);
                sealing || !self.begun.is_empty() || self.waiting.iter().any(|queue| !queue.is_empty())
            }
        }
    }

    /// The connection attempt has ended, well or not.
    pub fn on_writable(&mut self) -> Result<(), LinkError> {
        if let Stage::Connecting(_) = &self.stage {
            wireup_os::socket::dial_result(&self.socket)?;
            if let Stage::Connecting(handshake) = std::mem::replace(&mut self.stage, Stage::Open) {
                self.stage = Stage::Handshake(handshake);
            }
        }
        Ok(())
    }

    /// Writes until everything is out or the socket is full; `true`: everything is out.
    pub fn flush(&mut self) -> Result<bool, LinkError> {
        if let Stage::Connecting(_) = self.stage {
            return Ok(false);
        }
        loop {
            if self.begun.is_empty() && self.is_open() && self.sealed.is_none() {
                match self.write_small()? {
                    Small::Nothing => return Ok(true),
                    Small::Full => return Ok(false),
                    Small::Written => continue,
                    Small::Large => {}
                }
            }
            self.begin_frames()?;
            if self.begun.is_empty() {
                return Ok(true);
            }
            let mut pieces = [IoSlice::new(&[]); WRITE_PIECES_MAX];
            let count = self.begun.len().min(WRITE_PIECES_MAX);
            for (slot, piece) in pieces.iter_mut().zip(&self.begun) {
                *slot = IoSlice::new(piece);
            }
            match rustix::io::writev(&self.socket, &pieces[..count]) {
                Ok(written) => self.advance(written),
                Err(rustix::io::Errno::AGAIN) => return Ok(false),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(self.broken(error.into())),
            }
        }
    }

    /// Writes the next frames from one buffer if they are small: that is cheaper than to keep account of their pieces.
    fn write_small(&mut self) -> Result<Small, LinkError> {
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        let mut next = Small::Nothing;
        while let Some(queue) = self.waiting.iter_mut().find(|queue| !queue.is_empty())
            && let Some(frame) = queue.pop_front()
        {
            if joined.len() + frame.wire_len() > SMALL_BYTES_MAX {
                queue.push_front(frame);
                next = Small::Large;
                break;
            }
            self.waiting_bytes -= frame.wire_len();
            joined.extend_from_slice(&frame.header());
            joined.extend_from_slice(&frame.payload);
        }
        if joined.is_empty() {
            self.joined = joined;
            return Ok(next);
        }
        let result = loop {
            match rustix::io::write(&self.socket, &joined) {
                Err(rustix::io::Errno::INTR) => {}
                result => break result,
            }
        };
        let written = match result {
            Ok(written) => written,
            Err(rustix::io::Errno::AGAIN) => 0,
            Err(error) => return Err(self.broken(error.into())),
        };
        if written < joined.len() {
            self.begun.push_back(Bytes::copy_from_slice(&joined[written..]));
            next = Small::Full;
        } else {
            next = Small::Written;
        }
        self.joined = joined;
        Ok(next)
    }

    fn begin_frames(&mut self) -> Result<(), SealError> {
        if !self.begun.is_empty() || !self.is_open() {
            return Ok(());
        }
        let Some(sealed) = &mut self.sealed else {
            self.waiting_bytes -= take_frames(&mut self.waiting, &mut self.begun);
            return Ok(());
        };
        if !sealed.has_pieces() {
            self.waiting_bytes -= take_frames(&mut self.waiting, sealed.pieces());
        }
        if sealed.has_pieces() {
            self.begun.push_back(sealed.seal(WRITE_BYTES_MAX)?);
        }
        Ok(())
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(piece) = self.begun.front_mut() {
            if piece.len() > written {
                piece.advance(written);
                return;
            }
            written -= piece.len();
            self.begun.pop_front();
        }
    }

    /// Reads once; the reactor tells when there is more.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<Received, LinkError> {
        let length = match rustix::io::read(&self.socket, &mut *buffer) {
            Ok(0) => return Err(self.ended()),
            Ok(length) => length,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(Received::Nothing),
            Err(error) => return Err(self.broken(error.into())),
        };
        let bytes = &buffer[..length];
        match std::mem::replace(&mut self.stage, Stage::Open) {
            Stage::Open => match &mut self.sealed {
                None => Ok(Received::Bytes(Bytes::copy_from_slice(bytes))),
                Some(sealed) => Ok(received(sealed.open(bytes)?)),
            },
            Stage::Connecting(handshake) | Stage::Handshake(handshake) => {
                let mut output = Vec::new();
                match handshake.on_bytes(bytes, &mut output)? {
                    Progress::Wait(handshake) => {
                        self.stage = Stage::Handshake(Box::new(handshake));
                        self.push_begun(output);
                        Ok(Received::Nothing)
                    }
                    Progress::Done { peer, rest, noise } => {
                        self.push_begun(output);
                        self.early = rest.freeze();
                        if self.encrypt {
                            let sealed = self.sealed.insert(Sealed::new(noise));
                            self.early = sealed.open(&self.early)?;
                        }
                        Ok(Received::Up(peer))
                    }
                }
            }
        }
    }

    /// Frames that came right behind the handshake, once.
    pub fn receive_early(&mut self) -> Received {
        received(std::mem::take(&mut self.early))
    }

    /// The other end said that nothing follows.
    fn ended(&self) -> LinkError {
        match &self.sealed {
            _ if !self.is_open() => LinkError::Refused,
            Some(sealed) => sealed.end().map_or_else(LinkError::Seal, |()| LinkError::Closed),
            None => LinkError::Closed,
        }
    }

    /// The kernel gave the connection up.
    fn broken(&self, error: io::Error) -> LinkError {
        use io::ErrorKind::{HostUnreachable, NetworkUnreachable, TimedOut};
        match self.patience {
            // Where a router or the neighbour look-up had something to say, the kernel tells that and not the time.
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

/// Moves frames that are to leave now; the lowest class first, whatever is bulky alone. How many bytes these are.
fn take_frames(waiting: &mut [VecDeque<Frame>], pieces: &mut VecDeque<Bytes>) -> usize {
    let mut bytes = 0;
    while bytes < WRITE_BYTES_MAX && pieces.len() + 2 <= WRITE_PIECES_MAX {
        let Some(frame) = waiting.iter_mut().find_map(VecDeque::pop_front) else {
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
    bytes
}

fn received(bytes: Bytes) -> Received {
    if bytes.is_empty() { Received::Nothing } else { Received::Bytes(bytes) }
}

fn seconds(time: &Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}

fn network(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::TimedOut { String::new() } else { format!(" ({error})") }
}
