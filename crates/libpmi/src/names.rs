//! Services by name.
// SAFETY of every function here: C callers follow the rules of `pmi.h` for pointers; null pointers are checked.

use crate::codes::{Code, Result, returned};
use crate::state::{Job, With, given, with_job, word, write_whole};
use alloc::vec::Vec;
use core::ffi::{c_char, c_int};
use wireup_client::local::Wish;
use wireup_wire::pmi::Request;

/// `PMI_MAX_PORT_NAME`: the size of the port buffer that every caller provides.
const PORT_ROOM: c_int = 1024;

/// Publishes, looks up or unpublishes a name; returns the port of a look-up.
fn ask(job: &mut Job, name: &[u8], wish: Wish<'_>) -> Result<Vec<u8>> {
    let found = match &mut job.with {
        With::Singleton(local) => local.name(name, wish),
        With::Server(server) => match wish {
            Wish::Publish(port) => Some(server.tell(&Request::PublishName { name, port }).map(|()| Vec::new())?),
            Wish::LookUp => server.question(&Request::LookupName { name }, "port")?,
            Wish::Unpublish => Some(server.tell(&Request::UnpublishName { name }).map(|()| Vec::new())?),
        },
    };
    found.ok_or(Code::FAIL)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Publish_name(service_name: *const c_char, port: *const c_char) -> c_int {
    returned(with_job(|job| {
        // SAFETY: see the top of the file.
        let (name, port) = unsafe { (word(service_name, Code::INVALID_ARG)?, word(port, Code::INVALID_ARG)?) };
        ask(job, name, Wish::Publish(port)).map(drop)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Unpublish_name(service_name: *const c_char) -> c_int {
    returned(with_job(|job| {
        // SAFETY: see the top of the file.
        ask(job, unsafe { word(service_name, Code::INVALID_ARG)? }, Wish::Unpublish).map(drop)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Lookup_name(service_name: *const c_char, port: *mut c_char) -> c_int {
    returned(with_job(|job| {
        // SAFETY: see the top of the file.
        let name = unsafe { word(service_name, Code::INVALID_ARG)? };
        given(port)?;
        let found = ask(job, name, Wish::LookUp)?;
        // SAFETY: see the top of the file.
        unsafe { write_whole(&found, port, PORT_ROOM) }
    }))
}
