//! Performs the outputs of the state machine.

use super::super::keepers::Keepers;
use super::super::links::{IN_MEMORY, LinkSet, ListenError};
use super::super::ranks::JobRanks;
use super::super::shells::{Shells, shell_failed};
use super::super::transports::Offer;
use super::super::turn::Turn;
use super::AgentDriver;
use crate::keeper::forker;
use crate::spawn_error::spawn_error;
use blake2::{Blake2s256, Digest};
use bytes::Bytes;
use std::io;
use std::os::unix::ffi::OsStrExt;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::Reactor;
use wireup_proto::io::{How, Input, JobEvent, Output, ShellId};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::PortRange;
use wireup_wire::peer::{Bootstrap, Secret, SpawnError, SpawnStep};
use wireup_wire::rank_address;

impl AgentDriver {
    /// Performs all pending outputs.
    pub(super) fn perform_all(&mut self) {
        while let Some(output) = self.agent.poll() {
            self.recorder.on_output(&output);
            self.perform(output);
        }
    }

    fn perform(&mut self, output: Output) {
        // Ranks on other nodes wait longer than the local ranks: so a fence's result is forwarded before the local
        // ranks get it, and an allgather's before it is laid out here.
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
            Output::Relay { job, relay, act } => jobs.with(job, |ranks| {
                let turn = &mut Turn { now_ns: monotonic_ns(), reactor, buffer, inputs };
                ranks.on_relay(relay, act, host_number, turn);
            }),
            Output::TellSecret { job } => {
                let event = match links.secret() {
                    Ok(secret) => JobEvent::SecretOfRanks { secret: secret_of_ranks(&secret, job) },
                    Err(error) => JobEvent::RanksListen { result: Err(no_secret("the secret of the ranks", &error)) },
                };
                inputs.push(Input::Job { job, event });
            }
            Output::StartPmix(plan) => local.start_pmix(&plan, reactor, inputs),
            Output::PmixSend { job, bytes } => {
                if let Some(pmix) = jobs.get_mut(&job).and_then(|ranks| ranks.pmix.as_mut()) {
                    pmix.send(bytes, reactor);
                }
            }
            Output::Spawn(plan) => {
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
            Output::OfFamily { job, family, by } => {
                local.keepers.join(job, family);
                local.parent_weight.set_parent(job, by);
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

    /// The addresses at which other agents can dial in; the state machine is told once.
    pub fn listen(&mut self) -> Result<Vec<String>, ListenError> {
        let addresses = self.links.listen(&self.reactor)?;
        if !std::mem::replace(&mut self.listening, true) {
            self.inputs.push(Input::Listening { result: Ok(addresses.clone()) });
        }
        Ok(addresses)
    }

    fn listen_on_demand(&mut self) {
        if let Err(error) = self.listen() {
            self.inputs.push(Input::Listening { result: Err(format!("cannot listen for other agents: {error}")) });
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
            let begun = keepers.for_shells(reactor).and_then(|keeper| Shells::new(keeper, reactor));
            Ok(shells.insert(begun.map_err(|error| no_keeper(&error))?))
        }
    }
}

/// The secret that the ranks of a job prove to each other: known to all agents, and of no use for anything else.
fn secret_of_ranks(session: &Secret, job: JobId) -> Secret {
    let digest = Blake2s256::new().chain_update(session.0).chain_update(b"ranks").chain_update(job.0.to_le_bytes());
    Secret(digest.finalize().into())
}

/// The address of the ranks whose first port this is.
fn address_of_ranks(links: &LinkSet, port: u16) -> Result<Bytes, ListenError> {
    Ok(rank_address::encode(host_number(), port, &links.ips()?).into())
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
