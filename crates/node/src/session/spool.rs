//! Keeps the output of a detached job in a file of its session's directory, for `wireup logs` and `wireup attach`.
//! The file is removed when the session ends, or earlier to make room.
//!
//! ```text
//! byte  0      1        5
//!       +------+--------+---------+
//!       | kind | length | payload |      0 program, 1 standard output, 2 standard error, 3 exit code
//!       | u8   | u32    |         |
//!       +------+--------+---------+
//! ```
//!
//! The payload of output begins with the number of the rank (u32); `u32::MAX`: wireup, or a rank of another job.
//!
//! Two threads of the launcher append to the file, one record per write. The launcher holds a lock on the file for as
//! long as it lives. A reader that waits for more records sleeps until the file changes or is closed by the launcher.

use super::session_directory::{SessionDirectory, SessionDirectoryError};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::{Errno, retry_on_intr};
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use wireup_os::files::write_all_vectored;
use wireup_proto::io::Stream;
use wireup_wire::ids::{JobId, Rank};

/// Most output that is kept of one job (bytes of its file). Chosen: enough for days of progress lines, although the
/// directory is often in memory.
pub const SPOOL_BYTES_MAX: u64 = 32 << 20;
/// Most spools of finished jobs that are kept; the oldest are removed first.
const OVER_MAX: usize = 32;
/// Most output that is kept of all detached jobs of a session (bytes). Chosen: room for eight jobs that write without
/// end; a user's runtime directory usually has a tenth of the machine's memory.
pub const SESSION_BYTES_MAX: u64 = 256 << 20;
/// Bytes that a job writes before it checks the size of all spools again.
const LOOK_BYTES: u64 = 1 << 20;
const DIRECTORY: &str = "jobs";
const HEADER_LEN: usize = 5;
const RANK_LEN: usize = size_of::<u32>();

const PROGRAM: u8 = 0;
const END: u8 = 3;
/// Value in the rank's field for output of wireup or of a rank of another job.
const NO_RANK: u32 = u32::MAX;

/// The message that replaces output beyond `SPOOL_BYTES_MAX`.
const FULL: &str =
    "wireup: the output of this detached job exceeds 32 MiB and the rest is dropped; --output-dir keeps everything\n";

/// The message that replaces output beyond the limit for the whole session.
const NO_ROOM: &str = "wireup: the output of this session's detached jobs exceeds 256 MiB and the rest of this job's \
    is dropped; --output-dir keeps everything\n";

/// The writing end of a spool.
pub struct Spool {
    place: SessionDirectory,
    file: File,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// Length of the file in whole records.
    length: u64,
    /// Length of the file at the last check of all spools.
    looked: u64,
    is_full: bool,
}

/// A spool as listed for users.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    pub job: JobId,
    pub program: String,
    /// The exit code; `None`: the job has not ended, or its launcher was killed.
    pub code: Option<u8>,
    /// Whether the job's launcher is alive.
    pub is_running: bool,
}

/// The file of one job, opened for reading.
pub(crate) struct Contents {
    pub(crate) file: File,
    pub(crate) offset: u64,
}

/// The reading end of a spool.
pub struct Reader {
    contents: Contents,
    changes: OwnedFd,
    _place: SessionDirectory,
}

/// The next piece of a spool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece {
    Bytes {
        stream: Stream,
        /// `None`: wireup has written the bytes, or a rank of another job.
        rank: Option<Rank>,
        bytes: Vec<u8>,
    },
    End {
        code: u8,
    },
    /// The spool has nothing new; more may follow.
    Later,
    /// Nothing more will follow: the launcher was killed.
    Lost,
}

