//! A session that outlives its jobs: which requests of launchers its root grants.

use super::starting::{SECOND, T, UP, agent_by, hear, job, outputs, sent};
use super::*;
use wireup_wire::collective::Collective;
use wireup_wire::frame::{Class, FrameReader};
use wireup_wire::job::{Block, StdinTarget};
use wireup_wire::limits::{
    KILLED_BY_LEN_MAX, LAUNCHER_PAYLOAD_MAX, LISTED_NAME_LEN_MAX, STALL_PAUSE_NS, STDIO_WINDOW_BYTES,
};
use wireup_wire::session::Presence;

pub(super) const LAUNCHER: LinkId = LinkId(50);

/// Agent `me` of seven in a standing session; linked to its parent unless it is the root.
pub(super) fn standing(me: u32, remote_shell: RemoteShell) -> Agent {
    let session = SessionSpec { standing: Some(Default::default()), ..agent_by(me, remote_shell).session().clone() };
    let mut agent = Agent::new(AgentConfig::new(AgentId(me), session, Born { process_ns: T.0, bootstrap_ns: T.0 }));
    agent.begin(T);
    if me != 0 {
        agent.handle(T, Input::LinkUp { link: UP, peer: Peer::Parent, local: String::new() });
    }
    agent
}

/// Attaches a launcher; returns the number of its job.
pub(super) fn attach(root: &mut Agent, link: LinkId) -> u32 {
    root.handle(T, Input::LinkUp { link, peer: Peer::Launcher, local: String::new() });
    let said = sent(&outputs(root), link);
    let [Control::Welcome(welcome)] = &said[..] else { panic!("{said:?}") };
    welcome.job.0
}

pub(super) fn root() -> (Agent, u32) {
    let mut root = standing(0, RemoteShell::Local);
    outputs(&mut root);
    let job = attach(&mut root, LAUNCHER);
    (root, job)
}

/// A job of one rank, on the root's node, which reads standard input.
pub(super) fn small(id: u32) -> JobSpec {
    let mut spec = job(id);
    spec.nodes.truncate(1);
    spec.blocks = vec![Block { first_node: 0, nodes: 1, ppn: 1 }];
    spec.apps[0].ranks = 1;
    spec.options.stdin = StdinTarget::All;
    spec
}

/// The root's answers to several messages that arrive together.
pub(super) fn tell(root: &mut Agent, job: u32, messages: &[Control]) -> Vec<Control> {
    let frames = messages.iter().map(|message| control_frame(JobId(job), message));
    let bytes: Vec<u8> = frames.flat_map(|frame| [&frame.header()[..], &frame.payload].concat()).collect();
    root.handle(T, Input::LinkBytes { link: LAUNCHER, bytes: bytes.into() });
    sent(&outputs(root), LAUNCHER)
}

pub(super) fn cause(said: &[Control]) -> Option<&Cause> {
    said.iter().find_map(|message| match message {
        Control::Failed(failure) | Control::Ended(peer::Ended { failure: Some(failure), .. }) => Some(&failure.cause),
        _ => None,
    })
}

pub(super) fn kill(job: u32, by: &str) -> Control {
    Control::KillJob { job: JobId(job), signal: None, by: by.into() }
}

#[test]
fn a_launcher_that_sends_more_than_a_window_loses_its_job() {
    let (mut root, job) = root();
    tell(&mut root, job, &[Control::Launch(small(job).into())]);
    let mut written = 0;
    for chunk in 0..9 {
        let payload = Bytes::from(vec![0; STDIO_WINDOW_BYTES / 8]);
        let frame = Frame { kind: Kind::Input, class: Class::Stdio, stream: 0, job, arg: 0, payload };
        root.handle(T, Input::LinkBytes { link: LAUNCHER, bytes: Bytes::copy_from_slice(&frame.header()) });
        root.handle(T, Input::LinkBytes { link: LAUNCHER, bytes: frame.payload });
        let said = outputs(&mut root);
        written += said.iter().filter(|output| matches!(output, Output::Write { .. })).count();
        let fails = matches!(cause(&sent(&said, LAUNCHER)), Some(Cause::Launcher { problem }) if problem.contains("standard input"));
        assert_eq!(fails, chunk == 8, "{chunk}");
    }
    assert_eq!(written, 8);
}

#[test]
fn questions_that_come_together_are_answered_once() {
    let (mut root, _) = root();
    let questions: Vec<Control> = (0..500).flat_map(|_| [Control::AskNodes, Control::AskJobs]).collect();
    assert!(matches!(&tell(&mut root, 0, &questions)[..], [Control::Nodes(_), Control::JobList(_)]));
    assert!(matches!(&tell(&mut root, 0, &questions[..1])[..], [Control::Nodes(_)]));
    // All nodes are known, so the request is answered immediately.
    hear(&mut root, T, LAUNCHER, 0, &Control::AskNodes);
    for agent in [1, 2] {
        let link = super::starting::link_child(&mut root, T, agent);
        let here = Control::Here((0..7).map(|agent| (AgentId(agent), 0)).collect());
        hear(&mut root, T, link, 0, &here);
    }
    outputs(&mut root);
    assert!(matches!(&tell(&mut root, 0, &vec![Control::Revive; 500])[..], [Control::Nodes(_)]));
}

