//! A PMIx server process that violates the protocol ends only its own job; requests that the root itself serves.

use super::starting::{SECOND, T, UP, agent, hear, job, outputs, sent};
use super::*;
use crate::io::ExitStatus;
use wireup_wire::ids::{LocalRank, Rank};
use wireup_wire::job::{AppSpec, Block, PmiFlavour};
use wireup_wire::pmix::pack;
use wireup_wire::pmix::{
    Action, Answer, Ask, FromServer, Item, Keep, ProcState, Range, Set, Status, ToServer, Unpacker,
};

const JOB: JobId = JobId(1);

/// The root with a job of two ranks, both on its node, whose server is ready.
fn serving() -> Agent {
    let mut agent = begun(PmiFlavour::Pmix);
    says(&mut agent, &ready());
    let spawned = outputs(&mut agent);
    let plan = spawned.iter().find_map(|output| if let Output::Spawn(plan) = output { Some(plan) } else { None });
    let env: Vec<_> = plan.expect("the server is ready").ranks.iter().map(|rank| rank.env.last().cloned()).collect();
    assert_eq!(env, [Some(b"X=0".to_vec()), Some(b"X=1".to_vec())]);
    for local in 0..2 {
        let local = LocalRank(local);
        agent.handle(T, Input::ChildStarted { job: JOB, local, pid: 70 + u32::from(local.0), spawn_ns: 1, exec_ns: 1 });
    }
    outputs(&mut agent);
    agent
}

fn begun(pmi: PmiFlavour) -> Agent {
    let mut agent = agent(0);
    let mut spec = job(1);
    spec.options.pmi = pmi;
    spec.nodes.truncate(1);
    spec.blocks = vec![Block { first_node: 0, nodes: 1, ppn: 2 }];
    spec.apps = vec![AppSpec { ranks: 2, argv: vec![b"a".to_vec()], cwd: b"/".to_vec(), env: Vec::new() }];
    agent.launch(T, spec);
    let begun = outputs(&mut agent);
    assert!(begun.iter().any(|output| matches!(output, Output::StartPmix(plan) if plan.begin.cpus.len() == 2)));
    assert!(!begun.iter().any(|output| matches!(output, Output::Spawn(_))), "the ranks are not started yet");
    agent
}

fn ready() -> FromServer {
    let env = (0..2).map(|rank| vec![format!("X={rank}").into_bytes()]).collect();
    FromServer::Ready { version: "4.2.2".into(), env }
}

fn says(agent: &mut Agent, message: &FromServer) {
    agent.handle(T, Input::PmixBytes { job: JOB, bytes: pack(message) });
}

fn asks(agent: &mut Agent, id: u64, ask: Ask) -> Vec<ToServer> {
    says(agent, &FromServer::Ask { id, ask });
    told(&outputs(agent))
}

fn told(outputs: &[Output]) -> Vec<ToServer> {
    let mut unpacker = Unpacker::default();
    for output in outputs {
        if let Output::PmixSend { bytes, .. } = output {
            unpacker.push(bytes);
        }
    }
    std::iter::from_fn(|| unpacker.next().expect("our own message")).collect()
}

fn answered(id: u64, answer: Answer) -> Vec<ToServer> {
    vec![ToServer::Answer { id, answer }]
}

fn failure(outputs: &[Output]) -> Option<Cause> {
    let failed = |message| if let Control::Failed(failure) = message { Some(failure.cause) } else { None };
    sent(outputs, UP).into_iter().find_map(failed)
}

fn fence(ranks: &[u32]) -> Ask {
    let set = Set::Ranks(ranks.iter().copied().map(Rank).collect());
    Ask::Fence { set, collect: true, data: Bytes::from_static(b"d"), timeout_s: None }
}

