//! The PMIx server processes: what each agent's driver does for one, and the process itself with its ranks.
//!
//! A process stands for the library too: it waits until all members here are in, keeps what ranks have committed, and asks its
//! agent for the rest. Ranks speak to it at once; what it and its agent say to each other takes time, and comes in pieces.

use crate::birth::JOB;
use crate::checkers::modex::{Call, record, records};
use crate::clock::Event;
use crate::fifo::Fifo;
use crate::ranks::{Doing, Phase};
use crate::world::World;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wireup_proto::io::{ExitStatus, Input, PmixPlan};
use wireup_wire::ids::Rank;
use wireup_wire::pmix::{Answer, Ask, Event as Told, FromServer, Set, Status, ToServer, Unpacker, pack};

const SIGKILL: i32 = 9;

/// How a server process fails its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoServer {
    /// It says so.
    Fails,
    Dies,
    /// Says what is no message.
    Garbage,
    /// Says nothing at all.
    Silent,
}

/// One server process.
#[derive(Default)]
pub struct Server {
    pub lives: bool,
    serving: bool,
    unpacker: Unpacker,
    pub to_agent: Fifo<Bytes>,
    to_server: Fifo<Bytes>,
    next_id: u64,
    asked: BTreeMap<u64, Asked>,
    /// Ranks here that are in, with what each brings.
    entered: BTreeMap<Call, Vec<(u32, Option<u32>)>>,
    /// How often each rank here has committed.
    committed: BTreeMap<u32, u32>,
    /// The same of ranks elsewhere, as far as it was told.
    known: BTreeMap<u32, u32>,
    /// Numbers that wait for a commit.
    held: Vec<(u64, u32)>,
    /// Ranks here that commit no more.
    left: BTreeSet<u32>,
    /// Ranks here whose connection is lost: nobody waits for them any more.
    lost: BTreeSet<u32>,
    /// Ranks here that wait for what a rank elsewhere has committed: its agent is asked once for all of them.
    wanting: BTreeMap<u32, Vec<u32>>,
    /// Ranks here that wait for a commit of another one here.
    waiting: Vec<(u32, u32)>,
}

/// Who waits for an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Asked {
    Together { call: Call, ranks: Vec<u32>, patient: bool },
    Get { of: u32 },
    Publish { rank: u32 },
    LookUp { rank: u32, of: u32 },
    Procs { rank: u32 },
}

impl World {
    pub(crate) fn start_server(&mut self, host: u32, plan: &PmixPlan) {
        if plan.begin.cpus.len() != self.hosts[host as usize].ranks.len() {
            return self.checks.problem(format!("agent {host} starts a server for {} ranks", plan.begin.cpus.len()));
        }
        if !self.hosts[host as usize].keeper_lives {
            return;
        }
        self.hosts[host as usize].server = Some(Server { lives: true, ..Server::default() });
        let delay_ns = self.spec.timing.spawn.draw(&mut self.rng);
        self.clock.after(delay_ns, Event::ServerBegins(host));
    }

    pub(crate) fn on_server_begins(&mut self, host: u32) {
        let ranks = self.hosts[host as usize].ranks.clone();
        let Some(server) = self.hosts[host as usize].server.as_mut().filter(|server| server.lives) else { return };
        match self.no_server.get(&host) {
            None => {
                server.serving = true;
                let env = ranks.iter().map(|rank| vec![format!("PMIX_RANK={rank}").into_bytes()]).collect();
                let version = self.versions.get(&host).unwrap_or(&"4.2.2").to_string();
                self.server_says(host, &FromServer::Ready { version, env });
            }
            Some(NoServer::Fails) => {
                self.server_says(host, &FromServer::Failed { problem: "no libpmix here".into() });
                self.server_ends(host, ExitStatus::Exited(0));
            }
            Some(NoServer::Dies) => {
                self.server_ends(host, ExitStatus::Signalled { signal: 11, core_dumped: false });
            }
            Some(NoServer::Garbage) => self.server_says_bytes(host, Bytes::from_static(b"\x04\0\0\0garbage")),
            Some(NoServer::Silent) => {}
        }
    }

    pub(crate) fn send_to_server(&mut self, host: u32, bytes: Bytes) {
        let delay_ns = self.spec.timing.client.draw(&mut self.rng);
        if let Some(server) = self.hosts[host as usize].server.as_mut().filter(|server| server.lives) {
            server.to_server.push(&mut self.clock, delay_ns, bytes, Event::ServerHears(host));
        }
    }

