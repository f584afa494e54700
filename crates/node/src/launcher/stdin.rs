//! The launcher's standard input: read only while the job may take more, and only while the terminal is ours.

use crate::agent::token::Token;
use bytes::Bytes;
use std::os::fd::BorrowedFd;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::{Interest, Reactor};

/// In the background, how often to ask whose the terminal is.
const ASK_NS: u64 = 250_000_000;

pub struct Stdin {
    token: Token,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nobody wants bytes.
    Idle,
    /// The reactor tells when there are bytes; this many are wanted.
    Watched {
        bytes_max: usize,
    },
    /// A regular file: always ready, not for the reactor.
    File {
        bytes_max: usize,
    },
    /// A terminal that belongs to another process group now. Nothing tells when it is ours again: a shell that takes a
    /// running job to the foreground sends no signal.
    Background {
        bytes_max: usize,
        ask_ns: u64,
    },
    Ended,
}

impl Stdin {
    pub fn new(token: Token) -> Self {
        Stdin { token, state: State::Idle }
    }

    /// The job may take `bytes_max` bytes; 0: none for now.
    pub fn want(&mut self, bytes_max: usize, reactor: &Reactor) {
        if self.state == State::Ended {
            return;
        }
        if let State::Watched { .. } = self.state {
            let _ = reactor.remove(fd());
        }
        self.state = match bytes_max {
            0 => State::Idle,
            _ if !in_foreground() => State::Background { bytes_max, ask_ns: monotonic_ns() + ASK_NS },
            _ if reactor.add(fd(), self.token.pack(), Interest::READABLE).is_ok() => State::Watched { bytes_max },
            _ => State::File { bytes_max },
        };
    }

    /// The process goes on after a stop: the terminal may be ours again.
    pub fn on_continue(&mut self, reactor: &Reactor) {
        if let State::Background { bytes_max, .. } = self.state {
            self.want(bytes_max, reactor);
        }
    }

    /// When [`Stdin::on_tick`] has something to do.
    pub fn deadline_ns(&self) -> Option<u64> {
        match self.state {
            State::File { .. } => Some(0),
            State::Background { ask_ns, .. } => Some(ask_ns),
            State::Idle | State::Watched { .. } | State::Ended => None,
        }
    }

    /// Asks again whose the terminal is, if it is time.
    pub fn on_tick(&mut self, reactor: &Reactor) {
        if let State::Background { bytes_max, ask_ns } = self.state
            && monotonic_ns() >= ask_ns
        {
            self.want(bytes_max, reactor);
        }
    }

    /// Whether `read` has something to do without the reactor's word.
    pub fn is_file(&self) -> bool {
        matches!(self.state, State::File { .. })
    }

    /// Reads once; empty: the end.
    pub fn read(&mut self, reactor: &Reactor) -> Option<Bytes> {
        let (State::Watched { bytes_max } | State::File { bytes_max }) = self.state else {
            return None;
        };
        if !in_foreground() {
            self.want(bytes_max, reactor);
            return None;
        }
        let mut buffer = vec![0; bytes_max];
        let length = match rustix::io::read(fd(), buffer.as_mut_slice()) {
            Ok(length) => length,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return None,
            // A closed or broken input has no bytes.
            Err(_) => 0,
        };
        self.want(0, reactor);
        if length == 0 {
            self.state = State::Ended;
        }
        buffer.truncate(length);
        Some(Bytes::from(buffer))
    }
}

fn fd() -> BorrowedFd<'static> {
    rustix::stdio::stdin()
}

/// Reading a terminal from the background would stop us.
fn in_foreground() -> bool {
    match rustix::termios::tcgetpgrp(fd()) {
        Ok(group) => group == rustix::process::getpgrp(),
        // No terminal, or not our controlling one: nobody stops us.
        Err(_) => true,
    }
}
