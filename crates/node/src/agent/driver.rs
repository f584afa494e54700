//! The agent's main loop: wait, read what is ready, pass it to the state machine, perform its outputs.
//!
//! Each turn works in batches: all ready descriptors are read (`waiting`, `events`), then every keeper and every link
//! is written once (`perform`). Only PMI replies are sent at once, since a rank waits for each of them.

mod events;
mod orphans;
mod perform;
mod waiting;

use super::further::Further;
use super::jobs::Jobs;
use super::keepers::Keepers;
use super::link_config::LinkConfig;
use super::link_end;
use super::links::LinkSet;
use super::memory::RankMemory;
use super::parent_weight::ParentWeight;
use super::rank_ports::ReservedPorts;
use super::shells::Shells;
use crate::keeper::{Keeper, forker, leaving};
use crate::record::{Entry, Header, Recorder};
use crate::remedy::{self, Advised};
use crate::transport::link::Link;
use bytes::Bytes;
use orphans::Orphans;
use std::env::consts::ARCH;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::Reactor;
use wireup_os::secret_page::SecretPage;
use wireup_proto::io::Input;
use wireup_proto::{Agent, AgentConfig, Instant};
use wireup_wire::frame::Frame;
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{Secret, SessionSpec};

pub struct AgentDriver {
    /// Number of CPUs that ranks on this node may use.
    cpus: usize,
    agent: Agent,
    reactor: Reactor,
    links: LinkSet,
    jobs: Jobs,
    further: Further,
    /// Keepers without a job, and where keepers for new jobs come from.
    keepers: Keepers,
    /// Memory that ranks map.
    memory: RankMemory,
    /// Ports that are reserved for the ranks of later jobs.
    rank_ports: ReservedPorts,
    shells: Option<Shells>,
    recorder: Option<Recorder>,
    inputs: Vec<Input>,
    /// Buffer for every read; the kernel allocates its pages when they are first touched.
    buffer: Box<[u8]>,
    /// Frames for a launcher that runs in this process.
    for_launcher: Vec<Frame>,
    /// Whether frames are waiting on some link.
    unsent: bool,
    left: bool,
    /// Whether the state machine knows the addresses at which others dial in.
    listening: bool,
    /// The deadline that the last call of `deadline_ns` returned.
    due_ns: Option<u64>,
    orphans: Orphans,
    parent_weight: ParentWeight,
}

/// Why an agent cannot start.
#[derive(thiserror::Error, Debug)]
pub enum BeginError {
    #[error("cannot create an epoll instance: {}", Advised(.0))]
    Reactor(io::Error),
    #[error(
        "cannot write the recording in {directory}: {error}; name another folder with --record, or free space there"
    )]
    Record { directory: String, error: io::Error },
    #[error("cannot connect to the parent agent: {problem}; {}", remedy::of_dialling(*.same_machine))]
    Dial { problem: String, same_machine: bool },
    /// This agent has no address to connect from, or its parent none to connect to.
    #[error("cannot connect to the parent agent: {0}")]
    NoAddress(String),
    #[error("cannot listen for other agents: {0}")]
    Listen(String),
    #[error("cannot watch the Slurm step: {}", Advised(.0))]
    Step(io::Error),
    #[error("no memory for the session's secret: {}", Advised(.0))]
    Secret(io::Error),
}

impl AgentDriver {
    /// # Errors
    /// No descriptor is left, or a recording cannot be begun.
    pub fn new(config: AgentConfig, secret: Option<Secret>) -> Result<Self, BeginError> {
        let mut config = AgentConfig { arch: Some(ARCH), ..config };
        let mut keepers = Keepers::new(&mut config.session.containment);
        let reactor = Reactor::new().map_err(BeginError::Reactor)?;
        if let Some(secret) = &secret {
            keepers.meet_fellows(secret, &reactor);
        }
        let recorder = match &config.session.record_dir {
            None => None,
            Some(directory) => Some(
                Recorder::create(Path::new(directory), &Header::from(&config))
                    .map_err(|error| BeginError::Record { directory: directory.clone(), error })?,
            ),
        };
        let me = config.agent;
        let secret = secret.map(|secret| SecretPage::new(&secret.0)).transpose().map_err(BeginError::Secret)?;
        let mut links = LinkConfig::new(&config.session, me, std::env::var("SSH_CONNECTION").ok().as_deref());
        if let Some(place) = config.snapshot.place(me) {
            (links.parent, links.incarnation) = (place.parent, place.incarnation);
        }
        Ok(AgentDriver {
            cpus: wireup_os::bind::allowed().map_or(1, |cpus| cpus.len()),
            keepers,
            agent: Agent::new(config),
            reactor,
            links: LinkSet::new(me, secret, links),
            jobs: Jobs::default(),
            further: Further::default(),
            memory: RankMemory::default(),
            rank_ports: ReservedPorts::default(),
            shells: None,
            recorder,
            inputs: Vec::new(),
            buffer: vec![0; link_end::READ_BYTES_MAX].into(),
            for_launcher: Vec::new(),
            unsent: false,
            left: false,
            listening: false,
            due_ns: None,
            orphans: Orphans::default(),
            parent_weight: ParentWeight::default(),
        })
    }

