//! The processes of a keeper: those that wait to be started, and those that have been created and not yet reaped.

use super::channel::Outbox;
use super::preload::{self, Importer, Report};
use super::protocol::{Batch, IMPORTER_SLOT, KeeperEvent, Process, ProcessFds, Program, is_server};
use super::redirected::Redirected;
use super::stops::Stops;
use super::streams::{Lent, Streams};
use crate::spawn_error;
use rustix::process::Resource as KernelResource;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use wireup_os::bind;
use wireup_os::clock::monotonic_ns;
use wireup_os::files;
use wireup_os::process::{self, Ended, Isolated, Reaped};
use wireup_os::spawn::{self, Command, EXTRA_TARGETS, Executed, Failure, Limits, Session, Spawner, Step};
use wireup_os::spawn::{check_directory, find_program};
use wireup_proto::io::ExitStatus;
use wireup_wire::job::{Limit, Preload, Resource};
use wireup_wire::peer::{SpawnError, SpawnStep};
use wireup_wire::signal::{SIGKILL, SIGSTOP, is_fatal};

/// Number of starts in progress per CPU. Measured: 1 leaves CPUs idle, more than 4 gains nothing.
const STARTS_PER_CPU: usize = 4;
const STARTS_MAX: usize = 64;

pub(super) struct Processes {
    lent: Lent,
    spawner: Spawner,
    queue: VecDeque<Waiting>,
    /// Listening sockets for processes in the queue, in their order.
    listening: VecDeque<OwnedFd>,
    /// Processes that have not been reaped, by slot.
    living: HashMap<u32, Living>,
    /// The slot of each of these processes, by pid.
    slots: HashMap<u32, u32>,
    stops: Stops,
    preloading: Option<Preloading>,
}

/// A process that has been created and not yet reaped.
struct Living {
    pid: u32,
    /// Process number as the agent sees it.
    shown: u32,
    /// The start of the process, until it executes its program.
    start: Option<Start>,
}

struct Start {
    program: Rc<Prepared>,
    spawn_ns: u64,
    fds: ProcessFds,
}

impl Living {
    /// Sends a signal to the process and its process group.
    fn signal(&self, signal: i32) {
        match self.start {
            // The process group may not exist yet. The signal remains blocked until the program is about to be
            // executed.
            Some(_) => drop(process::kill(self.pid, signal)),
            // An error means that the group is gone: the process has ended, which will be reported.
            None => drop(process::kill_group(self.pid, signal)),
        }
    }
}

impl Processes {
    /// # Errors
    /// No memory is left for the stacks of new processes.
    pub fn new(lent: Lent) -> io::Result<Processes> {
        let cpus = bind::allowed().map_or(1, |cpus| cpus.len());
        Ok(Processes {
            lent,
            spawner: Spawner::new((cpus * STARTS_PER_CPU).min(STARTS_MAX))?,
            queue: VecDeque::new(),
            listening: VecDeque::new(),
            living: HashMap::new(),
            slots: HashMap::new(),
            stops: Stops::default(),
            preloading: None,
        })
    }

    /// Adds listening sockets for the next batch.
    pub fn add_listening(&mut self, sockets: Vec<OwnedFd>) {
        self.listening.extend(sockets);
    }

