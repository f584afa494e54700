//! The PMIx server processes: what each agent's driver does for one, and the process itself with its ranks.
//!
//! The simulated process includes the library: it waits until all local members have entered, keeps what ranks have
//! committed, and asks its agent for the rest. Ranks talk to it without delay; messages between it and its agent take
//! time and arrive in pieces.

mod answers;
mod asks;

use crate::checkers::JobChecks;
use crate::checkers::modex::{Call, record};
use crate::clock::Event;
use crate::fifo::Fifo;
use crate::jobs::{Job, Node};
use crate::ranks::{Phase, Proc};
use crate::world::World;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wireup_proto::io::{ExitStatus, Input, JobEvent, PmixEnd, PmixPlan};
use wireup_wire::ids::Rank;
use wireup_wire::pmix::{Event as PmixEvent, FromServer, Status, ToServer, Unpacker, Wanted, pack};
use wireup_wire::signal::SIGKILL;

/// How a server process fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoServer {
    /// The process reports a failure.
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
    pub is_running: bool,
    /// Whether the process has opened its library.
    opened: bool,
    /// Whether the process waits for the addresses of all ranks.
    lacks_endpoints: bool,
    serving: bool,
    unpacker: Unpacker,
    pub to_agent: Fifo<Bytes>,
    to_server: Fifo<Bytes>,
    next_id: u64,
    asked: BTreeMap<u64, Asked>,
    /// Local ranks that have entered a call, with their timeouts in seconds.
    entered: BTreeMap<Call, Vec<(u32, Option<u32>)>>,
    /// Number of commits of each local rank.
    committed: BTreeMap<u32, u32>,
    /// Number of commits of each remote rank, as far as known.
    known: BTreeMap<u32, u32>,
    /// Tickets of requests that wait for a local rank's commit.
    held: Vec<(u64, u32)>,
    /// Local ranks that will not commit again.
    left: BTreeSet<u32>,
    /// Local ranks whose connection is lost: nothing waits for them any more.
    lost: BTreeSet<u32>,
    /// Local ranks that wait for the data of a remote rank; the agent is asked once for all of them.
    wanting: BTreeMap<u32, Vec<u32>>,
    /// Local ranks that wait for a commit of another local rank.
    waiting: Vec<(u32, u32)>,
}

/// The ranks that wait for an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Asked {
    Together { call: Call, ranks: Vec<u32>, patient: bool },
    Get { of: u32 },
    Publish { rank: u32 },
    LookUp { rank: u32, of: u32 },
    Procs { rank: u32 },
}

impl World {
    pub(crate) fn start_server(&mut self, node: u32, plan: &PmixPlan) {
        if plan.begin.cpus.len() != self.nodes[node as usize].ranks.len() {
            let count = plan.begin.cpus.len();
            return self.server_problem(node, &format!("is started for {count} ranks"));
        }
        if !self.nodes[node as usize].keeper_is_running {
            return;
        }
        let lacks_endpoints = plan.begin.has_endpoints;
        self.nodes[node as usize].server = Some(Server { is_running: true, lacks_endpoints, ..Server::default() });
        let delay_ns = self.spec.timing.spawn.draw(&mut self.rng);
        self.clock.after(delay_ns, Event::ServerBegins(node));
    }

    pub(crate) fn on_server_begins(&mut self, node: u32) {
        let host = self.nodes[node as usize].host;
        let Some(server) = self.nodes[node as usize].server.as_mut().filter(|server| server.is_running) else { return };
        match self.no_server.get(&host) {
            None => {
                server.opened = true;
                self.serve_if_complete(node);
            }
            Some(NoServer::Fails) => {
                self.server_says(node, &FromServer::Failed { problem: "no libpmix here".into() });
                self.server_ends(node, ExitStatus::Exited(0));
            }
            Some(NoServer::Dies) => {
                self.server_ends(node, ExitStatus::Signalled { signal: 11, core_dumped: false });
            }
            Some(NoServer::Garbage) => self.server_says_bytes(node, Bytes::from_static(b"\x04\0\0\0garbage")),
            Some(NoServer::Silent) => {}
        }
    }

