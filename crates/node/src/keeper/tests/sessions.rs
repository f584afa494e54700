//! Tests of the kernel session, and so the scheduling group, of a keeper's processes.

use super::*;

fn rank(slot: u32) -> Process {
    Process { shares_session: true, ..Process::new(slot) }
}

/// A process that stands in for a PMIx server process.
fn server() -> Process {
    Process { shares_session: true, ..Process::new(protocol::SERVER_SLOT) }
}

/// A keeper in this test's kernel session.
fn beside() -> Bench {
    let mut keeper = Keeper::fork().unwrap();
    keeper.begin_kernel_session(KernelSession::Agents);
    Bench::with_keeper(keeper)
}

/// Fields of `/proc/PID/stat` after the name: state, parent, process group, session.
fn stat(pid: u32) -> Vec<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat[stat.rfind(')').unwrap() + 1..].split_ascii_whitespace().take(4).map(str::to_owned).collect()
}

fn session(pid: u32) -> String {
    stat(pid).pop().unwrap()
}

/// The autogroup (scheduling group) of a process; `None`: the kernel has no autogroups.
fn autogroup(pid: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{pid}/autogroup")).ok()
}

#[test]
fn ranks_share_the_keepers_session_and_scheduling_group() {
    let mut bench = Bench::new();
    let with_terminal = Process { pty: Some((24, 80)), ..rank(2) };
    bench.start(batch(&["sleep", "1000"], vec![rank(0), rank(1), with_terminal, Process::new(3)]));
    let keeper = bench.keeper.pid();
    let pids: Vec<u32> = bench.reported.values().map(|reported| reported.pid).collect();
    for &pid in &pids[..2] {
        assert_eq!((session(pid), autogroup(pid)), (session(keeper), autogroup(keeper)));
        assert_eq!(stat(pid)[2], pid.to_string(), "each rank leads a process group, for signals");
    }
    assert_eq!(session(keeper), keeper.to_string(), "a keeper leads a session of its own");
    for &pid in &pids[2..] {
        assert_eq!(session(pid), pid.to_string(), "a rank with a terminal, or an agent, leads a session of its own");
    }
    bench.keeper.close().unwrap();
    pids.into_iter().for_each(wait_until_gone);
}

#[test]
fn a_job_with_a_pmix_server_shares_the_agents_session_and_scheduling_group() {
    let mut bench = beside();
    bench.start(batch(&["sleep", "1000"], vec![server()]));
    bench.start(batch(&["sleep", "1000"], vec![rank(0)]));
    let (own, keeper) = (process::own_pid(), bench.keeper.pid());
    assert_eq!(stat(keeper)[2], keeper.to_string(), "a keeper leads a process group");
    let pids: Vec<u32> = bench.reported.values().map(|reported| reported.pid).collect();
    for pid in pids.iter().copied().chain([keeper]) {
        assert_eq!((session(pid), autogroup(pid)), (session(own), autogroup(own)));
    }
    bench.keeper.close().unwrap();
    pids.into_iter().for_each(wait_until_gone);
}

#[test]
fn a_keeper_begins_a_session_before_it_starts_processes() {
    let mut bench = Bench::new();
    let keeper = bench.keeper.pid();
    assert_eq!(session(keeper), session(process::own_pid()));
    bench.keeper.flush().unwrap();
    let start = std::time::Instant::now();
    while session(keeper) != keeper.to_string() {
        assert!(start.elapsed() < PATIENCE, "it begins no session");
        std::thread::sleep(Duration::from_millis(2));
    }
    bench.keeper.close().unwrap();
}

/// A rank can stop only because another process of its session could continue it: otherwise the kernel ignores
/// `SIGTSTP`.
#[test]
fn a_rank_can_stop_itself_with_sigtstp() {
    for with_server in [false, true] {
        let mut bench = if with_server { beside() } else { Bench::new() };
        if with_server {
            bench.start(batch(&["sleep", "1000"], vec![server()]));
        }
        bench.start(batch(&["sh", "-c", "kill -TSTP $$; exit 3"], vec![rank(0)]));
        let pid = bench.reported[&0].pid;
        let start = std::time::Instant::now();
        while stat(pid)[0] != "T" {
            assert!(start.elapsed() < PATIENCE, "the rank does not stop, with a PMIx server: {with_server}");
            std::thread::sleep(Duration::from_millis(2));
        }
        bench.request(&Request::Signal { slot: Some(0), signal: SIGCONT });
        bench.until(|bench| bench.reported[&0].over());
        assert_eq!(bench.exit_of(0), ExitStatus::Exited(3));
        bench.keeper.close().unwrap();
    }
}

#[test]
fn a_stopped_rank_ends_with_its_keeper() {
    let mut bench = Bench::new();
    bench.start(batch(&["sh", "-c", "trap '' HUP TERM; kill -STOP $$; sleep 1000"], vec![rank(0)]));
    let pid = bench.reported[&0].pid;
    kill(bench.keeper.pid(), SIGKILL).unwrap();
    process::wait_for(bench.keeper.pid()).unwrap();
    wait_until_gone(pid);
}
