//! Upcalls when ranks connect, finalize or abort.

use crate::read::c_str;
use crate::server::state::server;
use crate::sys::constants::status;
use crate::sys::types::{OpCallback, PmixInfo, PmixProc, Status};
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::Ordering;
use wireup_wire::ids::Rank;
use wireup_wire::pmix::FromServer;

/// Maximum length of an abort message that is passed on, in characters (chosen).
const MESSAGE_CHARS_MAX: usize = 4096;

/// Accepts a client that has passed the library's own checks. Version 4.2 passes no callback.
pub unsafe extern "C" fn connected(
    proc: *const PmixProc,
    _: *mut c_void,
    _: *mut PmixInfo,
    _: usize,
    _: Option<OpCallback>,
    _: *mut c_void,
) -> Status {
    // SAFETY: the library lends us the name for the call.
    let proc = unsafe { &*proc };
    let server = server();
    if let Some(rank) = server.rank_of(proc) {
        server.outbox.send(&FromServer::Connected { rank });
        // The main thread must watch this client's socket from now on, to acknowledge its bytes.
        server.outbox.nudge();
        // The library does not report whether the rank waits for events of the job, so we assume that the rank waits
        // for them.
        if !server.watches.swap(true, Ordering::Relaxed) {
            server.outbox.send(&FromServer::Watch);
        }
    }
    status::OPERATION_SUCCEEDED
}

pub unsafe extern "C" fn finalized(
    proc: *const PmixProc,
    _: *mut c_void,
    _: Option<OpCallback>,
    _: *mut c_void,
) -> Status {
    // SAFETY: the library lends us the name for the call.
    let proc = unsafe { &*proc };
    let server = server();
    if let Some(rank) = server.rank_of(proc) {
        server.outbox.send(&FromServer::Finalized { rank });
        server.has_left(rank);
    }
    status::OPERATION_SUCCEEDED
}

/// Aborts the whole job, even if the rank wants to abort only some ranks. The callback is never called, so that the
/// rank's call does not return: if the rank exited before the job is ended, its connections would break, and ranks that
/// notice that first would be taken for the cause.
pub unsafe extern "C" fn abort(
    proc: *const PmixProc,
    _: *mut c_void,
    code: c_int,
    message: *const c_char,
    _: *mut PmixProc,
    _: usize,
    _: Option<OpCallback>,
    _: *mut c_void,
) -> Status {
    // SAFETY: the library lends them to us for the call.
    let (proc, message) = unsafe { (&*proc, c_str(message)) };
    let server = server();
    let Some(rank) = server.rank_of(proc) else { return status::BAD_PARAM };
    let message =
        message.map(|text| text.to_string_lossy().chars().take(MESSAGE_CHARS_MAX).collect()).unwrap_or_default();
    server.outbox.send(&FromServer::Abort { rank: Rank(rank.0), code, message });
    status::SUCCESS
}