    fn serve_if_complete(&mut self, node: u32) {
        let Node { host, ref ranks, .. } = self.nodes[node as usize];
        let ranks: Vec<u32> = ranks.iter().map(|id| self.rank_of(*id)).collect();
        let server = self.server(node);
        if server.opened && !server.lacks_endpoints {
            server.serving = true;
            let env = ranks.iter().map(|rank| vec![format!("PMIX_RANK={rank}").into_bytes()]).collect();
            let version = self.versions.get(&host).unwrap_or(&"4.2.2").to_string();
            self.server_says(node, &FromServer::Ready { version, env, defaults: Vec::new() });
        }
    }

    pub(crate) fn send_to_server(&mut self, node: u32, bytes: Bytes) {
        let delay_ns = self.spec.timing.client.draw(&mut self.rng);
        if let Some(server) = self.nodes[node as usize].server.as_mut().filter(|server| server.is_running) {
            server.to_server.push(&mut self.clock, delay_ns, bytes, Event::ServerHears(node));
        }
    }

    /// The process has ended; its keeper reports it.
    pub(crate) fn server_ends(&mut self, node: u32, status: ExitStatus) {
        let Some(server) = self.nodes[node as usize].server.as_mut() else { return };
        if std::mem::replace(&mut server.is_running, false) {
            server.serving = false;
            self.keeper_says(node, |job| Input::Job {
                job,
                event: JobEvent::PmixGone { end: Ok(PmixEnd { status, stderr: "last words".into(), no_room: None }) },
            });
        }
    }

    pub(crate) fn stop_server(&mut self, node: u32) {
        self.server_ends(node, ExitStatus::Signalled { signal: SIGKILL, core_dumped: false });
    }

    fn server_says(&mut self, node: u32, message: &FromServer) {
        self.server_says_bytes(node, pack(message));
    }

    fn server_says_bytes(&mut self, node: u32, mut bytes: Bytes) {
        let cut = bytes.len() > 1 && self.rng.chance(self.spec.timing.cut_permille);
        let piece = cut.then(|| bytes.split_to(self.rng.between(1, bytes.len() as u64 - 1) as usize));
        for piece in piece.into_iter().chain([bytes]) {
            let delay_ns = self.spec.timing.client.draw(&mut self.rng);
            if let Some(server) = self.nodes[node as usize].server.as_mut() {
                server.to_agent.push(&mut self.clock, delay_ns, piece, Event::ServerSpeaks(node));
            }
        }
    }

    pub(crate) fn on_server_speaks(&mut self, node: u32) {
        let Some(bytes) = self.nodes[node as usize].server.as_mut().and_then(|server| server.to_agent.pop()) else {
            return;
        };
        if !self.nodes[node as usize].job_is_gone {
            self.tell_node(node, |job| Input::Job { job, event: JobEvent::PmixBytes { bytes } });
        }
    }

    pub(crate) fn on_server_hears(&mut self, node: u32) {
        let Some(server) = self.nodes[node as usize].server.as_mut().filter(|server| server.is_running) else { return };
        let Some(bytes) = server.to_server.pop() else { return };
        server.unpacker.push(&bytes);
        while let Some(server) = self.nodes[node as usize].server.as_mut().filter(|server| server.is_running) {
            match server.unpacker.next::<ToServer>() {
                Ok(Some(message)) => self.on_message(node, message),
                Ok(None) => return,
                Err(error) => return self.server_problem(node, &format!("reads: {error}")),
            }
        }
    }

    fn server_problem(&mut self, node: u32, problem: &str) {
        let (host, job) = (self.nodes[node as usize].host, self.job_at(node).id);
        self.checks.problem(format!("the server of agent {host} for job {job} {problem}"));
    }

    /// The job of a node.
    fn job_at(&self, node: u32) -> &Job {
        &self.jobs[self.nodes[node as usize].job as usize]
    }

    pub(crate) fn checks_at(&mut self, node: u32) -> &mut JobChecks {
        &mut self.jobs[self.nodes[node as usize].job as usize].checks
    }

    /// The number of a rank of the job of this node.
    fn id_of(&self, node: u32, rank: u32) -> u32 {
        self.job_at(node).first_proc + rank
    }

