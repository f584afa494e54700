//! The keeper's own process: a loop that starts, signals, reaps and reports.
//!
//! Each turn waits for the agent or for an ended child, or does not wait while there are processes to start. Then it
//! handles requests, reaps, starts as many processes as the spawner has room for, and reports. So a batch of thousands
//! delays a signal by a few starts at most. Few descriptors wait to be sent at any time, because `clone` copies and
//! `exec` closes the whole table.

use super::channel::{Flushed, Inbox, Outbox};
use super::directories::Directories;
use super::living::{Living, Start, status};
use super::protocol::{Batch, Process, Report, Request, is_server};
use super::staged::{self, View};
use super::starts::{Waiting, enqueue, stdio_error};
use super::stops::Stops;
use super::streams::{Lent, Streams};
use super::sweep::Sweep;
use crate::spawn_error::spawn_error;
use rustix::process::Signal;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::iter;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};
use wireup_os::clock::monotonic_ns;
use wireup_os::process::{self, Isolated, PidNamespace, Reaped, SignalFd};
use wireup_os::pty::SavedTerminal;
use wireup_os::reactor::{Interest, Reactor};
use wireup_os::spawn::{Command, Executed, LOWEST_SOURCE, Session, Spawner};
use wireup_os::{bind, files};
use wireup_proto::io::KernelSession;
use wireup_wire::peer::{SpawnError, SpawnStep};
use wireup_wire::signal::{SIGCHLD, SIGKILL, SIGSTOP};

/// Number of starts in progress per CPU. Measured: 1 leaves CPUs idle, more than 4 gains nothing.
const STARTS_PER_CPU: usize = 4;
const STARTS_MAX: usize = 64;
/// Number of queued descriptors at which they are sent: those of about a dozen processes.
const FREIGHT: usize = 48;
/// Number of unsent descriptors at which starts wait until the agent takes some.
const FREIGHT_MAX: usize = 128;
/// Longest wait for a start in progress, or for descriptors in flight to be received, before everything else is checked
/// again: the first wait; `PATIENCE_MAX`: the longest after doubling.
const PATIENCE_MIN: Duration = Duration::from_millis(1);
const PATIENCE_MAX: Duration = Duration::from_millis(32);
/// Time for which reports wait to be joined by others while there are processes to start (ns).
const REPORT_NS: u64 = 4_000_000;
/// Time for which the first process of a namespace waits for others in it (ns). They end with their agents: in
/// milliseconds, unless an agent is stopped, and then nothing of its job is left anyway.
const OTHERS_NS_MAX: u64 = 5_000_000_000;
/// Time for which a keeper that fails waits for room to say why: its agent reads at once, unless it is stopped.
const REPORT_MAX: Duration = Duration::from_secs(1);
const AGENT: u64 = 0;
const CHILDREN: u64 = 1;

/// The whole run of a keeper, from just after the fork with all signals blocked to its exit.
///
/// `terminal`: the modes of standard input, if it is a terminal. `around`: the agent's PID namespace and this process's
/// own, if that is one within it.
pub(super) fn main(socket: OwnedFd, terminal: Option<SavedTerminal>, around: Option<(OwnedFd, &PidNamespace)>) -> ! {
    // A panic must not unwind into the agent's stack frames, of which this process has a copy.
    let served = std::panic::catch_unwind(move || {
        let isolated = around.map(|(outer, own)| enter(outer, own, &socket)).transpose().map_err(cannot("enter"))?;
        let socket = with_high_number(socket)?;
        match Serve::new(Rc::clone(&socket), terminal, isolated) {
            Ok(serve) => serve.run(),
            Err(problem) => Err(report_failure(Outbox::default(), &socket, problem)),
        }
    });
    process::leave(if matches!(served, Ok(Ok(()))) { 0 } else { 1 })
}

/// The agent's socket under a number that no source descriptor of a child has.
fn with_high_number(low: OwnedFd) -> Result<Rc<OwnedFd>, SpawnError> {
    let high = files::duplicate_from(&low, LOWEST_SOURCE).map_err(cannot("duplicate its socket"));
    let high = high.map_err(|problem| report_failure(Outbox::default(), &low, problem))?;
    // `Lent::settle` closes the descriptor together with all others.
    mem::forget(low);
    Ok(Rc::new(high))
}

