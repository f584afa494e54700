//! A process's place in its job and its conversation with any PMI-2 server, for blocking callers in Rust: it joins,
//! puts and gets, enters fences and allgathers, and publishes names.
//!
//! `addresses` is where ranks are reached, `endpoints` what is known of all ranks before they start, `ring` is the
//! exchange with both neighbours.
//!
//! Fences and allgathers are the engine's collectives, driven over the socket: started without a round trip, completed
//! when the caller waits.
//!
//! [`JobSlot`] is the one static of a library: the job that this process has joined, or none yet.
//!
//! ```text
//!            init                     leave
//!   none ───────────► Job { server } ───────────► none      (PMI_FD or PMI_PORT)
//!     └─────────────► Job { alone }  ───────────► none      (no launcher: rank 0 of 1)
//! ```
//!
//! A second `init` returns the result of the first one. The descriptor of `PMI_FD` is taken once and closed by `leave`.
//! A later `init` that finds the variable fails, since the descriptor number may now belong to the program.
//!
//! The connection belongs to the process that joined the job. In a forked child every call fails at once, whatever
//! another thread of the parent was doing at the time of the fork.

mod addresses;
mod endpoints;
mod ring;

pub use addresses::{ADDRESS_LEN_MAX, ADDRESS_NAME_LEN_MAX};
pub use endpoints::Endpoints;
pub use ring::Ring;
pub use wireup_client::local::Wish;
pub use wireup_wire::limits::NAME_LEN_MAX;

use crate::codes::{Code, Result};
use crate::mapping::Shared;
use crate::secondary_client::{self, NotJoined};
use crate::server::{Failure, Gone, Server, Socket};
use crate::start::{Start, find, join};
use crate::text::variable;
use crate::thread::{Lock, on_forked_child};
use alloc::vec::Vec;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use wireup_client::arena;
use wireup_client::collectives::{Collectives, SegmentError, Segments, Update};
use wireup_client::emulated::Gather;
use wireup_client::env::Env;
use wireup_client::escape::{doubled, halve};
use wireup_client::join::Join;
use wireup_client::local::Local;
use wireup_client::requests::{CollectiveKind, Id, Outstanding, Stage};
use wireup_wire::limits::{ALLGATHER_LEN_MAX, KEY_LEN_MAX, VALUE_LEN_MAX};
use wireup_wire::pmi::{Dialect, ReplyFields, Request};
use wireup_wire::shared::rows::Rows;

/// What answers the requests of this process: a server, or the process itself.
#[allow(clippy::large_enum_variant)] // There is one in a process.
pub enum With {
    Server(Server),
    /// There is no server: this process is rank 0 of 1.
    Singleton(Local),
}

impl With {
    /// The server; an error without one.
    pub fn server(&mut self) -> Result<&mut Server> {
        match self {
            With::Server(server) => Ok(server),
            With::Singleton(_) => Err(Code::FAIL),
        }
    }
}

/// `J` is the library's data about the job.
pub struct JobSlot<J> {
    job: Lock<Option<J>>,
    /// The server's descriptor while there is one, so that an abort need not take the lock.
    fd: AtomicI32,
    /// Whether the descriptor of `PMI_FD` was taken.
    taken: AtomicBool,
    /// Whether there is a job, or one is being joined. Changed only while the lock is held, and read without it: only a
    /// process that uses the job, or joins, takes the lock.
    is_used: AtomicBool,
    /// Whether this process was forked from the one that joined.
    is_child: AtomicBool,
    /// Whether `on_fork` has been registered with the C library.
    hears_of_forks: AtomicBool,
}

impl<J> JobSlot<J> {
    #[allow(clippy::new_without_default)] // A static needs a constant.
    pub const fn new() -> Self {
        JobSlot {
            job: Lock::new(None),
            fd: AtomicI32::new(-1),
            taken: AtomicBool::new(false),
            is_used: AtomicBool::new(false),
            is_child: AtomicBool::new(false),
            hears_of_forks: AtomicBool::new(false),
        }
    }

    /// Runs `work` on the job, which must be initialised. Must not be nested.
    pub fn with<R>(&self, work: impl FnOnce(&mut J) -> Result<R>) -> Result<R> {
        self.with_job(|job| job.as_mut().ok_or(Code::INIT).and_then(work))
    }

