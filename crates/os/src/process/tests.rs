//! Tests of process settings, each in a forked child.

use super::*;

/// Runs `body` in a forked child; it must return true.
fn in_child(body: impl FnOnce() -> bool) {
    match fork().unwrap() {
        Fork::Child => {
            let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(false);
            leave(if good { 0 } else { 1 })
        }
        Fork::Parent { child } => assert_eq!(wait_for(child).unwrap(), Ended::Exited(0)),
    }
}

fn sleep_until_killed() -> ! {
    loop {
        std::thread::sleep(std::time::Duration::from_secs(60));
    }
}

#[test]
fn exit_codes_and_signals_are_distinguished() {
    for code in [0u8, 7, 255] {
        let Fork::Parent { child } = fork().unwrap() else { leave(i32::from(code)) };
        assert_eq!(wait_for(child).unwrap(), Ended::Exited(code));
    }
    let Fork::Parent { child } = fork().unwrap() else { sleep_until_killed() };
    kill(child, libc::SIGKILL).unwrap();
    assert_eq!(wait_for(child).unwrap(), Ended::Signalled { signal: 9, core_dumped: false });
    assert_eq!(wait_for(child).unwrap_err().raw_os_error(), Some(libc::ECHILD));
}

#[test]
fn a_blocked_signal_is_read_from_its_descriptor() {
    in_child(|| {
        let _ = block_all_signals();
        let signals = SignalFd::new(&[libc::SIGUSR1]).unwrap();
        let is_pending = || signals.is_pending(libc::SIGUSR1);
        let before = signals.read().is_none() && !is_pending();
        kill(own_pid(), libc::SIGUSR1).unwrap();
        before && is_pending() && signals.read() == Some(libc::SIGUSR1) && signals.read().is_none() && !is_pending()
    });
}

#[test]
fn a_pending_stop_stops_a_process_unless_it_was_continued_since() {
    let Fork::Parent { child } = fork().unwrap() else {
        // The kernel does not stop a process group that no shell could continue.
        let _ = rustix::process::setpgid(None, None);
        let stop = SignalFd::new(&[libc::SIGTSTP]).unwrap();
        let _ = (kill(own_pid(), libc::SIGTSTP), kill(own_pid(), libc::SIGCONT));
        deliver(libc::SIGTSTP);
        let _ = kill(own_pid(), libc::SIGTSTP);
        let is_pending = stop.is_pending(libc::SIGTSTP);
        deliver(libc::SIGTSTP);
        leave(i32::from(!is_pending || stop.is_pending(libc::SIGTSTP)))
    };
    let pid = Pid::from_raw(child as i32);
    let wait = || rustix::process::waitpid(pid, WaitOptions::UNTRACED).unwrap().unwrap().1;
    let first = wait();
    kill(child, libc::SIGCONT).unwrap();
    let second = wait();
    let _ = second.stopped().then(|| kill(child, libc::SIGKILL));
    assert!(first.stopped() && second.exit_status() == Some(0), "{first:?}, then {second:?}");
}

#[test]
fn a_subreaper_kills_and_reaps_orphaned_grandchildren() {
    in_child(|| {
        set_subreaper().unwrap();
        let Fork::Parent { child } = fork().unwrap() else {
            if let Fork::Child = fork().unwrap() {
                let _ = rustix::process::setsid();
                sleep_until_killed()
            }
            leave(0);
        };
        wait_for(child).unwrap();
        let mut reaped = 0;
        loop {
            match reap() {
                Reaped::Child { .. } => reaped += 1,
                Reaped::NoneEnded => drop(kill_descendants(None, |_| false)),
                Reaped::NoChildren => return reaped == 1,
            }
        }
    });
}

#[test]
fn only_younger_descendants_that_are_not_spared_are_killed() {
    in_child(|| {
        let sleeping = || match fork().unwrap() {
            Fork::Parent { child } => child,
            Fork::Child => sleep_until_killed(),
        };
        let child = sleeping();
        let born = start_ticks(child).unwrap();
        let spared = kill_descendants(Some(born + 1), |_| false) == Killed::default() && reap() == Reaped::NoneEnded;
        let spared = spared && kill_descendants(Some(born), |pid| pid == child) == Killed::default();
        let killed = kill_descendants(Some(born), |_| false).killed == 1;
        spared && killed && wait_for(child).unwrap() == Ended::Signalled { signal: 9, core_dumped: false }
    });
}

