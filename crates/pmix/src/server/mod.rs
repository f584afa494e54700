//! Runs the server process with its two threads, the main thread and the library's.
//!
//! ```text
//!   agent's socket ──► main thread ── answer ──► library's thread: callback
//!        ▲                                             │
//!        └────────────── outbox ◄────── upcall ────────┘
//! ```
//!
//! All work on the library's requests runs on the library's thread ([`state::Server::on_library_thread`]): some
//! versions allow calls of their callbacks only from there.

mod acks;
mod answers;
mod clients;
mod guard;
mod job_data;
mod modex;
mod setup;
mod state;
mod tickets;
mod upcalls;

use acks::Acks;
use modex::Late;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use state::Server;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;
use wireup_wire::peer::{PmixFault, PmixProblem};
use wireup_wire::pmix::{Begin, FromServer, Open, PmixError, ToServer, Unpacker, pack};
use wireup_wire::signal::SENT_TO_STEPS;

/// Size of one read: enough for a small job's fence result in one piece.
const READ_BYTES: usize = 256 << 10;
/// Exit code after a fatal error, the same as the code of other wireup processes.
const FAILED: u8 = 89;

/// Runs the whole process; returns its exit code. Standard input is the agent's socket.
pub fn main() -> u8 {
    wireup_os::process::ignore(&SENT_TO_STEPS);
    // This process starts no other process, so it needs no new privileges. The call fails only on kernels before 3.5.
    let _ = rustix::thread::set_no_new_privs(true);
    match take_standard_input().map_err(|error| format!("no socket on standard input: {error}")).and_then(serve) {
        Ok(()) => 0,
        Err(problem) => {
            eprintln!("wireup pmix-server: {problem}; this command is for agents only");
            FAILED
        }
    }
}

/// Moves the socket away from standard input before any other code reads from there, puts `/dev/null` in its place, and
/// redirects standard output to the agent.
///
/// # Errors
/// Standard input is not a socket, or no descriptor is left.
fn take_standard_input() -> io::Result<OwnedFd> {
    let input = rustix::stdio::stdin();
    rustix::net::sockopt::socket_type(input)?;
    let socket = wireup_os::files::duplicate_from(input, 3)?;
    rustix::stdio::dup2_stdin(wireup_os::files::null()?)?;
    // Standard error is a pipe to the agent.
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    wireup_os::files::set_nonblocking(&socket, true)?;
    Ok(socket)
}

/// Runs from the first message to `End`, or until the agent has disconnected.
fn serve(socket: OwnedFd) -> Result<(), String> {
    let mut link = Link { unpacker: Unpacker::default(), buffer: vec![0; READ_BYTES] };
    let first = link.expect(&socket, "the agent's first message is neither Open nor Begin", |message| match message {
        ToServer::Open(open) => Some((open, None)),
        ToServer::Begin(begin) => {
            let host = begin.nodes.get(begin.node.index()).cloned().unwrap_or_default();
            Some((Open { dir: begin.dir.clone(), library: begin.library.clone(), host }, Some(begin)))
        }
        _ => None,
    });
    let Some((open, begin)) = first? else { return Ok(()) };
    let outcome = match set_up(&open, begin, &socket, &mut link) {
        Ok(server) => converse(server, &mut link),
        Err(NoServer::Unwanted) => Ok(()),
        Err(NoServer::Misled(problem)) => Err(problem),
        Err(NoServer::Failed(problem)) => {
            // Errors are ignored: if the agent has disconnected, nobody needs the message.
            let _ = wireup_os::files::set_nonblocking(&socket, false);
            let problem = with_room(problem, &open.dir);
            let _ = write_all(&socket, &pack(&FromServer::Failed { problem }));
            Ok(())
        }
    };
    // The library has removed its own files, or never will. The directory may already have been removed. If this
    // process is confined, it can only empty the directory, which the keeper then removes.
    let _ = std::fs::remove_dir_all(&open.dir);
    outcome
}

/// The reason why this process has no server.
enum NoServer {
    /// The agent has disconnected, or has told this process to end.
    Unwanted,
    /// The agent violates the protocol, in this way.
    Misled(String),
    /// The server cannot serve, for this reason, which is reported to the agent.
    Failed(PmixProblem),
}

/// If the disk had no room for the files that the library shares with its clients in `directory`, adds this reason to
/// the problem: the library does not report a full disk.
fn with_room(problem: PmixProblem, directory: &str) -> PmixProblem {
    match Path::new(directory).parent().and_then(wireup_os::files::lacking_room) {
        Some(room) if problem.kind == PmixFault::Other => PmixFault::NoRoom.with(format!("{problem}; {room}")),
        Some(_) | None => problem,
    }
}

