//! The network that the ranks of a job make among themselves, on the world's clock, with the code of `wireup-group`.
//!
//! ```text
//!   step of a script ──► Ranks: what the rank sends ──► connection: open, or made first ──► arrives ──► Ranks
//! ```
//!
//! A connection is made when a message first needs it, which costs both of its ends a handshake, and is kept. A rank
//! does one thing after the other: it reads all messages that have arrived, then sends the messages that follow from
//! them. Each message costs a rank as much processor time as an agent. Messages to another host pass the network card
//! and the link; messages to a rank on the same host take as long as messages between a rank and its agent. A rank
//! reads nothing before it has its neighbours in the ring.

use crate::clock::{Event, NetworkEvent};
use crate::cx::Cx;
use crate::jobs::{Job, Jobs, Node};
use crate::rank_network::{ADDRESS_LEN, NodeAddresses, algorithm, is_right, peers, worst_node};
use crate::ranks::Proc;
use crate::workload::GroupStep;
use std::collections::BTreeMap;
use wireup_group::algorithms::Wanted;
use wireup_group::in_memory::{Ranks, UnderWay, Wrong};
use wireup_group::{Context, Done, Failure, Peer, Request, WORLD};
use wireup_proto::Instant;

/// The message tag that [`GroupStep::Talk`] uses.
const TAG: u32 = 0;

/// A rank's place in the ring that the agents have made: its position, and the ranks at both sides.
#[derive(Clone, Copy, Default, Debug)]
pub struct RingPlace {
    pub position: u32,
    pub left: u32,
    pub right: u32,
}

/// The network that the ranks of one job make among themselves.
pub struct RankLinks {
    job: u32,
    /// Number of rank 0 among the ranks of all jobs.
    first_proc: u32,
    ranks: Ranks,
    ends: Vec<RankEnd>,
    connections: Vec<Connection>,
    wires: Wires,
}

/// State of one rank in this network, in addition to its groups.
struct RankEnd {
    host: u32,
    /// The group of all ranks, ordered by position in the ring until `GroupStep::Order` replaces it by a group ordered
    /// by rank.
    all: Context,
    /// The number of the connection to each peer.
    connections: BTreeMap<u32, u32>,
    /// Messages that have arrived and that the rank has not read yet.
    arrived: Vec<UnderWay>,
    /// Whether the rank reads later because it is busy, or has no neighbours yet.
    reads_later: bool,
    busy_until: Instant,
    /// Requests of the current step that are not complete, and the results of completed requests of that step.
    awaited: Vec<Request>,
    results: Vec<Result<Done, Failure>>,
}

struct Connection {
    /// The two ranks of the connection; the first rank is the one that dialled first.
    ranks: [u32; 2],
    /// Messages that wait until the connection is open; `None`: the connection is open.
    waiting: Option<Vec<UnderWay>>,
    /// `lanes[n]` carries the messages that `ranks[n]` sends.
    lanes: [Lane; 2],
}

#[derive(Clone, Copy, Default)]
struct Lane {
    free_at: Instant,
    last_arrival: Instant,
}

/// All messages in transit, by slot. The slot of a message that has arrived is reused.
#[derive(Default)]
struct Wires {
    messages: Vec<Option<UnderWay>>,
    free: Vec<u32>,
}

impl Wires {
    fn put(&mut self, message: UnderWay) -> u32 {
        let number = self.free.pop().unwrap_or(self.messages.len() as u32);
        self.messages.resize_with(self.messages.len().max(number as usize + 1), || None);
        self.messages[number as usize] = Some(message);
        number
    }

    fn take(&mut self, number: u32) -> Option<UnderWay> {
        self.free.push(number);
        self.messages[number as usize].take()
    }
}

/// The messages that the ranks of a job have sent to each other, and the state that the ranks hold at the end.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RankTraffic {
    pub messages: u64,
    /// Bytes of the messages, including their headers.
    pub bytes: u64,
    /// The largest number of times that one rank has stopped to wait for messages.
    pub rounds: u64,
    /// Number of connections between two ranks.
    pub connections: u64,
    /// The addresses that the ranks of one node hold, for the node that holds most.
    pub addresses: NodeAddresses,
}

