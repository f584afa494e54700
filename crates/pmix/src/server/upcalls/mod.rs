//! Functions that the library calls on behalf of its clients, on its own thread.
//!
//! For an upcall that returns "success" we call back later, always from separate work on the library's thread. For one
//! that returns "operation succeeded" or any error we never call back. Nothing here waits.

mod control;
mod events;
mod exchange;
mod lifecycle;
mod names;
pub mod query;
mod spawn;

use super::state::{Callback, Server};
use crate::read::{Read, View};
use crate::sys::constants::{key, status};
use crate::sys::types::{OpCallback, PmixInfo, ServerModule, Status};
use std::ffi::c_void;

/// The function table given to the library. The library itself refuses operations that are missing here.
pub fn module() -> ServerModule {
    ServerModule {
        client_connected2: Some(lifecycle::connected),
        client_finalized: Some(lifecycle::finalized),
        abort: Some(lifecycle::abort),
        fence_nb: Some(exchange::fence),
        direct_modex: Some(exchange::direct_modex),
        group: Some(exchange::group),
        publish: Some(names::publish),
        lookup: Some(names::lookup),
        unpublish: Some(names::unpublish),
        spawn: Some(spawn::spawn),
        connect: Some(exchange::connect),
        disconnect: Some(exchange::disconnect),
        register_events: Some(events::register),
        deregister_events: Some(events::deregister),
        notify_event: Some(events::raised),
        query: Some(query::query),
        log: Some(control::log),
        job_control: Some(control::job_control),
        ..ServerModule::default()
    }
}

/// Confirms an operation after the upcall has returned.
fn acknowledge(server: &'static Server, callback: Option<OpCallback>, data: *mut c_void, code: Status) -> Status {
    let Some(callback) = Callback::new(callback, data) else {
        return if code == status::SUCCESS { status::OPERATION_SUCCEEDED } else { code };
    };
    server.on_library_thread(move || callback.op(code));
    status::SUCCESS
}

impl Callback<OpCallback> {
    pub fn op(self, code: Status) {
        // SAFETY: the library's own function and data, used once; this is its thread.
        unsafe { (self.function)(code, self.data) };
    }
}

/// The client's timeout (s). Zero means none.
fn timeout_in(infos: View<'_>) -> Option<u32> {
    infos.find(key::TIMEOUT).and_then(Read::number).and_then(|seconds| u32::try_from(seconds).ok()).filter(|&s| s > 0)
}

/// # Safety
/// Those of [`View::new`].
unsafe fn view<'a>(infos: *const PmixInfo, count: usize) -> View<'a> {
    // SAFETY: the caller guarantees it.
    unsafe { View::new(infos, count) }
}
