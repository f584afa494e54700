use super::*;
use crate::io::How;
use crate::io::LinkId;
use crate::session::Scene;
use crate::session::inputs::membership;
use crate::session::starts::NEEDED;
use crate::session::view::tests::{said_to, said_up};
use wireup_wire::peer::MissingAgent;
use wireup_wire::peer::RemoteShell;

const UNREACHED: ExitStatus = ExitStatus::Exited(255);

struct Bench {
    scene: Scene,
    starter: Starter,
}

/// A starter that was told to start these children and has called their shells.
fn bench(scene: Scene, children: &[u32]) -> Bench {
    let starter = Starter::new(scene.me, &scene.session, scene.now.0, None);
    let mut bench = Bench { scene, starter };
    for &child in children {
        bench.tell(Input::Start(AgentId(child)));
        bench.scene.neighbours.expect(AgentId(child));
    }
    bench.tell(Input::CallShells);
    bench
}

impl Bench {
    /// Handles an input and the further inputs that the part gives itself; returns all other effects.
    fn tell(&mut self, input: Input) -> Effects {
        let (mut all, mut inputs) = (Effects::default(), vec![input]);
        while let Some(input) = inputs.pop() {
            let mut fx = Effects::default();
            self.starter.handle(&self.scene.view(), &SessionSnapshot::default, input, &mut fx);
            let mut own = Vec::new();
            for effect in fx.reversed().collect::<Vec<_>>().into_iter().rev() {
                match effect {
                    Effect::Starter(input) => own.push(input),
                    effect => all.push(effect),
                }
            }
            inputs.extend(own.into_iter().rev());
        }
        all
    }

    fn shell_ends(&mut self, shell: u32, status: ExitStatus, stderr: &str) -> Effects {
        self.tell(Input::ShellExited { shell: ShellId(shell), status, stderr: stderr.into() })
    }
}

fn called(fx: &Effects) -> Vec<u32> {
    let agent = |effect: &Effect| match effect {
        Effect::Output(Output::StartAgent { agent, .. }) => Some(agent.0),
        _ => None,
    };
    fx.iter().filter_map(agent).collect()
}

fn is_forgotten(fx: &Effects, child: u32) -> bool {
    fx.iter().any(|effect| matches!(effect, Effect::Forget(agent) if agent.0 == child))
}

#[test]
fn a_child_that_the_shell_does_not_reach_is_asked_for_above() {
    let mut bench = bench(Scene::one_run(1), &[3, 4]);
    let fx = bench.shell_ends(0, UNREACHED, "ssh: connect to host n3 port 22: No route to host");
    assert!(matches!(said_up(&fx)[..], [Control::StartFor { agent: AgentId(3), .. }]));
    assert!(bench.starter.is_starting(AgentId(3)), "it may still link");
    let problem = "nobody reaches it".to_owned();
    let fx = bench.tell(Input::NotStarted(MissingAgent { agent: AgentId(3), problem }));
    assert!(is_forgotten(&fx, 3) && !bench.starter.is_starting(AgentId(3)));
}

#[test]
fn the_root_asks_the_hosts_behind_a_child_that_is_missing() {
    let mut bench = bench(Scene::one_run(0), &[1, 2]);
    let fx = bench.shell_ends(0, UNREACHED, "No route to host");
    assert!(is_forgotten(&fx, 1));
    let fx = bench.tell(Input::CallShells);
    assert_eq!(called(&fx), [3, 4, 7, 8, 9, 10], "all agents below agent 1");
}

#[test]
fn in_a_standing_session_somebody_takes_the_place_of_a_missing_child() {
    let mut bench = bench(Scene::standing(0), &[1, 2]);
    let fx = bench.shell_ends(0, UNREACHED, "No route to host");
    let report = |effect: &Effect| match effect {
        Effect::Membership(membership::Input::ReportLost(missing)) => Some(missing.agent),
        _ => None,
    };
    assert_eq!(fx.iter().find_map(report), Some(AgentId(1)));
    assert!(called(&bench.tell(Input::CallShells)).is_empty(), "agents below it are started, not probed");
}

#[test]
fn a_child_that_does_not_link_in_time_is_missed_and_its_shell_stopped() {
    let mut bench = bench(Scene::one_run(0), &[1]);
    let until = bench.starter.start_by();
    bench.scene.now = bench.starter.deadline().expect("it is checked before");
    assert!(bench.scene.now < until);
    bench.tell(Input::Tick);
    bench.scene.now = until;
    let fx = bench.tell(Input::Tick);
    assert!(is_forgotten(&fx, 1));
    assert!(fx.iter().any(|effect| matches!(effect, Effect::Output(Output::StopShell { shell: ShellId(0) }))));
}

#[test]
fn a_child_whose_start_was_long_hears_how_much_time_is_left() {
    let mut bench = bench(Scene::one_run(0), &[1, 2]);
    let fx = bench.tell(Input::Up { child: AgentId(1), local: String::new() });
    assert!(said_to(&fx, 1).is_empty(), "it linked at once");
    bench.scene.now = bench.scene.now + 2 * LONG_START_NS;
    let fx = bench.tell(Input::Up { child: AgentId(2), local: String::new() });
    let left_ns = bench.starter.start_by() - bench.scene.now;
    assert_eq!(said_to(&fx, 2), [&Control::TimeLeft { left_ns }]);
}

#[test]
fn a_shorter_start_time_counts_and_is_passed_on() {
    let mut bench = bench(Scene::one_run(1), &[3]);
    bench.scene.neighbours.on_child_up(AgentId(4), LinkId(4));
    let fx = bench.tell(Input::TimeLeft(5));
    assert_eq!(said_to(&fx, 4), [&Control::TimeLeft { left_ns: 5 }]);
    assert_eq!(bench.starter.start_by(), bench.scene.now + 5);
    assert!(bench.tell(Input::TimeLeft(500)).is_empty(), "a longer one is ignored");
}

