//! The ranks' processes: start, signals, death, and the keeper's reports about them.
//!
//! A dying rank closes its PMI socket and its pipes, and its keeper reports the exit: three messages on three channels,
//! in any order.

use crate::client::{self, Client};
use crate::clock::Event;
use crate::collecting::Collecting;
use crate::fifo::Fifo;
use crate::jobs::Node;
use crate::memory::Shared;
use crate::stdio::{Pipe, StdinPipe};
use crate::workload::{Disposition, Script};
use crate::world::World;
use bytes::Bytes;
use std::rc::Rc;
use wireup_proto::io::{ExitStatus, Input, JobEvent, RankPlan, SpawnPlan, Started};
use wireup_wire::ids::{JobId, LocalRank};
use wireup_wire::peer::{SpawnError, SpawnStep};
use wireup_wire::signal::{SIGALRM, SIGHUP, SIGINT, SIGKILL, SIGPIPE, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

/// Signals that end a process by default.
const FATAL_SIGNALS: [i32; 8] = [SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, SIGALRM, SIGTERM];

/// One rank's process. A world numbers the ranks of all jobs in sequence; these numbers are called `id`.
pub struct Proc {
    /// Rank of the process in its job.
    pub rank: u32,
    /// Index of the rank's job; `node`: index of the part of the job on the rank's node.
    pub job: u32,
    pub node: u32,
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
    /// Whether the agent was told that this rank runs; bytes of the rank arrive after that.
    pub start_is_known: bool,
    pub to_agent: Fifo<ToAgent>,
    pub from_agent: Fifo<FromAgent>,
    /// Whether the ends of the PMI socket are open: the rank's, the agent's.
    pub socket: [bool; 2],
    pub pipes: [Pipe; 2],
    pub stdin: StdinPipe,
    /// Exit code of a rank that has caught a signal and is about to exit.
    pub leaving: Option<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Absent,
    Starting,
    Running,
    Ended(ExitStatus),
    /// The program of the rank could not be started.
    Failed,
    /// The kernel has killed the rank, and no agent or keeper is left to report it.
    Vanished,
}

/// What a running rank waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    Step,
    Reply,
    PipeSpace,
    Stdin,
    /// The end of the rank, which does nothing more.
    Nothing,
}

pub enum ToAgent {
    Bytes(Bytes),
    Gone,
}

pub enum FromAgent {
    /// Bytes, with the memory whose descriptors are passed along.
    Bytes(Bytes, Vec<Shared>),
    Closed,
}