    pub fn is_initialised(&self) -> bool {
        self.with(|_| Ok(())).is_ok()
    }

    /// Runs `work` with the lock if there may be a job.
    fn with_job<R>(&self, work: impl FnOnce(&mut Option<J>) -> Result<R>) -> Result<R> {
        if self.is_child() || !self.is_used.load(Ordering::Relaxed) {
            return Err(Code::INIT);
        }
        self.job.with(work)
    }

    /// Joins the job unless it has joined already. `on_fork` must call [`JobSlot::on_fork`] of this slot.
    pub fn init(&self, join: impl FnOnce() -> Result<J>, on_fork: extern "C" fn()) -> Result {
        if self.is_child() {
            return Err(Code::FAIL);
        }
        // Before the lock: a thread that holds it has registered. Two threads may both register, which does no harm.
        if !self.hears_of_forks.load(Ordering::Acquire) {
            on_forked_child(on_fork);
            self.hears_of_forks.store(true, Ordering::Release);
        }
        self.job.with(|job| {
            if job.is_some() {
                return Ok(());
            }
            self.is_used.store(true, Ordering::Relaxed);
            let joined = join();
            if joined.is_err() {
                self.is_used.store(false, Ordering::Relaxed);
                self.fd.store(-1, Ordering::Relaxed);
            }
            *job = Some(joined?);
            Ok(())
        })
    }

    /// Called in the child of a fork. The lock may be held by a thread that exists only in the parent. If there is a
    /// job, the child never takes the lock; otherwise the child may join, so the lock is made anew.
    pub fn on_fork(&self) {
        self.fd.store(-1, Ordering::Relaxed);
        if self.is_used.load(Ordering::Relaxed) {
            self.is_child.store(true, Ordering::Relaxed);
        } else if !self.is_child() {
            // SAFETY: this is the only thread. The value is `None` whenever `is_used` is false, so no change of it was
            // interrupted.
            unsafe { self.job.renew() };
        }
    }

    fn is_child(&self) -> bool {
        self.is_child.load(Ordering::Relaxed)
    }

    /// The server's socket named by the environment. Succeeds once in a process, also if it has several copies of these
    /// libraries.
    pub fn take_inherited(&self, fd: c_int) -> core::result::Result<Socket, Gone> {
        let socket = Socket::named(fd)?;
        if self.taken.swap(true, Ordering::Relaxed) || !socket.claim() { Err(Gone) } else { Ok(socket) }
    }

    /// From now on an abort reaches the server.
    pub fn announce(&self, server: &Server) {
        self.fd.store(server.socket().fd(), Ordering::Relaxed);
    }

    /// The server's socket, for an abort.
    pub fn socket(&self) -> Option<Socket> {
        let fd = self.fd.load(Ordering::Relaxed);
        (fd >= 0).then(|| Socket::inherited(fd))
    }

    /// Takes the job out of the slot, which is then no longer initialised.
    pub fn take(&self) -> Result<J> {
        self.with_job(|job| {
            let taken = job.take().ok_or(Code::INIT);
            self.is_used.store(false, Ordering::Relaxed);
            taken
        })
    }

    /// Finalizes with the server of a job that [`JobSlot::take`] has taken out.
    pub fn leave(&self, with: With) -> Result {
        let With::Server(mut server) = with else {
            return Ok(());
        };
        let told = server.tell(&Request::Finalize);
        // Another thread may have joined again meanwhile, by a connection of its own.
        let _ = self.fd.compare_exchange(server.socket().fd(), -1, Ordering::Relaxed, Ordering::Relaxed);
        server.socket().close();
        Ok(told?)
    }
}

/// The longest value of an allgather.
pub const MAX_LEN: usize = ALLGATHER_LEN_MAX;

/// The result of an allgather.
pub enum Gathered {
    /// The answer of wireup's own server: the values of all ranks, in shared memory.
    Array(Values),
    /// The answer of another server, where the values are key-value pairs: this rank's own value, and the number of the
    /// allgather, by which the values of other ranks are fetched from the server.
    Pairs { generation: usize, own: Vec<u8> },
}

/// Keys with this prefix cannot be put.
const RESERVED: &[u8] = b"PMI_";

/// Whether the server computes the answer to a get of this key.
fn is_reserved(key: &[u8]) -> bool {
    key.starts_with(RESERVED) || key == b"universeSize"
}

/// The result of an allgather, in shared memory.
pub type Values = arena::Values<Shared>;

