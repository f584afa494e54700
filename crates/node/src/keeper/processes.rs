//! The processes of a keeper: processes that wait to be started, and processes that have been created and not yet
//! reaped.
//!
//! Stops processes as a terminal's `^Z` does.
//!
//! `SIGTSTP` alone does not stop every process: a program may handle it, and the kernel ignores it for a process group
//! that no other process in its session could continue, such as a rank with a terminal of its own. So `SIGSTOP`
//! follows, with a delay for programs that prepare for the stop; `SIGCONT` cancels it.

mod preloading;
mod waiting;

use super::prefetch::Prefetching;
use super::preload::Report;
use super::protocol::{Batch, IMPORTER_SLOT, KeeperEvent, Outbox, ProcessFds, is_server};
use super::staged::Redirected;
use crate::remedy;
use preloading::{Kept, Preloading, Requested};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;
pub(super) use waiting::settle_descriptors;
use waiting::{EINVAL, Start, Waiting, error, limits_of, prepare, session};
use wireup_os::bind;
use wireup_os::clock::monotonic_ns;
use wireup_os::process::{self, Ended, Isolated, Reaped};
use wireup_os::spawn::{Command, EXTRA_TARGETS, Executed, Failure, Spawner, Step};
use wireup_proto::io::ExitStatus;
use wireup_wire::peer::{SpawnError, SpawnStep};
use wireup_wire::signal::{SIGCONT, SIGKILL, SIGSTOP, SIGTSTP, is_fatal};

/// Number of concurrent starts per CPU. Measured: 1 leaves CPUs idle, more than 4 gains nothing.
const STARTS_PER_CPU: usize = 4;
const STARTS_MAX: usize = 64;

pub(super) struct Processes {
    /// `/dev/null`.
    null: OwnedFd,
    spawner: Spawner,
    queue: VecDeque<Waiting>,
    /// Listening sockets for processes in the queue, in the order of these processes.
    pub listening: VecDeque<OwnedFd>,
    /// Processes that have not been reaped, by slot.
    living: HashMap<u32, Living>,
    /// The slot of each process in `living`, by pid.
    slots: HashMap<u32, u32>,
    stops: Stops,
    preloading: Option<Preloading>,
    /// An importer that was kept from an earlier job.
    kept: Option<Kept>,
    prefetching: Option<Prefetching>,
}

/// A process that has been created and not yet reaped.
struct Living {
    pid: u32,
    /// Pid of the process in the agent's PID namespace.
    shown: u32,
    /// Data of the start; `None` once the process has executed its program.
    start: Option<Start>,
}

impl Living {
    /// Sends a signal to the process and its process group.
    fn signal(&self, signal: i32) {
        match self.start {
            // The process group may not exist yet. The signal remains blocked until the program is about to be
            // executed.
            Some(_) => drop(process::kill(self.pid, signal)),
            // An error means that the process has ended, so its group is gone; its end will be reported.
            None => drop(process::kill_group(self.pid, signal)),
        }
    }
}

impl Processes {
    pub fn new(null: OwnedFd) -> io::Result<Processes> {
        let cpus = bind::allowed().map_or(1, |cpus| cpus.len());
        Ok(Processes {
            null,
            spawner: Spawner::new((cpus * STARTS_PER_CPU).min(STARTS_MAX))?,
            queue: VecDeque::new(),
            listening: VecDeque::new(),
            living: HashMap::new(),
            slots: HashMap::new(),
            stops: Stops::default(),
            preloading: None,
            kept: None,
            prefetching: None,
        })
    }

