//! The conversation with the PMI server, for blocking callers: the engine's [`Link`] driven over a socket.
//!
//! A call costs one write and, if the answer arrives in one piece, one read. A fence may be started and its answer read
//! later; calls in between are answered meanwhile. Requests can be collected and sent with one write; their answers
//! then come in order ([`Server::settle`]). A put can be posted without waiting for its answer ([`Server::post`]); it
//! is sent with the next request.
//!
//! A write waits while the socket is full. Meanwhile, received data is read, since a server does not read from a client
//! that does not read from it.

mod own_requests;

use crate::mapping::{Descriptor, Shared};
use crate::socket::{Gone, Socket};
use alloc::vec::Vec;
pub use own_requests::{Address, Gather};
pub use wireup_client::Failure;
use wireup_client::Link;
use wireup_client::link::Answer;
use wireup_wire::pmi::{Dialect, ReplyFields, Request};

impl From<Gone> for Failure {
    fn from(_: Gone) -> Self {
        Failure::Broken
    }
}

/// The most text of posted puts that is held back: some hundreds of short ones.
const HELD_BYTES_MAX: usize = 16 << 10;

/// A function that reads once from the socket.
type Receive = fn(Socket, &mut Vec<Descriptor>, &mut dyn FnMut(&[u8])) -> Result<(), Gone>;

pub struct Server {
    socket: Socket,
    receive: Receive,
    pub link: Link<Shared>,
    one_at_a_time: bool,
}

impl Server {
    pub fn new(socket: Socket, dialect: Dialect) -> Self {
        Server { socket, receive: |socket, _, take| socket.read(take), link: Link::new(dialect), one_at_a_time: false }
    }

    pub fn socket(&self) -> Socket {
        self.socket
    }

    /// Lets reads accept descriptors, which the server may send from now on.
    pub fn expect_descriptors(&mut self) {
        self.receive = Socket::receive;
    }

    /// For a server that loses a request that arrives before it has read the previous one: calls wait for the end of a
    /// fence.
    pub fn ask_one_at_a_time(&mut self) {
        self.one_at_a_time = true;
    }

    /// Adds a put without waiting for its answer. Makes a round trip when too much text is held back.
    pub fn post(&mut self, put: &Request<'_>) -> Result<(), Failure> {
        self.link.post(put)?;
        if self.link.to_send().len() > HELD_BYTES_MAX { self.drain() } else { Ok(()) }
    }

    /// Sends the collected requests and waits for all answers.
    pub fn settle(&mut self, take: &mut dyn FnMut(&Answer<'_>)) -> Result<(), Failure> {
        self.flush()?;
        while self.link.awaited() > 0 {
            if !self.take_answer(take)? {
                self.read()?;
            }
        }
        Ok(())
    }

    /// Sends the posted puts and waits for their answers.
    fn drain(&mut self) -> Result<(), Failure> {
        self.flush()?;
        while self.link.unanswered_posts() > 0 {
            self.advance(true)?;
        }
        Ok(())
    }

    /// Makes one request; its answer must be a success.
    pub fn call(&mut self, request: &Request<'_>, take: &mut dyn FnMut(&ReplyFields<'_>)) -> Result<(), Failure> {
        if self.one_at_a_time {
            while self.link.is_in_fence() {
                self.advance(true)?;
            }
        }
        self.link.ask(request)?;
        let command = request.command();
        let mut result = Err(Failure::Refused);
        self.settle(&mut |answer| {
            if !answer.fields.answers(command) {
                result = Err(Failure::Broken);
            } else if answer.fields.succeeded() {
                take(&answer.fields);
                result = Ok(());
            }
        })?;
        if result == Err(Failure::Broken) { Err(self.broke()) } else { result }
    }

    /// Makes one request of which only the success matters.
    pub fn tell(&mut self, request: &Request<'_>) -> Result<(), Failure> {
        self.call(request, &mut |_| {})
    }

    /// Makes one request and copies a field of its answer.
    pub fn question(&mut self, request: &Request<'_>, field: &str) -> Result<Option<Vec<u8>>, Failure> {
        let mut text = None;
        self.call(request, &mut |fields| text = fields.get(field).map(<[u8]>::to_vec))?;
        Ok(text)
    }

    /// Sends a fence after the collected requests.
    pub fn send_fence(&mut self, group: Option<&[u8]>) -> Result<(), Failure> {
        self.link.begin_fence(group)?;
        self.flush()
    }

    /// Waits until the fence in progress is complete.
    pub fn end_fence(&mut self) -> Result<(), Failure> {
        while self.link.is_in_fence() && self.advance(true).is_ok() {}
        self.link.take_fence_end().unwrap_or(Ok(()))
    }

    /// Processes an answer that no call waits for, or reads; `false` if it would have to wait and `wait` is false.
    pub fn advance(&mut self, wait: bool) -> Result<bool, Failure> {
        if self.take_unawaited()? {
            return Ok(true);
        }
        if !wait && !self.link.is_broken() && !self.socket.is_readable() {
            return Ok(false);
        }
        self.read().map(|()| true)
    }

    /// Takes an answer that has been read and that no call waits for; `false` if there is none.
    pub fn take_unawaited(&mut self) -> Result<bool, Failure> {
        let mut is_awaited = false;
        let is_taken = self.take_answer(&mut |_| is_awaited = true)?;
        // Any other answer is taken by the call that waits for it.
        if is_awaited { Err(self.broke()) } else { Ok(is_taken) }
    }

    /// Takes one answer; `false` if no complete answer has been received.
    fn take_answer(&mut self, take: &mut dyn FnMut(&Answer<'_>)) -> Result<bool, Failure> {
        self.link.next(take).map_err(|_| Failure::Broken)
    }

    #[cold]
    fn broke(&mut self) -> Failure {
        self.link.on_closed();
        Failure::Broken
    }

    /// Sends the collected requests, without waiting for their answers.
    pub fn flush(&mut self) -> Result<(), Failure> {
        let sent = self.send_all();
        self.link.on_sent();
        sent.map_err(|_| self.broke())
    }

    fn send_all(&mut self) -> Result<(), Failure> {
        let mut sent = 0;
        while sent < self.link.to_send().len() {
            if self.link.is_broken() {
                return Err(Failure::Broken);
            }
            match self.socket.write_some(&self.link.to_send()[sent..])? {
                0 => self.wait_for_room()?,
                more => sent += more,
            }
        }
        Ok(())
    }

    /// The socket is full: waits, and reads received data meanwhile, unless several calls wait for answers.
    fn wait_for_room(&mut self) -> Result<(), Failure> {
        // Only one request is outstanding: the one that is being sent.
        let may_read = self.link.awaited() <= 1;
        if !self.socket.wait_for_room(may_read) {
            while self.advance(false)? {}
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), Failure> {
        if self.link.is_broken() {
            return Err(Failure::Broken);
        }
        let (mut descriptors, mut pushed) = (Vec::new(), Ok(()));
        let link = &mut self.link;
        let read = (self.receive)(self.socket, &mut descriptors, &mut |bytes| {
            pushed = link.push(bytes).map_err(|_| Failure::Broken)
        });
        descriptors.into_iter().for_each(|descriptor| link.push_memory(Shared::new(descriptor)));
        if read.is_ok() { pushed } else { Err(self.broke()) }
    }
}

#[cfg(test)]
mod tests;
