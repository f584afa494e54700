//! One call: a socket, a command and the bytes in transit between them.
//!
//! ```text
//! Waiting --command--> Running --left, output ended, all sent--> Farewell --client's end--> Over
//!    |                    |                                                                  ^
//!    +--client's end------+--client's end: SIGHUP to the process group, then SIGKILL---------+
//! ```
//!
//! In `Farewell` the sending side is shut down and what still arrives is discarded: closing with unread input would
//! reset the connection and lose the end of the output.
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};

use rustix::event::PollFlags;
use rustix::process::{Pid, PidfdFlags, Signal};

use super::super::{Kind, first_frame, put_frame};
use super::Surroundings;

/// Most output of a command that its client has not taken yet; beyond this the command has to wait (chosen).
const OUTPUT_MAX: usize = 256 * 1024;

pub struct Call {
    socket: TcpStream,
    received: Vec<u8>,
    unsent: Vec<u8>,
    state: State,
    /// The process group of an abandoned command, which is still to be killed.
    abandoned: Option<Pid>,
}

enum State {
    Waiting,
    Running(Box<Running>),
    Farewell,
    /// The client disconnected first; the child is reaped when it exits.
    Abandoned(Child, OwnedFd),
    Over,
}

struct Running {
    child: Child,
    pidfd: OwnedFd,
    input: Option<ChildStdin>,
    kept_input: Vec<u8>,
    input_ended: bool,
    output: Option<ChildStdout>,
    errors: Option<ChildStderr>,
    code: Option<i32>,
}

impl Call {
    pub fn new(socket: TcpStream) -> io::Result<Call> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        Ok(Call { socket, received: Vec::new(), unsent: Vec::new(), state: State::Waiting, abandoned: None })
    }

    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// The process group of a call whose client has just disconnected; returned only once.
    pub fn abandoned_group(&mut self) -> Option<Pid> {
        self.abandoned.take()
    }

    /// The descriptors on which this call waits.
    pub fn watch<'a>(&'a self, watched: &mut Vec<(BorrowedFd<'a>, PollFlags)>) {
        match &self.state {
            State::Abandoned(_, pidfd) => return watched.push((pidfd.as_fd(), PollFlags::IN)),
            State::Over => return,
            State::Running(running) => running.watch(self.unsent.len() < OUTPUT_MAX, watched),
            State::Waiting | State::Farewell => {}
        }
        let sending = if self.unsent.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        watched.push((self.socket.as_fd(), PollFlags::IN | sending));
    }

    /// Moves all bytes that can be moved now.
    pub fn turn(&mut self, chunk: &mut [u8], surroundings: &Surroundings) {
        if let State::Abandoned(child, _) = &mut self.state {
            if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
                self.state = State::Over;
            }
            return;
        }
        let moved = self.receive(chunk).and_then(|()| self.handle_frames(surroundings));
        if let State::Running(running) = &mut self.state {
            running.turn(chunk, &mut self.unsent);
        }
        if moved.and_then(|()| self.send()).is_err() {
            self.abandon();
        }
    }

    /// # Errors
    /// The client has disconnected.
    fn receive(&mut self, chunk: &mut [u8]) -> io::Result<()> {
        loop {
            match self.socket.read(chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) if matches!(self.state, State::Farewell) => {}
                Ok(length) => self.received.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn handle_frames(&mut self, surroundings: &Surroundings) -> io::Result<()> {
        let mut used = 0;
        loop {
            let frame = first_frame(&self.received[used..]).map_err(|_| io::Error::from(ErrorKind::InvalidData))?;
            let Some((kind, payload, size)) = frame else { break };
            used += size;
            match (kind, &mut self.state) {
                (Kind::Command, State::Waiting) => match Running::start(payload, surroundings) {
                    Ok(running) => self.state = State::Running(Box::new(running)),
                    Err(error) => put_frame(&mut self.unsent, Kind::Failure, error.to_string().as_bytes()),
                },
                (Kind::Input, State::Running(running)) => running.take_input(payload),
                (Kind::Input, _) => {}
                _ => return Err(ErrorKind::InvalidData.into()),
            }
        }
        self.received.drain(..used);
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        if let State::Running(running) = &self.state
            && let Some(code) = running.ended()
        {
            put_frame(&mut self.unsent, Kind::Exit, &(code as u32).to_le_bytes());
            self.state = State::Farewell;
            write_some(&mut self.socket, &mut self.unsent)?;
        } else if !self.unsent.is_empty() {
            write_some(&mut self.socket, &mut self.unsent)?;
        }
        if self.unsent.is_empty() && matches!(self.state, State::Farewell) {
            self.socket.shutdown(Shutdown::Write)?;
        }
        Ok(())
    }

    fn abandon(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Over) {
            State::Running(running) => {
                let group = Pid::from_child(&running.child);
                let _ = rustix::process::kill_process_group(group, Signal::HUP);
                self.abandoned = Some(group);
                match running.code {
                    Some(_) => State::Over,
                    None => State::Abandoned(running.child, running.pidfd),
                }
            }
            _ => State::Over,
        };
    }
}

