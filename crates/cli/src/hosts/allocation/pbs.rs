//! PBS and Torque: `PBS_NODEFILE` names a host for each rank that was asked for (`ncpus` or `mpiprocs`, `ppn`).

use super::{Allocation, AllocationError, Env, Scheduler, counted};
use crate::hosts::{Entry, read_file};
use std::path::Path;

const JOB: &str = "PBS_JOBID";
const FILE: &str = "PBS_NODEFILE";

pub fn detect(env: Env) -> Result<Option<Allocation>, AllocationError> {
    let Some(job) = env.get(JOB) else { return Ok(None) };
    let file = env.path(FILE);
    let file = file.ok_or(AllocationError::NoHosts { scheduler: "PBS", job: JOB, missing: FILE })?;
    let mentions = mentions(FILE, &file)?;
    Ok(Some(Allocation {
        scheduler: Scheduler::Pbs,
        job: job.to_owned(),
        told_by: FILE,
        nodes: counted(mentions),
        own_name: None,
        refused: None,
    }))
}

/// A file that names a host on each line, once for each of its slots.
pub fn mentions(variable: &'static str, file: &Path) -> Result<Vec<(String, u32)>, AllocationError> {
    let entries = read_file(file).map_err(|problem| AllocationError::File { variable, problem: Box::new(problem) })?;
    Ok(entries.into_iter().map(|Entry { name, slots, .. }| (name, slots.unwrap_or(1))).collect())
}
