//! Answers the kernel's requests, one after the other.
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, Request,
};
use rustix::fs::Stat;

use super::meter::{Line, Meter};
use super::nodes::{Identity, Nodes};
use super::source::{self, Source, kind_of};

/// The server; clones share the same state.
#[derive(Clone)]
pub struct Server {
    state: Arc<Mutex<State>>,
    timeout: Duration,
    /// Whether the kernel drops the contents of a file whenever the file is opened.
    cold: bool,
}

struct State {
    source: Source,
    nodes: Nodes,
    files: HashMap<u64, File>,
    folders: HashMap<u64, Vec<Listed>>,
    handles: u64,
    meter: Meter,
}

/// An entry of a folder, as the kernel receives it.
struct Listed {
    number: INodeNo,
    kind: fuser::FileType,
    name: OsString,
}

/// One operation in progress. It holds the server's lock until its simulated duration has passed, so that other
/// operations wait.
struct Turn<'a> {
    state: MutexGuard<'a, State>,
    begin: Instant,
    line: Line,
}

impl Server {
    pub fn new(source: Source, meter: Meter, timeout: Duration, cold: bool) -> io::Result<Server> {
        let nodes = Nodes::new(&source.stat(Path::new(""))?);
        let (files, folders) = (HashMap::new(), HashMap::new());
        let state = State { source, nodes, files, folders, handles: 0, meter };
        Ok(Server { state: Arc::new(Mutex::new(state)), timeout, cold })
    }

    /// Begins an operation on the file `number`, or on the entry `name` of the folder `number`.
    fn turn(&self, request: &Request, operation: &str, number: INodeNo, name: Option<&OsStr>) -> Turn<'_> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = Instant::now();
        let path = state.nodes.path(number);
        let path = name.map_or_else(|| path.to_owned(), |name| path.join(name));
        Turn { state, begin, line: Line { operation: operation.to_owned(), pid: request.pid(), path } }
    }
}

impl Turn<'_> {
    fn end<T>(mut self, result: io::Result<T>) -> Result<T, Errno> {
        self.state.meter.charge(&self.line, self.begin, 0);
        result.map_err(Errno::from)
    }

    fn end_read(mut self, result: io::Result<Vec<u8>>) -> Result<Vec<u8>, Errno> {
        let bytes = result.as_ref().map_or(0, |bytes| bytes.len() as u64);
        self.state.meter.charge(&self.line, self.begin, bytes);
        result.map_err(Errno::from)
    }
}

impl State {
    /// The attributes of the file at `path`; number 0: the file does not exist.
    fn look_up(&mut self, path: &Path) -> io::Result<FileAttr> {
        match self.source.stat(path) {
            Ok(stat) => Ok(attributes(self.nodes.number(Identity::of(&stat), path.to_owned()), &stat)),
            Err(rustix::io::Errno::NOENT) => Ok(attributes(INodeNo(0), &self.source.stat(Path::new(""))?)),
            Err(error) => Err(error.into()),
        }
    }

    /// The attributes of the file `number`. If its path now leads to another file, returns an error that makes the
    /// kernel look the path up again.
    fn stat(&mut self, number: INodeNo) -> io::Result<Stat> {
        let path = self.nodes.path(number);
        let stat = self.source.stat(path).map_err(stale_if_gone)?;
        self.same(number, stat)
    }

    fn same(&mut self, number: INodeNo, stat: Stat) -> io::Result<Stat> {
        match Identity::of(&stat) == self.nodes.identity(number) {
            true => Ok(stat),
            false => Err(rustix::io::Errno::STALE.into()),
        }
    }

    /// Opens a file; returns its handle, and whether the file is unchanged since it was last opened.
    fn open(&mut self, number: INodeNo) -> io::Result<(FileHandle, bool)> {
        let file = self.source.file(self.nodes.path(number)).map_err(stale_if_gone)?;
        let stat = rustix::fs::fstat(&file)?;
        let stat = self.same(number, stat)?;
        let unchanged = self.nodes.is_unchanged(number, &stat);
        let handle = self.next_handle();
        self.files.insert(handle.0, file);
        Ok((handle, unchanged))
    }

    fn open_folder(&mut self, number: INodeNo) -> io::Result<FileHandle> {
        let path = self.nodes.path(number).to_owned();
        let device = self.nodes.identity(number).device;
        let of_folder = |name: &str| Listed { number, kind: fuser::FileType::Directory, name: name.into() };
        let mut listed = vec![of_folder("."), of_folder("..")];
        for entry in self.source.entries(&path).map_err(stale_if_gone)? {
            let identity = Identity { device, inode: entry.inode, kind: entry.kind };
            let number = self.nodes.number(identity, path.join(&entry.name));
            listed.push(Listed { number, kind: entry.kind, name: entry.name });
        }
        let handle = self.next_handle();
        self.folders.insert(handle.0, listed);
        Ok(handle)
    }

