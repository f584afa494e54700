use super::*;
use crate::io::{LinkId, Output};
use crate::session::Scene;
use crate::session::inputs::{launchers, starter};
use crate::session::view::tests::{said_to, said_up};
use wireup_wire::peer::MissingAgent;

struct Bench {
    scene: Scene,
    members: Membership,
}

/// Agent `me` of a standing session; its children are linked.
fn bench(me: u32) -> Bench {
    of(Scene::standing(me), Kin::default())
}

fn of(mut scene: Scene, kin: Kin) -> Bench {
    let children: Vec<AgentId> = scene.tree().children(scene.me).map(AgentId).collect();
    for child in children {
        scene.neighbours.on_child_up(child, LinkId(child.0));
    }
    scene.neighbours.on_up(LinkId(0));
    let members = Membership::new(scene.me, scene.tree(), &scene.session, vec!["10.0.0.1:1".into()], kin);
    Bench { scene, members }
}

impl Bench {
    /// What comes of an input, with all that the part itself goes on with; what it wants of links is done in its turn.
    fn tell(&mut self, input: Input) -> Effects {
        let (mut all, mut stack) = (Effects::default(), vec![Effect::Membership(input)]);
        while let Some(effect) = stack.pop() {
            let neighbours = &mut self.scene.neighbours;
            match effect {
                Effect::Membership(input) => {
                    let mut fx = Effects::default();
                    self.members.handle(&self.scene.view(), input, &mut fx);
                    stack.extend(fx.reversed());
                    continue;
                }
                Effect::Cut(child) => drop(neighbours.on_child_down(child)),
                Effect::Expect(child) | Effect::Starter(starter::Input::Start(child)) => neighbours.expect(child),
                _ => {}
            }
            all.push(effect);
        }
        all
    }

    fn here(&mut self, branch: u32, agents: &[u32]) -> Effects {
        let agents = agents.iter().copied().map(AgentId).collect();
        self.tell(Input::Here { branch: AgentId(branch), agents })
    }
}

fn missing(agent: u32) -> MissingAgent {
    MissingAgent { agent: AgentId(agent), problem: "its link broke".into() }
}

fn started(fx: &Effects) -> Vec<u32> {
    let child = |effect: &Effect| match effect {
        Effect::Starter(starter::Input::Start(child)) => Some(child.0),
        _ => None,
    };
    fx.iter().filter_map(child).collect()
}

fn awaited(fx: &Effects) -> Vec<u32> {
    let child = |effect: &Effect| if let Effect::Expect(child) = effect { Some(child.0) } else { None };
    fx.iter().filter_map(child).collect()
}

#[test]
fn those_below_a_lost_child_are_awaited_if_they_were_there_and_started_else() {
    let mut bench = bench(1);
    bench.tell(Input::Linked(AgentId(3)));
    bench.here(3, &[7]);
    let fx = bench.tell(Input::Lost(AgentId(3)));
    assert_eq!((awaited(&fx), started(&fx)), (vec![7], vec![8]));
    assert!(fx.iter().any(|effect| matches!(effect, Effect::Cut(AgentId(3)))));
    assert!(bench.tell(Input::Lost(AgentId(3))).is_empty(), "that is known");
}

#[test]
fn an_orphan_that_does_not_come_is_lost_too() {
    let mut bench = bench(1);
    bench.here(3, &[7]);
    bench.tell(Input::Lost(AgentId(3)));
    bench.scene.now = bench.members.deadline().expect("it is not awaited for ever");
    let fx = bench.tell(Input::Tick);
    let said = said_up(&fx);
    assert!(matches!(&said[..], [Control::Missing(lost)] if lost[0].agent == AgentId(7)), "{said:?}");
    assert_eq!(started(&fx), [] as [u32; 0], "nobody was drawn below agent 7");
}

#[test]
fn an_orphan_is_taken_in_and_other_children_hear_that_it_is_not_theirs() {
    let mut bench = bench(0);
    let fx = bench.tell(Input::Orphan { link: LinkId(9), agent: AgentId(7), life: 0 });
    assert!(fx.iter().any(|effect| matches!(effect, Effect::TakeIn(LinkId(9), AgentId(7)))));
    assert_eq!(said_to(&fx, 1), [&Control::Here(vec![AgentId(7)])]);
    assert!(said_to(&fx, 2).is_empty(), "it was never below agent 2");
}

