//! Carries the bytes of one link: over a connected socket, or between two UCX endpoints.
//!
//! A carrier keeps bytes in order and loses none, or fails. A carrier never blocks. A carrier knows neither secrets nor
//! frames: [`super::link`] handles secrets and frames in the same way on every carrier.

use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::time::Duration;
use wireup_os::reactor::{Interest, Reactor};
use wireup_os::socket::Unacknowledged;

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
    ///
    /// # Errors
    /// The reactor cannot watch the link.
    fn watch(&mut self, token: u64, interest: Interest, reactor: &Reactor) -> io::Result<()>;

    /// Stops events for the link.
    fn unwatch(&mut self, reactor: &Reactor);

    /// Handles an event: there may be room to write, or the attempt to connect has ended.
    ///
    /// # Errors
    /// The connection attempt failed.
    fn on_writable(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Sends as many of these bytes as possible; returns the number of bytes sent.
    ///
    /// # Errors
    /// `WouldBlock`: there is no room now; an event follows when there is room. Other errors end the link.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Sends as many of these pieces as possible and removes the bytes that were sent.
    ///
    /// # Errors
    /// `write` fails.
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
    ///
    /// # Errors
    /// The option cannot be set.
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