/// Sends the error, after what waits in `outbox`. If it cannot be sent, the agent sees only that the keeper has exited.
fn report_failure(mut outbox: Outbox, socket: &OwnedFd, problem: SpawnError) -> SpawnError {
    outbox.push(&Report::Failed { problem: problem.clone() }, Vec::new());
    let until = Instant::now() + REPORT_MAX;
    while outbox.flush(socket).is_ok_and(|flushed| flushed != Flushed::All) && Instant::now() < until {
        thread::sleep(PATIENCE_MIN);
    }
    problem
}

/// Turns an error of the system into one that says what the keeper cannot do.
fn cannot(what: &str) -> impl Fn(io::Error) -> SpawnError {
    move |error| spawn_error(SpawnStep::Fork, format!("cannot {what}"), &error)
}

/// The byte that a keeper sends before anything else when its namespace is set up.
pub(super) const ENTERED: [u8; 1] = [1];

fn enter(outer: OwnedFd, own: &PidNamespace, socket: &OwnedFd) -> io::Result<Isolated> {
    let isolated = Isolated::enter(outer, own)?;
    wireup_os::socket::send(socket, &ENTERED, &[])?;
    Ok(isolated)
}

struct Serve {
    socket: Rc<OwnedFd>,
    reactor: Reactor,
    signals: SignalFd,
    inbox: Inbox,
    outbox: Outbox,
    /// Whether the reactor watches the socket for room.
    watches_room: bool,
    lent: Lent,
    terminal: Option<SavedTerminal>,
    restore_terminal: bool,
    /// The PID namespace of this process; `None`: it is the agent's.
    isolated: Option<Isolated>,
    spawner: Spawner,
    queue: VecDeque<Waiting>,
    /// Processes that have not been reaped, by slot.
    living: HashMap<u32, Living>,
    slots: HashMap<u32, u32>,
    sweep: Option<Sweep>,
    stops: Stops,
    flushed_ns: u64,
    patience: Duration,
    agent_gone: bool,
    /// Time since which no process of the keeper is left after its agent has ended (ns).
    alone_since_ns: Option<u64>,
    directories: Directories,
    /// Listening sockets for processes that are yet to be started.
    listening: VecDeque<OwnedFd>,
    /// Whether the keeper returns to its initial state when the sweep is done.
    renewing: bool,
    /// The files that this process sees in place of the originals; with them it serves no other job.
    staged: Option<View>,
}

#[derive(Default)]
struct Ready {
    agent: bool,
    children: bool,
}

impl Serve {
    fn new(
        socket: Rc<OwnedFd>,
        terminal: Option<SavedTerminal>,
        isolated: Option<Isolated>,
    ) -> Result<Serve, SpawnError> {
        let ignored = IGNORABLE.into_iter().filter(|&signal| process::is_ignored(signal));
        process::reset_dispositions(&ignored.collect::<Vec<_>>());
        process::set_name(c"wireup-keeper");
        process::set_subreaper().map_err(cannot("become a subreaper (prctl)"))?;
        // The agent may have a short slice, which interrupts this process between two starts: see the module `keeper`.
        process::restore_slice();
        let kept = iter::once(socket.as_fd()).chain(isolated.iter().flat_map(Isolated::descriptors));
        let null = "open /dev/null, which every program needs (mknod -m 666 /dev/null c 1 3)";
        let lent = Lent::settle(kept).map_err(cannot(null))?;
        // This is for the keeper only: each start sets the limits of its own process. If it fails, fewer processes fit.
        let _ = process::raise_open_files();
        let reactor = Reactor::new().map_err(cannot("wait for events (epoll_create1)"))?;
        let signals = SignalFd::new(&[SIGCHLD]).map_err(cannot("watch for exits (signalfd)"))?;
        let watch = cannot("watch its descriptors (epoll_ctl)");
        reactor.add(&*socket, AGENT, Interest::READABLE).map_err(&watch)?;
        reactor.add(&signals, CHILDREN, Interest::READABLE).map_err(&watch)?;
        let cpus = bind::allowed().map_or(1, |cpus| cpus.len());
        Ok(Serve {
            terminal,
            spawner: Spawner::new((cpus * STARTS_PER_CPU).min(STARTS_MAX))
                .map_err(cannot("set up the creation of processes"))?,
            socket,
            reactor,
            signals,
            inbox: Inbox::new(),
            outbox: Outbox::default(),
            watches_room: false,
            lent,
            restore_terminal: false,
            isolated,
            queue: VecDeque::new(),
            living: HashMap::new(),
            slots: HashMap::new(),
            sweep: None,
            stops: Stops::default(),
            flushed_ns: 0,
            patience: PATIENCE_MIN,
            agent_gone: false,
            alone_since_ns: None,
            directories: Directories::default(),
            listening: VecDeque::new(),
            renewing: false,
            staged: None,
        })
    }