    pub fn session(&self) -> &SessionSpec {
        self.agent.session()
    }

    pub fn reactor(&self) -> &Reactor {
        &self.reactor
    }

    /// Adopts a launcher whose version exchange is done, with the bytes that it sent after that.
    ///
    /// # Errors
    /// Its socket cannot be watched.
    pub fn adopt_launcher(&mut self, socket: OwnedFd, early: Bytes) -> io::Result<()> {
        self.links.adopt(Link::local(socket, early), &self.reactor, &mut self.inputs)?;
        self.take_inputs();
        Ok(())
    }

    /// Why the parent cannot be reached; the agent must then exit.
    pub fn unreachable(&self) -> Option<&str> {
        self.links.unreachable()
    }

    /// The parent cannot be reached.
    pub fn cannot_dial(&self, problem: String) -> BeginError {
        match self.links.was_dialled_in_vain() {
            true => BeginError::Dial { problem, same_machine: self.session().remote_shell.starter().same_machine },
            false => BeginError::NoAddress(problem),
        }
    }

    /// Dials the parent; `by_parent` is the field of the bootstrap message.
    pub fn dial(&mut self, parent: &[String], by_parent: bool) -> Result<(), BeginError> {
        self.links.dial(parent, by_parent, &self.reactor).map_err(|problem| self.cannot_dial(problem))
    }

    /// Starts the agent of a standing session: other agents are started, and keepers are kept. Call it once,
    /// before anything else; it does nothing in the session of a single job.
    pub fn begin_standing(&mut self) {
        if self.agent.session().standing.is_none() {
            return;
        }
        let now = Instant(monotonic_ns());
        self.record(|| Entry::Begin(now));
        self.agent.begin(now);
        self.keepers.stand();
    }

    /// Launches a job that came with the bootstrap message.
    pub fn launch(&mut self, job: Arc<JobSpec>) {
        let now = Instant(monotonic_ns());
        self.record(|| Entry::Launch(now, Box::new(JobSpec::clone(&job))));
        self.agent.launch(now, job);
    }

    pub fn handle(&mut self, input: Input) {
        let now = Instant(monotonic_ns());
        self.record(|| Entry::Input(now, input.clone()));
        self.agent.handle(now, input);
    }

    /// Whether the state machine has finished.
    pub fn has_left(&self) -> bool {
        self.left
    }

    /// Takes the frames for the launcher in this process, in order.
    pub fn take_for_launcher(&mut self) -> Vec<Frame> {
        std::mem::take(&mut self.for_launcher)
    }

    /// Performs the state machine's outputs until there are none left.
    pub fn settle(&mut self) {
        loop {
            self.perform_all();
            self.flush_links();
            for ranks in self.jobs.values_mut() {
                ranks.flush_keeper(&self.reactor);
            }
            if let Some(shells) = &mut self.shells {
                shells.flush_keeper(&self.reactor);
            }
            if self.inputs.is_empty() {
                return;
            }
            self.take_inputs();
        }
    }

    /// Ends all keepers, with all processes that they still hold, and waits until they are gone.
    pub fn end(mut self) {
        self.flush_recording();
        if let Some(shells) = &mut self.shells {
            shells.end_steps(&self.reactor);
        }
        let first = self.keepers.take_first();
        let Self { jobs, shells, keepers, reactor, orphans, .. } = self;
        let jobs = jobs.into_values().map(|ranks| ranks.into_keeper().into_keeper(&reactor));
        let shells = shells.map(|shells| shells.into_keeper(&reactor));
        let keepers: Vec<Keeper> = keepers.into_keepers(jobs, &reactor).chain(shells).collect();
        forker::end();
        keepers.into_iter().for_each(Keeper::leave);
        leaving::end();
        orphans.end();
        // The end of the first process ends what killed keepers of its namespace have left.
        let _ = first.map(Keeper::close);
    }

    fn take_inputs(&mut self) {
        let mut inputs = std::mem::take(&mut self.inputs);
        for input in inputs.drain(..) {
            self.handle(input);
        }
        // The list's memory is used again for the next event.
        self.inputs = inputs;
    }

    fn record(&mut self, entry: impl FnOnce() -> Entry) {
        if let Some(recorder) = &mut self.recorder
            && let Err(error) = recorder.entry(&entry())
        {
            self.stop_recording(&error);
        }
    }

    fn flush_recording(&mut self) {
        if let Some(recorder) = &mut self.recorder
            && let Err(error) = recorder.flush()
        {
            self.stop_recording(&error);
        }
    }

    /// Ends a recording, for which the disk is full for example. The job goes on.
    fn stop_recording(&mut self, error: &io::Error) {
        self.recorder = None;
        let folder = self.session().record_dir.as_deref().unwrap_or_default();
        let error = Advised(error);
        // Nothing can be done if the reader of standard error is gone.
        let _ = writeln!(io::stderr(), "wireup: the recording in {folder} is incomplete and not continued: {error}");
    }
}
