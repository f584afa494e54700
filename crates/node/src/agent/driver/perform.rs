//! Performs the outputs of the state machine.

use super::super::keepers::Keepers;
use super::super::links::{IN_MEMORY, ListenError};
use super::super::ranks::JobRanks;
use super::super::shells::{Shells, in_words, shell_failed};
use super::super::transports::Offer;
use super::super::turn::Turn;
use super::AgentDriver;
use crate::binding;
use crate::keeper::forker;
use crate::spawn_error::spawn_error;
use blake2::{Blake2s256, Digest};
use bytes::Bytes;
use std::io;
use std::os::unix::ffi::OsStrExt;
use wireup_os::clock::monotonic_ns;
use wireup_os::process;
use wireup_os::reactor::Reactor;
use wireup_os::socket::NoRow;
use wireup_proto::io::{How, Input, JobEvent, KernelSession, Output, ShellId, SpawnPlan};
use wireup_proto::memory::ShareId;
use wireup_wire::ids::{AgentId, Client, JobId};
use wireup_wire::job::{PortRange, RankPorts};
use wireup_wire::peer::{Bootstrap, Secret, SpawnError, SpawnStep};
use wireup_wire::rank_address;

impl AgentDriver {
    /// Performs all pending outputs.
    pub(super) fn perform_all(&mut self) {
        while let Some(output) = self.agent.poll() {
            if let Some(recorder) = &mut self.recorder {
                recorder.on_output(&output);
            }
            self.perform(output);
        }
    }

