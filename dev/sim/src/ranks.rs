//! The ranks' processes: start, signals, death, and the keeper's reports about them.
//!
//! A dying rank closes its PMI socket and its pipes, and its keeper reports the exit: three messages on three channels,
//! in any order.

use crate::client::{self, Client};
use crate::clock::Event;
use crate::collecting::Collecting;
use crate::cx::Cx;
use crate::jobs::{Job, Jobs, Node};
use crate::phases::Point;
use crate::sockets::Socket;
use crate::stdio::{Pipe, StdinPipe};
use crate::steps::{Progress, Then};
use crate::store_clients::leave_store;
use crate::workload::{Disposition, Script, Speaks};
use std::rc::Rc;
use wireup_proto::io::{ExitStatus, JobEvent, RankPlan, SpawnPlan, Started};
use wireup_wire::ids::LocalRank;
use wireup_wire::peer::{SpawnError, SpawnStep};
use wireup_wire::signal::{SIGALRM, SIGHUP, SIGINT, SIGKILL, SIGPIPE, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

/// Signals whose default action ends a process.
const FATAL_SIGNALS: [i32; 8] = [SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, SIGALRM, SIGTERM];

/// One rank's process.
pub struct Proc {
    /// Number of the rank among the ranks of all jobs.
    pub id: u32,
    /// Rank of the process in its job.
    pub rank: u32,
    /// Index of the rank's job. `node`: index of the job's part (`Node`) on the rank's node.
    pub job: u32,
    pub node: u32,
    pub local: LocalRank,
    pub phase: Phase,
    pub doing: Doing,
    pub progress: Progress,
    pub collecting: Collecting,
    pub pmi: Option<Box<Client>>,
    /// Whether the agent has received the report that this rank runs; bytes of the rank reach the agent only after
    /// that.
    pub start_is_known: bool,
    pub socket: Socket,
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
    /// The rank's program could not be executed.
    Failed,
    /// The kernel has killed the rank, and no agent or keeper is left to report it.
    Vanished,
}

/// The event for which a running rank waits before it does its next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    Step,
    Reply,
    PipeSpace,
    Stdin,
    /// The end of the rank, which does nothing more until then.
    Nothing,
}

impl Proc {
    pub fn new((id, rank): (u32, u32), job: u32, node: &Node, local: LocalRank, script: Rc<Script>) -> Self {
        Proc {
            id,
            rank,
            job,
            node: node.index,
            local,
            phase: Phase::Absent,
            doing: Doing::Step,
            progress: Progress::new(script),
            collecting: Collecting::default(),
            pmi: None,
            start_is_known: false,
            socket: Socket::new(node.host),
            pipes: [1, 2].map(|stream| Pipe::new(id, stream)),
            stdin: StdinPipe::new(id),
            leaving: None,
        }
    }

    pub fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Whether the rank's process exists or is being started.
    pub fn exists(&self) -> bool {
        matches!(self.phase, Phase::Starting | Phase::Running)
    }

    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Ended(_) | Phase::Vanished)
    }

    /// Whether the rank has finalized, or its process does not exist.
    pub fn has_left(&self) -> bool {
        self.progress.finalized || !self.exists()
    }

    /// Whether the rank's process runs and has not caught a signal.
    pub fn goes_on(&self) -> bool {
        self.is_running() && self.leaving.is_none()
    }

    /// Whether the rank's program is linked with our own library.
    pub fn is_own(&self) -> bool {
        self.progress.script.speaks == Speaks::Own
    }

    /// Ends the rank together with its agent, so that nobody reports its end.
    pub fn vanish(&mut self) {
        if self.exists() {
            self.phase = Phase::Vanished;
        }
        self.pmi = None;
        self.collecting.forget();
        self.socket.clear();
    }

    fn close_pipes(&mut self, cx: &mut Cx, node: &Node) {
        self.schedule_read(cx, node, 1);
        self.schedule_read(cx, node, 2);
        self.stdin.schedule(cx);
    }

    /// Records that a rule is broken at this rank.
    pub fn problem(&self, cx: &mut Cx, job: &Job, problem: &str) {
        cx.problem(format!("rank {} of job {} {problem}", self.rank, job.id));
    }
}

