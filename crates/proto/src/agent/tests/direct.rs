//! Direct links, from the viewpoint of one agent of seven, 0 - (1, 2), 1 - (3, 4), 2 - (5, 6).

use super::*;
use wireup_wire::addresses;
use wireup_wire::collective::{Algorithm, Collective, RoundTag};
use wireup_wire::frame::{DownFrame, Frame, FrameKind, PeerFrame, UpFrame};
use wireup_wire::limits::{DIRECT_WAIT_NS_MAX, DIRECT_WAITING_BYTES_MAX, ROUTED_BYTES_MAX};
use wireup_wire::modex::Between;
use wireup_wire::peer::{Cause, Note};
use wireup_wire::pmix::Wanted;
use wireup_wire::route::{Endpoint, Incarnations, Routed};
use wireup_wire::session::Log;
use wireup_wire::talk::{JobDown, JobUp, SessionDown};

/// Agent 3, with a job, linked to its parent.
fn three() -> TestAgent {
    with_job(TestAgent::new(3, session(7)))
}

/// Agent 3 with a job, linked to its parent, before it knows its own listening address.
fn three_without_address() -> TestAgent {
    with_job(TestAgent::linked(3, session(7)))
}

fn with_job(mut agent: TestAgent) -> TestAgent {
    agent.receive_launch(UP, job(1)).outputs();
    agent
}

const DIRECT: FrameKind = FrameKind::Peer(PeerFrame::Direct);

pub(super) fn frame(job: u32, arg: u32) -> Frame {
    let payload = Bytes::copy_from_slice(&arg.to_le_bytes());
    Frame::new(DIRECT, 0, job, arg, payload)
}

/// A frame with half of the payload that may wait.
fn half_of_bound(job: u32) -> Frame {
    Frame { payload: vec![0; DIRECT_WAITING_BYTES_MAX / 2].into(), ..frame(job, 0) }
}

pub(super) fn send(agent: &mut TestAgent, to: u32, frame: Frame) {
    let now = agent.now;
    let cx = &mut agent.session.cx;
    cx.set_now(now);
    cx.agent.links.send_peer(AgentId(to), frame);
}

fn offer(from: u32) -> Option<Endpoint> {
    Some(Endpoint { addresses: vec![format!("a{from}")], failed: None, point: None })
}

fn refusal(from: u32, problem: &str) -> Option<Endpoint> {
    Some(Endpoint { failed: Some(problem.into()), ..offer(from).unwrap() })
}

fn cannot_listen(problem: &str) -> Option<Endpoint> {
    Some(Endpoint { failed: Some(problem.into()), ..Endpoint::default() })
}

fn routed(from: u32, to: u32, endpoint: Option<Endpoint>, inner: Option<(u32, Frame)>) -> Frame {
    Routed { from: AgentId(from), to: AgentId(to), incarnations: Incarnations::default(), endpoint, frame: inner }
        .wrap(1)
}

fn dials(outputs: &[Output]) -> Vec<(u32, Vec<String>)> {
    let dial = |output: &Output| match output {
        Output::Dial { agent, addresses, .. } => Some((agent.0, addresses.clone())),
        _ => None,
    };
    outputs.iter().filter_map(dial).collect()
}

fn link_up(agent: &mut TestAgent, peer: u32) -> LinkId {
    let link = LinkId(200 + peer);
    agent.link_up(link, Peer::Direct(AgentId(peer)));
    link
}

/// Kind, `stream` and `arg` of the frames on a link.
fn on_link(outputs: &[Output], to: LinkId) -> Vec<(FrameKind, u16, u32)> {
    let of = |output: &Output| match output {
        Output::Send { link, frame } if *link == to => Some((frame.kind, frame.stream, frame.arg)),
        _ => None,
    };
    outputs.iter().filter_map(of).collect()
}

/// A routed frame: its receiver, its endpoint, and the number and `arg` of the frame inside.
type Through = (u32, Option<Endpoint>, Option<(u32, u32)>);

