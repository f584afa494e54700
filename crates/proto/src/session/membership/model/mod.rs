//! Explores every order of events in a small session: at any moment agents die, links break, lost agents are started
//! again, and jobs that add hosts begin and end.
//!
//! The agents run the real code of the membership part, of the links to neighbours and of the routes. The model
//! provides the links, which deliver frames in order or break and lose them; agent starts, which take any time; and
//! time, which may pass at any moment. The rules are checked after each event, and the final state is checked when no
//! event is left.

mod rules;
mod shared;
mod world;

use super::*;
use crate::io::{LinkId, Output};
use crate::link::{Neighbours, Roster};
use crate::outbox::control_frame;
use crate::policy::Policy;
use crate::testing::job_on;
use shared::Shared;
use stateright::{Checker, Model, Property};
use std::collections::VecDeque;
use wireup_coll::tree::{Hop, Tree};
use wireup_wire::frame::Frame;
use wireup_wire::job::{JobSpec, NodeSpec};
use wireup_wire::peer::{self, AgentSpec, MissingAgent, Rejoin};
use wireup_wire::session::{Entry, Log};
use wireup_wire::talk::{Control, SessionDown, SessionUp};
use world::first_free;

const RULES: &str = "no rule is broken";
const SETTLES: &str = "it settles";
const TWINS: &str = "two copies of an agent live";
const MOVES_TWICE: &str = "an agent loses its parent twice";

const ROOT: u32 = 0;
const NOBODY: u32 = u32::MAX;
const T: Instant = Instant(0);
const LATER: Instant = Instant(1);
const NEVER: Instant = Instant(2);

/// A small session and the events that may happen in it.
struct Sessions {
    session: SessionSpec,
    tree: Tree,
    budget: Budget,
}

/// Largest number of events of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Budget {
    /// Number of agents that die and links that break.
    faults: u8,
    /// Number of agents that are given up although they could still link.
    haste: u8,
    revivals: u8,
    /// Number of jobs that add a host.
    jobs: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct World {
    copies: BTreeMap<u32, Shared<Copy>>,
    links: BTreeMap<u32, Shared<Link>>,
    log: Shared<Vec<Entry>>,
    /// Jobs that have added hosts and have not ended.
    jobs: BTreeSet<JobId>,
    budget: Budget,
    wrong: Option<String>,
}

