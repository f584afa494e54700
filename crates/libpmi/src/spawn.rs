//! `PMI_Spawn_multiple`.

use crate::codes::{Code, Result, returned};
use crate::state::with_job;
use alloc::vec::Vec;
use core::ffi::{c_char, c_int};
use wireup_capi::text;
use wireup_client::number;
use wireup_wire::pmi::{Request, SpawnCommand, SpawnRequest};

/// `PMI_keyval_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KeyVal {
    pub key: *mut c_char,
    pub val: *mut c_char,
}

/// A text without newlines.
///
/// # Safety
/// As [`text::bytes`].
unsafe fn line(text: *const c_char) -> Result<Vec<u8>> {
    // SAFETY: guaranteed by the caller.
    match unsafe { text::bytes(text) } {
        Some(line) if !line.contains(&b'\n') => Ok(line.to_vec()),
        _ => Err(Code::INVALID_ARG),
    }
}

/// # Safety
/// `vector` is null or has `count` pairs.
unsafe fn pairs(vector: *const KeyVal, count: c_int) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let count = usize::try_from(count).map_err(|_| Code::INVALID_SIZE)?;
    if count > 0 && vector.is_null() {
        return Err(Code::INVALID_KEYVALP);
    }
    // SAFETY: guaranteed by the caller.
    (0..count).map(|at| unsafe { Ok((line((*vector.add(at)).key)?, line((*vector.add(at)).val)?)) }).collect()
}

/// The element `index` of an array from C.
///
/// # Safety
/// `array` is null or has that element.
unsafe fn at<T: Copy>(array: *const T, index: usize) -> Result<T> {
    // SAFETY: guaranteed by the caller.
    if array.is_null() { Err(Code::INVALID_ARG) } else { Ok(unsafe { *array.add(index) }) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Spawn_multiple(
    count: c_int,
    cmds: *const *const c_char,
    argvs: *const *const *const c_char,
    maxprocs: *const c_int,
    info_keyval_sizes: *const c_int,
    info_keyval_vectors: *const *const KeyVal,
    preput_keyval_size: c_int,
    preput_keyval_vector: *const KeyVal,
    errors: *mut c_int,
) -> c_int {
    // SAFETY: C callers follow the rules of `pmi.h` for pointers; null pointers are checked. An argument list ends with
    // a null pointer.
    returned(with_job(|job| unsafe {
        let count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(Code::INVALID_ARG)?;
        let mut request =
            SpawnRequest { commands: Vec::new(), preput: pairs(preput_keyval_vector, preput_keyval_size)? };
        let mut processes = 0;
        for number in 0..count {
            let ranks = u32::try_from(at(maxprocs, number)?).map_err(|_| Code::INVALID_ARG)?;
            let mut args = Vec::new();
            if !argvs.is_null() && !(*argvs.add(number)).is_null() {
                let mut arg = *argvs.add(number);
                while !(*arg).is_null() {
                    args.push(line(*arg)?);
                    arg = arg.add(1);
                }
            }
            let infos = if info_keyval_sizes.is_null() { 0 } else { at(info_keyval_sizes, number)? };
            let info = if infos == 0 { Vec::new() } else { pairs(at(info_keyval_vectors, number)?, infos)? };
            processes += ranks as usize;
            request.commands.push(SpawnCommand {
                program: line(at(cmds, number)?)?,
                args,
                ranks,
                info,
                env: Vec::new(),
            });
        }
        let mut codes = Vec::new();
        job.server()?.call(&Request::Spawn(request), &mut |fields| {
            codes = fields.get("errcodes").and_then(number::list).unwrap_or_default();
        })?;
        if !errors.is_null() {
            for process in 0..processes {
                errors.add(process).write(codes.get(process).copied().unwrap_or(0));
            }
        }
        Ok(())
    }))
}
