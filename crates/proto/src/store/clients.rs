//! The connections of this node's clients: each has one request at a time, and is answered when the outcomes for all
//! keys of the request are known.
//!
//! A request without a reply, such as a set, also has to be done first: the client's next request waits until the
//! owners have taken it. So a client's requests take effect in their order, whatever agents own the keys. The one
//! exception: a request that arrives during a wait or a barrier ends the wait.

use super::questions::{Part, Questions, Waiting};
use crate::io::{StoreAct, StoreClient, StoreEvent};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use wireup_wire::limits::{STORE_READ_AHEAD_BYTES, STORE_REPLY_BYTES_MAX, STORE_UNFINISHED_BYTES_MAX, STORE_WAITS_MAX};
use wireup_wire::store::{Operation, Outcome};
use wireup_wire::torch_store::{NOT_READY, READY, Reply, Request, RequestReader, STOP_WAITING, WAIT_CANCELLED};

#[derive(Default)]
pub struct Clients {
    all: BTreeMap<StoreClient, Client>,
    /// Clients whose last request is done, and whose next request may have arrived.
    ready: VecDeque<StoreClient>,
    /// Bytes of requests that were not decoded yet.
    unfinished_bytes: usize,
    /// Number of keys for which clients wait.
    waits: usize,
    acts: Vec<(StoreClient, StoreAct)>,
    /// Whether new connections are closed.
    is_closing: bool,
    /// Why a connection was closed, for the user.
    problem: Option<String>,
}

#[derive(Default)]
struct Client {
    reader: RequestReader,
    pending: Option<Pending>,
    request: u32,
    /// Whether replies wait for the client to read.
    is_full: bool,
    /// Whether the driver was asked to stop reading the connection.
    is_stopped: bool,
    is_gone: bool,
}

impl Client {
    /// Whether the client's next request waits until the last one is done.
    fn is_busy(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.shape != Shape::Wait)
    }
}

/// A request that was not answered yet.
struct Pending {
    shape: Shape,
    keys: usize,
    /// The number of outcomes that have not arrived.
    missing: usize,
    /// The outcome for each key; `None`: it has not arrived. A wait keeps only outcomes that are failures.
    outcomes: Vec<Option<Outcome>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    /// There is no reply.
    Quiet,
    Value,
    Values,
    Number,
    Check,
    Wait,
    Popped,
    Keys,
}

impl Clients {
    pub fn on_event(&mut self, id: StoreClient, event: StoreEvent, questions: &mut Questions) {
        match event {
            StoreEvent::Opened if self.is_closing => self.acts.push((id, StoreAct::Close)),
            StoreEvent::Opened => drop(self.all.insert(id, Client::default())),
            StoreEvent::Bytes(bytes) => {
                // The driver may have read these bytes before it closed the connection on this agent's request.
                let Some(client) = self.all.get_mut(&id) else { return };
                if let Err(error) = client.reader.push(&bytes) {
                    return self.close(id, &error.to_string(), questions);
                }
                self.unfinished_bytes += bytes.len();
                if self.unfinished_bytes > STORE_UNFINISHED_BYTES_MAX {
                    return self.close(id, "too many bytes of unfinished requests wait", questions);
                }
                self.ready.push_back(id);
            }
            StoreEvent::Full(is_full) => {
                if let Some(client) = self.all.get_mut(&id) {
                    client.is_full = is_full;
                    self.ready.push_back(id);
                }
            }
            // Requests that the client sent before are still carried out.
            StoreEvent::Gone => {
                if let Some(client) = self.all.get_mut(&id) {
                    client.is_gone = true;
                    self.ready.push_back(id);
                }
            }
        }
    }

