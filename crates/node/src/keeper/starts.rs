//! The processes that a keeper has yet to start, with the signals that arrived before their start.

use super::limits;
use super::protocol::{Batch, Process, Program};
use super::redirected::Redirected;
use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::{ffi::OsStr, io};
use wireup_os::spawn::{self, EXTRA_TARGETS, Failure, Limits, Step, check_directory, find_program};
use wireup_wire::peer::{SpawnError, SpawnStep};

/// A process to be started.
pub(super) struct Waiting {
    pub process: Process,
    pub program: Result<Rc<Prepared>, SpawnError>,
    pub umask: u32,
    pub limits: Rc<Limits>,
    /// Signals to be sent as soon as the process exists.
    pub signals: Vec<i32>,
}

/// A program whose file has been found.
pub(super) struct Prepared {
    pub path: Vec<u8>,
    cwd: Vec<u8>,
    pub program: Rc<spawn::Program>,
}

/// Adds a batch to the queue. Each program is looked up once, not once per process.
pub(super) fn enqueue(batch: Batch, redirected: Option<&Redirected>, queue: &mut VecDeque<Waiting>) {
    let programs: Vec<_> = batch.programs.iter().map(|program| prepare(program, redirected)).collect();
    let limits = Rc::new(limits::of_children(&batch.limits));
    queue.extend(batch.processes.into_iter().map(|mut process| {
        if process.pmi {
            process.env.push(format!("PMI_FD={}", EXTRA_TARGETS[0]).into_bytes());
        }
        if process.listens {
            process.env.push(format!("WIREUP_LISTEN_FD={}", EXTRA_TARGETS[1]).into_bytes());
        }
        let missing = || Err(error(SpawnStep::Find, b"(no program)", EINVAL));
        let program = programs.get(usize::from(process.program)).cloned().unwrap_or_else(missing);
        Waiting { process, program, umask: batch.umask, limits: Rc::clone(&limits), signals: Vec::new() }
    }));
}

fn prepare(program: &Program, redirected: Option<&Redirected>) -> Result<Rc<Prepared>, SpawnError> {
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

const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();
const ENOENT: i32 = rustix::io::Errno::NOENT.raw_os_error();
/// The error of a process that was not started because its job ended first.
const ECANCELED: i32 = rustix::io::Errno::CANCELED.raw_os_error();

impl Waiting {
    /// The error to report if the process will not be started any more.
    pub fn cancelled(&self) -> SpawnError {
        let what = self.program.as_ref().map_or(&b""[..], |prepared| &prepared.path);
        error(SpawnStep::Fork, what, ECANCELED)
    }
}

pub(super) fn stdio_error(problem: &io::Error) -> SpawnError {
    error(SpawnStep::Stdio, b"standard streams", errno(problem))
}

fn errno(problem: &io::Error) -> i32 {
    problem.raw_os_error().unwrap_or(EINVAL)
}

fn error(step: SpawnStep, what: &[u8], errno: i32) -> SpawnError {
    SpawnError { step, what: String::from_utf8_lossy(what).into_owned(), errno }
}
