//! Helpers for all upcalls: confirm operations, and read common infos.

use crate::read::{Read, View};
use crate::server::state::{Callback, Server};
use crate::sys::constants::{key, status};
use crate::sys::types::{OpCallback, Status};
use std::ffi::c_void;

/// Confirms an operation by a callback after the upcall has returned or, if the library passes no callback, by the
/// upcall's result.
pub fn acknowledge(server: &'static Server, callback: Option<OpCallback>, data: *mut c_void, code: Status) -> Status {
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

/// The client's timeout in seconds; `None`: the client has set no timeout, or zero.
pub fn timeout_in(infos: View<'_>) -> Option<u32> {
    infos.find(key::TIMEOUT).and_then(Read::number).and_then(|seconds| u32::try_from(seconds).ok()).filter(|&s| s > 0)
}
