//! Links beside the tree, from the viewpoint of one agent of seven, 0 - (1, 2), 1 - (3, 4), 2 - (5, 6).

use super::starting::{SECOND, T, UP, agent, config, hear, job, link_child, outputs, sent};
use super::*;
use wireup_wire::collective::{Algorithm, Collective, RoundTag};
use wireup_wire::frame::Class;
use wireup_wire::limits::{DIRECT_WAIT_NS_MAX, DIRECT_WAITING_BYTES_MAX, ROUTED_BYTES_MAX};
use wireup_wire::peer::{Cause, Note};
use wireup_wire::route::{Endpoint, Incarnations, Routed};

const HERE: &str = "10.0.0.1:5";

/// Agent 3, with a job, linked to its parent.
fn three() -> Agent {
    let mut three = agent(3);
    hear(&mut three, T, UP, 1, &Control::Launch(job(1).into()));
    outputs(&mut three);
    three
}

/// The same, before the agent knows its own listening address.
fn unheard() -> Agent {
    let mut three = agent_without_address(3);
    hear(&mut three, T, UP, 1, &Control::Launch(job(1).into()));
    outputs(&mut three);
    three
}

fn agent_without_address(id: u32) -> Agent {
    let config = config(id);
    let mut agent = Agent::new(config);
    agent.handle(T, Input::LinkUp { link: UP, peer: Peer::Parent, local: String::new() });
    agent
}

pub(super) fn frame(job: u32, arg: u32) -> Frame {
    let payload = Bytes::copy_from_slice(&arg.to_le_bytes());
    Frame { kind: Kind::Direct, class: Class::Exchange, stream: 0, job, arg, payload }
}

fn send(agent: &mut Agent, to: u32, frame: Frame) {
    agent.links.send_peer(agent.membership.routes(), AgentId(to), frame, &mut agent.out);
}

fn offer(from: u32) -> Option<Endpoint> {
    Some(Endpoint { addresses: vec![format!("a{from}")], failed: None, point: None })
}

fn refusal(from: u32, problem: &str) -> Option<Endpoint> {
    Some(Endpoint { failed: Some(problem.into()), ..offer(from).unwrap() })
}

fn deaf(problem: &str) -> Option<Endpoint> {
    Some(Endpoint { failed: Some(problem.into()), ..Endpoint::default() })
}

fn routed(from: u32, to: u32, endpoint: Option<Endpoint>, inner: Option<(u32, Frame)>) -> Frame {
    Routed { from: AgentId(from), to: AgentId(to), incarnations: Incarnations::default(), endpoint, frame: inner }
        .wrap(1)
}

fn say(agent: &mut Agent, link: LinkId, frame: Frame) {
    for bytes in [Bytes::copy_from_slice(&frame.header()), frame.payload] {
        agent.handle(T, Input::LinkBytes { link, bytes });
    }
}

fn dials(outputs: &[Output]) -> Vec<(u32, Vec<String>)> {
    let dial = |output: &Output| match output {
        Output::Dial { agent, addresses, .. } => Some((agent.0, addresses.clone())),
        _ => None,
    };
    outputs.iter().filter_map(dial).collect()
}

fn link_up(agent: &mut Agent, peer: u32) -> LinkId {
    let link = LinkId(200 + peer);
    agent.handle(T, Input::LinkUp { link, peer: Peer::Direct(AgentId(peer)), local: String::new() });
    link
}

/// Kind, `stream` and `arg` of the frames on a link.
fn on_link(outputs: &[Output], to: LinkId) -> Vec<(Kind, u16, u32)> {
    let of = |output: &Output| match output {
        Output::Send { link, frame } if *link == to => Some((frame.kind, frame.stream, frame.arg)),
        _ => None,
    };
    outputs.iter().filter_map(of).collect()
}

/// The receiver, the endpoint, and the frame's number and `arg`.
type Through = (u32, Option<Endpoint>, Option<(u32, u32)>);

/// The frames that were sent through the tree.
fn through_tree(outputs: &[Output], to: LinkId) -> Vec<Through> {
    let of = |output: &Output| match output {
        Output::Send { link, frame } if *link == to && frame.kind == Kind::Routed => {
            let routed = Routed::unwrap(frame.clone()).unwrap();
            Some((routed.to.0, routed.endpoint, routed.frame.map(|(number, frame)| (number, frame.arg))))
        }
        _ => None,
    };
    outputs.iter().filter_map(of).collect()
}

