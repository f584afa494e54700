//! One launcher: the user's end of a job and of the jobs that its ranks ask for.
//!
//! ```text
//!   Waiting ── link up ──► Running ── all jobs ended ──► Draining ── all written, link down ──► Left
//!                             │ second interrupt, time limit: kill; output is dropped after an interrupt
//! ```
//!
//! It sends the job to the root agent, passes signals and standard input down, returns what the ranks wrote and grants
//! credit for what was written, and exits with the exit code when everything has arrived. The root decides about the
//! failure of one job. A failure of one ends all jobs that belong together (`together`), as under Hydra: their ranks
//! may wait for each other. Those of a family do, until ranks that use PMIx have disconnected.
//!
//! If a rank asks for processes, the root offers a number for a job (`Spawn`). The launcher makes a job of the request
//! (`child`) and launches it; it answers (`Spawned`) when all of its ranks run, or with the reason why not.

mod child;
mod family;
mod info;
mod seats;
mod together;

use crate::exit_code::{OURS, exit_code};
use crate::io::{LinkId, Stream};
use crate::launcher_io::{HostFiles, LauncherInput, LauncherOutput, Notice};
use crate::outbox::control_frame;
use crate::output::{MIXED, Next, Origin};
use crate::time::Instant;
use bytes::Bytes;
use family::{Family, Start};
pub use seats::{Growth, Place};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wireup_wire::frame::{Frame, FrameReader, Kind};
use wireup_wire::ids::{AgentId, JobId, Rank};
use wireup_wire::job::JobSpec;
use wireup_wire::limits::{STDIN_CHUNK_MAX, STDIN_WINDOW_BYTES};
use wireup_wire::names::NewJob;
use wireup_wire::peer::{self, Cause, Done, Ended, Failure};
use wireup_wire::pmi::SpawnRequest;
use wireup_wire::signal::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use wireup_wire::talk::{Control, FromLauncher, JobDown, JobUp, SessionDown, ToLauncher};

/// Once the user or the time limit ends the job, how long to wait for a reader of the output (ns); each piece that is
/// read restarts the time. Chosen: a person who pressed Ctrl-C waits for a prompt.
const UNTAKEN_NS_MAX: u64 = 1_000_000_000;

/// Time within which a second signal from the same process is taken for a repetition of the first (ns). Chosen: longer
/// than the pause between the two signals of `timeout` on a loaded machine, shorter than the pause between two
/// decisions of a person.
const SAME_SIGNAL_NS: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
pub struct LauncherConfig {
    pub job: JobSpec,
    /// Time after which the job is ended (ns); `None`: no limit.
    pub timeout_ns: Option<u64>,
    /// Whether the agents are told to leave when the job has ended (a one-shot run).
    pub one_shot: bool,
    /// Whether the job's standard input goes through this launcher, instead of being inherited by a rank.
    pub relay_stdin: bool,
    /// The nodes on which ranks of further jobs may run.
    pub places: Vec<Place>,
    pub growth: Growth,
}

/// A rank's request for processes.
struct Request {
    /// The job of the rank that asks.
    by: JobId,
    from: Rank,
    request: SpawnRequest,
}

