//! The bytes of every message between agents: a change of any of them requires a new [`PROTOCOL_VERSION`].
//!
//! `golden/messages.txt` contains them; the fuzz targets' corpus starts with the same messages. `BLESS=1` rewrites
//! both.

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use wireup_wire::collective::Collective;
use wireup_wire::ids::{AgentId, Epoch, JobId, NodeId, Rank};
use wireup_wire::job::{
    AppSpec, BareFolder, BindTo, Binding, Block, Framework, JobOptions, JobSpec, Limit, NodeSpec, Object, Over,
    PmiOptions, PortRange, Preload, ProcessOptions, PtySpec, RankPorts, Resource, Staged, StdinTarget, StdioOptions,
};
use wireup_wire::names::NewJob;
use wireup_wire::peer::{
    self, AgentSpec, Bootstrap, Cause, Containment, Departed, Done, Ended, ExchangeTraffic, ExitStatus, Failure,
    FenceTrace, Gone, GroupStall, Hello, InitStall, Lacking, LinkOptions, MissingAgent, Note, Opened, PROTOCOL_VERSION,
    PmixFault, RankError, RankTrace, Rejoin, RemoteShell, Role, Secret, SessionSpec, SpawnError, SpawnStep, Stack,
    StallReport, TracePart, Traffic, bootstrap_message, encode, probe,
};
use wireup_wire::pmi::{SpawnCommand, SpawnRequest};
use wireup_wire::session::{
    Entry, JobEntry, JobState, Log, NodeState, PortsPerNode, Presence, RankPortsNews, RankPortsReport, SeatOrder,
    SeatRequest, SessionSnapshot, Standing, TreePosition, Welcome,
};
use wireup_wire::talk::{Control, FromLauncher, JobDown, JobUp, SessionDown, SessionUp, ToLauncher};

fn job() -> JobSpec {
    JobSpec {
        job: JobId(1),
        nspace: "wireup.1".into(),
        nodes: vec![NodeSpec { agent: AgentId(1), name: "n1".into(), shared: false }],
        blocks: vec![Block { first_node: 0, nodes: 1, ppn: 2 }],
        apps: vec![AppSpec { ranks: 2, argv: vec![b"./a".to_vec()], cwd: b"/".to_vec(), env: vec![b"A=1".to_vec()] }],
        env: vec![b"B=2".to_vec()],
        endpoints: vec![Bytes::from_static(b"address")],
        spawned: Some(wireup_wire::job::Spawned {
            family: JobId(8),
            by: JobId(9),
            nspace: "wireup.9".into(),
            rank: Rank(3),
            preput: vec![(Bytes::from_static(b"key"), Bytes::from_static(b"value"))],
        }),
        options: JobOptions {
            binding: Binding {
                to: BindTo::To { object: Object::Core, count: 2 },
                over: Some(Over { object: Object::Numa, step: 1, ranks: 1 }),
                cpus: Some("0-7".into()),
                slots: vec!["0:1".into()],
            },
            pmi: PmiOptions {
                universe_size: Some(8),
                memory_alloc_kinds: Some("mpi:alloc_mem".into()),
                ..PmiOptions::default()
            },
            stdio: StdioOptions {
                stdin: StdinTarget::One(Rank(1)),
                stdin_inherit: true,
                pty: Some(PtySpec { rank: Rank(0), rows: 24, columns: 80 }),
                label: true,
                split_output: true,
                ..StdioOptions::default()
            },
            process: ProcessOptions {
                rank_env: true,
                framework: Some(Framework::TorchRoutable),
                rendezvous_range: PortRange { low: 10_000, high: 20_000 },
                launcher_env: true,
                umask: 0o27,
                limits: vec![Limit { resource: Resource::Memlock, soft: u64::MAX }],
                rank_ports: Some(RankPorts { range: PortRange { low: 10_000, high: 20_000 }, listen: true }),
                gpus_per_rank: 2,
                staged: Some(Staged {
                    set: [7; 32],
                    store: b"/dev/shm/s".to_vec(),
                    required: true,
                    by_library: true,
                    bare: vec![BareFolder { path: b"/nfs".to_vec(), name: b"nfs4".to_vec(), mode: 0o755 }],
                }),
                prefetch: vec![b"/nfs/app".to_vec(), b"/nfs/lib.so".to_vec()],
                preload: Some(Preload {
                    modules: vec!["numpy".into(), "scipy.linalg".into()],
                    limit_ns: 500,
                    required: true,
                    asked: true,
                    keep: false,
                }),
            },
            profile: true,
            kill_grace_ns: 300,
            stall_report_ns: 400,
            ..JobOptions::default()
        },
    }
}

