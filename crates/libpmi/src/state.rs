//! The process's place in its job, and its server.

use crate::codes::{Code, Result};
use alloc::vec::Vec;
use core::ffi::{c_char, c_int};
pub use wireup_capi::codes::given;
use wireup_capi::job::JobSlot;
pub use wireup_capi::job::With;
use wireup_capi::server::Socket;
use wireup_capi::start::{Start, find, join};
use wireup_capi::text::{self, variable};
use wireup_capi::{Failure, Server};
use wireup_client::join::{Join, Maxes};
use wireup_client::local::Local;
use wireup_wire::limits::{KEY_LEN_MAX, KVSNAME_LEN_MAX, VALUE_LEN_MAX};
use wireup_wire::pmi::{Dialect, Request};

/// The state of a split barrier: `PMI_Ibarrier` begins it and `PMI_Wait` ends it.
pub enum Barrier {
    Idle,
    UnderWay,
    /// Another barrier was called in between. A server ends barriers in order, so the split barrier has ended too.
    Over(Result),
}

pub struct Job {
    pub with: With,
    pub rank: u32,
    pub size: u32,
    pub spawned: bool,
    /// The name of the job's kvs; `None`: it was not fetched yet.
    pub kvsname: Option<Vec<u8>>,
    pub appnum: Option<c_int>,
    /// The longest kvs name, key and value, each including its zero byte.
    pub maxes: [c_int; 3],
    pub barrier: Barrier,
    /// The subversion of PMI-1 that the server implements.
    pub subversion: u32,
    /// The position of the iteration over all pairs.
    pub next_index: c_int,
}

static SLOT: JobSlot<Job> = JobSlot::new();

/// Runs `work` on the job, which must be initialised.
pub fn with_job<R>(work: impl FnOnce(&mut Job) -> Result<R>) -> Result<R> {
    SLOT.with(work)
}

/// The server's socket, for an abort.
pub fn socket() -> Option<Socket> {
    SLOT.socket()
}

pub fn is_initialised() -> bool {
    SLOT.is_initialised()
}

pub fn init() -> Result {
    SLOT.init(Job::join, on_fork)
}

extern "C" fn on_fork() {
    SLOT.on_fork();
}

pub fn finalize() -> Result {
    let mut job = SLOT.take()?;
    if let (Barrier::UnderWay, With::Server(server)) = (job.barrier, &mut job.with) {
        // A process cannot leave a barrier early. If the connection is broken, the finalize that follows reports it.
        let _ = server.end_fence();
    }
    SLOT.leave(job.with)
}

/// Whether this is Slurm's server. It treats everything that it reads at once as one line, and does not answer a second
/// line.
fn is_slurms() -> bool {
    let step_of = |job: &[u8]| job.iter().rposition(|byte| *byte == b'.').map(|dot| job[dot + 1..].to_vec());
    let step = variable("PMI_JOBID").and_then(|job| step_of(&job));
    step.is_some() && step == variable("SLURM_STEP_ID")
}

/// The name of a singleton's kvs.
const LOCAL_KVSNAME: &[u8] = b"singleton_kvs";

impl Job {
    fn join() -> Result<Job> {
        let new = |with, rank, size, spawned| Job {
            with,
            rank,
            size,
            spawned,
            kvsname: None,
            appnum: None,
            maxes: [KVSNAME_LEN_MAX, KEY_LEN_MAX, VALUE_LEN_MAX].map(|most| most as c_int),
            barrier: Barrier::Idle,
            subversion: 0,
            next_index: 0,
        };
        let (mut server, mut start) = match find(Dialect::Pmi1, |fd| SLOT.take_inherited(fd))? {
            Start::Singleton => return Ok(new(With::Singleton(Local::new()), 0, 1, false)),
            Start::With { server, join } => (server, join.wants_groups()),
        };
        SLOT.announce(&server);
        if is_slurms() {
            server.ask_one_at_a_time();
        }
        join(&mut server, &mut start)?;
        let Join { env, subversion, maxes: Maxes { kvsname, key, value }, .. } = start;
        let mut job = new(With::Server(server), env.rank, env.size, env.spawned);
        job.maxes = [kvsname, key, value].map(|most| c_int::try_from(most).unwrap_or(c_int::MAX));
        job.subversion = subversion;
        Ok(job)
    }

    /// The server; an error without one.
    pub fn server(&mut self) -> Result<&mut Server> {
        self.with.server()
    }

    /// The name of the job's kvs.
    pub fn kvsname(&mut self) -> Result<Vec<u8>> {
        if self.kvsname.is_none() {
            let name = match &mut self.with {
                With::Server(server) => server.question(&Request::GetMyKvsname, "kvsname")?.ok_or(Failure::Broken)?,
                With::Singleton(_) => LOCAL_KVSNAME.to_vec(),
            };
            self.kvsname = Some(name);
        }
        Ok(self.kvsname.clone().unwrap_or_default())
    }

    /// Gets a pair; `None` if there is none.
    pub fn get(&mut self, kvsname: &[u8], key: &[u8]) -> Result<Option<Vec<u8>>> {
        let server = match &mut self.with {
            With::Server(server) => server,
            With::Singleton(local) => return Ok(local.get(key).map(<[u8]>::to_vec)),
        };
        let request = Request::Get { kvsname: Some(kvsname), key, source: None };
        match server.question(&request, "value") {
            Ok(value) => Ok(value),
            Err(Failure::Refused) => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }
}

/// A word that can be sent in a PMI-1 line.
///
/// # Safety
/// As [`text::bytes`].
pub unsafe fn word<'a>(text: *const c_char, invalid: Code) -> Result<&'a [u8]> {
    // SAFETY: guaranteed by the caller.
    match unsafe { text::bytes(text) } {
        None | Some(b"") => Err(invalid),
        Some(word) if word.iter().any(|byte| b" \n\\".contains(byte)) => Err(invalid),
        Some(word) => Ok(word),
    }
}

/// Writes a number that a C caller asks for.
///
/// # Safety
/// `to` is null or may be written.
pub unsafe fn answer(to: *mut c_int, number: impl FnOnce(&mut Job) -> Result<c_int>) -> Result {
    with_job(|job| {
        given(to)?;
        let number = number(job)?;
        // SAFETY: guaranteed by the caller; it is not null.
        unsafe { to.write(number) };
        Ok(())
    })
}

/// Writes the whole text, or nothing.
///
/// # Safety
/// `to` is null or has room for `room` bytes.
pub unsafe fn write_whole(text: &[u8], to: *mut c_char, room: c_int) -> Result {
    given(to)?;
    if usize::try_from(room).is_ok_and(|room| text.len() < room) {
        // SAFETY: guaranteed by the caller.
        unsafe { text::write(text, to, room) };
        Ok(())
    } else {
        Err(Code::INVALID_LENGTH)
    }
}
