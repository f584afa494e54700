//! Ranks in a PID namespace: what ends them, and which processes they and others see.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::Command;
use std::time::Duration;
use wireup_e2e::faults::{FaultSite, Started, kill, until};
use wireup_e2e::machines;
use wireup_e2e::peers;
use wireup_e2e::run_processes::{self, Process};
use wireup_e2e::sessions::Session;
use wireup_e2e::{Run, Running, wireup};
use xtask::programs::Flavour;

/// A script for a rank that ignores signals and has two descendants: a child in a session of its own, which has a
/// child, and a process whose parent has ended.
const RANK: &str = "trap '' HUP TERM INT; setsid sh -c 'trap \"\" HUP TERM INT; sleep 1000 & wait' & (sleep 1000 &); \
    echo ready; while :; do wait; sleep 1000; done";

/// Whether this process may create PID namespaces; prints a message if not.
fn is_permitted() -> bool {
    let permitted = wireup_e2e::may_isolate();
    if !permitted {
        println!("not run: PID namespaces need CAP_SYS_ADMIN");
    }
    permitted
}

fn is_ours(process: &Process) -> bool {
    process.name.starts_with("wireup")
}

/// Stops all of the processes first, so that none of them can react to the death of another one, then kills them.
fn kill_at_once(processes: &[Process]) {
    println!("killed at once: {}", run_processes::list(processes));
    for process in processes {
        kill_process(process.pid, Signal::STOP).expect("it runs");
    }
    for process in processes {
        match kill_process(process.pid, Signal::KILL) {
            // ESRCH: the kernel has already killed the process, with the first process of its PID namespace.
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => panic!("{}: {error}", process.pid.as_raw_nonzero()),
        }
    }
}

fn await_sleepers(running: &mut Running, ranks: usize) {
    running.await_out("ready\n", ranks);
    running.await_that("all descendants run", |running| sleepers(&running.processes()) >= 2 * ranks);
}

fn sleepers(processes: &[Process]) -> usize {
    processes.iter().filter(|process| process.command.trim() == "sleep 1000").count()
}

/// UCX, in MPICH 4, opens files of other ranks on the same machine by their pids, which must be of one PID namespace.
#[test]
fn a_machine_under_two_names_has_one_namespace() {
    let Some(hosts) = machines::sixteen().filter(|_| is_permitted()) else { return };
    for flags in ["", "--start ssh-flat", "--fanout 1"] {
        let outcome = hosts.job(&format!("--hosts n0,10.77.0.1,n1 {flags}")).sh("readlink /proc/self/ns/pid").succeed();
        let mut namespaces = outcome.sorted_lines();
        namespaces.dedup();
        assert_eq!(namespaces.len(), 2, "one for each machine: {outcome}");
    }
    if let Some(program) = peers::program(Flavour::Mpich4, "ring") {
        hosts.job("-n 4 --hosts n0,10.77.0.1").arg(program).succeed().expect_quiet();
    }
}

#[test]
fn nothing_is_left_if_all_wireup_processes_are_killed_at_once() {
    if !is_permitted() {
        return;
    }
    // Least number of wireup's processes. On virtual nodes: the launcher, the namespace's first process, the keeper of
    // the agents, and an agent and a keeper for each node.
    for (placement, at_least) in [("-n 32", 2), ("-n 32 --virtual-nodes 4", 3 + 3 + 4)] {
        let line = format!("{placement} --pmi simple");
        let in_user_namespace = has_user_namespaces().then(|| by_user(&line));
        for job in [Run::job(&line)].into_iter().chain(in_user_namespace) {
            let mut running = job.sh(RANK).start();
            await_sleepers(&mut running, 32);
            let victims: Vec<Process> = running.processes().into_iter().filter(is_ours).collect();
            assert!(victims.len() >= at_least, "{placement}: {}", run_processes::list(&victims));
            kill_at_once(&victims);
            // The harness checks that no process is left.
            running.finish().expect_code(137);
        }
    }
}

#[test]
fn a_pmix_server_is_in_the_namespace_of_its_ranks() {
    if !is_permitted() {
        return;
    }
    let mut running = Run::job("-n 2 --pmi pmix").sh("echo ready; exec sleep 1000").start();
    running.await_out("ready\n", 2);
    running.await_that("the programs run", |running| sleepers(&running.processes()) == 2);
    let all = running.processes();
    let inside = all.iter().filter(|process| process.command.contains("pmix-server") || process.name == "sleep");
    let of = |pid: Pid| fs::read_link(format!("/proc/{}/ns/pid", pid.as_raw_nonzero())).expect("its namespace");
    let namespaces: Vec<_> = inside.map(|process| of(process.pid)).collect();
    assert!(namespaces.len() == 3 && namespaces.iter().all(|one| *one == namespaces[0]), "{namespaces:?}");
    assert_ne!(namespaces[0], of(running.pid()));
    running.signal(Signal::TERM);
    running.finish();
}

