//! The sockets at which a job's ranks listen, and sockets that keep other ports free for them.

use crate::agent::rank_ports::{self, BACKLOG, place_to_search};
use crate::keeper::Process;
use std::io;
use std::os::fd::OwnedFd;
use wireup_os::socket::{InARow, NoRow, bind_in_a_row, offer_port};
use wireup_wire::ids::{JobId, LocalRank};
use wireup_wire::job::{PortRange, RankPorts};

#[derive(Default)]
pub struct RankSockets {
    /// Sockets for ranks that have not been started; `first_port`: the port of the first socket.
    sockets: Vec<OwnedFd>,
    first_port: u16,
    /// Sockets that keep the ports of the job's rendezvous for its ranks.
    rendezvous: Vec<OwnedFd>,
    /// Lowest reserved port of the ranks, and the sockets of the reserved ports by local rank.
    reserved: Option<(u16, Vec<OwnedFd>)>,
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
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn use_reserved(&mut self, base: u16, sockets: Vec<OwnedFd>) -> io::Result<()> {
        let copies: io::Result<_> = sockets.iter().map(OwnedFd::try_clone).collect();
        self.reserved = Some((base, sockets));
        self.first_port = base;
        self.sockets = copies?;
        Ok(())
    }

    /// Takes the sockets of the reserved ports that the job has used, with the lowest port.
    pub fn take_reserved(&mut self) -> Option<(u16, Vec<OwnedFd>)> {
        self.reserved.take()
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
        reserved.into_iter().for_each(rank_ports::close);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_is_told_its_port_and_a_reserved_port_refuses_once_its_rank_has_ended() {
        // A part of the range that no other test uses.
        let range = PortRange { low: 23_310, high: 23_319 };
        let mut ports = rank_ports::ReservedPorts::default();
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
        assert_eq!(sockets.take_reserved().unwrap().1.len(), 2);
    }
}
