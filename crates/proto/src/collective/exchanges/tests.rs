//! Several nodes connected by queues, with any delivery order that links allow.

use super::*;
use crate::job::cx::{Ending, Sent};
use crate::testing::{Dice, Transit, departed, facts_of};
use proptest::prelude::*;
use std::collections::BTreeMap;
use wireup_coll::mapping::Mapping;
use wireup_wire::block;
use wireup_wire::ids::Rank;
use wireup_wire::peer::Failure;

struct Net {
    facts: Vec<Facts>,
    nodes: Vec<Exchanges>,
    /// Frames in transit, by (sender, receiver, whether over a direct link).
    transit: Transit<(usize, usize, bool), Frame>,
    /// Number of messages that were sent over direct links.
    direct: usize,
    /// Epochs of each node, in the order in which they ended, with their outcomes.
    ended: Vec<Vec<(Epoch, Collective, Vec<u8>)>>,
    /// Time stamps of each collective at each node.
    traces: Vec<(usize, FenceTrace)>,
    failed: Vec<String>,
}

impl Net {
    fn new(slots: &[u32], fanout: u32, scheme: ExchangeScheme) -> Net {
        let facts = facts_of(slots, fanout);
        let rules = Rules { scheme, collect_max: None };
        let config = |facts| CollectiveConfig { rules, compress_min: 0, ..CollectiveConfig::new(facts) };
        let nodes = facts.iter().map(|facts| Exchanges::new(config(facts))).collect();
        let ended = vec![Vec::new(); slots.len()];
        let (transit, traces, failed) = (Transit::default(), Vec::new(), Vec::new());
        Net { facts, nodes, transit, direct: 0, ended, traces, failed }
    }

    fn mapping(&self) -> &Mapping {
        &self.facts[0].mapping
    }

    fn enter(&mut self, rank: u32, entry: Entry) {
        let (node, local) = self.mapping().place(Rank(rank)).expect("the job has this rank");
        let node = node.index();
        let mut pairs = Vec::new();
        let epoch = self.nodes[node].next_of(local).0;
        if node % 3 != 1 {
            // Some nodes have no pairs.
            wireup_wire::blob::push(&mut pairs, format!("{node}.{epoch}").as_bytes(), b"value");
        }
        let entry = (entry, ReplyTo::Allgather { id: epoch });
        self.act(node, Instant(1), |exchanges, cx| exchanges.enter(cx, local, entry, || pairs.into()));
    }

