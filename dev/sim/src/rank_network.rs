//! Simulates the network that ranks make among themselves: all ranks of a job in one thread, with the code of
//! `wireup-group`.
//!
//! ```text
//!   ring ──► new: binomial graph ──► run(call): the cost of each rank   (exact, up to 73,728 ranks)
//!                                └─► one_for_all(call): allgather and alltoall of large jobs, whose results do
//!                                    not fit in memory P times
//! ```
//!
//! Messages take no time and arrive in the order in which they were sent, so costs are counts. The counts are the
//! counts of real ranks: messages of the members of a group, before encryption, without the messages that make and
//! prove connections. In a world (`rank_links`) the same messages take time.

use std::collections::BTreeSet;
use wireup_group::algorithms::{Allgather, Allreduce, Alltoall, Barrier, Broadcast, Shift, Wanted};
use wireup_group::in_memory::{Ranks, Wrong};
use wireup_group::reduce::{Number, Op, Reduce};
use wireup_group::{
    Algorithm, Context, Counts, Done, Failure, Groups, Malformed, Peer, Request, Shape, Step, WORLD, message_len,
};

/// Length of the address of a rank whose host has one IPv4 address (bytes).
pub const ADDRESS_LEN: usize = 15;
/// The fractional part of the golden ratio times 2^32: its multiples modulo 1 lie far from each other.
const GOLDEN: u32 = 2_654_435_761;

/// A call that all ranks make together, in the group of all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    Barrier,
    /// An allgather of this many bytes from each rank.
    Allgather(usize),
    /// An alltoall of this many bytes from each rank to each other rank.
    Alltoall(usize),
    /// A broadcast of this many bytes from rank 0.
    Broadcast(usize),
    Shift(usize),
    /// An allreduce that sums this many integers.
    Allreduce(usize),
    /// A split into groups of this many ranks, like the ranks of nodes.
    Split(u32),
    /// This many ranks send one empty message each, in a group of their own, to the rank at their [`distance`]; then a
    /// barrier.
    Locate(u32),
    /// Each rank sends an empty message to each of this many [`peers`], one after the other; then a barrier.
    Talk(u32),
}

/// Number of messages, bytes and waits of one rank.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Cost {
    pub messages: u64,
    /// Bytes sent, including the headers of the messages.
    pub bytes: u64,
    /// Number of times that the rank waits for messages of other ranks, one wait after the other.
    pub rounds: u64,
    /// Number of requests for addresses of ranks.
    pub questions: u64,
}

/// State that one rank holds in this network.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Held {
    /// Number of ranks with which the rank has exchanged messages.
    pub connections: usize,
    pub addresses: usize,
}

/// Addresses that the ranks of a node hold.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NodeAddresses {
    /// Number of addresses that the node's ranks hold together.
    pub held: usize,
    /// Number of different addresses among the held addresses: the number that a cache shared by the node would hold.
    pub different: usize,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    Wrong(Wrong),
    /// A call has failed, has not ended, or has a wrong result.
    Result {
        rank: u32,
        failure: Option<Failure>,
    },
}

impl From<Wrong> for Trouble {
    fn from(wrong: Wrong) -> Trouble {
        Trouble::Wrong(wrong)
    }
}

pub struct RankNetwork {
    ranks: Ranks,
    /// Costs of each rank before the last call.
    before: Vec<Cost>,
}

impl RankNetwork {
    /// Builds the graph, among ranks that know their two neighbours in the ring; returns the cost of the graph for each
    /// rank. Addresses have `address_len` bytes.
    ///
    /// # Errors
    /// The code of the ranks is wrong.
    pub fn new(size: u32, address_len: usize) -> Result<(RankNetwork, Vec<Cost>), Trouble> {
        let own = (0..size).map(|rank| Peer { rank, address: vec![0; address_len] });
        let mut network = RankNetwork { ranks: Ranks::apart(own), before: vec![Cost::default(); size as usize] };
        let requests: Vec<Request> = (0..size).map(|rank| network.ranks.form(WORLD, rank)).collect();
        network.finish(&requests, |_, done| *done == Done::Group(Some(WORLD)))?;
        let costs = network.take_costs();
        Ok((network, costs))
    }

