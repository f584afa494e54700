//! Brings the records of all ranks to the tap of rank 0, through a folder on a file system that all nodes share.
//!
//! Rank 0 creates the folder as soon as it knows the job's name. Each node has one file in it, to which the node's taps
//! append. If the folder no longer exists, no tap waits for records.

use crate::place::RANKS_MAX;
use crate::record::{RECORD_BYTES, Record, hash};
use rustix::fs::{Mode, OFlags, open};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The folder is polled at intervals of 1/4 of the time waited so far, but at least `LOOK_MIN` and at most `LOOK_MAX`,
/// so that polling makes no wait much longer.
const LOOK_PART: u32 = 4;
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(100);
/// Time without a new record after which no more are expected, if the number of ranks is not known.
const QUIET: Duration = Duration::from_millis(500);
/// Most files in the folder that are read, in addition to one for each rank.
const FILES_MORE: usize = 64;
/// Number of refused files whose names are reported; further ones are only counted.
const REFUSED_MAX: usize = 8;
/// A record whose rank ended this long before this rank's `exec` is from an earlier job: clocks of nodes differ by
/// less.
const EARLIER_NS: u64 = 60_000_000_000;

/// A folder that has not changed for this long counts as abandoned: rank 0's tap was killed before it removed it.
const STALE: Duration = Duration::from_secs(24 * 60 * 60);
/// Most entries of the user's folder that are examined to find abandoned folders.
const SWEPT_MAX: usize = 10_000;
const PREFIX: &str = ".wireup-tap-";
/// Most characters of a job's name in the name of its folder. Chosen: with what is put before and after it, the name
/// fits into the 143 bytes that a file name may have in an encrypted home folder (eCryptfs).
const JOB_CHARS_MAX: usize = 100;

/// The folder for the records of one job.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// The folder of the job named `job`, in `parent`. If the name is too long or has characters that do not suit a
    /// file name, it is changed, and a hash of the job's name makes it differ from that of other jobs.
    pub fn new(parent: &Path, job: &str) -> Folder {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
        let mut name: String = job.chars().map(plain).take(JOB_CHARS_MAX).collect();
        if name != job {
            name += &format!("-{:016x}", hash(job.as_bytes()));
        }
        Folder(parent.join(format!("{PREFIX}{name}")))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Creates the folder, accessible to this user only.
    ///
    /// # Errors
    /// The folder cannot be created, or exists and belongs to another user.
    pub fn create(&self) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.check(),
            made => made,
        }
    }

    fn check(&self) -> io::Result<()> {
        let found = fs::symlink_metadata(&self.0)?;
        let is_ours = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0;
        if is_ours { Ok(()) } else { Err(io::Error::other("it is not a folder that only this user can write to")) }
    }

    /// Adds a record to the file of its node.
    ///
    /// # Errors
    /// The folder is missing or belongs to another user, or cannot be written to.
    pub fn leave(&self, record: &Record) -> io::Result<()> {
        self.check()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = record.node.replace('/', "_");
        let mut file: File = open(self.0.join(format!("node-{name}")), flags, Mode::RUSR | Mode::WUSR)?.into();
        // The record is written in one call, so that records of several ranks do not mix.
        file.write_all(&record.encode())
    }

    /// Waits until the records of all ranks have arrived, at most until `deadline`; then removes the folder.
    pub fn collect(&self, own: &Record, deadline: Instant) -> Gathered {
        // Another job may have removed the folder, if it seemed to be abandoned (`STALE`).
        let _ = self.create();
        let begin = Instant::now();
        let (mut gathered, mut changed) = (self.look(own), begin);
        loop {
            let now = Instant::now();
            let is_quiet = own.size == 0 && now.duration_since(changed) >= QUIET;
            if gathered.is_complete(own.size) || is_quiet || now >= deadline {
                break;
            }
            let pause = (now.duration_since(begin) / LOOK_PART).clamp(LOOK_MIN, LOOK_MAX);
            thread::sleep(pause.min(deadline - now));
            let before = gathered.records.len();
            gathered = self.look(own);
            if gathered.records.len() > before {
                changed = Instant::now();
            }
        }
        self.remove();
        sweep(self.0.parent().unwrap_or(Path::new(".")), &self.0);
        gathered
    }

    /// Removes the folder. Errors are ignored: the user will see what is left.
    fn remove(&self) {
        // The folder is renamed first, so that no tap adds a file while it is being removed.
        let mut name = self.0.clone().into_os_string();
        name.push(".read");
        let renamed = PathBuf::from(name);
        let path = if fs::rename(&self.0, &renamed).is_ok() { &renamed } else { &self.0 };
        let _ = fs::remove_dir_all(path);
    }

    /// Adds a record to the folder; waits up to `wait` for rank 0 to create the folder.
    ///
    /// # Errors
    /// The folder does not exist, belongs to another user, or cannot be written to.
    pub fn leave_within(&self, record: &Record, wait: Duration) -> io::Result<()> {
        let deadline = Instant::now() + wait;
        loop {
            match self.leave(record) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && Instant::now() < deadline => {
                    thread::sleep(LOOK_MAX.min(wait));
                }
                result => return result,
            }
        }
    }

    fn look(&self, own: &Record) -> Gathered {
        let mut gathered = Gathered::default();
        gathered.records.insert(own.rank, own.clone());
        // After a change of the folder, a network file system reads its entries from the server again.
        let scratch = self.0.join(".look");
        let _ = fs::write(&scratch, b"").and_then(|()| fs::remove_file(&scratch));
        let Ok(entries) = fs::read_dir(&self.0) else { return gathered };
        let ranks = if own.size == 0 { RANKS_MAX as usize } else { own.size as usize };
        for (number, entry) in entries.flatten().enumerate() {
            if number > ranks.saturating_add(FILES_MORE) {
                gathered.refuse("the folder has more files than the job has ranks; the rest is not read".into());
                break;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("node-") {
                let read = gathered.read(&entry.path(), &name, own, ranks);
                read.unwrap_or_else(|error| gathered.refuse(format!("{name}: {error}")));
            } else if name != ".look" {
                gathered.refuse(format!("{name}: it is not a file of this job"));
            }
        }
        gathered
    }
}