pub struct Job {
    pub with: With,
    pub rank: u32,
    pub size: u32,
    pub appnum: c_int,
    pub spawned: bool,
    /// Whether the server is Slurm's or ours: such a server answers in order and survives unknown commands.
    pub server_is_known: bool,
    /// The job's name, if it is known without asking.
    pub job_id: Option<Vec<u8>>,
    /// The name of a secondary client in the process; empty: this client has joined by the inherited socket.
    pub name: Vec<u8>,
    pub collectives: Collectives<Shared>,
}

impl Job {
    /// Joins the job that the environment describes; without a launcher, a job of this process alone.
    pub fn join<J>(slot: &JobSlot<J>) -> Result<Job> {
        let (server, start) = match find(Dialect::Pmi2, |fd| slot.take_inherited(fd))? {
            Start::Singleton => return Ok(Job::new(With::Singleton(Local::new()), 0, 1, false)),
            Start::With { server, join } => (server, join),
        };
        // Only Slurm and wireup set `PMI_JOBID`.
        let job_id = variable("PMI_JOBID").filter(|name| !name.is_empty());
        slot.announce(&server);
        let mut job = Job::with_server(server, start.job_id(job_id.clone().unwrap_or_default()))?;
        (job.server_is_known, job.job_id) = (job_id.is_some(), job_id);
        Ok(job)
    }

    /// Joins as a secondary client (see [`secondary_client`]).
    ///
    /// # Errors
    /// See [`NotJoined`].
    pub fn join_named(name: &[u8]) -> core::result::Result<Job, NotJoined> {
        let socket = secondary_client::join(name)?;
        let start = Join::new(Env { rank: 0, size: 1, spawned: false }).at_once(true);
        let joined = Job::with_server(Server::new(socket, Dialect::Pmi2), start);
        let mut job = joined.map_err(|_| NotJoined::NoAgent)?;
        (job.server_is_known, job.name) = (true, name.to_vec());
        Ok(job)
    }

    /// A job of this process alone, for a further library in a process without a launcher.
    pub fn alone(name: &[u8]) -> Job {
        let mut job = Job::new(With::Singleton(Local::new()), 0, 1, false);
        job.name = name.to_vec();
        job
    }

    fn with_server(mut server: Server, mut start: Join) -> Result<Job> {
        join(&mut server, &mut start)?;
        let Join { env, appnum, is_own, .. } = start;
        if is_own {
            server.expect_descriptors();
        }
        let mut job = Job::new(With::Server(server), env.rank, env.size, is_own);
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
            name: Vec::new(),
            collectives: Collectives::new(rank, is_own),
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

/// Put, get, and names.
impl Job {
    /// Puts a pair, which the next fence publishes.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result {
        let server = match &mut self.with {
            With::Singleton(local) => {
                local.put(key, value);
                return Ok(());
            }
            With::Server(server) => server,
        };
        let (mut key_room, mut value_room) = (Vec::new(), Vec::new());
        let (key, value) = (doubled(key, &mut key_room), doubled(value, &mut value_room));
        let request = Request::Put { kvsname: None, key, value };
        if self.collectives.own.is_none() {
            return Ok(server.tell(&request)?);
        }
        // What our own server is known to refuse is refused here; any other refusal is reported by the fence.
        if key.len() > KEY_LEN_MAX || value.len() > VALUE_LEN_MAX || key.starts_with(RESERVED) {
            return Err(Code::OTHER);
        }
        Ok(server.post(&request)?)
    }

    /// Looks up a key and passes its value to `give`; `false` if there is none.
    pub fn get(&mut self, jobid: &[u8], source: c_int, key: &[u8], give: &mut dyn FnMut(&[u8])) -> Result<bool> {
        if let With::Singleton(local) = &self.with {
            return Ok(local.get(key).map(give).is_some());
        }
        let (mut key_room, mut job_room, mut plain) = (Vec::new(), Vec::new(), Vec::new());
        let key = doubled(key, &mut key_room);
        let is_own = jobid.is_empty() || self.job_id.as_deref() == Some(jobid);
        if let (With::Server(server), Some(own)) = (&mut self.with, &mut self.collectives.own)
            && is_own
            && !is_reserved(key)
        {
            if own.segments.is_behind() {
                refresh(server, &mut own.segments)?;
            }
            let found = own.segments.get(key).map_err(code)?;
            return Ok(found.map(|value| give(halve(value, &mut plain))).is_some());
        }
        let jobid = doubled(jobid, &mut job_room);
        // MPICH's servers do not accept empty fields.
        let kvsname = Some(jobid).filter(|name| !name.is_empty());
        let found = self.look_up(&Request::Get { kvsname, key, source: Some(source) })?;
        Ok(found.map(|value| give(&value)).is_some())
    }

    /// Publishes a service under a name, or looks one up: with the server or, without one, in this process. Returns the
    /// port of a look-up.
    ///
    /// # Errors
    /// [`Code::OTHER`]: the name is taken, or there is no such name, or the server refuses for another reason.
    pub fn name(&mut self, name: &[u8], wish: Wish<'_>) -> Result<Vec<u8>> {
        if let With::Singleton(local) = &mut self.with {
            return local.name(name, wish).ok_or(Code::OTHER);
        }
        let (mut name_room, mut port_room) = (Vec::new(), Vec::new());
        let name = doubled(name, &mut name_room);
        let found = self.look_up(&match wish {
            Wish::Publish(port) => Request::PublishName { name, port: doubled(port, &mut port_room) },
            Wish::LookUp => Request::LookupName { name },
            Wish::Unpublish => Request::UnpublishName { name },
        });
        found?.ok_or(Code::OTHER)
    }
}

/// Fences and allgathers.
impl Job {
    /// Starts a fence, without a round trip.
    pub fn start_fence(&mut self) -> Id {
        let id = self.collectives.start_fence(self.with.server().ok().map(|server| &mut server.link));
        self.flush();
        id
    }

