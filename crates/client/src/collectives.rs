//! Fences and allgathers: started now, finished when the caller waits for them.
//!
//! Our own server accepts any number at once: each is a request with a number, which is answered when the collective
//! has completed. The start is one write, which also carries the puts that were posted; an allgather's array lies in
//! the arena, or comes as memory of its own. With other servers both are made of put, fence and get
//! ([`crate::emulated`]). A singleton's collectives complete at once.

use crate::arena::Mapped;
use crate::emulated;
use crate::link::{Failure, Link};
use crate::memory::Memory;
use crate::requests::{CollectiveKind, Id, Requests, Stage};
use crate::segments::Segments;
use alloc::vec::Vec;
use wireup_wire::pmi::escape::doubled;
use wireup_wire::pmi::{Raw, Request};

pub struct Collectives<M: Memory> {
    pub rank: u32,
    pub requests: Requests<M>,
    /// The memory that our own server shares; `None`: the server is another one, or there is none.
    pub own: Option<SharedWithServer<M>>,
    /// Counts allgathers; the same on all ranks.
    generation: usize,
}

/// The memory that our own server shares.
pub struct SharedWithServer<M: Memory> {
    pub segments: Segments<M>,
    arena: Mapped<M>,
    /// A buffer for the list of arena places that a request reports as free.
    freed: Vec<u8>,
    /// A buffer for an escaped value while it is sent.
    room: Vec<u8>,
}

impl<M: Memory> Default for SharedWithServer<M> {
    fn default() -> Self {
        SharedWithServer {
            segments: Segments::default(),
            arena: Mapped::default(),
            freed: Vec::new(),
            room: Vec::new(),
        }
    }
}

impl<M: Memory> Collectives<M> {
    pub fn new(rank: u32, is_own: bool) -> Self {
        Collectives { rank, requests: Requests::default(), own: is_own.then(SharedWithServer::default), generation: 0 }
    }

    /// Starts a fence; needs no round trip.
    pub fn start_fence(&mut self, link: Option<&mut Link<M>>) -> Id {
        self.start(link, CollectiveKind::Fence, &[])
    }

    /// Starts an allgather; needs no round trip.
    pub fn start_allgather(&mut self, link: Option<&mut Link<M>>, value: &[u8], max_len: usize, shared: bool) -> Id {
        self.generation += 1;
        self.start(link, CollectiveKind::Allgather { generation: self.generation, max_len, shared }, value)
    }

    fn start(&mut self, link: Option<&mut Link<M>>, kind: CollectiveKind, value: &[u8]) -> Id {
        let posted = link.as_ref().map_or(0, |link| link.posted());
        match (link, &mut self.own) {
            (None, _) => {
                let one = self.requests.push(kind, value.to_vec(), posted);
                one.stage = Stage::Over(Ok(None));
                one.id
            }
            (Some(link), Some(own)) => {
                let one = self.requests.push(kind, Vec::new(), posted);
                // A failure is reported when the caller waits for the collective.
                let sent = own.ask(link, one.id as u32, kind, value);
                one.stage = if sent.is_ok() { Stage::UnderWay } else { Stage::Over(Err(Failure::Broken)) };
                one.id
            }
            (Some(link), None) => {
                let id = self.requests.push(kind, value.to_vec(), posted).id;
                emulated::advance(&mut self.requests, link, self.rank);
                id
            }
        }
    }

    /// Records which requests have completed, and adds requests that waited for them.
    pub fn advance(&mut self, link: &mut Link<M>) {
        match &mut self.own {
            Some(own) => own.take_in(&mut self.requests, link),
            None => emulated::advance(&mut self.requests, link, self.rank),
        }
        if link.is_broken() {
            self.requests.break_all();
        }
    }

    /// Whether a request has completed; `None`: there is no such request.
    pub fn is_over(&mut self, id: Id) -> Option<bool> {
        self.requests.get(id).map(|one| matches!(one.stage, Stage::Over(_)))
    }

    /// Whether a value is still being put in several batches, so that the fence after it has not been requested yet.
    pub fn is_putting(&mut self) -> bool {
        self.requests.first().is_some_and(|one| matches!(one.stage, Stage::Putting(_)))
    }

    /// Whether all requests have completed.
    pub fn are_over(&mut self) -> bool {
        self.requests.first().is_none()
    }
}

impl<M: Memory> SharedWithServer<M> {
    fn ask(&mut self, link: &mut Link<M>, id: u32, kind: CollectiveKind, value: &[u8]) -> Result<(), Failure> {
        match kind {
            CollectiveKind::Fence => link.ask(&Request::FenceNb { id }),
            CollectiveKind::Allgather { max_len, shared, .. } => {
                self.arena.take_freed(&mut self.freed);
                let (freed, value) = (&self.freed[..], doubled(value, &mut self.room));
                link.ask(&Request::Allgather { id, max_len: max_len as u32, shared, freed, value: Raw(value) })
            }
        }
    }

    fn take_in(&mut self, requests: &mut Requests<M>, link: &mut Link<M>) {
        while let Some(over) = link.next_completion() {
            let Some(one) = requests.by_number(over.id) else {
                continue;
            };
            one.stage = Stage::Over(match one.kind {
                CollectiveKind::Allgather { .. } => Ok(self.arena.values(over.number, over.memory)),
                CollectiveKind::Fence => {
                    self.segments.on_version(over.number);
                    if link.take_refusal(one.posted) { Err(Failure::Refused) } else { Ok(None) }
                }
            });
        }
    }
}
