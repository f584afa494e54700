//! The sockets of one agent's links: dialling the parent and other agents, taking in whoever dials, moving frames.
//!
//! Whoever dials is a guest until its handshake is done. There is room for a fixed number of guests; when it is full, the
//! oldest that has not even sent a hello makes room for the next, so that strangers who hold connections open do not keep
//! children out, who need no more than a round trip.

mod delay;
mod dialling;
mod guests;
mod receiving;
mod rejoin;
mod sending;
mod ucx;

use super::link_config::LinkConfig;
use super::token::Token;
use super::turn::Turn;
use crate::transport::link::{Link, LinkError, Received};
use crate::transport::listener::Listener;
use crate::transport::pause::Pause;
use delay::DelayLine;
use dialling::Dial;
pub use guests::ListenError;
use rejoin::Rejoin;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use ucx::{Instead, UcxLinks};
use wireup_os::clock::monotonic_ns;
use wireup_os::interfaces::InterfaceAddress;
use wireup_os::reactor::{Interest, Reactor};
use wireup_os::socket::Unacknowledged;
use wireup_proto::io::{Input, LinkId, Peer};
use wireup_wire::ids::AgentId;
use wireup_wire::limits::HANDSHAKE_NS_MAX;
use wireup_wire::peer::Secret;
use wireup_wire::route::UcxPoint;

/// The launcher in this very process: a link without a socket.
pub const IN_MEMORY: LinkId = LinkId(0);

/// Looks at bytes under way within `--node-timeout`.
const LOOKS: u64 = 4;
/// From the suspicion to the second look: far more than an answer takes.
const SUSPECT_NS: u64 = 1_000_000_000;

pub struct LinkSet {
    me: AgentId,
    config: LinkConfig,
    secret: Option<Secret>,
    listener: Option<Listener>,
    pause: Pause,
    links: BTreeMap<LinkId, Entry>,
    /// Links that were accepted and have not proved anything, hence the oldest first.
    guests: BTreeSet<LinkId>,
    /// The ways to the parent and to other agents, until there is a link with each.
    dials: BTreeMap<AgentId, Dial>,
    /// This machine's addresses, once they were needed.
    own: Vec<InterfaceAddress>,
    next: u32,
    /// The link that last had something.
    hot: Option<LinkId>,
    /// Links with frames to flush.
    dirty: Vec<LinkId>,
    unreachable: Option<String>,
    /// The parent is gone, another one is looked for.
    rejoin: Option<Rejoin>,
    /// When to look whether bytes under way are answered; only while there may be some.
    look_ns: Option<u64>,
    /// Once the library is open.
    ucx: Option<UcxLinks>,
    /// Where links are to seem slower than they are.
    delay: Option<DelayLine>,
}

struct Entry {
    link: Link,
    kind: Kind,
    interest: Interest,
    closing: bool,
    /// The last look found bytes without an answer for too long. The next one decides: a probe may just have left.
    suspect: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Dialled; must have shown itself by then.
    Dialled { target: AgentId, until_ns: u64, address: SocketAddr },
    /// Accepted; must have shown itself by then.
    Guest { until_ns: u64 },
    /// Both ends have proved the secret, and the machine was told.
    Up,
}

impl LinkSet {
    pub fn new(me: AgentId, secret: Option<Secret>, config: LinkConfig) -> Self {
        LinkSet {
            me,
            delay: DelayLine::new(config.delay_ns),
            config,
            secret,
            listener: None,
            pause: Pause::default(),
            links: BTreeMap::new(),
            guests: BTreeSet::new(),
            dials: BTreeMap::new(),
            own: Vec::new(),
            next: 1,
            hot: None,
            dirty: Vec::new(),
            unreachable: None,
            rejoin: None,
            look_ns: None,
            ucx: None,
        }
    }

    /// The session's secret; the root makes it when it is first needed.
    pub fn secret(&mut self) -> io::Result<Secret> {
        if let Some(secret) = &self.secret {
            return Ok(secret.clone());
        }
        let mut bytes = [0; 32];
        let length = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
        assert_eq!(length, bytes.len(), "the kernel gives up to 256 random bytes at once");
        Ok(self.secret.insert(Secret(bytes)).clone())
    }

    fn insert(&mut self, link: Link, kind: Kind, interest: Interest, reactor: &Reactor) -> io::Result<LinkId> {
        let id = LinkId(self.next);
        self.next += 1;
        reactor.add(link.fd(), Token::Link(id).pack(), interest)?;
        self.links.insert(id, Entry { link, kind, interest, closing: false, suspect: false });
        Ok(id)
    }

    /// Takes a launcher in, whose greeting is over.
    ///
    /// # Errors
    /// It cannot be watched.
    pub fn adopt(&mut self, link: Link, reactor: &Reactor, inputs: &mut Vec<Input>) -> io::Result<()> {
        let id = self.insert(link, Kind::Up, Interest::READABLE, reactor)?;
        inputs.push(Input::LinkUp { link: id, peer: Peer::Launcher, local: String::new() });
        if let Some(entry) = self.links.get_mut(&id)
            && let Received::Bytes(bytes) = entry.link.receive_early()
        {
            inputs.push(Input::LinkBytes { link: id, bytes });
        }
        Ok(())
    }

