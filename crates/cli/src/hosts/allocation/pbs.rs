//! PBS and Torque: `PBS_NODEFILE` names a host for each rank that was asked for (`ncpus` or `mpiprocs`, `ppn`).

use super::{Allocation, Env, counted, no_hosts, wrong_file};
use crate::hosts::{Entry, read_file};
use std::path::Path;

const JOB: &str = "PBS_JOBID";
const FILE: &str = "PBS_NODEFILE";

pub fn detect(env: Env) -> Result<Option<Allocation>, String> {
    let Some(job) = env.get(JOB) else { return Ok(None) };
    let file = env.path(FILE);
    let file = file.ok_or_else(|| no_hosts("PBS", JOB, FILE))?;
    Ok(Some(Allocation::new("PBS", job, FILE, counted(mentions(FILE, &file)?))))
}

/// The hosts in a file that names a host on each line, once for each of the host's slots.
pub fn mentions(variable: &str, file: &Path) -> Result<Vec<(String, u32)>, String> {
    let entries = read_file(file).map_err(|problem| wrong_file(variable, &problem))?;
    Ok(entries.into_iter().map(|Entry { name, slots, .. }| (name, slots.unwrap_or(1))).collect())
}
