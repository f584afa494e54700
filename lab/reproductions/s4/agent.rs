//! A standing agent on its host: starts processes of jobs, and passes on their puts and gets among agents in a ring
//! (S4 4.2) or in a hypercube.
//!
//! ```text
//!   ring                                                        hypercube
//!   Launch    from agent 0 around, back to agent 0              along the binomial tree of the hypercube
//!   Gathered  around, each agent keeps it until its processes   Spread: log2 A rounds, each with all values of
//!             are in the fence; Released: around                half of the agents that are still unknown
//!   Get       around, until the owner's agent makes it Value,   answered by the own agent
//!             which goes on around to the asker's agent
//!   Report    around, back to agent 0                           back along the tree
//! ```
//!
//! It does one step after the other and blocks in each, since it knows what must come next; only gets come in any
//! order. It is told where the others are on its standard input, and lives until that ends or a job fails.
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
use wireup_bench::net::await_any;

use super::process::{self, JSON_LEN_MAX, Place, Report};
use super::scheme::{HOPS, JOB_LEN, LOCAL, SCHEMES, SIZE_MAX, Scheme, decode_pair, ranks_of};
use super::sockets::VALUE_LEN;
use super::wire::{Channel, Kind, Message, Secret, WAIT_MAX, await_caller, call, sum, wrong};

/// The first argument of such a process.
pub const WORD: &str = "s4-agent";
/// An agent prints this once it has all of its links.
pub const READY: &str = "ready";
/// All values of the largest job.
const VALUES_LEN_MAX: usize = SIZE_MAX as usize * SIZE_MAX.ilog2() as usize * VALUE_LEN;
/// An agent without a job waits until its standard input ends; this is longer than any benchmark.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// What an agent is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seat {
    pub index: u16,
    pub is_ring: bool,
    pub secret: Secret,
    pub all: Vec<SocketAddrV4>,
}

enum Links {
    /// To the next agent, and from the one before.
    Ring { next: Channel, before: Channel },
    /// Across each bit.
    Cube(Vec<Channel>),
}

struct Agent {
    index: u16,
    agents: u16,
    own: Ipv4Addr,
    links: Links,
}

/// What an agent has of a job.
struct Job {
    scheme: Scheme,
    size: u16,
    ranks: Range<u16>,
    children: Vec<Child>,
    /// To the processes, by rank.
    processes: Vec<Channel>,
    /// By rank and slot.
    values: BTreeMap<(u16, u16), [u8; VALUE_LEN]>,
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
            let (mut launcher, _) = await_caller(&listener, &seat.secret, Instant::now() + FOR_EVER)?;
            agent.serve(Some(&mut launcher))?;
        }
    }
}

impl Agent {
    /// Connects to the other agents. Connections complete before they are accepted, so nobody waits for one who waits.
    fn link(listener: &TcpListener, seat: &Seat) -> io::Result<Agent> {
        let Seat { index, is_ring, secret, all } = seat;
        let agents = all.len() as u16;
        let until = Instant::now() + WAIT_MAX;
        let to = |agent: u16| {
            let mut channel = call(all[usize::from(agent)], secret, *index)?;
            // What begins a link belongs to no job.
            channel.sent = [0, 0];
            io::Result::Ok(channel)
        };
        let links = if *is_ring {
            Links::Ring { next: to((index + 1) % agents)?, before: await_caller(listener, secret, until)?.0 }
        } else {
            let mut channels = BTreeMap::new();
            for bit in (0..agents.ilog2()).filter(|bit| index & 1 << bit == 0) {
                channels.insert(index ^ 1 << bit, to(index ^ 1 << bit)?);
            }
            while channels.len() < agents.ilog2() as usize {
                let (channel, caller) = await_caller(listener, secret, until)?;
                channels.insert(caller, channel);
            }
            let across =
                |bit: u32| channels.remove(&(index ^ 1 << bit)).ok_or_else(|| wrong("not a neighbour has called"));
            Links::Cube((0..agents.ilog2()).map(across).collect::<io::Result<_>>()?)
        };
        Ok(Agent { index: *index, agents, own: *all[usize::from(*index)].ip(), links })
    }

    /// The channels from which a request comes (of agent 0 only in a ring: it has been around), and to which it goes.
    fn up_and_down(&mut self) -> (Option<&mut Channel>, Vec<&mut Channel>) {
        // In the binomial tree the parent is across the highest bit of an agent's own number.
        let own_bits = (u16::BITS - self.index.leading_zeros()) as usize;
        match &mut self.links {
            Links::Ring { next, before } => (Some(before), vec![next]),
            Links::Cube(all) => {
                let (up, down) = all.split_at_mut(own_bits);
                (up.last_mut(), down.iter_mut().rev().collect())
            }
        }
    }

