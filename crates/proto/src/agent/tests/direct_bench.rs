//! A tree of agents with arbitrary message delays that send to each other across it: every frame arrives once and in order, whatever
//! happens to the links of each pair, and a pair never makes more than one link.

use super::direct::frame;
use super::starting::{T, job};
use super::*;
use proptest::prelude::*;
use proptest::test_runner::TestRng;
use std::collections::VecDeque;
use wireup_wire::job::{AppSpec, Block, NodeSpec};
use wireup_wire::peer::{AgentSpec, AgentTransport, Bootstrap, Note};

/// The job whose frames are sent; it never starts, so they are kept at the receiver.
const LATER: u32 = 2;

/// Something in transit to one end of a link.
enum Ware {
    Up(Peer),
    Frame(Frame),
    Down,
}

struct Link {
    ends: [u32; 2],
    /// `ways[n]` is the queue towards end `n`.
    ways: [VecDeque<Ware>; 2],
    is_direct: bool,
    is_cut: bool,
}

/// The faults to inject.
#[derive(Clone, Copy, Debug)]
struct Weather {
    transport: AgentTransport,
    /// How many of a thousand dials fail.
    refused: u32,
    /// After how many of a thousand steps a link beside the tree breaks.
    cut: u32,
    /// After how many of a thousand steps time passes.
    ticks: u32,
    /// How many of a thousand agents cannot listen.
    deaf: u32,
}

struct Bench {
    agents: Vec<Option<Agent>>,
    links: Vec<Link>,
    /// Pending dials: from, to.
    dials: VecDeque<(u32, u32)>,
    /// Agents that are about to be told their listening address.
    listens: VecDeque<u32>,
    weather: Weather,
    now: Instant,
    /// Notes that frames between two agents go through the tree.
    notes: Vec<(AgentId, AgentId)>,
}

impl Bench {
    fn new(count: u32, fanout: u32, weather: Weather) -> Bench {
        let session = SessionSpec {
            fanout,
            agents: (0..count).map(|agent| AgentSpec { host: format!("n{agent}") }).collect(),
            transport: weather.transport,
            ..super::starting::config(0).session
        };
        let spec = JobSpec {
            nodes: (0..count)
                .map(|node| NodeSpec { agent: AgentId(node), name: format!("n{node}"), shared: false })
                .collect(),
            blocks: vec![Block { first_node: 0, nodes: count, ppn: 1 }],
            apps: vec![AppSpec { ranks: count, ..job(1).apps[0].clone() }],
            ..job(1)
        };
        let mut bench = Bench {
            agents: (0..count).map(|_| None).collect(),
            links: Vec::new(),
            dials: VecDeque::new(),
            listens: VecDeque::new(),
            weather,
            now: T,
            notes: Vec::new(),
        };
        // The link to the launcher.
        bench.connect([0, 0], [Peer::Launcher, Peer::Launcher], false);
        bench.links[0].ways[1].clear();
        bench.begin(AgentId(0), session, vec![spec]);
        bench
    }

    fn begin(&mut self, agent: AgentId, session: SessionSpec, jobs: Vec<JobSpec>) {
        let born = Born { process_ns: self.now.0, bootstrap_ns: self.now.0 };
        let mut machine = Agent::new(AgentConfig::new(agent, session, born));
        for job in jobs {
            machine.launch(self.now, job);
        }
        self.agents[agent.index()] = Some(machine);
        self.perform(agent.0);
    }

    fn connect(&mut self, ends: [u32; 2], peers: [Peer; 2], is_direct: bool) {
        let ways = peers.map(|peer| VecDeque::from([Ware::Up(peer)]));
        self.links.push(Link { ends, ways, is_direct, is_cut: false });
    }

    fn send(&mut self, from: u32, to: u32, frame: Frame) {
        let agent = self.agents[from as usize].as_mut().expect("the agent was alive");
        agent.links.direct.at(self.now);
        agent.links.send_peer(agent.membership.routes(), AgentId(to), frame, &mut agent.out);
        self.perform(from);
    }

