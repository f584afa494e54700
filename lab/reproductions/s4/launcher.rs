//! The launcher of one job: its clock runs from before anything is started until every process is connected to every
//! other.
//!
//! It is a process of its own, so that whatever it starts ends with it.
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::agent::{REPORT_LEN, encode_job, ranks_of};
use super::message::{Channel, Kind, Message, WAIT_MAX, wrong};
use super::process::{self, From, Place};
use super::scheme::{Exchange, Scheme, Starter, agents_used};
use super::secret::Secret;
use super::traffic::Traffic;
use super::values::{VALUE_LEN, reassembled};
use wireup_bench::net::address_of;

/// The first argument of such a process.
pub const WORD: &str = "s4-launcher";

/// How often the launcher looks whether a remote shell has failed (chosen).
const GLANCE: Duration = Duration::from_millis(100);

/// The times of one job (s), and what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Until every process was connected to every other.
    pub connected_s: f64,
    /// Until every process was running: had called back, or was in the fence.
    pub initiated_s: f64,
    /// The slowest process, from its start until it had its values; for processes started one after the other it
    /// includes the wait for the last one.
    pub exchange_max_s: f64,
    /// The slowest process, from then on.
    pub connecting_max_s: f64,
    pub traffic: Traffic,
}

/// The job of a launcher, as one argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    pub scheme: Scheme,
    pub size: u16,
    pub hosts: Vec<String>,
    pub remote_shell: String,
    /// This program, where all hosts see it.
    pub program: String,
    /// Agent 0 and the agents' secret, in a file that only its owner can read.
    pub agents: String,
}

/// Runs a launcher; `args` are those after the word. It prints the outcome. Returns the exit code.
pub fn main(args: &[OsString]) -> u8 {
    let task = args.first().and_then(|text| serde_json::from_str::<Task>(text.to_str()?).ok());
    let outcome = task.ok_or_else(|| wrong("wireup-reproduce s4 starts it itself".into())).and_then(|task| task.run());
    match outcome.and_then(|outcome| Ok(serde_json::to_string(&outcome)?)) {
        Ok(text) => {
            println!("{text}");
            0
        }
        Err(problem) => {
            eprintln!("wireup-reproduce s4: {problem}");
            1
        }
    }
}

impl Task {
    fn run(&self) -> io::Result<Outcome> {
        match self.scheme.starter() {
            Starter::Star => self.by_shells(),
            Starter::Ring | Starter::Cube => self.by_agents(),
        }
    }

    fn by_shells(&self) -> io::Result<Outcome> {
        let own: Vec<Ipv4Addr> = self.hosts.iter().map(|host| own_address(host)).collect::<io::Result<_>>()?;
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let port = listener.local_addr()?.port();
        let secret = Secret::new()?;
        let mut star = Star { shells: Shells(Vec::new()), channels: Vec::new() };
        let begin = Instant::now();
        for (index, (host, own)) in (0..).zip(self.hosts.iter().zip(own)) {
            for rank in ranks_of(index, self.hosts.len() as u16, self.size) {
                let from = From::Launcher(SocketAddrV4::new(own, port), secret);
                star.start(self, host, &Place { scheme: self.scheme, rank, size: self.size, from })?;
                star.await_call(&listener, secret, rank)?;
            }
        }
        let initiated = begin.elapsed();
        star.exchange(self.scheme, self.size)?;
        let (times, mut traffic) = star.reports()?;
        let connected = begin.elapsed();
        star.channels.iter().for_each(|channel| traffic.star += channel.sent);
        Ok(outcome(connected, initiated, &times, traffic))
    }

    fn by_agents(&self) -> io::Result<Outcome> {
        let text = std::fs::read_to_string(&self.agents)?;
        let (address, secret) = text.trim().split_once(' ').ok_or_else(|| wrong("not where agents are".into()))?;
        let address = address.parse().map_err(|_| wrong(format!("{address}: not an address")))?;
        let secret = Secret::read(secret).ok_or_else(|| wrong("not a secret".into()))?;
        let begin = Instant::now();
        let mut agent = secret.call(address, 0, 0)?;
        agent.send(&Message::new(Kind::Launch, 0, encode_job(self.scheme, self.size)))?;
        let (mut initiated, mut reports) = (Duration::ZERO, Vec::new());
        while reports.len() < usize::from(agents_used(self.size, self.hosts.len() as u16)) {
            let message = agent.receive_any(REPORT_LEN)?;
            match message.kind {
                Kind::Started => initiated = begin.elapsed(),
                Kind::Report => reports.push(times(&message.body)?),
                kind => return Err(wrong(format!("{kind:?} from an agent"))),
            }
        }
        let connected = begin.elapsed();
        agent.send(&Message::new(Kind::Collect, 0, Traffic::default().encoded()))?;
        let collected = agent.receive(Kind::Collect, Traffic::LEN)?;
        let traffic = Traffic::decoded(&collected.body).ok_or_else(|| wrong("not a traffic".into()))?;
        Ok(outcome(connected, initiated, &reports, Traffic { star: agent.sent, ..traffic }))
    }
}

fn outcome(connected: Duration, initiated: Duration, reports: &[[f64; 2]], traffic: Traffic) -> Outcome {
    let longest = |which: usize| reports.iter().map(|times| times[which]).fold(0.0, f64::max);
    Outcome {
        connected_s: connected.as_secs_f64(),
        initiated_s: initiated.as_secs_f64(),
        exchange_max_s: longest(0),
        connecting_max_s: longest(1),
        traffic,
    }
}

