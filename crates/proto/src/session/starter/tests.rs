use super::*;
use crate::io::How;
use crate::io::LinkId;
use crate::session::inputs::membership;
use crate::session::starts::NEEDED;
use crate::testing::{Bench, Part, Scene, by_step, session, standing};
use wireup_wire::peer::MissingAgent;
use wireup_wire::talk::{SessionDown, SessionUp};

const UNREACHED: ExitStatus = ExitStatus::Exited(255);

impl Part for Starter {
    type Input = Input;
    const TICK: Option<Input> = Some(Input::Tick);

    fn handle(&mut self, view: &View<'_>, input: Input, fx: &mut Effects) {
        self.handle(view, &SessionSnapshot::default, input, fx);
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline()
    }

    fn own_input(effect: Effect) -> Result<Input, Effect> {
        if let Effect::Starter(input) = effect { Ok(input) } else { Err(effect) }
    }
}

/// A starter that was told to start these children and has called their shells.
fn bench(scene: Scene, children: &[u32]) -> Bench<Starter> {
    let starter = Starter::new(scene.me, &scene.session, scene.now.0, None);
    let mut bench = Bench::new(scene, starter);
    for &child in children {
        bench.input(Input::Start(AgentId(child)));
        bench.scene.neighbours.expect(AgentId(child));
    }
    bench.input(Input::CallShells);
    bench
}

