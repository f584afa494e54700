//! Publishing and looking up names. Info keys are not sent, as in Slurm's library.
// SAFETY of every function here: C callers follow the rules of `pmi2.h` for pointers; null pointers are checked.

use crate::state::{given, required, with_job};
use alloc::vec::Vec;
use core::ffi::{c_char, c_int, c_void};
use wireup_capi::codes::{Code, returned};
use wireup_capi::text;
use wireup_client::escape::{double, halve};
use wireup_wire::pmi::Request;

fn sendable(text: &[u8]) -> Vec<u8> {
    let mut sendable = Vec::new();
    double(text, &mut sendable);
    sendable
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Nameserv_publish(
    service_name: *const c_char,
    _info: *const c_void,
    port: *const c_char,
) -> c_int {
    returned(with_job(|job| {
        // SAFETY: see the top of the file.
        let (name, port) = unsafe { (sendable(required(service_name)?), sendable(required(port)?)) };
        Ok(job.server()?.tell(&Request::PublishName { name: &name, port: &port })?)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Nameserv_lookup(
    service_name: *const c_char,
    _info: *const c_void,
    port: *mut c_char,
    port_len: c_int,
) -> c_int {
    returned(with_job(|job| {
        // SAFETY: see the top of the file.
        let name = unsafe { sendable(required(service_name)?) };
        given(port)?;
        let (mut found, mut plain) = (None, Vec::new());
        job.server()?.call(&Request::LookupName { name: &name }, &mut |fields| {
            found = fields.get("value").or(fields.get("port")).map(|port| halve(port, &mut plain).to_vec());
        })?;
        // SAFETY: see the top of the file.
        match found {
            None => Err(Code::OTHER),
            Some(found) if unsafe { text::write(&found, port, port_len) } => Ok(()),
            Some(_) => Err(Code::INVALID_LENGTH),
        }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Nameserv_unpublish(service_name: *const c_char, _info: *const c_void) -> c_int {
    returned(with_job(|job| {
        // SAFETY: see the top of the file.
        let name = unsafe { sendable(required(service_name)?) };
        Ok(job.server()?.tell(&Request::UnpublishName { name: &name })?)
    }))
}