    /// The process is gone; its keeper tells.
    pub(crate) fn server_ends(&mut self, host: u32, status: ExitStatus) {
        let Some(server) = self.hosts[host as usize].server.as_mut() else { return };
        if std::mem::replace(&mut server.lives, false) {
            server.serving = false;
            self.keeper_says(host, |job| Input::PmixGone { job, status, stderr: "last words".into() });
        }
    }

    pub(crate) fn stop_server(&mut self, host: u32) {
        self.server_ends(host, ExitStatus::Signalled { signal: SIGKILL, core_dumped: false });
    }

    fn server_says(&mut self, host: u32, message: &FromServer) {
        self.server_says_bytes(host, pack(message));
    }

    fn server_says_bytes(&mut self, host: u32, mut bytes: Bytes) {
        let cut = bytes.len() > 1 && self.rng.chance(self.spec.timing.cut_permille);
        let piece = cut.then(|| bytes.split_to(self.rng.between(1, bytes.len() as u64 - 1) as usize));
        for piece in piece.into_iter().chain([bytes]) {
            let delay_ns = self.spec.timing.client.draw(&mut self.rng);
            if let Some(server) = self.hosts[host as usize].server.as_mut() {
                server.to_agent.push(&mut self.clock, delay_ns, piece, Event::ServerSpeaks(host));
            }
        }
    }

    pub(crate) fn on_server_speaks(&mut self, host: u32) {
        let Some(bytes) = self.hosts[host as usize].server.as_mut().and_then(|server| server.to_agent.pop()) else {
            return;
        };
        if !self.hosts[host as usize].job_is_gone {
            self.tell_agent(host, Input::PmixBytes { job: JOB, bytes });
        }
    }

    pub(crate) fn on_server_hears(&mut self, host: u32) {
        let Some(server) = self.hosts[host as usize].server.as_mut().filter(|server| server.lives) else { return };
        let Some(bytes) = server.to_server.pop() else { return };
        server.unpacker.push(&bytes);
        while let Some(server) = self.hosts[host as usize].server.as_mut().filter(|server| server.lives) {
            match server.unpacker.next::<ToServer>() {
                Ok(Some(message)) => self.on_told(host, message),
                Ok(None) => return,
                Err(error) => return self.checks.problem(format!("agent {host} tells its server {error}")),
            }
        }
    }

    fn server(&mut self, host: u32) -> &mut Server {
        self.hosts[host as usize].server.get_or_insert_with(Server::default)
    }

    fn on_told(&mut self, host: u32, message: ToServer) {
        match message {
            ToServer::Begin(_) => self.checks.problem(format!("agent {host} begins what its driver has begun")),
            ToServer::Answer { id, answer } => match self.server(host).asked.remove(&id) {
                Some(asked) => self.on_ask_answered(host, asked, answer),
                None => self.checks.problem(format!("agent {host} answers {id}, which is not outstanding: {answer:?}")),
            },
            ToServer::ModexWanted { ticket, rank } => {
                self.checks.modex.wanted += 1;
                let server = self.server(host);
                if let Some(version) = server.committed.get(&rank.0).copied() {
                    self.give_modex(host, ticket, rank.0, Some(version));
                } else if server.left.contains(&rank.0) {
                    self.give_modex(host, ticket, rank.0, None);
                } else {
                    server.held.push((ticket, rank.0));
                }
            }
            ToServer::Gone { rank } => self.commits_no_more(host, rank.0),
            ToServer::Event { code, affected, .. } => {
                self.checks.modex.events += 1;
                let is_gone = |rank: Rank| matches!(self.procs[rank.index()].phase, Phase::Ended(_));
                if code == Told::ProcAborted && !affected.is_some_and(is_gone) {
                    self.checks.problem(format!("agent {host} tells that {affected:?} is gone, which it is not"));
                }
            }
            ToServer::End => {
                if let Some(rank) = self.running_rank(host) {
                    self.checks.problem(format!("agent {host} ends its server while rank {rank} runs"));
                }
                if !self.spec.stubborn_servers {
                    self.server_ends(host, ExitStatus::Exited(0));
                }
            }
        }
    }

    /// What a rank here has committed; `None`: nothing, ever. A server that is deaf says nothing then.
    fn give_modex(&mut self, host: u32, ticket: u64, rank: u32, version: Option<u32>) {
        let message = match version {
            Some(version) => {
                let blob = record(self.spec.seed, rank, version).into();
                FromServer::Modex { ticket, status: Status::Ok, blob }
            }
            None if self.spec.deaf_servers => return,
            None => FromServer::Modex { ticket, status: Status::NotFound, blob: Bytes::new() },
        };
        self.server_says(host, &message);
    }

