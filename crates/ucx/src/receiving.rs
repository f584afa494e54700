//! Incoming messages: judged by tag and length, then received, and delivered in order.
//!
//! ```text
//!   worker_progress ─► UCX's own queue ─► judged ─┬─ taken: a buffer of its length ─► complete ─► delivered
//!                                                 └─ dropped: received into an empty buffer
//! ```
//!
//! A long message is only announced in UCX's queue; its bytes are transferred once there is a buffer. So a false length
//! costs nothing unless the caller takes the message. The number of bytes being received at once is bounded: when it is
//! reached, messages stay in UCX's queue.

use crate::sys::{Functions, Handle, IN_PROGRESS, NO_PARAM, OK, Status, TagInfo, outcome};
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::ptr;

/// Bytes being received at once; a further message is received while they are fewer. Chosen: more than a network holds.
const UNDER_WAY_BYTES_MAX: usize = 32 << 20;
/// Unordered messages being received at once; more are dropped. Chosen: they are small and complete on arrival, unless
/// a sender announces bytes that it never sends.
const UNORDERED_MAX: usize = 128;

/// The maximum work of one turn, so that a peer that floods this process does not keep the caller from other work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Maximum number of messages judged.
    pub messages: usize,
    /// Maximum number of calls that let UCX make progress.
    pub rounds: usize,
}

/// What to do with a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Take,
    /// Receive the message, and let the caller handle it before the next message is judged.
    TakeAlone,
    /// Receive the message independently of the others, since several senders use its tag. Messages of this kind do not
    /// wait for each other, and the number of those being received is bounded.
    TakeUnordered,
    Drop,
}

/// A received message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    pub tag: u64,
    /// `Err`: UCX failed to receive the announced message.
    pub bytes: Result<Bytes, Status>,
}

#[derive(Default)]
pub(crate) struct Receiving {
    /// Ordered receives in progress, by tag, in the order of arrival.
    under_way: BTreeMap<u64, VecDeque<Receive>>,
    unordered: Vec<(u64, Receive)>,
    under_way_bytes: usize,
    /// Whether the budget was used up: UCX's queue may hold more messages, which its descriptor does not signal.
    more: bool,
}

struct Receive {
    /// UCX's request; null if the message is complete.
    request: *mut c_void,
    bytes: BytesMut,
    status: Status,
    dropped: bool,
}

/// Why a turn judges no more messages.
#[derive(PartialEq, Eq)]
enum Stop {
    /// UCX's queue is empty.
    Empty,
    /// The budget of this turn is used up.
    Budget,
    /// Too many bytes are being received.
    Full,
}