    /// Adds a batch to the queue. The file of each program is searched once for all of its processes.
    pub fn enqueue(&mut self, batch: Batch, redirected: Option<&Redirected>, outbox: &mut Outbox) {
        if !batch.prefetch.is_empty() {
            match Prefetching::begin(&batch.prefetch) {
                Ok(prefetching) => self.prefetching = Some(prefetching),
                Err(problem) => outbox.push(&KeeperEvent::NotPrefetched { problem }, Vec::new()),
            }
        }
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
        let Some(mut preload) = preload else { return self.queue.extend(waiting) };
        // A keeper with staged files serves only this job, so its importer is not kept.
        preload.keep &= batch.staged.is_none();
        match Preloading::new(&preload, &batch.programs, &batch.limits, &waiting, redirected, &mut self.kept) {
            Ok(preloading) => self.preloading.insert(preloading).add(waiting),
            // The imports are a setting of the session, not of this job: a program that cannot use them starts without
            // a message.
            Err(_) if !preload.asked && !preload.required => self.queue.extend(waiting),
            Err(problem) => self.start_without(waiting, preload.required, problem, outbox),
        }
    }

    /// Queues processes that cannot be forked from an importer for a normal start, or (`refuses`) reports that they
    /// will not start. `problem`: the reason why the processes cannot be forked.
    fn start_without(&mut self, waiting: VecDeque<Waiting>, refuses: bool, problem: String, outbox: &mut Outbox) {
        if !refuses {
            self.queue.extend(waiting);
            return outbox.push(&KeeperEvent::NotPreloaded { problem }, Vec::new());
        }
        for Waiting { process, .. } in waiting {
            let error = SpawnError { step: SpawnStep::Preload, what: problem.clone(), errno: 0 };
            outbox.push(&KeeperEvent::StartFailed { slot: process.slot, error }, Vec::new());
        }
    }

