//! A PMIx server process that violates the protocol ends only its own job; requests that the root itself serves.

use super::*;
use crate::io::{ExitStatus, JobEvent, PmixEnd, SignalTarget, Started};
use wireup_wire::ids::{LocalRank, Rank};
use wireup_wire::job::{self, PmiFlavour, PortRange};
use wireup_wire::limits::PMIX_START_NS_MAX;
use wireup_wire::names::{self, Item, Keep, Range, Value};
use wireup_wire::pmix::{Action, Answer, Ask, FromServer, ProcState, Set, Status, ToServer, Unpacker, pack};
use wireup_wire::rank_address;
use wireup_wire::signal::SIGKILL;
use wireup_wire::talk::JobDown;

const JOB: JobId = JobId(1);

/// The root agent with a job of two ranks, both on the root's node; the job's PMIx server is ready.
fn serving() -> TestAgent {
    let mut agent = begun(PmiFlavour::Pmix);
    server_sends(&mut agent, &ready());
    let outputs = agent.outputs();
    let env: Vec<_> =
        outputs.plan().expect("the server is ready").ranks.iter().map(|rank| rank.env.last().cloned()).collect();
    assert_eq!(env, [Some(b"X=0".to_vec()), Some(b"X=1".to_vec())]);
    for local in 0..2 {
        let local = LocalRank(local);
        agent.event(
            JOB,
            JobEvent::RankStarted {
                local,
                result: Ok(Started { pid: 70 + u32::from(local.0), spawn_ns: 1, exec_ns: 1 }),
            },
        );
    }
    agent.outputs();
    agent
}

fn begun(pmi: PmiFlavour) -> TestAgent {
    let mut agent = TestAgent::new(0, session(7));
    let mut spec = job_on(1, [0], 2);
    spec.options.pmi.flavour = pmi;
    let outputs = agent.launch(spec).outputs();
    assert!(outputs.iter().any(|output| matches!(output, Output::StartPmix(plan) if plan.begin.cpus.len() == 2)));
    assert!(!outputs.spawns(), "the ranks are not started yet");
    agent
}

/// A root whose ranks get listening sockets. The sockets are not bound yet, and the PMIx server is not ready.
fn with_sockets(pmi: PmiFlavour) -> TestAgent {
    let mut agent = TestAgent::new(0, session(7));
    let mut spec = job_on(1, [0], 2);
    spec.options.pmi.flavour = pmi;
    spec.options.process.rank_ports = Some(job::RankPorts { range: PortRange { low: 100, high: 200 }, listen: true });
    let outputs = agent.launch(spec).outputs();
    assert!(outputs.iter().any(|output| matches!(output, Output::StartPmix(plan) if plan.begin.has_endpoints)));
    agent
}

/// Reports that the listening sockets are bound on the only node with ranks.
fn listening(agent: &mut TestAgent) -> Vec<Output> {
    agent.event(JOB, JobEvent::RanksListen { result: Ok(Bytes::from_static(b"here")) }).outputs()
}

fn stop_pmix() -> Output {
    Output::Signal { job: JOB, target: SignalTarget::Server, signal: SIGKILL }
}

#[test]
fn a_server_registers_the_job_when_it_is_known_where_all_ranks_listen() {
    let mut agent = with_sockets(PmiFlavour::Pmix);
    // The time limit of the server's start begins only when all nodes have reported where their ranks listen.
    let outputs = agent.tick_at(T + 2 * PMIX_START_NS_MAX).outputs();
    assert!(!outputs.contains(&stop_pmix()), "{outputs:?}");
    let outputs = listening(&mut agent);
    assert_eq!(to_server(&outputs), [ToServer::Endpoints { rows: vec![Bytes::from_static(b"here")] }]);
    assert!(!outputs.spawns());
    server_sends(&mut agent, &ready());
    assert!(agent.outputs().spawns());

    let mut early = with_sockets(PmiFlavour::Pmix);
    server_sends(&mut early, &ready());
    assert!(matches!(failure(&mut early), Some(Cause::PmixServer { problem }) if problem.contains("too early")));

    let mut silent = with_sockets(PmiFlavour::Pmix);
    listening(&mut silent);
    silent.tick_at(T + PMIX_START_NS_MAX);
    assert!(matches!(failure(&mut silent), Some(Cause::PmixServer { problem }) if problem.contains("not ready")));
}

