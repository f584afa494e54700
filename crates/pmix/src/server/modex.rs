//! Answers requests from other nodes for data that a rank on this node has committed.
//!
//! The library holds such a request until the rank commits anything. The library does not know which key is requested,
//! so a request whose key is missing after that commit waits here for a later commit ([`Late`]). A rank that has
//! left commits nothing more, so its requests are answered here. The library's thread works sequentially: when our next
//! work item runs there, the library has either answered a request for a rank that has left, or never will.
//!
//! ```text
//!   arrives ── the key is there, or none is named ──────────────────────► Fetched ── data ──► answered
//!      └─────► Held ── the rank has committed something ──► Late ── the key is there ──▲
//!               └── the rank has left ──────────────────────┴──────────────────────────┘
//! ```

use super::state::Server;
use super::tickets::{OPEN_MAX, State, Ticket};
use crate::infos::c_text;
use crate::outbox::DATA_LEN_MAX;
use crate::read::slice;
use crate::sys::constants::status;
use bytes::Bytes;
use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};
use wireup_wire::ids::Rank;
use wireup_wire::pmix::{FromServer, Status, Wanted};

/// Time for which a request without a timeout waits for its key once the rank has committed something: the time for
/// which the library waits for a key of a rank on its own node.
const KEY_WAIT: Duration = Duration::from_secs(2);

impl Server {
    /// Requests the data that a rank of this node has committed from the library. Must be called by the main thread.
    pub fn modex_wanted(&'static self, request: u64, wanted: Wanted) {
        let refuse = |status| self.outbox.send(&FromServer::Modex { request, status, blob: Bytes::new() });
        if !self.is_local(wanted.rank) {
            refuse(Status::BadParam);
            return;
        }
        let rank = wanted.rank;
        let is_there = wanted.key.as_deref().is_none_or(|key| self.has_committed(rank, key));
        let number = {
            let mut requests = self.requests();
            if requests.open.len() >= OPEN_MAX {
                refuse(Status::Library(status::OUT_OF_RESOURCE));
                return;
            }
            let state = if is_there || requests.left.contains(&rank) { State::Fetched } else { State::Held };
            requests.insert(Ticket { request, wanted, state })
        };
        self.fetch(number, rank);
        // The rank had left before, or has left just now. If `has_left` answers the request too, the first answer
        // counts.
        if self.requests().left.contains(&rank) {
            self.settle(vec![number]);
        }
    }

    fn fetch(&self, number: usize, rank: Rank) {
        let name = self.name_of(rank);
        // SAFETY: the library copies the name, and calls us back at most once.
        let code = unsafe { (self.library.functions.dmodex_request)(&name, Some(committed), number as *mut c_void) };
        if code != status::SUCCESS {
            self.close(number, super::answers::from_library(code), Bytes::new());
        }
    }

    /// Whether a rank of this node has committed a value for this key that other nodes may read. Blocks until the
    /// library's thread has answered.
    fn has_committed(&self, rank: Rank, key: &str) -> bool {
        let (name, key, functions) = (self.name_of(rank), c_text(key), &self.library.functions);
        let mut value = null_mut();
        // SAFETY: name and key live until the call returns. A server searches only its own memory. The caller is not
        // the library's thread, for which the call would wait forever.
        let code = unsafe { (functions.get)(&name, key.as_ptr(), null(), 0, &mut value) };
        if !value.is_null() {
            // SAFETY: the value is ours, allocated with `malloc`, and not used after this.
            unsafe {
                (functions.value_destruct)(value);
                libc::free(value.cast());
            }
        }
        code == status::SUCCESS
    }

    /// Checks whether keys for which requests wait have been committed meanwhile. Must be called by the main thread.
    pub fn look_for_late_keys(&'static self) {
        let late: Vec<(Instant, usize, Wanted)> = {
            let requests = self.requests();
            let wanted = |number| requests.open.get(number).map(|ticket| ticket.wanted.clone());
            requests.late.iter().filter_map(|(until, number)| Some((*until, *number, wanted(number)?))).collect()
        };
        let now = Instant::now();
        for (until, number, Wanted { rank, key, .. }) in late {
            if key.is_none_or(|key| self.has_committed(rank, &key)) {
                self.requests().set(number, State::Fetched);
                self.fetch(number, rank);
            } else if until <= now {
                self.close(number, Status::Timeout, Bytes::new());
            }
        }
    }

