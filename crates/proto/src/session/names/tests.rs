//! Names of several jobs and nodes.

use super::*;
use crate::testing::{in_session, job_on};
use proptest::prelude::*;
use wireup_wire::names::Value;

fn item(name: &str, value: &str) -> Item {
    Item { name: name.to_owned().into(), value: Value::Text(value.to_owned().into()) }
}

fn place(job: u32, agent: u32) -> JobNode {
    JobNode { job: JobId(job), agent: AgentId(agent) }
}

fn publish(names: &mut Names, (job, agent): (u32, u32), name: &str, range: Range, keep: Keep) -> Answer {
    names.publish(place(job, agent), ("job", Rank(agent)), vec![item(name, "x")], range, keep)
}

fn lookup((job, agent): (u32, u32), names: &[&str], range: Range, wait: u32) -> LookUp {
    let names = names.iter().map(|name| name.to_string().into()).collect();
    LookUp { at: place(job, agent), asker: Asker::Server(7), names, range, wait, until: None }
}

fn found(told: Option<AddressedAnswer>) -> Vec<String> {
    match told {
        Some((_, _, Answer::Found(found))) => {
            found.into_iter().map(|found| String::from_utf8(found.item.name.to_vec()).unwrap()).collect()
        }
        Some((_, _, other)) => vec![format!("{other:?}")],
        None => vec!["waits".into()],
    }
}

const NOT_FOUND: [&str; 1] = ["Refused(NotFound)"];
const TAKEN: Answer = Answer::Refused(Refusal::Taken);
const FULL: Answer = Answer::Refused(Refusal::Full);

#[test]
fn a_name_is_visible_in_its_range_only() {
    let mut names = Names::default();
    for (range, elsewhere) in [(Range::Node, (1, 2)), (Range::Job, (2, 1)), (Range::Session, (0, 0))] {
        let name = format!("{range:?}");
        assert_eq!(publish(&mut names, (1, 1), &name, range, Keep::Job), Answer::Done);
        assert_eq!(publish(&mut names, (1, 1), &name, range, Keep::Job), TAKEN);
        assert_eq!(found(names.look_up(lookup((1, 1), &[&name], Range::Session, 0))), [&name[..]]);
        let others = found(names.look_up(lookup(elsewhere, &[&name], Range::Session, 0)));
        assert_eq!(others == NOT_FOUND, elsewhere != (0, 0), "{name}: {others:?}");
    }
    // Names of the ranges node and job may be published again on another node or in another job.
    assert_eq!(publish(&mut names, (1, 2), "Node", Range::Node, Keep::Job), Answer::Done);
    assert_eq!(publish(&mut names, (2, 1), "Job", Range::Job, Keep::Job), Answer::Done);
    assert_eq!(publish(&mut names, (2, 1), "Session", Range::Session, Keep::Job), TAKEN);
    assert_eq!(publish(&mut names, (3, 1), "Node", Range::Node, Keep::Job), TAKEN, "another job on the same node");
}

#[test]
fn the_range_of_a_look_up_tells_whose_names_are_meant() {
    let mut names = Names::default();
    publish(&mut names, (1, 1), "a", Range::Session, Keep::Job);
    let mut find = |from, range| found(names.look_up(lookup(from, &["a", "none", "a"], range, 0)));
    assert_eq!(find((2, 1), Range::Node), ["a"]);
    assert_eq!(find((1, 2), Range::Job), ["a"]);
    assert_eq!(find((2, 2), Range::Session), ["a"]);
    assert_eq!(find((1, 2), Range::Node), NOT_FOUND);
    assert_eq!(find((2, 1), Range::Job), NOT_FOUND);
}

