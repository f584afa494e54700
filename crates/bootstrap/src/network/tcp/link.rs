//! One TCP connection: its socket, and the bytes received and to be sent.
//!
//! ```text
//!   dialler:   Connecting ── hello ──► Proving ── reply arrives: sends the confirmation ──► Confirming
//!              ── acceptance arrives ──► Open
//!   acceptor:  Proving ── hello arrives: sends the reply ──► Confirming
//!              ── confirmation arrives: sends the acceptance ──► Open
//! ```
//!
//! Confirmation and acceptance are empty units under the new key. The network learns of a connection when it is `Open`,
//! and the acceptance is sent only if the network keeps the connection. A connection for the program's own use has no
//! acceptance: it belongs to the program after the confirmation.

use crate::network::carrier::{ConnectionEvent, Key, Number, Unsent, Word};
use crate::network::messages::{Unframed, framed, said};
use crate::network::proof::{Broken, Proof, Proved, Purpose, SEAL_LEN, SEALED_LEN_MAX, Secret};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::c_int;
use core::net::SocketAddr;
use snow::TransportState;
use wireup_capi::net::{self, Descriptor, Epoll, Errno, Received};

pub struct Link {
    pub peer: Option<u32>,
    was_open: bool,
    /// Number of the connection (see [`Key`]), if this end has dialled it for the program's own use.
    pub plain: Option<u32>,
    /// Whether the other end is known to use this connection. An acceptor does not know it until something follows the
    /// dialler's confirmation, because the dialler may have given up before.
    pub was_heard: bool,
    /// The host at the other end, if the agents relay the connection.
    pub relayed_to: Option<u64>,
    socket: Option<Descriptor>,
    stage: Stage,
    received: Vec<u8>,
    to_send: Vec<u8>,
    sent: usize,
    /// Whether epoll also watches the socket for writability.
    is_watched: bool,
    reading: Reading,
    ending: Ending,
    says_goodbye: bool,
    pub since_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reading {
    Yes,
    Paused,
    /// Paused, and the connection has broken. The socket is out of the epoll set, which would report the error forever.
    PausedUnwatched,
}

/// Whether this end still sends on the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    No,
    /// This end shuts down its output when everything is written.
    WhenWritten,
    Told,
}

enum Stage {
    /// This end dials, and no address has answered yet.
    Connecting { to: u32, purpose: Purpose, target: Target },
    /// This end waits for a handshake message.
    Proving(Box<Proof>),
    /// Both ends have the new key, and this end waits for the other end's first unit under it.
    Confirming { stream: Box<Stream>, purpose: Purpose, was_dialled: bool },
    /// Messages are exchanged.
    Open(Box<Stream>),
    /// The peer has violated the protocol.
    Broken,
}

/// The addresses at which to dial a rank.
pub struct Target {
    pub host: u64,
    /// Addresses that were not tried yet, the best one last.
    pub left: Vec<SocketAddr>,
    /// How often the kernel retransmits the SYN to an address; `None`: the kernel's default.
    pub repetitions: Option<c_int>,
}

pub enum Arrived {
    Event(ConnectionEvent),
    /// A connection for the program's own use is proved, and belongs to the program from now on. No byte after the
    /// handshake was read.
    Plain(Key),
}

impl Link {
    fn new(peer: Option<u32>, socket: Option<Descriptor>, stage: Stage) -> Link {
        Link {
            peer,
            was_open: false,
            plain: None,
            was_heard: false,
            relayed_to: None,
            socket,
            stage,
            received: Vec::new(),
            to_send: Vec::new(),
            sent: 0,
            is_watched: false,
            reading: Reading::Yes,
            ending: Ending::No,
            says_goodbye: false,
            since_ms: net::now_ms(),
        }
    }

    pub fn dial(target: Target, to: u32, purpose: Purpose) -> Link {
        let plain = if let Purpose::Plain { number } = purpose { Some(number) } else { None };
        Link { plain, ..Link::new(Some(to), None, Stage::Connecting { to, purpose, target }) }
    }

