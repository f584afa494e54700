//! The agent's main loop: wait, read what is ready, pass it to the state machine, perform its outputs.
//!
//! Each turn works in batches: all ready descriptors are read (`wait`, `on_event`), then every keeper and every link
//! is written once (`settle`). Only PMI replies are sent at once, since a rank waits for each of them.

use super::keepers::Keepers;
use super::link_config::LinkConfig;
use super::link_end;
use super::links::{IN_MEMORY, LinkSet, ListenError};
use super::local_jobs::LocalJobs;
use super::ranks::JobRanks;
use super::shells::{Shells, shell_failed};
use super::token::Token;
use super::transports::Offer;
use super::turn::Turn;
use crate::keeper::forker;
use crate::record::{Header, Recorder};
use crate::remedy::{self, Advised, spawn_error};
use crate::transport::link::Link;
use blake2::{Blake2s256, Digest};
use bytes::Bytes;
use std::env::consts::ARCH;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::{Event, Reactor};
use wireup_os::secret_page::SecretPage;
use wireup_proto::io::{How, Input, JobEvent, Output, ShellId};
use wireup_proto::replay::Recorded;
use wireup_proto::{Agent, AgentConfig, Instant};
use wireup_wire::frame::Frame;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::{JobSpec, PortRange};
use wireup_wire::peer::{Bootstrap, Secret, SessionSpec, SpawnError, SpawnStep};
use wireup_wire::rank_address;
use wireup_wire::session::NodeState;

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
    /// Whether frames were queued on links and not written yet.
    unsent: bool,
    left: bool,
    /// Whether the state machine was given the addresses at which other agents can dial this one.
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
    /// No descriptor is left, the recording cannot be begun, or there is no memory for the secret.
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

    pub fn nodes(&self) -> &[NodeState] {
        self.agent.nodes()
    }

    pub fn session(&self) -> &SessionSpec {
        self.agent.session()
    }

    pub fn reactor(&self) -> &Reactor {
        &self.reactor
    }

    /// Takes over the socket of a launcher that has exchanged protocol versions. `early`: bytes that it sent after that
    /// and that were already read.
    pub fn adopt_launcher(&mut self, socket: OwnedFd, early: Bytes) -> io::Result<()> {
        self.links.adopt(Link::local(socket, early), &self.reactor, &mut self.inputs)?;
        self.take_inputs();
        Ok(())
    }

    /// Why the parent cannot be reached, in which case the agent must exit; `None`: it was reached or is still dialled.
    pub fn unreachable(&self) -> Option<BeginError> {
        self.links.dials.unreachable().map(|problem| self.cannot_dial(problem.to_owned()))
    }

    fn cannot_dial(&self, problem: String) -> BeginError {
        match self.links.dials.was_dialled_in_vain() {
            true => BeginError::Dial { problem, same_machine: self.session().remote_shell.start_method().same_machine },
            false => BeginError::NoAddress(problem),
        }
    }

    /// Dials the parent at the addresses `parent`. `by_parent`: whether the parent itself started this agent through a
    /// remote shell.
    pub fn dial(&mut self, parent: &[String], by_parent: bool) -> Result<(), BeginError> {
        self.links.dial(parent, by_parent, &self.reactor).map_err(|problem| self.cannot_dial(problem))
    }

    /// Begins a standing session: starts the agents below this one, and keeps keepers for later jobs. Call it once,
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
        // Deadlines that were set since the last `deadline_ns` are found by the next call of it, before the loop waits
        // again.
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

    /// Passes an event of a descriptor to the part of the driver that owns the descriptor.
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
            Token::StoreListener(slot) => local.stores.on_listener(*slot, turn),
            Token::StoreClient(slot, client) => local.stores.on_client(*slot, *client, event, turn),
            Token::PmixServer(slot) => jobs.with_at(*slot, |ranks| {
                if let Some(pmix) = ranks.pmix.as_mut().filter(|_| event.writable) {
                    pmix.flush(turn.reactor);
                }
                if event.readable || event.hangup {
                    ranks.on_pmix_bytes(turn);
                }
            }),
            Token::Stacks(slot) => jobs.with_at(*slot, |ranks| ranks.on_stacks(turn)),
            Token::PmixError(slot) => {
                if let Some(pmix) = jobs.at(*slot).and_then(|ranks| ranks.pmix.as_mut()) {
                    pmix.on_error_text(turn);
                }
            }
            Token::Launcher(_) | Token::Caller(_) => {}
        }
        self.take_inputs();
        if let Token::Pmi(..) | Token::StoreClient(..) = token {
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
                shells.keeper.send(&self.reactor);
            }
            if self.inputs.is_empty() {
                return;
            }
            self.take_inputs();
        }
    }

    /// Ends all keepers and the processes that they have started, and waits until all of them are gone.
    pub fn end(mut self) {
        self.recorder.flush();
        if let Some(shells) = &mut self.shells {
            shells.end_steps(&self.reactor);
        }
        let Self { local, shells, reactor, .. } = self;
        local.end(shells.map(|shells| shells.keeper.unwatched(&reactor)), &reactor);
    }

    fn take_inputs(&mut self) {
        let mut inputs = std::mem::take(&mut self.inputs);
        for input in inputs.drain(..) {
            self.handle(input);
        }
        // Keeps the list, now empty, so that its memory is not allocated again for the next event.
        self.inputs = inputs;
    }
}

