//! The PMIx server processes: the work of each agent's driver for its server, and the server process with its ranks.
//!
//! The simulated process includes the library: it waits until all local members have entered a call, keeps what ranks
//! have committed, and asks its agent for the data of other ranks. Ranks talk to it without delay; messages between it
//! and its agent take time and arrive in pieces.

mod answers;
mod asks;

use crate::checkers::modex::{Call, record};
use crate::clock::Event;
use crate::clock::Fifo;
use crate::cx::Cx;
use crate::jobs::{Job, Jobs, Node};
use crate::ranks::{Doing, Phase, Proc};
use crate::sockets::cut;
use crate::workload::PmixStep;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wireup_proto::io::{ExitStatus, JobEvent, PmixEnd, PmixPlan};
use wireup_wire::ids::Rank;
use wireup_wire::pmix::{Answer, Event as PmixEvent, FromServer, Status, ToServer, Unpacker, Wanted, pack};
use wireup_wire::signal::SIGKILL;

/// The way in which a server process fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoServer {
    /// The process reports to its agent that it has failed.
    Fails,
    Dies,
    /// The process sends bytes that are not a message.
    Garbage,
    /// The process sends nothing.
    Silent,
}

/// One server process.
#[derive(Default)]
pub struct Server {
    /// Index of the part of the job (`Node`) that the process serves, its host, and its ranks.
    node: u32,
    host: u32,
    ranks: Vec<u32>,
    pub is_running: bool,
    /// Whether the process has opened its PMIx library.
    opened: bool,
    /// Whether the process has told its agent that a rank has registered for events.
    watches: bool,
    /// Whether the process still waits to receive the addresses where all ranks listen.
    lacks_endpoints: bool,
    unpacker: Unpacker,
    to_agent: Fifo<Bytes>,
    to_server: Fifo<Bytes>,
    next_id: u64,
    asked: BTreeMap<u64, Asked>,
    /// Local ranks that have entered a call, with their timeouts in seconds.
    entered: BTreeMap<Call, Vec<(u32, Option<u32>)>>,
    commits: Commits,
    /// Local ranks that have lost their connection to the server: fences and groups complete without these ranks.
    lost: BTreeSet<u32>,
}

/// The commits of ranks, as far as a server knows them, and the ranks and requests that wait for a commit.
#[derive(Default)]
struct Commits {
    local: BTreeMap<u32, Commit>,
    /// Number of commits of each remote rank, as far as the server knows it.
    remote: BTreeMap<u32, u32>,
    /// Tickets of requests that wait for a local rank's commit.
    held: Vec<(u64, u32)>,
    /// Local ranks that have ended or finalized and will not commit again.
    left: BTreeSet<u32>,
    /// Local ranks that wait for the data of each remote rank; the server asks its agent once for all of them.
    wanting: BTreeMap<u32, Vec<u32>>,
    /// Local ranks that wait for a commit of another local rank.
    waiting: Vec<(u32, u32)>,
}

/// The latest commit of a local rank: the number of its commits so far, and the length of its data (bytes).
#[derive(Clone, Copy, Default)]
struct Commit {
    version: u32,
    bytes: u32,
}

/// A request to the server's agent, with the ranks that wait for its answer.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Asked {
    Together { call: Call, ranks: Vec<u32>, patient: bool },
    Get { of: u32 },
    Publish { rank: u32 },
    LookUp { rank: u32, of: u32 },
    Procs { rank: u32 },
}

/// The answer that a server gives to one of its ranks, or to several ranks that wait for the same data.
enum Served {
    /// The current step of the rank is done.
    Step(u32),
    /// A value that this rank's current step has asked for.
    Value(u32),
    /// An answer without the data of rank `of`, for which the ranks in `ranks` wait.
    NoData { of: u32, ranks: Vec<u32>, answer: Answer },
}

/// The work of the agent's driver and of the keeper for the server of a node.
impl Node {
    pub fn start_server(&mut self, cx: &mut Cx, job: &Job, procs: &[Proc], plan: &PmixPlan) {
        let ranks = self.ranks.iter().map(|id| procs[*id as usize].rank).collect();
        let lacks_endpoints = plan.begin.has_endpoints;
        let Node { index: node, host, .. } = *self;
        let server = Server { node, host, ranks, is_running: true, lacks_endpoints, ..Server::default() };
        let count = plan.begin.cpus.len();
        if count != self.ranks.len() {
            return server.problem(cx, job, &format!("is started for {count} ranks"));
        }
        if self.keeper_is_running {
            self.server = Some(server);
            cx.after(cx.spec.timing.spawn, Event::ServerBegins(self.index));
        }
    }

