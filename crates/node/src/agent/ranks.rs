//! Drives the ranks of one job on this node: their keeper, their pipes, their PMI sockets.
//!
//! Turns events of the keeper and the descriptors into inputs of the state machine, and its outputs into requests to
//! the keeper and writes. This file follows the lifecycle of the ranks and of their PMIx server process.
//! `output`, `stdin`, `pmi` and `relays` each own one kind of descriptors.

mod output;
mod pmi;
mod relays;
mod stdin;

use super::directory::{self, ErrorFiles};
use super::keeper_pool::Idle;
use super::keepers::Keepers;
use super::pmix::{Opening, PmixServer, StandbyServer};
use super::rank_ports::RankSockets;
use super::shells::in_words;
use super::token::{JobSlot, Token};
use super::turn::Turn;
use crate::binding;
use crate::devices;
use crate::keeper::{Batch, Keeper, KeeperEvent, OutKind, Process, ProcessFds, Request, StdinKind, is_server};
use crate::remedy::{spawn_error, unbound};
use crate::stacks::{self, StackTaker};
use output::RankOutput;
use pmi::PmiSockets;
pub use pmi::read_socket;
use relays::Relays;
use std::io;
use stdin::RankStdin;
use wireup_os::bind::{CpuSet, Machine};
use wireup_os::process::ran_out_of_memory;
use wireup_os::pty::is_terminal;
use wireup_os::reactor::Reactor;
use wireup_proto::io::{
    ExitStatus, JobEvent, KernelSession, PmixPlan, RankPlan, SignalTarget, SpawnPlan, Started, Stream,
};
use wireup_wire::ids::{JobId, LocalRank, NodeId, Rank};
use wireup_wire::job::{RankStdout, StdinTarget};
use wireup_wire::peer::{Lacking, SpawnError, SpawnStep};
use wireup_wire::secondary_client::VARIABLE;
use wireup_wire::signal::SIGKILL;

pub struct JobRanks {
    job: JobId,
    pub slot: JobSlot,
    pub keeper: Keeper,
    /// Process number of each rank; 0: it has not started.
    pids: Vec<u32>,
    stdout: RankStdout,
    pub sockets: RankSockets,
    pub output: RankOutput,
    pub stdin: RankStdin,
    pub clients: PmiSockets,
    pub relays: Relays,
    pub pmix: Option<PmixServer>,
    /// A PMIx server process that the keeper started before this job was known; `None`: there is none, the job uses it
    /// as `pmix`, or it has ended.
    standby: Option<StandbyServer>,
    /// The process that takes the ranks' call stacks; `None`: no stacks are being taken.
    stacks: Option<StackTaker>,
    exits: Exits,
    /// Whether the ranks run outside of the PID namespace that the session's agents shared, because it has ended.
    pub lacks_namespace: bool,
}

/// How ranks have ended.
#[derive(Default)]
struct Exits {
    /// Exits of ranks (slot and status) that are reported only after the exit of the PMIx server.
    deferred: Vec<(u32, ExitStatus)>,
    /// Whether a rank was killed by SIGKILL before: then the kernel's log is not searched for out-of-memory kills any
    /// more.
    has_killed: bool,
    /// Files in which ranks write why they fail; `None`: the job's framework has no such files.
    files: Option<ErrorFiles>,
}

impl JobRanks {
    /// The state of a job whose ranks are not started yet, with an idle or newly forked keeper.
    pub fn new(
        job: JobId,
        slot: JobSlot,
        session: KernelSession,
        keepers: &mut Keepers,
        reactor: &Reactor,
    ) -> Result<JobRanks, SpawnError> {
        let failed = |error: io::Error| spawn_error(SpawnStep::Fork, "the keeper of the ranks", &error);
        let Idle { mut keeper, server: standby } = keepers.for_ranks(job, session, reactor).map_err(failed)?;
        let lacks_namespace = keepers.is_namespace_lost(&keeper);
        keeper.watch(Token::Keeper(slot).pack(), reactor).map_err(failed)?;
        Ok(JobRanks {
            job,
            slot,
            keeper,
            pids: Vec::new(),
            stdout: RankStdout::default(),
            sockets: RankSockets::default(),
            output: RankOutput::new(job, slot),
            stdin: RankStdin::new(job, slot),
            clients: PmiSockets::new(job, slot),
            relays: Relays::new(job, slot),
            pmix: None,
            standby,
            stacks: None,
            exits: Exits::default(),
            lacks_namespace,
        })
    }

