//! Writes the ranks' output in a separate thread, so that a stopped terminal blocks nothing else.
//!
//! The terminal, pipe or file behind descriptor 1 or 2 is shared with the user's shell, so it cannot be made
//! non-blocking. The thread is started at the first write. The thread takes all waiting pieces and writes them in one
//! call. If no thread can be started, the caller writes directly.

mod files;
mod lines;

use crate::session::spool::Spool;
use bytes::Bytes;
pub use files::{Begun, Files, Output, Pattern, Places, Problem};
use lines::Lines;
pub use lines::{Decoration, LineStyle};
use rustix::io::retry_on_intr;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wireup_os::files::write_all_vectored;
use wireup_proto::io::Stream;
use wireup_proto::{Next, Origin};

/// Most pieces in one `writev`.
const PIECES_MAX: usize = 256;

pub struct Writer {
    shared: Arc<Shared>,
    mode: Mode,
}

enum Mode {
    /// No thread is running, since nothing has been written.
    Idle,
    Thread(JoinHandle<()>),
    /// No thread could be started (limit of processes): the caller writes.
    Inline,
}

struct Shared {
    /// The destination, locked by the thread that writes; there is only one such thread.
    target: Mutex<Target>,
    state: Mutex<State>,
    changed: Condvar,
    /// Event counter (`eventfd`) that is readable when `written` or `failed` has changed.
    news: OwnedFd,
}

struct Target {
    stream: Stream,
    sink: Sink,
    /// The file that receives the output of a detached job, instead of the descriptor.
    spool: Option<Arc<Spool>>,
    lines: Lines,
}

/// The destination of the ranks' output.
pub struct Sink {
    pub files: Files,
    /// Whether output that is written to files is also shown on a stream of this process.
    pub tee: bool,
    /// The stream of this process on which output is shown.
    pub shown_on: Stream,
    pub decoration: Option<Arc<Decoration>>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Piece>,
    /// Whether the thread is writing.
    busy: bool,
    /// Whether the thread exits when no piece is waiting.
    ends: bool,
    /// Bytes of the job's output that have been written and not yet reported.
    written: u64,
    failed: Option<Problem>,
}

struct Piece {
    /// The rank that has written the piece, and what follows it in the rank's stream; `None`: whole lines of any ranks.
    from: Option<(Origin, Next)>,
    bytes: Bytes,
    /// Whether the bytes count as output of the job; messages of wireup do not count.
    counts: bool,
}

/// Progress since the last report.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct News {
    pub written: u64,
    pub failed: Option<Problem>,
}

impl Writer {
    pub fn new(stream: Stream, style: LineStyle, sink: Sink, spool: Option<Arc<Spool>>) -> io::Result<Writer> {
        let news =
            rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK)?;
        let target = Mutex::new(Target::new(stream, style, sink, spool));
        let shared = Shared { target, state: Mutex::default(), changed: Condvar::new(), news };
        Ok(Writer { shared: Arc::new(shared), mode: Mode::Idle })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.shared.news.as_fd()
    }

    /// Queues output of the job.
    pub fn write(&mut self, from: Option<(Origin, Next)>, bytes: Bytes) {
        self.push(Piece { from, bytes, counts: true });
    }

    /// Queues a message of wireup, which must not be empty, after the job's output so far.
    pub fn notice(&mut self, text: String) {
        self.push(Piece { from: None, bytes: Bytes::from(text), counts: false });
    }

    fn push(&mut self, piece: Piece) {
        if matches!(self.mode, Mode::Idle) {
            let shared = Arc::clone(&self.shared);
            let name = match lock(&self.shared.target).stream {
                Stream::Out => "wireup-stdout",
                Stream::Err => "wireup-stderr",
            };
            let spawned = std::thread::Builder::new().name(name.into()).spawn(move || shared.write_until_closed());
            self.mode = spawned.map_or(Mode::Inline, Mode::Thread);
        }
        if matches!(self.mode, Mode::Inline) {
            return self.shared.write(&[piece]);
        }
        lock(&self.shared.state).waiting.push_back(piece);
        self.shared.changed.notify_all();
    }

    /// Takes the progress since the last call.
    pub fn take_news(&self) -> News {
        let mut counter = [0; 8];
        // The read fails if the counter is 0, which is no error.
        let _ = rustix::io::read(&self.shared.news, &mut counter);
        let mut state = lock(&self.shared.state);
        News { written: std::mem::take(&mut state.written), failed: state.failed.take() }
    }

    /// Waits at most `limit` until everything is written, then writes unfinished lines, whose end will not come. Ends
    /// the thread, because this process may be about to fork. Returns whether the text shown on standard output ends
    /// within a line; `None`: `limit` has passed, and the thread still writes.
    pub fn finish(&mut self, limit: Option<Duration>) -> Option<bool> {
        if !self.wait(limit) {
            return None;
        }
        let mut target = lock(&self.shared.target);
        let _ = target.finish();
        let has_open_line = target.sink.shown_on == Stream::Out && target.lines.is_open();
        drop(target);
        if let Mode::Thread(thread) = std::mem::replace(&mut self.mode, Mode::Idle) {
            lock(&self.shared.state).ends = true;
            self.shared.changed.notify_all();
            // The thread has written everything, so it ends at once.
            let _ = thread.join();
            lock(&self.shared.state).ends = false;
        }
        Some(has_open_line)
    }

    /// Waits until everything is written; `false`: `limit` has passed before that.
    fn wait(&self, limit: Option<Duration>) -> bool {
        let until = limit.map(|limit| Instant::now() + limit);
        let mut state = lock(&self.shared.state);
        while state.busy || !state.waiting.is_empty() {
            state = match until {
                None => self.shared.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner()),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return false;
                    }
                    let waited = self.shared.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0
                }
            };
        }
        true
    }
}

