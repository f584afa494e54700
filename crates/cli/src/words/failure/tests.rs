use super::*;
use wireup_wire::collective::Collective;
use wireup_wire::ids::{AgentId, Epoch, NodeId, Rank};
use wireup_wire::peer::{MissingAgent, ProblemKind};

fn said_in(cause: Cause, setting: Setting) -> String {
    let failure = Failure { node: NodeId(1), host: "node1".into(), rank: Some(Rank(3)), pid: Some(4711), cause };
    line(&failure, &setting)
}

fn said(cause: Cause) -> String {
    said_in(cause, Setting::example())
}

fn of_node(cause: Cause, setting: Setting) -> String {
    line(&Failure { node: NodeId(1), host: "node1".into(), rank: None, pid: None, cause }, &setting)
}

fn spawned(step: SpawnStep, what: &str, errno: i32) -> String {
    said(Cause::Spawn(SpawnError { step, what: what.into(), errno }))
}

#[test]
fn failed_ranks_are_described_with_rank_node_and_pid() {
    assert_eq!(
        said(Cause::Signalled { signal: 11, core_dumped: true }),
        "rank 3 on node1 (pid 4711) was killed by signal 11 (SIGSEGV, core dumped); the other ranks were terminated; \
         open the core file with gdb"
    );
    assert_eq!(
        said(Cause::Signalled { signal: 9, core_dumped: false }),
        "rank 3 on node1 (pid 4711) was killed by signal 9 (SIGKILL); the other ranks were terminated; killed by \
         someone or out of memory: check dmesg on the node"
    );
    let expected = "rank 3 on node1 (pid 4711) exited with code 2; the other ranks were terminated";
    assert_eq!(said(Cause::Exited(2)), expected);
    let unlabelled = said_in(Cause::Exited(2), Setting { label: false, ..Setting::example() });
    assert!(unlabelled.ends_with("; --label shows which rank wrote what"));
    let alone = said_in(Cause::Exited(2), Setting { job_size: 1, ..Setting::example() });
    assert_eq!(alone, "rank 3 on node1 (pid 4711) exited with code 2");
}

#[test]
fn programs_that_cannot_start_are_described_with_a_fix() {
    for (step, what, errno, words) in [
        (SpawnStep::Find, "./a.out", 2, "./a.out: not found; is it built, and is the path right?"),
        (SpawnStep::Find, "a.out", 2, "a.out: not found on PATH, nor in the working directory; is it built?"),
        (SpawnStep::Find, "./a", 13, "./a: not executable (Permission denied); make it executable (chmod +x)"),
        (SpawnStep::Exec, "/", 21, "/ is a directory; give the path of a program"),
        (SpawnStep::Exec, "./a", 8, "./a: not an executable for this machine; a script must begin"),
        (SpawnStep::Exec, "./a", 7, "./a: the arguments and environment are too long; put them in a file"),
        (SpawnStep::Exec, "./a", 26, "./a is open for writing; try again"),
        (SpawnStep::Exec, "./a", 5, "./a: Input/output error; check that the node can read"),
        (SpawnStep::Interpreter, "./a", 2, "./a: its interpreter was not found (No such file"),
        (SpawnStep::Cwd, "/w", 2, "working directory /w: No such file or directory; create it"),
        (SpawnStep::Stdio, "pipe", 24, "making pipes and sockets failed: Too many open files; raise ulimit -n"),
        (SpawnStep::Stdio, "pipe", 12, "making pipes and sockets failed: Cannot allocate memory; try fewer ranks"),
        (SpawnStep::Listen, "socket", 24, "listening for connections failed: Too many open files; raise ulimit -n"),
        (SpawnStep::Listen, "no address", 0, "no address; --interface chooses the network between nodes"),
        (SpawnStep::Bind, "no cpu 9", 0, "the ranks cannot be bound: no cpu 9"),
        (
            SpawnStep::Fork,
            "fork",
            11,
            "creating a process failed: Resource temporarily unavailable; raise ulimit -u or",
        ),
        (SpawnStep::Fork, "fork", 12, "creating a process failed: Cannot allocate memory; try fewer"),
    ] {
        let said = spawned(step, what, errno);
        assert!(said.starts_with(&format!("node node1: {words}")), "{said}");
    }
    assert_eq!(
        spawned(SpawnStep::Secret, "the secret of the ranks", 38),
        "node node1: the secret of the ranks cannot be made, because asking the kernel for random bytes failed: \
         Function not implemented; does a seccomp filter forbid getrandom there?"
    );
}

#[test]
fn failures_in_pmi_are_described_with_the_rank() {
    let expected = "rank 3 on node1 (pid 4711) called abort with code 7: no input; the other ranks were terminated";
    assert_eq!(said(Cause::Aborted { code: 7, message: "no input\n".into() }), expected);
    let two_lines = said(Cause::Aborted { code: 1, message: "two\nlines".into() });
    assert!(!two_lines.contains('\n'), "{two_lines}");
    let quiet = said(Cause::Aborted { code: 7, message: String::new() });
    assert!(quiet.contains("called abort with code 7; the other"));
    let left = |exit, finalized, waiting| {
        said(Cause::LeftFence { epoch: Epoch(2), collective: Collective::Fence, exit, finalized, waiting })
    };
    assert!(left(Some(0), false, 2).contains(
        "exited with code 0 without PMI finalize while 2 ranks wait for it in fence 2; the other ranks were \
         terminated; every rank must call"
    ));
    assert!(left(None, true, 1).contains("called PMI finalize while 1 rank waits for it in fence 2"));
    let left = said(Cause::LeftGroup { group: "ranks 0-3 (tag 7)".into(), exit: None });
    assert!(left.contains("called PMI finalize while others wait for it in a collective of ranks 0-3 (tag 7);"));
    let broke = said(Cause::Pmi { problem: "unknown command".into() });
    let words = "violated the PMI protocol: unknown command; the other ranks were terminated; was its PMI library";
    assert!(broke.contains(words), "{broke}");
    let node = of_node(Cause::Pmi { problem: "too many bytes".into() }, Setting::example());
    assert!(node.starts_with("node node1 violated the PMI protocol: too many bytes"));
}

