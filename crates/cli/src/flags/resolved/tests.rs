use super::*;
use crate::flags::parsed::{parse, parsed_words};
use crate::flags::remote_shell::SSH;
use std::ffi::OsString;
use wireup_coll::tree;
use wireup_wire::job::Modex;
use wireup_wire::peer::{Containment, RemoteShell};

const SECOND_NS: u64 = 1_000_000_000;

fn surroundings() -> Surroundings {
    Surroundings::example()
}

fn try_resolve(line: &str, surroundings: Surroundings) -> Result<Resolved, String> {
    resolve(parsed_words(line.split_whitespace()), surroundings)
}

fn resolved(line: &str) -> Resolved {
    try_resolve(line, surroundings()).expect(line)
}

#[test]
fn a_bare_program_runs_once_per_cpu_on_this_machine() {
    let resolved = resolved("./a b");
    assert_eq!(resolved.job.nspace, "wireup-42-000000000000000000000000005ec7e7");
    assert_eq!(resolved.session.name, "wireup-42-0000beef");
    assert_eq!(resolved.job.job_size(), 6);
    assert_eq!(resolved.job.nodes, [NodeSpec { agent: AgentId(0), name: "cn17".into(), shared: false }]);
    assert_eq!(resolved.job.apps[0].argv, [b"./a".to_vec(), b"b".to_vec()]);
    assert_eq!(resolved.job.apps[0].cwd, b"/");
    assert_eq!(resolved.job.env, [b"HOME=/h".to_vec()]);
    assert_eq!(resolved.session.agents.len(), 1);
    let options = &resolved.job.options;
    assert_eq!((options.pmi.flavour, &options.binding.to), (PmiFlavour::Simple, &BindTo::Even));
    assert_eq!((options.stdio.stdin, options.stdio.stdin_inherit), (StdinTarget::One(Rank(0)), true));
    assert_eq!((options.process.umask, options.process.limits[0].soft), (0o27, 1024));
    assert_eq!((options.kill_grace_ns, options.stall_report_ns), (2 * SECOND_NS, 30 * SECOND_NS));
    assert_eq!(self::resolved("--stall-report 0 ./a").job.options.stall_report_ns, 0);
    assert_eq!((options.profile, options.stdio.split_output, options.stdio.pty), (false, false, None));
}

#[test]
fn virtual_nodes_are_agents_that_share_the_machine() {
    let resolved = resolved("-n 64 --virtual-nodes 4 ./a");
    let names: Vec<&str> = resolved.session.agents.iter().map(|agent| agent.host.as_str()).collect();
    assert_eq!(names, ["node0", "node1", "node2", "node3"]);
    assert!(resolved.job.nodes.iter().enumerate().all(|(i, node)| node.agent == AgentId(i as u32) && node.shared));
    assert_eq!(resolved.session.remote_shell, RemoteShell::Local);
    assert_eq!(resolved.session.fanout, 3);
    assert!(!self::resolved("-n 2 --virtual-nodes 1 ./a").job.nodes[0].shared);
}

#[test]
fn standard_input_is_inherited_only_by_a_single_local_rank() {
    let inherit = |line: &str| resolved(line).job.options.stdio.stdin_inherit;
    assert!(inherit("-n 4 --virtual-nodes 2 --stdin 1 ./a"));
    assert!(!inherit("-n 4 --virtual-nodes 2 --stdin 2 ./a"));
    assert!(!inherit("-n 4 --stdin all ./a"));
    assert!(!inherit("-n 4 --stdin none ./a"));
    assert!(!inherit("-n 4 --pty ./a"));
    assert!(inherit("-n 4 --pty 1 ./a"));
    let terminal = Surroundings { stdin_is_terminal: true, ..surroundings() };
    assert!(!try_resolve("./a", terminal).expect("valid").job.options.stdio.stdin_inherit);
}

#[test]
fn a_pty_has_the_size_of_this_terminal_or_24_by_80() {
    assert_eq!(resolved("--pty 1 ./a").job.options.stdio.pty, Some(PtySpec { rank: Rank(1), rows: 50, columns: 132 }));
    let without = Surroundings { terminal: None, ..surroundings() };
    let pty = try_resolve("--pty ./a", without).expect("valid").job.options.stdio.pty;
    assert_eq!(pty, Some(PtySpec { rank: Rank(0), rows: 24, columns: 80 }));
}

