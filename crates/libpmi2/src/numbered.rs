//! The collectives with our own server: each is a request with a number, and its answer comes when it is over.
//!
//! Start: one write, which takes along the puts that were held back. Finish: at most one read; an allgather's array lies in the
//! arena, or comes as a descriptor and is mapped. What is answered meanwhile is taken in on the way.

use crate::arena::Known;
use crate::exchange::{Kind, Push};
use crate::requests::{Id, Stage};
use crate::segments::Segments;
use crate::state::Job;
use alloc::vec::Vec;
use wireup_capi::Failure;
use wireup_capi::codes::Result;
use wireup_wire::pmi::Request;
use wireup_wire::pmi::escape::doubled;

/// What is known of our own server.
#[derive(Default)]
pub struct Own {
    pub segments: Segments,
    arena: Known,
    /// The places that a request frees.
    freed: Vec<u8>,
    /// Where an escaped value lies while it is sent.
    room: Vec<u8>,
}

impl Job {
    pub fn is_numbered(&self) -> bool {
        self.own.is_some()
    }

    pub fn start_numbered(&mut self, kind: Kind, value: &[u8]) -> Result<Id> {
        let id = self.requests.push(kind, Vec::new());
        let (server, Some(own)) = (self.with.server()?, &mut self.own) else {
            return Ok(id);
        };
        let outstanding = self.requests.get(id)?;
        outstanding.posted = server.posted();
        let number = id as u32;
        let sent = match kind {
            Kind::Fence => server.start(&Request::FenceNb { id: number }),
            Kind::Allgather { max_len, shared, .. } => {
                own.arena.take_freed(&mut own.freed);
                let (freed, value) = (&own.freed[..], doubled(value, &mut own.room));
                server.start(&Request::Allgather { id: number, max_len: max_len as u32, shared, freed, value })
            }
        };
        // Who waits is told that the server is gone.
        outstanding.stage = if sent.is_ok() { Stage::UnderWay } else { Stage::Over(Err(Failure::Broken)) };
        Ok(id)
    }

    pub fn advance_numbered(&mut self, push: Push) {
        loop {
            self.take_in();
            let (pending, wait) = match push {
                Push::Start => return,
                Push::Test(id) => (self.requests.get(id).ok(), false),
                Push::Wait(Id::MAX) => (self.requests.first(), true),
                Push::Wait(id) => (self.requests.get(id).ok(), true),
            };
            if pending.is_none_or(|one| !matches!(one.stage, Stage::UnderWay)) {
                return;
            }
            match self.with.server().map(|server| server.advance(wait)) {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return,
                Ok(Err(_)) | Err(_) => self.requests.break_all(),
            }
        }
    }

    /// Notes what has ended.
    fn take_in(&mut self) {
        let (Ok(server), Some(own)) = (self.with.server(), &mut self.own) else {
            return;
        };
        while let Some(over) = server.next_over() {
            let Some(one) = self.requests.by_number(over.id) else {
                continue;
            };
            one.stage = Stage::Over(match one.kind {
                Kind::Allgather { .. } => Ok(own.arena.values(over.number, over.array)),
                Kind::Fence => {
                    own.segments.on_version(over.number);
                    if server.take_refusal(one.posted) { Err(Failure::Refused) } else { Ok(None) }
                }
            });
        }
    }
}
