//! Links without an agent: a reactor, the links, and the turn in which they send and receive.
//!
//! Tests and benchmarks of links use a `LinkEnd`. It sends and waits as an agent's driver does.

use super::link_config::LinkConfig;
use super::links::LinkSet;
use super::token::Token;
use super::turn::Turn;
use std::io;
use std::time::Duration;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::Reactor;
use wireup_os::secret_page::SecretPage;
use wireup_proto::io::Input;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::Secret;

/// Most bytes per read; large fences arrive in pieces of this size.
pub const READ_BYTES_MAX: usize = 256 << 10;

pub struct LinkEnd {
    pub links: LinkSet,
    pub reactor: Reactor,
    /// Inputs that an agent would get, for the caller to take.
    pub inputs: Vec<Input>,
    pub(super) buffer: Box<[u8]>,
}

impl LinkEnd {
    pub fn new(me: AgentId, secret: Secret, config: LinkConfig) -> io::Result<LinkEnd> {
        let links = LinkSet::new(me, Some(SecretPage::new(&secret.0)?), config);
        Ok(LinkEnd { links, reactor: Reactor::new()?, inputs: Vec::new(), buffer: vec![0; READ_BYTES_MAX].into() })
    }

    /// Sends what is queued, waits for at most `wait`, receives, and sends what follows from that.
    pub fn turn(&mut self, wait: Duration) -> io::Result<()> {
        let LinkEnd { links, reactor, inputs, buffer } = self;
        links.flush(reactor, inputs);
        let until_ns = monotonic_ns() + wait.as_nanos() as u64;
        let until_ns = links.deadline_ns().map_or(until_ns, |due_ns| due_ns.min(until_ns));
        let events = links.wait(Some(until_ns), reactor, buffer, inputs)?;
        let now_ns = monotonic_ns();
        let turn = &mut Turn { now_ns, reactor, buffer, inputs };
        for event in events {
            match Token::unpack(event.token) {
                Some(Token::Transport(which)) => links.on_transport(which, turn),
                Some(Token::Link(id)) => links.on_event(id, event, turn),
                other => panic!("only links are watched: {other:?}"),
            }
        }
        if links.deadline_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            links.on_tick(turn);
        }
        links.flush(reactor, inputs);
        Ok(())
    }
}