/// Opens the library, which takes most of the time, waits until the job and the addresses of its ranks' sockets are
/// known, and registers the job. `begin`: the job; `None`: the job follows in a later message.
fn set_up(open: &Open, begin: Option<Begin>, socket: &OwnedFd, link: &mut Link) -> Result<&'static Server, NoServer> {
    let library = setup::open(open).map_err(NoServer::Failed)?;
    let begin = match begin {
        Some(begin) => begin,
        None => {
            write_all(socket, &pack(&FromServer::Opened)).map_err(|error| NoServer::Misled(error.to_string()))?;
            let begin = link.expect(socket, "the agent's message after Open is not Begin", |message| match message {
                ToServer::Begin(begin) => Some(begin),
                _ => None,
            });
            begin.map_err(NoServer::Misled)?.ok_or(NoServer::Unwanted)?
        }
    };
    let server = setup::serve(library, begin, socket).map_err(|problem| NoServer::Failed(problem.into()))?;
    let mut rows = Vec::new();
    if server.job.begin.has_endpoints {
        let otherwise = "the agent's second message does not tell where the ranks listen";
        let found = link.expect(socket, otherwise, |message| match message {
            ToServer::Endpoints { rows } => Some(rows),
            _ => None,
        });
        rows = found.map_err(NoServer::Misled)?.ok_or(NoServer::Unwanted)?;
    }
    setup::register(server, &rows).map_err(|problem| NoServer::Failed(problem.into()))?;
    Ok(server)
}

/// Reads the agent's messages up to the last one. If the agent disconnects, the process ends at once.
fn converse(server: &'static Server, link: &mut Link) -> Result<(), String> {
    let (mut unsent, mut late) = (false, Late::default());
    let mut acks = Acks::new().map_err(|error| format!("cannot create an epoll instance: {error}"))?;
    loop {
        while let Some(message) = link.unpacker.next::<ToServer>().map_err(malformed)? {
            match message {
                ToServer::End => {
                    setup::end(server);
                    return Ok(());
                }
                message => server.handle(message)?,
            }
        }
        let interest = if unsent { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        guard::accepted().iter().for_each(|client| acks.watch(client.fd()));
        acks.settle();
        late.settle(server);
        let due = acks.due().into_iter().chain(late.due()).min().map(time_until);
        let arrivals = if acks.due().is_some() { PollFlags::empty() } else { PollFlags::IN };
        let mut ready = [
            PollFd::from_borrowed_fd(server.outbox.socket(), interest),
            PollFd::from_borrowed_fd(server.outbox.wake(), PollFlags::IN),
            PollFd::from_borrowed_fd(acks.fd(), arrivals),
        ];
        match poll(&mut ready, due.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(format!("cannot wait for the agent: {error}")),
        }
        let (socket, wake, arrived) = (ready[0].revents(), ready[1].revents(), ready[2].revents());
        if arrived.contains(PollFlags::IN) {
            acks.on_bytes();
            late.look_soon(server);
        }
        if wake.contains(PollFlags::IN) {
            late.look_now(server);
        }
        if unsent || wake.contains(PollFlags::IN) {
            unsent = server.outbox.flush();
        }
        if socket.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) && !link.read(server.outbox.socket())? {
            return Ok(());
        }
    }
}

fn time_until(due: Instant) -> Timespec {
    let left = due.saturating_duration_since(Instant::now());
    Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
}

struct Link {
    unpacker: Unpacker,
    buffer: Vec<u8>,
}

impl Link {
    /// Waits for a message that `take` accepts; `None`: the agent has disconnected, or needs no server any more.
    ///
    /// # Errors
    /// Another message arrives, as `otherwise` says, or none can be read.
    fn expect<T>(
        &mut self,
        socket: &OwnedFd,
        otherwise: &str,
        take: impl FnOnce(ToServer) -> Option<T>,
    ) -> Result<Option<T>, String> {
        match self.wait_for_message(socket)? {
            Some(ToServer::End) | None => Ok(None),
            Some(message) => take(message).map(Some).ok_or_else(|| otherwise.to_owned()),
        }
    }

    fn wait_for_message(&mut self, socket: &OwnedFd) -> Result<Option<ToServer>, String> {
        loop {
            if let Some(message) = self.unpacker.next::<ToServer>().map_err(malformed)? {
                return Ok(Some(message));
            }
            // No time limit: the wait ends when the agent sends a message or exits.
            wireup_os::socket::wait(socket, true, false, None).map_err(|error| error.to_string())?;
            if !self.read(socket)? {
                return Ok(None);
            }
        }
    }

    /// Reads what is available. `false`: the agent has disconnected.
    fn read(&mut self, socket: impl std::os::fd::AsFd) -> Result<bool, String> {
        match rustix::io::read(socket, &mut self.buffer) {
            Ok(0) | Err(Errno::CONNRESET) => Ok(false),
            Ok(count) => {
                self.unpacker.push(&self.buffer[..count]);
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(true),
            Err(error) => Err(format!("cannot read from the agent: {error}")),
        }
    }
}

fn malformed(error: PmixError) -> String {
    format!("the agent sent an invalid message: {error}")
}

fn write_all(socket: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(socket, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
