//! A session for one run that stages files and finds no session: first the staging job runs in it, then the run's own.

use crate::flags::parsed::Parsed;
use crate::flags::session;
use crate::session::{down, up};
use crate::surroundings::Surroundings;
use crate::words::count;
use wireup_node::trace::Phase;
use wireup_os::clock::monotonic_ns;
use wireup_os::process;
use wireup_wire::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

pub struct Temporary {
    name: String,
    /// Its start, for a profile.
    pub phase: Phase,
}

impl Temporary {
    /// Starts its agents, and waits until all have started. Call it while the process has one thread.
    ///
    /// # Errors
    /// A node is missing.
    pub fn begin(parsed: &Parsed, surroundings: &Surroundings, process_ns: u64) -> Result<Temporary, String> {
        let from_ns = monotonic_ns();
        // Containers may share the folder of sessions, and have the same pids.
        let name = format!("stage-{}-{:08x}", process::own_pid(), surroundings.tag);
        let (spec, told) = session::standing(parsed, surroundings, &name).map_err(|error| error.to_string())?;
        up::begin_for_this_process(&name, &spec, &told, process_ns)?;
        let agents = count(spec.agents.len() as u32, "agent");
        let mut temporary = Temporary { name, phase: Phase::new("start session", from_ns, from_ns, agents) };
        up::await_all(&temporary.name, &spec, parsed.verbose)?;
        temporary.phase.to_ns = monotonic_ns();
        Ok(temporary)
    }

    /// The flags of the run for its job in this session, which has already decided about the nodes.
    pub fn flags(&self, parsed: Parsed) -> Parsed {
        Parsed {
            session: Some(self.name.clone()),
            no_session: false,
            hosts: Vec::new(),
            host_files: Vec::new(),
            virtual_nodes: None,
            start: None,
            fanout: None,
            remote_shell: None,
            interface: None,
            plain_links: false,
            early_start: false,
            start_timeout_ns: None,
            node_timeout_ns: None,
            contain: None,
            transport: None,
            record: None,
            ..parsed
        }
    }
}

impl Drop for Temporary {
    /// Its agents end with this process in any case, so an interrupt, which the jobs have taken so far, ends this
    /// process at once.
    fn drop(&mut self) {
        process::unblock(&[SIGHUP, SIGINT, SIGQUIT, SIGTERM]);
        let _ = down::end(&self.name, true);
    }
}
