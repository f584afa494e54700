//! Services by name.
// SAFETY of every function here: C callers follow the rules of `pmi.h` for pointers; null pointers are checked.

use crate::codes::{Code, returned};
use crate::state::{given, with_job, word, write_whole};
use core::ffi::{c_char, c_int};
use wireup_wire::pmi::Request;

/// `PMI_MAX_PORT_NAME`: the size of the port buffer that every caller provides.
const PORT_ROOM: c_int = 1024;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Publish_name(service_name: *const c_char, port: *const c_char) -> c_int {
    returned(with_job(|job| {
        // SAFETY: see the top of the file.
        let (name, port) = unsafe { (word(service_name, Code::INVALID_ARG)?, word(port, Code::INVALID_ARG)?) };
        Ok(job.server()?.tell(&Request::PublishName { name, port })?)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Unpublish_name(service_name: *const c_char) -> c_int {
    returned(with_job(|job| {
        // SAFETY: see the top of the file.
        let name = unsafe { word(service_name, Code::INVALID_ARG)? };
        Ok(job.server()?.tell(&Request::UnpublishName { name })?)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Lookup_name(service_name: *const c_char, port: *mut c_char) -> c_int {
    returned(with_job(|job| {
        // SAFETY: see the top of the file.
        let name = unsafe { word(service_name, Code::INVALID_ARG)? };
        given(port)?;
        let found = job.server()?.question(&Request::LookupName { name }, "port")?.ok_or(Code::FAIL)?;
        // SAFETY: see the top of the file.
        unsafe { write_whole(&found, port, PORT_ROOM) }
    }))
}