/// The job's description has the addresses of all ranks, whose ports were reserved before: no agent has to report them.
#[test]
fn a_job_may_bring_the_addresses_of_all_nodes() {
    let mut agent = TestAgent::new(0, session(2));
    let mut spec = job_on(1, [0, 1], 2);
    spec.options.pmi.flavour = PmiFlavour::Pmix;
    spec.options.process.rank_ports = Some(job::RankPorts { range: PortRange { low: 100, high: 200 }, listen: true });
    spec.endpoints = [103, 150].map(|port| rank_address::encode(7, port, &[]).into()).into();
    let rows = spec.endpoints.clone();
    let outputs = agent.launch(spec).outputs();
    let listens = |output: &Output| matches!(output, Output::ListenForRanks { base: Some(103), count: 2, .. });
    assert!(outputs.iter().any(listens), "{outputs:?}");
    assert_eq!(to_server(&listening(&mut agent)), [ToServer::Endpoints { rows }]);
    assert_eq!(agent.open_exchanges(), 0);
}

/// If a job can run without PMIx, it continues when its server ends; nothing more is sent to that server.
#[test]
fn a_server_may_end_before_it_is_known_where_the_ranks_listen() {
    let mut agent = with_sockets(PmiFlavour::Both);
    let gone = Input::Job {
        job: JOB,
        event: JobEvent::PmixGone {
            end: Ok(PmixEnd { status: ExitStatus::Exited(89), stderr: String::new(), no_room: None }),
        },
    };
    assert!(!agent.handle(gone).outputs().spawns(), "the ranks wait for their sockets");
    let outputs = listening(&mut agent);
    assert!(outputs.spawns() && to_server(&outputs).is_empty(), "{outputs:?}");
}

fn ready() -> FromServer {
    let env = (0..2).map(|rank| vec![format!("X={rank}").into_bytes()]).collect();
    FromServer::Ready { version: "4.2.2".into(), env, defaults: Vec::new() }
}

fn server_sends(agent: &mut TestAgent, message: &FromServer) {
    agent.event(JOB, JobEvent::PmixBytes { bytes: pack(message) });
}

fn server_asks(agent: &mut TestAgent, id: u64, ask: Ask) -> Vec<ToServer> {
    server_sends(agent, &FromServer::Ask { id, ask });
    to_server(&agent.outputs())
}