#[test]
fn a_session_that_is_killed_at_once_leaves_no_process_of_its_jobs() {
    if !is_permitted() {
        return;
    }
    for nodes in ["", "--virtual-nodes 4"] {
        let session = Session::up(nodes);
        // After a first job, the next job uses the keepers of that job again.
        session.job("-n 4 true").succeed();
        let mut running = session.job("-n 8").sh(RANK).start();
        await_sleepers(&mut running, 8);
        let mut victims: Vec<Process> = running.processes().into_iter().chain(session.processes()).collect();
        victims.retain(is_ours);
        kill_at_once(&victims);
        running.finish();
        session.await_that("the end of all processes", || session.processes().is_empty());
        session.down("");
    }
}

/// Processes that a killed keeper leaves become children of the first process of the PID namespace.
#[test]
fn a_session_of_virtual_nodes_ends_what_an_agent_killed_with_its_keeper_leaves() {
    if !is_permitted() {
        return;
    }
    let session = Session::up("--virtual-nodes 2");
    let mut running = session.job("-n 2 --map-by node").sh(RANK).start();
    await_sleepers(&mut running, 2);
    let all: Vec<Process> = running.processes().into_iter().chain(session.processes()).collect();
    let agents = session.agents();
    let is_below = |keeper: &&Process| agents.iter().any(|agent| agent.pid.as_raw_nonzero().get() == keeper.parent);
    let is_of_rank = |keeper: &&Process| all.iter().any(|one| one.parent == keeper.pid.as_raw_nonzero().get());
    let keeper = all.iter().filter(is_below).find(is_of_rank).expect("a keeper whose agent is not the root");
    let agent = agents.iter().find(|agent| agent.pid.as_raw_nonzero().get() == keeper.parent).expect("its agent");
    kill_at_once(&[agent.clone(), keeper.clone()]);
    running.finish().expect_code(125);
    session.await_that("the end of all ranks", || sleepers(&session.processes()) == 0);
    session.down("");
}

#[test]
fn nothing_is_left_on_any_node_if_all_are_killed_at_once() {
    let Some(site) = FaultSite::start(4, &[FaultSite::share()]) else { return };
    let nodes = [0, 1, 2, 3];
    let line = format!("--hosts {} -n 32 --fanout 2", site.testbed.hosts());
    let mut job = Started::of(site.job(&line, &["sh", "-c", RANK]));
    job.await_out("ready", 32);
    let on_nodes = || site.left(&nodes).into_iter().map(|(_, process)| process.pid);
    let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let mut victims: Vec<u32> = on_nodes().filter(|pid| name(*pid).starts_with("wireup")).collect();
    assert!(victims.len() >= 4 + 4, "agents and keepers: {:?}", site.left(&nodes));
    let on_hub = job.on_hub(&site).into_iter().filter(is_ours);
    victims.extend(on_hub.map(|process| process.pid.as_raw_nonzero().get().cast_unsigned()));
    for signal in [Signal::STOP, Signal::KILL] {
        for pid in &victims {
            // The process may have ended already, because its parent has died.
            let _ = kill(*pid, signal);
        }
    }
    assert!(job.finish(&site, Duration::from_secs(30)).is_some(), "the launcher was killed");
    let clean = until(Duration::from_secs(10), || site.left(&nodes).is_empty());
    assert!(clean.is_some(), "left behind: {:?}", site.left(&nodes));
}

/// Ranks in a PID namespace have other pids there than those that the user sees.
#[test]
fn messages_name_pids_of_this_machine() {
    for how in ["auto", "none", "auto --virtual-nodes 2"] {
        let mut running = Run::job(&format!("-n 2 --contain {how}")).sh("echo ready; sleep 1000 & wait").start();
        running.await_out("ready\n", 2);
        let ranks = running.processes().into_iter().filter(|process| process.command.starts_with("/bin/sh -c echo"));
        let victim = ranks.min_by_key(|process| process.pid.as_raw_nonzero()).expect("a rank runs");
        kill_process(victim.pid, Signal::KILL).expect("kill a rank");
        running.finish().expect_code(137).expect_err_line(&["rank", "SIGKILL", &format!("pid {})", victim.pid)]);
    }
}

