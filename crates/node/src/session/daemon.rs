//! The process of a standing session: its root agent, and the socket to which launchers connect.
//!
//! ```text
//!   wireup up                                    the session's process
//!   claims the directory, forks ───────────────► a kernel session of its own, with only its own descriptors open
//!   waits for a result on a pipe ◄── ok or why ── listens
//!   connects, as every launcher does ──────────► …
//!                                                ends when asked to, by SIGTERM, or when its owner's login ends
//! ```
//!
//! The process removes its session directory itself. If the process is killed or fails, a keeper that exists only for
//! this purpose removes the directory, but keeps the end of the log in the directory.
//!
//! The owner of a session is a process, usually of the login in which the session was started, whose end ends the
//! session. It is the leader of the caller's kernel session: the shell of the terminal, of the ssh connection, of the
//! batch script. If the leader has ended, is outside of this container or is the container's first process, the owner
//! is the topmost ancestor of the caller in its kernel session, not the nearest subshell. If the caller leads its
//! session itself (`setsid wireup up`), the owner is the caller's parent. Inside a batch system's allocation, of which
//! a login may have many in sequence, the owner is the process started for the allocation: a shell or a script.

use super::call::SOCKET;
use super::callers::{Caller, Callers};
use super::crash_log::{CRASH_LOG, LOG};
use super::session_directory::SessionDirectory;
use crate::agent::driver::{AgentDriver, BeginError};
use crate::agent::token::Token;
use crate::keeper::{Keeper, KeeperEvent, Request};
use crate::remedy::{Advised, in_words};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use wireup_os::clock::monotonic_ns;
use wireup_os::process::{self, Fork, SignalFd};
use wireup_os::reactor::{Event, Interest};
use wireup_os::{files, local};
use wireup_proto::io::{Input, KernelSession};
use wireup_proto::{AgentConfig, Born};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{self, SessionSpec};
use wireup_wire::signal::{SIGHUP, SIGINT, SIGTERM};

/// Number of launchers that may wait to be accepted: a script may start hundreds at once.
const BACKLOG: i32 = 1024;

const SIGNALS: Token = Token::Launcher(0);
const LISTENER: Token = Token::Launcher(1);
const OWNER: Token = Token::Launcher(2);

#[derive(thiserror::Error, Debug)]
pub enum DaemonError {
    #[error("{what} failed: {}", Advised(.error))]
    System { what: String, error: io::Error },
    #[error(transparent)]
    Begin(#[from] BeginError),
    /// The error text of the session's process.
    #[error("{0}")]
    Reported(String),
}

fn system(what: &str) -> impl Fn(io::Error) -> DaemonError {
    move |error| DaemonError::System { what: what.to_owned(), error }
}

/// Starts a session in a new process, in a directory that this process has claimed. Returns the pid of that process
/// once the session listens.
///
/// Call it while the process has one thread.
///
/// # Errors
/// The reason why the session could not start; everything that the session had created has then been removed.
pub fn start(
    place: &SessionDirectory,
    session: SessionSpec,
    facts: &Facts,
    owner: Option<Owner>,
    process_ns: u64,
) -> Result<u32, DaemonError> {
    let shown = place.path().display();
    // Removes leftovers of a session that was killed.
    place.clear().map_err(system(&format!("clearing the session's directory {shown}")))?;
    facts.write(place).map_err(system(&format!("writing into the session's directory {shown}")))?;
    let (reader, writer) = files::pipe().map_err(system("making a pipe"))?;
    match process::fork().map_err(system("creating the session's process"))? {
        Fork::Child => {
            drop(reader);
            // A panic must not unwind into stack frames of which this process has a copy.
            let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                serve(place, session, owner, File::from(writer), process_ns)
            }));
            process::leave(if matches!(served, Ok(Ok(()))) { 0 } else { 1 })
        }
        Fork::Parent { child } => {
            drop(writer);
            let mut told = String::new();
            // If reading fails, `told` is empty, as if the process had been killed.
            let _ = File::from(reader).read_to_string(&mut told);
            match told.strip_prefix(READY) {
                Some(_) => Ok(child),
                None if told.is_empty() => Err(DaemonError::Reported(
                    "the session's process was killed, by someone or out of memory: check dmesg".into(),
                )),
                None => Err(DaemonError::Reported(told)),
            }
        }
    }
}

/// Message of the session's process to `wireup up`: the session listens.
const READY: &str = "ready";

fn serve(
    place: &SessionDirectory,
    session: SessionSpec,
    owner: Option<Owner>,
    mut word: File,
    process_ns: u64,
) -> Result<(), DaemonError> {
    let begun = detach(place, owner.as_ref(), &word).and_then(|()| Daemon::new(place, session, owner, process_ns));
    match begun {
        Ok(daemon) => {
            let _ = word.write_all(READY.as_bytes());
            drop(word);
            daemon.run()
        }
        Err(error) => {
            let _ = word.write_all(error.to_string().as_bytes());
            place.remove();
            Err(error)
        }
    }
}

