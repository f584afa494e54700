//! A job's PMIx service without a job: a constructed cx goes in; frames, outputs and what is asked of the job come
//! out.

use super::*;
use crate::collective::Arrived;
use crate::io::{ExitStatus, Output, PmixEnd, SignalTarget};
use crate::job::cx::Common;
use crate::job::cx::Ending;
use crate::job::cx::Sent;
use crate::job::facts::Facts;
use crate::testing::departed;
use bytes::Bytes;
use std::sync::Arc;
use wireup_wire::frame::{DownFrame, Frame, FrameKind, UpFrame};
use wireup_wire::ids::{Epoch, NodeId, Rank};
use wireup_wire::job::{ExchangeScheme, Modex as ModexOption, PmiFlavour};
use wireup_wire::limits::{PMIX_END_NS_MAX, PMIX_PULSE_NS, PMIX_SILENT_NS_MAX, PMIX_START_NS_MAX};
use wireup_wire::modex::Blob;
use wireup_wire::names::{self, Range};
use wireup_wire::peer;
use wireup_wire::pmix::{Ask, FromServer, Set, Unpacker, Wanted, pack};

const T: Instant = Instant(1_000);

/// One of two nodes with two ranks each; the test plays its server process and the other node.
struct Bench {
    facts: Facts,
    common: Common,
    pmix: Pmix,
    is_ending: bool,
    now: Instant,
}

fn site(facts: &Facts) -> CollectiveConfig {
    let rules = Rules { scheme: ExchangeScheme::Tree, collect_max: None };
    CollectiveConfig { rules, compress_min: 0, ..CollectiveConfig::new(facts) }
}

impl Bench {
    fn new(me: u32, pmi: PmiFlavour) -> Bench {
        let facts = Facts::for_test_of(2, 2, me, pmi);
        let pmix = Pmix::new(&facts, &site(&facts)).expect("the job offers PMIx");
        let mut common = Common::new(&facts, None);
        for local in [0, 1].map(LocalRank) {
            assert!(common.ranks.on_started(local, 0, 0, 0));
        }
        Bench { common, facts, pmix: *pmix, is_ending: false, now: T }
    }

    /// A bench whose server process is ready.
    fn serving(me: u32) -> Bench {
        let mut bench = Bench::new(me, PmiFlavour::Pmix);
        bench.act(|pmix, cx| pmix.server.start(cx));
        bench.server_sends(&ready());
        bench
    }