#[test]
fn the_soft_limit_of_open_files_is_raised() {
    in_child(|| {
        let hard = rustix::process::getrlimit(Resource::Nofile).maximum;
        rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum: hard }).unwrap();
        let raised = raise_open_files().unwrap();
        raised == OpenFiles { soft_before: 64, soft_now: hard.unwrap_or(u64::MAX) }
            && rustix::process::getrlimit(Resource::Nofile).current == hard
    });
}

#[test]
fn ignored_signals_are_detected_and_may_stay_ignored() {
    in_child(|| {
        reset_dispositions(&[]);
        let all_default = (1..32).all(|signal| !is_ignored(signal));
        for signal in [libc::SIGHUP, libc::SIGINT] {
            // SAFETY: installs no handler.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        let seen = [libc::SIGHUP, libc::SIGINT].into_iter().all(is_ignored);
        reset_dispositions(&[libc::SIGHUP]);
        all_default && seen && is_ignored(libc::SIGHUP) && !is_ignored(libc::SIGINT)
    });
}

#[test]
fn closed_standard_streams_become_null_and_open_ones_stay() {
    use crate::files::{close_all_but, fill_standard_streams, null, pipe};
    use std::os::fd::{AsFd, AsRawFd};
    in_child(|| {
        let (reader, writer) = pipe().unwrap();
        rustix::stdio::dup2_stdin(&reader).unwrap();
        close_all_but(&[rustix::stdio::stdin(), writer.as_fd()]);
        std::mem::forget(reader);
        let filled = fill_standard_streams().is_ok() && fill_standard_streams().is_ok();
        let written = rustix::io::write(&writer, b"x") == Ok(1);
        let kept = rustix::io::read(rustix::stdio::stdin(), &mut [0; 2][..]) == Ok(1);
        let high = null().is_ok_and(|next| next.as_raw_fd() > 2);
        let null = rustix::io::write(rustix::stdio::stderr(), b"x") == Ok(1)
            && rustix::io::read(rustix::stdio::stdout(), &mut [0; 2][..]) == Ok(0);
        filled && written && kept && null && high
    });
}

#[test]
fn the_ancestor_started_with_a_variable_is_found() {
    // In a forked child, the variable is found in its parent, which is this process.
    let environment = std::fs::read("/proc/self/environ").unwrap();
    let known = environment.split(|byte| *byte == 0).find(|pair| !pair.is_empty()).expect("some variable").to_vec();
    in_child(|| {
        eldest_with(&known).is_some()
            && eldest_with(&known[..known.len() - 1]).is_none()
            && eldest_with(b"NO_SUCH=VARIABLE").is_none()
    });
}

#[test]
fn a_wait_for_a_child_ends_at_its_limit_with_and_without_descriptors() {
    for has_descriptors in [true, false] {
        in_child(|| {
            let Fork::Parent { child } = fork().unwrap() else { sleep_until_killed() };
            // With a limit of 0 descriptors no pidfd can be opened, as with Linux before 5.3.
            if !has_descriptors {
                let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
                rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum }).unwrap();
            }
            let first = wait_for_within(child, Duration::from_millis(5));
            kill(child, libc::SIGKILL).unwrap();
            let second = wait_for_within(child, Duration::from_secs(60));
            first.unwrap_err().kind() == io::ErrorKind::TimedOut
                && second.unwrap() == Ended::Signalled { signal: 9, core_dumped: false }
        });
    }
}

#[test]
fn a_process_with_threads_is_not_forked() {
    let problem = expect_one_thread().unwrap_err().to_string();
    assert!(problem.contains(" threads; "), "{problem}");
    in_child(|| {
        THREADS_ALLOWED.store(false, Ordering::Relaxed);
        let Ok(Fork::Parent { child }) = fork() else { leave(0) };
        let alone = wait_for(child).is_ok();
        let (parked, waiting) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || waiting.recv().is_ok());
        let refused = fork().is_err();
        drop(parked);
        let joined = thread.join().is_ok();
        let Ok(Fork::Parent { child }) = fork() else { leave(0) };
        alone && refused && joined && wait_for(child).is_ok()
    });
}
