//! Runs inside allocations of a real Slurm: without a host list, with agents that one step starts, and with every way
//! in which allocation or step can end.

use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;
use wireup_e2e::faults::send;
use wireup_e2e::machines::{self, Machines};
use wireup_e2e::peers::program;
use wireup_e2e::tables::{prints, reports};
use wireup_e2e::{Running, folders};
use xtask::programs::Flavour;

const WHERE: &str = "echo $(uname -n) $WIREUP_RANK $WIREUP_SIZE";
/// A script for ranks that print "ready" and then wait.
const WAIT: &str = "echo ready; exec sleep 1000";

#[test]
fn nodes_and_rank_counts_come_from_the_allocation() {
    let Some(machines) = machines::with_slurm() else { return };
    let shell =
        |script: &str| machines.salloc("-N 4 -n 6").env("FOLDER", "/").env("WHERE", WHERE).args(["sh", "-c", script]);
    prints(
        shell,
        "job sh -c \"$WHERE\" => n0 0 6, n0 1 6, n1 2 6, n1 3 6, n2 4 6, n3 5 6
         job -n 5 --ppn 2 sh -c \"$WHERE\" => n0 0 5, n0 1 5, n1 2 5, n1 3 5, n2 4 5
         job --hosts n[2-3] -n 3 --ppn 2 sh -c \"$WHERE\" => n2 0 3, n2 1 3, n3 2 3
         srun -N 1 -n 1 $WIREUP run --pmi simple --ppn 1 uname -n => n0, n1, n2, n3",
    );
    let row = "srun -N 3 -n 3 $WIREUP run uname -n => \
            125 this is one of 3 tasks of a Slurm step | start wireup run only once";
    reports(shell, row);
    let script = "$WIREUP run --pmi simple uname -n | sort; $WIREUP run --pmi simple -n 1 uname -n; exit 7";
    assert_eq!(machines.batch("-N 3 -n 5", script), "n0\nn0\nn1\nn1\nn2\nn0\ncode 7\n");
}

/// Parent and child agents learn each other's addresses through the input of the step.
#[test]
fn srun_starts_trees_of_different_fanouts() {
    let Some(machines) = machines::with_slurm() else { return };
    for fanout in ["1", "2"] {
        let line = format!("-v --fanout {fanout}");
        let outcome = machines.allocated("-N 4 -n 8", &line).sh(WHERE).succeed();
        assert_eq!(outcome.sorted_lines().len(), 8, "{outcome}");
        outcome.expect_err_line(&["ranks: 8 on 4 nodes n[0-3] from Slurm job", "(SLURM_JOB_NODELIST)"]);
        outcome.expect_err_line(&["5 agents (started by srun)"]);
    }
}

/// Ranks have the Slurm variables that describe the job, but not those that describe a task.
#[test]
fn ranks_see_slurms_job_variables_but_no_step_variables() {
    let Some(machines) = machines::with_slurm() else { return };
    let script = "for i in 1 2; do $WIREUP run --pmi simple --ppn 1 sh -c 'env | grep -E \"SLURM|SRUN|PMI\" | grep -v \
        PMI_RANK | grep -v PMI_HOSTNAME'; done | sort | uniq -c";
    let said = machines.batch("-N 3 -n 3", script);
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    for line in lines.iter().filter(|line| !line.starts_with("code") && !line.contains("PMI_JOBID")) {
        assert!(line.starts_with("6 "), "{line}: not from all ranks: {said}");
    }
    for known in ["6 SLURM_JOB_NODELIST=n[0-2]", "6 SLURM_NTASKS=3", "6 PMI_SIZE=3"] {
        assert!(lines.contains(&known), "{known}: {said}");
    }
    for task in
        ["SLURM_PROCID", "SLURM_NODEID", "SLURM_STEP", "SLURM_SRUN", "SLURMD_NODENAME", "SLURM_TASK_PID", "SLURM_GTIDS"]
    {
        assert!(!said.contains(task), "{task}: {said}");
    }
}