    /// The importer's socket, if the keeper does not watch it for reports yet.
    pub fn unwatched(&mut self) -> Option<BorrowedFd<'_>> {
        self.preloading.as_mut()?.unwatched()
    }

    /// The pid of the importer that is kept for later jobs.
    pub fn kept(&self) -> Option<u32> {
        self.kept.as_ref().and_then(Kept::pid)
    }

    /// Ends the importer that is kept for later jobs, and notes that this job's importer is not to be kept.
    pub fn keep_no_importer(&mut self) {
        self.kept = None;
        self.preloading.iter_mut().for_each(Preloading::keep_no_importer);
    }

    /// Whether processes wait that could be started now if fewer starts were in progress.
    pub fn are_waiting(&self) -> bool {
        !self.queue.is_empty() || self.preloading.as_ref().is_some_and(Preloading::are_waiting)
    }

    /// Whether a process can be started, or requested from the importer, now.
    pub fn can_start(&self) -> bool {
        let has_room = self.spawner.has_room();
        let by_importer = self.preloading.as_ref().is_some_and(|preloading| preloading.can_go_on(has_room));
        !self.queue.is_empty() && has_room || by_importer
    }

    /// Whether starts are in progress.
    pub fn are_starting(&self) -> bool {
        self.spawner.under_way() > 0
    }

    /// Waits at most `patience` until the oldest start in progress has finished.
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
            stdio: streams.stdio(&self.null),
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
        // The pid in the agent's namespace is read before the process is reaped. If no descriptor is left for the
        // query, the pid in this namespace is used.
        let shown = isolated.and_then(|isolated| isolated.outer_pid(pid).ok()).unwrap_or(pid);
        let living = Living { pid, shown, start: Some(start) };
        signals.iter().for_each(|&signal| living.signal(signal));
        self.slots.insert(pid, slot);
        self.living.insert(slot, living);
    }

    /// Notes that no process is started for now, so that starting processes need not yield to this one.
    pub fn pause(&self) {
        self.spawner.pause();
    }

    /// Reports processes that have executed their programs, or have failed to execute them. `true`: at least one was
    /// reported.
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
        self.kept.take_if(|kept| kept.has_ended(&dead));
        let prefetched = self.prefetching.take_if(|prefetching| dead.iter().any(|(pid, _)| *pid == prefetching.pid));
        if let Some(problem) = prefetched.and_then(Prefetching::problem) {
            outbox.push(&KeeperEvent::NotPrefetched { problem }, Vec::new());
        }
        let importer_end = self.preloading.as_mut().and_then(|preloading| preloading.take_end(&dead));
        // The kernel has cleared the `running` word of each reaped child, so its start is reported here at the latest.
        self.collect_starts(outbox);
        // The starts of forks of the importer are also reported here, unless a fork was killed before it was ready.
        self.read_importer(isolated, &dead, outbox);
        if let Some(ended) = importer_end {
            self.on_importer_ended(ended, outbox);
        }
        for (pid, ended) in dead {
            // A pid without a slot is that of an adopted orphan.
            let Some(slot) = self.slots.remove(&pid) else { continue };
            // An importer's fork may have been killed before it reported that it was set up: its start is reported now.
            self.on_executed(Executed { token: slot, pid, result: Ok(()) }, outbox);
            self.living.remove(&slot);
            self.on_set_up(slot);
            outbox.push(&KeeperEvent::Exited { slot, status: status(ended) }, Vec::new());
        }
        are_left
    }

    /// Ends the process that reads files ahead.
    pub fn end_prefetch(&self) {
        if let Some(prefetching) = &self.prefetching {
            // The process has not been reaped, so the pid is its own.
            let _ = process::kill(prefetching.pid, SIGKILL);
        }
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
        // A signal that would end the ranks takes effect at once: the imports are abandoned, and the ranks start
        // without them and receive the signal.
        if whom.is_none()
            && is_fatal(signal)
            && let Some(preloading) = self.preloading.take_if(|preloading| !preloading.is_ready)
        {
            self.queue.extend(preloading.into_unstarted().1);
        }
        let queue = self.queue.iter_mut().map(|waiting| (waiting.process.slot, &mut waiting.signals));
        let preloading = self.preloading.iter_mut().flat_map(Preloading::pending_signals);
        queue.chain(preloading).filter(|(slot, _)| is_meant(*slot)).for_each(|(_, signals)| signals.push(signal));
    }

    /// Time at which [`Processes::on_time`] must be called (ns).
    pub fn next_deadline_ns(&self) -> Option<u64> {
        let imports = self.preloading.as_ref().and_then(Preloading::deadline_ns);
        self.stops.next_ns().into_iter().chain(imports).min()
    }

    /// Sends `SIGSTOP` to processes that got a `SIGTSTP` some time ago; ends imports that take too long.
    pub fn on_time(&mut self, outbox: &mut Outbox) {
        self.end_late_preloading(outbox);
        if self.stops.next_ns().is_some() {
            for slot in self.stops.take_due(monotonic_ns()) {
                self.send(slot, SIGSTOP);
            }
        }
    }

    /// Cancels the processes that wait in the queue: reports that they will not start.
    pub fn cancel_queue(&mut self, outbox: &mut Outbox) {
        let preloading = self.preloading.as_mut().map(Preloading::take_waiting);
        for waiting in mem::take(&mut self.queue).into_iter().chain(preloading.into_iter().flatten()) {
            let report = KeeperEvent::StartFailed { slot: waiting.process.slot, error: waiting.cancelled() };
            outbox.push(&report, Vec::new());
        }
        self.end_preloading_if_done();
    }

    /// Resets the state after a job has ended and none of its processes is left.
    pub fn forget_all(&mut self) {
        self.listening.clear();
        self.stops = Stops::default();
        self.living.clear();
        self.slots.clear();
        self.preloading = None;
    }
}

/// Processes that are forked from an interpreter which has imported modules: see the module `preload`.
impl Processes {
    /// Starts the importer, or requests a process from it.
    fn go_on_preloading(&mut self, outbox: &mut Outbox) {
        let Some(preloading) = &mut self.preloading else { return };
        match preloading.start_importer(&mut self.spawner, &self.null, &mut self.listening) {
            Ok(Some((slot, fds))) => {
                let (present, sent) = fds.split();
                return outbox.push(&KeeperEvent::Streams { slot, present, fds: ProcessFds::default() }, sent);
            }
            Ok(None) => {}
            Err(problem) => return self.import_in_vain(remedy::in_words(&problem), outbox),
        }
        if let Err((slot, error)) = preloading.request_next(&self.null, &mut self.listening) {
            outbox.push(&KeeperEvent::StartFailed { slot, error }, Vec::new());
        }
        self.end_preloading_if_done();
    }

