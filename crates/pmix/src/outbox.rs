//! Sends messages to the agent, from any thread.
//!
//! A message is written directly to the socket if there is room; the rest is queued here for the main thread, which is
//! woken through an event descriptor. So the library's thread never waits for the agent.

use bytes::{Buf, BytesMut};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use wireup_wire::pmix::{FromServer, MESSAGE_LEN_MAX, pack};

/// Maximum number of bytes queued for an agent that does not read: two of the largest messages. If more bytes would be
/// queued, `send` fails.
const WAITING_BYTES_MAX: usize = 2 * MESSAGE_LEN_MAX;

/// Maximum length of the data of one message: the payload of a frame between agents, minus room for other fields.
pub const DATA_LEN_MAX: usize = wireup_wire::limits::FRAME_PAYLOAD_MAX - (1 << 16);

pub struct Outbox {
    socket: OwnedFd,
    wake: OwnedFd,
    waiting: Mutex<BytesMut>,
}

impl Outbox {
    pub fn new(socket: OwnedFd) -> Result<Outbox, Errno> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Outbox { socket, wake, waiting: Mutex::default() })
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The descriptor that is readable when the main thread should check the queue.
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Sends or queues a message. `false`: too many bytes are queued already. If the agent has closed the socket, the
    /// message is discarded: the main thread notices the closed socket when it reads.
    pub fn send(&self, message: &FromServer) -> bool {
        let bytes = pack(message);
        let mut waiting = self.lock();
        if waiting.len() + bytes.len() > WAITING_BYTES_MAX {
            return false;
        }
        let sent = if waiting.is_empty() { send_some(self.socket.as_fd(), &bytes) } else { 0 };
        if sent < bytes.len() {
            waiting.extend_from_slice(&bytes[sent..]);
            self.nudge();
        }
        true
    }

    /// Wakes the main thread.
    pub fn nudge(&self) {
        // The write fails only if the counter is full, and then the descriptor is readable anyway.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Sends queued bytes. Returns whether some are still queued.
    pub fn flush(&self) -> bool {
        // The read fails, without harm, if an earlier call has already cleared the counter.
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
        let mut waiting = self.lock();
        let sent = send_some(self.socket.as_fd(), &waiting);
        waiting.advance(sent);
        !waiting.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, BytesMut> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends without waiting and returns the number of bytes sent. A closed socket counts as accepting everything.
fn send_some(socket: BorrowedFd<'_>, bytes: &[u8]) -> usize {
    let mut sent = 0;
    while sent < bytes.len() {
        match rustix::net::send(socket, &bytes[sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) => sent += count,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return sent,
            Err(_) => return bytes.len(),
        }
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use wireup_wire::ids::Rank;
    use wireup_wire::pmix::{Status, Unpacker};

    #[test]
    fn unsent_messages_wait_and_leave_in_order() {
        let (ours, theirs) = wireup_os::socket::pair().unwrap();
        let outbox = Outbox::new(ours).unwrap();
        let blob = Bytes::from(vec![7; 1 << 20]);
        assert!(outbox.send(&FromServer::Modex { request: 1, status: Status::Ok, blob }));
        assert!(outbox.send(&FromServer::Finalized { rank: Rank(2) }));
        let (mut unpacker, mut seen, mut buffer) = (Unpacker::default(), Vec::new(), vec![0; 1 << 16]);
        while seen.len() < 2 {
            outbox.flush();
            let count = rustix::io::read(&theirs, &mut buffer).unwrap();
            unpacker.push(&buffer[..count]);
            while let Some(message) = unpacker.next::<FromServer>().unwrap() {
                seen.push(message);
            }
        }
        assert!(matches!(&seen[0], FromServer::Modex { blob, .. } if blob.len() == 1 << 20));
        assert_eq!(seen[1], FromServer::Finalized { rank: Rank(2) });
        assert!(!outbox.flush());
    }
}
