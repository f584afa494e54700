//! Drives the sockets of relays: each is one end of a connection between ranks that agents carry.

use super::pmi::PmiSockets;
use super::pmi::read_socket;
use crate::agent::outgoing::{Outgoing, WriteState};
use crate::agent::token::{JobSlot, Token};
use crate::agent::turn::Turn;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use wireup_os::reactor::{Event, Interest, Reactor};
use wireup_os::socket;
use wireup_proto::io::{JobEvent, RelayAct, RelayEvent, RelayId};
use wireup_wire::ids::JobId;
use wireup_wire::rank_address;

pub struct Relays {
    job: JobId,
    slot: JobSlot,
    open: BTreeMap<RelayId, Relay>,
}

struct Relay {
    out: Outgoing,
    /// Whether the connection is being made; nothing is written before that is done.
    is_connecting: bool,
    is_read: bool,
    /// Whether the connection's write direction is shut down after the queued bytes.
    ends_output: bool,
    /// Whether the end of the rank's output was read.
    has_ended: bool,
    /// Whether the socket is closed when everything is written.
    is_closing: bool,
}

fn connect(address: Option<SocketAddr>) -> io::Result<OwnedFd> {
    socket::dial(address.ok_or(io::ErrorKind::AddrNotAvailable)?, None)
}

impl Relays {
    pub fn new(job: JobId, slot: JobSlot) -> Relays {
        Relays { job, slot, open: BTreeMap::new() }
    }

    /// Carries out `act` on the socket of a relay. `host`: the number of this host in addresses of ranks.
    pub fn on_act(
        &mut self,
        relay: RelayId,
        act: RelayAct,
        host: fn() -> u64,
        clients: &mut PmiSockets,
        turn: &mut Turn<'_>,
    ) {
        let made = match act {
            RelayAct::Hand { client, reply, refusal } => {
                let (bytes, ends, made) = match self.add_pair(relay, turn.reactor) {
                    Ok(theirs) => (reply, vec![Rc::new(theirs)], Ok(())),
                    Err(error) => (refusal, Vec::new(), Err(error)),
                };
                clients.reply(client, bytes, ends, turn.reactor);
                made
            }
            RelayAct::Connect { address } => {
                let first = rank_address::candidates(&address, host()).first().copied();
                connect(first).and_then(|socket| self.add(relay, socket, true, turn.reactor))
            }
            RelayAct::Write(bytes) => return self.change(relay, |one| one.out.push(bytes), turn),
            RelayAct::EndOutput => return self.change(relay, |one| one.ends_output = true, turn),
            RelayAct::Read(on) => return self.change(relay, |one| one.is_read = on, turn),
            RelayAct::Close => return self.change(relay, |one| one.is_closing = true, turn),
        };
        if made.is_err() {
            turn.push_event(self.job, JobEvent::Relay { relay, event: RelayEvent::Gone });
        }
    }

    fn change(&mut self, relay: RelayId, change: impl FnOnce(&mut Relay), turn: &mut Turn<'_>) {
        if let Some(one) = self.open.get_mut(&relay) {
            change(one);
            self.go_on(relay, turn);
        }
    }

    /// Makes a pair of sockets, and returns the one that is for a rank.
    fn add_pair(&mut self, relay: RelayId, reactor: &Reactor) -> io::Result<OwnedFd> {
        let (own, theirs) = socket::pair()?;
        rustix::io::ioctl_fionbio(&own, true)?;
        self.add(relay, own, false, reactor)?;
        Ok(theirs)
    }

    fn add(&mut self, relay: RelayId, socket: OwnedFd, is_connecting: bool, reactor: &Reactor) -> io::Result<()> {
        let watched = if is_connecting { Interest::WRITABLE } else { Interest::READABLE };
        let one = Relay {
            out: Outgoing::to(socket, watched, Token::Relay(self.slot, relay), reactor)?,
            is_connecting,
            is_read: true,
            ends_output: false,
            has_ended: false,
            is_closing: false,
        };
        self.open.insert(relay, one);
        Ok(())
    }

    /// A socket of a relay is ready.
    pub fn on_relay_event(&mut self, relay: RelayId, event: Event, turn: &mut Turn<'_>) {
        let Some(one) = self.open.get_mut(&relay) else { return };
        if std::mem::take(&mut one.is_connecting) {
            if one.out.fd.as_ref().is_none_or(|fd| socket::dial_result(fd).is_err()) {
                return self.give_up(relay, turn);
            }
            turn.push_event(self.job, JobEvent::Relay { relay, event: RelayEvent::Connected });
        } else if (event.readable || event.hangup) && one.is_read && !one.has_ended {
            let Some(fd) = &one.out.fd else { return };
            match read_socket(fd, turn.buffer) {
                Ok(None) => {}
                Ok(Some(bytes)) if bytes.is_empty() => {
                    one.has_ended = true;
                    turn.push_event(self.job, JobEvent::Relay { relay, event: RelayEvent::End });
                }
                Ok(Some(bytes)) => {
                    turn.push_event(self.job, JobEvent::Relay { relay, event: RelayEvent::Bytes(bytes) });
                }
                Err(_) => return self.give_up(relay, turn),
            }
        }
        self.go_on(relay, turn);
    }

    /// Writes what fits, and watches for the events that allow more.
    fn go_on(&mut self, relay: RelayId, turn: &mut Turn<'_>) {
        let Some(one) = self.open.get_mut(&relay).filter(|one| !one.is_connecting) else { return };
        let wrote = one.out.flush();
        if wrote.bytes > 0 && !one.is_closing {
            let event = RelayEvent::Taken(wrote.bytes as u32);
            turn.push_event(self.job, JobEvent::Relay { relay, event });
        }
        let is_full = match wrote.state {
            WriteState::Idle | WriteState::FdLimit => false,
            WriteState::Full => true,
            WriteState::Closed => return self.give_up(relay, turn),
        };
        let Some(fd) = &one.out.fd else { return };
        if !is_full && std::mem::take(&mut one.ends_output) {
            let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Write);
        }
        if !is_full && one.is_closing {
            one.out.close(turn.reactor);
            self.open.remove(&relay);
            return;
        }
        let wanted = Interest { readable: one.is_read && !one.has_ended, writable: is_full };
        one.out.watch(wanted, Token::Relay(self.slot, relay), turn.reactor);
    }

    /// Closes a socket that cannot be used any more.
    fn give_up(&mut self, relay: RelayId, turn: &mut Turn<'_>) {
        if let Some(mut one) = self.open.remove(&relay) {
            one.out.close(turn.reactor);
        }
        turn.push_event(self.job, JobEvent::Relay { relay, event: RelayEvent::Gone });
    }
}