    /// Starts an allgather; needs no round trip, except for a long value with a server that is not ours.
    pub fn start_allgather(&mut self, value: &[u8], max_len: usize, shared: bool) -> Id {
        let link = self.with.server().ok().map(|server| &mut server.link);
        let id = self.collectives.start_allgather(link, value, max_len, shared);
        self.flush();
        // The other ranks may wait for this value before this rank calls again.
        self.advance(true, &|job| !job.collectives.is_putting());
        id
    }

    /// Sends the collected requests. If the server is gone, the caller learns it when it waits.
    fn flush(&mut self) {
        if let With::Server(server) = &mut self.with
            && server.flush().is_err()
        {
            self.collectives.requests.break_all();
        }
    }

    /// Waits until a fence is complete, and removes the request.
    pub fn finish(&mut self, id: Id) -> Result {
        self.end(id).map(drop)
    }

    /// Waits until an allgather is complete, and removes the request, even if it failed.
    pub fn collect(&mut self, id: Id) -> Result<Gathered> {
        let Outstanding { kind, value, stage, .. } = self.end(id)?;
        match (kind, stage) {
            (CollectiveKind::Allgather { .. }, Stage::Over(Ok(Some(array)))) => Ok(Gathered::Array(array)),
            // The array came from our own server, but could not be mapped.
            (CollectiveKind::Allgather { .. }, _) if self.collectives.own.is_some() => Err(Code::NOMEM),
            (CollectiveKind::Allgather { generation, .. }, _) => Ok(Gathered::Pairs { generation, own: value }),
            (CollectiveKind::Fence, _) => Err(Code::INVALID_ARG),
        }
    }

    /// Takes the answers that have arrived; `false`: the server is gone.
    pub fn take_answers(&mut self) -> bool {
        self.advance(false, &|_| false);
        self.with.server().is_ok_and(|server| !server.link.is_broken())
    }

    /// Waits until no collective is outstanding.
    pub fn finish_all(&mut self) {
        self.advance(true, &|job| job.collectives.are_over());
    }

    /// Whether the request could be finished without waiting.
    pub fn is_over(&mut self, id: Id) -> Result<bool> {
        self.collectives.is_over(id).ok_or(Code::INVALID_ARG)?;
        self.advance(false, &|job| job.collectives.is_over(id) != Some(false));
        Ok(self.collectives.is_over(id) == Some(true))
    }

    fn end(&mut self, id: Id) -> Result<Outstanding<Shared>> {
        self.advance(true, &|job| job.collectives.is_over(id) != Some(false));
        let outstanding = self.collectives.requests.remove(id).ok_or(Code::INVALID_ARG)?;
        match outstanding.stage {
            Stage::Over(Ok(_)) => Ok(outstanding),
            Stage::Over(Err(failure)) => Err(failure.into()),
            Stage::Queued | Stage::Putting(_) | Stage::UnderWay => Err(Code::FAIL),
        }
    }

