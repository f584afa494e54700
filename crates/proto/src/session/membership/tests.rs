use super::*;
use crate::io::{LinkId, Output};
use crate::session::inputs::{launchers, starter};
use crate::session::view::tests::said_up;
use crate::session::{Effect, Scene};
use wireup_wire::peer::{Control, MissingAgent, Rejoin};
use wireup_wire::session::{Entry, Log};

struct Bench {
    scene: Scene,
    members: Membership,
}

/// Agent `me` of fifteen in a standing session, fan-out 2; all agents are linked.
fn bench(me: u32) -> Bench {
    let mut bench = of(Scene::standing(me), &SessionSnapshot::default());
    let children: Vec<AgentId> = bench.members.routes.roster.children(AgentId(me));
    for child in children {
        let here = bench.members.routes.roster.subtree(child).into_iter().map(|agent| (agent, 0)).collect();
        bench.tell(Input::Here { branch: child, agents: here });
    }
    bench
}

fn of(mut scene: Scene, snapshot: &SessionSnapshot) -> Bench {
    let children: Vec<AgentId> = scene.tree().children(scene.me).map(AgentId).collect();
    for child in children {
        scene.neighbours.on_child_up(child, LinkId(child.0));
    }
    scene.neighbours.on_link_up(LinkId(0));
    let members = Membership::new(scene.me, scene.tree(), &scene.session, vec!["10.0.0.1:1".into()], snapshot);
    Bench { scene, members }
}

fn nothing_live() -> (JobId, Vec<JobId>) {
    (JobId(4), vec![JobId(2)])
}

impl Bench {
    /// Handles an input and the further inputs that the part gives itself; returns all effects, and applies those on links in order.
    fn tell(&mut self, input: Input) -> Effects {
        let (mut all, mut stack) = (Effects::default(), vec![Effect::Membership(input)]);
        while let Some(effect) = stack.pop() {
            let neighbours = &mut self.scene.neighbours;
            match effect {
                Effect::Membership(input) => {
                    let mut fx = Effects::default();
                    self.members.handle(&self.scene.view(), &nothing_live, input, &mut fx);
                    stack.extend(fx.reversed());
                    continue;
                }
                Effect::Cut(child) => {
                    neighbours.forget(child);
                    neighbours.on_child_down(child);
                }
                Effect::Expect(child) | Effect::Starter(starter::Input::Start(child)) => neighbours.expect(child),
                Effect::TakeIn { link, agent, .. } => drop(neighbours.on_child_up(agent, link)),
                _ => {}
            }
            all.push(effect);
        }
        all
    }

    fn log(&mut self, at: u32, entry: Entry) -> Effects {
        self.tell(Input::Log(Log {
            at,
            entries: vec![entry],
            has_moved: false,
            newest: JobId(4),
            live: vec![JobId(2)],
        }))
    }

    fn gone(&mut self, by: u32, agent: u32, incarnation: u32) -> Effects {
        let gone = Gone { by: AgentId(by), agent: AgentId(agent), incarnation, problem: "its link broke".into() };
        // Each agent is below one of the root's two children.
        let branch = [1, 2].map(AgentId).into_iter().find(|top| self.scene.tree().subtree_contains(*top, gone.by));
        self.tell(Input::Gone { branch: branch.unwrap_or(AgentId(0)), gone: vec![gone] })
    }

    fn rejoin(&mut self, agent: u32, incarnation: u32, at: u32) -> Effects {
        self.tell(Input::Rejoin { link: LinkId(90 + agent), agent: AgentId(agent), rejoin: Rejoin { incarnation, at } })
    }

    fn wait_until_due(&mut self) -> Effects {
        self.scene.now = self.members.deadline().expect("a deadline is set");
        self.tell(Input::Tick)
    }
}

fn ids<const N: usize>(agents: [u32; N]) -> Vec<AgentId> {
    agents.map(AgentId).to_vec()
}

/// The decisions sent to all children.
fn decided(fx: &Effects) -> Vec<Entry> {
    let entries = |effect: &Effect| match effect {
        Effect::Children(Control::Log(log)) => log.entries.clone(),
        _ => Vec::new(),
    };
    fx.iter().flat_map(entries).collect()
}

