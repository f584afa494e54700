//! Tests of keepers with real processes; the test acts as the agent.

mod isolation;
mod renewal;
mod sessions;

use super::*;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wireup_os::bind;
use wireup_os::process::{self, Fork, kill, leave, start_ticks};
use wireup_proto::io::ExitStatus;
use wireup_wire::job::{Limit, Preload, Resource};
use wireup_wire::peer::{SpawnError, SpawnStep};
use wireup_wire::pmi::SERVER_NAME;
use wireup_wire::signal::{SIGCONT, SIGKILL, SIGSTOP, SIGTERM};

/// Longest wait for an event; long enough for a loaded machine. Only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A keeper, and its reports by slot.
struct Bench {
    keeper: Keeper,
    reported: BTreeMap<u32, Reported>,
    swept: usize,
    renewed: usize,
    alive: Alive,
}

#[derive(Default)]
struct Reported {
    pid: u32,
    spawn_ns: u64,
    exec_ns: u64,
    fds: ProcessFds,
    failed: Option<SpawnError>,
    exited: Option<ExitStatus>,
}

fn open_files(soft: u64) -> Vec<Limit> {
    vec![Limit { resource: Resource::Nofile, soft }]
}

impl Reported {
    fn over(&self) -> bool {
        self.failed.is_some() || self.exited.is_some()
    }

    fn output(&mut self) -> String {
        let fd = self.fds.stdout.take().or(self.fds.pty.take()).expect("a pipe or a terminal");
        wireup_os::files::set_nonblocking(&fd, false).unwrap();
        let mut output = Vec::new();
        // Reading from a terminal ends with an error; the output before it is in `output`.
        let _ = std::fs::File::from(fd).read_to_end(&mut output);
        String::from_utf8(output).unwrap()
    }
}

impl Bench {
    fn new() -> Bench {
        Bench::with_keeper(Keeper::fork().unwrap())
    }

    fn with_keeper(mut keeper: Keeper) -> Bench {
        keeper.begin_kernel_session(KernelSession::Own);
        Bench { keeper, reported: BTreeMap::new(), swept: 0, renewed: 0, alive: Alive::Yes }
    }

    fn request(&mut self, request: &Request) {
        self.keeper.request(request);
        while !self.keeper.flush().unwrap() {
            self.turn();
        }
    }

    fn turn(&mut self) {
        let writing = !self.keeper.outbox.is_empty();
        assert!(socket::wait(self.keeper.fd(), true, writing, Some(PATIENCE)).unwrap(), "the keeper does not answer");
        let mut events = Vec::new();
        self.alive = self.keeper.receive(&mut events).unwrap();
        events.into_iter().for_each(|event| self.note(event));
    }

    fn note(&mut self, event: KeeperEvent) {
        match event {
            KeeperEvent::Started { slot, pid, spawn_ns, exec_ns, fds, .. } => {
                let reported = Reported { pid, spawn_ns, exec_ns, fds, ..Reported::default() };
                assert!(self.reported.insert(slot, reported).is_none(), "slot {slot} started twice");
            }
            KeeperEvent::StartFailed { slot, error } => {
                let reported = Reported { failed: Some(error), ..Reported::default() };
                assert!(self.reported.insert(slot, reported).is_none(), "slot {slot} failed after its start");
            }
            KeeperEvent::Exited { slot, status } => {
                let reported = self.reported.get_mut(&slot).expect("an exit follows a start");
                assert!(reported.exited.replace(status).is_none() && reported.failed.is_none());
            }
            KeeperEvent::Streams { .. } => {}
            KeeperEvent::Preloads { .. } => panic!("no imports are recorded here"),
            KeeperEvent::NotStaged { problem }
            | KeeperEvent::Redirected { problem }
            | KeeperEvent::NotPrefetched { problem }
            | KeeperEvent::NotPreloaded { problem } => {
                panic!("nothing is staged or imported here: {problem}")
            }
            KeeperEvent::Failed { problem } => panic!("the keeper has failed: {problem:?}"),
            KeeperEvent::Swept => self.swept += 1,
            KeeperEvent::Renewed { .. } => self.renewed += 1,
        }
    }

    fn until(&mut self, mut done: impl FnMut(&Bench) -> bool) {
        while !done(self) {
            assert_eq!(self.alive, Alive::Yes);
            self.turn();
        }
    }

