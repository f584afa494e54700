//! The PMI sockets of ranks: reads requests, writes replies.
//!
//! A reply waits if the user has too many descriptors in flight between processes. The kernel counts the descriptors
//! that all processes of a user have sent and that have not been received (`ETOOMANYREFS` beyond the sender's limit of
//! open files). Other ranks make room when they read their replies, but nothing signals that: the agent retries at
//! intervals. It does so without a time limit, as it also waits for room in a full socket.

use super::output::{READ_BYTES, waiting_bytes};
use crate::agent::memory::Shared;
use crate::agent::outgoing::{Outgoing, WriteState};
use crate::agent::token::{JobSlot, Token};
use crate::agent::turn::Turn;
use bytes::{Buf, Bytes};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use wireup_os::clock::monotonic_ns;
use wireup_os::files::set_nonblocking;
use wireup_os::reactor::{Event, Interest, Reactor};
use wireup_os::socket;
use wireup_proto::io::JobEvent;
use wireup_wire::ids::{Client, JobId, LocalRank};
use wireup_wire::limits::SECONDARY_CLIENTS_PER_RANK_MAX;
use wireup_wire::secondary_client::{Answer, Hello};

/// The conversations of all PMI libraries in a job's ranks.
pub struct PmiSockets {
    job: JobId,
    slot: JobSlot,
    ranks: Vec<RankClients>,
    /// Clients whose replies wait, because too many descriptors are in flight.
    fd_backoff: FdBackoff,
}

#[derive(Default)]
struct RankClients {
    /// Sockets by the numbers of the rank's clients: the inherited socket, then those of secondary clients. Empty once
    /// the rank has ended.
    sockets: Vec<Outgoing>,
    /// Names of the secondary clients, including those that have left.
    libraries: Vec<Vec<u8>>,
}

impl PmiSockets {
    pub fn new(job: JobId, slot: JobSlot) -> PmiSockets {
        PmiSockets { job, slot, ranks: Vec::new(), fd_backoff: FdBackoff::default() }
    }

    /// Sets the number of the job's local ranks; `adopt` adds their inherited sockets later.
    pub fn set_ranks(&mut self, count: usize) {
        let rank = || RankClients { sockets: vec![Outgoing::default()], libraries: Vec::new() };
        self.ranks = std::iter::repeat_with(rank).take(count).collect();
    }

    /// The rank has started: takes over the socket that it has inherited.
    pub fn adopt(&mut self, local: LocalRank, fd: Option<OwnedFd>, reactor: &Reactor) -> io::Result<()> {
        // Only the first socket is set: the rank runs already, so a secondary client may have added others.
        if let (Some(inherited), Some(fd)) = (self.ranks[local.index()].sockets.first_mut(), fd) {
            inherited.adopt(fd, Interest::READABLE, Token::Pmi(self.slot, local.into()), reactor)?;
        }
        Ok(())
    }

    /// A secondary client connects: returns its end of a pair of sockets, or why it does not get one.
    pub fn on_hello(&mut self, hello: &Hello<'_>, turn: &mut Turn<'_>) -> Result<OwnedFd, Answer> {
        let is_there = |rank: &&mut RankClients| !rank.sockets.is_empty();
        let rank = self.ranks.get_mut(hello.local.index()).filter(is_there).ok_or(Answer::NoRank)?;
        if rank.libraries.iter().any(|name| name == hello.name) {
            return Err(Answer::Taken);
        }
        if rank.libraries.len() == SECONDARY_CLIENTS_PER_RANK_MAX {
            return Err(Answer::Full);
        }
        let (near, far) = socket::pair().map_err(|_| Answer::NoRoom)?;
        set_nonblocking(&near, true).map_err(|_| Answer::NoRoom)?;
        let client = Client { local: hello.local, number: rank.sockets.len() as u16 };
        let token = Token::Pmi(self.slot, client);
        let socket = Outgoing::to(near, Interest::READABLE, token, turn.reactor).map_err(|_| Answer::NoRoom)?;
        rank.libraries.push(hello.name.to_vec());
        rank.sockets.push(socket);
        turn.push_event(self.job, JobEvent::ClientJoined { client });
        Ok(far)
    }