    /// Adds a batch to the queue. Each program is looked up once, not once per process. Returns the socket of the
    /// importer whose reports are to be read, if there is one.
    ///
    /// # Errors
    /// Why no modules are imported for the processes, which are started without that.
    pub fn enqueue(&mut self, batch: Batch, redirected: Option<&Redirected>) -> Result<Option<BorrowedFd<'_>>, String> {
        let programs: Vec<_> = batch.programs.iter().map(|program| prepare(program, redirected)).collect();
        let limits = Rc::new(limits_of(&batch.limits));
        let waiting = batch.processes.into_iter().map(|mut process| {
            if process.pmi {
                process.env.push(format!("PMI_FD={}", EXTRA_TARGETS[0]).into_bytes());
            }
            if process.listens {
                process.env.push(format!("WIREUP_LISTEN_FD={}", EXTRA_TARGETS[1]).into_bytes());
            }
            let missing = || Err(error(SpawnStep::Find, b"(no program)", EINVAL));
            let program = programs.get(usize::from(process.program)).cloned().unwrap_or_else(missing);
            let limits = Rc::clone(&limits);
            Waiting { process, program, umask: batch.umask, limits, signals: Vec::new(), streams: None }
        });
        let waiting: VecDeque<Waiting> = waiting.collect();
        let preload = batch.preload.filter(|_| waiting.front().is_some_and(|first| first.program.is_ok()));
        let Some(preload) = preload else {
            self.queue.extend(waiting);
            return Ok(None);
        };
        match Preloading::new(&preload, &batch.programs, &waiting, redirected) {
            Ok(preloading) => {
                let preloading = self.preloading.insert(preloading);
                preloading.waiting = waiting;
                Ok(Some(preloading.importer.socket()))
            }
            Err(problem) => {
                self.queue.extend(waiting);
                Err(problem)
            }
        }
    }

    /// Whether processes could be started now if there were room.
    pub fn are_waiting(&self) -> bool {
        let of_importer = |preloading: &Preloading| preloading.is_ready && !preloading.waiting.is_empty();
        !self.queue.is_empty() || self.preloading.as_ref().is_some_and(of_importer)
    }

    /// Whether a process can be started now.
    pub fn can_start(&self) -> bool {
        let has_room = self.spawner.has_room();
        let by_importer = |preloading: &Preloading| match preloading.unstarted {
            Some(_) => has_room,
            None => preloading.can_request(),
        };
        !self.queue.is_empty() && has_room || self.preloading.as_ref().is_some_and(by_importer)
    }

    /// Whether starts are in progress.
    pub fn are_starting(&self) -> bool {
        self.spawner.under_way() > 0
    }

    /// Waits at most `patience` for the oldest start in progress.
    pub fn wait_for_start(&self, patience: Duration) {
        self.spawner.wait_oldest(patience);
    }

    /// Starts the first process of the queue. `isolated`: the PID namespace of this keeper.
    pub fn start_next(&mut self, isolated: Option<&Isolated>, outbox: &mut Outbox) {
        let waiting = if self.spawner.has_room() { self.queue.pop_front() } else { None };
        let Some(waiting) = waiting else { return self.go_on_preloading(outbox) };
        let slot = waiting.process.slot;
        if let Err(error) = self.start(waiting, isolated) {
            outbox.push(&KeeperEvent::StartFailed { slot, error }, Vec::new());
        }
    }

    fn start(&mut self, mut waiting: Waiting, isolated: Option<&Isolated>) -> Result<(), SpawnError> {
        let prepared = waiting.program.clone()?;
        let streams = waiting.streams(&mut self.listening)?;
        let process = &waiting.process;
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
        self.add_living(slot, pid, start, &waiting.signals, isolated);
        Ok(())
    }

    fn add_living(&mut self, slot: u32, pid: u32, start: Start, signals: &[i32], isolated: Option<&Isolated>) {
        // The number is read before the process is reaped. Without a descriptor for the question, the number in this
        // namespace is used.
        let shown = isolated.and_then(|isolated| isolated.outer_pid(pid).ok()).unwrap_or(pid);
        let living = Living { pid, shown, start: Some(start) };
        signals.iter().for_each(|&signal| living.signal(signal));
        self.slots.insert(pid, slot);
        self.living.insert(slot, living);
    }

    /// Notes that no other process is started for now: those that are starting need not yield to this one.
    pub fn pause(&self) {
        self.spawner.pause();
    }

    /// Reports processes that have executed their programs, or have failed to. `true`: there were some.
    pub fn collect_starts(&mut self, outbox: &mut Outbox) -> bool {
        let mut any = false;
        while let Some(executed) = self.spawner.poll() {
            any = true;
            self.on_executed(executed, outbox);
        }
        any
    }

    fn on_executed(&mut self, Executed { token: slot, pid, result }: Executed, outbox: &mut Outbox) {
        if slot == IMPORTER_SLOT {
            if let Err(problem) = result {
                self.import_in_vain(format!("Python cannot be executed (errno {})", problem.errno), outbox);
            }
            return;
        }
        let Some(living) = self.living.get_mut(&slot) else { return };
        let Some(Start { program, spawn_ns, fds }) = living.start.take() else { return };
        if let Err(failure) = result {
            // The slot is free again, so the exit of this process is not reported.
            self.living.remove(&slot);
            self.slots.remove(&pid);
            return outbox.push(&KeeperEvent::StartFailed { slot, error: program.error(failure) }, Vec::new());
        }
        let (present, sent) = fds.split();
        let (pid, exec_ns, fds) = (living.shown, monotonic_ns(), ProcessFds::default());
        outbox.push(&KeeperEvent::Started { slot, pid, spawn_ns, exec_ns, present, fds }, sent);
    }

    /// Reaps ended children; reports starts before exits. `false`: this process has no child any more.
    pub fn reap(&mut self, isolated: Option<&Isolated>, outbox: &mut Outbox) -> bool {
        let mut dead = Vec::new();
        let are_left = loop {
            match process::reap() {
                Reaped::Child { pid, ended } => dead.push((pid, ended)),
                Reaped::NoneEnded => break true,
                Reaped::NoChildren => break false,
            }
        };
        crashes_first(&mut dead);
        // The word of a reaped child is cleared, so its start is reported here at the latest.
        self.collect_starts(outbox);
        // The starts of forks of the importer are also reported here, unless a fork was killed before it was ready.
        self.read_importer(isolated, outbox);
        for (pid, ended) in dead {
            if self.is_importer(pid) {
                self.on_importer_ended(ended, outbox);
                continue;
            }
            // Unknown pids are adopted orphans of our processes.
            let Some(slot) = self.slots.remove(&pid) else { continue };
            // A fork may have been killed before it was set up.
            self.on_executed(Executed { token: slot, pid, result: Ok(()) }, outbox);
            self.living.remove(&slot);
            self.on_set_up(slot);
            outbox.push(&KeeperEvent::Exited { slot, status: status(ended) }, Vec::new());
        }
        are_left
    }

    /// Sends a signal to one process, or to all ranks. `SIGKILL` for all cancels what has not been started.
    pub fn signal(&mut self, slot: Option<u32>, signal: i32, outbox: &mut Outbox) {
        self.stops.on_signal(slot, signal, monotonic_ns());
        if slot.is_none() && signal == SIGKILL {
            self.cancel_queue(outbox);
        }
        self.send(slot, signal);
    }

    fn send(&mut self, whom: Option<u32>, signal: i32) {
        let is_meant = |slot: u32| whom.map_or(!is_server(slot), |whom| whom == slot);
        self.living.iter().filter(|(slot, _)| is_meant(**slot)).for_each(|(_, living)| living.signal(signal));
        // What would end the ranks does not wait for the imports.
        if whom.is_none()
            && is_fatal(signal)
            && let Some(preloading) = self.preloading.take_if(|preloading| !preloading.is_ready)
        {
            self.queue.extend(preloading.waiting);
        }
        let (waiting, requested) = match &mut self.preloading {
            Some(Preloading { waiting, requested, .. }) => (Some(waiting), Some(requested)),
            None => (None, None),
        };
        let waiting = self.queue.iter_mut().chain(waiting.into_iter().flatten());
        let waiting = waiting.map(|waiting| (waiting.process.slot, &mut waiting.signals));
        let requested = requested.into_iter().flatten().map(|(slot, requested)| (*slot, &mut requested.signals));
        waiting.chain(requested).filter(|(slot, _)| is_meant(*slot)).for_each(|(_, signals)| signals.push(signal));
    }

    /// Time at which [`Processes::on_time`] has something to do (ns).
    pub fn next_deadline_ns(&self) -> Option<u64> {
        let imports = self.preloading.as_ref().and_then(Preloading::deadline_ns);
        self.stops.next_ns().into_iter().chain(imports).min()
    }

    /// Stops processes that have got a `SIGTSTP` some time ago; ends imports that take too long.
    pub fn on_time(&mut self, outbox: &mut Outbox) {
        self.end_late_preloading(outbox);
        if self.stops.next_ns().is_some() {
            for slot in self.stops.take_due(monotonic_ns()) {
                self.send(slot, SIGSTOP);
            }
        }
    }

    /// Nothing that waits in the queue will be started.
    pub fn cancel_queue(&mut self, outbox: &mut Outbox) {
        let preloading = self.preloading.as_mut().map(|preloading| mem::take(&mut preloading.waiting));
        for waiting in mem::take(&mut self.queue).into_iter().chain(preloading.into_iter().flatten()) {
            let report = KeeperEvent::StartFailed { slot: waiting.process.slot, error: waiting.cancelled() };
            outbox.push(&report, Vec::new());
        }
        self.end_preloading_if_done();
    }

    /// Forgets the processes of a job that is over, none of which is left.
    pub fn forget_all(&mut self) {
        self.listening.clear();
        self.stops = Stops::default();
        self.living.clear();
        self.slots.clear();
        self.preloading = None;
    }
}

