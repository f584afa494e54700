//! One agent's links: dials the parent and other agents, accepts incoming connections, moves frames.
//!
//! The bytes of a link are carried by a transport (`super::transports`); everything here is the same for all
//! transports.
//!
//! An incoming connection is a guest until its handshake is done. The number of guests is bounded. At the bound the
//! oldest one that has not even sent a hello is closed in favour of the next. So strangers that hold connections open
//! cannot keep children out, which need no more than a round trip.
//!
//! Frames are queued as they come and written once a turn. A link whose other end does not answer any more is noticed
//! by bytes that stay unacknowledged.

mod dials;

use super::link_config::LinkConfig;
use super::token::Token;
pub use super::transports::ListenError;
use super::transports::{Offer, Transports, Which};
use super::turn::Turn;
use crate::transport::addresses::{self, Filter};
use crate::transport::handshake::{Handshake, HandshakeError, Seal, Terms};
use crate::transport::link::{Carrier, Link, LinkError, Received};
use dials::{Attempt, Dials, Due};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::IpAddr;
use std::time::Duration;
use wireup_os::clock::monotonic_ns;
use wireup_os::interfaces;
use wireup_os::reactor::{Event, Interest, Reactor};
use wireup_os::secret_page::SecretPage;
use wireup_os::socket::Unacknowledged;
use wireup_proto::io::{Input, LinkId, NetworkValue, Peer};
use wireup_wire::frame::Frame;
use wireup_wire::ids::AgentId;
use wireup_wire::limits::{HANDSHAKE_NS_MAX, HELLOS_MAX, LAUNCHER_UNREAD_BYTES_MAX, UNAUTHENTICATED_LINKS_MAX};
use wireup_wire::peer::{Hello, PROTOCOL_VERSION, Rejoin, Role, Secret};

/// The link to the launcher in this same process: a link without a socket.
pub const IN_MEMORY: LinkId = LinkId(0);

/// Number of checks of unacknowledged bytes within `--node-timeout`.
const LOOKS: u64 = 4;
/// Time from a check that has found bytes unanswered for too long to the check that decides whether the link is lost
/// (ns). Chosen: far more than an answer takes on a busy machine, even if `--node-timeout` is short.
const SUSPECT_NS: u64 = 1_000_000_000;

pub struct LinkSet {
    me: AgentId,
    config: LinkConfig,
    secret: Option<SecretPage>,
    pub transports: Transports,
    links: BTreeMap<LinkId, Entry>,
    /// Accepted links that have not proved the secret yet, by id: the oldest first.
    guests: BTreeSet<LinkId>,
    hellos: Hellos,
    pub dials: Dials,
    next: u32,
    /// Links with frames to flush.
    dirty: Vec<LinkId>,
    /// Time of the next check whether bytes were acknowledged (ns); set only while there may be unacknowledged bytes.
    look_ns: Option<u64>,
}

struct Entry {
    link: Link,
    kind: LinkKind,
    interest: Interest,
    closing: bool,
    /// Whether the last check found bytes that were unanswered for too long. The link counts as lost only if the next
    /// check finds such bytes too, since the probe may have been sent just before the first check.
    suspect: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LinkKind {
    /// This agent has dialled; the handshake must be complete by `until_ns`.
    Dialled { target: AgentId, role: Role, attempt: Attempt, limit_ns: u64, until_ns: u64 },
    /// This agent has accepted the link; the handshake must be complete by `until_ns`.
    Guest { until_ns: u64 },
    /// Both ends have proved the secret, and the state machine knows the link.
    Up,
}

impl LinkSet {
    pub fn new(me: AgentId, secret: Option<SecretPage>, config: LinkConfig) -> Self {
        LinkSet {
            me,
            transports: Transports::new(&config),
            config,
            secret,
            links: BTreeMap::new(),
            guests: BTreeSet::new(),
            hellos: Hellos::default(),
            dials: Dials::default(),
            next: 1,
            dirty: Vec::new(),
            look_ns: None,
        }
    }