#[test]
fn a_server_that_breaks_the_rules_ends_its_job() {
    let ask = |id, ask| FromServer::Ask { id, ask };
    let modex = |rank| Ask::Modex { rank: Rank(rank), timeout_s: None };
    let lookup =
        || Ask::Lookup { from: Rank(0), keys: vec!["k".into()], range: Range::Session, wait: 1, timeout_s: None };
    let broken: [(&str, Vec<FromServer>); 9] = [
        ("twice that it is ready", vec![ready()]),
        ("rank 2, which is not here", vec![FromServer::Connected { rank: Rank(2) }]),
        ("used request number 7 twice", vec![ask(7, lookup()), ask(7, lookup())]),
        ("ranks that do not exist", vec![ask(1, fence(&[0, 2]))]),
        ("ranks that do not exist", vec![ask(1, fence(&[1, 0]))]),
        ("ranks that do not exist", vec![ask(1, fence(&[]))]),
        ("answered request number 3", vec![FromServer::Modex { request: 3, status: Status::Ok, blob: Bytes::new() }]),
        ("for rank 9", vec![ask(1, Ask::Unpublish { from: Rank(9), keys: Vec::new(), range: Range::Session })]),
        ("more than 65536", (0..=65_536).map(|id| ask(id, lookup())).collect()),
    ];
    for (what, messages) in broken {
        let mut agent = serving();
        messages.iter().for_each(|message| says(&mut agent, message));
        let done = outputs(&mut agent);
        let cause = failure(&done);
        assert!(matches!(&cause, Some(Cause::PmixServer { problem }) if problem.contains(what)), "{what}: {cause:?}");
        assert!(done.contains(&Output::StopPmix { job: JOB }), "{what}");
        assert!(!agent.leaving.has_left(), "{what}: the agent continues");
    }
    let mut agent = serving();
    agent.handle(T, Input::PmixBytes { job: JOB, bytes: Bytes::from_static(b"\x02\0\0\0\xff\xff") });
    assert!(matches!(failure(&outputs(&mut agent)), Some(Cause::PmixServer { .. })), "the bytes are not a message");
    let mut agent = serving();
    assert_eq!(asks(&mut agent, 1, modex(1)), answered(1, Answer::Status(Status::BadParam)), "the rank is local");
}

#[test]
fn a_server_that_dies_is_told_with_its_last_words() {
    let gone = |agent: &mut Agent| {
        let status = ExitStatus::Signalled { signal: 11, core_dumped: false };
        agent.handle(T, Input::PmixGone { job: JOB, status, stderr: "assertion failed\n".into() });
        failure(&outputs(agent))
    };
    let said = "killed by signal 11";
    let cause = gone(&mut serving());
    assert!(
        matches!(&cause, Some(Cause::PmixServer { problem }) if problem.contains(said) && problem.contains("assertion"))
    );
    let mut early = begun(PmiFlavour::Pmix);
    assert!(matches!(gone(&mut early), Some(Cause::PmixServer { problem }) if problem.contains("before it was ready")));
    let mut both = begun(PmiFlavour::Both);
    let status = ExitStatus::Exited(89);
    both.handle(T, Input::PmixGone { job: JOB, status, stderr: String::new() });
    let done = outputs(&mut both);
    assert!(done.iter().any(|output| matches!(output, Output::Spawn(_))), "the job continues without PMIx");
    assert!(sent(&done, UP).iter().any(|message| matches!(message, Control::Note(peer::Note::NoPmix { .. }))));
}

/// All ranks have ended, and the server was told to end.
fn ending() -> Agent {
    let mut agent = serving();
    for (local, rank) in [(0, 0), (1, 1)] {
        says(&mut agent, &FromServer::Finalized { rank: Rank(rank) });
        let local = LocalRank(local);
        agent.handle(T, Input::ChildExited { job: JOB, local, status: ExitStatus::Exited(0) });
        for stream in [crate::io::Stream::Out, crate::io::Stream::Err] {
            agent.handle(T, Input::StdioClosed { job: JOB, local, stream });
        }
    }
    let done = outputs(&mut agent);
    assert_eq!(told(&done).last(), Some(&ToServer::End));
    assert!(!done.iter().any(|output| matches!(output, Output::Sweep { .. } | Output::JobGone { .. })));
    agent
}

#[test]
fn what_a_server_said_that_did_no_harm_is_a_note() {
    let said = |text: &str| {
        let mut agent = ending();
        agent.handle(T, Input::PmixGone { job: JOB, status: ExitStatus::Exited(0), stderr: text.into() });
        let told = sent(&outputs(&mut agent), UP);
        told.into_iter().filter(|message| matches!(message, Control::Note(_))).collect::<Vec<_>>()
    };
    assert!(said("").is_empty());
    assert_eq!(said("old\n"), [Control::Note(peer::Note::PmixSaid { host: "n0".into(), text: "old\n".into() })]);
}

/// A rank that has connected may be waiting for the other inside the library, where the agent cannot see it.
#[test]
fn a_rank_that_leaves_before_it_joins_is_missed() {
    let joins = |agent: &mut Agent| says(agent, &FromServer::Connected { rank: Rank(0) });
    let leaves = |agent: &mut Agent| {
        agent.handle(T, Input::ChildExited { job: JOB, local: LocalRank(1), status: ExitStatus::Exited(0) });
    };
    for joins_first in [true, false] {
        let mut agent = serving();
        if joins_first {
            joins(&mut agent);
        }
        leaves(&mut agent);
        if !joins_first {
            joins(&mut agent);
        }
        assert!(failure(&outputs(&mut agent)).is_none(), "the job may end first");
        agent.handle(T + SECOND, Input::Tick);
        assert!(matches!(failure(&outputs(&mut agent)), Some(Cause::NotFinalized)), "{joins_first}");
    }
    let mut agent = serving();
    joins(&mut agent);
    says(&mut agent, &FromServer::Finalized { rank: Rank(0) });
    leaves(&mut agent);
    agent.handle(T + SECOND, Input::Tick);
    assert!(failure(&outputs(&mut agent)).is_none(), "no rank waits any more");
}