impl RankLinks {
    fn new(job: u32, first_proc: u32, hosts: impl IntoIterator<Item = u32>) -> Self {
        let ends: Vec<RankEnd> = hosts.into_iter().map(RankEnd::new).collect();
        let own = (0..ends.len() as u32).map(|rank| Peer { rank, address: vec![0; ADDRESS_LEN] });
        RankLinks { job, first_proc, ranks: Ranks::apart(own), ends, connections: Vec::new(), wires: Wires::default() }
    }

    pub fn traffic(&self, ppn: u32) -> RankTraffic {
        let Ranks { members, traffic, learnt, .. } = &self.ranks;
        RankTraffic {
            messages: traffic.iter().map(|one| one.messages).sum(),
            bytes: traffic.iter().map(|one| one.bytes).sum(),
            rounds: members.iter().map(|member| member.counts.rounds).max().unwrap_or(0),
            connections: self.connections.len() as u64,
            addresses: worst_node(learnt, ppn),
        }
    }

    /// A rank starts part `nth` of a step; returns `false` if the step has no such part.
    fn start(&mut self, proc: &Proc, node: &Node, step: GroupStep, nth: u32) -> bool {
        let (me, size, local) = (proc.rank, self.ranks.size(), u32::from(proc.local.0));
        let all = self.ends[me as usize].all;
        let by_rank = RingPlace { position: me, left: (me + size - 1) % size, right: (me + 1) % size };
        let RingPlace { position, left, right } =
            if step == GroupStep::FormByRank { by_rank } else { proc.progress.ring };
        let [left, right] = [left, right].map(|rank| self.ranks.own(rank));
        let groups = &mut self.ranks.members[me as usize];
        let mut split = |colour: &[u8], key| groups.split(all, Wanted { colour: Some(colour.to_vec()), key });
        let awaited = match (step, nth) {
            (GroupStep::Talk(count), _) => {
                let Some(shift) = peers(count, size).get(nth as usize).copied() else { return false };
                let sent = groups.send_tagged((me + shift) % size, all, TAG, &[]);
                vec![sent, groups.receive_tagged((me + size - shift) % size, all, TAG)]
            }
            (_, 1..) => return false,
            (GroupStep::Form | GroupStep::FormByRank, _) => vec![groups.form(all, position, size, left, right)],
            (GroupStep::Order, _) => vec![split(&[], me.into())],
            (GroupStep::Node, _) => vec![split(&node.index.to_be_bytes(), 0)],
            (GroupStep::Leaders, _) => vec![split(&local.to_be_bytes(), 0)],
            (GroupStep::Collective(call), _) => vec![groups.start(all, algorithm(call, me, size))],
        };
        self.ends[me as usize].awaited = awaited;
        true
    }

    /// A rank has completed a part of a step.
    fn finish(&mut self, proc: &Proc, node: &Node, step: GroupStep) -> Result<(), String> {
        let (me, size) = (proc.rank, self.ranks.size());
        let RankEnd { results, all, .. } = &mut self.ends[me as usize];
        let groups = &mut self.ranks.members[me as usize];
        for result in results.drain(..) {
            let made = if let Ok(Done::Group(made)) = &result { *made } else { None };
            let place = made.and_then(|made| groups.shape(made)).map(|shape| (shape.me, shape.size));
            let is_right = match (step, &result) {
                (GroupStep::Form | GroupStep::FormByRank, _) => made == Some(*all),
                (GroupStep::Order, _) => place == Some((me, size)),
                (GroupStep::Node, _) => place == Some((proc.local.0.into(), node.ranks.len() as u32)),
                (GroupStep::Leaders, _) => place.is_some(),
                (GroupStep::Talk(_), Ok(done)) => *done == Done::Nothing || *done == Done::Bytes(Vec::new()),
                (GroupStep::Collective(call), Ok(done)) => is_right(call, me, size, done),
                (_, Err(_)) => false,
            };
            if !is_right {
                return Err(format!("has another result of {step:?} than it should: {result:?}"));
            }
            if let (GroupStep::Order, Some(made)) = (step, made) {
                groups.free(std::mem::replace(all, made));
            }
        }
        Ok(())
    }

