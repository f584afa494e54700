//! A session that outlives its jobs: which requests of launchers its root grants.

use super::*;
use crate::io::JobEvent;
use wireup_wire::collective::Collective;
use wireup_wire::frame::{DownFrame, Frame, FrameReader};
use wireup_wire::limits::{
    KILLED_BY_LEN_MAX, LAUNCHER_PAYLOAD_MAX, LISTED_NAME_LEN_MAX, STALL_PAUSE_NS, STDIN_WINDOW_BYTES,
};
use wireup_wire::session::Presence;
use wireup_wire::talk::{FromLauncher, JobDown, JobUp, SessionDown, SessionUp, ToLauncher};

pub(super) const LAUNCHER: LinkId = LinkId(50);

pub(super) fn root() -> (TestAgent, u32) {
    let mut root = TestAgent::standing(0);
    root.outputs();
    let job = root.attach(LAUNCHER);
    (root, job)
}

/// A root whose launcher has launched a small job.
pub(super) fn root_with_job() -> (TestAgent, u32) {
    let (mut root, job) = root();
    root.receive_launch(LAUNCHER, small_job(job)).outputs();
    (root, job)
}

/// The root's answers to several messages that arrive together.
pub(super) fn receive_all<M: Into<Control>>(
    root: &mut TestAgent,
    job: u32,
    messages: impl IntoIterator<Item = M>,
) -> Vec<Control> {
    let frames = messages.into_iter().map(|message| control_frame(JobId(job), &message.into()));
    let bytes: Vec<u8> = frames.flat_map(|frame| [&frame.header()[..], &frame.payload].concat()).collect();
    root.handle(Input::LinkBytes { link: LAUNCHER, bytes: bytes.into() }).sent(LAUNCHER)
}

pub(super) fn kill(job: u32, by: &str) -> FromLauncher {
    FromLauncher::KillJob { job: JobId(job), signal: None, by: by.into() }
}

#[test]
fn a_launcher_that_sends_more_than_a_window_loses_its_job() {
    let (mut root, job) = root_with_job();
    let mut written = 0;
    for chunk in 0..9 {
        let payload = Bytes::from(vec![0; STDIN_WINDOW_BYTES / 8]);
        let frame = Frame::new(DownFrame::Input, 0, job, 0, payload);
        let sent = root.receive_frame(LAUNCHER, frame).outputs();
        written += sent.iter().filter(|output| matches!(output, Output::Write { .. })).count();
        let fails = matches!(cause(&sent.sent(LAUNCHER)), Some(Cause::Launcher { problem })
            if problem.contains("standard input"));
        assert_eq!(fails, chunk == 8, "{chunk}");
    }
    assert_eq!(written, 8);
}

#[test]
fn requests_that_arrive_together_are_answered_once() {
    let (mut root, _) = root();
    let ask = |revive| FromLauncher::AskNodes { revive };
    let questions = (0..500).flat_map(|_| [ask(false), FromLauncher::AskJobs]);
    assert!(matches!(
        &receive_all(&mut root, 0, questions)[..],
        [Control::ToLauncher(ToLauncher::Nodes(_)), Control::ToLauncher(ToLauncher::JobList(_))]
    ));
    assert!(matches!(&receive_all(&mut root, 0, [ask(false)])[..], [Control::ToLauncher(ToLauncher::Nodes(_))]));
    // All nodes are known, so the request is answered immediately.
    root.receive(LAUNCHER, 0, ask(false));
    for agent in [1, 2] {
        let link = root.link_child(agent);
        root.receive(link, 0, SessionUp::Here((0..7).map(|agent| (AgentId(agent), 0)).collect()));
    }
    root.outputs();
    let sent = receive_all(&mut root, 0, vec![ask(true); 500]);
    assert!(matches!(&sent[..], [Control::ToLauncher(ToLauncher::Nodes(_))]), "{sent:?}");
}

