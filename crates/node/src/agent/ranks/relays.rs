//! Drives the sockets of relays: each is one end of a connection between ranks that agents carry.

use super::JobRanks;
use crate::agent::memory::Shared;
use crate::agent::outgoing::{Outgoing, WriteState};
use crate::agent::pipes::read_requests;
use crate::agent::token::{JobSlot, Token};
use crate::agent::turn::Turn;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use wireup_os::reactor::{Event, Interest, Reactor};
use wireup_os::socket;
use wireup_proto::io::{Input, JobEvent, RelayAct, RelayEvent, RelayId};
use wireup_wire::ids::JobId;
use wireup_wire::rank_address;

#[derive(Default)]
pub struct Relays(BTreeMap<RelayId, Relay>);

struct Relay {
    out: Outgoing,
    /// Whether the connection is being made; nothing is written before that is done.
    is_connecting: bool,
    is_read: bool,
    /// Whether nothing follows the queued bytes.
    ends_output: bool,
    /// Whether the rank's last byte was read.
    has_ended: bool,
    /// Whether the socket is closed when everything is written.
    is_closing: bool,
    /// Events that the reactor reports; `None`: none, not even that the other end has gone.
    watched: Option<Interest>,
}

impl JobRanks {
    /// Does something with the socket of a relay. `host`: the number of this host in addresses of ranks.
    pub fn on_relay(&mut self, relay: RelayId, act: RelayAct, host: fn() -> u64, turn: &mut Turn<'_>) {
        let (job, slot) = (self.job, self.slot);
        let made = match act {
            RelayAct::Hand { client, datagrams, reply, refusal } => {
                let (bytes, ends, made) = match self.relays.add_pair(relay, datagrams, slot, turn.reactor) {
                    Ok(theirs) => (reply, vec![Shared::socket(theirs)], Ok(())),
                    Err(error) => (refusal, Vec::new(), Err(error)),
                };
                self.reply(client, bytes, ends, turn.reactor);
                made
            }
            RelayAct::Connect { address, datagrams } => {
                let first = rank_address::candidates(&address, host()).first().copied();
                connect(first, datagrams).and_then(|socket| self.relays.add(relay, socket, true, slot, turn.reactor))
            }
            act => {
                self.relays.act(job, relay, act, slot, turn);
                Ok(())
            }
        };
        if made.is_err() {
            turn.inputs.push(Input::Job { job, event: JobEvent::Relay { relay, event: RelayEvent::Gone } });
        }
    }

    /// A socket of a relay is ready.
    pub fn on_relay_event(&mut self, relay: RelayId, event: Event, turn: &mut Turn<'_>) {
        self.relays.on_event(self.job, relay, event, self.slot, turn);
    }
}

fn connect(address: Option<SocketAddr>, datagrams: bool) -> io::Result<OwnedFd> {
    let address = address.ok_or(io::ErrorKind::AddrNotAvailable)?;
    if datagrams { socket::datagrams_to(address) } else { socket::dial(address, None) }
}

impl Relays {
    /// Makes a pair of sockets, one of which is for a rank.
    fn add_pair(&mut self, relay: RelayId, datagrams: bool, slot: JobSlot, reactor: &Reactor) -> io::Result<OwnedFd> {
        let (own, theirs) = if datagrams { socket::packet_pair() } else { socket::pair() }?;
        rustix::io::ioctl_fionbio(&own, true)?;
        self.add(relay, own, false, slot, reactor)?;
        Ok(theirs)
    }

    fn add(
        &mut self,
        relay: RelayId,
        socket: OwnedFd,
        is_connecting: bool,
        slot: JobSlot,
        reactor: &Reactor,
    ) -> io::Result<()> {
        let watched = if is_connecting { Interest::WRITABLE } else { Interest::READABLE };
        reactor.add(&socket, Token::Relay(slot, relay).pack(), watched)?;
        let one = Relay {
            out: Outgoing::to(socket),
            is_connecting,
            is_read: true,
            ends_output: false,
            has_ended: false,
            is_closing: false,
            watched: Some(watched),
        };
        self.0.insert(relay, one);
        Ok(())
    }