    /// A rank reads what has arrived, or does the next step of its script.
    fn turn(&mut self, cx: &mut Cx, me: u32) -> Result<(), Wrong> {
        let costs = cx.spec.timing.costs.unwrap_or_default();
        let mut arrived = std::mem::take(&mut self.ends[me as usize].arrived);
        let mut ns = 0;
        for message in arrived.drain(..) {
            ns += costs.of_message(message.message.len());
            cx.digest.number(u64::from(self.first_proc + me) ^ cx.clock.now().0 << 16);
            cx.digest.bytes(&message.message);
            self.ranks.arrive(message)?;
        }
        self.ranks.collect(me)?;
        let sent_ns: u64 = self.ranks.under_way.iter().map(|message| costs.of_frame(message.message.len())).sum();
        let end = &mut self.ends[me as usize];
        end.arrived = arrived;
        end.busy_until = cx.work(end.host, end.busy_until.max(cx.clock.now()), |_| ns + sent_ns);
        let mut ready = Instant(end.busy_until.0 - sent_ns);
        while let Some(message) = self.ranks.under_way.pop_front() {
            ready = ready + costs.of_frame(message.message.len());
            self.send(cx, ready, message);
        }
        self.go_on(cx, me);
        Ok(())
    }

    /// Schedules the next read of a rank for when it is no longer busy, and continues its script if everything that the
    /// rank waits for has completed.
    fn go_on(&mut self, cx: &mut Cx, me: u32) {
        let RankLinks { job, first_proc, ranks, ends, .. } = self;
        let end = &mut ends[me as usize];
        end.reads_later = !end.arrived.is_empty();
        if end.reads_later {
            cx.clock.at(end.busy_until, Event::Network(*job, NetworkEvent::Reads(me)));
        }
        if ranks.results.is_empty() {
            return;
        }
        let RankEnd { awaited, results, .. } = end;
        awaited.retain(|request| match ranks.results.remove(&(me, *request)) {
            Some(result) => {
                results.push(result);
                false
            }
            None => true,
        });
        if end.awaited.is_empty() {
            let think_ns = cx.draw(cx.spec.timing.think);
            cx.clock.at(end.busy_until + think_ns, Event::RankStep(*first_proc + me));
        }
    }

    fn send(&mut self, cx: &mut Cx, ready: Instant, message: UnderWay) {
        let known = self.ends[message.from as usize].connections.get(&message.to).copied();
        let number = known.unwrap_or_else(|| self.dial(cx, ready, [message.from, message.to]));
        match &mut self.connections[number as usize].waiting {
            Some(waiting) => waiting.push(message),
            None => self.put_on_wire(cx, number, ready, message),
        }
    }

    fn dial(&mut self, cx: &mut Cx, ready: Instant, ranks: [u32; 2]) -> u32 {
        let number = self.connections.len() as u32;
        self.connections.push(Connection { ranks, waiting: Some(Vec::new()), lanes: Default::default() });
        for (me, other) in [(0, 1), (1, 0)] {
            self.ends[ranks[me] as usize].connections.insert(ranks[other], number);
        }
        let delay_ns = if self.is_local(ranks) {
            cx.draw(cx.spec.timing.client) + cx.draw(cx.spec.timing.client)
        } else {
            cx.draw(cx.spec.timing.handshake)
        };
        cx.clock.at(ready + delay_ns, Event::Network(self.job, NetworkEvent::Connected(number)));
        number
    }

    fn is_local(&self, ranks: [u32; 2]) -> bool {
        let [one, other] = ranks.map(|rank| self.ends[rank as usize].host);
        one == other
    }

    /// Both ends of a connection prove to each other who they are, and messages that wait for the connection are sent.
    fn on_connected(&mut self, cx: &mut Cx, number: u32) {
        let now = cx.clock.now();
        let proven = self.connections[number as usize].ranks.map(|rank| {
            let end = &mut self.ends[rank as usize];
            end.busy_until = cx.work(end.host, end.busy_until.max(now), |costs| costs.handshake_ns);
            end.busy_until
        });
        let waiting = self.connections[number as usize].waiting.take();
        for message in waiting.into_iter().flatten() {
            self.put_on_wire(cx, number, proven[0].max(proven[1]), message);
        }
    }

