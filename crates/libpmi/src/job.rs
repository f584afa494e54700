//! `PMI_Init` to `PMI_Finalize`, and the job's properties.
// SAFETY of every function here: C callers follow the rules of `pmi.h` for pointers; null pointers are checked.

use crate::codes::{Code, Result, returned};
use crate::state::{self, Job, With, answer, given, with_job, write_whole};
use alloc::vec::Vec;
use core::ffi::{c_char, c_int};
use wireup_capi::clique::ranks_beside;
use wireup_capi::text;
use wireup_client::number;
use wireup_wire::pmi::{Dialect, Request, encode_request};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Init(spawned: *mut c_int) -> c_int {
    // SAFETY: see the top of the file.
    returned(
        given(spawned)
            .and_then(|_| state::init())
            .and_then(|()| unsafe { answer(spawned, |job| Ok(c_int::from(job.spawned))) }),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Initialized(initialized: *mut c_int) -> c_int {
    returned(given(initialized).map(|initialized| {
        // SAFETY: see the top of the file.
        unsafe { initialized.write(c_int::from(state::is_initialised())) }
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn PMI_Finalize() -> c_int {
    returned(state::finalize())
}

/// `PMI_Abort` takes no lock and runs no `exit` handlers: another thread may be in a barrier that never ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Abort(exit_code: c_int, error_msg: *const c_char) -> c_int {
    // SAFETY: see the top of the file.
    let message = unsafe { text::bytes(error_msg) }.unwrap_or_default();
    if let Some(socket) = state::socket() {
        let plain: Vec<u8> =
            message.iter().map(|byte| if matches!(byte, 0..=31 | b'=' | b'\\') { b' ' } else { *byte }).collect();
        let mut out = Vec::new();
        let request = Request::Abort { code: exit_code, message: &plain, world: true };
        if encode_request(Dialect::Pmi1, &request, None, &mut out).is_ok() {
            // This process ends even if the write fails.
            let _ = socket.write_all(&out);
        }
    }
    wireup_capi::exit_now(exit_code)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_size(size: *mut c_int) -> c_int {
    // SAFETY: see the top of the file.
    returned(unsafe { answer(size, |job| Ok(job.size as c_int)) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_rank(rank: *mut c_int) -> c_int {
    // SAFETY: see the top of the file.
    returned(unsafe { answer(rank, |job| Ok(job.rank as c_int)) })
}

/// A number that the server knows; `alone` for a process without a server.
fn ask(job: &mut Job, request: &Request<'_>, field: &str, alone: c_int) -> Result<c_int> {
    match &mut job.with {
        With::Singleton(_) => Ok(alone),
        With::Server(server) => server.question(request, field)?.as_deref().and_then(number::parse).ok_or(Code::FAIL),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_universe_size(size: *mut c_int) -> c_int {
    // SAFETY: see the top of the file.
    returned(unsafe { answer(size, |job| ask(job, &Request::GetUniverseSize, "size", 1)) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_appnum(appnum: *mut c_int) -> c_int {
    // SAFETY: see the top of the file.
    returned(unsafe {
        answer(appnum, |job| {
            if job.appnum.is_none() {
                job.appnum = Some(ask(job, &Request::GetAppnum, "appnum", -1)?);
            }
            Ok(job.appnum.unwrap_or(-1))
        })
    })
}

/// The job's name, which is also the name of its kvs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_id(id_str: *mut c_char, length: c_int) -> c_int {
    // SAFETY: see the top of the file.
    returned(with_job(|job| unsafe { write_whole(&job.kvsname()?, id_str, length) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_kvs_domain_id(id_str: *mut c_char, length: c_int) -> c_int {
    // SAFETY: see the top of the file.
    unsafe { PMI_Get_id(id_str, length) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_id_length_max(length: *mut c_int) -> c_int {
    // SAFETY: see the top of the file.
    returned(unsafe { answer(length, |job| Ok(job.maxes[0])) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_clique_size(size: *mut c_int) -> c_int {
    // SAFETY: see the top of the file.
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
        // SAFETY: see the top of the file; the array has `length` numbers.
        unsafe { ranks.copy_from_nonoverlapping(clique.as_ptr(), clique.len()) };
        Ok(())
    }))
}

/// The ranks on this node. Without a mapping that can be read, a rank knows only itself.
fn clique(job: &mut Job) -> Result<Vec<c_int>> {
    let (rank, size) = (job.rank, job.size);
    let kvsname = job.kvsname()?;
    let text = job.get(&kvsname, b"PMI_process_mapping")?.unwrap_or_default();
    let beside = ranks_beside(&text, rank, size).unwrap_or_else(|| [rank].into());
    Ok(beside.into_iter().map(|rank| rank as c_int).collect())
}
