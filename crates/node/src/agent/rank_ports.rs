//! Keeps the ports that an agent of a session has reserved for ranks. Each port is held by a listening socket here, or
//! is lent to one job.

use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use wireup_os::reserved;
use wireup_os::socket::{InARow, bind_in_a_row};
use wireup_wire::ids::JobId;
use wireup_wire::job::PortRange;

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
        let renewed: io::Result<Vec<OwnedFd>> = sockets.iter().map(|socket| reserved::renew(socket, BACKLOG)).collect();
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
    reserved::close(socket).expect("a reserved port has a socket of TCP");
}

/// The port at which to begin the search for free ports; different values of `number` (agents on one machine,
/// successive jobs) give different ports.
pub fn place_to_search(range: PortRange, number: u32) -> u16 {
    let width = u32::from(range.high.saturating_sub(range.low)) + 1;
    range.low + (number.wrapping_mul(0x9e37_79b1) % width) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

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
}