fn started(fx: &Effects) -> Vec<AgentId> {
    let child = |effect: &Effect| match effect {
        Effect::Starter(starter::Input::Start(child)) => Some(*child),
        _ => None,
    };
    fx.iter().filter_map(child).collect()
}

fn leaves(fx: &Effects) -> bool {
    fx.iter().any(|effect| matches!(effect, Effect::Leave))
}

/// The result for an agent that has lost its parent: it is adopted, told to leave, or may try again later.
fn fate(fx: &Effects) -> &'static str {
    let taken = fx.iter().any(|effect| matches!(effect, Effect::TakeIn { .. }));
    let told = fx.iter().any(|effect| matches!(effect, Effect::Send(..)));
    let closed = fx.iter().any(|effect| matches!(effect, Effect::Output(Output::CloseLink { .. })));
    match (taken, told, closed) {
        (true, false, false) => "taken in",
        (false, true, true) => "told to leave",
        (false, false, true) => "later",
        _ => "unclear",
    }
}

#[test]
fn the_root_decides_a_loss_once_and_tells_all() {
    let mut root = bench(0);
    let fx = root.gone(1, 3, 0);
    assert_eq!(decided(&fx), [Entry::Lost(ids([3]))]);
    assert!(fx.iter().any(|effect| matches!(effect, Effect::Launchers(launchers::Input::StartAgain(AgentId(3))))));
    assert!(root.gone(1, 3, 0).is_empty());
}

#[test]
fn a_report_of_an_earlier_incarnation_says_nothing_of_the_next() {
    let mut root = bench(0);
    root.gone(1, 3, 0);
    let fx = root.tell(Input::Revive);
    assert_eq!((decided(&fx), started(&fx)), (vec![Entry::Return(ids([3]))], ids([3])));
    assert!(decided(&root.gone(1, 3, 0)).is_empty(), "the report is about the previous incarnation");
    assert!(decided(&root.gone(1, 3, 2)).is_empty(), "agent 1 is not its parent any more");
    let missing = MissingAgent { agent: AgentId(3), problem: "its link broke".into() };
    assert_eq!(decided(&root.tell(Input::ReportLost(missing))), [Entry::Lost(ids([3]))]);
}

#[test]
fn children_of_a_lost_agent_come_to_the_root_in_time_or_are_lost() {
    let mut root = bench(0);
    assert_eq!(fate(&root.rejoin(7, 0, 0)), "later", "its parent may be up");
    root.gone(1, 3, 0);
    let fx = root.rejoin(7, 0, 0);
    let missed = fx.iter().find_map(|effect| match effect {
        Effect::TakeIn { missed, .. } => Some((missed.at, missed.entries.clone())),
        _ => None,
    });
    assert_eq!(missed, Some((0, vec![Entry::Lost(ids([3]))])));
    assert_eq!(decided(&root.wait_until_due()), [Entry::Lost(ids([8]))]);
    assert_eq!(root.members.deadline(), None);
}

#[test]
fn three_that_are_lost_together_do_not_take_healthy_ones_along() {
    // Agents 1, 3 and 7 have lost power. There are no agents below 7; 8 and 4 are healthy.
    let mut root = bench(0);
    root.tell(Input::ReportLost(MissingAgent { agent: AgentId(1), problem: "silent".into() }));
    assert_eq!(fate(&root.rejoin(4, 0, 0)), "taken in");
    let lease = root.members.deadline().expect("agent 3 is awaited");
    assert_eq!(fate(&root.rejoin(8, 0, 0)), "later", "agent 3 may still dial");
    assert!(root.members.deadline().is_some_and(|until| until < lease), "a shorter lease: its child has lost it");
    assert!(!root.members.nodes().unwrap().is_settled());
    assert_eq!(decided(&root.wait_until_due()), [Entry::Lost(ids([3]))]);
    assert_eq!(fate(&root.rejoin(8, 0, 0)), "taken in");
    assert_eq!(decided(&root.wait_until_due()), [Entry::Lost(ids([7]))]);
    assert_eq!((root.members.deadline(), root.members.nodes().unwrap().lost()), (None, ids([1, 3, 7])));
}

