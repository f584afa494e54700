//! The launcher's main loop: its root agent, its signals, standard input and output.

use super::stdin::Stdin;
use super::terminal::{RawTerminal, Signals, prepare_terminal};
use super::writer::{Begun, Decoration, Files, FolderProblem, LineStyle, Places, Problem, Sink, Writer, make_folder};
use super::{Reach, RunConfig, RunError, RunOutcome, ShowStarting, Stamps, Starting};
use crate::agent::IN_MEMORY;
use crate::agent::driver::AgentDriver;
use crate::agent::token::Token;
use crate::hosts;
use crate::keeper::forker;
use crate::session::Attached;
use crate::transport::link::{Link, Received};
use bytes::Bytes;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use wireup_coll::mapping::Mapping;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::{Event, Interest, Reactor};
use wireup_proto::exit_code::READER_GONE;
use wireup_proto::io::{Input, Peer, Stream};
use wireup_proto::launcher_io::{LauncherInput, LauncherOutput, Notice};
use wireup_proto::{AgentConfig, Born, Instant, Launcher, LauncherConfig, Origin};
use wireup_wire::frame::Frame;
use wireup_wire::ids::{AgentId, NodeId, Rank};
use wireup_wire::job::{JobSpec, StdinTarget};
use wireup_wire::peer::{Cause, Ended};
use wireup_wire::session::NodeState;
use wireup_wire::signal::{SIGCONT, SIGTSTP, SIGWINCH};

const SIGNAL_TOKEN: Token = Token::Launcher(0);
const STDIN_TOKEN: Token = Token::Launcher(1);
const STDOUT_TOKEN: Token = Token::Launcher(2);
const STDERR_TOKEN: Token = Token::Launcher(3);
const STOP_TOKEN: Token = Token::Launcher(4);
/// The session's socket.
const SOCKET_TOKEN: Token = Token::Launcher(u32::MAX);
/// Most bytes per read from the session's socket. Chosen: the capacity of a pipe; touching the pages of a larger buffer
/// would cost a short job more than the reads cost a long one.
const READ_BYTES_MAX: usize = 64 << 10;

/// Number of descriptors that an agent needs per rank; `FILES_BESIDES`: number of its other descriptors.
const FILES_PER_RANK: u64 = 4;
const FILES_BESIDES: u64 = 64;

/// Longest wait for the last messages to be written to a stopped terminal after an interrupt.
const LAST_WORDS_MAX: Duration = Duration::from_millis(200);

/// Interval at which the line about starting nodes is updated (ns).
const STARTING_NS: u64 = 500_000_000;

struct LauncherDriver<'w> {
    root: Root,
    launcher: Launcher,
    words: &'w mut dyn FnMut(&Notice) -> String,
    signals: Signals,
    stdin: Stdin,
    /// Code in this process that takes the place of the ranks' standard input and output; `None`: the real ones are
    /// used.
    talking: Option<Talking<'w>>,
    output: [Writer; 2],
    /// Function that shows which nodes are starting, and the time of its next call (ns).
    starting: Option<(ShowStarting, u64)>,
    terminal: Option<RawTerminal>,
    /// The result of the run, as far as it is known so far.
    outcome: RunOutcome,
    /// The writer's error text, if the reader of this process's standard output or error has closed it.
    reader_gone: Option<String>,
    ended_by_reader: bool,
    code: Option<u8>,
}

/// Runs a job whose ranks exchange input and output with `program` instead of with this process's standard streams.
pub fn run_with(
    config: RunConfig,
    program: &mut dyn Program,
    words: &mut dyn FnMut(&Notice) -> String,
) -> Result<RunOutcome, RunError> {
    LauncherDriver::new(config, Some(program), words)?.run()
}

/// Runs a job to its end. `words` turns notices into lines for standard error (empty: nothing to print).
pub fn run(config: RunConfig, words: &mut dyn FnMut(&Notice) -> String) -> Result<RunOutcome, RunError> {
    LauncherDriver::new(config, None, words)?.run()
}

