//! Fences and allgathers: started now, finished when the caller waits for them.
//!
//! Our own server accepts any number at once: each is a request with a number, which is answered when the collective
//! has completed. The start is one write, which also carries the puts that were posted; an allgather's array lies in
//! the arena, or comes as memory of its own. With other servers both are made of put, fence and get
//! ([`crate::emulated`]). A singleton's collectives complete at once.
//!
//! What fences have published with our own server lies in shared memory ([`Segments`]) and is looked up without a
//! message. A fence's answer says how often the kvs has grown. The first get after it has grown asks for the segments
//! that are missing (one round trip); the server may have merged some into a larger one. A later segment's pairs win.

use crate::arena::Mapped;
use crate::emulated;
use crate::link::{Failure, Link};
use crate::memory::Memory;
use crate::number;
use crate::requests::{CollectiveKind, Id, Requests, Stage};
use alloc::vec::Vec;
use wireup_wire::pmi::escape::doubled;
use wireup_wire::pmi::{Raw, ReplyFields, Request};
use wireup_wire::shared::segment::Segment;

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

/// The kvs in shared memory.
pub struct Segments<M: Memory> {
    /// The mapped segments, oldest first, each with the version at which it ends.
    all: Vec<(u32, M::SharedBytes)>,
    /// The version of the kvs up to which segments are mapped.
    mapped: u32,
    /// The latest version that a fence has reported.
    latest: u32,
}

/// The answer to a question for segments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Update {
    /// Number of the oldest segments that the client keeps.
    keep: usize,
    /// The version at which each new segment ends.
    ends: Vec<u32>,
}

/// Why a lookup failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentError {
    /// The bytes are no segment.
    Malformed,
    /// A segment could not be mapped. The next lookup asks for it again.
    NotMapped,
}

impl<M: Memory> Default for Segments<M> {
    fn default() -> Self {
        Segments { all: Vec::new(), mapped: 0, latest: 0 }
    }
}

impl Update {
    /// Reads the server's answer; `None`: it is malformed.
    pub fn read(fields: &ReplyFields<'_>) -> Option<Update> {
        let ends = match fields.get("ends") {
            None | Some(b"") => Vec::new(),
            Some(text) => number::list(text)?,
        };
        Some(Update { keep: fields.get("keep").and_then(number::parse)?, ends })
    }
}

impl<M: Memory> Segments<M> {
    pub fn on_version(&mut self, version: u32) {
        self.latest = self.latest.max(version);
    }

    /// The latest version of the kvs that a fence has reported.
    pub fn latest(&self) -> u32 {
        self.latest
    }

    /// Whether a fence has published pairs that are not mapped.
    pub fn is_behind(&self) -> bool {
        self.mapped < self.latest
    }

    /// The versions at which the mapped segments end, as the text of a request to the server.
    pub fn have(&self) -> Vec<u8> {
        let mut have = Vec::new();
        self.all.iter().for_each(|(end, _)| number::push_item(*end as usize, &mut have));
        have
    }

    /// Takes the server's answer, with the memory that came with it.
    pub fn update(&mut self, update: Update, memory: Vec<Option<M>>) -> Result<(), SegmentError> {
        self.all.truncate(update.keep);
        for (end, memory) in update.ends.into_iter().zip(memory) {
            let part = memory.and_then(|memory| memory.whole()).ok_or(SegmentError::NotMapped)?;
            self.all.push((end, part));
        }
        self.mapped = self.latest.max(self.all.last().map_or(0, |(end, _)| *end));
        Ok(())
    }

    /// The value of a key; both are in the encoding of the wire.
    pub fn get(&self, key: &[u8]) -> Result<Option<&[u8]>, SegmentError> {
        for (_, part) in self.all.iter().rev() {
            let segment = Segment::read(part).map_err(|_| SegmentError::Malformed)?;
            if let Some(value) = segment.get(key) {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}