    /// Whether all connections have ended, and everything that they have sent was carried out.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn are_open(&self) -> bool {
        self.all.values().any(|client| !client.is_gone)
    }

    pub fn stop_accepting(&mut self) {
        self.is_closing = true;
    }

    /// Closes all connections; what they have sent is carried out.
    pub fn close_all(&mut self) {
        for (id, client) in self.all.iter_mut().filter(|(_, client)| !client.is_gone) {
            client.is_gone = true;
            self.acts.push((*id, StoreAct::Close));
            self.ready.push_back(*id);
        }
    }

    /// Handles requests that have arrived.
    pub fn advance(&mut self, questions: &mut Questions) {
        while let Some(id) = self.ready.pop_front() {
            self.advance_one(id, questions);
        }
    }

    fn advance_one(&mut self, id: StoreClient, questions: &mut Questions) {
        while let Some(client) = self.all.get_mut(&id) {
            if client.is_busy() || client.is_full && !client.is_gone {
                break;
            }
            let before = client.reader.held_bytes();
            let next = client.reader.next();
            self.unfinished_bytes -= before - client.reader.held_bytes();
            match next {
                Ok(None) if client.is_gone => return self.forget(id, questions),
                Ok(None) => break,
                Ok(Some(request)) => {
                    self.end_wait(id, questions);
                    self.start(id, request, questions);
                }
                Err(error) => return self.close(id, &error.to_string(), questions),
            }
        }
        self.limit_reading(id);
    }

    /// Pauses reading from a client that sends requests before it has received the answers. A request that follows a
    /// wait ends the wait, so reading continues until it is complete.
    fn limit_reading(&mut self, id: StoreClient) {
        let Some(client) = self.all.get_mut(&id) else { return };
        let stops = (client.is_full || client.is_busy()) && client.reader.held_bytes() > STORE_READ_AHEAD_BYTES;
        if stops != std::mem::replace(&mut client.is_stopped, stops) {
            self.acts.push((id, StoreAct::Read(!stops)));
        }
    }

    fn start(&mut self, id: StoreClient, request: Request, questions: &mut Questions) {
        let one = |key, operation| vec![(key, operation)];
        let each = |keys: Vec<Bytes>, operation: Operation| {
            keys.into_iter().map(|key| (key, operation.clone())).collect::<Vec<_>>()
        };
        let (shape, asked) = match request {
            Request::CancelWait => return self.reply(id, &Reply::Byte(WAIT_CANCELLED)),
            Request::Ping { nonce } => return self.reply(id, &Reply::Nonce(nonce)),
            Request::GetNumKeys => return self.start_all(id, Shape::Number, &Operation::Count, questions),
            Request::ListKeys => return self.start_all(id, Shape::Keys, &Operation::List, questions),
            Request::Set { key, value } => (Shape::Quiet, one(key, Operation::Set { value })),
            Request::MultiSet { pairs } => {
                let sets = pairs.into_iter().map(|(key, value)| (key, Operation::Set { value }));
                (Shape::Quiet, sets.collect())
            }
            Request::Append { key, value } => (Shape::Quiet, one(key, Operation::Append { value })),
            Request::QueuePush { key, value } => (Shape::Quiet, one(key, Operation::Push { value })),
            Request::CompareSet { key, expected, desired } => {
                (Shape::Value, one(key, Operation::CompareSet { expected, desired }))
            }
            Request::Get { key } => (Shape::Value, one(key, Operation::Get)),
            Request::MultiGet { keys } => (Shape::Values, each(keys, Operation::Get)),
            Request::Add { key, amount } => (Shape::Number, one(key, Operation::Add { amount })),
            Request::DeleteKey { key } => (Shape::Number, one(key, Operation::Delete)),
            Request::QueueLen { key } => (Shape::Number, one(key, Operation::Length)),
            Request::QueuePop { key } => (Shape::Popped, one(key, Operation::Pop)),
            Request::Check { keys } => (Shape::Check, each(keys, Operation::Check)),
            Request::Wait { keys } => (Shape::Wait, each(keys, Operation::Wait { seen: 0 })),
            Request::Barrier { key, world_size } => (Shape::Wait, one(key, Operation::Arrive { count: 1, world_size })),
        };
        if shape == Shape::Wait && self.waits + asked.len() > STORE_WAITS_MAX {
            return self.close(id, "the ranks of this node wait for too many keys", questions);
        }
        let Some(part) = self.next_part(id) else { return };
        let parts = (0..).map(|slot| Waiting::Client(Part { slot, ..part }));
        let outcomes = parts.zip(asked).map(|(part, (key, operation))| questions.ask(part, key, operation)).collect();
        self.pend(id, shape, outcomes, questions);
    }

    fn start_all(&mut self, id: StoreClient, shape: Shape, operation: &Operation, questions: &mut Questions) {
        if let Some(part) = self.next_part(id) {
            questions.ask_all(part, operation);
            self.pend(id, shape, vec![None; questions.owners().len()], questions);
        }
    }

    /// The first part of a client's next request.
    fn next_part(&mut self, id: StoreClient) -> Option<Part> {
        let client = self.all.get_mut(&id)?;
        client.request = client.request.wrapping_add(1);
        Some(Part { client: id, request: client.request, slot: 0 })
    }

    /// Records a request with the outcomes that are known at once, and answers it if all are.
    fn pend(&mut self, id: StoreClient, shape: Shape, outcomes: Vec<Option<Outcome>>, questions: &mut Questions) {
        let Some(client) = self.all.get_mut(&id) else { return };
        let (keys, missing) = (outcomes.len(), outcomes.iter().filter(|outcome| outcome.is_none()).count());
        let is_wait = shape == Shape::Wait;
        self.waits += if is_wait { keys } else { 0 };
        let outcomes = if is_wait { Vec::new() } else { outcomes };
        client.pending = Some(Pending { shape, keys, missing, outcomes });
        self.finish_if_done(id, questions);
    }

    /// The outcome for one key of a client's request has arrived.
    pub fn on_outcome(&mut self, part: Part, outcome: Outcome, questions: &mut Questions) {
        let client = self.all.get_mut(&part.client).filter(|client| client.request == part.request);
        let Some(pending) = client.and_then(|client| client.pending.as_mut()) else { return };
        if pending.shape == Shape::Wait {
            pending.outcomes.extend(outcome.is_failure().then_some(Some(outcome)));
        } else {
            let Some(slot) = pending.outcomes.get_mut(part.slot).filter(|slot| slot.is_none()) else { return };
            *slot = Some(outcome);
        }
        pending.missing -= 1;
        self.finish_if_done(part.client, questions);
    }

    fn finish_if_done(&mut self, id: StoreClient, questions: &mut Questions) {
        let Some(client) = self.all.get_mut(&id) else { return };
        let Some(pending) = client.pending.take_if(|pending| pending.missing == 0) else { return };
        let Pending { shape, keys, outcomes, .. } = pending;
        if shape == Shape::Wait {
            self.waits -= keys;
        }
        match answer(shape, outcomes.into_iter().flatten().collect()) {
            Ok(reply) => reply.iter().for_each(|reply| self.reply(id, reply)),
            Err(problem) => return self.close(id, problem, questions),
        }
        self.ready.push_back(id);
    }

    fn end_wait(&mut self, id: StoreClient, questions: &mut Questions) {
        let pending = self.all.get_mut(&id).and_then(|client| client.pending.take());
        if let Some(Pending { shape: Shape::Wait, keys, .. }) = pending {
            self.waits -= keys;
            questions.leave_client(id);
        }
    }

    fn reply(&mut self, id: StoreClient, reply: &Reply) {
        self.acts.push((id, StoreAct::Write(reply.encode())));
    }

    fn close(&mut self, id: StoreClient, problem: &str, questions: &mut Questions) {
        self.problem.get_or_insert_with(|| problem.to_owned());
        self.acts.push((id, StoreAct::Close));
        self.forget(id, questions);
    }

    fn forget(&mut self, id: StoreClient, questions: &mut Questions) {
        self.end_wait(id, questions);
        if let Some(client) = self.all.remove(&id) {
            self.unfinished_bytes -= client.reader.held_bytes();
        }
    }

    /// Whether the counters of bytes and of waits are both 0.
    #[cfg(any(test, fuzzing))]
    pub fn has_no_bytes(&self) -> bool {
        self.unfinished_bytes == 0 && self.waits == 0
    }

    /// Removes and returns the actions for connections, in order.
    pub fn take_acts(&mut self) -> Vec<(StoreClient, StoreAct)> {
        std::mem::take(&mut self.acts)
    }

    /// Removes and returns the reason why a connection was closed since the last call.
    pub fn take_problem(&mut self) -> Option<String> {
        self.problem.take()
    }
}