/// The processes of ranks and keepers, and the events that affect them.
impl Jobs {
    pub fn spawn(&mut self, cx: &mut Cx, node: u32, plan: &SpawnPlan) {
        if self.nodes[node as usize].keeper_is_running {
            plan.ranks.iter().for_each(|rank| self.spawn_rank(cx, node, plan, rank));
        }
    }

    fn spawn_rank(&mut self, cx: &mut Cx, node: u32, plan: &SpawnPlan, rank_plan: &RankPlan) {
        let (rank, host) = (rank_plan.rank.0, self.nodes[node as usize].host);
        let job = self.job_at(node);
        if rank >= job.size() {
            return cx.problem(format!("agent {host} spawns rank {rank}, which the job does not have"));
        }
        let (id, size, has_pmix) = (job.first_proc + rank, job.size(), job.plan.options.pmi.flavour.has_pmix());
        let proc = &mut self.procs[id as usize];
        if (proc.node, proc.local) != (node, rank_plan.local) || proc.phase != Phase::Absent {
            return cx.problem(format!("rank {rank} is spawned twice or on the wrong node, by agent {host}"));
        }
        proc.phase = Phase::Starting;
        if has_pmix {
            let wanted = format!("PMIX_RANK={rank}").into_bytes();
            if !rank_plan.env.contains(&wanted) {
                return cx.problem(format!("rank {rank} has no variables of its PMIx server"));
            }
        } else {
            match client::place_of(plan, rank_plan) {
                Ok(place) if (place.env.rank, place.env.size) == (rank, size) => {
                    proc.pmi = Some(Box::new(Client::new(place, proc.progress.script.speaks)));
                }
                Ok(place) => return cx.problem(format!("rank {rank} of {size} reads the place {:?}", place.env)),
                Err(problem) => return cx.problem(format!("rank {rank} {problem}")),
            }
            proc.socket.open = [plan.sockets.pmi; 2];
        }
        // A keeper forks one rank after the other, so this rank waits for the ranks before it.
        let at = &mut self.nodes[node as usize];
        let plan = &self.all[at.job as usize].plan;
        at.forks_until = cx.work(host, at.forks_until.max(cx.clock.now()), |costs| costs.fork_ns);
        if !plan.is_staging() {
            cx.checks.phases.reach(Point::Forked, at.forks_until);
        }
        let load = || cx.clock.now() + if plan.loads() { self.file_server.load(cx) } else { 0 };
        let loaded = *at.loaded_at.get_or_insert_with(load);
        let (forked, delay_ns) = (at.forks_until, cx.draw(cx.spec.timing.spawn));
        let begins = cx.work(host, loaded.max(forked + delay_ns), |costs| costs.exec_ns);
        cx.clock.at(begins, Event::RankStep(id));
    }

    pub fn on_rank_step(&mut self, cx: &mut Cx, id: u32) {
        match self.procs[id as usize].phase {
            Phase::Starting => return self.start_rank(cx, id),
            Phase::Running => {}
            Phase::Absent | Phase::Ended(_) | Phase::Failed | Phase::Vanished => return,
        }
        let (proc, job, node) = self.rank_at(id);
        match proc.do_step(cx, job, node) {
            Then::Continues | Then::Waits => {}
            Then::Ends(status) => self.end_rank(cx, id, status),
            Then::Loads { work_ns } => {
                let ns = self.file_server.ask(cx.clock.now(), work_ns);
                cx.clock.after(ns, Event::RankStep(id));
            }
            Then::AsksServer(step) => self.do_pmix_step(cx, id, step),
        }
    }