#[test]
fn lost_agents_and_links_are_described_with_the_node() {
    let missing = vec![MissingAgent { agent: AgentId(1), problem: "exit code 255".into() }];
    let start = Cause::AgentsMissing { missing };
    assert_eq!(
        of_node(start.clone(), Setting::example()),
        "no agent could be started on 1 of 2 nodes: node1: exit code 255; run wireup doctor to check this machine"
    );
    let remote = Setting { local: false, shell: "rsh".into(), ..Setting::example() };
    assert!(of_node(start, remote.clone()).ends_with("try \"rsh node1 true\""));
    let lost = |kind: ProblemKind, words: &str| {
        of_node(Cause::AgentLost { agent: AgentId(1), problem: kind.with(words) }, remote.clone())
    };
    assert!(lost(ProblemKind::Silent, "no sign").ends_with("--node-timeout sets the limit"));
    // The advice does not depend on words that another program printed.
    let told = lost(ProblemKind::Other, "ssh: signal 9: no answer; Killed");
    assert!(told.ends_with("; check that the node is up, and its system log"), "{told}");
    assert!(lost(ProblemKind::Killed, "code").ends_with("check dmesg on the node for an out-of-memory kill"));
    assert!(lost(ProblemKind::StepCancelled, "it").contains("its Slurm step was cancelled (scancel), or a limit"));
    let told = lost(ProblemKind::TaskKilled, "closed by the other end; Killed");
    assert!(told.ends_with("for an out-of-memory kill; or was the job cancelled with scancel?"), "{told}");
    let problem = "more than 9 bytes arrived while earlier frames are missing".into();
    let unlinked = Cause::NoDirectLink { agent: AgentId(2), host: "node2".into(), problem };
    assert_eq!(
        of_node(unlinked, Setting::example()),
        "node node1: messages from node node2 are missing or out of order: more than 9 bytes arrived while earlier \
         frames are missing; the other ranks were terminated; to avoid direct links, use --exchange=tree"
    );
    let lost = Cause::AgentLost { agent: AgentId(1), problem: "connection reset".into() };
    assert!(of_node(lost.clone(), Setting::example()).ends_with("check dmesg on the node for an out-of-memory kill"));
    assert!(of_node(lost, remote).contains("its agent: connection reset; the other ranks"));
    let keeper = of_node(Cause::KeeperLost { problem: None }, Setting::example());
    assert!(keeper.starts_with("node node1: the process that runs its ranks was killed"), "{keeper}");
}

#[test]
fn ends_decided_by_the_launcher_name_the_reason() {
    let own = |cause| {
        let failure = Failure { node: NodeId(0), host: String::new(), rank: None, pid: None, cause };
        line(&failure, &Setting::example())
    };
    assert_eq!(own(Cause::Interrupted { signal: 2 }), "the job was terminated by SIGINT");
    for (cause, words) in [
        (Cause::TimedOut { after_ns: 1_500_000_000 }, "the job reached its time limit of 1.5 s and"),
        (
            Cause::Launcher { problem: "out: full".into() },
            "out: full; the other ranks were terminated; check free space",
        ),
        (
            Cause::AgentLost { agent: AgentId(0), problem: "gone".into() },
            "this machine: lost the connection to its agent: gone",
        ),
    ] {
        let said = own(cause);
        assert!(said.starts_with(words), "{said}");
    }
}

fn error_shown(text: &str) -> Vec<String> {
    rank_error_lines(&RankError { rank: Rank(3), host: "n1".into(), at_ns: 1, text: text.into() })
}

#[test]
fn the_traceback_is_shown_or_what_there_is() {
    let recorded = r#"{"message": {"message": "ValueError: no", "extraInfo": {"timestamp": "1",
        "py_callstack": "Traceback (most recent call last):\n  File \"a.py\", line 1\u001b\nValueError: no\n"}}}"#;
    assert_eq!(
        error_shown(recorded),
        [
            "rank 3 on n1 failed first:", "    Traceback (most recent call last):", "      File \"a.py\", line 1 ",
            "    ValueError: no",
        ]
    );
    for text in [r#"{"message": {"message": "no"}}"#, r#"{"message": "no"}"#, "no\n"] {
        assert_eq!(error_shown(text), ["rank 3 on n1 failed first: no"], "{text}");
    }
    assert_eq!(error_shown(r#"{"other": 1}"#), [r#"rank 3 on n1 failed first: {"other": 1}"#]);
}

#[test]
fn a_long_traceback_loses_its_beginning() {
    let text: String = (0..100).map(|line| format!("{line}\n")).collect();
    let shown = error_shown(&text);
    assert_eq!((shown.len(), shown[1].as_str()), (LINES_SHOWN + 2, "    (36 lines left out)"));
    assert_eq!(shown.last().map(String::as_str), Some("    99"));
}
