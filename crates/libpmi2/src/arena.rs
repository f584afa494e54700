//! The memory where our server lays short arrays down: mapped once, read again and again.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, Ordering};
use wireup_capi::ints;
use wireup_capi::mapping::Mapping;
use wireup_wire::shared::rows::ARENA_SLOTS;

/// What an allgather has brought, in memory that the server has written and does not write as long as this lives.
#[derive(Debug)]
pub struct Values {
    arena: Arc<Arena>,
    slot: u32,
    at: usize,
}

#[derive(Debug)]
struct Arena {
    /// 0: memory of one array alone.
    number: u32,
    memory: Mapping,
    /// A bit for each slot that was read and that the server has not been told of.
    freed: AtomicU32,
}

impl Deref for Values {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // Within the arena, see below.
        self.arena.memory.get(self.at..).unwrap_or_default()
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        self.arena.freed.fetch_or(1 << self.slot, Ordering::Release);
    }
}

/// The arena that is known.
#[derive(Default)]
pub struct Known(Option<Arc<Arena>>);

impl Known {
    /// What lies at `place`, 0 for none; `memory` is what came along: an array or a new arena. `None`: it is not mapped, for want of
    /// room.
    pub fn values(&mut self, place: u32, memory: Option<Mapping>) -> Option<Values> {
        let (number, slot) = (place / ARENA_SLOTS, place % ARENA_SLOTS);
        if let Some(memory) = memory {
            let arena = Arc::new(Arena { number, memory, freed: AtomicU32::new(0) });
            if number == 0 {
                return Some(Values { arena, slot, at: 0 });
            }
            self.0 = Some(arena);
        }
        let arena = Arc::clone(self.0.as_ref().filter(|arena| arena.number == number)?);
        let at = arena.memory.len() / ARENA_SLOTS as usize * slot as usize;
        Some(Values { arena, slot, at })
    }

    /// The places that were read since the last time, separated by commas.
    pub fn take_freed(&self, text: &mut Vec<u8>) {
        text.clear();
        let Some(arena) = &self.0 else { return };
        let freed = arena.freed.swap(0, Ordering::Acquire);
        for slot in 0..ARENA_SLOTS {
            if freed & 1 << slot != 0 {
                ints::push_item((arena.number * ARENA_SLOTS + slot) as usize, text);
            }
        }
    }
}