#[test]
fn programs_keep_their_own_settings() {
    let resolved = resolved("-n 1 -x HOME -x NOT ./a : -n 2 -env B=2 -wdir tmp ./b");
    assert_eq!(resolved.job.apps[0].env, [b"HOME=/h".to_vec()]);
    assert_eq!((resolved.job.apps[1].ranks, &resolved.job.apps[1].cwd[..]), (2, &b"/tmp"[..]));
    assert_eq!(resolved.job.apps[1].env, [b"B=2".to_vec()]);
    assert_eq!(resolved.warnings.len(), 1);
    assert!(resolved.warnings[0].starts_with("--env NOT: not set in this environment"));
}

#[test]
fn a_remote_shell_is_split_into_words_and_relative_paths_become_absolute() {
    let shell = |command| resolve(parsed_words(["--remote-shell", command, "./a"]), surroundings());
    let words = |command| shell(command).expect(command).session.remote_shell;
    assert_eq!(words("ssh -q  -T"), RemoteShell::Ssh(vec!["ssh".into(), "-q".into(), "-T".into()]));
    assert_eq!(words("bin/ssh"), RemoteShell::Ssh(vec!["/bin/ssh".into()]));
    assert!(shell(" ").expect_err("no word").starts_with("--remote-shell is empty"));
    assert_eq!(resolved("--record rec ./a").session.record_dir, Some("/rec".into()));
    assert_eq!(resolved("--record /var/rec ./a").session.record_dir, Some("/var/rec".into()));
}

#[test]
fn impossible_ranks_and_directories_are_refused() {
    let refused = |line: &str| try_resolve(line, surroundings()).expect_err(line);
    assert_eq!(refused("-n 2 --stdin 2 ./a"), "--stdin 2: the job has ranks 0 to 1; name one of them");
    assert_eq!(refused("-n 2 --pty 9 ./a"), "--pty 9: the job has ranks 0 to 1; name one of them");
    let missing = refused("-wdir /no/such/directory ./a");
    assert!(missing.starts_with("working directory /no/such/directory: does not exist; create it"), "{missing}");
    assert!(refused("-wdir /dev/null ./a").contains("is not a directory"));
    let gone = Surroundings { cwd: Err("No such file or directory".into()), ..surroundings() };
    assert!(try_resolve("./a", gone.clone()).expect_err("gone").starts_with("the current directory no longer exists"));
    assert!(try_resolve("--wdir /tmp ./a", gone).is_ok());
}

fn agents(resolved: &Resolved) -> Vec<&str> {
    resolved.session.agents.iter().map(|agent| agent.host.as_str()).collect()
}

fn nodes(resolved: &Resolved) -> Vec<(u32, &str, bool)> {
    resolved.job.nodes.iter().map(|node| (node.agent.0, node.name.as_str(), node.shared)).collect()
}

#[test]
fn hosts_are_agents_below_the_launcher() {
    let resolved = resolved("--hosts n[1-3] --ppn 2 ./a");
    assert_eq!(resolved.job.job_size(), 6);
    assert_eq!(agents(&resolved), ["cn17", "n1", "n2", "n3"]);
    assert_eq!(nodes(&resolved), [(1, "n1", false), (2, "n2", false), (3, "n3", false)]);
    let session = &resolved.session;
    assert_eq!(session.remote_shell, RemoteShell::Ssh(SSH.map(str::to_owned).to_vec()));
    assert_eq!((session.fanout, session.shells_max), (tree::default_fanout(4), 64));
    assert_eq!((session.start_timeout_ns, session.links.node_timeout_ns), (60 * SECOND_NS, 30 * SECOND_NS));
    let expected = ("/opt/bin/wireup", true, &None);
    assert_eq!((session.program.as_str(), session.links.encrypt, &session.links.interface), expected);
    assert!(!resolved.job.options.stdio.stdin_inherit);
}

#[test]
fn this_machine_among_the_hosts_is_agent_0() {
    let resolved = resolved("--hosts n1,cn17.site,n2 --stdin 1 ./a");
    assert_eq!(agents(&resolved), ["cn17.site", "n1", "n2"]);
    assert_eq!(nodes(&resolved), [(1, "n1", false), (0, "cn17.site", false), (2, "n2", false)]);
    assert!(resolved.job.options.stdio.stdin_inherit);
    let alone = self::resolved("--hosts 10.0.0.17,localhost ./a");
    assert_eq!((nodes(&alone), alone.job.job_size()), (vec![(0, "10.0.0.17", false)], 2));
}