impl Proc {
    pub fn new(rank: u32, job: u32, node: u32, local: LocalRank, script: Rc<Script>) -> Self {
        Proc {
            rank,
            job,
            node,
            local,
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

    /// Whether its process exists or is being started.
    pub fn exists(&self) -> bool {
        matches!(self.phase, Phase::Starting | Phase::Running)
    }

    pub fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// Ends the rank together with its agent.
    pub fn vanish(&mut self) {
        if self.exists() {
            self.phase = Phase::Vanished;
        }
        self.pmi = None;
        self.collecting = Collecting::default();
        self.to_agent.clear();
        self.from_agent.clear();
    }
}

impl World {
    pub(crate) fn spawn_rank(&mut self, node: u32, plan: &SpawnPlan, rank_plan: &RankPlan) {
        let (rank, host) = (rank_plan.rank.0, self.nodes[node as usize].host);
        let job = &self.jobs[self.nodes[node as usize].job as usize];
        if rank >= job.size() {
            return self.checks.problem(format!("agent {host} spawns rank {rank}, which the job does not have"));
        }
        let (id, size, has_pmix) = (job.first_proc + rank, job.size(), job.plan.options.pmi.flavour.has_pmix());
        let proc = &mut self.procs[id as usize];
        if (proc.node, proc.local) != (node, rank_plan.local) || proc.phase != Phase::Absent {
            return self.checks.problem(format!("rank {rank} is spawned twice or on the wrong node, by agent {host}"));
        }
        proc.phase = Phase::Starting;
        if has_pmix {
            let wanted = format!("PMIX_RANK={rank}").into_bytes();
            if !rank_plan.env.contains(&wanted) {
                return self.checks.problem(format!("rank {rank} has no variables of its PMIx server"));
            }
        } else {
            match client::place_of(plan, rank_plan) {
                Ok(place) if (place.env.rank, place.env.size) == (rank, size) => {
                    proc.pmi = Some(Box::new(Client::new(place, proc.script.speaks)));
                }
                Ok(place) => {
                    return self.checks.problem(format!("rank {rank} of {size} reads the place {:?}", place.env));
                }
                Err(problem) => return self.checks.problem(format!("rank {rank} {problem}")),
            }
            proc.socket = [plan.pmi_socket; 2];
        }
        let delay_ns = self.spec.timing.spawn.draw(&mut self.rng);
        self.clock.after(delay_ns, Event::RankStep(id));
    }

    pub(crate) fn start_rank(&mut self, id: u32) {
        let Proc { rank, node, local, .. } = self.procs[id as usize];
        if let Some(&errno) = self.no_exec.get(&id) {
            self.procs[id as usize].phase = Phase::Failed;
            self.blame_rank(id, true);
            let step = if errno == 2 { SpawnStep::Find } else { SpawnStep::Exec };
            let error = SpawnError { step, what: "./app".into(), errno };
            return self.keeper_says(node, |job| Input::Job {
                job,
                event: JobEvent::RankStarted { local, result: Err(error) },
            });
        }
        self.procs[id as usize].phase = Phase::Running;
        self.checks.started += 1;
        let now_ns = self.local_now(self.nodes[node as usize].host).0;
        let (pid, spawn_ns, exec_ns) = (1000 + rank, now_ns - 1000, now_ns);
        self.keeper_says(node, |job| Input::Job {
            job,
            event: JobEvent::RankStarted { local, result: Ok(Started { pid, spawn_ns, exec_ns }) },
        });
        self.next_step(id);
    }

    /// Schedules the next step, after the rank's think time.
    pub(crate) fn next_step(&mut self, id: u32) {
        self.procs[id as usize].doing = Doing::Step;
        let delay_ns = self.spec.timing.think.draw(&mut self.rng);
        self.clock.after(delay_ns, Event::RankStep(id));
    }

    pub(crate) fn on_signal(&mut self, id: u32, signal: i32) {
        let proc = &mut self.procs[id as usize];
        match proc.phase {
            // The keeper sends the signal as soon as the process exists.
            Phase::Starting => {
                let delay_ns = self.spec.timing.spawn.draw(&mut self.rng);
                return self.clock.after(delay_ns, Event::Signal(id, signal as u8));
            }
            Phase::Running => {}
            Phase::Absent | Phase::Ended(_) | Phase::Failed | Phase::Vanished => return,
        }
        let by_signal = ExitStatus::Signalled { signal, core_dumped: false };
        if signal == SIGKILL {
            return self.end_rank(id, by_signal);
        }
        if !FATAL_SIGNALS.contains(&signal) || proc.leaving.is_some() {
            return;
        }
        match proc.script.on_signal {
            Disposition::Default => self.end_rank(id, by_signal),
            Disposition::Ignore => {}
            Disposition::Handler { after_ns, code } => {
                proc.leaving = Some(code);
                proc.doing = Doing::Step;
                self.clock.after(after_ns, Event::RankStep(id));
            }
        }
    }

    pub(crate) fn end_rank(&mut self, id: u32, status: ExitStatus) {
        if status == ExitStatus::Exited(0) {
            self.abandon(id);
        }
        let proc = &mut self.procs[id as usize];
        let (node, local) = (proc.node, proc.local);
        proc.phase = Phase::Ended(status);
        proc.pmi = None;
        self.close_socket(id);
        self.server_loses(id);
        self.close_pipes(id);
        self.keeper_says(node, |job| Input::Job {
            job,
            event: JobEvent::RankExited { local, status, out_of_memory: false },
        });
    }

    fn close_pipes(&mut self, id: u32) {
        self.schedule_read(id, 1);
        self.schedule_read(id, 2);
        self.schedule_stdin(id);
    }

    /// Closes the rank's end of its PMI socket, also when the rank ends.
    pub(crate) fn close_socket(&mut self, id: u32) {
        let proc = &mut self.procs[id as usize];
        if std::mem::replace(&mut proc.socket[0], false) {
            proc.from_agent.clear();
            let delay_ns = self.spec.timing.client.draw(&mut self.rng);
            proc.to_agent.push(&mut self.clock, delay_ns, ToAgent::Gone, Event::ClientArrive(id));
        }
    }

    pub(crate) fn keeper_says(&mut self, node: u32, say: impl FnOnce(JobId) -> Input) {
        let delay_ns = self.spec.timing.report.draw(&mut self.rng);
        let Node { job, keeper, keeper_is_running, .. } = &mut self.nodes[node as usize];
        if *keeper_is_running {
            let id = self.jobs[*job as usize].id;
            keeper.push(&mut self.clock, delay_ns, say(id), Event::KeeperReport(node));
        }
    }

    pub(crate) fn on_keeper_report(&mut self, node: u32) {
        let at = &mut self.nodes[node as usize];
        let Some(input) = at.keeper.pop() else { return };
        let rank = |local: LocalRank| at.ranks[local.index()];
        let (started, exited) = match &input {
            Input::Job { event: JobEvent::RankStarted { local, result: Ok(_) }, .. } => (Some(rank(*local)), None),
            Input::Job { event: JobEvent::RankExited { local, .. }, .. } => (None, Some(rank(*local))),
            _ => (None, None),
        };
        if let Some(id) = started {
            self.procs[id as usize].start_is_known = true;
        }
        if matches!(input, Input::Job { event: JobEvent::PmixGone { .. }, .. }) || exited.is_some() {
            // The server's messages are delivered before its end, and before the end of the rank that they may concern.
            while self.nodes[node as usize].server.as_ref().is_some_and(|server| !server.to_agent.is_empty()) {
                self.on_server_speaks(node);
            }
        }
        if let Some(id) = exited {
            // The driver reads what a dying rank has sent before it reports the rank's exit.
            while !self.procs[id as usize].to_agent.is_empty() {
                self.on_client_arrive(id);
            }
        }
        if !self.nodes[node as usize].job_is_gone
            || matches!(input, Input::Job { event: JobEvent::KeeperLost { .. }, .. })
        {
            self.tell_node(node, |_| input);
        }
    }

    /// The keeper of a node's ranks dies: the ranks die with it, without a report.
    pub(crate) fn kill_keeper(&mut self, node: u32) {
        for id in self.nodes[node as usize].ranks.clone() {
            let proc = &mut self.procs[id as usize];
            if proc.exists() {
                proc.phase = Phase::Vanished;
                proc.pmi = None;
                self.close_socket(id);
                self.close_pipes(id);
            }
        }
        self.nodes[node as usize].server = None;
        self.keeper_says(node, |job| Input::Job { job, event: JobEvent::KeeperLost { problem: None } });
        self.nodes[node as usize].keeper_is_running = false;
    }
}
