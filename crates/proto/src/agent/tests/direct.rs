//! Links beside the tree, seen from one agent of seven, 0 - (1, 2), 1 - (3, 4), 2 - (5, 6).

use super::starting::{SECOND, T, UP, agent, hear, job, link_child, outputs, sent};
use super::*;
use wireup_wire::frame::Class;
use wireup_wire::limits::{DIRECT_LINK_NS_MAX, DIRECT_WAITING_BYTES_MAX};

const HERE: &str = "10.0.0.1:5";

/// Agent 3, with a job, and its parent above it.
fn three() -> Agent {
    let mut three = agent(3);
    hear(&mut three, T, UP, 1, &Control::Launch(job(1)));
    outputs(&mut three);
    three
}

pub(super) fn frame(job: u32, arg: u32) -> Frame {
    let payload = Bytes::copy_from_slice(&arg.to_le_bytes());
    Frame { kind: Kind::Direct, class: Class::Exchange, stream: 0, job, arg, payload }
}

fn send(agent: &mut Agent, to: u32, frame: Frame) {
    agent.links.send_peer(AgentId(to), frame, &mut agent.out);
}

fn reach(to: u32, from: u32) -> Control {
    Control::Reach { to: AgentId(to), from: AgentId(from), addresses: vec![format!("a{from}")] }
}

fn dials(outputs: &[Output]) -> Vec<(u32, Vec<String>)> {
    let dial = |output: &Output| match output {
        Output::Dial { agent, addresses } => Some((agent.0, addresses.clone())),
        _ => None,
    };
    outputs.iter().filter_map(dial).collect()
}

fn link_up(agent: &mut Agent, peer: u32) -> LinkId {
    let link = LinkId(200 + peer);
    agent.handle(T, Input::LinkUp { link, peer: Peer::Direct(AgentId(peer)), local: String::new() });
    link
}

fn direct_frames(outputs: &[Output], to: LinkId) -> Vec<u32> {
    let arg = |output: &Output| match output {
        Output::Send { link, frame } if *link == to && frame.kind == Kind::Direct => Some(frame.arg),
        _ => None,
    };
    outputs.iter().filter_map(arg).collect()
}

fn failure(agent: &mut Agent, now: Instant) -> Option<Cause> {
    agent.handle(now, Input::Tick);
    sent(&outputs(agent), UP).into_iter().find_map(|message| match message {
        Control::Failed(failure) => Some(failure.cause),
        _ => None,
    })
}

fn no_link(peer: u32, problem: &str) -> Option<Cause> {
    Some(Cause::NoDirectLink { agent: AgentId(peer), host: format!("n{peer}"), problem: problem.into() })
}

#[test]
fn frames_wait_in_order_for_the_link_that_the_first_asks_for() {
    let mut three = three();
    (0..3).for_each(|arg| send(&mut three, 5, frame(1, arg)));
    let asked = outputs(&mut three);
    let wanted = Control::Reach { to: AgentId(5), from: AgentId(3), addresses: vec![HERE.into()] };
    assert_eq!(sent(&asked, UP), [wanted], "once");
    let link = link_up(&mut three, 5);
    send(&mut three, 5, frame(1, 3));
    assert_eq!(direct_frames(&outputs(&mut three), link), [0, 1, 2, 3]);
    let again = LinkId(300);
    three.handle(T, Input::LinkUp { link: again, peer: Peer::Direct(AgentId(5)), local: String::new() });
    assert_eq!(outputs(&mut three), [Output::CloseLink { link: again }], "a second one is not needed");
}

