//! A tree of agents with arbitrary message delays that send to each other across it: every frame arrives once and in
//! order, whatever happens to the links of each pair, and a pair never makes more than one link.

use super::direct::{frame, send};
use super::*;
use proptest::prelude::*;
use wireup_wire::peer::{AgentTransport, LinkOptions, Note};

/// The job whose frames are sent; it never starts, so they are kept at the receiver.
const LATER: u32 = 2;

/// What happens besides the arrival of messages.
#[derive(Clone, Copy, Debug)]
struct Events {
    transport: AgentTransport,
    faults: Faults,
    /// Number, out of a thousand steps, after which a direct link breaks.
    cuts: usize,
    /// Number, out of a thousand steps, after which time passes.
    ticks: usize,
}

/// Lets one of the possible events happen; `false`: nothing was in transit.
fn step(net: &mut Net, events: Events) -> bool {
    if net.dice.hits(events.cuts) {
        net.cut_any();
    }
    if net.dice.hits(events.ticks) {
        net.pass(SECOND / 10);
    }
    net.deliver_any()
}

/// The `arg` of each frame, by sender and receiver.
type Frames = BTreeMap<(u32, u32), Vec<u32>>;

fn received(net: &mut Net) -> Frames {
    let mut received = Frames::new();
    for (to, agent) in net.agents.iter_mut().flatten().enumerate() {
        for (from, frame) in agent.session.early.take_waited(JobId(LATER)).frames {
            received.entry((from.0, to as u32)).or_default().push(frame.arg);
        }
    }
    received
}

/// Number of notes that frames between two agents go through the tree.
fn notes(net: &Net) -> usize {
    net.reports.iter().filter(|report| matches!(report, Control::Note(Note::Routed { .. }))).count()
}

fn is_neighbour(tree: &Tree, one: u32, other: u32) -> bool {
    let below = |one: u32, other: u32| tree.parent(AgentId(one)).map(|parent| parent.0) == Some(other);
    below(one, other) || below(other, one)
}

fn check(count: u32, fanout: u32, events: Events, sends: &[(u32, u32, bool)], seed: u64) {
    let base = session(count);
    let session =
        SessionSpec { fanout, links: LinkOptions { transport: events.transport, ..base.links.clone() }, ..base };
    let mut net = Net::new(session, job_on(1, 0..count, 1), events.faults, seed);
    let mut sent = Frames::new();
    let mut rest =
        sends.iter().map(|(from, to, large)| (from % count, to % count, *large)).filter(|(from, to, _)| from != to);
    let mut next = rest.next();
    loop {
        if let Some((from, to, is_large)) = next
            && net.agents[from as usize].is_some()
            && net.dice.hits(250)
        {
            let args = sent.entry((from, to)).or_default();
            args.push(args.len() as u32);
            let mut frame = frame(LATER, args.len() as u32 - 1);
            if is_large {
                frame.payload = Bytes::from_static(&[7; 50_000]);
            }
            net.act(from, |agent| send(agent, to, frame));
            next = rest.next();
        }
        if !step(&mut net, events) && next.is_none() {
            // Lets frames that wait for a link go through the tree, and notes be sent.
            let before = notes(&net);
            net.pass(SECOND);
            if !step(&mut net, events) && notes(&net) == before {
                break;
            }
        }
    }
    assert_eq!((net.failures(), received(&mut net)), (Vec::new(), sent.clone()));
    let tree = Tree::new(count, fanout);
    let mut pairs: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for link in net.links.iter().filter(|link| link.is_direct) {
        let [one, other] = link.ends;
        *pairs.entry((one.min(other), one.max(other))).or_default() += 1;
    }
    assert!(pairs.values().all(|links| *links == 1), "{pairs:?}");
    let wanted = sent.keys().filter(|(from, to)| !is_neighbour(&tree, *from, *to));
    let wanted: BTreeSet<(u32, u32)> = wanted.map(|(from, to)| (*from.min(to), *from.max(to))).collect();
    if events.transport == AgentTransport::Tree {
        assert!(pairs.is_empty());
    } else if !events.has_faults() {
        assert_eq!(pairs.keys().copied().collect::<BTreeSet<_>>(), wanted);
    }
    if events.transport == AgentTransport::Tree || !events.has_faults() {
        assert_eq!(notes(&net), 0);
    }
}

impl Events {
    fn has_faults(self) -> bool {
        self.faults.dials + self.faults.listens + self.cuts > 0
    }
}

fn events() -> impl Strategy<Value = Events> {
    let transport = prop_oneof![3 => Just(AgentTransport::Tcp), 1 => Just(AgentTransport::Tree)];
    let some = |of: usize| prop_oneof![2 => Just(0), 1 => Just(of)];
    (transport, some(400), some(30), some(50), some(200)).prop_map(|(transport, dials, cuts, ticks, listens)| Events {
        transport,
        faults: Faults { dials, listens },
        cuts,
        ticks,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_frame_arrives_once_and_in_order(
        count in 2..10u32,
        fanout in 1..4u32,
        events in events(),
        sends in proptest::collection::vec((0..10u32, 0..10u32, prop::bool::weighted(0.2)), 1..80),
        seed in any::<u64>(),
    ) {
        check(count, fanout, events, &sends, seed);
    }
}