impl<'w> LauncherDriver<'w> {
    pub fn new(
        mut config: RunConfig,
        program: Option<&'w mut dyn Program>,
        words: &'w mut dyn FnMut(&Notice) -> String,
    ) -> Result<Self, RunError> {
        let system = |what| move |error| RunError::System { what, error };
        if let Some(path) = &config.output.directory {
            make_folder(path, config.job.job_size(), config.output.overwrite).map_err(|problem| match problem {
                FolderProblem::System(error) => RunError::OutputDir { path: path.clone(), error },
                FolderProblem::Taken { count, first } => RunError::OutputTaken { path: path.clone(), count, first },
            })?;
        }
        let mut stamps =
            Stamps { process_ns: config.process_start_ns, resolved_ns: config.resolved_ns, ..Stamps::default() };
        let one_shot = matches!(config.reach, Reach::OneShot(_));
        wireup_os::c_library::keep_freed_memory();
        let root = match config.reach {
            Reach::Session(session) => Root::session(*session).map_err(system("watching the session's socket"))?,
            Reach::OneShot(session) => {
                check_open_files(&config.job)?;
                wireup_os::process::set_subreaper().map_err(system("becoming a subreaper"))?;
                let born = Born { process_ns: config.process_start_ns, bootstrap_ns: config.resolved_ns };
                Root::within(AgentDriver::new(AgentConfig::new(AgentId(0), *session, born), None)?)
            }
        };
        let reactor = root.reactor();
        let signals = Signals::new(reactor, SIGNAL_TOKEN, STOP_TOKEN)?;
        let style = LineStyle { label: config.job.options.stdio.label, alone: config.job.job_size() == 1 };
        let (places, begun) = (Arc::new(Places::of(&config.job)), Begun::default());
        let decoration = Decoration::new(&config.output, &places).map(Arc::new);
        let writer = |stream| {
            let shown_on = if config.output.merge { Stream::Out } else { stream };
            let files = Files::new(&config.output, shown_on, &places, &begun);
            let sink = Sink { files, tee: config.output.tee, shown_on, decoration: decoration.clone() };
            let written = Writer::new(stream, style, sink, config.spool.clone());
            written.map_err(system("making an event descriptor"))
        };
        let output = [writer(Stream::Out)?, writer(Stream::Err)?];
        for (writer, token) in output.iter().zip([STDOUT_TOKEN, STDERR_TOKEN]) {
            reactor.add(writer.fd(), token.pack(), Interest::READABLE).map_err(system("watching descriptors"))?;
        }
        let terminal = prepare_terminal(&mut config.job);
        let options = &config.job.options;
        let relay_stdin = options.stdio.stdin != StdinTarget::None && !options.stdio.stdin_inherit;
        stamps.begun_ns = monotonic_ns();
        let launcher = Launcher::new(
            LauncherConfig {
                job: config.job,
                timeout_ns: config.timeout_ns,
                explains_timeout: config.explains_timeout,
                one_shot,
                relay_stdin,
                places: config.places,
                growth: config.growth,
            },
            Instant(stamps.begun_ns),
        );
        Ok(LauncherDriver {
            root,
            launcher,
            words,
            signals,
            stdin: Stdin::new(STDIN_TOKEN),
            talking: program.map(Talking::new),
            output,
            starting: config.starting.map(|show| (show, stamps.begun_ns + STARTING_NS)),
            terminal,
            outcome: RunOutcome {
                code: 0,
                ended: Ended { failure: None, done: Default::default() },
                traces: Vec::new(),
                interrupted: false,
                has_open_line: Some(false),
                stamps,
            },
            reader_gone: None,
            ended_by_reader: false,
            code: None,
        })
    }

    pub fn run(mut self) -> Result<RunOutcome, RunError> {
        self.root.on_launcher_ready();
        self.tell(LauncherInput::LinkUp { link: IN_MEMORY });
        loop {
            self.settle();
            if let Some(code) = self.code {
                return Ok(self.leave(code));
            }
            let talks = self.talking.as_ref().is_some_and(Talking::is_ready).then_some(0);
            let deadlines = [
                self.launcher.deadline().map(|at| at.0),
                self.root.deadline_ns(),
                self.stdin.deadline_ns(),
                talks,
                self.starting.as_ref().map(|(_, due_ns)| *due_ns),
            ];
            let until = deadlines.into_iter().flatten().min();
            let events =
                self.root.wait(until).map_err(|error| RunError::System { what: "waiting for events", error })?;
            for event in events {
                self.on_event(event);
            }
            if self.stdin.is_file() || talks.is_some() {
                self.read_stdin();
            }
            self.on_tick();
        }
    }

