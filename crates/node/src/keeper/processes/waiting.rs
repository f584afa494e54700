//! A process that waits to be started, with its program (searched once for a batch), its streams and its limits.

use crate::keeper::protocol::{OutKind, Process, ProcessFds, Program, StdinKind};
use crate::keeper::staged::Redirected;
use rustix::process::Resource as KernelResource;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use wireup_os::spawn::{self, Failure, LOWEST_SOURCE, Limits, Session, Step, check_directory, find_program};
use wireup_os::{files, pty, socket};
use wireup_wire::job::{Limit, Resource};
use wireup_wire::peer::{SpawnError, SpawnStep};
use wireup_wire::pmi::SERVER_NAME;

/// A process to be started.
pub(super) struct Waiting {
    pub process: Process,
    pub program: Result<Rc<Prepared>, SpawnError>,
    pub umask: u32,
    pub limits: Rc<Limits>,
    /// Signals that the process receives as soon as it exists.
    pub signals: Vec<i32>,
    /// Streams of the process, if they are open already.
    pub streams: Option<Streams>,
}

/// Data of a process that has been created and has not executed its program yet.
pub(super) struct Start {
    pub program: Rc<Prepared>,
    pub spawn_ns: u64,
    pub fds: ProcessFds,
}

/// A program whose file has been found.
pub(super) struct Prepared {
    path: Vec<u8>,
    cwd: Vec<u8>,
    pub program: Rc<spawn::Program>,
}

pub(super) fn prepare(program: &Program, redirected: Option<&Redirected>) -> Result<Rc<Prepared>, SpawnError> {
    let name = program.argv.first().map_or(&b""[..], Vec::as_slice);
    let cwd = if program.cwd.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(&program.cwd)) };
    check_directory(cwd).map_err(|problem| error(SpawnStep::Cwd, cwd.as_os_str().as_bytes(), errno(&problem)))?;
    let search = program.env.iter().rev().find_map(|variable| variable.strip_prefix(b"PATH="));
    let directory = (!program.cwd.is_empty()).then_some(program.cwd.as_slice());
    if let Some(start) = redirected.and_then(|redirected| redirected.find(program, search, cwd)) {
        let prepared = spawn::Program::new(&start.file, &start.argv, directory, &start.env)
            .map_err(|_| error(SpawnStep::Exec, name, EINVAL))?;
        return Ok(Rc::new(Prepared { path: start.path, cwd: program.cwd.clone(), program: Rc::new(prepared) }));
    }
    let path = find_program(name, search, cwd).map_err(|problem| match problem {
        spawn::FindError::NotFound => error(SpawnStep::Find, name, problem.errno()),
        _ => error(SpawnStep::Exec, name, problem.errno()),
    })?;
    let env = redirected.and_then(|redirected| redirected.environment(program, &cwd.join(OsStr::from_bytes(&path))));
    let prepared = spawn::Program::new(&path, &program.argv, directory, env.as_ref().unwrap_or(&program.env))
        .map_err(|_| error(SpawnStep::Exec, name, EINVAL))?;
    Ok(Rc::new(Prepared { path, cwd: program.cwd.clone(), program: Rc::new(prepared) }))
}

impl Prepared {
    /// The error to report for a failed start.
    pub fn error(&self, failure: Failure) -> SpawnError {
        let (step, what): (SpawnStep, &[u8]) = match failure.step {
            Step::Group | Step::Clone => (SpawnStep::Fork, &self.path),
            Step::Stdio => (SpawnStep::Stdio, b"standard streams"),
            Step::Affinity => (SpawnStep::Fork, b"binding to cpus"),
            Step::Limit => (SpawnStep::Fork, b"resource limits"),
            Step::Directory => (SpawnStep::Cwd, &self.cwd),
            Step::Interpreter => (SpawnStep::Interpreter, &self.path),
            Step::Execute if failure.errno == ENOENT => (SpawnStep::Find, &self.path),
            Step::Execute => (SpawnStep::Exec, &self.path),
        };
        error(step, what, failure.errno)
    }
}

/// Limits for the processes of a batch. The keeper's own limits do not change, because it also starts processes of
/// other jobs, and server processes.
pub(super) fn limits_of(limits: &[Limit]) -> Limits {
    Limits::new(limits.iter().map(|limit| (kernel_resource(limit.resource), limit.soft)))
}

fn kernel_resource(resource: Resource) -> KernelResource {
    match resource {
        Resource::Nofile => KernelResource::Nofile,
        Resource::Core => KernelResource::Core,
        Resource::Stack => KernelResource::Stack,
        Resource::Memlock => KernelResource::Memlock,
        Resource::Data => KernelResource::Data,
        Resource::As => KernelResource::As,
        Resource::Fsize => KernelResource::Fsize,
        Resource::Cpu => KernelResource::Cpu,
    }
}

pub(super) const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();
const ENOENT: i32 = rustix::io::Errno::NOENT.raw_os_error();
/// The error of a process that was not started because its job ended before the start.
const ECANCELED: i32 = rustix::io::Errno::CANCELED.raw_os_error();

impl Waiting {
    /// Opens the streams of the process. `listening`: sockets for processes in the queue.
    pub fn streams(&mut self, listening: &mut VecDeque<OwnedFd>) -> Result<Streams, SpawnError> {
        if let Some(streams) = self.streams.take() {
            return Ok(streams);
        }
        let listening = if self.process.listens { listening.pop_front() } else { None };
        Streams::open(&self.process, listening).map_err(|problem| stdio_error(&problem))
    }

