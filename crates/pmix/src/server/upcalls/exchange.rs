//! Fences, direct modex, groups and connections.

use super::{timeout_in, view};
use crate::read::{Read, View, c_str, slice};
use crate::server::state::{Callback, Waiting, server};
use crate::sys::constants::{group as operation, key, status};
use crate::sys::types::{InfoCallback, ModexCallback, OpCallback, PmixInfo, PmixProc, Status};
use bytes::Bytes;
use std::ffi::{c_char, c_int, c_void};
use wireup_wire::pmix::{Ask, Wanted};

/// All members on this node have entered. `data` is allocated with `malloc` and belongs to us from now on.
pub unsafe extern "C" fn fence(
    procs: *const PmixProc,
    proc_count: usize,
    infos: *const PmixInfo,
    info_count: usize,
    data: *mut c_char,
    len: usize,
    callback: Option<ModexCallback>,
    callback_data: *mut c_void,
) -> Status {
    // SAFETY: the library lends us the rest for the call, and gives us `data`.
    let (procs, infos, bytes) = unsafe {
        let bytes = Bytes::copy_from_slice(slice(data.cast_const().cast::<u8>(), len));
        libc::free(data.cast());
        (slice(procs, proc_count), view(infos, info_count), bytes)
    };
    let server = server();
    let Some(set) = server.set_of(procs) else { return not_our_job() };
    let Some(callback) = Callback::new(callback, callback_data) else { return status::BAD_PARAM };
    let collect = infos.is_true(key::COLLECT_DATA);
    let data = if collect { bytes } else { Bytes::new() };
    let timeout_s = timeout_in(infos);
    server.ask(Ask::Fence { set, collect, data, timeout_s }, Waiting::Modex(callback))
}

/// A rank of this node wants data that a rank of another node has committed.
pub unsafe extern "C" fn direct_modex(
    proc: *const PmixProc,
    infos: *const PmixInfo,
    info_count: usize,
    callback: Option<ModexCallback>,
    callback_data: *mut c_void,
) -> Status {
    // SAFETY: the library lends them to us for the call.
    let (proc, infos) = unsafe { (&*proc, view(infos, info_count)) };
    let server = server();
    let Some(callback) = Callback::new(callback, callback_data) else { return status::BAD_PARAM };
    // The library itself has the data about the job as a whole; other jobs are unknown here.
    let Some(rank) = server.rank_of(proc) else { return status::NOT_FOUND };
    let key = infos.find(key::REQUIRED_KEY).and_then(Read::text).map(str::to_owned);
    server.ask(Ask::Modex(Wanted { rank, key, timeout_s: timeout_in(infos) }), Waiting::Modex(callback))
}

/// All members on this node have entered the construction or destruction of a group.
pub unsafe extern "C" fn group(
    what: c_int,
    name: *mut c_char,
    procs: *const PmixProc,
    proc_count: usize,
    infos: *const PmixInfo,
    info_count: usize,
    callback: Option<InfoCallback>,
    callback_data: *mut c_void,
) -> Status {
    // SAFETY: the library lends us all of it for the call.
    let (procs, infos, name) = unsafe { (slice(procs, proc_count), view(infos, info_count), c_str(name.cast_const())) };
    let server = server();
    match what {
        operation::CONSTRUCT => {}
        // All members here have entered, which is enough. If this were answered later, 5.0 would free memory twice.
        operation::DESTRUCT => return status::OPERATION_SUCCEEDED,
        _ => return status::NOT_SUPPORTED,
    }
    let (Some(name), Some(callback)) = (name, Callback::new(callback, callback_data)) else { return status::BAD_PARAM };
    let Some(set) = server.set_of(procs) else { return not_our_job() };
    let wants_context = infos.is_true(key::GROUP_ASSIGN_CONTEXT_ID);
    let data = infos.find(key::GROUP_ENDPT_DATA).and_then(Read::bytes).map(Bytes::copy_from_slice).unwrap_or_default();
    let ask = Ask::Group {
        name: name.to_string_lossy().into_owned(),
        set: set.clone(),
        wants_context,
        data,
        timeout_s: timeout_in(infos),
    };
    server.ask(ask, Waiting::Group { callback, ranks: set, wants_context })
}

/// The names of these operations as groups. No program can name a group like this: its names end at a NUL.
const CONNECT: &str = "connect\0";
const DISCONNECT: &str = "disconnect\0";

/// All members on this node have called `PMIx_Connect`. The members of one job know each other, so it is a barrier.
pub unsafe extern "C" fn connect(
    procs: *const PmixProc,
    proc_count: usize,
    infos: *const PmixInfo,
    info_count: usize,
    callback: Option<OpCallback>,
    callback_data: *mut c_void,
) -> Status {
    // SAFETY: the library lends us both for the call.
    let (procs, infos) = unsafe { (slice(procs, proc_count), view(infos, info_count)) };
    barrier(CONNECT, procs, infos, Callback::new(callback, callback_data))
}

/// The same for `PMIx_Disconnect`.
pub unsafe extern "C" fn disconnect(
    procs: *const PmixProc,
    proc_count: usize,
    infos: *const PmixInfo,
    info_count: usize,
    callback: Option<OpCallback>,
    callback_data: *mut c_void,
) -> Status {
    // SAFETY: the library lends us both for the call.
    let (procs, infos) = unsafe { (slice(procs, proc_count), view(infos, info_count)) };
    barrier(DISCONNECT, procs, infos, Callback::new(callback, callback_data))
}

fn barrier(name: &str, procs: &[PmixProc], infos: View<'_>, callback: Option<Callback<OpCallback>>) -> Status {
    let server = server();
    let Some(set) = server.set_of(procs) else { return not_our_job() };
    let Some(callback) = callback else { return status::BAD_PARAM };
    let ask =
        Ask::Group { name: name.into(), set, wants_context: false, data: Bytes::new(), timeout_s: timeout_in(infos) };
    server.ask(ask, Waiting::Op(callback))
}

/// Refuses a collective with another job: no job is connected to this one.
fn not_our_job() -> Status {
    eprintln!("a PMIx collective across several jobs is not supported");
    status::NOT_SUPPORTED
}
