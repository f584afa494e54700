//! Memory that this process writes again and again while others read it, and that they cannot change.

use super::{Mapping, ShmError, failed, memory_file};
use rustix::fs::{FallocateFlags, SealFlags};
use rustix::io::retry_on_intr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A memory file whose only writable mapping is this process's.
#[derive(Debug)]
pub struct ArenaMemory {
    fd: OwnedFd,
    mapping: Mapping,
    /// Where memory was never asked for.
    untouched: usize,
}

impl ArenaMemory {
    /// Room for `len` bytes; memory is taken as it is written.
    ///
    /// # Errors
    /// No descriptor or address space is left, or the kernel is older than 5.1.
    pub fn new(name: &str, len: usize) -> Result<Self, ShmError> {
        assert!(len > 0, "no empty memory is shared");
        let fd = memory_file(name).map_err(failed("making a memory file"))?;
        retry_on_intr(|| rustix::fs::ftruncate(&fd, len as u64)).map_err(failed("making it long enough"))?;
        let mapping = Mapping::arena(&fd, len).map_err(failed("mapping it"))?;
        // From here on nobody else gets a mapping to write, nor writes through the descriptor.
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE;
        rustix::fs::fcntl_add_seals(&fd, seals).map_err(failed("sealing it"))?;
        Ok(ArenaMemory { fd, mapping, untouched: 0 })
    }

    /// For the descriptor's other owners, who keep it from now on.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn share(&self) -> std::io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// The bytes from `at` on, to be written.
    ///
    /// # Errors
    /// There is no memory for them.
    ///
    /// # Panics
    /// If they are beyond the end.
    pub fn bytes_mut(&mut self, at: usize, len: usize) -> Result<&mut [u8], ShmError> {
        let end = at + len;
        assert!(end <= self.mapping.len, "an arena is written within its length");
        if end > self.untouched {
            // Asked for here, where it can fail: a page that cannot be had later is a SIGBUS.
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
