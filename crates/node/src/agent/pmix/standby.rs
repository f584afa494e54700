//! Starts a PMIx server process before its job is known. Most of the time that such a process needs until ranks can
//! start is spent on opening the library, which this process has done when the next job of the family comes.
//!
//! ```text
//!   planned ── start ──► started ── Open ──► opening ── Opened ──► a job that would have started the same one: Begin
//!                           └───────────────────┴──── it has ended, or is not wanted: its keeper kills the rest
//! ```
//!
//! Without this server, `PMIx_Spawn` of one child takes 1.28 times as long until the child has initialised PMIx (1.21
//! to 1.34, 17.8 instead of 14.1 ms; 40 interleaved pairs of jobs with six calls each on 2 CPUs, medians with a 95 %
//! interval). `MPI_Comm_spawn` of Open MPI 5, which sleeps for a second, takes as long as with this server (1.003).
//!
//! The process belongs to a keeper without a job. Its messages are not read before a job could use it.

use super::opening::Opening;
use crate::agent::directory::Directory;
use crate::keeper::{Keeper, KeeperEvent, ProcessFds, Request, STANDBY_SLOT};
use rustix::io::{Errno, retry_on_intr};
use std::io;
use wireup_proto::io::{KernelSession, PmixPlan};
use wireup_wire::pmix::{FromServer, ToServer, pack};
use wireup_wire::signal::SIGKILL;

pub struct StandbyServer {
    opening: Opening,
    kernel_session: KernelSession,
    pub(super) directory: Directory,
    /// The process's descriptors; none before it has started, and none after `dismiss`.
    pub(super) fds: ProcessFds,
}

impl StandbyServer {
    /// A server for a later job like the one of `plan`; its process is not started yet.
    ///
    /// # Errors
    /// The kernel gives no random number for the name of its directory.
    pub fn like(plan: &PmixPlan) -> io::Result<StandbyServer> {
        Ok(StandbyServer {
            opening: Opening::new(plan),
            kernel_session: plan.kernel_session,
            directory: Directory::of_standby()?,
            fds: ProcessFds::default(),
        })
    }

    /// The kernel session of the jobs that the server may serve.
    pub fn kernel_session(&self) -> KernelSession {
        self.kernel_session
    }

    #[cfg(test)]
    pub fn directory(&self) -> std::path::PathBuf {
        self.directory.path().to_owned()
    }

    /// Makes the server's directory, and has the server started by a keeper without a job.
    ///
    /// # Errors
    /// The server will not start; the keeper may be gone.
    pub fn start(&mut self, keeper: &mut Keeper) -> io::Result<()> {
        let batch = self.opening.batch(STANDBY_SLOT);
        keeper.begin_kernel_session(self.kernel_session);
        // The removal is requested before the directory exists, because this agent could be killed at any moment.
        keeper.request(&Request::RemoveAtEnd { directory: self.directory.bytes() });
        keeper.flush()?;
        self.directory.make()?;
        keeper.request(&Request::Spawn(batch));
        keeper.flush()?;
        Ok(())
    }

    /// Handles a report of the server's keeper: when the server has started, it gets the message to open libpmix.
    /// `false`: the server cannot be used.
    pub fn on_event(&mut self, event: KeeperEvent) -> bool {
        let KeeperEvent::Started { slot: STANDBY_SLOT, fds, .. } = event else { return false };
        self.fds = fds;
        let open = pack(&ToServer::Open(self.opening.message(&self.directory)));
        // The message is the first one on the socket, so there is room for it.
        let sent = self.fds.stdin.as_ref().map(|socket| retry_on_intr(|| rustix::io::write(socket, &open)));
        sent == Some(Ok(open.len()))
    }

    /// Whether a job that needs a server with the opening `wanted` can use this one. A server that has not opened its
    /// library yet may never do so. Call it once, because it reads the server's message.
    pub fn serves(&self, wanted: &Opening) -> bool {
        self.opening == *wanted && self.has_opened()
    }

    /// Whether the server has reported that its library is open, has sent nothing else, and still listens.
    fn has_opened(&self) -> bool {
        let Some(socket) = &self.fds.stdin else { return false };
        let opened = pack(&FromServer::Opened);
        let mut said = vec![0; opened.len()];
        rustix::io::read(socket, &mut said) == Ok(opened.len())
            && said == opened
            && rustix::io::read(socket, &mut said) == Err(Errno::AGAIN)
    }

    /// The request by which the keeper kills the server; the keeper removes the server's directory later.
    pub fn dismiss(&mut self) -> Request {
        self.fds = ProcessFds::default();
        Request::Signal { slot: Some(STANDBY_SLOT), signal: SIGKILL }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::pmix::tests::plan;
    use std::os::fd::OwnedFd;

    fn with_socket() -> (StandbyServer, OwnedFd) {
        let (ours, theirs) = wireup_os::socket::pair().unwrap();
        wireup_os::files::set_nonblocking(&ours, true).unwrap();
        let mut standby = StandbyServer::like(&plan("standby")).unwrap();
        standby.fds.stdin = Some(ours);
        (standby, theirs)
    }

    #[test]
    fn a_server_is_used_if_it_has_opened_the_library_that_the_job_wants() {
        let wanted = Opening::new(&plan("later"));
        let opened = pack(&FromServer::Opened);
        let (standby, theirs) = with_socket();
        assert!(!standby.serves(&wanted), "it has not opened it yet");
        rustix::io::write(&theirs, &opened).unwrap();
        let mut other = plan("later");
        other.begin.library = Some("/another".into());
        assert!(!standby.serves(&Opening::new(&other)));
        let other = PmixPlan { env: vec![b"PMIX_MCA_a=1".to_vec()], ..plan("later") };
        assert!(!standby.serves(&Opening::new(&other)));
        assert!(standby.serves(&wanted));
    }

    #[test]
    fn a_server_that_has_ended_or_says_something_else_is_not_used() {
        let wanted = Opening::new(&plan("later"));
        let opened = pack(&FromServer::Opened);
        let (standby, theirs) = with_socket();
        rustix::io::write(&theirs, &opened).unwrap();
        drop(theirs);
        assert!(!standby.serves(&wanted));
        let (standby, theirs) = with_socket();
        rustix::io::write(&theirs, &pack(&FromServer::Failed { problem: "no library".into() })).unwrap();
        assert!(!standby.serves(&wanted));
        assert!(!StandbyServer::like(&plan("planned")).unwrap().serves(&wanted), "it has not started");
    }
}