impl Spool {
    /// The spool of a new job; the oldest spools of finished jobs are removed to make room.
    pub fn create(place: &SessionDirectory, job: JobId, program: &str) -> io::Result<Spool> {
        let directory = place.inside(DIRECTORY);
        match fs::create_dir(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        make_room(place, SESSION_BYTES_MAX)?;
        let mut options = OpenOptions::new();
        options.read(true).append(true).create_new(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits() as i32);
        let file = options.open(directory.join(job.to_string()))?;
        // Another process may hold the lock for a check, as `wireup jobs` does, but that process releases the lock at
        // once.
        retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockExclusive))?;
        let spool = Spool { place: place.try_clone()?, file, kept: Mutex::default() };
        spool.record(&mut spool.kept(), PROGRAM, &[IoSlice::new(program.as_bytes())])?;
        Ok(spool)
    }

    /// Writes output of the job. `rank`: as in [`Piece`].
    ///
    /// # Errors
    /// There is no room, or other spools cannot be read.
    pub fn write(&self, stream: Stream, rank: Option<Rank>, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let mut kept = self.kept();
        if kept.is_full {
            return Ok(());
        }
        let payload: usize = pieces.iter().map(|piece| piece.len()).sum();
        let problem = match kept.length + (HEADER_LEN + RANK_LEN + payload) as u64 {
            SPOOL_BYTES_MAX.. => Some(FULL),
            length if length >= kept.looked + LOOK_BYTES => {
                kept.looked = length;
                (!make_room(&self.place, SESSION_BYTES_MAX)?).then_some(NO_ROOM)
            }
            _ => None,
        };
        let Some(problem) = problem else { return self.output(&mut kept, stream, rank, pieces) };
        kept.is_full = true;
        self.output(&mut kept, Stream::Err, None, &[IoSlice::new(problem.as_bytes())])
    }

    /// Writes a message of wireup about the job, which is kept however much the job has written.
    ///
    /// # Errors
    /// The file system is full.
    pub fn note(&self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        self.output(&mut self.kept(), Stream::Err, None, pieces)
    }

    /// Records the end of the job.
    ///
    /// # Errors
    /// The file system is full.
    pub fn end(&self, code: u8) -> io::Result<()> {
        self.record(&mut self.kept(), END, &[IoSlice::new(&[code])])
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        // The numbers are valid at any time, so a panic of another thread does not matter.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn output(&self, kept: &mut Kept, stream: Stream, rank: Option<Rank>, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let rank = rank.map_or(NO_RANK, |rank| rank.0).to_le_bytes();
        self.record(kept, stream as u8, &[&[IoSlice::new(&rank)], pieces].concat())
    }

    fn record(&self, kept: &mut Kept, kind: u8, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut header = [kind; HEADER_LEN];
        header[1..].copy_from_slice(&(length as u32).to_le_bytes());
        let mut record = [&[IoSlice::new(&header)], pieces].concat();
        let written = write_all_vectored(|slices| (&self.file).write_vectored(slices), &mut record);
        match written {
            Ok(()) => kept.length += (HEADER_LEN + length) as u64,
            // The partial record is cut off, because a partial record would make all later records unreadable.
            Err(_) => drop(self.file.set_len(kept.length)),
        }
        written
    }
}

/// All spools of a session.
///
/// # Errors
/// The session's directory or a spool cannot be read.
pub fn jobs(name: &str) -> Result<Vec<Listed>, SessionDirectoryError> {
    let Some(place) = SessionDirectory::find(name)? else { return Ok(Vec::new()) };
    let mut listed = list(&place).map_err(|error| {
        let path = place.path().join(DIRECTORY).display().to_string();
        SessionDirectoryError::System { path, error }
    })?;
    listed.sort_by_key(|listed| listed.job);
    Ok(listed)
}

fn list(place: &SessionDirectory) -> io::Result<Vec<Listed>> {
    let Some(entries) = if_there(fs::read_dir(place.inside(DIRECTORY)))? else { return Ok(Vec::new()) };
    let mut listed = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Some(job) = entry.file_name().to_str().and_then(|name| name.parse().ok()).map(JobId) else { continue };
        // The spool may have been removed in the meantime.
        if let Some(mut contents) = if_there(Contents::open(&entry.path()))? {
            listed.extend(contents.listed(job)?);
        }
    }
    Ok(listed)
}

fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// How much output of detached jobs a session keeps (bytes).
pub fn kept_bytes(place: &SessionDirectory) -> io::Result<u64> {
    list(place)?.iter().map(|spool| len(place, spool.job)).sum()
}

fn len(place: &SessionDirectory, job: JobId) -> io::Result<u64> {
    Ok(if_there(fs::metadata(place.inside(DIRECTORY).join(job.to_string())))?.map_or(0, |file| file.len()))
}

/// Removes the oldest spools of finished jobs until fewer than `OVER_MAX` are left and all spools together have at most
/// `bytes_max` bytes. Returns whether the limit `bytes_max` is met.
fn make_room(place: &SessionDirectory, bytes_max: u64) -> io::Result<bool> {
    let (running, mut over): (Vec<_>, Vec<_>) = list(place)?.into_iter().partition(|spool| spool.is_running);
    over.sort_by_key(|spool| spool.job);
    let mut bytes: u64 = running.iter().chain(&over).map(|spool| len(place, spool.job)).sum::<io::Result<u64>>()?;
    let mut left = over.len();
    for Listed { job, .. } in over {
        if left < OVER_MAX && bytes <= bytes_max {
            break;
        }
        bytes -= len(place, job)?.min(bytes);
        left -= 1;
        if_there(fs::remove_file(place.inside(DIRECTORY).join(job.to_string())))?;
    }
    Ok(bytes <= bytes_max)
}

impl Contents {
    fn open(path: &Path) -> io::Result<Contents> {
        Ok(Contents { file: File::open(path)?, offset: 0 })
    }

    /// This spool's entry in the list for users; `None`: the launcher has only just created the spool, without a
    /// record.
    pub(crate) fn listed(&mut self, job: JobId) -> io::Result<Option<Listed>> {
        let is_running = !self.is_abandoned()?;
        let Some((PROGRAM, program)) = self.record()? else { return Ok(None) };
        let mut last = [0; HEADER_LEN + 1];
        let at = self.file.metadata()?.len().saturating_sub(last.len() as u64);
        let is_end = self.read_whole(&mut last, at)? && last[..HEADER_LEN] == [END, 1, 0, 0, 0];
        let code = (is_end && !is_running).then_some(last[HEADER_LEN]);
        Ok(Some(Listed { job, program: String::from_utf8_lossy(&program).into_owned(), code, is_running }))
    }

