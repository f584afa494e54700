//! The launcher's standard input, read only while the job can take more and this process is in the terminal's
//! foreground.

use crate::agent::token::Token;
use bytes::Bytes;
use rustix::buffer::spare_capacity;
use std::os::fd::BorrowedFd;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::{Interest, Reactor};

/// Interval at which a background process checks whether it is in the terminal's foreground (ns).
const ASK_NS: u64 = 250_000_000;

pub struct Stdin {
    token: Token,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The job needs no bytes now.
    Idle,
    /// The reactor watches for bytes; at most `bytes_max` are wanted.
    Watched {
        bytes_max: usize,
    },
    /// Standard input is a regular file: always ready, so the reactor cannot watch it.
    File {
        bytes_max: usize,
    },
    /// Another process group is in the terminal's foreground. No event reports when this process is moved to the
    /// foreground: a shell that does so for a running job sends no signal.
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

    /// Sets the number of bytes that the job can take; 0: the job takes no bytes for now.
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

    /// Checks again after a `SIGCONT`, since this process may be in the terminal's foreground now.
    pub fn on_continue(&mut self, reactor: &Reactor) {
        if let State::Background { bytes_max, .. } = self.state {
            self.want(bytes_max, reactor);
        }
    }

    /// Time at which [`Stdin::on_tick`] must be called (ns).
    pub fn deadline_ns(&self) -> Option<u64> {
        match self.state {
            State::File { .. } => Some(0),
            State::Background { ask_ns, .. } => Some(ask_ns),
            State::Idle | State::Watched { .. } | State::Ended => None,
        }
    }

    /// Checks again whether this process is in the foreground, if the time of the next check has come.
    pub fn on_tick(&mut self, reactor: &Reactor) {
        if let State::Background { bytes_max, ask_ns } = self.state
            && monotonic_ns() >= ask_ns
        {
            self.want(bytes_max, reactor);
        }
    }

    /// Whether standard input is a regular file, so that `read` must be called without an event.
    pub fn is_file(&self) -> bool {
        matches!(self.state, State::File { .. })
    }

    /// Reads once; empty: standard input has ended.
    pub fn read(&mut self, reactor: &Reactor) -> Option<Bytes> {
        let (State::Watched { bytes_max } | State::File { bytes_max }) = self.state else {
            return None;
        };
        if !in_foreground() {
            self.want(bytes_max, reactor);
            return None;
        }
        let mut buffer = Vec::with_capacity(bytes_max);
        let length = match rustix::io::read(fd(), spare_capacity(&mut buffer)) {
            Ok(length) => length,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return None,
            // A closed or broken standard input counts as ended.
            Err(_) => 0,
        };
        self.want(0, reactor);
        if length == 0 {
            self.state = State::Ended;
        }
        Some(Bytes::from(buffer))
    }
}

fn fd() -> BorrowedFd<'static> {
    rustix::stdio::stdin()
}

/// Whether this process may read standard input: reading a terminal from the background would stop it.
fn in_foreground() -> bool {
    match rustix::termios::tcgetpgrp(fd()) {
        Ok(group) => group == rustix::process::getpgrp(),
        // Standard input is not this process's controlling terminal, so reading does not stop the process.
        Err(_) => true,
    }
}
