//! Mistakes of users and programs: each is reported by one line that names the node and what to do next.

use std::path::Path;
use wireup_e2e::folders::Folder;
use wireup_e2e::peers::{plain, skip};
use wireup_e2e::tables::{fails, prints, reports};
use wireup_e2e::{Run, folders};

/// The program of a foreign architecture has the ELF header of one for s390x: a shell would interpret its bytes as
/// commands.
#[test]
fn programs_that_cannot_run_are_named_with_their_node() {
    let folder = Folder::new("no-programs");
    let foreign = "\x7fELF\x02\x02\x01\0\0\0\0\0\0\0\0\0\0\x02\0\x16\necho run\n";
    for (name, content, mode) in [
        ("plain", "#!/bin/sh\n", 0o644),
        ("empty", "", 0o755),
        ("foreign", foreign, 0o755),
        ("strange", "#!/no/such/interpreter\n", 0o755),
        ("bare", "echo from $WIREUP_RANK\n", 0o755),
    ] {
        folders::write_program(&folder.0.join(name), content, mode);
    }
    let shell = |script: &str| Run::shell(script).env("FILES", &folder.0);
    fails(
        shell,
        "wireup run -n 4 EACH ./no-such-program => 127 node | ./no-such-program | not found
         wireup run -n 4 EACH no-such-program => 127 no-such-program | not found
         wireup run -n 4 EACH $FILES/plain => 126 node | /plain
         wireup run -n 2 /tmp => 126 node | /tmp is a directory
         wireup run -n 2 $FILES/empty => 126 node | /empty
         wireup run -n 4 EACH $FILES/foreign => 126 node | built for this architecture
         wireup run -n 4 EACH $FILES/strange => 126 node | /strange | interpreter
         wireup run -n 4 EACH -wdir /no/such/folder true => 125 /no/such/folder",
    );
    // A script without an interpreter line is run by the shell, as a shell does when a user calls it.
    prints(shell, "wireup run -n 2 $FILES/bare => from 0, from 1");
}

/// The messages of more refused command lines are tested by unit tests: `flags/parsed/tests.rs`,
/// `flags/resolved/tests.rs`.
#[test]
fn command_lines_are_refused_in_one_line() {
    fails(
        Run::shell,
        "wireup run -n 0 true => 125 -n
         wireup run -n -1 true => 125 -n
         wireup run -n 99999999999999999999 true => 125 -n
         wireup run -n 2 --virtual-nodes 0 true => 125 --virtual-nodes
         wireup run --ppn x true => 125 --ppn x | from 1 to 65535
         wireup run --virtual-nodes 10000000 true => 125 from 1 to 65536
         wireup run --no-such-flag true => 125 --no-such-flag
         wireup run -n 1 true : -n 1 => 125 program
         wireup run -n true => 125 no program to run: -n took true as its value; try: wireup run -n 4 ./app
         wireup run -n 4 --wdir ./app => 125 no program to run: --wdir took ./app as its value
         wireup run -n 4 => 125 no program to run; try: wireup run -n 4 ./app
         wireup mpiexec -n true => 125 no program to run: -n took true as its value
         wireup run -n 100000 --map-by ppr:1:core true => \
            125 100000 ranks do not fit with --map-by ppr:1:core, which has \
            places for  | raise the number in ppr:1:core
         wireup no-such-command => 125 no-such-command
         wireup dwon => 125 did you mean wireup down?
         wireup help nosuch => 125 unknown command nosuch
         wireup version --json => 125 --json
         wireup kill => 125 JOB is missing
         wireup run -n 5 --virtual-nodes 2 --slots 2 true => 125 5 ranks | 2 x 2 slots
         PBS_JOBID=7; export PBS_JOBID; wireup run -n 1 true => 125 PBS_JOBID | --hosts
         LSB_JOBID=7; export LSB_JOBID; wireup run -n 1 true => 125 LSB_JOBID | --hosts
         wireup run -n 4 EACH --rank-ports 80-81 true => \
            125 --rank-ports 80-81: 2 ports are too few for the 4 ranks on a \
            machine; name at least 4
         wireup run -n 2 --profile /no/such/dir/trace echo ran => 125 cannot write /no/such/dir/trace
         wireup run -n 2 --json r.json echo ran => 125 --json=r.json
         wireup run -n 2 --profile - echo ran => 125 cannot be written to standard output
         wireup run -n 2 --report /no/such/dir/page echo ran => 125 cannot write the report | writable file to --report
         wireup run -n 2 --report - echo ran => 125 cannot be written to standard output
         wireup report /dev/null => 125 /dev/null is empty
         wireup report /proc/no => 125 /proc/no: No such file
         wireup run -n 2 --output-dir /proc/no true => 125 /proc/no",
    );
    prints(
        Run::shell,
        "PBS_JOBID=7; export PBS_JOBID; job -n 1 --virtual-nodes 1 true =>
         LSB_JOBID=7; export LSB_JOBID; job -n 1 --virtual-nodes 1 true =>
         wireup help version | grep -o 'wireup run' | head -n 1 => wireup run
         job -n 40 true =>
         job -n 1 --bind-to core true =>
         job -n 2 --timeout 0 sh -c 'sleep 0.2; echo done' => done, done",
    );
    reports(
        Run::shell,
        "wireup run -n 4096 --bind-to core --dry-run true => 0 --bind-to core | 4096 ranks share | cores",
    );
}

