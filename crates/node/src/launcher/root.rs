//! Drives the launcher's root agent: either inside this process, with frames passed in memory, or in a standing
//! session, through a socket.

use crate::agent::IN_MEMORY;
use crate::agent::driver::AgentDriver;
use crate::agent::token::Token;
use crate::keeper::forker;
use crate::session::Attached;
use crate::transport::link::{Link, Received};
use bytes::Bytes;
use std::io;
use std::time::Duration;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::{Event, Interest, Reactor};
use wireup_proto::io::{Input, Peer};
use wireup_wire::frame::Frame;
use wireup_wire::session::NodeState;

/// Token of the session's socket. The launcher's other tokens have lower numbers.
const SOCKET_TOKEN: Token = Token::Launcher(u32::MAX);
/// Most bytes per read. Chosen: the capacity of a pipe; touching the pages of a larger buffer would cost a short job
/// more than the reads cost a long one.
const READ_BYTES_MAX: usize = 64 << 10;

pub enum Root {
    Within(Box<Within>),
    Session(Box<Session>),
}

/// The root agent of a one-shot run.
pub struct Within {
    agent: AgentDriver,
    up: bool,
}

/// The link to the root of a standing session.
pub struct Session {
    link: Link,
    reactor: Reactor,
    interest: Interest,
    buffer: Box<[u8]>,
    received: Vec<Bytes>,
    end: End,
}

enum End {
    NotYet,
    /// The link has ended for this reason, which is reported after everything that was received before the end.
    Closed(String),
    Reported,
}

impl Root {
    pub fn within(agent: AgentDriver) -> Root {
        Root::Within(Box::new(Within { agent, up: false }))
    }

    pub fn session(session: Attached) -> io::Result<Root> {
        let mut link = session.into_link()?;
        let reactor = Reactor::new()?;
        link.carrier.watch(SOCKET_TOKEN.pack(), Interest::READABLE, &reactor)?;
        let received = match link.receive_early() {
            Received::Bytes(bytes) => vec![bytes],
            Received::Nothing | Received::Up(_) => Vec::new(),
        };
        let buffer = vec![0; READ_BYTES_MAX].into();
        let interest = Interest::READABLE;
        Ok(Root::Session(Box::new(Session { link, reactor, interest, buffer, received, end: End::NotYet })))
    }

    /// Reports to a root agent in this process that the launcher is linked to it and can receive frames.
    pub fn on_launcher_ready(&mut self) {
        if let Root::Within(within) = self {
            within.agent.handle(Input::LinkUp { link: IN_MEMORY, peer: Peer::Launcher, local: String::new() });
            within.up = true;
        }
    }

    pub fn reactor(&self) -> &Reactor {
        match self {
            Root::Within(within) => within.agent.reactor(),
            Root::Session(session) => &session.reactor,
        }
    }

    /// The nodes of a one-shot run; empty for a standing session, whose nodes are already running.
    pub fn nodes(&self) -> &[NodeState] {
        match self {
            Root::Within(within) => within.agent.nodes(),
            Root::Session(_) => &[],
        }
    }

    pub fn deadline_ns(&mut self) -> Option<u64> {
        match self {
            Root::Within(within) => within.agent.deadline_ns(),
            Root::Session(_) => None,
        }
    }

    /// Waits for events, at most until `until_ns`; the caller handles them.
    pub fn wait(&mut self, until_ns: Option<u64>) -> io::Result<Vec<Event>> {
        match self {
            Root::Within(within) => within.agent.wait(until_ns),
            Root::Session(session) => {
                let timeout = until_ns.map(|until| Duration::from_nanos(until.saturating_sub(monotonic_ns())));
                Ok(session.reactor.wait(timeout)?.to_vec())
            }
        }
    }

    pub fn on_event(&mut self, token: Token, event: Event) {
        match self {
            Root::Within(within) => within.agent.on_event(token, event),
            Root::Session(session) => session.on_event(),
        }
    }

    pub fn on_tick(&mut self) {
        if let Root::Within(within) = self {
            within.agent.on_tick();
        }
    }

    /// Does all work that is possible without waiting.
    pub fn settle(&mut self) {
        match self {
            Root::Within(within) => within.agent.settle(),
            Root::Session(session) => session.flush(),
        }
    }

    /// Prepares for further threads in this process: keepers are then forked by the forker.
    pub fn before_threads(&self) {
        if let Root::Within(_) = self {
            // If this fails, no keeper can be forked for jobs that ranks spawn from now on; such a job then reports the
            // reason.
            let _ = forker::before_threads();
        }
    }

    /// Takes the bytes received for the launcher, in order.
    pub fn take_bytes(&mut self) -> Vec<Bytes> {
        match self {
            Root::Within(within) => {
                let frames = within.agent.take_for_launcher();
                frames.into_iter().flat_map(|frame| [Bytes::copy_from_slice(&frame.header()), frame.payload]).collect()
            }
            Root::Session(session) => std::mem::take(&mut session.received),
        }
    }

    /// The reason why the root agent has ended; returned only once.
    pub fn take_end(&mut self) -> Option<String> {
        match self {
            Root::Within(within) if within.agent.has_left() => {
                std::mem::take(&mut within.up).then(|| "the root agent has exited".to_owned())
            }
            Root::Within(_) => None,
            Root::Session(session) => match std::mem::replace(&mut session.end, End::Reported) {
                End::Closed(problem) => Some(problem),
                other => {
                    session.end = other;
                    None
                }
            },
        }
    }

    pub fn send(&mut self, frame: Frame) {
        match self {
            Root::Within(within) if within.up => {
                for bytes in [Bytes::copy_from_slice(&frame.header()), frame.payload] {
                    within.agent.handle(Input::LinkBytes { link: IN_MEMORY, bytes });
                }
            }
            Root::Within(_) => {}
            Root::Session(session) => session.link.send(frame),
        }
    }

    /// Ends the root agent if it is in this process.
    pub fn end(self) {
        if let Root::Within(within) = self {
            within.agent.end();
        }
    }
}

impl Session {
    fn on_event(&mut self) {
        match self.link.receive(&mut self.buffer) {
            Ok(Received::Bytes(bytes)) => self.received.push(bytes),
            Ok(Received::Nothing | Received::Up(_)) => {}
            Err(error) => {
                self.link.carrier.unwatch(&self.reactor);
                self.end = End::Closed(format!("the connection to the session is lost: {error}"));
            }
        }
    }

    fn flush(&mut self) {
        if !matches!(self.end, End::NotYet) {
            return;
        }
        // A write error is ignored: the next read reports the problem, after the last data received.
        let all_out = self.link.flush().unwrap_or(true);
        let interest = if all_out { Interest::READABLE } else { Interest::BOTH };
        if std::mem::replace(&mut self.interest, interest) != interest {
            let _ = self.link.carrier.watch(SOCKET_TOKEN.pack(), interest, &self.reactor);
        }
    }
}