    fn socket(&mut self, client: Client) -> Option<&mut Outgoing> {
        let sockets = &mut self.ranks.get_mut(client.local.index())?.sockets;
        sockets.get_mut(usize::from(client.number)).filter(|socket| socket.fd.is_some())
    }

    /// A PMI socket is ready.
    pub fn on_pmi_event(&mut self, client: Client, event: Event, turn: &mut Turn<'_>) {
        if event.writable {
            self.flush(client, turn.reactor);
        }
        if event.hangup || event.readable {
            self.receive(client, turn);
        }
    }

    fn receive(&mut self, client: Client, turn: &mut Turn<'_>) {
        let job = self.job;
        let Some(out) = self.socket(client) else { return };
        let Some(fd) = &out.fd else { return };
        match read_socket(fd, turn.buffer) {
            Ok(Some(bytes)) if !bytes.is_empty() => {
                turn.push_event(job, JobEvent::ClientBytes { client, bytes });
            }
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => {
                out.close(turn.reactor);
                turn.push_event(job, JobEvent::ClientGone { client });
            }
        }
    }

    /// The rank has ended: reads the requests that it had sent and no more, even if another process holds the sockets.
    pub fn on_exited(&mut self, local: LocalRank, turn: &mut Turn<'_>) {
        for number in 0..self.ranks[local.index()].sockets.len() as u16 {
            let client = Client { local, number };
            let Some(fd) = self.socket(client).and_then(|socket| socket.fd.as_ref()) else { continue };
            for _ in 0..waiting_bytes(fd).div_ceil(READ_BYTES) {
                self.receive(client, turn);
            }
            if let Some(socket) = self.socket(client) {
                socket.close(turn.reactor);
                turn.push_event(self.job, JobEvent::ClientGone { client });
            }
        }
        self.ranks[local.index()].sockets.clear();
    }

    /// Sends bytes of PMI replies to a client, and with them descriptors of shared memory. While a client does not read
    /// its replies, its requests are not read either.
    pub fn reply(&mut self, client: Client, mut bytes: Bytes, shares: Vec<Shared>, reactor: &Reactor) {
        let Some(out) = self.socket(client) else { return };
        // The rank waits for most replies, so the socket has room for them. If it has none, or its other end is closed,
        // the flush finds that out.
        if shares.is_empty()
            && out.is_empty()
            && let Some(fd) = &out.fd
            && let Ok(written) = rustix::io::write(fd, &bytes)
        {
            bytes.advance(written);
        }
        if !bytes.is_empty() {
            out.push_with(bytes, shares);
            self.flush(client, reactor);
        }
    }

    fn flush(&mut self, client: Client, reactor: &Reactor) {
        let token = Token::Pmi(self.slot, client);
        let Some(out) = self.socket(client) else { return };
        let state = out.flush().state;
        match state {
            WriteState::Full => out.watch(Interest::WRITABLE, token, reactor),
            WriteState::Closed if out.closing => out.close(reactor),
            // `Closed`: the end of file that follows is reported to the state machine.
            WriteState::Idle | WriteState::Closed | WriteState::FdLimit => {
                out.watch(Interest::READABLE, token, reactor);
            }
        }
        if state == WriteState::FdLimit {
            // No event reports that fewer descriptors are in flight, and the socket itself has room.
            self.fd_backoff.push(client);
        }
    }

    /// Closes the conversation when everything is written.
    pub fn close_client(&mut self, client: Client, reactor: &Reactor) {
        if let Some(socket) = self.socket(client) {
            socket.closing = true;
            self.flush(client, reactor);
        }
    }

    /// Retries the replies whose descriptors could not be sent.
    pub fn on_tick(&mut self, turn: &mut Turn<'_>) {
        let waiting = self.fd_backoff.take_due(turn.now_ns);
        for client in &waiting {
            self.flush(*client, turn.reactor);
        }
        self.fd_backoff.settle(!waiting.is_empty());
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        self.fd_backoff.due_ns()
    }
}