    /// The session's secret; the root generates it on first use.
    pub fn secret(&mut self) -> io::Result<Secret> {
        if self.secret.is_none() {
            self.secret = Some(SecretPage::new(&Secret(wireup_os::random::bytes()?).0)?);
        }
        let page = self.secret.as_ref().expect("it was just made");
        Ok(Secret(*page.bytes()))
    }

    /// The addresses at which this node is reached, best first.
    ///
    /// # Errors
    /// The addresses cannot be listed, or none of them may be used: the list is never empty.
    pub fn ips(&self) -> Result<Vec<IpAddr>, ListenError> {
        let own = interfaces::addresses().map_err(ListenError::Interfaces)?;
        let filter = self.config.interface.as_deref().map(Filter::parse).transpose()?;
        Ok(addresses::offered(&own, filter.as_ref(), self.config.reached_at(), self.config.local)?)
    }

    /// Environment variables (`NAME=value`) with the interface or address through which other machines reach this one;
    /// none if there is no such interface.
    pub fn network_variables(&self, variables: &[(&str, NetworkValue)]) -> Vec<Vec<u8>> {
        if variables.is_empty() || self.config.local {
            return Vec::new();
        }
        let (Ok(ips), Ok(own)) = (self.ips(), interfaces::addresses()) else { return Vec::new() };
        let Some(ip) = ips.first().copied() else { return Vec::new() };
        let Some(at) = own.into_iter().find(|own| own.ip == ip && !own.loopback) else { return Vec::new() };
        let line = |(name, value): &(&str, NetworkValue)| match value {
            NetworkValue::Interface => format!("{name}={}", at.interface).into_bytes(),
            NetworkValue::Address => format!("{name}={ip}").into_bytes(),
        };
        variables.iter().map(line).collect()
    }

    fn insert(&mut self, mut link: Link, kind: LinkKind, interest: Interest, reactor: &Reactor) -> io::Result<LinkId> {
        let id = LinkId(self.next);
        self.next += 1;
        link.carrier.watch(Token::Link(id).pack(), interest, reactor)?;
        self.links.insert(id, Entry { link, kind, interest, closing: false, suspect: false });
        // The link may have bytes to send, and no event may report that there is room.
        self.dirty.push(id);
        Ok(id)
    }

    /// Adds the link of a launcher that has exchanged protocol versions with this process.
    pub fn adopt(&mut self, link: Link, reactor: &Reactor, inputs: &mut Vec<Input>) -> io::Result<()> {
        let id = self.insert(link, LinkKind::Up, Interest::READABLE, reactor)?;
        inputs.push(Input::LinkUp { link: id, peer: Peer::Launcher, local: String::new() });
        if let Some(entry) = self.links.get_mut(&id)
            && let Received::Bytes(bytes) = entry.link.receive_early()
        {
            inputs.push(Input::LinkBytes { link: id, bytes });
        }
        Ok(())
    }

    /// Waits for events, at most until `until_ns`; the caller dispatches them. What links without descriptors have
    /// received goes to `inputs`.
    pub fn wait(
        &mut self,
        until_ns: Option<u64>,
        reactor: &mut Reactor,
        buffer: &mut [u8],
        inputs: &mut Vec<Input>,
    ) -> io::Result<Vec<Event>> {
        let now_ns = monotonic_ns();
        // A transport that is always busy must not keep other descriptors from being checked.
        let timeout = match self.arm(&mut Turn { now_ns, reactor, buffer, inputs }) {
            true => until_ns.map(|until| Duration::from_nanos(until.saturating_sub(now_ns))),
            false => Some(Duration::ZERO),
        };
        Ok(reactor.wait(timeout)?.to_vec())
    }