/// Each request is sent to all agents of the job, and each of them answers.
#[test]
fn who_has_not_arrived_is_asked_once_in_a_while() {
    let (mut root, id) = root();
    let reports = |said: &[Control]| said.iter().filter(|message| matches!(message, Control::Stall(_))).count();
    let ask = |collective| Control::StallAsk { collective };
    tell(&mut root, id, &[Control::Launch(small(id).into())]);
    assert_eq!(reports(&tell(&mut root, id, &vec![ask(None); 500])), 1);
    assert_eq!(reports(&tell(&mut root, id, &[ask(Some(Collective::Ring)), ask(None)])), 0);
    // Requests made meanwhile are combined into one.
    let due = root.deadline().expect("a request is pending");
    assert!(due <= T + STALL_PAUSE_NS);
    root.handle(due, Input::Tick);
    let said = sent(&outputs(&mut root), LAUNCHER);
    let asked =
        |message: &Control| matches!(message, Control::Stall(report) if report.collective == Some(Collective::Ring));
    assert!(reports(&said) == 1 && said.iter().any(asked), "{said:?}");
    root.handle(due + 10 * STALL_PAUSE_NS, Input::Tick);
    assert_eq!(reports(&sent(&outputs(&mut root), LAUNCHER)), 0);
}

/// Whatever killed the keeper may be about to kill the agent too; other agents can then report more.
#[test]
fn that_the_keeper_is_gone_is_told_a_moment_later() {
    let (mut root, id) = root();
    tell(&mut root, id, &[Control::Launch(small(id).into())]);
    root.handle(T, Input::KeeperLost { job: JobId(id) });
    assert_eq!(cause(&sent(&outputs(&mut root), LAUNCHER)), None);
    root.handle(root.deadline().expect("it is reported eventually"), Input::Tick);
    assert_eq!(cause(&sent(&outputs(&mut root), LAUNCHER)), Some(&Cause::KeeperLost));
}

#[test]
fn words_of_launchers_are_cut() {
    let (mut root, job) = root();
    let mut spec = small(job);
    spec.nspace = "é".repeat(LISTED_NAME_LEN_MAX);
    spec.apps[0].argv[0] = vec![0xff; 2 * LISTED_NAME_LEN_MAX];
    tell(&mut root, job, &[Control::Launch(spec.into())]);
    let said = tell(&mut root, 0, &[Control::AskJobs]);
    let [Control::JobList(jobs)] = &said[..] else { panic!("{said:?}") };
    assert_eq!(jobs[0].nspace, "é".repeat(LISTED_NAME_LEN_MAX / 2));
    let length = jobs[0].program.len();
    assert!(length <= LISTED_NAME_LEN_MAX && length > LISTED_NAME_LEN_MAX - 4, "{length}");
    let by = format!("x\n{}", "é".repeat(KILLED_BY_LEN_MAX));
    let said = tell(&mut root, 0, &[kill(job, &by)]);
    let wanted = format!("x {}", "é".repeat(KILLED_BY_LEN_MAX / 2 - 1));
    assert_eq!(cause(&said), Some(&Cause::Killed { by: wanted }));
}

#[test]
fn a_launch_that_is_too_long_is_refused() {
    let (mut root, job) = root();
    let mut spec = small(job);
    spec.env = vec![vec![b'x'; LAUNCHER_PAYLOAD_MAX]];
    let frame = control_frame(JobId(job), &Control::Launch(spec.into()));
    assert_eq!(FrameReader::new().next(&mut Bytes::copy_from_slice(&frame.header())), Ok(None));
    root.handle(T, Input::LinkBytes { link: LAUNCHER, bytes: Bytes::copy_from_slice(&frame.header()) });
    let said = outputs(&mut root);
    let told = sent(&said, LAUNCHER);
    assert!(matches!(cause(&told), Some(Cause::Launcher { problem }) if problem.contains("limit")), "{told:?}");
    assert!(said.contains(&Output::CloseLink { link: LAUNCHER }));
}

#[test]
fn a_node_has_one_place_in_a_job() {
    let (mut root, job) = root();
    let mut spec = small(job);
    spec.nodes.push(spec.nodes[0].clone());
    let told = tell(&mut root, job, &[Control::Launch(spec.into())]);
    assert!(matches!(cause(&told), Some(Cause::Launcher { problem }) if problem.contains("twice")), "{told:?}");
}