    /// Answers the requests that wait for a rank of this node, which will not commit any more.
    pub fn has_left(&'static self, rank: Rank) {
        let (late, all): (Vec<usize>, Vec<usize>) = {
            let mut requests = self.requests();
            if !requests.left.insert(rank) {
                return;
            }
            let of_rank = |number: &&usize| requests.open.get(number).is_some_and(|ticket| ticket.wanted.rank == rank);
            let all: Vec<usize> = requests.open.keys().filter(of_rank).copied().collect();
            let late = requests.late.iter().map(|(_, number)| number).filter(of_rank).copied().collect();
            all.iter().for_each(|number| requests.set(*number, State::Fetched));
            (late, all)
        };
        late.into_iter().for_each(|number| self.fetch(number, rank));
        self.settle(all);
    }

    /// Refuses requests for a rank that has left, unless the library has answered them.
    fn settle(&'static self, numbers: Vec<usize>) {
        if !numbers.is_empty() {
            self.on_library_thread(move || {
                numbers.into_iter().for_each(|number| self.close(number, Status::NotFound, Bytes::new()))
            });
        }
    }

    /// Handles the library's answer to a request: the data of a rank, or an error.
    fn on_data(&self, number: usize, status: Status, blob: Bytes) {
        {
            let mut requests = self.requests();
            let Some(ticket) = requests.open.get(&number) else { return };
            // The rank has committed something, which may not include the data that the other node requested.
            if ticket.state == State::Held && matches!(status, Status::Ok | Status::NotFound) {
                let wait = ticket.wanted.timeout_s.map_or(KEY_WAIT, |seconds| Duration::from_secs(seconds.into()));
                requests.set(number, State::Late { until: Instant::now() + wait });
                drop(requests);
                self.outbox.nudge();
                return;
            }
        }
        self.close(number, status, blob);
    }

    /// Answers a request, unless it was answered before.
    fn close(&self, number: usize, status: Status, blob: Bytes) {
        let ticket = self.requests().remove(number);
        if let Some(Ticket { request, .. }) = ticket {
            self.outbox.send(&FromServer::Modex { request, status, blob });
        }
    }
}

/// # Safety
/// Called by the library with the data found; the library keeps ownership of the data.
unsafe extern "C" fn committed(code: crate::sys::types::Status, data: *mut c_char, len: usize, number: *mut c_void) {
    // SAFETY: the caller guarantees it.
    let blob = unsafe { Bytes::copy_from_slice(slice(data.cast_const().cast::<u8>(), len)) };
    let (status, blob) = if blob.len() > DATA_LEN_MAX {
        (Status::Library(status::OUT_OF_RESOURCE), Bytes::new())
    } else {
        (super::answers::from_library(code), blob)
    };
    super::state::server().on_data(number as usize, status, blob);
}

/// Time from an arrival to the first check. Chosen: several times as long as the library takes to read a commit.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Maximum pause between two checks. This pause bounds the delay if the library's thread was held up for long; one
/// check takes some microseconds for each key.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The main thread's schedule of checks for keys that a rank had not committed when another node requested them.
///
/// The library does not report commits to its server. But a commit consists of bytes from a client, whose arrival the
/// main thread notices ([`super::acks`]). The library's thread reads these bytes soon after, usually within a
/// millisecond; a busy machine may delay the thread. So after each arrival the server checks after one millisecond, and
/// then after pauses that double, as long as a request waits for a key.
#[derive(Default)]
pub struct Late {
    due: Option<Instant>,
    pause: Duration,
}

impl Late {
    /// Schedules a check now: a request has begun to wait, whose rank has committed something that may include the key.
    pub fn look_now(&mut self, server: &Server) {
        self.look_after(Duration::ZERO, server);
    }

    /// Schedules a check, because bytes have arrived from a client.
    pub fn look_soon(&mut self, server: &Server) {
        self.look_after(PAUSE_MIN, server);
    }

    fn look_after(&mut self, delay: Duration, server: &Server) {
        if server.requests().first_late().is_some() {
            self.pause = PAUSE_MIN;
            self.due = Some(Instant::now() + delay);
        }
    }

    /// Time of the next check; `None`: no request waits.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Checks for keys that were committed late, if a check is due.
    pub fn settle(&mut self, server: &'static Server) {
        if self.due.is_none_or(|due| Instant::now() < due) {
            return;
        }
        server.look_for_late_keys();
        self.pause = (2 * self.pause).min(PAUSE_MAX);
        let first = server.requests().first_late();
        self.due = first.map(|until| until.min(Instant::now() + self.pause));
    }
}
