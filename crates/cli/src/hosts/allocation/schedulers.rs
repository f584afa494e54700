//! The batch systems whose allocations are understood, and what shows that this process is in a job of one.
//!
//! ```text
//!   Flux           FLUX_URI, and FLUX_ENCLOSING_ID or FLUX_JOB_ID    the resource set that `flux` prints
//!   Slurm          SLURM_JOB_ID, SLURM_JOB_NODELIST                  variables
//!   PBS, Torque    PBS_JOBID, PBS_NODEFILE                           a file, a host for each rank
//!   LSF            LSB_JOBID, LSB_DJOB_HOSTFILE or LSB_MCPU_HOSTS    a file, or a variable
//!   Grid Engine    JOB_ID, PE_HOSTFILE                               a file, each line a host and its slots
//!   SkyPilot, dstack, LeaderWorkerSet, Kubeflow, indexed jobs        variables: see `each_node`
//! ```
//!
//! They are tried in this order, so that a batch system that runs inside another one's job comes first. Information
//! that cannot be understood is an error; it does not count as "no batch system".

use super::{Allocation, Env, each_node, flux, host_lists, slurm};

/// The allocation that this process is in.
///
/// # Errors
/// The information from a batch system is not valid.
pub fn detect(env: Env) -> Result<Option<Allocation>, String> {
    let detectors =
        [flux::detect, slurm::detect, host_lists::pbs, host_lists::lsf, host_lists::grid_engine, each_node::detect];
    for detect in detectors {
        if let Some(allocation) = detect(env)? {
            return Ok(Some(allocation));
        }
    }
    Ok(None)
}

/// Whether a variable of some batch system is set, valid or not.
pub fn is_likely(env: Env) -> bool {
    ["FLUX_URI", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE"]
        .into_iter()
        .any(|name| env.get(name).is_some())
        || each_node::is_likely(env)
}