/// The frames that were sent through the tree.
fn through_tree(outputs: &[Output], to: LinkId) -> Vec<Through> {
    let of = |output: &Output| match output {
        Output::Send { link, frame } if *link == to && frame.kind == FrameKind::Routed => {
            let routed = Routed::unwrap(frame.clone()).unwrap();
            Some((routed.to.0, routed.endpoint, routed.frame.map(|(number, frame)| (number, frame.arg))))
        }
        _ => None,
    };
    outputs.iter().filter_map(of).collect()
}

/// The notes to the user that are sent at time `now`: for each peer, why frames to it use the tree.
fn notes(agent: &mut TestAgent, now: Instant) -> Vec<(u32, String)> {
    let note = |message: Control| match message {
        Control::Note(Note::Routed { peer, problem, .. }) => Some((peer.0, problem)),
        Control::JobUp(JobUp::Failed(failure)) => panic!("{failure:?}"),
        _ => None,
    };
    agent.tick_at(now).sent(UP).into_iter().filter_map(note).collect()
}

fn own() -> Option<Endpoint> {
    Some(Endpoint { addresses: vec!["10.0.0.1:5".into()], failed: None, point: None })
}

#[test]
fn frames_use_the_tree_until_there_is_a_link_and_the_first_carries_the_endpoint() {
    let mut three = three();
    (0..3).for_each(|arg| send(&mut three, 5, frame(1, arg)));
    let outputs = through_tree(&three.outputs(), UP);
    assert_eq!(outputs, [(5, own(), Some((0, 0))), (5, None, Some((1, 1))), (5, None, Some((2, 2)))]);
    let link = link_up(&mut three, 5);
    send(&mut three, 5, frame(1, 3));
    let direct = on_link(&three.outputs(), link);
    assert_eq!(direct, [(FrameKind::Pair, 0, 3), (DIRECT, 0, 3)], "the link starts with number 3");
    let again = LinkId(300);
    assert_eq!(
        three.link_up(again, Peer::Direct(AgentId(5))).outputs(),
        [Output::CloseLink { link: again }],
        "a second one is not needed"
    );
}

#[test]
fn a_large_frame_waits_for_the_link_for_a_limited_time() {
    let large = |arg| Frame { payload: vec![0; ROUTED_BYTES_MAX].into(), ..frame(1, arg) };
    let mut three = three();
    send(&mut three, 5, large(0));
    send(&mut three, 5, frame(1, 1));
    let outputs = three.outputs();
    assert_eq!(through_tree(&outputs, UP), [(5, own(), None)], "in order: the small one waits too");
    let link = link_up(&mut three, 5);
    assert_eq!(on_link(&three.outputs(), link), [(FrameKind::Pair, 0, 0), (DIRECT, 0, 0), (DIRECT, 0, 1)]);
    let mut three = self::three();
    send(&mut three, 5, large(0));
    three.outputs();
    assert_eq!(three.session.cx.agent.links.direct.deadline(), Some(T + DIRECT_WAIT_NS_MAX));
    assert_eq!(through_tree(&three.tick_at(T + DIRECT_WAIT_NS_MAX).outputs(), UP), [(5, None, Some((0, 0)))]);
    send(&mut three, 5, large(0));
    assert_eq!(
        through_tree(&three.outputs(), UP),
        [(5, None, Some((1, 0)))],
        "after a late link it does not wait again"
    );
    let link = link_up(&mut three, 5);
    assert_eq!(on_link(&three.outputs(), link), [(FrameKind::Pair, 0, 2)], "a late link is still used");
}

