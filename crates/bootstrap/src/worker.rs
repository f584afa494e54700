//! Makes progress on what this process has started: over the connection to the server, and over the network of ranks.

use crate::answers::Answers;
use crate::error::Error;
use crate::network::{Counts, Key, Network};
use crate::operation::{Request, Then};
use crate::start::{LazyNetwork, address_name};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::c_int;
use wireup_capi::codes::Code;
use wireup_capi::job::{ADDRESS_NAME_LEN_MAX, Job};
use wireup_capi::net::now_ms;
use wireup_capi::server::Gather;
use wireup_group::{Context, Done, Failure};

/// How long the first call that fails because of a lost rank may inform other ranks (ms), which may compute and not
/// answer. Chosen: a hundred round trips of a slow network.
const TELL_MS_MAX: u64 = 250;

/// Added to the number of a program's request for an address. The network's own requests use the rank as their number,
/// which is lower.
const OWN_QUESTIONS: u32 = 1 << 31;

pub struct Worker {
    pub job: Job,
    pub lazy_network: LazyNetwork,
    /// Answers to the program's requests for addresses.
    addresses: Answers<u32, Option<Vec<u8>>>,
    gathers: Answers<u32, Result<Gather, Code>>,
    /// The number of the latest request for an address or collective of a group.
    last: u32,
    /// Number of collectives of groups that the server has not answered.
    gathering: usize,
    /// After the loss of a rank: the time (ms) until which failing calls still inform other ranks.
    tells_until: Option<u64>,
}

impl Worker {
    pub fn new(job: Job, lazy_network: LazyNetwork) -> Worker {
        let (addresses, gathers) = (Answers::default(), Answers::default());
        Worker { job, lazy_network, addresses, gathers, last: 0, gathering: 0, tells_until: None }
    }

    /// Whether this is a secondary library in its process, next to the one that has joined by the inherited socket.
    pub fn is_secondary(&self) -> bool {
        !self.job.name.is_empty()
    }

    /// The network of ranks and the group of all; see [`LazyNetwork::make`].
    pub fn network(&mut self) -> Result<&mut (Network, Context), Error> {
        self.lazy_network.make(&mut self.job)
    }

    fn made(&mut self) -> Option<&mut Network> {
        self.lazy_network.made_mut()
    }

    pub fn counts(&self) -> Counts {
        self.lazy_network.made().map(Network::counts).unwrap_or_default()
    }

    /// A descriptor that is readable when [`Worker::progress`] has something to do; `None` without a server. It changes
    /// when the network of ranks is made.
    pub fn fd(&mut self) -> Option<c_int> {
        match self.lazy_network.made() {
            Some(network) => Some(network.epoll().fd()),
            None => self.job.server().ok().map(|server| server.socket().fd()),
        }
    }

    /// The descriptor of the network of ranks, and the time after which [`Worker::progress`] must be called even if it
    /// is not readable (ms; negative: without limit). `None`: there is no network yet.
    pub fn watched(&self) -> Option<(c_int, c_int)> {
        self.lazy_network.made().map(|network| (network.epoll().fd(), network.limit(-1)))
    }

    /// Publishes this rank's address in a network of the program's own; possible once per name.
    pub fn set_address(&mut self, network: &[u8], address: &[u8]) -> Result<(), Error> {
        self.job.set_address(&self.in_programs(network), address).map_err(|code| match code {
            Code::INVALID_ARG => Error::Argument,
            code => Error::Server(code),
        })
    }

    /// Allocates the number of a new request to the server, below [`OWN_QUESTIONS`].
    fn number(&mut self) -> u32 {
        self.last = (self.last + 1) % OWN_QUESTIONS;
        self.last
    }

    pub fn address(&mut self, network: &[u8], rank: u32) -> Result<Request, Error> {
        if rank >= self.job.size || network.len() > ADDRESS_NAME_LEN_MAX {
            return Err(Error::Argument);
        }
        let name = self.in_programs(network);
        let id = self.number();
        if self.job.answers_questions() {
            let server = self.job.server().map_err(Error::Server)?;
            let asked = server.ask_address(OWN_QUESTIONS | id, &name, rank);
            asked.and_then(|()| Ok(server.flush()?)).map_err(Error::Server)?;
        } else {
            let found = self.job.look_up_address(&name, rank).map_err(Error::Server)?;
            self.addresses.on_answer(id, found);
        }
        Ok(Request::Address(id))
    }

    /// The server's name for a network of the program: it never equals that of this library or of a secondary one.
    fn in_programs(&self, network: &[u8]) -> Vec<u8> {
        let prefix = if self.is_secondary() { [&self.job.name[..], b"/"].concat() } else { b".".into() };
        [&prefix, network].concat()
    }