/// Variables that a step sets on each node apply to the ranks of that node. In this test a task prolog sets them,
/// instead of Slurm's own plugin.
#[test]
fn ranks_get_the_devices_that_slurm_gives_their_node() {
    let Some(machines) = machines::own(2, |spec| {
        spec.slurm = true;
        spec.slurm_options = vec!["TaskProlog=/run/prolog".into()];
    }) else {
        return;
    };
    for i in 0..2 {
        let text = format!("#!/bin/sh\necho export CUDA_VISIBLE_DEVICES={i}0,{i}1\n");
        let path = machines.path_in_node(i, "/run/prolog");
        folders::write_program(&path, &text, 0o755);
    }
    let show = "echo $WIREUP_RANK $CUDA_VISIBLE_DEVICES";
    let outcome = machines.allocated("-N 2 -n 4", "--gpus-per-rank 1").sh(show).succeed();
    assert_eq!(outcome.sorted_lines(), ["0 00", "1 01", "2 10", "3 11"]);
    let outcome = machines.allocated("-N 2 -n 2", "").sh(show).succeed();
    assert_eq!(outcome.sorted_lines(), ["0 00,01", "1 10,11"]);
}

#[test]
fn unmodified_mpi_programs_run_in_an_allocation() {
    let Some(machines) = machines::with_slurm() else { return };
    if let Some(program) = program(Flavour::Mpich5, "allreduce") {
        let outcome = machines.allocated("-N 4 -n 16", "--pmi auto").arg(program).succeed().expect_quiet();
        assert_eq!(outcome.out(), "allreduce over 16 ranks: 4096 sums are right\n");
    }
    // By default, Open MPI 4 takes a rank in an allocation for a job of its own if no Slurm step has started the rank.
    for flavour in [Flavour::OpenMpi4, Flavour::OpenMpi5] {
        let Some(program) = program(flavour, "allreduce") else { continue };
        // On every host, a second interface has the same address; Open MPI would take these interfaces for one network.
        let only = [("OMPI_MCA_btl_tcp_if_include", "eth0".to_owned())];
        let run = machines.allocated("-N 2 -n 4", "--pmi auto").arg(program).envs(only.into());
        let outcome = run.succeed();
        assert!(outcome.out().contains("allreduce over 4 ranks: 4096 sums are right\n"), "{outcome}");
    }
}

/// No node has the program, so a step sends it to the nodes.
#[test]
fn the_wireup_program_is_sent_to_nodes_that_lack_it() {
    let Some(machines) = machines::with_slurm() else { return };
    let hidden = machines::HiddenCopy::new();
    let cache = "/run/cache";
    for _ in 0..2 {
        let run = machines.salloc("-N 2 -n 2").arg(hidden.program()).args(["run", "--pmi", "simple", "uname", "-n"]);
        let outcome = run.env("XDG_CACHE_HOME", cache).succeed();
        assert_eq!(outcome.sorted_lines(), ["n0", "n1"]);
    }
}

/// A script for ranks that prints "bye" only once, although ranks receive the signal both from Slurm and from their
/// agent.
const SAYS_BYE: &str = r#"trap 'trap "" TERM; echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done"#;

/// A job on four nodes whose ranks wait. The launcher is on the hub, so that no rank shares its host.
fn waiting(machines: &Machines, name: &str) -> Running {
    machines.allocated(&format!("-N 4 -n 4 --job-name={name}"), "").sh(WAIT).start_until("ready\n", 4)
}

/// Pid of `wireup run`, a child of `salloc`.
fn launcher(running: &Running) -> Pid {
    let salloc = running.pid().as_raw_pid();
    running.processes().iter().find(|process| process.parent == salloc).expect("wireup runs").pid
}

fn steps(machines: &Machines) -> String {
    let output =
        machines.enter(std::process::Command::new("squeue").args(["--steps", "--noheader", "--format=%i"])).output();
    String::from_utf8_lossy(&output.expect("squeue runs").stdout).trim().to_owned()
}

fn kill(pid: Pid, signal: Signal) {
    kill_process(pid, signal).expect("send the signal");
}