    pub fn size(&self) -> u32 {
        self.ranks.size()
    }

    /// Length of the longest chain of messages so far, each of which was sent when the message before it arrived.
    pub fn chain(&self) -> u64 {
        self.ranks.rounds
    }

    /// All ranks make a call; returns the cost of the call for each rank.
    ///
    /// # Errors
    /// The code of the ranks is wrong.
    pub fn run(&mut self, call: Call) -> Result<Vec<Cost>, Trouble> {
        self.ranks.rounds = 0;
        match call {
            Call::Split(ppn) => self.split(ppn)?,
            Call::Locate(count) => self.locate(count)?,
            Call::Talk(count) => self.talk(count)?,
            _ => self.collective(call)?,
        }
        Ok(self.take_costs())
    }

    pub fn held(&self) -> Vec<Held> {
        let all = self.ranks.traffic.iter().zip(&self.ranks.learnt);
        all.map(|(traffic, learnt)| Held { connections: traffic.peers.len(), addresses: learnt.len() }).collect()
    }

    /// Largest size, so far, of the messages of others that waited at one rank, in bytes.
    pub fn kept_max(&self) -> usize {
        self.ranks.traffic.iter().map(|traffic| traffic.kept_max).max().unwrap_or(0)
    }

    /// The node that holds the most addresses, if each node has `ppn` ranks.
    pub fn worst_node(&self, ppn: u32) -> NodeAddresses {
        worst_node(&self.ranks.learnt, ppn)
    }

    fn collective(&mut self, call: Call) -> Result<(), Trouble> {
        let size = self.size();
        let requests = self.all(|groups, rank| groups.start(WORLD, algorithm(call, rank, size)));
        self.finish(&requests, |rank, done| is_right(call, rank, size, done))
    }

    fn split(&mut self, ppn: u32) -> Result<(), Trouble> {
        let size = self.size();
        let wanted = |rank: u32| Wanted { colour: Some((rank / ppn).to_be_bytes().to_vec()), key: 0 };
        let requests = self.all(|groups, rank| groups.split(WORLD, wanted(rank)));
        let mut made: Vec<Option<Context>> = Vec::new();
        self.finish(&requests, |_, done| {
            made.push(if let Done::Group(group) = done { *group } else { None });
            true
        })?;
        for (rank, context) in (0..).zip(made) {
            let expected = (rank % ppn, ppn.min(size - rank / ppn * ppn));
            let member = &mut self.ranks.members[rank as usize];
            let shape = context.and_then(|context| member.shape(context));
            if shape.map(|shape| (shape.me, shape.size)) != Some(expected) {
                return Err(Trouble::Result { rank, failure: None });
            }
            context.into_iter().for_each(|context| member.free(context));
        }
        Ok(())
    }

    fn locate(&mut self, count: u32) -> Result<(), Trouble> {
        let size = self.size();
        let mut groups = Vec::new();
        for nth in 0..count.min(size) {
            let group = self.duplicate()?;
            let from = asker(nth, count, size);
            let to = (from + distance(nth, size)) % size;
            if from != to {
                let sent = self.ranks.members[from as usize].send_tagged(to, group, 0, &[]);
                let received = self.ranks.members[to as usize].receive_tagged(from, group, 0);
                self.finish_of(&[(from, sent), (to, received)], |_, _| true)?;
            }
            groups.push(group);
        }
        self.collective(Call::Barrier)?;
        for member in &mut self.ranks.members {
            groups.iter().for_each(|group| member.free(*group));
        }
        Ok(())
    }

