//! The conversation between an agent and its keeper: requests, events, and how both travel over a Unix stream socket,
//! without blocking.
//!
//! The keeper is forked from the agent, so both ends of the encoding always have the same version. A message is its
//! length (u32, little-endian) and its body in `postcard`. Descriptors are sent with the first byte of the chunk that
//! contains their message, so they have arrived when the message is complete; each message contains the number of its
//! descriptors. Many messages share a chunk: a thousand exits cost a few system calls.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use wireup_os::socket;
pub use wireup_proto::io::Program;
use wireup_proto::io::{ExitStatus, KernelSession};
use wireup_wire::job::{Limit, Preload, Staged};
use wireup_wire::peer::SpawnError;

/// Size of a chunk (bytes) above which it takes no further message.
const CHUNK_BYTES: usize = 64 << 10;
const LENGTH_BYTES: usize = 4;
/// The slot of the PMIx server process. `STANDBY_SLOT`: the slot of a server that is started before its job is known.
pub const SERVER_SLOT: u32 = u32::MAX;
pub const STANDBY_SLOT: u32 = SERVER_SLOT - 1;
/// The slot of the interpreter that imports modules for all ranks, about which the keeper reports nothing.
pub(super) const IMPORTER_SLOT: u32 = STANDBY_SLOT - 1;

/// Whether the slot is that of a PMIx server process.
pub fn is_server(slot: u32) -> bool {
    slot >= STANDBY_SLOT
}

/// A request to the keeper.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Listening sockets, sent with this message, for the next processes with `listens`, in order.
    Sockets { count: u32 },
    /// Start processes. Each is answered by `Started` and later `Exited`, or by `StartFailed`.
    Spawn(Batch),
    /// Send a signal to the process group of one slot, or to all except servers. Processes that are not started yet get
    /// the signal before their first instruction; `SIGKILL` to all cancels the start of these processes instead
    /// (`StartFailed`, `ECANCELED`).
    Signal { slot: Option<u32>, signal: i32 },
    /// Kill all descendants, even after `setsid` or double forks; then send `Swept`.
    Sweep,
    /// Remove a directory and its contents when no process is left and the agent releases the keeper or dies.
    RemoveAtEnd { directory: Vec<u8> },
    /// Remove a directory and its contents when the keeper itself ends, unless another process has claimed (`flock`)
    /// the directory by then. If the file `log` in the directory is not empty, the end of `log` is kept as the file
    /// `last_words`.
    RemoveUnclaimed { directory: Vec<u8>, log: String, last_words: String },
    /// Kill all descendants and perform `RemoveAtEnd`; then return to the initial state and send `Renewed`. If that
    /// fails, or processes had staged files, the keeper leaves.
    Renew,
    /// End the interpreter with imported modules that is kept for later jobs, and do not keep this job's interpreter.
    DropImporter,
    /// Restore the terminal's modes if the agent dies: the modes that standard input, a terminal, had when the keeper
    /// was forked, or the modes that the agent had remembered before the fork.
    RestoreTerminalOnDeath,
    /// Begin a kernel session (`setsid`) or, in the agent's session, a process group; `Renew` does not undo this. Sent
    /// at most once: see [`super::Keeper::begin_kernel_session`].
    Begin(KernelSession),
}

/// Processes to start, in this order.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Batch {
    pub programs: Vec<Program>,
    pub processes: Vec<Process>,
    pub umask: u32,
    /// Soft limits, at most the hard limits of the keeper.
    pub limits: Vec<Limit>,
    /// Staged files that the processes of this batch and of all later batches see instead of the originals.
    pub staged: Option<Staged>,
    /// Files that a process of its own reads into the page cache, in this order.
    pub prefetch: Vec<Vec<u8>>,
    /// Modules that are imported once for all processes of this batch, which are ranks.
    pub preload: Option<Preload>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Process {
    /// The agent's number for the process; free for reuse after `Exited` or `StartFailed`.
    pub slot: u32,
    /// Index into the batch's programs.
    pub program: u16,
    /// Variables of this process alone; they take precedence over the variables of the program.
    pub env: Vec<Vec<u8>>,
    /// The CPUs that the process may use, 64 per word.
    pub cpus: Option<Vec<u64>>,
    pub stdin: StdinKind,
    pub stdout: OutKind,
    pub stderr: OutKind,
    /// Whether the process shares the keeper's kernel session: it waits for other ranks, often by polling.
    pub shares_session: bool,
    /// Whether the process gets a PMI socket, whose number is in `PMI_FD`.
    pub pmi: bool,
    /// Whether the process gets the next listening socket, whose number is in `WIREUP_LISTEN_FD`.
    pub listens: bool,
    /// Size (rows, columns) of a pseudo-terminal that the process gets instead of all three streams; `None`: no
    /// terminal.
    pub pty: Option<(u16, u16)>,
}