    /// Closes links whose handshake took too long; dials further addresses.
    pub fn on_tick(&mut self, turn: &mut Turn<'_>) {
        let now_ns = turn.now_ns;
        let late = |(id, entry): (&LinkId, &Entry)| {
            let (limit_ns, until_ns) = entry.kind.limit_ns()?;
            (until_ns <= now_ns).then_some((*id, limit_ns))
        };
        let late: Vec<(LinkId, u64)> = self.links.iter().filter_map(late).collect();
        for (id, limit_ns) in late {
            self.fail(id, LinkError::Late(Duration::from_nanos(limit_ns)), turn.reactor, turn.inputs);
        }
        if self.look_ns.is_some_and(|at| at <= now_ns) {
            self.look(turn);
        }
        self.dial_due(now_ns, turn.reactor, turn.inputs);
        for which in Which::ALL {
            if let Some(transport) = self.transports.get(*which) {
                transport.on_tick(now_ns, turn.reactor);
            }
        }
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        let until_ns = |entry: &Entry| Some(entry.kind.limit_ns()?.1);
        // All guests get the same time, so the oldest guest's time ends first.
        let guest = self.guests.first().and_then(|id| until_ns(self.links.get(id)?));
        let under_way = || self.links.values().filter_map(until_ns).min();
        let under_way = (!self.dials.is_empty()).then(under_way).flatten();
        let own = [self.transports.deadline_ns(), self.dials.deadline_ns(), under_way, guest, self.look_ns];
        own.into_iter().flatten().min()
    }

    /// Handles the incoming connections of a transport, and the events for its links.
    pub fn on_transport(&mut self, which: Which, turn: &mut Turn<'_>) {
        let Some(transport) = self.transports.get(which) else { return };
        for carrier in transport.take_in(turn.now_ns, turn.reactor) {
            self.take_in(carrier, turn);
        }
        let ready = self.transports.get(which).map(|transport| transport.ready()).unwrap_or_default();
        for token in ready {
            if let Some(Token::Link(id)) = Token::unpack(token) {
                self.on_event(id, Event { token, readable: true, writable: true, hangup: false }, turn);
            }
        }
    }

    /// Prepares the transports whose links have no descriptors for a wait on the reactor. `false`: data had arrived for
    /// some of them, and was handled instead.
    fn arm(&mut self, turn: &mut Turn<'_>) -> bool {
        let mut has_armed = true;
        for which in Which::ALL {
            if self.transports.get(*which).is_some_and(|transport| !transport.arm()) {
                self.on_transport(*which, turn);
                has_armed = false;
            }
        }
        has_armed
    }

    fn take_in(&mut self, carrier: Box<dyn Carrier>, turn: &mut Turn<'_>) {
        let Ok(secret) = self.secret() else { return };
        self.make_room(turn.reactor);
        let terms = Terms { encrypt: self.config.encrypt, listener: self.me, binding: carrier.binding() };
        let handshake = Handshake::listen(&secret, terms);
        let link = Link::begun(carrier, handshake, Vec::new(), self.config.encrypt);
        let kind = LinkKind::Guest { until_ns: turn.now_ns + HANDSHAKE_NS_MAX };
        // A guest that cannot be watched is dropped, which closes it.
        if let Ok(id) = self.insert(link, kind, Interest::READABLE, turn.reactor) {
            self.guests.insert(id);
        }
    }

    /// Checks that a hello is new. A guest that repeats the hello of another connection has recorded it, and does not
    /// know the secret.
    fn check_hello(&mut self, id: LinkId) -> Result<(), LinkError> {
        let heard = self.links.get(&id).filter(|_| self.guests.contains(&id)).and_then(|entry| entry.link.heard());
        match heard {
            Some(seal) if !self.hellos.is_new(*seal, id) => Err(HandshakeError::Secret.into()),
            _ => Ok(()),
        }
    }

