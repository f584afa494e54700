use super::*;
use crate::io::{ExitStatus, ShellId};
use crate::outbox::control_frame;
use wireup_wire::frame::Class;
use wireup_wire::job::{AppSpec, Block, JobOptions, NodeSpec, PmiFlavour, StdinTarget};
use wireup_wire::peer::{AgentSpec, Note, RemoteShell};
use wireup_wire::pmix::{FromServer, pack};

pub(super) const T: Instant = Instant(5_000_000_000);
pub(super) const SECOND: u64 = 1_000_000_000;
pub(super) const UP: LinkId = LinkId(0);

/// Agent `me` of seven in a binary tree, 0 - (1, 2), 1 - (3, 4); linked to the launcher or the parent.
pub(super) fn agent(me: u32) -> Agent {
    agent_by(me, RemoteShell::Ssh(vec!["ssh".into()]))
}

pub(super) fn agent_by(me: u32, remote_shell: RemoteShell) -> Agent {
    let session = SessionSpec {
        name: "s".into(),
        fanout: 2,
        agents: (0..7).map(|agent| AgentSpec { host: format!("n{agent}") }).collect(),
        remote_shell,
        shells_max: 64,
        program: "wireup".into(),
        start_timeout_ns: 60 * SECOND,
        node_timeout_ns: 30 * SECOND,
        ..SessionSpec::default()
    };
    let mut agent = Agent::new(born(me, session));
    let peer = if me == 0 { Peer::Launcher } else { Peer::Parent };
    agent.handle(T, Input::LinkUp { link: UP, peer, local: String::new() });
    // The address for children, which the driver reports before a shell can end.
    agent.handle(T, Input::Listening { addresses: vec!["10.0.0.1:5".into()] });
    agent
}

fn born(me: u32, session: SessionSpec) -> AgentConfig {
    AgentConfig::new(AgentId(me), session, Born { process_ns: T.0, bootstrap_ns: T.0 })
}

/// The configuration with which agent `me` is started.
pub(super) fn config(me: u32) -> AgentConfig {
    born(me, agent(me).session().clone())
}

pub(super) fn job(id: u32) -> JobSpec {
    JobSpec {
        job: JobId(id),
        nspace: format!("s-{id}"),
        nodes: (0..7).map(|node| NodeSpec { agent: AgentId(node), name: format!("n{node}"), shared: false }).collect(),
        blocks: vec![Block { first_node: 0, nodes: 7, ppn: 1 }],
        apps: vec![AppSpec { ranks: 7, argv: vec![b"a".to_vec()], cwd: b"/".to_vec(), env: Vec::new() }],
        env: Vec::new(),
        options: JobOptions { line_buffered: true, kill_grace_ns: SECOND, ..JobOptions::default() },
    }
}

pub(super) fn hear(agent: &mut Agent, now: Instant, link: LinkId, job: u32, message: &Control) {
    let frame = control_frame(JobId(job), message);
    agent.handle(now, Input::LinkBytes { link, bytes: Bytes::copy_from_slice(&frame.header()) });
    agent.handle(now, Input::LinkBytes { link, bytes: frame.payload });
}

pub(super) fn link_child(agent: &mut Agent, now: Instant, child: u32) -> LinkId {
    let link = LinkId(100 + child);
    agent.handle(
        now,
        Input::LinkUp { link, peer: Peer::Child { agent: AgentId(child), incarnation: 0 }, local: String::new() },
    );
    link
}

pub(super) fn outputs(agent: &mut Agent) -> Vec<Output> {
    std::iter::from_fn(|| agent.poll()).collect()
}

fn calls(outputs: &[Output]) -> Vec<(ShellId, u32)> {
    let call = |output: &Output| match output {
        Output::StartAgent { shell, agent, bootstrap: Some(_), .. } => Some((*shell, agent.0)),
        _ => None,
    };
    outputs.iter().filter_map(call).collect()
}

pub(super) fn sent(outputs: &[Output], to: LinkId) -> Vec<Control> {
    let message = |output: &Output| match output {
        Output::Send { link, frame } if *link == to && frame.kind == Kind::Control => {
            Some(peer::decode(&frame.payload).expect("our own message"))
        }
        _ => None,
    };
    outputs.iter().filter_map(message).collect()
}

