//! The PMIx server process of one job on this node: its socket, its standard error, its directory.
//!
//! The job's keeper holds the process, beside the ranks. The program is this one, so what is said over the socket never meets
//! another version of itself. The directory, for the library's sockets and shared memory, is made here and belongs to this
//! job alone; the keeper removes it when all of its processes are gone, whoever has ended them.

use super::outgoing::{Outgoing, WriteState};
use super::tail::{Stream, Tail};
use super::token::{Seat, Token};
use super::turn::Turn;
use crate::keeper::{Batch, OutKind, Process, ProcessFds, Program, SERVER_SLOT, StdinKind, cpus_of_ranks};
use bytes::Bytes;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use wireup_os::reactor::{Interest, Reactor};
use wireup_proto::io::{ExitStatus, Input, PmixPlan};
use wireup_wire::ids::JobId;
use wireup_wire::job::{Limit, Resource};
use wireup_wire::peer::{SpawnError, SpawnStep};
use wireup_wire::pmix::{Begin, ToServer, pack};

/// How much of its standard error is kept for a message: its last lines.
const ERROR_BYTES_MAX: usize = 4096;

/// Bytes of one read.
const READ_BYTES: usize = 256 << 10;

/// Nobody else may look into what it makes.
const UMASK: u32 = 0o077;

/// Longest place for directories: the library adds names of its own, and a socket's path has 108 bytes.
const BASE_LEN_MAX: usize = 32;

pub struct PmixServer {
    job: JobId,
    seat: Seat,
    pub directory: PathBuf,
    out: Outgoing,
    /// The reactor watches for room too.
    blocked: bool,
    /// It has closed its socket, and is not reaped yet.
    dying: bool,
    errors: Tail,
}

impl PmixServer {
    /// Its place, and the batch that starts it.
    pub fn prepare(plan: &PmixPlan, seat: Seat) -> Result<(PmixServer, Batch), SpawnError> {
        let failed = |step, what: String| {
            move |error: io::Error| SpawnError { step, what, errno: error.raw_os_error().unwrap_or(0) }
        };
        let directory = place(&base(std::env::var_os("TMPDIR")), plan);
        let program = std::env::current_exe().map_err(failed(SpawnStep::Find, "wireup's own program".into()))?;
        let ranks = plan.begin.cpus.len();
        let cpus =
            cpus_of_ranks(plan.bind_to, ranks).map_err(failed(SpawnStep::Fork, "the cpus to bind ranks to".into()))?;
        let begin = Begin {
            oversubscribed: plan.ranks_here as usize > allowed_cpus(),
            dir: directory.to_string_lossy().into_owned(),
            cpus,
            ..plan.begin.clone()
        };
        let mut out = Outgoing::default();
        out.push(pack(&ToServer::Begin(begin)));
        let open_files = wireup_os::process::raise_open_files().map_or(1024, |limits| limits.soft_now);
        let batch = Batch {
            programs: vec![Program {
                argv: vec![program.into_os_string().into_vec(), b"pmix-server".to_vec()],
                cwd: b"/".to_vec(),
                env: plan.env.clone(),
            }],
            processes: vec![Process { stdin: StdinKind::Socket, stdout: OutKind::Null, ..Process::new(SERVER_SLOT) }],
            umask: UMASK,
            limits: vec![Limit { resource: Resource::Nofile, soft: open_files }],
        };
        let server = PmixServer {
            job: plan.job,
            seat,
            directory,
            out,
            blocked: false,
            dying: false,
            errors: Tail::new(ERROR_BYTES_MAX),
        };
        Ok((server, batch))
    }

    /// To be called when somebody is there to remove it, whatever happens.
    pub fn make_directory(&self) -> Result<(), SpawnError> {
        make(&self.directory).map_err(|error| SpawnError {
            step: SpawnStep::Cwd,
            what: format!("the directory {}", self.directory.display()),
            errno: error.raw_os_error().unwrap_or(0),
        })
    }

    /// It runs.
    pub fn adopt(&mut self, fds: ProcessFds, reactor: &Reactor) {
        self.errors.follow(Stream::watched(fds.stderr, Token::PmixError(self.seat).pack(), reactor));
        self.out.fd =
            fds.stdin.filter(|fd| reactor.add(fd, Token::PmixServer(self.seat).pack(), Interest::READABLE).is_ok());
        self.flush(reactor);
    }

    pub fn send(&mut self, bytes: Bytes, reactor: &Reactor) {
        if !self.out.write_now(bytes, Vec::new()) {
            self.flush(reactor);
        }
    }

    pub fn flush(&mut self, reactor: &Reactor) {
        let state = self.out.flush().state;
        let Some(fd) = &self.out.fd else { return };
        // A process that is gone is told of by the keeper.
        let blocked = state == WriteState::Full;
        if blocked != std::mem::replace(&mut self.blocked, blocked) {
            let interest = if blocked { Interest::BOTH } else { Interest::READABLE };
            let _ = reactor.modify(fd, Token::PmixServer(self.seat).pack(), interest);
        }
    }