/// The answer to a request whose keys had these outcomes; `None`: a request of this shape has no answer.
///
/// # Errors
/// Why the client cannot be answered.
fn answer(shape: Shape, outcomes: Vec<Outcome>) -> Result<Option<Reply>, &'static str> {
    if outcomes.contains(&Outcome::Full) || outcomes.iter().map(Outcome::len).sum::<usize>() > STORE_REPLY_BYTES_MAX {
        return Err("the store has no room for more values, or the answer is too long");
    }
    if outcomes.contains(&Outcome::NoNumber) {
        return Err("it added to a key whose value is not a number");
    }
    let value = |outcome: Outcome| match outcome {
        Outcome::Value(value) => value.unwrap_or_default(),
        _ => Bytes::new(),
    };
    let number = |outcome: &Outcome| match outcome {
        Outcome::Number(number) => *number,
        _ => 0,
    };
    Ok(match shape {
        Shape::Quiet => None,
        Shape::Value => outcomes.into_iter().next().map(value).map(Reply::Value),
        Shape::Values => Some(Reply::Values(outcomes.into_iter().map(value).collect())),
        Shape::Number => Some(Reply::Number(outcomes.iter().map(number).sum())),
        Shape::Check if outcomes.contains(&Outcome::Missing) => Some(Reply::Byte(NOT_READY)),
        Shape::Check => Some(Reply::Byte(READY)),
        Shape::Wait => Some(Reply::Byte(STOP_WAITING)),
        Shape::Popped => outcomes.into_iter().find_map(|outcome| match outcome {
            Outcome::Popped { length, value } => Some(Reply::Popped { length: length as i64, value }),
            _ => None,
        }),
        Shape::Keys => {
            let keys = outcomes.into_iter().flat_map(|outcome| match outcome {
                Outcome::Keys(keys) => keys,
                _ => Vec::new(),
            });
            Some(Reply::Keys(keys.collect()))
        }
    })
}
