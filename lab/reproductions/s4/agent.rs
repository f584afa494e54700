//! A standing agent on its host: starts processes of jobs, and forwards their puts and gets through a ring (S4 4.2) or
//! a hypercube of agents.
//!
//! ```text
//!   ring                                                        hypercube
//!   Launch    from agent 0 around, back to agent 0              along the binomial tree of the hypercube
//!   Fence     around, each agent keeps it until its processes   Values: log2 A rounds, each with all values of
//!             are in the fence; Released: around                half of the agents that are still unknown
//!   Get       around, until the owner's agent makes it Value,   answered by the asker's agent
//!             which goes on around to the asker's agent
//!   Report    around, back to agent 0                           back along the tree
//! ```
//!
//! An agent does one step after the other and blocks in each, since it knows which message must come next; only gets
//! come in any order. It receives the addresses of the other agents on its standard input, and lives until that input
//! ends or a job fails.
use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use serde::{Deserialize, Serialize};
use wireup_bench::command::await_any;

use super::process::{self, JSON_LEN_MAX, Place, Report};
use super::scheme::{HOPS, JOB_LEN, LOCAL, SCHEMES, Scheme, decode_pair, ranks_of};
use super::wire::{Channel, Kind, Message, Secret, WAIT_MAX, await_caller, call, sum, wrong};

/// The first argument of a process that is an agent.
pub const WORD: &str = "s4-agent";
/// An agent prints this once it has all of its links.
pub const READY: &str = "ready";
/// Time limit of waits of an agent without a job, which waits until its standard input ends; longer than any benchmark.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// Indexes into `Agent::links` in a ring: the link from the previous agent, and the link to the next one.
const BEFORE: usize = 0;
const NEXT: usize = 1;

/// The settings that an agent receives on its standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seat {
    pub index: u16,
    pub is_ring: bool,
    pub secret: Secret,
    pub all: Vec<SocketAddrV4>,
}

struct Agent {
    index: u16,
    agents: u16,
    own: Ipv4Addr,
    is_ring: bool,
    /// Links to other agents: in a ring `BEFORE` and `NEXT`; in a hypercube one for each bit of the agent's number.
    links: Vec<Channel>,
}

/// The part of a job that one agent runs.
struct Job {
    scheme: Scheme,
    size: u16,
    ranks: Range<u16>,
    children: Vec<Child>,
    /// Connections to this agent's processes, in the order of ranks.
    processes: Vec<Channel>,
    /// The values that all ranks have put, by rank; only those of the ranks in `known` have arrived at this agent.
    values: Vec<u8>,
    known: Range<u16>,
}