pub struct Launcher {
    config: LauncherConfig,
    job: JobId,
    phase: Phase,
    link: Option<LinkId>,
    reader: FrameReader,
    out: VecDeque<LauncherOutput>,
    family: Family,
    /// Number of jobs that ranks have asked for so far.
    children: u32,
    /// Requests of ranks whose hostfiles are being read, by the number of the new job.
    reading: BTreeMap<JobId, Request>,
    /// Agents on whose nodes no job can start.
    lost: BTreeSet<AgentId>,
    /// Bytes returned by `poll` and not written yet, for standard output and error: number of bytes and job, in the
    /// order in which they are written.
    unwritten: [VecDeque<(JobId, u64)>; 2],
    /// Whether output is dropped; credit for it is returned immediately.
    discard: bool,
    stdin_credit: usize,
    stdin_ended: bool,
    /// The first signal that asked for the end, and when it came.
    interrupted: Option<(i32, Instant)>,
    timeout_at: Option<Instant>,
    /// The failure reported to the user, which is the first one.
    failure: Option<Failure>,
    /// The report of the job that the user has launched.
    done: Done,
    /// How the run has ended; `None` until all of its jobs have ended.
    ended: Option<Ended>,
    /// Whether the end was requested: unread output is then awaited only for a limited time.
    is_ending: bool,
    /// When a reader last took output, or output began to wait for a reader.
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
            family: Family::default(),
            children: 0,
            reading: BTreeMap::new(),
            lost: BTreeSet::new(),
            unwritten: Default::default(),
            discard: false,
            stdin_credit: STDIN_WINDOW_BYTES,
            stdin_ended: false,
            interrupted: None,
            timeout_at: config.timeout_ns.map(|timeout| now + timeout),
            failure: None,
            done: Done::default(),
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
            LauncherInput::Signal { signal, sender } => self.on_signal(now, signal, sender),
            LauncherInput::Resize { rows, columns } => {
                self.control(self.job, &Control::JobDown(JobDown::Resize { rows, columns }))
            }
            LauncherInput::Stdin { bytes } => self.on_stdin(bytes),
            LauncherInput::Written { stream, bytes } => self.on_written(now, stream, bytes),
            LauncherInput::WriteFailed { problem } => self.on_write_failed(problem),
            LauncherInput::HostFiles { child, files } => self.on_host_files(child, &files),
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
        (self.is_ending && self.has_unwritten()).then(|| self.moved_at + UNTAKEN_NS_MAX)
    }

    fn has_unwritten(&self) -> bool {
        self.unwritten.iter().any(|waiting| !waiting.is_empty())
    }

    fn on_link_up(&mut self, link: LinkId) {
        self.link = Some(link);
        self.phase = Phase::Running;
        self.launch(self.config.job.clone());
        self.ask_stdin();
    }

    fn launch(&mut self, spec: JobSpec) {
        let id = spec.job;
        self.control(id, &Control::FromLauncher(FromLauncher::Launch(spec.clone().into())));
        self.family.add(spec);
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
                Ok(message) => self.on_control(JobId(frame.job), message),
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

    fn on_control(&mut self, job: JobId, message: Control) {
        match message {
            Control::JobUp(JobUp::Started { ranks, .. }) => self.on_started(job, ranks),
            Control::JobUp(JobUp::Failed(failure)) => self.on_failed(job, failure),
            Control::JobUp(JobUp::Stall(report)) => self.notice_of(job, Notice::Stall(report)),
            Control::Note(note) => self.notice_of(job, Notice::Note(note)),
            Control::ToLauncher(ToLauncher::Ended(ended)) => self.on_ended(job, ended),
            Control::ToLauncher(ToLauncher::Spawn { job: child, from, request }) => {
                self.on_spawn(child, Request { by: job, from, request: *request });
            }
            Control::ToLauncher(ToLauncher::Added { agents }) => {
                for (agent, host) in self.family.on_added(job, &agents) {
                    self.notice(Notice::Added { agent, host });
                }
            }
            // In a session of one run a lost node does not return.
            Control::JobUp(JobUp::Missing(missing)) if self.config.one_shot => {
                self.lost.extend(missing.iter().map(|lost| lost.agent));
            }
            Control::JobUp(JobUp::Missing(missing)) => self.lost = missing.iter().map(|lost| lost.agent).collect(),
            Control::ToLauncher(ToLauncher::Together { jobs, connected }) => {
                self.family.on_together(job, &jobs, connected)
            }
            // All other messages are sent between agents or by launchers, or answer requests that this launcher does
            // not make.
            _ => {}
        }
    }

    /// All ranks of a job run.
    fn on_started(&mut self, job: JobId, ranks: u32) {
        let Some(member) = self.family.on_started(job) else { return };
        if member.is_spawned() {
            let told =
                Control::FromLauncher(FromLauncher::Spawned(Ok(NewJob { nspace: member.spec.nspace.clone(), ranks })));
            self.control(job, &told);
        } else {
            self.notice(Notice::Started { ranks });
        }
    }

    /// The first failure of a job, which its root has decided to end because of it, or which does not end it.
    fn on_failed(&mut self, job: JobId, failure: Failure) {
        match &failure.cause {
            Cause::AgentLost { agent, .. } => self.lost.extend([*agent]),
            Cause::AgentsMissing { missing } => self.lost.extend(missing.iter().map(|missing| missing.agent)),
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
                // The first failure counts: of those that end jobs, and of those that end nothing.
                if self.may_still_fail() && (ends_job || self.failure.is_none()) {
                    self.failure = Some(failure.clone());
                }
                self.notice_of(job, Notice::Failed(failure));
                if ends_job {
                    self.end_with(job);
                }
            }
            Start::Open | Start::Over => {}
        }
    }

    /// A job ends because of a failure: ends the jobs that belong to it and were not told to end.
    fn end_with(&mut self, job: JobId) {
        let grace_ns = self.config.job.options.kill_grace_ns;
        self.family.on_told_to_end(job);
        for job in self.family.end_with(job) {
            self.control(job, &Control::JobDown(JobDown::Kill { grace_ns }));
        }
    }

    /// A job has ended on all nodes.
    fn on_ended(&mut self, job: JobId, Ended { failure, done }: Ended) {
        let start = self.family.start_of(job);
        if let Some(failure) = failure {
            // A job that was refused has not reported its failure before.
            match job == self.job && self.may_fail(job) {
                true => {
                    let ends_job = failure.cause.ends_job();
                    self.failure.get_or_insert(failure);
                    if ends_job {
                        self.end_with(job);
                    }
                }
                false => self.on_failed(job, failure),
            }
        }
        let Some(member) = self.family.remove(job) else { return };
        if job == self.job {
            self.done = done;
        }
        if member.is_spawned() && start != Start::Over {
            self.control(
                job,
                &Control::FromLauncher(FromLauncher::Spawned(Err("the processes could not be started".into()))),
            );
        }
        if self.family.is_empty() {
            self.on_all_ended();
        }
    }

    fn on_all_ended(&mut self) {
        let ended = Ended { failure: self.failure.clone(), done: self.done };
        self.notice(Notice::Ended(ended.clone()));
        self.ended = Some(ended);
        self.phase = Phase::Draining;
        if self.config.one_shot {
            self.control(self.job, &Control::SessionDown(SessionDown::Shutdown));
        }
    }

    /// A rank asks for processes: they become the job `child`, once the files of hosts that it names have been read.
    fn on_spawn(&mut self, child: JobId, request: Request) {
        match self.host_files(&request) {
            Ok(paths) if !paths.is_empty() => {
                self.reading.insert(child, request);
                self.out.push_back(LauncherOutput::ReadHostFiles { child, paths: paths.into_iter().collect() });
            }
            Ok(_) => self.spawn(child, &request, &HostFiles::new()),
            Err(problem) => self.refuse_spawn(child, &request, problem),
        }
    }

    fn on_host_files(&mut self, child: JobId, files: &HostFiles) {
        if let Some(request) = self.reading.remove(&child) {
            self.spawn(child, &request, files);
        }
    }

    fn spawn(&mut self, child: JobId, request: &Request, files: &HostFiles) {
        match self.child(child, request, files) {
            Ok(spec) => self.launch(spec),
            Err(problem) => self.refuse_spawn(child, request, problem),
        }
    }

    fn refuse_spawn(&mut self, child: JobId, request: &Request, problem: String) {
        let from = Origin { job: (request.by != self.job).then_some(request.by), rank: request.from };
        self.notice(Notice::NotSpawned { from, problem: problem.clone() });
        self.control(child, &Control::FromLauncher(FromLauncher::Spawned(Err(problem))));
    }

    /// The job of the rank that asks.
    fn parent(&self, request: &Request) -> Result<&JobSpec, String> {
        if self.is_ending {
            return Err("the jobs are being ended".into());
        }
        self.family.to_grow(request.by)
    }

    fn host_files(&self, request: &Request) -> Result<BTreeSet<Vec<u8>>, String> {
        let parent = self.parent(request)?;
        child::host_files(parent, request.from, &request.request).map_err(|refused| refused.to_string())
    }

    fn child(&mut self, child: JobId, request: &Request, host_files: &HostFiles) -> Result<JobSpec, String> {
        self.children += 1;
        let parent = self.parent(request)?;
        let names = (child, child::nspace(&self.config.job.nspace, self.children));
        let LauncherConfig { ref places, growth, .. } = self.config;
        let site = child::Site { places, loads: self.family.loads(), lost: &self.lost, growth, host_files };
        child::job(names, (parent, request.from), &request.request, site).map_err(|refused| refused.to_string())
    }

    fn on_output(&mut self, now: Instant, frame: Frame) {
        let Some((stream, next)) = Next::of_field(frame.stream) else { return };
        let (job, length) = (JobId(frame.job), frame.payload.len() as u32);
        if self.discard {
            return self.grant(job, stream, length);
        }
        if !self.has_unwritten() {
            self.moved_at = now;
        }
        if length > 0 {
            self.unwritten[stream as usize - 1].push_back((job, u64::from(length)));
        }
        let origin = Origin { job: (job != self.job).then_some(job), rank: Rank(frame.arg) };
        let from = (frame.arg != MIXED).then_some((origin, next));
        self.out.push_back(LauncherOutput::Write { stream, from, bytes: frame.payload });
    }

    fn on_written(&mut self, now: Instant, stream: Stream, bytes: u32) {
        self.moved_at = now;
        let mut left = u64::from(bytes);
        while left > 0
            && let Some((job, waiting)) = self.unwritten[stream as usize - 1].front_mut()
        {
            let (job, written) = (*job, left.min(*waiting));
            *waiting -= written;
            left -= written;
            if *waiting == 0 {
                self.unwritten[stream as usize - 1].pop_front();
            }
            self.grant(job, stream, written as u32);
        }
    }

    fn grant(&mut self, job: JobId, stream: Stream, bytes: u32) {
        self.send(Frame::new(Kind::OutputCredit, stream as u16, job.0, bytes, Bytes::new()));
    }

    /// Nobody reads the output any more: everything returned so far counts as written.
    fn discard_output(&mut self) {
        if !std::mem::replace(&mut self.discard, true) {
            for stream in [Stream::Out, Stream::Err] {
                let unwritten = std::mem::take(&mut self.unwritten[stream as usize - 1]);
                unwritten.into_iter().for_each(|(job, bytes)| self.grant(job, stream, bytes as u32));
            }
        }
    }

    fn on_write_failed(&mut self, problem: String) {
        self.discard_output();
        self.end_job(Cause::Launcher { problem }, self.config.job.options.kill_grace_ns);
    }

    fn on_signal(&mut self, now: Instant, signal: i32, sender: Option<u32>) {
        match signal {
            SIGALRM => self.control_all(&Control::JobDown(JobDown::StallAsk { collective: None })),
            SIGHUP | SIGINT | SIGQUIT | SIGTERM if sender.is_some() && self.is_repeated(now, signal) => {}
            SIGHUP | SIGINT | SIGQUIT | SIGTERM => self.on_interrupt(now, signal),
            SIGTSTP => {
                self.control_all(&Control::JobDown(JobDown::Signal { signal }));
                self.out.push_back(LauncherOutput::Suspend);
            }
            signal => self.control_all(&Control::JobDown(JobDown::Signal { signal })),
        }
    }

    /// Whether the first interrupt is sent again. `timeout` signals its child and then the process group, and batch
    /// systems signal all processes of a job, of which some pass it on. A key that is pressed twice is meant twice.
    fn is_repeated(&self, now: Instant, signal: i32) -> bool {
        self.interrupted.is_some_and(|(first, at)| first == signal && now - at < SAME_SIGNAL_NS)
    }

    /// The first interrupt is forwarded; the second one ends the job, whatever the ranks do.
    fn on_interrupt(&mut self, now: Instant, signal: i32) {
        self.be_impatient(now);
        let (first, starting) = (self.interrupted.map(|(first, _)| first), self.family.is_starting(self.job));
        self.notice(Notice::Interrupt { signal, first, starting });
        match first {
            Some(first) => {
                self.discard_output();
                self.end_job(Cause::Interrupted { signal: first }, 0);
            }
            None => {
                self.interrupted = Some((signal, now));
                self.control_all(&Control::JobDown(JobDown::Signal { signal }));
            }
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

    /// Whether a failure of this job must be reported: the job was not told to end.
    fn may_fail(&self, job: JobId) -> bool {
        self.family.is_told_to_end(job).map_or_else(|| self.may_still_fail(), |is_told| !is_told)
    }

    /// Whether no failure that ends the job is known.
    fn may_still_fail(&self) -> bool {
        self.failure.as_ref().is_none_or(|failure| !failure.cause.ends_job())
    }

    /// Ends all jobs for the launcher's own reason; only the first failure counts.
    fn end_job(&mut self, cause: Cause, grace_ns: u64) {
        let failure = Failure { node: Default::default(), host: String::new(), rank: None, pid: None, cause };
        match &mut self.ended {
            None => {
                self.family.end_all();
                self.control_all(&Control::JobDown(JobDown::Kill { grace_ns }));
                if self.may_still_fail() {
                    self.failure = Some(failure.clone());
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
            let cause = Cause::AgentLost { agent: Default::default(), problem: problem.into() };
            let failure = Failure { node: Default::default(), host: String::new(), rank: None, pid: None, cause };
            self.notice(Notice::Failed(failure.clone()));
            self.ended = Some(Ended { failure: Some(failure), done: Default::default() });
            self.phase = Phase::Draining;
        }
    }

    fn leave_if_done(&mut self) {
        let written = !self.has_unwritten();
        let alone = self.link.is_none() || !self.config.one_shot;
        if self.phase == Phase::Draining && written && alone {
            self.phase = Phase::Left;
            let code = self.ended.as_ref().map_or(OURS, |ended| exit_code(ended.failure.as_ref()));
            self.out.push_back(LauncherOutput::Exit { code });
        }
    }

    fn control(&mut self, job: JobId, message: &Control) {
        self.send(control_frame(job, message));
    }

    fn control_all(&mut self, message: &Control) {
        self.family.jobs().into_iter().for_each(|job| self.control(job, message));
    }

    fn send(&mut self, frame: Frame) {
        if let Some(link) = self.link {
            self.out.push_back(LauncherOutput::Send { link, frame });
        }
    }

    /// A notice about one of the jobs; or, for job 0 of a session that outlives its jobs, a notice about the session.
    fn notice_of(&mut self, job: JobId, notice: Notice) {
        let is_spawned = job != self.job && self.family.has(job);
        self.notice(if is_spawned { Notice::OfJob { job, notice: notice.into() } } else { notice });
    }

    fn notice(&mut self, notice: Notice) {
        self.out.push_back(LauncherOutput::Notice(notice));
    }
}

#[cfg(test)]
mod tests;
