//! Requests from other nodes for data that a rank on this node has committed.
//!
//! The library holds such a request until the rank commits. A rank that has left without committing never will, so its requests are
//! answered here. The library's thread works sequentially: by the time our next piece of work runs there, the library has either
//! answered a request for a rank that has left, or never will.

use super::state::Server;
use crate::outbox::DATA_LEN_MAX;
use crate::read::slice;
use crate::sys::constants::status;
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::ffi::{c_char, c_void};
use wireup_wire::ids::Rank;
use wireup_wire::pmix::{FromServer, Status};

/// Open requests of other nodes.
#[derive(Default)]
pub struct Tickets {
    /// By a number of our own, which the library passes back as a pointer: the agent's ticket and the rank concerned.
    open: HashMap<usize, (u64, Rank)>,
    next: usize,
    /// Ranks of this node that will not commit any more.
    left: HashSet<Rank>,
}

impl Server {
    /// Asks the library for the data that a rank of this node has committed.
    pub fn modex_wanted(&'static self, request: u64, rank: Rank) {
        if !self.is_local(rank) {
            self.outbox.send(&FromServer::Modex { request, status: Status::BadParam, blob: Bytes::new() });
            return;
        }
        let (number, has_left) = {
            let mut requests = self.requests();
            requests.next = requests.next.wrapping_add(1);
            let number = requests.next;
            requests.open.insert(number, (request, rank));
            (number, requests.left.contains(&rank))
        };
        let name = self.name_of(rank);
        // SAFETY: the library copies the name, and calls us back at most once.
        let code = unsafe { (self.library.functions.dmodex_request)(&name, Some(committed), number as *mut c_void) };
        if code != status::SUCCESS {
            self.refuse(number, super::answers::from_library(code));
        } else if has_left {
            self.on_library_thread(move || self.refuse(number, Status::NotFound));
        }
    }

    /// A rank of this node will not commit any more: requests that wait for it are answered.
    pub fn has_left(&'static self, rank: Rank) {
        let waiting: Vec<usize> = {
            let mut requests = self.requests();
            if !requests.left.insert(rank) {
                return;
            }
            requests.open.iter().filter(|(_, open)| open.1 == rank).map(|(&number, _)| number).collect()
        };
        if !waiting.is_empty() {
            self.on_library_thread(move || {
                waiting.into_iter().for_each(|number| self.refuse(number, Status::NotFound))
            });
        }
    }

    /// Refuses a request, if it is still open.
    fn refuse(&self, number: usize, status: Status) {
        self.close(number, status, Bytes::new());
    }

    fn close(&self, number: usize, status: Status, blob: Bytes) {
        let open = self.requests().open.remove(&number);
        if let Some((request, _)) = open {
            self.outbox.send(&FromServer::Modex { request, status, blob });
        }
    }
}

/// # Safety
/// Called by the library with the data found, which the library keeps.
unsafe extern "C" fn committed(code: crate::sys::types::Status, data: *mut c_char, len: usize, number: *mut c_void) {
    // SAFETY: the caller guarantees it.
    let blob = unsafe { Bytes::copy_from_slice(slice(data.cast_const().cast::<u8>(), len)) };
    let (status, blob) = if blob.len() > DATA_LEN_MAX {
        (Status::Library(status::OUT_OF_RESOURCE), Bytes::new())
    } else {
        (super::answers::from_library(code), blob)
    };
    super::state::server().close(number as usize, status, blob);
}
