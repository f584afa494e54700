//! Carries the bytes of one link in UCX messages: small pieces are joined into one message, large ones get their own,
//! without a copy.

use super::inbox::{Inbox, MESSAGE_LEN_MAX, OPENING, Shared};
use super::opening;
use crate::transport::carrier::{Came, Carrier};
use bytes::{BufMut, Bytes, BytesMut};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use wireup_os::reactor::{Interest, Reactor};
use wireup_ucx::{Endpoint, Worker};
use wireup_wire::route::Point;

/// Pieces are joined into messages up to this size. Chosen: below this a copy costs less than a separate message.
const SMALL_BYTES_MAX: usize = 8 << 10;
/// Most bytes of one link that UCX holds unsent, so that more urgent data may overtake the rest. Chosen: more than a
/// network holds.
const SENDING_BYTES_MAX: usize = 4 << 20;

pub struct UcxCarrier {
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
    ///
    /// # Errors
    /// The worker cannot be reached at `point`.
    pub fn dial(shared: Rc<RefCell<Shared>>, point: &Point) -> io::Result<UcxCarrier> {
        let mut ends = shared.borrow_mut();
        let tag = ends.fresh_tag()?;
        let head = opening::head(tag, ends.worker.address()).ok_or(io::ErrorKind::InvalidInput)?;
        let endpoint = ends.worker.connect(&point.address).map_err(io::Error::other)?;
        ends.insert(tag, Inbox::towards(endpoint));
        drop(ends);
        let binding = opening::binding(&point.key, &head);
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
}