    /// The next whole record.
    pub(crate) fn record(&mut self) -> io::Result<Option<(u8, Vec<u8>)>> {
        let mut header = [0; HEADER_LEN];
        if !self.read_whole(&mut header, self.offset)? {
            return Ok(None);
        }
        let length = u32::from_le_bytes([header[1], header[2], header[3], header[4]]) as usize;
        if length > SPOOL_BYTES_MAX as usize {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let at = self.offset + HEADER_LEN as u64;
        if self.file.metadata()?.len() < at + length as u64 {
            return Ok(None);
        }
        let mut payload = vec![0; length];
        if !self.read_whole(&mut payload, at)? {
            return Ok(None);
        }
        self.offset += (HEADER_LEN + length) as u64;
        Ok(Some((header[0], payload)))
    }

    fn read_whole(&self, buffer: &mut [u8], at: u64) -> io::Result<bool> {
        match self.file.read_exact_at(buffer, at) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the launcher that wrote the file has ended.
    fn is_abandoned(&self) -> io::Result<bool> {
        match retry_on_intr(|| rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockShared)) {
            Ok(()) => rustix::fs::flock(&self.file, FlockOperation::Unlock).map(|()| true).map_err(Into::into),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Reader {
    /// Opens a job's spool; `None`: there is no such job, or the job is not detached.
    pub fn open(name: &str, job: JobId) -> Result<Option<Reader>, SessionDirectoryError> {
        let Some(place) = SessionDirectory::find(name)? else { return Ok(None) };
        let path = place.path().join(DIRECTORY).join(job.to_string());
        match Reader::open_at(place, job) {
            Ok(reader) => Ok(Some(reader)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(SessionDirectoryError::System { path: path.display().to_string(), error }),
        }
    }

    fn open_at(place: SessionDirectory, job: JobId) -> io::Result<Reader> {
        let path = place.inside(DIRECTORY).join(job.to_string());
        let contents = Contents::open(&path)?;
        let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        inotify::add_watch(&changes, &path, WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE)?;
        Ok(Reader { contents, changes, _place: place })
    }

    /// The next piece; never blocks. After `Later` the reader's descriptor becomes readable when more may have been
    /// written.
    pub fn next_piece(&mut self) -> io::Result<Piece> {
        loop {
            // Checked before the read, so that everything that the launcher wrote before it ended is read.
            let abandoned = self.contents.is_abandoned()?;
            match self.contents.record()? {
                Some((1, payload)) => return output(Stream::Out, &payload),
                Some((2, payload)) => return output(Stream::Err, &payload),
                Some((END, code)) => return Ok(Piece::End { code: code.first().copied().unwrap_or(0) }),
                Some(_) => {}
                None if abandoned => return Ok(Piece::Lost),
                None => {
                    if !self.take_changes()? {
                        return Ok(Piece::Later);
                    }
                }
            }
        }
    }

    /// Whether the file has changed since the last call.
    fn take_changes(&self) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        let mut changed = false;
        loop {
            match retry_on_intr(|| rustix::io::read(&self.changes, &mut buffer)) {
                Ok(1..) => changed = true,
                Ok(0) | Err(Errno::WOULDBLOCK) => return Ok(changed),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn output(stream: Stream, payload: &[u8]) -> io::Result<Piece> {
    let (rank, bytes) = payload.split_first_chunk().ok_or(io::ErrorKind::InvalidData)?;
    let rank = Some(u32::from_le_bytes(*rank)).filter(|rank| *rank != NO_RANK).map(Rank);
    Ok(Piece::Bytes { stream, rank, bytes: bytes.to_vec() })
}

/// A descriptor that is readable when more may have been written.
impl AsFd for Reader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_os::socket::wait;

    fn slices(text: &str) -> [IoSlice<'_>; 1] {
        [IoSlice::new(text.as_bytes())]
    }

    fn piece(stream: Stream, rank: Option<Rank>, text: &str) -> Piece {
        Piece::Bytes { stream, rank, bytes: text.as_bytes().to_vec() }
    }

    /// A temporary session directory.
    fn place() -> (SessionDirectory, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        (SessionDirectory::at(folder.path()), folder)
    }

    #[test]
    fn spooled_output_is_read_up_to_its_end() {
        let (place, _folder) = place();
        let spool = Spool::create(&place, JobId(7), "./a").unwrap();
        let mut reader = Reader::open_at(place.try_clone().unwrap(), JobId(7)).unwrap();
        assert_eq!(reader.next_piece().unwrap(), Piece::Later);
        spool.write(Stream::Out, Some(Rank(3)), &slices("out")).unwrap();
        spool.write(Stream::Err, None, &slices("err")).unwrap();
        assert!(wait(&reader, true, false, None).unwrap());
        assert_eq!(reader.next_piece().unwrap(), piece(Stream::Out, Some(Rank(3)), "out"));
        assert_eq!(reader.next_piece().unwrap(), piece(Stream::Err, None, "err"));
        assert_eq!(reader.next_piece().unwrap(), Piece::Later);
        assert_eq!(
            list(&place).unwrap(),
            [Listed { job: JobId(7), program: "./a".into(), code: None, is_running: true }]
        );
        spool.end(9).unwrap();
        drop(spool);
        assert!(wait(&reader, true, false, None).unwrap());
        assert_eq!(reader.next_piece().unwrap(), Piece::End { code: 9 });
        assert_eq!(
            list(&place).unwrap(),
            [Listed { job: JobId(7), program: "./a".into(), code: Some(9), is_running: false }]
        );
    }

    #[test]
    fn a_killed_writer_is_noticed() {
        let (place, _folder) = place();
        let spool = Spool::create(&place, JobId(1), "./a").unwrap();
        let mut reader = Reader::open_at(place.try_clone().unwrap(), JobId(1)).unwrap();
        spool.write(Stream::Out, None, &slices("last")).unwrap();
        drop(spool);
        assert_eq!(reader.next_piece().unwrap(), piece(Stream::Out, None, "last"));
        assert_eq!(reader.next_piece().unwrap(), Piece::Lost);
    }

    #[test]
    fn what_all_jobs_leave_is_bounded_and_the_oldest_finished_ones_go_first() {
        let (place, _folder) = place();
        let chunk = "x".repeat(100_000);
        let running = Spool::create(&place, JobId(0), "./a").unwrap();
        running.write(Stream::Out, None, &slices(&chunk)).unwrap();
        for job in 1..4 {
            Spool::create(&place, JobId(job), "./a").unwrap().write(Stream::Out, None, &slices(&chunk)).unwrap();
        }
        let left = |bytes_max| {
            let has_room = make_room(&place, bytes_max).unwrap();
            let mut jobs: Vec<u32> = list(&place).unwrap().iter().map(|spool| spool.job.0).collect();
            jobs.sort_unstable();
            (has_room, jobs)
        };
        assert_eq!(left(1_000_000), (true, vec![0, 1, 2, 3]));
        assert_eq!(left(350_000), (true, vec![0, 2, 3]));
        assert_eq!(left(50_000), (false, vec![0]));
        drop(running);
    }

    #[test]
    fn spool_size_and_number_of_finished_spools_are_bounded() {
        let (place, _folder) = place();
        let spool = Spool::create(&place, JobId(0), "./a").unwrap();
        let chunk = "x".repeat(1 << 20);
        for _ in 0..40 {
            spool.write(Stream::Out, None, &slices(&chunk)).unwrap();
        }
        let kept = std::mem::replace(&mut *spool.kept(), Kept { length: SPOOL_BYTES_MAX - 10, ..Kept::default() });
        spool.write(Stream::Out, None, &slices("x")).unwrap();
        assert!(spool.kept().is_full, "what surrounds the byte in the file counts too");
        *spool.kept() = kept;
        spool.file.set_len(spool.kept().length).unwrap();
        spool.note(&slices("why")).unwrap();
        assert!(spool.file.metadata().unwrap().len() <= SPOOL_BYTES_MAX + 1024);
        let mut reader = Reader::open_at(place.try_clone().unwrap(), JobId(0)).unwrap();
        let mut pieces = Vec::new();
        while let piece @ Piece::Bytes { .. } = reader.next_piece().unwrap() {
            pieces.push(piece);
        }
        assert_eq!(pieces[pieces.len() - 2..], [FULL, "why"].map(|text| piece(Stream::Err, None, text)));
        for job in 1..OVER_MAX as u32 + 20 {
            let over = Spool::create(&place, JobId(job), "./a").unwrap();
            // Unlocks explicitly: closing the file does not release the lock while a child that another test has just
            // forked still has a duplicate of its descriptor.
            rustix::fs::flock(&over.file, FlockOperation::Unlock).unwrap();
        }
        let numbers: Vec<u32> = {
            let mut listed = list(&place).unwrap();
            listed.sort_by_key(|listed| listed.job);
            listed.iter().map(|listed| listed.job.0).collect()
        };
        // The spool of the launcher that is alive is kept, however old it is.
        assert_eq!((numbers[0], numbers.len()), (0, OVER_MAX + 1));
        drop(spool);
    }

    #[test]
    fn a_spool_that_cannot_be_read_is_an_error() {
        let (place, _folder) = place();
        drop(Spool::create(&place, JobId(3), "./a").unwrap());
        fs::write(place.inside(DIRECTORY).join("4"), [0xff; 16]).unwrap();
        assert_eq!(list(&place).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