    fn run(mut self) -> Result<(), SpawnError> {
        if let Err(problem) = self.turns() {
            return Err(report_failure(self.outbox, &self.socket, problem));
        }
        // Placeholders for staged files are removed.
        drop(self.staged.take());
        self.directories.remove_all();
        Ok(())
    }

    fn turns(&mut self) -> Result<(), SpawnError> {
        while !self.is_over() {
            let ready = self.wait().map_err(cannot("wait for events"))?;
            if ready.agent {
                self.handle_requests();
            }
            self.stop_due();
            self.fill_seats();
            self.collect_starts();
            if ready.children || self.sweep.is_some() {
                self.reap();
            }
            self.kill_again();
            self.report().map_err(cannot("report to its agent"))?;
        }
        Ok(())
    }

    /// Whether the keeper has nothing left to do. The first process of a namespace ends last: keepers of other agents
    /// that are in it may have directories to remove, and the processes that they leave become its children.
    fn is_over(&mut self) -> bool {
        if !self.agent_gone || self.sweep.is_some() {
            return false;
        }
        let since_ns = *self.alone_since_ns.get_or_insert_with(monotonic_ns);
        let waits = self.isolated.as_ref().is_some_and(Isolated::has_others);
        if !waits || monotonic_ns() - since_ns > OTHERS_NS_MAX {
            return true;
        }
        thread::sleep(PATIENCE_MIN);
        self.begin_sweep(true);
        false
    }

    fn can_start(&self) -> bool {
        self.sweep.is_none() && !self.queue.is_empty() && self.spawner.has_room() && self.outbox.fds() < FREIGHT_MAX
    }

    /// Waits for something to do.
    fn wait(&mut self) -> io::Result<Ready> {
        let timeout = if self.can_start() {
            Some(Duration::ZERO)
        } else if let Some(sweep) = &self.sweep {
            Some(sweep.until_next())
        } else if self.spawner.under_way() > 0 {
            // Only the word in shared memory shows that the program has been executed; no event does.
            self.spawner.wait_oldest(self.patience);
            Some(Duration::ZERO)
        } else if !(self.outbox.is_empty() || self.watches_room) {
            Some(self.patience)
        } else {
            None
        };
        let until_stop = self.stops.next_ns().map(|at| Duration::from_nanos(at.saturating_sub(monotonic_ns())));
        let timeout = timeout.into_iter().chain(until_stop).min();
        let mut ready = Ready::default();
        for event in self.reactor.wait(timeout)? {
            match event.token {
                CHILDREN => ready.children = true,
                _ => ready.agent = true,
            }
        }
        if ready.children {
            while self.signals.read().is_some() {}
        }
        self.patience = (self.patience * 2).min(PATIENCE_MAX);
        Ok(ready)
    }

    fn handle_requests(&mut self) {
        let open = self.inbox.fill(&self.socket).unwrap_or(false);
        while let Some(request) = self.inbox.next::<Request>() {
            self.patience = PATIENCE_MIN;
            match request {
                Request::Sockets { count } => {
                    let count = (count as usize).min(self.inbox.fds.len());
                    self.listening.extend(self.inbox.fds.drain(..count));
                }
                Request::Spawn(batch) => self.on_batch(batch),
                Request::Signal { slot, signal } => {
                    self.stops.on_signal(slot, signal, monotonic_ns());
                    self.signal(slot, signal);
                }
                Request::Sweep => self.begin_sweep(false),
                Request::RemoveAtEnd { directory } => self.directories.remove_at_end(directory),
                Request::RemoveUnclaimed { directory, log, last_words } => {
                    self.directories.remove_unclaimed(directory, log, last_words);
                }
                Request::Renew => {
                    self.renewing = true;
                    self.begin_sweep(false);
                }
                Request::RestoreTerminalOnDeath => self.restore_terminal = true,
                Request::Begin(session) => begin(session),
            }
        }
        if !open {
            self.on_agent_gone();
        }
    }

