//! Upcalls for logging and job control.

use crate::infos::Infos;
use crate::read::{Read, View, slice};
use crate::server::state::{Callback, Waiting, acknowledge, server};
use crate::sys::constants::{key, status};
use crate::sys::types::{InfoCallback, OpCallback, PmixInfo, PmixProc, Status};
use std::ffi::{CStr, c_void};
use wireup_wire::pmix::{Action, Ask, FromServer, Set};

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
