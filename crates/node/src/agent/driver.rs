//! The agent's main loop: wait, read what is ready, pass it to the state machine, perform its outputs.
//!
//! Each turn works in batches: all ready descriptors are read (`wait`, `on_event`), then every keeper and every link
//! is written once (`perform`). Only PMI replies are sent at once, since a rank waits for each of them.

mod perform;

use super::keepers::Keepers;
use super::link_config::LinkConfig;
use super::link_end;
use super::links::LinkSet;
use super::local_jobs::LocalJobs;
use super::shells::Shells;
use super::token::Token;
use super::turn::Turn;
use crate::record::{Header, Recorder};
use crate::remedy::{self, Advised};
use crate::transport::link::Link;
use bytes::Bytes;
use std::env::consts::ARCH;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::{Event, Reactor};
use wireup_os::secret_page::SecretPage;
use wireup_proto::io::Input;
use wireup_proto::replay::Recorded;
use wireup_proto::{Agent, AgentConfig, Instant};
use wireup_wire::frame::Frame;
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{Secret, SessionSpec};

pub struct AgentDriver {
    agent: Agent,
    reactor: Reactor,
    links: LinkSet,
    local: LocalJobs,
    shells: Option<Shells>,
    recorder: Recorder,
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
            None => Recorder::default(),
            Some(directory) => Recorder::create(Path::new(directory), &Header::from(&config))
                .map_err(|error| BeginError::Record { directory: directory.clone(), error })?,
        };
        let me = config.agent;
        let secret = secret.map(|secret| SecretPage::new(&secret.0)).transpose().map_err(BeginError::Secret)?;
        let mut links = LinkConfig::new(&config.session, me, std::env::var("SSH_CONNECTION").ok().as_deref());
        if let Some(place) = config.snapshot.place(me) {
            (links.parent, links.incarnation) = (place.parent, place.incarnation);
        }
        Ok(AgentDriver {
            agent: Agent::new(config),
            reactor,
            links: LinkSet::new(me, secret, links),
            local: LocalJobs::new(keepers),
            shells: None,
            recorder,
            inputs: Vec::new(),
            buffer: vec![0; link_end::READ_BYTES_MAX].into(),
            for_launcher: Vec::new(),
            unsent: false,
            left: false,
            listening: false,
            due_ns: None,
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
    pub fn unreachable(&self) -> Option<BeginError> {
        self.links.dials.unreachable().map(|problem| self.cannot_dial(problem.to_owned()))
    }

    fn cannot_dial(&self, problem: String) -> BeginError {
        match self.links.dials.was_dialled_in_vain() {
            true => BeginError::Dial { problem, same_machine: self.session().remote_shell.start_method().same_machine },
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
        self.recorder.record(|| Recorded::Begin(now));
        self.agent.begin(now);
        self.local.keepers.stand();
    }

    /// Launches a job that came with the bootstrap message.
    pub fn launch(&mut self, job: Arc<JobSpec>) {
        let now = Instant(monotonic_ns());
        self.recorder.record(|| Recorded::Launch(now, Box::new(JobSpec::clone(&job))));
        self.agent.launch(now, job);
    }

    pub fn handle(&mut self, input: Input) {
        let now = Instant(monotonic_ns());
        self.recorder.record(|| Recorded::Input(now, input.clone()));
        self.agent.handle(now, input);
    }

    /// Waits for events, at most until `until_ns`; the caller dispatches them.
    pub fn wait(&mut self, until_ns: Option<u64>) -> io::Result<Vec<Event>> {
        self.recorder.flush();
        let Self { reactor, links, inputs, buffer, .. } = self;
        links.wait(until_ns, reactor, buffer, inputs)
    }

    /// When `on_tick` is due.
    pub fn deadline_ns(&mut self) -> Option<u64> {
        self.due_ns = self.find_deadline_ns();
        self.due_ns
    }

    fn find_deadline_ns(&self) -> Option<u64> {
        let machine = self.agent.deadline().map(|at| at.0);
        let own =
            [self.links.deadline_ns(), self.shells.as_ref().and_then(Shells::deadline_ns), self.local.deadline_ns()];
        own.into_iter().flatten().chain(machine).min()
    }

    /// Handles deadlines that have passed.
    pub fn on_tick(&mut self) {
        // Deadlines that were set since the last `deadline_ns` are found by the next one, before any wait.
        let Some(due_ns) = self.due_ns else { return };
        let now_ns = monotonic_ns();
        if now_ns < due_ns {
            return;
        }
        let Self { reactor, links, local, shells, inputs, buffer, .. } = self;
        let turn = &mut Turn { now_ns, reactor, buffer, inputs };
        links.on_tick(turn);
        shells.iter_mut().for_each(|shells| shells.on_tick(now_ns));
        local.on_tick(shells.as_ref().map(|shells| &shells.keeper), turn);
        self.inputs.push(Input::Tick);
        self.take_inputs();
    }

    /// Passes a ready descriptor to its owner.
    pub fn on_event(&mut self, token: Token, event: Event) {
        let Self { reactor, links, local, shells, inputs, buffer, .. } = self;
        let turn = &mut Turn { now_ns: monotonic_ns(), reactor, buffer, inputs };
        let jobs = &mut local.jobs;
        match &token {
            Token::Transport(which) => links.on_transport(*which, turn),
            Token::Link(id) => links.on_event(*id, event, turn),
            Token::Shells => shells.iter_mut().for_each(|shells| shells.on_keeper(turn)),
            Token::ShellError(shell) => shells.iter_mut().for_each(|shells| shells.on_error_text(*shell, turn)),
            Token::StepIn(shell) => shells.iter_mut().for_each(|shells| shells.steps.on_input(*shell, turn.reactor)),
            Token::StepOut(shell) => shells.iter_mut().for_each(|shells| shells.on_step_output(*shell, turn)),
            Token::Keeper(slot) => local.on_keeper(*slot, turn),
            Token::IdleKeeper(pid) => local.keepers.on_event(*pid, turn.reactor),
            Token::Output(slot, rank, stream) => {
                jobs.with_at(*slot, |ranks| ranks.output.on_readable(*rank, *stream, turn));
            }
            Token::Pmi(slot, client) => {
                jobs.with_at(*slot, |ranks| ranks.clients.on_pmi_event(*client, event, turn));
            }
            Token::SecondaryClients => local.secondary_clients.on_event(jobs, turn),
            Token::Fellows => local.keepers.answer_fellows(turn.reactor),
            Token::Stdin(slot, rank) => jobs.with_at(*slot, |ranks| ranks.stdin.flush(*rank, turn)),
            Token::Relay(slot, relay) => {
                jobs.with_at(*slot, |ranks| ranks.relays.on_relay_event(*relay, event, turn));
            }
            Token::PmixServer(slot) => jobs.with_at(*slot, |ranks| {
                if let Some(pmix) = ranks.pmix.as_mut().filter(|_| event.writable) {
                    pmix.flush(turn.reactor);
                }
                if event.readable || event.hangup {
                    ranks.on_pmix_bytes(turn);
                }
            }),
            Token::PmixError(slot) => {
                if let Some(pmix) = jobs.at(*slot).and_then(|ranks| ranks.pmix.as_mut()) {
                    pmix.on_error_text(turn);
                }
            }
            Token::Launcher(_) | Token::Caller(_) => {}
        }
        self.take_inputs();
        if let Token::Pmi(..) = token {
            // A rank gets its reply at once, so that it can go on while the next request is read.
            self.perform_all();
        }
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
            self.local.flush_keepers(&self.reactor);
            if let Some(shells) = &mut self.shells {
                shells.keeper.flush(&self.reactor);
            }
            if self.inputs.is_empty() {
                return;
            }
            self.take_inputs();
        }
    }

    /// Ends all keepers, with all processes that they still hold, and waits until they are gone.
    pub fn end(mut self) {
        self.recorder.flush();
        if let Some(shells) = &mut self.shells {
            shells.end_steps(&self.reactor);
        }
        let Self { local, shells, reactor, .. } = self;
        local.end(shells.map(|shells| shells.keeper.into_keeper(&reactor)), &reactor);
    }

    fn take_inputs(&mut self) {
        let mut inputs = std::mem::take(&mut self.inputs);
        for input in inputs.drain(..) {
            self.handle(input);
        }
        // The list's memory is used again for the next event.
        self.inputs = inputs;
    }
}
