//! Registers other jobs of the session with the library: jobs that ranks of this job have spawned, and jobs to whose
//! ranks the ranks of this job connect.
//!
//! Other jobs are registered without clients, even if they have ranks on this node, which another server process
//! serves. The functions must be called by the main thread: the library's thread would wait for itself.

use super::clients::done;
use super::job_data::{Facts, other_infos};
use super::state::Server;
use crate::infos::c_text;
use crate::sys::types::Status;
use std::ffi::c_void;
use std::ptr::null_mut;
use wireup_coll::mapping::Mapping;
use wireup_wire::ids::NodeId;
use wireup_wire::inter_job::OtherJob;

/// The callback of a call whose result is not needed.
unsafe extern "C" fn forgotten(_: Status, _: *mut c_void) {}

impl Server {
    /// Registers another job that the agent has described.
    ///
    /// # Errors
    /// A text that says what is wrong with the job.
    pub fn learn(&self, job: &OtherJob) -> Result<(), String> {
        if job.nspace == self.job.begin.nspace || self.others.has(&job.nspace) {
            return Ok(());
        }
        let size = job.apps.iter().map(|app| app.ranks).sum();
        let mapping = Mapping::new(&job.blocks, size, job.nodes.len() as u32)
            .map_err(|error| format!("job {}: {error}", job.nspace))?;
        let names: Vec<String> = job.nodes.iter().map(|(_, name)| name.clone()).collect();
        let here = job.nodes.iter().position(|(agent, _)| *agent == self.job.begin.agent).map(|at| NodeId(at as u32));
        let mut infos = other_infos(&Facts {
            nspace: &job.nspace,
            size,
            mapping: &mapping,
            nodes: &names,
            node: here.filter(|node| mapping.local_size(*node) > 0),
            apps: &job.apps,
            universe: job.universe,
            parent: job.parent.as_ref(),
        });
        // The job must be recorded before it is registered: the library may at once request data of the job's ranks.
        self.others.lock().insert(job.nspace.clone());
        let code = self.library.register(&job.nspace, 0, &mut infos);
        done(&self.library, "PMIx_server_register_nspace of another job", code)
    }

    /// Deregisters a job that cannot be found, if the job is not registered: the library has recorded the job's name
    /// when it requested the job's data, and would let the next request wait forever. Must be called on the library's
    /// thread.
    pub fn forget_unknown(&self, nspace: &str) {
        if !self.others.has(nspace) {
            let name = c_text(nspace);
            // SAFETY: the library copies the name, and calls `forgotten` without data.
            unsafe { (self.library.functions.deregister_nspace)(name.as_ptr(), Some(forgotten), null_mut()) };
        }
    }

    /// Deregisters another job, which has ended.
    pub fn forget(&self, nspace: &str) {
        if self.others.lock().remove(nspace) {
            let name = c_text(nspace);
            // SAFETY: without a callback the call blocks until the job is deregistered.
            unsafe { (self.library.functions.deregister_nspace)(name.as_ptr(), None, null_mut()) };
        }
    }
}
