//! A standing agent as a process on its host: the links to other agents, to its processes and to a launcher.
//!
//! It is told where the others are on its standard input, and lives until that ends.
use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use wireup_bench::net::await_any;

use super::agent::{Agent, BODY_LEN_MAX, Effect, End, REPORT_LEN};
use super::message::{Channel, Kind, Message, WAIT_MAX, wrong};
use super::process::{self, From, Place};
use super::scheme::Scheme;
use super::secret::Secret;
use super::traffic::{Count, Traffic};

/// The first argument of such a process.
pub const WORD: &str = "s4-agent";
/// What it prints once it has all of its links.
pub const READY: &str = "ready";

/// What a link is for: in the hello, with the caller's index. Links of the hypercube have the number of their bit
/// added.
const TO_LAUNCH: u8 = 0;
const RING: u8 = 1;
const CUBE: u8 = 2;

/// What an agent is told: its index, and where all are.
pub struct Seat<'a> {
    pub index: usize,
    pub secret: Secret,
    pub all: &'a [SocketAddrV4],
}

impl Seat<'_> {
    pub fn line(&self) -> String {
        let all: Vec<String> = self.all.iter().map(SocketAddrV4::to_string).collect();
        format!("{} {} {}\n", self.index, self.secret.text(), all.join(","))
    }
}

fn read_seat(line: &str) -> Option<(usize, Secret, Vec<SocketAddrV4>)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let &[index, secret, all] = &words[..] else { return None };
    let all: Vec<SocketAddrV4> = all.split(',').map(|one| one.parse().ok()).collect::<Option<_>>()?;
    let index: usize = index.parse().ok()?;
    (index < all.len()).then_some((index, Secret::read(secret)?, all))
}

/// Runs an agent and returns its exit code.
pub fn main() -> u8 {
    match run() {
        Ok(()) => 0,
        Err(problem) => {
            eprintln!("wireup-reproduce s4: agent: {problem}");
            1
        }
    }
}

fn run() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let mut out = io::stdout();
    writeln!(out, "{}", listener.local_addr()?.port())?;
    out.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let (index, secret, all) = read_seat(&line).ok_or_else(|| wrong("wireup-reproduce s4 starts it itself".into()))?;
    let mut daemon = Daemon::link(listener, index, secret, &all)?;
    writeln!(out, "{READY}")?;
    out.flush()?;
    daemon.serve()
}

struct Daemon {
    agent: Agent,
    own: Ipv4Addr,
    secret: Secret,
    listener: TcpListener,
    launcher: Option<Channel>,
    /// To the next agent, and from the one before.
    next: Channel,
    before: Channel,
    cube: BTreeMap<u16, Channel>,
    processes: BTreeMap<u16, Channel>,
    children: Vec<Child>,
    /// What processes of the job have sent, and what was sent to those that are gone.
    traffic: Traffic,
}

impl Daemon {
    /// Connects to the other agents. Connections complete before they are accepted, so nobody waits for one who waits.
    fn link(listener: TcpListener, index: usize, secret: Secret, all: &[SocketAddrV4]) -> io::Result<Daemon> {
        let agents = all.len();
        let next = secret.call(all[(index + 1) % agents], RING, index as u16)?;
        let bits = if agents.is_power_of_two() { agents.ilog2() as u16 } else { 0 };
        let (called, calling): (Vec<u16>, Vec<u16>) = (0..bits).partition(|bit| index & 1 << bit == 0);
        let mut cube = BTreeMap::new();
        for bit in called {
            cube.insert(bit, secret.call(all[index ^ 1 << bit], CUBE + bit as u8, index as u16)?);
        }
        let (mut before, until) = (None, Instant::now() + WAIT_MAX);
        while before.is_none() || cube.len() < usize::from(bits) {
            let (channel, hello) = secret.await_caller(&listener, until)?;
            match hello.job.checked_sub(CUBE).map(u16::from) {
                Some(bit) if calling.contains(&bit) => drop(cube.insert(bit, channel)),
                None if hello.job == RING => before = Some(channel),
                _ => return Err(wrong(format!("a link for {} from agent {}", hello.job, hello.who))),
            }
        }
        let before = before.ok_or_else(|| wrong("no ring".into()))?;
        let mut daemon = Daemon {
            agent: Agent::new(index as u16, agents as u16),
            own: *all[index].ip(),
            secret,
            listener,
            launcher: None,
            next,
            before,
            cube,
            processes: BTreeMap::new(),
            children: Vec::new(),
            traffic: Traffic::default(),
        };
        daemon.forget_counts();
        Ok(daemon)
    }

    fn forget_counts(&mut self) {
        self.traffic = Traffic::default();
        self.next.sent = Count::default();
        self.cube.values_mut().for_each(|channel| channel.sent = Count::default());
    }

    /// Until the standard input ends.
    fn serve(&mut self) -> io::Result<()> {
        loop {
            let (is_over, is_called, from) = self.await_input()?;
            if is_over {
                return Ok(());
            }
            for end in from {
                self.receive(end)?;
            }
            if is_called
                && let Some((channel, hello)) = self.secret.answer(&self.listener)?
                && hello.job == TO_LAUNCH
                && self.launcher.is_none()
            {
                self.launcher = Some(channel);
            }
        }
    }