    fn make_room(&mut self, reactor: &Reactor) {
        while self.guests.len() >= UNAUTHENTICATED_LINKS_MAX {
            let silent = |id: &&LinkId| self.links.get(id).is_none_or(|entry| entry.link.heard().is_none());
            let Some(&id) = self.guests.iter().find(silent).or(self.guests.first()) else {
                break;
            };
            self.forget(id, reactor);
        }
    }

    pub fn on_event(&mut self, id: LinkId, event: Event, turn: &mut Turn<'_>) {
        let Some(entry) = self.links.get_mut(&id) else {
            return;
        };
        let mut result = if event.writable || event.hangup {
            entry.link.carrier.on_writable().map_err(LinkError::from)
        } else {
            Ok(())
        };
        if result.is_ok() && (event.readable || event.hangup) {
            result = self.receive_all(id, turn);
        }
        match result {
            Ok(()) => self.dirty.push(id),
            Err(error) => self.fail(id, error, turn.reactor, turn.inputs),
        }
    }

    /// Reads from a link once, and then again while it holds data that no event of the reactor will report.
    fn receive_all(&mut self, id: LinkId, turn: &mut Turn<'_>) -> Result<(), LinkError> {
        loop {
            self.receive(id, turn)?;
            if !self.links.get(&id).is_some_and(|entry| entry.link.carrier.has_more()) {
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

    /// Call it when both ends of a link have proved the secret: reports the link to the state machine.
    fn on_proved(&mut self, id: LinkId, hello: Option<Hello>, turn: &mut Turn<'_>) -> Result<(), LinkError> {
        let Some(entry) = self.links.get_mut(&id) else {
            return Ok(());
        };
        let local = entry.link.carrier.local_address().map(|ip| self.transports.describe(ip)).unwrap_or_default();
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

    /// Queues a frame for a link; `flush` sends it.
    pub fn send(&mut self, id: LinkId, frame: Frame) {
        if let Some(entry) = self.links.get_mut(&id) {
            entry.link.send(frame);
            if self.dirty.last() != Some(&id) {
                self.dirty.push(id);
            }
        }
    }

    pub fn close(&mut self, id: LinkId) {
        if let Some(entry) = self.links.get_mut(&id) {
            entry.closing = true;
            self.dirty.push(id);
        }
    }

    /// Writes queued frames, once a turn.
    pub fn flush(&mut self, reactor: &Reactor, inputs: &mut Vec<Input>) {
        if !self.dirty.is_empty() && self.look_ns.is_none() && self.config.node_timeout_ns > 0 {
            self.look_ns = Some(monotonic_ns() + self.config.node_timeout_ns / LOOKS);
        }
        for id in std::mem::take(&mut self.dirty) {
            let Some(entry) = self.links.get_mut(&id) else { continue };
            let flushed = entry.link.flush();
            let interest = match entry.link.wants_to_write() {
                false => Interest::READABLE,
                // While a launcher does not read the answers to it, its requests are not read either.
                true if entry.link.is_local() => Interest::WRITABLE,
                true => Interest::BOTH,
            };
            let is_unread = entry.link.is_local() && entry.link.waiting_bytes() > LAUNCHER_UNREAD_BYTES_MAX;
            match flushed {
                Ok(false) if is_unread => self.fail(id, LinkError::Unread, reactor, inputs),
                Ok(true) if entry.closing => self.forget(id, reactor),
                Ok(_) => {
                    if std::mem::replace(&mut entry.interest, interest) != interest {
                        let _ = entry.link.carrier.watch(Token::Link(id).pack(), interest, reactor);
                    }
                }
                Err(error) => self.fail(id, error, reactor, inputs),
            }
        }
    }

    /// Fails links whose bytes have been unanswered for too long. Idle links are left to the kernel's keepalive.
    fn look(&mut self, turn: &mut Turn<'_>) {
        let patience = Duration::from_nanos(self.config.node_timeout_ns);
        let (mut again_ns, mut dead) = (None, Vec::new());
        for (&id, entry) in self.links.iter_mut().filter(|(_, entry)| entry.kind == LinkKind::Up) {
            let pause_ns = match entry.link.carrier.silence() {
                Unacknowledged::Nothing => continue,
                Unacknowledged::Silent(since) if since >= patience && entry.suspect => {
                    dead.push(id);
                    continue;
                }
                Unacknowledged::Silent(since) if since >= patience => {
                    entry.suspect = true;
                    SUSPECT_NS
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

    /// Removes and closes a link, without an input for the state machine.
    fn forget(&mut self, id: LinkId, reactor: &Reactor) {
        self.guests.remove(&id);
        if let Some(mut entry) = self.links.remove(&id) {
            entry.link.carrier.unwatch(reactor);
        }
    }

    fn fail(&mut self, id: LinkId, error: LinkError, reactor: &Reactor, inputs: &mut Vec<Input>) {
        let Some(kind) = self.links.get(&id).map(|entry| entry.kind) else {
            return;
        };
        self.forget(id, reactor);
        match kind {
            // Strangers are not reported: anyone who can reach the port could flood the terminal with reports.
            LinkKind::Guest { .. } => {}
            LinkKind::Dialled { target, attempt, .. } => {
                self.dials.on_failure(target, attempt, &error);
                self.dial_due(monotonic_ns(), reactor, inputs);
            }
            LinkKind::Up => inputs.push(Input::LinkDown { link: id, problem: error.problem() }),
        }
    }
}

impl LinkKind {
    /// The time allowed for the handshake, and the time at which it ends (ns); `None`: the handshake is complete.
    fn limit_ns(self) -> Option<(u64, u64)> {
        match self {
            LinkKind::Dialled { limit_ns, until_ns, .. } => Some((limit_ns, until_ns)),
            LinkKind::Guest { until_ns } => Some((HANDSHAKE_NS_MAX, until_ns)),
            LinkKind::Up => None,
        }
    }
}

/// Number of quarters of the start timeout for which an agent dials its parent. In the rest it reports which addresses
/// have not answered, before the parent gives up on it.
const DIALLING_QUARTERS: u64 = 3;

/// Time limit for reaching the root at one of its addresses, after the parent was lost (ns). Chosen, not measured: a
/// reachable machine answers sooner, and the dial is repeated if it fails.
const ROOT_NS_MAX: u64 = 5_000_000_000;

const ROOT: AgentId = AgentId(0);

impl LinkSet {
    /// Dials the parent at its addresses until one of them answers. `by_parent`: whether the parent itself started this
    /// agent through a remote shell.
    pub fn dial(&mut self, parent: &[String], by_parent: bool, reactor: &Reactor) -> Result<(), String> {
        let offer = Offer { addresses: parent.to_vec(), called_us: by_parent, ..Offer::default() };
        let role = Role::Child { incarnation: self.config.incarnation };
        // Failure to reach the parent is reported by `unreachable`, not as an input.
        self.begin_dial(self.config.parent, role, offer, self.dialling_ns(), reactor, &mut Vec::new());
        self.dials.unreachable().map_or(Ok(()), |problem| Err(problem.to_owned()))
    }

    /// Dials the root, which becomes the parent, for an agent of a standing session that has lost its parent.
    pub fn rejoin(&mut self, root: Vec<String>, rejoin: Rejoin, reactor: &Reactor, inputs: &mut Vec<Input>) {
        self.drop_attempts(ROOT, reactor);
        let offer = Offer { addresses: root, ..Offer::default() };
        self.begin_dial(ROOT, Role::Rejoin(rejoin), offer, ROOT_NS_MAX, reactor, inputs);
    }

    /// Dials an agent for a direct link. Each attempt ends by itself within the handshake's time limit.
    pub fn dial_direct(&mut self, agent: AgentId, offer: Offer, reactor: &Reactor, inputs: &mut Vec<Input>) {
        self.begin_dial(agent, Role::Direct, offer, u64::MAX, reactor, inputs);
    }

    fn begin_dial(
        &mut self,
        target: AgentId,
        role: Role,
        offer: Offer,
        limit_ns: u64,
        reactor: &Reactor,
        inputs: &mut Vec<Input>,
    ) {
        let now_ns = monotonic_ns();
        inputs.extend(self.dials.dial(target, role, offer, now_ns, now_ns.saturating_add(limit_ns)));
        self.dial_due(now_ns, reactor, inputs);
    }

    /// Longest time for which an agent dials its parent (ns).
    fn dialling_ns(&self) -> u64 {
        self.config.start_timeout_ns / 4 * DIALLING_QUARTERS
    }

    /// Starts the attempts to dial agents that are due, and reports the dials that have failed.
    pub(super) fn dial_due(&mut self, now_ns: u64, reactor: &Reactor, inputs: &mut Vec<Input>) {
        while let Some(due) = self.dials.next(now_ns, &mut self.transports) {
            let (target, attempt) = (due.target, due.attempt);
            if let Err(error) = self.try_dial(due, now_ns, reactor) {
                self.dials.on_failure(target, attempt, &error);
            }
        }
        inputs.extend(self.dials.give_up());
    }

    fn try_dial(&mut self, due: Due, now_ns: u64, reactor: &Reactor) -> Result<(), LinkError> {
        let Due { target, role, attempt, candidate, until_ns } = due;
        let limit_ns = candidate.limit_ns.min(until_ns.saturating_sub(now_ns));
        let until_ns = now_ns + limit_ns;
        if limit_ns == 0 {
            return Err(LinkError::Late(Duration::from_nanos(self.dialling_ns())));
        }
        let carrier = (candidate.open)()?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let hello = Hello { version: PROTOCOL_VERSION, agent: self.me, host, pid: wireup_os::process::own_pid(), role };
        let terms = Terms { encrypt: self.config.encrypt, listener: target, binding: carrier.binding() };
        let mut first = Vec::new();
        let handshake = Handshake::dial(&self.secret()?, terms, &hello, &mut first)?;
        let link = Link::begun(carrier, handshake, first, self.config.encrypt);
        self.insert(link, LinkKind::Dialled { target, role, attempt, limit_ns, until_ns }, Interest::BOTH, reactor)?;
        Ok(())
    }

    /// Closes the unfinished attempts to dial the agent `target`, because a link with it exists or a new dial begins.
    pub(super) fn drop_attempts(&mut self, target: AgentId, reactor: &Reactor) {
        let is_late = |entry: &Entry| matches!(entry.kind, LinkKind::Dialled { target: other, .. } if other == target);
        let late: Vec<LinkId> = self.links.iter().filter(|(_, entry)| is_late(entry)).map(|(id, _)| *id).collect();
        for id in late {
            self.forget(id, reactor);
        }
    }
}

/// Recognizes hellos that a stranger has recorded and repeats, by their seals.
///
/// Only members of the session can make new hellos, one for each dial. A long session sees any number of them, so only
/// the latest [`HELLOS_MAX`] are remembered. A stranger who repeats a forgotten hello occupies the place of one guest
/// until the handshake times out; the hello is remembered again as soon as it arrives.
#[derive(Default)]
struct Hellos {
    /// The seals of the remembered hellos, each with the link on which it first arrived.
    first: BTreeMap<Seal, LinkId>,
    /// The seals of the remembered hellos, in the order of arrival.
    order: VecDeque<Seal>,
}

impl Hellos {
    /// Remembers the hello of a link. Returns whether no other link had the same one.
    pub fn is_new(&mut self, seal: Seal, link: LinkId) -> bool {
        let first = *self.first.entry(seal).or_insert_with(|| {
            self.order.push_back(seal);
            link
        });
        if self.order.len() > HELLOS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.first.remove(&oldest);
        }
        first == link
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.first.len()
    }
}

#[cfg(test)]
mod tests;