/// The root with a job, its child 1 linked and its child 2 starting; also returns the calls.
fn root() -> (Agent, LinkId, Vec<(ShellId, u32)>) {
    let mut root = agent(0);
    hear(&mut root, T, UP, 1, &Control::Launch(job(1).into()));
    let called = calls(&outputs(&mut root));
    assert_eq!(called.iter().map(|(_, agent)| *agent).collect::<Vec<_>>(), [1, 2]);
    let link = link_child(&mut root, T, 1);
    outputs(&mut root);
    (root, link, called)
}

fn start_for(agent: u32) -> Control {
    let parent = vec!["10.0.0.1:5".into()];
    Control::StartFor {
        agent: AgentId(agent),
        jobs: vec![JobId(1)],
        parent,
        problem: String::new(),
        snapshot: Default::default(),
    }
}

#[test]
fn a_child_has_agents_of_its_own_subtree_started_once_each() {
    let (mut root, link, _) = root();
    for wanted in [3, 3, 4, 3, 1, 2, 5, 0, 7, 4_000_000_000] {
        hear(&mut root, T, link, 0, &start_for(wanted));
    }
    let called: Vec<u32> = calls(&outputs(&mut root)).iter().map(|(_, agent)| *agent).collect();
    assert_eq!(called, [3, 4]);
    // After the start time no more agents are called.
    let (mut root, link, _) = self::root();
    hear(&mut root, T + 61 * SECOND, link, 0, &start_for(3));
    let said = outputs(&mut root);
    assert!(calls(&said).is_empty());
    assert!(matches!(&sent(&said, link)[..], [Control::NotStarted(missing)] if missing.agent == AgentId(3)));
}

#[test]
fn a_child_that_lies_about_others_changes_nothing() {
    let (mut root, link, called) = root();
    let lie = Note::StartedFor { agent: AgentId(2), parent: AgentId(1), starter: AgentId(1), problem: String::new() };
    hear(&mut root, T, link, 0, &Control::Note(lie));
    let missing = |agent| MissingAgent { agent: AgentId(agent), problem: "gone".into() };
    hear(&mut root, T, link, 1, &Control::Missing(vec![missing(2), missing(5), missing(900)]));
    // Agent 2 has still been called, and its loss still counts.
    let status = ExitStatus::Exited(255);
    let failed = Input::ShellExited { shell: called[1].0, status, stderr: "No route to host".into() };
    root.handle(T, failed);
    let probes = outputs(&mut root).into_iter().filter_map(|output| match output {
        Output::StartAgent { shell, bootstrap: None, .. } => Some(shell),
        _ => None,
    });
    for shell in probes.collect::<Vec<_>>() {
        root.handle(T, Input::ShellExited { shell, status: ExitStatus::Exited(0), stderr: String::new() });
    }
    hear(&mut root, T, link, 1, &Control::Started { ranks: 3, pmix: None });
    root.handle(
        T,
        Input::ChildStarted { job: JobId(1), local: Default::default(), pid: 1, spawn_ns: T.0, exec_ns: T.0 },
    );
    let told = sent(&outputs(&mut root), UP);
    let failure = told.iter().find_map(|message| match message {
        Control::Failed(Failure { cause: Cause::AgentsMissing { missing }, .. }) => Some(missing.clone()),
        _ => None,
    });
    let named: Vec<u32> = failure.unwrap_or_default().iter().map(|missing| missing.agent.0).collect();
    assert_eq!(named, [2], "{told:?}");
}

#[test]
fn a_flood_of_notes_is_cut() {
    let (mut root, link, _) = root();
    for _ in 0..100_000 {
        hear(&mut root, T, link, 0, &Control::Note(Note::Sent { agent: AgentId(3) }));
    }
    let passed = sent(&outputs(&mut root), UP).len();
    assert!((3..1000).contains(&passed), "{passed}");
}

#[test]
fn an_agent_that_linked_is_not_called_again() {
    let (mut root, _, called) = root();
    let busy = "kex_exchange_identification: Connection closed by remote host".into();
    root.handle(T, Input::ShellExited { shell: called[1].0, status: ExitStatus::Exited(255), stderr: busy });
    link_child(&mut root, T, 2);
    outputs(&mut root);
    for second in 1..60 {
        root.handle(T + second * SECOND, Input::Tick);
    }
    assert!(calls(&outputs(&mut root)).is_empty());
}

