//! Where gathered files are written: below a folder, never through a symbolic link in it, nor into a folder that a
//! stranger has made there, and never over something that exists.
//!
//! A file has no name before it is whole (`O_TMPFILE`), so that a killed launcher leaves nothing; on a file system
//! without `O_TMPFILE` an incomplete file has a temporary name that begins with a dot.

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, chmodat, fchmod, futimens, linkat,
    mkdirat, openat, renameat_with, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use wireup_os::output_file;

/// The open descriptor of a target folder.
pub struct Folder(OwnedFd);

const AS_FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Folder {
    /// The folder at `base`, which is made if it is missing, then `names` below it.
    ///
    /// # Errors
    /// A name is no folder, cannot be made, or is a stranger's folder in one to which all users may write.
    pub fn open(base: &Path, names: &[&[u8]]) -> io::Result<Folder> {
        let mut folder = output_file::make_folder(base)?;
        for name in names {
            folder = output_file::make_folder_in(&folder, OsStr::from_bytes(name))?;
        }
        Ok(Folder(folder))
    }

    /// Whether something of this name exists in the folder.
    pub fn has(&self, name: &[u8]) -> bool {
        statat(&self.0, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Makes a folder; returns `false` if it existed.
    pub fn make_folder(&self, name: &[u8]) -> io::Result<bool> {
        let name = OsStr::from_bytes(name);
        match mkdirat(&self.0, name, Mode::RWXU) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => {
                let stat = statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
                let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
                if is_folder { Ok(false) } else { Err(Errno::EXIST.into()) }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// # Errors
    /// The name is taken, or the link cannot be made.
    pub fn make_link(&self, name: &[u8], leads_to: &[u8], modified: (i64, u32)) -> io::Result<()> {
        let name = OsStr::from_bytes(name);
        symlinkat(OsStr::from_bytes(leads_to), &self.0, name)?;
        // Failure is ignored: a file system need not keep times of links.
        let _ = utimensat(&self.0, name, &times(modified), AtFlags::SYMLINK_NOFOLLOW);
        Ok(())
    }

    /// Sets the permission bits and the modification time of a folder in this one.
    pub fn dress(&self, name: &[u8], mode: u32, modified: (i64, u32)) -> io::Result<()> {
        let inside = openat(&self.0, OsStr::from_bytes(name), AS_FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
        chmodat(&inside, ".", Mode::from_raw_mode(mode), AtFlags::empty())?;
        Ok(utimensat(&inside, ".", &times(modified), AtFlags::empty())?)
    }
}

/// A file that is being written.
pub struct PartialFile {
    folder: Folder,
    file: File,
    /// The file's temporary name, on file systems without `O_TMPFILE`.
    temporary: Option<OsString>,
}

impl PartialFile {
    pub fn create(folder: Folder) -> io::Result<PartialFile> {
        let mode = Mode::RUSR | Mode::WUSR;
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let (file, temporary) = match openat(&folder.0, ".", flags | OFlags::TMPFILE, mode) {
            Ok(file) => (file, None),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL | Errno::NOSYS) => {
                // Random, so that no other user can make a file of this name in advance.
                let mut random = [0; 8];
                rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())?;
                let name: OsString = format!(".wireup-gathers-{:016x}", u64::from_ne_bytes(random)).into();
                let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                (openat(&folder.0, &name, flags, mode)?, Some(name))
            }
            Err(error) => return Err(error.into()),
        };
        Ok(PartialFile { folder, file: file.into(), temporary })
    }

    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Sets the file's length, permission bits and modification time, and gives it its final name.
    ///
    /// # Errors
    /// The name is taken (`AlreadyExists`), or the file cannot be completed.
    pub fn finish(mut self, name: &[u8], len: u64, mode: u32, modified: (i64, u32)) -> io::Result<()> {
        let name = OsStr::from_bytes(name);
        self.file.set_len(len)?;
        fchmod(&self.file, Mode::from_raw_mode(mode))?;
        futimens(&self.file, &times(modified))?;
        let folder: BorrowedFd = self.folder.0.as_fd();
        let Some(temporary) = &self.temporary else {
            let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            return Ok(linkat(CWD, own, folder, name, AtFlags::SYMLINK_FOLLOW)?);
        };
        match renameat_with(folder, temporary, folder, name, RenameFlags::NOREPLACE) {
            Ok(()) => {
                self.temporary = None;
                Ok(())
            }
            // No `RENAME_NOREPLACE` here: a hard link is made, and dropping `self` removes the temporary name.
            Err(Errno::INVAL | Errno::NOSYS) => Ok(linkat(folder, temporary, folder, name, AtFlags::empty())?),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if let Some(name) = &self.temporary {
            let _ = unlinkat(&self.folder.0, name, AtFlags::empty());
        }
    }
}

fn times((tv_sec, nanoseconds): (i64, u32)) -> Timestamps {
    let time = Timespec { tv_sec, tv_nsec: nanoseconds.into() };
    Timestamps { last_access: time, last_modification: time }
}
