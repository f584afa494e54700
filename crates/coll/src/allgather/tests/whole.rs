//! A complete allgather among the agents of a tree, some of which are not in the set.

use super::{Dice, Own, lens};
use crate::allgather::*;
use crate::tree::Tree;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use proptest::prelude::*;
use wireup_wire::collective::{Algorithm, Collective, ExchangeScheme, Form, RoundTag, Tag};
use wireup_wire::ids::AgentId;
use wireup_wire::rope::Rope;

/// The agents of a tree; some of them are peers.
struct Net {
    tree: Tree,
    /// Peer index of each agent; `None`: the agent is not in the set.
    places: Vec<Option<u32>>,
    parts: Vec<Allgather>,
    done: Vec<Option<Vec<Rope>>>,
    events: Vec<(usize, Event)>,
    /// Number of messages that peers have sent each other over direct links.
    rounds: usize,
}

enum Event {
    Start,
    Deliver(Sender, Rope),
}

impl Net {
    /// `members`: for each agent, whether it is in the set.
    fn new(members: &[bool], fanout: u32, rules: Rules) -> Net {
        let mut next = 0..;
        let places: Vec<Option<u32>> = members.iter().map(|member| member.then(|| next.next().unwrap())).collect();
        let count = places.iter().flatten().count() as u32;
        let tree = Tree::new(members.len() as u32, fanout);
        let mut net = Net { tree, parts: Vec::new(), done: Vec::new(), events: Vec::new(), rounds: 0, places };
        net.done.resize(members.len(), None);
        for (agent, &me) in net.places.iter().enumerate() {
            let peers = PeerSet { count, me, root: agent == 0, children: net.children(agent).len() };
            net.parts.push(Allgather::new(Collective::Fence, peers, rules));
            net.events.extend(me.map(|_| (agent, Event::Start)));
        }
        net
    }

    /// The children with peers of the set at or below them.
    fn children(&self, agent: usize) -> Vec<usize> {
        let leads_to = |child: AgentId, to: usize| self.tree.subtree_contains(child, AgentId(to as u32));
        let has_peers =
            |child: &AgentId| (0..self.places.len()).any(|to| self.places[to].is_some() && leads_to(*child, to));
        self.tree.children(AgentId(agent as u32)).map(AgentId).filter(has_peers).map(AgentId::index).collect()
    }

    fn agent_of(&self, peer: u32) -> usize {
        self.places.iter().position(|place| *place == Some(peer)).expect("the peer exists")
    }

    fn post(&mut self, from: usize, to: Receiver, payload: Rope) {
        let deliver = |from| Event::Deliver(from, payload.clone());
        match to {
            Receiver::Parent(tag) => {
                let parent = self.tree.parent(AgentId(from as u32)).expect("the root sends nothing up").index();
                let child = self.children(parent).iter().position(|child| *child == from).expect("a child has peers");
                self.events.push((parent, deliver(Sender::Child(child, tag))));
            }
            Receiver::Children(tag) => {
                let events = self.children(from).into_iter().map(|child| (child, deliver(Sender::Parent(tag))));
                self.events.extend(events.collect::<Vec<_>>());
            }
            Receiver::Child(..) => panic!("an allgather sends all children the same"),
            Receiver::Peer(to, tag) => {
                self.rounds += 1;
                let me = self.places[from].expect("only peers of the set have rounds");
                self.events.push((self.agent_of(to), deliver(Sender::Peer(me, tag))));
            }
        }
    }

    /// Handles all events in random order, except those of the `lost` agent.
    fn run(&mut self, own: &Own, lost: Option<usize>, dice: &mut Dice) {
        while !self.events.is_empty() {
            let (at, event) = self.events.swap_remove(dice.below(self.events.len()));
            if Some(at) == lost {
                continue;
            }
            let progress = match event {
                Event::Start => self.parts[at].start(own.encoded[self.places[at].unwrap() as usize].clone()),
                Event::Deliver(from, payload) => self.parts[at].on_message(from, payload),
            };
            let Progress { sends, done } = progress.expect("every message is valid");
            for (to, payload) in sends {
                if !matches!(to, Receiver::Parent(Tag { form: Form::Size, .. })) {
                    own.expect_shared(&payload);
                }
                self.post(at, to, payload);
            }
            if done.is_some() {
                assert!(self.done[at].is_none(), "an allgather completes once");
                self.done[at] = done;
            }
        }
    }
}

