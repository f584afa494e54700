//! Agents of a tree connected by queues, with any delivery order that links allow.

use super::*;
use crate::job::cx::{Ending, Sent};
use crate::testing::{Dice, Transit, departed, facts_of};
use proptest::prelude::*;
use wireup_wire::blob;
use wireup_wire::ids::{AgentId, NodeId, Rank};

struct Net {
    facts: Vec<Facts>,
    nodes: Vec<Barriers>,
    /// Frames in transit, by (sender, receiver).
    transit: Transit<(usize, usize), Frame>,
    /// For each rank and group: the number of rounds that the rank has entered, and that are complete as far as it
    /// knows.
    entered: BTreeMap<(u32, Group), u32>,
    completed: BTreeMap<(u32, Group), u32>,
    /// Keys that were published on each node.
    published: Vec<Vec<String>>,
    sent: usize,
    failed: Vec<String>,
}

fn group(text: &str, size: u32) -> Group {
    Group::parse(text.as_bytes(), size).unwrap()
}

impl Net {
    fn new(slots: &[u32], fanout: u32) -> Net {
        let facts = facts_of(slots, fanout);
        Net {
            nodes: facts.iter().map(|facts| Barriers::new(facts.below.len(), false)).collect(),
            facts,
            transit: Transit::default(),
            entered: BTreeMap::new(),
            completed: BTreeMap::new(),
            published: vec![Vec::new(); slots.len()],
            sent: 0,
            failed: Vec::new(),
        }
    }

