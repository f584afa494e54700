//! Put, fence, get.
// SAFETY of every function here: C callers follow the rules of `pmi2.h` for pointers; null pointers are checked.

use crate::state::{JOB, given};
use core::ffi::{c_char, c_int};
use wireup_capi::codes::{Code, Result, returned};
use wireup_capi::text;
use wireup_client::emulated::KEY_PREFIX;
use wireup_wire::limits::{KEY_LEN_MAX, KVSNAME_LEN_MAX, VALUE_LEN_MAX};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_KVS_Put(name: *const c_char, value: *const c_char) -> c_int {
    // SAFETY: see the top of the file.
    returned(JOB.with(|job| unsafe {
        let name = key(name)?;
        if name.starts_with(KEY_PREFIX) {
            return Err(Code::INVALID_KEY);
        }
        job.put(name, put_value(value)?)
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn PMI2_KVS_Fence() -> c_int {
    returned(JOB.with(|job| {
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
    returned(JOB.with(|job| {
        // SAFETY: see the top of the file.
        let (name, jobid) = unsafe { (key(name)?, text::bytes(jobid).unwrap_or_default()) };
        given(value)?;
        if maxvalue <= 0 || jobid.len() > KVSNAME_LEN_MAX {
            return Err(Code::INVALID_LENGTH);
        }
        if job.collectives.requests.has_fence() {
            return Err(Code::FAIL);
        }
        let found = job.get(jobid, src_pmi_id, name, &mut |found| {
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

/// A key from C.
///
/// # Safety
/// As [`text::bytes`].
pub unsafe fn key<'a>(key: *const c_char) -> Result<&'a [u8]> {
    // SAFETY: guaranteed by the caller.
    match unsafe { text::bytes(key) } {
        None | Some(b"") => Err(Code::INVALID_KEY),
        Some(key) if key.len() > KEY_LEN_MAX => Err(Code::INVALID_KEY_LENGTH),
        Some(key) => Ok(key),
    }
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