#[test]
fn an_agent_without_an_address_listens_first() {
    let mut three = three_without_address();
    send(&mut three, 5, frame(1, 0));
    send(&mut three, 6, frame(1, 0));
    assert_eq!(three.outputs(), [Output::Listen]);
    three.handle(Input::Listening { result: Ok(vec!["there:1".into()]) });
    let there = Some(Endpoint { addresses: vec!["there:1".into()], failed: None, point: None });
    let outputs = through_tree(&three.outputs(), UP);
    assert_eq!(outputs, [(5, there.clone(), Some((0, 0))), (6, there, Some((0, 0)))]);
    // An agent that receives a peer's endpoint before it knows its own address dials that peer, whichever id is lower.
    let mut three = three_without_address();
    send(&mut three, 5, frame(1, 0));
    let outputs = three.receive_frame(UP, routed(5, 3, offer(5), None)).outputs();
    assert_eq!(dials(&outputs), [(5, vec!["a5".to_owned()])]);
    assert_eq!(through_tree(&outputs, UP), [(5, None, Some((0, 0)))], "the frame does not wait");
    assert!(three.handle(Input::Listening { result: Ok(vec!["there:1".into()]) }).outputs().is_empty());
}

#[test]
fn an_agent_that_cannot_listen_uses_the_tree() {
    let mut three = three_without_address();
    send(&mut three, 5, frame(1, 0));
    three.handle(Input::Listening { result: Err("no such interface".into()) });
    let problem = "no such interface; so other agents cannot connect to it";
    assert_eq!(through_tree(&three.outputs(), UP), [(5, cannot_listen(problem), None), (5, None, Some((0, 0)))]);
    assert_eq!(notes(&mut three, T), [(5, problem.to_owned())]);
    send(&mut three, 6, frame(1, 0));
    assert!(three.outputs().contains(&Output::Listen), "it tries again next time");
}

#[test]
fn if_two_endpoints_cross_the_agent_with_the_lower_id_is_dialled() {
    let mut three = three();
    send(&mut three, 5, frame(1, 0));
    send(&mut three, 2, frame(1, 7));
    three.outputs();
    assert!(three.receive_frame(UP, routed(5, 3, offer(5), None)).outputs().is_empty(), "the receiver 5 dials");
    assert_eq!(dials(&three.receive_frame(UP, routed(2, 3, offer(2), None)).outputs()), [(2, vec!["a2".to_owned()])]);
    assert!(three.receive_frame(UP, routed(2, 3, offer(2), None)).outputs().is_empty(), "it dials only once");
}

#[test]
fn neighbours_in_the_tree_use_their_tree_link() {
    let mut one = with_job(TestAgent::new(1, session(7)));
    let child = one.link_child(3);
    one.outputs();
    for to in [0, 3, 4] {
        send(&mut one, to, frame(1, to));
    }
    let flushed = one.outputs();
    assert_eq!(on_link(&flushed, UP), [(DIRECT, 0, 0)]);
    assert_eq!(on_link(&flushed, child), [(DIRECT, 0, 3)]);
    assert_eq!(flushed.len(), 2, "4 has not linked yet: {flushed:?}");
    let late = one.link_child(4);
    assert!(on_link(&one.outputs(), late).contains(&(DIRECT, 0, 4)));
    assert!(one.receive_frame(child, routed(3, 1, offer(3), None)).outputs().is_empty());
}

#[test]
fn routed_frames_are_forwarded_on_the_path_or_dropped() {
    let mut one = with_job(TestAgent::new(1, session(7)));
    let (three, four) = (one.link_child(3), one.link_child(4));
    one.outputs();
    for (link, from, to) in [(three, 3, 5), (three, 3, 4), (UP, 6, 3)] {
        one.receive_frame(link, routed(from, to, offer(from), Some((9, frame(1, from)))));
    }
    let passed = one.outputs();
    let on = [UP, four, three].map(|link| through_tree(&passed, link));
    let [up, to_four, to_three] = [(5, 3), (4, 3), (3, 6)].map(|(to, from)| vec![(to, offer(from), Some((9, from)))]);
    assert_eq!(on, [up, to_four, to_three]);
    // Routed frames from impossible senders or to impossible receivers are dropped.
    for (link, from, to) in [(three, 4, 5), (three, 3, 3), (UP, 4, 3), (UP, 6, 5), (UP, 2, 0), (UP, 99, 98)] {
        one.receive_frame(link, routed(from, to, offer(from), None));
    }
    assert!(one.outputs().is_empty());
    // Only the root knows which agents were added to the tree: another agent forwards a frame for an unknown agent to
    // it.
    one.receive_frame(three, routed(3, 99, offer(3), None));
    assert_eq!(through_tree(&one.outputs(), UP).len(), 1);
    let mut root = with_job(TestAgent::new(0, session(7)));
    let child = root.link_child(1);
    root.outputs();
    root.receive_frame(child, routed(3, 99, offer(3), None));
    assert!(root.outputs().is_empty());
}

