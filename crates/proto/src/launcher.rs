//! One launcher: the user's end of a job.
//!
//! ```text
//!   Waiting ── link up ──► Running ── ended ──► Draining ── all written, link down ──► Left
//!                             │ second interrupt, time limit: kill; output is dropped after an interrupt
//! ```
//!
//! It sends the job to the root agent, passes signals and standard input down, returns what the ranks wrote and grants credit for what was
//! written, and exits with the job's exit code when everything has arrived. It makes no decisions about failures: the root does.

use crate::exit_code::{OURS, exit_code};
use crate::io::{LinkId, Stream};
use crate::launcher_io::{LauncherInput, LauncherOutput, Notice};
use crate::outbox::control_frame;
use crate::output::{MIXED, Next};
use crate::time::Instant;
use bytes::Bytes;
use std::collections::VecDeque;
use wireup_wire::frame::{Frame, FrameReader, Kind};
use wireup_wire::ids::{JobId, Rank};
use wireup_wire::job::JobSpec;
use wireup_wire::limits::{STDIN_CHUNK_MAX, STDIN_WINDOW_BYTES};
use wireup_wire::peer::{self, Cause, Control, Ended, Failure};
use wireup_wire::signal::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};

/// Once the user or the time limit ends the job, how long to wait for a reader of the output (ns); each piece that is read restarts the
/// time. Chosen: a person who pressed Ctrl-C waits for a prompt.
const UNTAKEN_NS_MAX: u64 = 1_000_000_000;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LauncherConfig {
    pub job: JobSpec,
    /// End the job after this time.
    pub timeout_ns: Option<u64>,
    /// Tell the agents to leave when the job has ended (a one-shot run).
    pub one_shot: bool,
    /// The job's standard input goes through this launcher (not inherited).
    pub relay_stdin: bool,
}

pub struct Launcher {
    config: LauncherConfig,
    job: JobId,
    phase: Phase,
    link: Option<LinkId>,
    reader: FrameReader,
    out: VecDeque<LauncherOutput>,
    /// Bytes returned by `poll` and not written yet, by stream.
    unwritten: [u64; 2],
    /// Output is dropped; credit is returned immediately.
    discard: bool,
    stdin_credit: usize,
    stdin_ended: bool,
    interrupts: u32,
    timeout_at: Option<Instant>,
    /// The failure reported to the user: only the first one counts.
    own_failure: Option<Failure>,
    ended: Option<Ended>,
    /// The end was requested: do not wait for ever for a reader.
    is_ending: bool,
    /// When output last made progress, or started to wait.
    moved_at: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Waiting,
    Running,
    Draining,
    Left,
}

impl Launcher {
    pub fn new(config: LauncherConfig, now: Instant) -> Self {
        Launcher {
            job: config.job.job,
            phase: Phase::Waiting,
            link: None,
            reader: FrameReader::new(),
            out: VecDeque::new(),
            unwritten: [0; 2],
            discard: false,
            stdin_credit: STDIN_WINDOW_BYTES,
            stdin_ended: false,
            interrupts: 0,
            timeout_at: config.timeout_ns.map(|timeout| now + timeout),
            own_failure: None,
            ended: None,
            is_ending: false,
            moved_at: now,
            config,
        }
    }

    pub fn handle(&mut self, now: Instant, input: LauncherInput) {
        match input {
            LauncherInput::LinkUp { link } => self.on_link_up(link),
            LauncherInput::LinkBytes { bytes, .. } => self.on_link_bytes(now, bytes),
            LauncherInput::LinkDown { problem, .. } => self.on_link_down(problem),
            LauncherInput::Signal { signal } => self.on_signal(now, signal),
            LauncherInput::Resize { rows, columns } => self.control(&Control::Resize { rows, columns }),
            LauncherInput::Stdin { bytes } => self.on_stdin(bytes),
            LauncherInput::Written { stream, bytes } => self.on_written(now, stream, bytes),
            LauncherInput::WriteFailed { problem } => self.on_write_failed(problem),
            LauncherInput::Tick => self.on_tick(now),
        }
        self.leave_if_done();
    }

    pub fn poll(&mut self) -> Option<LauncherOutput> {
        self.out.pop_front()
    }

    pub fn deadline(&self) -> Option<Instant> {
        let untaken = self.untaken_until();
        match self.phase {
            Phase::Waiting | Phase::Running => self.timeout_at.into_iter().chain(untaken).min(),
            Phase::Draining => untaken,
            Phase::Left => None,
        }
    }