    /// Lets the launcher and its root work until neither has any output left.
    fn settle(&mut self) {
        loop {
            self.root.settle();
            let mut quiet = true;
            for bytes in self.root.take_bytes() {
                quiet = false;
                self.tell(LauncherInput::LinkBytes { link: IN_MEMORY, bytes });
            }
            if let Some(problem) = self.root.take_end() {
                quiet = false;
                self.tell(LauncherInput::LinkDown { link: IN_MEMORY, problem });
            }
            while let Some(output) = self.launcher.poll() {
                quiet = false;
                self.perform(output);
            }
            if quiet {
                return;
            }
        }
    }

    fn tell(&mut self, input: LauncherInput) {
        self.launcher.handle(Instant(monotonic_ns()), input);
    }

    fn perform(&mut self, output: LauncherOutput) {
        match output {
            LauncherOutput::Send { frame, .. } => self.root.send(frame),
            LauncherOutput::Write { stream, from, bytes } => self.write(stream, from, bytes),
            LauncherOutput::ReadStdin { bytes_max } => match &mut self.talking {
                Some(talking) => talking.want(bytes_max as usize),
                None => self.stdin.want(bytes_max as usize, self.root.reactor()),
            },
            LauncherOutput::ReadHostFiles { child, paths } => {
                let names = |path: &[u8]| hosts::names_in_file(Path::new(OsStr::from_bytes(path)));
                let read = |path: Vec<u8>| {
                    let names = names(&path).map_err(|error| error.to_string());
                    (path, names)
                };
                self.tell(LauncherInput::HostFiles { child, files: paths.into_iter().map(read).collect() });
            }
            LauncherOutput::Notice(notice) => self.on_notice(notice),
            LauncherOutput::Suspend => self.suspend(),
            LauncherOutput::Exit { code } => self.code = Some(if self.ended_by_reader { READER_GONE } else { code }),
        }
    }

    fn write(&mut self, stream: Stream, from: Option<(Origin, wireup_proto::Next)>, bytes: Bytes) {
        let is_taken = match (&mut self.talking, &from) {
            (Some(talking), Some((Origin { job: None, rank }, _))) => talking.take_output(stream, *rank, &bytes),
            _ => false,
        };
        if is_taken {
            self.tell(LauncherInput::Written { stream, bytes: bytes.len() as u32 });
        } else {
            self.clear_starting(true);
            self.writer(stream).write(from, bytes);
        }
    }

    fn on_notice(&mut self, notice: Notice) {
        match &notice {
            Notice::Started { .. } => self.outcome.stamps.started_ns = monotonic_ns(),
            Notice::Ended(ended) => {
                self.outcome.stamps.ended_ns = monotonic_ns();
                self.outcome.ended = ended.clone();
            }
            Notice::Interrupt { .. } => self.outcome.interrupted = true,
            Notice::Trace(part) => self.outcome.traces.push((**part).clone()),
            Notice::Failed(_)
            | Notice::Stall(_)
            | Notice::Stacks(_)
            | Notice::RankError(_)
            | Notice::Note(_)
            | Notice::OfJob { .. }
            | Notice::NotStarted { .. }
            | Notice::NotSpawned { .. }
            | Notice::Added { .. } => {}
        }
        if self.is_readers_end(&notice) {
            self.ended_by_reader = true;
            return;
        }
        let mut text = (self.words)(&notice);
        if self.terminal.is_some() && rustix::termios::isatty(rustix::stdio::stderr()) {
            // In raw mode the terminal does not turn a newline into a carriage return and a newline.
            text = text.replace('\n', "\r\n");
        }
        let is_begun = matches!(notice, Notice::Started { .. } | Notice::Failed(_) | Notice::Ended(_));
        if is_begun || !text.is_empty() {
            self.clear_starting(is_begun);
        }
        if !text.is_empty() {
            self.writer(Stream::Err).notice(text);
        }
    }

