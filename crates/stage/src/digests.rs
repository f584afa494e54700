//! Caches digests of staged files between runs, so that unchanged files are not read again: one cache file for each
//! staged folder, so that a run reads only the caches of the folders that it stages, and one cache file for all files
//! that were staged singly. A second cache file for each folder has the folder's listing.

use crate::known::{self, Identity, Known};
use crate::set::Digest;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Most cache files, two for each staged folder (chosen); beyond this number the least recently used cache file is
/// removed.
const FILES_MAX: usize = 128;
/// The precision with which the time of a file's last use is kept (chosen).
const USE: Duration = Duration::from_secs(24 * 3600);

/// Digests that earlier runs have computed, in files of one folder.
#[derive(Default)]
pub struct Digests {
    /// The folder of the cache files; `None`: digests are not cached.
    folder: Option<PathBuf>,
}

impl Digests {
    pub fn in_folder(folder: PathBuf) -> Digests {
        Digests { folder: Some(folder) }
    }

    /// The cached digests of the files in a staged folder.
    pub(crate) fn of_folder(&self, folder: &Path) -> DigestsOf {
        self.of(&name_of(folder))
    }

    /// The path of the cache file with the listing of a staged folder.
    pub(crate) fn listing_of(&self, folder: &Path) -> Option<PathBuf> {
        let path = self.folder.as_ref()?.join(name_of(folder) + ".names");
        note_use(&path);
        Some(path)
    }

    /// The cached digests of files that were staged singly.
    pub(crate) fn of_files(&self) -> DigestsOf {
        self.of("files")
    }

    fn of(&self, name: &str) -> DigestsOf {
        let path = self.folder.as_ref().map(|folder| folder.join(name));
        DigestsOf { known: path.as_deref().map(Known::read).unwrap_or_default(), path }
    }
}

fn name_of(folder: &Path) -> String {
    blake3::hash(folder.as_os_str().as_bytes()).to_hex().to_string()
}

/// Writes a cache file, and removes the least recently used ones beyond `FILES_MAX`.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    known::write(path, bytes)?;
    remove_oldest(path.parent().unwrap_or(path));
    Ok(())
}

/// Digests of the files in one staged folder, or of all files that were staged singly.
pub(crate) struct DigestsOf {
    known: Known,
    path: Option<PathBuf>,
}

impl DigestsOf {
    pub fn find(&mut self, file: &Identity) -> Option<Digest> {
        self.known.find(file)?.try_into().ok()
    }

    pub fn add(&mut self, file: Identity, digest: &Digest) {
        self.known.add(file, digest);
    }

    /// Writes the digests for later runs. Errors are ignored: without the cache, later runs read the files again.
    pub fn keep(&self) {
        let Some(path) = &self.path else { return };
        match self.known.write(path) {
            Ok(true) => remove_oldest(path.parent().unwrap_or(path)),
            Ok(false) => note_use(path),
            Err(_) => {}
        }
    }
}

fn note_use(path: &Path) {
    let now = SystemTime::now();
    let is_noted = |used: SystemTime| now.duration_since(used).is_ok_and(|since| since < USE);
    if let Ok(file) = File::open(path)
        && !file.metadata().and_then(|meta| meta.modified()).is_ok_and(is_noted)
    {
        let _ = file.set_modified(now);
    }
}

fn remove_oldest(folder: &Path) {
    let used = |file: &fs::DirEntry| file.metadata().and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = files.map(|file| (used(&file), file.path())).collect();
    files.sort();
    for (_, path) in &files[..files.len().saturating_sub(FILES_MAX)] {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_were_not_used_for_long_are_forgotten() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("file");
        fs::write(&file, b"").unwrap();
        File::options().write(true).open(&file).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let mut stat = rustix::fs::stat(&file).unwrap();
        stat.st_ctime = 0;
        let identity = Identity::of(&stat);
        let digests = Digests::in_folder(home.path().join("digests"));
        let path = |number: usize| PathBuf::from(format!("/{number}"));
        let keep = |number: usize| {
            let mut of = digests.of_folder(&path(number));
            of.add(identity, &[number as u8; 32]);
            of.keep();
        };
        let age = |number: usize, days: u64| {
            let kept = digests.of_folder(&path(number)).path.unwrap();
            let time = SystemTime::now() - days as u32 * USE;
            File::options().write(true).open(kept).unwrap().set_modified(time).unwrap();
        };
        let find = |number: usize| digests.of_folder(&path(number)).find(&identity);
        for number in 0..FILES_MAX {
            keep(number);
            age(number, 10);
        }
        age(1, 20);
        age(0, 30);
        // The oldest cache file is used again, so it is not the one that is removed.
        digests.of_folder(&path(0)).keep();
        keep(FILES_MAX);
        assert_eq!((find(0), find(1), find(2)), (Some([0; 32]), None, Some([2; 32])));
        assert_eq!(find(FILES_MAX), Some([FILES_MAX as u8; 32]));
        assert_eq!(digests.of_files().find(&identity), None);
        assert_eq!(Digests::default().of_folder(&path(0)).find(&identity), None);
    }
}
