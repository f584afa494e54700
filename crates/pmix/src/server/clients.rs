//! Registers ranks with the library, and makes the environment variables by which their clients find this server.
//! Registers other jobs of the session: jobs that ranks of this job have spawned, and jobs to whose ranks the ranks of
//! this job connect.

use super::job_data::{Facts, other_infos};
use super::state::Server;
use crate::infos::c_text;
use crate::library::Library;
use crate::sys::constants::status;
use crate::sys::types::Status;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;
use std::sync::{Condvar, Mutex, PoisonError};
use wireup_coll::mapping::Mapping;
use wireup_wire::ids::{NodeId, Rank};
use wireup_wire::inter_job::OtherJob;

/// Registers all local ranks at once, which takes one wait instead of two thread switches for each rank.
pub fn register(server: &Server, locals: &[Rank]) -> Result<(), String> {
    let outcomes = Outcomes::default();
    let data = std::ptr::from_ref(&outcomes).cast_mut().cast();
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut waiting = 0;
    let mut refused = status::SUCCESS;
    for &rank in locals {
        let name = server.name_of(rank);
        // SAFETY: the library copies the name; `outcomes` lives until all callbacks have run, which is waited for
        // below. Ranks run as the user of this process: the library refuses connections of any other user.
        let code =
            unsafe { (server.library.functions.register_client)(&name, user, group, null_mut(), Some(outcome), data) };
        match code {
            status::SUCCESS => waiting += 1,
            status::OPERATION_SUCCEEDED => {}
            code => refused = code,
        }
    }
    let code = outcomes.wait(waiting);
    done(&server.library, "PMIx_server_register_client", if refused == status::SUCCESS { code } else { refused })
}

/// Number of callbacks that have run, and the last error among them.
#[derive(Default)]
struct Outcomes {
    seen: Mutex<(usize, Status)>,
    changed: Condvar,
}

impl Outcomes {
    /// Waits for `count` callbacks; returns the last error, if any.
    fn wait(&self, count: usize) -> Status {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = self.changed.wait_while(seen, |seen| seen.0 < count).unwrap_or_else(PoisonError::into_inner);
        seen.1
    }
}

/// # Safety
/// `data` points to an `Outcomes` that waits for this call.
unsafe extern "C" fn outcome(code: Status, data: *mut c_void) {
    // SAFETY: the caller guarantees it.
    let outcomes = unsafe { &*data.cast_const().cast::<Outcomes>() };
    // Notified while the lock is held: the waiter cannot return and free `outcomes` before the lock is released.
    let mut seen = outcomes.seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.0 += 1;
    if code != status::SUCCESS && code != status::OPERATION_SUCCEEDED {
        seen.1 = code;
    }
    outcomes.changed.notify_all();
}

/// The environment variables by which a rank's client finds this server.
pub fn environment_of(server: &Server, rank: Rank) -> Result<Vec<Vec<u8>>, String> {
    let name = server.name_of(rank);
    let mut variables: *mut *mut c_char = null_mut();
    // SAFETY: the library appends to the array, which ends with a null pointer; array and strings are allocated with
    // `malloc`.
    let code = unsafe { (server.library.functions.setup_fork)(&name, &mut variables) };
    done(&server.library, "PMIx_server_setup_fork", code)?;
    // SAFETY: the library has filled `variables` with an array that ends with a null pointer.
    let texts = unsafe { crate::read::c_strs(variables) };
    let texts: Vec<(Vec<u8>, *const c_char)> =
        texts.iter().map(|text| (text.to_bytes().to_vec(), text.as_ptr())).collect();
    let env = texts.into_iter().map(|(text, memory)| {
        // SAFETY: each string was allocated with `malloc` and belongs to us; it is not read after this.
        unsafe { libc::free(memory.cast_mut().cast()) };
        text
    });
    let env = env.collect();
    // SAFETY: the array was allocated with `malloc` and belongs to us; it is not read after this.
    unsafe { libc::free(variables.cast()) };
    Ok(env)
}

/// The callback of a call whose result is not needed.
unsafe extern "C" fn forgotten(_: Status, _: *mut c_void) {}

/// Other jobs are registered without clients, even if they have ranks on this node, which another server process
/// serves.
impl Server {
    /// Registers another job that the agent has described. Must be called by the main thread: the library's thread
    /// would wait for itself.
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

    /// Deregisters another job, which has ended. Must be called by the main thread.
    pub fn forget(&self, nspace: &str) {
        if self.others.lock().remove(nspace) {
            let name = c_text(nspace);
            // SAFETY: without a callback the call blocks until the job is deregistered.
            unsafe { (self.library.functions.deregister_nspace)(name.as_ptr(), None, null_mut()) };
        }
    }
}

/// Checks the code of a blocking call, which returns "operation succeeded" when the operation is done.
pub fn done(library: &Library, call: &str, code: Status) -> Result<(), String> {
    if code == status::SUCCESS || code == status::OPERATION_SUCCEEDED {
        return Ok(());
    }
    // SAFETY: the library returns a string that lives as long as the library.
    let words = unsafe { CStr::from_ptr((library.functions.error_string)(code)) };
    Err(format!("{call}: {}", words.to_string_lossy()))
}