#[test]
fn an_agent_is_started_for_a_child_once() {
    let mut bench = bench(Scene::standing(0), &[]);
    let purpose = || Purpose::Stead { branch: AgentId(1), parent: vec!["10.0.0.2:1".into()], snapshot: Box::default() };
    let wish = |agent| Wish { agent: AgentId(agent), jobs: Vec::new(), purpose: purpose() };
    let ask = |agent| Input::StartFor { wish: wish(agent), branch: AgentId(1), problem: "refused".into() };
    assert!(bench.tell(ask(3)).is_empty());
    assert_eq!(said_to(&bench.tell(ask(3)), 1).len(), 1, "the request is refused");
    assert!(bench.tell(ask(2)).is_empty(), "agent 2 is not below agent 1");
    assert_eq!(called(&bench.tell(Input::CallShells)), [3]);
}

#[test]
fn a_child_whose_shell_was_called_here_is_lost_a_moment_after_its_link() {
    let mut bench = bench(Scene::standing(0), &[1]);
    bench.tell(Input::Up { child: AgentId(1), local: String::new() });
    let problem = "its link broke".to_owned();
    let fx = bench.tell(Input::LinkDown { child: AgentId(1), problem });
    let words = |fx: &Effects| {
        fx.iter().find_map(|effect| match effect {
            Effect::Membership(membership::Input::ReportLost(missing)) => Some(missing.problem.clone()),
            _ => None,
        })
    };
    assert_eq!(words(&fx), None);
    let fx = bench.shell_ends(0, ExitStatus::Signalled { signal: 9, core_dumped: false }, "");
    assert!(words(&fx).is_some_and(|words| words.contains("its link broke; ") && words.contains("signal 9")));
}

#[test]
fn a_step_is_called_again_when_no_node_has_the_program() {
    let mut bench = bench(by_step(Scene::standing(0)), &[1, 2]);
    let how = |fx: &Effects| {
        fx.iter().find_map(|effect| match effect {
            Effect::Output(Output::StartStep { how, .. }) => Some(*how),
            _ => None,
        })
    };
    let fx = bench.tell(Input::CallStep((0..15).map(AgentId).collect()));
    assert_eq!(how(&fx), Some(How::Plain));
    let fx = bench.shell_ends(0, ExitStatus::Exited(NEEDED), "");
    assert_eq!(how(&fx), Some(How::Look));
    bench.tell(Input::StepTold { shell: ShellId(1), agent: AgentId(1), problem: None });
    let fx = bench.shell_ends(1, ExitStatus::Exited(NEEDED), "");
    assert_eq!(how(&fx), None, "some have started");
    assert!(is_forgotten(&fx, 1) && is_forgotten(&fx, 2));
}

fn by_step(mut scene: Scene) -> Scene {
    scene.session.remote_shell = RemoteShell::Srun(vec!["srun".into()]);
    scene
}

fn told(bench: &mut Bench, agent: u32, problem: Option<&str>) -> Effects {
    let problem = problem.map(str::to_owned);
    bench.tell(Input::StepTold { shell: ShellId(0), agent: AgentId(agent), problem })
}

#[test]
fn the_root_is_asked_about_those_behind_an_agent_that_a_step_does_not_bring() {
    let mut inner = bench(by_step(Scene::one_run(1)), &[3, 4]);
    let problem = "no room".to_owned();
    let fx = inner.tell(Input::NotStarted(MissingAgent { agent: AgentId(3), problem }));
    let asked = |agent| Control::Probe { agent: AgentId(agent), asker: AgentId(1) };
    assert_eq!(said_up(&fx), [&asked(7), &asked(8)]);

    let mut root = bench(by_step(Scene::one_run(0)), &[1, 2]);
    root.tell(Input::CallStep((0..15).map(AgentId).collect()));
    told(&mut root, 1, None);
    let ask = |agent| Input::ProbeFor { branch: AgentId(1), agent: AgentId(agent), asker: AgentId(1) };
    let answer = |agent, problem: Option<String>| Control::Probed { agent: AgentId(agent), asker: AgentId(1), problem };
    assert!(root.tell(ask(7)).is_empty() && root.tell(ask(8)).is_empty());
    assert_eq!(said_to(&told(&mut root, 8, None), 1), [&answer(8, None)]);
    assert_eq!(said_to(&root.tell(ask(8)), 1), [&answer(8, None)], "it is known to have started");
    root.scene.now = root.starter.deadline().expect("the wait is limited");
    root.tell(Input::Tick);
    root.scene.now = root.starter.start_by();
    let late = Some("its task in the step did not start within 30 s".to_owned());
    assert!(said_to(&root.tell(Input::Tick), 1).contains(&&answer(7, late)));
}

#[test]
fn in_a_standing_session_all_that_a_step_leaves_out_are_lost() {
    let mut bench = bench(by_step(Scene::standing(0)), &[1, 2]);
    bench.tell(Input::CallStep((0..15).map(AgentId).collect()));
    told(&mut bench, 1, None);
    told(&mut bench, 2, Some("no room"));
    let fx = bench.shell_ends(0, ExitStatus::Exited(233), "");
    let is_lost = |effect: &Effect| matches!(effect, Effect::Membership(membership::Input::ReportLost(missing)) if missing.agent == AgentId(1));
    assert!(fx.iter().any(is_lost), "it has started but not linked");
}