/// Performs the outputs of the state machine.
impl AgentDriver {
    /// Performs all pending outputs of the state machine.
    fn perform_all(&mut self) {
        while let Some(output) = self.agent.poll() {
            self.recorder.on_output(&output);
            self.perform(output);
        }
    }

    fn perform(&mut self, output: Output) {
        // Frames for other nodes are sent first, since ranks there wait longer than local ranks: a fence's result is
        // forwarded before the local ranks get it, and an allgather's result before it is written to shared memory
        // here.
        if self.unsent && matches!(output, Output::Share { .. } | Output::WriteSlot { .. } | Output::Reply { .. }) {
            self.flush_links();
        }
        let Self { reactor, links, local, shells, inputs, buffer, .. } = self;
        let jobs = &mut local.jobs;
        match output {
            Output::StartAgent { shell, host, how, bootstrap, .. } => {
                if let Err(error) = self.start_agent(shell, &host, how, bootstrap) {
                    self.inputs.push(shell_failed(shell, error));
                }
            }
            Output::StartStep { shell, agents, how, bootstrap } => {
                if let Err(error) = self.start_step(shell, agents, how, bootstrap) {
                    self.inputs.push(shell_failed(shell, error));
                }
            }
            Output::StopShell { shell } => shells.iter_mut().for_each(|shells| shells.stop(shell)),
            Output::Listen => {
                if let Err(error) = self.listen() {
                    let result = Err(format!("cannot listen for other agents: {error}"));
                    self.inputs.push(Input::Listening { result });
                }
            }
            Output::Dial { agent, addresses, point } => {
                links.dial_direct(agent, Offer { addresses, point, called_us: false }, reactor, inputs);
            }
            Output::Rejoin { root, rejoin } => links.rejoin(root, rejoin, reactor, inputs),
            Output::OpenTransport => {
                // The transport's library may start threads, so the process that forks keepers is started before it is
                // opened.
                let ready = forker::before_threads();
                let ready = ready.map_err(|error| format!("cannot start a process that forks keepers: {error}"));
                let result =
                    ready.and_then(|()| links.transports.open_agreed(self.agent.session().links.transport, reactor));
                inputs.push(Input::TransportOpened { result });
            }
            Output::Send { link: IN_MEMORY, frame } => self.for_launcher.push(frame),
            Output::Send { link, frame } => {
                self.unsent = true;
                links.send(link, frame);
            }
            Output::CloseLink { link } => links.close(link),
            Output::ReserveRankPorts { count, range: range @ PortRange { low, high } } => {
                let base = local.rank_ports.reserve(count, range).map_err(|error| {
                    format!("cannot reserve {count} consecutive ports of {low}-{high} for ranks: {error}")
                });
                let address = |base| address_of_ranks(links, base).map_err(|error| error.to_string());
                inputs.push(Input::RankPortsReserved { result: base.and_then(address) });
            }
            Output::RenewRankPorts { job } => {
                if local.rank_ports.renew(job) {
                    inputs.push(Input::RankPortsRenewed { job });
                }
            }
            Output::ListenForRanks { job, count, ports, base, kernel_session } => {
                let base = local.sockets_for_ranks(job, kernel_session, count, ports, base, reactor);
                let result = base.and_then(|base| Ok(address_of_ranks(links, base)?));
                inputs.push(Input::Job { job, event: JobEvent::RanksListen { result } });
            }
            Output::ReserveRendezvous { job, count, range, kernel_session } => {
                let port = local.reserve_rendezvous(job, kernel_session, count, range, reactor);
                let result = port.and_then(|port| Ok(SocketAddr::new(links.ips()?[0], port)));
                inputs.push(Input::Job { job, event: JobEvent::RendezvousReserved { result } });
            }
            Output::Relay { job, relay, act } => jobs.with(job, |ranks| {
                let turn = &mut Turn { now_ns: monotonic_ns(), reactor, buffer, inputs };
                ranks.relays.on_act(relay, act, host_number, &mut ranks.clients, turn);
            }),
            Output::ListenForStore { job, kernel_session } => {
                let result = local.listen_for_store(job, kernel_session, reactor);
                inputs.push(Input::Job { job, event: JobEvent::StoreListens { result } });
            }
            Output::Store { job, client, act } => {
                let turn = &mut Turn { now_ns: monotonic_ns(), reactor, buffer, inputs };
                if let Some(ranks) = jobs.by_id.get(&job) {
                    local.stores.on_act(ranks.slot, client, act, turn);
                }
            }
            Output::TellSecret { job } => {
                let event = match links.secret() {
                    Ok(secret) => JobEvent::SecretOfRanks { secret: secret_of_ranks(&secret, job) },
                    Err(error) => JobEvent::RanksListen { result: Err(no_secret("the secret of the ranks", &error)) },
                };
                inputs.push(Input::Job { job, event });
            }
            Output::StartPmix(plan) => local.start_pmix(&plan, reactor, inputs),
            Output::PmixSend { job, bytes } => {
                if let Some(pmix) = jobs.by_id.get_mut(&job).and_then(|ranks| ranks.pmix.as_mut()) {
                    pmix.send(bytes, reactor);
                }
            }
            Output::Spawn(mut plan) => {
                let network = links.network_variables(&plan.framework.network);
                plan.programs.iter_mut().for_each(|program| program.env.extend_from_slice(&network));
                let own_devices = self.agent.session().remote_shell.start_method().by_step();
                local.spawn(&plan, own_devices, reactor, inputs);
            }
            Output::Signal { job, target, signal } => jobs.with(job, |ranks| ranks.signal(target, signal)),
            Output::Sweep { job } => jobs.with(job, JobRanks::sweep),
            Output::Share { job, share, content } => inputs.extend(local.memory.share(job, share, &content)),
            Output::WriteSlot { job, share, slot, array } => {
                inputs.extend(local.memory.write(job, share, slot, &array));
            }
            Output::Unshare { job, share } => local.memory.unshare(job, share),
            Output::Reply { job, client, bytes, shares } => {
                if let Some(shares) = local.memory.for_reply(job, &shares) {
                    jobs.with(job, |ranks| ranks.clients.reply(client, bytes, shares, reactor));
                }
            }
            Output::CloseClient { job, client } => {
                jobs.with(job, |ranks| ranks.clients.close_client(client, reactor));
            }
            Output::Write { job, local, bytes } => jobs.with(job, |ranks| {
                ranks.stdin.write(local, bytes, &mut Turn { now_ns: monotonic_ns(), reactor, buffer, inputs });
            }),
            Output::ReadStdio { job, stream, on } => jobs.with(job, |ranks| {
                ranks.output.read_stdio(stream, on, &mut Turn { now_ns: monotonic_ns(), reactor, buffer, inputs });
            }),
            Output::Resize { job, local, rows, columns } => {
                jobs.with(job, |ranks| ranks.stdin.resize(local, rows, columns));
            }
            Output::TakeStacks { job, processes } => {
                let turn = &mut Turn { now_ns: monotonic_ns(), reactor, buffer, inputs };
                jobs.with(job, |ranks| ranks.take_stacks(&processes, turn));
            }
            Output::OfFamily { job, family, by } => {
                local.keepers.join(job, family);
                local.parent_weight.parents.insert(job, by);
            }
            Output::MeetsFamily { job } => local.parent_weight.on_started(job, monotonic_ns()),
            Output::JobGone { job } => {
                local.on_job_gone(job, shells.as_ref().map(|shells| &shells.keeper), reactor);
            }
            Output::Exit => self.left = true,
        }
    }

