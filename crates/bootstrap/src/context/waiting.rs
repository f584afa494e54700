//! What goes on while this process waits, and the results that it waits for.

use super::Context;
use super::addresses::OWN_QUESTIONS;
use crate::agents;
use crate::error::Error;
use crate::operation::{Operation, Request, Then};
use crate::start::address_name;
use crate::view::View;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::c_int;
use wireup_capi::codes::Code;
use wireup_capi::job::{Gathered, Job};
use wireup_capi::net::now_ms;
use wireup_group::algorithms::Barrier;
use wireup_group::{Done, Failure};

/// How long the first call that fails because of a lost rank may take longer for others (ms), which may compute and not
/// answer. Chosen: a hundred round trips of a slow network.
const TELL_MS_MAX: u64 = 250;

impl Context {
    /// Carries out what the groups want, without waiting. Returns whether the server has answered something.
    pub(super) fn pump(&mut self) -> bool {
        let is_answered = self.take_addresses() | self.take_gathers();
        let Context { job, network, .. } = self;
        let Some((network, _)) = network else { return is_answered };
        network.pump();
        let wanted = network.take_wanted();
        if !wanted.is_empty() {
            let name = address_name(job);
            // A rank is asked for once at a time: its number serves as the question's.
            let asked = wanted.into_iter().try_for_each(|rank| job.ask_address(rank, &name, rank));
            if asked.and_then(|()| Ok(job.server()?.flush()?)).is_err() {
                network.on_unanswered();
                network.pump();
            }
        }
        for (number, rank) in network.take_unanswered() {
            network.on_relay(number, job.relay(&address_name(job), rank, network.has_datagrams()));
            network.pump();
        }
        is_answered
    }

    /// Hands the server's answers about addresses to those who wait for them. Returns whether there were any.
    fn take_addresses(&mut self) -> bool {
        let answers = self.job.take_addresses();
        let is_answered = !answers.is_empty();
        for (id, address) in answers {
            match &mut self.network {
                Some((network, _)) if id < OWN_QUESTIONS => network.on_address(id, address),
                _ => self.addresses.on_answer(id & !OWN_QUESTIONS, address),
            }
        }
        is_answered
    }

    /// Hands the server's results of collectives of groups to those who wait for them. Returns whether there were any.
    fn take_gathers(&mut self) -> bool {
        let all = self.job.take_gathers();
        let is_answered = !all.is_empty();
        for (id, gathered) in all {
            self.gathering -= 1;
            self.gathers.on_answer(id, gathered);
        }
        is_answered
    }

    /// Why an operation of a group has failed.
    fn failure(&self, failure: Failure) -> Error {
        match failure {
            Failure::Lost { rank } if self.network.as_ref().is_some_and(|(network, _)| network.is_misfit(rank)) => {
                Error::Mismatch
            }
            failure => Error::Group(failure),
        }
    }

    /// A rank is lost. Others may hear that from this rank only, and the program may not call again: what is to be said
    /// is said before.
    fn tell_others(&mut self) {
        let until = *self.tells_until.get_or_insert_with(|| now_ms() + TELL_MS_MAX);
        while now_ms() < until && self.network.as_ref().is_some_and(|(network, _)| network.has_waiting()) {
            self.progress_for(10);
        }
    }

    /// Does what is possible without waiting.
    pub fn progress(&mut self) {
        self.progress_for(0);
    }

    /// Does what is possible; waits for at most `ms` milliseconds (negative: without limit) if nothing is possible. The
    /// server's answers are taken in any case: otherwise its descriptor would stay readable, and waits would not wait.
    fn progress_for(&mut self, ms: c_int) {
        let ms = if self.pump() { 0 } else { ms };
        let Context { job, network, .. } = self;
        let Some((network, _)) = network else {
            if let (Ok(server), true) = (job.server(), ms != 0) {
                server.socket().await_input(ms);
            }
            job.take_answers();
            self.take_addresses();
            self.take_gathers();
            return;
        };
        if network.receive(ms)
            && !job.take_answers()
            && let Ok(server) = job.server()
        {
            network.forget_server(server.socket().fd());
            network.on_unanswered();
        }
        self.pump();
    }

