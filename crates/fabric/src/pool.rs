//! Memory that a provider reads and writes, divided into slots of equal length.
//!
//! ```text
//! | slot 0: fi_context2 (64 bytes) | data | slot 1 …        data: a message
//! ```
//!
//! An operation's context points to its slot, so that the completion identifies the slot.

use crate::sys::CONTEXT_LEN;
use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use core::ffi::c_void;
use core::ptr::NonNull;

/// Slots begin at cache lines.
const ALIGN: usize = 64;

pub struct Pool {
    base: NonNull<u8>,
    layout: Layout,
    slot_len: usize,
    data_len: usize,
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; no operation is in progress any more, and nothing points to the memory.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

impl Pool {
    /// Allocates the slots; `None`: no memory is left.
    pub fn new(count: usize, data_len: usize) -> Option<Pool> {
        let slot_len = (CONTEXT_LEN + data_len).next_multiple_of(ALIGN);
        let layout = Layout::from_size_align(slot_len.checked_mul(count.max(1))?, ALIGN).ok()?;
        // SAFETY: the layout is not empty.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Pool { base, layout, slot_len, data_len })
    }

    pub fn count(&self) -> usize {
        self.layout.size() / self.slot_len
    }

    /// The memory of the whole pool: its start and its length.
    pub fn memory(&self) -> (*mut u8, usize) {
        (self.base.as_ptr(), self.layout.size())
    }

    /// The context for an operation on this slot.
    pub fn context(&self, slot: usize) -> *mut c_void {
        assert!(slot < self.count(), "a slot of this pool");
        // SAFETY: the result lies within the pool's memory.
        unsafe { self.base.as_ptr().add(slot * self.slot_len) }.cast()
    }

    /// The slot of a completed operation; `None`: the context is not from this pool.
    pub fn slot(&self, context: *mut c_void) -> Option<usize> {
        let distance = (context as usize).checked_sub(self.base.as_ptr() as usize)?;
        let slot = distance / self.slot_len;
        (distance % self.slot_len == 0 && slot < self.count()).then_some(slot)
    }

    /// The start of the slot's data.
    pub fn data(&self, slot: usize) -> *mut u8 {
        // SAFETY: a slot is longer than its context.
        unsafe { self.context(slot).cast::<u8>().add(CONTEXT_LEN) }
    }

    /// Copies bytes into a slot that no operation uses; returns their length. Bytes that do not fit are cut off.
    pub fn fill(&mut self, slot: usize, bytes: &[u8]) -> usize {
        let len = bytes.len().min(self.data_len);
        // SAFETY: the bytes lie within the slot, which the provider does not use now.
        unsafe { self.data(slot).copy_from_nonoverlapping(bytes.as_ptr(), len) };
        len
    }

    /// Copies the content of a slot, in which `len` bytes have arrived, into `buffer`. Returns its length, at most that
    /// of the buffer.
    pub fn copy_out(&self, slot: usize, len: usize, buffer: &mut [u8]) -> usize {
        let len = len.min(self.data_len).min(buffer.len());
        // SAFETY: the bytes lie within the slot, whose operation is complete.
        unsafe { buffer.as_mut_ptr().copy_from_nonoverlapping(self.data(slot), len) };
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_apart_and_know_their_place() {
        let mut pool = Pool::new(3, 140).unwrap();
        assert_eq!((pool.count(), pool.memory().1), (3, 3 * 256));
        for slot in 0..3 {
            assert_eq!(pool.fill(slot, &[slot as u8 + 1; 200]), 140, "what does not fit is cut off");
            let slots = (pool.slot(pool.context(slot)), pool.slot(pool.data(slot).cast()));
            assert_eq!(slots, (Some(slot), None));
            assert_eq!(pool.context(slot) as usize % ALIGN, 0);
        }
        let mut buffer = [0; 99];
        assert_eq!(pool.copy_out(1, 140, &mut buffer), 99);
        assert_eq!((pool.copy_out(2, 10, &mut buffer), buffer[9], buffer[10]), (10, 3, 2));
        let beyond = (pool.context(0) as usize + pool.memory().1) as *mut c_void;
        assert_eq!((pool.slot(beyond), pool.slot(core::ptr::null_mut())), (None, None));
    }
}