/// Time for reports of ranks whose importer has ended (ns).
const LOST_NS: u64 = 5_000_000_000;

/// Processes that are forked from an interpreter which has imported modules: see the module `preload`.
impl Processes {
    /// Starts the importer, or requests a process from it.
    fn go_on_preloading(&mut self, outbox: &mut Outbox) {
        let Some(preloading) = &mut self.preloading else { return };
        if let Some(unstarted) = preloading.unstarted.take() {
            if let Err(problem) = self.start_importer(&unstarted) {
                self.import_in_vain(spawn_error::in_words(&problem), outbox);
            }
            return;
        }
        let Some(waiting) = preloading.waiting.pop_front() else { return };
        let slot = waiting.process.slot;
        if let Err(error) = self.request(waiting) {
            outbox.push(&KeeperEvent::StartFailed { slot, error }, Vec::new());
        }
        self.end_preloading_if_done();
    }

    /// Starts the importer with the output streams of the first process.
    fn start_importer(&mut self, unstarted: &Unstarted) -> Result<(), SpawnError> {
        let Some(preloading) = &mut self.preloading else { return Ok(()) };
        let Some(first) = preloading.waiting.front_mut() else { return Ok(()) };
        let script = files::sealed_memory(&unstarted.script).map_err(|problem| stdio_error(&problem))?;
        let streams = first.streams(&mut self.listening)?;
        let [_, stdout, stderr] = streams.stdio(&self.lent);
        let command = Command {
            program: &unstarted.program.program,
            environment: &[],
            stdio: [script.as_fd(), stdout, stderr],
            extra: [Some(unstarted.socket.as_fd()), None],
            session: if first.process.shares_session { Session::Shared } else { Session::Own },
            cpus: None,
            umask: first.umask,
            limits: &first.limits,
            more_follow: false,
        };
        let started = self.spawner.start(&command, IMPORTER_SLOT);
        // Whether or not the importer runs, the process keeps these streams and its listening socket.
        first.streams = Some(streams);
        preloading.importer.pid = Some(started.map_err(|failure| unstarted.program.error(failure))?);
        Ok(())
    }

