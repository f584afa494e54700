//! Finds the owner of a session: a process, usually of the login in which the session was started, whose end ends the
//! session.
//!
//! The owner is the leader of the caller's kernel session: the shell of the terminal, of the ssh connection, of the
//! batch script. If the leader has ended, is outside of this container or is the container's first process, the owner
//! is the topmost ancestor of the caller in its kernel session, not the nearest subshell. If the caller leads its
//! session itself (`setsid wireup up`), the owner is the caller's parent. Inside a batch system's allocation, of which
//! a login may have many in sequence, the owner is the process started for the allocation: a shell or a script.

use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wireup_os::{files, process};

/// A process whose end is awaited: the descriptor `fd` becomes readable when the process has ended.
#[derive(Debug)]
pub struct Owner {
    pid: u32,
    fd: OwnedFd,
}

impl Owner {
    /// The owner of sessions that this process starts. `allocation`: the variable (`NAME=VALUE`) of the allocation in
    /// which this process runs. `None`: there is no process to watch (only a container's first process, or a kernel
    /// before 5.3).
    pub fn of_caller(allocation: Option<&str>) -> Option<Owner> {
        let own = process::own_pid();
        // If no ancestor has the variable, the allocation was made for this same process.
        let allocated = allocation.and_then(|variable| process::eldest_with(variable.as_bytes()).or(process::parent()));
        let candidates = [allocated, process::session_leader(), process::eldest_of_session(), process::parent()];
        // The machine's first process does not belong to a login.
        let mut others = candidates.into_iter().flatten().filter(|&pid| pid != own && pid > 1);
        others.find_map(|pid| Some(Owner { pid, fd: process::open_pid(pid).ok()? }))
    }

    /// This process as the owner of a session whose agent it forks.
    pub fn this_process() -> io::Result<Owner> {
        let pid = process::own_pid();
        let by_pipe = |_| {
            let (reader, writer) = files::pipe()?;
            // The pipe's write end stays open until this process exits; processes that it forks or starts close their
            // copies.
            mem::forget(writer);
            Ok(reader)
        };
        // `pidfd_open` fails before Linux 5.3, or under a container's filter that does not know the call.
        process::open_pid(pid).or_else(by_pipe).map(|fd| Owner { pid, fd })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }
}

impl AsFd for Owner {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn the_end_of_the_owner_process_is_noticed() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let owner = Owner { pid: child.id(), fd: process::open_pid(child.id()).unwrap() };
        let gone = |owner: &Owner| wireup_os::socket::wait(owner, true, false, Some(Duration::ZERO)).unwrap();
        assert!(!gone(&owner));
        child.kill().unwrap();
        assert!(wireup_os::socket::wait(&owner, true, false, None).unwrap());
        child.wait().unwrap();
        assert!(gone(&owner));
    }
}