/// The test harness checks that no process or file is left.
#[test]
fn jobs_of_an_allocation_end_cleanly_whatever_ends_them() {
    let Some(machines) = machines::with_slurm() else { return };
    let end = |what: &str, by: &dyn Fn(&Running)| {
        let running = waiting(&machines, what);
        by(&running);
        running.finish()
    };
    end("interrupt", &|running| kill(launcher(running), Signal::INT)).expect_code(130);
    assert_eq!(steps(&machines), "");
    // The reported line depends on what reaches the launcher first: "STEP .. CANCELLED AT", "n0: task 0: Killed", or a
    // rank that was killed before its agent.
    let outcome = end("cancelled-step", &|_| machines.cancel(&steps(&machines)));
    assert!([125, 137].contains(&outcome.code()), "{outcome}");
    let line = outcome.expect_err_line(&["the other ranks were terminated"]);
    assert!(line.contains("scancel") || line.contains("SIGKILL"), "{line}");
    assert_ne!(end("cancelled-job", &|_| machines.cancel("--name=cancelled-job")).code(), 0);
    let outcome = end("agent", &|_| kill_on(&machines, 2, "wireup agent")).expect_code(125);
    outcome.expect_err_line(&["node n2", "Killed", "out-of-memory"]);
    end("launcher", &|running| kill(launcher(running), Signal::KILL));
    let outcome = end("srun", &|running| {
        let all = running.processes();
        kill(all.iter().find(|process| process.command.starts_with("srun ")).expect("srun runs").pid, Signal::KILL);
    });
    outcome.expect_code(125).expect_err_line(&["its step was killed by signal 9"]);
}

/// Slurm kills agent, keeper and PMIx server of a node at once. The next job removes the files that they leave.
#[test]
fn the_next_job_removes_the_files_of_a_cancelled_step() {
    if program(Flavour::Pmix, "exchange").is_none() {
        return;
    }
    let Some(machines) = machines::with_slurm() else { return };
    let script = "made() { srun --overlap -N 4 -n 4 sh -c 'ls -d /tmp/wireup-*' 2>/dev/null | wc -l; }
        $WIREUP run --pmi pmix --ppn 1 sleep 1000 &
        until test $(made) = 4; do sleep 0.1; done
        scancel $(squeue --steps --noheader --format='%i %j' | sed -n 's/ wireup$//p')
        wait $!; echo ended $?
        $WIREUP run --pmi pmix --ppn 1 sh -c 'ls -d /tmp/wireup-* | wc -l'";
    let outcome = machines.salloc("-N 4").args(["sh", "-c", script]).finish();
    // Slurm may kill the processes of a node in any order. Usually all four directories are left. The exit code is that
    // of the step, or of a rank that was killed before its agent.
    let lines = outcome.sorted_lines();
    assert!(["ended 125", "ended 137"].contains(&&*lines[4]), "{outcome}");
    // While the next job runs, each node has only that job's directory. The harness finds anything that is left later.
    assert_eq!(lines[..4], ["1", "1", "1", "1"], "{outcome}");
}

#[test]
fn signals_to_a_step_reach_the_ranks_which_end_cleanly_after_sigterm() {
    let Some(machines) = machines::with_slurm() else { return };
    let script = format!("trap 'echo got it, rank $WIREUP_RANK' USR1; {SAYS_BYE}");
    let mut running = machines.allocated("-N 4 -n 8", "--pmi auto").sh(&script).start_until("ready\n", 8);
    let step = steps(&machines);
    machines.signal("USR1", &step);
    for rank in 0..8 {
        running.await_out(&format!("got it, rank {rank}\n"), 1);
    }
    machines.signal("TERM", &step);
    let outcome = running.finish();
    assert_eq!(outcome.out().matches("bye\n").count(), 8, "{outcome}");
    outcome.expect_err_line(&["the batch system terminated its agent (SIGTERM)"]);
    assert_eq!(outcome.code(), 143, "{outcome}");
}

/// Slurm checks time limits every half minute and the shortest limit is one minute, so this test takes long and runs
/// only with `WIREUP_LARGE=1`.
#[test]
fn slurms_time_limit_ends_the_job_cleanly() {
    let Some(machines) = machines::with_slurm() else { return };
    if std::env::var_os("WIREUP_LARGE").is_none() {
        return;
    }
    let run = machines.allocated("-N 4 -n 4 -t 1", "").sh(SAYS_BYE);
    let outcome = run.finish().expect_code(143);
    assert_eq!(outcome.out().matches("bye\n").count(), 4, "{outcome}");
    outcome.expect_err_line(&["the batch system terminated its agent (SIGTERM)", "reached its time limit"]);
}