    pub fn accepted(socket: Descriptor, secret: &Secret, me: u32) -> Result<Link, Broken> {
        let proof = Proof::accept(secret, me)?;
        Ok(Link::new(None, Some(socket), Stage::Proving(Box::new(proof))))
    }

    /// Starts to connect to the next address; `false`: no address is left.
    pub fn next_attempt(&mut self, epoll: &Epoll, number: Number) -> bool {
        let Stage::Connecting { target, .. } = &mut self.stage else { return false };
        self.socket = None;
        while let Some(address) = target.left.pop() {
            if let Ok(socket) = net::connect(&address, target.repetitions)
                && epoll.watch(socket.fd(), number, true, true).is_ok()
            {
                (self.socket, self.is_watched) = (Some(socket), true);
                return true;
            }
        }
        false
    }

    /// Continues the dial over a connection that the agents relay.
    pub fn use_relay(&mut self, epoll: &Epoll, number: Number, socket: Descriptor) -> Result<(), Errno> {
        if let Stage::Connecting { target, .. } = &self.stage {
            self.relayed_to = Some(target.host);
        }
        epoll.watch(socket.fd(), number, false, true)?;
        (self.socket, self.is_watched) = (Some(socket), false);
        Ok(())
    }

    /// Changes for what epoll watches the socket, or adds it to the epoll set if it `is_new` there.
    fn watch(&self, epoll: &Epoll, number: Number, is_new: bool) -> Result<(), Errno> {
        let Some(socket) = &self.socket else { return Ok(()) };
        match self.reading {
            Reading::Yes => epoll.watch(socket.fd(), number, self.is_watched, is_new),
            Reading::Paused => epoll.watch_output(socket.fd(), number, self.is_watched),
            Reading::PausedUnwatched => Ok(()),
        }
    }

    /// Stops reading until [`Link::resume`].
    pub fn pause(&mut self, epoll: &Epoll, number: Number) {
        if self.reading == Reading::Yes {
            self.reading = Reading::Paused;
            // If the kernel has no memory for the change, the descriptor stays readable, and waits return at once.
            let _ = self.watch(epoll, number, false);
        }
    }

    pub fn resume(&mut self, epoll: &Epoll, number: Number) -> Result<(), Errno> {
        match core::mem::replace(&mut self.reading, Reading::Yes) {
            Reading::Yes => Ok(()),
            Reading::Paused => self.watch(epoll, number, false),
            Reading::PausedUnwatched => self.watch(epoll, number, true),
        }
    }

    pub fn is_paused(&self) -> bool {
        self.reading != Reading::Yes
    }

    /// Handles an epoll event. If the socket is readable while the connection is paused, so that epoll does not watch
    /// it for input, the connection is broken.
    pub fn on_event(&mut self, epoll: &Epoll, is_readable: bool) {
        if let Some(socket) = self.socket.as_ref().filter(|_| is_readable && self.reading == Reading::Paused) {
            epoll.forget(socket.fd());
            self.reading = Reading::PausedUnwatched;
        }
    }

    pub fn is_connecting(&self) -> bool {
        matches!(self.stage, Stage::Connecting { .. })
    }

    /// Whether this end has dialled this rank for messages, and the rank has not proved itself yet.
    pub fn is_connecting_to(&self, peer: u32) -> bool {
        self.peer == Some(peer) && self.plain.is_none() && !self.was_open
    }

    /// Whether this is an accepted connection whose dialler has not proved its rank.
    pub fn is_stranger(&self) -> bool {
        self.peer.is_none()
    }

    /// The socket, for the program; `None`: the last handshake message could not be sent.
    pub fn into_socket(mut self, epoll: &Epoll, number: Number) -> Option<Descriptor> {
        self.flush(epoll, number).ok()?;
        let socket = self.socket.filter(|_| self.to_send.is_empty())?;
        epoll.forget(socket.fd());
        Some(socket)
    }

