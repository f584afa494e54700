//! The launcher of one job: its clock runs from before anything is started until every process is connected to every
//! other.
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use wireup_bench::bench::Bench;
use wireup_bench::command::{Failure, wrong};
use wireup_bench::remote::{Remotes, address_of};
use wireup_os::random;

use super::process::{self, Place, Report};
use super::scheme::{Exchange, SCHEMES, STAR, Scheme, encode_pair, ranks_of};
use super::sockets::{VALUE_LEN, reassembled};
use super::wire::{Channel, Kind, Secret, WAIT_MAX, await_caller, call, sum};

/// Interval at which the launcher checks whether a remote shell has failed (chosen).
const GLANCE: Duration = Duration::from_millis(100);

/// The times of one job (s), and the traffic.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Time until every process was connected to every other.
    pub connected_s: f64,
    /// Time until every process was running: it had connected to the launcher, or was in the fence.
    pub initiated_s: f64,
    /// Times of the slowest processes: from a process's start until it had the values (including the wait for processes
    /// that are started later), and from then until it was connected. Also all traffic of processes.
    pub slowest: Report,
}

/// Runs a job by standing agents, of which agent 0 is at this address.
pub fn by_agents(
    scheme: Scheme,
    size: u16,
    (address, secret): &(SocketAddrV4, Secret),
    limit: Duration,
) -> io::Result<Outcome> {
    let number = SCHEMES.iter().position(|one| *one == scheme).unwrap_or(0) as u16;
    let begin = Instant::now();
    let mut agent = call(*address, secret, 0)?;
    agent.wait_at_most(limit);
    agent.send(Kind::Launch, 0, &encode_pair(number, size))?;
    agent.receive(Kind::Started, 0)?;
    let initiated_s = begin.elapsed().as_secs_f64();
    let mut slowest = Report::receive(&mut agent)?;
    let connected_s = begin.elapsed().as_secs_f64();
    slowest.traffic[STAR] = agent.sent;
    Ok(Outcome { connected_s, initiated_s, slowest })
}

/// Runs a job by a remote shell for each process; `limit` bounds each wait.
pub fn by_shells(bench: &Bench, scheme: Scheme, size: u16, limit: Duration) -> Result<Outcome, Failure> {
    let addresses = |host: &String| Ok((address_of(host)?, own_address(host)?));
    let addresses: Vec<(Ipv4Addr, Ipv4Addr)> = bench.hosts.iter().map(addresses).collect::<io::Result<_>>()?;
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let (port, secret) = (listener.local_addr()?.port(), random::bytes()?);
    // Declared before `channels`, so that it is dropped after them: a shell ends when the channel of its process is
    // closed.
    let mut shells = Remotes::none(bench, "shells-stderr")?;
    let mut channels = Vec::new();
    let begin = Instant::now();
    for (index, (host, (own, launcher))) in (0..).zip(bench.hosts.iter().zip(addresses)) {
        for rank in ranks_of(index..index + 1, bench.hosts.len() as u16, size) {
            let launcher = Some((SocketAddrV4::new(launcher, port), secret));
            let place = Place { scheme: scheme.name.to_owned(), rank, size, own, launcher };
            shells.add(host, process::WORD)?;
            // Errors are ignored: a shell that has ended does not read, and the wait for the process's connection
            // notices that.
            let _ = shells.tell(usize::from(rank), &serde_json::to_string(&place).map_err(wrong)?);
            let channel = await_call(&mut shells, &listener, &secret, rank)?;
            channel.wait_at_most(limit);
            channels.push(channel);
        }
    }
    let initiated_s = begin.elapsed().as_secs_f64();
    exchange(scheme, size, &mut channels)?;
    let mut slowest = Report::default();
    for channel in &mut channels {
        slowest.add(&Report::receive(channel)?);
    }
    let connected_s = begin.elapsed().as_secs_f64();
    slowest.traffic[STAR] = sum(channels.iter().map(|channel| channel.sent).chain([slowest.traffic[STAR]]));
    Ok(Outcome { connected_s, initiated_s, slowest })
}

/// Waits until the process that was started last has connected; gives up if its shell ends first.
fn await_call(shells: &mut Remotes, listener: &TcpListener, secret: &Secret, rank: u16) -> Result<Channel, Failure> {
    let until = Instant::now() + WAIT_MAX;
    loop {
        match await_caller(listener, secret, Instant::now() + GLANCE) {
            Ok((channel, who)) if who == rank => return Ok(channel),
            Ok((_, who)) => return Err(wrong(format!("process {who} has called, not {rank}"))),
            Err(_) => {}
        }
        if let Some(how) = shells.last_has_ended()? {
            return Err(wrong(format!("the remote shell of process {rank} has ended: {how}")));
        }
        if Instant::now() > until {
            return Err(wrong(format!("process {rank} has not called")));
        }
    }
}

/// Gathers the values of all processes, and sends each process the values that it needs.
fn exchange(scheme: Scheme, size: u16, channels: &mut [Channel]) -> io::Result<()> {
    let row_len = match scheme.exchange {
        Exchange::Whole | Exchange::Reassembled => usize::from(size - 1) * VALUE_LEN,
        _ => scheme.put_len(size),
    };
    let rows = channels.iter_mut().map(|channel| Ok(channel.receive(Kind::Values, row_len)?.body));
    let rows: Vec<Vec<u8>> = rows.collect::<io::Result<_>>()?;
    let whole = rows.concat();
    for (rank, channel) in (0..size).zip(channels) {
        let yours = match scheme.exchange {
            Exchange::Whole => whole.clone(),
            Exchange::Reassembled => reassembled(&rows, rank),
            _ => of_neighbours(scheme, rank, size, &rows),
        };
        channel.send(Kind::Values, rank, &yours)?;
    }
    Ok(())
}

/// The values that a process's neighbours have for it, by slot.
fn of_neighbours(scheme: Scheme, rank: u16, size: u16, rows: &[Vec<u8>]) -> Vec<u8> {
    let value = |(slot, neighbour): (u16, u16)| {
        let at = usize::from(scheme.far_slot(slot)) * VALUE_LEN;
        rows[usize::from(neighbour)][at..at + VALUE_LEN].to_vec()
    };
    (0..).zip(scheme.neighbours(rank, size)).flat_map(value).collect()
}

/// This machine's address on the route to a host. No packet is sent.
fn own_address(host: &str) -> io::Result<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect((address_of(host)?, 9))?;
    match socket.local_addr()? {
        SocketAddr::V4(own) => Ok(*own.ip()),
        SocketAddr::V6(_) => Err(io::Error::other(format!("no IPv4 address towards {host}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_ipv4_and_without_a_user() {
        assert_eq!(address_of("me@127.0.0.2").unwrap(), Ipv4Addr::new(127, 0, 0, 2));
        assert_eq!(own_address("127.0.0.1").unwrap(), Ipv4Addr::LOCALHOST);
    }
}
