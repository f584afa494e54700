//! Receives from links: bytes for the state machine, and the identity of the other end.

use super::{LinkKind, LinkSet};
use crate::agent::turn::Turn;
use crate::transport::link::{LinkError, Received};
use std::time::Duration;
use wireup_os::reactor::Event;
use wireup_proto::io::{Input, LinkId, Peer};
use wireup_wire::peer::{Hello, Role};

impl LinkSet {
    pub fn on_event(&mut self, id: LinkId, event: Event, turn: &mut Turn<'_>) {
        let Some(entry) = self.links.get_mut(&id) else {
            return;
        };
        let mut result = if event.writable || event.hangup { entry.link.on_writable() } else { Ok(()) };
        if result.is_ok() && (event.readable || event.hangup) {
            result = self.receive_all(id, turn);
        }
        match result {
            Ok(()) => self.dirty.push(id),
            Err(error) => self.fail(id, error, turn.reactor, turn.inputs),
        }
    }

    /// Reads once, and then whatever the link holds without an event to report it.
    fn receive_all(&mut self, id: LinkId, turn: &mut Turn<'_>) -> Result<(), LinkError> {
        loop {
            self.receive(id, turn)?;
            if !self.links.get(&id).is_some_and(|entry| entry.link.has_more()) {
                return Ok(());
            }
        }
    }

    fn receive(&mut self, id: LinkId, turn: &mut Turn<'_>) -> Result<(), LinkError> {
        let Some(entry) = self.links.get_mut(&id) else {
            return Ok(());
        };
        match entry.link.receive(turn.buffer)? {
            Received::Nothing => self.check_hello(id)?,
            Received::Bytes(bytes) => turn.inputs.push(Input::LinkBytes { link: id, bytes }),
            Received::Up(hello) => self.on_proved(id, hello, turn)?,
        }
        Ok(())
    }

    /// Both ends have proved the secret.
    fn on_proved(&mut self, id: LinkId, hello: Option<Hello>, turn: &mut Turn<'_>) -> Result<(), LinkError> {
        let Some(entry) = self.links.get_mut(&id) else {
            return Ok(());
        };
        let local = entry.link.local_address().map(|ip| self.transports.describe(ip)).unwrap_or_default();
        if self.config.node_timeout_ns > 0 {
            entry.link.keep_alive(Duration::from_nanos(self.config.node_timeout_ns))?;
        }
        let early = entry.link.receive_early();
        let kind = std::mem::replace(&mut entry.kind, LinkKind::Up);
        let mut reached = None;
        let peer = match (hello, kind) {
            (Some(Hello { agent, role: Role::Child { incarnation }, .. }), _) => Peer::Child { agent, incarnation },
            (Some(Hello { agent, role: Role::Direct, .. }), _) => Peer::Direct(agent),
            (Some(Hello { agent, role: Role::Rejoin(rejoin), .. }), _) => Peer::Rejoin { agent, rejoin },
            (None, LinkKind::Dialled { target, role, attempt, .. }) => {
                reached = self.dials.on_up(target, attempt, turn.now_ns);
                self.drop_attempts(target, turn.reactor);
                if role == Role::Direct { Peer::Direct(target) } else { Peer::Parent }
            }
            (None, LinkKind::Guest { .. } | LinkKind::Up) => panic!("a listener receives the dialler's hello"),
        };
        self.guests.remove(&id);
        turn.inputs.push(Input::LinkUp { link: id, peer, local });
        turn.inputs.extend(reached);
        if let Received::Bytes(bytes) = early {
            turn.inputs.push(Input::LinkBytes { link: id, bytes });
        }
        Ok(())
    }
}
