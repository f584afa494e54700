//! A session of whole agents with one job: starts the agents, carries their frames to each other, and runs the ranks.
//!
//! The test plays the launcher and the ranks' programs. Messages arrive in the order in which they were sent, or in any
//! order that links allow.

use super::agent::TestAgent;
use super::specs::{T, job_on, session};
use super::transit::{Dice, Transit};
use crate::io::{ExitStatus, Input, JobEvent, LinkId, Output, Peer, Started, Stream};
use crate::memory::{Content, ShareId};
use crate::time::Instant;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use wireup_wire::frame::{Class, Frame};
use wireup_wire::ids::{AgentId, Client, JobId, LocalRank};
use wireup_wire::job::{JobOptions, JobSpec};
use wireup_wire::peer::{self, Cause, Secret, SessionSpec, StallReport};
use wireup_wire::rank_address;
use wireup_wire::talk::{Control, JobUp};

const LAUNCHER: LinkId = LinkId(u32::MAX);

/// How long a message takes.
const DELAY_NS: u64 = 1000;

/// Numbers of requests to a driver that fail, out of a thousand.
#[derive(Clone, Copy, Default, Debug)]
pub struct Faults {
    pub dials: usize,
    pub listens: usize,
}

/// A path on which messages stay in order: to one end of a link, or a driver's answer to one request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Path {
    Link(usize, usize),
    Driver(u32),
}

pub struct Link {
    pub ends: [u32; 2],
    /// Whether the link is a direct link, not one of the tree.
    pub is_direct: bool,
    pub is_cut: bool,
}

pub struct Net {
    pub now: Instant,
    pub agents: Vec<Option<TestAgent>>,
    pub links: Vec<Link>,
    /// Inputs, with the agents that receive them.
    transit: Transit<Path, (u32, Input)>,
    requests: u32,
    pub faults: Faults,
    pub dice: Dice,
    /// Messages to the launcher.
    pub reports: Vec<Control>,
    /// Payload bytes of the exchange class on all links.
    pub exchange_bytes: usize,
    ppn: u32,
    /// PMI replies, by rank and `Client::number`.
    replies: BTreeMap<(u32, u16), String>,
    /// The PMI clients whose sockets agents have closed.
    pub sent_away: Vec<Client>,
    /// The outputs about memory that ranks read.
    pub memory: Vec<Output>,
    /// Returns whether a request for memory with this content fails.
    pub memory_fails: fn(&Content) -> bool,
    /// The memory named by each reply to an allgather or to a request for segments.
    pub named_memory: Vec<Vec<ShareId>>,
}

impl Net {
    /// Starts the root, with a job that has the same number of ranks on each agent. No message has arrived yet.
    pub fn new(session: SessionSpec, job: JobSpec, faults: Faults, seed: u64) -> Net {
        let mut net = Net {
            now: T,
            agents: session.agents.iter().map(|_| None).collect(),
            links: Vec::new(),
            transit: Transit::default(),
            requests: 0,
            faults,
            dice: Dice(seed),
            reports: Vec::new(),
            exchange_bytes: 0,
            ppn: job.blocks[0].ppn,
            replies: BTreeMap::new(),
            sent_away: Vec::new(),
            memory: Vec::new(),
            memory_fails: |_| false,
            named_memory: Vec::new(),
        };
        net.answer(0, Input::LinkUp { link: LAUNCHER, peer: Peer::Launcher, local: String::new() });
        net.start(0, session, vec![job.into()]);
        net
    }

    /// Agents in a binary tree with `ppn` ranks each, all running.
    pub fn running(agents: u32, ppn: u32, change: impl FnOnce(&mut JobOptions)) -> Net {
        let mut job = job_on(1, 0..agents, ppn);
        change(&mut job.options);
        let mut net = Net::new(session(agents), job, Faults::default(), 0);
        net.settle();
        assert!(net.agents.iter().all(Option::is_some));
        net
    }

