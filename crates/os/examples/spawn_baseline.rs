//! Compares the spawner with a baseline: one process that calls `vfork` in a loop.
//!
//! `cargo run --release -p wireup-os --example spawn_baseline -- PROGRAM [COUNT] [ROUNDS]`. The baseline spawns
//! children with inherited streams. Each of the spawner's children gets two pipes and a socket pair; their near ends
//! are sent to another process in messages, as a keeper does. Prints the milliseconds until the last child is reaped.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;
use wireup_os::clock::monotonic_ns;
use wireup_os::process::{Fork, Reaped, block_all_signals, fork, leave, reap, reset_dispositions};
use wireup_os::spawn::{Command, Limits, Program, Session, Spawner};
use wireup_os::{files, socket};

/// Descriptors sent in one message.
const FREIGHT: usize = 48;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("usage: spawn_baseline PROGRAM [COUNT] [ROUNDS]");
    let count: u32 = arguments.next().map_or(1024, |count| count.parse().expect("a number"));
    let rounds: u32 = arguments.next().map_or(5, |rounds| rounds.parse().expect("a number"));
    reset_dispositions(&[]);
    let _ = block_all_signals();
    let environment: Vec<Vec<u8>> = std::env::vars().map(|(name, value)| format!("{name}={value}").into()).collect();
    let program = Rc::new(Program::new(path.as_bytes(), &[path.clone().into()], None, &environment).expect("no zero"));
    let cpus = wireup_os::bind::allowed().expect("affinity").len();
    let mut medians: Vec<(String, Vec<f64>)> = Vec::new();
    for _ in 0..rounds {
        let mut note = |name: String, ms: f64| match medians.iter_mut().find(|(known, _)| *known == name) {
            Some((_, samples)) => samples.push(ms),
            None => medians.push((name, vec![ms])),
        };
        note("vfork, inherited streams".into(), vfork(&path, count));
        note("one at a time, nothing extra".into(), spawner(&program, count, 1, false));
        for per_cpu in [1, 2, 4, 8] {
            let name = format!("spawner, {} at once, pipes, PMI sockets", per_cpu * cpus);
            note(name, spawner(&program, count, per_cpu * cpus, true));
        }
    }
    let baseline = median(&mut medians[0].1);
    for (name, samples) in &mut medians {
        let ms = median(samples);
        println!("{name:45} {ms:8.1} ms {:6.2} x", ms / baseline);
    }
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// The baseline: `vfork` and `execve` in a loop.
fn vfork(path: &str, count: u32) -> f64 {
    let path = std::ffi::CString::new(path).expect("no zero");
    let argv = [path.as_ptr(), std::ptr::null()];
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    let start = monotonic_ns();
    for _ in 0..count {
        // SAFETY: the child runs in our memory and on our stack while we wait; it only calls `execve` or `_exit`.
        unsafe {
            #[expect(deprecated, reason = "the baseline is vfork")]
            match libc::vfork() {
                0 => {
                    libc::execve(path.as_ptr(), argv.as_ptr(), environ);
                    libc::_exit(127)
                }
                pid => assert!(pid > 0, "vfork failed"),
            }
        }
        while let Reaped::Child { .. } = reap() {}
    }
    finish(start)
}

fn spawner(program: &Rc<Program>, count: u32, at_once: usize, full: bool) -> f64 {
    let mut null = Vec::new();
    while null.len() < 6 {
        null.push(files::null().expect("/dev/null"));
    }
    let null = null.pop().expect("six were pushed");
    let sink = full.then(sink);
    let mut freight: Vec<OwnedFd> = Vec::new();
    let start = monotonic_ns();
    let mut spawner = Spawner::new(at_once).expect("memory");
    for token in 0..count {
        while !spawner.has_room() {
            spawner.wait_oldest(Duration::from_millis(2));
            while let Some(executed) = spawner.poll() {
                assert_eq!(executed.result, Ok(()));
            }
        }
        let (mut stdout, mut stderr, mut pmi) = (None, None, None);
        if full {
            for (child, near) in [&mut stdout, &mut stderr].into_iter().zip([files::pipe(), files::pipe()]) {
                let (reader, writer) = near.expect("pipe");
                freight.push(reader);
                *child = Some(writer);
            }
            let (near, far) = socket::pair().expect("socket pair");
            freight.push(near);
            pmi = Some(far);
        }
        let command = Command {
            program,
            environment: &[],
            stdio: [null.as_fd(), stdout.as_ref().unwrap_or(&null).as_fd(), stderr.as_ref().unwrap_or(&null).as_fd()],
            extra: [pmi.as_ref().map(AsFd::as_fd), None],
            session: Session::Own,
            cpus: None,
            umask: 0o22,
            limits: &Limits::default(),
            more_follow: false,
        };
        spawner.start(&command, token).expect("clone");
        if freight.len() >= FREIGHT {
            send(sink.as_ref().expect("full"), &mut freight);
        }
        while let Reaped::Child { .. } = reap() {}
    }
    if let Some(sink) = &sink {
        send(sink, &mut freight);
    }
    drop(spawner);
    let ms = finish(start);
    drop(sink);
    while reap() != Reaped::NoChildren {
        std::thread::sleep(Duration::from_millis(1));
    }
    ms
}

/// Reaps children until none is left except the sink, if there is one.
fn finish(start: u64) -> f64 {
    loop {
        match reap() {
            Reaped::Child { .. } => {}
            Reaped::NoneEnded if wireup_os::process::descendants().len() > 1 => std::thread::yield_now(),
            Reaped::NoneEnded | Reaped::NoChildren => return (monotonic_ns() - start) as f64 / 1e6,
        }
    }
}

/// Forks a process that receives descriptors and closes them.
fn sink() -> OwnedFd {
    let (near, far) = socket::pair().expect("socket pair");
    match fork().expect("fork") {
        Fork::Parent { .. } => near,
        Fork::Child => {
            drop(near);
            let mut fds = std::collections::VecDeque::new();
            while socket::wait(&far, true, false, None).is_ok() {
                if socket::receive(&far, &mut [0; 64], &mut fds).is_ok_and(|bytes| bytes == 0) {
                    break;
                }
                fds.clear();
            }
            leave(0)
        }
    }
}

fn send(sink: &OwnedFd, freight: &mut Vec<OwnedFd>) {
    let fds: Vec<BorrowedFd<'_>> = freight.iter().map(AsFd::as_fd).collect();
    if !fds.is_empty() {
        socket::send(sink, b"f", &fds).expect("the sink accepts every message");
    }
    freight.clear();
}