impl Shared {
    fn write_until_closed(&self) {
        loop {
            let mut state = lock(&self.state);
            while state.waiting.is_empty() {
                if state.ends {
                    return;
                }
                state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
            }
            let pieces: Vec<Piece> = state.waiting.drain(..).collect();
            state.busy = true;
            drop(state);
            self.write(&pieces);
        }
    }

    /// Writes pieces and reports the result.
    fn write(&self, pieces: &[Piece]) {
        let result = lock(&self.target).write(pieces);
        let mut state = lock(&self.state);
        state.busy = false;
        state.written += pieces.iter().filter(|piece| piece.counts).map(|piece| piece.bytes.len() as u64).sum::<u64>();
        if let Err(problem) = result {
            state.failed.get_or_insert(problem);
        }
        drop(state);
        self.changed.notify_all();
        // This write fails only if the counter is full, and then it is readable already.
        let _ = retry_on_intr(|| rustix::io::write(&self.news, &1u64.to_ne_bytes()));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data are consistent between any two statements, so they stay usable after another thread's panic.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Target {
    fn new(stream: Stream, style: LineStyle, sink: Sink, spool: Option<Arc<Spool>>) -> Target {
        let lines = Lines::new(style, sink.decoration.clone());
        Target { stream, sink, spool, lines }
    }

    /// Writes all pieces: if writing to one file or writing the job's output fails, other files and messages of wireup
    /// may still succeed. Returns the first problem.
    fn write(&mut self, mut pieces: &[Piece]) -> Result<(), Problem> {
        let mut result = Ok(());
        while let Some(first) = pieces.first() {
            let writer = |piece: &Piece| (piece.from.map(|(origin, _)| origin), piece.counts);
            let alike = |piece: &&Piece| writer(piece) == writer(first);
            let same = pieces.iter().take(PIECES_MAX).take_while(alike).count();
            let (group, rest) = pieces.split_at(same);
            let written = match first.from {
                Some((origin, _)) => match self.sink.files.path(origin, self.sink.shown_on) {
                    Some(path) => {
                        let shown = if self.sink.tee { self.write_parts(group) } else { Ok(()) };
                        self.sink.files.open(&path).and_then(|file| write_file(file, &path, group)).and(shown)
                    }
                    None => self.write_parts(group),
                },
                None => self.write_lines(group),
            };
            result = result.and(written);
            pieces = rest;
        }
        result
    }

    /// Writes whole lines, or messages of wireup.
    fn write_lines(&mut self, group: &[Piece]) -> Result<(), Problem> {
        let before = self.lines.break_before().map_or("", |(_, end)| end);
        let is_ours = group.iter().all(|piece| !piece.counts);
        let mut slices = slices_of(group);
        let decorated: Vec<Vec<u8>>;
        if let Some(decoration) = self.sink.decoration.as_ref().filter(|_| !is_ours) {
            let labelled = self.lines.has_labels();
            decorated = group.iter().map(|piece| decoration.lines(&piece.bytes, labelled)).collect();
            slices = decorated.iter().map(|lines| IoSlice::new(lines)).collect();
        }
        if !before.is_empty() {
            slices.insert(0, IoSlice::new(before.as_bytes()));
        }
        let stream = if is_ours { self.stream } else { self.sink.shown_on };
        let out = Out { stream, spool: self.spool.as_deref() };
        out.write(&mut slices, if is_ours { By::Wireup } else { By::Ranks })
    }

    /// Writes the lines that these parts of one rank complete.
    fn write_parts(&mut self, group: &[Piece]) -> Result<(), Problem> {
        let out = Out { stream: self.sink.shown_on, spool: self.spool.as_deref() };
        let mut write = |rank, bytes: &[u8]| out.write(&mut [IoSlice::new(bytes)], By::Rank(rank));
        let parts = group.iter().filter_map(|piece| Some((piece.from?, &piece.bytes)));
        let mut result = Ok(());
        for ((origin, next), bytes) in parts {
            // Agents do not divide output that goes to files into lines, so the output is divided here.
            let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').peekable();
            while let Some(line) = lines.next() {
                let next = if lines.peek().is_some() { Next::Rest } else { next };
                result = result.and(self.lines.on_part((origin, next), line, &mut write));
            }
            if bytes.is_empty() {
                result = result.and(self.lines.on_part((origin, next), bytes, &mut write));
            }
        }
        result
    }

    fn finish(&mut self) -> Result<(), Problem> {
        let out = Out { stream: self.sink.shown_on, spool: self.spool.as_deref() };
        self.lines.finish(&mut |rank, bytes: &[u8]| out.write(&mut [IoSlice::new(bytes)], By::Rank(rank)))
    }
}

/// The destination of output that is not split into files.
struct Out<'t> {
    stream: Stream,
    spool: Option<&'t Spool>,
}

