//! Drives the ranks of one job on this node: their keeper, their pipes, their PMI sockets.
//!
//! Turns events of the keeper and the descriptors into inputs of the state machine, and its outputs into requests to
//! the keeper and writes. This file follows the ranks' lifecycle; `output`, `stdin` and `pmi` move their bytes,
//! `server` is about their PMIx server process, `further` connects secondary clients, `relays` moves the bytes of
//! connections between ranks.

mod further;
mod output;
mod pmi;
mod relays;
mod server;
mod stdin;

use super::fd_backoff::FdBackoff;
use super::keeper_link::KeeperLink;
use super::keeper_pool::Idle;
use super::keepers::Keepers;
use super::outgoing::Outgoing;
use super::pipes::{OutputPipe, Pumped};
use super::pmix::{PmixServer, StandbyServer};
use super::rank_ports::{self, place_to_search};
use super::token::{JobSlot, Token};
use super::turn::Turn;
use crate::devices;
use crate::keeper::{Batch, KeeperEvent, ProcessFds, Request, is_server};
use crate::spawn_error::spawn_error;
use pmi::PmiSocket;
use std::io;
use std::os::fd::OwnedFd;
use wireup_os::process::ran_out_of_memory;
use wireup_os::pty::is_terminal;
use wireup_os::reactor::{Interest, Reactor};
use wireup_os::socket::{InARow, NoRow, bind_in_a_row};
use wireup_proto::io::{ExitStatus, Input, JobEvent, KernelSession, SignalTarget, SpawnPlan, Stream};
use wireup_wire::ids::{JobId, LocalRank};
use wireup_wire::job::{RankPorts, RankStdout, StdinTarget};
use wireup_wire::peer::{Lacking, SpawnError, SpawnStep};
use wireup_wire::signal::SIGKILL;

/// Connections to a rank that may wait to be accepted; the kernel lowers this to its own maximum.
pub const BACKLOG: i32 = 4096;
/// Time for which a pseudo-terminal is read after its rank has ended (ns): a grandchild may hold it open forever.
const TERMINAL_NS_MAX: u64 = 200_000_000;
/// Most reads of a pseudo-terminal after that time. The kernel's buffer of a terminal holds less than one read; what
/// follows is from other processes.
const READS_MAX: u32 = 8;

pub struct JobRanks {
    job: JobId,
    slot: JobSlot,
    keeper: KeeperLink,
    ranks: Vec<RankIo>,
    /// Sockets for ranks that have not been started; `first_port`: the port of the first socket.
    sockets: Vec<OwnedFd>,
    first_port: u16,
    /// Lowest reserved port of the ranks, and the sockets of the reserved ports by local rank.
    reserved: Option<(u16, Vec<OwnedFd>)>,
    /// Whether standard output and error are not read for now; `parked`: the ranks whose pipes were removed from the
    /// reactor for this reason.
    paused: [bool; 2],
    parked: [Vec<LocalRank>; 2],
    /// Pseudo-terminals of ranks that have ended, which are still open.
    terminals: Vec<OpenTerminal>,
    stdout: RankStdout,
    pmix: Option<PmixServer>,
    /// A server process that the keeper has started ahead, until the job gets it or it has ended.
    standby: Option<StandbyServer>,
    relays: relays::Relays,
    /// Exits of ranks that are reported after the exit of the PMIx server.
    deferred: Vec<(u32, ExitStatus)>,
    /// Ranks whose descriptors must wait because too many are in flight.
    fd_backoff: FdBackoff,
    /// Whether a rank was killed, by this agent or by another process: who kills further ranks does not matter.
    has_killed: bool,
    /// Whether the ranks have no PID namespace, although the session has had one.
    lacks_namespace: bool,
}

/// The pseudo-terminal of a rank that has ended, which a process that the rank has started may hold.
struct OpenTerminal {
    /// Time at which the terminal is looked at again (ns).
    until_ns: u64,
    local: LocalRank,
    /// Number of reads that are still made if there is more than fits into one read.
    reads_left: u32,
}

#[derive(Default)]
struct RankIo {
    output: [Option<OutputPipe>; 2],
    stdin: Outgoing,
    /// PMI sockets of the rank, by the numbers of its clients: the inherited socket, then those of secondary clients.
    /// Empty once the rank has ended.
    pmi: Vec<PmiSocket>,
    /// Names of the secondary clients, including those that have left.
    libraries: Vec<Vec<u8>>,
    terminal: bool,
    pid: u32,
    /// Whether the last byte of standard input was not a newline.
    line_open: bool,
}

impl JobRanks {
    /// What the ranks lack before they start.
    pub fn lacking(&self) -> Option<Lacking> {
        self.lacks_namespace.then_some(Lacking::Namespace)
    }