#[test]
fn a_name_is_withdrawn_by_its_publisher_or_its_job() {
    let mut names = Names::default();
    let mut withdraw = |job, rank, which: &[&'static str], by| {
        publish(&mut names, (1, 1), "a", Range::Session, Keep::Job);
        let which: Vec<Bytes> = which.iter().map(|name| Bytes::from_static(name.as_bytes())).collect();
        let answer = names.withdraw(place(job, rank), Rank(rank), &which, Range::Session, by);
        (answer, names.names.len())
    };
    let not_found = (Answer::Refused(Refusal::NotFound), 1);
    assert_eq!(withdraw(1, 1, &["b"], Publisher::Rank), not_found);
    assert_eq!(withdraw(1, 2, &["a"], Publisher::Rank), not_found);
    assert_eq!(withdraw(2, 1, &["a"], Publisher::Job), not_found);
    assert_eq!(withdraw(1, 1, &["b", "a"], Publisher::Rank), (Answer::Done, 0));
    assert_eq!(withdraw(1, 2, &["a"], Publisher::Job), (Answer::Done, 0));
    assert_eq!(withdraw(1, 2, &[], Publisher::Rank), (Answer::Done, 1));
    assert_eq!(withdraw(1, 1, &[], Publisher::Rank), (Answer::Done, 0));
}

#[test]
fn names_last_as_long_as_requested_and_no_longer_than_their_job() {
    let mut names = Names::default();
    for (name, keep) in [("once", Keep::FirstRead), ("rank", Keep::Rank), ("job", Keep::Job)] {
        publish(&mut names, (1, 0), name, Range::Session, keep);
    }
    let find = |names: &mut Names, name| found(names.look_up(lookup((2, 1), &[name], Range::Session, 0)));
    assert_eq!(find(&mut names, "once"), ["once"]);
    assert_eq!(find(&mut names, "once"), NOT_FOUND);
    names.on_left(JobId(2), Rank(0));
    assert_eq!(find(&mut names, "rank"), ["rank"]);
    names.on_left(JobId(1), Rank(0));
    assert_eq!(
        (find(&mut names, "rank"), find(&mut names, "job")),
        (NOT_FOUND.map(String::from).into(), vec!["job".into()])
    );
    assert_eq!(names.look_up(lookup((1, 0), &["later"], Range::Session, 1)), None);
    names.on_job_over(JobId(2));
    assert_eq!(names.size(), 2);
    names.on_job_over(JobId(1));
    assert_eq!((names.size(), names.room.is_unused()), (0, true));
}

#[test]
fn look_ups_wait_for_the_requested_number_of_names() {
    let mut names = Names::default();
    assert_eq!(names.look_up(lookup((1, 1), &["a", "b"], Range::Session, 2)), None);
    let late = LookUp { until: Some(Instant(5)), ..lookup((1, 2), &["c"], Range::Session, 1) };
    assert_eq!(names.look_up(late.clone()), None);
    publish(&mut names, (2, 0), "a", Range::Session, Keep::FirstRead);
    assert!(names.take_found(&["a".into()]).is_empty());
    publish(&mut names, (2, 0), "b", Range::Session, Keep::Job);
    assert!(names.take_found(&["c".into(), "other".into()]).is_empty(), "it waits for other names");
    assert_eq!(found(names.take_found(&["b".into(), "a".into()]).pop()), ["a", "b"]);
    assert_eq!(names.deadline(), Some(Instant(5)));
    assert!(names.take_late(Instant(4)).is_empty());
    assert_eq!(names.take_late(Instant(5)), [late.refused(Refusal::TimedOut)]);
    assert_eq!(names.deadline(), None);
}

#[test]
fn a_job_that_publishes_without_end_is_refused() {
    let mut names = Names::default();
    let value = "x".repeat(NAMES_OF_JOB_BYTES_MAX / 4);
    let mut all = Vec::new();
    for job in 1..=5 {
        for name in 0..4 {
            let items = vec![item(&format!("{job} {name}"), &value)];
            all.push(names.publish(place(job, 0), ("job", Rank(0)), items, Range::Session, Keep::Job));
        }
    }
    let third_is_last = [Answer::Done, Answer::Done, Answer::Done, FULL];
    assert_eq!(all.chunks(4).collect::<Vec<_>>(), [&third_is_last[..]; 5], "of each job");
    for job in 6..=20 {
        all.push(names.publish(place(job, 0), ("job", Rank(0)), vec![item("more", &value)], Range::Job, Keep::Job));
    }
    assert_eq!(all.last(), Some(&FULL), "of the session: {} bytes", NAMES_BYTES_MAX);
    (1..=20).for_each(|job| names.on_job_over(JobId(job)));
    assert_eq!((names.size(), names.room.is_unused()), (0, true));
}