    /// Whether a request is over.
    pub fn test(&mut self, request: &Request) -> bool {
        self.progress();
        self.is_over(request)
    }

    /// Whether a request is over, successfully or not, without receiving anything before.
    fn is_over(&mut self, request: &Request) -> bool {
        match request {
            Request::Server { id, .. } => self.job.is_over(*id) != Ok(false),
            Request::Peers(request) => self.network.as_ref().is_none_or(|(network, _)| network.is_done(*request)),
            Request::Gather { id, .. } => self.gathers.is_over(*id) || self.is_unserved(),
            Request::Address(id) => self.addresses.is_over(*id) || self.is_unserved(),
            Request::Connection(key) => self.network.as_mut().is_none_or(|(network, _)| network.plain().is_over(*key)),
        }
    }

    /// Whether the server answers no more.
    fn is_unserved(&mut self) -> bool {
        self.job.server().is_ok_and(|server| server.link.is_broken())
    }

    /// Waits for at most `ms` milliseconds (negative: without limit), and takes the result.
    ///
    /// # Errors
    /// [`Error::TimedOut`]: the request goes on. Otherwise it is over.
    pub fn wait(&mut self, request: &Request, ms: c_int) -> Result<Done, Error> {
        // Nothing else is to be done meanwhile: the server's answer is read where it is taken.
        let is_alone = self.network.is_none() && ms < 0;
        if !(is_alone && matches!(request, Request::Server { .. })) {
            self.wait_any(&[request], ms)?;
        }
        self.take(request)
    }

    /// Waits until one of these requests is over, and returns its position in `requests`. Fails as [`Context::wait`]
    /// does.
    pub fn wait_any(&mut self, requests: &[&Request], ms: c_int) -> Result<usize, Error> {
        self.progress_until(ms, |context| context.first_over(requests))
    }

    /// Waits for at most `ms` milliseconds (negative: without limit) until all that this process has sent will arrive
    /// without further calls.
    ///
    /// # Errors
    /// [`Error::TimedOut`]: some of it will not.
    pub fn flush(&mut self, ms: c_int) -> Result<(), Error> {
        // What can be sent at once needs no wait.
        self.progress();
        self.progress_until(ms, |context| {
            let has_unsent = context.network.as_ref().is_some_and(|(network, _)| network.has_unsent());
            (!has_unsent).then_some(())
        })
    }