    /// Starts to make a plain TCP connection to another rank, which must do the same. The result is the number of the
    /// descriptor, as bytes.
    pub fn connect(&mut self, rank: u32) -> Result<Request, Error> {
        if rank >= self.job.size || rank == self.job.rank {
            return Err(Error::Argument);
        }
        let (network, world) = self.network()?;
        let key = network.connect(*world, rank).ok_or(Error::Argument)?;
        self.pump();
        Ok(Request::Connection(key))
    }

    /// Starts an exchange of values among the members of a group, by the server. `number`: the server's number of the
    /// group; `place`: this member's place and the group's size.
    pub fn gather(
        &mut self,
        (context, number, place): (Context, u32, (u32, u32)),
        value: &[u8],
        then: Then,
    ) -> Result<Request, Error> {
        let id = self.number();
        self.job.server().and_then(|server| server.start_gather(id, number, value)).map_err(Error::Server)?;
        self.gathering += 1;
        Ok(Request::Gather { id, context, place, then: Box::new(then) })
    }

    pub fn take_gather(&mut self, id: u32) -> Result<Gather, Error> {
        self.gathers.take(id).unwrap_or(Err(Code::FAIL)).map_err(Error::Server)
    }

    pub fn take_address(&mut self, id: u32) -> Result<Done, Error> {
        match self.addresses.take(id) {
            Some(address) => address.map(Done::Bytes).ok_or(Error::NotFound),
            None => Err(Error::Server(Code::FAIL)),
        }
    }

    pub fn take_connection(&mut self, key: Key) -> Result<Done, Error> {
        let made = self.made().and_then(|network| network.plain.made.take(key)).ok_or(Error::Argument)?;
        let socket = made.ok_or_else(|| self.failure(Failure::Lost { rank: key.0 }))?;
        let fd = socket.into_blocking().map_err(|error| Error::System(error.0))?;
        Ok(Done::Bytes(fd.to_ne_bytes().into()))
    }

    pub fn take_done(&mut self, request: wireup_group::Request) -> Result<Done, Error> {
        let done = self.made().and_then(|network| network.results.take(request)).ok_or(Error::Argument)?;
        if matches!(done, Err(Failure::Lost { .. })) {
            self.tell_others();
        }
        done.map_err(|failure| self.failure(failure))
    }

    /// Converts the failure of a group's operation: the loss of a rank with another transport is a mismatch.
    fn failure(&self, failure: Failure) -> Error {
        match failure {
            Failure::Lost { rank }
                if self.lazy_network.made().is_some_and(|network| network.book.misfits.contains(&rank)) =>
            {
                Error::Mismatch
            }
            failure => Error::Group(failure),
        }
    }

    /// Informs other ranks of a lost rank before the failing call returns: they may learn of the loss only from this
    /// rank, and the program may not call this library again.
    fn tell_others(&mut self) {
        let until = *self.tells_until.get_or_insert_with(|| now_ms() + TELL_MS_MAX);
        while now_ms() < until && self.has_waiting() {
            self.progress_for(10);
        }
    }

    fn has_waiting(&self) -> bool {
        self.lazy_network.made().is_some_and(Network::has_waiting)
    }

    /// Carries out what the groups request, without waiting. Returns whether the server has answered something.
    pub fn pump(&mut self) -> bool {
        let is_answered = self.take_answers();
        let Worker { job, lazy_network, .. } = self;
        let Some(network) = lazy_network.made_mut() else { return is_answered };
        network.pump();
        let wanted = core::mem::take(&mut network.book.wanted);
        if !wanted.is_empty() {
            let name = address_name(job);
            let asked = job.server().and_then(|server| {
                // At most one request per rank is pending, so the rank serves as the request's number.
                wanted.into_iter().try_for_each(|rank| server.ask_address(rank, &name, rank))?;
                Ok(server.flush()?)
            });
            if asked.is_err() {
                network.on_unanswered();
                network.pump();
            }
        }
        network.relay(&mut |rank| job.relay(&address_name(job), rank));
        is_answered
    }

    /// Passes on the server's answers: addresses, and results of collectives of groups. Returns whether there were any.
    fn take_answers(&mut self) -> bool {
        let Ok(server) = self.job.server() else { return false };
        let (addresses, gathers) = (server.take_addresses(), server.take_gathers());
        let is_answered = !addresses.is_empty() || !gathers.is_empty();
        for (id, address) in addresses {
            match self.lazy_network.made_mut() {
                Some(network) if id < OWN_QUESTIONS => network.on_address(id, address),
                _ => self.addresses.on_answer(id & !OWN_QUESTIONS, address),
            }
        }
        for (id, gathered) in gathers {
            self.gathering -= 1;
            self.gathers.on_answer(id, gathered);
        }
        is_answered
    }

    pub fn progress(&mut self) {
        self.progress_for(0);
    }

