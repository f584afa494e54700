//! The PMI sockets between ranks and their agents: bytes in flight, sometimes split, and ends that close.

use crate::clock::Event;
use crate::clock::Fifo;
use crate::cx::Cx;
use crate::jobs::{Jobs, Node};
use crate::memory::Shared;
use crate::ranks::{Doing, Proc};
use crate::steps::PMI_FAILED_CODE;
use crate::store_clients::StoreLink;
use bytes::Bytes;
use wireup_proto::Instant;
use wireup_proto::io::{ExitStatus, JobEvent};
use wireup_wire::ids::LocalRank;

/// The sockets of a rank: the PMI socket, and the connection to PyTorch's store.
#[derive(Default)]
pub struct Socket {
    /// The host of the rank.
    pub host: u32,
    to_agent: Fifo<ToAgent>,
    from_agent: Fifo<FromAgent>,
    /// Whether each end of the PMI socket is open: the rank's end, then the agent's.
    pub open: [bool; 2],
    /// The connection to the job's store, once the rank has made one.
    pub store: Option<Box<StoreLink>>,
}

enum ToAgent {
    Bytes(Bytes),
    Gone,
}

enum FromAgent {
    /// Bytes, with the shared memory whose descriptors are passed along with them.
    Bytes(Bytes, Vec<Shared>),
    Closed,
}

impl Socket {
    pub fn new(host: u32) -> Self {
        Socket { host, ..Socket::default() }
    }

    pub fn has_bytes_for_agent(&self) -> bool {
        !self.to_agent.is_empty()
    }

    pub fn clear(&mut self) {
        self.to_agent.clear();
        self.from_agent.clear();
        self.store = None;
    }

    /// A rank writes bytes, sometimes in pieces.
    pub fn send(&mut self, cx: &mut Cx, id: u32, mut bytes: Bytes) {
        if self.open[0] {
            if let Some(piece) = cut(cx, &mut bytes) {
                self.push_to_agent(cx, id, ToAgent::Bytes(piece));
            }
            self.push_to_agent(cx, id, ToAgent::Bytes(bytes));
        }
    }

    /// Closes the rank's end of its PMI socket; also called when the rank ends.
    pub fn close(&mut self, cx: &mut Cx, id: u32) {
        if std::mem::replace(&mut self.open[0], false) {
            self.from_agent.clear();
            self.push_to_agent(cx, id, ToAgent::Gone);
        }
    }

    pub fn close_agents_end(&mut self, cx: &mut Cx, id: u32) {
        self.push_to_rank(cx, id, cx.clock.now(), FromAgent::Closed);
        self.open[1] = false;
    }

    fn push_to_agent(&mut self, cx: &mut Cx, id: u32, item: ToAgent) {
        let now = cx.clock.now();
        let sent = cx.work(self.host, now, |costs| costs.request_ns);
        let delay_ns = sent - now + cx.draw(cx.spec.timing.client);
        self.to_agent.push(&mut cx.clock, delay_ns, item, Event::ClientArrive(id));
    }

    fn push_to_rank(&mut self, cx: &mut Cx, id: u32, at: Instant, item: FromAgent) {
        if self.open == [true; 2] {
            let delay_ns = at - cx.clock.now() + cx.draw(cx.spec.timing.client);
            self.from_agent.push(&mut cx.clock, delay_ns, item, Event::ReplyArrive(id));
        }
    }
}

/// Sometimes cuts bytes in two: returns the first piece and leaves the rest in `bytes`; `None`: the bytes are not cut.
pub fn cut(cx: &mut Cx, bytes: &mut Bytes) -> Option<Bytes> {
    let is_cut = bytes.len() > 1 && cx.rng.chance(cx.spec.timing.cut_permille);
    is_cut.then(|| bytes.split_to(cx.rng.between(1, bytes.len() as u64 - 1) as usize))
}

/// The time at which a rank has read an answer that its agent has sent at `sent`.
pub fn read_at(proc: &Proc, cx: &mut Cx, sent: Instant) -> Instant {
    let slept = proc.progress.is_in_collective();
    cx.work(proc.socket.host, sent, |costs| costs.request_ns + if slept { costs.wake_ns } else { 0 })
}

impl Proc {
    /// The agent reads from the socket; `None`: there is nothing to report to the agent.
    pub fn on_client_arrive(&mut self, cx: &mut Cx, node: &Node) -> Option<JobEvent> {
        if !self.start_is_known {
            // The agent receives the socket only with the report that the rank runs.
            if node.keeper.is_empty() {
                self.socket.to_agent.clear();
                return None;
            }
            let delay_ns = cx.draw(cx.spec.timing.report);
            cx.clock.after(delay_ns.max(1), Event::ClientArrive(self.id));
            return None;
        }
        let item = self.socket.to_agent.pop()?;
        if !self.socket.open[1] || node.job_is_gone {
            return None;
        }
        let client = self.local.into();
        Some(match item {
            ToAgent::Bytes(bytes) => JobEvent::ClientBytes { client, bytes },
            ToAgent::Gone => {
                self.socket.open[1] = false;
                JobEvent::ClientGone { client }
            }
        })
    }
}

impl Jobs {
    /// The agent answers a rank at time `sent`. Memory is passed with the first bytes; the bytes may arrive in pieces.
    pub fn reply(
        &mut self,
        cx: &mut Cx,
        (node, sent): (u32, Instant),
        local: LocalRank,
        mut bytes: Bytes,
        mut shares: Vec<Shared>,
    ) {
        let Some(&id) = self.nodes[node as usize].ranks.get(local.index()) else {
            let host = self.nodes[node as usize].host;
            return cx.problem(format!("agent {host} writes to local rank {local}, which it does not have"));
        };
        let proc = &mut self.procs[id as usize];
        let read = read_at(proc, cx, sent);
        if proc.is_own()
            && let Some(piece) = cut(cx, &mut bytes)
        {
            proc.socket.push_to_rank(cx, id, read, FromAgent::Bytes(piece, std::mem::take(&mut shares)));
        }
        proc.socket.push_to_rank(cx, id, read, FromAgent::Bytes(bytes, shares));
    }

    pub fn on_reply_arrive(&mut self, cx: &mut Cx, id: u32) {
        let (proc, job, _) = self.rank_at(id);
        let Some(item) = proc.socket.from_agent.pop() else { return };
        if !proc.goes_on() {
            return;
        }
        match item {
            FromAgent::Bytes(bytes, shares) => {
                cx.digest.number(u64::from(id) ^ cx.clock.now().0 << 16);
                cx.digest.bytes(&bytes);
                cx.checks.shared += shares.len() as u64;
                proc.hear(cx, job, &bytes, shares);
            }
            FromAgent::Closed => {
                if matches!(proc.doing, Doing::Reply | Doing::Nothing) {
                    self.end_rank(cx, id, ExitStatus::Exited(PMI_FAILED_CODE));
                }
            }
        }
    }
}