#[test]
fn texts_that_cannot_be_written_fail_the_command() {
    reports(
        Run::shell,
        "wireup help >/dev/full => 125 cannot write standard output | No space left
         wireup version >/dev/full => 125 cannot write standard output | No space left
         wireup run --help >/dev/full => 125 cannot write standard output | No space left
         wireup help >&- => 125 cannot write standard output
         wireup run -n 2 echo x >&- => 125 standard output
         wireup run -n 2 echo x >/dev/full => 125 No space left
         wireup run -n 2 seq 100000 >/dev/full => 125 No space left
         (ulimit -f 1; job -n 2 seq 100000 >out); c=$?; rm out; exit $c => \
            125 cannot write standard output | too large",
    );
    prints(Run::shell, "wireup run -n 2 true >&- =>");
    let outcome = Run::job("-n 1").sh("cd $TMPDIR; ulimit -f 1; seq 100000 >out; code=$?; rm out; exit $code").finish();
    assert_ne!(outcome.code(), 0, "ranks get the default, not our own setting: {outcome}");
}

/// The rank is the only process in a memory cgroup with a small limit.
#[test]
fn a_rank_that_the_kernel_killed_for_lack_of_memory_is_named() {
    let script = "top=/sys/fs/cgroup; test -d $top/memory && top=$top/memory; group=$top/wireup-test-$$; mkdir $group \
        2>/dev/null && \
        { test -w $group/memory.limit_in_bytes || test -w $group/memory.max; } || { rmdir $group; echo no group >&2; \
        exit 0; }; \
        echo 100000000 | tee $group/memory.limit_in_bytes $group/memory.max >/dev/null 2>&1; \
        $WIREUP run -n 2 sh -c 'test $WIREUP_RANK = 0 && exec sleep 1000; echo $$ >'$group'/cgroup.procs; exec tail \
        /dev/zero'; \
        code=$?; rmdir $group; exit $code";
    if !Path::new("/dev/kmsg").exists() {
        return println!("SKIPPED: the kernel's log cannot be read here");
    }
    let outcome = Run::shell(script).finish();
    if outcome.code() == 0 && outcome.err() == "no group\n" {
        return skip("no memory cgroup can be made").unwrap_or_default();
    }
    let outcome = outcome.expect_code(137);
    outcome.expect_err_line(&["rank 1", "killed by the kernel because memory ran out"]);
    let outcome = Run::job("-n 2").sh("test $WIREUP_RANK = 0 && exec sleep 1000; kill -9 $$").finish().expect_code(137);
    assert!(outcome.expect_err_line(&["rank 1", "SIGKILL"]).contains("check dmesg"), "{outcome}");
}

