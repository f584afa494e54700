//! The process's place in its job, and what C programs hold of it.

use crate::handles::Handles;
use core::ops::{Deref, DerefMut};
use wireup_capi::codes::Result;
pub use wireup_capi::codes::given;
pub use wireup_capi::job::With;
use wireup_capi::job::{self, JobSlot};

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

/// The job of this process.
pub static JOB: JobSlot<Job> = JobSlot::new();

pub fn init() -> Result {
    JOB.init(|| job::Job::join(&JOB).map(Job::new), on_fork)
}

extern "C" fn on_fork() {
    JOB.on_fork();
}

/// Leaves the job. Outstanding collectives are completed first, since a process cannot leave a fence early.
pub fn finalize() -> Result {
    let mut job = JOB.take()?;
    job.finish_all();
    JOB.leave(job.job.with)
}