fn to_server(outputs: &[Output]) -> Vec<ToServer> {
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

fn failure(agent: &mut TestAgent) -> Option<Cause> {
    cause(&agent.sent(UP)).cloned()
}

fn fence(ranks: &[u32]) -> Ask {
    let set = Set::Ranks(ranks.iter().copied().map(Rank).collect());
    Ask::Fence { set, collect: true, data: Bytes::from_static(b"d"), timeout_s: None }
}

/// `pmix::tests` has the list of all violations.
#[test]
fn a_server_that_violates_the_protocol_ends_its_job() {
    for bytes in [pack(&ready()), Bytes::from_static(b"\x02\0\0\0\xff\xff")] {
        let mut agent = serving();
        let outputs = agent.event(JOB, JobEvent::PmixBytes { bytes }).outputs();
        let sent = outputs.sent(UP);
        assert!(matches!(cause(&sent), Some(Cause::PmixServer { .. })), "{sent:?}");
        assert!(outputs.contains(&stop_pmix()));
        assert!(!agent.session.leaving.has_left(), "the agent continues");
    }
}

#[test]
fn the_end_of_a_server_is_reported_with_its_last_output() {
    let gone = |agent: &mut TestAgent| {
        let status = ExitStatus::Signalled { signal: 11, core_dumped: false };
        agent.event(
            JOB,
            JobEvent::PmixGone { end: Ok(PmixEnd { status, stderr: "assertion failed\n".into(), no_room: None }) },
        );
        failure(agent)
    };
    let words = "killed by signal 11";
    assert!(matches!(gone(&mut serving()), Some(Cause::PmixServer { problem })
        if problem.contains(words) && problem.contains("assertion")));
    let mut early = begun(PmiFlavour::Pmix);
    assert!(matches!(gone(&mut early), Some(Cause::PmixServer { problem }) if problem.contains("before it was ready")));
    let mut both = begun(PmiFlavour::Both);
    let status = ExitStatus::Exited(89);
    let outputs = both
        .event(JOB, JobEvent::PmixGone { end: Ok(PmixEnd { status, stderr: String::new(), no_room: None }) })
        .outputs();
    assert!(outputs.spawns(), "the job continues without PMIx");
    assert!(outputs.sent(UP).iter().any(|message| matches!(message, Control::Note(peer::Note::NoPmix { .. }))));
}

/// A root with a job whose ranks have all ended, and whose PMIx server was told to end.
fn ending() -> TestAgent {
    let mut agent = serving();
    for rank in 0..2 {
        server_sends(&mut agent, &FromServer::Finalized { rank: Rank(rank) });
        agent.rank_ended(1, rank as u16, ExitStatus::Exited(0));
    }
    let outputs = agent.outputs();
    assert_eq!(to_server(&outputs).last(), Some(&ToServer::End));
    assert!(!outputs.iter().any(|output| matches!(output, Output::Sweep { .. } | Output::JobGone { .. })));
    agent
}

#[test]
fn output_of_a_server_is_a_note_once_it_serves() {
    let notes = |mut agent: TestAgent| {
        let mut sent = agent.event(JOB, JobEvent::PmixSaid { text: "old\n".into() }).sent(UP);
        sent.retain(|message| matches!(message, Control::Note(_)));
        sent
    };
    let said = [Control::Note(peer::Note::PmixSaid { host: "n0".into(), text: "old\n".into() })];
    assert_eq!([notes(serving()), notes(ending())], [said.clone().to_vec(), said.to_vec()]);
    assert!(notes(begun(PmiFlavour::Pmix)).is_empty(), "it is not ready");
    let mut agent = begun(PmiFlavour::Pmix);
    agent.event(JOB, JobEvent::PmixSaid { text: "old\n".into() });
    server_sends(&mut agent, &ready());
    assert!(agent.outputs().sent(UP).contains(&said[0]));
}

/// A rank that has connected may wait inside the library for a rank that never connects, where the agent cannot see it.
#[test]
fn a_rank_that_exits_without_pmix_fails_the_job_if_another_uses_it() {
    let joins = |agent: &mut TestAgent| server_sends(agent, &FromServer::Connected { rank: Rank(0) });
    let leaves = |agent: &mut TestAgent| {
        agent.rank_exited(1, 1, ExitStatus::Exited(0));
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
        assert!(failure(&mut agent).is_none(), "the job may end first");
        agent.tick_at(T + SECOND);
        assert!(matches!(failure(&mut agent), Some(Cause::NotFinalized { initialised: false })), "{joins_first}");
    }
    let mut agent = serving();
    joins(&mut agent);
    server_sends(&mut agent, &FromServer::Finalized { rank: Rank(0) });
    leaves(&mut agent);
    agent.tick_at(T + SECOND);
    assert!(failure(&mut agent).is_none(), "no rank waits any more");
}

#[test]
fn waits_for_the_server_are_limited() {
    let mut agent = begun(PmiFlavour::Pmix);
    agent.tick_when_due();
    assert!(matches!(failure(&mut agent), Some(Cause::PmixServer { problem }) if problem.contains("30 s")));
    let mut agent = ending();
    agent.tick_at(T + 2 * SECOND);
    assert!(agent.outputs().contains(&stop_pmix()), "the end has a time limit");
    let outputs = agent.tick_at(T + 4 * SECOND).outputs();
    assert!(outputs.contains(&Output::Sweep { job: JOB }) && outputs.contains(&Output::JobGone { job: JOB }));
}

#[test]
fn one_node_answers_requests_about_its_own_ranks() {
    let mut agent = serving();
    let whole = Ask::Fence { set: Set::All, collect: true, data: Bytes::from_static(b"all"), timeout_s: None };
    assert_eq!(server_asks(&mut agent, 1, whole), answered(1, Answer::fenced(b"all")));
    assert_eq!(
        server_asks(&mut agent, 2, fence(&[0, 1])),
        answered(2, Answer::fenced(b"d")),
        "the same ranks as a list"
    );
    assert_eq!(server_asks(&mut agent, 3, fence(&[1])), answered(3, Answer::fenced(b"d")));
    let names = Answer::Namespaces { names: vec![("s-1".into(), 2)] };
    assert_eq!(server_asks(&mut agent, 4, Ask::Namespaces), answered(4, names));
    let ToServer::Answer { answer: Answer::ProcTable { procs }, .. } =
        &server_asks(&mut agent, 5, Ask::ProcTable { here: false })[0]
    else {
        panic!("no processes");
    };
    let seen: Vec<_> = procs.iter().map(|proc| (proc.pid, proc.state)).collect();
    assert_eq!(seen, [(70, ProcState::Running), (71, ProcState::Running)]);
    let item = Item { name: "port".into(), value: Value::Packed(Bytes::from_static(b"5")) };
    let publish = names::Ask::Publish { items: vec![item.clone()], range: Range::Session, keep: Keep::Rank };
    let publish = Ask::Names { from: Rank(0), ask: publish };
    assert_eq!(server_asks(&mut agent, 6, publish), answered(6, Answer::Names(names::Answer::Done)));
    let lookup = || Ask::Names {
        from: Rank(1),
        ask: names::Ask::LookUp { names: vec!["port".into()], range: Range::Session, wait: 0, timeout_s: None },
    };
    let found = names::Found { nspace: "s-1".into(), rank: Rank(0), item };
    let found = Answer::Names(names::Answer::Found(vec![found]));
    assert_eq!(server_asks(&mut agent, 7, lookup()), answered(7, found));
    server_sends(&mut agent, &FromServer::Finalized { rank: Rank(0) });
    agent.rank_exited(1, 0, ExitStatus::Exited(0)).outputs();
    assert_eq!(
        server_asks(&mut agent, 8, lookup()),
        answered(8, Answer::Names(names::Answer::Refused(names::Refusal::NotFound))),
        "removed with its rank"
    );
    assert_eq!(
        server_asks(&mut agent, 9, fence(&[0, 1])),
        answered(9, Answer::fenced(b"d")),
        "the library continues without lost ranks"
    );
}

#[test]
fn job_control_signals_and_ends_ranks() {
    let mut agent = serving();
    server_sends(&mut agent, &FromServer::Watch);
    let control = |set, action| Ask::Control { from: Rank(0), set, action };
    server_sends(&mut agent, &FromServer::Ask { id: 1, ask: control(Set::Ranks(vec![Rank(1)]), Action::Signal(10)) });
    let outputs = agent.outputs();
    let target = SignalTarget::One(LocalRank(1));
    assert!(outputs.contains(&Output::Signal { job: JOB, target, signal: 10 }));
    let bad = server_asks(&mut agent, 2, control(Set::All, Action::Signal(99)));
    assert_eq!(bad, answered(2, Answer::Status(Status::BadParam)));
    server_sends(&mut agent, &FromServer::Finalized { rank: Rank(1) });
    agent.rank_exited(1, 1, ExitStatus::Exited(0));
    let messages = to_server(&agent.outputs());
    assert_eq!(messages, [ToServer::Gone { rank: Rank(1) }], "a normal exit is not an event");
    server_sends(&mut agent, &FromServer::Ask { id: 3, ask: control(Set::All, Action::Terminate) });
    assert!(matches!(failure(&mut agent), Some(Cause::Aborted { code: 1, .. })));
    agent.receive(UP, 1, JobDown::Kill { grace_ns: 0 });
}
