//! The ranks on this node. Without a mapping that can be read, a rank knows only itself.

use crate::codes::{Code, Result, returned};
use crate::state::{Job, answer, given, with_job};
use alloc::vec::Vec;
use core::ffi::c_int;
use wireup_capi::clique::ranks_beside;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_clique_size(size: *mut c_int) -> c_int {
    // SAFETY: C callers follow the rules of `pmi.h`.
    returned(unsafe { answer(size, |job| Ok(clique(job)?.len() as c_int)) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_clique_ranks(ranks: *mut c_int, length: c_int) -> c_int {
    returned(with_job(|job| {
        given(ranks)?;
        let clique = clique(job)?;
        if usize::try_from(length).is_ok_and(|length| length < clique.len()) || length < 0 {
            return Err(Code::INVALID_LENGTH);
        }
        // SAFETY: the caller's array has `length` numbers.
        unsafe { ranks.copy_from_nonoverlapping(clique.as_ptr(), clique.len()) };
        Ok(())
    }))
}

fn clique(job: &mut Job) -> Result<Vec<c_int>> {
    let (rank, size) = (job.rank, job.size);
    let kvsname = job.kvsname()?;
    let text = job.get(&kvsname, b"PMI_process_mapping")?.unwrap_or_default();
    let beside = ranks_beside(&text, rank, size).unwrap_or_else(|| [rank].into());
    Ok(beside.into_iter().map(|rank| rank as c_int).collect())
}