    fn put_on_wire(&mut self, cx: &mut Cx, number: u32, ready: Instant, message: UnderWay) {
        let Connection { ranks, lanes, .. } = &mut self.connections[number as usize];
        let side = usize::from(message.from == ranks[1]);
        let (lane, bytes) = (&mut lanes[side], message.message.len());
        let [from, to] = [message.from, message.to].map(|rank| self.ends[rank as usize].host);
        let arrives = if from == to {
            ready + cx.draw(cx.spec.timing.client)
        } else {
            let leaves = cx.leaves_card(from, ready.max(lane.free_at), bytes);
            lane.free_at = leaves + bytes as u64 * 1000 / cx.spec.timing.link_bytes_per_us.max(1);
            lane.free_at + cx.draw(cx.spec.timing.link)
        };
        // Events at one instant happen in any order, but the messages of a lane must arrive in order.
        lane.last_arrival = arrives.max(lane.last_arrival + 1);
        let event = Event::Network(self.job, NetworkEvent::Arrives(self.wires.put(message)));
        cx.clock.at(lane.last_arrival, event);
    }

    /// A message has arrived; returns the receiving rank if that rank reads the message at once.
    fn on_arrives(&mut self, cx: &mut Cx, number: u32) -> Option<u32> {
        let message = self.wires.take(number)?;
        let me = message.to;
        let end = &mut self.ends[me as usize];
        end.arrived.push(message);
        if std::mem::replace(&mut end.reads_later, true) {
            return None;
        }
        if end.busy_until <= cx.clock.now() {
            return Some(me);
        }
        cx.clock.at(end.busy_until, Event::Network(self.job, NetworkEvent::Reads(me)));
        None
    }
}

impl RankEnd {
    fn new(host: u32) -> Self {
        RankEnd {
            host,
            all: WORLD,
            connections: BTreeMap::new(),
            arrived: Vec::new(),
            reads_later: true,
            busy_until: Instant(0),
            awaited: Vec::new(),
            results: Vec::new(),
        }
    }
}

impl Job {
    /// Finishes the part of a step in the ranks' network that a rank has started, and starts the next part.
    pub fn do_group_step(&mut self, cx: &mut Cx, proc: &mut Proc, node: &Node, step: GroupStep) {
        let Job { links, plan, placement, first_proc, .. } = self;
        let links = links.get_or_insert_with(|| {
            let hosts = placement.iter().map(|node| plan.nodes[*node as usize]);
            Box::new(RankLinks::new(proc.job, *first_proc, hosts))
        });
        if let Err(problem) = links.finish(proc, node, step) {
            return proc.problem(cx, self, &problem);
        }
        if !links.start(proc, node, step, proc.progress.nth) {
            return proc.step_done(cx);
        }
        proc.progress.nth += 1;
        if let Err(wrong) = links.turn(cx, proc.rank) {
            proc.problem(cx, self, &format!("{wrong:?}"));
        }
    }

    /// The messages that the ranks have sent to each other in the network that they have made.
    pub fn rank_traffic(&self) -> Option<RankTraffic> {
        let ppn = self.plan.blocks.first().map_or(1, |block| block.ppn);
        self.links.as_ref().map(|links| links.traffic(ppn))
    }
}

/// Something happens in the ranks' network of a job.
pub fn on_network(cx: &mut Cx, jobs: &mut Jobs, job: u32, event: NetworkEvent) {
    let Job { links: Some(links), first_proc, .. } = &mut jobs.all[job as usize] else { return };
    let rank = match event {
        NetworkEvent::Connected(number) => return links.on_connected(cx, number),
        NetworkEvent::Arrives(number) => links.on_arrives(cx, number),
        NetworkEvent::Reads(rank) => Some(rank),
    };
    let runs = |rank: &u32| jobs.procs[(*first_proc + rank) as usize].goes_on();
    if let Some(rank) = rank.filter(runs)
        && let Err(wrong) = links.turn(cx, rank)
    {
        cx.problem(format!("ranks of job {job}: {wrong:?}"));
    }
}

#[cfg(test)]
mod tests;