    /// Shows which nodes are starting, at intervals.
    fn show_starting(&mut self, now_ns: u64) {
        if let Some((show, due_ns)) = self.starting.as_mut().filter(|(_, due_ns)| now_ns >= *due_ns) {
            *due_ns = now_ns + STARTING_NS;
            show(Starting::Nodes(self.root.nodes()));
        }
    }

    /// Erases the line about starting nodes, because other text is about to be shown. `for_good`: all nodes have
    /// started or the job has failed, so the line is not shown again.
    fn clear_starting(&mut self, for_good: bool) {
        if let Some((show, _)) = &mut self.starting {
            show(Starting::Nothing);
        }
        self.starting.take_if(|_| for_good);
    }

    /// The writer of a stream; prepares this process for threads, since the writer may start one.
    fn writer(&mut self, stream: Stream) -> &mut Writer {
        self.root.before_threads();
        &mut self.output[stream as usize - 1]
    }

    /// Whether the job ended because the reader of its output has exited, as `head` does. Such an end is not reported.
    fn is_readers_end(&self, notice: &Notice) -> bool {
        let failure = match notice {
            Notice::Failed(failure) => Some(failure),
            Notice::Ended(ended) => ended.failure.as_ref(),
            _ => None,
        };
        match failure.map(|failure| &failure.cause) {
            Some(Cause::Launcher { problem }) => Some(problem) == self.reader_gone.as_ref(),
            _ => false,
        }
    }

    fn on_event(&mut self, event: Event) {
        match Token::unpack(event.token) {
            Some(SIGNAL_TOKEN) => self.on_signals(),
            Some(STOP_TOKEN) if self.signals.stop.is_pending(SIGTSTP) => {
                self.tell(LauncherInput::Signal { signal: SIGTSTP, sender: None });
            }
            Some(STOP_TOKEN) => {}
            Some(STDIN_TOKEN) => self.read_stdin(),
            Some(STDOUT_TOKEN) => self.on_written(Stream::Out),
            Some(STDERR_TOKEN) => self.on_written(Stream::Err),
            Some(token) => self.root.on_event(token, event),
            None => {}
        }
    }

    fn on_signals(&mut self) {
        while let Some((signal, sender)) = self.signals.passed_on.read_from() {
            if signal == SIGCONT {
                self.stdin.on_continue(self.root.reactor());
                if let Some(terminal) = &self.terminal {
                    terminal.set_raw();
                }
            }
            if signal == SIGWINCH
                && let Ok((rows, columns)) = wireup_os::pty::size(rustix::stdio::stdin())
            {
                self.tell(LauncherInput::Resize { rows, columns });
            }
            self.tell(LauncherInput::Signal { signal, sender });
        }
    }

    fn read_stdin(&mut self) {
        let read = match &mut self.talking {
            Some(talking) => talking.take(),
            None => self.stdin.read(self.root.reactor()),
        };
        if let Some(bytes) = read {
            self.tell(LauncherInput::Stdin { bytes });
        }
    }

    fn on_written(&mut self, stream: Stream) {
        let news = self.output[stream as usize - 1].take_news();
        // A failure is handled before `written`: the launcher may exit as soon as all output is written.
        if let Some(Problem { text, reader_gone }) = news.failed {
            if reader_gone {
                self.reader_gone.get_or_insert_with(|| text.clone());
            }
            self.tell(LauncherInput::WriteFailed { problem: text });
        }
        if let Ok(bytes @ 1..) = u32::try_from(news.written) {
            self.tell(LauncherInput::Written { stream, bytes });
        }
    }

    fn on_tick(&mut self) {
        self.root.on_tick();
        let now = Instant(monotonic_ns());
        self.show_starting(now.0);
        self.stdin.on_tick(self.root.reactor());
        if self.launcher.deadline().is_some_and(|due| now >= due) {
            self.tell(LauncherInput::Tick);
        }
    }

    /// Stops this process as `^Z` does; returns after a `SIGCONT`.
    fn suspend(&mut self) {
        self.root.settle();
        if let Some(terminal) = &self.terminal {
            terminal.restore();
        }
        if !self.signals.stop()
            && let Some(terminal) = &self.terminal
        {
            terminal.set_raw();
        }
    }

