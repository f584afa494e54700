//! Writes what the ranks wrote, on a thread of its own, so that a stopped terminal stops nobody else.
//!
//! The terminal, pipe or file behind descriptor 1 or 2 is shared with the user's shell: it cannot be made
//! non-blocking. The thread starts with the first byte. It takes all that waits and writes it in one call.

use bytes::Bytes;
use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use wireup_proto::io::Stream;

/// Pieces of one `writev`.
const PIECES_MAX: usize = 256;

pub struct Writer {
    shared: Arc<Shared>,
    started: bool,
}

struct Shared {
    target: Target,
    state: Mutex<State>,
    changed: Condvar,
    /// Readable when `written` or `failed` has news.
    news: OwnedFd,
}

struct Target {
    stream: Stream,
    /// `--output-dir`: one file for each rank and stream.
    directory: Option<PathBuf>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Piece>,
    /// The thread is writing.
    busy: bool,
    /// Job bytes written and not yet told.
    written: u64,
    failed: Option<String>,
}

struct Piece {
    rank: Option<u32>,
    bytes: Bytes,
    /// The job's own bytes count; our notices do not.
    counts: bool,
}

/// What a writer has to tell.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct News {
    pub written: u64,
    pub failed: Option<String>,
}

impl Writer {
    pub fn new(stream: Stream, directory: Option<PathBuf>) -> io::Result<Writer> {
        let news =
            rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK)?;
        let shared =
            Shared { target: Target { stream, directory }, state: Mutex::default(), changed: Condvar::new(), news };
        Ok(Writer { shared: Arc::new(shared), started: false })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.shared.news.as_fd()
    }

    /// Bytes of the job.
    pub fn write(&mut self, rank: Option<u32>, bytes: Bytes) {
        self.push(Piece { rank, bytes, counts: true });
    }

    /// Words of our own, in order with the job's.
    pub fn notice(&mut self, text: String) {
        if !text.is_empty() {
            self.push(Piece { rank: None, bytes: Bytes::from(text), counts: false });
        }
    }

    fn push(&mut self, piece: Piece) {
        if !self.started {
            self.started = true;
            let shared = Arc::clone(&self.shared);
            let name = match self.shared.target.stream {
                Stream::Out => "wireup-stdout",
                Stream::Err => "wireup-stderr",
            };
            let spawned = std::thread::Builder::new().name(name.into()).spawn(move || shared.run());
            if let Err(error) = spawned {
                self.shared.lock().failed = Some(format!("starting the thread that writes output: {error}"));
                self.shared.tell();
                return;
            }
        }
        self.shared.lock().waiting.push_back(piece);
        self.shared.changed.notify_all();
    }

    /// What happened since the last call.
    pub fn take_news(&self) -> News {
        let mut counter = [0; 8];
        // Empty is as good as read.
        let _ = rustix::io::read(&self.shared.news, &mut counter);
        let mut state = self.shared.lock();
        News { written: std::mem::take(&mut state.written), failed: state.failed.take() }
    }

    /// Waits until everything is written, at most `limit`.
    pub fn finish(&self, limit: Option<Duration>) {
        let until = limit.map(|limit| Instant::now() + limit);
        let mut state = self.shared.lock();
        while state.busy || !state.waiting.is_empty() {
            state = match until {
                None => self.shared.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner()),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return;
                    }
                    let waited = self.shared.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0
                }
            };
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is valid between any two statements, so a panic elsewhere leaves it usable.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn tell(&self) {
        // A full counter is readable too.
        let _ = rustix::io::write(&self.news, &1u64.to_ne_bytes());
    }

    fn run(&self) {
        loop {
            let mut state = self.lock();
            while state.waiting.is_empty() {
                state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
            }
            let pieces: Vec<Piece> = state.waiting.drain(..).collect();
            state.busy = true;
            drop(state);
            let result = self.target.write(&pieces);
            let mut state = self.lock();
            state.busy = false;
            state.written +=
                pieces.iter().filter(|piece| piece.counts).map(|piece| piece.bytes.len() as u64).sum::<u64>();
            if let Err(problem) = result {
                state.failed.get_or_insert(problem);
            }
            drop(state);
            self.changed.notify_all();
            self.tell();
        }
    }
}

impl Target {
    fn write(&self, mut pieces: &[Piece]) -> Result<(), String> {
        while let Some(first) = pieces.first() {
            let same = pieces.iter().take(PIECES_MAX).take_while(|piece| piece.rank == first.rank).count();
            let (group, rest) = pieces.split_at(same);
            match (&self.directory, first.rank) {
                (Some(directory), Some(rank)) => {
                    let stream = match self.stream {
                        Stream::Out => "out",
                        Stream::Err => "err",
                    };
                    let path = directory.join(format!("rank.{rank}.{stream}"));
                    let opened = OpenOptions::new().append(true).create(true).open(&path);
                    opened
                        .and_then(|mut file| write_all(|slices| file.write_vectored(slices), group))
                        .map_err(|error| format!("writing {}: {error}", path.display()))?;
                }
                _ => self.write_descriptor(group)?,
            }
            pieces = rest;
        }
        Ok(())
    }

    fn write_descriptor(&self, group: &[Piece]) -> Result<(), String> {
        let (fd, name) = match self.stream {
            Stream::Out => (rustix::stdio::stdout(), "standard output"),
            Stream::Err => (rustix::stdio::stderr(), "standard error"),
        };
        write_all(|slices| write_waiting(fd, slices), group).map_err(|error| format!("writing {name}: {error}"))
    }
}

/// One write; waits where somebody has made the descriptor non-blocking.
fn write_waiting(fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    loop {
        match rustix::io::writev(fd, slices) {
            Err(rustix::io::Errno::AGAIN) => {
                wireup_os::socket::wait(fd, false, true, None)?;
            }
            result => return Ok(result?),
        }
    }
}

fn write_all(mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>, group: &[Piece]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = group.iter().map(|piece| IoSlice::new(&piece.bytes)).collect();
    let mut rest = slices.as_mut_slice();
    while rest.iter().any(|slice| !slice.is_empty()) {
        match write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut rest, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_get_what_their_rank_wrote_in_order() {
        let directory = std::env::temp_dir().join(format!("wireup-writer-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let mut writer = Writer::new(Stream::Out, Some(directory.clone())).unwrap();
        for round in 0..300 {
            for rank in 0..2 {
                writer.write(Some(rank), Bytes::from(format!("{rank}:{round}\n")));
            }
        }
        writer.finish(None);
        for rank in 0..2 {
            let text = std::fs::read_to_string(directory.join(format!("rank.{rank}.out"))).unwrap();
            assert_eq!(text, (0..300).map(|round| format!("{rank}:{round}\n")).collect::<String>());
        }
        let news = writer.take_news();
        assert_eq!((news.written, news.failed), (2 * (10 * 4 + 90 * 5 + 200 * 6), None));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_failing_disk_is_told() {
        let mut writer = Writer::new(Stream::Out, Some("/dev/null/not-a-directory".into())).unwrap();
        writer.write(Some(0), Bytes::from_static(b"x"));
        writer.finish(None);
        let failed = writer.take_news().failed.expect("nothing can be written there");
        assert!(failed.contains("rank.0.out"), "{failed}");
    }
}