    fn running_server(&mut self) -> Option<&mut Server> {
        self.server.as_mut().filter(|server| server.is_running)
    }

    pub fn on_server_begins(&mut self, cx: &mut Cx) {
        let Some(server) = self.running_server() else { return };
        match cx.spec.no_server(server.host) {
            None => {
                server.opened = true;
                server.serve_if_complete(cx);
            }
            Some(NoServer::Fails) => {
                server.say(cx, &FromServer::Failed { problem: "no libpmix here".into() });
                self.server_ends(cx, ExitStatus::Exited(0));
            }
            Some(NoServer::Dies) => self.server_ends(cx, ExitStatus::Signalled { signal: 11, core_dumped: false }),
            Some(NoServer::Garbage) => server.say_bytes(cx, Bytes::from_static(b"\x04\0\0\0garbage")),
            Some(NoServer::Silent) => {}
        }
    }

    pub fn send_to_server(&mut self, cx: &mut Cx, bytes: Bytes) {
        let delay_ns = cx.draw(cx.spec.timing.client);
        if let Some(server) = self.running_server() {
            server.to_server.push(&mut cx.clock, delay_ns, bytes, Event::ServerHears(server.node));
        }
    }

    /// The server process has ended; its keeper reports the end.
    fn server_ends(&mut self, cx: &mut Cx, status: ExitStatus) {
        if let Some(server) = self.running_server() {
            server.is_running = false;
            let end = PmixEnd { status, stderr: "last words".into(), no_room: None };
            self.keeper_says(cx, JobEvent::PmixGone { end: Ok(end) });
        }
    }

    pub fn stop_server(&mut self, cx: &mut Cx) {
        self.server_ends(cx, ExitStatus::Signalled { signal: SIGKILL, core_dumped: false });
    }

    pub fn has_server_bytes(&self) -> bool {
        self.server.as_ref().is_some_and(|server| !server.to_agent.is_empty())
    }

    /// The agent's driver reads from the server; `None`: there is nothing for the agent.
    pub fn on_server_speaks(&mut self) -> Option<JobEvent> {
        let bytes = self.server.as_mut()?.to_agent.pop()?;
        (!self.job_is_gone).then_some(JobEvent::PmixBytes { bytes })
    }
}

/// The answers that ranks receive from their servers.
impl Jobs {
    pub fn on_server_hears(&mut self, cx: &mut Cx, node: u32) {
        let Some(server) = self.nodes[node as usize].running_server() else { return };
        let Some(bytes) = server.to_server.pop() else { return };
        server.unpacker.push(&bytes);
        while let Some(server) = self.nodes[node as usize].running_server() {
            let message = server.unpacker.next::<ToServer>();
            match message {
                Ok(Some(ToServer::End)) => self.on_server_end(cx, node),
                Ok(Some(message)) => {
                    self.with_server(cx, node, |server, cx, job, procs| server.on_message(cx, job, procs, message))
                }
                Ok(None) => return,
                Err(error) => return self.server_problem(cx, node, &format!("reads: {error}")),
            }
        }
    }

    fn on_server_end(&mut self, cx: &mut Cx, node: u32) {
        if let Some(rank) = self.running_rank(node) {
            self.server_problem(cx, node, &format!("is ended while rank {rank} runs"));
        }
        if !cx.spec.servers.are_stubborn {
            self.nodes[node as usize].server_ends(cx, ExitStatus::Exited(0));
        }
    }