/// Reads what a rank has sent through a socket; `None`: nothing is available; empty: the socket is closed.
pub fn read_socket(fd: &OwnedFd, buffer: &mut [u8]) -> io::Result<Option<Bytes>> {
    match rustix::io::read(fd, &mut buffer[..READ_BYTES]) {
        Ok(length) => Ok(Some(Bytes::copy_from_slice(&buffer[..length]))),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Time between two tries to send the waiting replies (ns). Chosen: a rank reads its reply in a shorter time, and a job
/// takes far longer to start.
const RETRY_NS: u64 = 2_000_000;
/// Longest wait of a rank (ns) before a warning is printed.
const TELL_NS: u64 = 1_000_000_000;

#[derive(Default)]
pub struct FdBackoff {
    waiting: Vec<Client>,
    /// Time of the next try (ns).
    due_ns: u64,
    /// Time since which some rank has been waiting (ns); `None`: no rank waits.
    since_ns: Option<u64>,
    told: bool,
}

impl FdBackoff {
    /// Adds a rank whose reply must wait. Prints a warning, once, if ranks have been waiting for too long.
    pub fn push(&mut self, client: Client) {
        let now_ns = monotonic_ns();
        if self.waiting.is_empty() {
            self.due_ns = now_ns + RETRY_NS;
        }
        if !self.waiting.contains(&client) {
            self.waiting.push(client);
        }
        if now_ns - *self.since_ns.get_or_insert(now_ns) > TELL_NS && !std::mem::replace(&mut self.told, true) {
            // Nothing can be done if the reader of standard error is gone.
            let _ = writeln!(
                std::io::stderr(),
                "wireup: replies to ranks are delayed: this user has too many descriptors in transit between \
                 processes; raise the hard limit of open files (ulimit -Hn)"
            );
        }
    }

    pub fn due_ns(&self) -> Option<u64> {
        (!self.waiting.is_empty()).then_some(self.due_ns)
    }

    /// Removes and returns the waiting ranks if the next try is due; otherwise returns none.
    pub fn take_due(&mut self, now_ns: u64) -> Vec<Client> {
        if self.due_ns().is_some_and(|due| due <= now_ns) {
            return std::mem::take(&mut self.waiting);
        }
        Vec::new()
    }

    /// Call after [`FdBackoff::take_due`] and the tries. `tried`: whether there were any; if no rank waits again, all
    /// have their replies.
    pub fn settle(&mut self, tried: bool) {
        if tried && self.waiting.is_empty() {
            self.since_ns = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;
    use wireup_proto::io::Input;

    /// One turn of the reactor; returns the inputs for the state machine.
    fn turn(clients: &mut PmiSockets, reactor: &mut Reactor) -> Vec<Input> {
        let events = reactor.wait(Some(Duration::ZERO)).unwrap().to_vec();
        let (mut buffer, mut inputs) = (vec![0; 64 << 10], Vec::new());
        let turn = &mut Turn { now_ns: 0, reactor, buffer: &mut buffer, inputs: &mut inputs };
        for event in events {
            if let Some(Token::Pmi(_, client)) = Token::unpack(event.token) {
                clients.on_pmi_event(client, event, turn);
            }
        }
        inputs
    }

    #[test]
    fn a_rank_with_unread_replies_is_not_read() {
        const REPLY_BYTES: usize = 4 << 20;
        let mut reactor = Reactor::new().unwrap();
        let mut clients = PmiSockets::new(JobId(1), JobSlot(1));
        clients.set_ranks(1);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let client: Client = LocalRank(0).into();
        clients.adopt(LocalRank(0), Some(ours.into()), &reactor).unwrap();
        theirs.write_all(b"cmd=get\n").unwrap();
        clients.reply(client, vec![7; REPLY_BYTES].into(), Vec::new(), &reactor);
        assert_eq!(clients.ranks[0].sockets[0].watched, Some(Interest::WRITABLE));
        assert!(turn(&mut clients, &mut reactor).is_empty());
        let reader = std::thread::spawn(move || theirs.read_exact(&mut vec![0; REPLY_BYTES]).map(|()| theirs));
        let read = (0..).map(|_| turn(&mut clients, &mut reactor)).find(|inputs| !inputs.is_empty()).unwrap();
        assert!(
            matches!(
                &read[..],
                [Input::Job { event: JobEvent::ClientBytes { bytes, .. }, .. }] if bytes == &b"cmd=get\n"[..]
            ),
            "{read:?}"
        );
        drop(reader.join().unwrap().unwrap());
    }
}