#[test]
fn whoever_has_no_address_yet_asks_for_one_first() {
    let mut three = three();
    three.links.on_listening(Vec::new(), &mut Outbox::default());
    send(&mut three, 5, frame(1, 0));
    send(&mut three, 6, frame(1, 0));
    assert_eq!(outputs(&mut three), [Output::Listen]);
    three.handle(T, Input::Listening { addresses: vec!["there:1".into()] });
    let asked = sent(&outputs(&mut three), UP);
    assert!(
        matches!(&asked[..], [Control::Reach { to: AgentId(5), .. }, Control::Reach { to: AgentId(6), addresses, .. }] if addresses == &["there:1"])
    );
    // Who is asked before it could ask answers, whatever the ids.
    let mut three = self::three();
    three.links.on_listening(Vec::new(), &mut Outbox::default());
    send(&mut three, 5, frame(1, 0));
    hear(&mut three, T, UP, 1, &reach(3, 5));
    assert_eq!(dials(&outputs(&mut three)), [(5, vec!["a5".to_owned()])]);
    three.handle(T, Input::Listening { addresses: vec!["there:1".into()] });
    assert!(outputs(&mut three).is_empty());
    assert_eq!(failure(&mut three, T + 200 * SECOND), None, "the dial is the driver's");
}

#[test]
fn where_nobody_can_listen_the_job_hears_why() {
    let mut three = three();
    three.links.on_listening(Vec::new(), &mut Outbox::default());
    send(&mut three, 5, frame(1, 0));
    three.handle(T, Input::ListenFailed { problem: "no such interface".into() });
    assert_eq!(failure(&mut three, T), no_link(5, "no such interface"));
    send(&mut three, 6, frame(1, 0));
    assert!(outputs(&mut three).contains(&Output::Listen), "it may be there next time");
}

#[test]
fn of_two_crossing_wishes_the_one_of_the_lower_id_counts() {
    let mut three = three();
    send(&mut three, 5, frame(1, 0));
    send(&mut three, 2, frame(1, 7));
    outputs(&mut three);
    hear(&mut three, T, UP, 1, &reach(3, 5));
    assert!(outputs(&mut three).is_empty(), "5 will dial");
    hear(&mut three, T, UP, 1, &reach(3, 2));
    assert_eq!(dials(&outputs(&mut three)), [(2, vec!["a2".to_owned()])]);
    hear(&mut three, T, UP, 1, &reach(3, 2));
    assert!(outputs(&mut three).is_empty(), "once");
    let (five, two) = (link_up(&mut three, 5), link_up(&mut three, 2));
    let flushed = outputs(&mut three);
    assert_eq!((direct_frames(&flushed, five), direct_frames(&flushed, two)), (vec![0], vec![7]));
}

#[test]
fn neighbours_in_the_tree_need_no_other_link() {
    let mut one = agent(1);
    hear(&mut one, T, UP, 1, &Control::Launch(job(1)));
    let child = link_child(&mut one, T, 3);
    outputs(&mut one);
    for to in [0, 3, 4] {
        send(&mut one, to, frame(1, to));
    }
    let flushed = outputs(&mut one);
    assert_eq!((direct_frames(&flushed, UP), direct_frames(&flushed, child)), (vec![0], vec![3]));
    assert_eq!(flushed.len(), 2, "4 has not linked yet: {flushed:?}");
    let late = link_child(&mut one, T, 4);
    assert_eq!(direct_frames(&outputs(&mut one), late), [4]);
    hear(&mut one, T, child, 1, &reach(1, 3));
    assert!(outputs(&mut one).is_empty());
}