#[test]
fn unexpected_direct_links_are_closed() {
    let mut three = three();
    for peer in [0, 1, 5, 99] {
        let link = link_up(&mut three, peer);
        assert_eq!(three.outputs(), [Output::CloseLink { link }]);
    }
}

#[test]
fn an_agent_that_cannot_dial_asks_to_be_dialled_and_then_uses_the_tree() {
    // Agent 5 could not dial agent 3 and asks agent 3 to dial.
    let mut three = three();
    send(&mut three, 5, frame(1, 0));
    three.outputs();
    three.receive_frame(UP, routed(5, 3, refusal(5, "a3: refused"), None));
    assert_eq!(dials(&three.outputs()), [(5, vec!["a5".to_owned()])]);
    let failed = || Input::DialFailed { agent: Some(AgentId(5)), problem: "a5: refused".into() };
    three.handle(failed());
    let both = "a5: refused; in the other direction: a3: refused";
    assert_eq!(through_tree(&three.outputs(), UP), [(5, cannot_listen(both), None)]);
    assert_eq!(notes(&mut three, T), [(5, both.to_owned())]);
    assert_eq!(three.session.cx.agent.links.direct.deadline(), None);
    // Agent 3 fails to dial and asks 5 to dial.
    let mut three = self::three();
    three.receive_frame(UP, routed(5, 3, offer(5), None)).handle(failed());
    let refusal = Some(Endpoint { failed: Some("a5: refused".into()), ..own().unwrap() });
    assert_eq!(through_tree(&three.outputs(), UP), [(5, refusal, None)]);
    assert!(three.session.cx.agent.links.direct.expects(AgentId(5)));
    three.receive_frame(UP, routed(5, 3, cannot_listen(both), None));
    assert_eq!(notes(&mut three, T), [], "5 sends the note");
    send(&mut three, 5, frame(1, 0));
    assert_eq!(through_tree(&three.outputs(), UP), [(5, None, Some((0, 0)))]);
    let late = link_up(&mut three, 5);
    assert_eq!(three.outputs(), [Output::CloseLink { link: late }]);
}

#[test]
fn a_broken_link_loses_no_frame_and_is_reported_after_a_delay() {
    let mut three = three();
    send(&mut three, 5, frame(1, 0));
    let link = link_up(&mut three, 5);
    (1..4).for_each(|arg| send(&mut three, 5, frame(1, arg)));
    three.receive_frame(link, Frame { kind: FrameKind::Pair, stream: 1, ..frame(0, 2) }).outputs();
    three.handle(Input::LinkDown { link, problem: "reset".into() });
    send(&mut three, 5, frame(1, 4));
    assert_eq!(through_tree(&three.outputs(), UP), [(5, None, Some((4, 4)))], "new frames do not wait");
    let again = three.deadline().expect("a resend is due");
    assert!(again > T && again < T + SECOND);
    let again = through_tree(&three.tick_at(again).outputs(), UP);
    let problem = "their link broke: reset";
    assert_eq!(again, [(5, cannot_listen(problem), None), (5, None, Some((2, 2))), (5, None, Some((3, 3)))]);
    let due = three.deadline().expect("a note is due");
    assert!(due > T && due < T + SECOND);
    assert_eq!(notes(&mut three, T), []);
    assert_eq!(notes(&mut three, due), [(5, problem.to_owned())]);
    // A further offer of the peer is ignored: the two agents make no new direct link.
    assert!(three.receive_frame(UP, routed(5, 3, offer(5), None)).outputs().is_empty());
}

