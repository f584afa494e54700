//! A session that ends with this process.

use super::{down, up};
use crate::flags::session_nodes::StatedToUp;
use crate::surroundings::Surroundings;
use wireup_os::process;
use wireup_wire::peer::SessionSpec;
use wireup_wire::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

pub struct OwnSession {
    pub name: String,
}

impl OwnSession {
    /// A name that no other session has: containers may share the folder of sessions, and have the same pids.
    pub fn new_name(purpose: &str, surroundings: &Surroundings) -> String {
        format!("{purpose}-{}-{:08x}", process::own_pid(), surroundings.tag)
    }

    /// Starts the agents of a session of that name, and does not wait for them. Call it while the process has one
    /// thread.
    pub fn start(spec: &SessionSpec, told: &StatedToUp, process_ns: u64) -> Result<OwnSession, String> {
        up::begin_for_this_process(&spec.name, spec, told, process_ns)?;
        Ok(OwnSession { name: spec.name.clone() })
    }
}

impl Drop for OwnSession {
    /// Ends the session. SIGHUP, SIGINT, SIGQUIT and SIGTERM, which were blocked for the jobs to handle, are unblocked
    /// first: one that arrives now ends this process at once, and the session's agents end with it in any case.
    fn drop(&mut self) {
        process::unblock(&[SIGHUP, SIGINT, SIGQUIT, SIGTERM]);
        let _ = down::end(&self.name, true);
    }
}