    pub fn is_dying(&self) -> bool {
        self.dying
    }

    /// It has said something. Returns false when nothing more will come.
    pub fn on_bytes(&mut self, turn: &mut Turn<'_>) -> bool {
        let Some(fd) = &self.out.fd else { return false };
        let length = turn.buffer.len().min(READ_BYTES);
        match rustix::io::read(fd, &mut turn.buffer[..length]) {
            Ok(read @ 1..) => {
                let bytes = Bytes::copy_from_slice(&turn.buffer[..read]);
                turn.inputs.push(Input::PmixBytes { job: self.job, bytes });
                true
            }
            Err(rustix::io::Errno::INTR) => true,
            Err(rustix::io::Errno::AGAIN) => false,
            Ok(0) | Err(_) => {
                let _ = turn.reactor.remove(fd);
                self.out = Outgoing::vanished();
                self.dying = true;
                false
            }
        }
    }

    pub fn on_error_text(&mut self, reactor: &Reactor) {
        self.errors.read(reactor, |_| ());
    }

    /// It was reaped: what it had said comes first.
    pub fn on_exited(&mut self, status: ExitStatus, turn: &mut Turn<'_>) {
        while self.on_bytes(turn) {}
        self.on_error_text(turn.reactor);
        self.errors.close(turn.reactor);
        if let Some(fd) = self.out.fd.take() {
            let _ = turn.reactor.remove(&fd);
        }
        self.out = Outgoing::vanished();
        self.dying = false;
        turn.inputs.push(Input::PmixGone { job: self.job, status, stderr: self.errors.text() });
    }

    /// Its keeper is gone: nobody else removes the directory.
    pub fn remove_directory(&self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn allowed_cpus() -> usize {
    wireup_os::bind::allowed().map_or(1, |cpus| cpus.len())
}

/// Where shared memory is kept: what the library shares with its clients are files, which a disk makes slow to remove (20 ms at
/// the end of a job, measured).
const SHARED_MEMORY: &str = "/dev/shm";

/// Where directories are made: `TMPDIR` if that is short enough and there, else in memory, else `/tmp`. It may have come from
/// another machine with the environment: remote shells pass such variables on, containers too.
fn base(tmpdir: Option<OsString>) -> PathBuf {
    let fits = |path: &OsString| {
        path.len() <= BASE_LEN_MAX && path.as_bytes().starts_with(b"/") && is_ours_to_use(Path::new(path))
    };
    let usual = || if is_ours_to_use(Path::new(SHARED_MEMORY)) { SHARED_MEMORY } else { "/tmp" };
    PathBuf::from(tmpdir.filter(fits).unwrap_or_else(|| usual().into()))
}

fn is_ours_to_use(directory: &Path) -> bool {
    use rustix::fs::Access;
    directory.is_dir() && rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

/// Where a job's server has its directory: the namespace has random digits in it.
fn place(base: &Path, plan: &PmixPlan) -> PathBuf {
    let (user, node) = (rustix::process::geteuid().as_raw(), plan.begin.node);
    let session = plan.begin.nspace.strip_prefix("wireup-").unwrap_or(&plan.begin.nspace);
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let session: String = session.chars().map(plain).take(24).collect();
    base.join(format!("wireup-{user}-{session}-{}-{node}", plan.job))
}

/// Makes a directory that was not there before, for this user alone.
fn make(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use wireup_wire::job::BindTo;

    #[test]
    fn a_directory_is_new_and_private() {
        let base = std::env::temp_dir().join(format!("wireup-pmix-{}", std::process::id()));
        std::fs::create_dir_all(&base).unwrap();
        let begin = Begin {
            nspace: "wireup-12-ab/../c".into(),
            nodes: Vec::new(),
            node: wireup_wire::ids::NodeId(3),
            blocks: Vec::new(),
            apps: Vec::new(),
            cpus: Vec::new(),
            dir: String::new(),
            library: None,
            shared: false,
            oversubscribed: false,
        };
        let plan = PmixPlan { job: JobId(1), begin, bind_to: BindTo::None, ranks_here: 1, env: Vec::new() };
        let path = place(&base, &plan);
        let user = rustix::process::geteuid().as_raw();
        assert_eq!(path, base.join(format!("wireup-{user}-12-ab----c-1-3")));
        make(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        let again = make(&path).map_err(|error| error.kind());
        assert_eq!(again, Err(io::ErrorKind::AlreadyExists), "somebody else's is never used");
        std::fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_place_that_is_long_or_not_there_is_not_used() {
        let usual = if is_ours_to_use(Path::new(SHARED_MEMORY)) { SHARED_MEMORY } else { "/tmp" };
        assert_eq!(base(None), Path::new(usual));
        assert_eq!(base(Some("/tmp".into())), Path::new("/tmp"));
        assert_eq!(base(Some("/scratch/of/another/machine".into())), Path::new(usual));
        assert_eq!(base(Some("relative".into())), Path::new(usual));
        assert_eq!(base(Some("/very/long/way/to/a/temporary/directory".into())), Path::new(usual));
    }
}
