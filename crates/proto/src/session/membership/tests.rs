use super::*;
use crate::io::{LinkId, Output};
use crate::session::Effect;
use crate::session::inputs::launchers;
use crate::session::inputs::starter;
use crate::testing::{Part, Scene};
use wireup_wire::peer::{MissingAgent, Rejoin};
use wireup_wire::session::{Entry, Log};
use wireup_wire::talk::{Control, SessionDown, SessionUp};

type Bench = crate::testing::Bench<Membership>;

impl Part for Membership {
    type Input = Input;
    const TICK: Option<Input> = Some(Input::Tick);

    fn handle(&mut self, view: &View<'_>, input: Input, fx: &mut Effects) {
        self.handle(view, &nothing_live, input, fx);
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline()
    }

    fn own_input(effect: Effect) -> Result<Input, Effect> {
        if let Effect::Membership(input) = effect { Ok(input) } else { Err(effect) }
    }
}

/// Agent `me` of fifteen in a standing session, fan-out 2; all agents are linked.
fn bench(me: u32) -> Bench {
    let mut bench = of(Scene::standing(me), &SessionSnapshot::default());
    let roster = &bench.part.routes.roster;
    let subtree = |child| roster.subtree(child).into_iter().map(|agent| (agent, 0)).collect();
    let here: Vec<_> = roster.children(AgentId(me)).into_iter().map(|child| (child, subtree(child))).collect();
    for (branch, agents) in here {
        bench.input(Input::Here { branch, agents });
    }
    bench
}

fn of(scene: Scene, snapshot: &SessionSnapshot) -> Bench {
    let scene = scene.linked();
    let members = Membership::new(scene.me, scene.tree(), &scene.session, vec!["10.0.0.1:1".into()], snapshot);
    Bench::new(scene, members)
}

fn nothing_live() -> (JobId, Vec<JobId>) {
    (JobId(4), vec![JobId(2)])
}

impl Bench {
    fn log(&mut self, at: u32, entry: Entry) -> Effects {
        let entries = vec![entry];
        self.input(Input::Log(Log { at, entries, has_moved: false, newest: JobId(4), live: vec![JobId(2)] }))
    }

    fn gone(&mut self, by: u32, agent: u32, incarnation: u32) -> Effects {
        let gone = Gone { by: AgentId(by), agent: AgentId(agent), incarnation, problem: "its link broke".into() };
        // Each agent is below one of the root's two children.
        let branch = [1, 2].map(AgentId).into_iter().find(|top| self.scene.tree().subtree_contains(*top, gone.by));
        self.input(Input::Gone { branch: branch.unwrap_or(AgentId(0)), gone: vec![gone] })
    }

    fn rejoin(&mut self, agent: u32, incarnation: u32, at: u32) -> Effects {
        let rejoin = Rejoin { incarnation, at };
        self.input(Input::Rejoin { link: LinkId(90 + agent), agent: AgentId(agent), rejoin })
    }
}

fn ids<const N: usize>(agents: [u32; N]) -> Vec<AgentId> {
    agents.map(AgentId).to_vec()
}