/// Stall requests are rate-limited because each is sent to all agents of the job, which all answer it.
#[test]
fn stall_requests_of_launchers_are_rate_limited() {
    let (mut root, id) = root_with_job();
    let reports =
        |sent: &[Control]| sent.iter().filter(|message| matches!(message, Control::JobUp(JobUp::Stall(_)))).count();
    let ask = |collective| JobDown::StallAsk { collective };
    assert_eq!(reports(&receive_all(&mut root, id, vec![ask(None); 500])), 1);
    assert_eq!(reports(&receive_all(&mut root, id, [ask(Some(Collective::Ring)), ask(None)])), 0);
    // Requests that arrive before the interval has passed are combined into one.
    let due = root.deadline().expect("a request is pending");
    assert!(due <= T + STALL_PAUSE_NS);
    let sent = root.tick_at(due).sent(LAUNCHER);
    let asked = |message: &Control| {
        matches!(message, Control::JobUp(JobUp::Stall(report))
        if report.collective == Some(Collective::Ring))
    };
    assert!(reports(&sent) == 1 && sent.iter().any(asked), "{sent:?}");
    assert_eq!(reports(&root.tick_at(due + 10 * STALL_PAUSE_NS).sent(LAUNCHER)), 0);
}

/// Whatever killed the keeper may kill the agent next; then other agents can report more, so the report is delayed.
#[test]
fn the_loss_of_the_keeper_is_reported_after_a_delay() {
    let (mut root, id) = root_with_job();
    assert_eq!(cause(&root.event(JobId(id), JobEvent::KeeperLost { problem: None }).sent(LAUNCHER)), None);
    assert_eq!(cause(&root.tick_when_due().sent(LAUNCHER)), Some(&Cause::KeeperLost { problem: None }));
}

#[test]
fn texts_of_launchers_are_truncated() {
    let (mut root, job) = root();
    let mut spec = small_job(job);
    spec.nspace = "é".repeat(LISTED_NAME_LEN_MAX);
    spec.apps[0].argv[0] = vec![0xff; 2 * LISTED_NAME_LEN_MAX];
    receive_all(&mut root, job, [FromLauncher::Launch(spec.into())]);
    let sent = receive_all(&mut root, 0, [FromLauncher::AskJobs]);
    let [Control::ToLauncher(ToLauncher::JobList(jobs))] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(jobs[0].nspace, "é".repeat(LISTED_NAME_LEN_MAX / 2));
    let length = jobs[0].program.len();
    assert!(length <= LISTED_NAME_LEN_MAX && length > LISTED_NAME_LEN_MAX - 4, "{length}");
    let by = format!("x\n{}", "é".repeat(KILLED_BY_LEN_MAX));
    let sent = receive_all(&mut root, 0, [kill(job, &by)]);
    let wanted = format!("x {}", "é".repeat(KILLED_BY_LEN_MAX / 2 - 1));
    assert_eq!(cause(&sent), Some(&Cause::Killed { by: wanted }));
}

#[test]
fn a_launch_that_is_too_long_is_refused() {
    let (mut root, job) = root();
    let mut spec = small_job(job);
    spec.env = vec![vec![b'x'; LAUNCHER_PAYLOAD_MAX]];
    let frame = control_frame(JobId(job), &FromLauncher::Launch(spec.into()).into());
    assert_eq!(FrameReader::new().next(&mut Bytes::copy_from_slice(&frame.header())), Ok(None));
    let header = Bytes::copy_from_slice(&frame.header());
    let outputs = root.handle(Input::LinkBytes { link: LAUNCHER, bytes: header }).outputs();
    let sent = outputs.sent(LAUNCHER);
    assert!(matches!(cause(&sent), Some(Cause::Launcher { problem }) if problem.contains("limit")), "{sent:?}");
    assert!(outputs.closes(LAUNCHER));
}

#[test]
fn a_job_that_names_a_node_twice_is_refused() {
    let (mut root, job) = root();
    let mut spec = small_job(job);
    spec.nodes.push(spec.nodes[0].clone());
    let sent = receive_all(&mut root, job, [FromLauncher::Launch(spec.into())]);
    assert!(matches!(cause(&sent), Some(Cause::Launcher { problem }) if problem.contains("twice")), "{sent:?}");
}

#[test]
fn a_session_that_is_ending_starts_no_agent_again() {
    let (mut root, _) = root_with_job();
    let link = root.link_child(1);
    root.link_down(link).tick_at(T + SECOND).outputs();
    let [revive, ask] = [true, false].map(|revive| FromLauncher::AskNodes { revive });
    let sent = receive_all(&mut root, 0, [FromLauncher::EndSession { kill: true }, revive, ask]);
    assert!(sent.iter().any(|message| matches!(message, Control::ToLauncher(ToLauncher::Decided(Err(_))))), "{sent:?}");
    let is_lost = |nodes: &[wireup_wire::session::NodeState]| matches!(nodes[1].presence, Presence::Lost { .. });
    assert!(
        sent.iter().any(|message| matches!(message, Control::ToLauncher(ToLauncher::Nodes(nodes)) if is_lost(nodes))),
        "{sent:?}"
    );
}