    fn commits_no_more(&mut self, host: u32, rank: u32) {
        let server = self.server(host);
        server.left.insert(rank);
        let (done, here) = (take_of(&mut server.held, rank), take_of(&mut server.waiting, rank));
        for (ticket, of) in done {
            self.give_modex(host, ticket, of, None);
        }
        here.into_iter().for_each(|(getter, _)| self.got(getter));
    }

    /// What a rank asks of its server; `false`: there is none, and it waits for ever.
    fn asks(&mut self, rank: u32) -> Option<u32> {
        let host = self.procs[rank as usize].host;
        self.procs[rank as usize].doing = Doing::Reply;
        self.hosts[host as usize].server.as_ref().filter(|server| server.serving).map(|_| host)
    }

    fn ask_agent(&mut self, host: u32, asked: Asked, ask: Ask) {
        let server = self.server(host);
        let id = server.next_id;
        server.next_id += 1;
        server.asked.insert(id, asked);
        self.server_says(host, &FromServer::Ask { id, ask });
    }

    pub(crate) fn pmix_init(&mut self, rank: u32) {
        if let Some(host) = self.asks(rank) {
            self.server_says(host, &FromServer::Connected { rank: Rank(rank) });
            self.step_done(rank);
        }
    }

    pub(crate) fn pmix_finalize(&mut self, rank: u32) {
        if let Some(host) = self.asks(rank) {
            self.server_says(host, &FromServer::Finalized { rank: Rank(rank) });
            self.commits_no_more(host, rank);
            self.procs[rank as usize].finalized = true;
            self.step_done(rank);
        }
    }

    pub(crate) fn pmix_abort(&mut self, rank: u32, code: u8) {
        if let Some(host) = self.asks(rank) {
            self.procs[rank as usize].doing = Doing::Nothing;
            let message = "the script says so".into();
            self.server_says(host, &FromServer::Abort { rank: Rank(rank), code: i32::from(code), message });
        }
    }

    pub(crate) fn pmix_watch(&mut self, rank: u32) {
        if let Some(host) = self.asks(rank) {
            self.server_says(host, &FromServer::Watch);
            self.step_done(rank);
        }
    }

    pub(crate) fn pmix_commit(&mut self, rank: u32) {
        let Some(host) = self.asks(rank) else { return };
        let server = self.server(host);
        *server.committed.entry(rank).or_default() += 1;
        let version = server.committed[&rank];
        let here = take_of(&mut server.waiting, rank);
        let held = take_of(&mut server.held, rank);
        for (ticket, of) in held {
            self.give_modex(host, ticket, of, Some(version));
        }
        for (getter, _) in here {
            self.got(getter);
        }
        self.checks.modex.on_commit(rank);
        self.step_done(rank);
    }

    /// A rank comes to a fence or a group; the agent is asked when all members here are in.
    pub(crate) fn pmix_enter(&mut self, rank: u32, call: Call, timeout_s: Option<u32>) {
        let Some(host) = self.asks(rank) else { return };
        self.checks.teams.on_enter(rank, &call.name, &call.members);
        self.checks.modex.on_enter(rank, &call, timeout_s.is_some());
        self.server(host).entered.entry(call.clone()).or_default().push((rank, timeout_s));
        self.go_on_together(host, call);
    }

    /// A rank here is gone, and the library goes on without it.
    pub(crate) fn server_loses(&mut self, rank: u32) {
        let host = self.procs[rank as usize].host;
        let Some(server) = self.hosts[host as usize].server.as_mut().filter(|server| server.serving) else { return };
        server.lost.insert(rank);
        self.checks.teams.on_lost(rank);
        let Some(server) = self.hosts[host as usize].server.as_mut() else { return };
        server.entered.values_mut().for_each(|ranks| ranks.retain(|(other, _)| *other != rank));
        let calls: Vec<Call> = server.entered.keys().cloned().collect();
        for call in calls {
            self.go_on_together(host, call);
        }
    }

