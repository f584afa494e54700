//! The keeper: a small process that forks the ranks of a job, reaps them, and never outlives its agent.
//!
//! It is forked from the agent without `exec`, while that has one thread. It is child subreaper and leads a
//! session of its own; every process that it starts is killed by the kernel if the keeper dies, and swept by the
//! keeper if the agent dies (end of file on their socket): killed with all that descends from it, whether it
//! called `setsid` or forked twice, and reaped until nothing is left.
//!
//! A job's ranks share the keeper's session (but for one with a terminal), each leads a process group. With Linux' autogroups a session
//! is a scheduling group. In one group `sched_yield` lets the other ranks run; where each rank has a group of its own it does nothing,
//! and ranks that poll for each other come to a crawl as soon as anything else wants the cpus. A job has a group of its own, for the
//! same reason: ranks of another job that compute would be what those that poll yield to. Agents have sessions of their own.
//!
//! Where several nodes share a machine each rank has a session of its own. With one session for each node's ranks, the agent's group
//! weighs as much as the group of all its ranks: it gets the cpu for each single request at once, and every request costs a context
//! switch. Among many groups it runs less often and then finds several requests. (16 nodes of 16 ranks on 2 cpus, fence and gets: one
//! session for each node's ranks takes 1.2 x the time.)
//!
//! `SIGTSTP` stops a rank that shares the keeper's session; the kernel ignores it where nobody else in the session could continue it.
//!
//! Such ranks, their keepers and agents have a short time slice: where there are no autogroups (containers, the cgroups of a batch
//! system or of systemd) all share a group with whatever else is busy.
//!
//! It owns processes and nothing else. Pipes, PMI sockets and pseudo-terminals are made here, since they must be
//! there before the process, but the agent's ends travel to the agent as soon as the process runs.
//!
//! Messages: one request for a whole batch; one report for each start and each exit, many in one system call.

mod channel;
mod directories;
mod limits;
mod living;
mod plan;
mod protocol;
mod serve;
mod starts;
mod stops;
mod streams;
mod sweep;

pub use directories::clear;
pub use plan::cpus_of_ranks;
pub use protocol::{Batch, KeeperEvent, OutKind, Process, ProcessFds, Program, Request, SERVER_SLOT, StdinKind};

use channel::{Flushed, Inbox, Outbox};
use protocol::Report;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use wireup_os::process::{self, Fork};
use wireup_os::pty::SavedTerminal;
use wireup_os::socket;

/// A keeper that was told to leave is given this long: it needs milliseconds, and up to 2 s where processes belong to
/// another user and cannot be killed.
const LEAVE_MAX: Duration = Duration::from_secs(3);

/// The agent's side of a keeper. Dropping it is the agent's death to the keeper: it sweeps and leaves.
pub struct Keeper {
    pid: u32,
    socket: OwnedFd,
    outbox: Outbox,
    inbox: Inbox,
}

/// Whether the keeper is still there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Alive {
    Yes,
    /// Its processes are being killed by the kernel; what they had forked comes to the agent, a subreaper too.
    Gone,
}

impl Keeper {
    /// Forks a keeper. To be called while the process has one thread.
    ///
    /// # Errors
    /// No process, descriptor or memory is left.
    pub fn fork() -> io::Result<Keeper> {
        let (socket, far) = socket::pair()?;
        // Read here: afterwards the agent may be faster to change them than the keeper to look. Most often there is no
        // terminal.
        let terminal = SavedTerminal::of(rustix::stdio::stdin()).ok();
        match process::fork_with_signals_blocked()? {
            Fork::Child => serve::main(far, terminal),
            Fork::Parent { child } => Ok(Keeper { pid: child, socket, outbox: Outbox::default(), inbox: Inbox::new() }),
        }
    }

    /// Readable: call [`Keeper::receive`]. Writable, after a flush that was not complete: [`Keeper::flush`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The keeper is a child of the agent, which reaps it.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Queues a request; [`Keeper::flush`] sends it.
    pub fn request(&mut self, request: &Request) {
        self.outbox.push(request, Vec::new());
    }

    /// Writes requests without blocking. `Ok(false)`: call again when the socket is writable.
    ///
    /// # Errors
    /// The keeper is gone; [`Keeper::receive`] has what it had still to say.
    pub fn flush(&mut self) -> io::Result<bool> {
        Ok(self.outbox.flush(&self.socket)? == Flushed::All)
    }

    /// Appends what the keeper has told, without blocking.
    ///
    /// # Errors
    /// `EMFILE`: this process may not hold as many descriptors as the job needs; some are lost.
    pub fn receive(&mut self, events: &mut Vec<KeeperEvent>) -> io::Result<Alive> {
        let open = self.inbox.fill(&self.socket)?;
        while let Some(report) = self.inbox.next::<Report>() {
            events.push(report.into_event(&mut self.inbox.fds));
        }
        Ok(if open { Alive::Yes } else { Alive::Gone })
    }

    /// Lets the keeper sweep and leave, and waits for that, but not for ever: a process that sleeps in the kernel (a
    /// dead file server) cannot be killed now. The keeper needs nobody for its work. It goes on killing as an orphan
    /// and leaves when the last of its processes is gone.
    ///
    /// # Errors
    /// It was reaped already; it has not left in time (`TimedOut`).
    pub fn close(self) -> io::Result<()> {
        self.close_within(LEAVE_MAX)
    }

    fn close_within(self, limit: Duration) -> io::Result<()> {
        drop(self.socket);
        // Without descriptors for processes (Linux before 5.3) there is only the unbounded wait.
        if let Ok(pid) = process::open_pid(self.pid)
            && !socket::wait(&pid, true, false, Some(limit))?
        {
            return Err(io::ErrorKind::TimedOut.into());
        }
        process::wait_for(self.pid)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
