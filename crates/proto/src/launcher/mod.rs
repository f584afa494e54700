//! One launcher: the user's end of a job and of the jobs that its ranks ask for.
//!
//! ```text
//!   Waiting ── link up ──► Running ── all jobs ended ──► Draining ── all written, link down ──► Left
//!                             │ second interrupt, time limit: kill; output is dropped after an interrupt
//! ```
//!
//! The launcher sends the job to the root agent, passes signals and standard input down, outputs what the ranks wrote,
//! grants credit for what was output, and exits with the exit code when everything has arrived. The root decides
//! whether one job has failed. The failure of one job ends all jobs that belong together (`job_family`), as under
//! Hydra, since their ranks may wait for each other. A job belongs together with the jobs that its ranks have spawned,
//! until ranks that use PMIx disconnect.
//!
//! If a rank asks for processes, the root forwards the request with the number of a new job (`Spawn`). The launcher
//! makes a job of the request (`requests`) and launches it. It answers (`Spawned`) when all ranks of the new job run,
//! or with the reason why they do not.

mod job_family;
mod requests;
mod spawn_placement;

use crate::exit_code::exit_code;
use crate::io::{LinkId, Stream};
use crate::launcher_io::{LauncherInput, LauncherOutput, Notice};
use crate::outbox::control_frame;
use crate::output::{MIXED, Next, Origin};
use crate::time::Instant;
use bytes::Bytes;
use job_family::{JobFamily, Start};
use requests::{Request, Requests, Step};
pub use spawn_placement::{Growth, SpawnNode};
use std::collections::{BTreeSet, VecDeque};
use wireup_wire::frame::{DownFrame, Frame, FrameKind, FrameReader, UpFrame};
use wireup_wire::ids::{JobId, Rank};
use wireup_wire::job::JobSpec;
use wireup_wire::limits::{STDIN_CHUNK_MAX, STDIN_WINDOW_BYTES, TIMEOUT_STACKS_NS_MAX};
use wireup_wire::names::NewJob;
use wireup_wire::peer::{self, Cause, Done, Ended, Failure, PeerError};
use wireup_wire::signal::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use wireup_wire::talk::{Control, FromLauncher, JobDown, JobUp, SessionDown, ToLauncher};

/// Time within which a second signal from the same process is taken for a repetition of the first (ns). Chosen: longer
/// than the pause between the two signals of `timeout` on a loaded machine, shorter than the pause between two
/// decisions of a person.
const SAME_SIGNAL_NS: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
pub struct LauncherConfig {
    pub job: JobSpec,
    /// Time after which the job is ended (ns); `None`: no limit.
    pub timeout_ns: Option<u64>,
    /// Whether the user is shown where the ranks wait before the time limit ends the job.
    pub explains_timeout: bool,
    /// Whether the agents are told to leave when the job has ended (a one-shot run).
    pub one_shot: bool,
    /// Whether the job's standard input goes through this launcher, instead of being inherited by a rank.
    pub relay_stdin: bool,
    /// The nodes on which ranks of further jobs may run.
    pub places: Vec<SpawnNode>,
    pub growth: Growth,
}

pub struct Launcher {
    /// The job that the user launches.
    spec: JobSpec,
    one_shot: bool,
    phase: Phase,
    link: Option<LinkId>,
    reader: FrameReader,
    out: VecDeque<LauncherOutput>,
    family: JobFamily,
    requests: Requests,
    unwritten: Unwritten,
    stdin: Stdin,
    /// The first signal that requested the end of the run, and when it arrived.
    interrupted: Option<(i32, Instant)>,
    /// The time limit, until it has ended the job.
    timeout: Option<TimeLimit>,
    /// Jobs that were asked for the call stacks of their ranks and have not answered.
    asked_why: BTreeSet<JobId>,
    /// How the run ends: the failure reported to the user, which is the first one, and the report of the job that the
    /// user has launched.
    result: Ended,
}