/// A process of an agent; an agent may have several.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Copy {
    agent: AgentId,
    members: Membership,
    neighbours: Neighbours,
    routes: Routes,
    /// Children that this process has started and that have not linked.
    starting: BTreeSet<AgentId>,
    /// The process that started this one; `None`: this one has already dialled it.
    starter: Option<u32>,
    has_linked: bool,
    /// Whether the link of this process to its parent was broken, which may be the reason why the process exits.
    was_cut: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Link {
    /// The first end is the one nearer to the root.
    ends: [End; 2],
    is_cut: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct End {
    copy: u32,
    is_open: bool,
    inbox: VecDeque<Said>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Said {
    Frame(Frame),
    Closed,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Event {
    Arrives {
        link: u32,
        end: usize,
    },
    /// A new agent dials the agent that started it.
    Dials(u32),
    /// A child fails to start.
    GivesUp(u32, AgentId),
    Seeks(u32),
    /// The lease of an agent that cannot reach the root ends.
    LeaseEnds(AgentId),

    // The budget limits the number of these faults and early decisions.
    Dies(u32),
    Breaks(u32),
    /// The lease of an agent that could still reach the root ends.
    LeaseEndsEarly(AgentId),
    /// A child that could still link is given up.
    GivesUpEarly(u32, AgentId),

    Revive,
    Launch,
    JobOver(JobId),
}

fn first_free_job(jobs: &BTreeSet<JobId>) -> JobId {
    (1..).map(JobId).find(|job| !jobs.contains(job)).unwrap_or_default()
}

impl Sessions {
    fn new(agents: u32, fanout: u32, budget: Budget) -> Sessions {
        let session = SessionSpec {
            fanout,
            agents: (0..agents).map(|agent| AgentSpec { host: format!("n{agent}") }).collect(),
            standing: Some(Default::default()),
            ..SessionSpec::default()
        };
        Sessions { session, tree: Tree::new(agents, fanout), budget }
    }

    fn newborn(&self, agent: AgentId, snapshot: &SessionSnapshot, starter: Option<u32>) -> Copy {
        let routes = Routes::new(agent, self.tree, Policy::Standing, snapshot);
        Copy {
            agent,
            members: Membership::new(agent, &self.session, vec!["root".into()], snapshot, &routes),
            neighbours: Neighbours::default(),
            routes,
            starting: BTreeSet::new(),
            starter,
            has_linked: false,
            was_cut: false,
        }
    }

    /// The state in which all agents are up, and nothing is in progress.
    fn settled(&self) -> World {
        let root = self.newborn(AgentId(0), &SessionSnapshot::default(), None);
        let copies = BTreeMap::from([(ROOT, Shared::new(root))]);
        let mut world = World { copies, ..World::default() };
        self.begin(&mut world, ROOT);
        while let Some(event) = world.progress().first() {
            self.happen(&mut world, *event);
        }
        World { budget: self.budget, ..world }
    }

    fn happen(&self, world: &mut World, event: Event) {
        match event {
            Event::Arrives { link, end } => self.on_arrival(world, link, end),
            Event::Dials(number) => self.on_dial(world, number),
            Event::GivesUp(number, child) | Event::GivesUpEarly(number, child) => {
                let copy = world.copy(number);
                copy.starting.remove(&child);
                copy.neighbours.forget(child);
                self.report(world, number, child);
            }
            Event::Seeks(number) => self.tick(world, number, T),
            Event::LeaseEnds(agent) | Event::LeaseEndsEarly(agent) => {
                for (of, until) in &mut world.copy(ROOT).members.writer.as_mut().expect("the writer").leases {
                    *until = if *of == agent { T } else { NEVER };
                }
                self.tick(world, ROOT, LATER);
            }
            Event::Dies(number) => world.die(number),
            Event::Breaks(link) => world.cut(link),
            Event::Revive => self.tell(world, ROOT, T, |members, cx, live| members.revive(cx, live)),
            Event::Launch => {
                let job = first_free_job(&world.jobs);
                world.jobs.insert(job);
                let added = NodeSpec { agent: AgentId::ADDED, name: String::new(), shared: false };
                let mut spec = JobSpec { nodes: vec![added], ..job_on(job.0, [], 1) };
                self.tell(world, ROOT, T, |members, cx, live| {
                    members.number(cx, &mut spec);
                    members.start_added(cx, live, job)
                });
            }
            Event::JobOver(job) => {
                world.jobs.remove(&job);
                let nodes = world.copies[&ROOT].members.nodes().expect("the root has a list of nodes");
                let over = nodes.added().filter(|(_, of)| *of == job).map(|(agent, _)| agent).collect();
                self.tell(world, ROOT, T, |members, cx, live| members.release(cx, live, over));
            }
        }
        match event {
            Event::Dies(_) | Event::Breaks(_) => world.budget.faults -= 1,
            Event::LeaseEndsEarly(_) | Event::GivesUpEarly(..) => world.budget.haste -= 1,
            Event::Revive => world.budget.revivals -= 1,
            Event::Launch => world.budget.jobs -= 1,
            _ => {}
        }
        self.check(world);
    }

    fn report(&self, world: &mut World, number: u32, agent: AgentId) {
        let missing = vec![MissingAgent { agent, problem: "gone".into() }];
        self.tell(world, number, T, |members, cx, live| members.report_lost(cx, live, missing));
    }

    fn begin(&self, world: &mut World, number: u32) {
        self.tell(world, number, T, |_, cx, _| {
            let own = cx.agent.links.routes.roster.children(cx.me);
            vec![News::Returned { agents: own.clone(), own, are_below: true }]
        });
    }

    fn tick(&self, world: &mut World, number: u32, now: Instant) {
        self.tell(world, number, now, |members, cx, live| {
            let news = members.check_leases(cx, live);
            members.seek_if_due(cx);
            news
        });
    }

    fn on_arrival(&self, world: &mut World, link: u32, end: usize) {
        let Some(at) = world.links.get_mut(&link).map(Shared::edit) else { return };
        let (number, said) = (at.ends[end].copy, at.ends[end].inbox.pop_front());
        match said {
            None => {}
            Some(Said::Frame(frame)) => self.on_frame(world, number, LinkId(link), &frame),
            Some(Said::Closed) => {
                at.ends[end].is_open = false;
                world.forget_closed(link);
                self.on_down(world, number, LinkId(link));
            }
        }
    }

    fn on_frame(&self, world: &mut World, number: u32, link: LinkId, frame: &Frame) {
        let copy = world.copy(number);
        let branch = copy.neighbours.linked().find(|child| copy.neighbours.child(*child) == Some(link));
        let from_above = copy.neighbours.up() == Some(link) || copy.root_link() == Some(link);
        match (peer::decode(&frame.payload).expect("the message was encoded here"), branch) {
            (Control::SessionDown(SessionDown::Log(log)), None) if from_above => self.on_log(world, number, log),
            (Control::SessionUp(SessionUp::Here(agents)), Some(branch)) => {
                self.tell(world, number, T, |members, cx, _| {
                    members.on_here(cx, branch, agents);
                    Vec::new()
                })
            }
            (Control::SessionUp(SessionUp::Gone(gone)), Some(branch)) => {
                self.tell(world, number, T, |members, cx, live| members.on_gone(cx, live, branch, gone));
            }
            // The message comes from an agent that is no longer a neighbour.
            _ => {}
        }
    }

    /// Does what `Session::on_log` does.
    fn on_log(&self, world: &mut World, number: u32, mut log: Log) {
        self.tell(world, number, T, |members, cx, _| {
            match members.on_log(cx, &log) {
                Ok(None) => {}
                Ok(Some(link)) => {
                    cx.agent.links.on_taken_in(link);
                    members.on_parent_up(cx);
                }
                Err(Unfit) => return vec![News::Dismissed],
            }
            Vec::new()
        });
        loop {
            let mut is_over = false;
            self.tell(world, number, T, |members, cx, _| {
                let news = members.next_decision(cx, &mut log);
                is_over = news.is_none();
                news.into_iter().collect()
            });
            if is_over || !world.copies.contains_key(&number) {
                return;
            }
        }
    }

    fn on_down(&self, world: &mut World, number: u32, link: LinkId) {
        let copy = world.copy(number);
        let child = copy.neighbours.linked().find(|child| copy.neighbours.child(*child) == Some(link));
        if let Some(child) = child {
            copy.neighbours.on_child_down(child);
            self.report(world, number, child);
        } else if copy.neighbours.up() == Some(link) || copy.root_link() == Some(link) {
            copy.neighbours.on_up_lost();
            self.tell(world, number, T, |members, cx, _| match members.on_parent_lost(cx) {
                true => vec![News::Dismissed],
                false => Vec::new(),
            });
        }
    }

    /// Links the two ends of a dialled connection, as `Session::on_link_up` does at each of them.
    fn on_dial(&self, world: &mut World, number: u32) {
        let copy = world.copy(number);
        let (agent, incarnation) = (copy.agent, copy.incarnation());
        let parent = copy.starter.take().filter(|parent| *parent != NOBODY);
        let Some(parent) = parent else { return world.die(number) };
        let link = world.connect(parent, number);
        let above = world.copy(parent);
        let is_wanted = above.starting.contains(&agent)
            && above.neighbours.expects(agent)
            && above.routes.roster.incarnation(agent) == incarnation;
        if is_wanted {
            above.starting.remove(&agent);
            let waiting = above.neighbours.on_child_up(agent, link);
            waiting.into_iter().for_each(|frame| world.send(parent, link, frame));
            self.on_linked(world, parent, agent);
        } else {
            world.send(parent, link, control_frame(JobId(0), &Control::SessionDown(SessionDown::Log(Log::unfit()))));
            world.close(parent, link);
        }
        let copy = world.copy(number);
        copy.has_linked = is_wanted;
        let waiting = copy.neighbours.on_link_up(link);
        waiting.into_iter().for_each(|frame| world.send(number, link, frame));
        self.tell(world, number, T, |members, cx, _| {
            members.on_parent_up(cx);
            Vec::new()
        });
    }

    /// Does what `Session::on_child_linked` does.
    fn on_linked(&self, world: &mut World, number: u32, child: AgentId) {
        self.tell(world, number, T, |members, cx, _| {
            let incarnation = cx.agent.links.routes.roster.incarnation(child);
            members.on_here(cx, child, vec![(child, incarnation)]);
            Vec::new()
        });
    }

    /// Does what `Session::on_rejoin` does at the root.
    fn on_rejoin(&self, world: &mut World, number: u32, rejoin: Rejoin) {
        let agent = world.copy(number).agent;
        let link = world.connect(ROOT, number);
        self.tell(world, number, T, |members, cx, _| {
            members.on_root_reached(cx, link);
            Vec::new()
        });
        let mut is_adopted = false;
        self.tell(world, ROOT, T, |members, cx, live| match members.on_rejoin(cx, live, link, agent, rejoin) {
            Ok(missed) => {
                is_adopted = true;
                let waiting = cx.agent.links.neighbours.forget(agent);
                cx.agent.links.neighbours.on_child_up(agent, link);
                cx.child(agent, Control::SessionDown(SessionDown::Log(missed)));
                waiting.into_iter().for_each(|frame| cx.agent.links.send_child(agent, frame));
                Vec::new()
            }
            Err(news) => news,
        });
        if is_adopted {
            self.on_linked(world, ROOT, agent);
        }
    }

    /// Lets the membership part of a process act; follows its news, and carries out what it has requested.
    fn tell(
        &self,
        world: &mut World,
        number: u32,
        now: Instant,
        act: impl FnOnce(&mut Membership, &mut Cx, LiveOf<'_>) -> Vec<News>,
    ) {
        let jobs: Vec<JobId> = world.jobs.iter().copied().collect();
        let live = || (JobId(0), jobs.clone());
        let Some(copy) = world.copies.get_mut(&number).map(Shared::edit) else { return };
        let mut cx = self.cx(copy, now);
        let known = cx.agent.links.routes.roster.at();
        let news = act(&mut copy.members, &mut cx, &live);
        let (mut begun, mut leaves) = (Vec::new(), false);
        for one in news {
            match one {
                News::Lost(agents) => {
                    for agent in agents {
                        copy.starting.remove(&agent);
                        cx.agent.links.cut_child(agent);
                    }
                }
                News::Returned { own, .. } => {
                    for child in own {
                        cx.agent.links.neighbours.expect(child);
                        copy.starting.insert(child);
                        begun.push((child, copy.members.snapshot(&cx, &live)));
                    }
                }
                News::Dismissed => leaves = true,
            }
        }
        if let Some(writer) = &copy.members.writer {
            let new = (cx.agent.links.routes.roster.at() - known) as usize;
            let first = writer.kept.len() - new;
            world.log.edit().extend(writer.kept.range(first..).cloned());
        }
        (copy.neighbours, copy.routes) = (cx.agent.links.neighbours, cx.agent.links.routes);
        copy.forget_details();
        let mut seeks = None;
        while let Some(output) = cx.agent.links.out.pop() {
            match output {
                Output::Send { link, frame } => world.send(number, link, frame),
                Output::CloseLink { link } => world.close(number, link),
                Output::Rejoin { rejoin, .. } => seeks = Some(rejoin),
                _ => {}
            }
        }
        let mut born = Vec::new();
        for (child, snapshot) in begun {
            let place = first_free(&world.copies, child.0);
            world.copies.insert(place, Shared::new(self.newborn(child, &snapshot, Some(number))));
            born.push(place);
        }
        if leaves {
            self.check_leave(world, number);
            world.die(number);
        }
        born.into_iter().for_each(|number| self.begin(world, number));
        if let Some(rejoin) = seeks.filter(|_| world.copies.contains_key(&number)) {
            self.on_rejoin(world, number, rejoin);
        }
    }

    fn cx(&self, copy: &mut Copy, now: Instant) -> Cx {
        let mut cx = Cx::new(copy.agent, now, self.session.clone(), copy.routes.clone());
        cx.agent.links.neighbours = std::mem::take(&mut copy.neighbours);
        cx
    }
}

impl Model for Sessions {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        vec![self.settled()]
    }

    fn actions(&self, world: &World, events: &mut Vec<Event>) {
        if world.wrong.is_none() {
            events.extend(world.progress());
            events.extend(world.mishaps());
        }
    }

    fn next_state(&self, world: &World, event: Event) -> Option<World> {
        let mut next = world.clone();
        self.happen(&mut next, event);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(RULES, |_, world: &World| world.wrong.is_none()),
            Property::always(SETTLES, |sessions: &Sessions, world: &World| {
                !world.progress().is_empty() || world.wrong.is_some() || sessions.is_settled(world)
            }),
            Property::sometimes(TWINS, |_, world: &World| {
                let mut seen = BTreeSet::new();
                !world.copies.values().all(|copy| seen.insert(copy.agent))
            }),
            Property::sometimes(MOVES_TWICE, |sessions: &Sessions, world: &World| {
                let mut roster = Roster::new(sessions.tree, &SessionSnapshot::default());
                let mut moved = BTreeSet::new();
                !world.log.iter().flat_map(|entry| roster.apply(entry)).all(|agent| moved.insert(agent))
            }),
        ]
    }
}

/// Explores all states of a session; returns their number.
fn explore(sessions: Sessions) -> usize {
    let can_move_twice = sessions.budget.faults > 2 && sessions.session.fanout == 1;
    // Breadth first, to find the shortest path to a broken rule.
    let checker = sessions.checker().threads(2).spawn_bfs().join();
    for name in [RULES, SETTLES] {
        if let Some(path) = checker.discovery(name) {
            let world = path.last_state().clone();
            let events: String = path.into_actions().iter().map(|event| format!("{event:?}\n")).collect();
            panic!("{name}: {:?}\n{events}\nlog {:?}\n{}", world.wrong, world.log, world.picture());
        }
    }
    assert!(checker.discovery(TWINS).is_some(), "no state has two copies of an agent");
    assert!(!can_move_twice || checker.discovery(MOVES_TWICE).is_some(), "no agent was adopted twice");
    checker.unique_state_count()
}

fn explore_all(all: &[(u32, u32, Budget)]) {
    // Starts a new line: the test harness may have printed this test's name without ending the line.
    println!();
    for &(agents, fanout, budget) in all {
        let states = explore(Sessions::new(agents, fanout, budget));
        let Budget { faults, haste, revivals, jobs } = budget;
        println!(
            "explored {agents} agents, fan-out {fanout}, {faults} faults, {haste} given up early, {revivals} revivals, \
             {jobs} jobs with an added host: {states} states"
        );
    }
}

#[test]
fn small_sessions_keep_the_rules_whatever_happens() {
    let two = Budget { faults: 2, haste: 0, revivals: 1, jobs: 0 };
    let hasty = Budget { haste: 1, ..two };
    explore_all(&[(3, 1, hasty), (4, 2, two), (4, 1, two)]);
    let growing = Budget { faults: 1, haste: 0, revivals: 1, jobs: 1 };
    let twice = Budget { faults: 0, jobs: 2, ..growing };
    explore_all(&[(2, 1, Budget { haste: 1, ..growing }), (3, 1, growing), (3, 1, twice)]);
}

#[test]
#[ignore = "takes half an hour: cargo xtask night model"]
fn larger_sessions_keep_the_rules_whatever_happens() {
    let three = Budget { faults: 3, haste: 0, revivals: 1, jobs: 0 };
    let hasty = Budget { faults: 2, haste: 1, ..three };
    explore_all(&[(4, 1, three), (5, 2, hasty), (5, 2, three), (5, 1, three)]);
    let growing = Budget { faults: 1, haste: 1, revivals: 1, jobs: 2 };
    explore_all(&[(2, 1, growing), (3, 1, Budget { haste: 0, ..growing }), (4, 2, Budget { jobs: 1, ..growing })]);
}
