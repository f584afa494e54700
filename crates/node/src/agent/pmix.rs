//! Drives the PMIx server process of one job on this node: its socket and its standard error.
//!
//! The process is a child of the job's keeper, as the ranks are. It runs this same program, so both ends of the socket
//! always have the same version.
//!
//! A standby server is started before its job is known. Most of the time that such a process needs until ranks can
//! start is spent on opening the library, which this process has done when the next job of the family comes.
//!
//! ```text
//!   planned ── start ──► started ── Open ──► opening ── Opened ──► a job that would have started the same one: Begin
//!                           └───────────────────┴──── it has ended, or is not wanted: its keeper kills the rest
//! ```
//!
//! Without this server, `PMIx_Spawn` of one child takes 1.28 times as long until the child has initialised PMIx (1.21
//! to 1.34, 17.8 instead of 14.1 ms; 40 interleaved pairs of jobs with six calls each on 2 CPUs, medians with a 95 %
//! interval). `MPI_Comm_spawn` of Open MPI 5, which sleeps for a second, takes as long as with this server (1.003).
//!
//! The process belongs to a keeper without a job. Its messages are not read before a job could use it.

use super::directory::Directory;
use super::outgoing::{Outgoing, WriteState};
use super::tail::{Stream, Tail};
use super::token::{JobSlot, Token};
use super::turn::Turn;
use crate::binding::cpus_of_ranks;
use crate::keeper::{
    Batch, Keeper, KeeperEvent, OutKind, Process, ProcessFds, Program, Request, SERVER_SLOT, STANDBY_SLOT, StdinKind,
};
use crate::remedy::{spawn_error, unbound};
use bytes::Bytes;
use rustix::io::{Errno, retry_on_intr};
use std::io;
use std::os::unix::ffi::OsStringExt;
use wireup_os::reactor::{Interest, Reactor};
use wireup_os::{bind, files};
use wireup_proto::io::{ExitStatus, JobEvent, KernelSession, PmixEnd, PmixPlan};
use wireup_wire::ids::JobId;
use wireup_wire::job::{Limit, Resource};
use wireup_wire::peer::{SpawnError, SpawnStep};
use wireup_wire::pmix::{Begin, FromServer, Open, ToServer, pack};
use wireup_wire::signal::SIGKILL;

/// Most bytes of the server's standard error that are kept for a message: the last lines.
const ERROR_BYTES_MAX: usize = 4096;

/// Most bytes per read from the server's socket.
const READ_BYTES: usize = 256 << 10;

pub struct PmixServer {
    job: JobId,
    slot: JobSlot,
    /// The slot by which the keeper identifies the server process.
    pub process: u32,
    pub directory: Directory,
    /// A PMIx server for the next job of the family, to be started after the ranks of this job were started.
    pub next: Option<StandbyServer>,
    out: Outgoing,
    /// Whether the server has closed its socket and has not been reaped yet.
    pub is_dying: bool,
    errors: Tail,
    server_log: ServerLog,
}

impl PmixServer {
    /// The state of a new server, and the batch with which a keeper starts it.
    pub fn prepare(plan: &PmixPlan, slot: JobSlot) -> Result<(PmixServer, Batch), SpawnError> {
        let batch = Opening::new(plan).batch(SERVER_SLOT);
        let directory = Directory::new().map_err(|error| unnamed(&error))?;
        Ok((PmixServer::new(plan, slot, SERVER_SLOT, directory)?, batch))
    }

    /// Gives the job a server process that was started before the job was known.
    pub fn with(
        standby: StandbyServer,
        plan: &PmixPlan,
        slot: JobSlot,
        reactor: &Reactor,
    ) -> Result<PmixServer, SpawnError> {
        let mut server = PmixServer::new(plan, slot, STANDBY_SLOT, standby.directory)?;
        server.adopt(standby.fds, reactor);
        Ok(server)
    }

    fn new(plan: &PmixPlan, slot: JobSlot, process: u32, directory: Directory) -> Result<PmixServer, SpawnError> {
        let ranks = plan.begin.cpus.len();
        let cpus = cpus_of_ranks(&plan.binding, ranks).map_err(|error| unbound(&error))?;
        let begin = Begin {
            oversubscribed: plan.ranks_here as usize > bind::allowed().map_or(1, |cpus| cpus.len()),
            dir: directory.name(),
            cpus,
            ..plan.begin.clone()
        };
        let mut out = Outgoing::default();
        out.push(pack(&ToServer::Begin(begin)));
        Ok(PmixServer {
            job: plan.job,
            slot,
            process,
            directory,
            next: StandbyServer::like(plan).ok(),
            out,
            is_dying: false,
            errors: Tail::new(ERROR_BYTES_MAX),
            server_log: ServerLog::default(),
        })
    }