#[test]
fn an_answer_about_nobody_changes_nothing_and_a_link_wins_over_it() {
    let mut middle = agent(1);
    middle.launch(T, job(1));
    let called = calls(&outputs(&mut middle));
    let refused = "Permission denied (publickey).";
    for (shell, _) in called {
        let stderr = refused.into();
        middle.handle(T, Input::ShellExited { shell, status: ExitStatus::Exited(255), stderr });
    }
    let asked = sent(&outputs(&mut middle), UP);
    assert!(asked.iter().all(|message| matches!(message, Control::StartFor { .. })) && asked.len() == 2, "{asked:?}");
    let link = link_child(&mut middle, T, 3);
    outputs(&mut middle);
    for agent in [3, 6, 0, 1, 99] {
        let missing = MissingAgent { agent: AgentId(agent), problem: String::new() };
        hear(&mut middle, T, UP, 0, &Control::NotStarted(missing));
    }
    let told = outputs(&mut middle);
    assert!(sent(&told, UP).is_empty(), "{told:?}");
    assert!(!told.contains(&Output::CloseLink { link }));
    // The other one is missing, and is rejected if it links later.
    let missing = MissingAgent { agent: AgentId(4), problem: "No route".into() };
    hear(&mut middle, T, UP, 0, &Control::NotStarted(missing));
    assert!(matches!(&sent(&outputs(&mut middle), UP)[..], [Control::Missing(named)] if named[0].agent == AgentId(4)));
    let late = link_child(&mut middle, T, 4);
    assert!(outputs(&mut middle).contains(&Output::CloseLink { link: late }));
}

#[test]
fn a_later_job_has_a_start_time_of_its_own_and_names_who_was_lost() {
    let (mut root, first, _) = root();
    let second = link_child(&mut root, T, 2);
    let later = T + 1000 * SECOND;
    root.handle(later, Input::LinkDown { link: second, problem: "cut".into() });
    outputs(&mut root);
    hear(&mut root, later, UP, 2, &Control::Launch(job(2).into()));
    root.handle(
        later,
        Input::ChildStarted { job: JobId(2), local: Default::default(), pid: 1, spawn_ns: 1, exec_ns: 1 },
    );
    hear(&mut root, later, first, 2, &Control::Started { ranks: 3, pmix: None });
    let told = sent(&outputs(&mut root), UP);
    let names = |message: &Control| {
        matches!(message, Control::Failed(Failure { cause: Cause::AgentsMissing { missing }, .. })
            if missing.len() == 1 && missing[0].agent == AgentId(2))
    };
    assert!(told.iter().any(names), "{told:?}");

    let mut middle = agent(1);
    hear(&mut middle, later, UP, 2, &Control::Launch(job(2).into()));
    assert_eq!(calls(&outputs(&mut middle)).len(), 2);
    assert!(middle.deadline().is_some_and(|deadline| deadline > later));
    middle.handle(later, Input::Tick);
    assert!(sent(&outputs(&mut middle), UP).is_empty(), "no agent is late yet");
    // The same job again.
    hear(&mut middle, later, UP, 2, &Control::Launch(job(2).into()));
    let again = outputs(&mut middle);
    assert!(!again.iter().any(|output| matches!(output, Output::Spawn(_))), "{again:?}");
}

#[test]
fn a_child_that_is_given_up_is_turned_away_and_holds_nobody_up() {
    let (mut root, link, _) = root();
    hear(&mut root, T, UP, 1, &Control::Kill { grace_ns: 0 });
    root.handle(T, Input::ChildStarted { job: JobId(1), local: Default::default(), pid: 1, spawn_ns: 1, exec_ns: 1 });
    root.handle(
        T,
        Input::ChildExited {
            job: JobId(1),
            local: Default::default(),
            status: ExitStatus::Signalled { signal: 9, core_dumped: false },
        },
    );
    let said = outputs(&mut root);
    assert!(said.iter().any(|output| matches!(output, Output::StopShell { .. })), "{said:?}");
    let late = link_child(&mut root, T, 2);
    assert!(outputs(&mut root).contains(&Output::CloseLink { link: late }));
    hear(&mut root, T, UP, 0, &Control::Shutdown);
    root.handle(T, Input::LinkDown { link, problem: "closed".into() });
    for _ in 0..10 {
        let Some(deadline) = root.deadline() else { break };
        root.handle(deadline, Input::Tick);
    }
    assert!(outputs(&mut root).contains(&Output::Exit));
}