#[test]
fn a_line_says_what_contains_the_ranks() {
    let said = if is_permitted() { "containment: a PID namespace on each node" } else { "needs CAP_SYS_ADMIN" };
    let said_together =
        if is_permitted() { "a PID namespace for all nodes, which share" } else { "needs CAP_SYS_ADMIN" };
    for (flags, said) in [
        ("-n 1", said),
        ("-n 1 --contain none", "containment: none (--contain none)"),
        ("-n 2 --virtual-nodes 2 --contain none", "containment: none (--contain none)"),
        ("-n 2 --virtual-nodes 2", said_together),
    ] {
        Run::job(&format!("{flags} --verbose true")).succeed().expect_err_line(&[said]);
        assert!(Run::job(&format!("{flags} --dry-run true")).succeed().out().contains(said));
    }
    let script = "readlink /proc/self/ns/pid";
    let here = fs::read_link("/proc/self/ns/pid").expect("this test's namespace");
    for (flags, own) in
        [("-n 1", is_permitted()), ("-n 1 --contain none", false), ("-n 2 --virtual-nodes 2", is_permitted())]
    {
        let seen = Run::job(flags).sh(script).succeed().out();
        assert_eq!(seen.lines().all(|line| line != here.to_str().unwrap()), own, "{flags}: {seen}");
    }
}

/// In its user namespace wireup has all capabilities, but not over the mounts of the machine.
#[test]
fn ranks_of_a_user_namespace_run_without_containment() {
    if !Command::new("unshare").args(["-Ur", "true"]).status().is_ok_and(|status| status.success()) {
        return println!("not run: no user namespaces here");
    }
    let outcome = Run::shell("unshare -Ur $WIREUP run -n 2 --verbose echo ran").succeed();
    assert_eq!(outcome.out(), "ran\nran\n");
    outcome.expect_err_line(&["containment: none (a PID namespace with its own /proc needs CAP_SYS_ADMIN"]);
}

/// Rank 1 reads the memory of rank 0 by the pid that `getpid` has returned in rank 0, as MPI libraries do.
const READ_PEER: &str = r#"
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(0x59616d61, ctypes.c_ulong(-1 % 2**64), 0, 0, 0)  # PR_SET_PTRACER
class Piece(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
note, text = os.environ["TMPDIR"] + "/peer", b"memory of rank 0"
if os.environ["PMI_RANK"] == "0":
    kept = ctypes.create_string_buffer(text)
    with open(note + ".new", "w") as file: file.write(f"{os.getpid()} {ctypes.addressof(kept)}")
    os.rename(note + ".new", note)
    while os.path.exists(note): time.sleep(0.005)
else:
    while not os.path.exists(note): time.sleep(0.005)
    pid, address = map(int, open(note).read().split())
    room = ctypes.create_string_buffer(len(text))
    here, there = Piece(ctypes.addressof(room), len(text)), Piece(address, len(text))
    count = libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    assert os.path.exists(f"/proc/{pid}/maps")
    os.remove(note)
    print(room.raw.decode() if count == len(text) else os.strerror(ctypes.get_errno()))
"#;

#[test]
fn ranks_read_each_others_memory_by_pid() {
    for how in ["auto", "none", "auto --virtual-nodes 2"] {
        let outcome = Run::job(&format!("-n 2 --contain {how}")).args(["python3", "-c", READ_PEER]).succeed();
        assert_eq!(outcome.out(), "memory of rank 0\n", "{how}");
    }
}

#[test]
fn a_debugger_attaches_by_the_pid_of_this_machine() {
    let gdb = |args: &[&str]| Command::new("gdb").args(["-nx", "-batch"]).args(args).output();
    if gdb(&["--version"]).is_err() {
        return println!("not run: there is no gdb");
    }
    let mut running = Run::job("-n 1").sh("echo ready; exec sleep 1000").start();
    running.await_out("ready\n", 1);
    running.await_that("the program runs", |running| sleepers(&running.processes()) == 1);
    let all = running.processes();
    let rank = all.iter().find(|process| process.command.trim() == "sleep 1000").expect("it runs");
    let output = gdb(&["-p", &rank.pid.to_string(), "-ex", "info inferiors", "-ex", "backtrace"]).expect("run gdb");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains(&format!("process {}", rank.pid)) && said.contains("nanosleep"), "{said}");
    kill_process(rank.pid, Signal::TERM).expect("end the rank");
    running.finish().expect_code(128 + 15);
}

/// The command `wireup run WORDS` without the right to make namespaces, except in a user namespace (`--contain user`).
fn by_user(words: &str) -> Run {
    let run = Run::tool("setpriv", ["--bounding-set=-sys_admin"]).arg(wireup()).args(["run", "--contain", "user"]);
    run.args(words.split_whitespace())
}

