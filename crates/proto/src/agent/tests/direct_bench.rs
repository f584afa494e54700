//! A tree of agents whose messages take any time, and who speak to each other across it: all arrives once and in order, over
//! one link for each pair.

use super::direct::frame;
use super::starting::{T, job};
use super::*;
use proptest::prelude::*;
use proptest::test_runner::TestRng;
use std::collections::VecDeque;
use wireup_wire::job::{AppSpec, Block, NodeSpec};
use wireup_wire::peer::{AgentSpec, Bootstrap};

/// Something on its way to one end of a link.
enum Ware {
    Up(Peer),
    Frame(Frame),
}

struct Link {
    ends: [u32; 2],
    /// `ways[n]` leads to end `n`.
    ways: [VecDeque<Ware>; 2],
    refused: bool,
    is_direct: bool,
}

struct Bench {
    agents: Vec<Option<Agent>>,
    links: Vec<Link>,
    /// Who dials whom.
    dials: VecDeque<(u32, u32)>,
    /// Who is about to be told where it listens.
    listens: VecDeque<u32>,
    /// Frames that arrived, by sender and receiver.
    heard: BTreeMap<(u32, u32), Vec<u32>>,
    now: Instant,
}

impl Bench {
    fn new(count: u32, fanout: u32) -> Bench {
        let session = SessionSpec {
            fanout,
            agents: (0..count).map(|agent| AgentSpec { host: format!("n{agent}") }).collect(),
            ..super::starting::agent(0).config.session
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
            heard: BTreeMap::new(),
            now: T,
        };
        bench.begin(AgentId(0), session, vec![spec]);
        bench
    }

    fn begin(&mut self, agent: AgentId, session: SessionSpec, jobs: Vec<JobSpec>) {
        let born = Born { process_ns: self.now.0, bootstrap_ns: self.now.0 };
        let mut machine = Agent::new(AgentConfig { agent, session, born });
        for job in jobs {
            machine.launch(self.now, job);
        }
        self.agents[agent.index()] = Some(machine);
        self.perform(agent.0);
    }

    fn connect(&mut self, ends: [u32; 2], peers: [Peer; 2]) {
        let is_direct = matches!(peers[0], Peer::Direct(_));
        let ways = peers.map(|peer| VecDeque::from([Ware::Up(peer)]));
        self.links.push(Link { ends, ways, refused: false, is_direct });
    }

    fn send(&mut self, from: u32, to: u32, arg: u32) {
        let agent = self.agents[from as usize].as_mut().expect("it was seen to live");
        agent.links.send_peer(AgentId(to), frame(1, arg), &mut agent.out);
        self.perform(from);
    }

    /// Does what an agent wants.
    fn perform(&mut self, me: u32) {
        while let Some(output) = self.agents[me as usize].as_mut().and_then(Agent::poll) {
            match output {
                Output::StartAgent { agent, bootstrap: Some(bootstrap), .. } => {
                    let Bootstrap { session, jobs, .. } = *bootstrap;
                    self.begin(agent, session, jobs);
                    self.connect([me, agent.0], [Peer::Child(agent), Peer::Parent]);
                }
                Output::Listen => self.listens.push_back(me),
                Output::Dial { agent, addresses } => {
                    assert_eq!(addresses, [format!("a{agent}")]);
                    self.dials.push_back((me, agent.0));
                }
                Output::Send { link, frame } => {
                    let link = &mut self.links[link.0 as usize];
                    let end = usize::from(link.ends[0] == me);
                    link.ways[end].push_back(Ware::Frame(frame));
                }
                Output::CloseLink { link } => self.links[link.0 as usize].refused = true,
                _ => {}
            }
        }
    }

    fn tell(&mut self, agent: u32, input: Input) {
        self.now = self.now + 1000;
        let now = self.now;
        self.agents[agent as usize].as_mut().expect("only the living have links").handle(now, input);
        self.perform(agent);
    }

    /// Lets one of the things that can happen happen.
    fn step(&mut self, choice: usize) -> bool {
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
        let choice = choice % all;
        if let Some(&(link, end)) = ways.get(choice) {
            self.arrive(link, end);
        } else if let Some(at) = (choice - ways.len()).checked_sub(self.dials.len()) {
            let agent = self.listens.remove(at).expect("it was counted");
            self.tell(agent, Input::Listening { addresses: vec![format!("a{agent}")] });
        } else {
            let (from, to) = self.dials.remove(choice - ways.len()).expect("it was counted");
            self.connect([to, from], [Peer::Direct(AgentId(from)), Peer::Direct(AgentId(to))]);
        }
        true
    }

    fn arrive(&mut self, link: usize, end: usize) {
        let at = &mut self.links[link];
        let (me, other, id) = (at.ends[end], at.ends[1 - end], LinkId(link as u32));
        match at.ways[end].pop_front() {
            None => {}
            Some(Ware::Up(peer)) => self.tell(me, Input::LinkUp { link: id, peer, local: String::new() }),
            Some(Ware::Frame(frame)) => {
                if frame.kind == Kind::Direct {
                    self.heard.entry((other, me)).or_default().push(frame.arg);
                }
                self.tell(me, Input::LinkBytes { link: id, bytes: Bytes::copy_from_slice(&frame.header()) });
                self.tell(me, Input::LinkBytes { link: id, bytes: frame.payload });
            }
        }
    }
}

fn check(count: u32, fanout: u32, sends: &[(u32, u32)], rng: &mut TestRng) {
    let mut bench = Bench::new(count, fanout);
    let mut said: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
    let mut rest = sends.iter().map(|(from, to)| (from % count, to % count)).filter(|(from, to)| from != to);
    let mut next = rest.next();
    loop {
        if let Some((from, to)) = next
            && bench.agents[from as usize].is_some()
            && rng.next_u32().is_multiple_of(4)
        {
            let args = said.entry((from, to)).or_default();
            args.push(args.len() as u32);
            bench.send(from, to, args.len() as u32 - 1);
            next = rest.next();
        }
        if !bench.step(rng.next_u32() as usize) && next.is_none() {
            break;
        }
    }
    assert_eq!(bench.heard, said);
    let tree = Tree::new(count, fanout);
    let is_neighbour = |one: u32, other: u32| tree.parent(AgentId(one)).map(|parent| parent.0) == Some(other);
    let mut pairs: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for link in bench.links.iter().filter(|link| link.is_direct) {
        assert!(!link.refused, "nobody expected it");
        let [one, other] = link.ends;
        *pairs.entry((one.min(other), one.max(other))).or_default() += 1;
    }
    let wanted = said.keys().filter(|(from, to)| !is_neighbour(*from, *to) && !is_neighbour(*to, *from));
    let wanted: BTreeSet<(u32, u32)> = wanted.map(|(from, to)| (*from.min(to), *from.max(to))).collect();
    assert_eq!(pairs, wanted.into_iter().map(|pair| (pair, 1)).collect());
}

proptest! {
    #[test]
    fn all_arrives_in_order_over_one_link_a_pair(
        count in 2..10u32,
        fanout in 1..4u32,
        sends in proptest::collection::vec((0..10u32, 0..10u32), 1..80),
        mut rng in Just(()).prop_perturb(|(), rng| rng),
    ) {
        check(count, fanout, &sends, &mut rng);
    }
}
