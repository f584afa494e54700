//! The conversation with the PMI server, without I/O.
//!
//! The driver sends what [`Link::to_send`] holds, hands over what it receives, and calls [`Link::next`] until it
//! returns `false`:
//!
//! ```text
//!   ask, post, start, begin_fence ──► to_send ══► server
//!   next ◄── push, push_memory ◄══════════════════╯
//!     ├─ answer to a request of the caller:  handed to `take`
//!     ├─ answer to a posted put:             counted; a refusal is reported by the next fence
//!     ├─ answer to the fence:                kept until `take_fence_end`
//!     └─ answer to a numbered request:       kept until `next_completion`, `take_addresses`, `take_gathers`
//! ```
//!
//! Servers answer requests of one name in order, with two exceptions. A fence is answered when all ranks have entered
//! it, and requests that are made meanwhile are answered before: only one fence may be outstanding, and its answer is
//! recognised by its name. Fences, allgathers, collectives of groups and address requests of our own server carry a
//! number: any number of them may be outstanding, and their answers come in any order.
//!
//! ```text
//!   ask(put) ask(fence) ask(get)              ──►   put_result  get_result  …  fence's answer
//!   ask(fence 1) ask(put) ask(allgather 2)    ──►   put_result  …  allgather 2  …  fence 1
//! ```
//!
//! An answer says how many descriptors come along: the allgather's array or the arena where it lies, the segments of a
//! kvs.

use crate::escape::halve;
use crate::number;
use alloc::vec::Vec;
use wireup_wire::pmi::{Command, Dialect, PmiError, ReplyFields, ReplyReader, Request, encode_request};

/// Lines that answer `initack`: itself, then `size`, `rank`, `debug`.
const INIT_ACK_LINES: usize = 4;

/// Commands whose answers come in any order.
const NUMBERED: [Command; 4] = [Command::FenceNb, Command::Allgather, Command::AddressGet, Command::Gather];

/// Why a call failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The server is gone, or sent something that cannot be understood: no call will succeed any more.
    Broken,
    /// The server refused the request.
    Refused,
}

/// One answer.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    pub command: Command,
    pub fields: ReplyFields<'a>,
    /// Number of requests, of those answered in order, that were sent after this one and are not answered yet.
    pub after: usize,
}

/// Why nothing more can be read from the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// The server's bytes cannot be cut into messages.
    Bytes(PmiError),
    /// An answer came that nobody asked for.
    Unasked,
    /// One of our own server's commands was refused; which request it was is not said.
    Refused,
}

/// The state of the fence that every server has. Only one such fence can be outstanding.
enum Fence {
    Idle,
    UnderWay,
    Over(Result<(), Failure>),
}

/// The success of a numbered request.
#[derive(Debug)]
pub struct Completion<M> {
    pub id: u32,
    /// For a fence: how often the kvs has grown. For an allgather: the place of the array in the arena, or 0 if the
    /// array has memory of its own.
    pub number: u32,
    /// For an allgather: the array, or a new arena; `None` if none came, or if it could not be mapped.
    pub memory: Option<M>,
}

pub struct Link<M> {
    dialect: Dialect,
    reader: ReplyReader,
    /// Whether the server has answered a request for PMI-2: messages after that answer begin with their length.
    has_agreed: bool,
    out: Vec<u8>,
    /// The commands of outstanding requests that are answered in order.
    asked: Vec<Command>,
    /// The outstanding numbered requests, in the order in which they were made.
    numbered: Vec<(Command, u32)>,
    fence: Fence,
    posts: Posts,
    /// Memory that was received before the answer that it belongs to. `None`: the memory could not be mapped.
    received: Vec<Option<M>>,
    /// The memory that came with the last answer to the caller that had any.
    taken: Vec<Option<M>>,
    completions: Vec<Completion<M>>,
    /// Answers about the addresses of ranks, by the number of the request; `None`: the rank has left.
    addresses: Vec<(u32, Option<Vec<u8>>)>,
    gathers: Vec<(u32, Gathered<M>)>,
    is_broken: bool,
}

/// The result of a collective of a group: an array of its members' values, as in [`wireup_wire::shared::rows`].
#[derive(Debug)]
pub enum Gathered<M> {
    /// In the answer itself; empty if all values are empty.
    Bytes(Vec<u8>),
    /// In memory that came with the answer; `None`: it could not be mapped.
    Memory(Option<M>),
}

/// Puts that nobody waits for one by one: their answers are counted, and a refusal shows at the next fence.
#[derive(Default)]
struct Posts {
    sent: u64,
    answered: u64,
    /// The numbers of the first and the last put that were refused, counted from 1, since the last `take_refusal`.
    refused: Option<(u64, u64)>,
}

impl Posts {
    fn unanswered(&self) -> u64 {
        self.sent - self.answered
    }

    fn on_answered(&mut self, succeeded: bool) {
        self.answered += 1;
        if !succeeded {
            let first = self.refused.map_or(self.answered, |(first, _)| first);
            self.refused = Some((first, self.answered));
        }
    }