    fn talk(&mut self, count: u32) -> Result<(), Trouble> {
        let size = self.size();
        for shift in peers(count, size) {
            let mut requests = Vec::new();
            for rank in 0..size {
                let (to, from) = ((rank + shift) % size, (rank + size - shift) % size);
                let member = &mut self.ranks.members[rank as usize];
                requests.push((rank, member.send_tagged(to, WORLD, 0, &[])));
                requests.push((rank, member.receive_tagged(from, WORLD, 0)));
            }
            self.finish_of(&requests, |_, _| true)?;
        }
        self.collective(Call::Barrier)
    }

    fn duplicate(&mut self) -> Result<Context, Trouble> {
        let mut group = WORLD;
        for (rank, member) in (0..).zip(&mut self.ranks.members) {
            group = member.duplicate(WORLD).map_err(|failure| Trouble::Result { rank, failure: Some(failure) })?;
        }
        Ok(group)
    }

    fn all(&mut self, mut start: impl FnMut(&mut Groups, u32) -> Request) -> Vec<Request> {
        (0..).zip(&mut self.ranks.members).map(|(rank, member)| start(member, rank)).collect()
    }

    /// Waits until the requests are complete; request `r` is the request of rank r.
    fn finish(&mut self, requests: &[Request], is_right: impl FnMut(u32, &Done) -> bool) -> Result<(), Trouble> {
        let requests: Vec<(u32, Request)> = (0..).zip(requests.iter().copied()).collect();
        self.finish_of(&requests, is_right)
    }

    fn finish_of(
        &mut self,
        requests: &[(u32, Request)],
        mut is_right: impl FnMut(u32, &Done) -> bool,
    ) -> Result<(), Trouble> {
        for (rank, _) in requests {
            self.ranks.collect(*rank)?;
        }
        self.ranks.settle()?;
        for request @ (rank, _) in requests {
            let result = self.ranks.results.remove(request);
            match result {
                Some(Ok(done)) if is_right(*rank, &done) => {}
                other => return Err(Trouble::Result { rank: *rank, failure: other.and_then(Result::err) }),
            }
        }
        Ok(())
    }

    fn take_costs(&mut self) -> Vec<Cost> {
        let both = self.ranks.members.iter().zip(&self.ranks.traffic);
        let now = both.map(|(member, traffic)| {
            let Counts { rounds, questions } = member.counts;
            Cost { messages: traffic.messages, bytes: traffic.bytes, rounds, questions }
        });
        let now: Vec<Cost> = now.collect();
        let costs = now.iter().zip(&self.before).map(|(now, before)| now.since(before)).collect();
        self.before = now;
        costs
    }
}

impl Cost {
    fn since(&self, before: &Cost) -> Cost {
        Cost {
            messages: self.messages - before.messages,
            bytes: self.bytes - before.bytes,
            rounds: self.rounds - before.rounds,
            questions: self.questions - before.questions,
        }
    }
}

/// The node that holds the most addresses, if each node has `ppn` ranks. `learnt`: the ranks whose address each rank
/// has.
pub(crate) fn worst_node(learnt: &[BTreeSet<u32>], ppn: u32) -> NodeAddresses {
    let nodes = learnt.chunks(ppn as usize).map(|node| {
        let mut different: Vec<u32> = node.iter().flatten().copied().collect();
        let held = different.len();
        different.sort_unstable();
        different.dedup();
        NodeAddresses { held, different: different.len() }
    });
    nodes.max_by_key(|node| (node.held, node.different)).unwrap_or_default()
}

/// The `nth` of `count` ranks that ask for an address; these ranks are spread over the job.
fn asker(nth: u32, count: u32, size: u32) -> u32 {
    (u64::from(nth) * u64::from(size) / u64::from(count.min(size))) as u32
}

pub(crate) fn algorithm(call: Call, rank: u32, size: u32) -> Box<dyn Algorithm> {
    let value = |len: usize| vec![rank as u8; len];
    match call {
        Call::Allgather(len) => Box::new(Allgather::new(value(len))),
        Call::Alltoall(len) => Box::new(Alltoall::new(vec![value(len); size as usize])),
        Call::Broadcast(len) => Box::new(Broadcast::new(0, value(len))),
        Call::Shift(len) => Box::new(Shift::new(value(len))),
        Call::Allreduce(count) => {
            let own = u64::from(rank).to_ne_bytes();
            Box::new(Allreduce::new(Reduce { number: Number::U64, op: Op::Sum }, own.repeat(count)))
        }
        Call::Barrier | Call::Split(_) | Call::Locate(_) | Call::Talk(_) => Box::new(Barrier::default()),
    }
}