    /// Running agents whose ranks use our own PMI client and have completed its handshake.
    pub fn own(agents: u32, ppn: u32) -> Net {
        let mut net = Net::running(agents, ppn, |_| ());
        net.greet();
        net
    }

    /// All ranks complete the handshake of our own PMI client.
    pub fn greet(&mut self) {
        self.request_all("cmd=init pmi_version=2 pmi_subversion=0");
        self.request_all("cmd=fullinit;pmijobid=job-1;pmirank=0;threaded=FALSE;");
    }

    fn start(&mut self, me: u32, session: SessionSpec, jobs: Vec<Arc<JobSpec>>) {
        let mut agent = TestAgent::start(me, session, self.now);
        for job in jobs {
            agent.launch(job);
        }
        self.agents[me as usize] = Some(agent);
        self.perform(me);
    }

    /// Lets an agent do something now, and carries out its outputs.
    pub fn act(&mut self, me: u32, act: impl FnOnce(&mut TestAgent)) {
        let agent = self.agents[me as usize].as_mut().expect("the agent was started");
        agent.now = self.now;
        act(agent);
        self.perform(me);
    }

    fn input(&mut self, me: u32, input: Input) {
        self.act(me, |agent| {
            agent.handle(input);
        });
    }

    /// Delivers one message of any path; `false`: none is in transit.
    pub fn deliver_any(&mut self) -> bool {
        let next = self.transit.any(&mut self.dice);
        self.deliver(next)
    }

    /// Delivers all messages in the order in which they were sent.
    pub fn settle(&mut self) {
        loop {
            let next = self.transit.first();
            if !self.deliver(next) {
                return;
            }
        }
    }

    fn deliver(&mut self, next: Option<(Path, (u32, Input))>) -> bool {
        let Some((_, (agent, input))) = next else { return false };
        self.now = self.now + DELAY_NS;
        self.input(agent, input);
        true
    }

    /// Lets all agents notice that time has passed.
    pub fn pass(&mut self, ns: u64) {
        self.now = self.now + ns;
        for agent in 0..self.agents.len() {
            if self.agents[agent].is_some() {
                self.input(agent as u32, Input::Tick);
            }
        }
    }

    /// Breaks a random direct link: everything in transit from some point on is lost.
    pub fn cut_any(&mut self) {
        let is_open = |at: &usize| self.links[*at].is_direct && !self.links[*at].is_cut;
        let open: Vec<usize> = (0..self.links.len()).filter(is_open).collect();
        if open.is_empty() {
            return;
        }
        let at = open[self.dice.below(open.len())];
        self.links[at].is_cut = true;
        for end in [0, 1] {
            let path = Path::Link(at, end);
            // The input `LinkUp` is not dropped.
            let keep = 1 + self.dice.below(self.transit.len(path) + 1);
            self.transit.truncate(path, keep);
            self.push_down(at, end);
        }
    }

    fn push_down(&mut self, at: usize, end: usize) {
        let down = Input::LinkDown { link: LinkId(at as u32), problem: "cut".into() };
        self.transit.push(Path::Link(at, end), (self.links[at].ends[end], down));
    }

    fn connect(&mut self, ends: [u32; 2], peers: [Peer; 2], is_direct: bool) {
        let (at, link) = (self.links.len(), LinkId(self.links.len() as u32));
        self.links.push(Link { ends, is_direct, is_cut: false });
        for (end, peer) in peers.into_iter().enumerate() {
            let up = Input::LinkUp { link, peer, local: String::new() };
            self.transit.push(Path::Link(at, end), (ends[end], up));
        }
    }

    /// The driver of an agent answers a request.
    fn answer(&mut self, me: u32, input: Input) {
        self.requests += 1;
        self.transit.push(Path::Driver(self.requests), (me, input));
    }

    /// The driver of an agent reports an event of a job.
    fn event(&mut self, me: u32, job: JobId, event: JobEvent) {
        self.answer(me, Input::Job { job, event });
    }

    /// Carries out an agent's outputs.
    fn perform(&mut self, me: u32) {
        while let Some(output) = self.agents[me as usize].as_mut().and_then(|agent| agent.poll()) {
            self.carry_out(me, output);
        }
    }