    fn act(&mut self, job: JobId, relay: RelayId, act: RelayAct, slot: JobSlot, turn: &mut Turn<'_>) {
        let Some(one) = self.0.get_mut(&relay) else { return };
        match act {
            RelayAct::Write(bytes) => one.out.push(bytes),
            RelayAct::EndOutput => one.ends_output = true,
            RelayAct::Read(on) => one.is_read = on,
            RelayAct::Close => one.is_closing = true,
            RelayAct::Hand { .. } | RelayAct::Connect { .. } => return,
        }
        self.go_on(job, relay, slot, turn);
    }

    fn on_event(&mut self, job: JobId, relay: RelayId, event: Event, slot: JobSlot, turn: &mut Turn<'_>) {
        let Some(one) = self.0.get_mut(&relay) else { return };
        if std::mem::take(&mut one.is_connecting) {
            if one.out.fd.as_ref().is_none_or(|fd| socket::dial_result(fd).is_err()) {
                return self.give_up(job, relay, turn);
            }
            turn.inputs.push(Input::Job { job, event: JobEvent::Relay { relay, event: RelayEvent::Connected } });
        } else if (event.readable || event.hangup) && one.is_read && !one.has_ended {
            let Some(fd) = &one.out.fd else { return };
            match read_requests(fd, turn.buffer) {
                Ok(None) => {}
                Ok(Some(bytes)) if bytes.is_empty() => {
                    one.has_ended = true;
                    turn.inputs.push(Input::Job { job, event: JobEvent::Relay { relay, event: RelayEvent::End } });
                }
                Ok(Some(bytes)) => turn
                    .inputs
                    .push(Input::Job { job, event: JobEvent::Relay { relay, event: RelayEvent::Bytes(bytes) } }),
                Err(_) => return self.give_up(job, relay, turn),
            }
        }
        self.go_on(job, relay, slot, turn);
    }

    /// Writes what fits, and watches for the events that allow more.
    fn go_on(&mut self, job: JobId, relay: RelayId, slot: JobSlot, turn: &mut Turn<'_>) {
        let Some(one) = self.0.get_mut(&relay).filter(|one| !one.is_connecting) else { return };
        let wrote = one.out.flush();
        if wrote.bytes > 0 && !one.is_closing {
            let event = RelayEvent::Taken(wrote.bytes as u32);
            turn.inputs.push(Input::Job { job, event: JobEvent::Relay { relay, event } });
        }
        let is_full = match wrote.state {
            WriteState::Idle | WriteState::FdLimit => false,
            WriteState::Full => true,
            WriteState::Closed => return self.give_up(job, relay, turn),
        };
        let Some(fd) = &one.out.fd else { return };
        if !is_full && std::mem::take(&mut one.ends_output) {
            let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Write);
        }
        if !is_full && one.is_closing {
            let _ = turn.reactor.remove(fd);
            self.0.remove(&relay);
            return;
        }
        let wanted = Interest { readable: one.is_read && !one.has_ended, writable: is_full };
        let wanted = (wanted != Interest::NONE).then_some(wanted);
        let before = std::mem::replace(&mut one.watched, wanted);
        let token = Token::Relay(slot, relay).pack();
        let _ = match (before, wanted) {
            (None, Some(wanted)) => turn.reactor.add(fd, token, wanted),
            (Some(_), None) => turn.reactor.remove(fd),
            (Some(before), Some(wanted)) if before != wanted => turn.reactor.modify(fd, token, wanted),
            (Some(_), Some(_)) | (None, None) => Ok(()),
        };
    }

    /// Closes a socket that cannot be used any more.
    fn give_up(&mut self, job: JobId, relay: RelayId, turn: &mut Turn<'_>) {
        if let Some(fd) = self.0.remove(&relay).and_then(|one| one.out.fd) {
            let _ = turn.reactor.remove(&fd);
        }
        turn.inputs.push(Input::Job { job, event: JobEvent::Relay { relay, event: RelayEvent::Gone } });
    }
}