#[derive(Clone, Copy)]
struct TimeLimit {
    /// When the next step is due: first the request for waits and call stacks, then the end of the job.
    at: Instant,
    /// The time limit, counted from the launcher's start (ns).
    after_ns: u64,
    explains: bool,
    has_asked: bool,
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
        let LauncherConfig { job: spec, timeout_ns, explains_timeout, one_shot, relay_stdin, places, growth } = config;
        Launcher {
            one_shot,
            phase: Phase::Waiting,
            link: None,
            reader: FrameReader::new(),
            out: VecDeque::new(),
            family: JobFamily::default(),
            requests: Requests::new(spec.nspace.clone(), places, growth),
            unwritten: Unwritten::new(now),
            stdin: Stdin::new(relay_stdin),
            interrupted: None,
            timeout: timeout_ns.map(|after_ns| TimeLimit {
                at: now + after_ns,
                after_ns,
                explains: explains_timeout,
                has_asked: false,
            }),
            asked_why: BTreeSet::new(),
            result: Ended { failure: None, done: Done::default() },
            spec,
        }
    }

    pub fn handle(&mut self, now: Instant, input: LauncherInput) {
        match input {
            LauncherInput::LinkUp { link } => {
                self.link = Some(link);
                self.phase = Phase::Running;
                self.launch(self.spec.clone());
                self.ask_stdin();
            }
            LauncherInput::LinkBytes { bytes, .. } => self.on_link_bytes(now, bytes),
            LauncherInput::LinkDown { problem, .. } => self.on_link_down(problem),
            LauncherInput::Signal { signal, sender } => self.on_signal(now, signal, sender),
            LauncherInput::Resize { rows, columns } => self.control(self.spec.job, JobDown::Resize { rows, columns }),
            LauncherInput::Stdin { bytes } => self.on_stdin(bytes),
            LauncherInput::Written { stream, bytes } => self.on_written(now, stream, bytes),
            LauncherInput::WriteFailed { problem } => {
                self.discard_output();
                self.end_job(Cause::Launcher { problem }, self.spec.options.kill_grace_ns);
            }
            LauncherInput::HostFiles { child, files } => {
                if let Some(step) = self.requests.on_host_files(&self.family, child, &files) {
                    self.go_on(child, step);
                }
            }
            LauncherInput::Tick => self.on_tick(now),
        }
        self.leave_if_done();
    }

    pub fn poll(&mut self) -> Option<LauncherOutput> {
        self.out.pop_front()
    }

    pub fn deadline(&self) -> Option<Instant> {
        let untaken = self.unwritten.deadline();
        match self.phase {
            Phase::Waiting | Phase::Running => self.timeout.map(|limit| limit.at).into_iter().chain(untaken).min(),
            Phase::Draining => untaken,
            Phase::Left => None,
        }
    }

    /// Whether the user or the time limit has requested the end of the run: then unread output is awaited for a limited
    /// time.
    pub fn is_impatient(&self) -> bool {
        self.unwritten.is_impatient
    }

    fn launch(&mut self, spec: JobSpec) {
        let id = spec.job;
        self.control(id, FromLauncher::Launch(spec.clone().into()));
        self.family.add(spec);
    }

    fn on_link_bytes(&mut self, now: Instant, mut bytes: Bytes) {
        let problem = loop {
            match self.reader.next(&mut bytes) {
                Ok(Some(frame)) => match self.on_frame(now, frame) {
                    Ok(()) => {}
                    Err(error) => break error.to_string(),
                },
                Ok(None) => return,
                Err(error) => break error.to_string(),
            }
        };
        self.on_link_down(problem);
    }

    fn on_frame(&mut self, now: Instant, frame: Frame) -> Result<(), PeerError> {
        match frame.kind {
            FrameKind::Control => return self.on_control(now, JobId(frame.job), peer::decode(&frame.payload)?),
            FrameKind::Up(UpFrame::Output) => self.on_output(now, frame),
            FrameKind::Up(UpFrame::InputCredit) => {
                self.stdin.on_credit(frame.arg);
                self.ask_stdin();
            }
            FrameKind::Up(UpFrame::Trace) => self.notice(Notice::Trace(Box::new(peer::decode(&frame.payload)?))),
            _ => return Err(PeerError::Misdirected),
        }
        Ok(())
    }

    fn on_control(&mut self, now: Instant, job: JobId, message: Control) -> Result<(), PeerError> {
        match message {
            Control::JobUp(JobUp::Started { ranks, .. }) => self.on_started(job, ranks),
            Control::JobUp(JobUp::Failed(failure)) => self.on_failed(job, failure),
            Control::JobUp(JobUp::RankError(error)) => self.notice_of(job, Notice::RankError(error)),
            Control::JobUp(JobUp::Stall(report)) => self.notice_of(job, Notice::Stall(report)),
            Control::JobUp(JobUp::Stacks(stacks)) if self.asked_why.remove(&job) => {
                self.notice_of(job, Notice::Stacks(stacks));
                if let Some(limit) = self.timeout.as_mut().filter(|limit| limit.has_asked && self.asked_why.is_empty())
                {
                    limit.at = now;
                }
            }
            // Call stacks that `wireup why` requested, not this launcher.
            Control::JobUp(JobUp::Stacks(_)) => {}
            Control::Note(note) => self.notice_of(job, Notice::Note(note)),
            Control::ToLauncher(ToLauncher::Ended(ended)) => self.on_ended(job, ended),
            Control::ToLauncher(ToLauncher::Spawn { job: child, from, request }) => {
                let step = self.requests.on_request(&self.family, child, Request { by: job, from, request: *request });
                self.go_on(child, step);
            }
            Control::ToLauncher(ToLauncher::Added { agents }) => {
                for (agent, host) in self.family.on_added(job, &agents) {
                    self.notice(Notice::Added { agent, host });
                }
            }
            // In a session of one run a lost node does not return, so earlier losses are kept.
            Control::JobUp(JobUp::Missing(missing)) if self.one_shot => {
                self.requests.lost.extend(missing.iter().map(|lost| lost.agent));
            }
            Control::JobUp(JobUp::Missing(missing)) => {
                self.requests.lost = missing.iter().map(|lost| lost.agent).collect();
            }
            Control::ToLauncher(ToLauncher::Together { jobs, connected }) => {
                self.family.on_together(job, &jobs, connected)
            }
            Control::ToLauncher(ToLauncher::Decided(Err(problem))) => self.on_link_down(problem),
            // All other messages are sent between agents or by launchers, or answer requests that this launcher does
            // not make.
            _ => return Err(PeerError::Misdirected),
        }
        Ok(())
    }

    fn on_started(&mut self, job: JobId, ranks: u32) {
        let Some(member) = self.family.on_started(job) else { return };
        if member.spec.spawned.is_some() {
            let nspace = member.spec.nspace.clone();
            self.answer_spawn(job, Ok(NewJob { nspace, ranks }));
        } else {
            self.notice(Notice::Started { ranks });
        }
    }

    /// Handles a failure that the root reports: the job's first one that ends the job, or one of a kind that does not
    /// end jobs.
    fn on_failed(&mut self, job: JobId, failure: Failure) {
        match &failure.cause {
            Cause::AgentLost { agent, .. } => self.requests.lost.extend([*agent]),
            Cause::AgentsMissing { missing } => self.requests.lost.extend(missing.iter().map(|lost| lost.agent)),
            _ => {}
        }
        match self.family.start_of(job) {
            Start::Failed => {}
            Start::Open if failure.cause.is_of_start() => {
                self.family.on_start_failed(job);
                self.notice(Notice::NotStarted { job, failure });
            }
            Start::Open | Start::Over if self.may_fail(job) => {
                let ends_job = failure.cause.ends_job();
                // A failure that ends a job takes precedence over one that does not; among equal ones, the first is
                // kept.
                if self.may_still_fail() && (ends_job || self.result.failure.is_none()) {
                    self.result.failure = Some(failure.clone());
                }
                self.notice_of(job, Notice::Failed(failure));
                if ends_job {
                    self.end_with(job);
                }
            }
            // A crash may be reported after the failure of another rank that it has caused: then the crash replaces it.
            Start::Open | Start::Over
                if failure.cause.is_crash()
                    && self.result.failure.as_ref().is_some_and(|first| first.cause.may_follow_crash()) =>
            {
                self.result.failure = Some(failure.clone());
                self.notice_of(job, Notice::Failed(failure));
            }
            Start::Open | Start::Over => {}
        }
    }

    /// A job ends because of a failure: tells all other jobs that belong together with this job to end, unless they
    /// were told before.
    fn end_with(&mut self, job: JobId) {
        let grace_ns = self.spec.options.kill_grace_ns;
        self.family.on_told_to_end(job);
        for job in self.family.end_with(job) {
            self.control(job, JobDown::Kill { grace_ns });
        }
    }

    fn on_ended(&mut self, job: JobId, Ended { failure, done }: Ended) {
        let start = self.family.start_of(job);
        if let Some(failure) = failure {
            // A job that was refused reports its failure only here.
            match job == self.spec.job && self.may_fail(job) {
                true => {
                    let ends_job = failure.cause.ends_job();
                    self.result.failure.get_or_insert(failure);
                    if ends_job {
                        self.end_with(job);
                    }
                }
                false => self.on_failed(job, failure),
            }
        }
        self.asked_why.remove(&job);
        let Some(member) = self.family.remove(job) else { return };
        if job == self.spec.job {
            self.result.done = done;
        }
        if member.spec.spawned.is_some() && start != Start::Over {
            self.answer_spawn(job, Err("the processes could not be started".into()));
        }
        if self.family.members.is_empty() {
            self.notice(Notice::Ended(self.result.clone()));
            self.phase = Phase::Draining;
            if self.one_shot {
                self.control(self.spec.job, SessionDown::Shutdown);
            }
        }
    }

    /// Takes the next step for a rank's request for processes, which become the job `child`.
    fn go_on(&mut self, child: JobId, step: Step) {
        match step {
            Step::ReadHostFiles(paths) => self.out.push_back(LauncherOutput::ReadHostFiles { child, paths }),
            Step::Launch(spec) => self.launch(*spec),
            Step::Refuse { request: Request { by, from, .. }, problem } => {
                let from = Origin { job: (by != self.spec.job).then_some(by), rank: from };
                self.notice(Notice::NotSpawned { from, problem: problem.clone() });
                self.answer_spawn(child, Err(problem));
            }
        }
    }

    fn on_output(&mut self, now: Instant, frame: Frame) {
        let Some((stream, next)) = Next::of_field(frame.stream) else { return };
        let (job, length) = (JobId(frame.job), frame.payload.len() as u32);
        if !self.unwritten.add(now, job, stream, length) {
            return self.grant(job, stream, length);
        }
        let origin = Origin { job: (job != self.spec.job).then_some(job), rank: Rank(frame.arg) };
        let from = (frame.arg != MIXED).then_some((origin, next));
        self.out.push_back(LauncherOutput::Write { stream, from, bytes: frame.payload });
    }

    fn on_written(&mut self, now: Instant, stream: Stream, bytes: u32) {
        self.unwritten.moved_at = now;
        let mut left = bytes;
        while let Some((job, written)) = self.unwritten.take_oldest(stream, left) {
            left -= written;
            self.grant(job, stream, written);
        }
    }

    fn grant(&mut self, job: JobId, stream: Stream, bytes: u32) {
        self.send(Frame::new(DownFrame::OutputCredit, stream as u16, job.0, bytes, Bytes::new()));
    }

    /// Nobody reads the output any more: all output that was passed to the driver counts as written.
    fn discard_output(&mut self) {
        self.unwritten.is_dropped = true;
        for stream in [Stream::Out, Stream::Err] {
            while let Some((job, bytes)) = self.unwritten.take_oldest(stream, u32::MAX) {
                self.grant(job, stream, bytes);
            }
        }
    }

    fn on_signal(&mut self, now: Instant, signal: i32, sender: Option<u32>) {
        // `timeout` signals its child and then the process group, and batch systems signal all processes of a job, some
        // of which forward the signal: such repetitions are ignored. A signal from the terminal (no `sender`) always
        // counts.
        let is_first_again = |(first, at)| first == signal && now - at < SAME_SIGNAL_NS;
        let is_repeated = sender.is_some() && self.interrupted.is_some_and(is_first_again);
        match signal {
            SIGALRM => {
                self.asked_why = self.family.members.keys().copied().collect();
                self.control_all(JobDown::StallAsk { collective: None });
                self.control_all(JobDown::StackAsk);
            }
            SIGHUP | SIGINT | SIGQUIT | SIGTERM if is_repeated => {}
            SIGHUP | SIGINT | SIGQUIT | SIGTERM => self.on_interrupt(now, signal),
            SIGTSTP => {
                self.control_all(JobDown::Signal { signal });
                self.out.push_back(LauncherOutput::Suspend);
            }
            signal => self.control_all(JobDown::Signal { signal }),
        }
    }

    /// The first interrupt is forwarded; the second one ends the job, whatever the ranks do.
    fn on_interrupt(&mut self, now: Instant, signal: i32) {
        self.be_impatient(now);
        let (first, starting) = (self.interrupted.map(|(first, _)| first), self.family.is_starting(self.spec.job));
        self.notice(Notice::Interrupt { signal, first, starting });
        match first {
            Some(first) => {
                self.discard_output();
                self.end_job(Cause::Interrupted { signal: first }, 0);
            }
            None => {
                self.interrupted = Some((signal, now));
                self.control_all(JobDown::Signal { signal });
            }
        }
    }

    /// The user or the time limit requests the end of the run: no more jobs are added, and unread output is awaited
    /// only for a limited time.
    fn be_impatient(&mut self, now: Instant) {
        self.family.is_closed = true;
        self.unwritten.hurry(now);
    }

    fn on_tick(&mut self, now: Instant) {
        let is_running = self.phase == Phase::Running && !self.family.is_starting(self.spec.job);
        match self.timeout.take_if(|limit| now >= limit.at) {
            // Before the time limit ends the ranks, they report where they wait.
            Some(limit) if is_running && limit.explains && !limit.has_asked => {
                self.timeout = Some(TimeLimit { at: now + TIMEOUT_STACKS_NS_MAX, has_asked: true, ..limit });
                self.on_signal(now, SIGALRM, None);
            }
            Some(TimeLimit { after_ns, .. }) => {
                self.be_impatient(now);
                self.end_job(Cause::TimedOut { after_ns }, self.spec.options.kill_grace_ns);
            }
            None => {}
        }
        if self.unwritten.deadline().is_some_and(|until| now >= until) {
            self.discard_output();
        }
    }

    /// Whether a failure of this job must be reported: the job was not told to end.
    fn may_fail(&self, job: JobId) -> bool {
        self.family.is_told_to_end(job).map_or_else(|| self.may_still_fail(), |is_told| !is_told)
    }

    /// Whether no failure that ends the job is known.
    fn may_still_fail(&self) -> bool {
        self.result.failure.as_ref().is_none_or(|failure| !failure.cause.ends_job())
    }

    /// Ends all jobs for a reason of the launcher's own, which it reports unless an earlier failure already ended them.
    fn end_job(&mut self, cause: Cause, grace_ns: u64) {
        self.family.end_all();
        self.control_all(JobDown::Kill { grace_ns });
        let counts = match self.phase {
            Phase::Waiting | Phase::Running => self.may_still_fail(),
            Phase::Draining | Phase::Left => self.result.failure.is_none(),
        };
        if counts {
            let failure = Failure::from(cause);
            self.result.failure = Some(failure.clone());
            self.notice(Notice::Failed(failure));
        }
    }

    fn on_stdin(&mut self, bytes: Bytes) {
        if self.stdin.on_read(bytes.len()) {
            // End of file cannot overtake data: both are in the same class.
            self.send(Frame::new(DownFrame::Input, 0, self.spec.job.0, 0, bytes));
            self.ask_stdin();
        }
    }

    fn ask_stdin(&mut self) {
        if let Some(bytes_max) = self.stdin.bytes_max() {
            self.out.push_back(LauncherOutput::ReadStdin { bytes_max });
        }
    }

    fn on_link_down(&mut self, problem: String) {
        self.link = None;
        if matches!(self.phase, Phase::Waiting | Phase::Running) {
            let failure = Failure::from(Cause::AgentLost { agent: Default::default(), problem: problem.into() });
            self.notice(Notice::Failed(failure.clone()));
            self.result = Ended { failure: Some(failure), done: Default::default() };
            self.phase = Phase::Draining;
        }
    }

    fn leave_if_done(&mut self) {
        let alone = self.link.is_none() || !self.one_shot;
        if self.phase == Phase::Draining && self.unwritten.is_empty() && alone {
            self.phase = Phase::Left;
            self.out.push_back(LauncherOutput::Exit { code: exit_code(self.result.failure.as_ref()) });
        }
    }

    fn answer_spawn(&mut self, child: JobId, result: Result<NewJob, String>) {
        self.control(child, FromLauncher::Spawned(result));
    }

    fn control(&mut self, job: JobId, message: impl Into<Control>) {
        self.send(control_frame(job, &message.into()));
    }

    fn control_all(&mut self, message: JobDown) {
        let jobs: Vec<JobId> = self.family.members.keys().copied().collect();
        jobs.into_iter().for_each(|job| self.control(job, message.clone()));
    }

    fn send(&mut self, frame: Frame) {
        if let Some(link) = self.link {
            self.out.push_back(LauncherOutput::Send { link, frame });
        }
    }

    /// A notice about one of the jobs; or, for job 0 of a session that outlives its jobs, a notice about the session.
    fn notice_of(&mut self, job: JobId, notice: Notice) {
        let is_spawned = job != self.spec.job && self.family.members.contains_key(&job);
        self.notice(if is_spawned { Notice::OfJob { job, notice: notice.into() } } else { notice });
    }

    fn notice(&mut self, notice: Notice) {
        self.out.push_back(LauncherOutput::Notice(notice));
    }
}