    fn carry_out(&mut self, me: u32, output: Output) {
        match output {
            Output::StartAgent { agent, bootstrap: Some(bootstrap), .. } => {
                self.start(agent.0, bootstrap.session, bootstrap.jobs);
                self.connect([me, agent.0], [Peer::Child { agent, incarnation: 0 }, Peer::Parent], false);
            }
            Output::Listen => {
                let input = match self.dice.hits(self.faults.listens) {
                    true => Input::Listening { result: Err("it cannot listen".into()) },
                    false => Input::Listening { result: Ok(vec![format!("a{me}")]) },
                };
                self.answer(me, input);
            }
            Output::Dial { agent, addresses, .. } => {
                assert_eq!(addresses, [format!("a{agent}")]);
                match self.dice.hits(self.faults.dials) {
                    true => self.answer(me, Input::DialFailed { agent: Some(agent), problem: "refused".into() }),
                    false => {
                        self.connect([agent.0, me], [Peer::Direct(AgentId(me)), Peer::Direct(agent)], true);
                    }
                }
            }
            Output::Send { link: LAUNCHER, frame } => self.reports.extend(peer::decode::<Control>(&frame.payload)),
            Output::Send { link, frame } => self.send(me, link, frame),
            Output::CloseLink { link } if link != LAUNCHER => self.close(me, link),
            Output::Spawn(plan) => {
                for rank in &plan.ranks {
                    let (local, pid) = (rank.local, 100 + rank.rank.0);
                    self.event(
                        me,
                        plan.job,
                        JobEvent::RankStarted { local, result: Ok(Started { pid, spawn_ns: 1, exec_ns: 2 }) },
                    );
                }
            }
            Output::ReserveRankPorts { range, .. } => {
                let address = rank_address::encode(me.into(), range.low, &[]).into();
                self.answer(me, Input::RankPortsReserved { result: Ok(address) });
            }
            Output::RenewRankPorts { job } => self.answer(me, Input::RankPortsRenewed { job }),
            Output::ListenForRanks { job, ports, base, .. } => {
                let address = rank_address::encode(me.into(), base.unwrap_or(ports.range.low), &[]).into();
                self.event(me, job, JobEvent::RanksListen { result: Ok(address) });
            }
            Output::ReserveRendezvous { job, range, .. } => {
                let result = Ok(SocketAddr::from(([127, 0, 0, 1], range.low)));
                self.event(me, job, JobEvent::RendezvousReserved { result });
            }
            Output::TellSecret { job } => self.event(me, job, JobEvent::SecretOfRanks { secret: Secret([7; 32]) }),
            Output::Share { job, share, ref content } => {
                let result = if (self.memory_fails)(content) { Err("there is no memory".into()) } else { Ok(()) };
                if result.is_err() || matches!(content, Content::Slots { .. }) {
                    self.event(me, job, JobEvent::Shared { share, result });
                }
                self.memory.push(output);
            }
            Output::WriteSlot { .. } | Output::Unshare { .. } => self.memory.push(output),
            Output::Reply { client, bytes, shares, .. } => {
                if bytes.windows(7).any(|name| name == b"wireup-") {
                    self.named_memory.push(shares);
                }
                let key = (me * self.ppn + u32::from(client.local.0), client.number);
                let replies = self.replies.entry(key).or_default();
                replies.push_str(std::str::from_utf8(&bytes).expect("replies in these tests are text"));
            }
            Output::CloseClient { client, .. } => self.sent_away.push(client),
            _ => {}
        }
    }

    fn send(&mut self, me: u32, link: LinkId, frame: Frame) {
        if frame.class == Class::Exchange {
            self.exchange_bytes += frame.payload.len();
        }
        let Link { ends, is_cut, .. } = self.links[link.0 as usize];
        let end = usize::from(ends[0] == me);
        if !is_cut {
            for bytes in [Bytes::copy_from_slice(&frame.header()), frame.payload] {
                let path = Path::Link(link.0 as usize, end);
                self.transit.push(path, (ends[end], Input::LinkBytes { link, bytes }));
            }
        }
    }

