//! The keeper: a small process that forks the ranks of a job, reaps them, and never outlives its agent for long.
//!
//! The keeper is forked from the agent without `exec`, while the agent has one thread. The keeper is a child subreaper.
//! Before its first processes start, the keeper begins a session, or a process group in the agent's session without a
//! terminal. If the keeper dies, the kernel kills every process that it started. If the agent dies (end of file on
//! their socket), the keeper sweeps: it kills these processes and all of their descendants, even after `setsid` or a
//! double fork, and reaps until none is left.
//!
//! A job's ranks share the keeper's session (except for one with a terminal), and each leads a process group. With
//! Linux's autogroups each session is a scheduling group. Within one group, `sched_yield` lets the other ranks run. If
//! each rank had a scheduling group of its own, `sched_yield` would have no effect, and ranks that poll for each other
//! would slow to a crawl as soon as anything else used the CPUs. Each job has its own group for the same reason:
//! otherwise polling ranks would yield to computing ranks of another job.
//!
//! Jobs with a PMIx server share their agent's session, and so does the server: one group, as under Open MPI's own
//! launcher. Linux 6.18 can let one group run alone for half a minute if some processes in it yield all the time and
//! others wake up often, as Open MPI's ranks do when they outnumber the CPUs; an agent or a server in another group
//! then answers nothing. (MPICH's test `spawn_rootargs`, 10 ranks that start 50, on 2 CPUs: 4 to 119 s with separate
//! groups, 3.7 s with one.) A keeper that has begun a session serves no job with a PMIx server, and a keeper that has
//! begun a process group in the agent's session serves no other job.
//!
//! Where several nodes share a machine, each rank has a session of its own. With one session for each node's ranks, the
//! agent's group would have the same weight as the group of all its ranks: the agent would get the CPU at once for each
//! single request, and every request would cost a context switch. Among many groups the agent runs less often and then
//! finds several requests. (16 nodes of 16 ranks on 2 CPUs, fence and gets: one session for each node's ranks takes 1.2
//! x the time.)
//!
//! The kernel lets `SIGTSTP` stop a rank only if another process in the rank's session could continue the rank: ranks
//! that share the keeper's session can be stopped by `SIGTSTP`.
//!
//! Such ranks, PMIx servers and agents have a short time slice, because without autogroups (in containers, or in
//! cgroups of a batch system or of systemd) they share a group with any other busy process. A keeper has the usual
//! slice, and a rank shortens its own: a process that becomes runnable preempts one whose short slice is used up, so a
//! keeper with a short slice would lose its CPU between two starts, and with polling ranks on all CPUs it would run
//! again only at a tick of the kernel's clock.
//!
//! The keeper owns only processes. It creates pipes, PMI sockets and pseudo-terminals, since they must exist before the
//! process, but it sends the agent's ends to the agent as soon as the process runs.
//!
//! Messages: one request for a whole batch; one report for each start and each exit, many of them in one system call.

mod directories;
pub mod forker;
pub mod leaving;
mod prefetch;
mod preload;
mod processes;
mod protocol;
mod serve;
mod staged;

use crate::remedy::spawn_error;
pub use directories::clear;
use forker::ENTER_MAX;
use leaving::{LEAVE_MAX, Leaving};
pub use protocol::{
    Batch, KeeperEvent, OutKind, Process, ProcessFds, Program, Request, SERVER_SLOT, STANDBY_SLOT, StdinKind, is_server,
};
use protocol::{Flushed, Inbox, Outbox};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wireup_os::process::{PidNamespace, start_ticks};
use wireup_os::reactor::{Interest, Reactor};
use wireup_os::socket;
use wireup_proto::io::KernelSession;
use wireup_wire::peer::{SpawnError, SpawnStep};

const _: () =
    assert!(serve::FELLOWS_NS < LEAVE_MAX.as_nanos() as u64, "a keeper that leaves kills wireup's processes in time");

