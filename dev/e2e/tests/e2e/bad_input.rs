//! Mistakes of users and programs: each gives one line that names the node and the next step.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use wireup_e2e::peers::{plain, skip};
use wireup_e2e::{Outcome, Run, executables};

const PLACEMENTS: [&str; 2] = ["-n 2", "-n 4 --virtual-nodes 2"];

/// Expects exactly one line on stderr, containing all of `words`.
fn one_line(outcome: Outcome, code: i32, words: &[&str]) {
    let outcome = outcome.expect_code(code);
    let line = outcome.expect_err_line(words);
    assert_eq!(outcome.err().trim_end(), line, "{outcome}\nmore than one line");
}

/// A file with `content` and `mode`, for one test.
struct Script(PathBuf);

impl Script {
    fn new(name: &str, content: &str, mode: u32) -> Self {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        executables::write(&path, content, mode);
        Self(path)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_missing_program_gives_exit_code_127() {
    for placement in PLACEMENTS {
        one_line(
            Run::job(placement).arg("./no-such-program").finish(),
            127,
            &["node", "./no-such-program", "not found"],
        );
        one_line(Run::job(placement).arg("no-such-program").finish(), 127, &["no-such-program", "not found"]);
    }
}

#[test]
fn a_non_executable_program_gives_exit_code_126() {
    let file = Script::new("not-executable", "#!/bin/sh\n", 0o644);
    for placement in PLACEMENTS {
        let name = file.0.display().to_string();
        one_line(Run::job(placement).arg(&file.0).finish(), 126, &["node", &name]);
    }
    one_line(Run::job("-n 2 /tmp").finish(), 126, &["node", "/tmp is a directory"]);
    let file = Script::new("empty", "", 0o755);
    one_line(Run::job("-n 2").arg(&file.0).finish(), 126, &["node", "empty"]);
}

/// The header of a program for s390x: a shell would read its bytes as commands.
#[test]
fn a_program_for_another_machine_is_not_given_to_the_shell() {
    let file = Script::new("foreign", "\x7fELF\x02\x02\x01\0\0\0\0\0\0\0\0\0\0\x02\0\x16\necho run\n", 0o755);
    for placement in PLACEMENTS {
        let outcome = Run::job(placement).arg(&file.0).finish();
        assert_eq!(outcome.out(), "");
        one_line(outcome, 126, &["node", "built for this architecture"]);
    }
}

#[test]
fn a_missing_interpreter_is_named() {
    let file = Script::new("wrong-interpreter", "#!/no/such/interpreter\n", 0o755);
    let name = file.0.display().to_string();
    for placement in PLACEMENTS {
        let outcome = Run::job(placement).arg(&file.0).finish();
        let code = outcome.code();
        assert!(code == 126 || code == 127, "{outcome}");
        one_line(outcome, code, &["node", &name, "interpreter"]);
    }
}

/// The shell runs it, as a shell would do itself.
#[test]
fn a_script_without_an_interpreter_is_run_by_the_shell() {
    let file = Script::new("no-interpreter", "echo from $WIREUP_RANK\n", 0o755);
    let outcome = Run::job("-n 2").arg(&file.0).succeed();
    assert_eq!(outcome.sorted_lines(), ["from 0", "from 1"]);
}

#[test]
fn zero_ranks_are_refused() {
    one_line(Run::job("-n 0 true").finish(), 125, &["-n"]);
}

#[test]
fn invalid_numbers_are_refused_in_one_line() {
    for line in ["-n many true", "-n -1 true", "-n 99999999999999999999 true", "-n 2 --virtual-nodes 0 true"] {
        let outcome = Run::job(line).finish().expect_code(125);
        assert_eq!(outcome.err().trim_end().lines().count(), 1, "{outcome}");
    }
}

#[test]
fn limits_of_numbers_are_those_that_apply() {
    one_line(Run::job("-n abc true").finish(), 125, &["-n abc", "from 1 to 4194304"]);
    one_line(Run::job("--ppn x true").finish(), 125, &["--ppn x", "from 1 to 65535"]);
    one_line(Run::job("--virtual-nodes 10000000 true").finish(), 125, &["from 1 to 65536"]);
}

#[test]
fn help_and_version_take_only_what_they_know() {
    one_line(Run::wireup(["help", "nosuch"]).finish(), 125, &["unknown command nosuch"]);
    one_line(Run::wireup(["version", "--json"]).finish(), 125, &["--json"]);
    assert!(Run::wireup(["help", "version"]).succeed().out().contains("wireup run"));
}

#[test]
fn texts_that_cannot_be_written_fail_the_command() {
    for (command, problem) in [("help", "No space left"), ("version", "No space left"), ("run --help", "No space left")]
    {
        let outcome = Run::shell(&format!("$WIREUP {command} >/dev/full")).finish().expect_code(125);
        outcome.expect_err_line(&["cannot write standard output", problem]);
    }
    Run::shell("$WIREUP help >&-").finish().expect_code(125).expect_err_line(&["cannot write standard output"]);
    Run::shell("$WIREUP run -n 2 echo x >&-").finish().expect_code(125).expect_err_line(&["standard output"]);
    Run::shell("$WIREUP run -n 2 true >&-").finish().expect_code(0);
}

#[test]
fn a_file_size_limit_is_reported() {
    let script = "cd $TMPDIR; (ulimit -f 1; exec $WIREUP run -n 2 seq 100000 >out); code=$?; rm out; exit $code";
    let outcome = Run::shell(script).finish().expect_code(125);
    outcome.expect_err_line(&["cannot write standard output", "too large"]);
    let outcome = Run::job("-n 1").sh("cd $TMPDIR; ulimit -f 1; seq 100000 >out; code=$?; rm out; exit $code").finish();
    assert_ne!(outcome.code(), 0, "ranks get the default, not our own setting: {outcome}");
}

#[test]
fn a_trace_that_cannot_be_written_is_reported_before_the_job_runs() {
    for (file, problem) in [("/no/such/dir/trace", "cannot write the trace"), ("-", "goes to a file")] {
        let outcome = Run::job("-n 2").args(["--profile", file]).args(["echo", "ran"]).finish().expect_code(125);
        assert_eq!(outcome.out(), "", "{outcome}");
        outcome.expect_err_line(&[problem]);
    }
}

#[test]
fn ranks_that_share_cores_are_counted() {
    let outcome = Run::job("-n 4096 --bind-to core --dry-run true").succeed();
    outcome.expect_err_line(&["--bind-to core", "4096 ranks share", "cores"]);
    Run::job("-n 1 --bind-to core true").succeed().expect_quiet();
}

/// The rank is alone in a memory cgroup with a small limit.
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
    assert!(outcome.expect_err_line(&["rank 1", "SIGKILL"]).contains("somebody sent it"), "{outcome}");
}

#[test]
fn batch_jobs_without_hosts_are_refused() {
    for variable in ["PBS_JOBID", "LSB_JOBID"] {
        one_line(Run::job("-n 1 true").env(variable, "7").finish(), 125, &[variable, "--hosts"]);
        Run::job("-n 1 --virtual-nodes 1 true").env(variable, "7").succeed();
    }
}

#[test]
fn unknown_words_and_missing_programs_are_refused() {
    one_line(Run::job("--no-such-flag true").finish(), 125, &["--no-such-flag"]);
    one_line(Run::wireup(["no-such-command"]).finish(), 125, &["no-such-command"]);
    one_line(Run::job("-n 2").finish(), 125, &["program"]);
    one_line(Run::job("-n 1 true : -n 1").finish(), 125, &["program"]);
}

/// This is an error only if the user has limited the slots.
#[test]
fn more_ranks_than_stated_slots_are_refused() {
    Run::job("-n 40 true").succeed();
    one_line(Run::job("-n 5 --virtual-nodes 2 --slots 2 true").finish(), 125, &["5 ranks", "2 x 2 slots"]);
}

#[test]
fn a_missing_working_directory_is_named() {
    for placement in PLACEMENTS {
        let outcome = Run::job(placement).args(["-wdir", "/no/such/folder", "true"]).finish();
        let code = outcome.code();
        assert_ne!(code, 0, "{outcome}");
        one_line(outcome, code, &["/no/such/folder"]);
    }
}

/// Runs `script` as root of its own mount namespace, with a full /tmp; the product and `spew` are in /mnt.
fn with_a_full_tmp(script: &str) -> Option<Outcome> {
    if Run::shell("unshare -rm true").finish().code() != 0 {
        return skip("no user namespaces here");
    }
    let prepare = format!(
        "mount -t tmpfs none /mnt && cp $WIREUP /mnt/wireup && cp {} /mnt/spew && mount -t tmpfs -o size=4k none /tmp \
         && head -c 4096 /dev/zero >/tmp/full",
        plain("spew").display()
    );
    Some(Run::shell(&format!("unshare -rm /bin/sh -c '{prepare}; cd /; TMPDIR=/tmp; {script}'")).finish())
}

#[test]
fn a_full_tmp_does_not_fail_a_job() {
    let Some(outcome) = with_a_full_tmp("/mnt/wireup run -n 4 --virtual-nodes 2 echo fine") else { return };
    let outcome = outcome.expect_code(0);
    assert_eq!(outcome.out(), "fine\n".repeat(4));
}

#[test]
fn output_files_on_a_full_disk_fail_the_job() {
    let script = "/mnt/wireup run -n 2 --output-dir /tmp/out /mnt/spew bytes 100000";
    let Some(outcome) = with_a_full_tmp(script) else { return };
    assert_ne!(outcome.code(), 0, "{outcome}");
    outcome.expect_err_line(&["/tmp/out", "No space left"]);
}

#[test]
fn an_output_directory_that_cannot_be_made_fails_the_job() {
    let outcome = Run::job("-n 2 --output-dir /proc/no true").finish();
    assert_ne!(outcome.code(), 0);
    outcome.expect_err_line(&["/proc/no"]);
}

#[test]
fn ports_for_ranks_that_are_too_few_or_in_use_are_reported_at_once() {
    let said = "--rank-ports 80-81: 2 ports are too few for the 4 ranks on a machine; name at least 4";
    for placement in ["-n 4", "-n 4 --virtual-nodes 2"] {
        let outcome = Run::job(&format!("{placement} --rank-ports 80-81 true")).finish().expect_code(125);
        outcome.expect_err_line(&[said]);
    }
    let listener = std::net::TcpListener::bind("[::]:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let outcome = Run::job(&format!("-n 1 --rank-ports {port}-{port} true")).finish().expect_code(125);
    outcome.expect_err_line(&[&format!("(port {port} is not free)"), "Address already in use", "--rank-ports"]);
}

#[test]
fn a_time_limit_of_zero_is_none() {
    let outcome = Run::job("-n 2 --timeout 0").sh("sleep 0.2; echo done").succeed();
    assert_eq!(outcome.out(), "done\ndone\n");
}

/// The soft limit is raised; a hard limit that is too low is reported before anything starts. Root could raise the hard
/// limit as well, hence the user namespace, in which it cannot.
#[test]
fn a_hard_limit_of_too_few_descriptors_is_reported_before_the_start() {
    let unprivileged = if Run::shell("unshare -r true").finish().code() == 0 { "unshare -r" } else { "" };
    let script = format!("ulimit -Sn 64; ulimit -Hn 64; exec {unprivileged} $WIREUP run -n 500 echo started");
    let outcome = Run::shell(&script).finish();
    assert!(!outcome.out().contains("started"), "{outcome}");
    assert_ne!(outcome.code(), 0, "{outcome}");
    outcome.expect_err_line(&["ulimit"]);
}

/// Runs `badpmi HOW`: the job ends cleanly with a line about rank 1.
fn bad_client(how: &str, placement: &str) -> Outcome {
    let outcome = Run::job(placement).arg(plain("badpmi")).arg(how).finish();
    assert!(!outcome.err().contains("panic"), "{outcome}");
    assert_ne!(outcome.code(), 0, "{outcome}");
    outcome.expect_err_line(&["rank 1"]);
    outcome
}

#[test]
fn a_client_that_sends_garbage_ends_the_job() {
    for placement in PLACEMENTS {
        bad_client("garbage", placement);
    }
}

#[test]
fn a_client_that_closes_in_half_a_request_ends_the_job() {
    for placement in PLACEMENTS {
        bad_client("half", placement);
    }
}

#[test]
fn a_client_with_an_endless_line_ends_the_job() {
    for placement in PLACEMENTS {
        bad_client("endless", placement);
    }
}

#[test]
fn a_client_with_an_invalid_length_ends_the_job() {
    for placement in PLACEMENTS {
        bad_client("length", placement);
    }
}

#[test]
fn a_client_that_sends_less_than_it_announced_ends_the_job() {
    for placement in PLACEMENTS {
        bad_client("toolong", placement);
    }
}

/// The client had entered the fence, so the others may pass; it made no mistake before it left.
#[test]
fn a_client_that_closes_in_a_fence_does_not_hang_the_job() {
    for placement in PLACEMENTS {
        let outcome = Run::job(placement).arg(plain("badpmi")).arg("closefence").finish();
        let through = outcome.out().contains("rank 0 through\n");
        assert!(through || outcome.code() != 0, "{outcome}");
    }
}

/// Only that client gets an error; the job continues.
#[test]
fn an_unknown_pmi_request_gets_an_error_and_the_job_continues() {
    for placement in PLACEMENTS {
        let outcome = Run::job(placement).arg(plain("badpmi")).arg("unknown").succeed();
        let out = outcome.out();
        assert!(out.lines().any(|line| line.starts_with("rank 1 answer ") && line.contains("rc=-1")), "{outcome}");
        assert!(out.contains("rank 0 through\n") && out.contains("rank 1 through\n"), "{outcome}");
    }
}

/// Ranks keep the soft limit; the launcher and its keeper raise theirs up to the hard one.
#[test]
fn a_soft_limit_of_40_descriptors_allows_64_ranks() {
    let outcome = Run::shell("ulimit -Sn 40; $WIREUP run -n 64 sh -c 'ulimit -Sn'").succeed();
    assert_eq!(outcome.out(), "40\n".repeat(64), "{outcome}");
}