pub(crate) fn is_right(call: Call, rank: u32, size: u32, done: &Done) -> bool {
    let is_value = |of: u32, value: &[u8], len| value.len() == len && value.iter().all(|byte| *byte == of as u8);
    match (call, done) {
        (Call::Allgather(len) | Call::Alltoall(len), Done::Rows(rows)) => {
            rows.len() == size as usize && (0..).zip(rows).all(|(of, row)| is_value(of, row, len))
        }
        (Call::Broadcast(len), Done::Bytes(bytes)) => is_value(0, bytes, len),
        (Call::Shift(len), Done::Bytes(bytes)) => is_value((rank + size - 1) % size, bytes, len),
        (Call::Allreduce(count), Done::Bytes(bytes)) => {
            let sum = u64::from(size) * u64::from(size - 1) / 2;
            *bytes == sum.to_ne_bytes().repeat(count)
        }
        (Call::Barrier, Done::Nothing) => true,
        _ => false,
    }
}

fn spread(nth: u32, size: u32) -> u32 {
    ((u64::from((nth + 1).wrapping_mul(GOLDEN)) * u64::from(size)) >> 32) as u32
}

/// The distances, to the right in the ring, of the peers with which every rank exchanges messages: at most `count`, all
/// different. They are chosen so that every process computes the same ones, spread evenly over the job. The programs of
/// the benchmarks (`lab/bench/programs/groups.c`) have the same function, and the next one.
pub fn peers(count: u32, size: u32) -> Vec<u32> {
    let mut all: Vec<u32> = (0..count).map(|nth| spread(nth, size)).filter(|shift| *shift != 0).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Distance to the right, in the ring, of the rank whose address the `nth` asker needs. The first one is among the
/// farthest in steps of powers of two.
pub fn distance(nth: u32, size: u32) -> u32 {
    if nth == 0 { size / 3 } else { spread(nth, size) }
}

/// The cost of the call at each rank of a job of `size` ranks; `None`: the members of the call are not alike.
///
/// In an allgather or an alltoall, each member sends to one side in every step, and receives as many bytes from the
/// other side as it sends. So it is enough to run one member that receives its own messages, and the results of all P
/// members need not be in memory.
///
/// # Errors
/// The code of the algorithm is wrong.
pub fn one_for_all(call: Call, size: u32) -> Result<Option<Cost>, Trouble> {
    if !matches!(call, Call::Barrier | Call::Allgather(_) | Call::Alltoall(_) | Call::Shift(_)) {
        return Ok(None);
    }
    reflected(call, size).map(Some).map_err(|Malformed| Trouble::Result { rank: 0, failure: Some(Failure::Malformed) })
}

fn reflected(call: Call, size: u32) -> Result<Cost, Malformed> {
    let nobody = || Peer { rank: 0, address: Vec::new() };
    let mut shape = Shape::new(0, size, nobody(), nobody());
    let mut algorithm = algorithm(call, 0, size);
    let mut cost = Cost::default();
    while let Some(Step { sends, receives }) = algorithm.next(&mut shape)? {
        cost.rounds += u64::from(!receives.is_empty());
        cost.messages += sends.len() as u64;
        cost.bytes += sends.iter().map(|(_, payload)| message_len(payload) as u64).sum::<u64>();
        for from in receives {
            let reflection = sends.iter().find(|(link, _)| link.power == from.power && link.side != from.side);
            let payload = reflection.map(|(_, payload)| payload);
            algorithm.on_message(&mut shape, from, payload.ok_or(Malformed)?)?;
        }
    }
    Ok(cost)
}

#[cfg(test)]
mod tests;