/// The agent's side of a keeper. Dropping this value closes the socket; the keeper then kills all of its processes and
/// exits.
pub struct Keeper {
    pid: u32,
    socket: OwnedFd,
    outbox: Outbox,
    inbox: Inbox,
    namespace: Namespace,
    /// The kernel session in which the keeper has its process group; `None`: the keeper is still in the agent's group.
    kernel_session: Option<KernelSession>,
    /// Whether the keeper's end of the socket is closed.
    gone: bool,
    /// Whether the keeper had an interpreter with imported modules for later jobs when it was renewed.
    keeps_importer: bool,
    /// Whether this job's ranks are forked from an interpreter with imported modules that is kept for later jobs.
    imports: bool,
    /// The reactor's token of the socket, and the events that the reactor watches for; `None`: no reactor does.
    watched: Option<(u64, Interest)>,
    /// The error that the keeper reported before it ended; `None`: it was killed, or reported nothing.
    problem: Option<SpawnError>,
    /// Start time of the keeper (clock ticks), once [`Keeper::take_events`] has seen its end or it was given up:
    /// processes that it leaves behind were started later.
    lost: Option<u64>,
    /// Directories that the keeper was asked to remove at its end; if the keeper is killed before that, the agent
    /// removes them.
    directories: Vec<Vec<u8>>,
}

/// The PID namespace of a keeper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Namespace {
    /// The keeper is in the agent's PID namespace.
    Shared,
    /// The keeper is in another PID namespace, in which it is about to change its mounts.
    Entering,
    Other,
}

/// Whether the keeper process still runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Alive {
    Yes,
    /// The keeper has ended, so the kernel kills its processes. Their descendants are reparented to the agent, which is
    /// also a subreaper, or to the first process of their PID namespace.
    Gone,
}

impl Keeper {
    /// Forks a keeper, or has the forker do so once [`forker::before_threads`] was called.
    ///
    /// # Errors
    /// No process, descriptor or memory is left; this process has several threads and no forker.
    pub fn fork() -> io::Result<Keeper> {
        Keeper::fork_into(None)
    }

    /// Forks a keeper in a PID namespace, where that is permitted; otherwise without one. No process of the keeper
    /// outlives the first process of the namespace: in a new namespace, the keeper itself. Call [`Keeper::settled`]
    /// before anything else.
    pub fn fork_isolated(namespace: &PidNamespace) -> io::Result<Keeper> {
        Keeper::fork_into(Some(namespace)).or_else(|_| Keeper::fork())
    }

    fn fork_into(namespace: Option<&PidNamespace>) -> io::Result<Keeper> {
        let (pid, socket) = forker::ask(namespace).unwrap_or_else(|| forker::fork_here(namespace))?;
        Ok(Keeper {
            pid,
            socket,
            outbox: Outbox::default(),
            inbox: Inbox::new(),
            namespace: if namespace.is_some() { Namespace::Entering } else { Namespace::Shared },
            kernel_session: None,
            gone: false,
            keeps_importer: false,
            imports: false,
            watched: None,
            problem: None,
            lost: None,
            directories: Vec::new(),
        })
    }

    /// Waits until the keeper has set up its namespace; if the keeper cannot, replaces the keeper as
    /// [`Keeper::replaced`] does.
    pub fn settled(mut self, again: impl FnOnce() -> io::Result<Keeper>) -> io::Result<Keeper> {
        if self.has_settled() { Ok(self) } else { self.replaced(again) }
    }

    /// Waits until the keeper has set up its namespace; `false`: the keeper cannot set it up, or has been killed.
    pub fn has_settled(&mut self) -> bool {
        // The keeper sends one byte when the namespace is set up.
        if self.namespace == Namespace::Entering
            && socket::wait(&self.socket, true, false, Some(ENTER_MAX)).unwrap_or(false)
            && rustix::io::read(&self.socket, &mut [0; serve::ENTERED.len()]).is_ok_and(|read| read > 0)
        {
            self.namespace = Namespace::Other;
        }
        self.namespace != Namespace::Entering
    }