    /// Acts on what the importer and the processes forked from it have reported. `dead`: processes that have just been
    /// reaped, whose numbers may belong to other processes by now.
    pub fn read_importer(&mut self, isolated: Option<&Isolated>, dead: &[(u32, Ended)], outbox: &mut Outbox) {
        while let Some(preloading) = &mut self.preloading
            && let Some(report) = preloading.receive()
        {
            match report {
                Report::No(_) | Report::Over if preloading.fall_back() => {}
                Report::No(problem) => self.import_in_vain(problem, outbox),
                Report::Declined(problem) => self.on_declined(problem, outbox),
                Report::Recorded(modules) => outbox.push(&KeeperEvent::Preloads { modules }, Vec::new()),
                Report::Ready => {}
                Report::Forked { slot, pid } => self.on_forked(slot, pid, isolated, dead),
                Report::Up { slot, pid } => {
                    self.on_forked(slot, pid, isolated, dead);
                    self.on_executed(Executed { token: slot, pid, result: Ok(()) }, outbox);
                    self.on_set_up(slot);
                }
                Report::Failed { slot, step, errno } => {
                    let step = Step::from_word(step).unwrap_or(Step::Clone);
                    self.on_fork_failed(slot, Failure { step, errno }, outbox);
                }
                Report::Over if preloading.is_ready => self.on_importer_lost(outbox),
                Report::Over => return preloading.kill(),
            }
        }
    }

    fn on_forked(&mut self, slot: u32, pid: u32, isolated: Option<&Isolated>, dead: &[(u32, Ended)]) {
        let Some(preloading) = &mut self.preloading else { return };
        let Some(Requested { start, mut signals }) = preloading.on_forked(slot) else { return };
        if dead.iter().any(|(dead, _)| *dead == pid) {
            signals.clear();
        }
        self.add_living(slot, pid, start, &signals, isolated);
    }

    /// Notes that the process of this slot has been set up, or has failed, and needs the importer no longer.
    fn on_set_up(&mut self, slot: u32) {
        self.preloading.iter_mut().for_each(|preloading| preloading.on_set_up(slot));
        self.end_preloading_if_done();
    }

    fn on_fork_failed(&mut self, slot: u32, failure: Failure, outbox: &mut Outbox) {
        let Some(preloading) = &mut self.preloading else { return };
        if let Some(Requested { start, .. }) = preloading.on_not_forked(slot) {
            let error = start.program.error(failure);
            outbox.push(&KeeperEvent::StartFailed { slot, error }, Vec::new());
        }
        let pid = self.living.get(&slot).map_or(0, |living| living.pid);
        self.on_executed(Executed { token: slot, pid, result: Err(failure) }, outbox);
        self.on_set_up(slot);
    }

    fn on_importer_ended(&mut self, ended: Ended, outbox: &mut Outbox) {
        if self.preloading.as_ref().is_none_or(|preloading| preloading.is_ready) {
            return;
        }
        let how = match ended {
            Ended::Exited(code) => format!("exited with code {code}"),
            Ended::Signalled { signal, .. } => format!("was killed by signal {signal}"),
        };
        self.import_in_vain(format!("the interpreter that imports modules {how}"), outbox);
    }