#[test]
fn start_schemes_determine_fanout_shells_and_agents() {
    let flat = resolved("--hosts n[1-40] --start ssh-flat ./a");
    assert_eq!((flat.session.fanout, flat.session.shells_max), (41, 64));
    let serial = resolved("--hosts n1:1,cn17:3 --start serial-ssh ./a");
    assert_eq!(agents(&serial), ["cn17", "n1", "cn17", "cn17", "cn17"]);
    assert_eq!(nodes(&serial), [(1, "n1", false), (2, "cn17", true), (3, "cn17", true), (4, "cn17", true)]);
    assert_eq!((serial.session.fanout, serial.session.shells_max), (5, 1));
    assert_eq!(serial.job.blocks, [Block { first_node: 0, nodes: 4, ppn: 1 }]);
    assert_eq!(resolved("--hosts n[1-40] --fanout 3 ./a").session.fanout, 3);
}

#[test]
fn nodes_that_share_a_machine_share_a_namespace() {
    for (line, contained) in [
        ("-n 2 ./a", Containment::EachNode { by_user: false }),
        ("-n 2 --virtual-nodes 1 ./a", Containment::EachNode { by_user: false }),
        ("--hosts a,b ./a", Containment::EachNode { by_user: false }),
        ("-n 2 --contain none ./a", Containment::None),
        ("-n 2 --contain user ./a", Containment::EachNode { by_user: true }),
        ("-n 2 --virtual-nodes 2 --contain user ./a", Containment::Machine { process: 0, by_user: true }),
        ("-n 2 --virtual-nodes 2 ./a", Containment::Machine { process: 0, by_user: false }),
        ("-n 2 --virtual-nodes 2 --contain none ./a", Containment::None),
        ("--hosts n1:1,cn17:3 --start serial-ssh ./a", Containment::None),
    ] {
        assert_eq!(resolved(line).session.containment, contained, "{line}");
    }
}

#[test]
fn flags_for_remote_hosts_reach_the_session() {
    let line = "--hosts a,b --plain-links --iface ib0 --start-timeout 5 --node-timeout 2.5 -v --remote-shell ./rsh ./a";
    let session = resolved(line).session;
    let expected = (false, Some("ib0"), true);
    assert_eq!((session.links.encrypt, session.links.interface.as_deref(), session.verbose), expected);
    assert_eq!((session.start_timeout_ns, session.links.node_timeout_ns), (5 * SECOND_NS, 5 * SECOND_NS / 2));
    assert_eq!(session.remote_shell, RemoteShell::Command(vec!["/rsh".into()]));
}

#[test]
fn a_run_limits_the_imports_of_its_session() {
    let of_session = ["numpy".to_owned()];
    for (line, limit_ns) in [("--session s ./a", IMPORT_TIMEOUT_NS), ("--start-timeout 7 ./a", 7 * SECOND_NS)] {
        let parsed = parsed_words(line.split_whitespace());
        let preload = preloading(&parsed, &of_session).expect(line).expect(line);
        assert_eq!((preload.limit_ns, preload.keep), (limit_ns, true), "{line}");
        assert_eq!(parsed.first_given(crate::flags::table::DECIDED_BY_SESSION), None, "{line}");
    }
}

#[test]
fn variables_of_this_machine_stay_here_unless_exported() {
    let env = vec![("HOME".into(), "/h".into()), ("SSH_AUTH_SOCK".into(), "/s".into())];
    let surroundings = || Surroundings { env: env.clone(), ..surroundings() };
    let local = try_resolve("--hosts localhost ./a", surroundings()).expect("valid");
    assert_eq!(local.job.env, [b"HOME=/h".to_vec(), b"SSH_AUTH_SOCK=/s".to_vec()]);
    let remote = try_resolve("--hosts n1 --pmi simple -x SSH_AUTH_SOCK ./a", surroundings()).expect("valid");
    assert_eq!(remote.job.env, [b"HOME=/h".to_vec()]);
    assert_eq!(remote.job.apps[0].env, [b"SSH_AUTH_SOCK=/s".to_vec()]);
}

#[test]
fn pmi_follows_the_flag_or_else_the_program() {
    let chosen = |line: &str| {
        let resolved = resolved(line);
        (resolved.job.options.pmi.flavour, resolved.pmi_why)
    };
    for (word, flavour) in [("simple", PmiFlavour::Simple), ("pmix", PmiFlavour::Pmix), ("none", PmiFlavour::None)] {
        assert_eq!(chosen(&format!("-n 1 --pmi {word} /bin/sh")), (flavour, "--pmi".to_owned()));
    }
    assert_eq!(chosen("-n 1 --pmi auto /bin/true"), chosen("-n 1 /bin/true"));
    assert_eq!(chosen("-n 1 /bin/true").0, PmiFlavour::Simple);
    // The launcher cannot examine a program on another host, so ranks are offered every PMI.
    let there = resolved("--hosts n1 --pmix-library /l/libpmix.so.2 --modex direct ./a").job;
    assert_eq!((there.options.pmi.flavour, there.options.pmi.modex), (PmiFlavour::Both, Modex::Direct));
    assert_eq!(there.options.pmi.pmix_library.as_deref(), Some("/l/libpmix.so.2"));
    assert!(there.env.contains(&b"MPIR_CVAR_PMI_VERSION=1".to_vec()));
    let missing = try_resolve("-n 1 --pmix-library no/such ./a", surroundings()).expect_err("missing");
    assert!(missing.starts_with("--pmix-library no/such: file not found"), "{missing}");
}