#[test]
fn an_orphan_that_is_taken_for_lost_is_told_so_and_one_of_a_later_life_may_ask_again() {
    let mut bench = bench(0);
    bench.tell(Input::Lost(AgentId(7)));
    let mut answers = |life| {
        let fx = bench.tell(Input::Orphan { link: LinkId(9), agent: AgentId(7), life });
        assert!(fx.iter().any(|effect| matches!(effect, Effect::Do(Output::CloseLink { link: LinkId(9) }))));
        fx.iter().filter(|effect| matches!(effect, Effect::Send(..))).count()
    };
    assert_eq!((answers(0), answers(1)), (1, 0));
}

#[test]
fn what_was_said_of_a_loss_is_said_again_over_the_next_link_up() {
    let mut bench = bench(1);
    bench.scene.neighbours.on_up_lost();
    assert!(said_up(&bench.tell(Input::ReportLost(missing(7)))).is_empty());
    let fx = bench.tell(Input::ParentUp);
    assert_eq!(said_up(&fx), [&Control::Here(vec![AgentId(1)]), &Control::Missing(vec![missing(7)])]);
    bench.tell(Input::Lost(AgentId(7)));
    assert_eq!(said_up(&bench.tell(Input::ParentUp)).len(), 1, "the root has told it");
}

#[test]
fn the_root_tells_a_loss_once_to_everybody() {
    let mut bench = bench(0);
    let fx = bench.tell(Input::ReportLost(missing(7)));
    assert!(fx.iter().any(|effect| matches!(effect, Effect::Children(Control::Lost { agent: AgentId(7) }))));
    assert!(bench.tell(Input::ReportLost(missing(7))).is_empty());
}

#[test]
fn an_agent_without_parent_dials_its_ancestors_for_a_while() {
    let ancestor = |agent| Ancestor { agent: AgentId(agent), addresses: vec!["10.0.0.9:1".into()] };
    let mut bench = of(Scene::standing(7), Kin { ancestors: vec![ancestor(1), ancestor(0)], ..Kin::default() });
    bench.tell(Input::Lost(AgentId(1)));
    let dials = |fx: &Effects| {
        fx.iter().find_map(|effect| match effect {
            Effect::Do(Output::Rejoin { ancestors, .. }) => Some(ancestors.clone()),
            _ => None,
        })
    };
    assert_eq!(dials(&bench.tell(Input::ParentLost)), Some(vec![ancestor(0)]), "agent 1 is lost");
    bench.tell(Input::RejoinFailed);
    bench.scene.now = bench.members.deadline().expect("it tries again");
    assert_eq!(dials(&bench.tell(Input::Tick)), Some(vec![ancestor(0)]));
    bench.scene.now = bench.scene.now + seeking::REJOIN_NS_MAX;
    assert!(bench.tell(Input::RejoinFailed).iter().any(|effect| matches!(effect, Effect::Leave)));
}

#[test]
fn in_one_run_an_agent_without_parent_leaves() {
    let mut bench = of(Scene::one_run(1), Kin::default());
    assert!(bench.tell(Input::ParentLost).iter().all(|effect| matches!(effect, Effect::Leave)));
}

#[test]
fn lost_agents_are_started_by_their_parents_in_another_life() {
    let mut bench = bench(0);
    for agent in [1, 7] {
        bench.tell(Input::ReportLost(missing(agent)));
    }
    let fx = bench.tell(Input::Revive);
    assert_eq!(started(&fx), [1], "agent 7 is started by those above it");
    let returned = Control::Return { agents: vec![AgentId(1), AgentId(7)], life: 1 };
    assert!(fx.iter().any(|effect| matches!(effect, Effect::Children(message) if *message == returned)));
    assert_eq!(bench.members.routes().life(AgentId(1)), 1);
}

#[test]
fn an_agent_that_moved_is_told_of_by_the_root() {
    let mut bench = bench(0);
    bench.here(1, &[1, 3, 7]);
    let moved = |fx: &Effects| {
        fx.iter().find_map(|effect| match effect {
            Effect::Launchers(launchers::Input::Moved(agents)) => Some(agents.clone()),
            _ => None,
        })
    };
    assert_eq!(moved(&bench.here(1, &[7, 2])), Some(vec![AgentId(7)]), "agent 2 is not below agent 1");
}

#[test]
fn a_child_is_told_who_is_around_it() {
    let mut bench = bench(0);
    bench.here(1, &[3, 7]);
    bench.tell(Input::ReportLost(missing(8)));
    let view = bench.scene.view();
    let kin = bench.members.kin_of(view.tree, view.me, view.policy, (JobId(4), vec![JobId(2)]), AgentId(3));
    assert_eq!((kin.there, kin.lost), (vec![AgentId(7)], vec![AgentId(8)]));
    assert_eq!((kin.newest, kin.live), (JobId(4), vec![JobId(2)]));
}
