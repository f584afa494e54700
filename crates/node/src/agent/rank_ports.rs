//! Keeps the ports that an agent of a session has reserved for ranks. Each port is held by a listening socket here, or
//! is lent to one job.
//!
//! The socket of a port is closed when its job has ended and is replaced for the next job. `close` keeps the port
//! bound: Linux resets the connections that nobody has accepted, and refuses later ones (`shutdown` of a listening
//! socket). `renew` makes a new socket that listens on the same port, so that a rank gets neither the connections of
//! the previous one nor the options that it had set on its socket.
//!
//! `SO_REUSEADDR` is set while a socket listens, or is about to: two sockets of this process may then share the port
//! for a moment, and the kernel ignores old connections of the port (`TIME_WAIT`). A closed socket does not have the
//! option, so no other process can bind the port.

use crate::keeper::Process;
use rustix::io::Errno;
use rustix::net::{self, Shutdown, sockopt};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use wireup_os::files::set_nonblocking;
use wireup_os::socket::{InARow, NoRow, bind_in_a_row, listen, local_address, offer_port};
use wireup_wire::ids::{JobId, LocalRank};
use wireup_wire::job::{PortRange, RankPorts};

/// Connections to a rank that may wait to be accepted; the kernel lowers this to its own maximum.
pub const BACKLOG: i32 = 4096;

#[derive(Default)]
pub struct ReservedPorts {
    base: u16,
    /// Sockets of the reserved ports, from the lowest port on; `None`: a job has the port.
    sockets: Vec<Option<OwnedFd>>,
    /// Sockets of jobs that have ended on this node, which now refuse connections, with the lowest port of each job.
    closed: BTreeMap<JobId, (u16, Vec<OwnedFd>)>,
}

impl ReservedPorts {
    /// Reserves `count` consecutive ports of the range and listens on them. Returns the lowest one.
    pub fn reserve(&mut self, count: u16, range: PortRange) -> io::Result<u16> {
        let first = place_to_search(range, std::process::id());
        let (base, sockets) = bind_in_a_row(count.into(), range.low..=range.high, first, InARow::Listen(BACKLOG))?;
        *self = ReservedPorts { base, sockets: sockets.into_iter().map(Some).collect(), closed: BTreeMap::new() };
        Ok(base)
    }

    /// Lends the sockets of `count` reserved ports, from the port `first` on, to a job.
    ///
    /// # Errors
    /// `AddrInUse`: a port is not reserved, or a job of this node still has it.
    pub fn take_sockets(&mut self, first: u16, count: u32) -> io::Result<Vec<OwnedFd>> {
        let taken = || io::Error::from(Errno::ADDRINUSE);
        let at = usize::from(first.checked_sub(self.base).ok_or_else(taken)?);
        let sockets = self.sockets.get_mut(at..at + count as usize).ok_or_else(taken)?;
        match sockets.iter().all(Option::is_some) {
            true => Ok(sockets.iter_mut().filter_map(Option::take).collect()),
            false => Err(taken()),
        }
    }

    /// Makes the ports of a job that has ended on this node refuse connections until they are renewed.
    pub fn close(&mut self, job: JobId, first: u16, sockets: Vec<OwnedFd>) {
        sockets.iter().for_each(close);
        self.closed.insert(job, (first, sockets));
    }

    /// Listens again on the ports of a job that has ended on all nodes, so that other jobs can use them. Does nothing
    /// if the job took no ports here: they still listen, and connections that wait there are from ranks that have
    /// ended. Returns `false` if this fails for now.
    pub fn renew(&mut self, job: JobId) -> bool {
        let Some((first, sockets)) = self.closed.get(&job) else { return true };
        let renewed: io::Result<Vec<OwnedFd>> = sockets.iter().map(renew).collect();
        let Ok(renewed) = renewed else {
            // `close` clears `SO_REUSEADDR` again, so that no other process can bind the ports.
            sockets.iter().for_each(close);
            return false;
        };
        for (index, socket) in (usize::from(first - self.base)..).zip(renewed) {
            self.sockets[index] = Some(socket);
        }
        self.closed.remove(&job);
        true
    }
}