pub fn run() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    println!("{}", listener.local_addr()?.port());
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let seat: Seat = serde_json::from_str(&line)?;
    thread::spawn(|| {
        let _ = io::stdin().lock().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let mut agent = Agent::link(&listener, &seat)?;
    println!("{READY}");
    loop {
        if agent.index > 0 {
            agent.serve(None)?;
        } else {
            let (mut launcher, _) = await_caller(&listener, &seat.secret, Instant::now() + FOREVER)?;
            agent.serve(Some(&mut launcher))?;
        }
    }
}

impl Agent {
    /// Connects to the other agents. Connections complete before they are accepted, so agents do not wait for each
    /// other in a circle.
    fn link(listener: &TcpListener, seat: &Seat) -> io::Result<Agent> {
        let &Seat { index, is_ring, secret, ref all } = seat;
        let (agents, until) = (all.len() as u16, Instant::now() + WAIT_MAX);
        let to = |agent: u16| call(all[usize::from(agent)], &secret, index);
        let mut links = Vec::new();
        if is_ring {
            let next = to((index + 1) % agents)?;
            links.extend([await_caller(listener, &secret, until)?.0, next]);
        } else {
            let across: Vec<u16> = (0..agents.ilog2()).map(|bit| index ^ 1 << bit).collect();
            let called = across.iter().filter(|agent| **agent > index).map(|agent| Ok((*agent, to(*agent)?)));
            let mut linked: BTreeMap<u16, Channel> = called.collect::<io::Result<_>>()?;
            while linked.len() < across.len() {
                let (channel, caller) = await_caller(listener, &secret, until)?;
                linked.insert(caller, channel);
            }
            let all = across.iter().map(|agent| linked.remove(agent));
            links = all.collect::<Option<_>>().ok_or_else(|| wrong("an agent has called that is no neighbour"))?;
        }
        for link in &mut links {
            // The secret that opens a link is not counted as traffic of a job.
            link.sent = [0, 0];
            link.wait_at_most(FOREVER);
        }
        Ok(Agent { index, agents, own: *all[usize::from(index)].ip(), is_ring, links })
    }

    /// The link from which a request comes (in a ring agent 0 gets only its own request back), and the links to which
    /// it goes.
    fn up_and_down(&mut self) -> (Option<&mut Channel>, &mut [Channel]) {
        // In the binomial tree the parent is across the highest bit of an agent's own number.
        let own_bits = (u16::BITS - self.index.leading_zeros()) as usize;
        let (up, down) = self.links.split_at_mut(if self.is_ring { NEXT } else { own_bits });
        (up.last_mut(), down)
    }

    /// Serves one job. Agent 0 has a connection to the launcher.
    fn serve(&mut self, mut launcher: Option<&mut Channel>) -> io::Result<()> {
        let (up, down) = self.up_and_down();
        let source = launcher.as_deref_mut().or(up).ok_or_else(|| wrong("no parent"))?;
        let request = source.receive(Kind::Launch, JOB_LEN)?;
        down.iter_mut().rev().try_for_each(|link| link.send(Kind::Launch, 0, &request.body))?;
        let mut job = self.start(decode_pair(&request.body)?)?;
        let is_first_of_ring = self.is_ring && self.index == 0;
        if is_first_of_ring {
            self.links[BEFORE].receive(Kind::Launch, JOB_LEN)?;
        }
        job.gather()?;
        self.fence(&mut job)?;
        if let Some(launcher) = &mut launcher {
            launcher.send(Kind::Started, 0, &[])?;
        }
        if self.is_ring {
            self.pass_around(Kind::Released)?;
        }
        for (rank, process) in job.ranks.clone().zip(&mut job.processes) {
            process.send(Kind::Released, rank, &[])?;
        }
        if is_first_of_ring {
            self.links[BEFORE].receive(Kind::Released, 0)?;
        }
        let mut report = self.answer_gets(&mut job)?;
        self.gather_reports(&mut report)?;

        // At the end the launcher has closed its connection, and the other agents are told.
        match launcher {
            Some(launcher) => {
                report.send(launcher)?;
                launcher.await_end();
            }
            None => drop(self.up_and_down().0.map(|up| up.receive(Kind::Leave, 0)).transpose()?),
        }
        if !self.is_ring || self.index + 1 < self.agents {
            self.up_and_down().1.iter_mut().try_for_each(|link| link.send(Kind::Leave, 0, &[]))?;
        }
        drop(job.processes);
        job.children.iter_mut().try_for_each(|child| child.wait().map(drop))
    }

    /// Starts the job's processes that belong to this agent.
    fn start(&self, (scheme, size): (u16, u16)) -> io::Result<Job> {
        let scheme = *SCHEMES.get(usize::from(scheme)).ok_or_else(|| wrong("no such scheme"))?;
        let ranks = ranks_of(self.index..self.index + 1, self.agents, size);
        let (program, mut children, mut processes) = (std::env::current_exe()?, Vec::new(), Vec::new());
        for rank in ranks.clone() {
            let (near, far) = UnixStream::pair()?;
            let place = Place { scheme: scheme.name.to_owned(), rank, size, own: self.own, launcher: None };
            let mut command = Command::new(&program);
            command.arg(process::WORD).arg(serde_json::to_string(&place)?);
            children.push(command.stdin(Stdio::from(OwnedFd::from(far))).stdout(Stdio::null()).spawn()?);
            processes.push(Channel::new(near));
        }
        let values = vec![0; scheme.put_len(size) * usize::from(size)];
        Ok(Job { scheme, size, known: ranks.clone(), ranks, children, processes, values })
    }

    /// Sends a message without a body once around the ring, as far as to the agent before this one.
    fn pass_around(&mut self, kind: Kind) -> io::Result<()> {
        if self.index > 0 {
            self.links[BEFORE].receive(kind, 0)?;
        }
        self.links[NEXT].send(kind, 0, &[])
    }

    /// Returns when all processes are in the fence; then a hypercube's agent knows all values.
    fn fence(&mut self, job: &mut Job) -> io::Result<()> {
        if self.is_ring {
            self.pass_around(Kind::Fence)?;
            return if self.index == 0 { self.links[BEFORE].receive(Kind::Fence, 0).map(drop) } else { Ok(()) };
        }
        for (round, link) in (0..).zip(&mut self.links) {
            // In round d an agent knows the values of all agents whose numbers agree with its own from bit d on.
            let known = |agent: u16| {
                let first = agent >> round << round;
                job.scheme.puts_of(ranks_of(first..first + (1 << round), self.agents, job.size), job.size)
            };
            let (mine, theirs) = (known(self.index), known(self.index ^ 1 << round));
            link.send(Kind::Values, round, &job.values[mine])?;
            job.values[theirs.clone()].copy_from_slice(&link.receive(Kind::Values, theirs.len())?.body);
        }
        job.known = 0..job.size;
        Ok(())
    }

    /// Answers gets, and forwards those of other agents, until all processes of this agent have reported. In a ring one
    /// request and its answer make one round: each agent receives one message of each round. A process has at most one
    /// get under way, so the links' buffers hold all messages, and agents do not wait for each other in a circle.
    fn answer_gets(&mut self, job: &mut Job) -> io::Result<Report> {
        let mut left = job.scheme.remote_gets(job.size, self.agents);
        let (mut open, mut all): (Vec<u16>, _) = (job.ranks.clone().collect(), Report::default());
        while left > 0 || !open.is_empty() {
            for from in self.await_messages(job, left > 0, &open)? {
                let channel = match from {
                    Some(rank) => job.process(rank),
                    None => &mut self.links[BEFORE],
                };
                let mut message = channel.receive_any(&[Kind::Get, Kind::Value, Kind::Report], JSON_LEN_MAX)?;
                match (message.kind, from) {
                    (Kind::Report, Some(rank)) => {
                        open.retain(|one| *one != rank);
                        all.add(&serde_json::from_slice(&message.body)?);
                        continue;
                    }
                    (Kind::Get, Some(rank)) => message.who = rank,
                    (_, Some(_)) => return Err(wrong(format!("{:?} of a process", message.kind))),
                    (_, None) => left -= 1,
                }
                self.on_get(job, message)?;
            }
        }
        all.traffic[LOCAL] = sum(job.processes.iter().map(|one| one.sent).chain([all.traffic[LOCAL]]));
        Ok(all)
    }

    /// Answers a get if the value is known here; otherwise forwards the request.
    fn on_get(&mut self, job: &mut Job, mut message: Message) -> io::Result<()> {
        let (owner, slot) = decode_pair(&message.body)?;
        if message.kind == Kind::Get && job.known.contains(&owner) {
            let got_len = job.scheme.got_len(job.size);
            let at = job.scheme.puts_of(owner..owner + 1, job.size).start + usize::from(slot) * got_len;
            let value = job.values.get(at..at + got_len).ok_or_else(|| wrong("no such value"))?;
            message.kind = Kind::Value;
            message.body.extend(value);
        }
        let channel = match message.kind == Kind::Value && job.ranks.contains(&message.who) {
            true => job.process(message.who),
            false if self.is_ring => &mut self.links[NEXT],
            false => return Err(wrong(format!("nobody has put {:?}", message.body))),
        };
        channel.send(message.kind, message.who, &message.body)
    }

    /// Waits for messages; returns who has sent one: processes by rank, or the ring.
    fn await_messages(&mut self, job: &mut Job, has_ring: bool, open: &[u16]) -> io::Result<Vec<Option<u16>>> {
        let processes = open.iter().map(|rank| (Some(*rank), &job.processes[usize::from(rank - job.ranks.start)]));
        let ring = has_ring.then(|| (None, &self.links[BEFORE]));
        let (from, channels): (Vec<Option<u16>>, Vec<&Channel>) = processes.chain(ring).unzip();
        let mut polls: Vec<PollFd> = channels.iter().map(|channel| PollFd::new(*channel, PollFlags::IN)).collect();
        if !await_any(&mut polls, Instant::now() + WAIT_MAX)? {
            return Err(wrong("nobody asks and nobody reports"));
        }
        let ready = from.iter().zip(&polls).filter(|(_, poll)| !poll.revents().is_empty());
        Ok(ready.map(|(from, _)| *from).collect())
    }

    /// Adds the reports of other agents to the report of this agent's processes, and forwards it towards agent 0.
    fn gather_reports(&mut self, report: &mut Report) -> io::Result<()> {
        report.traffic[HOPS] = sum(self.links.iter_mut().map(|link| std::mem::take(&mut link.sent)));
        let (index, agents, is_ring) = (self.index, self.agents, self.is_ring);
        let (up, down) = self.up_and_down();
        // In a ring reports travel in the direction of requests, from agent 1 to agent 0.
        let (from, to) = match (is_ring, up) {
            (true, Some(before)) => {
                let from = if agents > 1 && index != 1 { std::slice::from_mut(before) } else { &mut [] };
                (from, down.first_mut().filter(|_| index > 0))
            }
            (_, up) => (down, up),
        };
        for link in from {
            report.add(&Report::receive(link)?);
        }
        to.map_or(Ok(()), |link| report.send(link))
    }
}

impl Job {
    fn process(&mut self, rank: u16) -> &mut Channel {
        &mut self.processes[usize::from(rank - self.ranks.start)]
    }

    /// Receives the values that this agent's processes put; afterwards all of these processes are in the fence.
    fn gather(&mut self) -> io::Result<()> {
        for (rank, process) in self.ranks.clone().zip(&mut self.processes) {
            let place = self.scheme.puts_of(rank..rank + 1, self.size);
            self.values[place.clone()].copy_from_slice(&process.receive(Kind::Values, place.len())?.body);
            process.receive(Kind::Fence, 0)?;
        }
        Ok(())
    }
}