    /// Carries out an agent's outputs.
    fn perform(&mut self, me: u32) {
        while let Some(output) = self.agents[me as usize].as_mut().and_then(Agent::poll) {
            match output {
                Output::StartAgent { agent, bootstrap: Some(bootstrap), .. } => {
                    let Bootstrap { session, jobs, .. } = *bootstrap;
                    self.begin(agent, session, jobs);
                    self.connect([me, agent.0], [Peer::Child { agent, incarnation: 0 }, Peer::Parent], false);
                }
                Output::Listen => self.listens.push_back(me),
                Output::Dial { agent, addresses, .. } => {
                    assert_eq!(addresses, [format!("a{agent}")]);
                    self.dials.push_back((me, agent.0));
                }
                Output::Send { link: LinkId(0), frame } if me == 0 => self.on_said(&frame),
                Output::Send { link, frame } => {
                    let link = &mut self.links[link.0 as usize];
                    let end = usize::from(link.ends[0] == me);
                    if !link.is_cut {
                        link.ways[end].push_back(Ware::Frame(frame));
                    }
                }
                Output::CloseLink { link } => {
                    let link = &mut self.links[link.0 as usize];
                    let (end, other) = (usize::from(link.ends[1] == me), usize::from(link.ends[0] == me));
                    link.ways[end].clear();
                    if !std::mem::replace(&mut link.is_cut, true) {
                        link.ways[other].push_back(Ware::Down);
                    }
                }
                _ => {}
            }
        }
    }

    fn on_said(&mut self, frame: &Frame) {
        let Ok(message) = peer::decode(&frame.payload) else { return };
        match message {
            Control::Note(Note::Routed { agent, peer, .. }) => self.notes.push((agent, peer)),
            Control::Failed(failure) => panic!("{failure:?}"),
            _ => {}
        }
    }

    fn tell(&mut self, agent: u32, input: Input) {
        self.now = self.now + 1000;
        let now = self.now;
        self.agents[agent as usize].as_mut().expect("only live agents have links").handle(now, input);
        self.perform(agent);
    }

    /// Lets one of the possible events happen.
    fn step(&mut self, rng: &mut TestRng) -> bool {
        if rng.next_u32() % 1000 < self.weather.cut {
            self.cut(rng.next_u32() as usize);
        }
        if rng.next_u32() % 1000 < self.weather.ticks {
            self.pass_time(100_000_000);
        }
        let ways = self
            .links
            .iter()
            .enumerate()
            .flat_map(|(link, at)| (0..2).filter(move |end| !at.ways[*end].is_empty()).map(move |end| (link, end)));
        let ways: Vec<(usize, usize)> = ways.collect();
        let all = ways.len() + self.dials.len() + self.listens.len();
        if all == 0 {
            return false;
        }
        let choice = rng.next_u32() as usize % all;
        if let Some(&(link, end)) = ways.get(choice) {
            self.arrive(link, end);
        } else if let Some(at) = (choice - ways.len()).checked_sub(self.dials.len()) {
            let agent = self.listens.remove(at).expect("it was counted");
            let is_deaf = rng.next_u32() % 1000 < self.weather.deaf;
            self.tell(
                agent,
                if is_deaf {
                    Input::ListenFailed { problem: "deaf".into() }
                } else {
                    Input::Listening { addresses: vec![format!("a{agent}")] }
                },
            );
        } else {
            let (from, to) = self.dials.remove(choice - ways.len()).expect("it was counted");
            if rng.next_u32() % 1000 < self.weather.refused {
                self.tell(from, Input::DialFailed { agent: AgentId(to), problem: "refused".into() });
            } else {
                self.connect([to, from], [Peer::Direct(AgentId(from)), Peer::Direct(AgentId(to))], true);
            }
        }
        true
    }

    /// Breaks a link beside the tree: everything in transit from some point on is lost.
    fn cut(&mut self, choice: usize) {
        let open: Vec<usize> =
            (0..self.links.len()).filter(|at| self.links[*at].is_direct && !self.links[*at].is_cut).collect();
        if let Some(&at) = open.get(choice % open.len().max(1)) {
            let link = &mut self.links[at];
            link.is_cut = true;
            for way in &mut link.ways {
                // The event that the link came up is kept.
                way.truncate(1 + choice / 7 % (way.len() + 1));
                way.push_back(Ware::Down);
            }
        }
    }

    fn pass_time(&mut self, ns: u64) {
        self.now = self.now + ns;
        for agent in 0..self.agents.len() as u32 {
            if self.agents[agent as usize].is_some() {
                self.tell(agent, Input::Tick);
            }
        }
    }

