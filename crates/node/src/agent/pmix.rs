//! Drives the PMIx server process of one job on this node: its socket and its standard error.
//!
//! The process is a child of the job's keeper, as the ranks are. It runs this same program, so both ends of the socket
//! always have the same version.

mod opening;
mod server_log;
mod standby;

use super::directory::Directory;
use super::outgoing::{Outgoing, WriteState};
use super::tail::{Stream, Tail};
use super::token::{JobSlot, Token};
use super::turn::Turn;
use crate::keeper::{Batch, ProcessFds, SERVER_SLOT, STANDBY_SLOT, cpus_of_ranks};
use crate::spawn_error::{spawn_error, unbound};
use bytes::Bytes;
pub use opening::Opening;
use server_log::ServerLog;
pub use standby::StandbyServer;
use wireup_os::files;
use wireup_os::reactor::{Interest, Reactor};
use wireup_proto::io::{ExitStatus, Input, JobEvent, PmixEnd, PmixPlan};
use wireup_wire::ids::JobId;
use wireup_wire::peer::{SpawnError, SpawnStep};
use wireup_wire::pmix::{Begin, ToServer, pack};

/// Most bytes of the server's standard error that are kept for a message: the last lines.
const ERROR_BYTES_MAX: usize = 4096;

/// Most bytes per read from the server's socket.
const READ_BYTES: usize = 256 << 10;

pub struct PmixServer {
    job: JobId,
    slot: JobSlot,
    /// The slot by which the keeper identifies the server process.
    pub process: u32,
    pub directory: Directory,
    /// A PMIx server for the next job of the family, to be started after the ranks of this job were started.
    pub next: Option<StandbyServer>,
    out: Outgoing,
    /// Whether the server's socket is full, so that the reactor also watches for room in it.
    blocked: bool,
    /// Whether the server has closed its socket and has not been reaped yet.
    pub is_dying: bool,
    errors: Tail,
    server_log: ServerLog,
}

impl PmixServer {
    /// The state of a new server, and the batch with which a keeper starts it.
    pub fn prepare(plan: &PmixPlan, slot: JobSlot) -> Result<(PmixServer, Batch), SpawnError> {
        let batch = Opening::new(plan).batch(SERVER_SLOT);
        let directory = Directory::new().map_err(|error| unnamed(&error))?;
        Ok((PmixServer::new(plan, slot, SERVER_SLOT, directory)?, batch))
    }

    /// Gives the job a server process that was started before the job was known.
    pub fn with(
        standby: StandbyServer,
        plan: &PmixPlan,
        slot: JobSlot,
        reactor: &Reactor,
    ) -> Result<PmixServer, SpawnError> {
        let mut server = PmixServer::new(plan, slot, STANDBY_SLOT, standby.directory)?;
        server.adopt(standby.fds, reactor);
        Ok(server)
    }

    fn new(plan: &PmixPlan, slot: JobSlot, process: u32, directory: Directory) -> Result<PmixServer, SpawnError> {
        let ranks = plan.begin.cpus.len();
        let cpus = cpus_of_ranks(&plan.binding, ranks).map_err(|error| unbound(&error))?;
        let begin = Begin {
            oversubscribed: plan.ranks_here as usize > allowed_cpus(),
            dir: directory.name(),
            cpus,
            ..plan.begin.clone()
        };
        let mut out = Outgoing::default();
        out.push(pack(&ToServer::Begin(begin)));
        Ok(PmixServer {
            job: plan.job,
            slot,
            process,
            directory,
            next: StandbyServer::like(plan).ok(),
            out,
            blocked: false,
            is_dying: false,
            errors: Tail::new(ERROR_BYTES_MAX),
            server_log: ServerLog::default(),
        })
    }

    /// Creates the server's directory. Call it only after the keeper got `Request::RemoveAtEnd` for that directory.
    pub fn make_directory(&mut self) -> Result<(), SpawnError> {
        let what = |path: &std::path::Path| format!("the directory {}", path.display());
        let made = self.directory.make();
        made.map_err(|error| spawn_error(SpawnStep::Cwd, what(self.directory.path()), &error))
    }