    /// Starts with a keeper that has nothing to do yet.
    pub fn begin(
        job: JobId,
        slot: JobSlot,
        session: KernelSession,
        keepers: &mut Keepers,
        reactor: &Reactor,
    ) -> Result<JobRanks, SpawnError> {
        let failed = |error: io::Error| spawn_error(SpawnStep::Fork, "the keeper of the ranks", &error);
        let Idle { keeper, server: standby } = keepers.for_ranks(job, session, reactor).map_err(failed)?;
        let lacks_namespace = keepers.is_namespace_lost(&keeper);
        let keeper = KeeperLink::begin(keeper, Token::Keeper(slot), reactor).map_err(failed)?;
        Ok(JobRanks {
            job,
            slot,
            keeper,
            ranks: Vec::new(),
            sockets: Vec::new(),
            first_port: 0,
            reserved: None,
            pmix: None,
            standby,
            relays: relays::Relays::default(),
            deferred: Vec::new(),
            paused: [false; 2],
            parked: Default::default(),
            terminals: Vec::new(),
            stdout: RankStdout::default(),
            fd_backoff: FdBackoff::default(),
            has_killed: false,
            lacks_namespace,
        })
    }

    /// Passes the plan to the keeper. `own_devices`: whether the ranks use the GPUs that this process was given.
    /// `agent`: the name of the socket at which secondary clients connect.
    pub fn spawn(&mut self, plan: &SpawnPlan, own_devices: bool, agent: Option<&str>) -> Result<(), SpawnError> {
        let mut batch = Batch::from_plan(plan).map_err(|error| unbound(&error))?;
        devices::give(&mut batch, plan.gpus_per_rank, own_devices)?;
        for (port, process) in (self.first_port..).zip(&mut batch.processes).take(self.sockets.len()) {
            process.env.push(format!("WIREUP_LISTEN_PORT={port}").into_bytes());
        }
        if let Some(name) = agent.filter(|_| plan.pmi_socket) {
            let variable = format!("{}={}:{name}", further::VARIABLE, self.job);
            batch.programs.iter_mut().for_each(|program| program.env.push(variable.clone().into_bytes()));
        }
        self.keeper.give_sockets(std::mem::take(&mut self.sockets));
        self.dismiss_standby();
        self.keeper.request(&Request::Spawn(batch));
        if plan.ranks.iter().any(|rank| rank.pty.is_some()) {
            self.keeper.request(&Request::RestoreTerminalOnDeath);
        }
        let ranks = plan.ranks.iter().map(|rank| RankIo {
            terminal: rank.pty.is_some(),
            pmi: vec![PmiSocket::default()],
            stdin: if plan.stdin == StdinTarget::AllByMemory { Outgoing::by_memory() } else { Outgoing::default() },
            ..RankIo::default()
        });
        self.ranks = ranks.collect();
        self.stdout = plan.stdout;
        Ok(())
    }

    /// Binds a socket for each of the ranks, which are about to be started. If they listen, others may connect from now
    /// on. Returns the first of their ports, which are consecutive.
    pub fn bind(&mut self, count: u32, ports: RankPorts) -> Result<u16, NoRow> {
        let RankPorts { range, listen } = ports;
        let first = place_to_search(range, std::process::id() ^ self.job.0);
        let kind = if listen { InARow::Listen(BACKLOG) } else { InARow::Reserve };
        (self.first_port, self.sockets) = bind_in_a_row(count as usize, range.low..=range.high, first, kind)?;
        Ok(self.first_port)
    }

    /// Uses sockets of reserved ports, from `base` on, for the ranks; the sockets already listen.
    pub fn use_reserved(&mut self, base: u16, sockets: Vec<OwnedFd>) -> io::Result<()> {
        let copies: io::Result<_> = sockets.iter().map(OwnedFd::try_clone).collect();
        self.reserved = Some((base, sockets));
        self.first_port = base;
        self.sockets = copies?;
        Ok(())
    }

    /// The reserved ports that the job has had.
    pub fn take_reserved(&mut self) -> Option<(u16, Vec<OwnedFd>)> {
        self.reserved.take()
    }

    /// Writes the queued requests to the keeper.
    pub fn flush_keeper(&mut self, reactor: &Reactor) {
        self.keeper.flush(reactor);
    }

    pub fn slot(&self) -> JobSlot {
        self.slot
    }

    pub fn len(&self) -> usize {
        self.ranks.len()
    }

    pub fn keeper(&self) -> &KeeperLink {
        &self.keeper
    }

    pub fn signal(&mut self, target: SignalTarget, signal: i32) {
        self.has_killed |= signal == SIGKILL;
        let slot = match target {
            SignalTarget::All => None,
            SignalTarget::One(local) => Some(local.0.into()),
        };
        self.keeper.request(&Request::Signal { slot, signal });
    }

