//! A root with six nodes below it, fan-out 2, and remote shells that end as the test dictates.

use super::*;
use crate::io::{ExitStatus, ShellId};
use wireup_wire::job::{AppSpec, Block, JobOptions, NodeSpec};
use wireup_wire::peer::{AgentSpec, RemoteShell};

const T: Instant = Instant(1_000_000_000);
const LAUNCHER: LinkId = LinkId(0);
const NODES: u32 = 6;
const KILLED: ExitStatus = ExitStatus::Signalled { signal: 9, core_dumped: false };

fn session() -> SessionSpec {
    SessionSpec {
        name: "s".into(),
        fanout: 2,
        agents: (0..=NODES).map(|agent| AgentSpec { host: format!("h{agent}") }).collect(),
        remote_shell: RemoteShell::Ssh(vec!["ssh".into()]),
        shells_max: 8,
        program: "/bin/wireup".into(),
        start_timeout_ns: 60_000_000_000,
        node_timeout_ns: 30_000_000_000,
        ..SessionSpec::default()
    }
}

fn job() -> JobSpec {
    let node = |node| NodeSpec { agent: AgentId(node + 1), name: format!("h{}", node + 1), shared: false };
    JobSpec {
        job: JobId(1),
        nspace: "j".into(),
        nodes: (0..NODES).map(node).collect(),
        blocks: vec![Block { first_node: 0, nodes: NODES, ppn: 1 }],
        apps: vec![AppSpec { ranks: NODES, argv: vec![b"true".to_vec()], cwd: b"/".to_vec(), env: Vec::new() }],
        env: Vec::new(),
        options: JobOptions { kill_grace_ns: 1_000_000_000, ..JobOptions::default() },
    }
}

/// A root that has called its two children's shells.
fn root() -> (Agent, Vec<(ShellId, AgentId)>) {
    let mut root = Agent::new(AgentConfig::new(AgentId(0), session(), Born::default()));
    root.handle(T, Input::LinkUp { link: LAUNCHER, peer: Peer::Launcher, local: String::new() });
    let launch = crate::outbox::control_frame(JobId(1), &Control::Launch(job().into()));
    for bytes in [Bytes::copy_from_slice(&launch.header()), launch.payload] {
        root.handle(T, Input::LinkBytes { link: LAUNCHER, bytes });
    }
    let (shells, said) = outputs(&mut root);
    assert_eq!(shells.iter().map(|(_, agent)| agent.0).collect::<Vec<_>>(), [1, 2]);
    assert!(said.is_empty(), "{said:?}");
    (root, shells)
}

/// The shells to call, and the messages to the launcher.
fn outputs(agent: &mut Agent) -> (Vec<(ShellId, AgentId)>, Vec<Control>) {
    let (mut shells, mut said) = (Vec::new(), Vec::new());
    while let Some(output) = agent.poll() {
        match output {
            Output::StartAgent { shell, agent, .. } => shells.push((shell, agent)),
            Output::Send { link: LAUNCHER, frame } => {
                said.push(peer::decode::<Control>(&frame.payload).expect("our own message"));
            }
            _ => {}
        }
    }
    (shells, said)
}

fn cause(said: &[Control]) -> &Cause {
    match said.iter().find_map(|message| if let Control::Failed(failure) = message { Some(failure) } else { None }) {
        Some(failure) => &failure.cause,
        None => panic!("no failure in {said:?}"),
    }
}

/// No child is running or can be started: the job fails, although the agents below are still being probed.
#[test]
fn a_job_whose_every_child_is_missed_fails() {
    let (mut root, children) = root();
    let refused = |shell| Input::ShellExited { shell, status: ExitStatus::Exited(255), stderr: "refused".into() };
    for (shell, _) in children {
        root.handle(T, refused(shell));
    }
    let (probes, said) = outputs(&mut root);
    assert_eq!(probes.len(), 4, "the agents below are probed");
    assert!(said.is_empty(), "too early: {said:?}");
    for (shell, _) in probes {
        root.handle(T, refused(shell));
    }
    let (_, said) = outputs(&mut root);
    assert!(matches!(cause(&said), Cause::AgentsMissing { missing } if missing.len() == 6), "{said:?}");
    assert!(said.iter().any(|message| matches!(message, Control::Ended(ended) if ended.failure.is_some())));
}

fn linked() -> (Agent, ShellId, LinkId) {
    let (mut root, children) = root();
    let (shell, link) = (children[0].0, LinkId(7));
    root.handle(
        T,
        Input::LinkUp { link, peer: Peer::Child { agent: children[0].1, incarnation: 0 }, local: String::new() },
    );
    (root, shell, link)
}

fn problem(said: &[Control]) -> &str {
    match cause(said) {
        Cause::AgentLost { agent: AgentId(1), problem } => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lost_childs_last_words_are_waited_for() {
    let (mut root, shell, link) = linked();
    root.handle(T, Input::LinkDown { link, problem: "closed".into() });
    assert!(outputs(&mut root).1.is_empty());
    root.handle(
        T + 1_000_000,
        Input::ShellExited { shell, status: ExitStatus::Exited(137), stderr: "Killed\n".into() },
    );
    assert_eq!(problem(&outputs(&mut root).1), "closed; its remote shell exited with code 137: Killed");
}

#[test]
fn a_shell_that_ends_first_is_remembered() {
    let (mut root, shell, link) = linked();
    root.handle(T, Input::ShellExited { shell, status: KILLED, stderr: String::new() });
    assert!(outputs(&mut root).1.is_empty());
    root.handle(T, Input::LinkDown { link, problem: "closed".into() });
    assert_eq!(problem(&outputs(&mut root).1), "closed; its remote shell was killed by signal 9");
}

#[test]
fn a_silent_shell_is_waited_for_a_moment_only() {
    let (mut root, _, link) = linked();
    root.handle(T, Input::LinkDown { link, problem: "closed".into() });
    let until = root.deadline().expect("the root waits for the shell");
    assert!(until <= T + 200_000_000);
    root.handle(until, Input::Tick);
    assert_eq!(problem(&outputs(&mut root).1), "closed");
}
