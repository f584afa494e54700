//! `PMI2_Job_Spawn`, with Slurm's layout of info objects.

use crate::state::JOB;
use alloc::vec::Vec;
use core::ffi::{c_char, c_int};
use wireup_capi::codes::{Code, Result, returned};
use wireup_capi::text::{self, required};
use wireup_client::escape::double;
use wireup_client::number;
use wireup_wire::pmi::{Request, SpawnCommand, SpawnRequest};

/// `struct MPID_Info` of Slurm's `pmi2.h`.
#[repr(C)]
pub struct Info {
    handle: c_int,
    pobj_mutex: c_int,
    ref_count: c_int,
    next: *mut Info,
    key: *mut c_char,
    value: *mut c_char,
}

/// # Safety
/// As [`text::bytes`].
unsafe fn sendable(text: *const c_char) -> Result<Vec<u8>> {
    let mut sendable = Vec::new();
    // SAFETY: guaranteed by the caller.
    double(unsafe { required(text)? }, &mut sendable);
    Ok(sendable)
}

/// # Safety
/// `info` is null or points to a valid object.
unsafe fn pair(info: *const Info) -> Result<(Vec<u8>, Vec<u8>)> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let info = info.as_ref().ok_or(Code::INVALID_ARG)?;
        Ok((sendable(info.key)?, sendable(info.value)?))
    }
}

/// The element `index` of an array from C.
///
/// # Safety
/// `array` is null or has that element.
unsafe fn at<T: Copy>(array: *const T, index: usize) -> Result<T> {
    // SAFETY: guaranteed by the caller.
    if array.is_null() { Err(Code::INVALID_ARG) } else { Ok(unsafe { *array.add(index) }) }
}

/// Limit for the texts of one spawn including the names of their fields; a message's length has six digits.
const REQUEST_BYTES_MAX: usize = 900_000;
const FIELD_BYTES: usize = 24;

fn bytes_of(request: &SpawnRequest) -> usize {
    let pairs = |pairs: &[(Vec<u8>, Vec<u8>)]| -> usize {
        pairs.iter().map(|(key, value)| key.len() + value.len() + 2 * FIELD_BYTES).sum()
    };
    let command = |command: &SpawnCommand| -> usize {
        let args: usize = command.args.iter().map(|arg| arg.len() + FIELD_BYTES).sum();
        command.program.len() + args + pairs(&command.info) + 4 * FIELD_BYTES
    };
    pairs(&request.preput) + request.commands.iter().map(command).sum::<usize>()
}

fn length(number: c_int) -> Result<usize> {
    usize::try_from(number).map_err(|_| Code::INVALID_NUM_ARGS)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Job_Spawn(
    count: c_int,
    cmds: *const *const c_char,
    argcs: *const c_int,
    argvs: *const *const *const c_char,
    maxprocs: *const c_int,
    info_keyval_sizes: *const c_int,
    info_keyval_vectors: *const *const Info,
    preput_keyval_size: c_int,
    preput_keyval_vector: *const *const Info,
    job_id: *mut c_char,
    job_id_size: c_int,
    errors: *mut c_int,
) -> c_int {
    // SAFETY: C callers follow the rules of `pmi2.h` for pointers; null pointers are checked.
    returned(JOB.with(|job| unsafe {
        let mut request = SpawnRequest::default();
        let mut processes = 0;
        for number in 0..length(count)? {
            let ranks = u32::try_from(at(maxprocs, number)?).map_err(|_| Code::INVALID_ARG)?;
            let mut command = SpawnCommand {
                program: sendable(at(cmds, number)?)?,
                ranks,
                args: Vec::new(),
                info: Vec::new(),
                env: Vec::new(),
            };
            let args = if argcs.is_null() { 0 } else { length(at(argcs, number)?)? };
            for arg in 0..args {
                command.args.push(sendable(at(at(argvs, number)?, arg)?)?);
            }
            let infos = if info_keyval_sizes.is_null() { 0 } else { length(at(info_keyval_sizes, number)?)? };
            for info in 0..infos {
                let vector = at(info_keyval_vectors, number)?;
                if vector.is_null() {
                    return Err(Code::INVALID_ARG);
                }
                command.info.push(pair(vector.add(info))?);
            }
            processes += ranks as usize;
            request.commands.push(command);
        }
        if request.commands.is_empty() {
            return Err(Code::INVALID_NUM_ARGS);
        }
        for preput in 0..length(preput_keyval_size)? {
            request.preput.push(pair(at(preput_keyval_vector, preput)?)?);
        }
        if bytes_of(&request) > REQUEST_BYTES_MAX {
            return Err(Code::INVALID_LENGTH);
        }
        let (mut name, mut codes) = (None, Vec::new());
        job.server()?.call(&Request::Spawn(request), &mut |fields| {
            name = fields.get("jobid").map(<[u8]>::to_vec);
            codes = fields.get("errcodes").and_then(number::list).unwrap_or_default();
        })?;
        if !errors.is_null() {
            for process in 0..processes {
                errors.add(process).write(codes.get(process).copied().unwrap_or(0));
            }
        }
        match name {
            Some(name) if !job_id.is_null() && job_id_size > 0 && !text::write(&name, job_id, job_id_size) => {
                Err(Code::INVALID_LENGTH)
            }
            _ => Ok(()),
        }
    }))
}