    /// The server process has started: takes over its descriptors.
    pub fn adopt(&mut self, fds: ProcessFds, reactor: &Reactor) {
        self.errors.follow(Stream::watched(fds.stderr, Token::PmixError(self.slot).pack(), reactor));
        if let Some(fd) = fds.stdin {
            // A socket that cannot be watched is closed, which ends the server.
            let _ = self.out.adopt(fd, Interest::READABLE, Token::PmixServer(self.slot), reactor);
        }
        self.flush(reactor);
    }

    pub fn send(&mut self, bytes: Bytes, reactor: &Reactor) {
        self.out.push(bytes);
        self.flush(reactor);
    }

    pub fn flush(&mut self, reactor: &Reactor) {
        // A write that fails is ignored: if the server process is gone, the keeper reports that.
        let is_full = self.out.flush().state == WriteState::Full;
        let wanted = if is_full { Interest::BOTH } else { Interest::READABLE };
        self.out.watch(wanted, Token::PmixServer(self.slot), reactor);
    }

    /// Reads once from the server's socket. Returns `false` when nothing more is available now.
    pub fn on_bytes(&mut self, turn: &mut Turn<'_>) -> bool {
        let Some(fd) = &self.out.fd else { return false };
        let length = turn.buffer.len().min(READ_BYTES);
        match rustix::io::read(fd, &mut turn.buffer[..length]) {
            Ok(read @ 1..) => {
                let bytes = Bytes::copy_from_slice(&turn.buffer[..read]);
                turn.push_event(self.job, JobEvent::PmixBytes { bytes });
                true
            }
            Err(rustix::io::Errno::INTR) => true,
            Err(rustix::io::Errno::AGAIN) => false,
            Ok(0) | Err(_) => {
                self.out.vanish(turn.reactor);
                self.is_dying = true;
                false
            }
        }
    }

    /// The server has written to its standard error; whole lines are passed on to the user.
    pub fn on_error_text(&mut self, turn: &mut Turn<'_>) {
        let PmixServer { errors, server_log, .. } = self;
        errors.read(turn.reactor, |piece| server_log.push(piece));
        self.tell(false, turn);
    }

    fn tell(&mut self, is_end: bool, turn: &mut Turn<'_>) {
        if let Some(text) = self.server_log.take_lines(is_end) {
            turn.push_event(self.job, JobEvent::PmixSaid { text });
        }
    }

    /// The keeper has reaped the server. The server's last output is processed before its exit is reported.
    pub fn on_exited(&mut self, status: ExitStatus, turn: &mut Turn<'_>) {
        while self.on_bytes(turn) {}
        self.on_error_text(turn);
        self.tell(true, turn);
        self.errors.close(turn.reactor);
        self.out.vanish(turn.reactor);
        self.is_dying = false;
        let no_room = self.directory.path().parent().and_then(files::lacking_room);
        let end = Ok(PmixEnd { status, stderr: self.errors.text(), no_room });
        turn.push_event(self.job, JobEvent::PmixGone { end });
    }
}

fn unnamed(error: &std::io::Error) -> SpawnError {
    spawn_error(SpawnStep::Cwd, "a random name for the PMIx server's directory", error)
}

/// File mode mask of the server: other users must not read its files.
const UMASK: u32 = 0o077;

/// How a PMIx server process is started, whichever job it serves: a job can use a server that was started for another
/// one if both descriptions are equal.
#[derive(Clone, PartialEq, Eq)]
pub struct Opening {
    env: Vec<Vec<u8>>,
    library: Option<String>,
    /// Name of this node.
    host: String,
    /// Whether other nodes share this machine.
    shared: bool,
}

impl Opening {
    pub fn new(plan: &PmixPlan) -> Opening {
        let host = plan.begin.nodes.get(plan.begin.node.index()).cloned().unwrap_or_default();
        Opening { env: plan.env.clone(), library: plan.begin.library.clone(), host, shared: plan.begin.shared }
    }

    /// The message that makes a server process open libpmix before its job is known.
    pub fn message(&self, directory: &Directory) -> Open {
        Open { dir: directory.name(), library: self.library.clone(), host: self.host.clone() }
    }

