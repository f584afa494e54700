//! One TCP link: its handshake, then frames, queued by class.
//!
//! A frame that has begun is finished first; after that the lowest class with something to say goes next, so a fence or
//! an abort waits for one stdio chunk at most. Everything ready leaves in one `writev`.

use super::handshake::{Handshake, HandshakeError, Progress};
use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wireup_wire::frame::{Class, Frame};
use wireup_wire::peer::Hello;

/// Bytes and pieces of one `writev`. Chosen: above this the system call is a small part of the cost.
const WRITE_BYTES_MAX: usize = 256 << 10;
const WRITE_PIECES_MAX: usize = 64;

pub struct Link {
    socket: OwnedFd,
    stage: Stage,
    /// Bytes on their way out: the handshake's, or what is left of frames that have begun.
    begun: VecDeque<Bytes>,
    waiting: [VecDeque<Frame>; Class::ALL.len()],
    /// Frames that came right behind the handshake.
    early: Bytes,
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
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

impl Link {
    /// A link that was dialled and is not connected yet.
    pub fn dialled(socket: OwnedFd, handshake: Handshake, first: Vec<u8>) -> Link {
        Link::new(socket, Stage::Connecting(Box::new(handshake)), first)
    }

    /// A link that was accepted.
    pub fn accepted(socket: OwnedFd, handshake: Handshake) -> Link {
        Link::new(socket, Stage::Handshake(Box::new(handshake)), Vec::new())
    }

    fn new(socket: OwnedFd, stage: Stage, first: Vec<u8>) -> Link {
        let begun = if first.is_empty() { VecDeque::new() } else { VecDeque::from([Bytes::from(first)]) };
        Link { socket, stage, begun, waiting: Default::default(), early: Bytes::new() }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    /// Queues a frame; `flush` sends it.
    pub fn send(&mut self, frame: Frame) {
        self.waiting[frame.class as usize].push_back(frame);
    }

    /// Whether `flush` has something to do.
    pub fn wants_to_write(&self) -> bool {
        match self.stage {
            Stage::Connecting(_) => true,
            Stage::Handshake(_) => !self.begun.is_empty(),
            Stage::Open => !self.begun.is_empty() || self.waiting.iter().any(|queue| !queue.is_empty()),
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
            self.begin_frames();
            if self.begun.is_empty() {
                return Ok(true);
            }
            let pieces: Vec<IoSlice<'_>> =
                self.begun.iter().take(WRITE_PIECES_MAX).map(|piece| IoSlice::new(piece)).collect();
            match rustix::io::writev(&self.socket, &pieces) {
                Ok(written) => self.advance(written),
                Err(rustix::io::Errno::AGAIN) => return Ok(false),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(LinkError::Io(error.into())),
            }
        }
    }

    fn begin_frames(&mut self) {
        if !self.begun.is_empty() || !self.is_open() {
            return;
        }
        let mut bytes = 0;
        while bytes < WRITE_BYTES_MAX && self.begun.len() + 2 <= WRITE_PIECES_MAX {
            let Some(frame) = self.waiting.iter_mut().find_map(VecDeque::pop_front) else {
                return;
            };
            bytes += frame.wire_len();
            let last = frame.class >= Class::Stdio;
            self.begun.push_back(Bytes::copy_from_slice(&frame.header()));
            if !frame.payload.is_empty() {
                self.begun.push_back(frame.payload);
            }
            if last {
                return;
            }
        }
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
            Ok(0) => return Err(LinkError::Closed),
            Ok(length) => length,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(Received::Nothing),
            Err(error) => return Err(LinkError::Io(error.into())),
        };
        let bytes = &buffer[..length];
        match std::mem::replace(&mut self.stage, Stage::Open) {
            Stage::Open => Ok(Received::Bytes(Bytes::copy_from_slice(bytes))),
            Stage::Connecting(handshake) | Stage::Handshake(handshake) => {
                let mut output = Vec::new();
                match handshake.on_bytes(bytes, &mut output)? {
                    Progress::Wait(handshake) => {
                        self.stage = Stage::Handshake(Box::new(handshake));
                        self.push_begun(output);
                        Ok(Received::Nothing)
                    }
                    Progress::Done { peer, rest } => {
                        self.push_begun(output);
                        self.early = rest.freeze();
                        Ok(Received::Up(peer))
                    }
                }
            }
        }
    }

    /// Frames that came right behind the handshake, once.
    pub fn receive_early(&mut self) -> Received {
        match std::mem::take(&mut self.early) {
            bytes if bytes.is_empty() => Received::Nothing,
            bytes => Received::Bytes(bytes),
        }
    }

    fn push_begun(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.begun.push_back(Bytes::from(bytes));
        }
    }
}