    /// Starts a batch and waits until all of its processes have ended.
    fn run_batch(&mut self, batch: Batch) {
        let slots: Vec<u32> = batch.processes.iter().map(|process| process.slot).collect();
        self.request(&Request::Spawn(batch));
        self.until(|bench| slots.iter().all(|slot| bench.reported.get(slot).is_some_and(Reported::over)));
    }

    fn start(&mut self, batch: Batch) {
        let slots: Vec<u32> = batch.processes.iter().map(|process| process.slot).collect();
        self.request(&Request::Spawn(batch));
        self.until(|bench| slots.iter().all(|slot| bench.reported.contains_key(slot)));
    }

    fn exit_of(&self, slot: u32) -> ExitStatus {
        self.reported[&slot].exited.expect("the process has ended")
    }
}

fn strings(list: &[&str]) -> Vec<Vec<u8>> {
    list.iter().map(|string| string.as_bytes().to_vec()).collect()
}

fn program(argv: &[&str]) -> Program {
    Program { argv: strings(argv), cwd: b"/".to_vec(), env: strings(&["PATH=/usr/bin:/bin", "SHARED=yes", "A=0"]) }
}

fn batch(argv: &[&str], processes: Vec<Process>) -> Batch {
    Batch { programs: vec![program(argv)], processes, umask: 0o27, limits: open_files(77), ..Batch::default() }
}

/// Runs a shell script as one process; returns its exit status and standard output.
fn shell(script: &str, change: impl FnOnce(&mut Process)) -> (ExitStatus, String) {
    let mut bench = Bench::new();
    let mut process = Process::new(4);
    change(&mut process);
    bench.run_batch(batch(&["sh", "-c", script], vec![process]));
    let reported = bench.reported.get_mut(&4).unwrap();
    assert_eq!(reported.failed, None);
    let result = (reported.exited.unwrap(), reported.output());
    bench.keeper.close().unwrap();
    result
}

fn gone(pid: u32) -> bool {
    // A zombie that another process must reap counts as gone.
    start_ticks(pid).is_none() || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| s.contains(") Z"))
}