impl Running {
    fn start(command: &[u8], surroundings: &Surroundings) -> io::Result<Running> {
        use std::os::unix::ffi::OsStrExt;
        let mut child = Command::new("/bin/sh")
            .arg("-c")
            .arg(std::ffi::OsStr::from_bytes(command))
            .env_clear()
            .envs(surroundings.variables.iter().map(|(name, value)| (name, value)))
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let pidfd = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        for fd in [input.as_ref().map(AsFd::as_fd), output.as_ref().map(AsFd::as_fd), errors.as_ref().map(AsFd::as_fd)]
        {
            fd.map_or(Ok(()), |fd| rustix::io::ioctl_fionbio(fd, true))?;
        }
        Ok(Running { child, pidfd, input, kept_input: Vec::new(), input_ended: false, output, errors, code: None })
    }

    fn watch<'a>(&'a self, room: bool, watched: &mut Vec<(BorrowedFd<'a>, PollFlags)>) {
        if self.code.is_none() {
            watched.push((self.pidfd.as_fd(), PollFlags::IN));
        }
        if let Some(input) = self.input.as_ref().filter(|_| !self.kept_input.is_empty()) {
            watched.push((input.as_fd(), PollFlags::OUT));
        }
        if room {
            watched.extend(self.output.as_ref().map(|output| (output.as_fd(), PollFlags::IN)));
            watched.extend(self.errors.as_ref().map(|errors| (errors.as_fd(), PollFlags::IN)));
        }
    }

    fn take_input(&mut self, payload: &[u8]) {
        self.kept_input.extend_from_slice(payload);
        self.input_ended |= payload.is_empty();
    }

    fn turn(&mut self, chunk: &mut [u8], unsent: &mut Vec<u8>) {
        self.write_input(unsent);
        // The exit is checked before the last read: everything written before the exit is in the pipes by then.
        if self.code.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            self.code = Some(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
        }
        read_some(&mut self.output, Kind::Output, chunk, unsent);
        read_some(&mut self.errors, Kind::Errors, chunk, unsent);
    }

    fn write_input(&mut self, unsent: &mut Vec<u8>) {
        let before = self.kept_input.len();
        match &mut self.input {
            Some(input) if before > 0 => {
                if write_some(input, &mut self.kept_input).is_err() {
                    self.input = None;
                    self.kept_input.clear();
                }
            }
            Some(_) => {}
            None => self.kept_input.clear(),
        }
        let taken = before - self.kept_input.len();
        if taken > 0 {
            put_frame(unsent, Kind::Taken, &(taken as u32).to_le_bytes());
        }
        if self.input_ended && self.kept_input.is_empty() {
            self.input = None;
        }
    }

    fn ended(&self) -> Option<i32> {
        self.code.filter(|_| self.output.is_none() && self.errors.is_none())
    }
}

/// Writes as much as possible without blocking.
fn write_some(target: &mut impl Write, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut written = 0;
    while written < bytes.len() {
        match target.write(&bytes[written..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(length) => written += length,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    bytes.drain(..written);
    Ok(())
}

/// Reads what is available into frames, up to `OUTPUT_MAX`; a stream that has ended becomes `None`.
fn read_some<R: Read>(source: &mut Option<R>, kind: Kind, chunk: &mut [u8], unsent: &mut Vec<u8>) {
    while let Some(reader) = source
        && unsent.len() < OUTPUT_MAX
    {
        match reader.read(chunk) {
            Ok(0) => *source = None,
            Ok(length) => put_frame(unsent, kind, &chunk[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(_) => *source = None,
        }
    }
}
