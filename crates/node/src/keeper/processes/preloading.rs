//! The processes of a batch that are forked from an interpreter which has imported modules: see the module `preload`.

use super::waiting::{Prepared, Start, Waiting, errno, error, prepare, session, stdio_error};
use crate::keeper::preload::{Importer, Likeness, Plan, Report, UNDER_WAY_MAX};
use crate::keeper::protocol::{IMPORTER_SLOT, ProcessFds, Program};
use crate::keeper::staged::Redirected;
use crate::remedy;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use wireup_os::clock::monotonic_ns;
use wireup_os::files;
use wireup_os::process::Ended;
use wireup_os::spawn::{Command, Session, Spawner};
use wireup_wire::job::{Limit, Preload};
use wireup_wire::peer::{SpawnError, SpawnStep};

/// Longest wait for reports of ranks after their importer has ended (ns).
const LOST_NS: u64 = 5_000_000_000;

pub(super) struct Preloading {
    importer: Importer,
    /// The importer to be started if `importer`, which was kept from an earlier job, turns out unusable for this job.
    fresh: Option<Importer>,
    /// The properties that a later job must share with this job to use this job's importer; `None`: the importer is not
    /// kept.
    likeness: Option<Likeness>,
    /// Whether the processes do not start without the imports.
    pub is_required: bool,
    /// The command that starts the importer, until it is started.
    unstarted: Option<Unstarted>,
    /// Whether the importer has imported the modules.
    pub is_ready: bool,
    /// Time limit (ns) for the importer to be ready or, if the importer was ready and has ended, for its last ranks to
    /// be set up.
    until_ns: u64,
    /// Whether the socket has no room for a further request before the next report.
    is_full: bool,
    waiting: VecDeque<Waiting>,
    /// Processes that have been requested from the importer, by slot.
    requested: HashMap<u32, Requested>,
    /// Slots of processes that have been forked and are not set up.
    forked: HashSet<u32>,
}

/// An importer that is kept after its job for later jobs with the same `likeness`.
pub(super) struct Kept {
    importer: Importer,
    likeness: Likeness,
}

impl Kept {
    pub fn pid(&self) -> Option<u32> {
        self.importer.pid
    }

    /// Whether the importer has ended.
    pub fn has_ended(&mut self, dead: &[(u32, Ended)]) -> bool {
        // An importer without a job has only its end to report, so other reports are dropped.
        while let Some(report) = self.importer.receive() {
            if report == Report::Over {
                break;
            }
        }
        self.importer.take_end(dead).is_some()
    }
}

struct Unstarted {
    program: Rc<Prepared>,
    script: Vec<u8>,
    socket: OwnedFd,
}

/// A process that has been requested from the importer.
pub(super) struct Requested {
    pub start: Start,
    /// Signals to be sent as soon as the process exists.
    pub signals: Vec<i32>,
}

impl Preloading {
    /// `limits`: limits of the processes. `kept`: the importer of an earlier job. If this job's importer is to be kept,
    /// `kept` is used if `kept.likeness` equals the likeness of this job, and ended otherwise.
    ///
    /// # Errors
    /// The reason why no modules can be imported for the processes.
    pub fn new(
        preload: &Preload,
        programs: &[Program],
        limits: &[Limit],
        waiting: &VecDeque<Waiting>,
        redirected: Option<&Redirected>,
        kept: &mut Option<Kept>,
    ) -> Result<Preloading, String> {
        let mut indexes: Vec<u16> = waiting.iter().map(|waiting| waiting.process.program).collect();
        indexes.dedup();
        let program = match indexes[..] {
            [index] => programs.get(usize::from(index)).ok_or("there is no program")?,
            _ => return Err("its ranks run different programs".into()),
        };
        let first = waiting.front().ok_or("there are no ranks")?;
        let plan = Plan::new(preload, program, &first.process, redirected)?;
        let program = prepare(&plan.program, redirected).map_err(|problem| remedy::in_words(&problem))?;
        let (importer, socket) = Importer::new(plan.for_ranks, plan.threads).map_err(|error| error.to_string())?;
        let likeness = preload.keep.then(|| Likeness {
            umask: first.umask,
            limits: limits.to_vec(),
            shares_session: first.process.shares_session,
            ..plan.likeness
        });
        let mut preloading = Preloading {
            importer,
            fresh: None,
            likeness,
            is_required: preload.required,
            unstarted: Some(Unstarted { program, script: plan.script, socket }),
            is_ready: false,
            until_ns: monotonic_ns().saturating_add(preload.limit_ns),
            is_full: false,
            waiting: VecDeque::new(),
            requested: HashMap::new(),
            forked: HashSet::new(),
        };
        let kept = kept.take_if(|_| preload.keep);
        if let Some(kept) = kept.filter(|kept| preloading.likeness.as_ref() == Some(&kept.likeness))
            && kept.importer.give_job(&plan.job).is_ok()
        {
            let mut fresh = mem::replace(&mut preloading.importer, kept.importer);
            preloading.importer.for_ranks = mem::take(&mut fresh.for_ranks);
            preloading.fresh = Some(fresh);
        }
        Ok(preloading)
    }