fn wait_until_gone(pid: u32) {
    let start = std::time::Instant::now();
    while !gone(pid) {
        assert!(start.elapsed() < PATIENCE, "{pid} is still alive");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn three_hundred_processes_start_and_end_once_each() {
    let mut bench = Bench::new();
    bench.run_batch(batch(&["true"], (0..300).map(Process::new).collect()));
    assert_eq!(bench.reported.len(), 300);
    for reported in bench.reported.values() {
        assert_eq!((reported.exited, &reported.failed), (Some(ExitStatus::Exited(0)), &None));
        assert!(reported.spawn_ns > 0 && reported.exec_ns >= reported.spawn_ns);
        assert!(reported.fds.stdout.is_some() && reported.fds.stderr.is_some() && reported.fds.stdin.is_none());
    }
    bench.request(&Request::Sweep);
    bench.until(|bench| bench.swept == 1);
    bench.keeper.close().unwrap();
}

#[test]
fn an_agent_that_reads_late_misses_no_report() {
    let mut bench = Bench::new();
    let processes = (0..600).map(|slot| Process { pmi: true, ..Process::new(slot) });
    bench.request(&Request::Spawn(batch(&["true"], processes.collect())));
    std::thread::sleep(Duration::from_millis(300));
    bench.until(|bench| bench.reported.len() == 600 && bench.reported.values().all(Reported::over));
    assert!(bench.reported.values().all(|reported| reported.fds.pmi.is_some() && reported.fds.stderr.is_some()));
}

#[test]
fn exit_codes_and_signals_are_reported() {
    assert_eq!(shell("exit 7", |_| {}).0, ExitStatus::Exited(7));
    assert_eq!(shell("kill -9 $$", |_| {}).0, ExitStatus::Signalled { signal: SIGKILL, core_dumped: false });
    // Rust's start-up code ignores SIGPIPE; a rank must inherit neither that nor the keeper's blocked signals. But
    // signals that a shell ignores for background processes, of which this test may be one, stay ignored.
    assert_eq!(shell("kill -13 $$", |_| {}).0, ExitStatus::Signalled { signal: 13, core_dumped: false });
    let (_, masks) = shell("grep -E 'Sig(Blk|Ign)' /proc/self/status", |_| {});
    let ignored =
        [1, 2, 3].into_iter().filter(|signal| process::is_ignored(*signal)).map(|signal| 1u64 << (signal - 1));
    let wanted = format!("SigBlk:\t{:016x}\nSigIgn:\t{:016x}\n", 0, ignored.sum::<u64>());
    assert_eq!(masks, wanted);
}

#[test]
fn umask_limits_environment_group_and_affinity_are_as_requested() {
    assert_eq!(shell("umask; ulimit -Sn; pwd", |_| {}).1, "0027\n77\n/\n");
    let own = |process: &mut Process| process.env = strings(&["A=1", "B=2", "A=3"]);
    assert_eq!(shell("env | grep -E '^(A|B|SHARED)=' | sort", own).1, "A=3\nB=2\nSHARED=yes\n");
    assert_eq!(shell("test $$ = $(cut -d' ' -f5 /proc/$$/stat) && echo leader", |_| {}).1, "leader\n");
    let cpu = bind::allowed().unwrap().iter().last().unwrap();
    let set: bind::CpuSet = [cpu].into_iter().collect();
    let bound = |process: &mut Process| process.cpus = Some(set.words().to_vec());
    assert_eq!(shell("grep Cpus_allowed_list /proc/self/status | cut -f2", bound).1, format!("{cpu}\n"));
}

/// A keeper starts the ranks of several jobs in sequence, and also server processes, so one job's limits must not stay.
#[test]
fn limits_of_one_batch_do_not_apply_to_the_next() {
    let own = |resource| rustix::process::getrlimit(resource).current;
    let here = [rustix::process::Resource::Fsize, rustix::process::Resource::Core].map(own);
    let words = here.map(|soft| soft.map_or("unlimited".to_owned(), |bytes| (bytes / 512).to_string()));
    let mut bench = Bench::new();
    let none = [Resource::Fsize, Resource::Core].map(|resource| Limit { resource, soft: 0 });
    let script = ["sh", "-c", "ulimit -Sf; ulimit -Sc"];
    for (slot, limits, said) in [(0, none.to_vec(), "0\n0\n".to_owned()), (1, vec![], words.join("\n") + "\n")] {
        bench.run_batch(Batch { limits, ..batch(&script, vec![Process::new(slot)]) });
        assert_eq!(bench.reported.get_mut(&slot).unwrap().output(), said);
    }
    bench.keeper.close().unwrap();
}

#[test]
fn start_failures_name_step_and_errno() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path();
    let script = |name: &str, text: &str, mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let bad = script("bad", "#!/nowhere/interpreter\n", 0o755);
    let plain = script("plain", "echo $0 $1\n", 0o755);
    let locked = script("locked", "#!/bin/sh\n", 0o644);
    let garbage = script("garbage", "#!/etc/passwd\n", 0o755);
    let mut no_directory = program(&["true"]);
    no_directory.cwd = b"/nowhere".to_vec();
    let programs = vec![
        program(&["no-such-program"]),
        program(&[&bad]),
        no_directory,
        program(&[&locked]),
        program(&[&garbage]),
        program(&[]),
        program(&[&plain, "argument"]),
    ];
    let processes = (0..8).map(|slot| Process { program: slot as u16, ..Process::new(slot) }).collect();
    let mut bench = Bench::new();
    bench.run_batch(Batch { programs, processes, umask: 0, limits: open_files(64), ..Batch::default() });
    let failure =
        |slot: u32| bench.reported[&slot].failed.as_ref().map(|error| (error.step, &*error.what, error.errno));
    assert_eq!(failure(0), Some((SpawnStep::Find, "no-such-program", 2)));
    assert_eq!(failure(1), Some((SpawnStep::Interpreter, &*bad, 2)));
    assert_eq!(failure(2), Some((SpawnStep::Cwd, "/nowhere", 2)));
    assert_eq!(failure(3), Some((SpawnStep::Exec, &*locked, 13)));
    assert_eq!(failure(4), Some((SpawnStep::Exec, &*garbage, 13)));
    assert_eq!(failure(5), Some((SpawnStep::Find, "", 2)));
    assert_eq!(failure(7).map(|error| error.0), Some(SpawnStep::Find));
    assert_eq!(bench.exit_of(6), ExitStatus::Exited(0));
    assert_eq!(bench.reported.get_mut(&6).unwrap().output(), format!("{plain} argument\n"));
}

#[test]
fn standard_input_is_bytes_a_pipe_or_empty() {
    let secret = vec![b'x'; 300_000];
    let bytes = |process: &mut Process| process.stdin = StdinKind::Bytes(secret.clone());
    assert_eq!(shell("wc -c", bytes).1.trim(), "300000");
    assert_eq!(shell("wc -c", |_| {}).1.trim(), "0");
    let mut bench = Bench::new();
    bench.start(batch(&["cat"], vec![Process { stdin: StdinKind::Pipe, ..Process::new(0) }]));
    let reported = bench.reported.get_mut(&0).unwrap();
    rustix::io::write(reported.fds.stdin.take().unwrap(), b"hello").unwrap();
    assert_eq!(reported.output(), "hello");
}

#[test]
fn a_rank_inherits_only_its_streams_and_its_pmi_socket() {
    // The last descriptor in the list is the one with which `ls` reads the directory.
    let (_, list) = shell("ls /proc/self/fd; echo $PMI_FD; echo hi >&3", |process| process.pmi = true);
    assert_eq!(list, "0\n1\n2\n3\n4\n3\n");
    assert_eq!(shell("ls /proc/self/fd; echo $PMI_FD", |_| {}).1, "0\n1\n2\n3\n\n");
    let mut bench = Bench::new();
    bench.run_batch(batch(&["sh", "-c", "echo hi >&3"], vec![Process { pmi: true, ..Process::new(0) }]));
    let pmi = bench.reported[&0].fds.pmi.as_ref().unwrap();
    let named: rustix::net::SocketAddrUnix = rustix::net::getsockname(pmi).unwrap().try_into().unwrap();
    assert!(named.abstract_name().unwrap().starts_with(&SERVER_NAME[1..]), "{named:?}");
    let mut buffer = [0u8; 8];
    let read = rustix::io::read(bench.reported[&0].fds.pmi.as_ref().unwrap(), &mut buffer[..]).unwrap();
    assert_eq!(&buffer[..read], b"hi\n");
    let again = rustix::io::read(bench.reported[&0].fds.stdout.as_ref().unwrap(), &mut buffer[..]);
    assert_eq!(again, Ok(0));
}

#[test]
fn a_terminal_serves_all_three_streams_and_controls_the_session() {
    let script = "tty; stty size; test -t 0 && test -t 2 && echo all; ps -o tty= -p $$ | cut -c1-4";
    let (_, output) = shell(script, |process| process.pty = Some((33, 99)));
    let lines: Vec<&str> = output.lines().map(str::trim_end).collect();
    assert!(lines[0].starts_with("/dev/pts/"), "{output}");
    assert_eq!(lines[1..], ["33 99", "all", "pts/"]);
}

#[test]
fn signals_reach_one_or_all_process_groups_even_during_start() {
    let mut bench = Bench::new();
    let sleepers = |first: u32| batch(&["sh", "-c", "sleep 100"], (first..first + 40).map(Process::new).collect());
    bench.start(sleepers(0));
    bench.request(&Request::Signal { slot: Some(7), signal: SIGTERM });
    bench.until(|bench| bench.reported[&7].exited.is_some());
    assert!(bench.reported.values().filter(|reported| reported.exited.is_some()).count() == 1);
    // The signal is sent in one write with the batch, so most processes have not been started when the signal is read.
    bench.keeper.request(&Request::Spawn(sleepers(100)));
    bench.request(&Request::Signal { slot: None, signal: SIGTERM });
    bench.until(|bench| bench.reported.len() == 80 && bench.reported.values().all(Reported::over));
    let terminated = ExitStatus::Signalled { signal: SIGTERM, core_dumped: false };
    assert!(bench.reported.values().all(|reported| reported.exited == Some(terminated)));
    // With SIGKILL the remaining processes are not started at all.
    bench.keeper.request(&Request::Spawn(sleepers(200)));
    bench.request(&Request::Signal { slot: None, signal: SIGKILL });
    bench.until(|bench| bench.reported.len() == 120 && bench.reported.values().all(Reported::over));
    assert!(bench.reported[&239].failed.as_ref().is_some_and(|error| error.errno == 125));
}

/// Forks a grandchild with another session and another parent, which is hard to find. Prints its pid.
const HIDE: &str =
    "setsid sh -c 'sh -c \"echo \\$\\$; exec sleep 1000\" & ' </dev/null; exec sleep 1000 >/dev/null 2>&1";

fn hidden(bench: &mut Bench, slot: u32) -> u32 {
    bench.start(batch(&["sh", "-c", HIDE], vec![Process::new(slot)]));
    let stdout = bench.reported[&slot].fds.stdout.as_ref().unwrap();
    assert!(socket::wait(stdout, true, false, Some(PATIENCE)).unwrap());
    let mut buffer = [0u8; 16];
    let read = rustix::io::read(stdout, &mut buffer[..]).unwrap();
    let pid: u32 = std::str::from_utf8(&buffer[..read]).unwrap().trim().parse().unwrap();
    assert_ne!(pid, bench.reported[&slot].pid);
    assert!(!gone(pid));
    pid
}

#[test]
fn a_sweep_kills_hidden_grandchildren_and_the_keeper_keeps_running() {
    let mut bench = Bench::new();
    let hidden = hidden(&mut bench, 0);
    bench.request(&Request::Sweep);
    bench.until(|bench| bench.swept == 1);
    assert!(gone(hidden));
    assert_eq!(bench.exit_of(0), ExitStatus::Signalled { signal: SIGKILL, core_dumped: false });
    bench.run_batch(batch(&["true"], vec![Process::new(1)]));
    assert_eq!(bench.exit_of(1), ExitStatus::Exited(0));
}

#[test]
fn an_agents_death_ends_its_keeper_and_all_its_processes() {
    let (near, far) = socket::pair().unwrap();
    let Fork::Parent { child: agent } = process::fork().unwrap() else {
        let mut bench = Bench::new();
        let hidden = hidden(&mut bench, 0);
        let pids = [bench.keeper.pid(), bench.reported[&0].pid, hidden].map(u32::to_le_bytes).concat();
        rustix::io::write(&far, &pids).unwrap();
        std::thread::sleep(2 * PATIENCE);
        leave(1);
    };
    assert!(socket::wait(&near, true, false, Some(PATIENCE)).unwrap());
    let mut pids = [0u8; 12];
    assert_eq!(rustix::io::read(&near, &mut pids[..]).unwrap(), 12);
    kill(agent, SIGKILL).unwrap();
    process::wait_for(agent).unwrap();
    for pid in pids.chunks_exact(4) {
        wait_until_gone(u32::from_le_bytes(pid.try_into().unwrap()));
    }
}

#[test]
fn a_keepers_death_ends_its_ranks_and_the_agent_kills_the_rest() {
    let Fork::Parent { child: agent } = process::fork().unwrap() else {
        process::set_subreaper().unwrap();
        let mut bench = Bench::new();
        let hidden = hidden(&mut bench, 0);
        let rank = bench.reported[&0].pid;
        kill(bench.keeper.pid(), SIGKILL).unwrap();
        while bench.alive == Alive::Yes {
            bench.turn();
        }
        process::wait_for(bench.keeper.pid()).unwrap();
        wait_until_gone(rank);
        while !gone(hidden) {
            process::kill_descendants(None, |_| false);
            process::reap();
        }
        leave(0);
    };
    assert_eq!(process::wait_for(agent).unwrap(), process::Ended::Exited(0));
}

#[test]
fn the_keeper_restores_the_terminal_of_a_dead_agent() {
    for is_raw_before_the_fork in [false, true] {
        let (_master, slave) = wireup_os::pty::open(24, 80).unwrap();
        let modes = || rustix::termios::tcgetattr(&slave).unwrap().local_modes;
        let echoes = || modes().contains(rustix::termios::LocalModes::ECHO);
        let saved = wireup_os::pty::SavedTerminal::save(&slave).unwrap();
        let Fork::Parent { child: agent } = process::fork().unwrap() else {
            rustix::stdio::dup2_stdin(&slave).unwrap();
            if is_raw_before_the_fork {
                saved.remember();
                saved.set_raw(&slave).unwrap();
            }
            let mut bench = Bench::new();
            saved.set_raw(&slave).unwrap();
            bench.request(&Request::RestoreTerminalOnDeath);
            // The answer to a later request proves that the keeper has read this request.
            bench.run_batch(batch(&["true"], vec![Process::new(0)]));
            leave(0);
        };
        process::wait_for(agent).unwrap();
        let start = std::time::Instant::now();
        while !echoes() {
            assert!(start.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn a_start_refused_by_the_kernel_does_not_stop_the_keeper() {
    let mut bench = Bench::new();
    let huge = vec![b'x'; 200 << 10];
    let argv = vec![b"true".to_vec(), huge];
    let programs = vec![Program { argv, ..program(&["true"]) }, program(&["true"])];
    let processes = vec![Process::new(0), Process { program: 1, ..Process::new(1) }];
    bench.run_batch(Batch { programs, processes, umask: 0, limits: open_files(64), ..Batch::default() });
    // The kernel limits a single argument to 128 KiB, so `exec` fails with E2BIG (7).
    assert_eq!(bench.reported[&0].failed.as_ref().map(|error| (error.step, error.errno)), Some((SpawnStep::Exec, 7)));
    assert_eq!(bench.exit_of(1), ExitStatus::Exited(0));
}

#[test]
fn closing_a_stopped_keeper_times_out() {
    let mut bench = Bench::new();
    bench.start(batch(&["sleep", "1000"], vec![Process::new(0)]));
    let (pid, rank) = (bench.keeper.pid(), bench.reported[&0].pid);
    kill(pid, SIGSTOP).unwrap();
    let closed = bench.keeper.told_to_leave().wait(Duration::from_millis(20));
    assert_eq!(closed.unwrap_err().kind(), io::ErrorKind::TimedOut);
    // After `SIGCONT` the keeper still kills the rank and exits.
    kill(pid, SIGCONT).unwrap();
    wait_until_gone(rank);
    assert_eq!(process::wait_for(pid).unwrap(), process::Ended::Exited(0));
}

#[test]
fn a_keeper_that_is_told_to_leave_is_not_waited_for() {
    let bench = Bench::new();
    let pid = bench.keeper.pid();
    kill(pid, SIGSTOP).unwrap();
    bench.keeper.leave();
    leaving::look();
    assert!(leaving::pids().contains(&pid) && leaving::deadline_ns().is_some());
    kill(pid, SIGCONT).unwrap();
    while leaving::pids().contains(&pid) {
        leaving::look();
        std::thread::sleep(Duration::from_millis(1));
    }
    // `close` has reaped the keeper: this process has no child left to wait for.
    assert_eq!(process::wait_for(pid).unwrap_err().raw_os_error(), Some(ECHILD));
}

const ECHILD: i32 = rustix::io::Errno::CHILD.raw_os_error();

/// A job of one rank that works in this folder, with an importer that is to be kept for later jobs.
pub fn importing(folder: &Path) -> Request {
    let python = concat!(env!("CARGO_MANIFEST_DIR"), "/src/keeper/tests/python3");
    let program = Program { cwd: folder.as_os_str().as_encoded_bytes().to_vec(), ..program(&[python, "program.py"]) };
    let preload = Preload { limit_ns: PATIENCE.as_nanos() as u64, required: true, keep: true, ..Preload::default() };
    let processes = vec![Process::new(0)];
    Request::Spawn(Batch { programs: vec![program], processes, preload: Some(preload), ..Batch::default() })
}

fn wait_until_importer_is_gone(folder: &Path) {
    wait_until_gone(std::fs::read_to_string(folder.join("importer")).unwrap().trim().parse().unwrap());
}

/// Starts the rank of the job [`importing`].
pub fn import(keeper: &mut Keeper, folder: &Path) {
    keeper.request(&importing(folder));
    assert!(keeper.flush().unwrap());
    let mut events = Vec::new();
    while !events.iter().any(|event| matches!(event, KeeperEvent::Started { .. })) {
        assert!(socket::wait(keeper.fd(), true, false, Some(PATIENCE)).unwrap(), "{events:?}");
        keeper.receive(&mut events).unwrap();
    }
}

#[test]
fn the_importer_of_a_job_that_still_starts_is_not_kept_after_a_request_to_drop_it() {
    let mut bench = Bench::new();
    let folder = tempfile::tempdir().unwrap();
    let wait = folder.path().join("wait");
    std::fs::write(&wait, "").unwrap();
    bench.request(&importing(folder.path()));
    bench.request(&Request::DropImporter);
    std::fs::remove_file(wait).unwrap();
    bench.until(|bench| bench.reported.contains_key(&0));
    assert_eq!(bench.reported[&0].failed, None);
    wait_until_importer_is_gone(folder.path());
    bench.keeper.close().unwrap();
}