    fn request(&mut self, mut waiting: Waiting) -> Result<(), SpawnError> {
        let Some(preloading) = &mut self.preloading else { return Ok(()) };
        let program = waiting.program.clone()?;
        let streams = waiting.streams(&mut self.listening)?;
        let fds: Vec<_> =
            streams.stdio(&self.lent).into_iter().chain(streams.sockets().into_iter().flatten()).collect();
        let spawn_ns = monotonic_ns();
        match preloading.importer.request(&waiting.process, session(&waiting.process), &fds) {
            Ok(()) => {
                let start = Start { program, spawn_ns, fds: streams.agent };
                preloading.requested.insert(waiting.process.slot, Requested { start, signals: waiting.signals });
                Ok(())
            }
            // The next report makes room, or says that the importer has ended.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe || !preloading.requested.is_empty() => {
                preloading.is_full = true;
                waiting.streams = Some(streams);
                preloading.waiting.push_front(waiting);
                Ok(())
            }
            Err(problem) => Err(error(SpawnStep::Fork, b"a request to the interpreter", errno(&problem))),
        }
    }

    /// Acts on what the importer and the processes forked from it have reported.
    pub fn read_importer(&mut self, isolated: Option<&Isolated>, outbox: &mut Outbox) {
        while let Some(preloading) = &mut self.preloading
            && let Some(report) = preloading.importer.receive()
        {
            preloading.is_full = false;
            match report {
                Report::No(problem) => self.import_in_vain(problem, outbox),
                Report::Ready => preloading.is_ready = true,
                Report::Forked { slot, pid } => self.on_forked(slot, pid, isolated),
                Report::Up { slot, pid } => {
                    self.on_forked(slot, pid, isolated);
                    self.on_executed(Executed { token: slot, pid, result: Ok(()) }, outbox);
                    self.on_set_up(slot);
                }
                Report::Failed { slot, step, errno } => {
                    let step = Step::from_word(step).unwrap_or(Step::Clone);
                    self.on_fork_failed(slot, Failure { step, errno }, outbox);
                }
                Report::Over if preloading.is_ready => self.on_importer_lost(outbox),
                Report::Over => {
                    // Its end says why.
                    preloading.importer.kill();
                    return;
                }
            }
        }
    }

    fn on_forked(&mut self, slot: u32, pid: u32, isolated: Option<&Isolated>) {
        let Some(preloading) = &mut self.preloading else { return };
        let Some(Requested { start, signals }) = preloading.requested.remove(&slot) else { return };
        preloading.forked.insert(slot);
        self.add_living(slot, pid, start, &signals, isolated);
    }

    /// This process does not need the importer any more.
    fn on_set_up(&mut self, slot: u32) {
        if let Some(preloading) = &mut self.preloading {
            preloading.forked.remove(&slot);
        }
        self.end_preloading_if_done();
    }

    fn on_fork_failed(&mut self, slot: u32, failure: Failure, outbox: &mut Outbox) {
        let Some(preloading) = &mut self.preloading else { return };
        if let Some(Requested { start, .. }) = preloading.requested.remove(&slot) {
            let error = start.program.error(failure);
            outbox.push(&KeeperEvent::StartFailed { slot, error }, Vec::new());
        }
        let pid = self.living.get(&slot).map_or(0, |living| living.pid);
        self.on_executed(Executed { token: slot, pid, result: Err(failure) }, outbox);
        self.on_set_up(slot);
    }

    fn is_importer(&self, pid: u32) -> bool {
        self.preloading.as_ref().is_some_and(|preloading| preloading.importer.pid == Some(pid))
    }

    fn on_importer_ended(&mut self, ended: Ended, outbox: &mut Outbox) {
        let Some(preloading) = &mut self.preloading else { return };
        preloading.importer.pid = None;
        if !preloading.is_ready {
            let how = match ended {
                Ended::Exited(code) => format!("exited with code {code}"),
                Ended::Signalled { signal, .. } => format!("was killed by signal {signal}"),
            };
            self.import_in_vain(format!("the interpreter that imports modules {how}"), outbox);
        } else {
            // Another process may hold the socket open: without reports its end is not seen there.
            preloading.until_ns = monotonic_ns().saturating_add(LOST_NS);
        }
    }

    /// The importer has ended after the first fork.
    fn on_importer_lost(&mut self, outbox: &mut Outbox) {
        let Some(preloading) = self.preloading.take() else { return };
        for slot in preloading.requested.into_keys() {
            let what = "the interpreter from which ranks are forked has ended".into();
            let error = SpawnError { step: SpawnStep::Fork, what, errno: 0 };
            outbox.push(&KeeperEvent::StartFailed { slot, error }, Vec::new());
        }
        self.queue.extend(preloading.waiting);
    }

    /// The processes are started without imports, for this reason.
    pub fn import_in_vain(&mut self, problem: String, outbox: &mut Outbox) {
        if let Some(preloading) = self.preloading.take() {
            self.queue.extend(preloading.waiting);
            outbox.push(&KeeperEvent::NotPreloaded { problem }, Vec::new());
        }
    }

    /// Ends imports that take too long, and the wait for the ranks of an importer that has ended.
    fn end_late_preloading(&mut self, outbox: &mut Outbox) {
        let until_ns = self.preloading.as_ref().and_then(Preloading::deadline_ns);
        if until_ns.is_none_or(|until_ns| until_ns > monotonic_ns()) {
            return;
        }
        if self.preloading.as_ref().is_some_and(|preloading| preloading.is_ready) {
            self.on_importer_lost(outbox);
        } else {
            self.import_in_vain("the imports took too long; --start-timeout gives them more time".into(), outbox);
        }
    }

    fn end_preloading_if_done(&mut self) {
        self.preloading.take_if(|preloading| preloading.is_done());
    }
}

