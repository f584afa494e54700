//! Rights that programs of ranks get by their set-user-ID bits, and wireup's processes, which must not get such rights.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use wireup_e2e::folders::Folder;
use wireup_e2e::sessions::status_of;
use wireup_e2e::strangers::{Public, can_be_stranger, stranger};
use wireup_e2e::{Run, wireup};

/// Longest wait, even on a loaded machine; only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(30);

fn await_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        match look() {
            Some(found) => return found,
            None if Instant::now() > until => panic!("gave up waiting for {what}"),
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn child_of(parent: Pid, name: &str) -> Option<Pid> {
    let parent = parent.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    let is_it = |pid: &&str| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
    Pid::from_raw(children.split_whitespace().find(is_it)?.parse().ok()?)
}

/// The kernel does not signal its parent's death to a set-user-ID program, so the agent ends such a rank when the
/// rank's keeper was killed.
#[test]
fn a_set_user_id_rank_does_not_outlive_a_killed_keeper() {
    if !can_be_stranger() {
        return;
    }
    let public = Public::new("set-user-id");
    let (wireup, program) = (public.program(&wireup()), public.program(Path::new("/bin/sleep")));
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("its bits");
    let mut job = stranger(&wireup);
    job.args(["run", "-n", "1", "--pmi", "simple", "--wdir", "/"]).arg(&program).arg("1000");
    let launcher =
        job.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("wireup starts");
    let keeper = await_some("the keeper", || child_of(Pid::from_child(&launcher), "wireup-keeper"));
    let rank = await_some("the rank", || child_of(keeper, "sleep"));
    let status = format!("/proc/{}/status", rank.as_raw_nonzero());
    let users = fs::read_to_string(&status).unwrap_or_default();
    let users = users.lines().find(|line| line.starts_with("Uid:")).unwrap_or_default().to_owned();
    if !users.contains("\t0\t0\t0") {
        println!("SKIPPED: set-user-ID bits have no effect in {}: {users}", program.display());
    }
    kill_process(keeper, Signal::KILL).expect("send the signal");
    let outcome = launcher.wait_with_output().expect("wireup ends");
    // A rank that was killed is there until the kernel and its new parent have cleared it up.
    let is_left = !(0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        !Path::new(&status).exists()
    });
    // If the rank has survived, nothing else ends it.
    let _ = kill_process(rank, Signal::KILL);
    assert!(!is_left && outcome.status.code() == Some(125), "{outcome:?}");
}

#[test]
fn receivers_of_staged_files_cannot_get_privileges_and_ranks_can() {
    let folder = Folder::new("staging");
    let store = folder.at("store").display().to_string();
    let mut receiver = Run::wireup(["stage-node", "receive", &store]).stdin_open().start();
    receiver.await_that("a receiver without a way to privileges", |receiver| {
        status_of(receiver.pid(), "status", "NoNewPrivs:") == 1
    });
    receiver.close_stdin();
    receiver.finish();
    let rank = Run::job("-n 1").sh("grep NoNewPrivs /proc/self/status").succeed();
    let own = fs::read_to_string("/proc/self/status").expect("/proc");
    let own = own.lines().find(|line| line.starts_with("NoNewPrivs")).expect("a line of the kernel's");
    assert_eq!(rank.out().trim(), own);
}
