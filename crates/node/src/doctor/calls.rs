//! Calls remote shells for several hosts at once, as in a run, and reads their output.
//!
//! The state machine of `proto` decides which host is called when and how, and what an exit means; this file handles
//! the processes. A keeper holds them, so that they end with this process, however that ends.

use super::report::{REPORTED, UNCONNECTED};
use crate::agent::remote;
use crate::agent::remote::OwnProgram;
use crate::agent::starters;
use crate::agent::tail::{Stream, Tail};
use crate::keeper::{Alive, Batch, Keeper, KeeperEvent, Process, Request, StdinKind};
use crate::spawn_error::in_words;
use std::collections::BTreeMap;
use std::io;
use wireup_os::reactor::{Event, Interest, Reactor};
use wireup_proto::io::{ExitStatus, How, KernelSession, ShellId};
use wireup_proto::starts::{Outcome, Purpose, Starts, Wish};
use wireup_proto::{Instant, NEEDED};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Note, Problem, ProblemKind, RemoteShell};
use wireup_wire::signal::SIGKILL;

/// The longest unfinished line that is kept of a remote shell's standard output.
const STREAM_BYTES_MAX: usize = 256 << 10;
/// How much of its standard error is kept for a message: the end.
const ERROR_BYTES_MAX: usize = 2048;
const UMASK: u32 = 0o077;

/// Tokens from here on belong to the calls; the lower ones to their owner.
pub const TOKENS: u64 = 1 << 32;
const KEEPER: u64 = TOKENS;
/// Two tokens for each shell from here on: standard output, standard error.
const STREAMS: u64 = 2 << 32;

/// A call of one host.
pub struct Call {
    pub host: String,
    /// For the standard input of the called program.
    pub stdin: Vec<u8>,
}

/// Settings common to all calls.
pub struct Common {
    pub remote_shell: RemoteShell,
    /// The path of this program; hosts look there first.
    pub program: String,
    /// Arguments after `agent`.
    pub asked: Vec<String>,
    /// Any answer is enough, whether the program is installed there or not.
    pub probe: bool,
    /// Send the program to hosts that lack it.
    pub send: bool,
    pub at_once: u32,
    /// Time limit for each host, from its first call.
    pub timeout_ns: u64,
}

/// The result of calling a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// The program ran there and has reported.
    Answered,
    /// The program ran there, but has not reached its caller. What it prints may be lost, too.
    Unconnected,
    /// The program is missing or of another version, and was not sent.
    Missing,
    Lost(Problem),
}

pub enum Heard {
    /// The host is being called, for the first time or again.
    Called,
    Line(Vec<u8>),
    Sent,
    /// Its sshd is busy.
    Retried(String),
    /// The last event of a host.
    End(End),
}

pub struct Calls {
    common: Common,
    calls: Vec<Call>,
    keeper: Keeper,
    keeper_blocked: bool,
    starts: Starts,
    running: BTreeMap<u32, Running>,
    /// The error that ended the keeper, if it has reported one.
    problem: Option<String>,
    /// The deadline of each host, once it was called; `None`: it is finished.
    until: Vec<Option<u64>>,
    own: OwnProgram,
    heard: Vec<(usize, Heard)>,
}

struct Running {
    call: usize,
    how: How,
    /// In place of sending the program the host is asked whether it needs it.
    asks: bool,
    out: Stream,
    /// The beginning of an unfinished line.
    line: Vec<u8>,
    err: Tail,
}

impl Calls {
    /// Forks the keeper: call it while the process has one thread.
    ///
    /// # Errors
    /// No process or descriptor is left.
    pub fn new(common: Common, calls: Vec<Call>, reactor: &Reactor) -> io::Result<Calls> {
        let mut keeper = Keeper::fork()?;
        keeper.begin(KernelSession::Own);
        reactor.add(keeper.fd(), KEEPER, Interest::READABLE)?;
        let mut starts = Starts::new(AgentId(0), &common.remote_shell, common.at_once, Some(std::env::consts::ARCH));
        let purpose = |_: usize| match common.probe {
            true => Purpose::Probe { below: AgentId(0) },
            false => Purpose::Child,
        };
        for call in 0..calls.len() {
            starts.wish(Wish { agent: AgentId(call as u32), jobs: Vec::new(), purpose: purpose(call) });
        }
        Ok(Calls {
            keeper,
            keeper_blocked: false,
            starts,
            running: BTreeMap::new(),
            problem: None,
            until: vec![Some(u64::MAX); calls.len()],
            own: OwnProgram::default(),
            heard: Vec::new(),
            common,
            calls,
        })
    }

