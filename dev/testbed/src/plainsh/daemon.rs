//! The daemon of the plain remote shell on a node: all calls in one loop, one child for each.
//!
//! A turn costs one `poll` over the sockets, pipes and children of all calls. Nothing blocks: what a command or a
//! client does not take is kept, up to the window for input and up to `OUTPUT_MAX` for output.
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal};

use super::PAYLOAD_MAX;
use call::Call;

mod call;

/// The time between SIGHUP and SIGKILL for the process group of an abandoned command (chosen).
const GRACE: Duration = Duration::from_secs(1);

/// The variables that commands run with.
pub struct Surroundings {
    pub variables: Vec<(String, String)>,
}

/// Serves calls until it is killed.
pub fn serve(listener: &TcpListener, surroundings: &Surroundings) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut calls: Vec<Call> = Vec::new();
    let mut left: Vec<(Pid, Instant)> = Vec::new();
    let mut chunk = vec![0; PAYLOAD_MAX];
    loop {
        let mut watched: Vec<(BorrowedFd<'_>, PollFlags)> = vec![(listener.as_fd(), PollFlags::IN)];
        calls.iter().for_each(|call| call.watch(&mut watched));
        let mut fds: Vec<PollFd<'_>> =
            watched.iter().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        let timeout = left.iter().map(|(_, at)| *at).min().map(|at| at.saturating_duration_since(Instant::now()));
        wait(&mut fds, timeout)?;
        let accept = !fds[0].revents().is_empty();
        drop(fds);
        drop(watched);
        for call in &mut calls {
            call.turn(&mut chunk, surroundings);
        }
        while accept && let Ok((socket, _)) = listener.accept() {
            if let Ok(mut call) = Call::new(socket) {
                call.turn(&mut chunk, surroundings);
                calls.push(call);
            }
        }
        calls.retain_mut(|call| {
            left.extend(call.abandoned_group().map(|group| (group, Instant::now() + GRACE)));
            !call.is_over()
        });
        end_left(&mut left);
    }
}

fn wait(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
    match poll(fds, timeout.as_ref()) {
        Err(rustix::io::Errno::INTR) => Ok(()),
        result => result.map(drop).map_err(Into::into),
    }
}

fn end_left(left: &mut Vec<(Pid, Instant)>) {
    let now = Instant::now();
    left.retain(|(group, at)| {
        if *at <= now {
            let _ = rustix::process::kill_process_group(*group, Signal::KILL);
        }
        *at > now
    });
}