fn session() -> SessionSpec {
    SessionSpec {
        name: "s".into(),
        fanout: 2,
        agents: vec![AgentSpec { host: "n0".into() }, AgentSpec { host: "n1".into() }].into(),
        remote_shell: RemoteShell::Ssh(vec!["ssh".into(), "-q".into()]),
        shells_max: 64,
        program: "/bin/wireup".into(),
        start_timeout_ns: 60,
        links: LinkOptions {
            node_timeout_ns: 30,
            encrypt: true,
            interface: Some("10.1.0.0/16".into()),
            ..LinkOptions::default()
        },
        verbose: true,
        containment: Containment::Machine { process: 7, by_user: false },
        record_dir: Some("/rec".into()),
        standing: Some(Standing {
            slots: vec![2, 4],
            rank_ports: Some(PortsPerNode { count: 256, range: PortRange { low: 10_000, high: 20_000 } }),
        }),
        ..SessionSpec::default()
    }
}

fn snapshot() -> SessionSnapshot {
    let place = TreePosition { incarnation: 3, parent: AgentId(0), is_adopted: true, is_lost: false };
    SessionSnapshot {
        root: vec!["10.0.0.1:5000".into()],
        at: 4,
        places: vec![(AgentId(5), place)],
        newest: JobId(5),
        live: vec![JobId(4)],
    }
}

fn log() -> Log {
    let entries = vec![Entry::Lost(vec![AgentId(5)]), Entry::Return(vec![AgentId(5)])];
    Log { at: 2, entries, has_moved: true, newest: JobId(5), live: vec![JobId(4)] }
}

fn welcome() -> Welcome {
    let node = |presence| NodeState { host: "n0".into(), slots: 2, presence };
    Welcome {
        job: JobId(3),
        session: "s".into(),
        fanout: 2,
        shared: true,
        by_step: false,
        transport: Default::default(),
        nodes: vec![node(Presence::Up), node(Presence::Starting), node(Presence::Lost { problem: "cut".into() })],
    }
}

fn entry() -> JobEntry {
    JobEntry {
        job: JobId(1),
        parent: Some(JobId(9)),
        nspace: "wireup.1".into(),
        program: "./a".into(),
        ranks: 2,
        nodes: vec![AgentId(1)],
        added: vec!["n7".into()],
        seats: Some(SeatOrder::Spread),
        age_ns: 7,
        state: JobState::Running,
    }
}

fn spawn_request() -> SpawnRequest {
    let info = vec![(b"host".to_vec(), b"n1".to_vec())];
    let command = SpawnCommand { program: b"./a".to_vec(), args: vec![b"x".to_vec()], ranks: 3, info, env: Vec::new() };
    SpawnRequest { commands: vec![command], preput: vec![(b"key".to_vec(), b"value".to_vec())] }
}

fn failure(cause: Cause) -> Failure {
    Failure { node: NodeId(3), host: "n3".into(), rank: Some(Rank(7)), pid: Some(77), cause }
}

fn failed(cause: Cause) -> Control {
    JobUp::Failed(failure(cause)).into()
}

fn missing() -> MissingAgent {
    MissingAgent { agent: AgentId(5), problem: "No route to host".into() }
}