    /// The server process has started: takes over its descriptors.
    pub fn adopt(&mut self, fds: ProcessFds, reactor: &Reactor) {
        self.errors.follow(Stream::watched(fds.stderr, Token::PmixError(self.slot).pack(), reactor));
        self.out.fd =
            fds.stdin.filter(|fd| reactor.add(fd, Token::PmixServer(self.slot).pack(), Interest::READABLE).is_ok());
        self.flush(reactor);
    }

    pub fn send(&mut self, bytes: Bytes, reactor: &Reactor) {
        self.out.push(bytes);
        self.flush(reactor);
    }

    pub fn flush(&mut self, reactor: &Reactor) {
        let state = self.out.flush().state;
        let Some(fd) = &self.out.fd else { return };
        // A write that fails is ignored: if the server process is gone, the keeper reports that.
        let blocked = state == WriteState::Full;
        if blocked != std::mem::replace(&mut self.blocked, blocked) {
            let interest = if blocked { Interest::BOTH } else { Interest::READABLE };
            let _ = reactor.modify(fd, Token::PmixServer(self.slot).pack(), interest);
        }
    }

    /// Reads once from the server's socket. Returns `false` when nothing more is available now.
    pub fn on_bytes(&mut self, turn: &mut Turn<'_>) -> bool {
        let Some(fd) = &self.out.fd else { return false };
        let length = turn.buffer.len().min(READ_BYTES);
        match rustix::io::read(fd, &mut turn.buffer[..length]) {
            Ok(read @ 1..) => {
                let bytes = Bytes::copy_from_slice(&turn.buffer[..read]);
                turn.inputs.push(Input::Job { job: self.job, event: JobEvent::PmixBytes { bytes } });
                true
            }
            Err(rustix::io::Errno::INTR) => true,
            Err(rustix::io::Errno::AGAIN) => false,
            Ok(0) | Err(_) => {
                let _ = turn.reactor.remove(fd);
                self.out = Outgoing::vanished();
                self.is_dying = true;
                false
            }
        }
    }

    /// The server has written to its standard error; whole lines are passed on to the user.
    pub fn on_error_text(&mut self, turn: &mut Turn<'_>) {
        let PmixServer { errors, server_log, .. } = self;
        errors.read(turn.reactor, |piece| server_log.push(piece));
        self.tell(false, turn);
    }

    fn tell(&mut self, is_end: bool, turn: &mut Turn<'_>) {
        if let Some(text) = self.server_log.take_lines(is_end) {
            turn.inputs.push(Input::Job { job: self.job, event: JobEvent::PmixSaid { text } });
        }
    }

    /// The keeper has reaped the server. The server's last output is processed before its exit is reported.
    pub fn on_exited(&mut self, status: ExitStatus, turn: &mut Turn<'_>) {
        while self.on_bytes(turn) {}
        self.on_error_text(turn);
        self.tell(true, turn);
        self.errors.close(turn.reactor);
        if let Some(fd) = self.out.fd.take() {
            let _ = turn.reactor.remove(&fd);
        }
        self.out = Outgoing::vanished();
        self.is_dying = false;
        let no_room = self.directory.path().parent().and_then(files::lacking_room);
        turn.inputs.push(Input::Job {
            job: self.job,
            event: JobEvent::PmixGone { end: Ok(PmixEnd { status, stderr: self.errors.text(), no_room }) },
        });
    }
}

fn unnamed(error: &std::io::Error) -> SpawnError {
    spawn_error(SpawnStep::Cwd, "a random name for the PMIx server's directory", error)
}

fn allowed_cpus() -> usize {
    wireup_os::bind::allowed().map_or(1, |cpus| cpus.len())
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use wireup_proto::io::KernelSession;
    use wireup_wire::ids::{AgentId, NodeId};
    use wireup_wire::job::Binding;

    /// The plan of a job with this name, on its node 3.
    pub fn plan(nspace: &str) -> PmixPlan {
        let begin = Begin {
            nspace: nspace.into(),
            nodes: Vec::new(),
            node: NodeId(3),
            blocks: Vec::new(),
            apps: Vec::new(),
            cpus: Vec::new(),
            dir: String::new(),
            library: None,
            shared: false,
            oversubscribed: false,
            has_endpoints: false,
            agent: AgentId(3),
            universe: None,
            parent: None,
        };
        PmixPlan {
            job: JobId(1),
            begin,
            binding: Binding::NONE,
            ranks_here: 1,
            kernel_session: KernelSession::Agents,
            env: Vec::new(),
        }
    }
}