fn notes(agent: &mut Agent, now: Instant) -> Vec<(u32, String)> {
    agent.handle(now, Input::Tick);
    let note = |message: Control| match message {
        Control::Note(Note::Routed { peer, problem, .. }) => Some((peer.0, problem)),
        Control::Failed(failure) => panic!("{failure:?}"),
        _ => None,
    };
    sent(&outputs(agent), UP).into_iter().filter_map(note).collect()
}

fn here() -> Option<Endpoint> {
    Some(Endpoint { addresses: vec![HERE.into()], failed: None, point: None })
}

#[test]
fn the_first_frame_goes_through_the_tree_with_the_endpoint_and_others_follow_until_there_is_a_link() {
    let mut three = three();
    (0..3).for_each(|arg| send(&mut three, 5, frame(1, arg)));
    let told = through_tree(&outputs(&mut three), UP);
    assert_eq!(told, [(5, here(), Some((0, 0))), (5, None, Some((1, 1))), (5, None, Some((2, 2)))]);
    let link = link_up(&mut three, 5);
    send(&mut three, 5, frame(1, 3));
    let direct = on_link(&outputs(&mut three), link);
    assert_eq!(direct, [(Kind::Pair, 0, 3), (Kind::Direct, 0, 3)], "the link starts with number 3");
    let again = LinkId(300);
    three.handle(T, Input::LinkUp { link: again, peer: Peer::Direct(AgentId(5)), local: String::new() });
    assert_eq!(outputs(&mut three), [Output::CloseLink { link: again }], "a second one is not needed");
}

#[test]
fn what_is_large_waits_for_the_link_and_not_for_ever() {
    let large = |arg| Frame { payload: vec![0; ROUTED_BYTES_MAX].into(), ..frame(1, arg) };
    let mut three = three();
    send(&mut three, 5, large(0));
    send(&mut three, 5, frame(1, 1));
    let told = outputs(&mut three);
    assert_eq!(through_tree(&told, UP), [(5, here(), None)], "in order: the small one waits too");
    let link = link_up(&mut three, 5);
    assert_eq!(on_link(&outputs(&mut three), link), [(Kind::Pair, 0, 0), (Kind::Direct, 0, 0), (Kind::Direct, 0, 1)]);
    let mut three = self::three();
    send(&mut three, 5, large(0));
    outputs(&mut three);
    assert_eq!(three.links.direct.deadline(), Some(T + DIRECT_WAIT_NS_MAX));
    three.handle(T + DIRECT_WAIT_NS_MAX, Input::Tick);
    assert_eq!(through_tree(&outputs(&mut three), UP), [(5, None, Some((0, 0)))]);
    send(&mut three, 5, large(0));
    assert_eq!(
        through_tree(&outputs(&mut three), UP),
        [(5, None, Some((1, 0)))],
        "after a late link it does not wait again"
    );
    let link = link_up(&mut three, 5);
    assert_eq!(on_link(&outputs(&mut three), link), [(Kind::Pair, 0, 2)], "a late link is still used");
}

#[test]
fn whoever_has_no_address_yet_asks_for_one_first() {
    let mut three = unheard();
    send(&mut three, 5, frame(1, 0));
    send(&mut three, 6, frame(1, 0));
    assert_eq!(outputs(&mut three), [Output::Listen]);
    three.handle(T, Input::Listening { addresses: vec!["there:1".into()] });
    let there = Some(Endpoint { addresses: vec!["there:1".into()], failed: None, point: None });
    let told = through_tree(&outputs(&mut three), UP);
    assert_eq!(told, [(5, there.clone(), Some((0, 0))), (6, there, Some((0, 0)))]);
    // An agent that receives an endpoint before it can send its own dials, whatever the ids are.
    let mut three = unheard();
    send(&mut three, 5, frame(1, 0));
    say(&mut three, UP, routed(5, 3, offer(5), None));
    let told = outputs(&mut three);
    assert_eq!(dials(&told), [(5, vec!["a5".to_owned()])]);
    assert_eq!(through_tree(&told, UP), [(5, None, Some((0, 0)))], "the frame does not wait");
    three.handle(T, Input::Listening { addresses: vec!["there:1".into()] });
    assert!(outputs(&mut three).is_empty());
}