    fn proc_of(&self, node: u32, rank: u32) -> &Proc {
        &self.procs[self.id_of(node, rank) as usize]
    }

    fn server(&mut self, node: u32) -> &mut Server {
        self.nodes[node as usize].server.get_or_insert_with(Server::default)
    }

    fn on_message(&mut self, node: u32, message: ToServer) {
        match message {
            ToServer::Open(_) | ToServer::Begin(_) => {
                self.server_problem(node, "is sent a first message, which is for its driver");
            }
            ToServer::Endpoints { rows } => {
                let is_new = std::mem::replace(&mut self.server(node).lacks_endpoints, false);
                if !is_new || rows.iter().all(Bytes::is_empty) {
                    self.server_problem(node, "is told twice where ranks listen, or nothing");
                }
                self.serve_if_complete(node);
            }
            ToServer::Answer { id, answer } => match self.server(node).asked.remove(&id) {
                Some(asked) => self.on_ask_answered(node, asked, answer),
                None => self.server_problem(node, &format!("has no request {id}: {answer:?}")),
            },
            ToServer::ModexWanted { request, wanted: Wanted { rank, .. } } => {
                self.checks_at(node).modex.wanted += 1;
                let server = self.server(node);
                if let Some(version) = server.committed.get(&rank.0).copied() {
                    self.give_modex(node, request, rank.0, Some(version));
                } else if server.left.contains(&rank.0) {
                    self.give_modex(node, request, rank.0, None);
                } else {
                    server.held.push((request, rank.0));
                }
            }
            ToServer::Gone { rank } => self.commits_no_more(node, rank.0),
            // The ranks here have nothing to do with another job.
            ToServer::Forget { nspace } => self.server_problem(node, &format!("is told of job {nspace}")),
            ToServer::Event { code, affected, .. } => {
                self.checks_at(node).modex.events += 1;
                let is_gone = |rank: Rank| matches!(self.proc_of(node, rank.0).phase, Phase::Ended(_));
                if code == PmixEvent::ProcAborted && !affected.is_some_and(is_gone) {
                    self.server_problem(node, &format!("is told of the end of {affected:?}, which has not ended"));
                }
            }
            ToServer::AreYouAlive => self.server_says(node, &FromServer::Alive),
            ToServer::End => {
                if let Some(id) = self.running_rank(node) {
                    self.server_problem(node, &format!("is ended while rank {} runs", self.rank_of(id)));
                }
                if !self.spec.stubborn_servers {
                    self.server_ends(node, ExitStatus::Exited(0));
                }
            }
        }
    }

    /// Answers with the data of a local rank; `None` if it will never commit. A server with `deaf_servers` does not
    /// answer then.
    fn give_modex(&mut self, node: u32, request: u64, rank: u32, version: Option<u32>) {
        let message = match version {
            Some(version) => {
                let blob = record(self.job_at(node).seed, rank, version).into();
                FromServer::Modex { request, status: Status::Ok, blob }
            }
            None if self.spec.deaf_servers => return,
            None => FromServer::Modex { request, status: Status::NotFound, blob: Bytes::new() },
        };
        self.server_says(node, &message);
    }

    fn commits_no_more(&mut self, node: u32, rank: u32) {
        let server = self.server(node);
        server.left.insert(rank);
        let (done, here) = (take_of(&mut server.held, rank), take_of(&mut server.waiting, rank));
        for (request, of) in done {
            self.give_modex(node, request, of, None);
        }
        here.into_iter().for_each(|(getter, _)| self.got(node, getter));
    }

    /// The servers that wait for an answer, for the report of a hang.
    pub(crate) fn servers_wait(&self) -> Vec<String> {
        let servers = self.nodes.iter().filter_map(|node| node.server.as_ref().map(|server| (node.host, server)));
        let waits = servers.filter(|(_, server)| server.is_running && !server.asked.is_empty());
        waits.map(|(agent, server)| format!("server {agent}: {:?}", server.asked)).collect()
    }
}

/// Removes and returns the entries of a rank.
fn take_of<T>(all: &mut Vec<(T, u32)>, rank: u32) -> Vec<(T, u32)> {
    all.extract_if(.., |(_, of)| *of == rank).collect()
}
