//! The folder that is served: its files by paths relative to it.
//!
//! The server follows no symbolic link: the kernel that sends the requests does that, and a link that leads into the
//! server's own mount would make the server wait for itself.
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, StatVfs};
use rustix::io::Result;

pub struct Source(OwnedFd);

/// An entry of a folder: its name, number and kind.
pub struct Entry {
    pub name: OsString,
    pub inode: u64,
    pub kind: fuser::FileType,
}

impl Source {
    pub fn open(folder: &Path) -> Result<Source> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, folder, flags, Mode::empty()).map(Source)
    }

    pub fn stat(&self, path: &Path) -> Result<Stat> {
        rustix::fs::fstat(self.at(path, OFlags::PATH)?)
    }

    pub fn link(&self, path: &Path) -> Result<Vec<u8>> {
        let link = self.at(path, OFlags::PATH)?;
        Ok(rustix::fs::readlinkat(link, "", Vec::new())?.into_bytes())
    }

    /// Opens a file for reading. This never waits, not even for the writer of a pipe that has taken the place of a
    /// file.
    pub fn file(&self, path: &Path) -> Result<File> {
        self.at(path, OFlags::RDONLY | OFlags::NONBLOCK).map(File::from)
    }

    /// All entries of a folder except `.` and `..`.
    pub fn entries(&self, path: &Path) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in Dir::new(self.at(path, OFlags::RDONLY | OFlags::DIRECTORY)?)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                // Some file systems do not report the kind of an entry here.
                FileType::Unknown => kind_of(&self.stat(&path.join(name))?),
                known => kind(known),
            };
            entries.push(Entry { name: name.to_owned(), inode: entry.ino(), kind });
        }
        Ok(entries)
    }

    pub fn statvfs(&self) -> Result<StatVfs> {
        rustix::fs::fstatvfs(&self.0)
    }

    fn at(&self, path: &Path, flags: OFlags) -> Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat2(&self.0, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
    }
}

/// Reads up to `size` bytes from `offset` on; returns fewer bytes only at the end of the file.
pub fn read(file: &File, offset: u64, size: u32) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; size as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], offset + filled as u64)? {
            0 => break,
            more => filled += more,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

pub fn kind_of(stat: &Stat) -> fuser::FileType {
    kind(FileType::from_raw_mode(stat.st_mode))
}

fn kind(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::CharacterDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::RegularFile | FileType::Unknown => fuser::FileType::RegularFile,
    }
}
