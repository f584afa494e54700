use super::*;
use crate::io::{Output, Peer};
use crate::testing::{Look, UP, agent_of, by_step, down, in_session, one_run, session, standing};
use wireup_wire::session::SessionSnapshot;
use wireup_wire::talk::Control;

const UNREACHED: ExitStatus = ExitStatus::Exited(255);

/// The [`ChildStarts`] of one agent, and the agent's context.
struct Bench {
    cx: Cx,
    part: ChildStarts,
}

impl Bench {
    /// An agent that was told to start these children and has called their shells.
    fn new(cx: Cx, children: &[u32]) -> Bench {
        let part = ChildStarts::new(cx.me, &cx.session, None);
        let mut bench = Bench { cx, part };
        bench.cx.outputs();
        bench.act(|child_starts, cx| {
            children.iter().for_each(|child| child_starts.start(cx, AgentId(*child), None));
            child_starts.shell_calls.call_shells(cx, &no_snapshot);
        });
        bench
    }

    fn act(&mut self, act: impl FnOnce(&mut ChildStarts, &mut Cx)) -> Vec<Output> {
        act(&mut self.part, &mut self.cx);
        self.cx.outputs()
    }

    fn shell_ends(&mut self, shell: u32, status: ExitStatus, stderr: &str) -> Vec<Output> {
        self.act(|child_starts, cx| child_starts.on_exited(cx, &no_snapshot, ShellId(shell), status, stderr))
    }

    fn link_up(&mut self, child: u32) -> Vec<Output> {
        self.cx.link_child(child);
        self.act(|child_starts, cx| child_starts.on_agent_up(cx, AgentId(child), String::new()))
    }

    fn not_started(&mut self, agent: u32, problem: &str) -> Vec<Output> {
        let missing = MissingAgent { agent: AgentId(agent), problem: problem.into() };
        self.act(|child_starts, cx| child_starts.on_not_started(cx, missing))
    }

    fn call_shells(&mut self) -> Vec<Output> {
        self.act(|child_starts, cx| child_starts.shell_calls.call_shells(cx, &no_snapshot))
    }

    fn call_step(&mut self) -> Vec<Output> {
        self.act(|child_starts, cx| child_starts.call_step_for(cx, &no_snapshot, (0..15).map(AgentId).collect()))
    }

    /// A task of a step reports about its agent.
    fn told(&mut self, shell: u32, agent: u32, problem: Option<&str>) -> Vec<Output> {
        let problem = problem.map(Into::into);
        self.act(|child_starts, cx| child_starts.on_step_told(cx, ShellId(shell), AgentId(agent), problem))
    }

    fn tick(&mut self) -> Vec<Output> {
        self.act(|child_starts, cx| child_starts.check(cx))
    }

    fn is_expected(&self, child: u32) -> bool {
        self.cx.agent.links.neighbours.expects(AgentId(child))
    }
}

fn no_snapshot(_: &Cx) -> SessionSnapshot {
    SessionSnapshot::default()
}

fn called(outputs: &[Output]) -> Vec<u32> {
    let agent = |output: &Output| match output {
        Output::StartAgent { agent, .. } => Some(agent.0),
        _ => None,
    };
    outputs.iter().filter_map(agent).collect()
}

#[test]
fn a_child_that_the_shell_cannot_reach_is_requested_from_the_parent() {
    let mut bench = Bench::new(one_run(1).linked(), &[3, 4]);
    let outputs = bench.shell_ends(0, UNREACHED, "ssh: connect to host n3 port 22: No route to host");
    assert!(matches!(outputs.sent(UP)[..], [Control::SessionUp(SessionUp::StartFor { agent: AgentId(3), .. })]));
    assert!(bench.part.children.is_starting(AgentId(3)) && bench.is_expected(3), "it may still link");
    bench.not_started(3, "nobody reaches it");
    assert!(!bench.part.children.is_starting(AgentId(3)) && !bench.is_expected(3));
}

#[test]
fn the_root_probes_the_hosts_below_a_missing_child() {
    let mut bench = Bench::new(one_run(0), &[1, 2]);
    bench.shell_ends(0, UNREACHED, "No route to host");
    assert!(!bench.is_expected(1));
    assert_eq!(called(&bench.call_shells()), [3, 4, 7, 8, 9, 10], "all agents below agent 1");
}

#[test]
fn in_a_standing_session_a_missing_child_is_reported_as_lost() {
    let mut bench = Bench::new(in_session(0), &[1, 2]);
    bench.shell_ends(0, UNREACHED, "No route to host");
    assert!(matches!(bench.part.losses.take_observed()[..], [MissingAgent { agent: AgentId(1), .. }]));
    assert!(called(&bench.call_shells()).is_empty(), "agents below it are started, not probed");
}

