//! Opens the descriptors of one process: the process's ends and the agent's ends.

use super::protocol::{OutKind, Process, ProcessFds, StdinKind};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use wireup_os::spawn::LOWEST_SOURCE;
use wireup_os::{files, pty, socket};
use wireup_wire::pmi::SERVER_NAME;

/// Descriptors of the keeper that several children use as standard streams.
pub(super) struct Lent {
    pub null: OwnedFd,
}

/// Both ends of the streams of a process that is about to start. Dropping this closes the process's ends here.
pub(super) struct Streams {
    stdin: ChildEnd,
    stdout: ChildEnd,
    stderr: ChildEnd,
    pmi: Option<OwnedFd>,
    listening: Option<OwnedFd>,
    pub agent: ProcessFds,
}

enum ChildEnd {
    Own(OwnedFd),
    Null,
    /// The standard input of the keeper itself.
    Inherited,
    /// The terminal that is also the standard input of the process.
    AsStdin,
}

impl Streams {
    /// # Errors
    /// No descriptor or pseudo-terminal is left.
    pub fn open(process: &Process, listening: Option<OwnedFd>) -> io::Result<Streams> {
        if let Some(socket) = &listening {
            // If the keeper has reserved a port for this process, other processes cannot have used the port until now.
            socket::offer_port(socket)?;
        }
        let mut agent = ProcessFds::default();
        let pmi = if process.pmi {
            let (near, far) = socket::pair()?;
            // The name tells wireup's own client that it is connected to wireup; otherwise it needs one more round
            // trip.
            let _ = socket::name(&near, &SERVER_NAME);
            agent.pmi = Some(nonblocking(near)?);
            Some(far)
        } else {
            None
        };
        if let Some((rows, columns)) = process.pty {
            let (master, slave) = pty::open(rows, columns)?;
            agent.pty = Some(nonblocking(master)?);
            let stdin = ChildEnd::Own(slave);
            return Ok(Streams { stdin, stdout: ChildEnd::AsStdin, stderr: ChildEnd::AsStdin, pmi, listening, agent });
        }
        let stdin = match &process.stdin {
            StdinKind::Null => ChildEnd::Null,
            StdinKind::Inherit => ChildEnd::Inherited,
            StdinKind::Bytes(bytes) => ChildEnd::Own(files::sealed_memory(bytes)?),
            StdinKind::Program => ChildEnd::Own(crate::sendable::program()?),
            StdinKind::Socket => {
                let (near, far) = socket::pair()?;
                agent.stdin = Some(nonblocking(near)?);
                ChildEnd::Own(far)
            }
            StdinKind::Pipe => {
                let (reader, writer) = files::pipe()?;
                agent.stdin = Some(nonblocking(writer)?);
                ChildEnd::Own(reader)
            }
        };
        let stdout = output(process.stdout, &mut agent.stdout)?;
        let stderr = output(process.stderr, &mut agent.stderr)?;
        Ok(Streams { stdin, stdout, stderr, pmi, listening, agent })
    }

    /// Standard input, output and error for the process.
    pub fn stdio<'a>(&'a self, lent: &'a Lent) -> [BorrowedFd<'a>; 3] {
        [&self.stdin, &self.stdout, &self.stderr].map(|end| self.resolve(end, lent))
    }

    /// The process's PMI socket and its listening socket.
    pub fn sockets(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [&self.pmi, &self.listening].map(|socket| socket.as_ref().map(AsFd::as_fd))
    }

    fn resolve<'a>(&'a self, end: &'a ChildEnd, lent: &'a Lent) -> BorrowedFd<'a> {
        match end {
            ChildEnd::Own(fd) => fd.as_fd(),
            ChildEnd::AsStdin => self.resolve(&self.stdin, lent),
            ChildEnd::Inherited => rustix::stdio::stdin(),
            ChildEnd::Null => lent.null.as_fd(),
        }
    }
}

impl Lent {
    /// Closes all inherited descriptors except `kept` and standard input. Occupies the low numbers, so that no source
    /// descriptor of a child has the number of a target.
    ///
    /// # Errors
    /// `/dev/null` cannot be opened.
    pub fn settle<'a>(kept: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<Lent> {
        files::close_all_but(&kept.chain([rustix::stdio::stdin()]).collect::<Vec<_>>());
        loop {
            let null = files::null()?;
            if null.as_raw_fd() >= LOWEST_SOURCE {
                return Ok(Lent { null });
            }
            // The descriptor is never closed, so that its low number stays occupied.
            mem::forget(null);
        }
    }
}

fn output(kind: OutKind, agent: &mut Option<OwnedFd>) -> io::Result<ChildEnd> {
    let (reader, writer) = match kind {
        OutKind::Null => return Ok(ChildEnd::Null),
        OutKind::Pipe => files::pipe()?,
        // If no pseudo-terminal can be opened (`/dev/pts` not mounted, `kernel.pty.max` reached), a pipe is used
        // instead.
        OutKind::Pty => pty::open_raw().or_else(|_| files::pipe())?,
    };
    *agent = Some(nonblocking(reader)?);
    Ok(ChildEnd::Own(writer))
}

fn nonblocking(fd: OwnedFd) -> io::Result<OwnedFd> {
    files::set_nonblocking(&fd, true)?;
    Ok(fd)
}