    /// Handles the end of an importer that was ready: ranks that have been requested from the importer fail; the other
    /// ranks start without the importer or fail too.
    fn on_importer_lost(&mut self, outbox: &mut Outbox) {
        let Some(preloading) = self.preloading.take() else { return };
        let is_required = preloading.is_required;
        let (requested, waiting) = preloading.into_unstarted();
        let what = "the interpreter from which ranks are forked has ended";
        for slot in requested {
            let error = SpawnError { step: SpawnStep::Fork, what: what.into(), errno: 0 };
            outbox.push(&KeeperEvent::StartFailed { slot, error }, Vec::new());
        }
        if !waiting.is_empty() {
            self.start_without(waiting, is_required, what.into(), outbox);
        }
    }

    /// Abandons the importer, which cannot be used because of `problem`; the processes start without the importer, or
    /// not at all.
    pub fn import_in_vain(&mut self, problem: String, outbox: &mut Outbox) {
        if let Some(preloading) = self.preloading.take() {
            let is_required = preloading.is_required;
            self.start_without(preloading.into_unstarted().1, is_required, problem, outbox);
        }
    }

    /// Handles an importer kept from an earlier job that cannot run this job: the importer is kept for later jobs.
    fn on_declined(&mut self, problem: String, outbox: &mut Outbox) {
        let Some(mut preloading) = self.preloading.take() else { return };
        self.start_without(preloading.take_waiting(), preloading.is_required, problem, outbox);
        self.kept = preloading.into_kept();
    }

    /// Gives up after the time limit: imports that take too long, or ranks whose importer has ended.
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
        let done = self.preloading.take_if(|preloading| preloading.is_done());
        self.kept = done.and_then(Preloading::into_kept).or(self.kept.take());
    }
}

/// Puts crashed processes first among the processes that have ended since the last call, which the kernel returns in
/// the order of their starts. The first process is reported as the reason why the job ends: ranks that exit because a
/// peer has crashed seldom crash themselves.
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

/// Delay from `SIGTSTP` to `SIGSTOP`. Chosen: a handler needs microseconds, and a user who presses `^Z` does not notice
/// the delay.
const GRACE_NS: u64 = 50_000_000;

/// Pending `SIGSTOP`s.
#[derive(Default)]
pub(super) struct Stops {
    /// Slots that will receive a `SIGSTOP` (`None`: all slots), each with the time of the signal (ns).
    due: Vec<(Option<u32>, u64)>,
}

impl Stops {
    /// Notes that a signal was sent to one process or to all processes.
    pub fn on_signal(&mut self, slot: Option<u32>, signal: i32, now_ns: u64) {
        match signal {
            SIGTSTP => self.due.push((slot, now_ns + GRACE_NS)),
            SIGCONT if slot.is_none() => self.due.clear(),
            SIGCONT => self.due.retain(|(whom, _)| *whom != slot),
            _ => {}
        }
    }

    /// Takes the slots to be stopped now.
    pub fn take_due(&mut self, now_ns: u64) -> Vec<Option<u32>> {
        let (due, later) = std::mem::take(&mut self.due).into_iter().partition(|(_, at)| *at <= now_ns);
        self.due = later;
        due.into_iter().map(|(whom, _)| whom).collect()
    }

    pub fn next_ns(&self) -> Option<u64> {
        self.due.iter().map(|(_, at)| *at).min()
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

    #[test]
    fn a_stop_follows_its_signal_unless_a_continue_cancels_it() {
        let mut stops = Stops::default();
        stops.on_signal(None, SIGTSTP, 0);
        stops.on_signal(Some(3), SIGTSTP, 10);
        stops.on_signal(Some(4), SIGTSTP, 20);
        stops.on_signal(None, 15, 30);
        assert_eq!(stops.next_ns(), Some(GRACE_NS));
        assert_eq!(stops.take_due(GRACE_NS), [None]);
        stops.on_signal(Some(3), SIGCONT, GRACE_NS);
        assert_eq!(stops.take_due(GRACE_NS + 20), [Some(4)]);
        assert_eq!(stops.next_ns(), None);
        stops.on_signal(Some(3), SIGTSTP, 0);
        stops.on_signal(None, SIGCONT, 1);
        assert!(stops.take_due(u64::MAX).is_empty());
    }
}
