//! Agents and their processes in memory: every process gets its neighbours' values, with the messages of the formula.
use std::collections::VecDeque;

use super::*;
use crate::s4::traffic::{Count, formula};

/// A process: what it still has to ask for, and what it was given.
struct Process {
    rank: u16,
    asks: Vec<(u16, u16)>,
    given: Vec<Vec<u8>>,
}

struct Bench {
    agents: Vec<Agent>,
    processes: BTreeMap<u16, Process>,
    /// Messages under way: receiver, sender as the receiver sees it.
    under_way: VecDeque<(Option<u16>, End, Message)>,
    launcher: Vec<Message>,
    traffic: Traffic,
    size: u16,
    scheme: Scheme,
}

fn value(rank: u16, slot: u16) -> Vec<u8> {
    [rank.to_le_bytes(), slot.to_le_bytes(), [9, 9]].concat()
}

impl Bench {
    fn new(scheme: Scheme, size: u16, agents: u16) -> Bench {
        Bench {
            agents: (0..agents).map(|index| Agent::new(index, agents)).collect(),
            processes: BTreeMap::new(),
            under_way: VecDeque::new(),
            launcher: Vec::new(),
            traffic: Traffic::default(),
            size,
            scheme,
        }
    }

    fn launch(&mut self) {
        let request = Message::new(Kind::Launch, 0, encode_job(self.scheme, self.size));
        self.under_way.push_back((Some(0), End::Launcher, request));
        self.run();
    }

    fn run(&mut self) {
        while let Some((to, from, message)) = self.under_way.pop_front() {
            let Some(to) = to else {
                self.answer(message);
                continue;
            };
            if let End::Process(_) = from {
                self.traffic.local += Count::of(1, message.body.len() as u64);
            }
            for effect in self.agents[usize::from(to)].take(from, message) {
                self.carry_out(to, effect);
            }
        }
    }

    fn carry_out(&mut self, agent: u16, effect: Effect) {
        let agents = self.agents.len() as u16;
        match effect {
            Effect::Send(to, message) | Effect::Collect(to, message) => {
                let is_counted = !matches!(message.kind, Kind::Started | Kind::Report | Kind::Collect);
                let count = if is_counted { Count::of(1, message.body.len() as u64) } else { Count::default() };
                match to {
                    End::Launcher => self.launcher.push(message),
                    End::Ring => {
                        self.traffic.hops += count;
                        self.under_way.push_back((Some((agent + 1) % agents), End::Ring, message));
                    }
                    End::Cube(bit) => {
                        self.traffic.hops += count;
                        self.under_way.push_back((Some(agent ^ 1 << bit), End::Cube(bit), message));
                    }
                    End::Process(rank) => {
                        self.traffic.local += count;
                        assert!(ranks_of(agent, agents, self.size).contains(&rank));
                        self.under_way.push_back((None, End::Launcher, Message { who: rank, ..message }));
                    }
                }
            }
            Effect::Start { scheme, size, ranks } => {
                assert_eq!((scheme, size), (self.scheme, self.size));
                for rank in ranks {
                    let neighbours = scheme.neighbours(rank, size).into_iter().enumerate();
                    let asks: Vec<(u16, u16)> =
                        neighbours.map(|(slot, neighbour)| (neighbour, scheme.far_slot(slot as u16))).collect();
                    let row: Vec<u8> = (0..asks.len() as u16).flat_map(|slot| value(rank, slot)).collect();
                    self.processes.insert(rank, Process { rank, asks, given: Vec::new() });
                    for message in [Message::new(Kind::Put, rank, row), Message::new(Kind::Fence, rank, Vec::new())] {
                        self.under_way.push_back((Some(agent), End::Process(rank), message));
                    }
                }
            }
        }
    }

    /// A process asks for one value after the other, then reports.
    fn answer(&mut self, message: Message) {
        let agents = self.agents.len() as u16;
        let Some(process) = self.processes.get_mut(&message.who) else { panic!("{message:?}") };
        if message.kind == Kind::Value {
            process.given.push(message.body[SLOT_LEN..].to_vec());
        }
        let next = match process.asks.get(process.given.len()) {
            Some((rank, slot)) => Message::new(Kind::Get, process.rank, encode_slot(*rank, *slot)),
            None => Message::new(Kind::Report, process.rank, vec![1; REPORT_LEN]),
        };
        if next.kind == Kind::Report {
            // Not counted.
            let from = End::Process(message.who);
            let effects = self.agents[usize::from(agent_of(message.who, agents, self.size))].take(from, next);
            effects.into_iter().for_each(|effect| self.carry_out(agent_of(message.who, agents, self.size), effect));
        } else {
            self.under_way.push_back((Some(agent_of(message.who, agents, self.size)), End::Process(message.who), next));
        }
    }

    fn received(&self, kind: Kind) -> usize {
        self.launcher.iter().filter(|message| message.kind == kind).count()
    }
}

