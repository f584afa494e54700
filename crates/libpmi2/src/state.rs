//! The process's place in its job, and what C programs hold of it.

use crate::handles::Handles;
use core::ffi::c_char;
use core::ops::{Deref, DerefMut};
pub use wireup_capi::codes::given;
use wireup_capi::codes::{Code, Result};
use wireup_capi::job;
use wireup_capi::job_slot::JobSlot;
pub use wireup_capi::job_slot::With;
use wireup_capi::socket::Socket;
use wireup_capi::text;
use wireup_wire::limits::KEY_LEN_MAX;

/// The job as this library sees it.
pub struct Job {
    job: job::Job,
    pub handles: Handles,
}

impl Job {
    pub fn new(job: job::Job) -> Job {
        Job { job, handles: Handles::default() }
    }
}

impl Deref for Job {
    type Target = job::Job;

    fn deref(&self) -> &job::Job {
        &self.job
    }
}

impl DerefMut for Job {
    fn deref_mut(&mut self) -> &mut job::Job {
        &mut self.job
    }
}

static SLOT: JobSlot<Job> = JobSlot::new();

/// Runs `work` on the job, which must be initialised.
pub fn with_job<R>(work: impl FnOnce(&mut Job) -> Result<R>) -> Result<R> {
    SLOT.with(work)
}

/// The server's socket, for an abort.
pub fn socket() -> Option<Socket> {
    SLOT.socket()
}

pub fn is_initialised() -> bool {
    SLOT.is_initialised()
}

pub fn init() -> Result {
    SLOT.init(|| job::Job::join(&SLOT).map(Job::new), on_fork)
}

extern "C" fn on_fork() {
    SLOT.on_fork();
}

/// Leaves the job. Outstanding collectives are completed first, since a process cannot leave a fence early.
pub fn finalize() -> Result {
    let mut job = SLOT.take()?;
    job.finish_all();
    SLOT.leave(job.job.with)
}

/// A key from C.
///
/// # Safety
/// As [`text::bytes`].
pub unsafe fn key<'a>(key: *const c_char) -> Result<&'a [u8]> {
    // SAFETY: guaranteed by the caller.
    match unsafe { text::bytes(key) } {
        None | Some(b"") => Err(Code::INVALID_KEY),
        Some(key) if key.len() > KEY_LEN_MAX => Err(Code::INVALID_KEY_LENGTH),
        Some(key) => Ok(key),
    }
}

/// A text that must not be null.
///
/// # Safety
/// As [`text::bytes`].
pub unsafe fn required<'a>(text: *const c_char) -> Result<&'a [u8]> {
    // SAFETY: guaranteed by the caller.
    match unsafe { text::bytes(text) } {
        None => Err(Code::INVALID_ARG),
        Some(text) if text.len() > TEXT_LEN_MAX => Err(Code::INVALID_LENGTH),
        Some(text) => Ok(text),
    }
}

/// The longest name, port or word of a spawn: several of them, each `;` doubled, fit the six digits of a message's
/// length.
pub const TEXT_LEN_MAX: usize = 64 << 10;
