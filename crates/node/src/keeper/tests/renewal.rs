//! Tests of keepers that serve several jobs in sequence.

use super::*;
use std::path::Path;

/// Everything that a job can leave in its keeper: orphans, directories, pending stops, descriptors.
#[test]
fn a_renewed_keeper_keeps_nothing_of_the_last_job() {
    let mut bench = Bench::new();
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("renewed");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("file"), "").unwrap();
    let pid = bench.keeper.pid();
    let fds = || std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    bench.run_batch(batch(&["true"], vec![Process::new(9)]));
    bench.reported.clear();
    let before = fds();
    for round in 1..=20 {
        let hidden = hidden(&mut bench, 0);
        bench.request(&Request::RemoveAtEnd { directory: directory.as_os_str().as_encoded_bytes().to_vec() });
        bench.request(&Request::RestoreTerminalOnDeath);
        bench.request(&Request::Renew);
        bench.until(|bench| bench.renewed == round);
        assert!(gone(hidden) && !directory.exists());
        assert_eq!(bench.exit_of(0), ExitStatus::Signalled { signal: SIGKILL, core_dumped: false });
        bench.reported.clear();
    }
    assert_eq!((fds(), bench.swept), (before, 0));
    bench.run_batch(batch(&["true"], vec![Process::new(1)]));
    assert_eq!(bench.exit_of(1), ExitStatus::Exited(0));
    bench.keeper.close().unwrap();
}

#[test]
fn renewal_cancels_pending_starts() {
    let mut bench = Bench::new();
    let script = "exec sleep 1000";
    bench.request(&Request::Spawn(batch(&["sh", "-c", script], (0..100).map(Process::new).collect())));
    bench.request(&Request::Renew);
    bench.until(|bench| bench.renewed == 1);
    assert_eq!(bench.reported.len(), 100);
    assert!(bench.reported.values().all(Reported::over));
}

fn unclaimed(directory: &Path) -> Request {
    let directory = directory.as_os_str().as_encoded_bytes().to_vec();
    Request::RemoveUnclaimed { directory, log: "log".into(), last_words: "last".into() }
}

#[test]
fn only_the_end_of_the_log_remains_of_an_unclaimed_directory() {
    for said in [0, 7, 5000] {
        let mut bench = Bench::new();
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path();
        std::fs::create_dir(directory.join("jobs")).unwrap();
        std::fs::write(directory.join("jobs/1"), "x").unwrap();
        std::fs::write(directory.join("log"), "-".repeat(said)).unwrap();
        // The process that holds the lock is about to exit, which releases the lock.
        let lock = std::fs::File::open(directory).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        bench.request(&unclaimed(directory));
        bench.request(&Request::Renew);
        bench.until(|bench| bench.renewed == 1);
        let ending = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(lock);
        });
        bench.keeper.close().unwrap();
        ending.join().unwrap();
        let left =
            std::fs::read_dir(directory).map(|entries| entries.map(|entry| entry.unwrap().file_name()).collect());
        let kept: Vec<std::ffi::OsString> = left.unwrap_or_default();
        assert_eq!((kept.len(), directory.exists()), (usize::from(said > 0), said > 0));
        let words = std::fs::read(directory.join("last")).unwrap_or_default();
        assert_eq!(words.len(), said.min(4096));
    }
}

#[test]
fn a_recreated_directory_is_not_removed() {
    let mut bench = Bench::new();
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path();
    bench.request(&unclaimed(directory));
    bench.request(&Request::Renew);
    bench.until(|bench| bench.renewed == 1);
    std::fs::remove_dir_all(directory).unwrap();
    std::fs::create_dir(directory).unwrap();
    bench.keeper.close().unwrap();
    assert!(directory.exists());
}

#[test]
fn only_an_unclaimed_directory_is_removed() {
    for claimed in [false, true] {
        let mut bench = Bench::new();
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path();
        std::fs::write(directory.join("socket"), "").unwrap();
        let lock = std::fs::File::open(directory).unwrap();
        if claimed {
            rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        }
        bench.request(&unclaimed(directory));
        bench.request(&Request::Renew);
        bench.until(|bench| bench.renewed == 1);
        assert!(directory.exists());
        bench.keeper.close().unwrap();
        assert_eq!(directory.exists(), claimed);
    }
}

#[test]
fn directories_of_a_killed_keeper_are_removed_when_it_is_closed() {
    let mut bench = Bench::new();
    let folder = tempfile::tempdir().unwrap();
    let [kept, removed] = ["kept", "removed"].map(|name| folder.path().join(name));
    std::fs::create_dir(&kept).unwrap();
    std::fs::create_dir(&removed).unwrap();
    let remove =
        |directory: &Path| Request::RemoveAtEnd { directory: directory.as_os_str().as_encoded_bytes().to_vec() };
    bench.request(&remove(&kept));
    bench.request(&Request::Renew);
    bench.until(|bench| bench.renewed == 1);
    // Another process may have created a directory of the same name again.
    std::fs::create_dir(&kept).unwrap();
    let pid = rustix::process::Pid::from_raw(bench.keeper.pid() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    // The agent has not noticed the death of the keeper yet.
    bench.keeper.request(&remove(&removed));
    bench.keeper.close().unwrap();
    assert!(kept.exists() && !removed.exists());
}