    /// The error to report if the process will not be started any more.
    pub fn cancelled(&self) -> SpawnError {
        let what = self.program.as_ref().map_or(&b""[..], |prepared| &prepared.path);
        error(SpawnStep::Fork, what, ECANCELED)
    }
}

pub(super) fn stdio_error(problem: &io::Error) -> SpawnError {
    error(SpawnStep::Stdio, b"standard streams", errno(problem))
}

pub(super) fn errno(problem: &io::Error) -> i32 {
    problem.raw_os_error().unwrap_or(EINVAL)
}

pub(super) fn error(step: SpawnStep, what: &[u8], errno: i32) -> SpawnError {
    SpawnError { step, what: String::from_utf8_lossy(what).into_owned(), errno }
}

/// The kernel session for a process: see the module `keeper` for the reasons. A controlling terminal needs a session of
/// its own.
pub(super) fn session(process: &Process) -> Session {
    match (process.pty, process.shares_session) {
        (Some(_), _) => Session::OwnWithTerminal,
        (None, true) => Session::Shared,
        (None, false) => Session::Own,
    }
}

/// Both ends of the streams of a process that is about to start. Dropping this closes the process's ends here.
pub(super) struct Streams {
    stdin: ChildEnd,
    stdout: ChildEnd,
    stderr: ChildEnd,
    pmi: Option<OwnedFd>,
    listening: Option<OwnedFd>,
    pub agent: ProcessFds,
}

enum ChildEnd {
    Own(OwnedFd),
    Null,
    /// The standard input of the keeper itself.
    Inherited,
    /// The terminal that is also the standard input of the process.
    AsStdin,
}

impl Streams {
    pub fn open(process: &Process, listening: Option<OwnedFd>) -> io::Result<Streams> {
        if let Some(socket) = &listening {
            // If the keeper has reserved a port for this process, other processes cannot have used the port until now.
            socket::offer_port(socket)?;
        }
        let mut agent = ProcessFds::default();
        let pmi = if process.pmi {
            let (near, far) = socket::pair()?;
            // The name tells wireup's own client that it is connected to wireup; otherwise it needs one more round
            // trip.
            let _ = socket::name(&near, &SERVER_NAME);
            agent.pmi = Some(nonblocking(near)?);
            Some(far)
        } else {
            None
        };
        if let Some((rows, columns)) = process.pty {
            let (master, slave) = pty::open(rows, columns)?;
            agent.pty = Some(nonblocking(master)?);
            let stdin = ChildEnd::Own(slave);
            return Ok(Streams { stdin, stdout: ChildEnd::AsStdin, stderr: ChildEnd::AsStdin, pmi, listening, agent });
        }
        let stdin = match &process.stdin {
            StdinKind::Null => ChildEnd::Null,
            StdinKind::Inherit => ChildEnd::Inherited,
            StdinKind::Bytes(bytes) => ChildEnd::Own(files::sealed_memory(bytes)?),
            StdinKind::Program => ChildEnd::Own(crate::sendable::program()?),
            StdinKind::Socket => {
                let (near, far) = socket::pair()?;
                agent.stdin = Some(nonblocking(near)?);
                ChildEnd::Own(far)
            }
            StdinKind::Pipe => {
                let (reader, writer) = files::pipe()?;
                agent.stdin = Some(nonblocking(writer)?);
                ChildEnd::Own(reader)
            }
        };
        let stdout = output(process.stdout, &mut agent.stdout)?;
        let stderr = output(process.stderr, &mut agent.stderr)?;
        Ok(Streams { stdin, stdout, stderr, pmi, listening, agent })
    }

    /// Standard input, output and error for the process.
    pub fn stdio<'a>(&'a self, null: &'a OwnedFd) -> [BorrowedFd<'a>; 3] {
        [&self.stdin, &self.stdout, &self.stderr].map(|end| self.resolve(end, null))
    }

    /// The process's PMI socket and its listening socket.
    pub fn sockets(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [&self.pmi, &self.listening].map(|socket| socket.as_ref().map(AsFd::as_fd))
    }

    fn resolve<'a>(&'a self, end: &'a ChildEnd, null: &'a OwnedFd) -> BorrowedFd<'a> {
        match end {
            ChildEnd::Own(fd) => fd.as_fd(),
            ChildEnd::AsStdin => self.resolve(&self.stdin, null),
            ChildEnd::Inherited => rustix::stdio::stdin(),
            ChildEnd::Null => null.as_fd(),
        }
    }
}

/// Closes all inherited descriptors except `kept` and standard input. Occupies the low numbers, so that no source
/// descriptor of a child has the number of a target.
pub fn settle_descriptors<'a>(kept: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<OwnedFd> {
    files::close_all_but(&kept.chain([rustix::stdio::stdin()]).collect::<Vec<_>>());
    loop {
        let null = files::null()?;
        if null.as_raw_fd() >= LOWEST_SOURCE {
            return Ok(null);
        }
        // The descriptor is never closed, so that its low number stays occupied.
        mem::forget(null);
    }
}

fn output(kind: OutKind, agent: &mut Option<OwnedFd>) -> io::Result<ChildEnd> {
    let (reader, writer) = match kind {
        OutKind::Null => return Ok(ChildEnd::Null),
        OutKind::Pipe => files::pipe()?,
        // If no pseudo-terminal can be opened (`/dev/pts` not mounted, `kernel.pty.max` reached), a pipe is used
        // instead.
        OutKind::Pty => pty::open_raw().or_else(|_| files::pipe())?,
    };
    *agent = Some(nonblocking(reader)?);
    Ok(ChildEnd::Own(writer))
}

fn nonblocking(fd: OwnedFd) -> io::Result<OwnedFd> {
    files::set_nonblocking(&fd, true)?;
    Ok(fd)
}
