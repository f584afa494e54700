//! Attributes of the node and of the job.
// SAFETY of every function here: C callers follow the rules of `pmi2.h` for pointers; null pointers are checked.

use crate::kvs::{key, put_value};
use crate::state::{JOB, Job, With, given};
use alloc::vec::Vec;
use core::ffi::{c_char, c_int};
use wireup_capi::codes::{Code, Result, returned};
use wireup_capi::text;
use wireup_client::escape::double;
use wireup_client::number;
use wireup_wire::pmi::Request;

/// Whether an attribute is one of the node or of the job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Node { wait: bool },
    Job,
}

fn ask(job: &mut Job, of: Of, name: &[u8]) -> Result<Option<Vec<u8>>> {
    if let With::Singleton(local) = &job.with {
        // A single process: its own table holds the node's attributes. No other process could put what it would wait
        // for.
        let mut node_key = NODE_PREFIX.to_vec();
        node_key.extend_from_slice(name);
        let found = if of == Of::Job { None } else { local.get(&node_key).map(<[u8]>::to_vec) };
        return if found.is_none() && of == (Of::Node { wait: true }) { Err(Code::FAIL) } else { Ok(found) };
    }
    let mut key = Vec::new();
    double(name, &mut key);
    job.look_up(&match of {
        Of::Node { wait } => Request::GetNodeAttr { key: &key, wait },
        Of::Job => Request::GetJobAttr { key: &key },
    })
}

/// Distinguishes a node's attributes from kvs pairs in the table of a single process.
const NODE_PREFIX: &[u8] = b"\0";

/// # Safety
/// As the C functions below.
unsafe fn text_attr(of: Of, name: *const c_char, value: *mut c_char, room: c_int, found: *mut c_int) -> Result {
    JOB.with(|job| {
        // SAFETY: guaranteed by the caller.
        let name = unsafe { key(name)? };
        given(value)?;
        let got = ask(job, of, name)?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            text::set(found, c_int::from(got.is_some()));
            match got {
                Some(got) if !text::write(&got, value, room) => Err(Code::INVALID_LENGTH),
                _ => Ok(()),
            }
        }
    })
}

/// # Safety
/// As the C functions below.
unsafe fn ints_attr(
    of: Of,
    name: *const c_char,
    array: *mut c_int,
    room: c_int,
    count: *mut c_int,
    found: *mut c_int,
) -> Result {
    JOB.with(|job| {
        // SAFETY: guaranteed by the caller.
        let name = unsafe { key(name)? };
        given(array)?;
        let got = ask(job, of, name)?;
        // SAFETY: guaranteed by the caller.
        unsafe { text::set(found, c_int::from(got.is_some())) };
        let Some(got) = got else { return Ok(()) };
        let numbers = number::list(&got).ok_or(Code::OTHER)?;
        let fits = numbers.len().min(usize::try_from(room).unwrap_or(0));
        // SAFETY: guaranteed by the caller; `fits` is at most `room`.
        unsafe {
            array.copy_from_nonoverlapping(numbers.as_ptr(), fits);
            text::set(count, fits as c_int);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Info_GetNodeAttr(
    name: *const c_char,
    value: *mut c_char,
    valuelen: c_int,
    found: *mut c_int,
    waitfor: c_int,
) -> c_int {
    // SAFETY: see the top of the file.
    returned(unsafe { text_attr(Of::Node { wait: waitfor != 0 }, name, value, valuelen, found) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Info_GetNodeAttrIntArray(
    name: *const c_char,
    array: *mut c_int,
    arraylen: c_int,
    outlen: *mut c_int,
    found: *mut c_int,
) -> c_int {
    // SAFETY: see the top of the file.
    returned(unsafe { ints_attr(Of::Node { wait: false }, name, array, arraylen, outlen, found) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Info_PutNodeAttr(name: *const c_char, value: *const c_char) -> c_int {
    returned(JOB.with(|job| {
        // SAFETY: see the top of the file.
        let (name, value) = unsafe { (key(name)?, put_value(value)?) };
        match &mut job.with {
            With::Singleton(local) => {
                let mut node_key = NODE_PREFIX.to_vec();
                node_key.extend_from_slice(name);
                local.put(&node_key, value);
            }
            With::Server(server) => {
                let (mut sent_key, mut sent_value) = (Vec::new(), Vec::new());
                double(name, &mut sent_key);
                double(value, &mut sent_value);
                server.tell(&Request::PutNodeAttr { key: &sent_key, value: &sent_value })?;
            }
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Info_GetJobAttr(
    name: *const c_char,
    value: *mut c_char,
    valuelen: c_int,
    found: *mut c_int,
) -> c_int {
    // SAFETY: see the top of the file.
    returned(unsafe { text_attr(Of::Job, name, value, valuelen, found) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Info_GetJobAttrIntArray(
    name: *const c_char,
    array: *mut c_int,
    arraylen: c_int,
    outlen: *mut c_int,
    found: *mut c_int,
) -> c_int {
    // SAFETY: see the top of the file.
    returned(unsafe { ints_attr(Of::Job, name, array, arraylen, outlen, found) })
}