/// The author of a piece of output.
#[derive(Clone, Copy)]
enum By {
    Wireup,
    /// Any ranks; each wrote whole lines.
    Ranks,
    Rank(Origin),
}

impl Out<'_> {
    fn write(&self, slices: &mut [IoSlice<'_>], by: By) -> Result<(), Problem> {
        if let Some(spool) = self.spool {
            let problem =
                |error| Problem { text: format!("cannot store the job's output: {error}"), reader_gone: false };
            let written = match by {
                By::Wireup => spool.note(slices),
                By::Rank(Origin { job: None, rank }) => spool.write(self.stream, Some(rank), slices),
                By::Rank(_) | By::Ranks => spool.write(self.stream, None, slices),
            };
            return written.map_err(problem);
        }
        let (fd, name) = match self.stream {
            Stream::Out => (rustix::stdio::stdout(), "standard output"),
            Stream::Err => (rustix::stdio::stderr(), "standard error"),
        };
        write_all_vectored(|slices| write_waiting(fd, slices), slices).map_err(|error| Problem {
            text: format!("cannot write {name}: {error}"),
            reader_gone: error.kind() == io::ErrorKind::BrokenPipe,
        })
    }
}

/// Makes a problem of an error in reading the temporary file for long lines.
impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Problem {
        let text = format!("cannot read a long line from the temporary file that holds it: {error}");
        Problem { text, reader_gone: false }
    }
}

/// The reason why a folder cannot be used for the output of ranks.
#[derive(Debug)]
pub enum FolderProblem {
    /// The folder contains output of an earlier run: the number of files, and the name of the first one.
    Taken {
        count: usize,
        first: String,
    },
    System(io::Error),
}

/// Makes the folder for the files of a job's ranks. If the folder contains files of an earlier run that may be
/// replaced, only the files to which this job may write are removed.
///
/// # Errors
/// The folder cannot be made or read; the folder has the output of an earlier run, which must not be replaced; or a
/// file cannot be removed.
pub fn make_folder(path: &Path, ranks: u32, overwrite: bool) -> Result<(), FolderProblem> {
    let system = FolderProblem::System;
    drop(wireup_os::output_file::make_folder(path).map_err(system)?);
    let mut earlier = Vec::new();
    for entry in fs::read_dir(path).map_err(system)? {
        let entry = entry.map_err(system)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(rank) = rank_of(&name)
            && entry.file_type().map_err(system)?.is_file()
        {
            earlier.push((name, rank));
        }
    }
    if !overwrite && !earlier.is_empty() {
        let first = earlier.iter().map(|(name, _)| name.clone()).min().unwrap_or_default();
        return Err(FolderProblem::Taken { count: earlier.len(), first });
    }
    for (name, _) in earlier.into_iter().filter(|(_, rank)| rank.is_some_and(|rank| rank < ranks)) {
        fs::remove_file(path.join(name)).map_err(system)?;
    }
    Ok(())
}

/// Recognizes the name of a file with a rank's output. `Some(Some(rank))`: a rank of the job that the user has
/// launched; `Some(None)`: a rank of another job.
fn rank_of(name: &str) -> Option<Option<u32>> {
    let words: Vec<&str> = name.split('.').collect();
    let number = |word: &str| word.parse::<u32>().ok();
    match words[..] {
        ["rank", rank, "out" | "err"] => number(rank).map(Some),
        ["job", job, "rank", rank, "out" | "err"] => number(job).and(number(rank)).map(|_| None),
        _ => None,
    }
}

fn write_file(mut file: File, path: &Path, group: &[Piece]) -> Result<(), Problem> {
    let written = write_all_vectored(|slices| file.write_vectored(slices), &mut slices_of(group));
    written.map_err(|error| Problem { text: format!("cannot write {}: {error}", path.display()), reader_gone: false })
}

fn slices_of(group: &[Piece]) -> Vec<IoSlice<'_>> {
    group.iter().map(|piece| IoSlice::new(&piece.bytes)).collect()
}

/// Makes one `writev` call; waits first if the descriptor is full and another process has made it non-blocking.
fn write_waiting(fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    loop {
        match rustix::io::writev(fd, slices) {
            Err(rustix::io::Errno::AGAIN) => {
                // No time limit: the reader of the output may pause as long as it likes.
                wireup_os::socket::wait(fd, false, true, None)?;
            }
            result => return Ok(result?),
        }
    }
}

#[cfg(test)]
mod tests;