    pub(super) fn flush_links(&mut self) {
        self.unsent = false;
        self.links.flush(&self.reactor, &mut self.inputs);
    }

    fn start_agent(
        &mut self,
        shell: ShellId,
        host: &str,
        how: How,
        mut bootstrap: Option<Box<Bootstrap>>,
    ) -> Result<(), SpawnError> {
        if let Some(bootstrap) = &mut bootstrap {
            self.complete(bootstrap)?;
        }
        let Self { shells, local, reactor, agent: machine, .. } = self;
        shells_of(shells, &mut local.keepers, reactor)?.start(shell, host, how, machine.session(), bootstrap.as_deref())
    }

    fn start_step(
        &mut self,
        shell: ShellId,
        agents: Vec<AgentId>,
        how: How,
        mut bootstrap: Box<Bootstrap>,
    ) -> Result<(), SpawnError> {
        self.complete(&mut bootstrap)?;
        let Self { shells, local, reactor, .. } = self;
        shells_of(shells, &mut local.keepers, reactor)?.start_step(shell, agents, how, bootstrap)
    }

    /// Fills in the session's secret and this agent's addresses in a bootstrap message.
    fn complete(&mut self, bootstrap: &mut Bootstrap) -> Result<(), SpawnError> {
        bootstrap.secret = self.links.secret().map_err(|error| no_secret("the run's secret", &error))?;
        self.local.keepers.meet_fellows(&bootstrap.secret, &self.reactor);
        let addresses = self.listen()?;
        if bootstrap.parent.is_empty() {
            bootstrap.parent = addresses;
        }
        Ok(())
    }