    pub fn sweep(&mut self) {
        self.keeper.request(&Request::Sweep);
    }

    /// The keeper has sent something.
    pub fn on_keeper(&mut self, turn: &mut Turn<'_>) {
        let mut events = Vec::new();
        let mut alive = self.keeper.receive(&mut events, turn.reactor);
        for event in events {
            if let Err(problem) = self.on_keeper_event(event, turn) {
                alive &= !self.keeper.give_up(problem, turn.reactor);
            }
        }
        if !alive {
            self.read_what_is_left(turn);
            turn.inputs.push(Input::Job {
                job: self.job,
                event: JobEvent::KeeperLost { problem: self.keeper.take_problem() },
            });
        }
    }

    /// # Errors
    /// A rank's descriptors cannot be watched.
    fn on_keeper_event(&mut self, event: KeeperEvent, turn: &mut Turn<'_>) -> Result<(), SpawnError> {
        let job = self.job;
        match event {
            KeeperEvent::Started { slot, .. }
            | KeeperEvent::StartFailed { slot, .. }
            | KeeperEvent::Exited { slot, .. }
                if is_server(slot) =>
            {
                self.on_server_event(slot, event, turn);
            }
            KeeperEvent::Started { slot, pid, spawn_ns, exec_ns, fds } => {
                let local = LocalRank(slot as u16);
                turn.inputs.push(Input::Job { job, event: JobEvent::RankStarted { local, pid, spawn_ns, exec_ns } });
                if let Some(rank) = self.ranks.get_mut(local.index()) {
                    rank.pid = pid;
                }
                return self.adopt(local, fds, turn);
            }
            KeeperEvent::StartFailed { slot, error } => {
                turn.inputs.push(Input::Job {
                    job,
                    event: JobEvent::RankStartFailed { local: LocalRank(slot as u16), error },
                });
            }
            KeeperEvent::Exited { slot, status } => {
                let local = LocalRank(slot as u16);
                // The server's messages about the rank, such as its finalize, come before its exit.
                while self.on_pmix_bytes(turn) {}
                if self.pmix.as_ref().is_some_and(PmixServer::is_dying) {
                    // The rank may have died because of the server: the server's exit, with its cause, is reported
                    // first.
                    self.deferred.push((slot, status));
                    return Ok(());
                }
                self.on_exited(local, turn);
                if self.ran_out_of_memory(local, status) {
                    turn.inputs.push(Input::Job { job, event: JobEvent::OutOfMemory { local } });
                }
                turn.inputs.push(Input::Job { job, event: JobEvent::RankExited { local, status } });
            }
            KeeperEvent::NotStaged { problem } => {
                turn.inputs.push(Input::Job { job, event: JobEvent::RanksLack { what: Lacking::Staged { problem } } });
            }
            KeeperEvent::Redirected { problem } => {
                turn.inputs.push(Input::Job { job, event: JobEvent::RanksLack { what: Lacking::Mounts { problem } } });
            }
            KeeperEvent::Failed { .. } | KeeperEvent::Swept | KeeperEvent::Renewed => {}
        }
        Ok(())
    }

    /// Whether the kernel killed the rank because memory ran out. The kernel's log is read once for each job.
    fn ran_out_of_memory(&mut self, local: LocalRank, status: ExitStatus) -> bool {
        let is_killed = matches!(status, ExitStatus::Signalled { signal: SIGKILL, .. });
        if !is_killed || std::mem::replace(&mut self.has_killed, true) {
            return false;
        }
        self.ranks.get(local.index()).is_some_and(|rank| ran_out_of_memory(rank.pid))
    }

    /// Takes over the rank's descriptors.
    fn adopt(&mut self, local: LocalRank, fds: ProcessFds, turn: &mut Turn<'_>) -> Result<(), SpawnError> {
        let (job, slot) = (self.job, self.slot);
        let Some(rank) = self.ranks.get_mut(local.index()) else {
            return Ok(());
        };
        let (terminal, ptys) = (rank.terminal, self.stdout == RankStdout::Pty);
        let (out, stdin) = match fds.pty {
            Some(pty) => (pty.try_clone().ok(), Some(pty)),
            None => (fds.stdout, fds.stdin),
        };
        for (stream, fd) in [(Stream::Out, out), (Stream::Err, fds.stderr)] {
            let index = stream as usize - 1;
            match fd {
                Some(fd) => {
                    let watched = turn.reactor.add(&fd, Token::Output(slot, local, stream).pack(), Interest::READABLE);
                    watched.map_err(cannot_watch("output"))?;
                    let is_terminal = terminal || (ptys && stream == Stream::Out && is_terminal(&fd));
                    rank.output[index] = Some(OutputPipe::new(fd, is_terminal));
                }
                None => turn.inputs.push(Input::Job { job, event: JobEvent::StdioClosed { local, stream } }),
            }
        }
        // The rank runs already, so a secondary client may have connected.
        if let Some(inherited) = rank.pmi.first_mut() {
            *inherited =
                PmiSocket::watched(fds.pmi, slot, local.into(), turn.reactor).map_err(cannot_watch("PMI socket"))?;
        }
        rank.stdin.fd = stdin;
        self.flush_stdin(local, turn);
        Ok(())
    }