    fn on_batch(&mut self, batch: Batch) {
        if let Some(wanted) = &batch.staged
            && self.staged.is_none()
        {
            let view = staged::show(wanted, &batch);
            match &view {
                View::Half(problem) => self.refuse(&batch, problem),
                View::Originals(problem) if wanted.required => self.refuse(&batch, problem),
                View::Originals(problem) => {
                    self.outbox.push(&Report::NotStaged { problem: problem.clone() }, Vec::new());
                }
                View::Redirected(redirected, problem) => {
                    self.directories.remove_at_end(redirected.folder());
                    self.outbox.push(&Report::Redirected { problem: problem.clone() }, Vec::new());
                }
                View::Staged(..) => {}
            }
            let is_refused = matches!(view, View::Half(_)) || matches!(view, View::Originals(_)) && wanted.required;
            self.staged = Some(view);
            if is_refused {
                return;
            }
        }
        let redirected = match &self.staged {
            Some(View::Redirected(redirected, _)) if batch.staged.is_some() => Some(redirected),
            _ => None,
        };
        enqueue(batch, redirected, &mut self.queue);
    }

    fn refuse(&mut self, batch: &Batch, problem: &str) {
        for process in &batch.processes {
            let what = format!("staged files cannot be shown in place of the originals: {problem}");
            let error = SpawnError { step: SpawnStep::Staged, what, errno: 0 };
            self.outbox.push(&Report::StartFailed { slot: process.slot, error }, Vec::new());
        }
    }

    fn on_agent_gone(&mut self) {
        self.agent_gone = true;
        if let Some(terminal) = self.terminal.as_ref().filter(|_| self.restore_terminal) {
            // The terminal may be gone too.
            let _ = terminal.restore(rustix::stdio::stdin());
        }
        // No agent is left to receive reports.
        let _ = self.reactor.remove(&self.socket);
        self.outbox = Outbox::default();
        self.begin_sweep(true);
    }

    fn stop_due(&mut self) {
        if self.stops.next_ns().is_some() {
            for slot in self.stops.take(monotonic_ns()) {
                self.signal(slot, SIGSTOP);
            }
        }
    }

    fn signal(&mut self, slot: Option<u32>, signal: i32) {
        match slot {
            Some(slot) => self.signal_one(slot, signal),
            None => self.signal_all(signal),
        }
    }

    fn signal_one(&mut self, slot: u32, signal: i32) {
        if let Some(living) = self.living.get(&slot) {
            living.signal(signal);
        } else if let Some(waiting) = self.queue.iter_mut().find(|waiting| waiting.process.slot == slot) {
            waiting.signals.push(signal);
        }
    }

    fn signal_all(&mut self, signal: i32) {
        if signal == SIGKILL {
            self.cancel_queue();
        }
        let ranks = self.living.iter().filter(|(slot, _)| !is_server(**slot));
        ranks.for_each(|(_, living)| living.signal(signal));
        let waiting = self.queue.iter_mut().filter(|waiting| !is_server(waiting.process.slot));
        waiting.for_each(|waiting| waiting.signals.push(signal));
    }

    fn cancel_queue(&mut self) {
        for waiting in mem::take(&mut self.queue) {
            let report = Report::StartFailed { slot: waiting.process.slot, error: waiting.cancelled() };
            self.outbox.push(&report, Vec::new());
        }
    }

    fn fill_seats(&mut self) {
        while self.can_start() {
            let Some(waiting) = self.queue.pop_front() else { break };
            let slot = waiting.process.slot;
            if let Err(error) = self.start(waiting) {
                self.outbox.push(&Report::StartFailed { slot, error }, Vec::new());
            }
        }
        self.spawner.pause();
    }

    fn start(&mut self, waiting: Waiting) -> Result<(), wireup_wire::peer::SpawnError> {
        let prepared = waiting.program.clone()?;
        let process = &waiting.process;
        let listening = if process.listens { self.listening.pop_front() } else { None };
        let streams = Streams::open(process, listening).map_err(|problem| stdio_error(&problem))?;
        let cpus = process.cpus.clone().map(bind::CpuSet::from_words);
        let command = Command {
            program: &prepared.program,
            environment: &process.env,
            stdio: streams.stdio(&self.lent),
            extra: streams.sockets(),
            session: session(process),
            cpus: cpus.as_ref(),
            umask: waiting.umask,
            limits: &waiting.limits,
            more_follow: !self.queue.is_empty(),
        };
        let slot = process.slot;
        let spawn_ns = monotonic_ns();
        let pid = self.spawner.start(&command, slot).map_err(|failure| prepared.error(failure))?;
        let start = Start { spawn_ns, fds: streams.agent, program: Rc::clone(&prepared) };
        // The number is read before the process is reaped. Without a descriptor for the question, the number in this
        // namespace is used.
        let shown = self.isolated.as_ref().and_then(|isolated| isolated.outer_pid(pid).ok()).unwrap_or(pid);
        let living = Living { pid, shown, start: Some(start) };
        waiting.signals.iter().for_each(|&signal| living.signal(signal));
        self.slots.insert(pid, slot);
        self.living.insert(slot, living);
        self.patience = PATIENCE_MIN;
        Ok(())
    }

