//! Put and get. Fences are in `exchange`.

use super::Job;
use crate::codes::{Code, Result};
use crate::job_slot::With;
use crate::mapping::Shared;
use crate::server::Server;
use alloc::vec::Vec;
use core::ffi::c_int;
pub use wireup_client::local::Wish;
use wireup_client::segments::{SegmentError, Segments, Update};
pub use wireup_wire::limits::NAME_LEN_MAX;
use wireup_wire::limits::{KEY_LEN_MAX, VALUE_LEN_MAX};
use wireup_wire::pmi::Request;
use wireup_wire::pmi::escape::{doubled, halve};

/// Keys with this prefix cannot be put.
const RESERVED: &[u8] = b"PMI_";

/// Whether the server computes the answer to a get of this key.
fn is_reserved(key: &[u8]) -> bool {
    key.starts_with(RESERVED) || key == b"universeSize"
}

impl Job {
    /// Puts a pair, which the next fence publishes.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result {
        let server = match &mut self.with {
            With::Singleton(local) => {
                local.put(key, value);
                return Ok(());
            }
            With::Server(server) => server,
        };
        let (mut key_room, mut value_room) = (Vec::new(), Vec::new());
        let (key, value) = (doubled(key, &mut key_room), doubled(value, &mut value_room));
        let request = Request::Put { kvsname: None, key, value };
        if self.collectives.own.is_none() {
            return Ok(server.tell(&request)?);
        }
        // What our own server is known to refuse is refused here; any other refusal is reported by the fence.
        if key.len() > KEY_LEN_MAX || value.len() > VALUE_LEN_MAX || key.starts_with(RESERVED) {
            return Err(Code::OTHER);
        }
        Ok(server.post(&request)?)
    }

    /// Looks up a key and passes its value to `give`; `false` if there is none.
    pub fn get(&mut self, jobid: &[u8], source: c_int, key: &[u8], give: &mut dyn FnMut(&[u8])) -> Result<bool> {
        if let With::Singleton(local) = &self.with {
            return Ok(local.get(key).map(give).is_some());
        }
        let (mut key_room, mut job_room, mut plain) = (Vec::new(), Vec::new(), Vec::new());
        let key = doubled(key, &mut key_room);
        let is_own = jobid.is_empty() || self.job_id.as_deref() == Some(jobid);
        if let (With::Server(server), Some(own)) = (&mut self.with, &mut self.collectives.own)
            && is_own
            && !is_reserved(key)
        {
            if own.segments.is_behind() {
                refresh(server, &mut own.segments)?;
            }
            let found = own.segments.get(key).map_err(code)?;
            return Ok(found.map(|value| give(halve(value, &mut plain))).is_some());
        }
        let jobid = doubled(jobid, &mut job_room);
        // MPICH's servers do not accept empty fields.
        let kvsname = Some(jobid).filter(|name| !name.is_empty());
        let found = self.look_up(&Request::Get { kvsname, key, source: Some(source) })?;
        Ok(found.map(|value| give(&value)).is_some())
    }

    /// Publishes a service under a name, or looks one up: with the server or, without one, in this process. Returns the
    /// port of a look-up.
    ///
    /// # Errors
    /// [`Code::OTHER`]: the name is taken, or there is no such name, or the server refuses for another reason.
    pub fn name(&mut self, name: &[u8], wish: Wish<'_>) -> Result<Vec<u8>> {
        if let With::Singleton(local) = &mut self.with {
            return local.name(name, wish).ok_or(Code::OTHER);
        }
        let (mut name_room, mut port_room) = (Vec::new(), Vec::new());
        let name = doubled(name, &mut name_room);
        let found = self.look_up(&match wish {
            Wish::Publish(port) => Request::PublishName { name, port: doubled(port, &mut port_room) },
            Wish::LookUp => Request::LookupName { name },
            Wish::Unpublish => Request::UnpublishName { name },
        });
        found?.ok_or(Code::OTHER)
    }
}

/// Maps the segments of the kvs that this process lacks.
fn refresh(server: &mut Server, segments: &mut Segments<Shared>) -> Result {
    let mut update = None;
    server.call(&Request::KvsMap { have: &segments.have() }, &mut |fields| update = Update::read(fields))?;
    let memory = server.link.take_memory();
    segments.update(update.ok_or(Code::FAIL)?, memory).map_err(code)
}

fn code(error: SegmentError) -> Code {
    match error {
        SegmentError::Malformed => Code::FAIL,
        SegmentError::NotMapped => Code::NOMEM,
    }
}
