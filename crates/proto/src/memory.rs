//! Memory that an agent shares with the ranks of its node.
//!
//! The driver decides what that is: sealed memory of the kernel's, which travels to a rank as a descriptor, or the
//! [`Heap`] where nobody is there to receive it. It is written once, while it is made, and never changes after that; it is
//! gone with its last owner. The formats in it are `wireup_wire::shared`.

use crate::pmi_server::arena::Arena;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use wireup_wire::shared::rows::ARENA_SLOTS;

/// Makes memory to share.
pub trait Memory {
    /// Memory of `len` bytes, which `fill` writes; what it leaves out is zero.
    ///
    /// # Errors
    /// There is none to be had; `fill` was not called then, or what it wrote is gone.
    fn share(&mut self, len: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<Shared, MemoryError>;

    /// Memory to be written again and again; `None`: there is none such.
    fn arena(&mut self, slot_len: usize) -> Option<Box<dyn Arena>>;
}

/// No memory could be made: what was tried, why it failed and what to do, in words for a person.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("sharing {len} bytes with the ranks of this node: {problem}")]
pub struct MemoryError {
    pub len: usize,
    pub problem: String,
}

/// One piece of shared memory, as its driver holds it.
pub trait Region: Send + Sync {
    fn bytes(&self) -> &[u8];

    /// How many these are; does not touch them.
    fn byte_len(&self) -> usize;

    /// What is handed to a rank. `None`: this memory cannot leave the process.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// What lies in a slot of an arena now, for a rank that lives in this process.
    fn slot(&self, _index: usize) -> Option<Shared> {
        None
    }
}

/// One piece of shared memory and all who hold it. Equal if the bytes are.
#[derive(Clone)]
pub struct Shared(Arc<dyn Region>);

impl Shared {
    pub fn new(region: impl Region + 'static) -> Self {
        Shared(Arc::new(region))
    }

    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// How many bytes there are; does not touch them.
    pub fn byte_len(&self) -> usize {
        self.0.byte_len()
    }

    /// See [`Region::descriptor`].
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }

    /// See [`Region::slot`].
    pub fn slot(&self, index: usize) -> Option<Shared> {
        self.0.slot(index)
    }
}

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.bytes() == other.bytes()
    }
}

impl Eq for Shared {}

impl fmt::Debug for Shared {
    /// The same for all drivers: it goes into the digest of a recording.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} shared bytes", self.0.byte_len())
    }
}

/// Memory of this process alone: for the simulator, a replay and tests.
#[derive(Clone, Copy, Default, Debug)]
pub struct Heap;

impl Memory for Heap {
    fn share(&mut self, len: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<Shared, MemoryError> {
        let mut bytes = vec![0; len].into_boxed_slice();
        fill(&mut bytes);
        Ok(Shared::new(Page(bytes)))
    }

    fn arena(&mut self, slot_len: usize) -> Option<Box<dyn Arena>> {
        let slots = Arc::default();
        Some(Box::new(HeapArena { shared: Shared::new(Slots { slots: Arc::clone(&slots), slot_len }), slots }))
    }
}

type SlotList = Arc<Mutex<[Option<Shared>; ARENA_SLOTS as usize]>>;

struct HeapArena {
    shared: Shared,
    slots: SlotList,
}

impl Arena for HeapArena {
    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn write(&mut self, slot: usize, len: usize, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        let written = Heap.share(len, fill).ok();
        self.slots.lock().expect("nothing panics while it is locked")[slot] = written;
        true
    }
}

struct Slots {
    slots: SlotList,
    slot_len: usize,
}

impl Region for Slots {
    fn bytes(&self) -> &[u8] {
        &[]
    }

    fn byte_len(&self) -> usize {
        self.slot_len * ARENA_SLOTS as usize
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn slot(&self, index: usize) -> Option<Shared> {
        self.slots.lock().expect("nothing panics while it is locked").get(index)?.clone()
    }
}

struct Page(Box<[u8]>);

impl Region for Page {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn byte_len(&self) -> usize {
        self.0.len()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_keeps_what_was_filled_in() {
        let share = |text: &[u8]| Heap.share(4, &mut |bytes| bytes[..text.len()].copy_from_slice(text)).unwrap();
        let shared = share(b"ab");
        assert_eq!(shared.bytes(), b"ab\0\0");
        assert!(shared.descriptor().is_none());
        assert_eq!(format!("{shared:?}"), "4 shared bytes");
        assert_eq!((&shared, shared == share(b"ac")), (&share(b"ab"), false));
    }
}
