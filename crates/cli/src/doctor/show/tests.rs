use super::*;
use crate::doctor::examine::{Back, Seen};
use wireup_node::doctor::{Address, Cache, Limits, LimitsOf, Space};
use wireup_wire::peer::ProblemKind;

const SECOND_NS: u64 = 1_000_000_000;

/// A change that makes a healthy host unhealthy.
type Spoil<'a> = &'a dyn Fn(&mut Seen);

/// The facts of a healthy machine.
pub fn facts() -> Facts {
    let limit = |soft, hard| LimitsOf { soft: Some(soft), hard: Some(hard) };
    let free = LimitsOf::default();
    let address =
        |interface: &str, ip: &str| Address { interface: interface.into(), ip: ip.parse().expect("an address") };
    Facts {
        version: "0.1.0".into(),
        build: "abc".into(),
        arch: "x86_64".into(),
        kernel: "Linux 6.1".into(),
        host: "n".into(),
        user: 0,
        cpus: 2,
        limits: Limits {
            open_files: limit(1024, 524_288),
            processes: limit(7000, 7000),
            locked_memory: free,
            core: free,
            stack: free,
            pids_max: None,
        },
        shm: Some(Space { total: 1 << 30, free: 1 << 30 }),
        memory_free: Some(4 << 30),
        offered: Ok(vec![address("eth0", "10.0.0.1")]),
        left_out: vec![(address("docker0", "172.17.0.1"), "a bridge".into())],
        cache: Cache { path: "/h/.cache/wireup".into(), free: Some(1 << 30), problem: None },
        clock_ns: 100 * SECOND_NS,
        cwd_problem: None,
    }
}

fn well(host: &str, neighbour: &str) -> Seen {
    Seen {
        host: host.into(),
        facts: Some(facts()),
        clock_ns: (99 * SECOND_NS, 101 * SECOND_NS),
        back: Some(Back { address: [10, 0, 0, 254].into(), took_ns: 400_000, failed: String::new() }),
        onward: Some(Ok(())),
        neighbour: Some(neighbour.into()),
        ..Seen::default()
    }
}

fn ring(hosts: usize) -> Vec<Seen> {
    (0..hosts).map(|host| well(&format!("n{host}"), &format!("n{}", (host + 1) % hosts))).collect()
}

fn said(seen: &[Seen]) -> (String, bool) {
    let cases: Vec<Case> =
        seen.iter().map(|seen| Case { host: &seen.host, facts: seen.facts.as_ref(), seen: Some(seen) }).collect();
    let setting = Setting { shell: "ssh".into(), cwd: "/work dir".into(), interface: None, program_bytes: 15 << 20 };
    let report = Report::new(&cases, &facts(), &setting);
    (report.text(), report.has_problem())
}

#[test]
fn healthy_hosts_get_a_line_each() {
    let line =
        |host: &str| format!("{host}  ok       x86_64 Linux 6.1, wireup 0.1.0, 2 cpus, eth0 10.0.0.1, 0.4 ms back\n");
    assert_eq!(said(&ring(2)), (format!("{}{}2 hosts: 2 ok\n", line("n0"), line("n1")), false));
}

#[test]
fn many_healthy_hosts_share_one_line() {
    let (text, _) = said(&ring(100));
    assert_eq!(text, "n[0-99]  ok       x86_64 Linux 6.1, wireup 0.1.0, 2 cpus, eth0\n100 hosts: 100 ok\n");
}