/// One of each message, and one for each kind of failure and note, with its name.
fn controls() -> Vec<(&'static str, Control)> {
    let departed = Departed {
        rank: Rank(1),
        pid: 11,
        node: NodeId(2),
        epoch: Epoch(3),
        modex_epoch: Epoch(4),
        finalized: true,
        initialised: true,
        deserted: false,
        exit: Some(9),
    };
    let stall = StallReport {
        node: NodeId(1),
        host: "n1".into(),
        collective: None,
        epoch: Epoch(2),
        arrived: 3,
        missing: vec![(Rank(5), 55)],
        missing_count: 1,
        groups: vec![GroupStall {
            group: "ranks 1-3 (tag 2)".into(),
            arrived: 2,
            missing: vec![(Rank(5), 55)],
            missing_count: 1,
        }],
        running: 4,
        initialised: 3,
        init: Some(InitStall { arrived: 3, missing: vec![(Rank(5), 55)], missing_count: 1, by_other: 0 }),
    };
    let error = SpawnError { step: SpawnStep::Find, what: "./a".into(), errno: 2 };
    let lost = Cause::AgentLost { agent: AgentId(1), problem: "cut".into() };
    let direct = Cause::NoDirectLink { agent: AgentId(4), host: "n4".into(), problem: "refused".into() };
    let left = Cause::LeftFence {
        epoch: Epoch(1),
        collective: Collective::Fence,
        exit: Some(0),
        finalized: false,
        waiting: 3,
    };
    let done = Done { ranks: 2, pmi_clients: 1, is_torn: true };
    let (agent, parent, asker) = (AgentId(5), AgentId(2), AgentId(1));
    vec![
        ("launch", FromLauncher::Launch(job().into()).into()),
        (
            "started",
            JobUp::Started { ranks: 2, pmix: Some(Opened { node: NodeId(1), version: "5.0.1".into() }) }.into(),
        ),
        ("failed", failed(Cause::Exited(1))),
        ("failed-out-of-memory", failed(Cause::OutOfMemory)),
        ("failed-late", failed(Cause::ExitedLate(1))),
        ("failed-signalled", failed(Cause::Signalled { signal: 9, core_dumped: true })),
        ("failed-spawn", failed(Cause::Spawn(error))),
        ("failed-aborted", failed(Cause::Aborted { code: -1, message: "no".into() })),
        ("failed-left-fence", failed(left)),
        ("failed-not-finalized", failed(Cause::NotFinalized { initialised: true })),
        ("failed-pmi", failed(Cause::Pmi { problem: "bad".into() })),
        ("failed-missing", failed(Cause::AgentsMissing { missing: vec![missing()] })),
        ("failed-lost", failed(lost)),
        ("failed-direct", failed(direct)),
        (
            "failed-keeper",
            failed(Cause::KeeperLost {
                problem: Some(SpawnError { step: SpawnStep::Fork, what: "cannot open /dev/null".into(), errno: 24 }),
            }),
        ),
        ("failed-timeout", failed(Cause::TimedOut { after_ns: 5 })),
        ("failed-interrupt", failed(Cause::Interrupted { signal: 2 })),
        ("failed-left-group", failed(Cause::LeftGroup { group: "rank 1".into(), exit: Some(0) })),
        ("failed-pmix", failed(Cause::PmixServer { problem: PmixFault::NoRoom.with("gone") })),
        ("failed-killed", failed(Cause::Killed { by: "me".into() })),
        ("failed-session-ended", failed(Cause::SessionEnded { reason: "down".into() })),
        ("failed-launcher", failed(Cause::Launcher { problem: "full".into() })),
        ("departed", JobUp::Departed(departed).into()),
        ("done", JobUp::Done(done).into()),
        ("signal", JobDown::Signal { signal: 15 }.into()),
        ("resize", JobDown::Resize { rows: 24, columns: 80 }.into()),
        ("kill", JobDown::Kill { grace_ns: 500 }.into()),
        ("stall-ask", JobDown::StallAsk { collective: Some(Collective::Ring) }.into()),
        ("stall", JobUp::Stall(stall).into()),
        ("stack-ask", JobDown::StackAsk.into()),
        (
            "stacks",
            JobUp::Stacks(vec![
                Stack { ranks: vec![Rank(1), Rank(3)], calls: Ok(vec!["read".into(), "main".into()]) },
                Stack { ranks: vec![Rank(2)], calls: Err("no tool".into()) },
            ])
            .into(),
        ),
        ("stall-ask-up", JobUp::StallAsk { collective: None }.into()),
        ("session-launch", SessionDown::Launch(job().into()).into()),
        ("shutdown", SessionDown::Shutdown.into()),
        (
            "start-for",
            SessionUp::StartFor {
                agent,
                jobs: vec![JobId(1)],
                parent: vec!["10.0.0.1:5000".into(), "[fe80::1]:5000".into()],
                problem: "Permission denied".into(),
                snapshot: Box::default(),
            }
            .into(),
        ),
        ("not-started", SessionDown::NotStarted(missing()).into()),
        ("time-left", SessionDown::TimeLeft { left_ns: 10 }.into()),
        ("probe", SessionUp::Probe { agent, asker }.into()),
        ("probed", SessionDown::Probed { agent, asker, problem: Some("No route to host".into()) }.into()),
        ("ucx-looked", SessionUp::TransportLooked { missing: Some(missing()) }.into()),
        ("use-ucx", SessionDown::UseTransport { yes: true }.into()),
        ("missing", JobUp::Missing(vec![missing(), missing()]).into()),
        ("note-linked", Note::Linked { agent, parent, address: "10.0.0.1".into() }.into()),
        (
            "note-dialled",
            Note::Dialled { agent, address: "10.0.0.1:7".into(), took_ns: 400, failed: "10.0.0.2:7: refused".into() }
                .into(),
        ),
        ("note-started-for", Note::StartedFor { agent, parent, starter: asker, problem: "no".into() }.into()),
        ("note-sent", Note::Sent { agent, to_second_cache: true }.into()),
        ("note-routed", Note::Routed { agent, peer: asker, problem: "no".into() }.into()),
        ("note-waits", Note::Waits { agents: vec![AgentId(1), AgentId(3)] }.into()),
        ("note-no-ucx", Note::NoTransport(missing()).into()),
        ("note-retry", Note::Retry { agent, attempt: 2, problem: "busy".into() }.into()),
        ("note-no-pmix", Note::NoPmix { node: NodeId(1), host: "n1".into(), problem: "no".into() }.into()),
        ("note-pmix-said", Note::PmixSaid { host: "n1".into(), text: "a warning\n".into() }.into()),
        ("note-no-rank-ports", Note::NoRankPorts { host: "n1".into(), problem: "no".into() }.into()),
        ("note-lacks", Note::Lacks { host: "n1".into(), what: Lacking::Mounts { problem: "no".into() } }.into()),
        ("note-bound", Note::Bound { host: "n1".into(), picture: "[x.]".into() }.into()),
        ("note-preloads", Note::Preloads { host: "n1".into(), modules: "numpy".into() }.into()),
        ("note-store-closed", Note::StoreClosed { host: "n1".into(), problem: "full".into() }.into()),
        ("note-not-sealed", Note::NotSealed { problem: "no munge".into() }.into()),
        ("clock-ask", SessionUp::ClockAsk { asked_ns: 1 }.into()),
        ("clock-tell", SessionDown::ClockTell { asked_ns: 1, told_ns: 2 }.into()),
        ("ended", ToLauncher::Ended(Ended { failure: Some(failure(Cause::Exited(1))), done }).into()),
        ("spawn", ToLauncher::Spawn { job: JobId(2), from: Rank(1), request: spawn_request().into() }.into()),
        ("added", ToLauncher::Added { agents: vec![AgentId(7), AgentId(8)] }.into()),
        ("spawned", FromLauncher::Spawned(Ok(NewJob { nspace: "wireup.1-2".into(), ranks: 3 })).into()),
        ("not-spawned", FromLauncher::Spawned(Err("no such node".into())).into()),
        ("together", ToLauncher::Together { jobs: vec![JobId(1), JobId(2)], connected: true }.into()),
        ("welcome", ToLauncher::Welcome(welcome()).into()),
        ("refused", ToLauncher::Decided(Err("no".into())).into()),
        ("granted", ToLauncher::Decided(Ok(())).into()),
        ("ask-jobs", FromLauncher::AskJobs.into()),
        ("job-list", ToLauncher::JobList(vec![entry()]).into()),
        (
            "ask-seats",
            FromLauncher::AskSeats(SeatRequest { ranks: 5, nodes: Some(2), among: vec![agent], by: SeatOrder::Pack })
                .into(),
        ),
        ("seats", ToLauncher::Seats(vec![agent, asker]).into()),
        ("ask-nodes", FromLauncher::AskNodes { revive: false }.into()),
        ("nodes", ToLauncher::Nodes(welcome().nodes).into()),
        ("revive", FromLauncher::AskNodes { revive: true }.into()),
        ("kill-job", FromLauncher::KillJob { job: JobId(1), signal: Some(10), by: "me".into() }.into()),
        ("why", FromLauncher::Why { job: JobId(7) }.into()),
        ("end-session", FromLauncher::EndSession { kill: true }.into()),
        ("start", SessionDown::Start { spec: job().into(), newest: JobId(5), live: vec![JobId(1), JobId(4)] }.into()),
        ("over", JobDown::Over { agents: vec![agent] }.into()),
        ("here", SessionUp::Here(vec![(agent, 0), (asker, 2)]).into()),
        (
            "rank-ports",
            SessionUp::RankPorts(rank_ports(RankPortsNews::Reserved {
                count: 256,
                address: Bytes::from_static(b"address"),
            }))
            .into(),
        ),
        ("rank-ports-renewed", SessionUp::RankPorts(rank_ports(RankPortsNews::Renewed(JobId(7)))).into()),
        (
            "gone",
            SessionUp::Gone(vec![Gone { by: asker, agent, incarnation: 2, problem: "its link broke".into() }]).into(),
        ),
        ("log", SessionDown::Log(log()).into()),
        ("are-you-alive", Control::AreYouAlive),
        ("alive", Control::Alive),
        ("ready", JobUp::Ready.into()),
        ("start-ranks", JobDown::StartRanks.into()),
        (
            "rank-error",
            JobUp::RankError(RankError { rank: Rank(3), host: "n1".into(), at_ns: 7, text: b"{}".to_vec() }).into(),
        ),
        ("rendezvous-up", JobUp::Rendezvous { address: "10.0.0.1:23456".parse().unwrap() }.into()),
        ("rendezvous", JobDown::Rendezvous { address: "[fd00::1]:23456".parse().unwrap() }.into()),
    ]
}

