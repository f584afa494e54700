//! Put, commit, get, and iteration over all pairs.
// SAFETY of every function here: C callers follow the rules of `pmi.h` for pointers; null pointers are checked.

use crate::codes::{Code, Result, returned};
use crate::state::{Barrier, Job, With, answer, given, with_job, word, write_whole};
use core::ffi::{c_char, c_int};
use wireup_capi::Failure;
use wireup_client::number;
use wireup_wire::pmi::Request;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Get_my_name(kvsname: *mut c_char, length: c_int) -> c_int {
    // SAFETY: see the top of the file.
    returned(with_job(|job| unsafe { write_whole(&job.kvsname()?, kvsname, length) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Get_name_length_max(length: *mut c_int) -> c_int {
    // SAFETY: see the top of the file.
    returned(unsafe { answer(length, |job| Ok(job.maxes[0])) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Get_key_length_max(length: *mut c_int) -> c_int {
    // SAFETY: see the top of the file.
    returned(unsafe { answer(length, |job| Ok(job.maxes[1])) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Get_value_length_max(length: *mut c_int) -> c_int {
    // SAFETY: see the top of the file.
    returned(unsafe { answer(length, |job| Ok(job.maxes[2])) })
}

/// Kvs name and key from C.
///
/// # Safety
/// Both are null or C strings.
unsafe fn named<'a>(job: &Job, kvsname: *const c_char, key: *const c_char) -> Result<(&'a [u8], &'a [u8])> {
    // SAFETY: guaranteed by the caller.
    let (kvsname, key) = unsafe { (word(kvsname, Code::INVALID_ARG)?, word(key, Code::INVALID_KEY)?) };
    if is_longer(kvsname, job.maxes[0]) {
        return Err(Code::INVALID_LENGTH);
    }
    if is_longer(key, job.maxes[1]) { Err(Code::INVALID_KEY_LENGTH) } else { Ok((kvsname, key)) }
}

fn is_longer(text: &[u8], max: c_int) -> bool {
    usize::try_from(max).is_ok_and(|max| text.len() > max)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Put(kvsname: *const c_char, key: *const c_char, value: *const c_char) -> c_int {
    returned(with_job(|job| {
        // SAFETY: see the top of the file.
        let ((kvsname, key), value) = unsafe { (named(job, kvsname, key)?, word(value, Code::INVALID_VAL)?) };
        if is_longer(value, job.maxes[2]) {
            return Err(Code::INVALID_VAL_LENGTH);
        }
        match &mut job.with {
            With::Singleton(local) => local.put(key, value),
            With::Server(server) => server.tell(&Request::Put { kvsname: Some(kvsname), key, value })?,
        }
        Ok(())
    }))
}

/// `PMI_KVS_Commit` does nothing: puts are sent at once, and the barrier makes them visible.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Commit(kvsname: *const c_char) -> c_int {
    // SAFETY: see the top of the file.
    returned(with_job(|_| unsafe { word(kvsname, Code::INVALID_ARG).map(drop) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Get(
    kvsname: *const c_char,
    key: *const c_char,
    value: *mut c_char,
    length: c_int,
) -> c_int {
    returned(with_job(|job| {
        // SAFETY: see the top of the file.
        let (kvsname, key) = unsafe { named(job, kvsname, key)? };
        given(value)?;
        if matches!(job.barrier, Barrier::UnderWay) {
            return Err(Code::FAIL);
        }
        let found = job.get(kvsname, key)?.ok_or(Code::FAIL)?;
        // SAFETY: see the top of the file.
        unsafe { write_whole(&found, value, length) }
    }))
}

/// `PMI_KVS_Create`: few servers can create a kvs; the others refuse.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Create(kvsname: *mut c_char, length: c_int) -> c_int {
    returned(with_job(|job| {
        given(kvsname)?;
        let name = job.server()?.question(&Request::CreateKvs, "kvsname")?.ok_or(Code::FAIL)?;
        // SAFETY: see the top of the file.
        unsafe { write_whole(&name, kvsname, length) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Destroy(kvsname: *const c_char) -> c_int {
    returned(with_job(|job| {
        // SAFETY: see the top of the file.
        let kvsname = unsafe { word(kvsname, Code::INVALID_ARG)? };
        Ok(job.server()?.tell(&Request::DestroyKvs { kvsname: Some(kvsname) })?)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Iter_first(
    kvsname: *const c_char,
    key: *mut c_char,
    key_len: c_int,
    val: *mut c_char,
    val_len: c_int,
) -> c_int {
    // SAFETY: see the top of the file.
    returned(with_job(|job| unsafe {
        job.next_index = 0;
        next_pair(job, kvsname, (key, key_len), (val, val_len))
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Iter_next(
    kvsname: *const c_char,
    key: *mut c_char,
    key_len: c_int,
    val: *mut c_char,
    val_len: c_int,
) -> c_int {
    // SAFETY: see the top of the file.
    returned(with_job(|job| unsafe { next_pair(job, kvsname, (key, key_len), (val, val_len)) }))
}

/// The pair at the current position of the iteration; an empty key after the last one.
///
/// # Safety
/// As the C functions above.
unsafe fn next_pair(
    job: &mut Job,
    kvsname: *const c_char,
    key: (*mut c_char, c_int),
    val: (*mut c_char, c_int),
) -> Result {
    // SAFETY: guaranteed by the caller.
    let kvsname = unsafe { word(kvsname, Code::INVALID_ARG)? };
    given(key.0)?;
    given(val.0)?;
    let index = job.next_index;
    let mut pair = None;
    match &mut job.with {
        With::Singleton(local) => {
            let found = usize::try_from(index).ok().and_then(|index| local.at(index));
            pair = found.map(|(key, value)| (index + 1, key.to_vec(), value.to_vec()));
        }
        With::Server(server) => {
            let mut end = false;
            let request = Request::GetByIdx { kvsname: Some(kvsname), index };
            server.link.ask(&request)?;
            server.settle(&mut |answer| {
                let fields = &answer.fields;
                end = fields.get("reason") == Some(b"no_more_keyvals");
                pair = match (fields.get("nextidx").and_then(number::parse), fields.get("key"), fields.get("val")) {
                    (Some(next), Some(key), Some(value)) if fields.succeeded() => {
                        Some((next, key.to_vec(), value.to_vec()))
                    }
                    _ => None,
                };
            })?;
            if pair.is_none() && !end {
                return Err(Failure::Refused.into());
            }
        }
    }
    let (next, name, value) = pair.unwrap_or((index, alloc::vec![], alloc::vec![]));
    // SAFETY: guaranteed by the caller.
    unsafe {
        write_whole(&name, key.0, key.1)?;
        write_whole(&value, val.0, val.1)?;
    }
    job.next_index = next;
    Ok(())
}
