//! Descriptors that are passed with an answer, and the memory that they refer to.

use alloc::sync::Arc;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ops::Deref;
use core::ptr::NonNull;
use wireup_client::memory::Memory;
use wireup_wire::shared::rows::ARENA_SLOTS;

/// An open descriptor that this process owns; closed when dropped.
#[derive(Debug)]
pub struct Descriptor(c_int);

impl Descriptor {
    /// Takes ownership of `fd`: no other code closes it.
    pub fn new(fd: c_int) -> Self {
        Descriptor(fd)
    }

    /// Maps the whole file and closes the descriptor; `None` if mapping fails or the file is empty.
    pub fn map(self) -> Option<Mapping> {
        let mut stat = MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: the kernel fills the structure; all zeros are a valid value of it.
        let size = unsafe {
            if libc::fstat(self.0, stat.as_mut_ptr()) != 0 {
                return None;
            }
            stat.assume_init().st_size
        };
        let len = usize::try_from(size).ok().filter(|len| *len > 0)?;
        // Private, since kernels before 6.7 refuse shared mappings of memory that is sealed against writing. Without writes both kinds map
        // the same pages.
        // SAFETY: a new mapping of an open file whose mapped contents do not change.
        let start = unsafe { libc::mmap(core::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, self.0, 0) };
        let start = if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) };
        start.map(|start| Mapping { start, len })
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: this value owns the descriptor and it is not used afterwards.
        unsafe { libc::close(self.0) };
    }
}

/// Memory that the server has written and sealed. It cannot become shorter. Only the server changes it, and only parts that no process may
/// be reading (see `wireup_wire::shared::rows` on arenas).
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is only read, and belongs to the owner of the value.
unsafe impl Send for Mapping {}
// SAFETY: as above: all threads that share the value only read it.
unsafe impl Sync for Mapping {}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes are mapped as long as the value exists; the server sealed them before it sent the descriptor.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

/// A mapping with several owners.
#[derive(Clone, Debug)]
pub struct Shared(Arc<Mapping>);

impl Shared {
    pub fn new(mapping: Mapping) -> Self {
        Shared(Arc::new(mapping))
    }
}

/// A mapping, starting at some offset.
#[derive(Debug)]
pub struct Part {
    mapping: Shared,
    at: usize,
}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.mapping.0.get(self.at..).unwrap_or_default()
    }
}

impl Memory for Shared {
    type Part = Part;

    fn whole(&self) -> Option<Part> {
        Some(Part { mapping: self.clone(), at: 0 })
    }

    fn slot(&self, slot: u32) -> Option<Part> {
        let at = self.0.len() / ARENA_SLOTS as usize * slot as usize;
        Some(Part { mapping: self.clone(), at })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the whole of our own mapping; no slice of it outlives the value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::sealed;

    /// The file of a descriptor (its inode). A concurrent test may have been given the same descriptor number after the close.
    fn file(fd: c_int) -> Option<u64> {
        let mut stat = MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: the kernel fills the structure; all zeros are a valid value of it.
        unsafe { (libc::fstat(fd, stat.as_mut_ptr()) == 0).then(|| stat.assume_init().st_ino) }
    }

    #[test]
    fn sealed_memory_is_mapped_and_the_descriptor_closed() {
        let fd = sealed(b"some bytes");
        let before = file(fd);
        let mapping = Descriptor::new(fd).map().expect("sealed memory");
        assert_eq!(&mapping[..], b"some bytes");
        assert!(before.is_some() && file(fd) != before);
        assert!(Descriptor::new(sealed(b"")).map().is_none());
        assert!(Descriptor::new(-1).map().is_none());
    }
}
