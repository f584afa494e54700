//! The environment that `srun` is called with: the job, and nothing that changes what the step is.
//!
//! `srun` takes an option from its environment for nearly every one of its own (`SLURM_CPUS_PER_TASK`, `SLURM_EXACT`,
//! `SLURM_LABELIO`, ...), and `sbatch`, `salloc` and an outer step leave theirs there. Its tasks get what it was called with,
//! so what speaks of this machine alone goes too. Ranks get none of it: theirs is the launcher's.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Which job, and how its controller is reached.
const KEPT: [&str; 9] = [
    "SLURM_JOB_ID",
    "SLURM_JOBID",
    "SLURM_CLUSTERS",
    "SLURM_CLUSTER_NAME",
    "SLURM_WORKING_CLUSTER",
    "SLURM_CONF",
    "SLURM_CONF_SERVER",
    "SLURM_JWT",
    // What Slingshot's networks need of a step.
    "SLURM_NETWORK",
];
const PREFIXES: [&str; 8] =
    ["SLURM", "SRUN_", "SALLOC_", "SBATCH_", "SSH_", "XDG_RUNTIME_DIR", "XDG_SESSION_", "DBUS_SESSION_"];

pub fn of_step(all: impl Iterator<Item = (OsString, OsString)>) -> Vec<Vec<u8>> {
    all.filter(|(name, _)| name.to_str().is_none_or(stays))
        .map(|(name, value)| {
            let mut variable = name.into_vec();
            variable.push(b'=');
            variable.extend(value.into_vec());
            variable
        })
        .collect()
}

fn stays(name: &str) -> bool {
    KEPT.contains(&name) || !(PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || name == "HOSTNAME")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_job_is_told() {
        let names =
            ["SLURM_JOB_ID", "SLURM_CPUS_PER_TASK", "SLURMD_NODENAME", "SRUN_CPUS_PER_TASK", "PATH", "SSH_CONNECTION"];
        let env = of_step(names.into_iter().map(|name| (name.into(), "1".into())));
        assert_eq!(env, [b"SLURM_JOB_ID=1".to_vec(), b"PATH=1".to_vec()]);
    }
}
