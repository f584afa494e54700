//! Where the ranks' standard input comes from: the launcher's standard input, read only while the job can take more and
//! this process is in the terminal's foreground; or code in this process.

use crate::agent::token::Token;
use bytes::Bytes;
use rustix::buffer::spare_capacity;
use std::os::fd::BorrowedFd;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::{Interest, Reactor};
use wireup_proto::io::Stream;
use wireup_wire::ids::Rank;

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

/// Code that produces the ranks' standard input, the same for all ranks, and consumes their output.
pub trait Program {
    /// The next input, at most `bytes_max` bytes. After `Next::Waits`, `input` is called again when a rank has written
    /// something.
    fn input(&mut self, bytes_max: usize) -> Next;
    /// Handles what a rank has written to its standard output.
    fn output(&mut self, rank: Rank, bytes: &[u8]);
    /// Handles what a rank has written to its standard error. `false`: the program did not use the bytes, so they are
    /// written to the standard error of this process.
    fn errors(&mut self, _rank: Rank, _bytes: &[u8]) -> bool {
        false
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    Bytes(Bytes),
    /// There is no further input until a rank has written something.
    Waits,
    End,
}

/// A program, and the number of input bytes that the job can take.
pub struct Talking<'p> {
    program: &'p mut dyn Program,
    bytes_max: usize,
    waits: bool,
}

impl<'p> Talking<'p> {
    pub fn new(program: &'p mut dyn Program) -> Talking<'p> {
        Talking { program, bytes_max: 0, waits: false }
    }

    /// Sets the number of bytes that the job can take; 0: the job takes no bytes for now.
    pub fn want(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Whether [`Talking::take`] can return input.
    pub fn is_ready(&self) -> bool {
        self.bytes_max > 0 && !self.waits
    }

    /// The next input of the job; empty: the input has ended.
    pub fn take(&mut self) -> Option<Bytes> {
        if !self.is_ready() {
            return None;
        }
        let next = self.program.input(self.bytes_max);
        match next {
            Next::Bytes(bytes) => {
                self.bytes_max = 0;
                Some(bytes)
            }
            Next::Waits => {
                self.waits = true;
                None
            }
            Next::End => {
                self.bytes_max = 0;
                Some(Bytes::new())
            }
        }
    }

    /// Passes on what a rank has written to one of its streams. `false`: the program did not use the bytes.
    pub fn take_output(&mut self, stream: Stream, rank: Rank, bytes: &[u8]) -> bool {
        if stream == Stream::Err {
            return self.program.errors(rank, bytes);
        }
        self.waits = false;
        self.program.output(rank, bytes);
        true
    }
}