/// Removes abandoned folders of this user's taps in `parent`, left when rank 0's tap was killed. If the job of such a
/// folder still runs, its tap creates the folder again.
fn sweep(parent: &Path, own: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten().take(SWEPT_MAX) {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) || entry.path() == own {
            continue;
        }
        let folder = Folder(entry.path());
        let changed = entry.metadata().and_then(|found| found.modified());
        let is_old = changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > STALE));
        if is_old && folder.check().is_ok() {
            folder.remove();
        }
    }
}

/// The records of a job that have arrived.
#[derive(Debug, Default)]
pub struct Gathered {
    pub records: BTreeMap<u32, Record>,
    /// Files and records that were refused, with the reasons.
    pub refused: Vec<String>,
    pub more_refused: usize,
}

impl Gathered {
    /// A result with only this rank's own record.
    pub fn alone(own: Record) -> Gathered {
        Gathered { records: BTreeMap::from([(own.rank, own)]), ..Gathered::default() }
    }

    fn is_complete(&self, size: u32) -> bool {
        size > 0 && self.records.len() >= size as usize
    }

    fn refuse(&mut self, why: String) {
        if self.refused.len() < REFUSED_MAX {
            self.refused.push(why);
        } else {
            self.more_refused += 1;
        }
    }

    fn read(&mut self, path: &Path, name: &str, own: &Record, ranks: usize) -> io::Result<()> {
        let file: File =
            open(path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?.into();
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        let limit = ranks.saturating_add(1).saturating_mul(RECORD_BYTES) as u64;
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes)?;
        let (records, rest) = bytes.as_chunks::<RECORD_BYTES>();
        for (number, record) in records.iter().enumerate() {
            let why = match Record::decode(record) {
                Err(why) => why,
                Ok(record) if record.end_ns.saturating_add(EARLIER_NS) < own.exec_ns => {
                    "it is of an earlier job".into()
                }
                Ok(record) if own.size > 0 && record.rank >= own.size => {
                    format!("rank {} is not in this job", record.rank)
                }
                Ok(record) if own.size > 0 && record.size > 0 && record.size != own.size => {
                    format!("it is of a job of {} ranks", record.size)
                }
                Ok(record) if format!("node-{}", record.node.replace('/', "_")) != *name => {
                    format!("it says that it is of {}", record.node)
                }
                Ok(record) if record.rank == own.rank => {
                    if record == *own {
                        continue;
                    } else {
                        format!("another record of rank {}", record.rank)
                    }
                }
                Ok(record) if self.records.contains_key(&record.rank) => {
                    format!("another record of rank {}", record.rank)
                }
                Ok(record) => {
                    self.records.insert(record.rank, record);
                    continue;
                }
            };
            self.refuse(format!("{name}, record {}: {why}", number + 1));
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(io::Error::other(format!("{} bytes at its end are no record", rest.len())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;
    use std::os::unix::fs::symlink;

    fn folder(job: &str) -> Folder {
        let folder = Folder::new(&std::env::temp_dir(), &format!("unit/{job} {}", std::process::id()));
        folder.create().expect("a folder");
        folder
    }

    #[test]
    fn jobs_with_long_or_odd_names_have_folders_of_their_own() {
        let long = "prterun-a.very.long.".repeat(20);
        let jobs = ["kvs_7", "a/b", "a_b", "a\u{e9}b", &format!("{long}1"), &format!("{long}2")];
        let folders: Vec<PathBuf> = jobs.iter().map(|job| Folder::new(Path::new(""), job).0).collect();
        assert_eq!(folders[0], Path::new(".wireup-tap-kvs_7"));
        for (at, folder) in folders.iter().enumerate() {
            assert!(!folders[..at].contains(folder) && folder.as_os_str().len() + ".read".len() <= 143, "{folder:?}");
        }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(30)
    }

    #[test]
    fn records_of_all_ranks_are_gathered_and_the_folder_is_removed() {
        let folder = folder("all");
        (0..4).for_each(|rank| folder.leave(&record(rank)).expect("a record"));
        let gathered = folder.collect(&record(0), Instant::now() + Duration::from_secs(20));
        assert_eq!((gathered.records.len(), gathered.refused.len()), (4, 0), "{gathered:?}");
        assert!(!folder.path().exists());
        assert!(folder.leave(&record(3)).is_err(), "nobody waits any more");
    }

    #[test]
    fn what_is_missing_is_waited_for_until_the_deadline_only() {
        let folder = folder("missing");
        folder.leave(&record(2)).expect("a record");
        let gathered = folder.collect(&record(0), soon());
        assert_eq!(gathered.records.keys().copied().collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn lies_are_refused_and_named() {
        let folder = folder("lies");
        folder.leave(&record(1)).expect("a record");
        folder.leave(&Record { end_ns: 88, ..record(1) }).expect("a record");
        folder.leave(&Record { size: 9, rank: 8, ..record(1) }).expect("a record");
        folder.leave(&Record { size: 5, ..record(1) }).expect("a record");
        fs::write(folder.path().join("node-n1"), [&record(1).encode()[..], b"torn"].concat()).expect("a file");
        fs::write(folder.path().join("other"), b"").expect("a file");
        symlink("/dev/zero", folder.path().join("node-zero")).expect("a link");
        let gathered = folder.collect(&record(0), soon());
        let refused = gathered.refused.join("\n");
        for why in [
            "node-n0, record 2: another record of rank 1", "node-n0, record 3: rank 8 is not in this job",
            "node-n1, record 1: it says that it is of n0", "node-n1: 4 bytes at its end are no record",
            "node-n0, record 4: it is of a job of 5 ranks", "other: it is not a file of this job", "node-zero: ",
        ] {
            assert!(refused.contains(why), "{why}: {refused}");
        }
        assert_eq!(gathered.records.len(), 2);
    }

    #[test]
    fn a_rank_waits_for_the_folder_and_does_not_make_it() {
        let folder = folder("late");
        folder.remove();
        assert!(folder.leave_within(&record(1), Duration::from_millis(20)).is_err() && !folder.path().exists());
        thread::scope(|scope| {
            let rank = scope.spawn(|| folder.leave_within(&record(1), Duration::from_secs(20)));
            thread::sleep(Duration::from_millis(20));
            folder.create().expect("a folder");
            rank.join().expect("a thread").expect("a record");
        });
        let gathered = folder.collect(&Record { size: 2, ..record(0) }, Instant::now());
        assert_eq!((gathered.records.len(), folder.path().exists()), (1, false), "the sizes differ");
    }

    #[test]
    fn folders_that_were_left_behind_are_removed() {
        let parent = std::env::temp_dir().join(format!("wireup-tap-sweep-{}", std::process::id()));
        fs::create_dir(&parent).expect("a folder");
        let [old, new, other] = [".wireup-tap-old", ".wireup-tap-new", "old"].map(|name| parent.join(name));
        for path in [&old, &new, &other] {
            fs::create_dir(path).expect("a folder");
            fs::write(path.join("node-n0"), b"x").expect("a file");
        }
        for path in [&old, &other] {
            let day = std::time::SystemTime::now() - STALE - Duration::from_secs(60);
            File::open(path).and_then(|folder| folder.set_modified(day)).expect("a time");
        }
        let folder = Folder::new(&parent, "own");
        folder.create().expect("a folder");
        folder.collect(&Record { size: 1, ..record(0) }, soon());
        assert_eq!((old.exists(), new.exists(), other.exists(), folder.path().exists()), (false, true, true, false));
        fs::remove_dir_all(&parent).expect("a folder");
    }

    #[test]
    fn a_folder_of_others_is_not_used() {
        let folder = folder("foreign");
        fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("permissions");
        assert!(folder.create().is_err() && folder.leave(&record(0)).is_err());
        fs::remove_dir(folder.path()).expect("it is empty");
    }
}
