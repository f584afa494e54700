//! Upcalls of single ranks: they connect, finalize or abort, have text shown, control the job, and register for events
//! or raise them.

use crate::infos::Infos;
use crate::outbox::DATA_LEN_MAX;
use crate::packing::pack_infos;
use crate::read::{Read, View, c_str, slice};
use crate::server::state::{Callback, Server, Waiting, acknowledge, server};
use crate::sys::constants::{key, range, status};
use crate::sys::types::{InfoCallback, OpCallback, PmixInfo, PmixProc, Status};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::Ordering;
use wireup_wire::ids::Rank;
use wireup_wire::pmix::{Action, Ask, Event, FromServer, Set};

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

/// Maximum length of one log text (bytes); the rest is cut off. Chosen: as much as a pipe holds.
const LOG_LEN_MAX: usize = 64 << 10;

/// Passes on text that a rank wants shown with its output. Other logs (syslog, mail) are not supported.
pub unsafe extern "C" fn log(
    client: *const PmixProc,
    infos: *const PmixInfo,
    count: usize,
    _: *const PmixInfo,
    _: usize,
    callback: Option<OpCallback>,
    data: *mut c_void,
) {
    // SAFETY: the library lends us both for the call.
    let (client, infos) = unsafe { (&*client, View::new(infos, count)) };
    let server = server();
    let mut code = status::NOT_SUPPORTED;
    for (name, value) in infos.iter() {
        let stream = match name {
            name if name == key::LOG_STDOUT => 1,
            name if name == key::LOG_STDERR => 2,
            _ => continue,
        };
        if let (Some(rank), Some(text)) = (server.rank_of(client), value.text_bytes()) {
            let text = text[..text.len().min(LOG_LEN_MAX)].to_vec();
            let taken = server.outbox.send(&FromServer::Log { rank, stream, text });
            code = if taken { status::SUCCESS } else { status::OUT_OF_RESOURCE };
        }
    }
    acknowledge(server, callback, data, code);
}

/// Hints that a job may give about itself: that the job can be preempted, and how the job makes checkpoints. wireup
/// neither preempts jobs nor makes checkpoints, so hints are accepted and ignored.
const HINTS: [&CStr; 5] = [
    key::JOB_CTRL_ID,
    key::JOB_CTRL_PREEMPTIBLE,
    key::JOB_CTRL_CHECKPOINT_METHOD,
    key::JOB_CTRL_CHECKPOINT_EVENT,
    key::JOB_CTRL_CHECKPOINT_SIGNAL,
];

/// Ends ranks, or sends them a signal; accepts and ignores hints.
pub unsafe extern "C" fn job_control(
    requestor: *const PmixProc,
    targets: *const PmixProc,
    target_count: usize,
    infos: *const PmixInfo,
    count: usize,
    callback: Option<InfoCallback>,
    data: *mut c_void,
) -> Status {
    // SAFETY: the library lends us all of it for the call.
    let (requestor, targets, infos) = unsafe { (&*requestor, slice(targets, target_count), View::new(infos, count)) };
    let server = server();
    let Some(from) = server.rank_of(requestor) else { return status::BAD_PARAM };
    let Some(callback) = Callback::new(callback, data) else { return status::BAD_PARAM };
    let set = if targets.is_empty() { Some(Set::All) } else { server.set_of(targets) };
    let Some(set) = set else { return status::NOT_FOUND };
    let action = if infos.is_true(key::JOB_CTRL_KILL) {
        Action::Kill
    } else if infos.is_true(key::JOB_CTRL_TERMINATE) {
        Action::Terminate
    } else if let Some(signal) = infos.find(key::JOB_CTRL_SIGNAL).and_then(Read::number) {
        let Ok(signal) = i32::try_from(signal) else { return status::BAD_PARAM };
        Action::Signal(signal)
    } else if infos.iter().all(|(name, _)| HINTS.contains(&name)) {
        server.on_library_thread(move || callback.infos(status::SUCCESS, Infos::new()));
        return status::SUCCESS;
    } else {
        return status::NOT_SUPPORTED;
    };
    server.ask(Ask::Control { from, set, action }, Waiting::Control(callback))
}

/// Accepts a request for events of the machine, of which there are none; events of the job are delivered anyway.
pub unsafe extern "C" fn register_events(
    _: *mut Status,
    _: usize,
    _: *const PmixInfo,
    _: usize,
    callback: Option<OpCallback>,
    data: *mut c_void,
) -> Status {
    acknowledge(server(), callback, data, status::SUCCESS)
}

pub unsafe extern "C" fn deregister_events(
    _: *mut Status,
    _: usize,
    callback: Option<OpCallback>,
    data: *mut c_void,
) -> Status {
    acknowledge(server(), callback, data, status::SUCCESS)
}

/// Passes on an event that a rank of this node has raised; the library has already notified other ranks of this node.
pub unsafe extern "C" fn notify_event(
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
