//! Whose session, and so whose scheduling group, the processes of a keeper are in.

use super::*;

fn rank(slot: u32) -> Process {
    Process { is_rank: true, ..Process::new(slot) }
}

/// Fields of `/proc/PID/stat` behind the name: state, parent, process group, session.
fn stat(pid: u32) -> Vec<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat[stat.rfind(')').unwrap() + 1..].split_ascii_whitespace().take(4).map(str::to_owned).collect()
}

fn session(pid: u32) -> String {
    stat(pid).pop().unwrap()
}

/// The scheduling group; `None`: a kernel without autogroups.
fn autogroup(pid: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{pid}/autogroup")).ok()
}

#[test]
fn ranks_share_a_scheduling_group_that_is_their_jobs() {
    let mut bench = Bench::new();
    let with_terminal = Process { pty: Some((24, 80)), ..rank(2) };
    bench.start(batch(&["sleep", "1000"], vec![rank(0), rank(1), with_terminal, Process::new(3)]));
    let keeper = bench.keeper.pid();
    let pids: Vec<u32> = bench.told.values().map(|told| told.pid).collect();
    for &pid in &pids[..2] {
        assert_eq!((session(pid), autogroup(pid)), (session(keeper), autogroup(keeper)));
        assert_eq!(stat(pid)[2], pid.to_string(), "signals go to groups");
    }
    assert_eq!(session(keeper), keeper.to_string(), "another job's keeper has another one");
    for &pid in &pids[2..] {
        assert_eq!(session(pid), pid.to_string(), "a terminal, or an agent, has its own");
    }
    bench.keeper.close().unwrap();
    pids.into_iter().for_each(wait_until_gone);
}

/// Runs a test in a child that leads a session of its own, as an agent does that a remote shell has started.
fn as_leader(test: impl FnOnce()) {
    match process::fork_with_signals_blocked().unwrap() {
        Fork::Child => {
            process::new_session().unwrap();
            let passed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test)).is_ok();
            process::leave(if passed { 0 } else { 1 });
        }
        Fork::Parent { child } => assert_eq!(process::wait_for(child).unwrap(), process::Ended::Exited(0)),
    }
}

#[test]
fn the_agent_of_a_single_job_shares_its_group_with_the_ranks() {
    as_leader(|| {
        let mut bench = Bench { keeper: Keeper::fork(Group::Agents).unwrap(), ..Bench::new() };
        bench.start(batch(&["sleep", "1000"], vec![rank(0)]));
        let (own, keeper, pid) = (process::own_pid(), bench.keeper.pid(), bench.told[&0].pid);
        for of in [keeper, pid] {
            assert_eq!((session(of), autogroup(of)), (session(own), autogroup(own)));
            assert_eq!(stat(of)[2], of.to_string(), "signals go to groups");
        }
        bench.keeper.close().unwrap();
        wait_until_gone(pid);
    });
}

/// The user's shell leads the session of a launcher: what is sent to all of it is not for the ranks.
#[test]
fn in_a_session_of_somebody_else_the_keeper_makes_its_own() {
    as_leader(|| match process::fork_with_signals_blocked().unwrap() {
        Fork::Child => {
            let keeper = Keeper::fork(Group::Agents).unwrap();
            let pid = keeper.pid();
            let start = std::time::Instant::now();
            while session(pid) != pid.to_string() {
                assert!(start.elapsed() < PATIENCE, "it stays");
                std::thread::sleep(Duration::from_millis(2));
            }
            keeper.close().unwrap();
            process::leave(0);
        }
        Fork::Parent { child } => assert_eq!(process::wait_for(child).unwrap(), process::Ended::Exited(0)),
    });
}

/// The kernel ignores it for a group that nobody else in the session could continue.
#[test]
fn a_rank_can_stop_itself_as_a_terminal_does() {
    let mut bench = Bench::new();
    bench.start(batch(&["sh", "-c", "kill -TSTP $$; exit 3"], vec![rank(0)]));
    let pid = bench.told[&0].pid;
    let start = std::time::Instant::now();
    while stat(pid)[0] != "T" {
        assert!(start.elapsed() < PATIENCE, "it goes on");
        std::thread::sleep(Duration::from_millis(2));
    }
    bench.request(&Request::Signal { slot: Some(0), signal: SIGCONT });
    bench.until(|bench| bench.told[&0].over());
    assert_eq!(bench.exit_of(0), ExitStatus::Exited(3));
    bench.keeper.close().unwrap();
}

#[test]
fn a_stopped_rank_ends_with_its_keeper() {
    let mut bench = Bench::new();
    bench.start(batch(&["sh", "-c", "trap '' HUP TERM; kill -STOP $$; sleep 1000"], vec![rank(0)]));
    let pid = bench.told[&0].pid;
    kill(bench.keeper.pid(), SIGKILL).unwrap();
    process::wait_for(bench.keeper.pid()).unwrap();
    wait_until_gone(pid);
}