/// The decisions sent to all children.
fn decided(fx: &Effects) -> Vec<Entry> {
    let entries = |effect: &Effect| match effect {
        Effect::Children(Control::SessionDown(SessionDown::Log(log))) => log.entries.clone(),
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

/// The result for an agent that has lost its parent: it is adopted, dismissed, or may try again later.
fn fate(fx: &Effects) -> &'static str {
    let adopted = fx.iter().any(|effect| matches!(effect, Effect::TakeIn { .. }));
    let dismissed = fx.iter().any(|effect| matches!(effect, Effect::Send(..)));
    let closed = fx.iter().any(|effect| matches!(effect, Effect::Output(Output::CloseLink { .. })));
    match (adopted, dismissed, closed) {
        (true, false, false) => "adopted",
        (false, true, true) => "dismissed",
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
fn a_report_about_an_earlier_incarnation_is_ignored() {
    let mut root = bench(0);
    root.gone(1, 3, 0);
    let fx = root.input(Input::Revive);
    assert_eq!((decided(&fx), started(&fx)), (vec![Entry::Return(ids([3]))], ids([3])));
    assert!(decided(&root.gone(1, 3, 0)).is_empty(), "the report is about the previous incarnation");
    assert!(decided(&root.gone(1, 3, 2)).is_empty(), "agent 1 is not its parent any more");
    let missing = MissingAgent { agent: AgentId(3), problem: "its link broke".into() };
    assert_eq!(decided(&root.input(Input::ReportLost(missing))), [Entry::Lost(ids([3]))]);
}

#[test]
fn children_of_a_lost_agent_dial_the_root_in_time_or_are_lost() {
    let mut root = bench(0);
    assert_eq!(fate(&root.rejoin(7, 0, 0)), "later", "its parent may be up");
    root.gone(1, 3, 0);
    let fx = root.rejoin(7, 0, 0);
    let missed = fx.iter().find_map(|effect| match effect {
        Effect::TakeIn { missed, .. } => Some((missed.at, missed.entries.clone())),
        _ => None,
    });
    assert_eq!(missed, Some((0, vec![Entry::Lost(ids([3]))])));
    assert_eq!(decided(&root.tick_when_due()), [Entry::Lost(ids([8]))]);
    assert_eq!(root.part.deadline(), None);
}

#[test]
fn three_agents_lost_together_do_not_cause_the_loss_of_others() {
    // Agents 1, 3 and 7 have lost power. There are no agents below 7; 8 and 4 are healthy.
    let mut root = bench(0);
    root.input(Input::ReportLost(MissingAgent { agent: AgentId(1), problem: "silent".into() }));
    assert_eq!(fate(&root.rejoin(4, 0, 0)), "adopted");
    let lease = root.part.deadline().expect("agent 3 is awaited");
    assert_eq!(fate(&root.rejoin(8, 0, 0)), "later", "agent 3 may still dial");
    assert!(root.part.deadline().is_some_and(|until| until < lease), "a shorter lease: its child has lost it");
    assert!(!root.part.nodes().unwrap().is_settled());
    assert_eq!(decided(&root.tick_when_due()), [Entry::Lost(ids([3]))]);
    assert_eq!(fate(&root.rejoin(8, 0, 0)), "adopted");
    assert_eq!(decided(&root.tick_when_due()), [Entry::Lost(ids([7]))]);
    assert_eq!((root.part.deadline(), root.part.nodes().unwrap().lost()), (None, ids([1, 3, 7])));
}

#[test]
fn an_agent_that_dials_while_its_parent_is_up_is_lost_when_the_lease_ends() {
    let mut root = bench(0);
    assert_eq!(fate(&root.rejoin(7, 0, 0)), "later");
    assert_eq!(decided(&root.tick_when_due()), [Entry::Lost(ids([7]))]);
    assert_eq!(fate(&root.rejoin(7, 0, 0)), "dismissed");
    // An agent that is linked here dials: its end of that link has broken.
    let fx = root.rejoin(2, 0, 0);
    assert_eq!((fate(&fx), decided(&fx)), ("dismissed", vec![Entry::Lost(ids([2]))]));
}

#[test]
fn unknown_agents_and_other_incarnations_are_told_to_leave() {
    let mut root = bench(0);
    root.gone(1, 3, 0);
    root.input(Input::Revive);
    for (agent, incarnation, at) in [(3, 0, 0), (3, 1, 1), (7, 1, 0), (7, 0, 3)] {
        assert_eq!(fate(&root.rejoin(agent, incarnation, at)), "dismissed", "{agent} {incarnation} {at}");
    }
    assert!(decided(&root.rejoin(99, 0, 0)).is_empty());
    assert_eq!(fate(&bench(1).rejoin(7, 0, 0)), "later", "only the root adopts");
}

#[test]
fn agents_that_a_lost_agent_should_have_started_are_started_again() {
    let mut root = of(Scene::standing(0), &SessionSnapshot::default());
    root.input(Input::Here { branch: AgentId(1), agents: vec![(AgentId(1), 0), (AgentId(3), 0)] });
    let fx = root.input(Input::ReportLost(MissingAgent { agent: AgentId(1), problem: "silent".into() }));
    // Agent 3 is up and awaited; nothing is known of 7 and 8 below it, but 3 starts them.
    let unheard = ids([4, 7, 8, 9, 10]);
    let mut lost = unheard.clone();
    lost.insert(0, AgentId(1));
    assert_eq!(decided(&fx), [Entry::Lost(lost), Entry::Return(unheard)]);
    assert_eq!(started(&fx), ids([4, 7, 8]));
    assert_eq!(root.part.routes.roster.children(AgentId(4)), ids([9, 10]));
}

#[test]
fn each_agent_follows_the_log_once_and_passes_it_on_first() {
    let mut agent = bench(1);
    let fx = agent.log(0, Entry::Lost(ids([3])));
    assert!(matches!(
        fx.iter().find(|effect| !matches!(effect, Effect::Early(_))),
        Some(Effect::Children(Control::SessionDown(SessionDown::Log(_))))
    ));
    assert!(fx.iter().any(|effect| matches!(effect, Effect::Cut(AgentId(3)))));
    assert!(decided(&agent.log(0, Entry::Lost(ids([3])))).is_empty(), "the entry is known");
    assert!(leaves(&agent.log(2, Entry::Lost(ids([5])))), "an entry is missing");
    assert!(leaves(&agent.log(1, Entry::Lost(ids([1])))), "the agent itself is lost");
}

#[test]
fn agents_that_return_together_are_started_by_their_parents() {
    let mut root = bench(0);
    root.input(Input::ReportLost(MissingAgent { agent: AgentId(1), problem: "silent".into() }));
    root.tick_when_due();
    let fx = root.input(Input::Revive);
    assert_eq!((decided(&fx), started(&fx)), (vec![Entry::Return(ids([1, 3, 4]))], ids([1])));
    let snapshot = root.part.snapshot(Policy::Standing, &nothing_live);
    assert_eq!(
        (snapshot.newest, snapshot.live.clone(), snapshot.place(AgentId(3)).map(|place| place.parent)),
        (JobId(4), vec![JobId(2)], Some(AgentId(1)))
    );
    let mut child = of(Scene::standing(1), &snapshot);
    assert_eq!(started(&child.input(Input::Begin)), ids([3, 4]));
}

#[test]
fn reports_are_repeated_to_a_new_parent_until_the_root_has_decided() {
    let mut agent = bench(1);
    agent.scene.neighbours.on_up_lost();
    let missing = MissingAgent { agent: AgentId(3), problem: "its link broke".into() };
    assert!(agent.input(Input::ReportLost(missing)).sent_up().is_empty());
    agent.scene.neighbours.on_link_up(LinkId(1));
    let gone = Gone { by: AgentId(1), agent: AgentId(3), incarnation: 0, problem: "its link broke".into() };
    let here = [1, 4, 7, 8, 9, 10].map(|agent| (AgentId(agent), 0)).to_vec();
    let fx = agent.input(Input::ParentUp);
    assert_eq!(
        fx.sent_up(),
        [&Control::SessionUp(SessionUp::Here(here)), &Control::SessionUp(SessionUp::Gone(vec![gone]))]
    );
    agent.log(0, Entry::Lost(ids([3])));
    let here = [1, 4, 9, 10].map(|agent| (AgentId(agent), 0)).to_vec();
    assert_eq!(agent.input(Input::ParentUp).sent_up(), [&Control::SessionUp(SessionUp::Here(here))]);
}

#[test]
fn an_agent_without_parent_dials_the_root_until_it_is_taken_in() {
    let mut agent =
        of(Scene::standing(7), &SessionSnapshot { root: vec!["10.0.0.9:1".into()], ..SessionSnapshot::default() });
    let dialled = |fx: &Effects| {
        fx.iter().any(|effect| {
            matches!(effect, Effect::Output(Output::Rejoin { root, rejoin: Rejoin { incarnation: 0, at: 0 } })
            if root[0] == "10.0.0.9:1")
        })
    };
    assert!(dialled(&agent.input(Input::ParentLost)));
    agent.input(Input::RootReached(LinkId(5)));
    assert!(!dialled(&agent.input(Input::ParentLost)), "the root tells it to try again");
    assert!(dialled(&agent.tick_when_due()));
    agent.input(Input::RootReached(LinkId(6)));
    let fx = agent.tick_when_due();
    assert!(fx.iter().any(|effect| matches!(effect, Effect::LinkDown(LinkId(6), _))), "the root sends nothing");
    agent.input(Input::ParentLost);
    assert!(dialled(&agent.tick_when_due()));
    agent.input(Input::RootReached(LinkId(7)));
    let fx = agent.log(0, Entry::Lost(ids([3])));
    assert!(fx.iter().any(|effect| matches!(effect, Effect::TakenIn(LinkId(7)))));
    assert!(fx.iter().any(|effect| matches!(effect, Effect::RouteAgain(AgentId(3)))));
    assert!(!agent.part.is_seeking() && leaves(&agent.input(Input::ParentLost)), "it is now a child of the root");
}

/// The agent has learned of the loss from the lost parent, which was still linked: frames sent again at that time were
/// lost.
#[test]
fn an_adopted_agent_and_those_below_it_send_frames_again() {
    let mut agent = bench(3);
    agent.log(0, Entry::Lost(ids([1])));
    agent.input(Input::ParentLost);
    agent.input(Input::RootReached(LinkId(6)));
    let fx = agent.input(Input::Log(Log { at: 1, has_moved: true, ..Log::default() }));
    assert!(fx.iter().any(
        |effect| matches!(effect, Effect::Children(Control::SessionDown(SessionDown::Log(log))) if log.has_moved)
    ));
    assert!(fx.iter().any(|effect| matches!(effect, Effect::RouteAgain(AgentId(3)))));
}

#[test]
fn an_agent_that_does_not_reach_the_root_leaves() {
    let mut agent = bench(7);
    let begun = agent.scene.now;
    agent.input(Input::ParentLost);
    while !leaves(&agent.input(Input::RejoinFailed)) {
        agent.tick_when_due();
    }
    let took_ns = agent.scene.now - begun;
    assert!((5_000_000_000..=7_000_000_000).contains(&took_ns), "{took_ns}");
    assert!(leaves(&bench(1).input(Input::ParentLost)), "a child of the root is lost with its link");
    assert!(leaves(&of(Scene::one_run(3), &SessionSnapshot::default()).input(Input::ParentLost)));
    // Agent 7 learns from the log that its parent, agent 3, is lost before the link breaks.
    let mut agent = bench(7);
    agent.log(0, Entry::Lost(ids([3])));
    assert!(!leaves(&agent.input(Input::ParentLost)) && agent.part.is_seeking());
}

#[test]
fn the_end_of_a_session_does_not_wait_for_a_rejoining_agent() {
    let mut root = bench(0);
    root.input(Input::ReportLost(MissingAgent { agent: AgentId(1), problem: "silent".into() }));
    root.scene.is_leaving = true;
    let fx = root.rejoin(3, 0, 0);
    assert!(fate(&fx) == "dismissed" && fx.iter().any(|effect| matches!(effect, Effect::Forget(AgentId(3)))));
    let again = root.rejoin(3, 0, 0);
    assert!(!again.iter().any(|effect| matches!(effect, Effect::Forget(_))), "it is no longer awaited");
}