    fn next_handle(&mut self) -> FileHandle {
        self.handles += 1;
        FileHandle(self.handles)
    }
}

impl Filesystem for Server {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // As on NFS, cached contents are dropped when a file's attributes change, and the targets of symbolic links are
        // cached.
        let wanted = [InitFlags::FUSE_AUTO_INVAL_DATA, InitFlags::FUSE_CACHE_SYMLINKS];
        for capability in wanted.iter().take(if self.cold { 1 } else { 2 }) {
            // An old kernel without the capability works as well, but sends more operations.
            let _ = config.add_capabilities(*capability);
        }
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut turn = self.turn(request, "lookup", parent, Some(name));
        let path = turn.line.path.clone();
        let found = turn.state.look_up(&path);
        match turn.end(found) {
            // The number 0 tells the kernel that there is no such file; the kernel caches this until the time-out.
            Ok(found) => reply.entry(&self.timeout, &found, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, request: &Request, number: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let mut turn = self.turn(request, "getattr", number, None);
        // An open file has attributes even if it was removed.
        let opened = handle.and_then(|handle| turn.state.files.get(&handle.0)).map(rustix::fs::fstat);
        let stat = match opened {
            Some(stat) => stat.map_err(io::Error::from),
            None => turn.state.stat(number),
        };
        match turn.end(stat) {
            Ok(stat) => reply.attr(&self.timeout, &attributes(number, &stat)),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, request: &Request, number: INodeNo, reply: ReplyData) {
        let turn = self.turn(request, "readlink", number, None);
        let target = turn.state.source.link(&turn.line.path).map_err(stale_if_gone);
        match turn.end(target) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, request: &Request, number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let mut turn = self.turn(request, "open", number, None);
        let opened = turn.state.open(number);
        match turn.end(opened) {
            Ok((handle, unchanged)) => {
                let keep = unchanged && !self.cold;
                let cached = if keep { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() };
                reply.opened(handle, cached | FopenFlags::FOPEN_NOFLUSH);
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let turn = self.turn(request, "read", number, None);
        let file = turn.state.files.get(&handle.0).ok_or_else(not_open);
        let bytes = file.and_then(|file| source::read(file, offset, size));
        match turn.end_read(bytes) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn release(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let mut turn = self.turn(request, "release", number, None);
        let closed = turn.state.files.remove(&handle.0).map(drop).ok_or_else(not_open);
        done(turn.end(closed), reply);
    }

    fn opendir(&self, request: &Request, number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let mut turn = self.turn(request, "opendir", number, None);
        let opened = turn.state.open_folder(number);
        match turn.end(opened) {
            Ok(handle) => reply.opened(handle, FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(&self, request: &Request, number: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let turn = self.turn(request, "readdir", number, None);
        let listed = turn.state.folders.get(&handle.0).ok_or_else(not_open);
        let added = listed.map(|listed| {
            // The offset of an entry, for the kernel, is the index of the next entry.
            let rest = listed.iter().zip(1..).skip(offset as usize);
            for (entry, next) in rest {
                if reply.add(entry.number, next, entry.kind, &entry.name) {
                    break;
                }
            }
        });
        match turn.end(added) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn releasedir(&self, request: &Request, number: INodeNo, handle: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        let mut turn = self.turn(request, "releasedir", number, None);
        let closed = turn.state.folders.remove(&handle.0).map(drop).ok_or_else(not_open);
        done(turn.end(closed), reply);
    }

    fn statfs(&self, request: &Request, number: INodeNo, reply: ReplyStatfs) {
        let turn = self.turn(request, "statfs", number, None);
        let all = turn.state.source.statvfs().map_err(io::Error::from);
        match turn.end(all) {
            Ok(all) => reply.statfs(
                all.f_blocks, all.f_bfree, all.f_bavail, all.f_files, all.f_ffree, all.f_bsize as u32,
                all.f_namemax as u32, all.f_frsize as u32,
            ),
            Err(error) => reply.error(error),
        }
    }
}

fn done(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

fn not_open() -> io::Error {
    rustix::io::Errno::BADF.into()
}

/// The error for a file that the kernel knows. If the file is gone, it is `ESTALE`, with which the kernel looks the
/// path up again.
fn stale_if_gone(error: rustix::io::Errno) -> io::Error {
    use rustix::io::Errno;
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP => Errno::STALE.into(),
        other => other.into(),
    }
}

fn attributes(number: INodeNo, stat: &Stat) -> FileAttr {
    FileAttr {
        ino: number,
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: SystemTime::UNIX_EPOCH,
        kind: kind_of(stat),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: stat.st_blksize as u32,
        flags: 0,
    }
}

/// The seconds can be negative; the nanoseconds are always added.
fn time(seconds: i64, nanoseconds: u64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let epoch = SystemTime::UNIX_EPOCH;
    let start = if seconds < 0 { epoch - whole } else { epoch + whole };
    start + Duration::from_nanos(nanoseconds)
}