    /// Asks the agent if all members here are in.
    fn go_on_together(&mut self, host: u32, call: Call) {
        let Some(server) = self.hosts[host as usize].server.as_mut() else { return };
        let is_here = |member: &&u32| self.procs[**member as usize].host == host && !server.lost.contains(*member);
        let members_here = call.members.iter().filter(is_here).count();
        if server.entered.get(&call).is_none_or(|ranks| ranks.len() < members_here) {
            return;
        }
        let ranks = server.entered.remove(&call).unwrap_or_default();
        let Some(timeout_s) = ranks.first().map(|(_, timeout_s)| *timeout_s) else { return };
        let ranks: Vec<u32> = ranks.into_iter().map(|(rank, _)| rank).collect();
        let committed: Vec<(u32, u32)> =
            ranks.iter().filter_map(|rank| server.committed.get(rank).map(|version| (*rank, *version))).collect();
        let seed = self.spec.seed;
        let bytes: Vec<u8> = committed.iter().flat_map(|(rank, version)| record(seed, *rank, *version)).collect();
        let size = self.spec.job_size() as usize;
        let set = match call.members.len() == size && (call.group.is_none() || host.is_multiple_of(2)) {
            true => Set::All,
            false => Set::Ranks(call.members.iter().copied().map(Rank).collect()),
        };
        let ask = match &call.group {
            None => {
                let data = if call.collect { bytes.into() } else { Bytes::new() };
                Ask::Fence { set, collect: call.collect, data, timeout_s }
            }
            Some(name) => {
                let name = name.clone();
                Ask::Group { name, set, wants_context: true, data: bytes.into(), timeout_s }
            }
        };
        self.ask_agent(host, Asked::Together { call, ranks, patient: timeout_s.is_none() }, ask);
    }

    pub(crate) fn pmix_get(&mut self, rank: u32, of: u32) {
        let Some(host) = self.asks(rank) else { return };
        let is_here = self.procs[of as usize].host == host;
        let server = self.server(host);
        if is_here {
            if server.committed.contains_key(&of) || server.left.contains(&of) {
                self.got(rank);
            } else {
                server.waiting.push((rank, of));
            }
        } else if server.known.contains_key(&of) {
            self.got(rank);
        } else {
            let waiting = server.wanting.entry(of).or_default();
            waiting.push(rank);
            if waiting.len() == 1 {
                self.ask_agent(host, Asked::Get { of }, Ask::Modex { rank: Rank(of), timeout_s: None });
            }
        }
    }

    /// A value has come: on to the next one.
    fn got(&mut self, rank: u32) {
        if self.procs[rank as usize].is_running() {
            self.checks.gets += 1;
            self.procs[rank as usize].nth += 1;
            self.next_step(rank);
        }
    }

    pub(crate) fn pmix_publish(&mut self, rank: u32) {
        use wireup_wire::pmix::{Item, Keep, Range};
        let Some(host) = self.asks(rank) else { return };
        let items = vec![Item { key: format!("port-{rank}"), value: record(self.spec.seed, rank, 1).into() }];
        let ask = Ask::Publish { from: Rank(rank), items, range: Range::Session, keep: Keep::Job };
        self.ask_agent(host, Asked::Publish { rank }, ask);
    }

    pub(crate) fn pmix_look_up(&mut self, rank: u32, of: u32) {
        use wireup_wire::pmix::Range;
        let Some(host) = self.asks(rank) else { return };
        let (from, keys) = (Rank(rank), vec![format!("port-{of}")]);
        let ask = Ask::Lookup { from, keys, range: Range::Session, wait: 1, timeout_s: Some(1) };
        self.ask_agent(host, Asked::LookUp { rank, of }, ask);
    }

    pub(crate) fn pmix_procs(&mut self, rank: u32) {
        if let Some(host) = self.asks(rank) {
            self.ask_agent(host, Asked::Procs { rank }, Ask::ProcTable { here: false });
        }
    }

    fn on_ask_answered(&mut self, host: u32, asked: Asked, answer: Answer) {
        let goes_on = |world: &mut World, rank: u32| {
            if world.procs[rank as usize].is_running() && !world.procs[rank as usize].is_leaving() {
                world.step_done(rank);
            }
        };
        match asked {
            Asked::Together { call, ranks, patient } => {
                if let Err(problem) = self.check_together(host, &call, &ranks, patient, &answer) {
                    return self.checks.problem(format!("agent {host}, {}: {problem}", call.name));
                }
                ranks.into_iter().for_each(|rank| goes_on(self, rank));
            }
            Asked::Get { of } => {
                let waiting = self.server(host).wanting.remove(&of).unwrap_or_default();
                match answer {
                    Answer::Modex { blob }
                        if records(self.spec.seed, &blob).is_some_and(|known| known.contains_key(&of)) =>
                    {
                        self.server(host).known.insert(of, 1);
                    }
                    Answer::Status(Status::RankGone | Status::NotFound) if self.may_be_gone(of) => {}
                    other => {
                        return self.checks.problem(format!("ranks {waiting:?} get {other:?} of rank {of}"));
                    }
                }
                waiting.into_iter().for_each(|rank| self.got(rank));
            }
            Asked::Publish { rank } => match answer {
                Answer::Status(Status::Ok) => {
                    self.checks.modex.published.insert(rank);
                    goes_on(self, rank);
                }
                other => self.checks.problem(format!("rank {rank} publishes and hears {other:?}")),
            },
            Asked::LookUp { rank, of } => {
                let value: Bytes = record(self.spec.seed, of, 1).into();
                let is_found = |items: &Vec<(Rank, wireup_wire::pmix::Item)>| matches!(&items[..], [(from, item)] if from.0 == of && item.value == value);
                match answer {
                    Answer::Found { items } if is_found(&items) => goes_on(self, rank),
                    Answer::Status(Status::Timeout) if !self.checks.modex.published.contains(&of) => {
                        goes_on(self, rank)
                    }
                    other => self.checks.problem(format!("rank {rank} looks up what {of} has published: {other:?}")),
                }
            }
            Asked::Procs { rank } => match answer {
                Answer::ProcTable { procs } if self.are_all(&procs) => goes_on(self, rank),
                other => self.checks.problem(format!("rank {rank} asks for processes and hears {other:?}")),
            },
        }
    }