#[test]
fn who_dials_though_its_parent_is_there_is_lost_when_the_lease_ends() {
    let mut root = bench(0);
    assert_eq!(fate(&root.rejoin(7, 0, 0)), "later");
    assert_eq!(decided(&root.wait_until_due()), [Entry::Lost(ids([7]))]);
    assert_eq!(fate(&root.rejoin(7, 0, 0)), "told to leave");
    // An agent that is linked here dials: its end of that link has broken.
    let fx = root.rejoin(2, 0, 0);
    assert_eq!((fate(&fx), decided(&fx)), ("told to leave", vec![Entry::Lost(ids([2]))]));
}

#[test]
fn strangers_and_copies_of_another_incarnation_are_told_to_leave() {
    let mut root = bench(0);
    root.gone(1, 3, 0);
    root.tell(Input::Revive);
    for (agent, incarnation, at) in [(3, 0, 0), (3, 1, 1), (7, 1, 0), (7, 0, 3)] {
        assert_eq!(fate(&root.rejoin(agent, incarnation, at)), "told to leave", "{agent} {incarnation} {at}");
    }
    assert!(decided(&root.rejoin(99, 0, 0)).is_empty());
    assert_eq!(fate(&bench(1).rejoin(7, 0, 0)), "later", "only the root adopts");
}

#[test]
fn who_was_not_heard_of_when_its_starter_went_is_started_anew() {
    let mut root = of(Scene::standing(0), &SessionSnapshot::default());
    root.tell(Input::Here { branch: AgentId(1), agents: vec![(AgentId(1), 0), (AgentId(3), 0)] });
    let fx = root.tell(Input::ReportLost(MissingAgent { agent: AgentId(1), problem: "silent".into() }));
    // Agent 3 is up and awaited; nothing was heard of 7 and 8 below it, but 3 starts them.
    let unheard = ids([4, 7, 8, 9, 10]);
    let mut lost = unheard.clone();
    lost.insert(0, AgentId(1));
    assert_eq!(decided(&fx), [Entry::Lost(lost), Entry::Return(unheard)]);
    assert_eq!(started(&fx), ids([4, 7, 8]));
    assert_eq!(root.members.routes.roster.children(AgentId(4)), ids([9, 10]));
}

#[test]
fn each_agent_follows_the_log_once_and_passes_it_on_first() {
    let mut agent = bench(1);
    let fx = agent.log(0, Entry::Lost(ids([3])));
    assert!(matches!(
        fx.iter().find(|effect| !matches!(effect, Effect::Early(_))),
        Some(Effect::Children(Control::Log(_)))
    ));
    assert!(fx.iter().any(|effect| matches!(effect, Effect::Cut(AgentId(3)))));
    assert!(decided(&agent.log(0, Entry::Lost(ids([3])))).is_empty(), "the entry is known");
    assert!(leaves(&agent.log(2, Entry::Lost(ids([5])))), "an entry is missing");
    assert!(leaves(&agent.log(1, Entry::Lost(ids([1])))), "the agent itself is lost");
}

#[test]
fn parents_start_those_that_return_together_below_them() {
    let mut root = bench(0);
    root.tell(Input::ReportLost(MissingAgent { agent: AgentId(1), problem: "silent".into() }));
    root.wait_until_due();
    let fx = root.tell(Input::Revive);
    assert_eq!((decided(&fx), started(&fx)), (vec![Entry::Return(ids([1, 3, 4]))], ids([1])));
    let snapshot = root.members.snapshot(Policy::Standing, &nothing_live);
    assert_eq!(
        (snapshot.newest, snapshot.live.clone(), snapshot.place(AgentId(3)).map(|place| place.parent)),
        (JobId(4), vec![JobId(2)], Some(AgentId(1)))
    );
    let mut child = of(Scene::standing(1), &snapshot);
    assert_eq!(started(&child.tell(Input::Begin)), ids([3, 4]));
}

#[test]
fn what_was_said_is_said_again_to_a_new_parent_until_it_is_decided() {
    let mut agent = bench(1);
    agent.scene.neighbours.on_up_lost();
    let missing = MissingAgent { agent: AgentId(3), problem: "its link broke".into() };
    assert!(said_up(&agent.tell(Input::ReportLost(missing))).is_empty());
    agent.scene.neighbours.on_link_up(LinkId(1));
    let gone = Gone { by: AgentId(1), agent: AgentId(3), incarnation: 0, problem: "its link broke".into() };
    let here = [1, 4, 7, 8, 9, 10].map(|agent| (AgentId(agent), 0)).to_vec();
    let fx = agent.tell(Input::ParentUp);
    assert_eq!(said_up(&fx), [&Control::Here(here), &Control::Gone(vec![gone])]);
    agent.log(0, Entry::Lost(ids([3])));
    let here = [1, 4, 9, 10].map(|agent| (AgentId(agent), 0)).to_vec();
    assert_eq!(said_up(&agent.tell(Input::ParentUp)), [&Control::Here(here)]);
}

