//! The conversation with the PMI server, for callers that wait.
//!
//! A call costs one write and, if the answer comes whole, one read. A fence may be started and its answer be read later; the
//! calls between are answered meanwhile. Requests may be gathered ([`Server::ask`]) and leave as one write, their answers
//! then come in order ([`Server::settle`]). Puts may be left to themselves ([`Server::post`]): they leave with the next
//! request.
//!
//! A write waits while the socket is full. What has come is read meanwhile: a server does not read from a client that does
//! not read from it.

mod fence;
mod numbered;

use self::fence::Fence;
pub use self::numbered::Over;
use crate::mapping::{Descriptor, Mapping};
use crate::posts::Posts;
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

/// Text of posted puts that is held back at most: some hundreds of short ones.
const HELD_BYTES_MAX: usize = 16 << 10;

/// Reads once from the socket.
type Receive = fn(Socket, &mut Vec<Descriptor>, &mut dyn FnMut(&[u8])) -> Result<(), Gone>;

pub struct Server {
    socket: Socket,
    receive: Receive,
    pipeline: Pipeline,
    out: Vec<u8>,
    fence: Fence,
    posts: Posts,
    /// Received and not yet taken by the answer that they belong to.
    descriptors: Vec<Descriptor>,
    mappings: Vec<Option<Mapping>>,
    over: Vec<Over>,
    one_at_a_time: bool,
    broken: bool,
}

/// Takes answers in order: the number among those asked, from 0, and the fields.
pub type Take<'t> = &'t mut dyn FnMut(usize, &ReplyFields<'_>);

impl Server {
    pub fn new(socket: Socket, dialect: Dialect) -> Self {
        Server {
            socket,
            receive: |socket, _, take| socket.read(take),
            pipeline: Pipeline::new(dialect),
            out: Vec::new(),
            fence: Fence::Idle,
            posts: Posts::default(),
            descriptors: Vec::new(),
            mappings: Vec::new(),
            over: Vec::new(),
            one_at_a_time: false,
            broken: false,
        }
    }

    pub fn socket(&self) -> Socket {
        self.socket
    }

    pub fn switch_to_pmi2(&mut self) {
        self.pipeline.switch_to_pmi2();
    }

    /// This server forgets a request that comes before it has read the one before: calls wait for a fence's end.
    pub fn ask_one_at_a_time(&mut self) {
        self.one_at_a_time = true;
    }

    /// Adds a request to those that [`Server::settle`] or [`Server::send_fence`] will send.
    pub fn ask(&mut self, request: &Request<'_>) -> Result<(), Failure> {
        if self.broken {
            return Err(Failure::Broken);
        }
        let known = self.pipeline.ask(request, &mut self.out);
        if known { Ok(()) } else { Err(Failure::Refused) }
    }

    /// Adds a put whose answer nobody waits for. Makes a round trip when too many are held back.
    pub fn post(&mut self, put: &Request<'_>) -> Result<(), Failure> {
        self.ask(put)?;
        self.posts.on_sent();
        if self.out.len() > HELD_BYTES_MAX { self.drain() } else { Ok(()) }
    }

    /// How many puts were posted.
    pub fn posted(&self) -> u64 {
        self.posts.sent()
    }

    /// Whether one of the first `posted` puts was refused; that is then forgotten.
    pub fn take_refusal(&mut self, posted: u64) -> bool {
        self.posts.take_refusal(posted)
    }

    /// Requests whose answers somebody waits for.
    fn awaited(&self) -> usize {
        // Who waits posts nothing meanwhile.
        self.pipeline.unanswered() - self.posts.unanswered() as usize
    }

    /// Sends what was asked and waits for all answers.
    pub fn settle(&mut self, take: Take<'_>) -> Result<(), Failure> {
        self.flush()?;
        let all = self.awaited();
        while self.awaited() > 0 {
            if !self.take_one(&mut |behind, fields| take(all - 1 - behind, fields))? {
                self.read()?;
            }
        }
        Ok(())
    }

    /// Sends the posted puts and waits for their answers.
    fn drain(&mut self) -> Result<(), Failure> {
        self.flush()?;
        while self.posts.unanswered() > 0 {
            self.advance(true)?;
        }
        Ok(())
    }

    /// One request and its answer, which must be a success.
    pub fn call(&mut self, request: &Request<'_>, take: &mut dyn FnMut(&ReplyFields<'_>)) -> Result<(), Failure> {
        if self.one_at_a_time {
            self.settle_fence();
        }
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

    /// Takes an answer that nobody waits for in particular, or reads; `false`: it would have to wait, and `wait` is not
    /// wanted.
    pub fn advance(&mut self, wait: bool) -> Result<bool, Failure> {
        let mut asked = true;
        if self.take_one(&mut |_, _| asked = false)? {
            // All others are taken by who waits for them.
            return if asked { Ok(true) } else { self.broke() };
        }
        if !wait && !self.broken && !self.socket.is_readable() {
            return Ok(false);
        }
        self.read().map(|()| true)
    }

    fn broke<T>(&mut self) -> Result<T, Failure> {
        self.broken = true;
        Err(Failure::Broken)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let sent = self.send_all();
        self.out.clear();
        if sent.is_err() { self.broke() } else { Ok(()) }
    }

    fn send_all(&mut self) -> Result<(), Failure> {
        let mut sent = 0;
        while sent < self.out.len() {
            if self.broken {
                return Err(Failure::Broken);
            }
            match self.socket.write_some(&self.out[sent..])? {
                0 => self.wait_for_room()?,
                more => sent += more,
            }
        }
        Ok(())
    }

    /// The socket is full: waits, and reads what comes meanwhile unless several answers could be somebody's.
    fn wait_for_room(&mut self) -> Result<(), Failure> {
        // The last request is the one that is being sent.
        let may_read = self.awaited() <= 1;
        if !self.socket.wait_for_room(may_read) {
            while self.advance(false)? {}
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), Failure> {
        if self.broken {
            return Err(Failure::Broken);
        }
        let Self { pipeline, descriptors, .. } = self;
        let mut pushed = Ok(());
        let read = (self.receive)(self.socket, descriptors, &mut |bytes| pushed = pipeline.push(bytes));
        if read.is_ok() && pushed.is_ok() { Ok(()) } else { self.broke() }
    }

    /// Takes one answer that has come; `false`: none has.
    fn take_one(&mut self, take: &mut dyn FnMut(usize, &ReplyFields<'_>)) -> Result<bool, Failure> {
        let answer = match self.pipeline.next() {
            Err(_) => return self.broke(),
            Ok(None) => return Ok(false),
            Ok(Some(answer)) => answer,
        };
        let mut complete = true;
        if answer.descriptors > 0 {
            complete = answer.descriptors <= self.descriptors.len();
            let coming = answer.descriptors.min(self.descriptors.len());
            self.mappings = self.descriptors.drain(..coming).map(Descriptor::map).collect();
        }
        match answer.command {
            Command::Barrier => {
                let succeeded = answer.fields.succeeded();
                self.fence = Fence::Over(if succeeded { Ok(()) } else { Err(Failure::Refused) });
            }
            Command::FenceNb | Command::Allgather => {
                let array = self.mappings.pop().flatten();
                self.over.extend(Over::read(&answer, array));
            }
            Command::Put if self.posts.unanswered() > 0 => {
                complete &= answer.fields.answers(Command::Put);
                self.posts.on_answered(answer.fields.succeeded());
            }
            _ => take(answer.behind, &answer.fields),
        }
        if complete { Ok(true) } else { self.broke() }
    }
}

#[cfg(test)]
mod tests;