    fn close(&mut self, me: u32, link: LinkId) {
        let at = link.0 as usize;
        let own = usize::from(self.links[at].ends[1] == me);
        self.transit.truncate(Path::Link(at, own), 0);
        if !std::mem::replace(&mut self.links[at].is_cut, true) {
            self.push_down(at, 1 - own);
        }
    }
}

/// Methods about ranks; each delivers all messages before it returns.
impl Net {
    /// The agent of a rank, and a client in the rank.
    fn client(&self, rank: u32, number: u16) -> (u32, Client) {
        (rank / self.ppn, Client { local: LocalRank((rank % self.ppn) as u16), number })
    }

    /// A rank sends a request; one that ends with `;` is framed as PMI-2. Returns what the rank has received since the
    /// last call.
    pub fn request(&mut self, rank: u32, request: &str) -> String {
        self.further(rank, 0, request)
    }

    /// A request of a secondary client, with this number, in a rank; as in [`Net::request`].
    pub fn further(&mut self, rank: u32, number: u16, request: &str) -> String {
        let text = match request.starts_with("cmd=") && request.ends_with(';') {
            true => format!("{:>6}{request}", request.len()),
            false => format!("{request}\n"),
        };
        let (agent, client) = self.client(rank, number);
        self.event(agent, JobId(1), JobEvent::ClientBytes { client, bytes: text.into() });
        self.settle();
        self.further_replies(rank, number)
    }

    /// What a rank has received since the last call.
    pub fn replies(&mut self, rank: u32) -> String {
        self.further_replies(rank, 0)
    }

    /// Replies to a secondary client, with this number, in a rank since the last call.
    pub fn further_replies(&mut self, rank: u32, number: u16) -> String {
        self.replies.remove(&(rank, number)).unwrap_or_default()
    }

    /// A secondary client of a rank connects.
    pub fn join(&mut self, rank: u32, number: u16) {
        let (agent, client) = self.client(rank, number);
        self.event(agent, JobId(1), JobEvent::ClientJoined { client });
        self.settle();
    }

    /// A secondary client of a rank closes its socket.
    pub fn part(&mut self, rank: u32, number: u16) {
        let (agent, client) = self.client(rank, number);
        self.event(agent, JobId(1), JobEvent::ClientGone { client });
        self.settle();
    }

    /// All ranks send the request; returns all replies.
    pub fn request_all(&mut self, request: &str) -> Vec<String> {
        let count = self.agents.len() as u32 * self.ppn;
        for rank in 0..count {
            let replies = self.request(rank, request);
            self.replies.insert((rank, 0), replies);
        }
        (0..count).map(|rank| self.replies(rank)).collect()
    }

    pub fn exit(&mut self, rank: u32, code: u8) {
        let ((agent, client), job) = (self.client(rank, 0), JobId(1));
        let local = client.local;
        self.event(agent, job, JobEvent::ClientGone { client });
        for stream in [Stream::Out, Stream::Err] {
            self.event(agent, job, JobEvent::StdioClosed { local, stream });
        }
        self.event(agent, job, JobEvent::RankExited { local, status: ExitStatus::Exited(code), out_of_memory: false });
        self.settle();
    }

    pub fn pass_and_settle(&mut self, ns: u64) {
        self.pass(ns);
        self.settle();
    }

    /// The causes of the failures that were reported to the launcher.
    pub fn failures(&self) -> Vec<Cause> {
        let failure = |report: &Control| match report {
            Control::JobUp(JobUp::Failed(failure)) => Some(failure.cause.clone()),
            _ => None,
        };
        self.reports.iter().filter_map(failure).collect()
    }

    pub fn stalls(&self) -> Vec<&StallReport> {
        let stall = |report| if let &Control::JobUp(JobUp::Stall(ref stall)) = report { Some(stall) } else { None };
        self.reports.iter().filter_map(stall).collect()
    }
}