    /// Waits; returns whether the input has ended, whether somebody has called, and who has sent something.
    fn await_input(&self) -> io::Result<(bool, bool, Vec<End>)> {
        let input = io::stdin();
        let mut ends = vec![End::Ring];
        let mut ready = vec![PollFd::new(&input, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        ready.push(PollFd::new(&self.before, PollFlags::IN));
        let of_cube = self.cube.iter().map(|(bit, channel)| (End::Cube(*bit), channel));
        let of_processes = self.processes.iter().map(|(rank, channel)| (End::Process(*rank), channel));
        let of_launcher = self.launcher.iter().map(|channel| (End::Launcher, channel));
        for (end, channel) in of_cube.chain(of_processes).chain(of_launcher) {
            ends.push(end);
            ready.push(PollFd::new(channel, PollFlags::IN));
        }
        await_any(&mut ready, Instant::now() + Duration::from_secs(3600))?;
        let is_ready = |poll: &PollFd<'_>| !poll.revents().is_empty();
        let from = ends.into_iter().zip(&ready[2..]).filter(|(_, poll)| is_ready(poll)).map(|(end, _)| end).collect();
        let mut rest = [0; 1];
        let is_over = is_ready(&ready[0]) && input.lock().read(&mut rest)? == 0;
        Ok((is_over, is_ready(&ready[1]), from))
    }

    fn receive(&mut self, from: End) -> io::Result<()> {
        let channel = match from {
            End::Ring => Some(&mut self.before),
            End::Cube(bit) => self.cube.get_mut(&bit),
            End::Process(rank) => self.processes.get_mut(&rank),
            End::Launcher => self.launcher.as_mut(),
        };
        // It has ended since it was found to be ready.
        let Some(channel) = channel else { return Ok(()) };
        let mut message = match (channel.receive_any(BODY_LEN_MAX), from) {
            (Ok(message), _) => message,
            (Err(error), End::Ring | End::Cube(_)) => return Err(error),
            (Err(_), End::Launcher) => {
                self.launcher = None;
                let effects = self.agent.launcher_gone();
                return self.carry_out(effects);
            }
            (Err(_), End::Process(rank)) => {
                // The launcher waits for its report, within its own limit.
                eprintln!("wireup-reproduce s4: process {rank} is gone");
                self.processes.remove(&rank);
                return Ok(());
            }
        };
        if let (End::Process(_), Kind::Report) = (from, message.kind) {
            let split = message.body.len().min(REPORT_LEN);
            self.traffic += Traffic::decoded(&message.body.split_off(split)).unwrap_or_default();
        }
        let effects = self.agent.take(from, message);
        self.carry_out(effects)
    }

    fn carry_out(&mut self, effects: Vec<Effect>) -> io::Result<()> {
        for effect in effects {
            match effect {
                Effect::Send(to, message) => self.send(to, &message)?,
                Effect::Start { scheme, size, ranks } => self.start(scheme, size, ranks)?,
                Effect::Collect(to, message) => self.collect(to, message)?,
            }
        }
        Ok(())
    }

    fn send(&mut self, to: End, message: &Message) -> io::Result<()> {
        match to {
            End::Ring => self.next.send(message),
            End::Cube(bit) => self.cube.get_mut(&bit).map_or(Ok(()), |channel| channel.send(message)),
            // If these are gone, that is noticed where they are read.
            End::Process(rank) => {
                let _ = self.processes.get_mut(&rank).map(|channel| channel.send(message));
                Ok(())
            }
            End::Launcher => {
                let _ = self.launcher.as_mut().map(|channel| channel.send(message));
                Ok(())
            }
        }
    }

    fn start(&mut self, scheme: Scheme, size: u16, ranks: Range<u16>) -> io::Result<()> {
        let program = std::env::current_exe()?;
        for rank in ranks {
            let (mut near, far) = UnixStream::pair()?;
            near.write_all(Place { scheme, rank, size, from: From::Agent(self.own) }.line().as_bytes())?;
            let mut command = Command::new(&program);
            command.arg(process::WORD).stdin(Stdio::from(OwnedFd::from(far))).stdout(Stdio::null());
            self.children.push(command.spawn()?);
            self.processes.insert(rank, Channel::new(near.into())?);
        }
        Ok(())
    }

    /// Ends the processes, and adds what was sent here to what the message has.
    fn collect(&mut self, to: End, mut message: Message) -> io::Result<()> {
        self.processes.values().for_each(|channel| self.traffic.local += channel.sent);
        self.processes.clear();
        for mut child in self.children.drain(..) {
            // It ends because its input has: nothing else is left for it to wait for.
            child.wait()?;
        }
        self.traffic.hops = self.next.sent;
        self.cube.values().for_each(|channel| self.traffic.hops += channel.sent);
        let mut all = Traffic::decoded(&message.body).unwrap_or_default();
        all += self.traffic;
        message.body = all.encoded();
        self.forget_counts();
        self.send(to, &message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_survives_as_a_line() {
        let all = ["10.0.0.1:5", "10.0.0.2:6"].map(|text| text.parse().unwrap());
        let line = Seat { index: 1, secret: Secret::new().unwrap(), all: &all }.line();
        let (index, _, back) = read_seat(&line).unwrap();
        assert_eq!((index, &back[..]), (1, &all[..]));
        for wrong in ["", "2 00 10.0.0.1:5", &line.replacen('1', "2", 1)] {
            assert!(read_seat(wrong).is_none(), "{wrong}");
        }
    }
}