/// The processes of a batch for which modules are imported.
struct Preloading {
    importer: Importer,
    /// What starts the importer, before that.
    unstarted: Option<Unstarted>,
    /// Whether the importer has imported the modules.
    is_ready: bool,
    /// Time until which it must be ready or, if it has ended after that, until which its last ranks must be up (ns).
    until_ns: u64,
    /// Whether the socket takes no further request before the next report.
    is_full: bool,
    waiting: VecDeque<Waiting>,
    /// Processes that have been requested from the importer, by slot.
    requested: HashMap<u32, Requested>,
    /// Slots of processes that have been forked and are not set up.
    forked: HashSet<u32>,
}

struct Unstarted {
    program: Rc<Prepared>,
    script: Vec<u8>,
    socket: OwnedFd,
}

struct Requested {
    start: Start,
    /// Signals to be sent as soon as the process exists.
    signals: Vec<i32>,
}

impl Preloading {
    /// # Errors
    /// Why no modules can be imported for the processes.
    fn new(
        preload: &Preload,
        programs: &[Program],
        waiting: &VecDeque<Waiting>,
        redirected: Option<&Redirected>,
    ) -> Result<Preloading, String> {
        let mut indexes: Vec<u16> = waiting.iter().map(|waiting| waiting.process.program).collect();
        indexes.dedup();
        let program = match indexes[..] {
            [index] => programs.get(usize::from(index)).ok_or("there is no program")?,
            _ => return Err("its ranks run different programs".into()),
        };
        let plan = preload::Plan::new(preload, program, redirected)?;
        let program = prepare(&plan.program, redirected).map_err(|problem| spawn_error::in_words(&problem))?;
        let (importer, socket) = Importer::new(plan.of_ranks).map_err(|error| error.to_string())?;
        Ok(Preloading {
            importer,
            unstarted: Some(Unstarted { program, script: plan.script, socket }),
            is_ready: false,
            until_ns: monotonic_ns().saturating_add(preload.limit_ns),
            is_full: false,
            waiting: VecDeque::new(),
            requested: HashMap::new(),
            forked: HashSet::new(),
        })
    }

