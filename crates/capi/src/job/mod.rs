//! A process's place in its job and its conversation with any PMI-2 server, for blocking callers in Rust.
//!
//! `addresses` is where ranks are reached, `endpoints` what is known of all ranks before they start; `exchange` drives
//! fences and allgathers, `kvs` does puts and gets and publishes names, `ring` is the exchange with both neighbours.

mod addresses;
mod endpoints;
mod exchange;
mod kvs;
mod ring;

pub use addresses::{ADDRESS_LEN_MAX, ADDRESS_NAME_LEN_MAX};
pub use endpoints::Endpoints;
pub use exchange::{Gathered, MAX_LEN};
pub use kvs::{NAME_LEN_MAX, Wish};
pub use ring::Ring;

use crate::codes::Result;
use crate::job_slot::{JobSlot, With};
use crate::mapping::Shared;
use crate::secondary_client::{self, NotJoined};
use crate::server::Server;
use crate::socket::variable;
use crate::start::{Start, find, join};
use alloc::vec::Vec;
use core::ffi::c_int;
use wireup_client::arena;
use wireup_client::collectives::Collectives;
use wireup_client::env::Env;
use wireup_client::escape::halve;
use wireup_client::join::Join;
use wireup_client::local::Local;
use wireup_wire::pmi::{Dialect, ReplyFields, Request};

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

/// The value or port in an answer, as it was put; empty if there is none.
pub fn value(fields: &ReplyFields<'_>) -> Vec<u8> {
    let mut plain = Vec::new();
    halve(fields.get("value").or(fields.get("port")).unwrap_or_default(), &mut plain).to_vec()
}
