//! Makes sealed memory, which is written once, then shared with other processes that cannot change it.
//!
//! The memory file is filled through a mapping of this process. Then that mapping is removed and the file is sealed. No
//! holder of its descriptor can then write to it, map it writable, truncate it, punch holes into it or remove the
//! seals. So data that a reader has checked cannot change, and a read beyond the end cannot kill the reader.
//!
//! Readers map the file with `MAP_PRIVATE`, since kernels before 6.7 treat `MAP_SHARED` as a request to write. As
//! nothing writes to the file, all readers share the same pages.
//!
//! An arena is memory that this process writes repeatedly; other processes can read it but not change it.

mod ring;

use crate::files::memory_file;
pub use ring::{Incoming, RingReader, RingWriter, incoming};
use rustix::fs::{FallocateFlags, SealFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::slice;

/// The step at which making the memory failed, and the error.
#[derive(thiserror::Error, Debug)]
#[error("{step} failed: {error}")]
pub struct ShmError {
    pub step: &'static str,
    pub error: io::Error,
}

fn failed(step: &'static str) -> impl FnOnce(Errno) -> ShmError {
    move |error| ShmError { step, error: error.into() }
}

/// Makes sealed memory of `len` bytes (at least one), which `fill` writes; bytes that it leaves out are zero. `name` is
/// shown in `/proc/*/fd`.
pub fn sealed_memory(name: &str, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<OwnedFd, ShmError> {
    assert!(len > 0, "shared memory must not be empty");
    let fd = memory_file(name).map_err(failed("making a memory file"))?;
    // Pages are allocated here, where failure can be reported: a page that cannot be allocated later causes SIGBUS.
    let allocate = || rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, len as u64);
    retry_on_intr(allocate).map_err(failed("allocating its pages"))?;
    let mut mapping = MappedRegion::writable(&fd, len).map_err(failed("mapping it"))?;
    fill(mapping.bytes_mut());
    drop(mapping);
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&fd, seals).map_err(failed("sealing it"))?;
    Ok(fd)
}

/// A memory file that is mapped into the address space.
#[derive(Debug)]
struct MappedRegion {
    start: NonNull<c_void>,
    len: usize,
    writable: bool,
}

impl MappedRegion {
    /// Maps a file for writing; no other process may have its descriptor yet.
    fn writable(fd: &OwnedFd, len: usize) -> Result<MappedRegion, Errno> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let region = MappedRegion::new(fd, len, ProtFlags::READ | ProtFlags::WRITE, flags)?;
        // Another thread may fork at any time, and the file cannot be sealed while a child has this mapping, so
        // children must not inherit it. SAFETY: the range is exactly the mapping above, which no child needs.
        let _ = unsafe { madvise(region.start.as_ptr(), len, Advice::LinuxDontFork) };
        Ok(region)
    }

    /// Maps an arena for its creator, which writes to it repeatedly.
    fn arena(fd: &OwnedFd, len: usize) -> Result<MappedRegion, Errno> {
        MappedRegion::new(fd, len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED)
    }

    fn new(fd: &OwnedFd, len: usize, protection: ProtFlags, flags: MapFlags) -> Result<MappedRegion, Errno> {
        // SAFETY: the kernel chooses an address where nothing is mapped, and no other code knows it before this
        // returns.
        let start = unsafe { mmap(null_mut(), len, protection, flags, fd, 0) }?;
        let start = NonNull::new(start).ok_or(Errno::NOMEM)?;
        Ok(MappedRegion { start, len, writable: protection.contains(ProtFlags::WRITE) })
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(self.writable, "sealed memory cannot be written");
        // SAFETY: `len` bytes are mapped, allocated and writable from `start` on as long as `self` lives, and `self` is
        // borrowed as long as the slice. No other code of this process has the mapping.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.len) }
    }
}

impl Drop for MappedRegion {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the mapping; slices of it borrow `self`, so none is left. `munmap` cannot fail
        // for a whole mapping.
        let _ = unsafe { munmap(self.start.as_ptr(), self.len) };
    }
}

/// A memory file whose only writable mapping is in this process.
#[derive(Debug)]
pub struct ArenaMemory {
    fd: OwnedFd,
    mapping: MappedRegion,
    /// Offset of the first byte for which no page has been allocated.
    untouched: usize,
}

impl ArenaMemory {
    /// Reserves `len` bytes of address space; pages are allocated when they are written.
    ///
    /// # Errors
    /// No descriptor or address space is left, or the kernel is older than 5.1.
    pub fn new(name: &str, len: usize) -> Result<Self, ShmError> {
        assert!(len > 0, "shared memory must not be empty");
        let fd = memory_file(name).map_err(failed("making a memory file"))?;
        retry_on_intr(|| rustix::fs::ftruncate(&fd, len as u64)).map_err(failed("making it long enough"))?;
        let mapping = MappedRegion::arena(&fd, len).map_err(failed("mapping it"))?;
        // With these seals no other process can get a writable mapping or write through the descriptor.
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE;
        rustix::fs::fcntl_add_seals(&fd, seals).map_err(failed("sealing it"))?;
        Ok(ArenaMemory { fd, mapping, untouched: 0 })
    }

    /// A duplicate of the memory file's descriptor.
    pub fn share(&self) -> std::io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// The `len` bytes that begin at offset `at`, for writing.
    ///
    /// # Errors
    /// No memory is left for the pages of these bytes.
    ///
    /// # Panics
    /// If the bytes extend beyond the end of the arena.
    pub fn bytes_mut(&mut self, at: usize, len: usize) -> Result<&mut [u8], ShmError> {
        let end = at + len;
        assert!(end <= self.mapping.len, "a write must stay within the arena");
        if end > self.untouched {
            // Pages are allocated here, where failure can be reported: a page that cannot be allocated later causes
            // SIGBUS.
            let from = self.untouched.min(at) as u64;
            let allocate = || rustix::fs::fallocate(&self.fd, FallocateFlags::empty(), from, end as u64 - from);
            retry_on_intr(allocate).map_err(failed("allocating its pages"))?;
            self.untouched = end;
        }
        Ok(&mut self.mapping.bytes_mut()[at..end])
    }
}

impl AsFd for ArenaMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests;