#[test]
fn where_nobody_can_listen_the_tree_is_the_way() {
    let mut three = unheard();
    send(&mut three, 5, frame(1, 0));
    three.handle(T, Input::ListenFailed { problem: "no such interface".into() });
    let problem = "no such interface; so other agents cannot connect to it";
    assert_eq!(through_tree(&outputs(&mut three), UP), [(5, deaf(problem), None), (5, None, Some((0, 0)))]);
    assert_eq!(notes(&mut three, T), [(5, problem.to_owned())]);
    send(&mut three, 6, frame(1, 0));
    assert!(outputs(&mut three).contains(&Output::Listen), "it tries again next time");
}

#[test]
fn of_two_crossing_endpoints_the_one_of_the_lower_id_counts() {
    let mut three = three();
    send(&mut three, 5, frame(1, 0));
    send(&mut three, 2, frame(1, 7));
    outputs(&mut three);
    say(&mut three, UP, routed(5, 3, offer(5), None));
    assert!(outputs(&mut three).is_empty(), "the receiver 5 dials");
    say(&mut three, UP, routed(2, 3, offer(2), None));
    assert_eq!(dials(&outputs(&mut three)), [(2, vec!["a2".to_owned()])]);
    say(&mut three, UP, routed(2, 3, offer(2), None));
    assert!(outputs(&mut three).is_empty(), "it dials only once");
}

#[test]
fn neighbours_in_the_tree_need_no_other_link() {
    let mut one = agent(1);
    hear(&mut one, T, UP, 1, &Control::Launch(job(1).into()));
    let child = link_child(&mut one, T, 3);
    outputs(&mut one);
    for to in [0, 3, 4] {
        send(&mut one, to, frame(1, to));
    }
    let flushed = outputs(&mut one);
    assert_eq!(on_link(&flushed, UP), [(Kind::Direct, 0, 0)]);
    assert_eq!(on_link(&flushed, child), [(Kind::Direct, 0, 3)]);
    assert_eq!(flushed.len(), 2, "4 has not linked yet: {flushed:?}");
    let late = link_child(&mut one, T, 4);
    assert!(on_link(&outputs(&mut one), late).contains(&(Kind::Direct, 0, 4)));
    say(&mut one, child, routed(3, 1, offer(3), None));
    assert!(outputs(&mut one).is_empty());
}

#[test]
fn frames_go_their_way_and_no_other() {
    let mut one = agent(1);
    hear(&mut one, T, UP, 1, &Control::Launch(job(1).into()));
    let (three, four) = (link_child(&mut one, T, 3), link_child(&mut one, T, 4));
    outputs(&mut one);
    for (link, from, to) in [(three, 3, 5), (three, 3, 4), (UP, 6, 3)] {
        say(&mut one, link, routed(from, to, offer(from), Some((9, frame(1, from)))));
    }
    let passed = outputs(&mut one);
    let on = [UP, four, three].map(|link| through_tree(&passed, link));
    let [up, to_four, to_three] = [(5, 3), (4, 3), (3, 6)].map(|(to, from)| vec![(to, offer(from), Some((9, from)))]);
    assert_eq!(on, [up, to_four, to_three]);
    // Routed frames from impossible senders or to impossible receivers are dropped.
    for (link, from, to) in
        [(three, 4, 5), (three, 3, 3), (three, 3, 99), (UP, 4, 3), (UP, 6, 5), (UP, 99, 3), (UP, 2, 0)]
    {
        say(&mut one, link, routed(from, to, offer(from), None));
    }
    assert!(outputs(&mut one).is_empty());
}

#[test]
fn strangers_are_turned_away_and_nobody_gives_orders_beside_the_tree() {
    let mut three = three();
    for peer in [0, 1, 5, 99] {
        let link = link_up(&mut three, peer);
        assert_eq!(outputs(&mut three), [Output::CloseLink { link }]);
    }
    say(&mut three, UP, routed(5, 3, offer(5), None));
    let link = link_up(&mut three, 5);
    say(&mut three, link, Frame { kind: Kind::Pair, ..frame(0, 0) });
    outputs(&mut three);
    for order in [Control::Shutdown, Control::Kill { grace_ns: 0 }, Control::Done(Default::default())] {
        let order = crate::outbox::control_frame(JobId(1), &order);
        say(&mut three, link, order.clone());
        say(&mut three, UP, routed(6, 3, None, Some((0, order))));
    }
    assert!(outputs(&mut three).is_empty());
}

