//! What a rank here has committed, wanted by a rank elsewhere.
//!
//! The library keeps such a request until the rank commits. A rank that has left without doing so never will: its requests are
//! answered here. The library's thread does one thing after the other, so that a request of a rank that has left is
//! answered by the library before our next piece of work runs there, or never.

use super::state::Server;
use crate::read::slice;
use crate::sys::constants::status;
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::ffi::{c_char, c_void};
use wireup_wire::ids::Rank;
use wireup_wire::pmix::{FromServer, Status};

/// Requests of other nodes.
#[derive(Default)]
pub struct Tickets {
    /// By a number of our own, which the library hands back as a pointer: the agent's number and the rank that it is about.
    open: HashMap<usize, (u64, Rank)>,
    next: usize,
    /// Ranks here that commit no more.
    left: HashSet<Rank>,
}

impl Server {
    /// Asks the library for what a rank here has committed.
    pub fn modex_wanted(&'static self, ticket: u64, rank: Rank) {
        if !self.is_local(rank) {
            self.outbox.send(&FromServer::Modex { ticket, status: Status::BadParam, blob: Bytes::new() });
            return;
        }
        let (number, has_left) = {
            let mut tickets = self.tickets();
            tickets.next = tickets.next.wrapping_add(1);
            let number = tickets.next;
            tickets.open.insert(number, (ticket, rank));
            (number, tickets.left.contains(&rank))
        };
        let name = self.name_of(rank);
        // SAFETY: the library copies the name, and calls us back once, or never.
        let code = unsafe { (self.library.functions.dmodex_request)(&name, Some(committed), number as *mut c_void) };
        if code != status::SUCCESS {
            self.refuse(number, super::answers::from_library(code));
        } else if has_left {
            self.on_library_thread(move || self.refuse(number, Status::NotFound));
        }
    }

    /// A rank here commits no more: who waits for it is told.
    pub fn has_left(&'static self, rank: Rank) {
        let waiting: Vec<usize> = {
            let mut tickets = self.tickets();
            if !tickets.left.insert(rank) {
                return;
            }
            tickets.open.iter().filter(|(_, open)| open.1 == rank).map(|(&number, _)| number).collect()
        };
        if !waiting.is_empty() {
            self.on_library_thread(move || {
                waiting.into_iter().for_each(|number| self.refuse(number, Status::NotFound))
            });
        }
    }

    /// Answers a request that has not been answered.
    fn refuse(&self, number: usize, status: Status) {
        self.close(number, status, Bytes::new());
    }

    fn close(&self, number: usize, status: Status, blob: Bytes) {
        let open = self.tickets().open.remove(&number);
        if let Some((ticket, _)) = open {
            self.outbox.send(&FromServer::Modex { ticket, status, blob });
        }
    }
}

/// # Safety
/// The library calls it with what it has found, which stays its own.
unsafe extern "C" fn committed(code: crate::sys::types::Status, data: *mut c_char, len: usize, number: *mut c_void) {
    // SAFETY: as above.
    let blob = unsafe { Bytes::copy_from_slice(slice(data.cast_const().cast::<u8>(), len)) };
    super::state::server().close(number as usize, super::answers::from_library(code), blob);
}