#[test]
fn if_the_peer_has_lost_the_link_it_is_closed_and_frames_are_sent_again() {
    let mut three = three();
    send(&mut three, 5, frame(1, 0));
    let link = link_up(&mut three, 5);
    send(&mut three, 5, frame(1, 1));
    three.outputs();
    let outputs = three.receive_frame(UP, routed(5, 3, cannot_listen("their link broke"), None)).outputs();
    assert!(outputs.contains(&Output::CloseLink { link }));
    assert_eq!(through_tree(&outputs, UP), [(5, None, Some((1, 1)))]);
    assert_eq!(notes(&mut three, T + SECOND), [], "5 sends the note");
}

#[test]
fn frames_that_wait_for_an_earlier_one_are_bounded() {
    let mut three = three();
    for number in 1..3 {
        three.receive_frame(UP, routed(5, 3, None, Some((number, half_of_bound(1)))));
    }
    let sent = three.handle(Input::Tick).sent(UP);
    assert!(matches!(cause(&sent), Some(Cause::NoDirectLink { problem, .. })
            if problem.contains("while earlier frames are missing")));
}

#[test]
fn frames_that_arrive_before_their_job_are_kept_up_to_a_bound() {
    let mut three = three();
    for (number, (job, arg)) in [(2, 7), (2, 8), (3, 9)].into_iter().enumerate() {
        three.receive_frame(UP, routed(5, 3, None, Some((number as u32, frame(job, arg)))));
    }
    let early: Vec<u32> = three.session.early.take_waited(JobId(2)).frames.iter().map(|(_, frame)| frame.arg).collect();
    assert_eq!(early, [7, 8]);
    three.receive_frame(UP, routed(5, 3, None, Some((3, frame(2, 10)))));
    assert!(three.session.early.take_waited(JobId(2)).frames.is_empty(), "the job has ended");
    for number in 4..6 {
        three.receive_frame(UP, routed(5, 3, None, Some((number, half_of_bound(3)))));
    }
    let waited = three.session.early.take_waited(JobId(3));
    assert_eq!((waited.frames.len(), waited.is_cut), (2, true), "the job gets an error");
}

#[test]
fn a_broken_link_is_not_reported_after_the_job_has_ended() {
    let mut three = three();
    send(&mut three, 5, frame(1, 0));
    let link = link_up(&mut three, 5);
    three.session.cx.agent.links.direct.forget(JobId(1));
    three.link_down(link);
    assert_eq!(notes(&mut three, T + SECOND), []);
}

#[test]
fn an_answer_for_an_ended_job_leaves_no_trace_of_the_job() {
    let ranks = vec![wireup_wire::ids::Rank(3)];
    let address = addresses::Between::Want { name: "net".into(), ranks: ranks.clone() };
    for (kind, want) in [
        (PeerFrame::Modex, peer::encode(&Between::Want { wanted: vec![Wanted::data_of(ranks[0])] })),
        (PeerFrame::Addresses, peer::encode(&address)),
    ] {
        let mut three = TestAgent::new(3, standing(session(7)));
        three.session.early.take_waited(JobId(1));
        // The request about the ended job has the later sequence number: it waits for a frame of another job.
        let want = Frame::new(kind, 0, 1, 0, want.into());
        three.receive_frame(UP, routed(5, 3, None, Some((1, want))));
        three.receive_frame(UP, routed(5, 3, None, Some((0, frame(2, 0)))));
        assert!(!through_tree(&three.outputs(), UP).is_empty(), "the request is answered");
        assert_eq!(three.session.cx.agent.links.direct.jobs(), [JobId(2)].into());
    }
}

