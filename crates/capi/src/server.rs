//! The conversation with the PMI server, for callers that wait.
//!
//! A call costs one write and, if the answer comes whole, one read. A fence may be started and its answer be read later; the
//! calls between are answered meanwhile. Requests may be gathered ([`Server::ask`]) and leave as one write, their answers
//! then come in order ([`Server::settle`]).

use crate::socket::{Gone, Socket};
use alloc::vec::Vec;
use wireup_client::pipeline::Pipeline;
use wireup_wire::pmi::{Command, Dialect, ReplyFields, Request};

/// Why a call was not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The server is gone, or what it says makes no sense: no call will succeed any more.
    Broken,
    /// The server said no.
    Refused,
}

impl From<Gone> for Failure {
    fn from(_: Gone) -> Self {
        Failure::Broken
    }
}

enum Fence {
    Idle,
    UnderWay,
    Over(Result<(), Failure>),
}

pub struct Server {
    socket: Socket,
    pipeline: Pipeline,
    out: Vec<u8>,
    fence: Fence,
    /// A put that was sent together with a fence was refused.
    put_refused: bool,
    broken: bool,
}

/// Takes answers in order: the number among those asked, from 0, and the fields.
pub type Take<'t> = &'t mut dyn FnMut(usize, &ReplyFields<'_>);

impl Server {
    pub fn new(socket: Socket, dialect: Dialect) -> Self {
        let pipeline = Pipeline::new(dialect);
        Server { socket, pipeline, out: Vec::new(), fence: Fence::Idle, put_refused: false, broken: false }
    }

    pub fn socket(&self) -> Socket {
        self.socket
    }

    pub fn switch_to_pmi2(&mut self) {
        self.pipeline.switch_to_pmi2();
    }

    /// Adds a request to those that [`Server::settle`] or [`Server::send_fence`] will send.
    pub fn ask(&mut self, request: &Request<'_>) -> Result<(), Failure> {
        if self.broken {
            return Err(Failure::Broken);
        }
        let known = self.pipeline.ask(request, &mut self.out);
        if known { Ok(()) } else { Err(Failure::Refused) }
    }

    /// Sends what was asked, and a fence behind it. The answers of puts before it count as the fence's.
    pub fn send_fence(&mut self) -> Result<(), Failure> {
        self.send_barrier(None)
    }

    /// As [`Server::send_fence`], among some ranks only (PMI 1.2).
    pub fn send_barrier(&mut self, group: Option<&[u8]>) -> Result<(), Failure> {
        self.ask(&Request::Barrier { group })?;
        self.fence = Fence::UnderWay;
        self.flush()
    }

    /// Whether the fence is over, and how; waits for that if `wait`.
    pub fn end_fence(&mut self, wait: bool) -> Option<Result<(), Failure>> {
        loop {
            if let Fence::Over(result) = self.fence {
                self.fence = Fence::Idle;
                let refused = core::mem::take(&mut self.put_refused);
                return Some(if refused { result.and(Err(Failure::Refused)) } else { result });
            }
            let mut refused = false;
            let taken = self.take_one(&mut |_, fields| refused |= !fields.succeeded());
            self.put_refused |= refused;
            let read = match taken {
                Ok(false) if !wait && !self.socket.is_readable() => return None,
                Ok(false) => self.read(),
                Ok(true) => Ok(()),
                Err(failure) => Err(failure),
            };
            if let Err(failure) = read {
                self.fence = Fence::Over(Err(failure));
            }
        }
    }

    /// Sends what was asked and waits for all answers.
    pub fn settle(&mut self, take: Take<'_>) -> Result<(), Failure> {
        self.flush()?;
        let all = self.pipeline.unanswered();
        while self.pipeline.unanswered() > 0 {
            if !self.take_one(&mut |behind, fields| take(all - 1 - behind, fields))? {
                self.read()?;
            }
        }
        Ok(())
    }

    /// Waits for the answers of puts that were sent with a fence, so that the next answer is the next request's.
    pub fn drain(&mut self) -> Result<(), Failure> {
        if self.pipeline.unanswered() == 0 {
            return Ok(());
        }
        let mut refused = false;
        let drained = self.settle(&mut |_, fields| refused |= !fields.succeeded());
        self.put_refused |= refused;
        drained
    }

    /// One request and its answer, which must be a success.
    pub fn call(&mut self, request: &Request<'_>, take: &mut dyn FnMut(&ReplyFields<'_>)) -> Result<(), Failure> {
        self.drain()?;
        self.ask(request)?;
        let command = request.command();
        let mut result = Err(Failure::Refused);
        self.settle(&mut |_, fields| {
            if !fields.answers(command) {
                result = Err(Failure::Broken);
            } else if fields.succeeded() {
                take(fields);
                result = Ok(());
            }
        })?;
        if result == Err(Failure::Broken) {
            self.broken = true;
        }
        result
    }

    /// One request of which only the success is of interest.
    pub fn tell(&mut self, request: &Request<'_>) -> Result<(), Failure> {
        self.call(request, &mut |_| {})
    }

    /// One request and a field of its answer, copied.
    pub fn question(&mut self, request: &Request<'_>, field: &str) -> Result<Option<Vec<u8>>, Failure> {
        let mut text = None;
        self.call(request, &mut |fields| text = fields.get(field).map(<[u8]>::to_vec))?;
        Ok(text)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let sent =
            if self.broken { Err(Failure::Broken) } else { self.socket.write_all(&self.out).map_err(Failure::from) };
        self.out.clear();
        self.broken = sent.is_err();
        sent
    }

    fn read(&mut self) -> Result<(), Failure> {
        let pipeline = &mut self.pipeline;
        let read = if self.broken { Err(Gone) } else { self.socket.read(|bytes| pipeline.push(bytes)) };
        self.broken = !matches!(read, Ok(Ok(())));
        if self.broken { Err(Failure::Broken) } else { Ok(()) }
    }

    /// Takes one answer that has come; `false`: none has.
    fn take_one(&mut self, take: &mut dyn FnMut(usize, &ReplyFields<'_>)) -> Result<bool, Failure> {
        match self.pipeline.next() {
            Err(_) => {
                self.broken = true;
                Err(Failure::Broken)
            }
            Ok(None) => Ok(false),
            Ok(Some(answer)) if answer.command == Command::Barrier => {
                let succeeded = answer.fields.succeeded();
                self.fence = Fence::Over(if succeeded { Ok(()) } else { Err(Failure::Refused) });
                Ok(true)
            }
            Ok(Some(answer)) => {
                take(answer.behind, &answer.fields);
                Ok(true)
            }
        }
    }
}
