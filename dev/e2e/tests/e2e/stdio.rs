//! Standard input, output and error: everything arrives exactly once, in whole lines.

use rustix::process::Signal;
use std::time::Duration;
use wireup_e2e::peers::plain;
use wireup_e2e::run_processes::Process;
use wireup_e2e::tables::prints;
use wireup_e2e::{Outcome, Run, Running};

/// In a shell loop over lines, a launcher whose ranks read nothing must not consume the loop's input. If the standard
/// streams are closed, no other file may take their place; reading them gives no bytes.
#[test]
fn streams_go_where_they_should() {
    let shell = |script: &str| {
        let run = Run::shell(script).env("READ", "while read x; do echo $WIREUP_RANK $x; done");
        run.env("CLOSED", "test $WIREUP_RANK = 1 && exec sleep 1000; cat >input; echo y >&2; exit 7").stdin("in\ntwo\n")
    };
    prints(
        shell,
        "job -n 3 --virtual-nodes 2 --label cat => [0] in, [0] two
         job -n 3 --virtual-nodes 2 --stdin 2 sh -c \"$READ\" => 2 in, 2 two
         job -n 3 --virtual-nodes 2 --stdin all sh -c \"$READ\" | grep in => 0 in, 1 in, 2 in
         job -n 3 --virtual-nodes 2 --stdin none sh -c \"$READ\" =>
         while read x; do job -n 2 echo $x; done => in, in, two, two
         job -n 1 printf 'no end' | od -A n -c | tr -d ' ' => noend
         job -n 2 --label printf 'no end' => [0] no end, [1] no end
         job -n 3 --virtual-nodes 2 sh -c 'printf $WIREUP_RANK' => 0, 1, 2
         job -n 2 --virtual-nodes 2 sh -c 'echo out; echo err >&2' 2>err; cat err; rm err => err, err, out, out
         job -n 2 --virtual-nodes 2 sh -c 'echo out; echo err >&2' 2>/dev/null => out, out
         job -n 3 --virtual-nodes 2 --output-dir out sh -c 'echo a$WIREUP_RANK; echo b$WIREUP_RANK >&2'; \
            for i in 0 1 2; do cat out/rank.$i.out out/rank.$i.err; done; rm -r out => a0, a1, a2, b0, b1, b2
         job -n 2 sh -c \"$CLOSED\" <&- >&- 2>&-; echo code $?; wc -c <input; rm input => 0, code 7",
    );
}

/// Sends a large input through a job to its output; `line` may contain `--stdin`.
fn large_input(megabytes: u64, line: &str) {
    let script = format!(
        "spew='{} bytes {}'; $spew | sha256sum; $spew | $WIREUP run {line} sh -c 'cat | sha256sum'",
        plain("spew").display(),
        megabytes << 20
    );
    let outcome = Run::shell(&script).guard(Duration::from_secs(500)).succeed();
    let out = outcome.out();
    let sums: Vec<&str> = out.lines().filter(|sum| !sum.starts_with("e3b0c442")).collect();
    assert!(sums.len() > 1 && sums.iter().all(|sum| *sum == sums[0]), "{outcome}");
}

#[test]
fn a_large_input_arrives_whole() {
    large_input(200, "-n 1");
    large_input(50, "-n 2 --virtual-nodes 2 --stdin 1");
    large_input(20, "-n 4 --virtual-nodes 2 --stdin all");
    if std::env::var_os("WIREUP_LARGE").is_some() {
        large_input(1024, "-n 2 --virtual-nodes 2");
    }
}

#[test]
fn a_job_ends_though_its_input_stays_open() {
    let running = Run::job("-n 2 true").stdin_open().start();
    running.finish_with_open_stdin().expect_code(0);
}

#[test]
fn typed_input_arrives_at_once() {
    let mut running = Run::job("-n 1 --virtual-nodes 2").sh("while read x; do echo got $x; done").stdin_open().start();
    for word in ["one", "two"] {
        running.write(format!("{word}\n").as_bytes());
        running.await_out(&format!("got {word}\n"), 1);
    }
    running.close_stdin();
    running.succeed();
}

