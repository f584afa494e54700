//! Put, fence, get.
// SAFETY of every function here: C callers keep what `pmi2.h` says of the pointers; null pointers are looked for.

use crate::exchange::{KEY_PREFIX, Kind};
use crate::state::{Job, With, given, key, with_job};
use alloc::vec::Vec;
use core::ffi::{c_char, c_int};
use wireup_capi::codes::{Code, Result, returned};
use wireup_capi::text;
use wireup_client::escape::double;
use wireup_wire::limits::{KVSNAME_LEN_MAX, VALUE_LEN_MAX};
use wireup_wire::pmi::Request;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_KVS_Put(name: *const c_char, value: *const c_char) -> c_int {
    // SAFETY: see the file's head.
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
        let id = job.start(Kind::Fence, &[])?;
        job.finish(id).map(drop)
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
        // SAFETY: see the file's head.
        let (name, jobid) = unsafe { (key(name)?, text::bytes(jobid).unwrap_or_default()) };
        given(value)?;
        if maxvalue <= 0 || jobid.len() > KVSNAME_LEN_MAX {
            return Err(Code::INVALID_LENGTH);
        }
        if job.requests.has_fence() {
            return Err(Code::FAIL);
        }
        let found = get(job, jobid, src_pmi_id, name)?.ok_or(Code::OTHER)?;
        let length = found.len() as c_int;
        // SAFETY: see the file's head.
        unsafe {
            let whole = text::write(&found, value, maxvalue);
            text::set(vallen, if whole { length } else { -length });
        }
        Ok(())
    }))
}

/// A value that a put may carry.
///
/// # Safety
/// As [`text::bytes`].
pub unsafe fn put_value<'a>(value: *const c_char) -> Result<&'a [u8]> {
    // SAFETY: the caller says so.
    match unsafe { text::bytes(value) } {
        None | Some(b"") => Err(Code::INVALID_VAL),
        Some(value) if value.len() > VALUE_LEN_MAX => Err(Code::INVALID_VAL_LENGTH),
        Some(value) => Ok(value),
    }
}

fn put(job: &mut Job, key: &[u8], value: &[u8]) -> Result {
    match &mut job.with {
        With::Nobody(local) => local.put(key, value),
        With::Server(server) => {
            let (mut sent_key, mut sent_value) = (Vec::new(), Vec::new());
            double(key, &mut sent_key);
            double(value, &mut sent_value);
            server.tell(&Request::Put { kvsname: None, key: &sent_key, value: &sent_value })?;
        }
    }
    Ok(())
}

fn get(job: &mut Job, jobid: &[u8], source: c_int, key: &[u8]) -> Result<Option<Vec<u8>>> {
    if let With::Nobody(local) = &job.with {
        return Ok(local.get(key).map(<[u8]>::to_vec));
    }
    let (mut sent_key, mut sent_job) = (Vec::new(), Vec::new());
    double(key, &mut sent_key);
    double(jobid, &mut sent_job);
    // MPICH's servers do not take empty fields.
    let kvsname = Some(&sent_job[..]).filter(|name| !name.is_empty());
    job.look_up(&Request::Get { kvsname, key: &sent_key, source: Some(source) })
}