    /// Listens for other agents. Returns the addresses at which they can dial this one, which the first call also
    /// passes to the state machine.
    pub fn listen(&mut self) -> Result<Vec<String>, ListenError> {
        let addresses = self.links.transports.listen(&self.reactor)?;
        if !std::mem::replace(&mut self.listening, true) {
            self.inputs.push(Input::Listening { result: Ok(addresses.clone()) });
        }
        Ok(addresses)
    }
}

/// The driver of the remote shells. The first call makes it, with a keeper that serves only remote shells.
fn shells_of<'s>(
    shells: &'s mut Option<Shells>,
    keepers: &mut Keepers,
    reactor: &Reactor,
) -> Result<&'s mut Shells, SpawnError> {
    match shells {
        Some(shells) => Ok(shells),
        None => {
            let begun = keepers.for_shells(reactor).and_then(|keeper| Shells::new(keeper, reactor));
            let what = "the process that is to call the remote shells";
            Ok(shells.insert(begun.map_err(|error| spawn_error(SpawnStep::Fork, what, &error))?))
        }
    }
}

/// The secret that the ranks of a job prove to each other: all agents can derive it from the session's secret, and it
/// gives access to nothing else.
fn secret_of_ranks(session: &Secret, job: JobId) -> Secret {
    let digest = Blake2s256::new().chain_update(session.0).chain_update(b"ranks").chain_update(job.0.to_le_bytes());
    Secret(digest.finalize().into())
}

/// The encoded address (`wireup_wire::rank_address`) of ranks on this node; `port`: the port of the first of them.
fn address_of_ranks(links: &LinkSet, port: u16) -> Result<Bytes, ListenError> {
    Ok(rank_address::encode(host_number(), port, &links.ips()?).into())
}

/// A number that identifies this machine's loopback interface, made from the boot id and the network namespace: all
/// agents that share the interface get the same number.
fn host_number() -> u64 {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let digest = Blake2s256::new().chain_update(boot).chain_update(network.as_os_str().as_bytes()).finalize();
    u64::from_le_bytes(std::array::from_fn(|index| digest[index]))
}

fn no_secret(what: &str, error: &io::Error) -> SpawnError {
    spawn_error(SpawnStep::Secret, what, error)
}
