//! The processes of a keeper that have been created and not yet reaped.

use super::protocol::ProcessFds;
use super::starts::Prepared;
use std::rc::Rc;
use wireup_os::process::{self, Ended};
use wireup_proto::io::ExitStatus;

/// A process that has been created and not yet reaped.
pub(super) struct Living {
    pub pid: u32,
    /// Process number as the agent sees it.
    pub shown: u32,
    /// The start of the process, until it executes its program.
    pub start: Option<Start>,
}

pub(super) struct Start {
    pub program: Rc<Prepared>,
    pub spawn_ns: u64,
    pub fds: ProcessFds,
}

impl Living {
    /// Sends a signal to the process and its process group.
    pub fn signal(&self, signal: i32) {
        match self.start {
            // The process group may not exist yet. The signal remains blocked until the program is about to be
            // executed.
            Some(_) => drop(process::kill(self.pid, signal)),
            // An error means that the group is gone: the process has ended, which will be reported.
            None => drop(process::kill_group(self.pid, signal)),
        }
    }
}

pub(super) fn status(ended: Ended) -> ExitStatus {
    match ended {
        Ended::Exited(code) => ExitStatus::Exited(code),
        Ended::Signalled { signal, core_dumped } => ExitStatus::Signalled { signal, core_dumped },
    }
}
