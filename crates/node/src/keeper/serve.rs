//! The keeper's own process: a loop that starts, signals, reaps and reports.
//!
//! Each turn of the loop waits for the agent or for a child's exit, but does not wait while there are processes to
//! start. Then it handles requests, reaps, starts as many processes as the spawner has room for, and reports. So even a
//! batch of thousands delays a signal only by a few starts. Few descriptors wait to be sent at any time, because
//! `clone` copies and `exec` closes the whole descriptor table.
//!
//! Sweeps: kills all descendants, round after round, until none is left.
//!
//! A listing may miss processes that are forked while it is read, and orphans are reparented to the keeper only when
//! their parents are gone. So rounds repeat at growing intervals; the keeper's own loop reaps meanwhile.
//!
//! If the agent is gone, agents and keepers that are descendants of this keeper have noticed the end of the agent too:
//! each of them ends its own processes and removes directories that no other process knows. The sweep gives these
//! agents and keepers a moment to do so.

use super::directories::Directories;
use super::processes::{Processes, settle_descriptors};
use super::protocol::{Batch, Flushed, Inbox, KeeperEvent, Outbox, Request};
use super::staged::{self, View};
use crate::remedy::spawn_error;
use rustix::process::Signal;
use std::fs;
use std::io;
use std::iter;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};
use wireup_os::clock::monotonic_ns;
use wireup_os::files;
use wireup_os::process::{self, Isolated, PidNamespace, SignalFd, kill_descendants};
use wireup_os::pty::SavedTerminal;
use wireup_os::reactor::{Interest, Reactor};
use wireup_os::spawn::LOWEST_SOURCE;
use wireup_proto::io::KernelSession;
use wireup_wire::peer::{SpawnError, SpawnStep};
use wireup_wire::signal::SIGCHLD;

/// First wait for a start in progress, or for descriptors in flight to be received, before everything else is checked
/// again; repeated waits double. `PATIENCE_MAX`: the longest wait.
const PATIENCE_MIN: Duration = Duration::from_millis(1);
const PATIENCE_MAX: Duration = Duration::from_millis(32);
/// Time for which the first process of a PID namespace waits for the other processes in it (ns). These processes end
/// with their agents: within milliseconds, unless an agent is stopped, and then no process of the stopped agent's job
/// is left anyway.
const OTHERS_NS_MAX: u64 = 5_000_000_000;
/// Number of queued descriptors at which they are sent without waiting for more. It corresponds to about a dozen
/// processes.
const FREIGHT: usize = 48;
/// Number of unsent descriptors at which no further process is started until the agent has received some.
const FREIGHT_MAX: usize = 128;
/// Time for which a report waits for further reports, to be sent together with them, while processes remain to be
/// started (ns).
const REPORT_NS: u64 = 4_000_000;
/// Longest wait of a failing keeper for room in the socket for its last report. Its agent reads at once unless stopped.
const REPORT_MAX: Duration = Duration::from_secs(1);
/// Pause between two attempts to send the report of a failure.
const REPORT_PAUSE: Duration = Duration::from_millis(1);
const AGENT: u64 = 0;
const CHILDREN: u64 = 1;
const IMPORTER: u64 = 2;

/// The main function of the keeper process, from just after the fork, with all signals blocked, to its exit.
///
/// `terminal`: the modes of standard input, if it is a terminal. `around`: if this process has another PID namespace
/// than the agent, the agent's PID namespace and this process's own.
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

/// Duplicates the agent's socket to a number that no source descriptor of a child has.
fn with_high_number(low: OwnedFd) -> Result<Rc<OwnedFd>, SpawnError> {
    let high = files::duplicate_from(&low, LOWEST_SOURCE).map_err(cannot("duplicate its socket"));
    let high = high.map_err(|problem| report_failure(Outbox::default(), &low, problem))?;
    // `settle_descriptors` closes the descriptor together with all others.
    mem::forget(low);
    Ok(Rc::new(high))
}

/// Turns a system error into an error that says what the keeper cannot do.
fn cannot(what: &str) -> impl Fn(io::Error) -> SpawnError {
    move |error| spawn_error(SpawnStep::Fork, format!("cannot {what}"), &error)
}

/// The first byte that a keeper sends: its namespace is set up.
pub(super) const ENTERED: [u8; 1] = [1];