    fn can_request(&self) -> bool {
        let under_way = self.requested.len() + self.forked.len();
        self.is_ready && !self.is_full && !self.waiting.is_empty() && under_way < preload::UNDER_WAY_MAX
    }

    fn deadline_ns(&self) -> Option<u64> {
        (!self.is_ready || self.importer.pid.is_none()).then_some(self.until_ns)
    }

    fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.requested.is_empty() && self.forked.is_empty()
    }
}

/// A process to be started.
struct Waiting {
    process: Process,
    program: Result<Rc<Prepared>, SpawnError>,
    umask: u32,
    limits: Rc<Limits>,
    /// Signals to be sent as soon as the process exists.
    signals: Vec<i32>,
    /// Streams of the process, if they are open already.
    streams: Option<Streams>,
}

/// A program whose file has been found.
struct Prepared {
    path: Vec<u8>,
    cwd: Vec<u8>,
    program: Rc<spawn::Program>,
}

fn prepare(program: &Program, redirected: Option<&Redirected>) -> Result<Rc<Prepared>, SpawnError> {
    let name = program.argv.first().map_or(&b""[..], Vec::as_slice);
    let cwd = if program.cwd.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(&program.cwd)) };
    check_directory(cwd).map_err(|problem| error(SpawnStep::Cwd, cwd.as_os_str().as_bytes(), errno(&problem)))?;
    let search = program.env.iter().rev().find_map(|variable| variable.strip_prefix(b"PATH="));
    let directory = (!program.cwd.is_empty()).then_some(program.cwd.as_slice());
    if let Some(start) = redirected.and_then(|redirected| redirected.find(program, search, cwd)) {
        let prepared = spawn::Program::new(&start.file, &start.argv, directory, &start.env)
            .map_err(|_| error(SpawnStep::Exec, name, EINVAL))?;
        return Ok(Rc::new(Prepared { path: start.path, cwd: program.cwd.clone(), program: Rc::new(prepared) }));
    }
    let path = find_program(name, search, cwd).map_err(|problem| match problem {
        spawn::FindError::NotFound => error(SpawnStep::Find, name, problem.errno()),
        _ => error(SpawnStep::Exec, name, problem.errno()),
    })?;
    let env = redirected.and_then(|redirected| redirected.environment(program, &cwd.join(OsStr::from_bytes(&path))));
    let prepared = spawn::Program::new(&path, &program.argv, directory, env.as_ref().unwrap_or(&program.env))
        .map_err(|_| error(SpawnStep::Exec, name, EINVAL))?;
    Ok(Rc::new(Prepared { path, cwd: program.cwd.clone(), program: Rc::new(prepared) }))
}