impl Receiving {
    pub fn has_more(&self) -> bool {
        self.more
    }

    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        self.under_way.is_empty() && self.unordered.is_empty() && self.under_way_bytes == 0
    }

    #[cfg(test)]
    pub fn under_way_bytes(&self) -> usize {
        self.under_way_bytes
    }

    pub fn turn(
        &mut self,
        functions: &Functions,
        worker: Handle,
        budget: Budget,
        mut judge: impl FnMut(u64, usize) -> Verdict,
        messages: &mut Vec<Message>,
    ) {
        let mut left = budget.messages;
        // UCX makes no progress while messages that exceeded the last budget wait in its queue. So a flood stays in the
        // network, and no message waits for long.
        let mut stop = if self.more { self.take_in(functions, worker, &mut left, &mut judge) } else { Stop::Empty };
        for _ in 0..budget.rounds {
            if stop == Stop::Budget {
                break;
            }
            // SAFETY: the worker is alive and used only by this thread.
            let worked = unsafe { (functions.worker_progress)(worker) };
            let before = left;
            stop = self.take_in(functions, worker, &mut left, &mut judge);
            if worked == 0 && left == before {
                break;
            }
        }
        self.give_out(functions, messages);
        let is_full = self.under_way_bytes >= UNDER_WAY_BYTES_MAX;
        self.more = match stop {
            // If the rounds were used up, UCX's own descriptor signals the rest.
            Stop::Empty => false,
            Stop::Budget => true,
            Stop::Full => !is_full,
        };
    }

    /// Starts to receive messages that have arrived.
    fn take_in(
        &mut self,
        functions: &Functions,
        worker: Handle,
        left: &mut usize,
        judge: &mut impl FnMut(u64, usize) -> Verdict,
    ) -> Stop {
        loop {
            if *left == 0 {
                return Stop::Budget;
            }
            if self.under_way_bytes >= UNDER_WAY_BYTES_MAX {
                return Stop::Full;
            }
            let mut info = TagInfo { sender_tag: 0, length: 0 };
            // SAFETY: the worker is alive; a mask of 0 matches any message, which is removed from the queue and
            // received below.
            let message = unsafe { (functions.tag_probe)(worker, 0, 0, 1, &mut info) };
            if message.is_null() {
                return Stop::Empty;
            }
            *left -= 1;
            let (tag, len) = (info.sender_tag, info.length);
            match judge(tag, len) {
                Verdict::TakeUnordered if self.unordered.len() < UNORDERED_MAX => {
                    let receive = self.start_receive(functions, worker, message, Some(len));
                    self.unordered.push((tag, receive));
                }
                Verdict::Drop | Verdict::TakeUnordered => {
                    let receive = self.start_receive(functions, worker, message, None);
                    self.unordered.push((tag, receive));
                }
                verdict @ (Verdict::Take | Verdict::TakeAlone) => {
                    let receive = self.start_receive(functions, worker, message, Some(len));
                    self.under_way.entry(tag).or_default().push_back(receive);
                    if verdict == Verdict::TakeAlone {
                        return Stop::Budget;
                    }
                }
            }
        }
    }

    /// Receives a message that was removed from the queue; a dropped one is received into an empty buffer.
    fn start_receive(&mut self, functions: &Functions, worker: Handle, message: Handle, len: Option<usize>) -> Receive {
        // UCX discards a message that does not fit into its buffer; an empty buffer fits none.
        let mut bytes = BytesMut::zeroed(len.unwrap_or(0));
        // SAFETY: the message was removed from the queue and is received once. The buffer has the given length and
        // stays in place until the request completes: only its handle is moved, and it is neither read nor written.
        let pointer =
            unsafe { (functions.tag_receive)(worker, bytes.as_mut_ptr().cast(), bytes.len(), message, &NO_PARAM) };
        let (request, status) = match outcome(pointer) {
            Ok(request) => (request.unwrap_or(ptr::null_mut()), OK),
            Err(status) => (ptr::null_mut(), status),
        };
        self.under_way_bytes += bytes.len();
        Receive { request, bytes, status, dropped: len.is_none() }
    }

    fn give_out(&mut self, functions: &Functions, messages: &mut Vec<Message>) {
        let Receiving { under_way, unordered, under_way_bytes, .. } = self;
        let mut give = |tag, receive: Receive| {
            *under_way_bytes -= receive.bytes.len();
            if !receive.dropped {
                let bytes = if receive.status == OK { Ok(receive.bytes.freeze()) } else { Err(receive.status) };
                messages.push(Message { tag, bytes });
            }
        };
        for (tag, receive) in unordered.extract_if(.., |(_, receive)| receive.is_over(functions)) {
            give(tag, receive);
        }
        under_way.retain(|&tag, queue| {
            while queue.front_mut().is_some_and(|first| first.is_over(functions))
                && let Some(receive) = queue.pop_front()
            {
                give(tag, receive);
            }
            !queue.is_empty()
        });
    }
}

impl Receive {
    /// Whether UCX no longer needs the buffer. Call it until it returns `true`.
    fn is_over(&mut self, functions: &Functions) -> bool {
        if self.request.is_null() {
            return true;
        }
        // SAFETY: the request was returned by a receive and is freed once, here.
        let status = unsafe { (functions.request_status)(self.request) };
        if status == IN_PROGRESS {
            return false;
        }
        // SAFETY: as above.
        unsafe { (functions.request_free)(self.request) };
        self.request = ptr::null_mut();
        self.status = status;
        true
    }
}