    /// Closes links whose other end took too long to show itself; dials further addresses.
    pub fn on_tick(&mut self, turn: &mut Turn<'_>) {
        let now_ns = turn.now_ns;
        let late = |entry: &Entry| entry.kind.until_ns().is_some_and(|until_ns| until_ns <= now_ns);
        let late: Vec<LinkId> = self.links.iter().filter(|(_, entry)| late(entry)).map(|(id, _)| *id).collect();
        for id in late {
            let limit_ns = HANDSHAKE_NS_MAX.min(self.config.start_timeout_ns);
            let error = LinkError::Late(Duration::from_nanos(limit_ns));
            self.fail(id, error, turn.reactor, turn.inputs);
        }
        if self.look_ns.is_some_and(|at| at <= now_ns) {
            self.look(turn);
        }
        while let Some((id, frame)) = self.delay.as_mut().and_then(|delay| delay.pop(now_ns)) {
            self.send_now(id, frame);
        }
        let instead = self.ucx.as_mut().map(|ucx| ucx.on_tick(now_ns)).unwrap_or_default();
        self.dial_instead(instead, turn.reactor, turn.inputs);
        self.dial_due(now_ns, turn.reactor, turn.inputs);
        self.end_pause(now_ns, turn.reactor);
    }

    /// Links whose bytes have had no answer for too long fail; the kernel's keepalive sees to those without bytes under
    /// way.
    fn look(&mut self, turn: &mut Turn<'_>) {
        let patience = Duration::from_nanos(self.config.node_timeout_ns);
        let (mut again_ns, mut dead) = (None, Vec::new());
        for (&id, entry) in self.links.iter_mut().filter(|(_, entry)| entry.kind == Kind::Up) {
            let pause_ns = match entry.link.silence() {
                Unacknowledged::Nothing => continue,
                Unacknowledged::Silent(since) if since >= patience && entry.suspect => {
                    dead.push(id);
                    continue;
                }
                Unacknowledged::Silent(since) if since >= patience => {
                    entry.suspect = true;
                    SUSPECT_NS.min(self.config.node_timeout_ns / LOOKS)
                }
                Unacknowledged::Silent(_) | Unacknowledged::Answered => {
                    entry.suspect = false;
                    self.config.node_timeout_ns / LOOKS
                }
            };
            again_ns = again_ns.into_iter().chain([turn.now_ns + pause_ns]).min();
        }
        self.look_ns = again_ns;
        for id in dead {
            let error = LinkError::Silent { patience, error: io::ErrorKind::TimedOut.into() };
            self.fail(id, error, turn.reactor, turn.inputs);
        }
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        // Guests are given the same time each: the oldest is the first whose time is over.
        let guest = self.guests.first().and_then(|id| self.links.get(id)?.kind.until_ns());
        let under_way = || self.links.values().filter_map(|entry| entry.kind.until_ns()).min();
        let under_way = (!self.dials.is_empty()).then(under_way).flatten();
        let dials = self.dials.values().filter_map(Dial::deadline_ns);
        let delayed = self.delay.as_ref().and_then(DelayLine::deadline_ns);
        let greeted = self.ucx.as_ref().and_then(UcxLinks::deadline_ns);
        dials
            .chain(greeted)
            .chain(under_way)
            .chain(guest)
            .chain(self.pause.deadline_ns())
            .chain(self.look_ns)
            .chain(delayed)
            .min()
    }

    /// Opens UCX, and says where others reach this agent by it.
    ///
    /// # Errors
    /// Why it cannot be used, in words.
    pub fn open_ucx(&mut self, reactor: &Reactor) -> Result<UcxPoint, String> {
        let ucx = UcxLinks::open(self.me)?;
        reactor.add(ucx.fd(), Token::Ucx.pack(), Interest::READABLE).map_err(|error| error.to_string())?;
        Ok(self.ucx.insert(ucx).point())
    }

    /// Takes in what came by UCX.
    pub fn poll_ucx(&mut self, reactor: &Reactor, inputs: &mut Vec<Input>) {
        if let Some(ucx) = &mut self.ucx {
            let instead = ucx.poll(&mut self.next, inputs);
            self.dial_instead(instead, reactor, inputs);
        }
    }

    /// Before a wait; `false`: something came by UCX meanwhile.
    pub fn arm_ucx(&mut self) -> bool {
        self.ucx.as_mut().is_none_or(UcxLinks::arm)
    }

    fn dial_instead(&mut self, instead: Vec<Instead>, reactor: &Reactor, inputs: &mut Vec<Input>) {
        for Instead { agent, addresses } in instead {
            self.dial_direct(agent, &addresses, None, reactor, inputs);
        }
    }

    /// Closes a link that nobody was told of.
    fn forget(&mut self, id: LinkId, reactor: &Reactor) {
        self.guests.remove(&id);
        if let Some(entry) = self.links.remove(&id) {
            let _ = reactor.remove(entry.link.fd());
        }
    }

    fn fail(&mut self, id: LinkId, error: LinkError, reactor: &Reactor, inputs: &mut Vec<Input>) {
        let Some(kind) = self.links.get(&id).map(|entry| entry.kind) else {
            return;
        };
        self.forget(id, reactor);
        match kind {
            // Strangers are not worth a word: whoever can reach the port could fill the terminal.
            Kind::Guest { .. } => {}
            Kind::Dialled { target, address, .. } => {
                if let Some(dial) = self.dials.get_mut(&target) {
                    dial.on_failure(address, error.to_string());
                }
                self.dial_due(monotonic_ns(), reactor, inputs);
            }
            Kind::Up => inputs.push(Input::LinkDown { link: id, problem: error.to_string() }),
        }
    }

    /// Why the parent cannot be reached: every address tried, with its problem.
    pub fn unreachable(&self) -> Option<&str> {
        self.unreachable.as_deref()
    }
}

impl Kind {
    fn until_ns(self) -> Option<u64> {
        match self {
            Kind::Dialled { until_ns, .. } | Kind::Guest { until_ns } => Some(until_ns),
            Kind::Up => None,
        }
    }
}

#[cfg(test)]
mod launcher_tests;
#[cfg(test)]
mod tests;