/// Makes a socket refuse later connections to its port, and resets those that the rank has not accepted.
pub fn close(socket: &OwnedFd) {
    let closed = sockopt::set_socket_reuseaddr(socket, false).and_then(|()| net::shutdown(socket, Shutdown::Both));
    // `NOTCONN`: the socket does not listen.
    assert!(matches!(closed, Ok(()) | Err(Errno::NOTCONN)), "a reserved port has a socket of TCP: {closed:?}");
}

/// Makes a socket that listens on the port of `closed`, which the caller can then drop. The new socket is blocking, as
/// programs expect for `accept`.
fn renew(closed: &OwnedFd) -> io::Result<OwnedFd> {
    sockopt::set_socket_reuseaddr(closed, true)?;
    let socket = listen(local_address(closed)?, BACKLOG)?;
    set_nonblocking(&socket, false)?;
    Ok(socket)
}

/// The port at which to begin the search for free ports; different values of `number` (agents on one machine,
/// successive jobs) give different ports.
pub fn place_to_search(range: PortRange, number: u32) -> u16 {
    let width = u32::from(range.high.saturating_sub(range.low)) + 1;
    range.low + (number.wrapping_mul(0x9e37_79b1) % width) as u16
}

/// The sockets at which a job's ranks listen, and sockets that keep other ports free for them.
#[derive(Default)]
pub struct RankSockets {
    /// Sockets for ranks that have not been started; `first_port`: the port of the first socket.
    sockets: Vec<OwnedFd>,
    first_port: u16,
    /// Sockets that keep the ports of the job's rendezvous for its ranks.
    rendezvous: Vec<OwnedFd>,
    /// Lowest reserved port of the ranks, and the sockets of the reserved ports by local rank.
    pub reserved: Option<(u16, Vec<OwnedFd>)>,
}

impl RankSockets {
    /// Binds a socket for each of the ranks, which are about to be started. If the sockets listen, other ranks may
    /// connect from now on. Returns the first of their ports, which are consecutive.
    ///
    /// # Errors
    /// The range has fewer than `count` consecutive free ports.
    pub fn bind(&mut self, job: JobId, count: u32, ports: RankPorts) -> Result<u16, NoRow> {
        let RankPorts { range, listen } = ports;
        let first = place_to_search(range, std::process::id() ^ job.0);
        let kind = if listen { InARow::Listen(BACKLOG) } else { InARow::Reserve };
        (self.first_port, self.sockets) = bind_in_a_row(count as usize, range.low..=range.high, first, kind)?;
        Ok(self.first_port)
    }

    /// Keeps consecutive ports free until the job ends, for sockets that its ranks open. Returns the first one.
    ///
    /// # Errors
    /// The range has fewer than `count` consecutive free ports.
    pub fn reserve_rendezvous(&mut self, job: JobId, count: u16, range: PortRange) -> Result<u16, NoRow> {
        let first = place_to_search(range, std::process::id() ^ job.0);
        let (port, sockets) = bind_in_a_row(count.into(), range.low..=range.high, first, InARow::Reserve)?;
        for socket in &sockets {
            offer_port(socket).map_err(|error| NoRow { port: Some(port), error })?;
        }
        self.rendezvous = sockets;
        Ok(port)
    }

    /// Uses sockets of reserved ports, from `base` on, for the ranks; the sockets already listen.
    pub fn use_reserved(&mut self, base: u16, sockets: Vec<OwnedFd>) -> io::Result<()> {
        let copies: io::Result<_> = sockets.iter().map(OwnedFd::try_clone).collect();
        self.reserved = Some((base, sockets));
        self.first_port = base;
        self.sockets = copies?;
        Ok(())
    }

    /// Takes the sockets for `processes`; each process gets its port in the variable `WIREUP_LISTEN_PORT`.
    pub fn give(&mut self, processes: &mut [Process]) -> Vec<OwnedFd> {
        for (port, process) in (self.first_port..).zip(processes).take(self.sockets.len()) {
            process.env.push(format!("WIREUP_LISTEN_PORT={port}").into_bytes());
        }
        std::mem::take(&mut self.sockets)
    }

