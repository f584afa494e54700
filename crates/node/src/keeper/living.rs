//! The processes of a keeper that were made and not yet reaped.

use super::protocol::ProcessFds;
use super::starts::Prepared;
use std::rc::Rc;
use wireup_os::process::{self, Ended};
use wireup_proto::io::ExitStatus;

/// A process that was made and not yet reaped.
pub(super) struct Living {
    pub pid: u32,
    /// Until it runs its program.
    pub start: Option<Start>,
}

pub(super) struct Start {
    pub program: Rc<Prepared>,
    pub spawn_ns: u64,
    pub fds: ProcessFds,
}

impl Living {
    /// A signal for the process and what it has forked.
    pub fn signal(&self, signal: i32) {
        match self.start {
            // Its group may not be there yet. The signal waits until all is ready for the program.
            Some(_) => drop(process::kill(self.pid, signal)),
            // An error means that the group is gone: it has ended, which will be told.
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