#[test]
fn who_cannot_dial_asks_to_be_dialled_and_then_it_is_the_tree() {
    // Agent 5 could not dial it and asks it to dial.
    let mut three = three();
    send(&mut three, 5, frame(1, 0));
    outputs(&mut three);
    say(&mut three, UP, routed(5, 3, refusal(5, "a3: refused"), None));
    assert_eq!(dials(&outputs(&mut three)), [(5, vec!["a5".to_owned()])]);
    let failed = || Input::DialFailed { agent: AgentId(5), problem: "a5: refused".into() };
    three.handle(T, failed());
    let both = "a5: refused; in the other direction: a3: refused";
    assert_eq!(through_tree(&outputs(&mut three), UP), [(5, deaf(both), None)]);
    assert_eq!(notes(&mut three, T), [(5, both.to_owned())]);
    assert_eq!(three.links.direct.deadline(), None);
    // Agent 3 fails to dial and asks 5 to dial.
    let mut three = self::three();
    say(&mut three, UP, routed(5, 3, offer(5), None));
    three.handle(T, failed());
    let told = Some(Endpoint { failed: Some("a5: refused".into()), ..here().unwrap() });
    assert_eq!(through_tree(&outputs(&mut three), UP), [(5, told, None)]);
    assert!(three.links.direct.expects(AgentId(5)));
    say(&mut three, UP, routed(5, 3, deaf(both), None));
    assert_eq!(notes(&mut three, T), [], "5 sends the note");
    send(&mut three, 5, frame(1, 0));
    assert_eq!(through_tree(&outputs(&mut three), UP), [(5, None, Some((0, 0)))]);
    let late = link_up(&mut three, 5);
    assert_eq!(outputs(&mut three), [Output::CloseLink { link: late }]);
}

#[test]
fn a_link_that_breaks_loses_nothing_and_is_told_when_the_tree_had_its_say() {
    let mut three = three();
    send(&mut three, 5, frame(1, 0));
    let link = link_up(&mut three, 5);
    (1..4).for_each(|arg| send(&mut three, 5, frame(1, arg)));
    say(&mut three, link, Frame { kind: Kind::Pair, stream: 1, ..frame(0, 2) });
    outputs(&mut three);
    three.handle(T, Input::LinkDown { link, problem: "reset".into() });
    send(&mut three, 5, frame(1, 4));
    assert_eq!(through_tree(&outputs(&mut three), UP), [(5, None, Some((4, 4)))], "new frames do not wait");
    let again = three.deadline().expect("a resend is due");
    assert!(again > T && again < T + SECOND);
    three.handle(again, Input::Tick);
    let again = through_tree(&outputs(&mut three), UP);
    let problem = "their link broke: reset";
    assert_eq!(again, [(5, deaf(problem), None), (5, None, Some((2, 2))), (5, None, Some((3, 3)))]);
    let due = three.deadline().expect("a note is due");
    assert!(due > T && due < T + SECOND);
    assert_eq!(notes(&mut three, T), []);
    assert_eq!(notes(&mut three, due), [(5, problem.to_owned())]);
    // Neither agent tries again.
    say(&mut three, UP, routed(5, 3, offer(5), None));
    assert!(outputs(&mut three).is_empty());
}

#[test]
fn whose_peer_has_lost_their_link_closes_it_and_sends_again() {
    let mut three = three();
    send(&mut three, 5, frame(1, 0));
    let link = link_up(&mut three, 5);
    send(&mut three, 5, frame(1, 1));
    outputs(&mut three);
    say(&mut three, UP, routed(5, 3, deaf("their link broke"), None));
    let told = outputs(&mut three);
    assert!(told.contains(&Output::CloseLink { link }));
    assert_eq!(through_tree(&told, UP), [(5, None, Some((1, 1)))]);
    assert_eq!(notes(&mut three, T + SECOND), [], "5 sends the note");
}