    fn start_rank(&mut self, cx: &mut Cx, id: u32) {
        let (proc, job, node) = self.rank_at(id);
        let local = proc.local;
        if let Some(errno) = cx.spec.no_exec(id) {
            proc.phase = Phase::Failed;
            proc.blame(job, true);
            let step = if errno == 2 { SpawnStep::Find } else { SpawnStep::Exec };
            let error = SpawnError { step, what: "./app".into(), errno };
            return node.keeper_says(cx, JobEvent::RankStarted { local, result: Err(error) });
        }
        proc.phase = Phase::Running;
        cx.checks.started += 1;
        if !job.plan.is_staging() {
            cx.reach(Point::Begun);
        }
        let now_ns = cx.local_now(node.host).0;
        let started = Started { pid: 1000 + proc.rank, spawn_ns: now_ns - 1000, exec_ns: now_ns };
        node.keeper_says(cx, JobEvent::RankStarted { local, result: Ok(started) });
        proc.next_step(cx);
    }

    pub fn on_signal(&mut self, cx: &mut Cx, id: u32, signal: i32) {
        let proc = &mut self.procs[id as usize];
        match proc.phase {
            // The keeper sends the signal as soon as the rank's process exists.
            Phase::Starting => return cx.after(cx.spec.timing.spawn, Event::Signal(id, signal as u8)),
            Phase::Running => {}
            Phase::Absent | Phase::Ended(_) | Phase::Failed | Phase::Vanished => return,
        }
        let by_signal = ExitStatus::Signalled { signal, core_dumped: false };
        if signal == SIGKILL {
            return self.end_rank(cx, id, by_signal);
        }
        if !FATAL_SIGNALS.contains(&signal) || proc.leaving.is_some() {
            return;
        }
        match proc.progress.script.on_signal {
            Disposition::Default => self.end_rank(cx, id, by_signal),
            Disposition::Ignore => {}
            Disposition::Handler { after_ns, code } => {
                proc.leaving = Some(code);
                proc.doing = Doing::Step;
                cx.clock.after(after_ns, Event::RankStep(id));
            }
        }
    }

    pub fn end_rank(&mut self, cx: &mut Cx, id: u32, status: ExitStatus) {
        let (proc, job, _) = self.rank_at(id);
        if status == ExitStatus::Exited(0) {
            proc.collecting.abandon(job);
        }
        proc.phase = Phase::Ended(status);
        proc.pmi = None;
        proc.socket.close(cx, id);
        leave_store(proc, cx);
        self.server_loses(cx, id);
        let (proc, _, node) = self.rank_at(id);
        proc.close_pipes(cx, node);
        node.keeper_says(cx, JobEvent::RankExited { local: proc.local, status, out_of_memory: false });
    }

    /// The next report of the keeper, and the rank whose end it reports, if any.
    pub fn take_keeper_report(&mut self, cx: &mut Cx, node: u32) -> Option<(JobEvent, Option<u32>)> {
        let at = &mut self.nodes[node as usize];
        let event = at.keeper.pop()?;
        let rank = |local: LocalRank| at.ranks[local.index()];
        if let JobEvent::RankStarted { local, result: Ok(_) } = event {
            let proc = &mut self.procs[rank(local) as usize];
            proc.start_is_known = true;
            [1, 2].into_iter().for_each(|stream| proc.schedule_read(cx, at, stream));
        }
        let exited = if let JobEvent::RankExited { local, .. } = event { Some(rank(local)) } else { None };
        Some((event, exited))
    }

    /// The keeper of a node's ranks dies: the ranks die with it, without a report.
    pub fn kill_keeper(&mut self, cx: &mut Cx, node: u32) {
        let at = &mut self.nodes[node as usize];
        for id in &at.ranks {
            let proc = &mut self.procs[*id as usize];
            if proc.exists() {
                proc.phase = Phase::Vanished;
                proc.pmi = None;
                proc.socket.store = None;
                proc.socket.close(cx, *id);
                proc.close_pipes(cx, at);
            }
        }
        at.server = None;
        at.keeper_says(cx, JobEvent::KeeperLost { problem: None });
        at.keeper_is_running = false;
    }
}