#[test]
fn hosts_that_do_not_answer_are_reported_as_in_a_run() {
    let mut seen = ring(5);
    for host in [1, 2] {
        seen[host].facts = None;
        seen[host].problem = Some(format!("ssh: connect to host n{host} port 22: Connection refused").into());
    }
    seen[3].facts = None;
    seen[3].problem = Some("its remote shell did not start an agent within 5 s".into());
    let (text, problem) = said(&seen);
    assert!(problem);
    for part in [
        "problem  n[1-2]: ssh: connect to host HOST port 22: Connection refused\n         fix: is sshd running there",
        "problem  n3: its remote shell did not start an agent within 5 s\n         fix: is the node up?",
        "5 hosts: 2 ok, 3 with problems\n",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn causes_of_a_failing_run_are_problems() {
    let cases: [(Spoil, &str); 5] = [
        (
            &|seen| seen.missing = vec!["/apps/a".into(), "/apps/b".into()],
            "the program needs /apps/a and 1 more, missing there",
        ),
        (
            &|seen| facts_of(seen).cwd_problem = Some("does not exist".into()),
            "working directory /work dir: does not exist",
        ),
        (&|seen| facts_of(seen).limits.open_files.hard = Some(256), "at most 256 open files"),
        (&|seen| facts_of(seen).offered = Ok(Vec::new()), "it has only a loopback address"),
        (
            &|seen| facts_of(seen).offered = Err("no address of this machine matches; it has eth0 10.0.0.1".into()),
            "matches --interface ; it has eth0 10.0.0.1",
        ),
    ];
    for (spoil, part) in cases {
        let mut seen = ring(3);
        spoil(&mut seen[1]);
        let (text, problem) = said(&seen);
        assert!(problem && text.contains(part) && text.contains("fix: "), "{part}\n{text}");
        assert!(text.contains("n1  problem  x86_64") && text.ends_with("1 with problems\n"), "{text}");
    }
}

fn back_of(seen: &mut Seen) -> &mut Back {
    seen.back.as_mut().expect("the host has reached this machine")
}

fn facts_of(seen: &mut Seen) -> &mut Facts {
    seen.facts.as_mut().expect("the host has facts")
}

#[test]
fn differences_between_hosts_are_remarks() {
    let cases: [(Spoil, &str); 14] = [
        (&|seen| facts_of(seen).clock_ns = 110 * SECOND_NS, "its clock is 9 s ahead"),
        (&|seen| facts_of(seen).clock_ns = 90 * SECOND_NS, "its clock is 9 s behind"),
        (&|seen| facts_of(seen).user = 7, "user id 7 there, 0 here"),
        (&|seen| facts_of(seen).cpus = 64, "cpus: 64; most hosts have 2"),
        (&|seen| facts_of(seen).arch = "aarch64".into(), "it is an aarch64 machine"),
        (&|seen| facts_of(seen).build = "other".into(), "it has another build of wireup 0.1.0"),
        (&|seen| facts_of(seen).limits.locked_memory.hard = Some(64 << 10), "locked memory: at most 64 KiB there"),
        (
            &|seen| facts_of(seen).limits.open_files.hard = Some(4096),
            "open files: at most 4096; most hosts have 524288",
        ),
        (&|seen| facts_of(seen).limits.pids_max = Some(50), "processes: at most 50; most hosts have 7000"),
        (&|seen| facts_of(seen).cache.problem = Some("full".into()), "cannot store wireup in"),
        (&|seen| seen.onward = Some(Err("Permission denied".into())), "it cannot reach n2 by ssh (Permission denied)"),
        (&|seen| seen.onward = None, "it did not report in time whether it can reach n2 by ssh"),
        (
            &|seen| back_of(seen).failed = "10.9.0.1:7: no answer within 7 s".into(),
            "it could connect to this machine only at 10.0.0.254, after trying other addresses: 10.9.0.1:7: no answer",
        ),
        (&|seen| seen.retried = Some("kex".into()), "its sshd was busy: kex"),
    ];
    for (spoil, part) in cases {
        let mut seen = ring(3);
        spoil(&mut seen[1]);
        let (text, problem) = said(&seen);
        assert!(!problem && text.contains(&format!("remark   n1: {part}")), "{part}\n{text}");
        assert!(text.contains("n1  remark   x86_64") || text.contains("n1  remark   aarch64"), "{part}\n{text}");
        assert!(text.ends_with("3 hosts: 2 ok, 1 with remarks\n"), "{text}");
    }
}

#[test]
fn a_slow_log_in_is_not_reported_as_a_wrong_clock() {
    let mut seen = ring(2);
    seen[0].clock_ns = (60 * SECOND_NS, 101 * SECOND_NS);
    assert!(said(&seen).0.ends_with("2 hosts: 2 ok\n"));
}

#[test]
fn hosts_with_the_same_finding_share_one_line() {
    let mut seen = ring(4);
    for seen in &mut seen {
        seen.onward = Some(Err("Permission denied".into()));
    }
    let (text, problem) = said(&seen);
    assert!(!problem);
    assert_eq!(text.matches("cannot start agents on other hosts").count(), 1, "{text}");
    assert!(text.contains("remark   n[0-3]: it cannot start agents on other hosts by ssh"), "{text}");
    assert!(text.contains("fix: make \"ssh HOST true\" work there"), "{text}");
}

#[test]
fn a_missing_program_is_a_remark_and_no_problem() {
    let mut seen = ring(2);
    for seen in &mut seen {
        seen.problem = Some(ProblemKind::NotInstalled.with("wireup-needed x86_64"));
        seen.facts = None;
    }
    let (text, problem) = said(&seen);
    assert!(
        !problem && text.contains("n[0-1]: wireup is missing or has another version; a run would send it (15 MiB)")
    );
    assert!(text.ends_with("2 hosts: 0 ok, 2 with remarks\n"), "{text}");
}

#[test]
fn notes_leave_a_host_ok() {
    let mut seen = ring(3);
    facts_of(&mut seen[1]).kernel = "Linux 5".into();
    seen[2].sent = true;
    let (text, problem) = said(&seen);
    assert!(!problem && text.ends_with("3 hosts: 3 ok\n"), "{text}");
    assert!(text.contains("note     n1: kernel Linux 5; most hosts have Linux 6.1\n"), "{text}");
    assert!(text.contains("note     n2: wireup was sent there (15 MiB)\n"), "{text}");
}

#[test]
fn a_node_without_a_report_is_a_problem_with_its_cause() {
    let mut seen = ring(3);
    for (host, problem) in [(0, None), (1, Some("n1: wireup: Permission denied (os error 13)".into()))] {
        seen[host].facts = None;
        seen[host].problem = problem;
    }
    let (text, problem) = said(&seen);
    assert!(problem && text.contains("problem  n0: an agent started there, but no rank has reported"), "{text}");
    seen[0].said = b"ld.so: no such\x1b]52;object\nproblem  n9: forged".to_vec();
    let (text, _) = said(&seen);
    let line = text.lines().find(|line| line.starts_with("problem  n0")).expect("the finding");
    assert!(line.contains("no rank has reported: ld.so: no such") && !text.contains('\x1b'), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("problem  n9")), "{text}");
    assert!(text.contains("problem  n1: n1: wireup: Permission denied (os error 13)"), "{text}");
}