#[test]
fn a_session_that_ends_starts_nobody_again() {
    let (mut root, job) = root();
    tell(&mut root, job, &[Control::Launch(small(job).into())]);
    let link = super::starting::link_child(&mut root, T, 1);
    root.handle(T, Input::LinkDown { link, problem: "closed".into() });
    root.handle(T + SECOND, Input::Tick);
    outputs(&mut root);
    let said = tell(&mut root, 0, &[Control::EndSession { kill: true }, Control::Revive, Control::AskNodes]);
    assert!(said.iter().any(|message| matches!(message, Control::Refused { .. })), "{said:?}");
    let is_lost = |nodes: &[wireup_wire::session::NodeState]| matches!(nodes[1].presence, Presence::Lost { .. });
    assert!(said.iter().any(|message| matches!(message, Control::Nodes(nodes) if is_lost(nodes))), "{said:?}");
}

/// The check for jobs and the decision are one step.
#[test]
fn a_session_ends_without_jobs_or_with_all_of_them() {
    let (mut root, job) = root();
    let other = LinkId(51);
    let launch = |job| Control::Launch(small(job).into());
    let [gentle, by_force] = [false, true].map(|kill| Control::EndSession { kill });
    let said = tell(&mut root, job, &[launch(job), gentle.clone()]);
    let is_there = |message: &Control| matches!(message, Control::JobList(jobs) if jobs.len() == 1);
    assert!(said.iter().any(is_there), "{said:?}");
    assert!(matches!(said.last(), Some(Control::Refused { .. })) && !said.contains(&Control::Granted), "{said:?}");
    // The session continues and accepts other launchers until it is ended by force.
    let second = attach(&mut root, other);
    hear(&mut root, T, other, second, &launch(second));
    assert_eq!(cause(&sent(&outputs(&mut root), other)), None);
    let said = tell(&mut root, job, &[by_force, gentle]);
    let granted = said.iter().filter(|message| **message == Control::Granted).count();
    assert!(matches!(&said[0], Control::JobList(jobs) if jobs.len() == 2) && granted == 2, "{said:?}");
    let third = attach(&mut root, LinkId(52));
    hear(&mut root, T, LinkId(52), third, &launch(third));
    let told = sent(&outputs(&mut root), LinkId(52));
    assert!(matches!(cause(&told), Some(Cause::SessionEnded { .. })), "{told:?}");
}

#[test]
fn a_job_that_comes_behind_the_end_is_refused() {
    let (mut root, job) = self::root();
    let said = tell(&mut root, job, &[Control::EndSession { kill: false }, Control::Launch(small(job).into())]);
    assert!(matches!(&said[..2], [Control::JobList(jobs), Control::Granted] if jobs.is_empty()), "{said:?}");
    assert!(matches!(cause(&said), Some(Cause::SessionEnded { .. })), "{said:?}");
}

/// A session without jobs does not delay the end of an allocation.
#[test]
fn an_agent_that_is_told_to_end_leaves_when_its_jobs_are_over() {
    let told = Input::ToldToEnd { signal: 15 };
    let mut idle = standing(1, RemoteShell::Local);
    outputs(&mut idle);
    idle.handle(T, told.clone());
    assert!(outputs(&mut idle).contains(&Output::Exit));
    let mut busy = standing(1, RemoteShell::Local);
    let mut spec = small(5);
    spec.nodes[0].agent = AgentId(1);
    hear(&mut busy, T, UP, 5, &Control::Start { spec: spec.into(), newest: JobId(5), live: vec![JobId(5)] });
    outputs(&mut busy);
    busy.handle(T, told);
    let said = outputs(&mut busy);
    let is_told =
        |message: &Control| matches!(message, Control::Failed(Failure { cause: Cause::ToldToEnd { .. }, .. }));
    assert!(sent(&said, UP).iter().any(is_told) && !said.contains(&Output::Exit), "{said:?}");
    hear(&mut busy, T, UP, 5, &Control::Over { agents: vec![AgentId(1)] });
    busy.handle(T + 10 * SECOND, Input::Tick);
    assert!(outputs(&mut busy).contains(&Output::Exit));
}

#[test]
fn a_rejoining_agent_that_was_refused_leaves_no_state() {
    let mut agent = standing(1, RemoteShell::Local);
    let (link, rejoin) =
        (LinkId(9), Peer::Rejoin { agent: AgentId(3), rejoin: peer::Rejoin { incarnation: 0, at: 0 } });
    agent.links.on_link_up(link, rejoin, &mut agent.out);
    outputs(&mut agent);
    agent.handle(T, Input::LinkDown { link, problem: "closed".into() });
    assert!(!outputs(&mut agent).contains(&Output::Exit));
    assert!(agent.links.neighbours.has_up(), "it is still linked to its parent");
}