fn rank_ports(news: RankPortsNews) -> RankPortsReport {
    RankPortsReport { agent: AgentId(1), incarnation: 2, news }
}

fn messages() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let mut all: Vec<_> = controls().iter().map(|(name, message)| ("control", *name, encode(message))).collect();
    let trace = TracePart {
        agent: AgentId(1),
        host: "n1".into(),
        process_ns: 1,
        clock_offset_ns: -5,
        clock_error_ns: 2,
        clock_of: AgentId(0),
        ranks: vec![RankTrace { rank: Rank(1), pid: 2, status: Some(ExitStatus::Exited(3)), ..RankTrace::default() }],
        fences: vec![FenceTrace {
            epoch: Epoch(0),
            collective: Collective::Allgather,
            first_in_ns: 1,
            last_in_ns: 2,
            out_ns: 3,
            last_rank: Rank(1),
            bytes_up: 4,
            bytes_down: 5,
        }],
        traffic: ExchangeTraffic {
            direct: Traffic { frames_in: 7, ..Traffic::default() },
            ..ExchangeTraffic::default()
        },
        ..TracePart::default()
    };
    all.push(("control", "trace", encode(&trace)));
    for (name, role) in [
        ("hello", Role::Child { incarnation: 3 }),
        ("hello-direct", Role::Direct),
        ("hello-rejoin", Role::Rejoin(Rejoin { incarnation: 1, at: 4 })),
    ] {
        let hello = Hello { version: PROTOCOL_VERSION, agent: AgentId(1), host: "n1".into(), pid: 7, role };
        all.push(("control", name, encode(&hello)));
    }
    let bootstrap = Bootstrap {
        secret: Secret([7; 32]),
        agent: AgentId(1),
        parent: vec!["10.0.0.1:5000".into()],
        by_parent: true,
        session: session(),
        jobs: vec![job().into()],
        snapshot: snapshot(),
    };
    all.push(("bootstrap", "whole", bootstrap.encode()));
    all.push(("bootstrap", "body", encode(&bootstrap)));
    all.push(("bootstrap", "probe", probe()));
    all.push(("bootstrap", "sealed", bootstrap_message(b"MUNGE:", b"sealed")));
    all
}