fn rules(scheme: ExchangeScheme) -> Rules {
    Rules { scheme, collect_max: None }
}

/// The sizes of the peers' blocks, and for each agent whether it is in the set.
fn members() -> impl Strategy<Value = (Vec<usize>, Vec<bool>)> {
    let agents = proptest::collection::vec(any::<bool>(), 0..20);
    (lens(), agents, any::<u64>()).prop_map(|(lens, mut members, seed)| {
        let missing = lens.len().saturating_sub(members.iter().filter(|member| **member).count());
        let mut dice = Dice(seed | 1);
        for _ in 0..missing {
            members.insert(dice.below(members.len() + 1), true);
        }
        let count = members.iter().filter(|member| **member).count();
        (lens.into_iter().cycle().take(count).collect(), members)
    })
}

proptest! {
    #[test]
    fn every_scheme_delivers_all_blocks((lens, members) in members(), fanout in 1u32..5, seed in any::<u64>()) {
        let own = Own::new(lens);
        for (name, scheme) in schemes() {
            let mut net = Net::new(&members, fanout, rules(scheme));
            net.run(&own, None, &mut Dice(seed | 1));
            for (agent, place) in net.places.iter().enumerate().filter(|(_, place)| place.is_some()) {
                let parts = net.done[agent].as_deref();
                own.expect_all(parts.unwrap_or_else(|| panic!("{name}: peer {place:?} did not end")), false);
            }
            for agent in (0..members.len()).filter(|agent| members[*agent] || !net.children(*agent).is_empty()) {
                let part = &net.parts[agent];
                prop_assert!(part.is_gathered() && part.is_passed_on(), "{}: agent {}", name, agent);
            }
        }
    }

    #[test]
    fn no_agent_completes_without_a_lost_peer(
        (lens, members) in members(),
        fanout in 1u32..5,
        lost in any::<u32>(),
        seed in any::<u64>(),
    ) {
        let own = Own::new(lens);
        for (name, scheme) in schemes() {
            let mut net = Net::new(&members, fanout, rules(scheme));
            let lost = net.agent_of(lost % own.blocks.len() as u32);
            net.run(&own, Some(lost), &mut Dice(seed | 1));
            prop_assert!(net.done.iter().all(Option::is_none), "{}", name);
        }
    }
}

/// Runs an allgather whose root chooses the scheme by the sizes of the blocks.
fn run_auto(lens: Vec<usize>, collect_max: Option<u64>) -> Net {
    let own = Own::new(lens);
    let members = vec![true; own.blocks.len()];
    let mut net = Net::new(&members, 2, Rules { scheme: ExchangeScheme::Auto, collect_max });
    net.run(&own, None, &mut Dice(9));
    if collect_max.is_none() {
        net.done.iter().for_each(|done| own.expect_all(done.as_deref().unwrap(), false));
    }
    net
}

#[test]
fn the_root_chooses_the_scheme_by_size() {
    assert_eq!(run_auto(vec![1000; 6], None).rounds, 0, "few bytes go down the tree");
    assert_eq!(run_auto(vec![40_000, 0, 50_000, 0, 50_000, 0], None).rounds, 6 * 5, "many bytes go around the ring");
    assert_eq!(run_auto(vec![16_000; 10], None).rounds, 10 * 4, "fewer bytes per node go by Bruck's allgather");
    assert_eq!(run_auto(vec![200_000; 4], None).rounds, 4 * 3, "only sizes go up the tree");
}