    /// Returns a keeper in place of this keeper, which could not set up its namespace: a keeper that `again` forks or,
    /// if that keeper fails too, a keeper without a namespace.
    pub fn replaced(self, again: impl FnOnce() -> io::Result<Keeper>) -> io::Result<Keeper> {
        if self.close().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            // A keeper that does not exit in time waits for something, and another one would wait for it too.
            return Keeper::fork();
        }
        let mut second = again();
        if second.as_mut().is_ok_and(Keeper::has_settled) {
            return second;
        }
        second.into_iter().for_each(|second| drop(second.close()));
        Keeper::fork()
    }

    /// Whether the keeper has another PID namespace than the agent.
    pub fn isolates(&self) -> bool {
        self.namespace != Namespace::Shared
    }

    /// The keeper's socket. Readable: call [`Keeper::take_events`], or [`Keeper::receive`] if the keeper is idle.
    /// Writable, after an incomplete flush: call [`Keeper::send`] or [`Keeper::flush`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The keeper's pid. The keeper is a child of the agent, and the agent reaps it.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Queues a request that the keeper begin this kernel session, or a process group in the agent's session. Call it
    /// before processes are requested; only the first call has an effect.
    pub fn begin_kernel_session(&mut self, session: KernelSession) {
        if self.kernel_session.is_none() {
            self.kernel_session = Some(session);
            self.request(&Request::Begin(session));
        }
    }

    /// The kernel session that the keeper has begun; `None`: the keeper has begun no session.
    pub fn kernel_session(&self) -> Option<KernelSession> {
        self.kernel_session
    }

    /// Whether the keeper had an interpreter with imported modules for later jobs when it was renewed.
    pub fn keeps_importer(&self) -> bool {
        self.keeps_importer
    }

    /// Whether the keeper probably has, or is about to have, an interpreter with imported modules for later jobs.
    pub fn may_keep_importer(&self) -> bool {
        self.imports || self.keeps_importer
    }

    /// Makes the reactor report events of the keeper's socket with this token.
    pub fn watch(&mut self, token: u64, reactor: &Reactor) -> io::Result<()> {
        let interest = match self.watched {
            None => {
                reactor.add(&self.socket, token, Interest::READABLE)?;
                Interest::READABLE
            }
            Some((_, interest)) => {
                reactor.modify(&self.socket, token, interest)?;
                interest
            }
        };
        self.watched = Some((token, interest));
        Ok(())
    }

    /// Writes the queued requests, and removes the socket from the reactor; the keeper goes on running.
    pub fn unwatched(mut self, reactor: &Reactor) -> Keeper {
        self.send(reactor);
        if self.watched.take().is_some() {
            let _ = reactor.remove(&self.socket);
        }
        self
    }

    /// Queues a request; [`Keeper::send`] or [`Keeper::flush`] sends it.
    pub fn request(&mut self, request: &Request) {
        debug_assert!(
            self.kernel_session.is_some() || !matches!(request, Request::Spawn(_)),
            "it has begun no session"
        );
        match request {
            Request::RemoveAtEnd { directory } => self.directories.push(directory.clone()),
            Request::DropImporter => self.keeps_importer = false,
            Request::Spawn(batch) => self.imports |= batch.preload.as_ref().is_some_and(|preload| preload.keep),
            _ => {}
        }
        self.outbox.push(request, Vec::new());
    }

    /// Queues listening sockets for those processes of the next request that have `listens` set.
    pub fn give_sockets(&mut self, sockets: Vec<OwnedFd>) {
        let mut left = sockets.into_iter().peekable();
        while left.peek().is_some() {
            let some: Vec<OwnedFd> = left.by_ref().take(socket::FDS_MAX).collect();
            self.outbox.push(&Request::Sockets { count: some.len() as u32 }, some);
        }
    }

    /// Writes the queued requests to a watched keeper; the reactor is called only when the events to watch for change.
    /// An error is ignored here: a keeper that has ended is noticed by the end of file on its socket.
    pub fn send(&mut self, reactor: &Reactor) {
        let is_blocked = self.watched.is_some_and(|(_, interest)| interest == Interest::BOTH);
        if self.lost.is_some() || (self.outbox.is_empty() && !is_blocked) {
            return;
        }
        let all_out = self.flush().unwrap_or(true);
        if is_blocked == all_out
            && let Some((token, interest)) = &mut self.watched
        {
            *interest = if all_out { Interest::READABLE } else { Interest::BOTH };
            let _ = reactor.modify(&self.socket, *token, *interest);
        }
    }

    /// Writes requests without blocking. `Ok(false)`: call again when the socket is writable.
    ///
    /// # Errors
    /// The keeper's end of the socket is closed; [`Keeper::receive`] returns the keeper's last messages.
    pub fn flush(&mut self) -> io::Result<bool> {
        Ok(self.outbox.flush(&self.socket)? == Flushed::All)
    }

    /// Appends the events that a watched keeper has sent. Returns `false` once, when the keeper has ended.
    pub fn take_events(&mut self, events: &mut Vec<KeeperEvent>, reactor: &Reactor) -> bool {
        let received = self.receive(events);
        let failures = events.extract_if(.., |event| matches!(event, KeeperEvent::Failed { .. }));
        for failure in failures {
            if let KeeperEvent::Failed { problem } = failure {
                self.problem = Some(problem);
            }
        }
        match received {
            Ok(Alive::Yes) => true,
            Ok(Alive::Gone) => !self.on_lost(reactor),
            // This process ran out of descriptors: some that the keeper sent are lost, with the events that they belong
            // to.
            Err(error) => {
                let problem = spawn_error(SpawnStep::Fork, "cannot receive the descriptors of its processes", &error);
                !self.give_up(problem, reactor)
            }
        }
    }

    /// Makes the keeper kill its processes and exit, which ends the job. `false`: the keeper has ended already.
    pub fn give_up(&mut self, problem: SpawnError, reactor: &Reactor) -> bool {
        self.problem.get_or_insert(problem);
        // The keeper then kills all of its processes and exits.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        self.on_lost(reactor)
    }

    fn on_lost(&mut self, reactor: &Reactor) -> bool {
        let is_new = self.lost.is_none();
        if is_new {
            self.lost = Some(start_ticks(self.pid).unwrap_or(0));
            if self.watched.take().is_some() {
                let _ = reactor.remove(&self.socket);
            }
        }
        is_new
    }

    /// The error that the keeper reported before it ended; `None`: it was killed, or reported nothing.
    pub fn take_problem(&mut self) -> Option<SpawnError> {
        self.problem.take()
    }

    /// Start time of the keeper (clock ticks), if [`Keeper::take_events`] has seen its end or it was given up.
    pub fn lost(&self) -> Option<u64> {
        self.lost
    }

    /// Appends the events that the keeper has sent, without blocking.
    ///
    /// # Errors
    /// `EMFILE`: the job needs more descriptors than this process may have open; some of them are lost.
    pub fn receive(&mut self, events: &mut Vec<KeeperEvent>) -> io::Result<Alive> {
        let open = self.inbox.fill(&self.socket)?;
        while let Some(mut event) = self.inbox.next::<KeeperEvent>() {
            if let KeeperEvent::Started { present, fds, .. } | KeeperEvent::Streams { present, fds, .. } = &mut event {
                *fds = ProcessFds::join(*present, &mut self.inbox.fds);
            }
            if let KeeperEvent::Renewed { keeps_importer } = event {
                (self.keeps_importer, self.imports) = (keeps_importer, false);
                self.directories.clear();
            }
            events.push(event);
        }
        self.gone = !open;
        Ok(if open { Alive::Yes } else { Alive::Gone })
    }

    /// Makes the keeper kill all of its processes and exit, and waits for its exit for a limited time: a process that
    /// sleeps in the kernel (because of a dead file server) cannot be killed now. In that case the keeper, as an
    /// orphan, continues to kill its processes, and exits when the last of them is gone.
    ///
    /// If the keeper was killed, or has not read the requests, `close` removes the directories that the keeper should
    /// have removed.
    ///
    /// # Errors
    /// The keeper was already reaped, or has not exited in time (`TimedOut`).
    pub fn close(self) -> io::Result<()> {
        self.told_to_leave().wait(LEAVE_MAX)
    }

    /// Makes the keeper exit, without waiting for its exit: see [`leaving`].
    pub fn leave(self) {
        leaving::add(self.told_to_leave());
    }

    fn told_to_leave(self) -> Leaving {
        drop(self.socket);
        let (gone, has_requests) = (self.gone, self.outbox.is_empty());
        Leaving { gone, has_requests, directories: self.directories, ..Leaving::of(self.pid) }
    }
}

#[cfg(test)]
pub mod tests;