    /// Processes answers, and sends the requests that become possible, until `is_enough`. Waits only if `wait`.
    fn advance(&mut self, wait: bool, is_enough: &dyn Fn(&mut Job) -> bool) {
        loop {
            if let With::Server(server) = &mut self.with {
                self.collectives.advance(&mut server.link);
            }
            self.flush();
            if is_enough(self) {
                return;
            }
            match self.with.server().map(|server| server.advance(wait)) {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) | Err(_) => return,
                // The connection is closed: no further answer will come.
                Ok(Err(_)) => return self.collectives.requests.break_all(),
            }
        }
    }

    /// Passes the values of `ranks` to `row`, in any order.
    pub fn values(&mut self, gathered: &Gathered, ranks: &[u32], row: &mut dyn FnMut(u32, &[u8]) -> Result) -> Result {
        match gathered {
            Gathered::Pairs { generation, own } => self.get_values(*generation, own, ranks, row),
            Gathered::Array(array) => {
                let array = Rows::read(array).map_err(|_| Code::FAIL)?;
                for (rank, value) in array.values().enumerate() {
                    let value = value.map_err(|_| Code::FAIL)?;
                    if ranks.contains(&(rank as u32)) {
                        // A row is padded with zeros, and a C string contains none.
                        row(rank as u32, value.split(|byte| *byte == 0).next().unwrap_or_default())?;
                    }
                }
                Ok(())
            }
        }
    }

    fn get_values(
        &mut self,
        generation: usize,
        own: &[u8],
        ranks: &[u32],
        row: &mut dyn FnMut(u32, &[u8]) -> Result,
    ) -> Result {
        let mut others = Vec::with_capacity(ranks.len());
        for &rank in ranks {
            if rank == self.rank { row(rank, own)? } else { others.push(rank) }
        }
        if others.is_empty() {
            return Ok(());
        }
        let mut gather = Gather::new(generation, &others, self.server_is_known);
        let server = self.server()?;
        while gather.ask(&mut server.link)? {
            server.settle(&mut |answer| gather.on_answer(answer))?;
            while let Some(value) = gather.take() {
                let (rank, value) = value.map_err(|_: Failure| Code::OTHER)?;
                row(rank, &value)?;
            }
        }
        Ok(())
    }

    /// Writes all values as rows of `max_len` bytes, padded with zeros.
    pub fn fill(&mut self, gathered: &Gathered, max_len: usize, rows: &mut [u8]) -> Result {
        if let Gathered::Array(array) = gathered {
            let array = Rows::read(array).map_err(|_| Code::FAIL)?;
            // A value can be longer only if ranks passed different maximum lengths.
            let wrong = if array.stride() > max_len { Code::INVALID_VAL_LENGTH } else { Code::FAIL };
            return array.fill(rows, max_len).map_err(|_| wrong);
        }
        rows.fill(0);
        let ranks: Vec<u32> = (0..self.size).collect();
        self.values(gathered, &ranks, &mut |rank, value| {
            let row = &mut rows[rank as usize * max_len..][..max_len];
            row.get_mut(..value.len()).ok_or(Code::INVALID_VAL_LENGTH)?.copy_from_slice(value);
            Ok(())
        })
    }
}

/// The value or port in an answer, as it was put; empty if there is none.
pub fn value(fields: &ReplyFields<'_>) -> Vec<u8> {
    let mut plain = Vec::new();
    halve(fields.get("value").or(fields.get("port")).unwrap_or_default(), &mut plain).to_vec()
}

/// Maps the segments of the kvs that this process lacks.
fn refresh(server: &mut Server, segments: &mut Segments<Shared>) -> Result {
    let mut update = None;
    server.call(&Request::KvsMap { have: &segments.have() }, &mut |fields| update = Update::read(fields))?;
    let memory = server.link.take_memory();
    segments.update(update.ok_or(Code::FAIL)?, memory).map_err(code)
}

fn code(error: SegmentError) -> Code {
    match error {
        SegmentError::Malformed => Code::FAIL,
        SegmentError::NotMapped => Code::NOMEM,
    }
}

#[cfg(test)]
mod tests;
