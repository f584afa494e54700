//! Starts the processes of a batch as forks of an interpreter that has imported modules: see the module `preload`.

use super::{Prepared, Processes, Start, Waiting, errno, error, prepare, session, stdio_error};
use crate::keeper::channel::Outbox;
use crate::keeper::preload::{self, Importer, Report};
use crate::keeper::protocol::{IMPORTER_SLOT, KeeperEvent, Program};
use crate::keeper::redirected::Redirected;
use crate::spawn_error;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use wireup_os::clock::monotonic_ns;
use wireup_os::files;
use wireup_os::process::{Ended, Isolated};
use wireup_os::spawn::{Command, Executed, Failure, Session, Step};
use wireup_wire::job::Preload;
use wireup_wire::peer::{SpawnError, SpawnStep};

/// Time for reports of ranks whose importer has ended (ns).
const LOST_NS: u64 = 5_000_000_000;

impl Processes {
    /// Starts the importer, or requests a process from it.
    pub(super) fn go_on_preloading(&mut self, outbox: &mut Outbox) {
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
    pub(super) fn on_set_up(&mut self, slot: u32) {
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

    pub(super) fn is_importer(&self, pid: u32) -> bool {
        self.preloading.as_ref().is_some_and(|preloading| preloading.importer.pid == Some(pid))
    }

    pub(super) fn on_importer_ended(&mut self, ended: Ended, outbox: &mut Outbox) {
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
    pub(super) fn end_late_preloading(&mut self, outbox: &mut Outbox) {
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

    pub(super) fn end_preloading_if_done(&mut self) {
        self.preloading.take_if(|preloading| preloading.is_done());
    }
}

/// The processes of a batch for which modules are imported.
pub(super) struct Preloading {
    pub(super) importer: Importer,
    /// What starts the importer, before that.
    pub(super) unstarted: Option<Unstarted>,
    /// Whether the importer has imported the modules.
    pub(super) is_ready: bool,
    /// Time until which it must be ready or, if it has ended after that, until which its last ranks must be up (ns).
    until_ns: u64,
    /// Whether the socket takes no further request before the next report.
    is_full: bool,
    pub(super) waiting: VecDeque<Waiting>,
    /// Processes that have been requested from the importer, by slot.
    pub(super) requested: HashMap<u32, Requested>,
    /// Slots of processes that have been forked and are not set up.
    forked: HashSet<u32>,
}

pub(super) struct Unstarted {
    program: Rc<Prepared>,
    script: Vec<u8>,
    socket: OwnedFd,
}

pub(super) struct Requested {
    start: Start,
    /// Signals to be sent as soon as the process exists.
    pub(super) signals: Vec<i32>,
}

impl Preloading {
    /// # Errors
    /// Why no modules can be imported for the processes.
    pub(super) fn new(
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

    pub(super) fn can_request(&self) -> bool {
        let under_way = self.requested.len() + self.forked.len();
        self.is_ready && !self.is_full && !self.waiting.is_empty() && under_way < preload::UNDER_WAY_MAX
    }

    pub(super) fn deadline_ns(&self) -> Option<u64> {
        (!self.is_ready || self.importer.pid.is_none()).then_some(self.until_ns)
    }

    fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.requested.is_empty() && self.forked.is_empty()
    }
}
