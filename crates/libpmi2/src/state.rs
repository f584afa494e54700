//! The process's place in its job, and its server.

use crate::handles::Handles;
use alloc::vec::Vec;
use core::ffi::{c_char, c_int};
pub use wireup_capi::codes::given;
use wireup_capi::codes::{Code, Result};
use wireup_capi::mapping::Shared;
use wireup_capi::place::Place;
pub use wireup_capi::place::With;
use wireup_capi::socket::{Socket, variable};
use wireup_capi::start::{Start, find, join};
use wireup_capi::{Failure, Server, text};
use wireup_client::arena;
use wireup_client::collectives::Collectives;
use wireup_client::escape::halve;
use wireup_client::join::Join;
use wireup_client::local::Local;
use wireup_wire::limits::KEY_LEN_MAX;
use wireup_wire::pmi::{Dialect, ReplyFields, Request};

/// The result of an allgather, in shared memory.
pub type Values = arena::Values<Shared>;

pub struct Job {
    pub with: With,
    pub rank: u32,
    pub size: u32,
    pub appnum: c_int,
    pub spawned: bool,
    /// The server is Slurm's or ours: it answers in order and survives unknown commands.
    pub server_is_known: bool,
    /// The job's name, if it is known without asking.
    pub job_id: Option<Vec<u8>>,
    pub collectives: Collectives<Shared>,
    pub handles: Handles,
}

static PLACE: Place<Job> = Place::new();

/// Runs `work` on the job, which must be initialised.
pub fn with_job<R>(work: impl FnOnce(&mut Job) -> Result<R>) -> Result<R> {
    PLACE.with(work)
}

/// The server's socket, for an abort.
pub fn socket() -> Option<Socket> {
    PLACE.socket()
}

pub fn is_initialised() -> bool {
    PLACE.is_initialised()
}

pub fn init() -> Result {
    PLACE.init(Job::join, on_fork)
}

extern "C" fn on_fork() {
    PLACE.on_fork();
}

/// Leaves the job. Outstanding collectives are completed first, since a process cannot leave a fence early.
pub fn finalize() -> Result {
    let mut job = PLACE.take()?;
    job.finish_all();
    PLACE.leave(job.with)
}

impl Job {
    fn join() -> Result<Job> {
        let (server, start) = match find(Dialect::Pmi2, |fd| PLACE.take_inherited(fd))? {
            Start::Singleton => return Ok(Job::new(With::Singleton(Local::new()), 0, 1, false)),
            Start::With { server, join } => (server, join),
        };
        // Only Slurm and wireup set it.
        let job_id = variable("PMI_JOBID").filter(|name| !name.is_empty());
        let (mut server, mut start) = (server, start.job_id(job_id.clone().unwrap_or_default()));
        PLACE.announce(&server);
        join(&mut server, &mut start)?;
        let Join { env, appnum, is_own, .. } = start;
        if is_own {
            server.expect_descriptors();
        }
        let mut job = Job::new(With::Server(server), env.rank, env.size, is_own);
        (job.server_is_known, job.job_id) = (job_id.is_some(), job_id);
        (job.appnum, job.spawned) = (appnum.unwrap_or(-1), env.spawned);
        Ok(job)
    }

    pub fn new(with: With, rank: u32, size: u32, is_own: bool) -> Job {
        Job {
            with,
            rank,
            size,
            appnum: -1,
            spawned: false,
            server_is_known: false,
            job_id: None,
            collectives: Collectives::new(rank, is_own),
            handles: Handles::default(),
        }
    }

    /// The server; an error without one.
    pub fn server(&mut self) -> Result<&mut Server> {
        self.with.server()
    }

    /// Makes a request whose answer may be that there is no value.
    pub fn look_up(&mut self, request: &Request<'_>) -> Result<Option<Vec<u8>>> {
        let mut found = None;
        self.server()?.call(request, &mut |fields| {
            if !fields.get("found").is_some_and(|found| found.eq_ignore_ascii_case(b"false")) {
                found = Some(value(fields));
            }
        })?;
        Ok(found)
    }
}

/// The value in an answer, as it was put.
pub fn value(fields: &ReplyFields<'_>) -> Vec<u8> {
    let mut plain = Vec::new();
    halve(fields.get("value").unwrap_or_default(), &mut plain).to_vec()
}

/// A key from C.
///
/// # Safety
/// As [`text::bytes`].
pub unsafe fn key<'a>(key: *const c_char) -> Result<&'a [u8]> {
    // SAFETY: guaranteed by the caller.
    match unsafe { text::bytes(key) } {
        None | Some(b"") => Err(Code::INVALID_KEY),
        Some(key) if key.len() > KEY_LEN_MAX => Err(Code::INVALID_KEY_LENGTH),
        Some(key) => Ok(key),
    }
}

/// A text that must not be null.
///
/// # Safety
/// As [`text::bytes`].
pub unsafe fn required<'a>(text: *const c_char) -> Result<&'a [u8]> {
    // SAFETY: guaranteed by the caller.
    match unsafe { text::bytes(text) } {
        None => Err(Code::INVALID_ARG),
        Some(text) if text.len() > TEXT_LEN_MAX => Err(Code::INVALID_LENGTH),
        Some(text) => Ok(text),
    }
}

/// The longest name, port or word of a spawn: several of them, each `;` doubled, fit the six digits of a message's length.
pub const TEXT_LEN_MAX: usize = 64 << 10;

/// Whether the server refused the request, which is how a server without an extension answers it.
pub fn is_refusal(failure: Failure) -> bool {
    failure == Failure::Refused
}
