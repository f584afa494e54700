//! Jobs on several hosts: which rank runs on which host, for trees of any shape, and that everything works as on one
//! machine.

use rustix::process::Signal;
use wireup_e2e::machines;
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
         job --hosts n[0-3] --fanout 2 --label sh -c 'echo out; echo err >&2; seq 9 | tail -n 1' 2>$TMPDIR/err \
            && sed 's/$/ on stderr/' $TMPDIR/err && rm $TMPDIR/err => [0] 9, [0] err on stderr, [0] out, [1] 9, \
            [1] err on stderr, [1] out, [2] 9, [2] err on stderr, [2] out, [3] 9, [3] err on stderr, [3] out
         job --hosts n[0-6] --fanout 2 --label sh -c 'seq -f \"%0100.0f $WIREUP_RANK\" 10000' | sort -u | \
            grep -cE '^\\[(.)\\] [0-9]{100} \\1$' => 70000
         seq 100000 | job --hosts n[0-3] --fanout 2 sh -c 'echo $WIREUP_RANK $(wc -c)' => 0 588895, 1 0, 2 0, 3 0
         seq 100000 | job --hosts n[0-3] --fanout 2 --stdin 3 sh -c 'echo $WIREUP_RANK $(wc -c)' => \
            0 0, 1 0, 2 0, 3 588895
         seq 100000 | job --hosts n[0-3] --fanout 2 --stdin all sh -c 'echo $WIREUP_RANK $(wc -c)' => \
            0 588895, 1 588895, 2 588895, 3 588895
         job --hosts n[0-3] --fanout 1 --pty 3 sh -c 'test -t 0 && test -t 1 && echo $(hostname); true' | \
            tr -d '\\r' => n3",
    );
    reports(
        shell,
        "wireup run -n 6 --hosts n2,n0:3,n2 hostname => 125 6 | 5
         printf 'n0\\nn1 slots=many\\n' >$TMPDIR/hosts; job -f $TMPDIR/hosts hostname; c=$?; rm $TMPDIR/hosts; exit $c \
            => 125 hosts, line 2 | many
         job --hosts n[0-4] --fanout 1 --timeout 1 --kill-grace 0.2 sh -c 'trap \"\" TERM; sleep 99' => 124 time limit
         job --hosts n[0-4] --fanout 1 sh -c 'test $WIREUP_RANK = 3 && exit 7; exec sleep 1000' => 7 rank 3 | n3 | 7
         job --hosts n[0-4] --fanout 1 sh -c 'test $WIREUP_RANK = 3 && kill -SEGV $$; exec sleep 1000' => \
            139 rank 3 | n3 | SIGSEGV
         job --hosts n0,n1 --fanout 1 -wdir /run/only-here true => 125 node n | /run/only-here
         job --hosts n[0-4] --fanout 1 /no/such/program => 127 /no/such/program",
    );
}

/// A chain of agents, five levels below the launcher.
#[test]
fn signals_reach_every_host_and_a_stopped_job_continues() {
    let Some(machines) = machines::sixteen() else { return };
    let script = "trap 'echo got USR1' USR1; trap 'echo got INT; exit 0' INT; echo ready; while :; do sleep 0.02; done";
    let mut running = machines.job("--hosts n[0-4] --fanout 1").sh(script).start_until("ready\n", 5);
    running.signal(Signal::USR1);
    running.await_out("got USR1\n", 5);
    let stopped = |running: &wireup_e2e::Running| {
        let mut all = running.processes();
        all.retain(|one| one.command.starts_with("/bin/sh -c trap") && one.state == 'T');
        // A rank and its child that has not become `sleep` yet count once.
        all.iter().filter(|one| all.iter().all(|other| other.pid.as_raw_pid() != one.parent)).count()
    };
    running.signal(Signal::TSTP);
    running.await_that("all are stopped", |running| stopped(running) == 5);
    running.signal(Signal::CONT);
    running.await_that("all go on", |running| stopped(running) == 0);
    // Repeated, so that SIGCONT sometimes arrives while the job is about to stop.
    for _ in 0..20 {
        running.signal(Signal::TSTP);
        running.signal(Signal::CONT);
    }
    running.signal(Signal::INT);
    let outcome = running.succeed();
    for name in ["USR1", "INT"] {
        assert_eq!(outcome.out().matches(&format!("got {name}\n")).count(), 5, "{outcome}");
    }
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
