//! What only Open MPI asks of the environment and not of PMIx.

use std::ffi::OsStr;
use wireup_wire::pmix::Begin;

/// Where its parts make files that the ranks of a node share. Their names tell job and local rank, not the node: nodes that share a
/// machine would take each other's.
const SHARED_FILES: [&str; 4] = [
    "OMPI_MCA_btl_vader_backing_directory",
    "OMPI_MCA_btl_sm_backing_directory",
    "OMPI_MCA_osc_rdma_backing_directory",
    "OMPI_MCA_osc_sm_backing_directory",
];
/// Version 4 polls without end where ranks outnumber the cpus, unless its launcher says so; version 5 asks.
const YIELD: &str = "OMPI_MCA_mpi_yield_when_idle";

/// `NAME=VALUE` for every rank; what the user has set stays. `is_set` looks at the job's environment.
pub fn variables(begin: &Begin, is_set: impl Fn(&OsStr) -> bool) -> Vec<Vec<u8>> {
    let mut wanted = Vec::new();
    if begin.shared {
        wanted.extend(SHARED_FILES.map(|name| (name, begin.dir.as_str())));
    }
    if begin.oversubscribed {
        wanted.push((YIELD, "1"));
    }
    let unset = wanted.into_iter().filter(|(name, _)| !is_set(OsStr::new(name)));
    unset.map(|(name, value)| format!("{name}={value}").into_bytes()).collect()
}