    fn arrive(&mut self, link: usize, end: usize) {
        let at = &mut self.links[link];
        let (me, id) = (at.ends[end], LinkId(link as u32));
        match at.ways[end].pop_front() {
            None => {}
            Some(Ware::Up(peer)) => self.tell(me, Input::LinkUp { link: id, peer, local: String::new() }),
            Some(Ware::Frame(frame)) => {
                self.tell(me, Input::LinkBytes { link: id, bytes: Bytes::copy_from_slice(&frame.header()) });
                self.tell(me, Input::LinkBytes { link: id, bytes: frame.payload });
            }
            Some(Ware::Down) => self.tell(me, Input::LinkDown { link: id, problem: "cut".into() }),
        }
    }

    /// The frames that arrived, by sender and receiver.
    fn heard(&mut self) -> BTreeMap<(u32, u32), Vec<u32>> {
        let mut heard: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
        for (to, agent) in self.agents.iter_mut().flatten().enumerate() {
            for (from, frame) in agent.early.take(JobId(LATER)).frames {
                heard.entry((from.0, to as u32)).or_default().push(frame.arg);
            }
        }
        heard
    }
}

fn is_neighbour(tree: &Tree, one: u32, other: u32) -> bool {
    let below = |one: u32, other: u32| tree.parent(AgentId(one)).map(|parent| parent.0) == Some(other);
    below(one, other) || below(other, one)
}

fn check(count: u32, fanout: u32, weather: Weather, sends: &[(u32, u32, bool)], rng: &mut TestRng) {
    let mut bench = Bench::new(count, fanout, weather);
    let mut said: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
    let mut rest =
        sends.iter().map(|(from, to, large)| (from % count, to % count, *large)).filter(|(from, to, _)| from != to);
    let mut next = rest.next();
    loop {
        if let Some((from, to, is_large)) = next
            && bench.agents[from as usize].is_some()
            && rng.next_u32().is_multiple_of(4)
        {
            let args = said.entry((from, to)).or_default();
            args.push(args.len() as u32);
            let mut frame = frame(LATER, args.len() as u32 - 1);
            if is_large {
                frame.payload = Bytes::from_static(&[7; 50_000]);
            }
            bench.send(from, to, frame);
            next = rest.next();
        }
        if !bench.step(rng) && next.is_none() {
            // Lets frames that wait for a link go through the tree, and notes be sent.
            let before = bench.notes.len();
            bench.pass_time(1_000_000_000);
            if !bench.step(rng) && bench.notes.len() == before {
                break;
            }
        }
    }
    assert_eq!(bench.heard(), said);
    let tree = Tree::new(count, fanout);
    let mut pairs: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for link in bench.links.iter().filter(|link| link.is_direct) {
        let [one, other] = link.ends;
        *pairs.entry((one.min(other), one.max(other))).or_default() += 1;
    }
    assert!(pairs.values().all(|links| *links == 1), "{pairs:?}");
    let wanted = said.keys().filter(|(from, to)| !is_neighbour(&tree, *from, *to));
    let wanted: BTreeSet<(u32, u32)> = wanted.map(|(from, to)| (*from.min(to), *from.max(to))).collect();
    let is_calm = weather.refused + weather.cut + weather.deaf == 0;
    if is_calm && weather.transport != AgentTransport::Tree {
        assert_eq!(pairs.keys().copied().collect::<BTreeSet<_>>(), wanted);
    }
    if weather.transport == AgentTransport::Tree {
        assert!(pairs.is_empty() && bench.notes.is_empty());
    }
    if is_calm {
        assert_eq!(bench.notes, []);
    }
}

fn weather() -> impl Strategy<Value = Weather> {
    let transport = prop_oneof![3 => Just(AgentTransport::Tcp), 1 => Just(AgentTransport::Tree)];
    let some = |of: u32| prop_oneof![2 => Just(0), 1 => Just(of)];
    (transport, some(400), some(30), some(50), some(200)).prop_map(|(transport, refused, cut, ticks, deaf)| Weather {
        transport,
        refused,
        cut,
        ticks,
        deaf,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn all_arrives_in_order_whatever_becomes_of_the_links(
        count in 2..10u32,
        fanout in 1..4u32,
        weather in weather(),
        sends in proptest::collection::vec((0..10u32, 0..10u32, prop::bool::weighted(0.2)), 1..80),
        mut rng in Just(()).prop_perturb(|(), rng| rng),
    ) {
        check(count, fanout, weather, &sends, &mut rng);
    }
}