/// The two times of a report (s).
fn times(body: &[u8]) -> io::Result<[f64; 2]> {
    match body.as_chunks::<8>() {
        ([exchange, connecting], []) => Ok([*exchange, *connecting].map(|ns| u64::from_le_bytes(ns) as f64 / 1e9)),
        _ => Err(wrong("not a report".into())),
    }
}

/// The remote shells; they end with their processes, or are ended.
struct Shells(Vec<Child>);

impl Drop for Shells {
    fn drop(&mut self) {
        for shell in &mut self.0 {
            if shell.wait().is_err() {
                let _ = shell.kill();
            }
        }
    }
}

/// The launcher in the middle. The channels are closed before the shells are waited for.
struct Star {
    channels: Vec<Channel>,
    shells: Shells,
}

impl Star {
    fn start(&mut self, task: &Task, host: &str, place: &Place) -> io::Result<()> {
        let mut shell = Command::new(&task.remote_shell);
        shell.arg(host).arg(format!("{} {}", task.program, process::WORD)).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut shell =
            shell.spawn().map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", task.remote_shell)))?;
        // Closed at once: a process reads one line.
        let written = shell.stdin.take().map_or(Ok(()), |mut input| input.write_all(place.line().as_bytes()));
        self.shells.0.push(shell);
        // A shell that has ended does not read: whoever waits for the call finds that, and says how it ended.
        written.or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
    }

    /// Waits until the process has called; gives up if its shell ends first.
    fn await_call(&mut self, listener: &TcpListener, secret: Secret, rank: u16) -> io::Result<()> {
        let until = Instant::now() + WAIT_MAX;
        loop {
            match secret.await_caller(listener, Instant::now() + GLANCE) {
                Ok((channel, hello)) if hello.who == rank => {
                    self.channels.push(channel);
                    return Ok(());
                }
                Ok((_, hello)) => return Err(wrong(format!("process {} has called, not {rank}", hello.who))),
                Err(_) => {}
            }
            let ended = self.shells.0.last_mut().and_then(|shell| shell.try_wait().ok().flatten());
            if let Some(status) = ended {
                return Err(wrong(format!("the remote shell of process {rank} has ended: {status}")));
            }
            if Instant::now() > until {
                return Err(wrong(format!("process {rank} has not called")));
            }
        }
    }

    /// Gathers what processes have, and sends them what they need.
    fn exchange(&mut self, scheme: Scheme, size: u16) -> io::Result<()> {
        let row_len = match scheme.exchange() {
            Exchange::Whole | Exchange::Reassembled => usize::from(size - 1) * VALUE_LEN,
            Exchange::Ring | Exchange::Cube => scheme.neighbours(0, size).len() * VALUE_LEN,
        };
        let rows: Vec<Vec<u8>> = self
            .channels
            .iter_mut()
            .map(|channel| Ok(channel.receive(Kind::Mine, row_len)?.body))
            .collect::<io::Result<_>>()?;
        let whole = rows.concat();
        for (rank, channel) in (0..size).zip(&mut self.channels) {
            let yours = match scheme.exchange() {
                Exchange::Whole => whole.clone(),
                Exchange::Reassembled => reassembled(&rows, rank),
                Exchange::Ring | Exchange::Cube => of_neighbours(scheme, rank, size, &rows),
            };
            channel.send(&Message::new(Kind::Yours, rank, yours))?;
        }
        Ok(())
    }

    /// The times of the processes, and what they have sent.
    fn reports(&mut self) -> io::Result<(Vec<[f64; 2]>, Traffic)> {
        let (mut all, mut traffic) = (Vec::new(), Traffic::default());
        for channel in &mut self.channels {
            let mut report = channel.receive(Kind::Report, REPORT_LEN + Traffic::LEN)?.body;
            traffic += Traffic::decoded(&report.split_off(REPORT_LEN)).ok_or_else(|| wrong("not a traffic".into()))?;
            all.push(times(&report)?);
        }
        Ok((all, traffic))
    }
}

/// What the neighbours have for this process, by slot.
fn of_neighbours(scheme: Scheme, rank: u16, size: u16, rows: &[Vec<u8>]) -> Vec<u8> {
    let neighbours = (0..).zip(scheme.neighbours(rank, size));
    let value = |(slot, neighbour): (u16, u16)| {
        let at = usize::from(scheme.far_slot(slot)) * VALUE_LEN;
        rows[usize::from(neighbour)][at..at + VALUE_LEN].to_vec()
    };
    neighbours.flat_map(value).collect()
}

/// The own address as this host sees it. Nothing is sent.
fn own_address(host: &str) -> io::Result<Ipv4Addr> {
    let (socket, address) = (UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?, address_of(host)?);
    socket.connect((address, 9))?;
    match socket.local_addr()? {
        SocketAddr::V4(own) => Ok(*own.ip()),
        SocketAddr::V6(_) => Err(wrong(format!("no IPv4 address towards {host}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_in_the_ring_get_each_others_values() {
        let rows: Vec<Vec<u8>> = (0..4).map(|rank| [[rank, 0, 0, 0, 0, 0], [rank, 1, 1, 1, 1, 1]].concat()).collect();
        // From the left its right value, from the right its left one.
        assert_eq!(of_neighbours(Scheme::SshBc, 0, 4, &rows), [[3, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0]].concat());
    }

    #[test]
    fn addresses_are_ipv4_and_without_a_user() {
        assert_eq!(address_of("me@127.0.0.2").unwrap(), Ipv4Addr::new(127, 0, 0, 2));
        assert_eq!(own_address("127.0.0.1").unwrap(), Ipv4Addr::LOCALHOST);
    }

    #[test]
    fn wrong_arguments_are_refused() {
        assert_eq!((main(&[]), main(&["{}".into()])), (1, 1));
    }
}