#[test]
fn every_message_encodes_to_its_recorded_bytes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (golden, corpus) = (root.join("tests/golden/messages.txt"), root.join("../../dev/fuzz/corpus"));
    let bless = std::env::var_os("BLESS").is_some();
    let mut text = format!("version {PROTOCOL_VERSION}\n");
    for (target, name, bytes) in messages() {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "{target} {name}: {hex}").unwrap();
        let file = corpus.join(target).join(name);
        if bless {
            std::fs::write(&file, &bytes).unwrap();
        }
        assert!(std::fs::read(&file).is_ok_and(|kept| kept == bytes), "{}: run with BLESS=1", file.display());
    }
    if bless {
        std::fs::write(&golden, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&golden).unwrap_or_default();
    assert!(kept == text, "new bytes need a new PROTOCOL_VERSION; run with BLESS=1 if intended:\n{text}");
}

/// The list above contains all messages: in each conversation it uses all variant numbers without gaps.
#[test]
fn the_list_contains_every_control_message() {
    let mut known: BTreeMap<u8, BTreeSet<u8>> = BTreeMap::new();
    for (_, message) in controls() {
        let bytes = encode(&message);
        known.entry(bytes[0]).or_default().extend(bytes.get(1));
    }
    let is_refused = |front: &[u8], next: u8| {
        let bytes = [front, &[next; 64]].concat();
        (front.len() + 1..bytes.len()).all(|length| peer::decode::<Control>(&bytes[..length]).is_err())
    };
    assert!(known.keys().copied().eq(0..known.len() as u8) && is_refused(&[], known.len() as u8), "{known:?}");
    // A variant of `Control` without contents has no numbers of messages inside it.
    for (conversation, variants) in known.iter().filter(|(_, variants)| !variants.is_empty()) {
        let count = variants.len() as u8;
        assert!(variants.iter().copied().eq(0..count), "conversation {conversation} has {variants:?}");
        assert!(is_refused(&[*conversation], count), "conversation {conversation}: a message is missing from the list");
    }
}