    fn leave(mut self, code: u8) -> RunOutcome {
        self.clear_starting(true);
        self.root.end();
        let limit = self.launcher.is_impatient().then_some(LAST_WORDS_MAX);
        let ends: Vec<Option<bool>> = self.output.iter_mut().map(|writer| writer.finish(limit)).collect();
        drop(self.terminal.take());
        self.outcome.stamps.left_ns = monotonic_ns();
        let has_open_line = ends.into_iter().try_fold(false, |any, end| Some(any | end?));
        RunOutcome { code, has_open_line, ..self.outcome }
    }
}

/// Raises the limit of open files as far as possible; an error if the ranks of this node need a higher limit.
fn check_open_files(job: &JobSpec) -> Result<(), RunError> {
    let limits = wireup_os::process::raise_open_files()
        .map_err(|error| RunError::System { what: "raising the limit of open files", error })?;
    let limit = limits.soft_now;
    let Ok(mapping) = Mapping::new(&job.blocks, job.job_size(), job.nodes.len() as u32) else {
        // The root agent reports the error in the mapping.
        return Ok(());
    };
    let ranks = (0..job.nodes.len() as u32).map(|node| mapping.local_size(NodeId(node))).max().unwrap_or(0);
    let needed = u64::from(ranks) * FILES_PER_RANK + FILES_BESIDES;
    if needed > limit {
        return Err(RunError::OpenFiles { ranks, needed, limit });
    }
    Ok(())
}

/// The launcher's root agent: either inside this process, with frames passed in memory, or in a standing session,
/// through a socket.
enum Root {
    Within(Box<Within>),
    Session(Box<Session>),
}

/// The root agent of a one-shot run.
struct Within {
    agent: AgentDriver,
    up: bool,
}

/// The link to the root of a standing session.
struct Session {
    link: Link,
    reactor: Reactor,
    interest: Interest,
    buffer: Box<[u8]>,
    received: Vec<Bytes>,
    end: End,
}

enum End {
    NotYet,
    /// The link has ended for this reason, which is reported after everything that was received before the end.
    Closed(String),
    Reported,
}

impl Root {
    fn within(agent: AgentDriver) -> Root {
        Root::Within(Box::new(Within { agent, up: false }))
    }

    fn session(session: Attached) -> io::Result<Root> {
        let mut link = session.into_link()?;
        let reactor = Reactor::new()?;
        link.carrier.watch(SOCKET_TOKEN.pack(), Interest::READABLE, &reactor)?;
        let received = match link.receive_early() {
            Received::Bytes(bytes) => vec![bytes],
            Received::Nothing | Received::Up(_) => Vec::new(),
        };
        let buffer = vec![0; READ_BYTES_MAX].into();
        let interest = Interest::READABLE;
        Ok(Root::Session(Box::new(Session { link, reactor, interest, buffer, received, end: End::NotYet })))
    }

    /// Reports to a root agent in this process that the launcher is linked to it and can receive frames.
    fn on_launcher_ready(&mut self) {
        if let Root::Within(within) = self {
            within.agent.handle(Input::LinkUp { link: IN_MEMORY, peer: Peer::Launcher, local: String::new() });
            within.up = true;
        }
    }

    fn reactor(&self) -> &Reactor {
        match self {
            Root::Within(within) => within.agent.reactor(),
            Root::Session(session) => &session.reactor,
        }
    }

    /// The nodes of a one-shot run; empty for a standing session, whose nodes are already running.
    fn nodes(&self) -> &[NodeState] {
        match self {
            Root::Within(within) => within.agent.nodes(),
            Root::Session(_) => &[],
        }
    }

    fn deadline_ns(&mut self) -> Option<u64> {
        match self {
            Root::Within(within) => within.agent.deadline_ns(),
            Root::Session(_) => None,
        }
    }

    /// Waits for events, at most until `until_ns`; the caller handles them.
    fn wait(&mut self, until_ns: Option<u64>) -> io::Result<Vec<Event>> {
        match self {
            Root::Within(within) => within.agent.wait(until_ns),
            Root::Session(session) => {
                let timeout = until_ns.map(|until| Duration::from_nanos(until.saturating_sub(monotonic_ns())));
                Ok(session.reactor.wait(timeout)?.to_vec())
            }
        }
    }