    fn act(&mut self, me: usize, now: Instant, act: impl FnOnce(&mut Barriers, &mut Cx<'_>) -> Vec<Over>) {
        let Net { facts, nodes, .. } = self;
        let (over, sent, endings) = Cx::bench(&facts[me], now, |cx| act(&mut nodes[me], cx));
        for sent in sent {
            let Sent::ToAgent(to, frame) = sent else { panic!("{sent:?}") };
            self.sent += 1;
            self.transit.push((me, to.index()), frame);
        }
        over.into_iter().for_each(|Over { group, waiting, pairs }| self.over(me, &group, waiting, &pairs));
        for ending in endings {
            let Ending::Fail(Failure { cause: Cause::Pmi { problem }, .. }) = ending else { panic!("{ending:?}") };
            self.failed.push(problem);
        }
    }

    /// Puts a pair whose key contains the number of the round, and enters the barrier.
    fn enter(&mut self, now: Instant, rank: u32, of: &Group) {
        let (node, local) = self.facts[0].mapping.place(Rank(rank)).expect("the job has this rank");
        let round = self.entered.entry((rank, of.clone())).or_default();
        let mut pairs = Vec::new();
        blob::push(&mut pairs, key(rank, of, *round).as_bytes(), b"v");
        *round += 1;
        self.act(node.index(), now, |groups, cx| groups.enter(cx, local, of.clone(), pairs.into()));
    }

    fn over(&mut self, me: usize, group: &Group, waiting: Vec<LocalRank>, pairs: &[u8]) {
        let mut at = 0;
        while let Some((pair, next)) = blob::pair_at(pairs, at).unwrap() {
            self.published[me].push(String::from_utf8(pair.key.to_vec()).unwrap());
            at = next;
        }
        let ranks: Vec<Rank> = self.facts[me].mapping.ranks_of(NodeId(me as u32)).collect();
        for local in waiting {
            let completed = self.completed.entry((ranks[local.index()].0, group.clone())).or_default();
            *completed += 1;
            let completed = *completed;
            for rank in self.members(me, group) {
                let entered = self.entered.get(&(rank, group.clone())).copied().unwrap_or(0);
                assert!(entered >= completed, "round {completed} of {group:?} completed without rank {rank}");
                let key = key(rank, group, completed - 1);
                assert!(self.published[me].contains(&key), "{key} is not published on node {me}");
            }
        }
    }

    fn members(&self, me: usize, group: &Group) -> Vec<u32> {
        let Facts { mapping, job_size, .. } = &self.facts[me];
        match group.members {
            Members::Node => mapping.ranks_of(NodeId(me as u32)).map(|rank| rank.0).collect(),
            _ => (0..*job_size).filter(|rank| group.members.contains(Rank(*rank))).collect(),
        }
    }

    /// Delivers one message; `false`: none is in transit.
    fn deliver(&mut self, now: Instant, dice: &mut Dice) -> bool {
        let Some(((from, to), frame)) = self.transit.any(dice) else { return false };
        let child = self.facts[to].child_index(AgentId(from as u32));
        let arrived = Arrived::read(&self.facts[to], child, frame).expect("it was sent here");
        self.act(to, now, |groups, cx| groups.on_frame(cx, arrived));
        true
    }

    fn tick(&mut self, now: Instant) {
        for me in 0..self.nodes.len() {
            self.act(me, now, |groups, cx| {
                groups.on_tick(cx);
                Vec::new()
            });
        }
    }

    fn depart(&mut self, rank: u32) {
        let (node, local) = self.facts[0].mapping.place(Rank(rank)).expect("the job has this rank");
        self.nodes[node.index()].on_departed(local, departed(rank));
    }

    fn broken(&self) -> Vec<u32> {
        let here = |left| match left {
            Left::Here(departed) => departed.rank.0,
            Left::Below(child) => panic!("child {child} did not report this"),
        };
        self.nodes.iter().filter_map(Barriers::broken).map(|(left, _)| here(left)).collect()
    }
}

fn key(rank: u32, of: &Group, round: u32) -> String {
    format!("{rank} {} {} {round}", of.members, of.tag)
}

const T: Instant = Instant(1_000_000_000);

/// Every rank enters the barriers of each of its groups `rounds` times, with at most `ahead` barriers outstanding and
/// occasional long waits; then all ranks depart.
fn complete_rounds(slots: &[u32], fanout: u32, texts: &[String], rounds: u32, ahead: u32, seed: u64) {
    let mut net = Net::new(slots, fanout);
    let size = net.facts[0].job_size;
    let all: Vec<Group> = texts.iter().map(|text| group(text, size)).collect();
    let plans: Vec<Vec<&Group>> = (0..size)
        .map(|rank| (0..rounds).flat_map(|_| all.iter().filter(move |one| one.members.contains(Rank(rank)))).collect())
        .collect();
    let mut at = vec![0; size as usize];
    let (mut dice, mut now) = (Dice(seed), T);
    loop {
        let outstanding = |net: &Net, rank: u32| {
            let sum = |of: &BTreeMap<(u32, Group), u32>| {
                of.iter().filter(|((of, _), _)| *of == rank).map(|(_, n)| n).sum::<u32>()
            };
            sum(&net.entered) - sum(&net.completed)
        };
        let rank = dice.below(size as usize);
        if dice.below(20) == 0 {
            now = now + ASK_AFTER_NS;
            net.tick(now);
        } else if dice.below(3) == 0 && at[rank] < plans[rank].len() && outstanding(&net, rank as u32) < ahead {
            net.enter(now, rank as u32, plans[rank][at[rank]]);
            at[rank] += 1;
        } else if !net.deliver(now, &mut dice) && at.iter().zip(&plans).all(|(at, plan)| *at == plan.len()) {
            break;
        }
    }
    assert_eq!(net.failed, Vec::<String>::new());
    assert_eq!(net.entered, net.completed, "every round is complete for every rank");
    for (me, node) in net.nodes.iter().enumerate() {
        assert!(node.live.is_empty(), "node {me} forgets completed rounds");
    }
    (0..size).for_each(|rank| net.depart(rank));
    net.tick(now + ASK_AFTER_NS);
    assert_eq!(net.broken(), Vec::<u32>::new());
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    let list = proptest::collection::btree_set(0u32..1000, 1..12);
    let one = prop_oneof![
        1 => Just("WORLD".to_string()),
        1 => Just("NODE".to_string()),
        3 => list.prop_map(|ranks| ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(",")),
    ];
    proptest::collection::vec((one, 0..3), 1..5)
        .prop_map(|all| all.into_iter().map(|(who, tag)| format!("{who}:{tag}")).collect())
}

/// Reduces the ranks of each group modulo the job size; removes groups that become equal.
fn fitted(texts: Vec<String>, size: u32) -> Vec<String> {
    let mut all: Vec<String> = texts
        .iter()
        .map(|text| {
            let (who, tag) = text.split_once(':').unwrap();
            if who == "WORLD" || who == "NODE" {
                return text.clone();
            }
            let mut ranks: Vec<u32> = who.split(',').map(|rank| rank.parse::<u32>().unwrap() % size).collect();
            ranks.sort_unstable();
            ranks.dedup();
            format!("{}:{tag}", ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
        })
        .collect();
    all.sort();
    all.dedup();
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn all_rounds_of_groups_complete_for_all_members(
        slots in proptest::collection::vec(0u32..4, 1..9)
            .prop_filter("a job has ranks", |slots| slots.iter().sum::<u32>() > 0),
        fanout in 1u32..4,
        texts in texts(),
        rounds in 1u32..4,
        ahead in 1u32..4,
        seed: u64,
    ) {
        let texts = fitted(texts, slots.iter().sum());
        complete_rounds(&slots, fanout, &texts, rounds, ahead, seed);
    }
}

#[test]
fn messages_of_a_group_stay_in_the_smallest_subtree() {
    // The tree: 0 ─ 1, 2; 1 ─ 3, 4; 2 ─ 5, 6.
    for (text, frames) in [
        ("NODE:0", 0),
        ("6,7:0", 0),
        ("2:0", 0),
        ("6,8:0", 4),
        ("2,6:0", 2),
        ("6,10:0", 8),
        ("WORLD:0", 12),
        ("0,1,2,3,4,5,6,7,8,9,10,11,12,13:1", 12),
    ] {
        let mut net = Net::new(&[2; 7], 2);
        let of = group(text, 14);
        let node = net.facts[0].mapping.place(Rank(6)).unwrap().0;
        for rank in net.members(node.index(), &of) {
            net.enter(T, rank, &of);
        }
        while net.deliver(T, &mut Dice(1)) {}
        assert_eq!(net.entered, net.completed, "{text}");
        assert_eq!(net.sent, frames, "{text}");
    }
}

#[test]
fn a_question_about_an_earlier_round_does_not_count_for_the_next() {
    let (mut net, of) = (Net::new(&[1, 1, 1], 2), group("0,1,2:5", 3));
    net.enter(T, 0, &of);
    let late = T + ASK_AFTER_NS;
    // The missing members are asked for while the answer is in transit.
    net.enter(T, 1, &of);
    net.tick(late);
    while net.deliver(late, &mut Dice(1)) {}
    assert_eq!(net.nodes[1].stalls().count(), 1, "it waits only in the round that it entered");
    net.enter(late, 2, &of);
    while net.deliver(late, &mut Dice(1)) {}
    assert_eq!(net.entered, net.completed);
    assert!(net.nodes.iter().all(|node| node.live.is_empty()));
}

/// A child's report about one round is not taken as the answer to a question about the next round.
#[test]
fn an_answer_about_an_earlier_round_does_not_count_for_the_next() {
    let (mut net, of) = (Net::new(&[1, 1, 1], 2), group("0,1,2:5", 3));
    for rank in [0, 1, 0] {
        net.enter(T, rank, &of);
    }
    while net.deliver(T, &mut Dice(1)) {}
    let late = T + ASK_AFTER_NS;
    net.tick(late);
    while net.deliver(late, &mut Dice(1)) {}
    assert_eq!(net.nodes[1].stalls().map(|stall| stall.arrived).collect::<Vec<_>>(), [1, 0]);
    net.depart(1);
    assert_eq!(net.broken(), [1]);
}

#[test]
fn frames_of_an_unknown_group_fail_the_job() {
    let (mut net, of) = (Net::new(&[1, 1, 1], 2), group("0,1:5", 3));
    let arrived = |child, stream| {
        let frame = Frame::new(UpFrame::GroupUp, stream, 1, 0, Bytes::new());
        Arrived { child, group: of.clone(), frame }
    };
    net.act(1, T, |groups, cx| groups.on_frame(cx, arrived(None, OVER)));
    net.act(0, T, |groups, cx| groups.on_frame(cx, arrived(Some(1), OVER)));
    assert_eq!(net.failed.len(), 2, "{:?}", net.failed);
    assert!(net.failed[0].contains("unexpected message for the barrier of ranks 0-1 (tag 5)"));
}

#[test]
fn stalls_name_who_is_missing() {
    let (mut net, of) = (Net::new(&[2, 2], 1), group("0,2,3:5", 4));
    net.enter(T, 2, &of);
    assert_eq!(net.nodes[1].stall_deadline(9), Some(T + 9));
    assert_eq!(net.nodes[1].stall_deadline(0), None);
    let wanted = Stall { group: of.clone(), arrived: 1, missing: vec![LocalRank(1)] };
    assert_eq!(net.nodes[1].stalls().collect::<Vec<_>>(), [wanted]);
    net.nodes[1].on_asked();
    assert_eq!(net.nodes[1].stall_deadline(9), None);
    assert_eq!(net.nodes[0].stalls().count(), 0, "it does not know of the barrier");
    net.enter(T, 3, &of);
    while net.deliver(T, &mut Dice(1)) {}
    let wanted = Stall { group: of, arrived: 0, missing: vec![LocalRank(0)] };
    assert_eq!(net.nodes[0].stalls().collect::<Vec<_>>(), [wanted]);
}

#[test]
fn the_number_of_marks_is_bounded() {
    let mut groups = Barriers::new(0, false);
    let mut kvs = crate::pmi_server::kvs::Kvs::default();
    kvs.put(b"k", b"v");
    for rank in 0..3 * MARKS_MAX as u32 {
        let of = group(&format!("{rank}:0"), u32::MAX);
        assert!(!kvs.pending_since(groups.mark(&of.members)).is_empty());
        assert!(kvs.pending_since(groups.mark(&of.members)).is_empty());
        assert!(groups.marks.len() <= MARKS_MAX);
    }
}