    fn act<T>(&mut self, act: impl FnOnce(&mut Pmix, &mut Cx<'_>) -> T) -> Came {
        let Bench { facts, common, pmix, is_ending, now } = self;
        let (_, acts, endings) = Cx::bench_in(facts, common, *now, |cx| {
            cx.is_ending = *is_ending;
            act(pmix, cx);
            pmix.follow_server(cx);
        });
        Came { acts, endings, asked: std::mem::take(&mut pmix.server.asked) }
    }

    fn server(&mut self, act: impl FnOnce(&mut ServerProcess, &mut Cx<'_>)) -> Came {
        self.act(|pmix, cx| act(&mut pmix.server, cx))
    }

    fn server_sends(&mut self, message: &FromServer) -> Came {
        self.server_bytes(&pack(message))
    }

    fn server_bytes(&mut self, bytes: &[u8]) -> Came {
        self.act(|pmix, cx| {
            pmix.server.on_bytes(bytes);
            while pmix.read(cx) {
                pmix.follow_server(cx);
            }
        })
    }

    fn server_asks(&mut self, id: u64, ask: Ask) -> Came {
        self.server_sends(&FromServer::Ask { id, ask })
    }

    fn tick(&mut self, now: Instant) -> Came {
        self.now = now;
        self.act(|pmix, cx| pmix.on_tick(cx))
    }

    fn gone(&mut self) -> Came {
        self.server(|server, cx| server.on_gone(cx, Ok(exited())))
    }

    /// A frame of the tree: at the root from the child, otherwise from the parent.
    fn frame(&mut self, frame: &Frame) -> Came {
        let child = self.facts.root.then_some(0);
        self.act(|pmix, cx| match frame.kind {
            FrameKind::Up(UpFrame::PmixUp) => pmix.on_child_frame(cx, AgentId(1), frame),
            FrameKind::Down(DownFrame::PmixDown) => pmix.on_parent_frame(cx, frame),
            FrameKind::Up(UpFrame::GroupUp) | FrameKind::Down(DownFrame::GroupDown) => {
                let arrived =
                    crate::collective::groups::Arrived::read(cx.facts, child, frame.clone()).expect("our own");
                pmix.fences.on_group(cx, arrived, &mut pmix.server);
            }
            other => panic!("{other:?}"),
        })
    }
}

fn exited() -> PmixEnd {
    PmixEnd { status: ExitStatus::Exited(0), stderr: String::new(), no_room: None }
}

/// What an input has caused.
struct Came {
    acts: Vec<Sent>,
    endings: Vec<Ending>,
    asked: Vec<Asked>,
}

impl Came {
    fn is_empty(&self) -> bool {
        self.acts.is_empty() && self.endings.is_empty() && self.asked.is_empty()
    }

    fn stops_server(&self) -> bool {
        matches!(self.acts[..], [Sent::Output(Output::Signal { target: SignalTarget::Server, .. }), ..])
    }
}

fn ready() -> FromServer {
    FromServer::Ready { version: "4.2.2".into(), env: vec![Vec::new(); 2], defaults: Vec::new() }
}

fn fence(set: Set, data: &'static str) -> Ask {
    Ask::Fence { set, collect: true, data: data.into(), timeout_s: None }
}

fn ranks(ranks: &[u32]) -> Set {
    Set::Ranks(ranks.iter().copied().map(Rank).collect())
}

fn to_server(came: &Came) -> Vec<ToServer> {
    let mut unpacker = Unpacker::default();
    for act in &came.acts {
        if let Sent::Output(Output::PmixSend { bytes, .. }) = act {
            unpacker.push(bytes);
        }
    }
    std::iter::from_fn(|| unpacker.next().expect("our own message")).collect()
}

fn frames(came: Came) -> Vec<Frame> {
    let frame = |act| match act {
        Sent::ToLauncher(frame) | Sent::ToAgent(_, frame) => Some(frame),
        _ => None,
    };
    came.acts.into_iter().filter_map(frame).collect()
}

fn failures(came: &Came) -> Vec<&Cause> {
    fn cause(ending: &Ending) -> &Cause {
        if let Ending::Fail(failure) = ending { &failure.cause } else { panic!("{ending:?}") }
    }
    came.endings.iter().map(cause).collect()
}

fn answered(id: u64, status: Status) -> Vec<ToServer> {
    vec![ToServer::Answer { id, answer: Answer::Status(status) }]
}

#[test]
fn data_of_pmix_is_compressed_from_a_smaller_size_on() {
    let mut site = site(&Facts::for_test_of(2, 2, 0, PmiFlavour::Pmix));
    let of_servers = site_of_servers(&site, ModexOption::Full);
    assert_eq!((of_servers.compress_min, of_servers.rules.collect_max), (COMPRESS_MIN, None));
    site.compress_min = 7;
    assert_eq!(site_of_servers(&site, ModexOption::Auto).compress_min, 7, "the user's own setting");
}

#[test]
fn ranks_are_started_when_their_server_is_ready() {
    let mut bench = Bench::new(1, PmiFlavour::Pmix);
    let begun = bench.act(|pmix, cx| pmix.server.start(cx));
    assert!(matches!(&begun.acts[..], [Sent::Output(Output::StartPmix(plan))] if plan.begin.node == NodeId(1)));
    assert!(bench.pmix.server.phase.is_there() && !bench.pmix.server.phase.listens());
    assert!(
        matches!(&bench.server_sends(&ready()).asked[..], [Asked::OfJob(AskedOfJob::StartRanks(env))] if env.len() == 2)
    );
    assert!(bench.pmix.server.phase.listens());
    assert_eq!(bench.pmix.library.as_ref().map(|opened| opened.version.clone()), Some("4.2.2".into()));
    assert_eq!(bench.pmix.deadline(), Some(T + PMIX_PULSE_NS), "it is asked whether it answers");
}

#[test]
fn what_the_job_sets_itself_takes_precedence_over_defaults_of_the_server() {
    let variables = |all: &[&str]| all.iter().map(|variable| variable.as_bytes().to_vec()).collect::<Vec<_>>();
    let mut bench = Bench::new(1, PmiFlavour::Pmix);
    // Ranks 2 and 3 are on this node and run different programs.
    let spec = Arc::make_mut(&mut bench.facts.spec);
    spec.env = variables(&["A=job", "ABC=job"]);
    spec.apps.push(spec.apps[0].clone());
    (spec.apps[0].ranks, spec.apps[1].ranks) = (3, 1);
    spec.apps[1].env = variables(&["B=program"]);
    bench.act(|pmix, cx| pmix.server.start(cx));
    let env = vec![variables(&["X=2"]), variables(&["X=3"])];
    let defaults = variables(&["A=1", "B=1", "AB=1", "C=1"]);
    let came = bench.server_sends(&FromServer::Ready { version: "4.2.2".into(), env, defaults });
    let [Asked::OfJob(AskedOfJob::StartRanks(env))] = &came.asked[..] else { panic!("the ranks start") };
    assert_eq!(env[..], [variables(&["X=2", "B=1", "AB=1", "C=1"]), variables(&["X=3", "AB=1", "C=1"])]);
}

#[test]
fn a_server_that_cannot_serve_ends_the_job_once() {
    let failed = FromServer::Failed { problem: "no library".into() };
    let mut bench = Bench::new(0, PmiFlavour::Pmix);
    bench.act(|pmix, cx| pmix.server.start(cx));
    let came = bench.server_sends(&failed);
    assert!(came.stops_server() && matches!(came.asked[..], [Asked::OfJob(AskedOfJob::DropRanks)]));
    assert!(matches!(failures(&came)[..], [Cause::PmixServer { .. }]));
    assert!(bench.server_sends(&failed).is_empty(), "messages of a killed process are ignored");
    assert!(matches!(bench.gone().asked[..], [Asked::Gone]));
    assert!(!bench.pmix.server.phase.is_there());
}

#[test]
fn ranks_that_do_not_need_pmix_start_without_it() {
    let mut bench = Bench::new(1, PmiFlavour::Both);
    bench.act(|pmix, cx| pmix.server.start(cx));
    let came = bench.tick(T + PMIX_START_NS_MAX);
    let [Sent::Output(Output::Signal { target: SignalTarget::Server, .. }), Sent::Note(note)] = &came.acts[..] else {
        panic!("{:?}", came.acts)
    };
    let note = peer::decode::<wireup_wire::talk::Control>(&note.payload);
    assert!(matches!(note, Ok(wireup_wire::talk::Control::Note(peer::Note::NoPmix { .. }))));
    assert!(matches!(&came.asked[..], [Asked::OfJob(AskedOfJob::StartRanks(env))] if env.is_empty()));
    assert_eq!(bench.pmix.library.as_ref().map(|opened| opened.version.clone()), Some(String::new()));
    // The kernel cannot end the process: its end is awaited, but not forever.
    let due = bench.pmix.deadline().expect("its end has a time limit");
    assert!(matches!(bench.tick(due).asked[..], [Asked::Gone]));
}

#[test]
fn a_server_that_ends_before_its_ranks_ends_the_job() {
    let mut bench = Bench::serving(0);
    bench.server_asks(1, fence(Set::All, "a"));
    let came = bench.gone();
    assert!(matches!(failures(&came)[..], [Cause::PmixServer { .. }]));
    assert!(matches!(came.asked[..], [Asked::Gone]));
    assert_eq!(bench.pmix.server.asks.all.len(), 0);
}

#[test]
fn a_server_ends_when_its_ranks_have_ended() {
    let mut bench = Bench::serving(1);
    bench.common.ranks.on_connected(T, LocalRank(0), true);
    let came = bench.act(|pmix, cx| pmix.on_ranks_gone(cx));
    assert_eq!(
        to_server(&came),
        [ToServer::ModexWanted { request: 0, wanted: Wanted::data_of(Rank(2)) }],
        "others may still request it"
    );
    let blob = FromServer::Modex { request: 0, status: Status::Ok, blob: "card".into() };
    assert_eq!(to_server(&bench.server_sends(&blob)), [ToServer::End]);
    assert!(bench.pmix.modex.offers.take_kept().contains_key(&Rank(2)));
    let came = bench.tick(T + PMIX_END_NS_MAX);
    assert!(came.stops_server(), "it did not exit in time");
    assert!(matches!(bench.gone().asked[..], [Asked::Gone]));
    assert!(bench.act(|pmix, cx| pmix.on_ranks_gone(cx)).is_empty() && !bench.pmix.server.phase.is_there());
}

#[test]
fn a_job_that_ends_early_does_not_wait_for_its_server() {
    let mut bench = Bench::new(0, PmiFlavour::Pmix);
    bench.act(|pmix, cx| pmix.server.start(cx));
    let came = bench.server(ServerProcess::drop_deferred);
    assert!(came.stops_server() && matches!(came.asked[..], [Asked::OfJob(AskedOfJob::DropRanks)]));
    assert!(bench.server(ServerProcess::drop_deferred).is_empty());
}

/// A fence of all ranks: this node's contribution goes up; the outcome that comes down is the answer.
#[test]
fn a_fence_of_all_ranks_is_an_exchange() {
    let mut bench = Bench::serving(1);
    let came = bench.server_asks(7, fence(Set::All, "mine"));
    let exchange = |came, kind| frames(came).into_iter().find(|frame| frame.kind == kind);
    let up = exchange(came, UpFrame::ExchangeUp.into()).expect("the local ranks have entered");
    assert_eq!(up.arg, 0);
    let mut root = Bench::serving(0);
    let up = Arrived::of_tree(&root.facts, Some(0), up).expect("our own");
    assert!(to_server(&root.server_asks(9, fence(Set::All, "its"))).is_empty(), "the other node is missing");
    let came = root.act(|pmix, cx| pmix.fences.on_exchange(cx, up, &mut pmix.server));
    assert!(matches!(to_server(&came)[..], [ToServer::Answer { id: 9, answer: Answer::Fenced { .. } }]));
    let down = exchange(came, DownFrame::ExchangeDown.into()).expect("the root has all parts");
    let down = Arrived::of_tree(&bench.facts, None, down).expect("our own");
    let came = bench.act(|pmix, cx| pmix.fences.on_exchange(cx, down, &mut pmix.server));
    assert!(matches!(to_server(&came)[..], [ToServer::Answer { id: 7, answer: Answer::Fenced { .. } }]));
    assert_eq!((bench.pmix.server.asks.all.len(), bench.pmix.fences.all.exchanges.open()), (0, 0));
}

#[test]
fn a_fence_of_all_ranks_ends_for_all_when_it_times_out_for_one() {
    let (mut root, mut bench) = (Bench::serving(0), Bench::serving(1));
    let ask = Ask::Fence { set: Set::All, collect: true, data: "d".into(), timeout_s: Some(2) };
    let sent = frames(bench.server_asks(1, ask));
    let kinds: Vec<FrameKind> = sent.iter().map(|frame| frame.kind).collect();
    let expected = [UpFrame::PmixUp, UpFrame::ExchangeUp].map(FrameKind::Up);
    assert_eq!(kinds, expected, "an agent above must know of the timeout first");
    let up: Vec<Frame> = sent.into_iter().filter(|frame| frame.kind == UpFrame::PmixUp.into()).collect();
    assert_eq!(up.iter().map(|frame| root.frame(frame).acts.len()).collect::<Vec<_>>(), [0], "the root knows of it");
    assert!(bench.pmix.fences.all.exchanges.on_departed(departed(0)));
    assert_eq!(bench.pmix.fences.broken(), None, "the fence will time out");
    let due = bench.pmix.deadline().expect("a timeout is pending");
    let came = bench.tick(due);
    assert_eq!(to_server(&came), answered(1, Status::Timeout));
    let up = frames(came).pop().expect("the root is told");
    let down = frames(root.frame(&up)).pop().expect("the root tells all nodes");
    assert!(to_server(&bench.frame(&down)).is_empty(), "it was already answered");
    assert_eq!(bench.pmix.fences.next_epoch(false), Epoch(1), "the fence was given up here too");
}

#[test]
fn a_fence_of_some_ranks_carries_their_data() {
    let (mut root, mut bench) = (Bench::serving(0), Bench::serving(1));
    let up = frames(bench.server_asks(1, fence(ranks(&[0, 3]), "b"))).pop().expect("the local member has entered");
    assert!(to_server(&root.server_asks(2, fence(ranks(&[0, 3]), "a"))).is_empty());
    let came = root.frame(&up);
    assert!(matches!(&to_server(&came)[..], [ToServer::Answer { id: 2, answer: Answer::Fenced { .. } }]));
    let down = frames(came).pop().expect("the fence is complete");
    assert!(matches!(&to_server(&bench.frame(&down))[..], [ToServer::Answer { id: 1, answer: Answer::Fenced { .. } }]));
}

#[test]
fn a_fence_of_some_ranks_is_answered_when_a_member_has_departed() {
    let (mut root, mut bench) = (Bench::serving(0), Bench::serving(1));
    let up = frames(bench.server_asks(1, fence(ranks(&[0, 3]), "b"))).pop().expect("the local member has entered");
    root.frame(&up);
    let came = root.act(|pmix, cx| pmix.on_member_departed(cx, LocalRank(0), departed(0)));
    let down = frames(came).pop().expect("the others get an answer");
    assert_eq!(to_server(&bench.frame(&down)), answered(1, Status::RankGone));
}

#[test]
fn data_of_a_rank_on_another_node_is_requested_from_its_agent() {
    let (mut wants, mut has) = (Bench::serving(1), Bench::serving(0));
    let of = |rank| Wanted { key: Some("card".into()), ..Wanted::data_of(Rank(rank)) };
    let modex = |rank| Ask::Modex(of(rank));
    let between = |came| {
        let message = |frame: Frame| peer::decode::<Between>(&frame.payload).expect("our own");
        frames(came).into_iter().map(message).collect::<Vec<_>>()
    };
    let want = between(wants.server_asks(1, modex(0))).pop().expect("the owner is asked");
    assert_eq!(want, Between::Want { wanted: vec![of(0)] });
    assert!(between(wants.server_asks(2, modex(1))).is_empty(), "a request is in transit");
    let came = has.act(|pmix, cx| pmix.on_between(cx, AgentId(1), want));
    assert_eq!(to_server(&came), [ToServer::ModexWanted { request: 0, wanted: of(0) }]);
    let taken = between(came).pop().expect("it was acknowledged");
    let next = between(wants.act(|pmix, cx| pmix.on_between(cx, AgentId(0), taken)));
    assert_eq!(next, [Between::Want { wanted: vec![of(1)] }]);
    let have = between(has.server_sends(&FromServer::Modex { request: 0, status: Status::Ok, blob: "card".into() }));
    let blob = Blob { wanted: of(0), status: Status::Ok, bytes: "card".into() };
    assert_eq!(have, [Between::Have { taken: false, blobs: vec![blob] }]);
    let came = wants.act(|pmix, cx| pmix.on_between(cx, AgentId(0), have.into_iter().next().expect("one")));
    assert_eq!(to_server(&came), [ToServer::Answer { id: 1, answer: Answer::Modex { blob: "card".into() } }]);
    assert_eq!(to_server(&wants.server_asks(3, modex(2))), answered(3, Status::BadParam), "the rank is local");
}

#[test]
fn a_request_about_names_is_answered_by_the_number_of_the_server() {
    let mut bench = Bench::serving(1);
    let ask = names::Ask::LookUp { names: vec!["port".into()], range: Range::Session, wait: 1, timeout_s: None };
    let came = bench.server_asks(5, Ask::Names { from: Rank(2), ask: ask.clone() });
    let [Asked::Name { from: Rank(2), id: 5, ask: asked }] = &came.asked[..] else { panic!("the root is asked") };
    assert_eq!(*asked, ask);
    let told = names::Answer::Found(Vec::new());
    let mut answer = || bench.act(|pmix, cx| pmix.server.answer(cx, 5, Answer::Names(told.clone())));
    assert_eq!(to_server(&answer()), [ToServer::Answer { id: 5, answer: Answer::Names(told.clone()) }]);
    assert!(answer().is_empty(), "it was answered");
}

#[test]
fn the_processes_of_all_nodes_are_joined_on_the_way() {
    let (mut root, mut bench) = (Bench::serving(0), Bench::serving(1));
    let down = frames(root.server_asks(4, Ask::ProcTable { here: false })).pop().expect("the child is asked");
    let up = frames(bench.frame(&down)).pop().expect("the child answers");
    let [ToServer::Answer { id: 4, answer: Answer::ProcTable { procs } }] = &to_server(&root.frame(&up))[..] else {
        panic!("the answer has all processes")
    };
    let places: Vec<_> = procs.iter().map(|proc| (proc.rank.0, proc.node.0)).collect();
    assert_eq!(places, [(0, 0), (1, 0), (2, 1), (3, 1)]);
}

#[test]
fn a_server_that_does_not_answer_ends_the_job_and_one_that_does_is_asked_again() {
    let mut bench = Bench::serving(0);
    let next = |bench: &mut Bench| {
        let due = bench.pmix.deadline().expect("it serves");
        bench.tick(due)
    };
    for _ in 0..10 {
        assert_eq!(to_server(&next(&mut bench)), [ToServer::AreYouAlive]);
        assert!(bench.server_sends(&FromServer::Alive).is_empty());
    }
    for _ in 0..PMIX_SILENT_NS_MAX / PMIX_PULSE_NS {
        assert_eq!(to_server(&next(&mut bench)), [ToServer::AreYouAlive]);
    }
    let came = next(&mut bench);
    let [Cause::PmixServer { problem }] = failures(&came)[..] else { panic!("the job goes on") };
    assert_eq!(problem, "it has not answered for 60 s");
    assert!(came.stops_server());
    assert_eq!(bench.pmix.server.pulse.deadline(), None, "it is not asked any more");
}

#[test]
fn a_protocol_violation_of_the_server_ends_the_job_once() {
    let ask = |id, ask| FromServer::Ask { id, ask };
    let modex = |rank| Ask::Modex(Wanted::data_of(Rank(rank)));
    let (range, names) = (Range::Session, Vec::new());
    let lookup = names::Ask::LookUp { names: names.clone(), range, wait: 0, timeout_s: Some(1) };
    let withdraw = names::Ask::Withdraw { names, range, by: names::Publisher::Rank };
    let code = wireup_wire::pmix::Event::Library(1);
    let raise = FromServer::Raise { from: Rank(0), code, affected: None, to: ranks(&[1, 0]), infos: Bytes::new() };
    let text = vec![0; wireup_wire::limits::STDIO_CHUNK_MAX + 1];
    let abort = FromServer::Abort { rank: Rank(2), code: 1, message: String::new() };
    let broken = [
        ("twice, that it is ready", ready()),
        ("which it was not asked for", FromServer::Opened),
        ("rank 2, which is not on this node", FromServer::Connected { rank: Rank(2) }),
        ("rank 9, which is not on this node", FromServer::Finalized { rank: Rank(9) }),
        ("rank 2, which is not on this node", abort),
        ("answered request number 3", FromServer::Modex { request: 3, status: Status::Ok, blob: Bytes::new() }),
        ("more output at once", FromServer::Log { rank: Rank(0), stream: 1, text }),
        ("ranks that do not exist", raise),
        ("for rank 3", ask(1, Ask::Names { from: Rank(3), ask: lookup })),
        ("for rank 9", ask(1, Ask::Names { from: Rank(9), ask: withdraw })),
        ("no rank of this node", ask(1, fence(ranks(&[2, 3]), ""))),
        ("ranks that do not exist", ask(1, fence(ranks(&[0, 4]), ""))),
        ("ranks that do not exist", ask(1, fence(ranks(&[1, 0]), ""))),
        ("ranks that do not exist", ask(1, fence(ranks(&[]), ""))),
        // Request number 77 is outstanding already.
        ("used request number 77 twice", ask(77, modex(2))),
    ];
    for (problem, message) in broken {
        let mut bench = Bench::serving(0);
        bench.server_asks(77, fence(Set::All, "d"));
        let came = bench.server_sends(&message);
        let [Cause::PmixServer { problem: found }] = failures(&came)[..] else { panic!("{message:?}") };
        assert!(found.contains(problem), "{message:?}: {found}");
        assert!(to_server(&came).is_empty(), "{message:?}");
        assert!(came.stops_server(), "{message:?}");
        assert!(bench.server_sends(&message).is_empty() && bench.pmix.server.asks.all.is_empty(), "{message:?}");
    }
}

fn opened(facts: &Facts, versions: [&str; 2]) -> (Result<(), String>, String) {
    let mut library = None;
    let mut last = Ok(());
    for (node, version) in versions.into_iter().enumerate() {
        last = compare_libraries(&mut library, facts, Opened { node: NodeId(node as u32), version: version.into() });
    }
    (last, library.expect("two were reported").version.clone())
}

#[test]
fn libraries_of_one_series_are_compatible() {
    let facts = Facts::for_test_of(2, 2, 0, PmiFlavour::Pmix);
    assert_eq!(opened(&facts, ["4.2.2", "4.2.9"]), (Ok(()), "4.2.2".into()));
    let (result, _) = opened(&facts, ["4.2.2", "5.0.1"]);
    let problem = result.expect_err("two series");
    assert!(problem.contains("4.2.2 on node n0 and 5.0.1 on node n1"), "{problem}");
    assert!(opened(&facts, ["4.2.2", ""]).0.is_err(), "the job requires PMIx");
}

#[test]
fn a_node_may_lack_pmix_if_ranks_do_not_need_it() {
    let facts = Facts::for_test_of(2, 2, 0, PmiFlavour::Both);
    assert_eq!(opened(&facts, ["4.2.2", ""]), (Ok(()), "4.2.2".into()));
    assert_eq!(opened(&facts, ["", "4.2.2"]), (Ok(()), "4.2.2".into()));
    assert!(opened(&facts, ["4.2.2", "5.0.1"]).0.is_err());
}

fn gone(exit: Option<u8>) -> Process {
    let mut process = Process::new(Rank(1));
    process.state = ProcessState::Gone { exit };
    process
}

#[test]
fn a_normal_exit_is_not_an_event() {
    assert_eq!(end_of(&gone(Some(0))), None);
    let mut deserter = gone(Some(0));
    deserter.spoke_pmi = true;
    let mut late = gone(Some(3));
    late.finalized = true;
    assert_eq!(end_of(&late), None);
    for process in [gone(None), gone(Some(3)), deserter] {
        let sent = end_of(&process);
        assert!(matches!(sent, Some(Up::Event { code: Event::ProcAborted, affected: Some(Rank(1)), .. })));
    }
}

#[test]
fn an_event_is_forwarded_to_its_local_ranks() {
    let facts = Facts::for_test(2, 2, 1);
    let recipients = |to| recipients(&facts, to);
    assert_eq!(recipients(Set::All), Some(None));
    assert_eq!(recipients(Set::Ranks(vec![Rank(0), Rank(3)])), Some(Some(vec![Rank(3)])));
    assert_eq!(recipients(Set::Ranks(vec![Rank(0), Rank(1)])), None);
}