impl Process {
    /// A process of the batch's first program with pipes for output and no input.
    pub fn new(slot: u32) -> Process {
        Process { slot, ..Process::default() }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum StdinKind {
    #[default]
    Null,
    /// The standard input that the agent had when it forked the keeper.
    Inherit,
    Pipe,
    /// One end of a socket pair, of which the agent gets the other end as `ProcessFds::stdin`.
    Socket,
    /// Exactly these bytes, which are never put into a file, an argument or a variable.
    Bytes(Vec<u8>),
    /// The executable file of this wireup program.
    Program,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum OutKind {
    #[default]
    Pipe,
    /// A pseudo-terminal in raw mode; a pipe if none can be opened.
    Pty,
    Null,
}

/// The agent's ends of a process's streams: close-on-exec, non-blocking.
#[derive(Debug, Default)]
pub struct ProcessFds {
    /// The agent's end of standard input; only for `StdinKind::Pipe` and `StdinKind::Socket`.
    pub stdin: Option<OwnedFd>,
    pub stdout: Option<OwnedFd>,
    pub stderr: Option<OwnedFd>,
    pub pmi: Option<OwnedFd>,
    /// The controlling end of the pseudo-terminal; the ends of the three streams are then absent.
    pub pty: Option<OwnedFd>,
}

/// An event reported by the keeper.
#[derive(Debug, Serialize, Deserialize)]
pub enum KeeperEvent {
    /// The process has executed its program. `present`: one bit for each descriptor that comes with the message, in the
    /// order of [`ProcessFds`].
    Started {
        slot: u32,
        pid: u32,
        spawn_ns: u64,
        exec_ns: u64,
        present: u8,
        #[serde(skip)]
        fds: ProcessFds,
    },
    /// The descriptors of a process, ahead of `Started`, which then comes without any: the interpreter that imports
    /// modules for all ranks writes to the streams of the first one.
    Streams {
        slot: u32,
        present: u8,
        #[serde(skip)]
        fds: ProcessFds,
    },
    StartFailed {
        slot: u32,
        error: SpawnError,
    },
    /// The process was reaped; it was reported as `Started` before.
    Exited {
        slot: u32,
        status: ExitStatus,
    },
    /// Staged files are shown by a library in the processes. `problem`: the reason why mounts are impossible.
    Redirected {
        problem: String,
    },
    /// The processes use the original files instead of staged ones. `problem`: the reason why the staged files are not
    /// shown.
    NotStaged {
        problem: String,
    },
    /// Some files of [`Batch::prefetch`] could not be read.
    NotPrefetched {
        problem: String,
    },
    /// The modules that are imported once for all ranks, and the place where the names of the modules were found.
    Preloads {
        modules: String,
    },
    /// Each process imports its modules by itself. `problem`: the reason why the modules were not imported once for all
    /// processes.
    NotPreloaded {
        problem: String,
    },
    /// The keeper ends because of this error.
    Failed {
        problem: SpawnError,
    },
    /// No descendant is left (except those that belong to another user and cannot be killed).
    Swept,
    /// The keeper is in its initial state again, except that it may keep an interpreter with imported modules.
    Renewed {
        keeps_importer: bool,
    },
}

impl ProcessFds {
    /// Returns one bit for each descriptor that is present, and these descriptors.
    pub(super) fn split(self) -> (u8, Vec<OwnedFd>) {
        let all = [self.stdin, self.stdout, self.stderr, self.pmi, self.pty];
        let present = all.iter().enumerate().fold(0, |bits, (bit, fd)| bits | u8::from(fd.is_some()) << bit);
        (present, all.into_iter().flatten().collect())
    }

    pub(super) fn join(present: u8, fds: &mut VecDeque<OwnedFd>) -> ProcessFds {
        let mut next = |bit: u8| if present >> bit & 1 == 1 { fds.pop_front() } else { None };
        ProcessFds { stdin: next(0), stdout: next(1), stderr: next(2), pmi: next(3), pty: next(4) }
    }
}

/// Messages that wait to be written to the socket.
#[derive(Default)]
pub(super) struct Outbox {
    chunks: VecDeque<Chunk>,
    fds: usize,
}

#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    written: usize,
    fds: Vec<OwnedFd>,
}

/// The result of a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flushed {
    All,
    /// The socket is full: wait until it is writable.
    Full,
    /// The kernel's limit on this user's descriptors in flight is reached. No event reports room, so try again later.
    Later,
}

impl Outbox {
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The number of queued descriptors.
    pub fn fds(&self) -> usize {
        self.fds
    }

    /// # Panics
    /// If there are more than [`socket::FDS_MAX`] descriptors.
    pub fn push(&mut self, message: &impl Serialize, fds: Vec<OwnedFd>) {
        let body = postcard::to_allocvec(message).expect("plain structs always encode");
        self.fds += fds.len();
        let full = |chunk: &Chunk| {
            chunk.written > 0 || chunk.bytes.len() > CHUNK_BYTES || chunk.fds.len() + fds.len() > socket::FDS_MAX
        };
        if self.chunks.back().is_none_or(full) {
            self.chunks.push_back(Chunk::default());
        }
        if let Some(chunk) = self.chunks.back_mut() {
            chunk.bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
            chunk.bytes.extend_from_slice(&body);
            chunk.fds.extend(fds);
        }
    }