fn shell_ends(bench: &mut Bench<Starter>, shell: u32, status: ExitStatus, stderr: &str) -> Effects {
    bench.input(Input::ShellExited { shell: ShellId(shell), status, stderr: stderr.into() })
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
fn a_child_that_the_shell_cannot_reach_is_requested_from_the_parent() {
    let mut bench = bench(Scene::one_run(1), &[3, 4]);
    let fx = shell_ends(&mut bench, 0, UNREACHED, "ssh: connect to host n3 port 22: No route to host");
    assert!(matches!(fx.sent_up()[..], [Control::SessionUp(SessionUp::StartFor { agent: AgentId(3), .. })]));
    assert!(bench.part.is_starting(AgentId(3)), "it may still link");
    let problem = "nobody reaches it".into();
    let fx = bench.input(Input::NotStarted(MissingAgent { agent: AgentId(3), problem }));
    assert!(is_forgotten(&fx, 3) && !bench.part.is_starting(AgentId(3)));
}

#[test]
fn the_root_probes_the_hosts_below_a_missing_child() {
    let mut bench = bench(Scene::one_run(0), &[1, 2]);
    let fx = shell_ends(&mut bench, 0, UNREACHED, "No route to host");
    assert!(is_forgotten(&fx, 1));
    let fx = bench.input(Input::CallShells);
    assert_eq!(called(&fx), [3, 4, 7, 8, 9, 10], "all agents below agent 1");
}

#[test]
fn in_a_standing_session_a_missing_child_is_reported_as_lost() {
    let mut bench = bench(Scene::standing(0), &[1, 2]);
    let fx = shell_ends(&mut bench, 0, UNREACHED, "No route to host");
    let report = |effect: &Effect| match effect {
        Effect::Membership(membership::Input::ReportLost(missing)) => Some(missing.agent),
        _ => None,
    };
    assert_eq!(fx.iter().find_map(report), Some(AgentId(1)));
    assert!(called(&bench.input(Input::CallShells)).is_empty(), "agents below it are started, not probed");
}

#[test]
fn a_child_that_does_not_link_in_time_is_missing_and_its_shell_is_stopped() {
    let mut bench = bench(Scene::one_run(0), &[1]);
    let until = bench.part.start_by();
    bench.scene.now = bench.part.deadline().expect("it is checked before");
    assert!(bench.scene.now < until);
    bench.tick();
    bench.scene.now = until;
    let fx = bench.tick();
    assert!(is_forgotten(&fx, 1));
    assert!(fx.iter().any(|effect| matches!(effect, Effect::Output(Output::StopShell { shell: ShellId(0) }))));
}

#[test]
fn a_child_that_started_slowly_is_told_the_remaining_time() {
    let mut bench = bench(Scene::one_run(0), &[1, 2]);
    let fx = bench.input(Input::Up { child: AgentId(1), local: String::new() });
    assert!(fx.sent_to_child(1).is_empty(), "it linked at once");
    bench.scene.now = bench.scene.now + 2 * LONG_START_NS;
    let fx = bench.input(Input::Up { child: AgentId(2), local: String::new() });
    let left_ns = bench.part.start_by() - bench.scene.now;
    assert_eq!(fx.sent_to_child(2), [&Control::SessionDown(SessionDown::TimeLeft { left_ns })]);
}

#[test]
fn a_shorter_start_time_counts_and_is_passed_on() {
    let mut bench = bench(Scene::one_run(1), &[3]);
    bench.scene.neighbours.on_child_up(AgentId(4), LinkId(4));
    let fx = bench.input(Input::TimeLeft(5));
    assert_eq!(fx.sent_to_child(4), [&Control::SessionDown(SessionDown::TimeLeft { left_ns: 5 })]);
    assert_eq!(bench.part.start_by(), bench.scene.now + 5);
    assert!(bench.input(Input::TimeLeft(500)).is_empty(), "a longer one is ignored");
}

#[test]
fn an_agent_is_started_for_a_child_once() {
    let mut bench = bench(Scene::standing(0), &[]);
    let purpose = || Purpose::Stead { branch: AgentId(1), parent: vec!["10.0.0.2:1".into()], snapshot: Box::default() };
    let wish = |agent| Wish { agent: AgentId(agent), jobs: Vec::new(), purpose: purpose() };
    let ask = |agent| Input::StartFor { wish: wish(agent), branch: AgentId(1), problem: "refused".into() };
    assert!(bench.input(ask(3)).is_empty());
    assert_eq!(bench.input(ask(3)).sent_to_child(1).len(), 1, "the request is refused");
    assert!(bench.input(ask(2)).is_empty(), "agent 2 is not below agent 1");
    assert_eq!(called(&bench.input(Input::CallShells)), [3]);
}

#[test]
fn a_child_is_lost_when_its_shell_ends_after_its_link() {
    let mut bench = bench(Scene::standing(0), &[1]);
    bench.input(Input::Up { child: AgentId(1), local: String::new() });
    let problem = "its link broke".into();
    let fx = bench.input(Input::LinkDown { child: AgentId(1), problem });
    let words = |fx: &Effects| {
        fx.iter().find_map(|effect| match effect {
            Effect::Membership(membership::Input::ReportLost(missing)) => Some(missing.problem.clone()),
            _ => None,
        })
    };
    assert_eq!(words(&fx), None);
    let fx = shell_ends(&mut bench, 0, ExitStatus::Signalled { signal: 9, core_dumped: false }, "");
    assert!(words(&fx).is_some_and(|words| words.contains("its link broke; ") && words.contains("signal 9")));
}

#[test]
fn a_step_is_called_again_when_no_node_has_the_program() {
    let mut bench = bench(Scene::new(0, by_step(standing(session(15)))), &[1, 2]);
    let how = |fx: &Effects| {
        fx.iter().find_map(|effect| match effect {
            Effect::Output(Output::StartStep { how, .. }) => Some(*how),
            _ => None,
        })
    };
    let fx = bench.input(Input::CallStep((0..15).map(AgentId).collect()));
    assert_eq!(how(&fx), Some(How::Plain));
    let fx = shell_ends(&mut bench, 0, ExitStatus::Exited(NEEDED), "");
    assert_eq!(how(&fx), Some(How::Look));
    bench.input(Input::StepTold { shell: ShellId(1), agent: AgentId(1), problem: None });
    let fx = shell_ends(&mut bench, 1, ExitStatus::Exited(NEEDED), "");
    assert_eq!(how(&fx), None, "some have started");
    assert!(is_forgotten(&fx, 1) && is_forgotten(&fx, 2));
}

fn task(bench: &mut Bench<Starter>, agent: u32, problem: Option<&str>) -> Effects {
    let problem = problem.map(Into::into);
    bench.input(Input::StepTold { shell: ShellId(0), agent: AgentId(agent), problem })
}

#[test]
fn the_root_is_asked_about_agents_below_one_that_a_step_does_not_start() {
    let mut inner = bench(Scene::new(1, by_step(session(15))), &[3, 4]);
    let problem = "no room".into();
    let fx = inner.input(Input::NotStarted(MissingAgent { agent: AgentId(3), problem }));
    let asked = |agent| Control::SessionUp(SessionUp::Probe { agent: AgentId(agent), asker: AgentId(1) });
    assert_eq!(fx.sent_up(), [&asked(7), &asked(8)]);

    let mut root = bench(Scene::new(0, by_step(session(15))), &[1, 2]);
    root.input(Input::CallStep((0..15).map(AgentId).collect()));
    task(&mut root, 1, None);
    let ask = |agent| Input::ProbeFor { branch: AgentId(1), agent: AgentId(agent), asker: AgentId(1) };
    let answer = |agent, problem: Option<Problem>| {
        Control::SessionDown(SessionDown::Probed { agent: AgentId(agent), asker: AgentId(1), problem })
    };
    assert!(root.input(ask(7)).is_empty() && root.input(ask(8)).is_empty());
    assert_eq!(task(&mut root, 8, None).sent_to_child(1), [&answer(8, None)]);
    assert_eq!(root.input(ask(8)).sent_to_child(1), [&answer(8, None)], "it is known to have started");
    root.scene.now = root.part.deadline().expect("the wait is limited");
    root.tick();
    root.scene.now = root.part.start_by();
    let late = Some("its task in the step did not start within 60 s".into());
    assert!(root.tick().sent_to_child(1).contains(&&answer(7, late)));
}

#[test]
fn in_a_standing_session_all_agents_that_a_step_does_not_start_are_lost() {
    let mut bench = bench(Scene::new(0, by_step(standing(session(15)))), &[1, 2]);
    bench.input(Input::CallStep((0..15).map(AgentId).collect()));
    task(&mut bench, 1, None);
    task(&mut bench, 2, Some("no room"));
    let fx = shell_ends(&mut bench, 0, ExitStatus::Exited(233), "");
    let is_lost = |effect: &Effect| {
        matches!(effect, Effect::Membership(membership::Input::ReportLost(missing))
        if missing.agent == AgentId(1))
    };
    assert!(fx.iter().any(is_lost), "it has started but not linked");
}