#[test]
fn an_agent_without_parent_dials_the_root_until_it_is_taken_in() {
    let mut agent =
        of(Scene::standing(7), &SessionSnapshot { root: vec!["10.0.0.9:1".into()], ..SessionSnapshot::default() });
    let dialled = |fx: &Effects| {
        fx.iter().any(|effect| matches!(effect, Effect::Output(Output::Rejoin { root, rejoin: Rejoin { incarnation: 0, at: 0 } }) if root[0] == "10.0.0.9:1"))
    };
    assert!(dialled(&agent.tell(Input::ParentLost)));
    agent.tell(Input::RootReached(LinkId(5)));
    assert!(!dialled(&agent.tell(Input::ParentLost)), "the root tells it to try again");
    assert!(dialled(&agent.wait_until_due()));
    agent.tell(Input::RootReached(LinkId(6)));
    let fx = agent.wait_until_due();
    assert!(fx.iter().any(|effect| matches!(effect, Effect::LinkDown(LinkId(6), _))), "the root sends nothing");
    agent.tell(Input::ParentLost);
    assert!(dialled(&agent.wait_until_due()));
    agent.tell(Input::RootReached(LinkId(7)));
    let fx = agent.log(0, Entry::Lost(ids([3])));
    assert!(fx.iter().any(|effect| matches!(effect, Effect::TakenIn(LinkId(7)))));
    assert!(fx.iter().any(|effect| matches!(effect, Effect::RouteAgain(AgentId(3)))));
    assert!(!agent.members.is_seeking() && leaves(&agent.tell(Input::ParentLost)), "it is now a child of the root");
}

/// It has learned of the loss from the lost parent, which was still linked: frames sent again then went nowhere.
#[test]
fn who_is_taken_in_sends_again_and_so_do_those_below() {
    let mut agent = bench(3);
    agent.log(0, Entry::Lost(ids([1])));
    agent.tell(Input::ParentLost);
    agent.tell(Input::RootReached(LinkId(6)));
    let fx = agent.tell(Input::Log(Log { at: 1, has_moved: true, ..Log::default() }));
    assert!(fx.iter().any(|effect| matches!(effect, Effect::Children(Control::Log(log)) if log.has_moved)));
    assert!(fx.iter().any(|effect| matches!(effect, Effect::RouteAgain(AgentId(3)))));
}

#[test]
fn an_agent_that_does_not_reach_the_root_leaves() {
    let mut agent = bench(7);
    let begun = agent.scene.now;
    agent.tell(Input::ParentLost);
    while !leaves(&agent.tell(Input::RejoinFailed)) {
        agent.wait_until_due();
    }
    let took_ns = agent.scene.now - begun;
    assert!((5_000_000_000..=7_000_000_000).contains(&took_ns), "{took_ns}");
    assert!(leaves(&bench(1).tell(Input::ParentLost)), "a child of the root is lost with its link");
    assert!(leaves(&of(Scene::one_run(3), &SessionSnapshot::default()).tell(Input::ParentLost)));
    // It has learned that its parent is lost before the link broke.
    let mut agent = bench(7);
    agent.log(0, Entry::Lost(ids([3])));
    assert!(!leaves(&agent.tell(Input::ParentLost)) && agent.members.is_seeking());
}

#[test]
fn the_end_of_a_session_does_not_wait_for_a_rejoining_agent() {
    let mut root = bench(0);
    root.tell(Input::ReportLost(MissingAgent { agent: AgentId(1), problem: "silent".into() }));
    root.scene.is_leaving = true;
    let fx = root.rejoin(3, 0, 0);
    assert!(fate(&fx) == "told to leave" && fx.iter().any(|effect| matches!(effect, Effect::Forget(AgentId(3)))));
    let again = root.rejoin(3, 0, 0);
    assert!(!again.iter().any(|effect| matches!(effect, Effect::Forget(_))), "it is no longer awaited");
}