impl Prepared {
    /// The error to report for a failed start.
    fn error(&self, failure: Failure) -> SpawnError {
        let (step, what): (SpawnStep, &[u8]) = match failure.step {
            Step::Group | Step::Clone => (SpawnStep::Fork, &self.path),
            Step::Stdio => (SpawnStep::Stdio, b"standard streams"),
            Step::Affinity => (SpawnStep::Fork, b"binding to cpus"),
            Step::Limit => (SpawnStep::Fork, b"resource limits"),
            Step::Directory => (SpawnStep::Cwd, &self.cwd),
            Step::Interpreter => (SpawnStep::Interpreter, &self.path),
            Step::Execute if failure.errno == ENOENT => (SpawnStep::Find, &self.path),
            Step::Execute => (SpawnStep::Exec, &self.path),
        };
        error(step, what, failure.errno)
    }
}

/// Limits for the processes of a batch. The keeper's own limits do not change, because it also starts processes of
/// other jobs, and server processes.
fn limits_of(limits: &[Limit]) -> Limits {
    Limits::new(limits.iter().map(|limit| (kernel_resource(limit.resource), limit.soft)))
}

fn kernel_resource(resource: Resource) -> KernelResource {
    match resource {
        Resource::Nofile => KernelResource::Nofile,
        Resource::Core => KernelResource::Core,
        Resource::Stack => KernelResource::Stack,
        Resource::Memlock => KernelResource::Memlock,
        Resource::Data => KernelResource::Data,
        Resource::As => KernelResource::As,
        Resource::Fsize => KernelResource::Fsize,
        Resource::Cpu => KernelResource::Cpu,
    }
}

const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();
const ENOENT: i32 = rustix::io::Errno::NOENT.raw_os_error();
/// The error of a process that was not started because its job ended first.
const ECANCELED: i32 = rustix::io::Errno::CANCELED.raw_os_error();

impl Waiting {
    /// Opens the streams of the process. `listening`: sockets for processes in the queue.
    fn streams(&mut self, listening: &mut VecDeque<OwnedFd>) -> Result<Streams, SpawnError> {
        if let Some(streams) = self.streams.take() {
            return Ok(streams);
        }
        let listening = if self.process.listens { listening.pop_front() } else { None };
        Streams::open(&self.process, listening).map_err(|problem| stdio_error(&problem))
    }

    /// The error to report if the process will not be started any more.
    fn cancelled(&self) -> SpawnError {
        let what = self.program.as_ref().map_or(&b""[..], |prepared| &prepared.path);
        error(SpawnStep::Fork, what, ECANCELED)
    }
}

fn stdio_error(problem: &io::Error) -> SpawnError {
    error(SpawnStep::Stdio, b"standard streams", errno(problem))
}

fn errno(problem: &io::Error) -> i32 {
    problem.raw_os_error().unwrap_or(EINVAL)
}

fn error(step: SpawnStep, what: &[u8], errno: i32) -> SpawnError {
    SpawnError { step, what: String::from_utf8_lossy(what).into_owned(), errno }
}

/// Orders processes that have ended since the last look, which the kernel names in the order of their starts. The first
/// one is named as the reason why the job ends: others exit because a peer has crashed, and seldom crash themselves.
fn crashes_first(dead: &mut [(u32, Ended)]) {
    // SIGILL, SIGBUS, SIGFPE, SIGKILL and SIGSEGV.
    dead.sort_by_key(|(_, ended)| !matches!(ended, Ended::Signalled { signal: 4 | 7..=9 | 11, .. }));
}

fn status(ended: Ended) -> ExitStatus {
    match ended {
        Ended::Exited(code) => ExitStatus::Exited(code),
        Ended::Signalled { signal, core_dumped } => ExitStatus::Signalled { signal, core_dumped },
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_is_reported_before_exits_that_it_may_have_caused() {
        let crashed = Ended::Signalled { signal: 11, core_dumped: false };
        let mut dead = [(1, Ended::Exited(1)), (2, Ended::Signalled { signal: 13, core_dumped: false }), (3, crashed)];
        crashes_first(&mut dead);
        assert_eq!(dead.map(|(pid, _)| pid), [3, 1, 2]);
    }
}
