//! The sockets of PyTorch's store: for each job that has one, a listener on 127.0.0.1, and the connections of the ranks
//! of this node.
//!
//! PyTorch's protocol has no authentication, and any process of this machine can connect. So before the first byte of a
//! connection is read, the kernel is asked which user owns its other end; connections of other users are closed unread.

use super::outgoing::{Outgoing, WriteState};
use super::rank_ports::BACKLOG;
use super::ranks::read_socket;
use super::token::{JobSlot, Token};
use super::turn::Turn;
use crate::remedy::spawn_error;
use crate::transport::listener::Pause;
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use wireup_os::reactor::{Event, Interest, Reactor};
use wireup_os::socket;
use wireup_os::tcp_peer::PeerLookup;
use wireup_proto::io::{JobEvent, StoreAct, StoreClient, StoreEvent};
use wireup_wire::ids::JobId;
use wireup_wire::limits::STORE_CLIENTS_MAX;
use wireup_wire::peer::{SpawnError, SpawnStep};

/// Most connections accepted in one turn, so that other descriptors are not delayed.
const ACCEPTS_PER_TURN: usize = 64;

#[derive(Default)]
pub struct Stores(BTreeMap<JobSlot, JobStore>);

/// The sockets of one job's store.
struct JobStore {
    job: JobId,
    slot: JobSlot,
    listener: OwnedFd,
    pause: Pause,
    lookup: PeerLookup,
    clients: BTreeMap<StoreClient, Connection>,
    last: u32,
}

struct Connection {
    out: Outgoing,
    /// Whether the state machine wants more requests.
    is_read: bool,
    /// Whether replies are queued because the client does not read.
    is_full: bool,
}

impl Stores {
    /// Listens for connections to the store of a job; returns the port.
    ///
    /// # Errors
    /// No descriptor is left, there is no loopback interface, or the kernel does not report which user owns a
    /// connection.
    pub fn listen(&mut self, job: JobId, slot: JobSlot, reactor: &Reactor) -> Result<u16, SpawnError> {
        let failed = |error: &io::Error| spawn_error(SpawnStep::Sockets, "the socket of the store for PyTorch", error);
        let store = JobStore::new(job, slot, reactor).map_err(|error| failed(&error))?;
        let port = socket::local_address(&store.listener).map_err(|error| failed(&error))?.port();
        self.0.insert(slot, store);
        Ok(port)
    }

    /// Connections wait at the listener of a job.
    pub fn on_listener(&mut self, slot: JobSlot, turn: &mut Turn<'_>) {
        if let Some(store) = self.0.get_mut(&slot) {
            (0..ACCEPTS_PER_TURN).take_while(|_| store.accept(turn)).for_each(drop);
        }
    }

    /// A connection is ready.
    pub fn on_client(&mut self, slot: JobSlot, client: StoreClient, event: Event, turn: &mut Turn<'_>) {
        if let Some(store) = self.0.get_mut(&slot) {
            store.on_client(client, event, turn);
        }
    }

    pub fn on_act(&mut self, slot: JobSlot, client: StoreClient, act: StoreAct, turn: &mut Turn<'_>) {
        if let Some(store) = self.0.get_mut(&slot) {
            store.on_act(client, act, turn);
        }
    }

    /// A job has ended: closes its connections.
    pub fn forget(&mut self, slot: JobSlot, reactor: &Reactor) {
        let Some(mut store) = self.0.remove(&slot) else { return };
        let _ = reactor.remove(&store.listener);
        let clients: Vec<StoreClient> = store.clients.keys().copied().collect();
        clients.into_iter().for_each(|client| store.close(client, reactor));
    }

    pub fn on_tick(&mut self, turn: &Turn<'_>) {
        for store in self.0.values_mut() {
            store.pause.end_if_due(&store.listener, store.token(), turn.now_ns, turn.reactor);
        }
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        self.0.values().filter_map(|store| store.pause.deadline_ns()).min()
    }
}