/// Runs a job and expects `ranks` x `lines` output lines, each complete and not mixed with others.
fn whole_lines(placement: &str, prefix: bool, ranks: usize, lines: usize, length: usize) {
    let line = format!("-n {ranks} {placement}");
    let program = plain("spew");
    let run = Run::job(&line).arg(program).arg("lines").args([lines.to_string(), length.to_string()]);
    let outcome = run.succeed();
    let mut next = vec![0; ranks];
    for line in outcome.out().lines() {
        let bare = if prefix { line.split_once("] ").map(|(_, rest)| rest) } else { Some(line) };
        let words: Vec<&str> = bare.unwrap_or_default().split(' ').collect();
        let [_, rank, _, number, letters] = words[..] else { panic!("a torn line: {line:?}") };
        let rank: usize = rank.parse().unwrap_or_else(|_| panic!("a torn line: {line:?}"));
        assert_eq!(number, next[rank].to_string(), "a line of rank {rank} is missing: {line:?}");
        assert_eq!(words.join(" ").len(), length, "a torn line: {line:?}");
        assert!(letters.bytes().all(|byte| byte.is_ascii_lowercase()), "a torn line: {line:?}");
        assert!(!prefix || line.starts_with(&format!("[{rank}] ")), "a wrong label: {line:?}");
        next[rank] += 1;
    }
    assert_eq!(next, vec![lines; ranks]);
}

#[test]
fn lines_of_many_ranks_and_long_lines_are_whole() {
    whole_lines("", false, 8, 3000, 120);
    whole_lines("--virtual-nodes 3", false, 8, 3000, 120);
    whole_lines("--virtual-nodes 2 --label", true, 6, 3000, 90);
    whole_lines("--virtual-nodes 2", false, 4, 30, 40_000);
    whole_lines("--virtual-nodes 2 --label", true, 4, 30, 70_000);
    whole_lines("--label --line-buffered", true, 4, 30, 200_000);
    whole_lines("--virtual-nodes 3", false, 6, 5, 3_000_000);
}

/// The lines of all ranks together are larger than what the launcher holds in memory.
#[test]
fn long_lines_that_begin_together_are_whole() {
    let script = "cd $TMPDIR; began() { ls began.0 began.1 began.2 began.3 2>/dev/null | wc -l; }; \
        head -c 20000000 /dev/zero | tr '\\0' $WIREUP_RANK; : >began.$WIREUP_RANK; \
        while test $(began) != 4; do sleep 0.1; done; echo";
    let outcome = Run::shell("$WIREUP run -n 4 --virtual-nodes 2 sh -c \"$SCRIPT\"; rm $TMPDIR/began.?");
    let outcome = outcome.env("SCRIPT", script).succeed();
    let out = outcome.out();
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 4);
    for (line, rank) in lines.iter().zip('0'..) {
        assert!(line.len() == 20_000_000 && line.chars().all(|letter| letter == rank), "a torn line of rank {rank}");
    }
}

#[test]
fn a_line_beyond_the_bound_is_marked_where_another_line_cuts_it() {
    let script = "cd $TMPDIR; await() { while ! test -e $1; do sleep 0.1; done; }; \
        if test $WIREUP_RANK = 0; then head -c 70000000 /dev/zero | tr '\\0' x; : >written; await seen; rm seen \
        written; echo end; \
        else await written; echo between; : >seen; fi";
    let outcome = Run::job("-n 2 --label").sh(script).succeed();
    let out = outcome.out();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 3, "{:?}", lines.iter().map(|line| line.len()).collect::<Vec<_>>());
    assert!(lines[0].starts_with("[0] xxx") && lines[0].ends_with("xxx[wireup: line cut]"));
    assert_eq!(lines[1], "[1] between");
    assert!(lines[2].starts_with("[0] [wireup: rest of a line] x") && lines[2].ends_with("xxxend"));
    assert_eq!(out.matches('x').count(), 70_000_000);
}

/// A prompt without a newline is visible while the program waits for the answer.
#[test]
fn unfinished_lines_of_different_ranks_do_not_share_a_line() {
    let script = "cd $TMPDIR; test $WIREUP_RANK = 0 && { printf 'name? '; read x; : >asked; read x; echo hello; exit; \
        }; \
        while ! test -e asked; do sleep 0.1; done; rm asked; echo other";
    let mut running = Run::job("-n 2").sh(script).stdin_open().start_until("name? ", 1);
    running.write(b"x\n");
    running.await_out("other\n", 1);
    running.write(b"x\n");
    assert_eq!(running.succeed().out(), "name? \nother\nhello\n");
}

