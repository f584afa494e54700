//! Sealed memory: written once, then shared with other processes that cannot change it.
//!
//! It is a memory file that is filled through a mapping of this process. Then that mapping goes and the file is sealed, so
//! that nobody who gets its descriptor can write to it, map it writable, cut it, punch holes into it or take the seals off,
//! and no reader has to fear that what it has checked changes, or that a read beyond the end kills it.
//!
//! Readers map it `MAP_PRIVATE`: kernels before 6.7 take `MAP_SHARED` for the wish to write. As nobody writes, all see the
//! very same pages.

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::slice;
use std::sync::OnceLock;

mod arena;

pub use arena::ArenaMemory;

/// What was tried to get memory, and why it failed.
#[derive(thiserror::Error, Debug)]
#[error("{step}: {error}")]
pub struct ShmError {
    pub step: &'static str,
    pub error: io::Error,
}

fn failed(step: &'static str) -> impl FnOnce(Errno) -> ShmError {
    move |error| ShmError { step, error: error.into() }
}

/// A sealed memory file.
#[derive(Debug)]
pub struct SealedMemory {
    fd: OwnedFd,
    len: usize,
    view: OnceLock<View>,
}

/// How this process reads it.
#[derive(Debug)]
enum View {
    Mapped(Mapping),
    /// The process has as many mappings as it may.
    Copied(Vec<u8>),
}

impl SealedMemory {
    /// Memory of `len` bytes, at least one, which `fill` writes; what it leaves out is zero. `name` is what
    /// `/proc/*/fd` shows.
    ///
    /// # Errors
    /// No descriptor, memory or address space is left.
    pub fn new(name: &str, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<Self, ShmError> {
        assert!(len > 0, "no empty memory is shared");
        let fd = memory_file(name).map_err(failed("making a memory file"))?;
        // Allocated here, where it can fail: a page that cannot be had later is a SIGBUS.
        let allocate = || rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, len as u64);
        retry_on_intr(allocate).map_err(failed("allocating its pages"))?;
        let mut mapping = Mapping::writable(&fd, len).map_err(failed("mapping it"))?;
        fill(mapping.bytes_mut());
        drop(mapping);
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        rustix::fs::fcntl_add_seals(&fd, seals).map_err(failed("sealing it"))?;
        Ok(SealedMemory { fd, len, view: OnceLock::new() })
    }

    /// What was written. Mapped when it is asked for.
    pub fn bytes(&self) -> &[u8] {
        let view = self.view.get_or_init(|| match Mapping::read_only(&self.fd, self.len) {
            Ok(mapping) => View::Mapped(mapping),
            Err(_) => View::Copied(read_all(&self.fd, self.len)),
        });
        match view {
            View::Mapped(mapping) => mapping.bytes(),
            View::Copied(bytes) => bytes,
        }
    }

    /// Bytes, without a look at them.
    pub fn byte_len(&self) -> usize {
        self.len
    }
}

impl AsFd for SealedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn memory_file(name: &str) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Kernels before 6.3 do not know it.
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        made => made,
    }
}

/// # Panics
/// If a descriptor that this process made cannot be read, or is shorter than it was made: no kernel does that.
fn read_all(fd: &OwnedFd, len: usize) -> Vec<u8> {
    let (mut bytes, mut at) = (vec![0; len], 0);
    while at < len {
        let read = retry_on_intr(|| rustix::io::pread(fd, &mut bytes[at..], at as u64));
        at += read.ok().filter(|read| *read > 0).expect("sealed memory is as long as it was made");
    }
    bytes
}

/// A memory file in the address space.
#[derive(Debug)]
struct Mapping {
    start: NonNull<c_void>,
    len: usize,
    writable: bool,
}

// SAFETY: a mapping is memory like any other; it is written only through `&mut Mapping`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// For a file that nobody else has: its maker's.
    fn writable(fd: &OwnedFd, len: usize) -> Result<Mapping, Errno> {
        Mapping::new(fd, len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE)
    }

    /// For an arena's maker, who writes it time and again.
    fn arena(fd: &OwnedFd, len: usize) -> Result<Mapping, Errno> {
        Mapping::new(fd, len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED)
    }

    /// For a file that is sealed.
    fn read_only(fd: &OwnedFd, len: usize) -> Result<Mapping, Errno> {
        Mapping::new(fd, len, ProtFlags::READ, MapFlags::PRIVATE)
    }

    fn new(fd: &OwnedFd, len: usize, protection: ProtFlags, flags: MapFlags) -> Result<Mapping, Errno> {
        // SAFETY: the kernel chooses a place where nothing is mapped, and nobody knows of it before this returns.
        let start = unsafe { mmap(null_mut(), len, protection, flags, fd, 0) }?;
        let start = NonNull::new(start).ok_or(Errno::NOMEM)?;
        Ok(Mapping { start, len, writable: protection.contains(ProtFlags::WRITE) })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes are mapped and allocated from `start` on as long as `self` lives. Nobody changes them: a
        // file that others can reach is sealed, one that is not sealed yet is written only through `&mut self`.
        unsafe { slice::from_raw_parts(self.start.as_ptr().cast(), self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(self.writable, "sealed memory is not written");
        // SAFETY: as in `bytes`; mapped for writing, and `self` is borrowed as long as the slice. The file is shared with
        // nobody yet.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped; slices of it borrow `self`, so none is left. It cannot fail for a whole mapping.
        let _ = unsafe { munmap(self.start.as_ptr(), self.len) };
    }
}

#[cfg(test)]
mod tests;
