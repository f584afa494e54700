//! Publishing and looking up names. Info keys are not sent, as in Slurm's library.
// SAFETY of every function here: C callers follow the rules of `pmi2.h` for pointers; null pointers are checked.

use crate::state::{JOB, given};
use core::ffi::{c_char, c_int, c_void};
use core::ptr::null_mut;
use wireup_capi::codes::{Code, returned};
use wireup_capi::job::Wish;
use wireup_capi::text::{self, required};

#[derive(Clone, Copy)]
enum Call {
    Publish,
    LookUp,
    Unpublish,
}

/// Publishes, looks up or unpublishes a name: one function for all, which makes the library smaller.
///
/// # Safety
/// See the top of the file.
unsafe fn ask(call: Call, service_name: *const c_char, port: *mut c_char, room: c_int) -> c_int {
    returned(JOB.with(|job| {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let name = required(service_name)?;
            let wish = match call {
                Call::Publish => Wish::Publish(required(port)?),
                Call::LookUp => given(port).map(|_| Wish::LookUp)?,
                Call::Unpublish => Wish::Unpublish,
            };
            let found = job.name(name, wish)?;
            let is_written = !matches!(call, Call::LookUp) || text::write(&found, port, room);
            if is_written { Ok(()) } else { Err(Code::INVALID_LENGTH) }
        }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Nameserv_publish(
    service_name: *const c_char,
    _info: *const c_void,
    port: *const c_char,
) -> c_int {
    // SAFETY: see the top of the file.
    unsafe { ask(Call::Publish, service_name, port.cast_mut(), 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Nameserv_lookup(
    service_name: *const c_char,
    _info: *const c_void,
    port: *mut c_char,
    port_len: c_int,
) -> c_int {
    // SAFETY: see the top of the file.
    unsafe { ask(Call::LookUp, service_name, port, port_len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Nameserv_unpublish(service_name: *const c_char, _info: *const c_void) -> c_int {
    // SAFETY: see the top of the file.
    unsafe { ask(Call::Unpublish, service_name, null_mut(), 0) }
}