#[test]
fn a_large_output_arrives_whole() {
    for placement in ["-n 1", "-n 1 --virtual-nodes 2 --label"] {
        let bytes = 64 << 20;
        let outcome = Run::job(placement).arg(plain("spew")).args(["bytes", &bytes.to_string()]).succeed();
        let body = if placement.contains("label") { outcome.stdout.len() - 4 } else { outcome.stdout.len() };
        assert!(body == bytes || body == bytes + 1, "{} of {bytes} bytes", outcome.stdout.len());
        let head = usize::from(placement.contains("label")) * 4;
        let wrong = (0..bytes).find(|at| outcome.stdout[head + at] != b'a' + (at % 26) as u8);
        assert_eq!(wrong, None, "a wrong byte");
    }
}

#[test]
fn output_written_before_a_kill_arrives() {
    for placement in ["-n 2", "-n 2 --virtual-nodes 2"] {
        let script =
            format!("test $WIREUP_RANK = 1 || exec sleep 1000; {} lines 20000 50; kill -9 $$", plain("spew").display());
        let outcome = Run::job(placement).sh(&script).finish().expect_code(137);
        assert_eq!(outcome.out().lines().count(), 20000);
        assert_eq!(outcome.stdout.len(), 20000 * 51);
    }
}

#[test]
fn a_reader_that_closes_stdout_ends_the_job() {
    let script = format!("$WIREUP run -n 2 --virtual-nodes 2 {} zeros | head -c 10", plain("spew").display());
    let outcome = Run::shell(&script).succeed();
    assert_eq!(outcome.stdout, [0; 10]);
}

/// A daemon that a rank starts holds stdout open and ignores SIGTERM and SIGHUP; the job ends nevertheless, and kills
/// the daemon.
#[test]
fn a_daemon_that_holds_the_output_does_not_delay_the_end() {
    for placement in ["-n 2", "-n 2 --virtual-nodes 2"] {
        let outcome = Run::job(placement).arg(plain("holder")).succeed();
        assert_eq!(outcome.out().matches("daemon ").count(), 2, "{outcome}");
    }
}

/// A job whose rank 0 writes endlessly to an unread stdout, until all buffers on the way are full. The two other ranks
/// print on standard error that they are ready.
fn with_a_stopped_reader(others: &str) -> Running {
    let spew = plain("spew");
    let writes = format!("trap '' USR1; exec {} zeros", spew.display());
    let script = format!("test $WIREUP_RANK = 0 && {{ {writes}; }}; {others}");
    let mut running = Run::job("-n 3 --virtual-nodes 2").sh(&script).stdout_unread().start();
    running.await_that("the others run", |running| running.err_text().matches("ready\n").count() == 2);
    let mut blocked = 0;
    running.await_that("the writer is blocked", |running| {
        let is_blocked = |process: &Process| process.name == "spew" && process.state == 'S';
        blocked = if running.processes().iter().any(is_blocked) { blocked + 1 } else { 0 };
        blocked == 20
    });
    running
}

/// All ranks exit although no further byte can be written to stdout; then reading resumes, and the launcher exits as
/// well.
fn ends_without_a_reader(mut running: Running) -> Outcome {
    running.await_that("all ranks are gone", |running| !running.processes().iter().any(is_rank));
    running.read_stdout();
    running.finish()
}

fn is_rank(process: &Process) -> bool {
    ["spew", "sleep", "sh"].contains(&process.name.as_str())
}

#[test]
fn a_stopped_reader_does_not_delay_an_interrupt() {
    let running = with_a_stopped_reader("echo ready >&2; exec sleep 1000");
    running.signal(Signal::INT);
    ends_without_a_reader(running).expect_code(130);
}

/// A user can end the job even if the terminal does not accept its output any more.
#[test]
fn a_second_interrupt_ends_a_job_with_a_stopped_reader() {
    let mut running = with_a_stopped_reader("echo ready >&2; exec sleep 1000");
    running.signal(Signal::INT);
    running.await_that("all ranks are gone", |running| !running.processes().iter().any(is_rank));
    running.signal(Signal::TERM);
    assert_ne!(running.finish().code(), 0);
}