/// Detaches from the terminal, the working directory, and everything that the caller had open.
fn detach(place: &SessionDirectory, owner: Option<&Owner>, word: &File) -> Result<(), DaemonError> {
    process::new_session().map_err(system("beginning a kernel session"))?;
    process::set_name(c"wireup-session");
    // `wireup up &` may have been started with some signals ignored; the ranks of later jobs must not ignore them.
    process::reset_dispositions(&[]);
    process::ignore_write_errors();
    let log = File::create(place.inside(LOG)).map_err(system("making the session's log"))?;
    let null = files::null().map_err(system("opening /dev/null"))?;
    let streams =
        [rustix::stdio::dup2_stdin(&null), rustix::stdio::dup2_stdout(&null), rustix::stdio::dup2_stderr(&log)];
    for result in streams {
        result.map_err(|error| system("leaving the terminal")(error.into()))?;
    }
    drop((log, null));
    let standard = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    let own = [place.as_fd(), word.as_fd()].into_iter().chain(owner.map(AsFd::as_fd));
    files::close_all_but(&standard.into_iter().chain(own).collect::<Vec<_>>());
    // The user's working directory may be on a file server that goes away, or may have to be removed.
    std::env::set_current_dir("/").map_err(system("leaving the working directory"))
}

struct Daemon<'p> {
    place: &'p SessionDirectory,
    agent: AgentDriver,
    callers: Callers,
    signals: SignalFd,
    owner: Option<Owner>,
    /// A keeper that removes the session's directory if this process cannot remove it.
    warden: Keeper,
}

impl<'p> Daemon<'p> {
    fn new(
        place: &'p SessionDirectory,
        session: SessionSpec,
        owner: Option<Owner>,
        process_ns: u64,
    ) -> Result<Daemon<'p>, DaemonError> {
        // Errors are ignored: with a low limit fewer ranks fit, and without a subreaper a killed keeper's orphans are
        // not reaped.
        let _ = process::raise_open_files();
        let _ = process::set_subreaper();
        let mut warden = Keeper::fork().map_err(system("creating a process"))?;
        // In its own kernel session the warden survives if this process group is killed.
        warden.begin_kernel_session(KernelSession::Own);
        warden.request(&Request::RemoveUnclaimed {
            directory: place.path().as_os_str().as_bytes().to_vec(),
            log: LOG.into(),
            last_words: CRASH_LOG.into(),
        });
        // A new socket has room for the requests, so an error means that the warden has ended; the warden has reported
        // the reason.
        if let Err(error) = warden.flush() {
            let mut events = Vec::new();
            let _ = warden.receive(&mut events);
            let said = events.into_iter().find_map(|event| match event {
                KeeperEvent::Failed { problem } => {
                    Some(DaemonError::Reported(format!("a process of its own has failed: {}", in_words(&problem))))
                }
                _ => None,
            });
            return Err(said.unwrap_or_else(|| system("speaking to a process of our own")(error)));
        }
        let born = Born { process_ns, bootstrap_ns: monotonic_ns() };
        wireup_os::c_library::keep_freed_memory();
        let mut agent = AgentDriver::new(AgentConfig::new(AgentId(0), session, born), None)?;
        agent.begin_standing();
        let reactor = agent.reactor();
        let signals = SignalFd::new(&[SIGHUP, SIGINT, SIGTERM]).map_err(system("making a signal descriptor"))?;
        let watch = system("watching descriptors");
        reactor.add(&signals, SIGNALS.pack(), Interest::READABLE).map_err(&watch)?;
        if let Some(owner) = &owner {
            reactor.add(owner, OWNER.pack(), Interest::READABLE).map_err(&watch)?;
        }
        let listener = local::listen(&place.inside(SOCKET), BACKLOG).map_err(system("listening for launchers"))?;
        let callers = Callers::new(listener, LISTENER, reactor).map_err(&watch)?;
        Ok(Daemon { place, agent, callers, signals, owner, warden })
    }

    fn run(mut self) -> Result<(), DaemonError> {
        let result = self.turns();
        // New launchers must not connect to a session that is ending.
        let _ = std::fs::remove_file(self.place.inside(SOCKET));
        self.agent.end();
        match &result {
            Ok(()) => {
                self.place.remove();
                let _ = self.warden.close();
            }
            Err(error) => {
                eprintln!("{error}");
                // The warden must run until this process has exited, and then removes the directory.
                std::mem::forget(self.warden);
            }
        }
        result
    }

    fn turns(&mut self) -> Result<(), DaemonError> {
        self.agent.settle();
        while !self.agent.has_left() {
            let deadlines = [self.agent.deadline_ns(), self.callers.deadline_ns()];
            let until_ns = deadlines.into_iter().flatten().min();
            let events = self.agent.wait(until_ns).map_err(system("waiting for events"))?;
            for event in events {
                self.on_event(event);
            }
            self.agent.on_tick();
            self.callers.on_tick(monotonic_ns(), self.agent.reactor());
            self.agent.settle();
        }
        Ok(())
    }

    fn on_event(&mut self, event: Event) {
        match Token::unpack(event.token) {
            Some(SIGNALS) => {
                while let Some(signal) = self.signals.read() {
                    self.end(format!("the session's process received signal {signal}"));
                }
            }
            Some(OWNER) => self.on_owner_gone(),
            Some(LISTENER) => {
                let callers = self.callers.on_listener(monotonic_ns(), self.agent.reactor());
                callers.into_iter().for_each(|caller| self.take_in(caller));
            }
            Some(Token::Caller(number)) => {
                let caller = self.callers.on_guest(number, self.agent.reactor());
                caller.into_iter().for_each(|caller| self.take_in(caller));
            }
            Some(token) => self.agent.on_event(token, event),
            None => {}
        }
    }

    fn take_in(&mut self, caller: Caller) {
        // If the socket cannot be watched, the socket is dropped and so closed.
        let _ = self.agent.adopt_launcher(caller.socket, caller.early);
    }

    fn on_owner_gone(&mut self) {
        if let Some(owner) = self.owner.take() {
            let _ = self.agent.reactor().remove(&owner);
            self.end(format!("the login that started it (process {}) has ended", owner.pid()));
        }
    }

    fn end(&mut self, reason: String) {
        self.agent.handle(Input::EndSession { reason });
    }
}

