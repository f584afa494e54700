//! Processes that ranks spawn (MPI_Comm_spawn): each spawn starts a job of the same family.

mod servers;

use rustix::process::{Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use wireup_e2e::faults::send;
use wireup_e2e::folders::Folder;
use wireup_e2e::machines::Machines;
use wireup_e2e::peers::program;
use wireup_e2e::sessions::Session;
use wireup_e2e::{Outcome, Run, machines};
use xtask::programs::{Flavour, environment};

/// Libraries that spawn, by PMI or by PMIx. Debian's MPICH 4 is not among them: it refuses to spawn without asking.
const FLAVOURS: [Flavour; 4] = [Flavour::Mpich5, Flavour::Intel, Flavour::OpenMpi4, Flavour::OpenMpi5];
const PLACEMENTS: [&str; 2] = ["-n 2", "-n 2 --virtual-nodes 2"];

fn programs() -> impl Iterator<Item = (Flavour, PathBuf)> {
    FLAVOURS.into_iter().filter_map(|flavour| Some((flavour, program(flavour, "children")?)))
}

/// The spawn programs of all libraries but Intel MPI, where they are installed.
fn programs_but_intel() -> impl Iterator<Item = (Flavour, PathBuf)> {
    programs().filter(|(flavour, _)| *flavour != Flavour::Intel)
}

/// The command that runs a spawn program with these arguments.
fn children((flavour, program): &(Flavour, PathBuf), placement: &str, words: &str) -> Run {
    // With its default on one node, Intel MPI would not even send a request to spawn.
    let run = Run::job(placement).arg(program).args(words.split_whitespace()).envs(environment(*flavour));
    run.env("I_MPI_FABRICS", "shm:ofi")
}

/// The command that runs a spawn program on hosts with these arguments. All hosts have the same address on a bridge,
/// which Open MPI must not use.
fn on_hosts(machines: &Machines, line: &str, (flavour, program): (Flavour, &Path), words: &str) -> Run {
    let run = machines.job(line).arg(program).args(words.split(' ')).envs(environment(flavour));
    run.env("OMPI_MCA_btl_tcp_if_include", "10.77.0.0/16")
}

fn is_open_mpi(flavour: Flavour) -> bool {
    matches!(flavour, Flavour::OpenMpi4 | Flavour::OpenMpi5)
}

/// Number of output lines that begin with `begin` and end with `end`.
fn count(outcome: &Outcome, begin: &str, end: &str) -> usize {
    outcome.out().lines().filter(|line| line.starts_with(begin) && line.ends_with(end)).count()
}

#[test]
fn parents_and_children_form_one_communicator() {
    for built in programs() {
        for placement in PLACEMENTS {
            let outcome = children(&built, placement, "spawn 3").succeed();
            assert_eq!(count(&outcome, "child ", " counts 5"), 3, "{placement}: {outcome}");
            // PMIx has no value that says that the universe size is unknown; PMI has -1.
            let universe = if is_open_mpi(built.0) { 2 } else { -1 };
            let end = format!(" counts 5, universe {universe}");
            assert_eq!(count(&outcome, "parent ", &end), 2, "{placement}: {outcome}");
            let outcome = children(&built, placement, "multiple 1 2").succeed();
            assert_eq!(count(&outcome, "child ", " counts 5"), 3, "{placement}: {outcome}");
            for (child, program) in [(0, 0), (1, 1), (2, 1)] {
                let line = format!("child {child} of 3, program {program}, parents 2");
                assert!(outcome.out().contains(&line), "{placement}: {outcome}");
            }
        }
    }
}

#[test]
fn children_ask_for_children_and_outlive_their_parents() {
    for built in programs() {
        for placement in PLACEMENTS {
            let outcome = children(&built, placement, "chain 3").succeed();
            assert_eq!(count(&outcome, "parent with ", " to come"), 5, "{placement}: {outcome}");
            let outcome = children(&built, placement, "late").succeed();
            assert_eq!(count(&outcome, "child ", " is the last"), 2, "{placement}: {outcome}");
        }
    }
}

/// Spawns by PMI-2, also with arguments that contain characters which separate fields.
#[test]
fn a_client_of_pmi_2_starts_children() {
    let Some(children) = program(Flavour::Pmi2, "children") else { return };
    for placement in PLACEMENTS {
        let outcome = Run::job(placement).arg(&children).succeed();
        let expected = [
            "child 0 of 3, program 0, two words", "child 1 of 3, program 1, b;c", "child 2 of 3, program 1, b;c",
            "parent has started a job",
        ];
        assert_eq!(outcome.sorted_lines(), expected, "{placement}: {outcome}");
        let outcome = Run::job(placement).arg(&children).arg("/no/such").succeed();
        assert_eq!(outcome.out(), "parent is refused\n", "{placement}: {outcome}");
    }
}

/// A rank's script: rank 0 spawns a child and waits until the child has created a file.
const PARENT: &str = r#"
say() { printf "$@" >&"$PMI_FD"; read -r answer <&"$PMI_FD"; }
test "$PMI_RANK" = 0 || exit 0
say 'cmd=init pmi_version=1 pmi_subversion=1\n'
say 'mcmd=spawn\nnprocs=1\nexecname=/bin/sh\ntotspawns=1\nspawnssofar=1\nargcnt=4\narg1=-c\narg2=%s\narg3=%s\narg4=%s
preput_num=1\npreput_key_0=left\npreput_val_0=here\ninfo_num=0\nendcmd\n' "$1" $$ "$TMPDIR/met"
until test -e "$TMPDIR/met"; do sleep 0.01; done
rm "$TMPDIR/met"
say 'cmd=finalize\n'
"#;
/// The child's script: prints the niceness of its parent's session, gets the pair that the spawn request has put, and
/// waits until the niceness is 0.
const CHILD: &str = concat!(
    r#"nice() { sed "s/.*nice //" /proc/$0/autogroup; }; say() { printf "$@" >&$PMI_FD; read -r answer <&$PMI_FD; }; "#,
    r#"echo "starts at $(nice)"; say "cmd=init pmi_version=1 pmi_subversion=1\n"; "#,
    r#"say "cmd=get kvsname=$PMI_JOBID key=left\n"; echo "$answer"; until test $(nice) = 0; do sleep 0.01; done; "#,
    r#"say "cmd=finalize\n"; touch $1"#,
);

#[test]
fn parents_have_less_weight_until_their_children_connect() {
    if !Path::new("/proc/self/autogroup").exists() {
        return;
    }
    let nproc = std::process::Command::new("nproc").output().expect("nproc runs");
    let cpus: u32 = String::from_utf8_lossy(&nproc.stdout).trim().parse().expect("nproc prints a number");
    let first_line = |ranks: u32| {
        let outcome = Run::job(&format!("-n {ranks} --pmi simple")).args(["sh", "-c", PARENT, "sh", CHILD]).succeed();
        let out = outcome.out();
        let (first, rest) = out.split_once('\n').unwrap_or_else(|| panic!("{outcome}"));
        assert_eq!(rest, "cmd=get_result rc=0 value=here\n", "{outcome}");
        first.to_owned()
    };
    if cpus > 1 {
        assert_eq!(first_line(cpus - 1), "starts at 0", "as many as there are cpus, with the child");
    }
    // For users other than root, the kernel may refuse to change the niceness again because another test has just
    // changed one.
    let lines: Vec<String> = (0..10).map(|_| first_line(cpus)).take_while(|line| line != "starts at 5").collect();
    assert!(lines.len() < 10, "{lines:?}");
}

/// A rank's script: prints that it begins, then spawns three jobs, one after the other; each job creates a file.
const THREE_SPAWNS: &str = r#"
say() { printf "$@" >&"$PMI_FD"; read -r answer <&"$PMI_FD"; }
echo begin
say 'cmd=init pmi_version=1 pmi_subversion=1\n'
for child in 1 2 3; do
    say 'mcmd=spawn\nnprocs=1\nexecname=/bin/sh\ntotspawns=1\nspawnssofar=1\n'\
'argcnt=2\narg1=-c\narg2=%s\ninfo_num=0\nendcmd\n' \
        "echo \$PPID of $child > $TMPDIR/met.part; mv $TMPDIR/met.part $TMPDIR/met"
    echo "$answer"
    until test -e "$TMPDIR/met"; do sleep 0.01; done
    cat "$TMPDIR/met"
    rm "$TMPDIR/met"
done
say 'cmd=finalize\n'
"#;

/// wireup does not fork in a process with threads: the keepers of spawned jobs are forked by a process of their own,
/// the forker.
#[test]
fn ranks_start_children_while_threads_write_their_output() {
    for containment in ["auto", "none"] {
        let folder = Folder::new("threads");
        let line = format!("-n 1 --pmi simple --tee --contain {containment} --output-dir");
        let outcome = Run::job(&line).arg(&folder.0).args(["sh", "-c", THREE_SPAWNS]).succeed();
        let file = fs::read_to_string(folder.at("rank.0.out")).expect("the output of the rank");
        assert_eq!(file, outcome.out(), "{outcome}");
        for child in 1..=3 {
            assert_eq!(count(&outcome, "", &format!(" of {child}")), 1, "{outcome}");
        }
        assert_eq!(count(&outcome, "cmd=spawn_result rc=0", ""), 3, "{outcome}");
    }
}

/// The forker may be killed like any process: a job that needs it reports this, and the running job continues.
#[test]
fn a_spawn_without_its_forker_fails_with_a_message() {
    let script =
        THREE_SPAWNS.replace("echo begin", "echo begin; read -r go").replace("until test", "test 1 || until test");
    let mut running =
        Run::job("-n 1 --pmi simple --contain none").args(["sh", "-c", &script]).stdin_open().start_until("begin", 1);
    let forker = |running: &mut wireup_e2e::Running| {
        running.processes().into_iter().find(|process| process.name == "wireup-forker")
    };
    running.await_that("a forker", |running| forker(running).is_some());
    kill_process(forker(&mut running).expect("a forker").pid, Signal::KILL).expect("send the signal");
    running.write(b"go\n");
    let outcome = running.finish();
    for job in 1..=3 {
        outcome.expect_err_line(&[&format!("job {job}"), "wireup-forker", "was killed", "run again"]);
    }
}

#[test]
fn info_keys_say_where_and_how_children_run() {
    for built in programs_but_intel() {
        let words = "spawn 2 wdir /usr host node1 env FAMILY_MARK=x";
        let outcome = children(&built, "-n 2 --virtual-nodes 2 --label", words).succeed();
        for child in 0..2 {
            let line = format!("[1:{child}] child {child} of 2, program 0, parents 2, in /usr, mark x\n");
            assert!(outcome.out().contains(&line), "{outcome}");
        }
        // With `npernode 1`, one child starts on each node.
        let outcome = children(&built, "-n 1 --virtual-nodes 2 --label", "spawn 2 npernode 1").succeed();
        assert_eq!(count(&outcome, "[1:", " counts 3"), 2, "{outcome}");
    }
    let Some(program) = program(Flavour::Mpich5, "children") else { return };
    let built = (Flavour::Mpich5, program);
    let outcome = children(&built, "-n 2 --virtual-nodes 2 --slots 4", "spawn 1").succeed();
    assert_eq!(count(&outcome, "parent ", "universe 8"), 2, "{outcome}");
    let outcome = children(&built, "-n 1 --usize 7", "spawn 1 path /usr/bin").succeed();
    assert_eq!(count(&outcome, "parent ", "universe 7"), 1, "{outcome}");
}

#[test]
fn a_request_that_cannot_be_fulfilled_leaves_the_parents_running() {
    // Left out: in Open MPI 4, the other parents would wait forever.
    for built in programs().filter(|(flavour, _)| *flavour != Flavour::OpenMpi4) {
        for placement in PLACEMENTS {
            for (words, said) in [
                ("missing /no/such/program", "/no/such/program: not found"),
                ("missing /etc/passwd", "/etc/passwd: not executable"),
                ("missing hostname host moon", "moon is not a node of this run"),
                ("missing hostname ppr 0", "info key ppr"),
                ("missing hostname wdir /no/such/folder", "working directory /no/such/folder"),
            ] {
                // Left out: Open MPI checks the info key `ppr` itself.
                if words.contains("ppr") && is_open_mpi(built.0) {
                    continue;
                }
                let outcome = children(&built, placement, words).succeed();
                assert_eq!(count(&outcome, "parent ", " is refused"), 2, "{placement} {words}: {outcome}");
                assert!(outcome.err().contains(said), "{placement} {words}: {outcome}");
            }
        }
    }
}

#[test]
fn children_that_cannot_start_end_a_job_of_open_mpi_4() {
    let Some(program) = program(Flavour::OpenMpi4, "children") else { return };
    let built = (Flavour::OpenMpi4, program);
    for placement in PLACEMENTS {
        // The PMIx server process itself refuses the second of these.
        for (words, said) in [
            ("missing /no/such/program", "/no/such/program: not found"),
            ("missing hostname hostfile /no/such/file", "the file of hosts /no/such/file"),
        ] {
            let outcome = children(&built, placement, words).finish().expect_code(1);
            outcome.expect_err_line(&["rank 0", "Open MPI 4 does not tell the ranks that wait for them"]);
            assert!(outcome.err().contains(said), "{outcome}");
        }
    }
    let outcome = children(&built, "-n 1", "missing /no/such/program").succeed();
    assert_eq!(outcome.out(), "parent 0 is refused\n", "{outcome}");
}

#[test]
fn a_failure_ends_the_whole_family() {
    for built in programs() {
        for placement in PLACEMENTS {
            let outcome = children(&built, placement, "fail").finish();
            // Ranks of Open MPI 5 abort with code 14 when they lose the connection to a rank that has exited.
            if built.0 == Flavour::OpenMpi5 && outcome.code() == 14 {
                continue;
            }
            outcome.expect_code(9).expect_err_line(&["job 1: rank", "exited with code 9"]);
        }
    }
}

#[test]
fn files_of_output_are_apart_for_each_job() {
    let Some(program) = program(Flavour::Mpich5, "children") else { return };
    let folder = Folder::new("children");
    let run = Run::job("-n 1 --output-dir").arg(&folder.0).arg(&program).args(["spawn", "1"]);
    run.succeed().expect_out("");
    let read = |name: &str| fs::read_to_string(folder.at(name)).expect(name);
    assert!(read("rank.0.out").starts_with("parent 0 counts 2"));
    assert!(read("job.1.rank.0.out").starts_with("child 0 of 1"));
}

/// Children are spawned one after the other: when a child's job has ended, nothing of it may be left.
#[test]
fn many_children_come_one_after_the_other() {
    let large = std::env::var_os("WIREUP_LARGE").is_some();
    let count = if large { 1000 } else { 12 };
    for built in programs_but_intel() {
        let run = children(&built, "-n 1", &format!("repeat {count}"));
        // A child of Open MPI 5 takes more than a second, on an idle machine too.
        let outcome = run.guard(std::time::Duration::from_secs(if large { 3600 } else { 120 })).succeed();
        assert!(outcome.out().contains(&format!("parent 0 counts {}\n", 2 * count)), "{outcome}");
    }
}

#[test]
fn a_family_in_a_session_is_shown_as_a_tree() {
    for flavour in [Flavour::Mpich5, Flavour::OpenMpi5] {
        if let Some(program) = program(flavour, "children") {
            in_a_session(&program);
        }
    }
}

fn in_a_session(program: &Path) {
    let session = Session::up("--virtual-nodes 2");
    let folder = Folder::new("allowed");
    let allowed = folder.at("allowed");
    let mut run = session.job("-n 2").arg(program).arg("late").env("FAMILY_UNTIL", &allowed).start();
    let mut shown = String::new();
    run.await_that("the children in the list of jobs", |_| {
        shown = session.wireup("jobs").succeed().out();
        shown.contains("\n  ")
    });
    fs::write(&allowed, "").expect("the children may end");
    let outcome = run.succeed();
    assert!(outcome.out().contains(" is the last"), "{shown}{outcome}");
    let outcome = session.job("-n 2").arg(program).arg("fail").finish();
    // Ranks of Open MPI 5 abort with code 14 when they lose the connection to a rank that has exited.
    assert!([9, 14].contains(&outcome.code()), "{outcome}");
    let outcome = session.job("-n 2").arg(program).args(["missing", "/no/such"]).succeed();
    assert_eq!(count(&outcome, "parent ", " is refused"), 2, "{outcome}");
    assert_eq!(session.wireup("jobs").succeed().out(), "session default has no jobs\n");
    session.down("");
}

#[test]
fn children_run_on_hosts() {
    let Some(machines) = machines::four() else { return };
    for (flavour, program) in programs_but_intel() {
        let job = |line: &str, words: &str| on_hosts(&machines, line, (flavour, &program), words).succeed();
        // The first job leaves two hosts unused: their agents are started when children are placed there.
        let outcome = job("--hosts n[0-3]:1 -n 2 --label", "spawn 2");
        assert_eq!(count(&outcome, "[1:", " counts 4"), 2, "{outcome}");
        assert_eq!(count(&outcome, "[", " counts 4, universe 4"), 2, "{outcome}");
        let outcome = job("--hosts n[0-1] -n 2", "spawn 1 host n1");
        let universe = if is_open_mpi(flavour) { 2 } else { -1 };
        assert_eq!(count(&outcome, "parent ", &format!("counts 3, universe {universe}")), 2, "{outcome}");
    }
}

/// Hosts of the run are named as `localhost`, by address and by another name; a host of the run under another name is
/// not added again.
#[test]
fn children_run_on_hosts_by_any_name_of_theirs() {
    for built in programs() {
        for (placement, host) in [("-n 1", "localhost"), ("-n 1", "127.0.0.1"), ("-n 1 --virtual-nodes 2", "localhost")]
        {
            let outcome = children(&built, placement, &format!("spawn 2 host {host}")).succeed();
            assert_eq!(count(&outcome, "child ", " counts 3"), 2, "{placement} {host}: {outcome}");
        }
    }
    let Some(machines) = machines::four() else { return };
    for (flavour, program) in programs_but_intel() {
        for words in ["spawn 2 host 10.77.0.2", "spawn 2 add-host 10.77.0.2"] {
            let outcome = on_hosts(&machines, "--hosts n[0-1] -n 1 --verbose", (flavour, &program), words).succeed();
            assert_eq!(count(&outcome, "child ", " counts 3"), 2, "{words}: {outcome}");
            assert!(!outcome.err().contains("was added"), "{outcome}");
        }
    }
}

/// A job of two ranks that adds two missing hosts by one spawn, and a job of one rank that adds one host by three
/// spawns.
fn adds_hosts(job: &dyn Fn(&str, &str) -> Outcome, [two, one]: [&str; 2]) {
    let outcome = job(two, "spawn 3 add-host n2,n3,n1");
    assert_eq!(count(&outcome, "child ", " counts 5"), 3, "{outcome}");
    for host in ["n2", "n3"] {
        outcome.expect_err_line(&[&format!("{host} was added to the nodes of this run")]);
    }
    let outcome = job(one, "repeat 3 add-host n2");
    assert!(outcome.out().contains("parent 0 counts 6\n"), "{outcome}");
    assert_eq!(outcome.err().matches("n2 was added").count(), 3, "{outcome}");
}

/// Spawn requests may name hosts that are not part of the run; these are added.
#[test]
fn children_run_on_hosts_that_are_added() {
    let Some(machines) = machines::four() else { return };
    let folder = Folder::shared("hosts");
    let file = folder.write("hosts", "# of one\nn2 slots=2\n");
    for (flavour, program) in programs_but_intel() {
        let job = |line: &str, words: &str| on_hosts(&machines, line, (flavour, &program), words).succeed();
        adds_hosts(&job, ["--hosts n[0-1] -n 2 --verbose", "--hosts n0 -n 1 --verbose"]);
        let outcome = job("--hosts n0 -n 1 --verbose", &format!("spawn 2 add-hostfile {}", file.display()));
        assert_eq!(count(&outcome, "child ", " counts 3"), 2, "{outcome}");
        outcome.expect_err_line(&["n2 was added to the nodes of this run"]);
    }
}

#[test]
fn added_hosts_are_released_when_their_job_has_ended() {
    let Some(program) = program(Flavour::Mpich5, "children") else { return };
    let Some(machines) = machines::four() else { return };
    let testbed = machines.testbed();
    let script = "\"$0\" spawn 1 add-host n2; echo over; read line";
    let mut run =
        machines.job("--hosts n0 -n 1").args(["sh", "-c", script]).arg(&program).stdin_open().start_until("over\n", 1);
    run.await_that("the end of the agent on n2", |_| testbed.processes(2).is_empty());
    assert!(!testbed.processes(0).is_empty(), "the run goes on");
    run.write(b"go on\n");
    assert_eq!(count(&run.succeed(), "parent ", "counts 2, universe -1"), 1);
}

#[test]
fn hosts_are_added_to_a_session_for_one_job() {
    let Some(machines) = machines::four() else { return };
    let testbed = machines.testbed();
    let session = Session::on(&machines, "--hosts n[0-1]");
    for (flavour, program) in programs_but_intel() {
        let job = |line: &str, words: &str| {
            let run = session.job(line).arg(&program).args(words.split(' ')).envs(environment(flavour));
            run.env("OMPI_MCA_btl_tcp_if_include", "10.77.0.0/16").succeed()
        };
        adds_hosts(&job, ["-n 2 --verbose", "-n 1 --verbose"]);
    }
    // When the spawned job has ended, the agent of its added host exits, and the session continues.
    let Some(program) = program(Flavour::Mpich5, "children") else { return drop(session.down("")) };
    let script = "\"$0\" spawn 1 add-host n2; echo over; read line";
    let mut run = session.job("-n 1").args(["sh", "-c", script]).arg(&program).stdin_open().start_until("over\n", 1);
    run.await_that("the end of the agent on n2", |_| testbed.processes(2).is_empty());
    run.write(b"go on\n");
    assert_eq!(count(&run.succeed(), "parent ", "counts 2, universe -1"), 1);
    let outcome = session.wireup("status").succeed();
    assert!(outcome.out().contains("2 of 2 nodes up") && !outcome.out().contains("n2"), "{outcome}");
    session.down("");
}

#[test]
fn the_loss_of_an_added_host_ends_its_job_and_not_the_session() {
    let Some(program) = program(Flavour::Mpich5, "children") else { return };
    let Some(machines) = machines::four() else { return };
    let session = Session::on(&machines, "--hosts n[0-1]");
    let folder = Folder::shared("stays");
    let stays = folder.program("stays", "echo stays\nsleep 600");
    let run =
        session.job("-n 1").arg(&program).arg("missing").arg(&stays).args(["add-host", "n2"]).start_until("stays\n", 2);
    let jobs = session.wireup("jobs").succeed();
    assert!(jobs.out().lines().any(|line| line.contains(" n2 ") && line.contains("stays")), "{jobs}");
    send(machines.agent(2), Signal::KILL);
    let outcome = run.finish();
    assert!(outcome.code() != 0, "{outcome}");
    outcome.expect_err_line(&["n2"]);
    let refused = session.job("-n 1").arg(&program).args(["missing", "hostname", "add-host", "moon"]).succeed();
    assert_eq!(count(&refused, "parent ", " is refused"), 1, "{refused}");
    refused.expect_err_line(&["cannot start: no agent could be started on 1 node: moon"]);
    let outcome = session.job("-n 1").arg(&program).args(["spawn", "2", "add-host", "n2"]).succeed();
    assert_eq!(count(&outcome, "child ", " counts 3"), 2, "{outcome}");
    session.down("");
}

#[test]
fn a_host_that_cannot_be_added_or_reached_is_an_error_of_the_request() {
    let Some(program) = program(Flavour::Mpich5, "children") else { return };
    let asked = |run: Run, how: &str, words: &[&str]| {
        let outcome = run.arg(&program).args(["missing", "hostname", how, "moon"]).succeed();
        assert_eq!(count(&outcome, "parent ", " is refused"), 1, "{outcome}");
        outcome.expect_err_line(words);
    };
    let refused = |run: Run, words: &[&str]| asked(run, "add-host", words);
    refused(Run::job("-n 1"), &["moon cannot be added", "this machine only", "--hosts"]);
    let session = Session::up("--virtual-nodes 2");
    refused(session.job("-n 1"), &["moon cannot be added", "wireup up --hosts"]);
    session.down("");
    let Some(machines) = machines::sixteen() else { return };
    refused(machines.job("--hosts n0 -n 1"), &["job 1", "cannot start", "moon"]);
    asked(machines.job("--hosts n0,moon -n 1"), "host", &["job 1", "cannot start", "moon"]);
}

/// The node is lost while the parent runs on other nodes.
#[test]
fn no_child_is_placed_on_a_node_that_the_session_has_lost() {
    let Some(program) = program(Flavour::Mpich5, "children") else { return };
    let Some(machines) = machines::own(4, |_| ()) else { return };
    let session = Session::on(&machines, "--node-timeout 1 --hosts n[0-3]");
    let script = "echo ready; read line; exec \"$0\" spawn 3";
    let run = session.job("--hosts n0,n1,n2,n3 -n 1 --ppn 1").args(["sh", "-c", script]).arg(&program).stdin_open();
    let mut run = run.start_until("ready\n", 1);
    machines.power_off(3).expect("switch a node off");
    session.await_that("the loss of the node", || session.wireup("status").finish().out().contains("lost      n3"));
    run.write(b"go on\n");
    assert_eq!(count(&run.succeed(), "child ", " counts 4"), 3);
    let outcome = session.job("-n 1").arg(&program).args(["missing", "hostname", "host", "n3"]).succeed();
    assert_eq!(outcome.out(), "parent 0 is refused\n", "{outcome}");
    session.down("");
}

/// Children run in free slots of the allocation, on nodes where no agent runs yet.
#[test]
fn children_run_in_a_slurm_allocation() {
    let Some(program) = program(Flavour::Mpich5, "children") else { return };
    let Some(machines) = machines::with_slurm() else { return };
    let run = machines.allocated("-N 4 --ntasks-per-node=1", "-n 2").arg(&program).args(["spawn", "2"]);
    let outcome = run.succeed();
    assert_eq!(count(&outcome, "child ", " counts 4"), 2, "{outcome}");
    assert_eq!(count(&outcome, "parent ", " counts 4, universe 4"), 2, "{outcome}");
}