    /// A rank does a step in a job with PMIx. A rank whose server is not ready waits forever.
    pub fn do_pmix_step(&mut self, cx: &mut Cx, id: u32, step: PmixStep) {
        let (proc, job, node) = self.rank_at(id);
        let other = match step {
            PmixStep::Get { whose, .. } => match proc.nth_of(cx, job, whose) {
                Some(other) => other,
                None => return proc.step_done(cx),
            },
            PmixStep::LookUp { whose } => proc.nth_of(cx, job, whose).unwrap_or(proc.rank),
            _ => proc.rank,
        };
        if let PmixStep::Abort { .. } = step {
            proc.blame(job, true);
        }
        let (node, rank) = (node.index, proc.rank);
        proc.doing = Doing::Reply;
        let is_ready = self.nodes[node as usize].server.as_ref().is_some_and(Server::is_serving);
        if !is_ready {
            return;
        }
        let proc = &mut self.procs[id as usize];
        match step {
            PmixStep::Finalize => proc.progress.finalized = true,
            PmixStep::Abort { .. } => proc.doing = Doing::Nothing,
            _ => {}
        }
        self.with_server(cx, node, |server, cx, job, _| server.on_step(cx, job, rank, step, other));
    }

    /// A rank has ended, and the library continues without it.
    pub fn server_loses(&mut self, cx: &mut Cx, id: u32) {
        let (proc, _, node) = self.rank_at(id);
        let rank = proc.rank;
        if node.server.as_ref().is_some_and(Server::is_serving) {
            let node = node.index;
            self.with_server(cx, node, |server, cx, job, _| server.on_lost(cx, job, rank));
        }
    }

    /// Lets a server do something; then its ranks continue with what the server gives them.
    fn with_server(
        &mut self,
        cx: &mut Cx,
        node: u32,
        act: impl FnOnce(&mut Server, &mut Cx, &mut Job, &[Proc]) -> Vec<Served>,
    ) {
        let Node { job, server: Some(server), .. } = &mut self.nodes[node as usize] else { return };
        let job = &mut self.all[*job as usize];
        let first = job.first_proc as usize;
        for served in act(server, cx, job, &self.procs[first..]) {
            let ranks = match served {
                Served::Step(rank) => {
                    let proc = &mut self.procs[first + rank as usize];
                    if proc.goes_on() {
                        proc.step_done(cx);
                    }
                    continue;
                }
                Served::Value(rank) => vec![rank],
                Served::NoData { of, ranks, answer } => {
                    if !may_be_gone(self, cx, node, of) {
                        let problem = format!("gets rank {of} for {ranks:?}: {answer:?}");
                        return self.server_problem(cx, node, &problem);
                    }
                    ranks
                }
            };
            for rank in ranks {
                let proc = &mut self.procs[first + rank as usize];
                if proc.is_running() {
                    proc.got(cx);
                }
            }
        }
    }

    fn server_problem(&self, cx: &mut Cx, node: u32, problem: &str) {
        if let Some(server) = &self.nodes[node as usize].server {
            server.problem(cx, self.job_at(node), problem);
        }
    }
}

impl Server {
    fn is_serving(&self) -> bool {
        self.is_running && self.opened && !self.lacks_endpoints
    }

    fn serve_if_complete(&mut self, cx: &mut Cx) {
        if self.is_serving() {
            let env = self.ranks.iter().map(|rank| vec![format!("PMIX_RANK={rank}").into_bytes()]).collect();
            let version = if cx.spec.has_other_library(self.host) { "5.0.1" } else { "4.2.2" }.to_owned();
            self.say(cx, &FromServer::Ready { version, env, defaults: Vec::new() });
        }
    }

    fn say(&mut self, cx: &mut Cx, message: &FromServer) {
        self.say_bytes(cx, pack(message));
    }

    fn say_bytes(&mut self, cx: &mut Cx, mut bytes: Bytes) {
        let piece = cut(cx, &mut bytes);
        for piece in piece.into_iter().chain([bytes]) {
            let delay_ns = cx.draw(cx.spec.timing.client);
            self.to_agent.push(&mut cx.clock, delay_ns, piece, Event::ServerSpeaks(self.node));
        }
    }

    /// The requests whose answers the server awaits from its agent, as text for the report of a hang.
    pub fn waits(&self) -> Option<String> {
        (self.is_running && !self.asked.is_empty()).then(|| format!("server {}: {:?}", self.host, self.asked))
    }

    fn problem(&self, cx: &mut Cx, job: &Job, problem: &str) {
        cx.problem(format!("the server of agent {} for job {} {problem}", self.host, job.id));
    }