    fn are_all(&self, procs: &[wireup_wire::pmix::Proc]) -> bool {
        use wireup_wire::pmix::ProcState;
        let is_right = |(rank, proc): (usize, &wireup_wire::pmix::Proc)| {
            let runs = matches!(proc.state, ProcState::Running | ProcState::Connected);
            let is_there = self.spec.agent_of(proc.node.0) == self.procs[rank].host;
            proc.rank.index() == rank && is_there && (!runs || proc.pid == 1000 + rank as u32)
        };
        procs.len() == self.procs.len() && procs.iter().enumerate().all(is_right)
    }

    /// Whether a get of this rank may come to nothing: it never commits, its server does not say so, or the job ends.
    fn may_be_gone(&self, of: u32) -> bool {
        let proc = &self.procs[of as usize];
        let has_left = proc.finalized || !matches!(proc.phase, Phase::Starting | Phase::Running);
        let has_committed = self.checks.modex.has_committed(of);
        has_left && (!has_committed || self.spec.deaf_servers || !self.checks.culprits.is_empty())
    }

    fn check_together(
        &mut self,
        host: u32,
        call: &Call,
        ranks: &[u32],
        patient: bool,
        answer: &Answer,
    ) -> Result<(), String> {
        let has_left = |rank: &u32| {
            let proc = &self.procs[*rank as usize];
            proc.finalized || !matches!(proc.phase, Phase::Starting | Phase::Running)
        };
        let seed = self.spec.seed;
        let known = match (answer, &call.group) {
            (Answer::Fenced { data }, None) => records(seed, data).ok_or("its data is not what was given")?,
            (Answer::Grouped { context, data }, Some(_)) => {
                self.checks.modex.on_context(call, ranks, *context)?;
                let all: Vec<u8> = data.concat();
                records(seed, &all).ok_or("its data is not what was given")?
            }
            (Answer::Status(Status::RankGone), _) if call.members.iter().any(has_left) => {
                ranks.iter().for_each(|rank| self.checks.teams.on_excused(*rank, &call.name));
                self.checks.modex.excused += 1;
                return Ok(());
            }
            (Answer::Status(Status::Timeout), _) if !patient || self.checks.modex.has_patience_ended(call) => {
                ranks.iter().for_each(|rank| self.checks.teams.on_excused(*rank, &call.name));
                self.checks.modex.timeouts += 1;
                return Ok(());
            }
            (other, _) => return Err(format!("is answered {other:?}")),
        };
        for rank in ranks {
            self.checks.teams.on_release(*rank, &call.name)?;
        }
        let brings = call.group.is_some()
            || (call.collect && self.spec.modex == wireup_wire::job::Modex::Full)
            || (call.collect && call.members.len() < self.procs.len());
        if brings {
            let lost = |rank: &u32| has_left(rank);
            self.checks.modex.check_data(call, &known, lost)?;
        }
        if call.collect {
            let server = self.server(host);
            server.known.extend(known);
        }
        Ok(())
    }

    /// Whether some process of a server waits for an answer, for a report of a hang.
    pub(crate) fn servers_wait(&self) -> Vec<String> {
        let servers = self.hosts.iter().filter_map(|host| host.server.as_ref().map(|server| (host.agent, server)));
        let waits = servers.filter(|(_, server)| server.lives && !server.asked.is_empty());
        waits.map(|(agent, server)| format!("server {agent}: {:?}", server.asked)).collect()
    }
}

/// Takes out those that are about a rank.
fn take_of<T>(all: &mut Vec<(T, u32)>, rank: u32) -> Vec<(T, u32)> {
    all.extract_if(.., |(_, of)| *of == rank).collect()
}