    /// Passes the plan to the keeper. `own_devices`: whether the ranks use the GPUs that this process was given.
    /// `agent`: the name of the socket at which secondary clients connect.
    pub fn spawn(
        &mut self,
        plan: &SpawnPlan,
        own_devices: bool,
        agent: Option<&str>,
        reactor: &Reactor,
    ) -> Result<(), SpawnError> {
        let mut batch = batch_of_plan(plan).map_err(|error| unbound(&error))?;
        if let Some(variable) = plan.framework.error_file {
            self.make_error_files(variable, &mut batch, reactor)?;
        }
        devices::give(&mut batch, plan.gpus_per_rank, own_devices)?;
        let sockets = self.sockets.give(&mut batch.processes);
        if let Some(name) = agent.filter(|_| plan.sockets.pmi) {
            let variable = format!("{VARIABLE}={}:{name}", self.job);
            batch.programs.iter_mut().for_each(|program| program.env.push(variable.clone().into_bytes()));
        }
        self.keeper.give_sockets(sockets);
        self.dismiss_standby();
        self.keeper.request(&Request::Spawn(batch));
        if plan.ranks.iter().any(|rank| rank.pty.is_some()) {
            self.keeper.request(&Request::RestoreTerminalOnDeath);
        }
        self.pids = vec![0; plan.ranks.len()];
        self.output.set_ranks(plan.ranks.len());
        self.stdin.set_ranks(plan);
        self.clients.set_ranks(plan.ranks.len());
        self.stdout = plan.stdio.stdout;
        Ok(())
    }

    fn make_error_files(&mut self, variable: &str, batch: &mut Batch, reactor: &Reactor) -> Result<(), SpawnError> {
        directory::remove_left();
        let mut files = ErrorFiles::new()?;
        // The removal is requested before the directory exists, because this agent could be killed at any moment.
        self.keeper.request(&Request::RemoveAtEnd { directory: files.directory() });
        self.keeper.send(reactor);
        files.make(variable, &mut batch.processes)?;
        self.exits.files = Some(files);
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.pids.len()
    }

    pub fn signal(&mut self, target: SignalTarget, signal: i32) {
        let slot = match target {
            SignalTarget::All => None,
            SignalTarget::One(local) => Some(local.0.into()),
            SignalTarget::Server => return self.stop_pmix(),
        };
        self.exits.has_killed |= signal == SIGKILL;
        self.keeper.request(&Request::Signal { slot, signal });
    }

    pub fn sweep(&mut self) {
        self.keeper.request(&Request::Sweep);
    }

