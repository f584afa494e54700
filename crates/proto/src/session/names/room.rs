//! Limits the bytes of the names and look-ups of each job, and of all jobs together.

use std::collections::BTreeMap;
use wireup_wire::ids::JobId;
use wireup_wire::limits::{NAMES_BYTES_MAX, NAMES_OF_JOB_BYTES_MAX};

#[derive(Default)]
pub struct Room {
    /// Bytes used by each job that uses some.
    of_jobs: BTreeMap<JobId, usize>,
    used: usize,
}

impl Room {
    /// Reserves bytes for a job. Returns `false` if there are not as many left.
    pub fn take(&mut self, job: JobId, bytes: usize) -> bool {
        let of_job = self.of_jobs.get(&job).copied().unwrap_or(0) + bytes;
        if of_job > NAMES_OF_JOB_BYTES_MAX || self.used + bytes > NAMES_BYTES_MAX {
            return false;
        }
        if bytes > 0 {
            self.of_jobs.insert(job, of_job);
            self.used += bytes;
        }
        true
    }

    /// # Panics
    /// If the job has not taken as much.
    pub fn free(&mut self, job: JobId, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let of_job = self.of_jobs.get_mut(&job).expect("a job frees only what it has taken");
        *of_job -= bytes;
        self.used -= bytes;
        if *of_job == 0 {
            self.of_jobs.remove(&job);
        }
    }

    #[cfg(test)]
    pub fn used(&self) -> usize {
        assert_eq!(self.of_jobs.values().sum::<usize>(), self.used);
        self.used
    }

    #[cfg(test)]
    pub fn is_unused(&self) -> bool {
        self.used == 0 && self.of_jobs.is_empty()
    }
}
