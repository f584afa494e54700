//! Put, fence, get.
// SAFETY of every function here: C callers follow the rules of `pmi2.h` for pointers; null pointers are checked.

use crate::state::{Job, With, given, key, with_job};
use alloc::vec::Vec;
use core::ffi::{c_char, c_int};
use wireup_capi::codes::{Code, Result, returned};
use wireup_capi::mapping::Shared;
use wireup_capi::{Server, text};
use wireup_client::emulated::KEY_PREFIX;
use wireup_client::segments::{SegmentError, Segments, Update};
use wireup_wire::limits::{KEY_LEN_MAX, KVSNAME_LEN_MAX, VALUE_LEN_MAX};
use wireup_wire::pmi::Request;
use wireup_wire::pmi::escape::{doubled, halve};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_KVS_Put(name: *const c_char, value: *const c_char) -> c_int {
    // SAFETY: see the top of the file.
    returned(with_job(|job| unsafe {
        let name = key(name)?;
        if name.starts_with(KEY_PREFIX) {
            return Err(Code::INVALID_KEY);
        }
        put(job, name, put_value(value)?)
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn PMI2_KVS_Fence() -> c_int {
    returned(with_job(|job| {
        let id = job.start_fence();
        job.finish(id)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_KVS_Get(
    jobid: *const c_char,
    src_pmi_id: c_int,
    name: *const c_char,
    value: *mut c_char,
    maxvalue: c_int,
    vallen: *mut c_int,
) -> c_int {
    returned(with_job(|job| {
        // SAFETY: see the top of the file.
        let (name, jobid) = unsafe { (key(name)?, text::bytes(jobid).unwrap_or_default()) };
        given(value)?;
        if maxvalue <= 0 || jobid.len() > KVSNAME_LEN_MAX {
            return Err(Code::INVALID_LENGTH);
        }
        if job.collectives.requests.has_fence() {
            return Err(Code::FAIL);
        }
        let found = get(job, jobid, src_pmi_id, name, &mut |found| {
            let length = found.len() as c_int;
            // SAFETY: see the top of the file.
            unsafe {
                let whole = text::write(found, value, maxvalue);
                text::set(vallen, if whole { length } else { -length });
            }
        })?;
        if found { Ok(()) } else { Err(Code::OTHER) }
    }))
}

/// A value that can be put.
///
/// # Safety
/// As [`text::bytes`].
pub unsafe fn put_value<'a>(value: *const c_char) -> Result<&'a [u8]> {
    // SAFETY: guaranteed by the caller.
    match unsafe { text::bytes(value) } {
        None | Some(b"") => Err(Code::INVALID_VAL),
        Some(value) if value.len() > VALUE_LEN_MAX => Err(Code::INVALID_VAL_LENGTH),
        Some(value) => Ok(value),
    }
}

pub fn put(job: &mut Job, key: &[u8], value: &[u8]) -> Result {
    let server = match &mut job.with {
        With::Singleton(local) => {
            local.put(key, value);
            return Ok(());
        }
        With::Server(server) => server,
    };
    let (mut key_room, mut value_room) = (Vec::new(), Vec::new());
    let (key, value) = (doubled(key, &mut key_room), doubled(value, &mut value_room));
    let request = Request::Put { kvsname: None, key, value };
    if job.collectives.own.is_none() {
        return Ok(server.tell(&request)?);
    }
    // What our own server is known to refuse is refused here; any other refusal is reported by the fence.
    if key.len() > KEY_LEN_MAX || value.len() > VALUE_LEN_MAX || key.starts_with(RESERVED) {
        return Err(Code::OTHER);
    }
    Ok(server.post(&request)?)
}

/// Keys with this prefix cannot be put.
const RESERVED: &[u8] = b"PMI_";

/// Whether the server computes the answer to a get of this key.
fn is_reserved(key: &[u8]) -> bool {
    key.starts_with(RESERVED) || key == b"universeSize"
}

/// Looks up a key and passes its value to `give`; `false` if there is none.
pub fn get(job: &mut Job, jobid: &[u8], source: c_int, key: &[u8], give: &mut dyn FnMut(&[u8])) -> Result<bool> {
    if let With::Singleton(local) = &job.with {
        return Ok(local.get(key).map(give).is_some());
    }
    let (mut key_room, mut job_room, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    let key = doubled(key, &mut key_room);
    let is_own = jobid.is_empty() || job.job_id.as_deref() == Some(jobid);
    if let (With::Server(server), Some(own)) = (&mut job.with, &mut job.collectives.own)
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
    let found = job.look_up(&Request::Get { kvsname, key, source: Some(source) })?;
    Ok(found.map(|value| give(&value)).is_some())
}

/// Maps the segments that are missing.
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
