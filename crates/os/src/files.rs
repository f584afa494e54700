//! Makes and changes descriptors other than sockets: pipes, sealed memory, `/dev/null`, and the descriptor table
//! itself.
//!
//! All descriptors made here are close-on-exec.

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

/// A pipe: (read end, write end), both blocking.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?)
}

/// Sets or clears `O_NONBLOCK` of the open file behind `fd` (shared by its duplicates).
pub fn set_nonblocking(fd: impl AsFd, on: bool) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(fd, on)?)
}

/// `/dev/null` for reading and writing.
pub fn null() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// Free bytes below which a file system counts as full. Chosen: more than a library of a job allocates at once.
const ROOM_MIN: u64 = 4 << 20;

/// A text about the free space in the file system of a folder, if the file system is full.
pub fn lacking_room(folder: &Path) -> Option<String> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    let free = stat.f_bavail * stat.f_frsize;
    let (is_full, is_out_of_files) = (stat.f_blocks > 0 && free < ROOM_MIN, stat.f_files > 0 && stat.f_favail == 0);
    match () {
        () if is_full => Some(format!("{} is full: {} KiB are free", folder.display(), free >> 10)),
        () if is_out_of_files => Some(format!("{} is full: it can have no more files", folder.display())),
        () => None,
    }
}

/// A file in memory that appears in no file system and can be sealed. It cannot be executed, as kernels from 6.3 on may
/// demand (`vm.memfd_noexec`), but libraries can be mapped from it.
pub fn memory_file(name: &str) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Kernels before 6.3 do not know `NOEXEC_SEAL`.
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        made => made,
    }
}

/// Anonymous memory that holds `bytes`, sealed against changes and positioned at its start. It can be read like a file
/// and appears in no file system.
pub fn sealed_memory(bytes: &[u8]) -> io::Result<OwnedFd> {
    let memory = memory_file("input")?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = rustix::io::write(&memory, rest)?;
        rest = &rest[written..];
    }
    rustix::fs::fcntl_add_seals(&memory, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    rustix::fs::seek(&memory, rustix::fs::SeekFrom::Start(0))?;
    Ok(memory)
}

/// A duplicate of `fd` whose number is at least `lowest`.
pub fn duplicate_from(fd: impl AsFd, lowest: RawFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, lowest)?)
}

/// The standard output as a file. Whatever this process prints from now on goes to standard error.
///
/// # Errors
/// Standard output or standard error is closed, or no descriptor is left.
pub fn take_stdout() -> io::Result<File> {
    let stdout = rustix::stdio::stdout().try_clone_to_owned()?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    Ok(stdout.into())
}

/// Opens `/dev/null` as each of the descriptors 0, 1 and 2 that is closed. Otherwise another file could get that number
/// and be mistaken for standard input, output or error. Rust's own start-up code does the same.
///
/// # Errors
/// A standard descriptor is closed, and `/dev/null` is missing.
pub fn fill_standard_streams() -> io::Result<()> {
    for number in 0..3 {
        // SAFETY: `fcntl` only reads flags; neither call touches memory. The new descriptor gets the lowest free
        // number, which is `number`, and belongs to the process from then on.
        let filled = unsafe {
            libc::fcntl(number, libc::F_GETFD) != -1 || libc::open(c"/dev/null".as_ptr(), access(number)) != -1
        };
        if !filled {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The access mode of the `/dev/null` that replaces a closed standard stream. As standard output it is read-only, so
/// that writes fail: a program must not believe that its output has been written.
fn access(number: i32) -> i32 {
    if number == libc::STDOUT_FILENO { libc::O_RDONLY } else { libc::O_RDWR }
}

/// Closes every descriptor of the process except `keep`.
/// Only for a process that has just been forked: any handle to a closed descriptor is invalid afterwards. The caller
/// must forget such handles instead of dropping them.
pub fn close_all_but(keep: &[BorrowedFd<'_>]) {
    let mut numbers: Vec<u32> = keep.iter().map(|fd| fd.as_raw_fd() as u32).collect();
    numbers.sort_unstable();
    let mut first = 0;
    for number in numbers {
        if number > first {
            close_range(first, number - 1);
        }
        first = number + 1;
    }
    close_range(first, u32::MAX);
}

fn close_range(first: u32, last: u32) {
    // SAFETY: the call touches no memory; the caller of `close_all_but` guarantees that nothing uses the
    // descriptors any more.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if result == 0 {
        return;
    }
    // Kernels before 5.9 lack the call: close one by one, up to the highest number in use.
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers: Vec<u32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str().and_then(|n| n.parse().ok())).collect();
    for number in numbers.into_iter().filter(|number| (first..=last).contains(number)) {
        // SAFETY: as for `close_range`: `close` touches no memory, and nothing uses the descriptor any more.
        unsafe { libc::close(number as RawFd) };
    }
}

/// Whether `path` is this file or directory itself. A symbolic link to it does not count.
pub fn is_at(file: impl AsFd, path: &Path) -> bool {
    match (rustix::fs::fstat(file), rustix::fs::lstat(path)) {
        (Ok(own), Ok(other)) => (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino),
        _ => false,
    }
}

/// Opens the file of this program, even if it has been deleted or another file has taken its name.
pub fn own_program() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open("/proc/self/exe", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Writes all bytes of the slices. `write`: a function like `Write::write_vectored`.
pub fn write_all_vectored(
    mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    mut rest: &mut [IoSlice<'_>],
) -> io::Result<()> {
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

/// A path at which a forked copy of this process finds the program: its own path, or `/proc/self/exe` if the file was
/// deleted or another file has taken its name.
pub fn path_of_own_program() -> PathBuf {
    const OWN: &str = "/proc/self/exe";
    let path = std::fs::read_link(OWN).unwrap_or_default();
    match own_program() {
        Ok(own) if is_at(&own, &path) => path,
        _ => OWN.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_memory_reads_back_and_refuses_writes() {
        let memory = sealed_memory(b"secret").unwrap();
        let mut buffer = [0u8; 16];
        let read = rustix::io::read(&memory, &mut buffer[..]).unwrap();
        assert_eq!(&buffer[..read], b"secret");
        assert_eq!(rustix::io::write(&memory, b"x"), Err(rustix::io::Errno::PERM));
    }

    #[test]
    fn memory_files_cannot_be_executed() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL;
        if rustix::fs::memfd_create("probe", flags).is_err() {
            println!("SKIPPED: this kernel makes every memory file executable");
            return;
        }
        for memory in [memory_file("data").unwrap(), sealed_memory(b"data").unwrap()] {
            assert_eq!(rustix::fs::fstat(&memory).unwrap().st_mode & 0o111, 0);
        }
    }

    #[test]
    fn this_program_is_found_where_it_lies() {
        assert_eq!(path_of_own_program(), std::env::current_exe().unwrap());
    }

    #[test]
    fn nonblocking_is_set_and_cleared() {
        let (reader, _writer) = pipe().unwrap();
        set_nonblocking(&reader, true).unwrap();
        assert_eq!(rustix::io::read(&reader, &mut [0u8; 1][..]), Err(rustix::io::Errno::AGAIN));
        set_nonblocking(&reader, false).unwrap();
        assert!(!rustix::fs::fcntl_getfl(&reader).unwrap().contains(OFlags::NONBLOCK));
    }
}