    /// Makes progress; if nothing is possible, waits for at most `ms` milliseconds (negative: without limit). The
    /// server's answers are read in any case: otherwise its descriptor would stay readable, and waits would return at
    /// once.
    fn progress_for(&mut self, ms: c_int) {
        let ms = if self.pump() { 0 } else { ms };
        let Worker { job, lazy_network, .. } = self;
        let Some(network) = lazy_network.made_mut() else {
            if let (Ok(server), true) = (job.server(), ms != 0) {
                server.socket().await_input(ms);
            }
            job.take_answers();
            self.take_answers();
            return;
        };
        if network.receive(ms)
            && !job.take_answers()
            && let Ok(server) = job.server()
        {
            network.epoll().forget(server.socket().fd());
            network.on_unanswered();
        }
        self.pump();
    }

    /// Makes progress, and returns whether a request has completed.
    pub fn test(&mut self, request: &Request) -> bool {
        self.progress();
        self.is_over(request)
    }

    /// Whether a request has completed, successfully or not; receives nothing.
    fn is_over(&mut self, request: &Request) -> bool {
        match request {
            Request::Server { id, .. } => self.job.is_over(*id) != Ok(false),
            Request::Peers(request) => self.lazy_network.made().is_none_or(|network| network.results.is_over(*request)),
            Request::Gather { id, .. } => self.gathers.is_over(*id) || self.is_unserved(),
            Request::Address(id) => self.addresses.is_over(*id) || self.is_unserved(),
            Request::Connection(key) => self.lazy_network.made().is_none_or(|network| network.plain.made.is_over(*key)),
        }
    }

    fn is_unserved(&mut self) -> bool {
        self.job.server().is_ok_and(|server| server.link.is_broken())
    }

    /// Waits until one of these requests completes, and returns its position in `requests`. Fails as
    /// [`Context::wait`](crate::Context::wait) does.
    pub fn wait_any(&mut self, requests: &[&Request], ms: c_int) -> Result<usize, Error> {
        self.progress_until(ms, |worker| requests.iter().position(|request| worker.is_over(request)))
    }

    /// Waits for at most `ms` milliseconds (negative: without limit) until all that this process has sent will arrive
    /// without further calls.
    ///
    /// # Errors
    /// [`Error::TimedOut`]: some of the data still needs further calls.
    pub fn flush(&mut self, ms: c_int) -> Result<(), Error> {
        // First sends everything that can be sent without waiting.
        self.progress();
        self.progress_until(ms, |worker| {
            let has_unsent = worker.lazy_network.made().is_some_and(Network::has_unsent);
            (!has_unsent).then_some(())
        })
    }

    fn progress_until<T>(&mut self, ms: c_int, mut look: impl FnMut(&mut Worker) -> Option<T>) -> Result<T, Error> {
        let until = u64::try_from(ms).ok().map(|ms| now_ms() + ms);
        // Every call makes progress, even one that need not wait.
        let mut limit = if look(self).is_some() { 0 } else { ms };
        loop {
            self.progress_for(limit);
            if let Some(found) = look(self) {
                return Ok(found);
            }
            let left = until.map(|until| until.saturating_sub(now_ms()));
            if left == Some(0) {
                return Err(Error::TimedOut);
            }
            limit = left.map_or(-1, |left| c_int::try_from(left).unwrap_or(c_int::MAX));
        }
    }

    /// Drops the result of a request, now or when it arrives.
    pub fn forget(&mut self, request: &Request) {
        match request {
            // The request still runs: the other ranks need this rank's part in any case.
            Request::Server { .. } => {}
            Request::Gather { id, .. } => self.gathers.forget(*id),
            Request::Address(id) => self.addresses.forget(*id),
            Request::Connection(key) => self.made().into_iter().for_each(|network| network.plain.forget(*key)),
            Request::Peers(request) => self.made().into_iter().for_each(|network| network.forget(*request)),
        }
    }

    /// Leaves the network of ranks after the messages of this rank were transmitted (see [`Network::leave`]); returns
    /// the job, which the caller uses to say goodbye to the job's server.
    pub fn leave(mut self) -> Job {
        /// Time limit for acknowledgements by other ranks (ms).
        const GOODBYE_MS_MAX: u64 = 1_000;
        self.made().into_iter().for_each(|network| network.groups.is_leaving = true);
        self.pump();
        while self.gathering > 0 && !self.is_unserved() || self.has_waiting() {
            self.progress_for(-1);
        }
        if let Some(network) = self.lazy_network.made_mut() {
            // Messages of the server are read only after the network of ranks was left; if its descriptor were still
            // watched, it would stay readable, and every wait would return at once.
            if let Ok(server) = self.job.server() {
                network.epoll().forget(server.socket().fd());
            }
            network.leave(GOODBYE_MS_MAX);
        }
        // This rank reads no more messages, so it closes its connections: another rank that leaves would otherwise wait
        // until this rank reads.
        let Worker { mut job, lazy_network, .. } = self;
        drop(lazy_network);
        job.finish_all();
        job
    }
}