    /// Gives up the importer that was kept from an earlier job, which cannot serve this job, for a new importer.
    /// Returns `false`, without an effect, if this job does not use an importer of an earlier job.
    pub fn fall_back(&mut self) -> bool {
        let Some(mut fresh) = self.fresh.take() else { return false };
        fresh.for_ranks = mem::take(&mut self.importer.for_ranks);
        self.importer = fresh;
        true
    }

    /// Notes that the importer is not kept after this job.
    pub fn keep_no_importer(&mut self) {
        self.likeness = None;
    }

    pub fn add(&mut self, waiting: VecDeque<Waiting>) {
        self.waiting = waiting;
    }

    /// The importer's socket, if the keeper does not watch it for reports yet.
    pub fn unwatched(&mut self) -> Option<BorrowedFd<'_>> {
        self.importer.unwatched()
    }

    /// Whether processes wait that could be requested from the importer now if there were room.
    pub fn are_waiting(&self) -> bool {
        self.is_ready && !self.waiting.is_empty()
    }

    /// Whether the importer can be started, or a process can be requested from the importer. `has_room`: whether the
    /// spawner can start a process.
    pub fn can_go_on(&self, has_room: bool) -> bool {
        if self.unstarted.is_some() {
            return has_room && self.fresh.is_none();
        }
        let under_way = self.requested.len() + self.forked.len();
        self.are_waiting() && !self.is_full && under_way < UNDER_WAY_MAX
    }

    /// Starts the importer with the output streams of the first process. Returns the slot of that process and the
    /// agent's ends of its streams, which are read during the imports; `None`: the importer was started before.
    pub fn start_importer(
        &mut self,
        spawner: &mut Spawner,
        null: &OwnedFd,
        listening: &mut VecDeque<OwnedFd>,
    ) -> Result<Option<(u32, ProcessFds)>, SpawnError> {
        let Some(unstarted) = self.unstarted.take() else { return Ok(None) };
        let Some(first) = self.waiting.front_mut() else { return Ok(None) };
        let script = files::sealed_memory(&unstarted.script).map_err(|problem| stdio_error(&problem))?;
        let mut streams = first.streams(listening)?;
        let [_, stdout, stderr] = streams.stdio(null);
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
        let started = spawner.start(&command, IMPORTER_SLOT);
        let fds = if started.is_ok() { mem::take(&mut streams.agent) } else { ProcessFds::default() };
        // Whether or not the importer runs, the process keeps these streams and its listening socket.
        first.streams = Some(streams);
        self.importer.pid = Some(started.map_err(|failure| unstarted.program.error(failure))?);
        Ok(Some((first.process.slot, fds)))
    }

    /// Requests the next process from the importer.
    pub fn request_next(&mut self, null: &OwnedFd, listening: &mut VecDeque<OwnedFd>) -> Result<(), (u32, SpawnError)> {
        let Some(waiting) = self.waiting.pop_front() else { return Ok(()) };
        let slot = waiting.process.slot;
        self.request(waiting, null, listening).map_err(|error| (slot, error))
    }

    fn request(
        &mut self,
        mut waiting: Waiting,
        null: &OwnedFd,
        listening: &mut VecDeque<OwnedFd>,
    ) -> Result<(), SpawnError> {
        let program = waiting.program.clone()?;
        let streams = waiting.streams(listening)?;
        let fds: Vec<_> = streams.stdio(null).into_iter().chain(streams.sockets().into_iter().flatten()).collect();
        let spawn_ns = monotonic_ns();
        match self.importer.request(&waiting.process, session(&waiting.process), &fds) {
            Ok(()) => {
                let start = Start { program, spawn_ns, fds: streams.agent };
                self.requested.insert(waiting.process.slot, Requested { start, signals: waiting.signals });
                Ok(())
            }
            // The next report either makes room in the socket, or tells that the importer has ended.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe || !self.requested.is_empty() => {
                self.is_full = true;
                waiting.streams = Some(streams);
                self.waiting.push_front(waiting);
                Ok(())
            }
            Err(problem) => Err(error(SpawnStep::Fork, b"a request to the interpreter", errno(&problem))),
        }
    }

    /// The next report of the importer, or of a process forked from it; `None`: nothing has arrived.
    pub fn receive(&mut self) -> Option<Report> {
        let report = self.importer.receive()?;
        self.is_full = false;
        if matches!(report, Report::Ready | Report::Declined(_)) {
            self.is_ready = true;
            (self.fresh, self.unstarted) = (None, None);
        }
        Some(report)
    }

    /// Notes that the process of this slot has been forked. `None`: the fork was noted before.
    pub fn on_forked(&mut self, slot: u32) -> Option<Requested> {
        let requested = self.requested.remove(&slot)?;
        self.forked.insert(slot);
        Some(requested)
    }

    /// Notes that the process of this slot does not need the importer any more.
    pub fn on_set_up(&mut self, slot: u32) {
        self.forked.remove(&slot);
    }

    /// Removes a requested process that could not be forked. Returns `None` if the process already exists.
    pub fn on_not_forked(&mut self, slot: u32) -> Option<Requested> {
        self.requested.remove(&slot)
    }

    /// Kills the importer; its exit status will tell why it failed.
    pub fn kill(&self) {
        self.importer.kill();
    }

    /// Notes that the importer has been reaped if one of these processes is the importer. Returns how it has ended.
    pub fn take_end(&mut self, dead: &[(u32, Ended)]) -> Option<Ended> {
        let ended = self.importer.take_end(dead)?;
        if self.fall_back() {
            return None;
        }
        // A process that holds the socket open would hide the importer's end: without reports, the time limit ends the
        // wait.
        if self.is_ready {
            self.until_ns = monotonic_ns().saturating_add(LOST_NS);
        }
        Some(ended)
    }

    /// Time limit of the imports or, if the importer has ended, of the setup of its last ranks (ns).
    pub fn deadline_ns(&self) -> Option<u64> {
        (!self.is_ready || self.importer.pid.is_none()).then_some(self.until_ns)
    }

    pub fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.requested.is_empty() && self.forked.is_empty()
    }

    /// The importer for later jobs; `None`: it is not kept, or cannot be used any more.
    pub fn into_kept(self) -> Option<Kept> {
        let Preloading { importer, likeness, is_ready, .. } = self;
        let likeness = likeness.filter(|_| is_ready && importer.pid.is_some())?;
        Some(Kept { importer, likeness })
    }

    /// Slots of processes that have been requested and do not exist yet, and processes that have not been requested.
    pub fn into_unstarted(self) -> (Vec<u32>, VecDeque<Waiting>) {
        (self.requested.into_keys().collect(), self.waiting)
    }

    /// Takes the processes that have not been requested from the importer, so that they never will be.
    pub fn take_waiting(&mut self) -> VecDeque<Waiting> {
        mem::take(&mut self.waiting)
    }

    /// The slot of each process that does not exist yet, and the signals that it will receive.
    pub fn pending_signals(&mut self) -> impl Iterator<Item = (u32, &mut Vec<i32>)> {
        let waiting = self.waiting.iter_mut().map(|waiting| (waiting.process.slot, &mut waiting.signals));
        waiting.chain(self.requested.iter_mut().map(|(slot, requested)| (*slot, &mut requested.signals)))
    }
}