#[test]
fn requests_go_their_way_and_no_other() {
    let mut one = agent(1);
    hear(&mut one, T, UP, 1, &Control::Launch(job(1)));
    let (three, four) = (link_child(&mut one, T, 3), link_child(&mut one, T, 4));
    outputs(&mut one);
    hear(&mut one, T, three, 1, &reach(5, 3));
    hear(&mut one, T, three, 1, &reach(4, 3));
    hear(&mut one, T, UP, 1, &reach(3, 6));
    let passed = outputs(&mut one);
    let on = [UP, four, three].map(|link| sent(&passed, link));
    assert_eq!(on, [vec![reach(5, 3)], vec![reach(4, 3)], vec![reach(3, 6)]]);
    // From where they cannot come, and to where they need not go.
    for (link, wrong) in [(three, reach(5, 4)), (three, reach(3, 3)), (three, reach(99, 3)), (UP, reach(3, 4))] {
        hear(&mut one, T, link, 1, &wrong);
    }
    for wrong in [reach(5, 6), reach(3, 99), reach(0, 2)] {
        hear(&mut one, T, UP, 1, &wrong);
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
    hear(&mut three, T, UP, 1, &reach(3, 5));
    let link = link_up(&mut three, 5);
    outputs(&mut three);
    for order in [Control::Shutdown, Control::Kill { grace_ns: 0 }, reach(4, 5), Control::Done(Default::default())] {
        hear(&mut three, T, link, 1, &order);
    }
    assert!(outputs(&mut three).is_empty());
}

#[test]
fn a_link_that_is_lost_is_told_when_the_tree_had_its_say() {
    let refused = || Input::DialFailed { agent: AgentId(5), problem: "a5: refused".into() };
    let broken = || Input::LinkDown { link: LinkId(205), problem: "reset".into() };
    for (loss, problem) in [(refused(), "a5: refused"), (broken(), "it broke: reset")] {
        let mut three = three();
        hear(&mut three, T, UP, 1, &reach(3, 5));
        if let Input::LinkDown { .. } = loss {
            link_up(&mut three, 5);
        }
        outputs(&mut three);
        three.handle(T, loss);
        let due = three.deadline().expect("the job is told");
        assert!(due > T && due < T + SECOND);
        assert_eq!(failure(&mut three, T), None);
        send(&mut three, 5, frame(1, 0));
        assert_eq!(failure(&mut three, due), no_link(5, problem));
        assert_eq!(three.links.direct.deadline(), None);
        // Nobody tries again.
        send(&mut three, 5, frame(1, 0));
        hear(&mut three, T, UP, 1, &reach(3, 5));
        assert!(outputs(&mut three).is_empty());
    }
}

#[test]
fn who_is_not_dialled_in_time_says_where() {
    let mut three = three();
    send(&mut three, 5, frame(1, 0));
    // The other end may be starting as long as this one may.
    let until = T + 60 * SECOND + DIRECT_LINK_NS_MAX;
    assert_eq!(failure(&mut three, Instant(until.0 - 1)), None);
    assert_eq!(failure(&mut three, until), no_link(5, "it was asked to dial 10.0.0.1:5, and did not in time"));
    let link = link_up(&mut three, 5);
    assert!(outputs(&mut three).contains(&Output::CloseLink { link }));
}

#[test]
fn only_so_much_waits_for_a_link() {
    let mut three = three();
    let half = Bytes::from(vec![0; DIRECT_WAITING_BYTES_MAX / 2]);
    for _ in 0..2 {
        send(&mut three, 5, Frame { payload: half.clone(), ..frame(1, 0) });
    }
    assert!(
        matches!(failure(&mut three, T), Some(Cause::NoDirectLink { problem, .. }) if problem.contains("wait for it"))
    );
}

#[test]
fn frames_may_come_before_their_job_but_not_without_bound() {
    let mut three = three();
    hear(&mut three, T, UP, 1, &reach(3, 5));
    let link = link_up(&mut three, 5);
    let say = |three: &mut Agent, frame: Frame| {
        for bytes in [Bytes::copy_from_slice(&frame.header()), frame.payload] {
            three.handle(T, Input::LinkBytes { link, bytes });
        }
    };
    say(&mut three, frame(2, 7));
    say(&mut three, frame(2, 8));
    say(&mut three, frame(3, 9));
    let early: Vec<u32> = three.early.take(JobId(2)).iter().map(|(_, frame)| frame.arg).collect();
    assert_eq!(early, [7, 8]);
    say(&mut three, frame(2, 10));
    assert!(three.early.take(JobId(2)).is_empty(), "it is over");
    outputs(&mut three);
    let half = Bytes::from(vec![0; DIRECT_WAITING_BYTES_MAX / 2]);
    for _ in 0..2 {
        say(&mut three, Frame { payload: half.clone(), ..frame(3, 0) });
    }
    assert!(outputs(&mut three).contains(&Output::CloseLink { link }));
}

#[test]
fn a_job_that_is_over_minds_no_link() {
    let mut three = three();
    send(&mut three, 5, frame(1, 0));
    let link = link_up(&mut three, 5);
    three.links.direct.forget(JobId(1));
    three.handle(T, Input::LinkDown { link, problem: "closed".into() });
    assert_eq!(failure(&mut three, T + SECOND), None);
}