/// Root in a mount namespace of its own has a full /tmp; the product and the program `spew` are in /mnt.
#[test]
fn a_full_tmp_does_not_fail_a_job_except_one_with_output_files() {
    if Run::shell("unshare -rm true").finish().code() != 0 {
        return skip("no user namespaces here").unwrap_or_default();
    }
    let script = format!(
        "mount -t tmpfs none /mnt && cp $WIREUP /mnt/wireup && cp {} /mnt/spew && mount -t tmpfs -o size=4k none /tmp \
         && head -c 4096 /dev/zero >/tmp/full; cd /; TMPDIR=/tmp; /mnt/wireup run -n 4 --virtual-nodes 2 echo fine \
         && /mnt/wireup run -n 2 --output-dir /tmp/out /mnt/spew bytes 100000",
        plain("spew").display()
    );
    let outcome = Run::shell(&format!("unshare -rm /bin/sh -c '{script}'")).finish();
    assert_ne!(outcome.code(), 0, "{outcome}");
    assert_eq!(outcome.out(), "fine\n".repeat(4), "{outcome}");
    outcome.expect_err_line(&["/tmp/out", "No space left"]);
}

#[test]
fn ports_for_ranks_that_are_in_use_are_reported_at_once() {
    let listener = std::net::TcpListener::bind("[::]:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let outcome = Run::job(&format!("-n 1 --rank-ports {port}-{port} true")).finish().expect_code(125);
    outcome.expect_err_line(&[&format!("(port {port} is not free)"), "Address already in use", "--rank-ports"]);
}

/// wireup raises the soft limit; a hard limit that is too low is reported before anything starts. The test needs a user
/// namespace, because outside of one root could raise the hard limit as well.
#[test]
fn a_hard_limit_of_too_few_descriptors_is_reported_before_the_start() {
    let unprivileged = if Run::shell("unshare -r true").finish().code() == 0 { "unshare -r" } else { "" };
    let script = format!("ulimit -Sn 64; ulimit -Hn 64; exec {unprivileged} $WIREUP run -n 500 echo started");
    let outcome = Run::shell(&script).finish();
    assert!(!outcome.out().contains("started"), "{outcome}");
    assert_ne!(outcome.code(), 0, "{outcome}");
    outcome.expect_err_line(&["ulimit"]);
}

/// Requests of rank 1 that are not valid PMI end the job cleanly, with a line that names the rank.
#[test]
fn a_client_that_breaks_the_protocol_ends_the_job() {
    let shell = |script: &str| Run::shell(script).env("BADPMI", plain("badpmi"));
    reports(
        shell,
        "wireup run -n 4 EACH $BADPMI garbage => !0 rank 1
         wireup run -n 4 EACH $BADPMI half => !0 rank 1
         wireup run -n 4 EACH $BADPMI endless => !0 rank 1
         wireup run -n 4 EACH $BADPMI length => !0 rank 1
         wireup run -n 4 EACH $BADPMI toolong => !0 rank 1
         wireup run -n 4 EACH $BADPMI leave => !0 rank 1 | fence",
    );
}

/// The client had entered the fence before it closed its socket, so the other ranks may leave the fence.
#[test]
fn a_client_that_closes_in_a_fence_does_not_hang_the_job() {
    for placement in ["-n 2", "-n 4 --virtual-nodes 2"] {
        let outcome = Run::job(placement).arg(plain("badpmi")).arg("closefence").finish();
        let through = outcome.out().contains("rank 0 through\n");
        assert!(through || outcome.code() != 0, "{outcome}");
    }
}

/// Only the client that made the unknown request gets an error; the job continues.
#[test]
fn an_unknown_pmi_request_gets_an_error_and_the_job_continues() {
    for placement in ["-n 2", "-n 4 --virtual-nodes 2"] {
        let outcome = Run::job(placement).arg(plain("badpmi")).arg("unknown").succeed();
        let out = outcome.out();
        assert!(out.lines().any(|line| line.starts_with("rank 1 answer ") && line.contains("rc=-1")), "{outcome}");
        assert!(out.contains("rank 0 through\n") && out.contains("rank 1 through\n"), "{outcome}");
    }
}

/// Ranks keep the user's soft limit of open files; the launcher and its keeper raise their own up to the hard limit.
#[test]
fn a_soft_limit_of_40_descriptors_allows_64_ranks() {
    let outcome = Run::shell("ulimit -Sn 40; $WIREUP run -n 64 sh -c 'ulimit -Sn'").succeed();
    assert_eq!(outcome.out(), "40\n".repeat(64), "{outcome}");
}