    fn on_exited(&mut self, local: LocalRank, turn: &mut Turn<'_>) {
        if self.ranks.get(local.index()).is_none() {
            return;
        }
        // Without a reserved port the kernel has closed the rank's socket.
        let reserved = self.reserved.as_ref().and_then(|(_, sockets)| sockets.get(local.index()));
        reserved.into_iter().for_each(rank_ports::close);
        // Requests that a dying rank sent, such as an abort, still count.
        self.on_last_pmi(local, turn);
        let stdin = &mut self.ranks[local.index()].stdin;
        if let Some(fd) = stdin.fd.take().filter(|_| stdin.watched) {
            let _ = turn.reactor.remove(fd);
        }
        *stdin = Outgoing::vanished();
        for stream in [Stream::Out, Stream::Err] {
            let Some(pipe) = &mut self.ranks[local.index()].output[stream as usize - 1] else {
                continue;
            };
            pipe.on_exit();
            if pipe.terminal {
                self.terminals.push(OpenTerminal {
                    until_ns: turn.now_ns + TERMINAL_NS_MAX,
                    local,
                    reads_left: READS_MAX,
                });
            }
            if !self.paused[stream as usize - 1] {
                self.pump(local, stream, turn);
            }
        }
    }

    /// The ranks die with their keeper; their output up to now is read.
    fn read_what_is_left(&mut self, turn: &mut Turn<'_>) {
        self.paused = [false; 2];
        for index in 0..self.ranks.len() {
            let local = LocalRank(index as u16);
            self.on_exited(local, turn);
            for stream in [Stream::Out, Stream::Err] {
                while self.ranks[index].output[stream as usize - 1].as_ref().is_some_and(|pipe| pipe.left.is_some()) {
                    self.pump(local, stream, turn);
                }
            }
        }
    }

    pub fn on_tick(&mut self, turn: &mut Turn<'_>) {
        self.send_to_crowd(turn);
        self.give_terminals_up(turn);
    }

    fn send_to_crowd(&mut self, turn: &mut Turn<'_>) {
        let fd_backoff = self.fd_backoff.take_due(turn.now_ns);
        for client in &fd_backoff {
            self.flush_pmi(*client, turn.reactor);
        }
        self.fd_backoff.settle(!fd_backoff.is_empty());
    }

    /// Gives up pseudo-terminals whose ranks have been gone for long. There is no time limit while the stream is
    /// paused.
    fn give_terminals_up(&mut self, turn: &mut Turn<'_>) {
        let job = self.job;
        let due: Vec<OpenTerminal> =
            self.terminals.extract_if(.., |terminal| terminal.until_ns <= turn.now_ns).collect();
        for OpenTerminal { local, reads_left, .. } in due {
            let until_ns = turn.now_ns + TERMINAL_NS_MAX;
            if self.paused[0] {
                self.terminals.push(OpenTerminal { until_ns, local, reads_left });
            } else if self.pump(local, Stream::Out, turn) == Pumped::More && reads_left > 0 {
                self.terminals.push(OpenTerminal { until_ns, local, reads_left: reads_left - 1 });
            } else if let Some(pipe) = self.ranks[local.index()].output[0].take() {
                let _ = turn.reactor.remove(&pipe.fd);
                turn.inputs.push(Input::Job { job, event: JobEvent::StdioClosed { local, stream: Stream::Out } });
            }
        }
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        let terminals = self.terminals.iter().map(|terminal| terminal.until_ns);
        terminals.chain(self.fd_backoff.due_ns()).min()
    }

    /// Closes everything that the job has open here; only its keeper remains.
    pub fn into_keeper(self) -> KeeperLink {
        self.keeper
    }
}

/// The ranks cannot be bound as they should be.
pub fn unbound(error: &io::Error) -> SpawnError {
    SpawnError { step: SpawnStep::Bind, what: error.to_string(), errno: 0 }
}

fn cannot_watch(what: &str) -> impl Fn(io::Error) -> SpawnError {
    move |error| spawn_error(SpawnStep::Fork, format!("cannot watch a rank's {what} (epoll_ctl)"), &error)
}