    /// Whether the end was requested: unread output is not waited for.
    pub fn is_impatient(&self) -> bool {
        self.is_ending
    }

    /// When unread output is given up.
    fn untaken_until(&self) -> Option<Instant> {
        (self.is_ending && self.unwritten != [0; 2]).then(|| self.moved_at + UNTAKEN_NS_MAX)
    }

    fn on_link_up(&mut self, link: LinkId) {
        self.link = Some(link);
        self.phase = Phase::Running;
        let launch = Control::Launch(self.config.job.clone().into());
        self.control(&launch);
        self.ask_stdin();
    }

    fn on_link_bytes(&mut self, now: Instant, mut bytes: Bytes) {
        loop {
            match self.reader.next(&mut bytes) {
                Ok(Some(frame)) => self.on_frame(now, frame),
                Ok(None) => return,
                Err(error) => return self.on_link_down(error.to_string()),
            }
        }
    }

    fn on_frame(&mut self, now: Instant, frame: Frame) {
        match frame.kind {
            Kind::Control => match peer::decode(&frame.payload) {
                Ok(message) => self.on_control(message),
                Err(error) => self.on_link_down(error.to_string()),
            },
            Kind::Output => self.on_output(now, frame),
            Kind::InputCredit => {
                self.stdin_credit = (self.stdin_credit + frame.arg as usize).min(STDIN_WINDOW_BYTES);
                self.ask_stdin();
            }
            Kind::Trace => {
                if let Ok(part) = peer::decode(&frame.payload) {
                    self.notice(Notice::Trace(Box::new(part)));
                }
            }
            Kind::ExchangeUp | Kind::ExchangeDown | Kind::OutputCredit | Kind::Input | Kind::Direct => {}
            Kind::GroupUp
            | Kind::GroupDown
            | Kind::Modex
            | Kind::Addresses
            | Kind::Relay
            | Kind::PmixUp
            | Kind::PmixDown
            | Kind::NamesUp
            | Kind::NamesDown
            | Kind::Routed
            | Kind::Pair => {}
        }
    }

    fn on_control(&mut self, message: Control) {
        match message {
            Control::Started { ranks, .. } => self.notice(Notice::Started { ranks }),
            Control::Failed(failure) if self.may_still_fail() => {
                self.own_failure = Some(failure.clone());
                self.notice(Notice::Failed(failure));
            }
            Control::Stall(report) => self.notice(Notice::Stall(report)),
            Control::Note(note) => self.notice(Notice::Note(note)),
            Control::Ended(ended) => self.on_ended(ended),
            // All other messages are between agents, are sent by launchers, or answer requests that this launcher does not make.
            _ => {}
        }
    }

    fn on_ended(&mut self, mut ended: Ended) {
        if let Some(own) = self.own_failure.take() {
            ended.failure = Some(own);
        }
        self.notice(Notice::Ended(ended.clone()));
        self.ended = Some(ended);
        self.phase = Phase::Draining;
        if self.config.one_shot {
            self.control(&Control::Shutdown);
        }
    }

    fn on_output(&mut self, now: Instant, frame: Frame) {
        let Some((stream, next)) = Next::of_field(frame.stream) else { return };
        let length = frame.payload.len() as u32;
        if self.discard {
            return self.grant(stream, length);
        }
        if self.unwritten == [0; 2] {
            self.moved_at = now;
        }
        self.unwritten[stream as usize - 1] += u64::from(length);
        let rank = (frame.arg != MIXED).then_some((Rank(frame.arg), next));
        self.out.push_back(LauncherOutput::Write { stream, rank, bytes: frame.payload });
    }

    fn on_written(&mut self, now: Instant, stream: Stream, bytes: u32) {
        self.moved_at = now;
        let unwritten = &mut self.unwritten[stream as usize - 1];
        let known = u64::from(bytes).min(*unwritten);
        *unwritten -= known;
        self.grant(stream, known as u32);
    }

    fn grant(&mut self, stream: Stream, bytes: u32) {
        self.send(Frame::new(Kind::OutputCredit, stream as u16, self.job.0, bytes, Bytes::new()));
    }

    /// Nobody reads the output any more: everything returned so far counts as written.
    fn discard_output(&mut self) {
        if !std::mem::replace(&mut self.discard, true) {
            for stream in [Stream::Out, Stream::Err] {
                let unwritten = std::mem::take(&mut self.unwritten[stream as usize - 1]);
                self.grant(stream, unwritten as u32);
            }
        }
    }