/// Kills the process on host `i` whose command line contains `words`.
fn kill_on(machines: &Machines, i: usize, words: &str) {
    let all = machines.all_processes();
    let found = all[i].iter().filter(|process| process.command.contains(words)).map(|process| process.pid).min();
    let pid = found.unwrap_or_else(|| panic!("no {words} on n{i}"));
    send(pid, Signal::KILL);
}

/// Slurm itself takes ten seconds to notice that slurmd does not run on a node.
#[test]
fn a_node_without_slurmd_is_named() {
    let Some(machines) = machines::own(4, |spec| spec.slurm = true) else { return };
    let running =
        machines.salloc("-N 4 -n 4").args(["sh", "-c", "sleep 2; exec $WIREUP run --pmi simple sleep 1000"]).start();
    let slurmd = machines.daemons(2).last().copied().expect("slurmd is the last");
    std::thread::sleep(Duration::from_secs(1));
    send(slurmd, Signal::KILL);
    let outcome = running.finish().expect_code(125);
    outcome.expect_err_line(&["no agent could be started on 1 of 4 nodes: n2: Communication connection failure"]);
}

/// A step also starts the agents of a standing session; another step restarts a lost node.
#[test]
fn a_session_runs_in_an_allocation_and_restarts_a_lost_node() {
    let Some(machines) = machines::with_slurm() else { return };
    let script = "set -e; export WIREUP_RUNTIME_DIR=$(mktemp -d)
        $WIREUP up --linger --fanout 2; $WIREUP run --pmi simple --ppn 1 uname -n | sort
        srun --overlap -N 1 -n 1 -w n1 pkill -9 -f 'wireup agent' || true; sleep 1
        $WIREUP up; $WIREUP run --pmi simple --ppn 1 uname -n | sort
        $WIREUP down; rm -r $WIREUP_RUNTIME_DIR";
    let outcome = machines.salloc("-N 4").args(["sh", "-c", script]).succeed();
    let twice = "n0\nn1\nn2\nn3\n";
    assert_eq!(outcome.out().replace("session default", "").matches(twice).count(), 2, "{outcome}");
}

/// The session ends when the command of `salloc` ends, long before the login shell does.
#[test]
fn a_session_ends_with_its_allocation() {
    let Some(machines) = machines::with_slurm() else { return };
    let script = "set -e; export WIREUP_RUNTIME_DIR=$(mktemp -d); echo $WIREUP_RUNTIME_DIR
        sh -c '$WIREUP up'; $WIREUP run --pmi simple --ppn 1 uname -n | sort";
    let outcome = machines.salloc("-N 4").args(["sh", "-c", script]).succeed();
    let said = outcome.out();
    let (place, nodes) = said.split_once('\n').expect("a place");
    assert_eq!(nodes, "n0\nn1\nn2\nn3\n");
    // The note that the session has ended is left for the next run, because nobody has called `wireup down`.
    std::fs::remove_file(std::path::Path::new(place).join(".default")).expect("a note of the session");
    std::fs::remove_dir(place).expect("nothing else is in the directory");
}

/// Slurm sends the step's standard input unencrypted, so the bootstrap message in it is encrypted.
#[test]
fn the_message_is_sealed_on_its_way_through_the_step() {
    let Some(machines) = machines::with_slurm() else { return };
    let broken = "mkdir -p /run/broken && cd /run/broken && \
        printf '#!/bin/sh\necho no key >&2\nexit 3\n' > unmunge && chmod +x unmunge";
    for node in [0, 1] {
        machines.ask(node, broken);
    }
    let script = "PATH=/run/broken:$PATH; exec $WIREUP run --pmi simple uname -n";
    let outcome = machines.salloc("-N 2 -n 2").args(["sh", "-c", script]).finish().expect_code(125);
    outcome.expect_err_line(&["cannot open the start message", "sealed with munge: unmunge: no key"]);
    machines.ask(0, "rm -r /run/broken");
    machines.ask(1, "rm -r /run/broken");
    machines.salloc("-N 2 -n 2").args(["sh", "-c", script]).succeed().expect_quiet();
}
