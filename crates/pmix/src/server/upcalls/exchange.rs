//! Upcalls for fences, direct modex, groups and connections.

use crate::read::{Read, View, c_str, slice, text_in};
use crate::server::state::{Callback, Members, Server, Waiting, server};
use crate::sys::constants::{group as operation, key, rank, status};
use crate::sys::types::{InfoCallback, ModexCallback, OpCallback, PmixInfo, PmixProc, Status};
use bytes::Bytes;
use std::ffi::{c_char, c_int, c_void};
use wireup_wire::ids::Rank;
use wireup_wire::inter_job::{Fetch, Joint, Purpose};
use wireup_wire::limits::PMIX_KEY_LEN_MAX;
use wireup_wire::pmix::{Ask, Set, Wanted};

/// Starts a fence: all members on this node have entered. `data` is allocated with `malloc` and belongs to us.
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
        (slice(procs, proc_count), View::new(infos, info_count), bytes)
    };
    let server = server();
    let Some(members) = server.members_of(procs) else { return status::BAD_PARAM };
    let Some(callback) = Callback::new(callback, callback_data) else { return status::BAD_PARAM };
    let collect = infos.is_true(key::COLLECT_DATA);
    let data = if collect { bytes } else { Bytes::new() };
    let timeout_s = infos.timeout_s();
    let ask = match members {
        Members::Own(set) => Ask::Fence { set, collect, data, timeout_s },
        Members::OfJobs(members) => join(Purpose::Fence, members, data, timeout_s),
    };
    server.ask(ask, Waiting::Modex(callback))
}

/// Requests data that a rank of another node has committed, for a rank of this node.
pub unsafe extern "C" fn direct_modex(
    proc: *const PmixProc,
    infos: *const PmixInfo,
    info_count: usize,
    callback: Option<ModexCallback>,
    callback_data: *mut c_void,
) -> Status {
    // SAFETY: the library lends them to us for the call.
    let (proc, infos) = unsafe { (&*proc, View::new(infos, info_count)) };
    let server = server();
    let Some(callback) = Callback::new(callback, callback_data) else { return status::BAD_PARAM };
    if !server.begins_modex(callback_data) {
        return status::SUCCESS;
    }
    let code = match modex(server, proc, infos) {
        Ok(Ask::Fetch(fetch)) => {
            let unknown = fetch.is_new.then(|| fetch.nspace.clone());
            server.ask(Ask::Fetch(fetch), Waiting::Fetch { callback, unknown })
        }
        Ok(ask) => server.ask(ask, Waiting::Modex(callback)),
        Err(code) => code,
    };
    if code != status::SUCCESS {
        server.ends_modex(callback_data);
    }
    code
}

/// Makes the request for data of a rank, or of a job that is not known.
fn modex(server: &Server, proc: &PmixProc, infos: View<'_>) -> Result<Ask, Status> {
    let wanted = |rank| {
        let key = infos.find(key::REQUIRED_KEY).and_then(Read::text).map(str::to_owned);
        Wanted { rank, key, timeout_s: infos.timeout_s() }
    };
    if server.is_ours(proc) {
        // The library itself has the data about this job as a whole.
        return server.rank_of(proc).map(|rank| Ask::Modex(wanted(rank))).ok_or(status::NOT_FOUND);
    }
    let nspace = text_in(&proc.nspace).to_str().map_err(|_| status::NOT_FOUND)?;
    let is_new = !server.others.has(nspace);
    // The data of another job as a whole is registered with the library, unless the job is new.
    let is_of_job = proc.rank >= rank::WILDCARD;
    if is_of_job && !is_new {
        return Err(status::NOT_FOUND);
    }
    let wanted = (!is_of_job).then(|| wanted(Rank(proc.rank)));
    Ok(Ask::Fetch(Fetch { nspace: nspace.to_owned(), wanted, is_new }))
}