#[test]
fn only_so_much_may_come_before_what_it_follows() {
    let mut three = three();
    let half = Bytes::from(vec![0; DIRECT_WAITING_BYTES_MAX / 2]);
    for number in 1..3 {
        say(&mut three, UP, routed(5, 3, None, Some((number, Frame { payload: half.clone(), ..frame(1, 0) }))));
    }
    three.handle(T, Input::Tick);
    let failed = sent(&outputs(&mut three), UP).into_iter().find_map(|message| match message {
        Control::Failed(failure) => Some(failure.cause),
        _ => None,
    });
    assert!(
        matches!(failed, Some(Cause::NoDirectLink { problem, .. }) if problem.contains("while earlier frames are missing"))
    );
}

#[test]
fn frames_may_come_before_their_job_but_not_without_bound() {
    let mut three = three();
    for (number, (job, arg)) in [(2, 7), (2, 8), (3, 9)].into_iter().enumerate() {
        say(&mut three, UP, routed(5, 3, None, Some((number as u32, frame(job, arg)))));
    }
    let early: Vec<u32> = three.early.take(JobId(2)).frames.iter().map(|(_, frame)| frame.arg).collect();
    assert_eq!(early, [7, 8]);
    say(&mut three, UP, routed(5, 3, None, Some((3, frame(2, 10)))));
    assert!(three.early.take(JobId(2)).frames.is_empty(), "the job has ended");
    let half = Bytes::from(vec![0; DIRECT_WAITING_BYTES_MAX / 2]);
    for number in 4..6 {
        say(&mut three, UP, routed(5, 3, None, Some((number, Frame { payload: half.clone(), ..frame(3, 0) }))));
    }
    let waited = three.early.take(JobId(3));
    assert_eq!((waited.frames.len(), waited.is_whole), (2, false), "the job gets an error");
}

#[test]
fn a_job_that_is_over_minds_no_link() {
    let mut three = three();
    send(&mut three, 5, frame(1, 0));
    let link = link_up(&mut three, 5);
    three.links.direct.forget(JobId(1));
    three.handle(T, Input::LinkDown { link, problem: "closed".into() });
    assert_eq!(notes(&mut three, T + SECOND), []);
}

/// Why the job failed.
fn problems(outputs: &[Output]) -> Vec<String> {
    let problem = |message| match message {
        Control::Failed(Failure { cause: Cause::Pmi { problem }, .. }) => Some(problem),
        _ => None,
    };
    sent(outputs, UP).into_iter().filter_map(problem).collect()
}

#[test]
fn numbers_that_are_unknown_are_told_with_their_node() {
    let beyond_the_tag =
        RoundTag::to_stream(RoundTag { collective: Collective::Fence, algorithm: Algorithm::new(8), round: 0 });
    for (kind, stream, told) in [
        (Kind::Direct, 2, "node 5: a collective of unknown number 4"),
        (Kind::Direct, beyond_the_tag, "collective 0 of the job: node 5: this version has no exchange algorithm 8"),
        (Kind::ExchangeDown, 15 << 2, "the parent agent: an exchange frame of unknown form 15"),
        (Kind::ExchangeDown, 1 << 8, "the parent agent: a collective of unknown number 4"),
    ] {
        let mut three = three();
        let frame = Frame { kind, stream, ..frame(1, 0) };
        match kind {
            Kind::Direct => say(&mut three, UP, routed(5, 3, None, Some((0, frame)))),
            _ => say(&mut three, UP, frame),
        }
        assert_eq!(problems(&outputs(&mut three)), [told]);
    }
}

#[test]
fn a_frame_of_an_unknown_kind_ends_the_link_and_names_the_peer() {
    let mut root = agent(0);
    hear(&mut root, T, UP, 1, &Control::Launch(job(1).into()));
    let link = link_child(&mut root, T, 1);
    outputs(&mut root);
    let mut header = frame(1, 0).header();
    header[4] = 99;
    root.handle(T, Input::LinkBytes { link, bytes: Bytes::copy_from_slice(&header) });
    root.handle(T + SECOND, Input::Tick);
    let outputs = outputs(&mut root);
    assert!(outputs.contains(&Output::CloseLink { link }));
    let cause = Cause::AgentLost { agent: AgentId(1), problem: "frame of unknown kind 99".into() };
    let is_it = |message: &Control| matches!(message, Control::Failed(failure) if failure.host == "n1" && failure.cause == cause);
    assert!(sent(&outputs, UP).iter().any(is_it));
}
