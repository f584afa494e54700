//! A session that ends with this process.

use super::{down, up};
use crate::flags::parsed::Parsed;
use crate::flags::session_nodes::StatedToUp;
use crate::flags::{session, table as flag};
use crate::surroundings::Surroundings;
use crate::words::count;
use wireup_node::session::{Claim, Owner, SessionDirectory};
use wireup_node::trace::Phase;
use wireup_os::clock::monotonic_ns;
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
        let name = spec.name.clone();
        let (place, claim) = SessionDirectory::claim(&name, false).map_err(|error| error.to_string())?;
        if matches!(claim, Claim::Taken) {
            return Err(format!("there is a session {name} already; end it with wireup down {name}"));
        }
        let owner = Owner::this_process().map_err(|error| format!("cannot make a pipe: {error}"))?;
        up::start_session(&place, &name, spec, told, Some(owner), process_ns)?;
        Ok(OwnSession { name })
    }

    /// Starts a session for one run that stages files and finds no session: first the staging job runs in it, then the
    /// run's own. Waits until all nodes have started. Returns also the start as a phase of the run's profile.
    pub fn for_run(
        parsed: &Parsed,
        surroundings: &Surroundings,
        process_ns: u64,
    ) -> Result<(OwnSession, Phase), String> {
        let from_ns = monotonic_ns();
        let name = OwnSession::new_name("stage", surroundings);
        let (spec, told) = session::standing(parsed, surroundings, &name)?;
        let session = OwnSession::start(&spec, &told, process_ns)?;
        up::await_all(&name, &spec, parsed.verbose)?;
        let agents = count(spec.agents.len() as u32, "agent");
        Ok((session, Phase::new("start session", from_ns, monotonic_ns(), agents)))
    }

    /// The flags of the run for its job in this session, which has already decided about the nodes.
    pub fn flags_of_run(&self, mut parsed: Parsed) -> Parsed {
        parsed.take_back(flag::DECIDED_BY_SESSION);
        parsed.take_back(&[flag::NO_SESSION, flag::HOSTS, flag::HOST_FILE, flag::VIRTUAL_NODES]);
        Parsed { session: Some(self.name.clone()), ..parsed }
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
