//! What moves the bytes of one link: a connected socket, two endpoints of UCX.
//!
//! A carrier keeps the order of bytes and loses none, or fails. It never waits. It knows neither secrets nor frames: [`super::link`]
//! brings both, the same on every carrier.

use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::time::Duration;
use wireup_os::reactor::{Interest, Reactor};
use wireup_os::socket::Unacknowledged;

/// What came.
pub enum Came<'b> {
    /// In the buffer of the reader.
    Read(&'b [u8]),
    /// In a buffer of its own.
    Whole(Bytes),
    /// The other end has said that nothing follows.
    End,
}

impl Came<'_> {
    /// Nothing for an end.
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
    /// From now on the link is known by `token` to whoever waits: to the reactor, or to the transport that the carrier is of. Called
    /// again when the interest changes.
    ///
    /// # Errors
    /// It cannot be watched.
    fn watch(&mut self, token: u64, interest: Interest, reactor: &Reactor) -> io::Result<()>;

    /// Nobody is told of it any more.
    fn unwatch(&mut self, reactor: &Reactor);

    /// There may be room, or the attempt to connect has ended.
    ///
    /// # Errors
    /// It has not led to a connection.
    fn on_writable(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Sends the first of these bytes; how many.
    ///
    /// # Errors
    /// `WouldBlock`: there is no room now, and the link is told of when there is. Others end the link.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Sends the first of these pieces and takes away what was sent.
    ///
    /// # Errors
    /// As for `write`.
    fn write_pieces(&mut self, pieces: &mut VecDeque<Bytes>) -> io::Result<()>;

    /// What has come, once.
    ///
    /// # Errors
    /// `WouldBlock`: nothing. Others end the link.
    fn read<'b>(&mut self, buffer: &'b mut [u8]) -> io::Result<Came<'b>>;

    /// Whether `read` is to be called again before anything else is waited for: nobody tells of what has come already.
    fn has_more(&self) -> bool {
        false
    }

    /// What both ends know of this link beforehand, besides the terms: the handshake proves that it is the same.
    fn binding(&self) -> &[u8] {
        &[]
    }

    /// The other end has proved that it knows the secret.
    fn on_proved(&mut self) {}

    /// From now on the link fails if the other end answers nothing for so long.
    ///
    /// # Errors
    /// That cannot be had.
    fn keep_alive(&mut self, _patience: Duration) -> io::Result<()> {
        Ok(())
    }

    #[cfg(test)]
    fn is_kept_alive(&self) -> bool {
        false
    }

    /// How the bytes fare that were written, where that is known.
    fn silence(&self) -> Unacknowledged {
        Unacknowledged::Nothing
    }

    /// The address at this end, if it has one.
    fn local_address(&self) -> Option<IpAddr> {
        None
    }
}