impl JobStore {
    fn new(job: JobId, slot: JobSlot, reactor: &Reactor) -> io::Result<JobStore> {
        let listener = socket::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), BACKLOG)?;
        let lookup = PeerLookup::tried().map_err(io::Error::other)?;
        let clients = BTreeMap::new();
        let store = JobStore { job, slot, listener, pause: Pause::default(), lookup, clients, last: 0 };
        reactor.add(&store.listener, store.token(), Interest::READABLE)?;
        Ok(store)
    }

    fn token(&self) -> u64 {
        Token::StoreListener(self.slot).pack()
    }

    /// Accepts the next connection, and keeps it if it is this user's and there is room; `false`: no connection waits.
    fn accept(&mut self, turn: &mut Turn<'_>) -> bool {
        let fd = match socket::accept(&self.listener) {
            Ok((fd, _)) => fd,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => return true,
            Err(error) => {
                if error.kind() != io::ErrorKind::WouldBlock {
                    self.pause.begin(&self.listener, self.token(), turn.now_ns, turn.reactor);
                }
                return false;
            }
        };
        if self.clients.len() < STORE_CLIENTS_MAX && self.lookup.check(&fd).is_ok() {
            self.last += 1;
            let client = StoreClient(self.last);
            let token = Token::StoreClient(self.slot, client);
            if let Ok(out) = Outgoing::to(fd, Interest::READABLE, token, turn.reactor) {
                self.clients.insert(client, Connection { out, is_read: true, is_full: false });
                turn.push_event(self.job, JobEvent::Store { client, event: StoreEvent::Opened });
            }
        }
        true
    }

    fn on_client(&mut self, client: StoreClient, event: Event, turn: &mut Turn<'_>) {
        let Some(connection) = self.clients.get_mut(&client) else { return };
        if (event.readable || event.hangup) && connection.is_read && !connection.is_full {
            let Some(fd) = &connection.out.fd else { return };
            match read_socket(fd, turn.buffer) {
                Ok(None) => {}
                Ok(Some(bytes)) if !bytes.is_empty() => {
                    let event = StoreEvent::Bytes(bytes);
                    turn.push_event(self.job, JobEvent::Store { client, event });
                }
                Ok(Some(_)) | Err(_) => return self.give_up(client, turn),
            }
        }
        self.go_on(client, turn);
    }

    fn on_act(&mut self, client: StoreClient, act: StoreAct, turn: &mut Turn<'_>) {
        let Some(connection) = self.clients.get_mut(&client) else { return };
        match act {
            StoreAct::Write(bytes) => connection.out.push(bytes),
            StoreAct::Read(on) => connection.is_read = on,
            StoreAct::Close => return self.close(client, turn.reactor),
        }
        self.go_on(client, turn);
    }

    /// Writes what fits, and watches for the events that allow more.
    fn go_on(&mut self, client: StoreClient, turn: &mut Turn<'_>) {
        let Some(connection) = self.clients.get_mut(&client) else { return };
        let is_full = match connection.out.flush().state {
            // `Closed`: bytes that the client sent before the connection closed are read first, and then its end.
            WriteState::Idle | WriteState::FdLimit | WriteState::Closed => false,
            WriteState::Full => true,
        };
        if is_full != std::mem::replace(&mut connection.is_full, is_full) {
            turn.push_event(self.job, JobEvent::Store { client, event: StoreEvent::Full(is_full) });
        }
        let wanted = Interest { readable: connection.is_read && !is_full, writable: is_full };
        connection.out.watch(wanted, Token::StoreClient(self.slot, client), turn.reactor);
    }

    fn give_up(&mut self, client: StoreClient, turn: &mut Turn<'_>) {
        self.close(client, turn.reactor);
        turn.push_event(self.job, JobEvent::Store { client, event: StoreEvent::Gone });
    }

    fn close(&mut self, client: StoreClient, reactor: &Reactor) {
        if let Some(mut connection) = self.clients.remove(&client) {
            connection.out.close(reactor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use wireup_proto::io::Input;

    /// The client has not read its replies, so the kernel resets the connection.
    #[test]
    fn what_a_client_sent_before_its_connection_broke_is_read() {
        let (reactor, mut buffer, mut inputs) = (Reactor::new().unwrap(), vec![0; 1 << 17], Vec::new());
        let mut store = JobStore::new(JobId(1), JobSlot(3), &reactor).unwrap();
        let mut client = TcpStream::connect(socket::local_address(&store.listener).unwrap()).unwrap();
        let mut turn = Turn { now_ns: 1, reactor: &reactor, buffer: &mut buffer, inputs: &mut inputs };
        assert!(store.accept(&mut turn));
        let reply = || StoreAct::Write("reply".into());
        store.on_act(StoreClient(1), reply(), &mut turn);
        client.write_all(b"requests").unwrap();
        client.read_exact(&mut [0; 1]).unwrap();
        drop(client);
        store.on_act(StoreClient(1), reply(), &mut turn);
        let ended = Event { token: 0, readable: true, writable: false, hangup: true };
        (0..3).for_each(|_| store.on_client(StoreClient(1), ended, &mut turn));
        let events: Vec<StoreEvent> = turn.inputs.drain(..).filter_map(of_store).collect();
        let requests = StoreEvent::Bytes("requests".into());
        assert_eq!(events, [StoreEvent::Opened, requests, StoreEvent::Gone]);
    }

    fn of_store(input: Input) -> Option<StoreEvent> {
        if let Input::Job { event: JobEvent::Store { event, .. }, .. } = input { Some(event) } else { None }
    }
}
