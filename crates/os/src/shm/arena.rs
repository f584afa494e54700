//! Makes memory that this process writes repeatedly; other processes can read it but not change it.

use super::{MappedRegion, ShmError, failed, memory_file};
use rustix::fs::{FallocateFlags, SealFlags};
use rustix::io::retry_on_intr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

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
    ///
    /// # Errors
    /// No descriptor is left.
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
