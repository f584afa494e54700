//! Registers other jobs of the session with the library: ranks of this job have started them, or meet their ranks.
//!
//! They are registered without clients, also if they have ranks on this node, since these belong to another server
//! process. To be called by the main thread: the library's thread would wait for itself.

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

/// The callback of a call for whose result nobody waits.
unsafe extern "C" fn forgotten(_: Status, _: *mut c_void) {}

impl Server {
    /// Registers another job of which the agent tells.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn learn(&self, job: &OtherJob) -> Result<(), String> {
        if job.nspace == self.job.nspace || self.others.has(&job.nspace) {
            return Ok(());
        }
        let size = job.apps.iter().map(|app| app.ranks).sum();
        let mapping = Mapping::new(&job.blocks, size, job.nodes.len() as u32)
            .map_err(|error| format!("job {}: {error}", job.nspace))?;
        let names: Vec<String> = job.nodes.iter().map(|(_, name)| name.clone()).collect();
        let here = job.nodes.iter().position(|(agent, _)| *agent == self.job.agent).map(|at| NodeId(at as u32));
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
        // The job must be noted before the library is told: the library may at once ask for data of that job's ranks.
        self.others.lock().insert(job.nspace.clone());
        let code = self.library.register(&job.nspace, 0, &mut infos);
        done(&self.library, "PMIx_server_register_nspace of another job", code)
    }

    /// Removes an unknown job. The library has asked about a job that cannot be found; it has noted the name, and would
    /// let the next request about it wait forever. To be called on its thread.
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
            // SAFETY: without a callback the call blocks until it is done.
            unsafe { (self.library.functions.deregister_nspace)(name.as_ptr(), None, null_mut()) };
        }
    }
}