    /// Does what is due; returns the events since the last call, each with the index of its host.
    pub fn step(&mut self, now_ns: u64, reactor: &Reactor) -> Vec<(usize, Heard)> {
        self.expire(now_ns);
        while let Some((shell, wish, how)) = self.starts.next(Instant(now_ns)) {
            let call = wish.agent.index();
            if self.until[call] == Some(u64::MAX) {
                self.until[call] = Some(now_ns.saturating_add(self.common.timeout_ns));
            }
            if let Err(problem) = self.call(shell, call, how) {
                self.starts.on_failed(shell, Problem::default());
                self.end(call, End::Lost(problem.into()));
            }
        }
        self.flush(reactor);
        std::mem::take(&mut self.heard)
    }

    /// Whether some host is not finished.
    pub fn is_busy(&self) -> bool {
        self.until.iter().any(Option::is_some)
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        let ends = self.until.iter().flatten().copied().filter(|until| *until != u64::MAX);
        ends.chain(self.starts.deadline().map(|due| due.0)).min()
    }

    /// Ends the remaining processes and waits for them.
    pub fn close(self) {
        // The keeper also handles a shell that cannot be killed now.
        let _ = self.keeper.close();
    }

    fn call(&mut self, shell: ShellId, call: usize, how: How) -> Result<(), String> {
        let shell_used = &self.common.remote_shell;
        if shell_used.starter().same_machine {
            return Err("no remote shell is named".into());
        }
        let asked: Vec<&str> = self.common.asked.iter().map(String::as_str).collect();
        let asks = how == How::Send && !self.common.send;
        let command = match asks {
            true => Ok(remote::asking()),
            false => self.own.command(how, &self.common.program, &asked),
        };
        let program = command.and_then(|command| starters::program_for(shell_used, &self.calls[call].host, command));
        let program = program.map_err(|error| format!("this program cannot be read: {error}"))?;
        let stdin = match how {
            How::Send if !asks => StdinKind::Program,
            How::Send | How::Plain | How::Look => StdinKind::Bytes(self.calls[call].stdin.clone()),
        };
        self.keeper.request(&Request::Spawn(Batch {
            programs: vec![program],
            processes: vec![Process { stdin, ..Process::new(shell.0) }],
            umask: UMASK,
            limits: Vec::new(),
            staged: None,
        }));
        let (out, line, err) = (Stream::default(), Vec::new(), Tail::new(ERROR_BYTES_MAX));
        self.running.insert(shell.0, Running { call, how, asks, out, line, err });
        self.heard.push((call, Heard::Called));
        Ok(())
    }

    fn end(&mut self, call: usize, end: End) {
        if self.until[call].take().is_some() {
            self.heard.push((call, Heard::End(end)));
        }
    }

    fn give_up(&mut self, call: usize) {
        let (_, shells) = self.starts.give_up(|wish| wish.agent.index() == call);
        for shell in shells {
            self.keeper.request(&Request::Signal { slot: Some(shell.0), signal: SIGKILL });
        }
    }

    fn expire(&mut self, now_ns: u64) {
        let late: Vec<usize> =
            (0..self.calls.len()).filter(|&call| self.until[call].is_some_and(|until| until <= now_ns)).collect();
        for call in late {
            let said = self.running.values().find(|running| running.call == call);
            let said = said.map(|running| shown(&running.err)).unwrap_or_default();
            self.give_up(call);
            let seconds = self.common.timeout_ns as f64 / 1e9;
            let separator = if said.is_empty() { "" } else { ": " };
            self.end(call, End::Lost(format!("it did not answer within {seconds} s{separator}{said}").into()));
        }
    }

    fn flush(&mut self, reactor: &Reactor) {
        // A broken keeper is noticed by its end of file.
        let all_out = self.keeper.flush().unwrap_or(true);
        if self.keeper_blocked == all_out {
            self.keeper_blocked = !all_out;
            let interest = if all_out { Interest::READABLE } else { Interest::BOTH };
            let _ = reactor.modify(self.keeper.fd(), KEEPER, interest);
        }
    }