#[test]
fn a_child_that_does_not_link_in_time_is_missing_and_its_shell_is_stopped() {
    let mut bench = Bench::new(one_run(0), &[1]);
    let until = bench.cx.agent.start_by;
    bench.cx.agent.now = bench.part.deadline(until).expect("it is checked before");
    assert!(bench.cx.agent.now < until);
    bench.tick();
    bench.cx.agent.now = until;
    let outputs = bench.tick();
    assert!(!bench.is_expected(1) && outputs.contains(&Output::StopShell { shell: ShellId(0) }));
}

#[test]
fn a_child_that_started_slowly_is_told_the_remaining_time() {
    let mut bench = Bench::new(one_run(0), &[1, 2]);
    assert!(bench.link_up(1).sent(down(1)).is_empty(), "it linked at once");
    bench.cx.agent.now = bench.cx.agent.now + 2 * LONG_START_NS;
    let left_ns = bench.cx.agent.start_by - bench.cx.agent.now;
    assert_eq!(bench.link_up(2).sent(down(2)), [Control::SessionDown(SessionDown::TimeLeft { left_ns })]);
}

#[test]
fn an_agent_is_started_for_a_child_once() {
    let mut bench = Bench::new(in_session(0).linked(), &[]);
    let purpose = || Purpose::Stead { branch: AgentId(1), parent: vec!["10.0.0.2:1".into()], snapshot: Box::default() };
    let wish = |agent| Wish { agent: AgentId(agent), jobs: Vec::new(), purpose: purpose() };
    let mut ask =
        |agent| bench.act(|child_starts, cx| child_starts.on_start_for(cx, AgentId(1), wish(agent), "refused".into()));
    assert!(ask(3).is_empty());
    assert_eq!(ask(3).sent(down(1)).len(), 1, "the request is refused");
    assert!(ask(2).is_empty(), "agent 2 is not below agent 1");
    assert_eq!(called(&bench.call_shells()), [3]);
}

fn by_steps(me: u32, session: SessionSpec) -> Cx {
    agent_of(me, by_step(session), &SessionSnapshot::default())
}

#[test]
fn the_root_is_asked_about_agents_below_one_that_a_step_does_not_start() {
    let mut inner = Bench::new(by_steps(1, session(15)), &[3, 4]);
    inner.cx.agent.links.on_link_up(UP, Peer::Parent);
    let asked = |agent| Control::SessionUp(SessionUp::Probe { agent: AgentId(agent), asker: AgentId(1) });
    assert_eq!(inner.not_started(3, "no room").sent(UP), [asked(7), asked(8)]);

    let mut root = Bench::new(by_steps(0, session(15)), &[1, 2]);
    root.call_step();
    root.told(0, 1, None);
    root.cx.link_child(1);
    let ask = |root: &mut Bench, agent| {
        root.act(|child_starts, cx| child_starts.on_probe_for(cx, AgentId(1), AgentId(agent), AgentId(1))).sent(down(1))
    };
    let answer = |agent, problem: Option<Problem>| {
        Control::SessionDown(SessionDown::Probed { agent: AgentId(agent), asker: AgentId(1), problem })
    };
    assert!(ask(&mut root, 7).is_empty() && ask(&mut root, 8).is_empty());
    assert_eq!(root.told(0, 8, None).sent(down(1)), [answer(8, None)]);
    assert_eq!(ask(&mut root, 8), [answer(8, None)], "it is known to have started");
    root.cx.agent.now = root.part.deadline(root.cx.agent.start_by).expect("the wait is limited");
    root.tick();
    root.cx.agent.now = root.cx.agent.start_by;
    let late = Some("its task in the step did not start within 60 s".into());
    assert!(root.tick().sent(down(1)).contains(&answer(7, late)));
}

#[test]
fn in_a_standing_session_all_agents_that_a_step_does_not_start_are_lost() {
    let mut bench = Bench::new(by_steps(0, standing(session(15))), &[1, 2]);
    bench.call_step();
    bench.told(0, 1, None);
    bench.told(0, 2, Some("no room"));
    bench.shell_ends(0, ExitStatus::Exited(233), "");
    let lost: Vec<AgentId> = bench.part.losses.take_observed().into_iter().map(|missing| missing.agent).collect();
    assert!(lost.contains(&AgentId(1)), "it has started but not linked: {lost:?}");
}