    /// The kind of data, sent on an open connection, that is still in this process or, with `or_in_kernel`, in the
    /// kernel's buffer.
    pub fn unsent(&self, or_in_kernel: bool) -> Unsent {
        let Some(socket) = self.socket.as_ref().filter(|_| self.was_open) else { return Unsent::Nothing };
        if self.sent < self.to_send.len() {
            return Unsent::Messages;
        }
        match net::unacknowledged(socket) {
            _ if !or_in_kernel => Unsent::Nothing,
            (0, 0) => Unsent::Nothing,
            (_, 0) => Unsent::Goodbyes,
            _ => Unsent::Messages,
        }
    }

    /// Checks an attempt to connect, and starts the handshake if it has succeeded. Returns whether it has.
    ///
    /// # Errors
    /// The attempt to connect has failed.
    pub fn on_ready(&mut self, secret: &Secret, me: u32, is_writable: bool) -> Result<bool, Broken> {
        let (Some(socket), Stage::Connecting { to, purpose, .. }) = (&self.socket, &self.stage) else {
            return Err(Broken);
        };
        match self.relayed_to {
            None if !is_writable => return Ok(false),
            None => net::outcome(socket)?,
            // The agents send a byte when they have connected to the rank.
            Some(_) => match net::read(socket, &mut [0])? {
                Received::Nothing => return Ok(false),
                Received::End => return Err(Broken),
                Received::Bytes(_) => {}
            },
        }
        let (proof, first) = Proof::dial(secret, me, *to, *purpose)?;
        push_unit(&mut self.to_send, &first);
        self.stage = Stage::Proving(Box::new(proof));
        Ok(true)
    }

    /// Queues a message; `false`: the connection is not open.
    pub fn send(&mut self, message: &[u8]) -> bool {
        match &mut self.stage {
            Stage::Open(stream) => stream.seal(message, &mut self.to_send).is_ok(),
            Stage::Connecting { .. } | Stage::Proving(_) | Stage::Confirming { .. } | Stage::Broken => false,
        }
    }

    pub fn say_goodbye(&mut self) {
        if self.ending == Ending::No && !self.says_goodbye {
            self.says_goodbye = self.send(said(Word::Goodbye));
        }
    }

    /// Shuts down this end's output once everything is written.
    pub fn finish(&mut self) {
        self.ending = Ending::WhenWritten;
    }

    /// Whether this end has finished sending: then the connection may close at any time.
    pub fn is_finishing(&self) -> bool {
        self.ending != Ending::No
    }

    /// Writes what fits; epoll watches for writability if something is left.
    pub fn flush(&mut self, epoll: &Epoll, number: Number) -> Result<(), Broken> {
        let Some(socket) = self.socket.as_ref().filter(|_| !self.is_connecting()) else { return Ok(()) };
        let mut is_cut = false;
        while self.sent < self.to_send.len() && !is_cut {
            match net::write(socket, &self.to_send[self.sent..]) {
                Ok(0) => break,
                Ok(more) => self.sent += more,
                // The other end has closed, perhaps after a goodbye that has arrived and was not read yet: reading will
                // report the end.
                Err(_) => (self.sent, is_cut) = (self.to_send.len(), true),
            }
        }
        if self.sent == self.to_send.len() {
            self.to_send.clear();
            self.sent = 0;
            if self.ending == Ending::WhenWritten && !is_cut {
                net::end_output(socket)?;
                self.ending = Ending::Told;
            }
        }
        // If a broken connection is not watched, reading reports the end after it is resumed.
        let waits = !self.to_send.is_empty() && self.reading != Reading::PausedUnwatched;
        if core::mem::replace(&mut self.is_watched, waits) != waits {
            self.watch(epoll, number, false)?;
        }
        Ok(())
    }

