//! `PMI2_Init` to `PMI2_Finalize`, and the job's name.
// SAFETY of every function here: C callers follow the rules of `pmi2.h` for pointers; null pointers are checked.

use crate::state::{self, JOB, With, given};
use alloc::vec::Vec;
use core::ffi::{c_char, c_int, c_void};
use wireup_capi::codes::{Code, Result, returned};
use wireup_capi::text::{self, TEXT_LEN_MAX, required};
use wireup_client::escape::double;
use wireup_wire::pmi::{Dialect, Request, encode_request};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Init(
    spawned: *mut c_int,
    size: *mut c_int,
    rank: *mut c_int,
    appnum: *mut c_int,
) -> c_int {
    let joined = state::init().and_then(|()| {
        JOB.with(|job| {
            // SAFETY: see the top of the file.
            unsafe {
                text::set(spawned, c_int::from(job.spawned));
                text::set(size, job.size as c_int);
                text::set(rank, job.rank as c_int);
                text::set(appnum, job.appnum);
            }
            Ok(())
        })
    });
    returned(joined)
}

#[unsafe(no_mangle)]
pub extern "C" fn PMI2_Finalize() -> c_int {
    returned(state::finalize())
}

#[unsafe(no_mangle)]
pub extern "C" fn PMI2_Initialized() -> c_int {
    c_int::from(JOB.is_initialised())
}

/// `PMI2_Abort` takes no lock and runs no `exit` handlers: another thread may be in a fence that never ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Abort(flag: c_int, msg: *const c_char) -> c_int {
    // SAFETY: see the top of the file.
    let message = unsafe { text::bytes(msg) }.unwrap_or_default();
    if let Some(socket) = JOB.socket() {
        let message = &message[..message.len().min(TEXT_LEN_MAX)];
        let plain: Vec<u8> =
            message.iter().map(|byte| if matches!(byte, 0..=31 | b';') { b' ' } else { *byte }).collect();
        let mut out = Vec::new();
        let request = Request::Abort { code: 1, message: &plain, world: flag != 0 };
        if encode_request(Dialect::Pmi2, &request, None, &mut out).is_ok() {
            // This process ends even if the write fails.
            let _ = socket.write_all(&out);
        }
    }
    wireup_capi::exit_now(flag)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Job_GetId(jobid: *mut c_char, jobid_size: c_int) -> c_int {
    returned(JOB.with(|job| {
        given(jobid)?;
        let name = match &mut job.with {
            With::Server(server) => server.question(&Request::JobGetId, "jobid")?.ok_or(Code::OTHER)?,
            With::Singleton(_) => return Err(Code::FAIL),
        };
        // SAFETY: see the top of the file.
        if unsafe { text::write(&name, jobid, jobid_size) } { Ok(()) } else { Err(Code::INVALID_LENGTH) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Job_GetRank(rank: *mut c_int) -> c_int {
    returned(JOB.with(|job| {
        // SAFETY: see the top of the file; it is not null.
        unsafe { given(rank)?.write(job.rank as c_int) };
        Ok(())
    }))
}

/// The size of the job, as in Slurm's library, although Slurm's header describes it as the size of the node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Info_GetSize(size: *mut c_int) -> c_int {
    returned(JOB.with(|job| {
        // SAFETY: see the top of the file; it is not null.
        unsafe { given(size)?.write(job.size as c_int) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Job_Connect(jobid: *const c_char, _conn: *mut c_void) -> c_int {
    // SAFETY: see the top of the file.
    returned(unsafe { about_job(jobid, |name| Request::JobConnect { job_id: Some(name) }) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Job_Disconnect(jobid: *const c_char) -> c_int {
    // SAFETY: see the top of the file.
    returned(unsafe { about_job(jobid, |name| Request::JobDisconnect { job_id: Some(name) }) })
}

/// # Safety
/// As [`text::bytes`].
unsafe fn about_job(jobid: *const c_char, request: impl Fn(&[u8]) -> Request<'_>) -> Result {
    // SAFETY: guaranteed by the caller.
    let name = unsafe { required(jobid)? };
    let mut sendable = Vec::new();
    double(name, &mut sendable);
    JOB.with(|job| Ok(job.server()?.tell(&request(&sendable))?))
}