fn join(purpose: Purpose, members: Vec<(String, Set)>, data: Bytes, timeout_s: Option<u32>) -> Ask {
    Ask::Join { joint: Joint { purpose, members, data }, timeout_s }
}

/// Starts the construction or destruction of a group: all members on this node have entered.
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
    let (procs, infos, name) =
        unsafe { (slice(procs, proc_count), View::new(infos, info_count), c_str(name.cast_const())) };
    let server = server();
    match what {
        operation::CONSTRUCT => {}
        // All members on this node have entered, which is enough. A later answer would make 5.0 free memory twice.
        operation::DESTRUCT => return status::OPERATION_SUCCEEDED,
        _ => return status::NOT_SUPPORTED,
    }
    let (Some(name), Some(callback)) = (name, Callback::new(callback, callback_data)) else { return status::BAD_PARAM };
    let Some(members) = server.members_of(procs) else { return status::BAD_PARAM };
    let wants_context = infos.is_true(key::GROUP_ASSIGN_CONTEXT_ID);
    let data = infos.find(key::GROUP_ENDPT_DATA).and_then(Read::bytes).map(Bytes::copy_from_slice).unwrap_or_default();
    if name.to_bytes().len() > PMIX_KEY_LEN_MAX {
        return status::BAD_PARAM;
    }
    let (name, timeout_s) = (name.to_string_lossy().into_owned(), infos.timeout_s());
    let until = server.awaited_until(&members, timeout_s);
    let ask = match members.clone() {
        Members::Own(set) => Ask::Group { name, set, wants_context, data, timeout_s },
        Members::OfJobs(members) => join(Purpose::Group(name), members, data, timeout_s),
    };
    server.ask(ask, Waiting::Group { callback, members, wants_context, until })
}

/// Group name that stands for `PMIx_Connect`. No program's group has this name, because a C string ends at its NUL.
const CONNECT: &str = "connect\0";
const DISCONNECT: &str = "disconnect\0";

/// Starts `PMIx_Connect`: all members on this node have called it. For members of one job, which know each other, the
/// call is a barrier; members of several jobs receive the data of the other jobs.
pub unsafe extern "C" fn connect(
    procs: *const PmixProc,
    proc_count: usize,
    infos: *const PmixInfo,
    info_count: usize,
    callback: Option<OpCallback>,
    callback_data: *mut c_void,
) -> Status {
    // SAFETY: the library lends us both for the call.
    let (procs, infos) = unsafe { (slice(procs, proc_count), View::new(infos, info_count)) };
    meet((CONNECT, Purpose::Connect), procs, infos, Callback::new(callback, callback_data))
}

/// Starts `PMIx_Disconnect`: all members on this node have called it.
pub unsafe extern "C" fn disconnect(
    procs: *const PmixProc,
    proc_count: usize,
    infos: *const PmixInfo,
    info_count: usize,
    callback: Option<OpCallback>,
    callback_data: *mut c_void,
) -> Status {
    // SAFETY: the library lends us both for the call.
    let (procs, infos) = unsafe { (slice(procs, proc_count), View::new(infos, info_count)) };
    meet((DISCONNECT, Purpose::Disconnect), procs, infos, Callback::new(callback, callback_data))
}

fn meet(
    (name, purpose): (&str, Purpose),
    procs: &[PmixProc],
    infos: View<'_>,
    callback: Option<Callback<OpCallback>>,
) -> Status {
    let server = server();
    let Some(members) = server.members_of(procs) else { return status::BAD_PARAM };
    let Some(callback) = callback else { return status::BAD_PARAM };
    let timeout_s = infos.timeout_s();
    let until = server.awaited_until(&members, timeout_s);
    let ask = match members {
        Members::Own(set) => Ask::Group { name: name.into(), set, wants_context: false, data: Bytes::new(), timeout_s },
        Members::OfJobs(members) => join(purpose, members, Bytes::new(), timeout_s),
    };
    server.ask(ask, Waiting::Meet { callback, until })
}