#[test]
fn nothing_is_waited_for_without_end() {
    let mut agent = begun(PmiFlavour::Pmix);
    let due = agent.deadline().expect("the start has a time limit");
    agent.handle(due, Input::Tick);
    assert!(matches!(failure(&outputs(&mut agent)), Some(Cause::PmixServer { problem }) if problem.contains("30 s")));
    let mut agent = ending();
    agent.handle(T + 2 * SECOND, Input::Tick);
    assert!(outputs(&mut agent).contains(&Output::StopPmix { job: JOB }), "the end has a time limit");
    agent.handle(T + 4 * SECOND, Input::Tick);
    let done = outputs(&mut agent);
    assert!(done.contains(&Output::Sweep { job: JOB }) && done.contains(&Output::JobGone { job: JOB }));
}

#[test]
fn requests_that_one_node_answers() {
    let mut agent = serving();
    let whole = Ask::Fence { set: Set::All, collect: true, data: Bytes::from_static(b"all"), timeout_s: None };
    assert_eq!(asks(&mut agent, 1, whole), answered(1, Answer::fenced(b"all")));
    assert_eq!(asks(&mut agent, 2, fence(&[0, 1])), answered(2, Answer::fenced(b"d")), "the same ranks as a list");
    assert_eq!(asks(&mut agent, 3, fence(&[1])), answered(3, Answer::fenced(b"d")));
    let names = Answer::Namespaces { names: vec![("s-1".into(), 2)] };
    assert_eq!(asks(&mut agent, 4, Ask::Namespaces), answered(4, names));
    let ToServer::Answer { answer: Answer::ProcTable { procs }, .. } =
        &asks(&mut agent, 5, Ask::ProcTable { here: false })[0]
    else {
        panic!("no processes");
    };
    let seen: Vec<_> = procs.iter().map(|proc| (proc.pid, proc.state)).collect();
    assert_eq!(seen, [(70, ProcState::Running), (71, ProcState::Running)]);
    let items = vec![Item { key: "port".into(), value: Bytes::from_static(b"5") }];
    let publish = Ask::Publish { from: Rank(0), items: items.clone(), range: Range::Session, keep: Keep::Rank };
    assert_eq!(asks(&mut agent, 6, publish), answered(6, Answer::Status(Status::Ok)));
    let lookup =
        || Ask::Lookup { from: Rank(1), keys: vec!["port".into()], range: Range::Session, wait: 0, timeout_s: None };
    let found = Answer::Found { items: vec![(Rank(0), items[0].clone())] };
    assert_eq!(asks(&mut agent, 7, lookup()), answered(7, found));
    says(&mut agent, &FromServer::Finalized { rank: Rank(0) });
    let local = LocalRank(0);
    agent.handle(T, Input::ChildExited { job: JOB, local, status: ExitStatus::Exited(0) });
    outputs(&mut agent);
    assert_eq!(asks(&mut agent, 8, lookup()), answered(8, Answer::Status(Status::NotFound)), "removed with its rank");
    assert_eq!(
        asks(&mut agent, 9, fence(&[0, 1])),
        answered(9, Answer::fenced(b"d")),
        "the library continues without lost ranks"
    );
}

#[test]
fn events_signals_and_ends() {
    let mut agent = serving();
    says(&mut agent, &FromServer::Watch);
    let control = |set, action| Ask::Control { from: Rank(0), set, action };
    says(&mut agent, &FromServer::Ask { id: 1, ask: control(Set::Ranks(vec![Rank(1)]), Action::Signal(10)) });
    let done = outputs(&mut agent);
    let target = crate::io::SignalTarget::One(LocalRank(1));
    assert!(done.contains(&Output::Signal { job: JOB, target, signal: 10 }));
    let bad = asks(&mut agent, 2, control(Set::All, Action::Signal(99)));
    assert_eq!(bad, answered(2, Answer::Status(Status::BadParam)));
    says(&mut agent, &FromServer::Finalized { rank: Rank(1) });
    let local = LocalRank(1);
    agent.handle(T, Input::ChildExited { job: JOB, local, status: ExitStatus::Exited(0) });
    let heard = told(&outputs(&mut agent));
    assert_eq!(heard, [ToServer::Gone { rank: Rank(1) }], "a normal exit is not an event");
    says(&mut agent, &FromServer::Ask { id: 3, ask: control(Set::All, Action::Terminate) });
    assert!(matches!(failure(&outputs(&mut agent)), Some(Cause::Aborted { code: 1, .. })));
    hear(&mut agent, T, UP, 1, &Control::Kill { grace_ns: 0 });
}