#[test]
fn less_time_above_is_less_time_here_and_below() {
    let mut middle = agent(1);
    middle.launch(T, job(1));
    let third = link_child(&mut middle, T, 3);
    outputs(&mut middle);
    hear(&mut middle, T, UP, 0, &Control::TimeLeft { left_ns: 10 * SECOND });
    assert_eq!(sent(&outputs(&mut middle), third), [Control::TimeLeft { left_ns: 10 * SECOND }]);
    // A longer time than its own changes nothing.
    hear(&mut middle, T, UP, 0, &Control::TimeLeft { left_ns: 50 * SECOND });
    middle.handle(T + 10 * SECOND, Input::Tick);
    let told = sent(&outputs(&mut middle), UP);
    assert!(told.iter().any(|message| matches!(message, Control::Missing(named) if named[0].agent == AgentId(4))));
}

fn holds(outputs: &[Output], agent: u32) -> Option<bool> {
    outputs.iter().rev().find_map(|output| match output {
        Output::StartAgent { agent: called, bootstrap: Some(bootstrap), .. } if called.0 == agent => {
            Some(bootstrap.session.hold_ranks)
        }
        _ => None,
    })
}

/// A program must not run twice because its agent was called twice.
#[test]
fn ranks_of_an_agent_that_may_have_come_before_wait_for_its_link() {
    let mut root = agent(0);
    hear(&mut root, T, UP, 1, &Control::Launch(job(1).into()));
    let first = outputs(&mut root);
    assert_eq!(holds(&first, 2), Some(false));
    let (shell, _) = calls(&first)[1];
    let stderr = "kex_exchange_identification: Connection closed by remote host".to_owned();
    root.handle(T, Input::ShellExited { shell, status: ExitStatus::Exited(255), stderr });
    outputs(&mut root);
    root.handle(T + SECOND, Input::Tick);
    assert_eq!(holds(&outputs(&mut root), 2), Some(true), "it is called again");

    let branch = link_child(&mut root, T, 1);
    outputs(&mut root);
    hear(&mut root, T, branch, 0, &start_for(3));
    assert_eq!(holds(&outputs(&mut root), 3), Some(true), "an ancestor calls it");

    let mut session = root.session().clone();
    session.hold_ranks = true;
    let born = Born { process_ns: T.0, bootstrap_ns: T.0 };
    let mut held = Agent::new(AgentConfig::new(AgentId(5), session, born));
    held.launch(T, job(1));
    let spawned = |outputs: &[Output]| outputs.iter().any(|output| matches!(output, Output::Spawn(_)));
    assert!(!spawned(&outputs(&mut held)));
    held.handle(T, Input::LinkUp { link: UP, peer: Peer::Parent, local: String::new() });
    assert!(spawned(&outputs(&mut held)));
}

#[test]
fn what_is_for_ranks_that_wait_for_a_server_waits_too() {
    let mut middle = agent(5);
    outputs(&mut middle);
    let mut served = job(1);
    served.options.pmi = PmiFlavour::Both;
    served.options.stdin = StdinTarget::All;
    hear(&mut middle, T, UP, 1, &Control::Launch(served.into()));
    let input = Frame { kind: Kind::Input, class: Class::Stdio, stream: 0, job: 1, arg: 0, payload: b"in"[..].into() };
    middle.handle(T, Input::LinkBytes { link: UP, bytes: Bytes::copy_from_slice(&input.header()) });
    middle.handle(T, Input::LinkBytes { link: UP, bytes: input.payload });
    hear(&mut middle, T, UP, 1, &Control::Signal { signal: 10 });
    let early = outputs(&mut middle);
    let is_for_ranks =
        |output: &Output| matches!(output, Output::Spawn(_) | Output::Write { .. } | Output::Signal { .. });
    assert!(!early.iter().any(is_for_ranks), "{early:?}");
    let failed = FromServer::Failed { problem: "no library".into() };
    middle.handle(T, Input::PmixBytes { job: JobId(1), bytes: pack(&failed) });
    let later = outputs(&mut middle);
    let kinds: Vec<_> = later.iter().filter(|output| is_for_ranks(output)).collect();
    assert!(
        matches!(kinds[..], [Output::Spawn(_), Output::Write { .. }, .., Output::Signal { signal: 10, .. }]),
        "{kinds:?}"
    );
}

#[test]
fn a_profiled_job_over_a_link_that_is_there_asks_for_the_clock() {
    let mut middle = agent(5);
    outputs(&mut middle);
    let mut profiled = job(1);
    profiled.options.profile = true;
    hear(&mut middle, T, UP, 1, &Control::Launch(profiled.into()));
    let asked = sent(&outputs(&mut middle), UP);
    assert!(asked.iter().any(|message| matches!(message, Control::ClockAsk { .. })), "{asked:?}");
}