/// The root checks that there are no jobs and decides about the end in one step: no job can start in between.
#[test]
fn a_session_ends_without_jobs_or_with_all_of_them() {
    let (mut root, job) = root();
    let other = LinkId(51);
    let launch = |job| FromLauncher::Launch(small_job(job).into());
    let [gentle, by_force] = [false, true].map(|kill| FromLauncher::EndSession { kill });
    let sent = receive_all(&mut root, job, [launch(job), gentle.clone()]);
    let is_there =
        |message: &Control| matches!(message, Control::ToLauncher(ToLauncher::JobList(jobs)) if jobs.len() == 1);
    assert!(sent.iter().any(is_there), "{sent:?}");
    assert!(
        matches!(sent.last(), Some(Control::ToLauncher(ToLauncher::Decided(Err(_)))))
            && !sent.contains(&Control::ToLauncher(ToLauncher::Decided(Ok(())))),
        "{sent:?}"
    );
    // The session continues and accepts other launchers until it is ended by force.
    let second = root.attach(other);
    assert_eq!(cause(&root.receive(other, second, launch(second)).sent(other)), None);
    let sent = receive_all(&mut root, job, [by_force, gentle]);
    let granted = sent.iter().filter(|message| **message == Control::ToLauncher(ToLauncher::Decided(Ok(())))).count();
    assert!(
        matches!(&sent[0], Control::ToLauncher(ToLauncher::JobList(jobs)) if jobs.len() == 2) && granted == 2,
        "{sent:?}"
    );
    let third = root.attach(LinkId(52));
    let sent = root.receive(LinkId(52), third, launch(third)).sent(LinkId(52));
    assert!(matches!(cause(&sent), Some(Cause::SessionEnded { .. })), "{sent:?}");
}

/// A session without jobs does not delay the end of an allocation.
#[test]
fn an_agent_that_must_end_leaves_when_its_jobs_have_ended() {
    let request = Input::ToldToEnd { signal: 15 };
    let mut idle = TestAgent::standing(1);
    idle.outputs();
    assert!(idle.handle(request.clone()).outputs().contains(&Output::Exit));
    let mut busy = TestAgent::standing(1);
    let mut spec = small_job(5);
    spec.nodes[0].agent = AgentId(1);
    busy.receive(UP, 5, SessionDown::Start { spec: spec.into(), newest: JobId(5), live: vec![JobId(5)] }).outputs();
    let sent = busy.handle(request).outputs();
    let is_reported = |message: &Control| {
        matches!(message, Control::JobUp(JobUp::Failed(Failure { cause: Cause::ToldToEnd { .. }, .. })))
    };
    assert!(sent.sent(UP).iter().any(is_reported) && !sent.contains(&Output::Exit), "{sent:?}");
    busy.receive(UP, 5, JobDown::Over { agents: vec![AgentId(1)] }).tick_at(T + 10 * SECOND);
    assert!(busy.outputs().contains(&Output::Exit));
}

#[test]
fn a_rejoining_agent_that_was_refused_leaves_no_state() {
    let mut agent = TestAgent::standing(1);
    let (link, rejoin) =
        (LinkId(9), Peer::Rejoin { agent: AgentId(3), rejoin: peer::Rejoin { incarnation: 0, at: 0 } });
    let cx = &mut agent.session.cx;
    cx.agent.links.on_link_up(link, rejoin);
    agent.outputs();
    assert!(!agent.link_down(link).outputs().contains(&Output::Exit));
    assert!(agent.session.cx.agent.links.neighbours.has_up(), "it is still linked to its parent");
}

#[test]
fn a_message_in_the_wrong_direction_closes_its_link() {
    let mut agent = TestAgent::standing(1);
    let child = agent.link_child(3);
    agent.outputs();
    agent.receive(child, 0, SessionDown::Shutdown);
    let outputs = agent.outputs();
    assert!(outputs.closes(child) && !outputs.contains(&Output::Exit), "{outputs:?}");
}