    /// The keeper has sent something, or has ended.
    pub fn on_keeper(&mut self, turn: &mut Turn<'_>) {
        let mut events = Vec::new();
        let mut alive = self.keeper.take_events(&mut events, turn.reactor);
        for event in events {
            if let Err(problem) = self.on_keeper_event(event, turn) {
                alive &= !self.keeper.give_up(problem, turn.reactor);
            }
        }
        if !alive {
            self.read_what_is_left(turn);
            turn.push_event(self.job, JobEvent::KeeperLost { problem: self.keeper.take_problem() });
        }
    }

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
            KeeperEvent::Streams { slot, fds, .. } => return self.adopt(LocalRank(slot as u16), fds, turn),
            KeeperEvent::Started { slot, pid, spawn_ns, exec_ns, present, fds } => {
                let local = LocalRank(slot as u16);
                turn.push_event(job, JobEvent::RankStarted { local, result: Ok(Started { pid, spawn_ns, exec_ns }) });
                if let Some(of_rank) = self.pids.get_mut(local.index()) {
                    *of_rank = pid;
                }
                if present > 0 {
                    return self.adopt(local, fds, turn);
                }
            }
            KeeperEvent::StartFailed { slot, error } => {
                turn.push_event(job, JobEvent::RankStarted { local: LocalRank(slot as u16), result: Err(error) });
            }
            KeeperEvent::Exited { slot, status } => {
                let local = LocalRank(slot as u16);
                // The PMIx server's messages about the rank, such as its finalize, are handled before the rank's exit.
                while self.on_pmix_bytes(turn) {}
                if self.pmix.as_ref().is_some_and(|pmix| pmix.is_dying) {
                    // The rank may have died because of the server: the server's exit, with its cause, is reported
                    // first.
                    self.exits.deferred.push((slot, status));
                    return Ok(());
                }
                self.on_exited(local, turn);
                if status != ExitStatus::Exited(0)
                    && let Some((at_ns, text)) = self.exits.files.as_ref().and_then(|files| files.read(local))
                {
                    turn.push_event(job, JobEvent::RankError { local, at_ns, text });
                }
                let out_of_memory = self.ran_out_of_memory(local, status);
                turn.push_event(job, JobEvent::RankExited { local, status, out_of_memory });
            }
            KeeperEvent::NotStaged { problem } => {
                turn.push_event(job, JobEvent::RanksLack { what: Lacking::Staged { problem } });
            }
            KeeperEvent::Redirected { problem } => {
                turn.push_event(job, JobEvent::RanksLack { what: Lacking::Mounts { problem } });
            }
            KeeperEvent::NotPrefetched { problem } => {
                turn.push_event(job, JobEvent::RanksLack { what: Lacking::Prefetch { problem } });
            }
            KeeperEvent::Preloads { modules } => turn.push_event(job, JobEvent::RanksPreload { modules }),
            KeeperEvent::NotPreloaded { problem } => {
                turn.push_event(job, JobEvent::RanksLack { what: Lacking::Preload { problem } });
            }
            KeeperEvent::Failed { .. } | KeeperEvent::Swept | KeeperEvent::Renewed { .. } => {}
        }
        Ok(())
    }

    /// Whether the kernel killed the rank because memory ran out. The kernel's log is read at most once for each job.
    fn ran_out_of_memory(&mut self, local: LocalRank, status: ExitStatus) -> bool {
        let is_killed = matches!(status, ExitStatus::Signalled { signal: SIGKILL, .. });
        if !is_killed || std::mem::replace(&mut self.exits.has_killed, true) {
            return false;
        }
        self.pids.get(local.index()).is_some_and(|pid| ran_out_of_memory(*pid))
    }

    /// Takes over the rank's descriptors.
    fn adopt(&mut self, local: LocalRank, fds: ProcessFds, turn: &mut Turn<'_>) -> Result<(), SpawnError> {
        if local.index() >= self.pids.len() {
            return Ok(());
        }
        let (has_terminal, ptys) = (self.stdin.is_terminal(local), self.stdout == RankStdout::Pty);
        let (out, stdin) = match fds.pty {
            Some(pty) => (pty.try_clone().ok(), Some(pty)),
            None => (fds.stdout, fds.stdin),
        };
        for (stream, fd) in [(Stream::Out, out), (Stream::Err, fds.stderr)] {
            let Some(fd) = fd else {
                turn.push_event(self.job, JobEvent::StdioClosed { local, stream });
                continue;
            };
            let is_terminal = has_terminal || (ptys && stream == Stream::Out && is_terminal(&fd));
            self.output.watch(local, stream, fd, is_terminal, turn).map_err(cannot_watch("output"))?;
        }
        self.clients.adopt(local, fds.pmi, turn.reactor).map_err(cannot_watch("PMI socket"))?;
        self.stdin.adopt(local, stdin, turn);
        Ok(())
    }

    fn on_exited(&mut self, local: LocalRank, turn: &mut Turn<'_>) {
        if local.index() < self.pids.len() {
            self.sockets.on_exited(local);
            // Requests that a rank sent before it ended, such as an abort, are still handled.
            self.clients.on_exited(local, turn);
            self.stdin.close(local, turn.reactor);
            self.output.on_exited(local, turn);
        }
    }

    /// The ranks die with their keeper; their output up to now is read.
    fn read_what_is_left(&mut self, turn: &mut Turn<'_>) {
        self.output.on_keeper_lost();
        for local in (0..self.pids.len()).map(|rank| LocalRank(rank as u16)) {
            self.on_exited(local, turn);
            self.output.read_rest(local, turn);
        }
    }

    /// Starts to take the call stacks of these ranks, unless stacks are being taken already.
    pub fn take_stacks(&mut self, processes: &[(Rank, u32)], turn: &mut Turn<'_>) {
        if self.stacks.is_some() {
            return;
        }
        match StackTaker::start(processes, Token::Stacks(self.slot).pack(), turn.now_ns, turn.reactor) {
            Ok(taker) => self.stacks = Some(taker),
            Err(error) => {
                let ranks: Vec<Rank> = processes.iter().map(|(rank, _)| *rank).collect();
                let stacks = stacks::failed(&ranks, &format!("no process can be started: {error}"));
                turn.push_event(self.job, JobEvent::Stacks { stacks });
            }
        }
    }

    pub fn on_stacks(&mut self, turn: &mut Turn<'_>) {
        let Some(stacks) = self.stacks.as_mut().and_then(|taker| taker.read(turn.now_ns, turn.reactor)) else { return };
        self.stacks.take().into_iter().for_each(|taker| taker.close(turn.reactor));
        turn.push_event(self.job, JobEvent::Stacks { stacks });
    }

    pub fn on_tick(&mut self, turn: &mut Turn<'_>) {
        if self.stacks.as_ref().is_some_and(|taker| taker.deadline_ns() <= turn.now_ns) {
            self.on_stacks(turn);
        }
        self.clients.on_tick(turn);
        self.output.on_tick(turn);
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        let of_stacks = self.stacks.as_ref().map(StackTaker::deadline_ns);
        [self.output.deadline_ns(), self.clients.deadline_ns(), of_stacks].into_iter().flatten().min()
    }
}

