//! Messages on their way in: judged by tag and length, then received, and given out in order.
//!
//! ```text
//!   worker_progress ─► UCX's own queue ─► judged ─┬─ taken: a buffer of its length ─► complete ─► given out
//!                                                 └─ dropped: received into nothing
//! ```
//!
//! A message that is long is only announced in UCX's queue; its bytes move once there is a buffer. So a length that is a lie costs
//! nothing unless the caller takes it, and what is under way at once is bounded: beyond that the queue is left as it is.

use crate::sys::{Functions, Handle, IN_PROGRESS, OK, Status, TagInfo};
use crate::{NO_PARAM, outcome};
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::ptr;

/// Bytes of messages under way at once; one more message may begin below that. Chosen: more than a network holds.
const UNDER_WAY_BYTES_MAX: usize = 32 << 20;
/// Unordered messages under way at once; more are dropped. Chosen: they are small, and complete when they come, unless somebody has
/// announced what does not follow.
const UNORDERED_MAX: usize = 128;

/// What one turn may do at most, so that a peer that floods does not keep the caller from everything else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Messages that are judged.
    pub messages: usize,
    /// Times that UCX is let to work.
    pub rounds: usize,
}

/// What is to become of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Take,
    /// It is to be looked at before the next one is judged.
    TakeAlone,
    /// Its tag is used by many: none of them waits for another, and only so many are under way at once.
    TakeUnordered,
    Drop,
}

/// What came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    pub tag: u64,
    /// UCX may fail to receive what was announced.
    pub bytes: Result<Bytes, Status>,
}

#[derive(Default)]
pub(crate) struct Receiving {
    /// What UCX still writes to, by tag, in the order of coming.
    under_way: BTreeMap<u64, VecDeque<Receive>>,
    unordered: Vec<(u64, Receive)>,
    under_way_bytes: usize,
    /// The budget was used up: there may be more in UCX's queue, which its descriptor does not tell.
    more: bool,
}

struct Receive {
    /// Null: all is there.
    request: *mut c_void,
    bytes: BytesMut,
    status: Status,
    dropped: bool,
}

/// Why messages are judged no further.
#[derive(PartialEq, Eq)]
enum Stop {
    /// There is none.
    Empty,
    /// Enough for this turn.
    Budget,
    /// Too many bytes are under way.
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
        // UCX brings no more while something waits in its queue: a flood stays in the network, and nobody's message waits for long.
        let mut stop = if self.more { self.take_in(functions, worker, &mut left, &mut judge) } else { Stop::Empty };
        for _ in 0..budget.rounds {
            if stop == Stop::Budget {
                break;
            }
            // SAFETY: the worker is alive and used by this thread alone.
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
            // If the rounds were used up, UCX itself knows of more.
            Stop::Empty => false,
            Stop::Budget => true,
            Stop::Full => !is_full,
        };
    }

    /// Begins to receive what has arrived.
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
            // SAFETY: the worker is alive; a mask of 0 takes any message, which is removed and received below.
            let message = unsafe { (functions.tag_probe)(worker, 0, 0, 1, &mut info) };
            if message.is_null() {
                return Stop::Empty;
            }
            *left -= 1;
            let (tag, len) = (info.sender_tag, info.length);
            match judge(tag, len) {
                Verdict::TakeUnordered if self.unordered.len() < UNORDERED_MAX => {
                    let receive = self.begin(functions, worker, message, Some(len));
                    self.unordered.push((tag, receive));
                }
                Verdict::Drop | Verdict::TakeUnordered => {
                    let receive = self.begin(functions, worker, message, None);
                    self.unordered.push((tag, receive));
                }
                verdict @ (Verdict::Take | Verdict::TakeAlone) => {
                    let receive = self.begin(functions, worker, message, Some(len));
                    self.under_way.entry(tag).or_default().push_back(receive);
                    if verdict == Verdict::TakeAlone {
                        return Stop::Budget;
                    }
                }
            }
        }
    }

    /// Receives a message that was removed from the queue, into nothing if it is dropped.
    fn begin(&mut self, functions: &Functions, worker: Handle, message: Handle, len: Option<usize>) -> Receive {
        // What does not fit into its buffer, as nothing fits into none, is thrown away.
        let mut bytes = BytesMut::zeroed(len.unwrap_or(0));
        // SAFETY: the message was removed from the queue and is received once. The buffer has the length that is given and stays where
        // it is until the request is over: it is moved as a handle only, and neither read nor written.
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
    /// Whether UCX needs the buffer no more; to be asked until it says so.
    fn is_over(&mut self, functions: &Functions) -> bool {
        if self.request.is_null() {
            return true;
        }
        // SAFETY: a request that was returned by a receive and is freed once, here.
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
