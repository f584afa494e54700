//! The two functions of Cray's PMI that Chapel looks for: collectives of arbitrary bytes.
// SAFETY of every function here: C callers follow the rules of `pmix_ext.h` for pointers; null pointers are checked.

use crate::state::{JOB, Job};
use alloc::vec::Vec;
use core::ffi::{c_int, c_void};
use wireup_capi::codes::{Code, Result, returned};
use wireup_capi::job::MAX_LEN;
use wireup_wire::hex;

/// Bytes that one exchange carries, two hexadecimal digits each, because the values of servers are text.
const PIECE_LEN: usize = MAX_LEN / 2;

fn length(len: c_int) -> Result<usize> {
    usize::try_from(len).map_err(|_| Code::INVALID_LENGTH)
}

/// Gathers the bytes of all ranks into `all`, in the order of the ranks.
///
/// # Safety
/// `len` bytes may be read, and as many for each rank may be written.
unsafe fn allgather(job: &mut Job, own: *const u8, all: *mut u8, len: usize) -> Result {
    let mut texts = Vec::new();
    for at in (0..len).step_by(PIECE_LEN) {
        let piece_len = PIECE_LEN.min(len - at);
        // SAFETY: guaranteed by the caller.
        let own = unsafe { core::slice::from_raw_parts(own.add(at), piece_len) };
        let id = job.start_allgather(&hex::encode(own), 2 * piece_len, false);
        let gathered = job.collect(id)?;
        texts.resize(job.size as usize * 2 * piece_len, 0);
        job.fill(&gathered, 2 * piece_len, &mut texts)?;
        for (rank, text) in texts.chunks(2 * piece_len).enumerate() {
            let bytes = hex::decode(text).ok_or(Code::INVALID_VAL_LENGTH)?;
            // SAFETY: guaranteed by the caller: row `rank` has `len` bytes.
            unsafe { all.add(rank * len + at).copy_from(bytes.as_ptr(), piece_len) };
        }
    }
    Ok(())
}

/// # Safety
/// `len` bytes may be read and written.
unsafe fn broadcast(job: &mut Job, buffer: *mut u8, len: usize) -> Result {
    for at in (0..len).step_by(PIECE_LEN) {
        let piece_len = PIECE_LEN.min(len - at);
        // SAFETY: guaranteed by the caller.
        let piece = unsafe { core::slice::from_raw_parts_mut(buffer.add(at), piece_len) };
        let own = if job.rank == 0 { hex::encode(piece) } else { Vec::new() };
        let id = job.start_allgather(&own, 2 * piece_len, false);
        let gathered = job.collect(id)?;
        job.values(&gathered, &[0], &mut |_, text| {
            let bytes = hex::decode(text).filter(|bytes| bytes.len() == piece_len);
            piece.copy_from_slice(&bytes.ok_or(Code::INVALID_VAL_LENGTH)?);
            Ok(())
        })?;
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Allgather(own: *mut c_void, all: *mut c_void, len: c_int) -> c_int {
    returned(JOB.with(|job| match length(len)? {
        len if len > 0 && (own.is_null() || all.is_null()) => Err(Code::INVALID_ARG),
        // SAFETY: see the top of the file.
        len => unsafe { allgather(job, own.cast(), all.cast(), len) },
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Bcast(buffer: *mut c_void, len: c_int) -> c_int {
    returned(JOB.with(|job| match length(len)? {
        len if len > 0 && buffer.is_null() => Err(Code::INVALID_ARG),
        // SAFETY: see the top of the file.
        len => unsafe { broadcast(job, buffer.cast(), len) },
    }))
}