#[test]
fn data_beyond_the_limit_is_not_collected() {
    for (max, is_empty) in [(5999, true), (7000, false)] {
        let net = run_auto(vec![1000; 6], Some(max));
        let bytes = |done: &Option<Vec<Rope>>| done.as_ref().unwrap().iter().map(Rope::len).sum::<usize>();
        assert_eq!(net.done.iter().all(|done| bytes(done) == 0), is_empty);
    }
}

#[test]
fn protocol_violations_are_refused() {
    let set = PeerSet { count: 3, me: Some(1), root: false, children: 1 };
    let tag = |form| Tag::new(Collective::Fence, form);
    let round = |algorithm, round| RoundTag { collective: Collective::Fence, algorithm, round };
    let own = Own::new([3, 3, 3]);
    let block = |peer: usize| Rope::from(own.encoded[peer].clone());
    let go = || Sender::Parent(tag(Form::Go(Algorithm::RING)));
    let mut peer = Allgather::new(Collective::Fence, set, rules(ExchangeScheme::Auto));
    let say = |peer: &mut Allgather, from, payload| peer.on_message(from, payload).map(|_| ());
    assert_eq!(say(&mut peer, go(), Rope::default()), Err(Refused::EarlyOutcome));
    let decides = Sender::Child(0, tag(Form::Go(Algorithm::BRUCK)));
    assert_eq!(say(&mut peer, decides, Rope::default()), Err(Refused::ChildDecides));
    assert_eq!(say(&mut peer, Sender::Child(0, tag(Form::Size)), block(0)), Err(Refused::NoSize(5)));
    assert_eq!(say(&mut peer, Sender::Child(0, tag(Form::Data)), block(2)), Ok(()));
    assert_eq!(say(&mut peer, Sender::Child(0, tag(Form::Data)), block(2)), Err(Refused::ChildTwice(0)));
    let stranger = Sender::Peer(0, round(Algorithm::new(7), 0));
    assert_eq!(say(&mut peer, stranger, block(0)), Err(Refused::NoSuchAlgorithm(7)));
    // Messages of peers that have started before this one are accepted.
    assert_eq!(say(&mut peer, Sender::Peer(0, round(Algorithm::RING, 0)), block(0)), Ok(()));
    assert_eq!(say(&mut peer, Sender::Peer(2, round(Algorithm::BRUCK, 0)), block(2)), Err(Refused::DifferentWays));
    assert!(peer.start(own.encoded[1].clone()).is_ok() && peer.is_gathered());
    assert_eq!(peer.start(own.encoded[1].clone()), Err(Refused::OwnTwice));
    assert_eq!(say(&mut peer, go(), Rope::default()), Ok(()));
    assert_eq!(say(&mut peer, go(), Rope::default()), Err(Refused::EarlyOutcome));
    let last = peer.on_message(Sender::Peer(0, round(Algorithm::RING, 1)), block(2)).unwrap();
    own.expect_all(&last.done.unwrap(), true);
    assert_eq!(say(&mut peer, Sender::Peer(0, round(Algorithm::RING, 1)), block(2)), Err(Refused::AfterTheEnd));
}

#[test]
fn unknown_algorithms_and_rounds_for_non_members_are_refused() {
    let unknown = ExchangeScheme::Direct(Algorithm::new(7));
    let set = PeerSet { count: 2, me: Some(0), root: true, children: 1 };
    let mut peer = Allgather::new(Collective::Fence, set, rules(unknown));
    assert_eq!(peer.start(Bytes::from_static(&[0, 0])), Err(Refused::NoSuchAlgorithm(7)));
    let outside = PeerSet { me: None, ..set };
    let tag = RoundTag { collective: Collective::Fence, algorithm: Algorithm::RING, round: 0 };
    let mut outside = Allgather::new(Collective::Fence, outside, rules(ExchangeScheme::Auto));
    assert_eq!(outside.on_message(Sender::Peer(0, tag), Rope::default()), Err(Refused::NoRounds));
}