proptest! {
    #[test]
    fn bytes_are_counted_until_nothing_is_left(steps in proptest::collection::vec((0u8..6, 0u32..3, 0u8..4), 0..60)) {
        let mut names = Names::default();
        for (what, who, name) in steps {
            let (at, from, name) = (place(who, who), Rank(who), format!("name{name}"));
            match what {
                0 => {
                    let items = vec![item(&name, "v"), item(&name, "longer")];
                    names.publish(at, ("job", from), items, Range::Session, Keep::FirstRead);
                }
                1 => drop(names.withdraw(at, from, &[name.into()], Range::Session, Publisher::Rank)),
                2 => drop(names.publish(at, ("job", from), vec![item(&name, "vv")], Range::Node, Keep::Rank)),
                3 => drop(names.look_up(lookup((who, who), &[&name, &name], Range::Session, 1))),
                4 => drop(names.take_found(&[name.into()])),
                _ => names.on_left(at.job, from),
            }
            let published = names.names.iter().map(|((_, name), entry)| entry.cost(name));
            let held: usize = published.chain(names.waiting.iter().map(LookUp::cost)).sum();
            prop_assert_eq!(names.room.used(), held);
        }
        (0..3).for_each(|job| names.on_job_over(JobId(job)));
        prop_assert!(names.room.is_unused() && names.size() == 0);
    }
}

fn said(names: &mut Names, cx: &mut Cx, job: u32, ask: Ask) -> Vec<(JobId, AgentId, Answer)> {
    let message = Up::Ask { agent: AgentId(job), asker: Asker::Server(9), from: Rank(0), ask };
    names.on_message(cx, JobId(job), message);
    answers(cx)
}

fn answers(cx: &mut Cx) -> Vec<(JobId, AgentId, Answer)> {
    cx.jobs.answered.drain(..).map(|(at, answer)| (at.job, at.agent, answer)).collect()
}

#[test]
fn a_publication_answers_a_look_up_of_another_job() {
    let mut cx = in_session(0);
    for job in [1, 2] {
        cx.jobs.announce(job_on(job, 0..2, 1).into());
    }
    let mut names = Names::default();
    let look_up = |timeout_s| Ask::LookUp { names: vec!["a".into()], range: Range::Session, wait: 1, timeout_s };
    assert!(said(&mut names, &mut cx, 2, look_up(None)).is_empty());
    assert!(said(&mut names, &mut cx, 3, look_up(None)).is_empty() && names.size() == 1, "there is no such job");
    let item = Item { name: "a".into(), value: Value::Text("x".into()) };
    let publish = Ask::Publish { items: vec![item], range: Range::Session, keep: Keep::Job };
    let told = said(&mut names, &mut cx, 1, publish.clone());
    assert_eq!(told[0], (JobId(1), AgentId(1), Answer::Done));
    let (job, agent, Answer::Found(found)) = &told[1] else { panic!("{told:?}") };
    assert_eq!(
        (*job, *agent, &found[0].nspace[..]),
        (JobId(2), AgentId(2), &cx.jobs.spec(JobId(1)).unwrap().nspace[..])
    );
    assert_eq!(names.size(), 1);
    names.on_job_over(JobId(1));
    assert!(answers(&mut cx).is_empty() && names.size() == 0);
    assert!(said(&mut names, &mut cx, 2, look_up(Some(1))).is_empty());
    cx.agent.now = names.deadline().expect("the look-up has a limit");
    names.on_tick(&mut cx);
    assert_eq!(answers(&mut cx), [(JobId(2), AgentId(2), Answer::Refused(Refusal::TimedOut))]);
}