/// A process whose end is awaited: the descriptor `fd` becomes readable when the process has ended.
#[derive(Debug)]
pub struct Owner {
    pid: u32,
    fd: OwnedFd,
}

impl Owner {
    /// The owner of sessions that this process starts. `allocation`: the variable (`NAME=VALUE`) of the allocation in
    /// which this process runs. `None`: there is no process to watch (only a container's first process, or a kernel
    /// before 5.3).
    pub fn of_caller(allocation: Option<&str>) -> Option<Owner> {
        let own = process::own_pid();
        // If no ancestor has the variable, the allocation was made for this same process.
        let allocated = allocation.and_then(|variable| process::eldest_with(variable.as_bytes()).or(process::parent()));
        let candidates = [allocated, process::session_leader(), process::eldest_of_session(), process::parent()];
        // The machine's first process does not belong to a login.
        let mut others = candidates.into_iter().flatten().filter(|&pid| pid != own && pid > 1);
        others.find_map(|pid| Some(Owner { pid, fd: process::open_pid(pid).ok()? }))
    }

    /// This process as the owner of a session whose agent it forks.
    pub fn this_process() -> io::Result<Owner> {
        let pid = process::own_pid();
        let by_pipe = |_| {
            let (reader, writer) = files::pipe()?;
            // The pipe's write end stays open until this process exits; processes that it forks or starts close their
            // copies.
            mem::forget(writer);
            Ok(reader)
        };
        // `pidfd_open` fails before Linux 5.3, or under a container's filter that does not know the call.
        process::open_pid(pid).or_else(by_pipe).map(|fd| Owner { pid, fd })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }
}

impl AsFd for Owner {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

const FILE: &str = "facts";

/// The options given to `wireup up`, stored in the session's directory for later commands; agents do not need them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Facts {
    /// Whether the user stated the number of slots.
    pub slots_stated: bool,
    /// Limits on slots that `--oversubscribe` does not lift, by agent.
    pub slots_max: Vec<Option<u32>>,
    /// Modules that are imported once for all ranks of a job on a node.
    pub preload: Vec<String>,
    /// Command of the remote shell, without the node's name.
    pub shell: String,
    /// Time that agents may take to start (ns).
    pub start_timeout_ns: u64,
    /// Pid of the process whose end also ends the session; `None`: there is no such process.
    pub owner: Option<u32>,
    /// Start of the session, in seconds since 1970.
    pub since_s: u64,
    /// The version of wireup that started the session.
    pub version: String,
}

impl Facts {
    pub fn write(&self, place: &SessionDirectory) -> io::Result<()> {
        std::fs::write(place.inside(FILE), peer::encode(self))
    }

    /// Reads the facts. Call it after the session has reported its version.
    ///
    /// # Errors
    /// The file cannot be read, or another version of wireup wrote it.
    pub fn read(place: &SessionDirectory) -> io::Result<Facts> {
        let bytes = std::fs::read(place.inside(FILE))?;
        peer::decode(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn the_end_of_the_owner_process_is_noticed() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let owner = Owner { pid: child.id(), fd: process::open_pid(child.id()).unwrap() };
        let gone = |owner: &Owner| wireup_os::socket::wait(owner, true, false, Some(Duration::ZERO)).unwrap();
        assert!(!gone(&owner));
        child.kill().unwrap();
        assert!(wireup_os::socket::wait(&owner, true, false, None).unwrap());
        child.wait().unwrap();
        assert!(gone(&owner));
    }
}