/// Once the user or the time limit ends the job, how long to wait for a reader of the output (ns); each piece that is
/// read restarts the time. Chosen: a person who pressed Ctrl-C waits for a prompt.
const UNTAKEN_NS_MAX: u64 = 1_000_000_000;

/// Output that the driver has received and has not written yet.
pub struct Unwritten {
    /// For standard output and error: job and number of bytes of each piece, in the order in which they are written.
    pieces: [VecDeque<(JobId, u32)>; 2],
    /// Whether output is dropped, since nobody reads it any more.
    pub is_dropped: bool,
    /// Whether the end of the run was requested: then unread output is awaited only for a limited time.
    pub is_impatient: bool,
    /// When a reader last took output, or output began to wait for a reader.
    pub moved_at: Instant,
}

impl Unwritten {
    pub fn new(now: Instant) -> Unwritten {
        Unwritten { pieces: Default::default(), is_dropped: false, is_impatient: false, moved_at: now }
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.iter().all(VecDeque::is_empty)
    }

    /// The end of the run was requested: from now on, unread output is awaited only for a limited time.
    pub fn hurry(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.is_impatient, true) {
            self.moved_at = now;
        }
    }

    /// When unread output is given up.
    pub fn deadline(&self) -> Option<Instant> {
        (self.is_impatient && !self.is_empty()).then(|| self.moved_at + UNTAKEN_NS_MAX)
    }

    /// Output of a job arrives. Returns whether it is to be written; otherwise it is dropped.
    pub fn add(&mut self, now: Instant, job: JobId, stream: Stream, bytes: u32) -> bool {
        if self.is_dropped {
            return false;
        }
        if self.is_empty() {
            self.moved_at = now;
        }
        if bytes > 0 {
            self.pieces[stream as usize - 1].push_back((job, bytes));
        }
        true
    }

    /// Removes up to `bytes_max` of the oldest output, all of one job. Returns the job, which gets credit, and the
    /// number of bytes.
    pub fn take_oldest(&mut self, stream: Stream, bytes_max: u32) -> Option<(JobId, u32)> {
        let pieces = &mut self.pieces[stream as usize - 1];
        let (job, waiting) = pieces.front_mut().filter(|_| bytes_max > 0)?;
        let taken = (*job, bytes_max.min(*waiting));
        *waiting -= taken.1;
        if *waiting == 0 {
            pieces.pop_front();
        }
        Some(taken)
    }
}

/// Standard input of the job, on its way to the root.
pub struct Stdin {
    /// Whether the input goes through the launcher and has not ended.
    is_open: bool,
    credit: usize,
}

impl Stdin {
    pub fn new(is_relayed: bool) -> Stdin {
        Stdin { is_open: is_relayed, credit: STDIN_WINDOW_BYTES }
    }

    /// The agents of the ranks have taken this many bytes of input.
    pub fn on_credit(&mut self, bytes: u32) {
        self.credit = (self.credit + bytes as usize).min(STDIN_WINDOW_BYTES);
    }

    /// Input was read; `bytes`: its length, 0 at end of file. Returns whether the input is to be sent.
    pub fn on_read(&mut self, bytes: usize) -> bool {
        let is_sent = self.is_open;
        self.credit = self.credit.saturating_sub(bytes);
        self.is_open &= bytes > 0;
        is_sent
    }

    /// How much may be read; `None`: nothing more is read.
    pub fn bytes_max(&self) -> Option<u32> {
        self.is_open.then(|| self.credit.min(STDIN_CHUNK_MAX) as u32)
    }
}

#[cfg(test)]
mod tests;
