//! Jobs on several hosts: which rank runs on which host, for trees of any shape, and that everything works as on one
//! machine.

use rustix::process::Signal;
use wireup_e2e::Run;
use wireup_e2e::machines::{self, Machines};
use wireup_e2e::tables::{prints, reports};

const WHERE: &str = "echo $WIREUP_RANK $WIREUP_NODE $(hostname)";

/// The lines that a job must print if rank r runs on host `r / ppn`.
fn block(ranks: usize, ppn: usize) -> Vec<String> {
    let mut lines: Vec<String> = (0..ranks).map(|rank| format!("{rank} {0} n{0}", rank / ppn)).collect();
    lines.sort();
    lines
}

/// The host list `n0` to `n(count - 1)`.
fn first(count: usize) -> String {
    format!("n[0-{}]", count - 1)
}

#[test]
fn ranks_are_placed_right_in_trees_of_every_depth() {
    let Some(machines) = machines::sixteen() else { return };
    // Trees of agents with one level, two levels and three levels, and a chain.
    for (hosts, flags) in
        [(16, "--start ssh-flat"), (16, ""), (16, "--fanout 4"), (13, "--fanout 2"), (5, "--fanout 1"), (1, "")]
    {
        let outcome = machines.job(&format!("--hosts {} --ppn 2 {flags}", first(hosts))).sh(WHERE).succeed();
        assert_eq!(outcome.sorted_lines(), block(2 * hosts, 2), "{flags}: {outcome}");
        outcome.expect_quiet();
    }
}

