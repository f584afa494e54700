//! Explores every order of events in a small session: at any moment agents die, links break, lost agents are started
//! again, and jobs that add hosts begin and end.
//!
//! The agents run the real code of the membership part and of its neighbours. The model provides the links, which
//! deliver frames in order or break and lose them; agent starts, which take any time; and time, which may pass at any
//! moment. The rules are checked after each event, and the final state is checked when no event is left.

mod rules;
mod shared;
mod world;

use super::*;
use crate::io::{LinkId, Output};
use crate::link::Neighbours;
use crate::outbox::control_frame;
use crate::session::inputs::starter;
use crate::session::{Effect, Jobs, Roster};
use crate::testing::job_on;
use shared::Shared;
use stateright::{Checker, Model, Property};
use std::collections::VecDeque;
use wireup_coll::tree::Hop;
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
    /// Agents that die and links that break.
    faults: u8,
    /// Agents that others give up too early.
    haste: u8,
    revivals: u8,
    /// Jobs that add a host.
    jobs: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct World {
    copies: BTreeMap<u32, Shared<Copy>>,
    links: BTreeMap<u32, Shared<Link>>,
    /// The log that the root has written.
    log: Shared<Vec<Entry>>,
    /// Jobs that have added hosts and are not over.
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
    /// Children that this process has started and that have not linked.
    starting: BTreeSet<AgentId>,
    /// The process that started this one; `None` once it was dialled.
    starter: Option<u32>,
    has_linked: bool,
    /// Whether the link to its parent was broken, so that the process may have to exit.
    was_cut: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Link {
    /// The end nearer to the root comes first.
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

    // The budget limits these.
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
        Copy {
            agent,
            members: Membership::new(agent, self.tree, &self.session, vec!["root".into()], snapshot),
            neighbours: Neighbours::default(),
            starting: BTreeSet::new(),
            starter,
            has_linked: false,
            was_cut: false,
        }
    }

    /// All agents are up, and nothing is in progress.
    fn settled(&self) -> World {
        let root = self.newborn(AgentId(0), &SessionSnapshot::default(), None);
        let copies = BTreeMap::from([(ROOT, Shared::new(root))]);
        let mut world = World { copies, ..World::default() };
        self.tell(&mut world, ROOT, Input::Begin, T);
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
            Event::Seeks(number) => self.tell(world, number, Input::Tick, T),
            Event::LeaseEnds(agent) | Event::LeaseEndsEarly(agent) => {
                for (of, until) in &mut world.copy(ROOT).members.writer.as_mut().expect("the writer").leases {
                    *until = if *of == agent { T } else { NEVER };
                }
                self.tell(world, ROOT, Input::Tick, LATER);
            }
            Event::Dies(number) => world.die(number),
            Event::Breaks(link) => world.cut(link),
            Event::Revive => self.tell(world, ROOT, Input::Revive, T),
            Event::Launch => {
                let job = first_free_job(&world.jobs);
                world.jobs.insert(job);
                let added = NodeSpec { agent: AgentId::ADDED, name: String::new(), shared: false };
                let spec = JobSpec { nodes: vec![added], ..job_on(job.0, [], 1) };
                self.tell(world, ROOT, Input::Number { spec: spec.into(), link: Some(LinkId(NOBODY)) }, T);
                self.tell(world, ROOT, Input::StartAdded(job), T);
            }
            Event::JobOver(job) => {
                world.jobs.remove(&job);
                let nodes = world.copies[&ROOT].members.nodes().expect("the root has a list of nodes");
                let over = nodes.added().filter(|(_, of)| *of == job).map(|(agent, _)| agent).collect();
                self.tell(world, ROOT, Input::Release(over), T);
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
        let missing = MissingAgent { agent, problem: "gone".into() };
        self.tell(world, number, Input::ReportLost(missing), T);
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
        let input = match (peer::decode(&frame.payload).expect("the message was encoded here"), branch) {
            (Control::SessionDown(SessionDown::Log(log)), None) if from_above => Input::Log(log),
            (Control::SessionUp(SessionUp::Here(agents)), Some(branch)) => Input::Here { branch, agents },
            (Control::SessionUp(SessionUp::Gone(gone)), Some(branch)) => Input::Gone { branch, gone },
            // The message comes from an agent that is no longer a neighbour.
            _ => return,
        };
        self.tell(world, number, input, T);
    }

    fn on_down(&self, world: &mut World, number: u32, link: LinkId) {
        let copy = world.copy(number);
        let child = copy.neighbours.linked().find(|child| copy.neighbours.child(*child) == Some(link));
        if let Some(child) = child {
            copy.neighbours.on_child_down(child);
            self.report(world, number, child);
        } else if copy.neighbours.up() == Some(link) || copy.root_link() == Some(link) {
            copy.neighbours.on_up_lost();
            self.tell(world, number, Input::ParentLost, T);
        }
    }

    /// Links the two ends of a dialled connection, as `Agent::on_link_up` does at each of them.
    fn on_dial(&self, world: &mut World, number: u32) {
        let copy = world.copy(number);
        let (agent, incarnation) = (copy.agent, copy.incarnation());
        let parent = copy.starter.take().filter(|parent| *parent != NOBODY);
        let Some(parent) = parent else { return world.die(number) };
        let link = world.connect(parent, number);
        let above = world.copy(parent);
        let is_wanted = above.starting.contains(&agent)
            && above.neighbours.expects(agent)
            && above.members.routes.roster.incarnation(agent) == incarnation;
        if is_wanted {
            above.starting.remove(&agent);
            let waiting = above.neighbours.on_child_up(agent, link);
            waiting.into_iter().for_each(|frame| world.send(parent, link, frame));
            self.tell(world, parent, Input::Linked(agent), T);
        } else {
            world.send(parent, link, control_frame(JobId(0), &Control::SessionDown(SessionDown::Log(Log::unfit()))));
            world.close(parent, link);
        }
        let copy = world.copy(number);
        copy.has_linked = is_wanted;
        let waiting = copy.neighbours.on_link_up(link);
        waiting.into_iter().for_each(|frame| world.send(number, link, frame));
        self.tell(world, number, Input::ParentUp, T);
    }

    fn on_rejoin(&self, world: &mut World, number: u32, rejoin: Rejoin) {
        let agent = world.copy(number).agent;
        let link = world.connect(ROOT, number);
        self.tell(world, number, Input::RootReached(link), T);
        self.tell(world, ROOT, Input::Rejoin { link, agent, rejoin }, T);
    }

    /// Handles an input and all its effects, as `Agent` does.
    fn tell(&self, world: &mut World, number: u32, input: Input, now: Instant) {
        let mut stack = vec![Effect::Membership(input)];
        let (mut born, mut seeks) = (Vec::new(), None);
        let jobs: Vec<JobId> = world.jobs.iter().copied().collect();
        let live = || (JobId(0), jobs.clone());
        while let Some(effect) = stack.pop() {
            let Some(copy) = world.copies.get_mut(&number).map(Shared::edit) else { break };
            match effect {
                Effect::Membership(input) => {
                    let fx = &mut Effects::default();
                    let view = View {
                        now,
                        me: copy.agent,
                        tree: self.tree,
                        session: &self.session,
                        policy: Policy::of(&self.session),
                        neighbours: &copy.neighbours,
                        addresses: &[],
                        jobs: &Jobs::default(),
                        is_leaving: false,
                    };
                    copy.members.handle(&view, &live, input, fx);
                    copy.forget_details();
                    stack.extend(fx.reversed());
                }
                Effect::Up(job, message) if number != ROOT => {
                    if let Some((link, frame)) = copy.neighbours.for_parent(control_frame(job, &message)) {
                        world.send(number, link, frame);
                    }
                }
                Effect::Children(message) => {
                    if let (ROOT, Control::SessionDown(SessionDown::Log(log))) = (number, &message) {
                        world.log.edit().extend(log.entries.iter().cloned());
                    }
                    let children: Vec<AgentId> = copy.neighbours.all().collect();
                    stack.extend(children.into_iter().rev().map(|child| Effect::Child(child, message.clone())));
                }
                Effect::Child(child, message) => {
                    stack.push(Effect::ChildFrame(child, control_frame(JobId(0), &message)))
                }
                Effect::ChildFrame(child, frame) => {
                    if let Some((link, frame)) = copy.neighbours.for_child(child, frame) {
                        world.send(number, link, frame);
                    }
                }
                Effect::Send(link, frame) => world.send(number, link, frame),
                Effect::Output(Output::CloseLink { link }) => world.close(number, link),
                Effect::Output(Output::Rejoin { rejoin, .. }) => seeks = Some(rejoin),
                Effect::Expect(child) => copy.neighbours.expect(child),
                Effect::Cut(child) => {
                    copy.neighbours.forget(child);
                    if let Some(link) = copy.neighbours.on_child_down(child) {
                        world.close(number, link);
                    }
                }
                Effect::TakeIn { link, agent, missed } => {
                    let waiting = copy.neighbours.forget(agent);
                    copy.neighbours.on_child_up(agent, link);
                    stack.extend(waiting.into_iter().rev().map(|frame| Effect::ChildFrame(agent, frame)));
                    stack.push(Effect::Membership(Input::Linked(agent)));
                    stack.push(Effect::Child(agent, Control::SessionDown(SessionDown::Log(missed))));
                }
                Effect::TakenIn(link) => {
                    let waiting = copy.neighbours.on_link_up(link);
                    waiting.into_iter().for_each(|frame| world.send(number, link, frame));
                    stack.push(Effect::Membership(Input::ParentUp));
                }
                Effect::Starter(starter::Input::Start(child)) => {
                    copy.neighbours.expect(child);
                    copy.starting.insert(child);
                    let snapshot = copy.members.snapshot(Policy::of(&self.session), &live);
                    let newborn = self.newborn(child, &snapshot, Some(number));
                    let place = first_free(&world.copies, child.0);
                    world.copies.insert(place, Shared::new(newborn));
                    born.push(place);
                }
                Effect::Starter(starter::Input::Lost(child)) => {
                    copy.starting.remove(&child);
                }
                Effect::Leave => {
                    self.check_leave(world, number);
                    world.die(number);
                }
                _ => {}
            }
        }
        born.into_iter().for_each(|number| self.tell(world, number, Input::Begin, T));
        if let Some(rejoin) = seeks.filter(|_| world.copies.contains_key(&number)) {
            self.on_rejoin(world, number, rejoin);
        }
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