    /// Reaps ended children; reports starts before exits.
    fn reap(&mut self) {
        let mut dead = Vec::new();
        let left = loop {
            match process::reap() {
                Reaped::Child { pid, ended } => dead.push((pid, ended)),
                Reaped::NoneEnded => break true,
                Reaped::NoChildren => break false,
            }
        };
        // The word of a reaped child is cleared, so its start is reported here at the latest.
        self.collect_starts();
        for (pid, ended) in dead {
            // Unknown pids are adopted orphans of our processes.
            let Some(slot) = self.slots.remove(&pid) else { continue };
            self.living.remove(&slot);
            self.outbox.push(&Report::Exited { slot, status: status(ended) }, Vec::new());
        }
        if !left {
            self.on_childless();
        }
    }

    fn collect_starts(&mut self) {
        while let Some(executed) = self.spawner.poll() {
            self.patience = PATIENCE_MIN;
            self.on_executed(executed);
        }
    }

    fn on_executed(&mut self, Executed { token: slot, pid, result }: Executed) {
        let Some(living) = self.living.get_mut(&slot) else { return };
        let Some(start) = living.start.take() else { return };
        let shown = living.shown;
        if let Err(failure) = result {
            // The slot is free again, so the exit of this process is not reported.
            self.living.remove(&slot);
            self.slots.remove(&pid);
            self.outbox.push(&Report::StartFailed { slot, error: start.program.error(failure) }, Vec::new());
            return;
        }
        let (present, fds) = start.fds.split();
        let report = Report::Started { slot, pid: shown, spawn_ns: start.spawn_ns, exec_ns: monotonic_ns(), present };
        self.outbox.push(&report, fds);
    }

    fn begin_sweep(&mut self, patient: bool) {
        self.cancel_queue();
        self.sweep.get_or_insert_with(|| Sweep::begin(patient));
    }

    fn kill_again(&mut self) {
        if self.sweep.as_mut().is_some_and(Sweep::kill_again) {
            // Leftovers of the last job make this keeper unfit for another one.
            self.agent_gone |= self.renewing;
            self.renewing = false;
            self.on_childless();
        }
    }

    fn on_childless(&mut self) {
        if self.sweep.take().is_none() {
            return;
        }
        if self.renewing && self.staged.is_some() {
            self.agent_gone = true;
        } else if mem::take(&mut self.renewing) {
            self.directories.remove();
            self.restore_terminal = false;
            self.listening.clear();
            self.stops = Stops::default();
            self.living.clear();
            self.slots.clear();
            self.outbox.push(&Report::Renewed, Vec::new());
        } else {
            self.outbox.push(&Report::Swept, Vec::new());
        }
    }

    /// Sends reports, unless more of them are expected soon.
    fn report(&mut self) -> io::Result<()> {
        let now = monotonic_ns();
        let more = !self.queue.is_empty() && self.outbox.fds() < FREIGHT && now - self.flushed_ns < REPORT_NS;
        if self.agent_gone || self.outbox.is_empty() || more {
            return Ok(());
        }
        self.flushed_ns = now;
        let Ok(flushed) = self.outbox.flush(&self.socket) else {
            self.on_agent_gone();
            return Ok(());
        };
        let full = flushed == Flushed::Full;
        if full != self.watches_room {
            let interest = if full { Interest::BOTH } else { Interest::READABLE };
            self.reactor.modify(&self.socket, AGENT, interest)?;
            self.watches_room = full;
        }
        Ok(())
    }
}

fn begin(session: KernelSession) {
    if session == KernelSession::Agents && process::new_group().is_ok() {
        return;
    }
    // The keeper was forked and leads no group, so only a sandbox refuses this. Then the keeper's processes share a
    // scheduler autogroup with others.
    let _ = process::new_session();
}

/// The kernel session for a process: see the module `keeper` for the reasons. A controlling terminal needs a session of
/// its own.
fn session(process: &Process) -> Session {
    match (process.pty, process.shares_session) {
        (Some(_), _) => Session::OwnWithTerminal,
        (None, true) => Session::Shared,
        (None, false) => Session::Own,
    }
}

/// Signals that ranks ignore if the user's shell ignores them, as under `nohup`.
const IGNORABLE: [i32; 3] = [Signal::HUP.as_raw(), Signal::INT.as_raw(), Signal::QUIT.as_raw()];
