//! Tests of keepers in a PID namespace.

use super::*;
use std::fs;
use wireup_os::process::PidNamespace;

/// A keeper in a new PID namespace; `None`: this process may not make PID namespaces.
fn isolated() -> Option<Bench> {
    let bench = Bench::with_keeper(
        Keeper::fork_isolated(&PidNamespace::New { by_user: false }).unwrap().settled(Keeper::fork).unwrap(),
    );
    assert_eq!(bench.keeper.isolates(), process::may_isolate());
    bench.keeper.isolates().then_some(bench)
}

fn namespace(pid: u32) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap()
}

/// The processes of a namespace. A zombie belongs to no namespace.
fn members(namespace: &PathBuf) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|of| of == *namespace)).collect()
}

#[test]
fn pids_are_reported_as_the_agent_sees_them() {
    let Some(mut bench) = isolated() else { return };
    let ranks = (0..20).map(|slot| Process { stdin: StdinKind::Pipe, ..Process::new(slot) });
    bench.start(batch(&["cat"], ranks.collect()));
    let within = namespace(bench.keeper.pid());
    assert_ne!(within, namespace(std::process::id()));
    let pids: Vec<u32> = bench.reported.values().map(|reported| reported.pid).collect();
    for pid in pids {
        assert_eq!(namespace(pid), within);
        // The kernel shows the new arguments a moment after the program has begun.
        let shown = || fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        for _ in 0..5_000 {
            if shown() == "cat\0" {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(shown(), "cat\0");
    }
    let victim = bench.reported[&7].pid;
    kill(victim, SIGTERM).unwrap();
    bench.until(|bench| bench.reported[&7].exited.is_some());
    bench.request(&Request::Signal { slot: None, signal: SIGKILL });
    bench.until(|bench| bench.reported.values().all(Reported::over));
    bench.keeper.close().unwrap();
}

/// Programs look for themselves and for their peers in `/proc` by the numbers that `getpid` returns.
#[test]
fn proc_and_getpid_agree_and_numbers_differ_between_keepers() {
    let (Some(one), Some(other)) = (isolated(), isolated()) else { return };
    let script = "cat /proc/$$/comm; echo $$; ls -d /proc/[0-9]* | wc -l";
    let mut numbers = Vec::new();
    for mut bench in [one, other] {
        bench.run_batch(batch(&["sh", "-c", script], vec![Process::new(0)]));
        let output = bench.reported.get_mut(&0).unwrap().output();
        let lines: Vec<&str> = output.lines().collect();
        let [name, own, count] = lines[..] else { panic!("{output}") };
        // The keeper, the shell and the processes of the shell's pipeline.
        assert!(name == "sh" && count.parse::<u32>().unwrap() <= 5, "{output}");
        numbers.push(own.parse::<u32>().unwrap());
        bench.keeper.close().unwrap();
    }
    assert!(numbers[0].abs_diff(numbers[1]) > 100, "{numbers:?}");
}

#[test]
fn a_killed_keeper_leaves_no_process_although_nobody_ends_them() {
    let Some(mut bench) = isolated() else { return };
    let script = "trap '' HUP TERM INT; setsid sh -c 'sleep 1000 & wait' & (sleep 1000 &); echo ready; wait";
    bench.start(batch(&["sh", "-c", script], (0..4).map(Process::new).collect()));
    let within = namespace(bench.keeper.pid());
    let begun = std::time::Instant::now();
    while members(&within).len() < 1 + 4 * 4 {
        assert!(begun.elapsed() < PATIENCE, "{:?}", members(&within));
        std::thread::sleep(Duration::from_millis(2));
    }
    kill(bench.keeper.pid(), SIGKILL).unwrap();
    // The kernel kills all processes of the namespace before the keeper itself can be reaped.
    process::wait_for(bench.keeper.pid()).unwrap();
    assert_eq!(members(&within), [0; 0]);
}

#[test]
fn a_renewed_keeper_contains_its_next_job() {
    let Some(mut bench) = isolated() else { return };
    let daemon = "setsid sleep 1000 & echo";
    bench.run_batch(batch(&["sh", "-c", daemon], vec![Process::new(0)]));
    let within = namespace(bench.keeper.pid());
    bench.request(&Request::Renew);
    bench.until(|bench| bench.renewed == 1);
    assert_eq!(members(&within), [bench.keeper.pid()]);
    bench.reported.clear();
    bench.start(batch(&["sleep", "1000"], vec![Process::new(0)]));
    let mut found = members(&within);
    found.sort_unstable();
    let mut expected = [bench.keeper.pid(), bench.reported[&0].pid];
    expected.sort_unstable();
    assert_eq!(found, expected);
    bench.keeper.close().unwrap();
    assert_eq!(members(&within), [0; 0]);
}

#[test]
fn a_keeper_that_is_killed_before_it_has_settled_is_replaced_in_its_namespace() {
    let Some(first) = isolated() else { return };
    let of_first = PidNamespace::of(first.keeper.pid()).unwrap();
    // On a busy machine the keeper may have finished its setup before it is killed.
    let killed = || loop {
        let keeper = Keeper::fork_isolated(&of_first).unwrap();
        let process = process::open_pid(keeper.pid()).unwrap();
        kill(keeper.pid(), SIGKILL).unwrap();
        assert!(wireup_os::socket::wait(&process, true, false, Some(PATIENCE)).unwrap());
        if rustix::net::recv(&keeper.socket, &mut [0; 1], rustix::net::RecvFlags::PEEK).is_ok_and(|read| read.1 == 0) {
            return Ok(keeper);
        }
        keeper.close().unwrap();
    };
    let again = || Keeper::fork_isolated(&of_first);
    let second = killed().unwrap().settled(again).unwrap();
    assert_eq!(namespace(second.pid()), namespace(first.keeper.pid()));
    let third = killed().unwrap().settled(killed).unwrap();
    assert!(third.isolates() == (namespace(third.pid()) == namespace(first.keeper.pid())));
    [second, third, first.keeper].into_iter().for_each(|keeper| keeper.close().unwrap());
}
