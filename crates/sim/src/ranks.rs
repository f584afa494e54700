//! The ranks' processes: start, signals, death, and the keeper's reports about them.
//!
//! A dying rank closes its PMI socket and its pipes, and its keeper reports the exit: three messages on three channels, in any order.

use crate::client::{self, Client};
use crate::clock::Event;
use crate::collecting::Collecting;
use crate::faults::Culprit;
use crate::fifo::Fifo;
use crate::hosts::Host;
use crate::memory::Shared;
use crate::stdio::{Pipe, StdinPipe};
use crate::workload::{Disposition, Script};
use crate::world::World;
use bytes::Bytes;
use std::rc::Rc;
use wireup_proto::io::{ExitStatus, Input, RankPlan, SpawnPlan};
use wireup_wire::ids::LocalRank;
use wireup_wire::peer::{SpawnError, SpawnStep};
use wireup_wire::signal::{SIGALRM, SIGHUP, SIGINT, SIGKILL, SIGPIPE, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

/// Signals that end a process by default.
const FATAL_SIGNALS: [i32; 8] = [SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, SIGALRM, SIGTERM];

/// One rank's process.
pub struct Proc {
    pub rank: u32,
    pub host: u32,
    pub local: LocalRank,
    pub phase: Phase,
    pub doing: Doing,
    pub script: Rc<Script>,
    /// Position in the script, and how often the step there was done.
    pub step: u16,
    pub nth: u32,
    /// The number of collectives entered.
    pub entered: u32,
    pub collecting: Collecting,
    pub finalized: bool,
    /// The rank whose value the last get asked for.
    pub asked: u32,
    pub pmi: Option<Box<Client>>,
    /// The agent was told that this rank runs; bytes of the rank arrive after that.
    pub start_is_known: bool,
    pub to_agent: Fifo<ToAgent>,
    pub from_agent: Fifo<FromAgent>,
    /// Which ends of the PMI socket are open: the rank's, the agent's.
    pub socket: [bool; 2],
    pub pipes: [Pipe; 2],
    pub stdin: StdinPipe,
    /// The rank caught a signal and exits with this code.
    pub leaving: Option<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Absent,
    Starting,
    Running,
    Ended(ExitStatus),
    /// Its program could not be started.
    Failed,
    /// Killed by the kernel, with no agent or keeper left to report it.
    Vanished,
}

/// What a running rank waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    Step,
    Reply,
    PipeSpace,
    Stdin,
    /// Its own end.
    Nothing,
}

pub enum ToAgent {
    Bytes(Bytes),
    Gone,
}

pub enum FromAgent {
    /// With the memory whose descriptors are passed along.
    Bytes(Bytes, Vec<Shared>),
    Closed,
}

impl Proc {
    pub fn new(rank: u32, host: u32, local: u16, script: Rc<Script>) -> Self {
        Proc {
            rank,
            host,
            local: LocalRank(local),
            phase: Phase::Absent,
            doing: Doing::Step,
            script,
            step: 0,
            nth: 0,
            entered: 0,
            collecting: Collecting::default(),
            finalized: false,
            asked: 0,
            pmi: None,
            start_is_known: false,
            to_agent: Fifo::default(),
            from_agent: Fifo::default(),
            socket: [false; 2],
            pipes: Default::default(),
            stdin: StdinPipe::default(),
            leaving: None,
        }
    }

    pub fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    pub fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// Ends together with its agent.
    pub fn vanish(&mut self) {
        if matches!(self.phase, Phase::Starting | Phase::Running) {
            self.phase = Phase::Vanished;
        }
        self.pmi = None;
        self.collecting = Collecting::default();
        self.to_agent.clear();
        self.from_agent.clear();
    }
}

impl World {
    pub(crate) fn spawn_rank(&mut self, host: u32, plan: &SpawnPlan, rank_plan: &RankPlan) {
        let rank = rank_plan.rank.0;
        let Some(proc) = self.procs.get_mut(rank as usize) else {
            return self.checks.problem(format!("agent {host} spawns rank {rank}, which the job does not have"));
        };
        if (proc.host, proc.local) != (host, rank_plan.local) || proc.phase != Phase::Absent {
            return self.checks.problem(format!("rank {rank} is spawned twice or on the wrong node, by agent {host}"));
        }
        proc.phase = Phase::Starting;
        if self.spec.pmi.has_pmix() {
            let wanted = format!("PMIX_RANK={rank}").into_bytes();
            if !rank_plan.env.contains(&wanted) {
                return self.checks.problem(format!("rank {rank} has no variables of its PMIx server"));
            }
            let delay_ns = self.spec.timing.spawn.draw(&mut self.rng);
            return self.clock.after(delay_ns, Event::RankStep(rank));
        }
        let (size, place) = (self.spec.job_size(), client::place_of(plan, rank_plan));
        match place {
            Ok(place) if (place.env.rank, place.env.size) == (rank, size) => {
                proc.pmi = Some(Box::new(Client::new(place, proc.script.speaks)));
            }
            Ok(place) => return self.checks.problem(format!("rank {rank} of {size} reads the place {:?}", place.env)),
            Err(problem) => return self.checks.problem(format!("rank {rank} {problem}")),
        }
        proc.socket = [plan.pmi_socket; 2];
        let delay_ns = self.spec.timing.spawn.draw(&mut self.rng);
        self.clock.after(delay_ns, Event::RankStep(rank));
    }