    fn on_event(&mut self, token: Token, event: Event) {
        match self {
            Root::Within(within) => within.agent.on_event(token, event),
            Root::Session(session) => session.on_event(),
        }
    }

    fn on_tick(&mut self) {
        if let Root::Within(within) = self {
            within.agent.on_tick();
        }
    }

    /// Does all work that is possible without waiting.
    fn settle(&mut self) {
        match self {
            Root::Within(within) => within.agent.settle(),
            Root::Session(session) => session.flush(),
        }
    }

    /// Prepares for further threads in this process: keepers are then forked by the forker.
    fn before_threads(&self) {
        if let Root::Within(_) = self {
            // If this fails, no keeper can be forked for jobs that ranks spawn from now on; such a job then reports the
            // reason.
            let _ = forker::before_threads();
        }
    }

    /// Takes the bytes received for the launcher, in order.
    fn take_bytes(&mut self) -> Vec<Bytes> {
        match self {
            Root::Within(within) => {
                let frames = within.agent.take_for_launcher();
                frames.into_iter().flat_map(|frame| [Bytes::copy_from_slice(&frame.header()), frame.payload]).collect()
            }
            Root::Session(session) => std::mem::take(&mut session.received),
        }
    }

    /// The reason why the root agent has ended; returned only once.
    fn take_end(&mut self) -> Option<String> {
        match self {
            Root::Within(within) if within.agent.has_left() => {
                std::mem::take(&mut within.up).then(|| "the root agent has exited".to_owned())
            }
            Root::Within(_) => None,
            Root::Session(session) => match std::mem::replace(&mut session.end, End::Reported) {
                End::Closed(problem) => Some(problem),
                other => {
                    session.end = other;
                    None
                }
            },
        }
    }

    fn send(&mut self, frame: Frame) {
        match self {
            Root::Within(within) if within.up => {
                for bytes in [Bytes::copy_from_slice(&frame.header()), frame.payload] {
                    within.agent.handle(Input::LinkBytes { link: IN_MEMORY, bytes });
                }
            }
            Root::Within(_) => {}
            Root::Session(session) => session.link.send(frame),
        }
    }

    /// Ends the root agent if it is in this process.
    fn end(self) {
        if let Root::Within(within) = self {
            within.agent.end();
        }
    }
}

impl Session {
    fn on_event(&mut self) {
        match self.link.receive(&mut self.buffer) {
            Ok(Received::Bytes(bytes)) => self.received.push(bytes),
            Ok(Received::Nothing | Received::Up(_)) => {}
            Err(error) => {
                self.link.carrier.unwatch(&self.reactor);
                self.end = End::Closed(format!("the connection to the session is lost: {error}"));
            }
        }
    }

    fn flush(&mut self) {
        if !matches!(self.end, End::NotYet) {
            return;
        }
        // A write error is ignored: the next read reports the problem, after the last data received.
        let all_out = self.link.flush().unwrap_or(true);
        let interest = if all_out { Interest::READABLE } else { Interest::BOTH };
        if std::mem::replace(&mut self.interest, interest) != interest {
            let _ = self.link.carrier.watch(SOCKET_TOKEN.pack(), interest, &self.reactor);
        }
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
struct Talking<'p> {
    program: &'p mut dyn Program,
    bytes_max: usize,
    waits: bool,
}

impl<'p> Talking<'p> {
    fn new(program: &'p mut dyn Program) -> Talking<'p> {
        Talking { program, bytes_max: 0, waits: false }
    }

    /// Sets the number of bytes that the job can take; 0: the job takes no bytes for now.
    fn want(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Whether [`Talking::take`] can return input.
    fn is_ready(&self) -> bool {
        self.bytes_max > 0 && !self.waits
    }

    /// The next input of the job; empty: the input has ended.
    fn take(&mut self) -> Option<Bytes> {
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
    fn take_output(&mut self, stream: Stream, rank: Rank, bytes: &[u8]) -> bool {
        if stream == Stream::Err {
            return self.program.errors(rank, bytes);
        }
        self.waits = false;
        self.program.output(rank, bytes);
        true
    }
}
