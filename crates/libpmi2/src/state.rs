//! The process's place in its job, and its server.

use crate::numbered::Own;
use crate::requests::Requests;
use alloc::vec::Vec;
use core::ffi::{c_char, c_int};
pub use wireup_capi::codes::given;
use wireup_capi::codes::{Code, Result};
use wireup_capi::local::Local;
use wireup_capi::place::Place;
pub use wireup_capi::place::With;
use wireup_capi::socket::{Socket, variable};
use wireup_capi::start::{Start, start};
use wireup_capi::{Failure, Server, ints, text};
use wireup_client::escape::halve;
use wireup_wire::limits::KEY_LEN_MAX;
use wireup_wire::pmi::{Dialect, ReplyFields, Request};

pub struct Job {
    pub with: With,
    pub rank: u32,
    pub size: u32,
    pub appnum: c_int,
    pub spawned: bool,
    /// Slurm or us: the server answers in order and survives commands that it does not know.
    pub server_is_known: bool,
    /// Our own server.
    pub own: Option<Own>,
    /// What the job is called, if that is known without asking.
    pub job_id: Option<Vec<u8>>,
    pub requests: Requests,
    /// Counts the keys of our own rings and allgathers; the same on all ranks.
    pub generation: usize,
}

/// The version of our own commands that this library speaks.
const EXTENSION: u32 = 1;

static PLACE: Place<Job> = Place::new();

/// Works on the job, which must be initialised.
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
    PLACE.init(Job::join)
}

/// Leaves. What is outstanding ends first: a server lets nobody go out of a fence.
pub fn finalize() -> Result {
    let mut job = PLACE.take()?;
    job.finish_all();
    PLACE.leave(job.with)
}

impl Job {
    fn join() -> Result<Job> {
        let new = |with, rank, size| {
            let (requests, server_is_known) = (Requests::default(), false);
            let (appnum, spawned, own, job_id, generation) = (-1, false, None, None, 0);
            Job { with, rank, size, appnum, spawned, server_is_known, own, job_id, requests, generation }
        };
        let (mut server, env) = match start(Dialect::Pmi2, |fd| PLACE.take_inherited(fd))? {
            Start::Alone => return Ok(new(With::Nobody(Local::new()), 0, 1)),
            Start::With { server, env, .. } => (server, env),
        };
        PLACE.announce(&server);
        // Slurm's server wants all three fields; MPICH's takes no empty ones.
        let job_id = variable("PMI_JOBID").filter(|name| !name.is_empty());
        let request = Request::FullInit { job_id: job_id.as_deref(), rank: Some(env.rank), threaded: false };
        let (mut rank, mut size, mut appnum, mut spawned, mut own) = (None, None, None, false, false);
        server.call(&request, &mut |fields| {
            rank = number(fields, "rank");
            size = number(fields, "size");
            appnum = number(fields, "appnum");
            spawned = fields.get("spawner-jobid").is_some();
            own = number(fields, "wireup") == Some(EXTENSION);
        })?;
        let (Some(rank), Some(size)) = (rank, size) else {
            return Err(Code::OTHER);
        };
        if own {
            server.expect_descriptors();
        }
        let mut job = new(With::Server(server), rank, size);
        (job.server_is_known, job.own) = (job_id.is_some(), own.then(Own::default));
        job.job_id = job_id;
        (job.appnum, job.spawned) = (appnum.unwrap_or(-1), spawned);
        Ok(job)
    }

    /// The server; what needs one fails without.
    pub fn server(&mut self) -> Result<&mut Server> {
        self.with.server()
    }

    /// Makes a request whose answer may say that there is nothing.
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

fn number<T: TryFrom<i64>>(fields: &ReplyFields<'_>, name: &str) -> Option<T> {
    fields.get(name).and_then(ints::parse)
}

/// An answer's value as it was put.
pub fn value(fields: &ReplyFields<'_>) -> Vec<u8> {
    let mut plain = Vec::new();
    halve(fields.get("value").unwrap_or_default(), &mut plain).to_vec()
}

/// A key from C.
///
/// # Safety
/// As [`text::bytes`].
pub unsafe fn key<'a>(key: *const c_char) -> Result<&'a [u8]> {
    // SAFETY: the caller says so.
    match unsafe { text::bytes(key) } {
        None | Some(b"") => Err(Code::INVALID_KEY),
        Some(key) if key.len() > KEY_LEN_MAX => Err(Code::INVALID_KEY_LENGTH),
        Some(key) => Ok(key),
    }
}

/// A text that must be there.
///
/// # Safety
/// As [`text::bytes`].
pub unsafe fn required<'a>(text: *const c_char) -> Result<&'a [u8]> {
    // SAFETY: the caller says so.
    match unsafe { text::bytes(text) } {
        None => Err(Code::INVALID_ARG),
        Some(text) if text.len() > TEXT_LEN_MAX => Err(Code::INVALID_LENGTH),
        Some(text) => Ok(text),
    }
}

/// Longest name, port or word of a spawn: several of them, each `;` doubled, fit the six digits of a message's length.
pub const TEXT_LEN_MAX: usize = 64 << 10;

/// A server that has no extension answers so to what it does not know.
pub fn is_refusal(failure: Failure) -> bool {
    failure == Failure::Refused
}