/// The problems because of which the job failed.
fn problems(outputs: &[Output]) -> Vec<String> {
    let problem = |message| match message {
        Control::JobUp(JobUp::Failed(Failure { cause: Cause::Pmi { problem }, .. })) => Some(problem),
        _ => None,
    };
    outputs.sent(UP).into_iter().filter_map(problem).collect()
}

#[test]
fn unknown_numbers_fail_the_job_and_name_the_node() {
    let beyond_the_tag =
        RoundTag::to_stream(RoundTag { collective: Collective::Fence, algorithm: Algorithm::new(8), round: 0 });
    for (kind, stream, problem) in [
        (DIRECT, 2, "node 5: a collective of unknown number 4"),
        (DIRECT, beyond_the_tag, "collective 0 of the job: node 5: this version has no exchange algorithm 8"),
        (FrameKind::Down(DownFrame::ExchangeDown), 15 << 2, "the parent agent: an exchange frame of unknown form 15"),
        (FrameKind::Down(DownFrame::ExchangeDown), 1 << 8, "the parent agent: a collective of unknown number 4"),
    ] {
        let mut three = three();
        let frame = Frame { kind, stream, ..frame(1, 0) };
        match kind {
            DIRECT => three.receive_frame(UP, routed(5, 3, None, Some((0, frame)))),
            _ => three.receive_frame(UP, frame),
        };
        assert_eq!(problems(&three.outputs()), [problem]);
    }
}

#[test]
fn a_frame_of_an_unknown_kind_ends_the_link_and_names_the_peer() {
    let mut root = with_job(TestAgent::new(0, session(7)));
    let link = root.link_child(1);
    root.outputs();
    let mut header = frame(1, 0).header();
    header[4] = 99;
    root.handle(Input::LinkBytes { link, bytes: Bytes::copy_from_slice(&header) });
    let outputs = root.tick_at(T + SECOND).outputs();
    assert!(outputs.contains(&Output::CloseLink { link }));
    let cause = Cause::AgentLost { agent: AgentId(1), problem: "frame of unknown kind 99".into() };
    let is_it = |message: &Control| {
        matches!(message, Control::JobUp(JobUp::Failed(failure))
        if failure.host == "n1" && failure.cause == cause)
    };
    assert!(outputs.sent(UP).iter().any(is_it));
}

/// One frame of each of these kinds.
fn frames<K: Copy + Into<FrameKind>>(kinds: &'static [K]) -> impl Iterator<Item = Frame> {
    kinds.iter().map(|kind| Frame::new(*kind, 0, 1, 0, Bytes::new()))
}

#[test]
fn a_frame_that_a_child_cannot_send_ends_the_link_and_names_the_child() {
    let kill = control_frame(JobId(1), &JobDown::Kill { grace_ns: 0 }.into());
    let pair = Frame::new(FrameKind::Pair, 0, 0, 0, Bytes::new());
    for frame in frames(DownFrame::ALL).chain([kill, pair]) {
        let mut root = with_job(TestAgent::new(0, session(7)));
        let link = root.link_child(1);
        root.outputs();
        let mut outputs = root.receive_frame(link, frame.clone()).outputs();
        assert!(outputs.closes(link), "{frame:?}");
        outputs.extend(root.tick_at(T + SECOND).outputs());
        let failed = outputs.sent(UP).into_iter().find(|message| matches!(message, Control::JobUp(JobUp::Failed(_))));
        let text = format!("{failed:?}");
        assert!(text.contains("n1") && text.contains(&PeerError::Misdirected.to_string()), "{frame:?}: {text}");
        assert!(!root.session.leaving.has_left());
        // Frames of a job that has ended may still be in transit: they do not close the link.
        let mut root = with_job(TestAgent::new(0, session(7)));
        let link = root.link_child(1);
        root.outputs();
        let is_of_link = frame.kind == FrameKind::Pair;
        assert_eq!(root.receive_frame(link, Frame { job: 2, ..frame }).outputs().closes(link), is_of_link);
    }
}