    /// The rank has ended: its reserved port, if it has one, refuses connections from now on. Other sockets of the rank
    /// were closed by the kernel.
    pub fn on_exited(&self, local: LocalRank) {
        let reserved = self.reserved.as_ref().and_then(|(_, sockets)| sockets.get(local.index()));
        reserved.into_iter().for_each(close);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    #[test]
    fn a_port_belongs_to_one_job_at_a_time() {
        let mut ports = ReservedPorts::default();
        assert!(ports.take_sockets(23_300, 1).is_err(), "none is reserved");
        // A part of the range that no other test uses.
        let base = ports.reserve(4, PortRange { low: 23_300, high: 23_309 }).unwrap();
        let is_open = |port: u16| TcpStream::connect(("127.0.0.1", base + port)).is_ok();
        let one = ports.take_sockets(base + 1, 2).unwrap();
        for (first, count) in [(base, 2), (base + 2, 1), (base + 3, 2), (base - 1, 1)] {
            assert_eq!(ports.take_sockets(first, count).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        }
        ports.close(JobId(1), base + 1, one);
        assert_eq!([0, 1, 2, 3].map(is_open), [true, false, false, true]);
        assert!(ports.take_sockets(base + 1, 1).is_err(), "others may still connect for job 1");
        assert!(ports.renew(JobId(2)), "it could not begin here");
        assert_eq!([0, 1, 2, 3].map(is_open), [true, false, false, true]);
        assert!(ports.renew(JobId(1)));
        assert_eq!([0, 1, 2, 3].map(is_open), [true; 4]);
        assert_eq!(ports.take_sockets(base, 4).unwrap().len(), 4);
    }

    #[test]
    fn each_process_is_told_its_port_and_a_reserved_port_refuses_once_its_rank_has_ended() {
        // A part of the range that no other test uses.
        let range = PortRange { low: 23_310, high: 23_319 };
        let mut ports = ReservedPorts::default();
        let base = ports.reserve(2, range).unwrap();
        let mut sockets = RankSockets::default();
        sockets.use_reserved(base, ports.take_sockets(base, 2).unwrap()).unwrap();
        let mut processes = [Process::new(0), Process::new(1)];
        let given = sockets.give(&mut processes);
        assert_eq!(processes[1].env, [format!("WIREUP_LISTEN_PORT={}", base + 1).into_bytes()]);
        assert!(sockets.give(&mut [Process::new(2)]).is_empty());
        drop(given);
        sockets.on_exited(LocalRank(1));
        let is_open = |port: u16| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        assert_eq!([base, base + 1].map(is_open), [true, false]);
        assert_eq!(sockets.reserved.unwrap().1.len(), 2);
    }

    #[test]
    fn a_closed_port_is_refused_to_all_and_renewed_without_the_past() {
        // Ports that no other test uses.
        let (port, mut sockets) = bind_in_a_row(1, 23_200..=23_209, 23_203, InARow::Listen(8)).unwrap();
        let mut socket = sockets.pop().unwrap();
        let port = ("127.0.0.1", port);
        let is_ours = || {
            let refused = TcpStream::connect(port).map_err(|error| error.kind()).err();
            // std sets `SO_REUSEADDR`.
            let taken = TcpListener::bind(port).map_err(|error| error.kind()).err();
            assert_eq!((refused, taken), (Some(ErrorKind::ConnectionRefused), Some(ErrorKind::AddrInUse)));
        };
        for _ in 0..3 {
            let given = TcpListener::from(socket.try_clone().unwrap());
            let mut near = TcpStream::connect(port).unwrap();
            let (mut far, _) = given.accept().unwrap();
            near.write_all(b"!").unwrap();
            far.read_exact(&mut [0]).unwrap();
            let mut pending = TcpStream::connect(port).unwrap();
            pending.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            // The option of this socket must not affect the next socket.
            given.set_nonblocking(true).unwrap();
            close(&socket);
            assert_eq!(pending.read(&mut [0]).map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
            assert!(given.accept().is_err());
            is_ours();
            close(&socket);
            // The end that closes first keeps the port in `TIME_WAIT` for a while.
            drop(far);
            drop(near);
            socket = renew(&socket).unwrap();
        }
        close(&socket);
        drop(socket);
        TcpListener::bind(port).unwrap();
    }
}