    fn act(&mut self, at: usize, now: Instant, act: impl FnOnce(&mut Exchanges, &mut Cx<'_>) -> Vec<Finished>) {
        let Net { facts, nodes, .. } = self;
        let (finished, sent, endings) = Cx::bench(&facts[at], now, |cx| act(&mut nodes[at], cx));
        for sent in sent {
            let Sent::ToAgent(to, frame) = sent else { panic!("{sent:?}") };
            let is_direct = matches!(frame.kind, FrameKind::Peer(_));
            self.direct += usize::from(is_direct);
            self.transit.push((at, to.index(), is_direct), frame);
        }
        for Finished { outcome, trace, .. } in finished {
            let text = text(outcome, self.mapping());
            self.traces.push((at, trace));
            self.ended[at].push((trace.epoch, trace.collective, text));
        }
        for ending in endings {
            let Ending::Fail(Failure { cause: Cause::Pmi { problem }, .. }) = ending else { panic!("{ending:?}") };
            self.failed.push(problem);
        }
    }

    /// Delivers one message; `false`: none is in transit.
    fn deliver(&mut self, dice: &mut Dice) -> bool {
        let Some(((from, to, _), frame)) = self.transit.any(dice) else { return false };
        let facts = &self.facts[to];
        let arrived = match frame.kind {
            FrameKind::Peer(_) => self.nodes[to].of_node(NodeId(from as u32), frame),
            _ => Arrived::of_tree(facts, facts.child_index(AgentId(from as u32)), frame),
        };
        let arrived = arrived.expect("it was sent here");
        self.act(to, Instant(2), |exchanges, cx| exchanges.on_frame(cx, arrived));
        true
    }
}

/// An outcome in canonical order: the order of blocks is arbitrary.
fn text(outcome: Outcome, mapping: &Mapping) -> Vec<u8> {
    let sorted = |parts: Vec<Bytes>| {
        let blocks: Result<Vec<_>, _> = parts.into_iter().flat_map(block::blocks).collect();
        let mut blocks = blocks.unwrap();
        blocks.sort_by_key(|block| block.node);
        blocks
    };
    match outcome {
        Outcome::Pairs(parts) => sorted(parts).iter().flat_map(|block| block.bytes.to_vec()).collect(),
        Outcome::Values { blocks, .. } => {
            let mut rows = BTreeMap::new();
            for block in sorted(blocks) {
                let values = values::values(&block.bytes).map(|value| value.unwrap().to_vec());
                rows.extend(mapping.ranks_of(block.node).zip(values));
            }
            assert_eq!(rows.len(), mapping.job_size() as usize);
            rows.into_values().flatten().collect()
        }
        // A ring's outcome differs between ranks; only its existence is checked here.
        Outcome::Places(places) => vec![b'r'; usize::from(!places.is_empty())],
    }
}

fn entry(kind: usize, rank: u32, epoch: usize) -> Entry {
    let value = Bytes::from(format!("<{rank}.{epoch}>"));
    match kind {
        0 => Entry::Fence,
        1 => Entry::Allgather { max_len: 40, shared: rank.is_multiple_of(2), value },
        _ => Entry::Ring { value },
    }
}

/// Every rank starts all collectives in an order drawn from the seed; all complete everywhere, with the same outcomes.
fn complete_collectives(slots: &[u32], fanout: u32, scheme: ExchangeScheme, kinds: &[usize], seed: u64) {
    let mut net = Net::new(slots, fanout, scheme);
    let (mut dice, size) = (Dice(seed), net.mapping().job_size());
    let mut begun = vec![0; size as usize];
    let mut left = size as usize * kinds.len();
    while left > 0 || !net.transit.is_empty() {
        let rank = dice.below(size as usize);
        if dice.below(3) == 0 && begun[rank] < kinds.len() {
            net.enter(rank as u32, entry(kinds[begun[rank]], rank as u32, begun[rank]));
            begun[rank] += 1;
            left -= 1;
        } else {
            net.deliver(&mut dice);
        }
    }
    assert_eq!(net.failed, Vec::<String>::new());
    for (node, ended) in net.ended.iter().enumerate() {
        let takes_part = slots[node] > 0 || !net.facts[node].below.is_empty();
        let epochs = if takes_part { kinds.len() as u32 } else { 0 };
        assert_eq!(net.nodes[node].base(), Epoch(epochs), "node {node} forgets completed epochs");
        if slots[node] == 0 {
            assert!(ended.is_empty());
            continue;
        }
        let mut sorted = ended.clone();
        sorted.sort_by_key(|(epoch, ..)| *epoch);
        assert_eq!(sorted.len(), kinds.len(), "node {node}");
        let fences: Vec<_> = ended.iter().filter(|(_, collective, _)| *collective == Collective::Fence).collect();
        assert!(fences.is_sorted_by_key(|(epoch, ..)| *epoch), "fences complete in order");
        let mut first = net.ended[slots.iter().position(|slots| *slots > 0).unwrap()].clone();
        first.sort_by_key(|(epoch, ..)| *epoch);
        assert_eq!(sorted, first, "node {node} has the same outcomes");
    }
    let expected: Vec<u8> = (0..size).flat_map(|rank| format!("<{rank}.0>").into_bytes()).collect();
    if kinds.first() == Some(&1) {
        let (_, _, seen) = net.ended.iter().flatten().find(|(epoch, ..)| *epoch == Epoch(0)).unwrap();
        assert_eq!(*seen, expected);
    }
}

fn schemes() -> impl Iterator<Item = ExchangeScheme> {
    wireup_coll::allgather::schemes().map(|(_, scheme)| scheme)
}

proptest! {
    #[test]
    fn any_number_of_collectives_complete_in_any_order(
        slots in proptest::collection::vec(0u32..4, 1..10)
            .prop_filter("somebody", |slots| slots.iter().sum::<u32>() > 0),
        fanout in 1u32..4,
        scheme in proptest::sample::select(schemes().collect::<Vec<_>>()),
        kinds in proptest::collection::vec(0usize..3, 1..7),
        seed in any::<u64>(),
    ) {
        complete_collectives(&slots, fanout, scheme, &kinds, seed);
    }
}

/// The root chooses direct links when a subtree's data is too large to send up the tree.
#[test]
fn large_data_uses_direct_links() {
    let mut net = Net::new(&[1, 1, 1, 1], 2, ExchangeScheme::Auto);
    let large = Bytes::from(vec![b'v'; 60_000]);
    for _ in 0..2 {
        for rank in 0..4 {
            let value = large.slice(..30_000);
            net.enter(rank, Entry::Allgather { max_len: 60_000, shared: true, value });
        }
    }
    let mut dice = Dice(1);
    while net.deliver(&mut dice) {}
    // Each collective has 120 kB in total, which is small enough for the tree.
    assert_eq!((net.direct, net.failed.len()), (0, 0));
    let mut net = Net::new(&[8, 8, 8, 8], 2, ExchangeScheme::Auto);
    for rank in 0..32 {
        net.enter(rank, Entry::Allgather { max_len: 60_000, shared: true, value: large.clone() });
    }
    while net.deliver(&mut dice) {}
    assert!(net.direct > 0);
    assert!(net.ended.iter().all(|ended| ended.len() == 1) && net.failed.is_empty());
}

#[test]
fn ranks_that_call_different_collectives_fail_the_job() {
    let mut net = Net::new(&[2], 2, ExchangeScheme::Auto);
    net.enter(0, Entry::Fence);
    net.enter(1, Entry::Ring { value: Bytes::new() });
    assert_eq!(net.failed, ["rank 1 called ring as collective 0 of the job, but other ranks called fence"]);
    net.enter(1, Entry::Fence);
    assert!(net.ended[0].is_empty(), "the next one must not replace the refused one");
    let mut net = Net::new(&[1, 1], 2, ExchangeScheme::Auto);
    net.enter(0, Entry::Fence);
    net.enter(1, entry(1, 1, 0));
    while net.deliver(&mut Dice(1)) {}
    assert!(
        net.failed[0].contains("ranks of this node called fence, ranks of another node called allgather"),
        "{:?}",
        net.failed
    );
    let mut net = Net::new(&[2], 2, ExchangeScheme::Auto);
    net.enter(0, Entry::Allgather { max_len: 4, shared: false, value: Bytes::new() });
    net.enter(1, Entry::Allgather { max_len: 5, shared: false, value: Bytes::new() });
    assert!(net.failed[0].contains("up to 4 bytes for other ranks and 5 for rank 1"), "{:?}", net.failed);
}

#[test]
fn a_departure_breaks_only_collectives_that_the_rank_has_not_entered() {
    let left = |epoch| Departed { epoch: Epoch(epoch), ..departed(1) };
    let broken = |net: &Net| net.nodes[0].broken().map(|broken| (broken.departed, broken.epoch, broken.collective));
    for scheme in schemes() {
        let mut net = Net::new(&[1, 1], 2, scheme);
        net.enter(0, Entry::Fence);
        assert!(net.nodes[0].on_departed(left(1)));
        assert_eq!(broken(&net), None, "the rank had entered fence 0 before it left");
        net.enter(0, Entry::Fence);
        assert_eq!(broken(&net), Some((left(1), Epoch(1), Collective::Fence)));
        assert!(!net.nodes[0].on_departed(left(2)), "an earlier departure is known");
        assert!(net.nodes[0].on_departed(left(0)), "a rank elsewhere may wait for this one");
        assert_eq!(broken(&net), Some((left(0), Epoch(0), Collective::Fence)));
    }
}

/// An agent that knows of a departure and of another node's contribution knows that a rank waits in vain, even if the
/// data uses direct links.
#[test]
fn the_root_knows_that_a_node_waits() {
    for scheme in schemes() {
        let mut net = Net::new(&[1, 1, 1], 2, scheme);
        net.enter(1, Entry::Fence);
        while net.deliver(&mut Dice(3)) {}
        assert!(net.nodes[0].stall_deadline(5).is_some());
        let departed = departed(2);
        net.nodes[0].on_departed(departed);
        let broken = Broken { departed, epoch: Epoch(0), collective: Collective::Fence, waiting: 0 };
        assert_eq!(net.nodes[0].broken(), Some(broken), "{scheme:?}");
    }
}

/// A node that learns of a collective from a direct message counts as waiting from then on.
#[test]
fn a_wait_begins_with_the_first_message_of_a_collective() {
    let mut net = Net::new(&[1, 1, 1], 2, ExchangeScheme::RING);
    net.enter(0, Entry::Fence);
    while net.deliver(&mut Dice(1)) {}
    assert_eq!(net.nodes[1].stall_deadline(5), Some(Instant(2) + 5));
}

/// Ranks enter at time 1, frames arrive at time 2.
#[test]
fn a_trace_tells_when_the_subtree_and_the_result_were_complete() {
    let mut net = Net::new(&[1, 1, 1], 2, ExchangeScheme::Tree);
    (0..3).for_each(|rank| net.enter(rank, Entry::Fence));
    while net.deliver(&mut Dice(1)) {}
    net.traces.sort_by_key(|(node, _)| *node);
    let times = |(node, trace): &(usize, FenceTrace)| (*node, trace.last_in_ns, trace.gathered_ns, trace.received_ns);
    let times: Vec<_> = net.traces.iter().map(times).collect();
    assert_eq!(times, [(0, 1, 2, 2), (1, 1, 1, 2), (2, 1, 1, 2)]);
}

#[test]
fn outstanding_collectives_of_a_rank_are_bounded() {
    let mut net = Net::new(&[2], 2, ExchangeScheme::Auto);
    for _ in 0..EXCHANGES_MAX {
        net.enter(0, Entry::Fence);
    }
    assert!(net.failed.is_empty());
    net.enter(0, Entry::Fence);
    assert!(net.failed[0].contains("more than 16384 collectives outstanding"), "{:?}", net.failed);
}