    fn perform(&mut self, output: Output) {
        // Ranks on other nodes wait longer than the local ranks: so a fence's result is forwarded before the local
        // ranks get it, and an allgather's before it is laid out here.
        if self.unsent && matches!(output, Output::Share { .. } | Output::WriteSlot { .. } | Output::Reply { .. }) {
            self.flush_links();
        }
        let Self { reactor, links, jobs, further, inputs, buffer, memory, .. } = self;
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
            Output::StopShell { shell } => {
                if let Some(shells) = &mut self.shells {
                    shells.stop(shell);
                }
            }
            Output::Listen => self.listen_on_demand(),
            Output::Dial { agent, addresses, point } => {
                links.dial_direct(agent, Offer { addresses, point, called_us: false }, reactor, inputs);
            }
            Output::Rejoin { root, rejoin } => links.rejoin(root, rejoin, reactor, inputs),
            Output::OpenTransport => {
                // The library of the transport may start threads.
                let ready = forker::before_threads();
                let ready = ready.map_err(|error| format!("cannot start a process that forks keepers: {error}"));
                let result = ready.and_then(|()| links.open_agreed(self.agent.session().links.transport, reactor));
                inputs.push(Input::TransportOpened { result });
            }
            Output::Send { link: IN_MEMORY, frame } => self.for_launcher.push(frame),
            Output::Send { link, frame } => {
                self.unsent = true;
                links.send(link, frame);
            }
            Output::CloseLink { link } => links.close(link),
            Output::ReserveRankPorts { count, range } => {
                let result = self.reserve_rank_ports(count, range);
                self.inputs.push(Input::RankPortsReserved { result });
            }
            Output::RenewRankPorts { job } => {
                if self.rank_ports.renew(job) {
                    self.inputs.push(Input::RankPortsRenewed { job });
                }
            }
            Output::ListenForRanks { job, count, ports, base, kernel_session } => {
                let input = self.listen_for_ranks(job, kernel_session, count, ports, base);
                self.inputs.push(input);
            }
            Output::Relay { job, relay, act } => {
                if let Some(ranks) = jobs.get_mut(&job) {
                    let turn = &mut Turn { now_ns: monotonic_ns(), reactor, buffer, inputs };
                    ranks.on_relay(relay, act, host_number, turn);
                }
            }
            Output::TellSecret { job } => {
                self.inputs.push(match self.links.secret() {
                    Ok(secret) => {
                        Input::Job { job, event: JobEvent::SecretOfRanks { secret: secret_of_ranks(&secret, job) } }
                    }
                    Err(error) => Input::Job {
                        job,
                        event: JobEvent::RanksListenFailed { error: no_secret("the secret of the ranks", &error) },
                    },
                });
            }
            Output::StartPmix(plan) => {
                let ranks = jobs.ranks_of(plan.job, plan.kernel_session, &mut self.keepers, reactor);
                if let Err(error) = ranks.and_then(|ranks| ranks.start_pmix(&plan, reactor)) {
                    inputs.push(Input::Job { job: plan.job, event: JobEvent::PmixFailed { error: in_words(error) } });
                }
            }
            Output::PmixSend { job, bytes } => {
                if let Some(pmix) = jobs.get_mut(&job).and_then(JobRanks::pmix) {
                    pmix.send(bytes, reactor);
                }
            }
            Output::StopPmix { job } => self.with_ranks(job, JobRanks::stop_pmix),
            Output::Spawn(plan) => {
                if !plan.shares_machine {
                    // The agent gets the same short time slice as its ranks, which would otherwise preempt it just when
                    // it answers them.
                    process::shorten_slice();
                }
                let by_step = self.agent.session().remote_shell.starter().by_step();
                let ranks = jobs.ranks_of(plan.job, plan.kernel_session, &mut self.keepers, reactor);
                let spawned = ranks.and_then(|ranks| {
                    let lacking =
                        ranks.lacking().map(|what| Input::Job { job: plan.job, event: JobEvent::RanksLack { what } });
                    inputs.extend(lacking);
                    let picture = plan.report_bindings.then(|| binding::picture_of(&plan)).flatten();
                    inputs.extend(
                        picture.map(|picture| Input::Job { job: plan.job, event: JobEvent::RanksBound { picture } }),
                    );
                    ranks.spawn(&plan, by_step, further.name(reactor))?;
                    Ok(ranks.next_standby())
                });
                match spawned {
                    Ok(next) => {
                        next.into_iter().for_each(|server| self.keepers.plan_standby(plan.job, server));
                        self.lower_parent_weight(&plan);
                    }
                    Err(error) => inputs.extend(plan.ranks.iter().map(|rank| Input::Job {
                        job: plan.job,
                        event: JobEvent::RankStartFailed { local: rank.local, error: error.clone() },
                    })),
                }
            }
            Output::Signal { job, target, signal } => self.with_ranks(job, |ranks| ranks.signal(target, signal)),
            Output::Sweep { job } => self.with_ranks(job, JobRanks::sweep),
            Output::Share { job, share, content } => inputs.extend(memory.share(job, share, &content)),
            Output::WriteSlot { job, share, slot, array } => inputs.extend(memory.write(job, share, slot, &array)),
            Output::Unshare { job, share } => memory.unshare(job, share),
            Output::Reply { job, client, bytes, shares } => self.reply(job, client, bytes, &shares),
            Output::CloseClient { job, client } => {
                if let Some(ranks) = jobs.get_mut(&job) {
                    ranks.close_client(client, reactor);
                }
            }
            Output::Write { job, local, bytes } => {
                if let Some(ranks) = jobs.get_mut(&job) {
                    ranks.write_stdin(local, bytes, &mut Turn { now_ns: monotonic_ns(), reactor, buffer, inputs });
                }
            }
            Output::ReadStdio { job, stream, on } => {
                if let Some(ranks) = jobs.get_mut(&job) {
                    ranks.read_stdio(stream, on, &mut Turn { now_ns: monotonic_ns(), reactor, buffer, inputs });
                }
            }
            Output::Resize { job, local, rows, columns } => {
                self.with_ranks(job, |ranks| ranks.resize(local, rows, columns));
            }
            Output::OfFamily { job, family, by } => {
                self.keepers.join(job, family);
                self.parent_weight.set_parent(job, by);
            }
            Output::MeetsFamily { job } => self.parent_weight.on_started(job, monotonic_ns()),
            Output::JobGone { job } => {
                memory.forget(job);
                self.parent_weight.on_started(job, monotonic_ns());
                if jobs.get(&job).is_some_and(|ranks| ranks.keeper().lost().is_some()) {
                    self.collect_orphans();
                }
                if let Some(mut ranks) = self.jobs.remove(&job) {
                    if let Some((first, sockets)) = ranks.take_reserved() {
                        self.rank_ports.close(job, first, sockets);
                    }
                    self.parent_weight.on_parent_over(ranks.keeper().pid(), monotonic_ns());
                    self.keepers.give_back(job, ranks.into_keeper(), &self.reactor);
                } else {
                    self.keepers.leave(job, &self.reactor);
                }
                self.keepers.on_job_over();
            }
            Output::Exit => self.left = true,
        }
    }

    /// The ranks that have spawned a job get less weight while it starts, if all ranks here share too few CPUs.
    fn lower_parent_weight(&mut self, plan: &SpawnPlan) {
        let parent = self.parent_weight.parent_of(plan.job).and_then(|job| self.jobs.get(&job)).map(JobRanks::keeper);
        let parent = parent.filter(|keeper| keeper.kernel_session() == Some(KernelSession::Own));
        let ranks: usize = self.jobs.values().map(JobRanks::len).sum();
        // Where nodes share a machine, each rank is a scheduling group of its own, so there is no group to lower.
        if let Some(keeper) = parent.filter(|keeper| keeper.lost().is_none() && !plan.shares_machine)
            && ranks > self.cpus
        {
            self.parent_weight.lower(plan.job, keeper.pid(), monotonic_ns());
        }
    }

    pub(super) fn flush_links(&mut self) {
        self.unsent = false;
        self.links.flush(&self.reactor, &mut self.inputs);
    }

    fn reserve_rank_ports(&mut self, count: u16, range: PortRange) -> Result<Bytes, String> {
        let base = self.rank_ports.reserve(count, range).map_err(|error| {
            let PortRange { low, high } = range;
            format!("cannot reserve {count} consecutive ports of {low}-{high} for ranks: {error}")
        })?;
        self.address_of_ranks(base).map_err(|error| error.to_string())
    }

    fn listen_for_ranks(
        &mut self,
        job: JobId,
        session: KernelSession,
        count: u32,
        ports: RankPorts,
        base: Option<u16>,
    ) -> Input {
        let address =
            self.sockets_for_ranks(job, session, count, ports, base).and_then(|base| Ok(self.address_of_ranks(base)?));
        match address {
            Ok(address) => Input::Job { job, event: JobEvent::RanksListen { address } },
            Err(error) => Input::Job { job, event: JobEvent::RanksListenFailed { error } },
        }
    }

    /// Binds or takes the sockets for a job's ranks; returns the port of the first rank.
    fn sockets_for_ranks(
        &mut self,
        job: JobId,
        session: KernelSession,
        count: u32,
        ports: RankPorts,
        base: Option<u16>,
    ) -> Result<u16, SpawnError> {
        let PortRange { low, high } = ports.range;
        let kind = if ports.listen { "listening" } else { "bound" };
        let failed = |what: String| move |error: io::Error| spawn_error(SpawnStep::Sockets, what, &error);
        let ranks = self.jobs.ranks_of(job, session, &mut self.keepers, &self.reactor)?;
        match base {
            None => ranks.bind(count, ports).map_err(|NoRow { port, error }| {
                let at = port.map(|port| format!(" (port {port} is not free)")).unwrap_or_default();
                failed(format!("{count} {kind} sockets on consecutive ports of {low}-{high}{at}"))(error)
            }),
            Some(base) => {
                let sockets = self.rank_ports.take(base, count);
                sockets
                    .and_then(|sockets| ranks.use_reserved(base, sockets))
                    .map_err(failed(format!("{count} listening sockets on the session's ports from {base} on")))?;
                Ok(base)
            }
        }
    }

    fn address_of_ranks(&mut self, port: u16) -> Result<Bytes, ListenError> {
        Ok(rank_address::encode(host_number(), port, &self.links.ips()?).into())
    }

    fn reply(&mut self, job: JobId, client: Client, bytes: Bytes, shares: &[ShareId]) {
        if let Some(ranks) = self.jobs.get_mut(&job)
            && let Some(shares) = self.memory.for_reply(job, shares)
        {
            ranks.reply(client, bytes, shares, &self.reactor);
        }
    }

    fn with_ranks(&mut self, job: JobId, act: impl FnOnce(&mut JobRanks)) {
        if let Some(ranks) = self.jobs.get_mut(&job) {
            act(ranks);
        }
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
        let Self { shells, keepers, reactor, agent: machine, .. } = self;
        shells_of(shells, keepers, reactor)?.start(shell, host, how, machine.session(), bootstrap.as_deref())
    }

    fn start_step(
        &mut self,
        shell: ShellId,
        agents: Vec<AgentId>,
        how: How,
        mut bootstrap: Box<Bootstrap>,
    ) -> Result<(), SpawnError> {
        self.complete(&mut bootstrap)?;
        let Self { shells, keepers, reactor, .. } = self;
        shells_of(shells, keepers, reactor)?.start_step(shell, agents, how, bootstrap)
    }

    /// Fills in the session's secret and this agent's addresses in a bootstrap message.
    fn complete(&mut self, bootstrap: &mut Bootstrap) -> Result<(), SpawnError> {
        bootstrap.secret = self.links.secret().map_err(|error| no_secret("the run's secret", &error))?;
        self.keepers.meet_fellows(&bootstrap.secret, &self.reactor);
        let addresses = self.listen()?;
        if bootstrap.parent.is_empty() {
            bootstrap.parent = addresses;
        }
        Ok(())
    }

    /// The addresses at which other agents can dial in; the state machine is told once.
    pub fn listen(&mut self) -> Result<Vec<String>, ListenError> {
        let addresses = self.links.listen(&self.reactor)?;
        if !std::mem::replace(&mut self.listening, true) {
            self.inputs.push(Input::Listening { addresses: addresses.clone() });
        }
        Ok(addresses)
    }

    fn listen_on_demand(&mut self) {
        if let Err(error) = self.listen() {
            self.inputs.push(Input::ListenFailed { problem: format!("cannot listen for other agents: {error}") });
        }
    }
}

