//! Settings that Open MPI reads from the environment instead of PMIx.

use std::ffi::OsStr;
use wireup_wire::pmix::Begin;

/// Directories in which its components make files shared by the ranks of a node. The file names contain job and local rank but not the
/// node, so nodes on one machine would use each other's files.
const SHARED_FILES: [&str; 4] = [
    "OMPI_MCA_btl_vader_backing_directory",
    "OMPI_MCA_btl_sm_backing_directory",
    "OMPI_MCA_osc_rdma_backing_directory",
    "OMPI_MCA_osc_sm_backing_directory",
];
/// Version 4 polls without yielding when ranks outnumber the CPUs, unless its launcher sets this; version 5 asks through PMIx.
const YIELD: &str = "OMPI_MCA_mpi_yield_when_idle";

/// `NAME=VALUE` for every rank, except variables that the user has set. `is_set` checks the job's environment.
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