    /// One job. Agent 0 has the launcher.
    fn serve(&mut self, mut launcher: Option<&mut Channel>) -> io::Result<()> {
        let request = match (&mut launcher, self.up_and_down()) {
            (Some(launcher), _) => launcher.receive(Kind::Launch, JOB_LEN)?,
            (None, (Some(up), _)) => {
                await_any(&mut [PollFd::new(&*up, PollFlags::IN)], Instant::now() + FOR_EVER)?;
                up.receive(Kind::Launch, JOB_LEN)?
            }
            (None, (None, _)) => return Err(wrong("no parent")),
        };
        for channel in self.up_and_down().1 {
            channel.send(Kind::Launch, 0, &request.body)?;
        }
        let (scheme, size) = decode_pair(&request.body)?;
        let scheme = *SCHEMES.get(usize::from(scheme)).ok_or_else(|| wrong("no such scheme"))?;
        let ranks = ranks_of(self.index, self.agents, size);
        let (children, processes, values) = Default::default();
        let mut job = Job { scheme, size, ranks, children, processes, values };
        job.start(self.own)?;
        if let (0, Links::Ring { before, .. }) = (self.index, &mut self.links) {
            before.receive(Kind::Launch, JOB_LEN)?;
        }
        job.gather()?;
        self.fence(&mut job)?;
        if let Some(launcher) = &mut launcher {
            launcher.send(Kind::Started, 0, &[])?;
        }
        if let Links::Ring { next, before } = &mut self.links {
            if self.index > 0 {
                before.receive(Kind::Released, 0)?;
            }
            next.send(Kind::Released, 0, &[])?;
        }
        for (rank, process) in job.ranks.clone().zip(&mut job.processes) {
            process.send(Kind::Released, rank, &[])?;
        }
        let report = self.answer_gets(&mut job)?;
        self.report(report, launcher.as_deref_mut())?;

        // The end: the launcher has closed, the others are told.
        match launcher {
            Some(launcher) => launcher.await_end(),
            None => drop(self.up_and_down().0.map(|up| up.receive(Kind::Leave, 0)).transpose()?),
        }
        let is_last = self.index + 1 == self.agents && matches!(self.links, Links::Ring { .. });
        for channel in self.up_and_down().1.into_iter().filter(|_| !is_last) {
            channel.send(Kind::Leave, 0, &[])?;
        }
        drop(job.processes);
        job.children.iter_mut().try_for_each(|child| child.wait().map(drop))
    }

    /// Returns when all processes are in the fence; then a hypercube's agent knows all values.
    fn fence(&mut self, job: &mut Job) -> io::Result<()> {
        let (index, agents, size) = (self.index, self.agents, job.size);
        match &mut self.links {
            Links::Ring { next, before } => {
                if index > 0 {
                    before.receive(Kind::Gathered, 0)?;
                }
                next.send(Kind::Gathered, 0, &[])?;
                if index == 0 {
                    before.receive(Kind::Gathered, 0)?;
                }
            }
            Links::Cube(all) => {
                // In round d an agent knows the values of those who agree with it from bit d on.
                let owners = |agent: u16, round: u16| {
                    let below = (1 << round) - 1;
                    (0..=below).flat_map(move |low| ranks_of(agent & !below | low, agents, size))
                };
                for (round, channel) in (0..).zip(all) {
                    channel.send(Kind::Spread, round, &job.encoded(owners(index, round)))?;
                    let theirs = channel.receive_any(&[Kind::Spread], VALUES_LEN_MAX)?;
                    job.learn(owners(index ^ 1 << round, round), &theirs.body);
                }
            }
        }
        Ok(())
    }

    /// Answers gets, and passes on those of others, until all own processes have reported. In a ring one request and
    /// its answer make one round: each agent sees two messages of every agent that has processes.
    fn answer_gets(&mut self, job: &mut Job) -> io::Result<Report> {
        let used = job.size.min(self.agents);
        let (mut reports, mut left) = (Vec::new(), 0);
        if let Links::Ring { before, .. } = &mut self.links {
            if self.index == 0 {
                before.receive(Kind::Released, 0)?;
            }
            left = if used > 1 { 2 * used } else { 0 };
        }
        let mut open: Vec<u16> = job.ranks.clone().collect();
        while left > 0 || !open.is_empty() {
            for from in self.await_messages(job, left > 0, &open)? {
                let channel = match (from, &mut self.links) {
                    (Some(rank), _) => &mut job.processes[usize::from(rank - job.ranks.start)],
                    (None, Links::Ring { before, .. }) => before,
                    (None, Links::Cube(_)) => continue,
                };
                let kinds = [Kind::Get, Kind::Value, Kind::Report];
                let mut message = channel.receive_any(&kinds, JSON_LEN_MAX)?;
                match (message.kind, from) {
                    (Kind::Report, Some(rank)) => {
                        open.retain(|one| *one != rank);
                        reports.push(serde_json::from_slice::<Report>(&message.body)?);
                        continue;
                    }
                    (Kind::Get, Some(rank)) => message.who = rank,
                    (_, Some(_)) => return Err(wrong(format!("{:?} of a process", message.kind))),
                    (_, None) => left -= 1,
                }
                self.on_get(job, message)?;
            }
        }
        let mut all = Report::default();
        reports.iter().for_each(|report| all.add(report));
        all.traffic[LOCAL] = sum(job.processes.iter().map(|one| one.sent).chain([all.traffic[LOCAL]]));
        Ok(all)
    }