/// The batch of a plan; a slot is a local rank.
///
/// # Errors
/// The ranks should be bound to cores or sockets, but the machine does not report them.
fn batch_of_plan(plan: &SpawnPlan) -> io::Result<Batch> {
    let sets = binding::sets(&plan.binding, &Machine::this()?, plan.ranks.len())?;
    let process = |(rank, set): (&RankPlan, &Option<CpuSet>)| Process {
        program: rank.program,
        env: rank.env.clone(),
        cpus: set.as_ref().map(|set| set.words().to_vec()),
        stdin: stdin_kind(plan, rank),
        stdout: match plan.stdio.stdout {
            RankStdout::Pipe => OutKind::Pipe,
            RankStdout::Pty => OutKind::Pty,
        },
        stderr: OutKind::Pipe,
        shares_session: !plan.shares_machine,
        pmi: plan.sockets.pmi,
        listens: plan.sockets.listening,
        pty: rank.pty,
        ..Process::new(u32::from(rank.local.0))
    };
    Ok(Batch {
        programs: plan.programs.clone(),
        processes: plan.ranks.iter().zip(&sets).map(process).collect(),
        umask: plan.umask,
        limits: plan.limits.clone(),
        staged: plan.files.staged.clone(),
        prefetch: plan.files.prefetch.clone(),
        preload: plan.preload.clone(),
    })
}

fn stdin_kind(plan: &SpawnPlan, rank: &RankPlan) -> StdinKind {
    match plan.stdio.stdin {
        StdinTarget::All => StdinKind::Pipe,
        StdinTarget::AllByMemory => StdinKind::Socket,
        StdinTarget::One(one) if one == rank.rank && plan.stdio.stdin_inherit => StdinKind::Inherit,
        StdinTarget::One(one) if one == rank.rank => StdinKind::Pipe,
        StdinTarget::One(_) | StdinTarget::None => StdinKind::Null,
    }
}

fn cannot_watch(what: &str) -> impl Fn(io::Error) -> SpawnError {
    move |error| spawn_error(SpawnStep::Fork, format!("cannot watch a rank's {what} (epoll_ctl)"), &error)
}

impl JobRanks {
    /// Gives the job a PMIx server process: the one that its keeper started before the job was known, or a new one.
    pub fn start_pmix(&mut self, plan: &PmixPlan, reactor: &Reactor) -> Result<(), SpawnError> {
        let wanted = Opening::new(plan);
        match self.standby.take_if(|standby| standby.serves(&wanted)) {
            Some(standby) => self.pmix = Some(PmixServer::with(standby, plan, self.slot, reactor)?),
            None => self.start_new_pmix(plan, reactor)?,
        }
        // On a shared machine one agent is enough to remove old directories. This runs while the server process starts.
        if !plan.begin.shared || plan.begin.node == NodeId(0) {
            directory::remove_left();
        }
        Ok(())
    }