    /// Whether one of the first `sent` puts was refused; forgets these refusals.
    fn take_refusal(&mut self, sent: u64) -> bool {
        match self.refused {
            Some((first, last)) if first <= sent => {
                self.refused = (last > sent).then_some((last, last));
                true
            }
            _ => false,
        }
    }
}

/// Receives the answers to the caller's own requests.
pub type Take<'t> = &'t mut dyn FnMut(&Answer<'_>);

impl<M> Link<M> {
    pub fn new(dialect: Dialect) -> Self {
        Link {
            dialect,
            reader: ReplyReader::new(),
            has_agreed: false,
            out: Vec::new(),
            asked: Vec::new(),
            numbered: Vec::new(),
            fence: Fence::Idle,
            posts: Posts::default(),
            received: Vec::new(),
            taken: Vec::new(),
            completions: Vec::new(),
            addresses: Vec::new(),
            gathers: Vec::new(),
            is_broken: false,
        }
    }

    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Begins a conversation after `init` in PMI-2, in which every message begins with its length.
    pub fn switch_to_pmi2(&mut self) {
        self.reader.switch_to_pmi2();
    }

    /// Adds a request.
    ///
    /// # Errors
    /// [`Failure::Refused`] if the dialect has no such request.
    ///
    /// # Panics
    /// If a second fence is asked for before the first is answered.
    pub fn ask(&mut self, request: &Request<'_>) -> Result<(), Failure> {
        if self.is_broken {
            return Err(Failure::Broken);
        }
        let command = request.command();
        // `initack` is a PMI-1 line in either dialect.
        let dialect = if command == Command::InitAck { Dialect::Pmi1 } else { self.dialect };
        encode_request(dialect, request, None, &mut self.out).map_err(|_| Failure::Refused)?;
        match request {
            Request::Abort { .. } => {}
            Request::Barrier { .. } => {
                assert!(!self.is_in_fence(), "one fence at a time is on a link");
                self.fence = Fence::UnderWay;
            }
            Request::FenceNb { id }
            | Request::Allgather { id, .. }
            | Request::AddressGet { id, .. }
            | Request::Gather { id, .. } => self.numbered.push((command, *id)),
            Request::InitAck { .. } => self.asked.extend([Command::InitAck; INIT_ACK_LINES]),
            _ => self.asked.push(command),
        }
        Ok(())
    }

    /// Adds a put whose answer the caller does not wait for.
    pub fn post(&mut self, put: &Request<'_>) -> Result<(), Failure> {
        self.ask(put)?;
        self.posts.sent += 1;
        Ok(())
    }

    /// The number of puts that were posted.
    pub fn posted(&self) -> u64 {
        self.posts.sent
    }

    /// The number of posted puts that are not answered yet.
    pub fn unanswered_posts(&self) -> u64 {
        self.posts.unanswered()
    }

    /// Whether one of the first `posted` puts was refused. The refusal is reported once.
    pub fn take_refusal(&mut self, posted: u64) -> bool {
        self.posts.take_refusal(posted)
    }

    /// The number of requests of the caller that are not answered yet, without posted puts.
    pub fn awaited(&self) -> usize {
        // A caller that waits posts nothing meanwhile.
        self.asked.len() - self.posts.unanswered() as usize
    }

    /// Adds a fence; with a group, among these ranks only (PMI 1.2). The fence also fails if a put that was posted
    /// before it is refused.
    pub fn begin_fence(&mut self, group: Option<&[u8]>) -> Result<(), Failure> {
        self.ask(&Request::Barrier { group })
    }

    /// Whether a fence is outstanding.
    pub fn is_in_fence(&self) -> bool {
        matches!(self.fence, Fence::UnderWay)
    }

    /// The outcome of a fence that has completed. It is reported once.
    pub fn take_fence_end(&mut self) -> Option<Result<(), Failure>> {
        let Fence::Over(result) = self.fence else { return None };
        self.fence = Fence::Idle;
        let refused = self.posts.take_refusal(self.posts.sent);
        Some(if refused { result.and(Err(Failure::Refused)) } else { result })
    }

    /// The next numbered request that has succeeded.
    pub fn next_completion(&mut self) -> Option<Completion<M>> {
        if self.completions.is_empty() { None } else { Some(self.completions.remove(0)) }
    }

    /// The answers to questions for addresses, by number; `None`: the rank has left without telling one.
    pub fn take_addresses(&mut self) -> Vec<(u32, Option<Vec<u8>>)> {
        core::mem::take(&mut self.addresses)
    }

    /// Takes the results of collectives of groups that have arrived, each with the number of its request.
    pub fn take_gathers(&mut self) -> Vec<(u32, Gathered<M>)> {
        core::mem::take(&mut self.gathers)
    }

    /// The memory that came with the last answer to the caller that had any; `None` for a piece that could not be
    /// mapped.
    pub fn take_memory(&mut self) -> Vec<Option<M>> {
        core::mem::take(&mut self.taken)
    }

    /// The bytes that are to be sent to the server.
    pub fn to_send(&self) -> &[u8] {
        &self.out
    }

    /// To be called when all bytes of [`Link::to_send`] were sent.
    pub fn on_sent(&mut self) {
        self.out.clear();
    }

    /// Takes the bytes for the server, for a driver that keeps them until they are sent. Replaces [`Link::to_send`] and
    /// [`Link::on_sent`].
    pub fn take_output(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.out)
    }

    /// Takes bytes of the server, cut anywhere. To be called when [`Link::next`] has returned `false`.
    ///
    /// # Errors
    /// [`Broken`]: nothing more can be read.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        self.reader.push(bytes).map_err(Broken::Bytes).inspect_err(|_| self.on_closed())
    }

    /// Takes memory that came along with the bytes; `None`: it could not be mapped.
    pub fn push_memory(&mut self, memory: Option<M>) {
        self.received.push(memory);
    }

    /// The connection to the server is closed: nothing more can be sent or received.
    #[cold]
    pub fn on_closed(&mut self) {
        self.is_broken = true;
        if let Fence::UnderWay = self.fence {
            self.fence = Fence::Over(Err(Failure::Broken));
        }
    }

    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Takes one answer; `false`: no whole answer has been received.
    ///
    /// # Errors
    /// [`Broken`]: nothing more can be read.
    pub fn next(&mut self, take: Take<'_>) -> Result<bool, Broken> {
        self.take_answer(take).inspect_err(|_| self.on_closed())
    }

    fn take_answer(&mut self, take: Take<'_>) -> Result<bool, Broken> {
        if core::mem::take(&mut self.has_agreed) {
            self.reader.switch_to_pmi2();
        }
        let Some(fields) = self.reader.next().map_err(Broken::Bytes)? else { return Ok(false) };
        let (mut at, mut id) = (0, 0);
        let command = if matches!(self.fence, Fence::UnderWay) && fields.answers(Command::Barrier) {
            Command::Barrier
        } else if let Some(command) = NUMBERED.into_iter().find(|one| fields.answers(*one)) {
            id = take_numbered(&mut self.numbered, command, &fields)?;
            command
        } else {
            // The answer has another name than the first request only if the server answers some requests out of order,
            // as Hydra does.
            at = self.asked.iter().position(|one| fields.answers(*one)).unwrap_or(0);
            if at == self.asked.len() {
                return Err(Broken::Unasked);
            }
            // Queues are short and their entries a byte: moving them up costs less code than a ring buffer.
            self.asked.remove(at)
        };
        self.has_agreed = command == Command::Init && self.dialect == Dialect::Pmi2;
        if command == Command::KvsMap && !fields.succeeded() {
            return Err(Broken::Refused);
        }
        let descriptors = descriptors(command, &fields);
        let mut is_complete = descriptors <= self.received.len();
        let mut memory: Vec<Option<M>> = self.received.drain(..descriptors.min(self.received.len())).collect();
        match command {
            Command::Barrier => {
                self.fence = Fence::Over(if fields.succeeded() { Ok(()) } else { Err(Failure::Refused) });
            }
            Command::FenceNb | Command::Allgather => {
                let memory = memory.pop().flatten();
                // A fence's answer has the first field, an allgather's may have the second one.
                let number = fields.get("kvs").or_else(|| fields.get("place")).and_then(number::parse).unwrap_or(0);
                self.completions.push(Completion { id, number, memory });
            }
            Command::AddressGet => self.addresses.push((id, fields.get("value").map(<[u8]>::to_vec))),
            Command::Gather => {
                let gathered = match descriptors {
                    1.. => Gathered::Memory(memory.pop().flatten()),
                    0 => Gathered::Bytes(halve(fields.get("value").unwrap_or_default(), &mut Vec::new()).to_vec()),
                };
                self.gathers.push((id, gathered));
            }
            Command::Put if self.posts.unanswered() > 0 => {
                is_complete &= fields.answers(Command::Put);
                self.posts.on_answered(fields.succeeded());
            }
            _ => {
                if descriptors > 0 {
                    self.taken = memory;
                }
                take(&Answer { command, fields, after: self.asked.len() - at });
            }
        }
        if is_complete { Ok(true) } else { Err(Broken::Unasked) }
    }
}

/// The number of an answer; removes its request from the outstanding ones.
fn take_numbered(
    numbered: &mut Vec<(Command, u32)>,
    command: Command,
    fields: &ReplyFields<'_>,
) -> Result<u32, Broken> {
    if !fields.succeeded() {
        return Err(Broken::Refused);
    }
    let id = fields.get("id").and_then(number::parse);
    let id = id.ok_or(Broken::Unasked)?;
    let at = numbered.iter().position(|one| *one == (command, id)).ok_or(Broken::Unasked)?;
    numbered.remove(at);
    Ok(id)
}

fn descriptors(command: Command, fields: &ReplyFields<'_>) -> usize {
    match command {
        _ if !fields.succeeded() => 0,
        Command::Allgather => usize::from(fields.get("place").is_none() | fields.get("new").is_some()),
        Command::Gather => usize::from(fields.get("memory").is_some()),
        Command::Endpoints | Command::Relay => 1,
        Command::KvsMap => match fields.get("ends") {
            None | Some(b"") => 0,
            Some(ends) => ends.split(|byte| *byte == b',').count(),
        },
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