    /// Reads once into `buffer`. Returns what has arrived on this connection, and whether there may be more to read.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<(Vec<Arrived>, bool), Broken> {
        let socket = self.socket.as_ref().ok_or(Broken)?;
        let room = self.readable().min(buffer.len());
        let len = match net::read(socket, &mut buffer[..room])? {
            Received::Nothing => return Ok((Vec::new(), false)),
            Received::End => return Err(Broken),
            Received::Bytes(len) => len,
        };
        let mut received = core::mem::take(&mut self.received);
        received.extend_from_slice(&buffer[..len]);
        let (mut left, mut all) = (&received[..], Vec::new());
        while let Some(unit) = take_unit(&mut left) {
            self.on_unit(unit, &mut all)?;
        }
        let taken = received.len() - left.len();
        received.drain(..taken);
        self.received = received;
        Ok((all, len == room))
    }

    /// How many bytes may be read: on a connection for the program, the bytes after the handshake belong to the
    /// program.
    fn readable(&self) -> usize {
        match &self.stage {
            Stage::Proving(proof) if proof.has_dialled_plain() => unit_left(&self.received),
            Stage::Confirming { purpose: Purpose::Plain { .. }, .. } => unit_left(&self.received),
            Stage::Connecting { .. }
            | Stage::Proving(_)
            | Stage::Confirming { .. }
            | Stage::Open(_)
            | Stage::Broken => usize::MAX,
        }
    }

    fn on_unit(&mut self, unit: &[u8], all: &mut Vec<Arrived>) -> Result<(), Broken> {
        match core::mem::replace(&mut self.stage, Stage::Broken) {
            Stage::Proving(proof) => {
                let was_dialled = proof.dialled().is_some();
                let proved = proof.on_message(unit)?;
                if let Some(reply) = &proved.reply {
                    push_unit(&mut self.to_send, reply);
                }
                let purpose = proved.purpose;
                let mut stream = Box::new(Stream::new(proved)?);
                if was_dialled {
                    stream.confirm(&mut self.to_send)?;
                }
                match purpose {
                    Purpose::Plain { number } if was_dialled => all.push(Arrived::Plain((stream.peer, number))),
                    _ => self.stage = Stage::Confirming { stream, purpose, was_dialled },
                }
            }
            Stage::Confirming { mut stream, purpose, was_dialled } => {
                let from = stream.peer;
                let messages = stream.open(unit)?;
                let closed = match purpose {
                    Purpose::Messages { closed } => closed,
                    Purpose::Plain { number } => {
                        all.push(Arrived::Plain((from, number)));
                        return Ok(());
                    }
                };
                if !was_dialled {
                    stream.confirm(&mut self.to_send)?;
                }
                (self.peer, self.was_open, self.was_heard) = (Some(from), true, was_dialled);
                self.stage = Stage::Open(stream);
                all.push(Arrived::Event(ConnectionEvent::Proved { was_dialled, closed }));
                all.extend(messages.into_iter().map(ConnectionEvent::arrived).map(Arrived::Event));
            }
            Stage::Open(mut stream) => {
                let messages = stream.open(unit)?;
                self.was_heard = true;
                self.stage = Stage::Open(stream);
                all.extend(messages.into_iter().map(ConnectionEvent::arrived).map(Arrived::Event));
            }
            Stage::Connecting { .. } | Stage::Broken => return Err(Broken),
        }
        Ok(())
    }
}

pub fn push_unit(out: &mut Vec<u8>, unit: &[u8]) {
    out.extend_from_slice(&(unit.len() as u16).to_le_bytes());
    out.extend_from_slice(unit);
}

pub fn take_unit<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (unit, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
    *bytes = rest;
    Some(unit)
}

/// Number of bytes missing until the first unit is complete, or until its length is known.
pub fn unit_left(bytes: &[u8]) -> usize {
    let len = bytes.first_chunk().map_or(0, |len| usize::from(u16::from_le_bytes(*len)));
    (2 + len).saturating_sub(bytes.len())
}