    /// Answers if the value is here, else passes on.
    fn on_get(&mut self, job: &mut Job, mut message: Message) -> io::Result<()> {
        if let (Kind::Get, Some(value)) = (message.kind, job.values.get(&decode_pair(&message.body)?)) {
            message.kind = Kind::Value;
            message.body.extend(value);
        }
        let is_own = job.ranks.contains(&message.who);
        let channel = match (&mut self.links, message.kind == Kind::Value && is_own) {
            (_, true) => &mut job.processes[usize::from(message.who - job.ranks.start)],
            (Links::Ring { next, .. }, false) => next,
            (Links::Cube(_), false) => return Err(wrong(format!("nobody has put {:?}", message.body))),
        };
        channel.send(message.kind, message.who, &message.body)
    }

    /// Who has sent something: processes by rank, or the ring.
    fn await_messages(&self, job: &Job, has_ring: bool, open: &[u16]) -> io::Result<Vec<Option<u16>>> {
        let mut from: Vec<(Option<u16>, &Channel)> =
            open.iter().map(|rank| (Some(*rank), &job.processes[usize::from(rank - job.ranks.start)])).collect();
        if let (Links::Ring { before, .. }, true) = (&self.links, has_ring) {
            from.push((None, before));
        }
        let mut polls: Vec<PollFd> = from.iter().map(|(_, channel)| PollFd::new(*channel, PollFlags::IN)).collect();
        if !await_any(&mut polls, Instant::now() + WAIT_MAX)? {
            return Err(wrong("nobody asks and nobody reports"));
        }
        let is_ready = |poll: &PollFd| !poll.revents().is_empty();
        Ok(from.iter().zip(&polls).filter(|(_, poll)| is_ready(poll)).map(|((from, _), _)| *from).collect())
    }

    /// Adds what others have to the report of the own processes, and passes it on towards the launcher.
    fn report(&mut self, mut report: Report, launcher: Option<&mut Channel>) -> io::Result<()> {
        let (index, agents) = (self.index, self.agents);
        match &mut self.links {
            Links::Ring { next, before } => {
                report.traffic[HOPS] = std::mem::take(&mut next.sent);
                if agents > 1 && index != 1 {
                    report.add(&Report::receive(before)?);
                }
                if index > 0 {
                    report.send(next)?;
                }
            }
            Links::Cube(all) => {
                report.traffic[HOPS] = sum(all.iter_mut().map(|channel| std::mem::take(&mut channel.sent)));
                let (up, down) = self.up_and_down();
                for child in down {
                    report.add(&Report::receive(child)?);
                }
                if let Some(up) = up {
                    report.send(up)?;
                }
            }
        }
        launcher.map_or(Ok(()), |launcher| report.send(launcher))
    }
}

impl Job {
    fn start(&mut self, own: Ipv4Addr) -> io::Result<()> {
        let program = std::env::current_exe()?;
        for rank in self.ranks.clone() {
            let (near, far) = UnixStream::pair()?;
            let mut near = Channel::new(near);
            let place = Place { scheme: self.scheme.name.to_owned(), rank, size: self.size, own, launcher: None };
            near.send(Kind::Place, rank, &serde_json::to_vec(&place)?)?;
            let mut command = Command::new(&program);
            command.arg(process::WORD).stdin(Stdio::from(OwnedFd::from(far))).stdout(Stdio::null());
            self.children.push(command.spawn()?);
            self.processes.push(near);
        }
        Ok(())
    }

    /// What the own processes put; all of them are in the fence then.
    fn gather(&mut self) -> io::Result<()> {
        for at in 0..self.processes.len() {
            let put = self.processes[at].receive_any(&[Kind::Put], VALUES_LEN_MAX)?;
            self.learn(std::iter::once(self.ranks.start + at as u16), &put.body);
            self.processes[at].receive(Kind::Fence, 0)?;
        }
        Ok(())
    }

    /// The names of values, in order.
    fn slots(&self, owners: impl Iterator<Item = u16>) -> impl Iterator<Item = (u16, u16)> {
        let slots = self.scheme.neighbours(0, self.size).len() as u16;
        owners.flat_map(move |rank| (0..slots).map(move |slot| (rank, slot)))
    }

    fn encoded(&self, owners: impl Iterator<Item = u16>) -> Vec<u8> {
        self.slots(owners).filter_map(|slot| self.values.get(&slot)).flatten().copied().collect()
    }

    fn learn(&mut self, owners: impl Iterator<Item = u16>, bytes: &[u8]) {
        let learnt: Vec<_> = self.slots(owners).zip(bytes.as_chunks::<VALUE_LEN>().0.iter().copied()).collect();
        self.values.extend(learnt);
    }
}