    fn start_new_pmix(&mut self, plan: &PmixPlan, reactor: &Reactor) -> Result<(), SpawnError> {
        let (mut server, batch) = PmixServer::prepare(plan, self.slot)?;
        self.dismiss_standby();
        // The removal is requested before the directory exists, because this agent could be killed at any moment.
        self.keeper.request(&Request::RemoveAtEnd { directory: server.directory.bytes() });
        self.keeper.send(reactor);
        server.directory.make()?;
        self.keeper.request(&Request::Spawn(batch));
        self.keeper.send(reactor);
        self.pmix = Some(server);
        Ok(())
    }

    pub(super) fn dismiss_standby(&mut self) {
        let request = self.standby.as_mut().map(StandbyServer::dismiss);
        request.into_iter().for_each(|request| self.keeper.request(&request));
    }

    /// Reads once from the server process's socket. `false`: nothing more is available now.
    pub fn on_pmix_bytes(&mut self, turn: &mut Turn<'_>) -> bool {
        let Some(pmix) = &mut self.pmix else { return false };
        let (was_dying, more) = (pmix.is_dying, pmix.on_bytes(turn));
        if pmix.is_dying && !was_dying {
            // A server that has closed its socket is useless, so it is killed; the keeper reports its exit later.
            self.stop_pmix();
        }
        more
    }

    pub fn stop_pmix(&mut self) {
        if let Some(pmix) = &mut self.pmix {
            // No server is started for the next job, since it would fail in the same way.
            pmix.next = None;
            self.keeper.request(&Request::Signal { slot: Some(pmix.process), signal: SIGKILL });
        }
    }