/// The remote shells. The first call gives them a keeper of their own.
fn shells_of<'s>(
    shells: &'s mut Option<Shells>,
    keepers: &mut Keepers,
    reactor: &Reactor,
) -> Result<&'s mut Shells, SpawnError> {
    match shells {
        Some(shells) => Ok(shells),
        None => {
            let begun = keepers.for_shells(reactor).and_then(|keeper| Shells::begin(keeper, reactor));
            Ok(shells.insert(begun.map_err(|error| no_keeper(&error))?))
        }
    }
}

/// The secret that the ranks of a job prove to each other: known to all agents, and of no use for anything else.
fn secret_of_ranks(session: &Secret, job: JobId) -> Secret {
    let digest = Blake2s256::new().chain_update(session.0).chain_update(b"ranks").chain_update(job.0.to_le_bytes());
    Secret(digest.finalize().into())
}

/// A number of this machine's loopback interface: all agents that share it get the same number.
fn host_number() -> u64 {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let digest = Blake2s256::new().chain_update(boot).chain_update(network.as_os_str().as_bytes()).finalize();
    u64::from_le_bytes(std::array::from_fn(|index| digest[index]))
}

fn no_secret(what: &str, error: &io::Error) -> SpawnError {
    spawn_error(SpawnStep::Secret, what, error)
}

fn no_keeper(error: &io::Error) -> SpawnError {
    spawn_error(SpawnStep::Fork, "the process that is to call the remote shells", error)
}