    fn on_write_failed(&mut self, problem: String) {
        self.discard_output();
        self.end_job(Cause::Launcher { problem }, self.config.job.options.kill_grace_ns);
    }

    fn on_signal(&mut self, now: Instant, signal: i32) {
        match signal {
            SIGALRM => self.control(&Control::StallAsk { collective: None }),
            SIGHUP | SIGINT | SIGQUIT | SIGTERM => self.on_interrupt(now, signal),
            SIGTSTP => {
                self.control(&Control::Signal { signal });
                self.out.push_back(LauncherOutput::Suspend);
            }
            signal => self.control(&Control::Signal { signal }),
        }
    }

    /// The first interrupt is forwarded; the second one ends the job, whatever the ranks do.
    fn on_interrupt(&mut self, now: Instant, signal: i32) {
        self.interrupts += 1;
        self.be_impatient(now);
        let again = self.interrupts > 1;
        self.notice(Notice::Interrupt { signal, again });
        if again {
            self.discard_output();
            self.end_job(Cause::Interrupted { signal }, 0);
        } else {
            self.control(&Control::Signal { signal });
        }
    }

    fn be_impatient(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.is_ending, true) {
            self.moved_at = now;
        }
    }

    fn on_tick(&mut self, now: Instant) {
        if let (Some(at), Some(after_ns)) = (self.timeout_at, self.config.timeout_ns)
            && now >= at
        {
            self.timeout_at = None;
            self.be_impatient(now);
            self.end_job(Cause::TimedOut { after_ns }, self.config.job.options.kill_grace_ns);
        }
        if self.untaken_until().is_some_and(|until| now >= until) {
            self.discard_output();
        }
    }

    /// Whether no failure that ends the job is known.
    fn may_still_fail(&self) -> bool {
        self.own_failure.as_ref().is_none_or(|failure| !failure.cause.ends_job())
    }

    /// Ends the job for the launcher's own reason; only the first failure counts.
    fn end_job(&mut self, cause: Cause, grace_ns: u64) {
        let failure = Failure { node: Default::default(), host: String::new(), rank: None, pid: None, cause };
        match &mut self.ended {
            None => {
                self.control(&Control::Kill { grace_ns });
                if self.may_still_fail() {
                    self.own_failure = Some(failure.clone());
                    self.notice(Notice::Failed(failure));
                }
            }
            Some(Ended { failure: Some(_), .. }) => {}
            Some(ended) => {
                ended.failure = Some(failure.clone());
                self.notice(Notice::Failed(failure));
            }
        }
    }

    fn on_stdin(&mut self, bytes: Bytes) {
        if self.stdin_ended {
            return;
        }
        self.stdin_credit = self.stdin_credit.saturating_sub(bytes.len());
        self.stdin_ended = bytes.is_empty();
        // End of file cannot overtake data: both are in the same class.
        self.send(Frame::new(Kind::Input, 0, self.job.0, 0, bytes));
        self.ask_stdin();
    }

    fn ask_stdin(&mut self) {
        if self.config.relay_stdin && !self.stdin_ended {
            let bytes_max = self.stdin_credit.min(STDIN_CHUNK_MAX) as u32;
            self.out.push_back(LauncherOutput::ReadStdin { bytes_max });
        }
    }

    fn on_link_down(&mut self, problem: String) {
        self.link = None;
        if self.ended.is_none() {
            let cause = Cause::AgentLost { agent: Default::default(), problem };
            let failure = Failure { node: Default::default(), host: String::new(), rank: None, pid: None, cause };
            self.notice(Notice::Failed(failure.clone()));
            self.ended = Some(Ended { failure: Some(failure), done: Default::default() });
            self.phase = Phase::Draining;
        }
    }

    fn leave_if_done(&mut self) {
        let written = self.unwritten == [0; 2];
        let alone = self.link.is_none() || !self.config.one_shot;
        if self.phase == Phase::Draining && written && alone {
            self.phase = Phase::Left;
            let code = self.ended.as_ref().map_or(OURS, |ended| exit_code(ended.failure.as_ref()));
            self.out.push_back(LauncherOutput::Exit { code });
        }
    }

    fn control(&mut self, message: &Control) {
        self.send(control_frame(self.job, message));
    }

    fn send(&mut self, frame: Frame) {
        if let Some(link) = self.link {
            self.out.push_back(LauncherOutput::Send { link, frame });
        }
    }

    fn notice(&mut self, notice: Notice) {
        self.out.push_back(LauncherOutput::Notice(notice));
    }
}
