//! Settings that Open MPI reads from the environment instead of PMIx.

use wireup_wire::pmix::Begin;

/// Directories in which components of Open MPI create files shared by the ranks of a node. The file names contain job
/// and local rank but not the node, so two nodes on one machine would use each other's files.
const SHARED_FILES: [&str; 4] = [
    "OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory", "OMPI_MCA_osc_rdma_backing_directory",
    "OMPI_MCA_osc_sm_backing_directory",
];
/// The variable that makes Open MPI 4 yield while it polls, which its launcher sets when ranks outnumber the CPUs; Open
/// MPI 5 reads this setting from PMIx.
const YIELD: &str = "OMPI_MCA_mpi_yield_when_idle";

/// Variables `NAME=VALUE` that each rank gets unless the job sets them.
pub fn defaults(begin: &Begin) -> Vec<Vec<u8>> {
    let mut defaults = Vec::new();
    if begin.shared {
        defaults.extend(SHARED_FILES.map(|name| format!("{name}={}", begin.dir).into_bytes()));
    }
    if begin.oversubscribed {
        defaults.push(format!("{YIELD}=1").into_bytes());
    }
    defaults
}