    /// The batch with which a keeper starts the server process in this slot.
    pub fn batch(&self, slot: u32) -> Batch {
        let program = wireup_os::files::path_of_own_program();
        let open_files = wireup_os::process::raise_open_files().map_or(1024, |limits| limits.soft_now);
        Batch {
            programs: vec![Program {
                argv: vec![program.into_os_string().into_vec(), b"pmix-server".to_vec()],
                cwd: b"/".to_vec(),
                env: self.env.clone(),
            }],
            processes: vec![Process {
                stdin: StdinKind::Socket,
                stdout: OutKind::Null,
                shares_session: !self.shared,
                ..Process::new(slot)
            }],
            umask: UMASK,
            limits: vec![Limit { resource: Resource::Nofile, soft: open_files }],
            staged: None,
            prefetch: Vec::new(),
            preload: None,
        }
    }
}

pub struct StandbyServer {
    opening: Opening,
    kernel_session: KernelSession,
    pub(super) directory: Directory,
    /// The process's descriptors; none before it has started, and none after `dismiss`.
    pub(super) fds: ProcessFds,
}

impl StandbyServer {
    /// A server for a later job like the one of `plan`; its process is not started yet.
    pub fn like(plan: &PmixPlan) -> io::Result<StandbyServer> {
        Ok(StandbyServer {
            opening: Opening::new(plan),
            kernel_session: plan.kernel_session,
            directory: Directory::of_standby()?,
            fds: ProcessFds::default(),
        })
    }

    /// The kernel session of the jobs that the server may serve.
    pub fn kernel_session(&self) -> KernelSession {
        self.kernel_session
    }

    #[cfg(test)]
    pub fn directory(&self) -> std::path::PathBuf {
        self.directory.path().to_owned()
    }

    /// Makes the server's directory, and has the server started by a keeper without a job. `false`: the server will not
    /// start; the keeper may be gone.
    pub fn start(&mut self, keeper: &mut Keeper) -> bool {
        let batch = self.opening.batch(STANDBY_SLOT);
        keeper.begin_kernel_session(self.kernel_session);
        // The removal is requested before the directory exists, because this agent could be killed at any moment.
        keeper.request(&Request::RemoveAtEnd { directory: self.directory.bytes() });
        if keeper.flush().is_err() || self.directory.make().is_err() {
            return false;
        }
        keeper.request(&Request::Spawn(batch));
        keeper.flush().is_ok()
    }

    /// Handles a report of the server's keeper: when the server has started, it gets the message to open libpmix.
    /// `false`: the server cannot be used.
    pub fn on_event(&mut self, event: KeeperEvent) -> bool {
        let KeeperEvent::Started { slot: STANDBY_SLOT, fds, .. } = event else { return false };
        self.fds = fds;
        let open = pack(&ToServer::Open(self.opening.message(&self.directory)));
        // The message is the first one on the socket, so there is room for it.
        let sent = self.fds.stdin.as_ref().map(|socket| retry_on_intr(|| rustix::io::write(socket, &open)));
        sent == Some(Ok(open.len()))
    }

    /// Whether a job that needs a server with the opening `wanted` can use this one. A server that has not opened its
    /// library yet may never do so. Call it once, because it reads the server's message.
    pub fn serves(&self, wanted: &Opening) -> bool {
        self.opening == *wanted && self.has_opened()
    }

    /// Whether the server has reported that its library is open, has sent nothing else, and still listens.
    fn has_opened(&self) -> bool {
        let Some(socket) = &self.fds.stdin else { return false };
        let opened = pack(&FromServer::Opened);
        let mut said = vec![0; opened.len()];
        rustix::io::read(socket, &mut said) == Ok(opened.len())
            && said == opened
            && rustix::io::read(socket, &mut said) == Err(Errno::AGAIN)
    }

    /// The request by which the keeper kills the server; the keeper removes the server's directory later.
    pub fn dismiss(&mut self) -> Request {
        self.fds = ProcessFds::default();
        Request::Signal { slot: Some(STANDBY_SLOT), signal: SIGKILL }
    }
}

/// Most bytes of one server's output that are passed on. Chosen: a hundred lines; a library that repeats a message
/// would flood the terminal.
const BYTES_MAX: usize = 8 << 10;

/// Text that is passed on in place of output beyond [`BYTES_MAX`].
const MORE: &str = "(further output of this process is not shown)\n";

/// Limits the text that a PMIx server process writes for the user, and divides it into whole lines.
struct ServerLog {
    /// Bytes of the server's output that were not passed on yet.
    bytes: Vec<u8>,
    /// Number of bytes that may still be passed on.
    left: usize,
    /// Whether output was left out.
    is_cut: bool,
    /// Whether `MORE` was passed on.
    is_told: bool,
}

