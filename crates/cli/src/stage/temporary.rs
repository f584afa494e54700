//! A session for one run that stages files and finds no session: first the staging job runs in it, then the run's own.

use crate::flags::parsed::Parsed;
use crate::flags::{session, table as flag};
use crate::session::own_session::OwnSession;
use crate::session::up;
use crate::surroundings::Surroundings;
use crate::words::count;
use wireup_node::trace::Phase;
use wireup_os::clock::monotonic_ns;

pub struct Temporary {
    session: OwnSession,
    /// The start of the session, as a phase of the run's profile.
    pub phase: Phase,
}

impl Temporary {
    /// Starts the session's agents, and waits until all have started. Call it while the process has one thread.
    ///
    /// # Errors
    /// A node is missing.
    pub fn start(parsed: &Parsed, surroundings: &Surroundings, process_ns: u64) -> Result<Temporary, String> {
        let from_ns = monotonic_ns();
        let name = OwnSession::new_name("stage", surroundings);
        let (spec, told) = session::standing(parsed, surroundings, &name)?;
        let session = OwnSession::start(&spec, &told, process_ns)?;
        up::await_all(&name, &spec, parsed.verbose)?;
        let agents = count(spec.agents.len() as u32, "agent");
        Ok(Temporary { session, phase: Phase::new("start session", from_ns, monotonic_ns(), agents) })
    }

    /// The flags of the run for its job in this session, which has already decided about the nodes.
    pub fn flags(&self, mut parsed: Parsed) -> Parsed {
        parsed.take_back(flag::DECIDED_BY_SESSION);
        parsed.take_back(&[flag::NO_SESSION, flag::HOSTS, flag::HOST_FILE, flag::VIRTUAL_NODES]);
        Parsed { session: Some(self.session.name.clone()), ..parsed }
    }
}
