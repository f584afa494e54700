//! Upcalls for published key-value pairs, which the agents store and any node can look up.

use crate::packing::pack_value;
use crate::read::{Read, View, c_strs};
use crate::server::state::{Callback, Waiting, server};
use crate::sys::constants::{key, persist, range, status};
use crate::sys::types::{LookupCallback, OpCallback, PmixInfo, PmixProc, Status};
use bytes::Bytes;
use std::ffi::{CStr, c_char, c_void};
use wireup_wire::ids::Rank;
use wireup_wire::names::{self, Item, Keep, Publisher, Range, Value};
use wireup_wire::pmix::Ask;

/// Infos that say how to publish or look up; all other infos of a publish are pairs to publish.
const DIRECTIVES: [&CStr; 6] = [key::RANGE, key::PERSISTENCE, key::TIMEOUT, key::WAIT, key::USERID, key::GRPID];

pub unsafe extern "C" fn publish(
    proc: *const PmixProc,
    infos: *const PmixInfo,
    count: usize,
    callback: Option<OpCallback>,
    data: *mut c_void,
) -> Status {
    // SAFETY: the library lends us both for the call.
    let (proc, infos) = unsafe { (&*proc, View::new(infos, count)) };
    let server = server();
    let Some(from) = server.rank_of(proc) else { return status::BAD_PARAM };
    let Some(callback) = Callback::new(callback, data) else { return status::BAD_PARAM };
    let mut items = Vec::new();
    for (info, (key, read)) in infos.as_slice().iter().zip(infos.iter()) {
        if DIRECTIVES.contains(&key) {
            continue;
        }
        let value = match read.text_bytes() {
            Some(text) => Some(Value::Text(Bytes::copy_from_slice(text))),
            None => pack_value(&server.library.functions, &info.value).map(Value::Packed),
        };
        let Some(value) = value else { return status::BAD_PARAM };
        items.push(Item { name: Bytes::copy_from_slice(key.to_bytes()), value });
    }
    let ask = names::Ask::Publish { items, range: range_in(infos), keep: keep_in(infos) };
    server.ask(Ask::Names { from, ask }, Waiting::Op(callback))
}

pub unsafe extern "C" fn lookup(
    proc: *const PmixProc,
    keys: *mut *mut c_char,
    infos: *const PmixInfo,
    count: usize,
    callback: Option<LookupCallback>,
    data: *mut c_void,
) -> Status {
    // SAFETY: the library lends us all of it for the call.
    let asked = unsafe { KeyRequest::new(proc, keys, infos, count, callback, data) };
    let Some(KeyRequest { from, names, infos, callback }) = asked else { return status::BAD_PARAM };
    let wait = wait_in(infos, names.len());
    let ask = names::Ask::LookUp { names, range: range_in(infos), wait, timeout_s: infos.timeout_s() };
    server().ask(Ask::Names { from, ask }, Waiting::Lookup(callback))
}

pub unsafe extern "C" fn unpublish(
    proc: *const PmixProc,
    keys: *mut *mut c_char,
    infos: *const PmixInfo,
    count: usize,
    callback: Option<OpCallback>,
    data: *mut c_void,
) -> Status {
    // SAFETY: the library lends us all of it for the call.
    let asked = unsafe { KeyRequest::new(proc, keys, infos, count, callback, data) };
    let Some(KeyRequest { from, names, infos, callback }) = asked else { return status::BAD_PARAM };
    let ask = names::Ask::Withdraw { names, range: range_in(infos), by: Publisher::Rank };
    server().ask(Ask::Names { from, ask }, Waiting::Op(callback))
}

/// A lookup or an unpublish of some keys.
struct KeyRequest<'a, F> {
    from: Rank,
    names: Vec<Bytes>,
    infos: View<'a>,
    callback: Callback<F>,
}

impl<F> KeyRequest<'_, F> {
    /// Reads a request about keys; `None`: the request is not from a rank of this job, or has no callback.
    ///
    /// # Safety
    /// `proc` is valid; `keys` satisfies [`c_strs`], `infos` satisfies [`View::new`].
    unsafe fn new(
        proc: *const PmixProc,
        keys: *mut *mut c_char,
        infos: *const PmixInfo,
        count: usize,
        callback: Option<F>,
        data: *mut c_void,
    ) -> Option<Self> {
        // SAFETY: the caller guarantees it.
        let (proc, infos, keys) = unsafe { (&*proc, View::new(infos, count), c_strs(keys.cast_const())) };
        let names = keys.iter().map(|key| Bytes::copy_from_slice(key.to_bytes())).collect();
        Some(KeyRequest { from: server().rank_of(proc)?, names, infos, callback: Callback::new(callback, data)? })
    }
}

/// The number of keys that a lookup waits for; zero in the info means all of them.
fn wait_in(infos: View<'_>, keys: usize) -> u32 {
    match infos.find(key::WAIT) {
        None => 0,
        Some(value) => match value.number() {
            Some(count) if count > 0 => u32::try_from(count).unwrap_or(u32::MAX).min(keys as u32),
            Some(_) => keys as u32,
            None if value.is_true() => keys as u32,
            None => 0,
        },
    }
}

/// How far a published name is visible: `PMIX_RANGE` in `infos`. Jobs of other sessions cannot look it up, so "global"
/// means the session.
fn range_in(infos: View<'_>) -> Range {
    match infos.find(key::RANGE).and_then(Read::number).and_then(|number| u8::try_from(number).ok()) {
        Some(range::LOCAL | range::PROC_LOCAL) => Range::Node,
        Some(range::NAMESPACE | range::CUSTOM) => Range::Job,
        _ => Range::Session,
    }
}

/// How long a published name is kept: `PMIX_PERSISTENCE` in `infos`. No name outlives its publisher's job.
fn keep_in(infos: View<'_>) -> Keep {
    match infos.find(key::PERSISTENCE).and_then(Read::number).and_then(|number| u8::try_from(number).ok()) {
        Some(persist::FIRST_READ) => Keep::FirstRead,
        Some(persist::PROC) => Keep::Rank,
        _ => Keep::Job,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infos::Infos;

    fn waited(add: impl FnOnce(&mut Infos) -> &mut Infos) -> u32 {
        let mut infos = Infos::new();
        add(&mut infos);
        // SAFETY: the list lives as long as the view.
        wait_in(unsafe { View::new(infos.as_mut_ptr(), infos.len()) }, 3)
    }

    #[test]
    fn a_lookup_waits_for_the_stated_number_of_keys() {
        assert_eq!(waited(|infos| infos), 0);
        assert_eq!(waited(|infos| infos.flag(key::WAIT, false)), 0);
        assert_eq!(waited(|infos| infos.flag(key::WAIT, true)), 3);
        assert_eq!(waited(|infos| infos.u32(key::WAIT, 0)), 3);
        assert_eq!(waited(|infos| infos.u32(key::WAIT, 2)), 2);
        assert_eq!(waited(|infos| infos.u32(key::WAIT, 9)), 3);
    }
}