#[test]
fn a_stopped_reader_does_not_delay_the_end_of_a_job() {
    let traps = "test $WIREUP_RANK = 2 && trap 'exit 9' USR1 || trap '' USR1";
    let others = format!("{traps}; echo ready >&2; while :; do sleep 0.05; done");
    let running = with_a_stopped_reader(&others);
    running.signal(Signal::USR1);
    let outcome = ends_without_a_reader(running).expect_code(9);
    outcome.expect_err_line(&["rank 2", "9"]);
}

/// The writer is a grandchild that ignores the interrupt and keeps writing while its rank is in the fence.
#[test]
fn a_stopped_reader_does_not_delay_a_fence() {
    let (spew, fence) = (plain("spew"), plain("badpmi"));
    let script = format!(
        "test $WIREUP_RANK = 0 && {{ {} zeros & sleep 1; }}; {} unknown 99 >&2; wait",
        spew.display(),
        fence.display()
    );
    let mut running = Run::job("-n 3 --virtual-nodes 2").sh(&script).stdout_unread().start();
    running.await_that("the ranks are through", |running| running.err_text().matches(" through\n").count() == 3);
    running.signal(Signal::INT);
    assert_ne!(ends_without_a_reader(running).code(), 0);
}

/// With a stack larger than the address space, no thread can be created, as at the limit of processes.
#[test]
fn output_arrives_if_no_writer_thread_can_be_created() {
    let run = Run::job("-n 2 --virtual-nodes 2 --label").env("RUST_MIN_STACK", (1u64 << 50).to_string());
    let outcome = run.sh("echo out; echo err >&2").succeed();
    assert_eq!(outcome.sorted_lines(), ["[0] out", "[1] out"]);
    assert_eq!(outcome.err().matches("] err\n").count(), 2, "{outcome}");
}

/// The job behaves like any other program before `head`: it ends without a message.
#[test]
fn a_reader_that_closes_stdout_is_not_reported() {
    for redirect in ["", "2>&1"] {
        let script = format!("{{ $WIREUP run -n 2 yes {redirect}; echo $? >&3; }} 3>&2 | head -n 1");
        let outcome = Run::shell(&script).succeed();
        assert_eq!((outcome.out().as_str(), outcome.err().as_str()), ("y\n", "141\n"), "{outcome}");
    }
}

/// No output is lost: neither if files exist by accident, nor with --overwrite the files that the second run does not
/// write.
#[test]
fn a_second_run_replaces_its_output_files_only_if_that_is_wanted() {
    let script = "cd $TMPDIR; run() { $WIREUP run \"$@\" sh -c 'echo $0; sleep 0.1; echo more; echo $0 >&2' $word; }; \
        word=first; run -n 3 --output-dir out; word=second; run -n 2 --output-dir out; echo code $?; cat out/*; \
        run -n 2 --output-dir out --overwrite; cat out/*; $WIREUP run -n 1 --output-dir out --overwrite true; ls out; \
        rm -r out";
    let outcome = Run::shell(script).succeed();
    let both = |word: &str| format!("{word}\n{word}\nmore\n");
    let (first, second) = (both("first"), both("second"));
    let left = "rank.1.err\nrank.1.out\nrank.2.err\nrank.2.out\n";
    let wanted = format!("code 125\n{}{}{first}{left}", first.repeat(3), second.repeat(2));
    assert_eq!(outcome.out(), wanted, "{outcome}");
    outcome.expect_err_line(&["out has the output of an earlier run (rank.0.err and 5 more)", "--overwrite"]);
}

/// The rank writes more than all windows and pipes on the way can hold.
#[test]
fn a_time_limit_ends_a_job_whose_output_is_not_read() {
    let outcome = Run::job("-n 1 --timeout 0.3 --kill-grace 0.1").sh("exec cat /dev/zero").stdout_unread().finish();
    outcome.expect_code(124);
}

#[test]
fn a_rank_that_closes_its_input_does_not_starve_others() {
    let script = "if [ $WIREUP_RANK = 0 ]; then exec 0<&-; exec sleep 100; fi; wc -c; kill -TERM $PPID";
    let mut running = Run::job("-n 2 --stdin all").sh(script).stdin(vec![b'x'; 2 << 20]).start();
    running.await_out("2097152", 1);
    running.signal(Signal::INT);
    running.finish();
}
