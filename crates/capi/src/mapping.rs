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
    /// Takes ownership of `fd`: no other code may close it.
    pub fn new(fd: c_int) -> Self {
        Descriptor(fd)
    }

    fn stat(&self) -> Option<libc::stat> {
        let mut stat = MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: the kernel fills the structure; all zeros are a valid value of it.
        unsafe { (libc::fstat(self.0, stat.as_mut_ptr()) == 0).then(|| stat.assume_init()) }
    }

    fn is_socket(&self) -> bool {
        self.stat().is_some_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFSOCK)
    }

    pub fn fd(&self) -> c_int {
        self.0
    }

    /// Gives up the ownership of the descriptor: the caller must close it.
    pub fn into_raw(self) -> c_int {
        let fd = self.0;
        core::mem::forget(self);
        fd
    }

    /// Whether the file can change. `None`: it may become shorter, or any process may get a way to write to it. Then a
    /// reader may be killed by a page that is not there any more, or find other bytes than those that it has checked.
    fn contents(&self) -> Option<Contents> {
        // SAFETY: no memory is passed.
        let seals = unsafe { libc::fcntl(self.0, libc::F_GET_SEALS) };
        let has = |seal: c_int| seals >= 0 && seals & seal != 0;
        match (has(libc::F_SEAL_SHRINK), has(libc::F_SEAL_WRITE), has(libc::F_SEAL_FUTURE_WRITE)) {
            (true, true, _) => Some(Contents::Final),
            (true, false, true) => Some(Contents::Arena),
            _ => None,
        }
    }

    /// Maps the whole file and closes the descriptor; `None` if mapping fails, or the file is empty or not sealed.
    pub fn map(self) -> Option<Mapping> {
        let contents = self.contents()?;
        let len = usize::try_from(self.stat()?.st_size).ok().filter(|len| *len > 0)?;
        // Private, since kernels before 6.7 refuse shared mappings of memory that is sealed against writing. Without
        // writes both kinds map the same pages. SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe { libc::mmap(core::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, self.0, 0) };
        let start = if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) };
        start.map(|start| Mapping { start, len, contents })
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: this value owns the descriptor and it is not used afterwards.
        unsafe { libc::close(self.0) };
    }
}

/// Whether memory can change, as its seals say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Contents {
    /// No process can write to the memory.
    Final,
    /// Whoever had a mapping before it was sealed can write to it: our agent, which writes only slots that no process
    /// may be reading (see `wireup_wire::shared::rows`). Nothing but the agent's conduct keeps a slot from changing
    /// while it is read.
    Arena,
}

/// Memory that the server has written and sealed. It cannot become shorter.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
    contents: Contents,
}

// SAFETY: the memory is only read, and belongs to the owner of the value.
unsafe impl Send for Mapping {}
// SAFETY: as above: all threads that share the value only read it.
unsafe impl Sync for Mapping {}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes are mapped as long as the value exists, and the seals, which were looked at before, keep
        // the file from becoming shorter. Bytes of `Contents::Final` do not change, by the seals. Of an arena, callers
        // read only slots that the agent has given them and that it does not write before they have given them back
        // (`Memory::slot`); the agent is of this user, and its word is all there is for that.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

/// What a descriptor stands for, with several owners.
#[derive(Clone, Debug)]
pub enum Shared {
    Memory(Arc<Mapping>),
    Socket(Arc<Descriptor>),
}

impl Shared {
    /// What a received descriptor stands for; `None`: it is neither a socket nor memory that can be mapped.
    pub fn new(descriptor: Descriptor) -> Option<Self> {
        match descriptor.is_socket() {
            true => Some(Shared::Socket(Arc::new(descriptor))),
            false => descriptor.map().map(|mapping| Shared::Memory(Arc::new(mapping))),
        }
    }

    fn memory(&self) -> Option<&Arc<Mapping>> {
        if let Shared::Memory(mapping) = self { Some(mapping) } else { None }
    }

    /// The socket; `None`: it has another owner, or this is no socket.
    pub fn into_socket(self) -> Option<Descriptor> {
        if let Shared::Socket(socket) = self { Arc::into_inner(socket) } else { None }
    }
}

/// A mapping, starting at some offset.
#[derive(Debug)]
pub struct MappedBytes {
    mapping: Arc<Mapping>,
    at: usize,
}

impl Deref for MappedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.mapping.get(self.at..).unwrap_or_default()
    }
}

impl Memory for Shared {
    type SharedBytes = MappedBytes;

    fn whole(&self) -> Option<MappedBytes> {
        let mapping = self.memory().filter(|mapping| mapping.contents == Contents::Final)?;
        Some(MappedBytes { mapping: mapping.clone(), at: 0 })
    }

    fn slot(&self, slot: u32) -> Option<MappedBytes> {
        let mapping = self.memory()?;
        Some(MappedBytes { mapping: mapping.clone(), at: mapping.len() / ARENA_SLOTS as usize * slot as usize })
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

    /// The file of a descriptor (its inode). A concurrent test may have been given the same descriptor number after the
    /// close.
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

    #[test]
    fn memory_that_others_may_change_or_shorten_is_not_mapped() {
        let with = |seals: c_int| {
            // SAFETY: the name ends with a zero byte; the slice is what is written; the descriptor is owned by the
            // value that is returned.
            unsafe {
                let fd = libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
                assert!(fd >= 0 && libc::write(fd, b"bytes".as_ptr().cast(), 5) == 5);
                assert_eq!(libc::fcntl(fd, libc::F_ADD_SEALS, seals), 0);
                Descriptor::new(fd)
            }
        };
        for few in [0, libc::F_SEAL_SHRINK, libc::F_SEAL_WRITE, libc::F_SEAL_FUTURE_WRITE, libc::F_SEAL_GROW] {
            assert!(with(few).map().is_none(), "{few:#x}");
        }
        for enough in [libc::F_SEAL_WRITE, libc::F_SEAL_FUTURE_WRITE] {
            assert!(with(libc::F_SEAL_SHRINK | enough).map().is_some(), "{enough:#x}");
        }
        // An arena cannot be read as a whole, only slot by slot.
        let arena = Shared::new(with(libc::F_SEAL_SHRINK | libc::F_SEAL_FUTURE_WRITE)).unwrap();
        let array = Shared::new(with(libc::F_SEAL_SHRINK | libc::F_SEAL_WRITE)).unwrap();
        assert!(arena.whole().is_none() && arena.slot(0).is_some() && array.whole().is_some());
        // An ordinary file has no seals, so it is not mapped.
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(Descriptor::new(std::os::fd::IntoRawFd::into_raw_fd(file)).map().is_none());
    }
}
