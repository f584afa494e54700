//! Ranks as clients of PyTorch's store: their connections to their agents, their requests, and the answers.

use crate::clock::Event;
use crate::clock::Fifo;
use crate::cx::Cx;
use crate::jobs::{Job, Jobs, Node};
use crate::ranks::{Doing, Proc};
use crate::sockets::{cut, read_at};
use crate::workload::{self, Step};
use bytes::Bytes;
use wireup_proto::Instant;
use wireup_proto::io::{JobEvent, StoreAct, StoreClient, StoreEvent};
use wireup_wire::torch_store::{Reply, STOP_WAITING};

/// Port at which each simulated agent serves the store.
pub const PORT: u16 = 29_500;

/// The first bytes that PyTorch's newest clients send.
const MAGIC: &[u8] = &[0, 0xce, 0xf7, 0x85, 0x3c];

/// A request to the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreStep {
    /// Sets the rank's own key; there is no answer.
    Set { value_bytes: u16 },
    /// Waits for the keys of both neighbours in a ring of all ranks.
    Wait,
    /// Gets the values of both neighbours in the ring.
    Get { value_bytes: u16 },
    /// Waits in a barrier of all ranks.
    Barrier,
}

impl StoreStep {
    /// Whether the answer depends on what other ranks do.
    pub fn is_collective(self) -> bool {
        matches!(self, StoreStep::Wait | StoreStep::Barrier)
    }

    /// The bytes of the request, and the bytes of its answer; an empty answer: there is none.
    fn request_and_answer(self, rank: u32, job: &Job) -> (Vec<u8>, Bytes) {
        let size = job.size();
        let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
        let key = |rank| text(&workload::key(rank, 0));
        let value = |rank, value_bytes| workload::value(job.seed, rank, 0, value_bytes);
        let neighbours = [(rank + size - 1) % size, (rank + 1) % size];
        let of_neighbours = |opcode: u8| {
            let keys = neighbours.iter().flat_map(|rank| key(*rank));
            [opcode].into_iter().chain(2_u64.to_le_bytes()).chain(keys).collect()
        };
        let released = Reply::Byte(STOP_WAITING).encode();
        match self {
            StoreStep::Set { value_bytes } => {
                ([&[1][..], &key(rank), &text(&value(rank, value_bytes))].concat(), Bytes::new())
            }
            StoreStep::Wait => (of_neighbours(6), released),
            StoreStep::Get { value_bytes } => {
                let values = neighbours.map(|rank| value(rank, value_bytes).into());
                (of_neighbours(10), Reply::Values(values.into()).encode())
            }
            StoreStep::Barrier => ([&[18][..], &text("barrier"), &i64::from(size).to_le_bytes()].concat(), released),
        }
    }
}

/// A rank's connection to the store.
#[derive(Default)]
pub struct StoreLink {
    to_agent: Fifo<StoreEvent>,
    from_agent: Fifo<Bytes>,
    /// The bytes of the answer that have arrived so far.
    heard: Vec<u8>,
}

/// Sends a request to the store; the first one opens the connection.
pub fn ask_store(proc: &mut Proc, cx: &mut Cx, job: &Job, step: StoreStep) {
    let (request, answer) = step.request_and_answer(proc.rank, job);
    let is_first = proc.socket.store.is_none();
    if is_first {
        tell_store(proc, cx, StoreEvent::Opened);
    }
    let mut bytes = Bytes::from([if is_first { MAGIC } else { &[] }, &request].concat());
    if let Some(piece) = cut(cx, &mut bytes) {
        tell_store(proc, cx, StoreEvent::Bytes(piece));
    }
    tell_store(proc, cx, StoreEvent::Bytes(bytes));
    if answer.is_empty() {
        proc.step_done(cx);
    } else {
        proc.doing = Doing::Reply;
    }
}

/// The rank has ended, and its connection to the store ends with it.
pub fn leave_store(proc: &mut Proc, cx: &mut Cx) {
    if proc.socket.store.is_some() {
        tell_store(proc, cx, StoreEvent::Gone);
    }
}

fn tell_store(proc: &mut Proc, cx: &mut Cx, event: StoreEvent) {
    let now = cx.clock.now();
    let sent = cx.work(proc.socket.host, now, |costs| costs.request_ns);
    let delay_ns = sent - now + cx.draw(cx.spec.timing.client);
    proc.socket.store.get_or_insert_default().to_agent.push(
        &mut cx.clock,
        delay_ns,
        event,
        Event::StoreArrive(proc.id),
    );
}

/// The agent reads from a rank's connection; `None`: there is nothing to report to the agent.
pub fn on_store_arrive(proc: &mut Proc, node: &Node) -> Option<JobEvent> {
    let event = proc.socket.store.as_mut()?.to_agent.pop().filter(|_| !node.job_is_gone)?;
    Some(JobEvent::Store { client: StoreClient(proc.local.0.into()), event })
}

fn hear_store(proc: &mut Proc, cx: &mut Cx, job: &Job, bytes: &[u8]) {
    let (Some(Step::Store(step)), Some(link)) = (proc.progress.current(), &mut proc.socket.store) else {
        return proc.problem(cx, job, "gets an answer of the store that it did not ask for");
    };
    link.heard.extend_from_slice(bytes);
    let (_, answer) = step.request_and_answer(proc.rank, job);
    if link.heard == answer {
        link.heard.clear();
        proc.step_done(cx);
    } else if !answer.starts_with(&link.heard) {
        proc.problem(cx, job, &format!("gets a wrong answer of the store at {step:?}"));
    }
}

/// The agent acts on the connection of a rank to the store, at time `sent`.
///
/// # Errors
/// The agent's action is wrong.
pub fn on_store_act(
    jobs: &mut Jobs,
    cx: &mut Cx,
    (node, sent): (u32, Instant),
    StoreClient(client): StoreClient,
    act: StoreAct,
) -> Result<(), String> {
    let StoreAct::Write(bytes) = act else { return Err(format!("does {act:?} with a client that does no wrong")) };
    let id = jobs.nodes[node as usize].ranks[client as usize];
    let proc = &mut jobs.procs[id as usize];
    let (read, is_running) = (read_at(proc, cx, sent), proc.is_running());
    let delay_ns = read - cx.clock.now() + cx.draw(cx.spec.timing.client);
    if let Some(link) = proc.socket.store.as_mut().filter(|_| is_running) {
        link.from_agent.push(&mut cx.clock, delay_ns, bytes, Event::StoreReply(id));
    }
    Ok(())
}

pub fn on_store_reply(jobs: &mut Jobs, cx: &mut Cx, id: u32) {
    let (proc, job, _) = jobs.rank_at(id);
    let Some(bytes) = proc.socket.store.as_mut().and_then(|link| link.from_agent.pop()) else { return };
    if proc.goes_on() {
        cx.digest.number(u64::from(id) ^ cx.clock.now().0 << 16);
        cx.digest.bytes(&bytes);
        hear_store(proc, cx, job, &bytes);
    }
}