#[test]
fn hosts_are_named_by_lists_and_files_and_the_launchers_machine_may_be_one_of_them() {
    let Some(machines) = machines::sixteen() else { return };
    let shell = |script: &str| {
        let run = machines.shell(script).env("FOLDER", "/").env("WHERE", "echo $WIREUP_RANK $WIREUP_NODE $(hostname)");
        run.env("FILE", "# all\nn0:2\n\nn1 slots=1 # half\n  n[2-3]\nn4 slots=2 max_slots=2\n")
    };
    prints(
        shell,
        "job --hosts hub,n0,n1 sh -c \"$WHERE\" => 0 0 hub, 1 1 n0, 2 2 n1
         job --hosts n1,hub,n0 --fanout 1 sh -c \"$WHERE\" => 0 0 n1, 1 1 hub, 2 2 n0
         job --hosts n0,n1,localhost sh -c \"$WHERE\" => 0 0 n0, 1 1 n1, 2 2 hub
         job --hosts n0,10.77.0.254,n1 --fanout 1 sh -c \"$WHERE\" => 0 0 n0, 1 1 hub, 2 2 n1
         job --hosts n0,n1 --ppn 2 --start serial-ssh hostname => n0, n0, n1, n1
         job --hosts n2,n0:3,n2 hostname => n0, n0, n0, n2, n2
         job -n 6 --hosts n2,n0:3,n2 --oversubscribe hostname | wc -l => 6
         echo \"$FILE\" >$TMPDIR/hosts; job -f $TMPDIR/hosts hostname; rm $TMPDIR/hosts => \
             n0, n0, n1, n2, n3, n4, n4
         job --hosts n[0-2] --output-dir $TMPDIR/out sh -c 'hostname; echo err $(hostname) >&2'; cat $TMPDIR/out/*; \
            rm -r $TMPDIR/out => err n0, err n1, err n2, n0, n1, n2
         job --hosts n[0-3] --fanout 1 --pty 3 sh -c 'test -t 0 && test -t 1 && echo $(hostname); true' | \
            tr -d '\\r' => n3",
    );
    reports(
        shell,
        "wireup run -n 6 --hosts n2,n0:3,n2 hostname => 125 6 | 5
         printf 'n0\\nn1 slots=many\\n' >$TMPDIR/hosts; job -f $TMPDIR/hosts hostname; c=$?; rm $TMPDIR/hosts; exit $c \
            => 125 hosts, line 2 | many
         job --hosts n[0-4] --fanout 1 --timeout 1 --kill-grace 0.2 sh -c 'trap \"\" TERM; sleep 99' => 124 time limit",
    );
}

#[test]
fn output_arrives_from_every_host() {
    let Some(machines) = machines::sixteen() else { return };
    let line = format!("--hosts {} --fanout 2 --label", first(7));
    let outcome = machines.job(&line).sh("echo out; echo err >&2; seq 1000 | tail -n 1").succeed();
    for rank in 0..7 {
        let (label, said) = (format!("[{rank}] "), outcome.out());
        let own: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix(&label)).collect();
        assert_eq!(own, ["out", "1000"], "{outcome}");
        assert!(outcome.err().contains(&format!("[{rank}] err\n")), "{outcome}");
    }
    let long = machines.job(&line).sh("seq -f '%0100.0f' 10000").succeed();
    assert_eq!(long.out().lines().filter(|line| line.len() == 104).count(), 7 * 10_000);
}

#[test]
fn input_reaches_a_remote_rank_or_all_ranks() {
    let Some(machines) = machines::sixteen() else { return };
    let text = "line\n".repeat(100_000);
    for (flags, expected) in [("", [1, 0, 0, 0]), ("--stdin 3", [0, 0, 0, 1]), ("--stdin all", [1, 1, 1, 1])] {
        let line = format!("--hosts n[0-3] --fanout 2 {flags}");
        let outcome = machines.job(&line).sh("echo $WIREUP_RANK $(wc -c)").stdin(text.clone()).succeed();
        let lines = (0..).zip(expected).map(|(rank, times)| format!("{rank} {}", times * text.len()));
        assert_eq!(outcome.sorted_lines(), lines.collect::<Vec<_>>(), "{flags}: {outcome}");
    }
}

/// The command `wireup run` with a chain of agents, five levels below the launcher.
fn deep(machines: &Machines) -> Run {
    machines.job("--hosts n[0-4] --fanout 1")
}

#[test]
fn signals_reach_every_host() {
    let Some(machines) = machines::sixteen() else { return };
    for (name, signal) in [("INT", Signal::INT), ("USR1", Signal::USR1)] {
        let script = format!("trap 'echo got {name}; exit 0' {name}; echo ready; while :; do sleep 0.02; done");
        let running = deep(&machines).sh(&script).start_until("ready\n", 5);
        running.signal(signal);
        let outcome = running.succeed();
        assert_eq!(outcome.out().matches(&format!("got {name}\n")).count(), 5, "{outcome}");
    }
}

#[test]
fn a_stopped_job_stops_on_every_host_and_continues() {
    let Some(machines) = machines::sixteen() else { return };
    let mut running = deep(&machines).sh("echo ready; exec sleep 1000").start();
    running.await_out("ready\n", 5);
    let ranks_in = |running: &wireup_e2e::Running, state: char| {
        running.processes().iter().filter(|one| one.command.trim() == "sleep 1000" && one.state == state).count()
    };
    running.await_that("all sleep", |running| ranks_in(running, 'S') == 5);
    running.signal(Signal::TSTP);
    running.await_that("all are stopped", |running| ranks_in(running, 'T') == 5);
    running.signal(Signal::CONT);
    running.await_that("all go on", |running| ranks_in(running, 'S') == 5);
    // Repeated, so that SIGCONT sometimes arrives while the job is about to stop.
    for _ in 0..20 {
        running.signal(Signal::TSTP);
        running.signal(Signal::CONT);
    }
    running.await_that("all go on", |running| ranks_in(running, 'S') == 5);
    running.signal(Signal::INT);
    running.finish().expect_code(130);
}

/// A launcher that does not read its links leaves no room for more data. However long this takes, no node may count as
/// lost for this reason.
#[test]
fn a_launcher_stopped_longer_than_the_node_timeout_continues() {
    let Some(machines) = machines::sixteen() else { return };
    let line = "--hosts n[0-2] --start ssh-flat --node-timeout 1 --label";
    let running = machines.job(line).sh("seq -f '%0100.0f' 60000").start_until("[0]", 100);
    running.signal(Signal::STOP);
    std::thread::sleep(std::time::Duration::from_millis(3500));
    running.signal(Signal::CONT);
    let outcome = running.succeed();
    assert_eq!(outcome.out().lines().count(), 3 * 60_000);
}

#[test]
fn a_failed_rank_is_named_with_its_host() {
    let Some(machines) = machines::sixteen() else { return };
    let at_3 = |what: &str| format!("test $WIREUP_RANK = 3 && {what}; exec sleep 1000");
    deep(&machines).sh(&at_3("exit 7")).finish().expect_code(7).expect_err_line(&["rank 3", "n3", "7"]);
    let killed = deep(&machines).sh(&at_3("kill -SEGV $$")).finish().expect_code(128 + 11);
    killed.expect_err_line(&["rank 3", "n3", "SIGSEGV"]);
    let lost = machines.job("--hosts n0,n1 --fanout 1 -wdir /run/only-here true").finish();
    // The folder exists on neither of the two hosts.
    lost.expect_code(125).expect_err_line(&["node n", "/run/only-here"]);
    deep(&machines).arg("/no/such/program").finish().expect_code(127).expect_err_line(&["/no/such/program"]);
}
