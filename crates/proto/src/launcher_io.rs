//! The inputs that a driver gives a launcher, and the outputs that a launcher requests of its driver.

use crate::io::{LinkId, Stream};
use crate::output::{Next, Origin};
use bytes::Bytes;
use wireup_wire::frame::Frame;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::{Ended, Failure, Note, RankError, Stack, StallReport, TracePart};
use wireup_wire::pmi::HostFiles;

/// An event that the driver reports to the launcher.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LauncherInput {
    /// The link to the root is up.
    LinkUp { link: LinkId },
    /// Bytes from the root.
    LinkBytes { link: LinkId, bytes: Bytes },
    /// The link to the root is closed.
    LinkDown { link: LinkId, problem: String },
    /// A signal for the launcher's process.
    Signal {
        signal: i32,
        /// The process that has sent the signal; `None`: the kernel, for a key pressed at the terminal.
        sender: Option<u32>,
    },
    /// The size of the terminal has changed.
    Resize { rows: u16, columns: u16 },
    /// Bytes of standard input; empty: end of file.
    Stdin { bytes: Bytes },
    /// `bytes` of a stream were written to the terminal, pipe or file.
    Written { stream: Stream, bytes: u32 },
    /// Writing has failed permanently; further output is dropped.
    WriteFailed { problem: String },
    /// The answer to `ReadHostFiles`: each of these files, or why it cannot be read.
    HostFiles { child: JobId, files: HostFiles },
    /// The time that [`super::Launcher::deadline`] returned has come.
    Tick,
}

/// An action for the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LauncherOutput {
    /// Send a frame to the root.
    Send { link: LinkId, frame: Frame },
    /// Write to standard output or error, or to the files of `--output-dir`. `from`: the rank that wrote the bytes,
    /// which may be a part of a line; `None`: whole lines of any ranks.
    Write { stream: Stream, from: Option<(Origin, Next)>, bytes: Bytes },
    /// Read standard input, at most this many bytes until the next such output; 0: do not read.
    ReadStdin { bytes_max: u32 },
    /// Read the names in these host files, for a job that a rank has asked for.
    ReadHostFiles { child: JobId, paths: Vec<Vec<u8>> },
    /// Information for the user at the terminal.
    Notice(Notice),
    /// Stop this process as `^Z` on a terminal would; the ranks were told before.
    Suspend,
    /// All jobs have ended and all output is written: exit with this code.
    Exit { code: u8 },
}

/// Information for the user, as data; the command line provides the wording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// All ranks of the launched job run.
    Started { ranks: u32 },
    /// The first failure of a job.
    Failed(Failure),
    /// Some ranks wait for other ranks in a collective.
    Stall(StallReport),
    /// The call stacks of the ranks of a job, because the user requested them or the time limit was reached.
    Stacks(Vec<Stack>),
    /// An event on a node that is no failure.
    Note(Note),
    /// The user has requested the end of the job by a signal to the launcher.
    Interrupt {
        signal: i32,
        /// The earlier signal by which the user had requested the end; now the ranks are killed.
        first: Option<i32>,
        /// Whether some ranks of the job do not run yet.
        starting: bool,
    },
    /// A node's part of the profile.
    Trace(Box<TracePart>),
    /// The earliest of the errors that ranks of a job have written.
    RankError(RankError),
    /// All jobs have ended.
    Ended(Ended),
    /// A notice about a job that a rank has asked for.
    OfJob { job: JobId, notice: Box<Notice> },
    /// A job that a rank has asked for could not start; the other jobs continue.
    NotStarted { job: JobId, failure: Failure },
    /// A host is added for a job that a rank has asked for.
    Added { agent: AgentId, host: String },
    /// A rank has asked for processes that cannot be placed or described.
    NotSpawned { from: Origin, problem: String },
}