#[test]
fn processes_get_their_neighbours_values_with_the_messages_of_the_formula() {
    for (scheme, size, agents) in [
        (Scheme::MpdBc, 4, 16),
        (Scheme::MpdBc, 16, 16),
        (Scheme::MpdBc, 48, 16),
        (Scheme::MpdBc, 4, 1),
        (Scheme::MpdBc, 2, 3),
        (Scheme::MpdBc, 6, 3),
        (Scheme::Hypercube, 4, 16),
        (Scheme::Hypercube, 16, 4),
        (Scheme::Hypercube, 128, 16),
        (Scheme::Hypercube, 8, 1),
        (Scheme::Hypercube, 2, 2),
    ] {
        let mut bench = Bench::new(scheme, size, agents);
        bench.launch();
        let name = format!("{scheme:?} {size} {agents}");
        assert_eq!(bench.processes.len(), usize::from(size), "{name}");
        for process in bench.processes.values() {
            let wanted: Vec<Vec<u8>> = process.asks.iter().map(|(rank, slot)| value(*rank, *slot)).collect();
            assert_eq!(process.given, wanted, "{name}: {}", process.rank);
        }
        let Traffic { hops, local, .. } = formula(scheme, size, agents);
        assert_eq!((bench.traffic.hops, bench.traffic.local), (hops, local), "{name}");
        assert_eq!(bench.received(Kind::Report), usize::from(agents_used(size, agents)), "{name}");
        assert_eq!(bench.received(Kind::Started), 1, "{name}");

        bench.under_way.push_back((Some(0), End::Launcher, Message::new(Kind::Collect, 0, vec![0; Traffic::LEN])));
        bench.run();
        assert_eq!(bench.received(Kind::Collect), 1, "{name}");
        assert!(bench.agents.iter().all(|agent| agent.job.is_none()), "{name}");
        bench.launch();
        assert_eq!(bench.received(Kind::Started), 2, "{name}: a second job");
    }
}

#[test]
fn a_job_whose_launcher_is_gone_ends_everywhere() {
    let mut bench = Bench::new(Scheme::MpdBc, 8, 4);
    bench.launch();
    for effect in bench.agents[0].launcher_gone() {
        bench.carry_out(0, effect);
    }
    bench.run();
    assert!(bench.agents.iter().all(|agent| agent.job.is_none()));
    assert!(bench.agents[0].launcher_gone().is_empty());
}

#[test]
fn a_message_that_overtakes_its_request_waits() {
    let mut agents: Vec<Agent> = (0..4).map(|index| Agent::new(index, 4)).collect();
    let launched = agents[0].take(End::Launcher, Message::new(Kind::Launch, 0, encode_job(Scheme::Hypercube, 2)));
    let to_2 = launched.iter().find_map(|effect| match effect {
        Effect::Send(End::Cube(1), message) => Some(message.clone()),
        _ => None,
    });
    // Agent 2 has no processes, so it sends agent 3 its values at once. Agent 3 is started by agent 1.
    let effects = agents[2].take(End::Cube(1), to_2.unwrap());
    let spread = effects.iter().find_map(|effect| match effect {
        Effect::Send(End::Cube(0), message) if message.kind == Kind::Spread => Some(message.clone()),
        _ => None,
    });
    let spread = spread.unwrap();
    let request = Message { job: spread.job, ..Message::new(Kind::Launch, 0, encode_job(Scheme::Hypercube, 2)) };
    assert_eq!(agents[3].take(End::Cube(0), spread), []);
    let rounds = |effects: &[Effect]| {
        let of = |effect: &Effect| matches!(effect, Effect::Send(_, message) if message.kind == Kind::Spread);
        effects.iter().filter(|effect| of(effect)).count()
    };
    assert_eq!(rounds(&agents[3].take(End::Cube(1), request)), 2, "it sends both of its rounds");
}

#[test]
fn requests_that_make_no_sense_have_no_effect() {
    let mut agent = Agent::new(0, 4);
    for body in
        [encode_job(Scheme::Original, 4), encode_job(Scheme::MpdBc, 6), encode_job(Scheme::Hypercube, 0), vec![1]]
    {
        assert_eq!(agent.take(End::Launcher, Message::new(Kind::Launch, 0, body)), []);
    }
    assert_ne!(agent.take(End::Launcher, Message::new(Kind::Launch, 0, encode_job(Scheme::MpdBc, 8))), []);
    for (kind, body) in
        [(Kind::Get, vec![1]), (Kind::Get, encode_slot(8, 0)), (Kind::Get, encode_slot(0, 2)), (Kind::Row, vec![1; 6])]
    {
        assert_eq!(agent.take(End::Process(0), Message::new(kind, 0, body)), [], "{kind:?}");
    }
    let stale = Message { job: 77, ..Message::new(Kind::Gathered, 0, Vec::new()) };
    assert_eq!(agent.take(End::Ring, stale), []);
}