fn enter(outer: OwnedFd, own: &PidNamespace, socket: &OwnedFd) -> io::Result<Isolated> {
    let isolated = Isolated::enter(outer, own)?;
    wireup_os::socket::send(socket, &ENTERED, &[])?;
    Ok(isolated)
}

struct Serve {
    reactor: Reactor,
    signals: SignalFd,
    agent: AgentSocket,
    processes: Processes,
    terminal: Option<SavedTerminal>,
    restore_terminal: bool,
    /// The PID namespace of this process; `None`: this process is in the agent's PID namespace.
    isolated: Option<Isolated>,
    sweep: Option<Sweep>,
    patience: Duration,
    /// Whether the keeper exits once none of its processes is left.
    is_leaving: bool,
    /// Time since which no process of the keeper has been left, after its agent has ended (ns).
    alone_since_ns: Option<u64>,
    directories: Directories,
    /// Whether the keeper returns to its initial state when the sweep is done.
    renewing: bool,
    /// The files that this process sees instead of the originals; a keeper with staged files serves only one job.
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
        // The keeper may have inherited the agent's short slice, which interrupts it between two starts: see the module
        // `keeper`.
        process::restore_slice();
        let kept = iter::once(socket.as_fd()).chain(isolated.iter().flat_map(Isolated::descriptors));
        let no_null = "open /dev/null, which every program needs (mknod -m 666 /dev/null c 1 3)";
        let null = settle_descriptors(kept).map_err(cannot(no_null))?;
        // For the keeper only: each start sets the limits of its own process. If this fails, fewer processes fit.
        let _ = process::raise_open_files();
        let reactor = Reactor::new().map_err(cannot("wait for events (epoll_create1)"))?;
        let signals = SignalFd::new(&[SIGCHLD]).map_err(cannot("watch for exits (signalfd)"))?;
        let watch = cannot("watch its descriptors (epoll_ctl)");
        reactor.add(&signals, CHILDREN, Interest::READABLE).map_err(&watch)?;
        Ok(Serve {
            agent: AgentSocket::new(socket, &reactor).map_err(&watch)?,
            processes: Processes::new(null).map_err(cannot("set up the creation of processes"))?,
            reactor,
            signals,
            terminal,
            restore_terminal: false,
            isolated,
            sweep: None,
            patience: PATIENCE_MIN,
            is_leaving: false,
            alone_since_ns: None,
            directories: Directories::default(),
            renewing: false,
            staged: None,
        })
    }

    fn run(mut self) -> Result<(), SpawnError> {
        if let Err(problem) = self.turns() {
            return Err(self.agent.report_failure(problem));
        }
        // Dropping the view removes placeholders that were made for staged files.
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
            self.processes.on_time(&mut self.agent.outbox);
            self.processes.read_importer(self.isolated.as_ref(), &[], &mut self.agent.outbox);
            self.fill_seats();
            self.collect_starts();
            if ready.children || self.sweep.is_some() {
                self.reap();
            }
            self.kill_again();
            self.watch_importer();
            self.report().map_err(cannot("report to its agent"))?;
        }
        Ok(())
    }

    /// Whether the keeper can exit. The first process of a PID namespace exits last: keepers of other agents in the
    /// namespace may have directories to remove, and processes that they leave behind become its children.
    fn is_over(&mut self) -> bool {
        if !self.is_leaving || self.sweep.is_some() {
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
        self.sweep.is_none() && self.processes.can_start() && !self.agent.is_loaded()
    }

    /// Waits for something to do.
    fn wait(&mut self) -> io::Result<Ready> {
        let timeout = if self.can_start() {
            Some(Duration::ZERO)
        } else if let Some(sweep) = &self.sweep {
            Some(sweep.until_next())
        } else if self.processes.are_starting() {
            // Only the word in shared memory shows that the program has been executed; no event does.
            self.processes.wait_for_start(self.patience);
            Some(Duration::ZERO)
        } else if self.agent.waits_without_event() {
            Some(self.patience)
        } else {
            None
        };
        let until_stop =
            self.processes.next_deadline_ns().map(|at| Duration::from_nanos(at.saturating_sub(monotonic_ns())));
        let timeout = timeout.into_iter().chain(until_stop).min();
        let mut ready = Ready::default();
        for event in self.reactor.wait(timeout)? {
            match event.token {
                CHILDREN => ready.children = true,
                IMPORTER => {}
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
        let open = self.agent.receive();
        while let Some((request, sockets)) = self.agent.next() {
            self.patience = PATIENCE_MIN;
            match request {
                Request::Sockets { .. } => self.processes.listening.extend(sockets),
                Request::Spawn(batch) => self.on_batch(batch),
                Request::Signal { slot, signal } => self.processes.signal(slot, signal, &mut self.agent.outbox),
                Request::Sweep => self.begin_sweep(false),
                Request::RemoveAtEnd { directory } => self.directories.remove_at_end(directory),
                Request::RemoveUnclaimed { directory, log, last_words } => {
                    self.directories.remove_unclaimed(directory, log, last_words);
                }
                Request::Renew => {
                    self.renewing = true;
                    self.begin_sweep(false);
                }
                Request::DropImporter => self.processes.keep_no_importer(),
                Request::RestoreTerminalOnDeath => self.restore_terminal = true,
                Request::Begin(session) => enter_kernel_session(session),
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
                    self.agent.push(&KeeperEvent::NotStaged { problem: problem.clone() });
                }
                View::Redirected(redirected, problem) => {
                    self.directories.remove_at_end(redirected.folder());
                    self.agent.push(&KeeperEvent::Redirected { problem: problem.clone() });
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
        self.processes.enqueue(batch, redirected, &mut self.agent.outbox);
    }

    fn watch_importer(&mut self) {
        if let Some(socket) = self.processes.unwatched()
            && let Err(error) = self.reactor.add(socket, IMPORTER, Interest::READABLE)
        {
            self.processes.import_in_vain(error.to_string(), &mut self.agent.outbox);
        }
    }

    fn refuse(&mut self, batch: &Batch, problem: &str) {
        for process in &batch.processes {
            let what = format!("staged files cannot be shown instead of the originals: {problem}");
            let error = SpawnError { step: SpawnStep::Staged, what, errno: 0 };
            self.agent.push(&KeeperEvent::StartFailed { slot: process.slot, error });
        }
    }

    /// Makes the keeper exit once none of its processes is left. The keeper then keeps no importer, not even the
    /// importer of a job that still runs.
    fn leave(&mut self) {
        self.is_leaving = true;
        self.processes.keep_no_importer();
    }

    fn on_agent_gone(&mut self) {
        self.leave();
        self.processes.end_prefetch();
        if let Some(terminal) = self.terminal.as_ref().filter(|_| self.restore_terminal) {
            // An error is ignored: the terminal may be gone.
            let _ = terminal.restore(rustix::stdio::stdin());
        }
        self.agent.on_gone(&self.reactor);
        self.begin_sweep(true);
    }

    fn fill_seats(&mut self) {
        while self.can_start() {
            self.processes.start_next(self.isolated.as_ref(), &mut self.agent.outbox);
            self.patience = PATIENCE_MIN;
        }
        self.processes.pause();
    }

    fn collect_starts(&mut self) {
        if self.processes.collect_starts(&mut self.agent.outbox) {
            self.patience = PATIENCE_MIN;
        }
    }

    fn reap(&mut self) {
        if !self.processes.reap(self.isolated.as_ref(), &mut self.agent.outbox) {
            self.on_childless();
        }
    }

    fn begin_sweep(&mut self, patient: bool) {
        self.processes.cancel_queue(&mut self.agent.outbox);
        self.sweep.get_or_insert_with(|| Sweep::begin(patient));
    }

    fn kill_again(&mut self) {
        let kept = self.processes.kept();
        match self.sweep.as_mut().and_then(|sweep| sweep.kill_again(kept)) {
            Some(Swept::All) => self.on_childless(),
            Some(Swept::AllButDenied) => {
                // Leftovers of the last job make this keeper unfit for another one.
                if mem::take(&mut self.renewing) {
                    self.leave();
                }
                self.on_childless();
            }
            None => {}
        }
    }

    fn on_childless(&mut self) {
        if self.sweep.take().is_none() {
            return;
        }
        if self.renewing && self.staged.is_some() {
            self.leave();
        } else if mem::take(&mut self.renewing) {
            self.directories.remove();
            self.restore_terminal = false;
            self.processes.forget_all();
            self.agent.push(&KeeperEvent::Renewed { keeps_importer: self.processes.kept().is_some() });
        } else {
            self.agent.push(&KeeperEvent::Swept);
        }
    }

    fn report(&mut self) -> io::Result<()> {
        if !self.is_leaving && !self.agent.report(self.processes.are_waiting(), &self.reactor)? {
            self.on_agent_gone();
        }
        if self.is_leaving {
            self.agent.drop_reports();
        }
        Ok(())
    }
}

/// The keeper's end of the socket to its agent: requests come in, reports go out.
struct AgentSocket {
    socket: Rc<OwnedFd>,
    inbox: Inbox,
    /// Reports that wait to be sent.
    outbox: Outbox,
    /// Whether the reactor watches the socket for room.
    watches_room: bool,
    flushed_ns: u64,
}

impl AgentSocket {
    fn new(socket: Rc<OwnedFd>, reactor: &Reactor) -> io::Result<AgentSocket> {
        reactor.add(&*socket, AGENT, Interest::READABLE)?;
        let (inbox, outbox) = (Inbox::new(), Outbox::default());
        Ok(AgentSocket { socket, inbox, outbox, watches_room: false, flushed_ns: 0 })
    }

    /// Reads the requests that have arrived; `false`: no further requests will arrive.
    fn receive(&mut self) -> bool {
        self.inbox.fill(&self.socket).unwrap_or(false)
    }

    /// The next request; for [`Request::Sockets`] also the sockets that came with it.
    fn next(&mut self) -> Option<(Request, Vec<OwnedFd>)> {
        let request = self.inbox.next::<Request>()?;
        let count = if let Request::Sockets { count } = request { count as usize } else { 0 };
        let sockets = self.inbox.fds.drain(..count.min(self.inbox.fds.len())).collect();
        Some((request, sockets))
    }

    /// Stops watching the socket, because the agent has ended.
    fn on_gone(&mut self, reactor: &Reactor) {
        let _ = reactor.remove(&self.socket);
    }

    /// Drops all reports, because the agent has ended. They may hold the agent's end of a process's socket, and that
    /// process exits only when the end is closed.
    fn drop_reports(&mut self) {
        self.outbox = Outbox::default();
    }

    fn push(&mut self, report: &KeeperEvent) {
        self.outbox.push(report, Vec::new());
    }

    /// Whether the agent has to receive descriptors before more processes are started.
    fn is_loaded(&self) -> bool {
        self.outbox.fds() >= FREIGHT_MAX
    }

    /// Whether queued reports must be sent again after a pause, because the reactor does not watch for room in the
    /// socket.
    fn waits_without_event(&self) -> bool {
        !(self.outbox.is_empty() || self.watches_room)
    }

    /// Sends the queued reports, unless more reports are expected soon. `false`: the agent has just ended.
    fn report(&mut self, more_follow: bool, reactor: &Reactor) -> io::Result<bool> {
        let now = monotonic_ns();
        let more = more_follow && self.outbox.fds() < FREIGHT && now - self.flushed_ns < REPORT_NS;
        if self.outbox.is_empty() || more {
            return Ok(true);
        }
        self.flushed_ns = now;
        let Ok(flushed) = self.outbox.flush(&self.socket) else { return Ok(false) };
        let full = flushed == Flushed::Full;
        if full != self.watches_room {
            let interest = if full { Interest::BOTH } else { Interest::READABLE };
            reactor.modify(&self.socket, AGENT, interest)?;
            self.watches_room = full;
        }
        Ok(true)
    }

    /// Reports that the keeper fails.
    fn report_failure(self, problem: SpawnError) -> SpawnError {
        report_failure(self.outbox, &self.socket, problem)
    }
}

/// Sends the reports in `outbox`, then a report that the keeper fails. If the error cannot be sent, the agent notices
/// only that the keeper has exited.
fn report_failure(mut outbox: Outbox, socket: &OwnedFd, problem: SpawnError) -> SpawnError {
    outbox.push(&KeeperEvent::Failed { problem: problem.clone() }, Vec::new());
    let until = Instant::now() + REPORT_MAX;
    while outbox.flush(socket).is_ok_and(|flushed| flushed != Flushed::All) && Instant::now() < until {
        thread::sleep(REPORT_PAUSE);
    }
    problem
}

fn enter_kernel_session(session: KernelSession) {
    if session == KernelSession::Agents && process::new_group().is_ok() {
        return;
    }
    // A keeper has been forked and leads no group, so `setsid` fails only if a sandbox refuses it. In that case the
    // keeper's processes share a scheduler autogroup with others.
    let _ = process::new_session();
}

/// Signals that ranks ignore if the user's shell ignores them, as under `nohup`.
const IGNORABLE: [i32; 3] = [Signal::HUP.as_raw(), Signal::INT.as_raw(), Signal::QUIT.as_raw()];

/// Shortest and longest pause between the rounds of a sweep (ns).
const PAUSE_NS_MIN: u64 = 1_000_000;
const PAUSE_NS_MAX: u64 = 32_000_000;
/// Time after which a sweep gives up if some processes belong to another user and cannot be killed (ns).
const DENIED_NS: u64 = 2_000_000_000;
/// Time for wireup processes to end by themselves (ns). Chosen: a wireup process needs milliseconds to end, and half a
/// second where several busy processes compete for each CPU.
pub const FELLOWS_NS: u64 = 2_000_000_000;

/// The state of a sweep.
pub(super) struct Sweep {
    since_ns: u64,
    next_round_ns: u64,
    pause_ns: u64,
    /// Time until which wireup processes are left alone (ns).
    patient_until_ns: u64,
    /// Consecutive rounds that found nothing to kill.
    empty_rounds: u32,
}

/// How a sweep has ended.
pub(super) enum Swept {
    All,
    /// The remaining processes belong to another user and cannot be killed.
    AllButDenied,
}

impl Sweep {
    /// Begins a sweep. `patient`: whether wireup processes are about to end by themselves.
    pub fn begin(patient: bool) -> Sweep {
        let now = monotonic_ns();
        let patient_until_ns = if patient { now + FELLOWS_NS } else { now };
        Sweep { since_ns: now, next_round_ns: now, pause_ns: PAUSE_NS_MIN, patient_until_ns, empty_rounds: 0 }
    }

    pub fn until_next(&self) -> Duration {
        Duration::from_nanos(self.next_round_ns.saturating_sub(monotonic_ns()))
    }

    /// Kills all descendants if a round is due. `kept`: a process that is not killed; while the process `kept` lives,
    /// the end of all other processes cannot be noticed by reaping and is noticed here. Returns `None` if some
    /// descendants may be left.
    pub fn kill_again(&mut self, kept: Option<u32>) -> Option<Swept> {
        let now = monotonic_ns();
        if now < self.next_round_ns {
            return None;
        }
        let fellow = if now < self.patient_until_ns { program("self") } else { None };
        let is_fellow = |pid: u32| fellow.is_some() && program(&pid.to_string()) == fellow;
        let round = kill_descendants(None, |pid| kept == Some(pid) || is_fellow(pid));
        self.pause_ns = (self.pause_ns * 2).min(PAUSE_NS_MAX);
        self.next_round_ns = monotonic_ns() + self.pause_ns;
        let is_empty = round.killed == 0 && round.denied == 0;
        self.empty_rounds = if is_empty { self.empty_rounds + 1 } else { 0 };
        // One round may have missed a process that was forked meanwhile.
        if kept.is_some() && self.empty_rounds > 1 {
            return Some(Swept::All);
        }
        (round.denied > 0 && now - self.since_ns > DENIED_NS).then_some(Swept::AllButDenied)
    }
}

/// The executable of a process: its device and inode.
fn program(process: &str) -> Option<(u64, u64)> {
    fs::metadata(format!("/proc/{process}/exe")).map(|file| (file.dev(), file.ino())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_os::files::null;
    use wireup_os::socket;

    #[test]
    fn reports_wait_for_others_unless_there_is_much_to_send_or_nothing_follows() {
        let (agent, keeper) = socket::pair().unwrap();
        let reactor = Reactor::new().unwrap();
        let mut keeper = AgentSocket::new(Rc::new(keeper), &reactor).unwrap();
        let reports = |inbox: &mut Inbox| {
            assert!(inbox.fill(&agent).unwrap());
            std::iter::from_fn(|| inbox.next::<KeeperEvent>()).count()
        };
        let inbox = &mut Inbox::new();
        for (fds, more_follow, expected) in [(0, true, 0), (0, false, 2), (FREIGHT, true, 1)] {
            keeper.outbox.push(&KeeperEvent::Swept, (0..fds).map(|_| null().unwrap()).collect());
            keeper.flushed_ns = monotonic_ns();
            assert!(keeper.report(more_follow, &reactor).unwrap());
            assert_eq!(reports(inbox), expected);
        }
        keeper.outbox.push(&KeeperEvent::Swept, vec![null().unwrap()]);
        keeper.drop_reports();
        assert!(keeper.outbox.is_empty() && keeper.outbox.fds() == 0);
    }
}
