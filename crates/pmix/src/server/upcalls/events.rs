//! Upcalls for events that ranks register for or raise.

use crate::outbox::DATA_LEN_MAX;
use crate::packing::pack_infos;
use crate::read::{Read, View};
use crate::server::state::{Server, acknowledge, server};
use crate::sys::constants::{key, range, status};
use crate::sys::types::{OpCallback, PmixInfo, PmixProc, Status};
use std::ffi::c_void;
use wireup_wire::pmix::{Event, FromServer, Set};

/// Accepts a request for events of the machine, of which there are none; events of the job are delivered anyway.
pub unsafe extern "C" fn register(
    _: *mut Status,
    _: usize,
    _: *const PmixInfo,
    _: usize,
    callback: Option<OpCallback>,
    data: *mut c_void,
) -> Status {
    acknowledge(server(), callback, data, status::SUCCESS)
}

pub unsafe extern "C" fn deregister(
    _: *mut Status,
    _: usize,
    callback: Option<OpCallback>,
    data: *mut c_void,
) -> Status {
    acknowledge(server(), callback, data, status::SUCCESS)
}

/// Passes on an event that a rank of this node has raised; the library has already notified other ranks of this node.
pub unsafe extern "C" fn raised(
    code: Status,
    source: *const PmixProc,
    range: u8,
    infos: *mut PmixInfo,
    count: usize,
    _: Option<OpCallback>,
    _: *mut c_void,
) -> Status {
    // SAFETY: the library lends us both for the call.
    let (source, infos) = unsafe { (&*source, View::new(infos, count)) };
    let server = server();
    // Events of the library itself (such as the loss of a client) are dropped: the agent detects these on its own.
    let Some(from) = server.rank_of(source) else { return status::OPERATION_SUCCEEDED };
    let Some(to) = targets(server, range, infos) else { return status::BAD_PARAM };
    let affected = infos.find(key::EVENT_AFFECTED_PROC).and_then(Read::proc).and_then(|proc| server.rank_of(proc));
    let Some(infos) = pack_infos(&server.library.functions, infos.as_slice()) else { return status::BAD_PARAM };
    if infos.len() > DATA_LEN_MAX {
        return status::OUT_OF_RESOURCE;
    }
    if matches!(range, range::LOCAL | range::PROC_LOCAL) {
        return status::OPERATION_SUCCEEDED;
    }
    server.outbox.send(&FromServer::Raise { from, code: code_of(code), affected, to, infos });
    // If we called back instead of returning this result, version 4.2 would free its request twice.
    status::OPERATION_SUCCEEDED
}

/// The ranks that should receive an event: with a custom range, the processes that the range lists.
fn targets(server: &Server, range: u8, infos: View<'_>) -> Option<Set> {
    if range != range::CUSTOM {
        return Some(Set::All);
    }
    let value = infos.find(key::EVENT_CUSTOM_RANGE)?;
    match (value.procs(), value.proc()) {
        (Some(procs), _) => server.set_of(procs),
        (None, Some(proc)) => server.set_of(std::slice::from_ref(proc)),
        (None, None) => None,
    }
}

/// The event as agents represent it.
pub fn code_of(code: Status) -> Event {
    match code {
        status::PROC_ABORTED => Event::ProcAborted,
        other => Event::Library(other),
    }
}
