//! Memory that the agent's ranks map: sealed, known by its descriptor.

use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wireup_os::shm::{ArenaMemory, SealedMemory, ShmError};
use wireup_proto::arena::Arena;
use wireup_proto::memory::{Memory, MemoryError, Region, Shared};
use wireup_wire::shared::rows::ARENA_SLOTS;

/// What `/proc/*/fd` calls it.
const NAME: &str = "wireup";

pub struct RankMemory;

impl Memory for RankMemory {
    fn share(&mut self, len: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<Shared, MemoryError> {
        match SealedMemory::new(NAME, len, fill) {
            Ok(memory) => Ok(Shared::new(Sealed(memory))),
            Err(error) => Err(MemoryError { len, problem: format!("{error}{}", next_step(&error)) }),
        }
    }

    fn arena(&mut self, slot_len: usize) -> Option<Box<dyn Arena>> {
        let memory = ArenaMemory::new(NAME, slot_len * ARENA_SLOTS as usize).ok()?;
        let len = slot_len * ARENA_SLOTS as usize;
        let shared = Shared::new(ArenaRegion { fd: memory.share().ok()?, len });
        Some(Box::new(RankArena { memory, slot_len, shared }))
    }
}

/// Written by this agent, mapped by its ranks.
struct RankArena {
    memory: ArenaMemory,
    slot_len: usize,
    shared: Shared,
}

impl Arena for RankArena {
    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn write(&mut self, slot: usize, len: usize, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        self.memory.bytes_mut(slot * self.slot_len, len).map(fill).is_ok()
    }
}

/// What ranks get of it. Nobody reads it here.
struct ArenaRegion {
    fd: OwnedFd,
    len: usize,
}

impl Region for ArenaRegion {
    fn bytes(&self) -> &[u8] {
        &[]
    }

    fn byte_len(&self) -> usize {
        self.len
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}

struct Sealed(SealedMemory);

impl Region for Sealed {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn byte_len(&self) -> usize {
        self.0.byte_len()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// What a person can do about it.
fn next_step(error: &ShmError) -> &'static str {
    match Errno::from_io_error(&error.error) {
        Some(Errno::MFILE) => {
            "; raise the hard limit of open files (ulimit -Hn) for wireup run and for its remote shell"
        }
        Some(Errno::NFILE) => "; raise fs.file-max on this node",
        Some(Errno::NOMEM | Errno::NOSPC) => "; more memory is needed on this node, or in the cgroup of its agent",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_has_a_descriptor() {
        let shared = RankMemory.share(3, &mut |bytes| bytes.copy_from_slice(b"abc")).unwrap();
        assert_eq!((shared.bytes(), shared.byte_len()), (&b"abc"[..], 3));
        let mut buffer = [0; 8];
        assert_eq!(rustix::io::pread(shared.descriptor().unwrap(), &mut buffer, 0), Ok(3));
        assert_eq!(shared, wireup_proto::memory::Heap.share(3, &mut |bytes| bytes.copy_from_slice(b"abc")).unwrap());
    }

    #[test]
    fn a_person_is_told_what_to_do() {
        let error = |errno: Errno| ShmError { step: "making a memory file", error: errno.into() };
        assert!(next_step(&error(Errno::MFILE)).contains("ulimit -Hn"));
        assert!(next_step(&error(Errno::NOMEM)).contains("memory"));
    }
}