    fn on_message(&mut self, cx: &mut Cx, job: &mut Job, procs: &[Proc], message: ToServer) -> Vec<Served> {
        match message {
            ToServer::Open(_) | ToServer::Begin(_) | ToServer::End => {
                self.problem(cx, job, "is sent a message that is for its driver");
            }
            ToServer::Endpoints { rows } => {
                let is_new = std::mem::replace(&mut self.lacks_endpoints, false);
                if !is_new || rows.iter().all(Bytes::is_empty) {
                    self.problem(cx, job, "is told twice where ranks listen, or nothing");
                }
                self.serve_if_complete(cx);
            }
            ToServer::Answer { id, answer } => match self.asked.remove(&id) {
                Some(asked) => return self.on_answer(cx, job, procs, asked, answer),
                None => self.problem(cx, job, &format!("has no request {id}: {answer:?}")),
            },
            ToServer::ModexWanted { request, wanted: Wanted { rank, .. } } => {
                job.checks.modex.wanted += 1;
                if let Some(commit) = self.commits.local.get(&rank.0).copied() {
                    self.give_modex(cx, job, request, rank.0, Some(commit));
                } else if self.commits.left.contains(&rank.0) {
                    self.give_modex(cx, job, request, rank.0, None);
                } else {
                    self.commits.held.push((request, rank.0));
                }
            }
            ToServer::Gone { rank } => return self.commits_no_more(cx, job, rank.0),
            // The ranks here know no other job, so the agent has no reason to send this.
            ToServer::Forget { nspace } => self.problem(cx, job, &format!("is told of job {nspace}")),
            ToServer::Event { code, affected, .. } => {
                job.checks.modex.events += 1;
                let is_gone = |rank: Rank| matches!(procs[rank.0 as usize].phase, Phase::Ended(_));
                if code == PmixEvent::ProcAborted && !affected.is_some_and(is_gone) {
                    self.problem(cx, job, &format!("is told of the end of {affected:?}, which has not ended"));
                }
            }
            ToServer::AreYouAlive => self.say(cx, &FromServer::Alive),
        }
        Vec::new()
    }

    /// Answers with the data of a local rank; `None` if the rank will never commit. A deaf server does not answer in
    /// that case.
    fn give_modex(&mut self, cx: &mut Cx, job: &Job, request: u64, rank: u32, commit: Option<Commit>) {
        let message = match commit {
            Some(Commit { version, bytes }) => {
                let blob = record(job.seed, rank, version, bytes).into();
                FromServer::Modex { request, status: Status::Ok, blob }
            }
            None if cx.spec.servers.are_deaf => return,
            None => FromServer::Modex { request, status: Status::NotFound, blob: Bytes::new() },
        };
        self.say(cx, &message);
    }

    fn commits_no_more(&mut self, cx: &mut Cx, job: &Job, rank: u32) -> Vec<Served> {
        self.commits.left.insert(rank);
        self.serve_waiting(cx, job, rank, None)
    }

    /// Serves the ranks and requests that wait for a commit of this local rank.
    fn serve_waiting(&mut self, cx: &mut Cx, job: &Job, rank: u32, commit: Option<Commit>) -> Vec<Served> {
        for (request, of) in take_of(&mut self.commits.held, rank) {
            self.give_modex(cx, job, request, of, commit);
        }
        take_of(&mut self.commits.waiting, rank).into_iter().map(|(getter, _)| Served::Value(getter)).collect()
    }
}

/// Removes and returns the entries of this rank from a list.
fn take_of<T>(all: &mut Vec<(T, u32)>, rank: u32) -> Vec<(T, u32)> {
    all.extract_if(.., |(_, of)| *of == rank).collect()
}

/// Whether a get of the data of rank `of` may fail: the rank never commits, its server does not report that the rank
/// never commits, the job ends, or the server was killed.
fn may_be_gone(jobs: &Jobs, cx: &Cx, node: u32, of: u32) -> bool {
    let job = jobs.job_at(node);
    let proc = &jobs.procs[(job.first_proc + of) as usize];
    let has_fault = !job.checks.culprits.is_empty() || cx.checks.was_any_struck(&job.plan.nodes);
    let is_unserved = !jobs.nodes[proc.node as usize].has_running_server();
    let has_committed = job.checks.modex.has_committed(of);
    (is_unserved && has_fault) || proc.has_left() && (!has_committed || cx.spec.servers.are_deaf || has_fault)
}