impl Default for ServerLog {
    fn default() -> ServerLog {
        ServerLog { bytes: Vec::new(), left: BYTES_MAX, is_cut: false, is_told: false }
    }
}

impl ServerLog {
    pub fn push(&mut self, piece: &[u8]) {
        let room = self.left - self.bytes.len();
        self.bytes.extend_from_slice(&piece[..piece.len().min(room)]);
        self.is_cut |= piece.len() > room;
    }

    /// Takes the whole lines that were not passed on yet; at the output's end or limit, also an incomplete last line.
    pub fn take_lines(&mut self, is_end: bool) -> Option<String> {
        let whole = self.bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let end = if is_end || self.is_cut { self.bytes.len() } else { whole };
        let mut text = String::from_utf8_lossy(&self.bytes[..end]).into_owned();
        self.bytes.drain(..end);
        self.left -= end;
        if self.is_cut && !std::mem::replace(&mut self.is_told, true) {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text += MORE;
        }
        (!text.is_empty()).then_some(text)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use wireup_proto::io::KernelSession;
    use wireup_wire::ids::{AgentId, NodeId};
    use wireup_wire::job::Binding;

    /// The plan of a job with this name, on its node 3.
    pub fn plan(nspace: &str) -> PmixPlan {
        let begin = Begin {
            nspace: nspace.into(),
            nodes: Vec::new(),
            node: NodeId(3),
            blocks: Vec::new(),
            apps: Vec::new(),
            cpus: Vec::new(),
            dir: String::new(),
            library: None,
            shared: false,
            oversubscribed: false,
            has_endpoints: false,
            agent: AgentId(3),
            universe: None,
            parent: None,
        };
        PmixPlan {
            job: JobId(1),
            begin,
            binding: Binding::NONE,
            ranks_here: 1,
            kernel_session: KernelSession::Agents,
            env: Vec::new(),
        }
    }

    fn with_socket() -> (StandbyServer, OwnedFd) {
        let (ours, theirs) = wireup_os::socket::pair().unwrap();
        wireup_os::files::set_nonblocking(&ours, true).unwrap();
        let mut standby = StandbyServer::like(&plan("standby")).unwrap();
        standby.fds.stdin = Some(ours);
        (standby, theirs)
    }

    #[test]
    fn a_server_is_used_if_it_has_opened_the_library_that_the_job_wants() {
        let wanted = Opening::new(&plan("later"));
        let opened = pack(&FromServer::Opened);
        let (standby, theirs) = with_socket();
        assert!(!standby.serves(&wanted), "it has not opened it yet");
        rustix::io::write(&theirs, &opened).unwrap();
        let mut other = plan("later");
        other.begin.library = Some("/another".into());
        assert!(!standby.serves(&Opening::new(&other)));
        let other = PmixPlan { env: vec![b"PMIX_MCA_a=1".to_vec()], ..plan("later") };
        assert!(!standby.serves(&Opening::new(&other)));
        assert!(standby.serves(&wanted));
    }

    #[test]
    fn a_server_that_has_ended_or_says_something_else_is_not_used() {
        let wanted = Opening::new(&plan("later"));
        let opened = pack(&FromServer::Opened);
        let (standby, theirs) = with_socket();
        rustix::io::write(&theirs, &opened).unwrap();
        drop(theirs);
        assert!(!standby.serves(&wanted));
        let (standby, theirs) = with_socket();
        rustix::io::write(&theirs, &pack(&FromServer::Failed { problem: "no library".into() })).unwrap();
        assert!(!standby.serves(&wanted));
        assert!(!StandbyServer::like(&plan("planned")).unwrap().serves(&wanted), "it has not started");
    }

    #[test]
    fn whole_lines_are_passed_on_and_the_rest_at_the_end() {
        let mut log = ServerLog::default();
        log.push(b"one\ntw");
        assert_eq!(log.take_lines(false).as_deref(), Some("one\n"));
        log.push(b"o\nthree");
        assert_eq!(log.take_lines(false).as_deref(), Some("two\n"));
        assert_eq!(log.take_lines(false), None);
        assert_eq!(log.take_lines(true).as_deref(), Some("three"));
    }

    #[test]
    fn a_flood_is_cut_once() {
        let mut log = ServerLog::default();
        let mut passed = String::new();
        for _ in 0..BYTES_MAX {
            log.push(b"again and again\n");
            passed.extend(log.take_lines(false));
        }
        passed.extend(log.take_lines(true));
        assert!(passed.ends_with(MORE) && passed.matches(MORE).count() == 1);
        assert!(passed.len() <= BYTES_MAX + MORE.len() + 1);
    }
}