    /// Writes as much as the socket takes.
    ///
    /// # Errors
    /// The socket is closed at the other end.
    pub fn flush(&mut self, socket: impl AsFd) -> io::Result<Flushed> {
        while let Some(chunk) = self.chunks.front_mut() {
            let fds: Vec<_> = chunk.fds.iter().map(AsFd::as_fd).collect();
            match socket::send(&socket, &chunk.bytes[chunk.written..], &fds) {
                Ok(bytes) => {
                    self.fds -= chunk.fds.len();
                    chunk.fds.clear();
                    chunk.written += bytes;
                    if chunk.written == chunk.bytes.len() {
                        self.chunks.pop_front();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Flushed::Full),
                Err(error) if error.raw_os_error() == Some(ETOOMANYREFS) => return Ok(Flushed::Later),
                Err(error) => return Err(error),
            }
        }
        Ok(Flushed::All)
    }
}

const ETOOMANYREFS: i32 = rustix::io::Errno::TOOMANYREFS.raw_os_error();

/// Bytes and descriptors that have been read from the socket and not yet taken as messages.
pub(super) struct Inbox {
    bytes: Vec<u8>,
    /// Position of the next message in `bytes`.
    start: usize,
    /// Descriptors that have arrived, in the order of their messages.
    pub fds: VecDeque<OwnedFd>,
    space: Box<[u8]>,
}

impl Inbox {
    pub fn new() -> Inbox {
        Inbox { bytes: Vec::new(), start: 0, fds: VecDeque::new(), space: vec![0; CHUNK_BYTES].into() }
    }

    /// Reads what is available. `false`: the other end of the socket is closed, and nothing will follow.
    ///
    /// # Errors
    /// Descriptors were lost (`EMFILE`); the channel must not be used any more.
    pub fn fill(&mut self, socket: impl AsFd) -> io::Result<bool> {
        loop {
            match socket::receive(&socket, &mut self.space, &mut self.fds) {
                Ok(0) => return Ok(false),
                Ok(bytes) => self.bytes.extend_from_slice(&self.space[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// The next complete message.
    ///
    /// # Panics
    /// If a message cannot be decoded: the sender is a fork of this process, so that is a bug in wireup.
    pub fn next<T: DeserializeOwned>(&mut self) -> Option<T> {
        let rest = &self.bytes[self.start..];
        let (length, rest) = rest.split_first_chunk::<LENGTH_BYTES>().unwrap_or((&[0xff; LENGTH_BYTES], &[]));
        let length = u32::from_le_bytes(*length) as usize;
        if rest.len() < length {
            self.bytes.drain(..self.start);
            self.start = 0;
            return None;
        }
        self.start += LENGTH_BYTES + length;
        Some(postcard::from_bytes(&rest[..length]).expect("the other side runs the same program"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use wireup_os::files::null;

    #[test]
    fn process_descriptors_survive_split_and_join() {
        let (out, pty) = (null().unwrap(), null().unwrap());
        let numbers = [out.as_raw_fd(), pty.as_raw_fd()];
        let (present, fds) = ProcessFds { stdout: Some(out), pty: Some(pty), ..ProcessFds::default() }.split();
        let joined = ProcessFds::join(present, &mut fds.into());
        assert_eq!([joined.stdout.unwrap().as_raw_fd(), joined.pty.unwrap().as_raw_fd()], numbers);
        assert!(joined.stdin.is_none() && joined.stderr.is_none() && joined.pmi.is_none());
    }

    #[test]
    fn messages_cross_a_full_socket_with_their_descriptors() {
        let (here, there) = socket::pair().unwrap();
        let (mut outbox, mut inbox) = (Outbox::default(), Inbox::new());
        assert_eq!(inbox.next::<(u32, Vec<u8>)>(), None);
        let large = vec![7u8; 3 << 20];
        outbox.push(&(1000u32, &large), vec![]);
        for number in 0..1000u32 {
            let fds = (0..number % 3).map(|_| null().unwrap()).collect();
            outbox.push(&(number, vec![1u8; 10]), fds);
        }
        assert!(outbox.chunks.len() < 10);
        assert_eq!(outbox.fds(), 999);
        let mut fulls = 0;
        let mut received = Vec::new();
        loop {
            let flushed = outbox.flush(&here).unwrap();
            assert!(inbox.fill(&there).unwrap());
            while let Some((number, bytes)) = inbox.next::<(u32, Vec<u8>)>() {
                assert_eq!(bytes.len(), if number == 1000 { large.len() } else { 10 });
                let fds = if number == 1000 { 0 } else { number % 3 };
                assert_eq!(inbox.fds.drain(..fds as usize).count() as u32, fds);
                received.push(number);
            }
            match flushed {
                Flushed::All => break,
                Flushed::Full | Flushed::Later => fulls += 1,
            }
        }
        assert!(fulls > 1);
        assert!(received.into_iter().eq([1000].into_iter().chain(0..1000)));
        assert_eq!((outbox.fds(), inbox.fds.len()), (0, 0));
        // Dropping `here` might not close the socket: another test may have forked with a copy of it.
        rustix::net::shutdown(&here, rustix::net::Shutdown::Write).unwrap();
        assert!(!inbox.fill(&there).unwrap());
    }
}