/// Messages over a proved connection: divided into units, encrypted, and put together again. On the wire, everything is
/// a unit: a length (u16 LE) and that many bytes. The decrypted units form a stream of messages.
pub struct Stream {
    pub peer: u32,
    seals: TransportState,
    plain: Unframed,
}

impl Stream {
    pub fn new(proved: Proved) -> Result<Stream, Broken> {
        let seals = proved.state.into_transport_mode()?;
        Ok(Stream { peer: proved.peer, seals, plain: Unframed::default() })
    }

    /// Appends an empty unit: it shows that this end has the new key, and did not replay an old handshake.
    ///
    /// # Errors
    /// The nonces are used up.
    pub fn confirm(&mut self, out: &mut Vec<u8>) -> Result<(), Broken> {
        let mut room = [0; SEAL_LEN];
        let len = self.seals.write_message(&[], &mut room)?;
        push_unit(out, &room[..len]);
        Ok(())
    }

    /// Appends an encrypted message.
    ///
    /// # Errors
    /// The nonces are used up.
    pub fn seal(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), Broken> {
        let plain = framed(message);
        let mut room = vec![0; SEALED_LEN_MAX.min(plain.len() + SEAL_LEN)];
        for piece in plain.chunks(SEALED_LEN_MAX - SEAL_LEN) {
            let len = self.seals.write_message(piece, &mut room)?;
            push_unit(out, &room[..len]);
        }
        Ok(())
    }

    /// Decrypts a unit; returns the messages that are complete now.
    ///
    /// # Errors
    /// The unit was not encrypted by the other end, is out of order, or contains a message that is too long.
    pub fn open(&mut self, unit: &[u8]) -> Result<Vec<Vec<u8>>, Broken> {
        let plain = &mut self.plain.bytes;
        let before = plain.len();
        plain.resize(before + unit.len(), 0);
        let opened = self.seals.read_message(unit, &mut plain[before..]);
        plain.truncate(before + opened.as_ref().map_or(0, |len| *len));
        opened?;
        self.plain.take_whole()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::proof::{Purpose, proved_pair};

    fn pair() -> [Stream; 2] {
        proved_pair(Purpose::Messages { closed: 0 }).map(|proved| Stream::new(proved).unwrap())
    }

    #[test]
    fn messages_of_any_length_arrive_whole_and_in_order() {
        let [mut here, mut there] = pair();
        let sent: Vec<Vec<u8>> =
            [0, 1, 65_515, 65_519, 65_520, 200_000].iter().map(|len| vec![*len as u8; *len]).collect();
        let mut bytes = Vec::new();
        sent.iter().for_each(|message| here.seal(message, &mut bytes).unwrap());
        let (mut left, mut arrived) = (&bytes[..], Vec::new());
        while let Some(unit) = take_unit(&mut left) {
            arrived.extend(there.open(unit).unwrap());
        }
        assert!(left.is_empty() && arrived == sent);
    }

    #[test]
    fn a_changed_or_repeated_unit_is_refused() {
        let [mut here, mut there] = pair();
        let mut bytes = Vec::new();
        here.seal(b"one", &mut bytes).unwrap();
        let unit = take_unit(&mut &bytes[..]).unwrap().to_vec();
        let mut changed = unit.clone();
        changed[0] ^= 1;
        assert_eq!(there.open(&changed), Err(Broken));
        assert_eq!(there.open(&unit).map(|messages| messages.len()), Ok(1));
        assert_eq!(there.open(&unit), Err(Broken));
    }

    #[test]
    fn a_message_that_is_too_long_is_refused_at_its_beginning() {
        let [mut here, mut there] = pair();
        let mut room = vec![0; 64];
        let len = here.seals.write_message(&u32::MAX.to_le_bytes(), &mut room).unwrap();
        assert_eq!(there.open(&room[..len]), Err(Broken));
    }
}