#[test]
fn host_file_and_env_file_are_read() {
    let directory = tempfile::tempdir().expect("a folder");
    let path = |name: &str| directory.path().join(name).display().to_string();
    std::fs::write(path("hosts"), "n1 slots=2\nn2 slots=2\n").expect("write a file");
    std::fs::write(path("vars"), "A=1\nB=2\n").expect("write a file");
    let line = format!("-f {} --env-file {} --genv A=3 --pmi simple ./a", path("hosts"), path("vars"));
    let read = resolved(&line);
    directory.close().expect("remove the folder");
    assert_eq!((read.job.job_size(), read.slots.as_slice()), (4, &[2, 2][..]));
    assert_eq!(read.job.env, [b"HOME=/h".to_vec(), b"A=3".to_vec(), b"B=2".to_vec()]);
    assert!(try_resolve(&line, surroundings()).expect_err("gone").starts_with("host file "));
}

#[test]
fn contradictory_or_invalid_host_flags_are_refused() {
    let refused = |line: &str| try_resolve(line, surroundings()).expect_err(line);
    assert!(refused("--hosts a --virtual-nodes 2 ./a").starts_with("--virtual-nodes (nodes on this machine)"));
    assert!(refused("--hosts a --hostfile b ./a").starts_with("--hosts and --hostfile cannot be combined"));
    for start in ["serial-ssh", "ssh-flat"] {
        let refused = refused(&format!("--hosts a --start {start} --fanout 2 ./a"));
        assert!(refused.starts_with(&format!("--fanout has no effect with --start {start}")), "{refused}");
    }
    assert!(refused("--start serial-ssh ./a").contains("--start serial-ssh needs hosts"));
    assert!(refused("--hosts n[3-1] ./a").starts_with("--hosts [3-1]: the first number"));
    assert!(refused("--hosts a:2,b:1 -n 4 ./a").contains("do not fit into the 3 slots of 2 host(s)"));
    let typed = |line: &str| parse(line.split_whitespace().map(OsString::from)).expect_err(line).to_string();
    assert!(typed("--node-timeout 0 ./a").starts_with("--node-timeout must be more than 0 seconds"));
    assert!(typed("--interface 10.0.0.0/99 ./a").starts_with("--interface 10.0.0.0/99: the network length"));
    assert!(typed("-n 1 ./a : -n 1 -f b ./b").starts_with("-f applies to the whole job"));
}

fn bound(line: &str) -> Result<Binding, String> {
    binding(&parsed_words(line.split(' ')))
}

#[test]
fn the_binding_follows_from_mapping_and_flag() {
    let to = |line: &str| bound(line).expect(line).to;
    let object = |object, count| BindTo::To { object, count };
    assert_eq!(to("./a"), BindTo::Even);
    assert_eq!(to("--map-by numa ./a"), object(Object::Numa, 1));
    assert_eq!(to("--map-by numa --bind-to core ./a"), object(Object::Core, 1));
    assert_eq!(to("--map-by slot:pe=3 ./a"), object(Object::Core, 3));
    assert_eq!(to("--map-by slot:pe=3:hwtcpus ./a"), object(Object::Thread, 3));
    assert_eq!(to("--map-by :pe=3 --bind-to core ./a"), object(Object::Core, 3));
    assert_eq!(to("--map-by :pe=3 --bind-to none ./a"), BindTo::None);
    assert!(bound("--map-by :pe=3 --bind-to numa ./a").expect_err("two").contains("contradicts --bind-to"));
    let over = bound("--map-by ppr:2:numa ./a").expect("valid").over;
    assert_eq!(over, Some(Over { object: Object::Numa, step: 1, ranks: 2 }));
    let filled = bound("--map-by numa --rank-by fill ./a").expect("valid").over;
    assert_eq!(filled.map(|over| over.ranks), Some(0));
}

#[test]
fn ranks_per_object_are_counted_on_this_machine() {
    let parsed = parsed_words(["--map-by", "ppr:2:numa", "./a"]);
    assert_eq!(counted(&parsed, &Machine::described("counted", 8, false, 2)), Ok(Some(MapBy::Ppr(4))));
}
