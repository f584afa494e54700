//! The memory where our server puts short arrays: mapped once, read again and again.

use crate::memory::Memory;
use crate::number;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, Ordering};
use wireup_wire::shared::rows::ARENA_SLOTS;

/// The result of an allgather. The server does not write this memory while the value exists.
pub struct Values<M: Memory> {
    part: M::SharedBytes,
    arena: Arc<Arena<M>>,
    slot: u32,
}

struct Arena<M> {
    /// The arena's number; 0: this memory holds a single array.
    number: u32,
    memory: M,
    /// Bit set of the slots that were read and that have not been reported to the server as free.
    freed: AtomicU32,
}

impl<M: Memory> Values<M> {
    /// The memory that holds the values.
    pub fn memory(&self) -> &M::SharedBytes {
        &self.part
    }
}

impl<M: Memory> Deref for Values<M> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.part
    }
}

impl<M: Memory> fmt::Debug for Values<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes in slot {}", self.part.len(), self.slot)
    }
}

impl<M: Memory> Drop for Values<M> {
    fn drop(&mut self) {
        self.arena.freed.fetch_or(1 << self.slot, Ordering::Release);
    }
}

/// The arena that this process has mapped, if any.
pub struct Mapped<M>(Option<Arc<Arena<M>>>);

impl<M> Default for Mapped<M> {
    fn default() -> Self {
        Mapped(None)
    }
}

impl<M: Memory> Mapped<M> {
    /// The array at `place`. `memory` came with the answer: the array itself if `place` is 0, otherwise a new arena.
    /// `None`: it could not be mapped.
    pub fn values(&mut self, place: u32, memory: Option<M>) -> Option<Values<M>> {
        let (number, slot) = (place / ARENA_SLOTS, place % ARENA_SLOTS);
        if let Some(memory) = memory {
            let arena = Arc::new(Arena { number, memory, freed: AtomicU32::new(0) });
            if number == 0 {
                return Some(Values { part: arena.memory.whole()?, arena, slot: 0 });
            }
            self.0 = Some(arena);
        }
        let arena = Arc::clone(self.0.as_ref().filter(|arena| arena.number == number)?);
        Some(Values { part: arena.memory.slot(slot)?, arena, slot })
    }

    /// Writes the places that were read since the last call to `text`, separated by commas.
    pub fn take_freed(&self, text: &mut Vec<u8>) {
        text.clear();
        let Some(arena) = &self.0 else { return };
        let freed = arena.freed.swap(0, Ordering::Acquire);
        for slot in 0..ARENA_SLOTS {
            if freed & 1 << slot != 0 {
                number::push_item((arena.number * ARENA_SLOTS + slot) as usize, text);
            }
        }
    }
}