    /// There is an event on one of our descriptors.
    pub fn on_event(&mut self, now_ns: u64, event: Event, reactor: &Reactor) {
        if event.token == KEEPER {
            return self.on_keeper(now_ns, reactor);
        }
        let stream = event.token.wrapping_sub(STREAMS);
        self.read((stream / 2) as u32, stream % 2 == 1, reactor);
    }

    fn on_keeper(&mut self, now_ns: u64, reactor: &Reactor) {
        let mut events = Vec::new();
        let alive = self.keeper.receive(&mut events).unwrap_or(Alive::Gone);
        for event in events {
            match event {
                KeeperEvent::Started { slot, fds, .. } => {
                    let Some(running) = self.running.get_mut(&slot) else { continue };
                    let token = STREAMS + u64::from(slot) * 2;
                    running.out = Stream::watched(fds.stdout, token, reactor);
                    running.err.follow(Stream::watched(fds.stderr, token + 1, reactor));
                }
                KeeperEvent::StartFailed { slot, error } => {
                    if let Some(running) = self.running.remove(&slot) {
                        self.starts.on_failed(ShellId(slot), Problem::default());
                        self.end(running.call, End::Lost(ProblemKind::System(error.errno).with(in_words(&error))));
                    }
                }
                KeeperEvent::Exited { slot, status } => self.on_exited(now_ns, slot, status, reactor),
                KeeperEvent::Failed { problem } => self.problem = Some(in_words(&problem)),
                KeeperEvent::NotStaged { .. }
                | KeeperEvent::Redirected { .. }
                | KeeperEvent::Swept
                | KeeperEvent::Renewed => {}
            }
        }
        if alive == Alive::Gone {
            let _ = reactor.remove(self.keeper.fd());
            for call in 0..self.calls.len() {
                let end = self
                    .problem
                    .as_ref()
                    .map_or_else(|| "was killed".into(), |problem| format!("has failed: {problem}"));
                self.end(call, End::Lost(format!("the process that runs the remote shells {end}").into()));
            }
        }
    }

    fn on_exited(&mut self, now_ns: u64, slot: u32, status: ExitStatus, reactor: &Reactor) {
        self.read(slot, false, reactor);
        self.read(slot, true, reactor);
        let Some(mut running) = self.running.remove(&slot) else { return };
        running.out.close(reactor);
        running.err.close(reactor);
        let call = running.call;
        let answer = match status {
            ExitStatus::Exited(REPORTED) => Some(End::Answered),
            ExitStatus::Exited(UNCONNECTED) => Some(End::Unconnected),
            ExitStatus::Exited(_) | ExitStatus::Signalled { .. } => None,
        };
        if let Some(answer) = answer.filter(|_| running.how != How::Send && !self.common.probe) {
            // It succeeded; the state machine treats that like an agent that has linked.
            self.starts.on_linked(AgentId(call as u32));
            self.end(call, answer);
        }
        let until = Instant(self.until[call].unwrap_or(now_ns));
        let stderr = running.err.text();
        match self.starts.on_exited(Instant(now_ns), until, ShellId(slot), status, &stderr) {
            Outcome::Nothing => {}
            Outcome::Again(note) => match note {
                Some(Note::Sent { .. }) if self.common.send => self.heard.push((call, Heard::Sent)),
                Some(Note::Retry { problem, .. }) => self.heard.push((call, Heard::Retried(problem))),
                Some(_) | None => {}
            },
            Outcome::Lost(_, problem) => {
                // Unless it is another kind of machine.
                let is_needed = running.asks && status == ExitStatus::Exited(NEEDED);
                let is_missing = is_needed && problem.kind != ProblemKind::Advised;
                self.end(call, if is_missing { End::Missing } else { End::Lost(problem) });
            }
            Outcome::Reached(_) => self.end(call, End::Answered),
        }
    }

    fn read(&mut self, slot: u32, is_error: bool, reactor: &Reactor) {
        let Some(running) = self.running.get_mut(&slot) else { return };
        if is_error {
            return running.err.read(reactor, |_| ());
        }
        let Running { call, out, line, .. } = running;
        out.read(reactor, |piece| line.extend_from_slice(piece));
        while let Some(end) = line.iter().position(|byte| *byte == b'\n') {
            self.heard.push((*call, Heard::Line(line.drain(..=end).collect())));
        }
        if line.len() > STREAM_BYTES_MAX {
            line.clear();
        }
    }
}

fn shown(text: &Tail) -> String {
    text.text().trim().replace(['\r', '\n'], "; ")
}