fn has_user_namespaces() -> bool {
    let made = Command::new("unshare").args(["-Urpf", "--mount-proc", "true"]).status();
    let permitted = is_permitted() && made.is_ok_and(|status| status.success());
    if !permitted {
        println!("not run: no user namespaces here");
    }
    permitted
}

#[test]
fn a_user_namespace_contains_ranks_where_the_right_is_missing() {
    if !has_user_namespaces() {
        return;
    }
    for (nodes, said) in [("", "a PID namespace on each node"), (" --virtual-nodes 2", "a PID namespace for all nodes")]
    {
        let outcome = by_user(&format!("-n 2{nodes} --verbose")).args(["python3", "-c", READ_PEER]).succeed();
        assert_eq!(outcome.out(), "memory of rank 0\n", "{nodes}");
        outcome.expect_err_line(&["containment: ", said]);
    }
    // Without `--contain`, wireup does not use a user namespace.
    let plain = Run::tool("setpriv", ["--bounding-set=-sys_admin"]).arg(wireup()).args(["run", "-n", "1", "--verbose"]);
    plain.arg("true").succeed().expect_err_line(&["containment: none", "--contain user"]);
}

#[test]
fn sessions_serve_jobs_one_after_another_in_a_user_namespace() {
    if !has_user_namespaces() {
        return;
    }
    let session = Session::nowhere();
    without_rights(&session, "up --virtual-nodes 2 --contain user").succeed();
    for _ in 0..5 {
        let outcome = without_rights(&session, "run -n 4").sh("readlink /proc/self/ns/user").succeed();
        let here = fs::read_link("/proc/self/ns/user").expect("this test's namespace");
        assert!(outcome.out().lines().count() == 4 && outcome.out().lines().all(|line| line != here.to_str().unwrap()));
    }
    session.down("");
}

/// After the death of the session's PID namespace, jobs run without one, and report that.
#[test]
fn a_session_whose_namespace_was_killed_says_so() {
    if !is_permitted() {
        return;
    }
    let session = Session::up("--virtual-nodes 2");
    session.job("-n 2 true").succeed().expect_quiet();
    let is_first = |process: &Process| {
        let status = fs::read_to_string(format!("/proc/{}/status", process.pid.as_raw_nonzero())).unwrap_or_default();
        status.lines().any(|line| line.starts_with("NSpid:") && line.ends_with("\t1"))
    };
    let first = session.processes().into_iter().find(is_first).expect("the namespace's first process");
    kill_at_once(&[first]);
    let mut outcome = session.job("-n 2 true").finish();
    // The keepers in the PID namespace end with its first process. A job that gets such a keeper just before that
    // fails.
    for _ in 0..20 {
        if outcome.code() == 0 {
            break;
        }
        outcome = session.job("-n 2 true").finish();
    }
    outcome.expect_code(0).expect_err_line(&["node node", "PID namespace was killed", "wireup down, then wireup up"]);
    session.down("");
}

/// The command `wireup WORDS` without the right to make namespaces, as for users other than root.
fn without_rights(session: &Session, words: &str) -> Run {
    let run = Run::tool("setpriv", ["--bounding-set=-sys_admin"]).arg(wireup()).args(words.split_whitespace());
    session.leaving(run)
}

#[test]
fn sessions_and_staging_work_without_the_right_to_make_namespaces() {
    if !is_permitted() {
        return;
    }
    for nodes in ["", "--virtual-nodes 2"] {
        let session = Session::nowhere();
        without_rights(&session, &format!("up {nodes}")).succeed();
        without_rights(&session, "run -n 2 true").succeed().expect_quiet();
        let store = session.runtime_dir().join("store");
        // Without the right to make namespaces, wireup uses a user namespace.
        let staged = format!("run -n 2 --pmi simple --stage={} --stage-also /bin/true", store.display());
        let outcome = without_rights(&session, &staged)
            .args(["sh", "-c", "grep -c sets/.*/tree/usr/bin/true /proc/self/mountinfo; true"])
            .succeed();
        let shown = if nodes.is_empty() { 1 } else { 0 };
        assert_eq!(outcome.out(), format!("{shown}\n{shown}\n"), "{outcome}");
        if !nodes.is_empty() {
            // No user namespace for virtual nodes: ranks in different ones could not read each other's memory.
            outcome.expect_err_line(&["no mount namespace can be made here", "for virtual nodes that needs root"]);
        }
        fs::remove_dir_all(&store).expect("the store");
        session.down("");
    }
}