    fn progress_until<T>(&mut self, ms: c_int, mut look: impl FnMut(&mut Context) -> Option<T>) -> Result<T, Error> {
        let until = u64::try_from(ms).ok().map(|ms| now_ms() + ms);
        // Every call does what is possible, also one that need not wait.
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

    fn first_over(&mut self, requests: &[&Request]) -> Option<usize> {
        requests.iter().position(|request| self.is_over(request))
    }

    fn take(&mut self, request: &Request) -> Result<Done, Error> {
        match request {
            Request::Server { id, then } => match &**then {
                Then::Finish(operation) => agents::finish(&mut self.job, *id, operation),
                Then::Divide { wanted, of } => {
                    let members = agents::finish_split(&mut self.job, *id, wanted)?;
                    self.make(*of, &members).map(Done::Group)
                }
            },
            Request::Gather { id, context, place, then } => {
                let gathered = self.gathers.take(*id).unwrap_or(Err(Code::FAIL)).map_err(Error::Server)?;
                match &**then {
                    Then::Finish(operation) => agents::finish_gather(&gathered, operation, *place),
                    Then::Divide { wanted, of } => {
                        let members =
                            agents::members(&agents::gathered(&gathered, place.1)?, wanted).ok_or(Error::Mismatch)?;
                        let ranks = self.parts.get(*context)?.ranks();
                        let ranks: Vec<u32> = members.into_iter().map(|member| ranks[member as usize]).collect();
                        self.make(*of, &ranks).map(Done::Group)
                    }
                }
            }
            Request::Peers(request) => {
                let done = self.network.as_mut().and_then(|(network, _)| network.take_done(*request));
                let done = done.ok_or(Error::Argument)?;
                if matches!(done, Err(Failure::Lost { .. })) {
                    self.tell_others();
                }
                done.map_err(|failure| self.failure(failure))
            }
            Request::Address(id) => match self.addresses.take(*id) {
                Some(address) => address.map(Done::Bytes).ok_or(Error::NotFound),
                None => Err(Error::Server(Code::FAIL)),
            },
            Request::Connection(key) => {
                let made = self.network.as_mut().and_then(|(network, _)| network.plain().take(*key));
                let socket = made.ok_or(Error::Argument)?.map_err(|_| self.failure(Failure::Lost { rank: key.0 }))?;
                let fd = socket.into_blocking().map_err(|error| Error::System(error.0))?;
                Ok(Done::Bytes(fd.to_ne_bytes().into()))
            }
        }
    }

    /// Waits for an allgather of values of one length, and takes the rows where they are. Fails as [`Context::wait`]
    /// does.
    pub fn view(&mut self, request: &Request, ms: c_int) -> Result<View, Error> {
        self.wait_any(&[request], ms)?;
        let array = match request {
            Request::Server { id, .. } if self.job.answers_questions() => match self.job.collect(*id) {
                Ok(Gathered::Array(values)) => Ok(View::Job(values)),
                Ok(Gathered::Pairs { .. }) => Err(Error::Mismatch),
                Err(code) => Err(Error::Server(code)),
            },
            Request::Gather { id, .. } => {
                let gathered = self.gathers.take(*id).unwrap_or(Err(Code::FAIL));
                gathered.map(View::Group).map_err(Error::Server)
            }
            Request::Server { .. } | Request::Peers(_) | Request::Address(_) | Request::Connection(_) => {
                let Done::Rows(rows) = self.take(request)? else { return Err(Error::Mismatch) };
                return Ok(View::Own(rows.concat()));
            }
        }?;
        Ok(array)
    }

    /// The result is not wanted.
    pub fn forget(&mut self, request: &Request) {
        match request {
            // The other ranks wait for this one's part in any case.
            Request::Server { .. } => {}
            Request::Gather { id, .. } => self.gathers.forget(*id),
            Request::Address(id) => self.addresses.forget(*id),
            Request::Connection(key) => {
                if let Some((network, _)) = &mut self.network {
                    network.plain().forget(*key);
                }
            }
            Request::Peers(request) => {
                if let Some((network, _)) = &mut self.network {
                    network.forget(*request);
                }
            }
        }
    }

    /// Publishes the pairs that the ranks have put. The connections go on meanwhile: another rank may wait, before its
    /// own fence, for something that this one must send again.
    ///
    /// Where the server does not wait for all ranks, their gets do, and a rank makes no progress in a get. So the ranks
    /// wait here.
    pub fn fence(&mut self) -> Result<(), Error> {
        if self.is_secondary() {
            return self.exchange_pairs();
        }
        let id = self.job.start_fence();
        if let (Some(fences), Some((network, _))) = (self.fences, &mut self.network) {
            let barrier = Request::Peers(network.groups.start(fences, Box::new(Barrier::default())));
            self.wait(&barrier, -1)?;
        }
        let request = Request::Server { id, then: Box::new(Then::Finish(Operation::Barrier)) };
        self.wait(&request, -1).map(drop)
    }

    /// Leaves the job; returns it, for the goodbye to its server.
    pub fn leave(mut self) -> Job {
        /// How long the goodbyes to other ranks may take (ms).
        const GOODBYE_MS_MAX: u64 = 1_000;
        self.pump();
        while self.gathering > 0 && !self.is_unserved() {
            self.progress_for(-1);
        }
        while self.network.as_ref().is_some_and(|(network, _)| network.has_waiting()) {
            self.progress_for(-1);
        }
        if let Some((network, _)) = &mut self.network {
            // What the server says is read below; until then its descriptor would stay readable.
            if let Ok(server) = self.job.server() {
                network.forget_server(server.socket().fd());
            }
            network.leave(GOODBYE_MS_MAX);
        }
        self.job.finish_all();
        self.job
    }
}