    pub(super) fn on_server_event(&mut self, slot: u32, event: KeeperEvent, turn: &mut Turn<'_>) {
        let job = self.job;
        let Some(pmix) = self.pmix.as_mut().filter(|pmix| pmix.process == slot) else {
            // The event is of a standby server that the job does not use.
            if !matches!(event, KeeperEvent::Started { .. }) {
                self.standby = None;
            }
            return;
        };
        match event {
            KeeperEvent::Started { fds, .. } => pmix.adopt(fds, turn.reactor),
            KeeperEvent::StartFailed { error, .. } => {
                turn.push_event(job, JobEvent::PmixGone { end: Err(in_words(error)) });
            }
            KeeperEvent::Exited { status, .. } => {
                pmix.on_exited(status, turn);
                for (slot, status) in std::mem::take(&mut self.exits.deferred) {
                    // `Exited` carries no descriptors to adopt, so `on_keeper_event` cannot fail.
                    let _ = self.on_keeper_event(KeeperEvent::Exited { slot, status }, turn);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::keepers::Keepers;
    use crate::agent::pmix::tests::plan;
    use crate::agent::token::{JobSlot, Token};
    use crate::keeper::SERVER_SLOT;
    use wireup_os::bind;
    use wireup_proto::io::{Input, SocketPlan};
    use wireup_wire::ids::JobId;
    use wireup_wire::job::{BindTo, Binding, Object, StdioOptions};

    const JOB: JobId = JobId(2);

    /// The program of the servers is here the test's own, which is no server and exits by itself; the test is about
    /// what the agent does with them.
    #[test]
    fn a_job_that_wants_another_server_gets_a_new_one_and_the_waiting_one_is_ended() {
        let (mut reactor, mut keepers) = (Reactor::new().unwrap(), Keepers::default());
        let mut wanted = plan(&format!("wireup-{}-dismissed", std::process::id()));
        let standby = StandbyServer::like(&wanted).unwrap();
        let directory = standby.directory();
        keepers.join(JOB, JobId(1));
        keepers.plan_standby(JOB, standby);
        keepers.on_tick(u64::MAX, &reactor);
        assert!(directory.exists());

        let mut ranks = JobRanks::new(JOB, JobSlot(0), wanted.kernel_session, &mut keepers, &reactor).unwrap();
        assert!(ranks.standby.is_some());
        wanted.env = vec![b"PMIX_MCA_another=1".to_vec()];
        ranks.start_pmix(&wanted, &reactor).unwrap();
        let (mut buffer, mut inputs) = (vec![0; 1 << 16], Vec::new());
        let is_gone = |inputs: &[Input]| {
            inputs.iter().any(|input| matches!(input, Input::Job { event: JobEvent::PmixGone { .. }, .. }))
        };
        while ranks.standby.is_some() || !is_gone(&inputs) {
            for event in reactor.wait(None).unwrap().to_vec() {
                let turn = &mut Turn { now_ns: 0, reactor: &reactor, buffer: &mut buffer, inputs: &mut inputs };
                match Token::unpack(event.token) {
                    Some(Token::Keeper(_)) => ranks.on_keeper(turn),
                    Some(Token::PmixServer(_)) => drop(ranks.on_pmix_bytes(turn)),
                    Some(Token::PmixError(_)) => ranks.pmix.as_mut().unwrap().on_error_text(turn),
                    _ => {}
                }
            }
            ranks.keeper.send(&reactor);
        }
        assert_eq!(ranks.pmix.as_ref().unwrap().process, SERVER_SLOT);
        keepers.give_back(JOB, ranks.keeper, &reactor);
        keepers.into_keepers(std::iter::empty(), &reactor).for_each(|keeper| drop(keeper.close()));
        assert!(!directory.exists());
    }

    fn spawn_plan(ranks: u16, to: BindTo, stdin: StdinTarget, stdin_inherit: bool) -> SpawnPlan {
        let rank = |local: u16| RankPlan {
            rank: Rank(10 + u32::from(local)),
            local: LocalRank(local),
            program: 0,
            env: vec![],
            pty: None,
        };
        SpawnPlan {
            job: JobId(1),
            programs: vec![],
            ranks: (0..ranks).map(rank).collect(),
            binding: Binding { to, ..Binding::default() },
            report_bindings: false,
            shares_machine: false,
            kernel_session: KernelSession::Own,
            stdio: StdioOptions { stdin, stdin_inherit, ..StdioOptions::default() },
            sockets: SocketPlan { pmi: true, listening: false },
            framework: Default::default(),
            gpus_per_rank: 0,
            umask: 0o22,
            limits: Vec::new(),
            files: Default::default(),
            preload: None,
        }
    }

    #[test]
    fn thread_binding_is_round_robin_and_even_binding_needs_two_cores_for_each_rank() {
        let cpus = bind::allowed().unwrap().len() as u16;
        let batch = batch_of_plan(&spawn_plan(
            2 * cpus,
            BindTo::To { object: Object::Thread, count: 1 },
            StdinTarget::None,
            false,
        ))
        .unwrap();
        let sets: Vec<CpuSet> =
            batch.processes.iter().map(|process| CpuSet::from_words(process.cpus.clone().unwrap())).collect();
        assert!(sets.iter().all(|set| set.len() == 1));
        assert_eq!(sets[0], sets[usize::from(cpus)]);
        let even = |ranks| batch_of_plan(&spawn_plan(ranks, BindTo::Even, StdinTarget::None, false)).unwrap();
        assert!(even(cpus + 1).processes.iter().all(|process| process.cpus.is_none()));
        assert!(even(1).processes[0].cpus.is_none());
        assert!(even(2).processes.iter().all(|process| process.cpus.is_none() == (cpus < 4)));
    }

    #[test]
    fn ranks_share_a_session_unless_their_node_shares_the_machine() {
        let alone = spawn_plan(2, BindTo::None, StdinTarget::None, false);
        for shares_machine in [false, true] {
            let batch = batch_of_plan(&SpawnPlan { shares_machine, ..alone.clone() }).unwrap();
            assert!(batch.processes.iter().all(|process| process.shares_session != shares_machine));
        }
    }

    #[test]
    fn standard_input_goes_only_to_the_chosen_ranks() {
        let kinds = |stdin, inherit| -> Vec<StdinKind> {
            let batch = batch_of_plan(&spawn_plan(2, BindTo::None, stdin, inherit)).unwrap();
            batch.processes.into_iter().map(|process| process.stdin).collect()
        };
        use StdinKind::{Inherit, Null, Pipe};
        assert_eq!(kinds(StdinTarget::None, false), [Null, Null]);
        assert_eq!(kinds(StdinTarget::All, false), [Pipe, Pipe]);
        assert_eq!(kinds(StdinTarget::One(Rank(11)), false), [Null, Pipe]);
        assert_eq!(kinds(StdinTarget::One(Rank(10)), true), [Inherit, Null]);
    }
}