    pub(crate) fn start_rank(&mut self, rank: u32) {
        let proc = &mut self.procs[rank as usize];
        let (host, local) = (proc.host, proc.local);
        if let Some(&errno) = self.no_exec.get(&rank) {
            proc.phase = Phase::Failed;
            self.checks.blame(Culprit::Rank(rank), true);
            let step = if errno == 2 { SpawnStep::Find } else { SpawnStep::Exec };
            let error = SpawnError { step, what: "./app".into(), errno };
            return self.keeper_says(host, |job| Input::ChildFailed { job, local, error });
        }
        proc.phase = Phase::Running;
        self.checks.started += 1;
        let now_ns = self.local_now(host).0;
        let (pid, spawn_ns, exec_ns) = (1000 + rank, now_ns - 1000, now_ns);
        self.keeper_says(host, |job| Input::ChildStarted { job, local, pid, spawn_ns, exec_ns });
        self.next_step(rank);
    }

    /// Schedules the next step, after the rank's think time.
    pub(crate) fn next_step(&mut self, rank: u32) {
        self.procs[rank as usize].doing = Doing::Step;
        let delay_ns = self.spec.timing.think.draw(&mut self.rng);
        self.clock.after(delay_ns, Event::RankStep(rank));
    }

    pub(crate) fn on_signal(&mut self, rank: u32, signal: i32) {
        let proc = &mut self.procs[rank as usize];
        match proc.phase {
            // The keeper sends the signal as soon as the process exists.
            Phase::Starting => {
                let delay_ns = self.spec.timing.spawn.draw(&mut self.rng);
                return self.clock.after(delay_ns, Event::Signal(rank, signal as u8));
            }
            Phase::Running => {}
            Phase::Absent | Phase::Ended(_) | Phase::Failed | Phase::Vanished => return,
        }
        let by_signal = ExitStatus::Signalled { signal, core_dumped: false };
        if signal == SIGKILL {
            return self.end_rank(rank, by_signal);
        }
        if !FATAL_SIGNALS.contains(&signal) || proc.leaving.is_some() {
            return;
        }
        match proc.script.on_signal {
            Disposition::Default => self.end_rank(rank, by_signal),
            Disposition::Ignore => {}
            Disposition::Handler { after_ns, code } => {
                proc.leaving = Some(code);
                proc.doing = Doing::Step;
                self.clock.after(after_ns, Event::RankStep(rank));
            }
        }
    }

    pub(crate) fn end_rank(&mut self, rank: u32, status: ExitStatus) {
        if status == ExitStatus::Exited(0) {
            self.abandon(rank);
        }
        let proc = &mut self.procs[rank as usize];
        let (host, local) = (proc.host, proc.local);
        proc.phase = Phase::Ended(status);
        proc.pmi = None;
        self.close_socket(rank);
        self.server_loses(rank);
        self.schedule_read(rank, 1);
        self.schedule_read(rank, 2);
        self.schedule_stdin(rank);
        self.keeper_says(host, |job| Input::ChildExited { job, local, status });
    }

    /// Closes the rank's end of its PMI socket; also when the rank ends.
    pub(crate) fn close_socket(&mut self, rank: u32) {
        let proc = &mut self.procs[rank as usize];
        if std::mem::replace(&mut proc.socket[0], false) {
            proc.from_agent.clear();
            let delay_ns = self.spec.timing.client.draw(&mut self.rng);
            proc.to_agent.push(&mut self.clock, delay_ns, ToAgent::Gone, Event::ClientArrive(rank));
        }
    }

    pub(crate) fn keeper_says(&mut self, host: u32, say: impl FnOnce(wireup_wire::ids::JobId) -> Input) {
        let delay_ns = self.spec.timing.report.draw(&mut self.rng);
        let Host { keeper, keeper_lives, .. } = &mut self.hosts[host as usize];
        if *keeper_lives {
            keeper.push(&mut self.clock, delay_ns, say(crate::birth::JOB), Event::KeeperReport(host));
        }
    }

    /// The keeper of an agent dies: its ranks die with it, without a report.
    pub(crate) fn kill_keeper(&mut self, host: u32) {
        for rank in self.hosts[host as usize].ranks.clone() {
            let proc = &mut self.procs[rank as usize];
            if matches!(proc.phase, Phase::Starting | Phase::Running) {
                proc.phase = Phase::Vanished;
                proc.pmi = None;
                self.close_socket(rank);
                self.schedule_read(rank, 1);
                self.schedule_read(rank, 2);
                self.schedule_stdin(rank);
            }
        }
        self.hosts[host as usize].server = None;
        self.keeper_says(host, |_| Input::KeeperLost { job: crate::birth::JOB });
        self.hosts[host as usize].keeper_lives = false;
    }
}
