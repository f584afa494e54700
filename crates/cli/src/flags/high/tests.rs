use super::*;
use crate::flags::low::{Wish, parse};

fn here() -> Here {
    Here {
        host: "cn17".into(),
        program: "/bin/wireup".into(),
        pid: 42,
        tag: 0xbeef,
        cpus: 6,
        cwd: Ok("/".into()),
        env: vec![("HOME".into(), "/h".into()), ("PMI_RANK".into(), "7".into())],
        umask: 0o27,
        limits: Vec::new(),
        stdin_is_terminal: false,
        terminal: Some((50, 132)),
    }
}

fn try_high(line: &str, here: Here) -> Result<High, String> {
    match parse(line.split_whitespace().map(OsString::from)).expect("test lines are valid") {
        Wish::Run(low) => resolve(*low, here).map_err(|error| error.to_string()),
        Wish::Help => panic!("no help here"),
    }
}

fn high(line: &str) -> High {
    try_high(line, here()).expect(line)
}

#[test]
fn a_bare_program_runs_once_a_cpu_on_this_machine() {
    let high = high("./a b");
    assert_eq!(high.job.nspace, "wireup-42-0000beef");
    assert_eq!(high.job.job_size(), 6);
    assert_eq!(high.job.nodes, [NodeSpec { agent: AgentId(0), name: "cn17".into(), shared: false }]);
    assert_eq!(high.job.apps[0].argv, [b"./a".to_vec(), b"b".to_vec()]);
    assert_eq!(high.job.apps[0].cwd, b"/");
    assert_eq!(high.job.env, [b"HOME=/h".to_vec()]);
    assert_eq!(high.session.agents.len(), 1);
    let options = &high.job.options;
    assert_eq!((options.pmi, options.bind_to), (PmiFlavour::Simple, BindTo::Even));
    assert_eq!((options.stdin, options.stdin_inherit), (StdinTarget::One(Rank(0)), true));
    assert_eq!(options.umask, 0o27);
    assert_eq!((options.kill_grace_ns, options.stall_report_ns), (2 * SECOND_NS, 0));
    assert_eq!((options.profile, options.split_output, options.pty), (false, false, None));
}

#[test]
fn virtual_nodes_are_agents_that_share_the_machine() {
    let high = high("-n 64 --virtual-nodes 4 ./a");
    let names: Vec<&str> = high.session.agents.iter().map(|agent| agent.host.as_str()).collect();
    assert_eq!(names, ["node0", "node1", "node2", "node3"]);
    assert!(high.job.nodes.iter().enumerate().all(|(i, node)| node.agent == AgentId(i as u32) && node.shared));
    assert_eq!(high.session.remote_shell, RemoteShell::Local);
    assert_eq!(high.session.fanout, 3);
    assert!(!self::high("-n 2 --virtual-nodes 1 ./a").job.nodes[0].shared);
}

#[test]
fn standard_input_is_handed_over_only_where_it_can_be_read() {
    let inherit = |line: &str| high(line).job.options.stdin_inherit;
    assert!(inherit("-n 4 --virtual-nodes 2 --stdin 1 ./a"));
    assert!(!inherit("-n 4 --virtual-nodes 2 --stdin 2 ./a"));
    assert!(!inherit("-n 4 --stdin all ./a"));
    assert!(!inherit("-n 4 --stdin none ./a"));
    assert!(!inherit("-n 4 --pty ./a"));
    assert!(inherit("-n 4 --pty 1 ./a"));
    let terminal = Here { stdin_is_terminal: true, ..here() };
    assert!(!try_high("./a", terminal).expect("valid").job.options.stdin_inherit);
}

#[test]
fn terminals_have_the_size_of_this_one() {
    assert_eq!(high("--pty 1 ./a").job.options.pty, Some(PtySpec { rank: Rank(1), rows: 50, columns: 132 }));
    let without = Here { terminal: None, ..here() };
    let pty = try_high("--pty ./a", without).expect("valid").job.options.pty;
    assert_eq!(pty, Some(PtySpec { rank: Rank(0), rows: 24, columns: 80 }));
}

#[test]
fn verbose_asks_for_stalls() {
    assert_eq!(high("-v ./a").job.options.stall_report_ns, 30 * SECOND_NS);
    assert_eq!(high("-v --stall-report 0 ./a").job.options.stall_report_ns, 0);
}

#[test]
fn programs_keep_their_own_settings() {
    let high = high("-n 1 -x HOME -x NOT ./a : -n 2 -env B 2 -wdir tmp ./b");
    assert_eq!(high.job.apps[0].env, [b"HOME=/h".to_vec()]);
    assert_eq!((high.job.apps[1].ranks, &high.job.apps[1].cwd[..]), (2, &b"/tmp"[..]));
    assert_eq!(high.job.apps[1].env, [b"B=2".to_vec()]);
    assert_eq!(high.warnings.len(), 1);
    assert!(high.warnings[0].starts_with("-x NOT: not set here"));
}

#[test]
fn a_remote_shell_is_words() {
    let words = ["--remote-shell", "ssh -q  -T", "./a"].map(OsString::from);
    let Ok(Wish::Run(low)) = parse(words) else { panic!("parses") };
    let high = resolve(*low, here()).expect("valid");
    assert_eq!(high.session.remote_shell, RemoteShell::Command(vec!["ssh".into(), "-q".into(), "-T".into()]));
    let Ok(Wish::Run(low)) = parse(["--remote-shell", " ", "./a"].map(OsString::from)) else { panic!("parses") };
    assert_eq!(resolve(*low, here()), Err(FlagError::EmptyRemoteShell));
}

#[test]
fn recordings_go_below_the_current_directory() {
    assert_eq!(high("--record rec ./a").session.record_dir, Some("/rec".into()));
    assert_eq!(high("--record /var/rec ./a").session.record_dir, Some("/var/rec".into()));
}

#[test]
fn contradictions_are_refused() {
    let refused = |line: &str| try_high(line, here()).expect_err(line);
    assert_eq!(refused("-n 2 --stdin 2 ./a"), "--stdin 2: the job has ranks 0 to 1; name one of them");
    assert_eq!(refused("-n 2 --pty 9 ./a"), "--pty 9: the job has ranks 0 to 1; name one of them");
    let missing = refused("-wdir /no/such/directory ./a");
    assert!(missing.starts_with("working directory /no/such/directory: does not exist; create it"), "{missing}");
    assert!(refused("-wdir /dev/null ./a").contains("is not a directory"));
    let gone = Here { cwd: Err("No such file or directory".into()), ..here() };
    assert!(try_high("./a", gone.clone()).expect_err("gone").starts_with("the current directory is gone"));
    assert!(try_high("--wdir /tmp ./a", gone).is_ok());
}