#[test]
fn a_frame_that_a_parent_or_launcher_cannot_send_ends_the_link() {
    let down = frames(DownFrame::ALL)
        .filter(|frame| !matches!(frame.kind, FrameKind::Down(kind) if kind.may_come_from_launcher()));
    let ready = || control_frame(JobId(1), &JobUp::Ready.into());
    let start = control_frame(JobId(1), &JobDown::StartRanks.into());
    let to_root =
        frames(UpFrame::ALL).chain(frames(PeerFrame::ALL)).chain(down).chain([ready(), start]).map(|frame| (0, frame));
    let launch = control_frame(JobId(1), &FromLauncher::Launch(job(1).into()).into());
    let to_three = frames(UpFrame::ALL).chain([ready(), launch]).map(|frame| (3, frame));
    for (me, frame) in to_root.chain(to_three) {
        let mut agent = with_job(TestAgent::new(me, session(7)));
        assert!(agent.receive_frame(UP, frame.clone()).outputs().closes(UP), "agent {me}: {frame:?}");
    }
}

#[test]
fn a_frame_that_another_agent_cannot_send_fails_the_job_and_ends_their_link() {
    let problem = format!("n5: {}", PeerError::Misdirected);
    let orders = [
        Control::SessionDown(SessionDown::Shutdown),
        Control::JobDown(JobDown::Kill { grace_ns: 0 }),
        Control::JobUp(JobUp::Done(Default::default())),
    ];
    let orders = orders.iter().map(|order| control_frame(JobId(1), order));
    let of_trees =
        frames(DownFrame::ALL).chain(frames(UpFrame::ALL)).filter(|frame| frame.kind != DownFrame::NamesDown.into());
    for frame in of_trees.chain(orders) {
        let mut three = three();
        let outputs = three.receive_frame(UP, routed(5, 3, None, Some((0, frame.clone())))).outputs();
        assert_eq!(problems(&outputs), [problem.as_str()], "{frame:?}");
        assert!(!outputs.closes(UP), "another agent has only forwarded it");

        let mut three = self::three();
        send(&mut three, 5, self::frame(1, 0));
        let link = link_up(&mut three, 5);
        three.receive_frame(link, Frame::new(FrameKind::Pair, 0, 0, 0, Bytes::new())).outputs();
        let outputs = three.receive_frame(link, frame.clone()).outputs();
        assert_eq!(problems(&outputs), [problem.as_str()], "{frame:?}");
        assert!(outputs.closes(link) && !three.session.leaving.has_left());
    }
}

#[test]
fn what_arrived_for_a_job_that_never_starts_here_is_forgotten() {
    let mut agent = TestAgent::standing(3);
    agent.receive_frame(UP, routed(5, 3, offer(5), None));
    assert_eq!(agent.holds().direct_jobs, 1);
    agent.receive(UP, 0, SessionDown::Log(Log { newest: JobId(1), ..Log::default() }));
    assert_eq!(agent.holds().direct_jobs, 0);
}

#[test]
fn frames_of_ended_jobs_that_have_waited_for_another_are_acknowledged() {
    let mut agent = TestAgent::standing(3);
    agent.receive(UP, 0, SessionDown::Log(Log { newest: JobId(2), ..Log::default() })).outputs();
    let large = Frame { payload: vec![0; 5 << 10].into(), ..frame(2, 0) };
    for (number, frame) in [(1, frame(1, 0)), (2, large), (0, frame(1, 0))] {
        agent.receive_frame(UP, routed(5, 3, None, Some((number, frame))));
    }
    let acknowledged = |output: &Output| match output {
        Output::Send { link: UP, frame } if frame.kind == FrameKind::Routed => {
            let inner = Routed::unwrap(frame.clone()).expect("our own frame").frame?;
            (inner.1.kind == FrameKind::Pair).then_some(inner.1.arg)
        }
        _ => None,
    };
    assert_eq!(agent.outputs().iter().find_map(acknowledged), Some(3));
}
